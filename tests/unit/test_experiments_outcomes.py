"""Attacks without a target: success by hand-assigned labels, and what reports say of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ragassay import canon
from ragassay.attacks.garag import Garag
from ragassay.attacks.jamming import Jamming
from ragassay.attacks.jamming_search import JammingSearch
from ragassay.attacks.poison_file import PoisonFile
from ragassay.attacks.poisonedrag import PoisonedRAG
from ragassay.data.poison_file import PoisonLine, append_poison
from ragassay.experiments.outcomes import outcome_of
from ragassay.experiments.protocols import analyze
from ragassay.experiments.tax import FACTS, context_f1
from ragassay.report import grids
from ragassay.report.finding import best, finding
from ragassay.report.markdown import markdown
from ragassay.report.render import write_reports
from ragassay.store import RunFolder
from ragassay.types import (
    ContextEntry,
    Cost,
    Knowledge,
    Passage,
    PoisonSet,
    Query,
    Sampling,
    ScoreRecord,
    Target,
    TrialRecord,
    TrialSpec,
)

# Labels of an answer: (correct, abstained). Undefended clean, undefended poisoned, defended ones.
GOOD, DECLINED, WRONG, OPEN = (True, False), (False, True), (False, False), (None, None)
ROWS = [
    (GOOD, DECLINED, GOOD, GOOD),
    (GOOD, DECLINED, GOOD, DECLINED),
    (WRONG, DECLINED, WRONG, WRONG),  # answered before: it counts for declining alone
    (GOOD, WRONG, GOOD, GOOD),
    (GOOD, GOOD, DECLINED, DECLINED),  # with the defense it declined before
    (DECLINED, DECLINED, GOOD, GOOD),  # declined before: no success of anybody
    (GOOD, OPEN, GOOD, GOOD),
    (GOOD, DECLINED, GOOD, GOOD),  # no poison in its contexts: not due to the attack
]
KINDS = {"block": "declined", "typos": "incorrect", "target": "target"}


def facts(outcome: str) -> dict[str, Any]:
    nothing = {"value": None, "n": 0}
    return {
        "asked": 2, "max_words": None, "questions": len(ROWS), "short": {"q3": 1},
        "played": False, "outcome": outcome,
        "knowledge": {"llm": "none", "retriever": "none", "corpus": "none", "query": "exact",
                      "correct_answer": False},
        "passages": 2, "cost": {"seconds": 0.0, "gpu_seconds": 0.0}, "seconds": nothing,
        "similarity": nothing, "perplexity": nothing,
    }  # fmt: skip


def build(folder: Path, attacks: tuple[str, ...] = tuple(KINDS)) -> RunFolder:
    store = RunFolder(folder)
    resolved = {
        "protocol": "aligned/1",
        "experiment": {
            "name": "hand", "seed": 1, "statistics": {"draws": 1000, "confidence": 0.95},
            "retriever": {"k": 3},
        },
        "dataset": {"name": "hand"}, "headline": "rule", "scorers": {"rule": "rule:1"},
        "defenses": {"none": "n", "mine": "m"},
    }  # fmt: skip
    with store.writer():
        store.write_text("resolved.json", canon.dumps(resolved))
        about = {name: facts(KINDS[name]) for name in attacks}
        store.write_text(FACTS, canon.dumps({"v": 1, "attacks": about}))
        for number, row in enumerate(ROWS):
            query = Query(id=f"q{number}", text=f"question {number}", group=f"g{number % 3}")
            store.append("queries", query.id, {"query": query, "target": Target(query_id=query.id)})
            for defense, clean, poisoned in (("none", row[0], row[1]), ("mine", row[2], row[3])):
                trial(store, query, clean, "", 0, defense)
                for attack in attacks:
                    trial(store, query, poisoned, attack, 2, defense)
    return store


def trial(
    store: RunFolder, query: Query, labels: Any, attack: str, budget: int, defense: str
) -> None:
    spec = TrialSpec(
        protocol="aligned/1", dataset="d", query_id=query.id, question=query.text, attack=attack,
        budget=budget, poison="", retriever="r", defense=defense, defense_label=defense,
        prompt="p", generator="g", sampling=Sampling(), seed=1,
    )  # fmt: skip
    key = canon.digest(spec)
    reached = budget and query.id != "q7"
    origins = ("own", "foreign", "corpus") if reached else ("corpus",) * 3
    context = tuple(
        ContextEntry(id=f"{i}", score=1 - i / 10, origin=origin, gold=False, kept=True)  # type: ignore[arg-type]
        for i, origin in enumerate(origins)
    )
    store.append("trials", key, TrialRecord(key=key, spec=spec, status="done", context=context,
                                            answer="x"))  # fmt: skip
    correct, abstained = labels
    store.append("scores", key, ScoreRecord(
        trial_key=key, scorer="rule", version="1", correct=correct, abstained=abstained,
        target_positive=False, uncertain=("correct", "abstained") if correct is None else (),
    ))  # fmt: skip


def row_of(summary: dict[str, Any], attack: str, defense: str) -> dict[str, Any]:
    [row] = [r for r in summary["outcomes"]["rows"]
             if (r["attack"], r["defense"]) == (attack, defense)]  # fmt: skip
    return row


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = build(tmp_path_factory.mktemp("outcomes"))
    folder.write_text("summary.json", canon.dumps(analyze(folder.path)))
    return folder


@pytest.fixture(scope="module")
def summary(store: RunFolder) -> dict[str, Any]:
    return store.read_json("summary.json")


@pytest.mark.parametrize(
    ("attack", "defense", "success", "handled", "undecided"),
    [
        ("block", "none", (3, 6), (7, 8), 1),
        ("typos", "none", (3, 5), (6, 8), 1),
        ("block", "mine", (1, 7), (7, 8), 0),
        ("typos", "mine", (1, 6), (6, 8), 0),
    ],
)
def test_success_is_out_of_what_the_same_system_handled_on_clean_retrieval(
    summary: dict[str, Any], attack: str, defense: str, success: Any, handled: Any, undecided: int
) -> None:
    row = row_of(summary, attack, defense)
    assert (row["success"]["count"], row["success"]["n"]) == success
    assert (row["handled"]["count"], row["handled"]["n"]) == handled
    assert row["undecided"] == undecided
    assert row["success"]["low"] < row["success"]["value"] < row["success"]["high"]


def test_an_attack_with_a_target_has_its_kind_and_no_row(summary: dict[str, Any]) -> None:
    assert summary["outcomes"]["attacks"] == KINDS
    assert {row["attack"] for row in summary["outcomes"]["rows"]} == {"block", "typos"}


def test_the_tax_takes_each_attacks_own_success_and_its_f1(summary: dict[str, Any]) -> None:
    performance = summary["tax"]["performance"]
    assert performance["block"]["s_asr"] == 3 / 6
    assert performance["typos"]["s_asr"] == 3 / 5
    assert performance["target"]["s_asr"] == 0
    # One own passage among three: 2 * 1 / (2 + 3), for q3, which got one, 2 * 1 / (1 + 3); q7: 0.
    assert performance["target"]["s_f1"] == pytest.approx((6 * 0.4 + 0.5) / 8)


def test_f1_counts_a_paraphrase_with_the_poison_of_its_question(store: RunFolder) -> None:
    [record] = [t for t in store.trials().values()
                if (t.spec.query_id, t.spec.attack, t.spec.defense_label)
                == ("q3", "block", "none")]  # fmt: skip
    assert context_f1([record], {"asked": 2, "short": {"q3": 1}}, 2) == pytest.approx(0.5)
    assert context_f1([record], {"asked": 2, "short": {}}, 2) == pytest.approx(0.4)
    assert context_f1([record], {"asked": 5, "short": {}}, 1) == pytest.approx(0.5)
    child = canon.to_plain(record.spec) | {"query_id": "q3#p6"}
    asked = TrialRecord(
        key="k", spec=TrialSpec(**{**child, "sampling": Sampling()}), status="done",
        context=record.context, answer="x",
    )  # fmt: skip
    assert context_f1([asked], {"asked": 2, "short": {"q3": 1}}, 2) == pytest.approx(0.5)


def test_reports_say_what_the_attack_is_after_instead_of_a_target_rate(
    store: RunFolder, summary: dict[str, Any]
) -> None:
    text = markdown(summary)
    assert "## Attacks without a target" in text
    section = text.partition("## Attacks without a target")[2]
    assert "the system answered and now declines" in section
    assert "3/6 (50.0%)" in section
    blocks = {block.attack: grids.undefended_line(block) for block in grids.blocks(summary)}
    assert "succeeds where the system answered and now declines" in blocks["block"]
    assert "no success of it" in blocks["typos"]
    assert "succeeds where" not in blocks["target"]
    page = write_reports(store.path)["html"].read_text(encoding="utf-8")
    assert "h-untargeted" in page
    assert "h-tax" in page


def test_the_finding_is_not_about_the_target_rate_of_such_attacks(
    tmp_path: Path, summary: dict[str, Any]
) -> None:
    lead = best(summary)
    assert lead is None or lead["attack"] == "target"
    alone = analyze(build(tmp_path, ("block",)).path)
    told = finding(alone)
    assert "3/6 questions the system answered and now declines" in told
    assert "target-positive" not in told


def test_attacks_declare_what_they_are_after() -> None:
    assert outcome_of(PoisonedRAG()) == "target"
    assert outcome_of(Jamming()) == "declined"
    assert outcome_of(JammingSearch) == "declined"
    assert outcome_of(Garag) == "incorrect"

    class Own:
        untargeted = True

    assert outcome_of(Own()) == "incorrect"


@pytest.mark.parametrize(
    ("wanted", "provenance", "expected"),
    [
        ((), {"outcome": "declined"}, "declined"),
        ((), {}, "incorrect"),
        (("Bacon",), {}, "target"),
        ((), {"outcome": "something else"}, "incorrect"),
    ],
)
def test_a_file_of_poison_plays_the_outcome_of_its_attack(
    tmp_path: Path, wanted: tuple[str, ...], provenance: dict[str, Any], expected: str
) -> None:
    line = PoisonLine(
        key="k", question="who?", asked=1, provenance=provenance,
        poison=PoisonSet(attack="a", query_id="q", wanted=wanted, knowledge=Knowledge(),
                         passages=(Passage(id="p", text="text"),), cost=Cost()),
    )  # fmt: skip
    append_poison(tmp_path / "poison.jsonl", line)
    assert outcome_of(PoisonFile(path=str(tmp_path / "poison.jsonl"))) == expected
