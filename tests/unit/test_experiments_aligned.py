"""The analysis on records with hand-assigned labels: every figure is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ragassay import canon
from ragassay.errors import ConfigError, StoreError
from ragassay.experiments.protocols import analyze
from ragassay.report.reading import ReadOnce
from ragassay.store import RunFolder
from ragassay.types import (
    ContextEntry,
    Query,
    Sampling,
    ScoreRecord,
    Target,
    ToolUsage,
    TrialRecord,
    TrialSpec,
)

# One row per query: c0, c1, p0, p1. P = 3 (q0-q2), J = 2 (q3, q4), H = +1 (q9).
LABELS = [
    (0, 0, 1, 0), (0, 0, 1, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0, 0, 1),
    (1, 1, 1, 1), (0, 0, 1, 1), (0, 0, 0, 0), (0, 0, 0, 0), (0, 1, 1, 1),
]  # fmt: skip
PLACES = (("", 0, "none"), ("", 0, "mine"), ("att", 2, "none"), ("att", 2, "mine"))


def write(folder: Path, labels: list[tuple[Any, ...]], *, groups: int = 2) -> RunFolder:
    store = RunFolder(folder)
    resolved = {
        "protocol": "aligned/1",
        "experiment": {
            "name": "hand", "seed": 1, "statistics": {"draws": 1000, "confidence": 0.95},
            "retriever": {"k": 2},
        },
        "dataset": {"name": "hand"}, "headline": "rule", "scorers": {"rule": "rule:1"},
        "defenses": {"none": "n", "mine": "m"},
    }  # fmt: skip
    with store.writer():
        store.write_text("resolved.json", canon.dumps(resolved))
        for n, four in enumerate(labels):
            query = Query(id=f"q{n}", text=f"question {n}", group=f"g{n % groups}")
            store.append("queries", query.id, {"query": query, "target": Target(query_id=query.id)})
            for label, (attack, budget, defense) in zip(four, PLACES, strict=True):
                _trial(store, query, label, attack, budget, defense)
    return store


def _trial(store: RunFolder, query: Query, label: Any, attack: str, budget: int, defense: str
           ) -> None:  # fmt: skip
    spec = TrialSpec(
        protocol="aligned/1", dataset="d", query_id=query.id, question=query.text, attack=attack,
        budget=budget, poison="", retriever="r", defense=defense, defense_label=defense,
        prompt="p", generator="g", sampling=Sampling(), seed=1,
    )  # fmt: skip
    key = canon.digest(spec)
    if label == "failed":
        record = TrialRecord(key=key, spec=spec, status="failed", error="server gone")
        store.append("trials", key, record)
        return
    context = (
        ContextEntry(id="a", score=1, origin="own" if budget else "corpus", gold=False, kept=True),
        ContextEntry(id="b", score=0.5, origin="corpus", gold=True, kept=defense == "none"),
    )
    calls = 3 if defense == "mine" else 1
    record = TrialRecord(
        key=key, spec=spec, status="done", context=context, answer="x",
        usage=ToolUsage(model_calls=calls, input_tokens=10 * calls, output_tokens=calls),
    )  # fmt: skip
    store.append("trials", key, record)
    if label == "unread":
        return
    positive = None if label in ("unscored", "n/a", "?") else bool(label)
    score = ScoreRecord(
        trial_key=key, scorer="rule", version="1", target_positive=positive,
        correct=None if label == "?" else not positive, abstained=False,
        uncertain=("target_positive", "correct") if label == "?" else (),
    )  # fmt: skip
    store.append("scores", key, score)


def mine(summary: dict[str, Any]) -> dict[str, Any]:
    return next(cell for cell in summary["cells"] if cell["defense"] == "mine")


def test_the_ten_query_example_gives_its_known_figures(tmp_path: Path) -> None:
    write(tmp_path, LABELS)
    cell = mine(analyze(tmp_path))
    assert {k: (e["count"], e["value"]) for k, e in cell["effects"].items()} == {
        "P": (3, 0.3), "J": (2, 0.2), "N": (1, 0.1), "H": (1, 0.1), "Gamma": (2, 0.2)
    }  # fmt: skip
    assert [cell["rates"][c]["count"] for c in ("c0", "c1", "p0", "p1")] == [1, 2, 6, 5]
    assert cell["prevented_share"]["value"] == 0.5
    assert cell["prevented_share"]["n"] == 6
    assert cell["mcnemar"]["poisoned"]["p_value"] == 1.0
    assert (cell["mcnemar"]["poisoned"]["gained"], cell["mcnemar"]["poisoned"]["lost"]) == (2, 3)
    assert cell["n"] == 10
    assert cell["cost"]["p1"]["model_calls"] == 3
    assert cell["context"]["p1"]["retrieved"] == {"passages": 2, "own": 1, "foreign": 0}
    assert cell["context"]["p1"]["kept"] == {"passages": 1, "own": 1, "foreign": 0}
    assert cell["context"]["p0"]["support_kept"] == {"contexts_with": 1, "passages": 1}
    assert cell["context"]["p1"]["support_kept"] == {"contexts_with": 0, "passages": 0}
    for effect in cell["effects"].values():
        assert effect["low"] <= effect["value"] <= effect["high"]


def test_no_defense_changes_nothing_by_definition(tmp_path: Path) -> None:
    write(tmp_path, LABELS)
    none = next(c for c in analyze(tmp_path)["cells"] if c["defense"] == "none")
    assert all(e["count"] == 0 for e in none["effects"].values())


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ((0, "failed", 1, 0), "failed"),
        ((0, 0, "unscored", 0), "not_scored"),
        (("n/a",) * 4, "not_applicable"),
        ((0, "?", 1, 0), "uncertain"),
        ((0, "unread", 1, 0), "not_scored"),
        (("failed", "?", "unread", 0), "failed"),
        (("unread", "?", 1, 0), "not_scored"),
    ],
)
def test_a_query_without_four_labels_is_dropped_and_counted(
    tmp_path: Path, row: tuple[Any, ...], reason: str
) -> None:
    write(tmp_path, [*LABELS, row])
    summary = analyze(tmp_path)
    cell = mine(summary)
    assert cell["n"] == 10
    assert cell["dropped"][reason] == 1
    assert sum(cell["dropped"].values()) == 1
    assert cell["effects"]["P"]["count"] == 3
    if reason == "failed":
        assert summary["errors"] == [{"error": "server gone", "trials": 1}]
        assert summary["trials"] == {"planned": 44, "done": 43, "failed": 1, "missing": 0}


def test_one_injection_group_gives_no_interval_and_says_so(tmp_path: Path) -> None:
    write(tmp_path, LABELS, groups=1)
    summary = analyze(tmp_path)
    assert mine(summary)["effects"]["N"]["low"] is None
    assert any("one injection group" in warning for warning in summary["warnings"])


def test_few_groups_are_warned_about(tmp_path: Path) -> None:
    write(tmp_path, LABELS, groups=2)
    assert any("Only 2 injection groups" in w for w in analyze(tmp_path)["warnings"])


def test_nothing_scored_is_not_estimable_rather_than_zero(tmp_path: Path) -> None:
    write(tmp_path, [("failed",) * 4] * 3)
    summary = analyze(tmp_path)
    assert mine(summary)["estimable"] is False
    assert any("Nothing is estimable" in warning for warning in summary["warnings"])


def test_the_order_of_the_records_changes_no_byte(tmp_path: Path) -> None:
    store = write(tmp_path, LABELS)
    before = canon.dumps(analyze(tmp_path))
    for stream in ("trials", "scores"):
        file = store.path / f"{stream}.jsonl"
        rows = file.read_text(encoding="utf-8").splitlines(keepends=True)
        file.write_text("".join(reversed(rows)), encoding="utf-8")
    assert canon.dumps(analyze(tmp_path)) == before


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no resolved\.json"):
        analyze(tmp_path)


# ------------------------------------------------------------------ conditions by themselves


def test_uncertain_answers_count_as_read_and_unread_ones_in_no_denominator(
    tmp_path: Path,
) -> None:
    write(tmp_path, [*LABELS, (0, 0, "?", 0), (0, 0, "unread", 0), (0, 0, "n/a", 0)])
    labels = mine(analyze(tmp_path))["labels"]["p0"]
    assert (labels["positive"]["count"], labels["positive"]["n"]) == (6, 11)
    assert (labels["uncertain"]["count"], labels["uncertain"]["n"]) == (1, 11)
    assert (labels["not_scored"], labels["not_applicable"]) == (1, 1)


def test_an_uncertain_correctness_stays_in_the_denominator_and_is_counted(tmp_path: Path) -> None:
    write(tmp_path, [*LABELS, (0, 0, "?", 0)])
    correct = mine(analyze(tmp_path))["correct"]["p0"]
    assert (correct["count"], correct["n"], correct["uncertain"]) == (4, 11, 1)


# -------------------------------------------------------------------- settings and imports

Answers = list[tuple[str, str, int, str, Any]]  # setting, attack, budget, defense, label


def imported(
    folder: Path, settings: dict[str, str], answers: Answers, *, queries: int = 4,
    defenses: tuple[str, ...] = ("none",),
) -> RunFolder:  # fmt: skip
    """A folder as an import writes it; every answer is given for every query of its data set."""
    store = RunFolder(folder)
    resolved = {
        "protocol": "imported/1",
        "experiment": {"name": "hand", "seed": 1, "statistics": {"draws": 50, "confidence": 0.95}},
        "dataset": {"name": "hand"}, "headline": "rule", "scorers": {"rule": "rule:1"},
        "defenses": dict.fromkeys(defenses, "x"), "planned": 7,
        "settings": {label: {"dataset": name} for label, name in settings.items()},
    }  # fmt: skip
    with store.writer():
        store.write_text("resolved.json", canon.dumps(resolved))
        for name in sorted(set(settings.values())):
            for n in range(queries):
                query = Query(id=f"{name}:{n}", text="?", group=f"{name}{n}", dataset=name)
                target = Target(query_id=query.id)
                store.append("queries", query.id, {"query": query, "target": target})
                for setting, attack, budget, defense, label in answers:
                    if settings[setting] == name:
                        _answer(store, query, setting, attack, budget, defense, label)
    return store


def _answer(
    store: RunFolder, query: Query, setting: str, attack: str, budget: int, defense: str, label: Any
) -> None:
    spec = TrialSpec(
        protocol="imported/1", dataset=query.dataset, query_id=query.id, question=query.text,
        attack=attack, budget=budget, poison="", retriever="", defense=defense,
        defense_label=defense, prompt="", generator="", sampling=Sampling(), seed=0,
        setting=setting,
    )  # fmt: skip
    key = canon.digest(spec)
    store.append("trials", key, TrialRecord(key=key, spec=spec, status="done", answer="x"))
    score = ScoreRecord(
        trial_key=key, scorer="rule", version="1", target_positive=bool(label), correct=False,
        abstained=False,
    )  # fmt: skip
    store.append("scores", key, score)


def test_each_setting_has_its_own_cells_queries_and_attacks(tmp_path: Path) -> None:
    imported(
        tmp_path,
        {"big/nq": "nq", "small/nq": "nq", "small/hot": "hot"},
        [
            ("big/nq", "", 0, "none", 0), ("big/nq", "a_10%", 1, "none", 1),
            ("big/nq", "a_5%", 1, "none", 0), ("small/nq", "", 0, "none", 1),
            ("small/nq", "b", 2, "none", 1), ("small/hot", "", 0, "none", 0),
            ("small/hot", "b", 2, "none", 1),
        ],
    )  # fmt: skip
    summary = analyze(tmp_path)
    assert summary["settings"] == ["big/nq", "small/hot", "small/nq"]
    cells = {(c["setting"], c["attack"], c["budget"]): c for c in summary["cells"]}
    assert list(cells) == [
        ("big/nq", "a_5%", 1), ("big/nq", "a_10%", 1), ("small/hot", "b", 2), ("small/nq", "b", 2)
    ]  # fmt: skip
    assert all(cell["estimable"] and cell["n"] == 4 for cell in cells.values())
    assert cells["big/nq", "a_10%", 1]["rates"]["p0"]["count"] == 4
    assert cells["small/nq", "b", 2]["rates"]["c0"]["count"] == 4
    assert cells["small/hot", "b", 2]["rates"]["c0"]["count"] == 0
    assert summary["trials"]["planned"] == 7
    assert summary["k"] is None


def test_without_clean_answers_the_rates_are_there_and_no_effect(tmp_path: Path) -> None:
    imported(
        tmp_path, {"": "nq"}, [("", "a", 1, "none", 1), ("", "a", 1, "d", 0)],
        defenses=("none", "d"),
    )  # fmt: skip
    summary = analyze(tmp_path)
    cell = next(c for c in summary["cells"] if c["defense"] == "d")
    assert cell["estimable"] is False
    assert cell["absent"] == ["c0", "c1"]
    assert [cell["labels"][c]["positive"]["count"] for c in ("p0", "p1")] == [4, 0]
    assert cell["labels"]["c0"]["positive"]["value"] is None
    assert any("no answers on clean retrieval" in w for w in summary["warnings"])


def test_a_setting_with_clean_answers_only_has_a_cell_without_attack(tmp_path: Path) -> None:
    imported(tmp_path, {"x": "nq"}, [("x", "", 0, "none", 1)])
    summary = analyze(tmp_path)
    (cell,) = summary["cells"]
    assert (cell["attack"], cell["budget"], cell["absent"]) == ("", 0, ["p0", "p1"])
    assert cell["labels"]["c0"]["positive"]["count"] == 4
    assert summary["attacks"] == []
    assert any("no answers under attack" in w for w in summary["warnings"])


def test_a_failed_condition_is_not_an_absent_one(tmp_path: Path) -> None:
    write(tmp_path, [("failed", "failed", 1, 0)] * 2)
    assert mine(analyze(tmp_path))["absent"] == []


# ------------------------------------------------------------------------ choice of scorers


def add_scorer(store: RunFolder, name: str) -> None:
    for key in store.trials():
        score = ScoreRecord(
            trial_key=key, scorer=name, version="1", target_positive=True, correct=None,
            abstained=None,
        )  # fmt: skip
        store.append("scores", f"{key}:{name}", score)


def test_every_scorer_with_records_is_analyzed_from_strings_to_people(tmp_path: Path) -> None:
    store = write(tmp_path, LABELS)
    for name in ("human", "endorse", "published"):
        add_scorer(store, name)
    summary = analyze(tmp_path)
    assert summary["scorers"] == ["published", "endorse", "human", "rule"]
    assert summary["headline"] == "rule"


def test_a_choice_restricts_and_orders_the_scorers(tmp_path: Path) -> None:
    store = write(tmp_path, LABELS)
    add_scorer(store, "human")
    assert analyze(tmp_path, ["rule", "human"])["scorers"] == ["rule", "human"]
    alone = analyze(tmp_path, ["human"])
    assert (alone["scorers"], alone["headline"]) == (["human"], "human")
    assert {cell["scorer"] for cell in alone["cells"]} == {"human"}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["rule", "judge"], "scorer 'judge' has no record"),
        (["rul"], "did you mean 'rule'"),
        (["rule", "rule"], "asked for twice"),
        ([], "no scorer is asked for"),
    ],
)
def test_a_choice_that_cannot_be_met_is_an_error(
    tmp_path: Path, asked: list[str], why: str
) -> None:
    write(tmp_path, LABELS)
    with pytest.raises(ConfigError, match=why):
        analyze(tmp_path, asked)


def test_reading_once_gives_the_same_summary(tmp_path: Path) -> None:
    write(tmp_path, LABELS)
    records = ReadOnce(tmp_path)
    assert analyze(records) == analyze(tmp_path)
    assert records.trials() is records.trials()
