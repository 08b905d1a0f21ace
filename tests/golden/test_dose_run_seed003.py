"""The published tables of "In RAG We Trust?" from a run folder: counts in, figures out.

The records of 1,911 answers are made so that they have the published counts: 49 questions with
37 distinct texts, three rules, doses and draws, and four control arms. The analysis reads the
folder as it reads any other.
"""

from __future__ import annotations

from typing import Any

import pytest

from ragassay import canon
from ragassay.experiments.protocols import analyze
from ragassay.store import RunFolder
from ragassay.types import (
    EditsRecord,
    Query,
    Sampling,
    ScoreRecord,
    Target,
    TrialRecord,
    TrialSpec,
)

RULES = ("entity", "number", "negation")
QUESTIONS, TEXTS, DRAWS = 49, 37, 3
CELLS = QUESTIONS * DRAWS  # of one rule and dose
# How many runs have which applied dose, by requested dose and rule; together 418, 511, 289, 105.
DELIVERED = {
    1: {rule: {1: n, 0: CELLS - n} for rule, n in zip(RULES, (84, 83, 83), strict=True)},
    2: {rule: {2: 50, 1: 50, 0: 47} for rule in RULES},
    3: {
        "entity": {3: 42, 2: 46, 1: 37, 0: 22},
        "number": {3: 9, 2: 47, 1: 37, 0: 54},
        "negation": {3: 54, 2: 46, 1: 37, 0: 10},
    },
}
ADOPTED = {1: 55, 2: 68, 3: 16}
ADOPTED_AT_THREE = {"entity": 6, "number": 9, "negation": 1}
WITH_ABSTENTION = 80  # of the adopting answers


class Records:
    """Collects the records of a folder, with one call for each answer."""

    def __init__(self) -> None:
        self.edits: list[tuple[str, Any]] = []
        self.trials: list[tuple[str, Any]] = []
        self.scores: list[tuple[str, Any]] = []

    def add(
        self, arm: str, cell: int, *, rule: str = "", requested: int = 0, applied: int = 0,
        correct: bool, adopted: bool = False, abstained: bool = False, order: int = 0,
        answer: str = "",
    ) -> None:  # fmt: skip
        question, draw = divmod(cell, DRAWS)
        spec = TrialSpec(
            protocol="dose/1", dataset="d", query_id=f"q{question:02d}", question="", attack=rule,
            budget=requested, poison="", retriever="r:k3", defense="none", defense_label="none",
            prompt="p", generator="g", sampling=Sampling(temperature=0.1), seed=42,
            variant=f"{arm} {draw}",
        )  # fmt: skip
        key = canon.digest(spec)
        self.edits.append((key, EditsRecord(
            trial_key=key, query_id=spec.query_id, setting="", defense="none", arm=arm,
            instruction="closed" if arm == "closed_book" else "open", order=order, rule=rule,
            draw=draw, mode="all" if rule else "", requested=requested, applied=applied,
        )))  # fmt: skip
        self.trials.append(
            (key, TrialRecord(key=key, spec=spec, status="done", answer=answer or f"{arm} {cell}"))
        )
        self.scores.append((key, ScoreRecord(
            trial_key=key, scorer="polarity", version="1", target_positive=None, correct=correct,
            abstained=abstained,
        )))  # fmt: skip
        if arm != "closed_book":
            self.scores.append((f"{key}#edits", ScoreRecord(
                trial_key=f"{key}#edits", scorer="polarity", version="1", target_positive=adopted,
                correct=None, abstained=None,
            )))  # fmt: skip


def controls(records: Records) -> None:
    """Clean 115, zero dose 114 (one lost), closed book 123, irrelevant 18 of 147 correct.

    130 of the 147 pairs are equal: 70 of 78 where the clean arm came first, 60 of 69 else.
    """
    for cell in range(CELLS):
        clean_first = cell < 78
        equal = cell < 70 or 78 <= cell < 138
        clean = cell < 114 or cell == 146  # the last one is lost, and not equal
        text = f"answer {cell}"
        records.add("clean", cell, correct=clean, answer=text, order=0 if clean_first else 9)
        records.add(
            "zero_dose", cell, correct=cell < 114, order=1,
            answer=text if equal else f"other {cell}",
        )  # fmt: skip
        records.add("closed_book", cell, correct=cell < 123)
        records.add("irrelevant", cell, correct=cell < 18, abstained=cell >= 18)


