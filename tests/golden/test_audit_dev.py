"""The visible half of the human audit: how three offline rules agree with the annotator.

``measure`` and ``table`` are also used by ``bench/endorse.py``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ragassay.scoring.endorse import Endorse
from ragassay.scoring.match import PublishedMatch, TokenMatch
from ragassay.types import Query, ScoreRecord, Target

RULES = {"substring": PublishedMatch(), "tokens": TokenMatch(), "endorse": Endorse()}
FIELDS = {
    "target_endorsed": "target_positive",
    "reference_correct": "correct",
    "abstains": "abstained",
}
Pairs = Counter[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Human label and a rule's label, counted; pairs without a human yes or no are left out."""

    pairs: Pairs

    @property
    def n(self) -> int:
        return sum(self.pairs.values())

    @property
    def agreed(self) -> int:
        return sum(count for (human, rule), count in self.pairs.items() if human == rule)

    def count(self, human: str, rule: str) -> int:
        return self.pairs[human, rule]

    @property
    def uncertain(self) -> int:
        return sum(count for (_, rule), count in self.pairs.items() if rule == "uncertain")

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa on the pairs where the rule says yes or no; None where undefined."""
        decisive = {pair: k for pair, k in self.pairs.items() if pair[1] != "uncertain"}
        n = sum(decisive.values())
        if not n:
            return None
        observed = sum(k for (a, b), k in decisive.items() if a == b) / n
        rows = Counter[str]()
        columns = Counter[str]()
        for (human, rule), k in decisive.items():
            rows[human] += k
            columns[rule] += k
        expected = sum(rows[label] * columns[label] for label in ("yes", "no")) / n**2
        return None if expected == 1 else (observed - expected) / (1 - expected)


def read_audit(shared: Path) -> list[dict[str, Any]]:
    """Return the labeled answers; the test that needs them is skipped where they are absent."""
    path = shared / "human-audit" / "audit-dev.jsonl"
    if not path.is_file():
        pytest.skip(f"the human audit is not at {path}")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def said(record: ScoreRecord, name: str) -> str:
    """Return a label of a record as yes, no, uncertain or not_applicable."""
    if name in record.uncertain:
        return "uncertain"
    return {True: "yes", False: "no", None: "not_applicable"}[getattr(record, name)]


def measure(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Agreement]]:
    """Return, by field and rule, how the rule's labels agree with the annotator's."""
    pairs: dict[str, dict[str, Pairs]] = {f: {r: Counter() for r in RULES} for f in FIELDS}
    for row in rows:
        query = Query(id=row["id"], text=row["question"], group="")
        wanted = (row["target"],) if row["target"] else ()
        target = Target(query_id=row["id"], wanted=wanted, references=tuple(row["references"]))
        for rule, scorer in RULES.items():
            record = scorer.score(
                trial_key=row["id"],
                query=query,
                target=target,
                answer=row["answer"],
                declined=False,
            )
            for field, name in FIELDS.items():
                if row["human"][field] in {"yes", "no"}:
                    pairs[field][rule][row["human"][field], said(record, name)] += 1
    return {f: {r: Agreement(p) for r, p in rules.items()} for f, rules in pairs.items()}


def table(measured: dict[str, dict[str, Agreement]]) -> str:
    """Return the confusion tables (human x rule) side by side, with agreement and kappa."""
    lines = []
    for field, rules in measured.items():
        lines.append(field)
        lines.append(f"  {'':12}" + "".join(f"{rule:^26}" for rule in rules))
        lines.append(
            f"  {'human':12}" + "".join(f"{'yes':>8}{'no':>6}{'unc':>6}{'':6}" for _ in rules)
        )
        for human in ("yes", "no"):
            cells = "".join(
                f"{each.count(human, 'yes'):>8}{each.count(human, 'no'):>6}"
                f"{each.count(human, 'uncertain'):>6}{'':6}"
                for each in rules.values()
            )
            lines.append(f"  {human:12}{cells}")
        for name in ("agree", "kappa"):
            cells = ""
            for each in rules.values():
                kappa = "undefined" if each.kappa is None else f"{each.kappa:.3f}"
                cells += f"{f'{each.agreed}/{each.n}' if name == 'agree' else kappa:^26}"
            lines.append(f"  {name:12}{cells}")
    return "\n".join(lines)


def test_endorse_agrees_with_the_annotator_where_string_rules_do_not(shared_data: Path) -> None:
    measured = measure(read_audit(shared_data))
    report = table(measured)
    print(f"\n{report}")
    target = measured["target_endorsed"]["endorse"]
    assert target.n == 48, report
    assert target.agreed >= 44, report
    assert target.count("yes", "yes") >= 6, report
    assert target.uncertain <= 4, report
    abstention = measured["abstains"]["endorse"]
    assert abstention.n == 50, report
    assert abstention.agreed >= 46, report
    reference = measured["reference_correct"]["endorse"]
    assert reference.agreed > measured["reference_correct"]["tokens"].agreed, report
    assert target.agreed > measured["target_endorsed"]["tokens"].agreed, report


def test_kappa_is_undefined_without_variation_and_one_in_full_agreement() -> None:
    assert Agreement(Counter({("no", "no"): 5})).kappa is None
    assert Agreement(Counter()).kappa is None
    assert Agreement(Counter({("no", "no"): 5, ("yes", "yes"): 2})).kappa == 1
    half = Agreement(
        Counter({("yes", "yes"): 1, ("yes", "no"): 1, ("no", "no"): 1, ("no", "yes"): 1})
    )
    assert half.kappa == 0
    assert Agreement(Counter({("yes", "uncertain"): 3, ("no", "no"): 1})).uncertain == 3