def grid(records: Records) -> None:
    adopted_left = dict(ADOPTED)
    both_left = WITH_ABSTENTION
    by_rule = dict(ADOPTED_AT_THREE)
    for requested, rules in DELIVERED.items():
        for rule, applied_counts in rules.items():
            applied = [dose for dose, n in applied_counts.items() for _ in range(n)]
            assert len(applied) == CELLS
            for cell, dose in enumerate(applied):
                adopted = bool(adopted_left.get(dose))
                if dose == 3:
                    adopted = bool(by_rule[rule])
                    by_rule[rule] -= adopted
                elif adopted:
                    adopted_left[dose] -= 1
                both = adopted and both_left > 0
                both_left -= both
                records.add(
                    "tampered", cell, rule=rule, requested=requested, applied=dose,
                    correct=dose == 0 and cell < 114, adopted=adopted, abstained=both,
                )  # fmt: skip


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = RunFolder(tmp_path_factory.mktemp("seed003") / "run")
    records = Records()
    controls(records)
    grid(records)
    resolved = {
        "v": 1, "protocol": "dose/1", "headline": "polarity", "scorers": {"polarity": "polarity:1"},
        "defenses": {"none": "none"}, "attacks": {}, "rules": dict.fromkeys(RULES, "r"),
        "settings": {"": {"retriever": "r", "k": 3, "generator": "g"}},
        "dataset": {"name": "fever"}, "instructions": {
            "with passages": {"digest": "open"}, "closed book": {"digest": "closed"}},
        "experiment": {
            "name": "seed003", "seed": 42, "statistics": {"draws": 400, "confidence": 0.95},
            "generator": {"temperature": 0.1},
            "dose": {"rules": [{"plugin": rule, "label": ""} for rule in RULES], "doses": [],
                     "draws": DRAWS, "choose": "all", "contexts": "retrieved"},
        },
    }  # fmt: skip
    with folder.writer():
        folder.write_text("resolved.json", canon.dumps(resolved))
        folder.append_many("queries", [
            (f"q{n:02d}", {
                "query": Query(id=f"q{n:02d}", text=f"Claim {n % TEXTS}", group="g"),
                "target": Target(query_id=f"q{n:02d}", references=("yes",)),
            })
            for n in range(QUESTIONS)
        ])  # fmt: skip
        for stream in ("edits", "trials", "scores"):
            folder.append_many(stream, getattr(records, stream))
    return analyze(folder)


def row(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    [found] = [r for r in rows if all(r[k] == v for k, v in wanted.items())]
    return found


def test_the_design_has_the_published_size(summary: dict[str, Any]) -> None:
    assert summary["trials"]["planned"] == 1323 + 588 == 1911
    assert (summary["questions"], summary["groups"]) == (49, 37)
    assert row(summary["response"], rule="")["n"] == 1323


def test_table_two_by_applied_dose(summary: dict[str, Any]) -> None:
    points = row(summary["response"], rule="")["points"]
    assert [p["n"] for p in points] == [418, 511, 289, 105]
    assert [p["adopted"]["count"] for p in points] == [0, 55, 68, 16]
    assert [round(100 * p["adopted"]["value"], 1) for p in points] == [0.0, 10.8, 23.5, 15.2]
    assert sum(p["adopted_and_abstained"] for p in points) == 80
    for point in points:
        assert sum(point["resolved"].values()) == point["fooled"]["n"]


def test_table_one_delivery_at_three_requested(summary: dict[str, Any]) -> None:
    exact = {r["rule"]: r["exact"] for r in summary["delivery"] if r["requested"] == 3}
    assert {rule: e["count"] for rule, e in exact.items()} == {
        "entity": 42, "number": 9, "negation": 54,
    }  # fmt: skip
    assert [round(100 * exact[rule]["value"]) for rule in RULES] == [29, 6, 37]
    for each in (r for r in summary["delivery"] if r["requested"] == 1):
        assert each["mean"] == pytest.approx(each["exact"]["value"])  # by definition


def test_table_four_adoption_by_rule_at_dose_three(summary: dict[str, Any]) -> None:
    found = {rule: row(summary["response"], rule=rule)["points"][-1]["adopted"] for rule in RULES}
    assert {rule: (a["count"], a["n"]) for rule, a in found.items()} == {
        "entity": (6, 42), "number": (9, 9), "negation": (1, 54),
    }  # fmt: skip


def test_control_arms_and_decoding_noise(summary: dict[str, Any]) -> None:
    shares = {arm["arm"]: arm["correct"] for arm in summary["arms"]}
    assert {arm: (s["count"], s["n"]) for arm, s in shares.items()} == {
        "clean": (115, 147), "zero_dose": (114, 147), "closed_book": (123, 147),
        "irrelevant": (18, 147),
    }  # fmt: skip
    [noise] = summary["noise"]
    assert [
        (noise[a]["count"], noise[a]["n"])
        for a in ("agree", "agree_clean_first", "agree_zero_first")
    ] == [(130, 147), (70, 78), (60, 69)]
    assert (noise["symmetry"]["lost"], noise["symmetry"]["gained"]) == (1, 0)
    assert noise["symmetry"]["p_value"] == 1.0
    assert (noise["fooled"]["count"], noise["fooled"]["n"]) == (1, 115)
    test = row(summary["tests"], second="zero_dose")
    assert (test["correct_first"] - test["correct_second"], test["p_value"]) == (1, 1.0)


def test_paired_contrasts_add_up_where_marginal_ones_need_not(summary: dict[str, Any]) -> None:
    pooled = [r for r in summary["contrasts"] if r["event"] == "fooled" and r["dose"] is None]
    values = {(r["first"], r["second"]): r["value"] for r in pooled}
    assert values["entity", "number"] + values["number", "negation"] == pytest.approx(
        values["entity", "negation"]
    )
    assert len({r["questions"] for r in pooled}) == 1


def test_known_facts_are_those_of_the_closed_book(summary: dict[str, Any]) -> None:
    runs = {r["known"]: r["n"] for r in summary["knowledge"]}
    assert runs == {True: 123 * 9, False: 24 * 9}
