"""The comparison of labels on answers whose labels are assigned by hand: every figure is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragassay import canon
from ragassay.experiments.distinct import EXCERPT, MAX_LISTED
from ragassay.experiments.protocols import analyze
from ragassay.store import RunFolder
from ragassay.types import (
    Evidence,
    Query,
    Sampling,
    ScoreRecord,
    Target,
    TrialRecord,
    TrialSpec,
)

WANTED = "male"
PLACES = {"c0": ("", 0), "c1": ("", 0), "p0": ("att", 2), "p1": ("att", 2)}


class World:
    """A run folder that is filled answer by answer."""

    def __init__(self, folder: Path, defenses: Sequence[str] = ("none", "a", "b", "c")) -> None:
        self.store = RunFolder(folder)
        self.seen: set[str] = set()
        resolved = {
            "protocol": "aligned/1",
            "experiment": {
                "name": "hand", "seed": 1, "statistics": {"draws": 400, "confidence": 0.95},
            },
            "dataset": {"name": "hand"}, "headline": "tokens", "scorers": {"tokens": "tokens:1"},
            "defenses": dict.fromkeys(defenses, "x"),
        }  # fmt: skip
        with self.store.writer():
            self.store.write_text("resolved.json", canon.dumps(resolved))

    def answer(
        self, query: int, where: str, defense: str, labels: Mapping[str, Any], *,
        text: str | None = None, groups: int = 5,
    ) -> str:  # fmt: skip
        """Add an answer with a label by scorer: 1, 0, "?" uncertain, "n/a"; absent: not read."""
        attack, budget = PLACES[where]
        query_id = f"q{query}"
        if query_id not in self.seen:
            self.seen.add(query_id)
            asked = Query(id=query_id, text=f"question {query}", group=f"g{query % groups}")
            target = Target(query_id=query_id, wanted=(WANTED,), references=("other",))
            self.store.append("queries", query_id, {"query": asked, "target": target})
        spec = TrialSpec(
            protocol="aligned/1", dataset="d", query_id=query_id, question=f"question {query}",
            attack=attack, budget=budget, poison="", retriever="r", defense=defense,
            defense_label=defense, prompt="p", generator="g", sampling=Sampling(), seed=1,
        )  # fmt: skip
        key = canon.digest(spec)
        text = f"answer {query} {where} {defense}" if text is None else text
        self.store.append(
            "trials", key, TrialRecord(key=key, spec=spec, status="done", answer=text)
        )
        at = text.find(WANTED)
        evidence = (Evidence(label="wanted", start=at, stop=at + len(WANTED)),) if at >= 0 else ()
        for scorer, label in labels.items():
            score = ScoreRecord(
                trial_key=key, scorer=scorer, version="1",
                target_positive=None if label in ("?", "n/a") else bool(label),
                correct=None, abstained=None, evidence=evidence,
                uncertain=("target_positive",) if label == "?" else (),
            )  # fmt: skip
            self.store.append("scores", f"{key}:{scorer}", score)
        return key

    def comparison(self, scorers: Sequence[str] | None = None) -> dict[str, Any]:
        found = analyze(self.store.path, scorers)["label_comparison"]
        assert found is not None
        return found  # type: ignore[no-any-return]


# p1 labels of ten queries for each system, by a string rule and by a judge ("?" uncertain).
STRING = {"none": "1111110000", "a": "1110000000", "b": "1111000000", "c": "1111111000"}
JUDGE = {"none": "11110000??", "a": "111000000?", "b": "1000000???", "c": "1111100000"}


def two_labels(folder: Path) -> World:
    world = World(folder)
    for system, strings in STRING.items():
        for query, (string, judged) in enumerate(zip(strings, JUDGE[system], strict=True)):
            label = {"tokens": int(string), "judge": judged if judged == "?" else int(judged)}
            world.answer(query, "p0" if system == "none" else "p1", system, label)
            world.answer(
                query, "c0" if system == "none" else "c1", system, {"tokens": 0, "judge": 0}
            )
    return world


def row(found: Mapping[str, Any], scorer: str, defense: str) -> dict[str, Any]:
    (at,) = found["cells"]
    return next(r for r in at["rows"] if (r["scorer"], r["defense"]) == (scorer, defense))


# ------------------------------------------------------------------------- levels and ranks


def test_one_scorer_has_nothing_to_be_compared_with(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.answer(0, "p0", "none", {"tokens": 1})
    assert analyze(tmp_path)["label_comparison"] is None


def test_the_levels_count_uncertain_answers_as_read_and_not_as_positive(tmp_path: Path) -> None:
    found = two_labels(tmp_path).comparison()
    assert found["scorers"] == ["tokens", "judge"]
    b = row(found, "judge", "b")["p1"]
    assert (b["positive"]["count"], b["positive"]["n"]) == (1, 10)
    assert (b["uncertain"]["count"], b["uncertain"]["n"]) == (3, 10)
    assert b["positive"]["low"] < 0.1 < b["positive"]["high"]
    assert row(found, "judge", "none")["p0"]["positive"]["count"] == 4


def test_the_ranks_follow_the_level_and_ties_share_the_better_one(tmp_path: Path) -> None:
    found = two_labels(tmp_path).comparison()
    ranks = {s: [row(found, s, d)["rank_p1"] for d in "abc"] for s in ("tokens", "judge")}
    assert ranks == {"tokens": [1, 2, 3], "judge": [2, 1, 3]}
    assert row(found, "tokens", "none")["rank_p1"] is None
    world = World(tmp_path / "tie")
    for defense, label in (("a", 1), ("b", 0), ("c", 0)):
        world.answer(0, "p1", defense, {"tokens": label, "judge": 1})
    tied = world.comparison()
    assert [row(tied, "tokens", d)["rank_p1"] for d in "abc"] == [3, 1, 1]
    assert [row(tied, "judge", d)["rank_p1"] for d in "abc"] == [1, 1, 1]


def test_the_effects_are_those_of_the_complete_queries(tmp_path: Path) -> None:
    a = row(two_labels(tmp_path).comparison(), "tokens", "a")
    assert (a["P"]["count"], a["J"]["count"], a["N"]["count"], a["n"]) == (3, 0, 3, 10)
    judged = row(two_labels(tmp_path / "x").comparison(), "judge", "a")
    assert (judged["P"]["count"], judged["n"], judged["dropped"]) == (1, 8, 2)


def test_orders_are_compared_by_tau_b_and_reversed_pairs_are_named(tmp_path: Path) -> None:
    (at,) = two_labels(tmp_path).comparison()["cells"]
    (order,) = at["orders"]
    assert order["scorers"] == ["tokens", "judge"]
    assert order["p1"] == {"n": 3, "tau_b": pytest.approx(1 / 3), "reversed": [["a", "b"]]}


def test_two_defenses_have_no_tau_but_their_reversal(tmp_path: Path) -> None:
    world = World(tmp_path, defenses=("none", "a", "b"))
    for defense, string, judge in (("a", 1, 0), ("b", 0, 1)):
        world.answer(0, "p1", defense, {"tokens": string, "judge": judge})
    (at,) = world.comparison()["cells"]
    assert at["orders"][0]["p1"] == {"n": 2, "tau_b": None, "reversed": [["a", "b"]]}
    assert at["orders"][0]["N"] == {"n": 0, "tau_b": None, "reversed": []}


def test_what_a_scorer_did_not_read_is_not_scored_and_never_zero(tmp_path: Path) -> None:
    world = World(tmp_path)
    for query in range(4):
        for defense in "ab":
            human = {"human": 0} if defense == "a" and query == 0 else {}
            world.answer(query, "p1", defense, {"tokens": 1, **human})
    found = world.comparison()
    a, b = (row(found, "human", d) for d in "ab")
    assert (a["p1"]["positive"]["n"], a["p1"]["not_scored"]) == (1, 3)
    assert (b["p1"]["positive"]["value"], b["p1"]["not_scored"]) == (None, 4)
    assert (b["rank_p1"], b["P"], b["N"]) == (None, None, None)
    (human,) = (one for one in found["coverage"] if one["scorer"] == "human")
    assert (human["answers"], human["negative"], human["not_scored"]) == (8, 1, 7)


# --------------------------------------------------------------------- jointly decisive pairs


def difference(found: Mapping[str, Any], scorer: str, a: str, b: str) -> dict[str, Any]:
    (at,) = found["cells"]
    (one,) = (
        d for d in at["differences"] if (d["scorer"], d["a"], d["b"]) == (scorer, a, b)
    )  # fmt: skip
    return one  # type: ignore[no-any-return]


def test_two_defenses_are_compared_where_a_label_decides_both(tmp_path: Path) -> None:
    found = two_labels(tmp_path).comparison()
    one = difference(found, "judge", "a", "b")
    assert (one["n"], one["n_decisive"], one["count"]) == (10, 7, 2)
    assert one["value"] == pytest.approx(2 / 7)
    assert one["low"] <= one["value"] <= one["high"]
    string = difference(found, "tokens", "a", "b")
    assert (string["n_decisive"], string["count"]) == (10, -1)


def test_every_defense_stands_beside_the_undefended_system_too(tmp_path: Path) -> None:
    found = two_labels(tmp_path).comparison()
    (at,) = found["cells"]
    pairs = list(dict.fromkeys((d["a"], d["b"]) for d in at["differences"]))
    assert pairs == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
        ("a", "none"),
        ("b", "none"),
        ("c", "none"),
    ]
    assert difference(found, "tokens", "a", "none")["count"] == -3


def test_without_a_jointly_decisive_query_there_is_no_difference(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.answer(0, "p1", "a", {"tokens": 1, "judge": "?"})
    world.answer(0, "p1", "b", {"tokens": 0, "judge": 1})
    one = difference(world.comparison(), "judge", "a", "b")
    assert (one["n"], one["n_decisive"]) == (1, 0)
    assert (one["value"], one["low"], one["high"]) == (None, None, None)


def test_the_order_of_the_records_changes_no_byte(tmp_path: Path) -> None:
    world = two_labels(tmp_path)
    before = canon.dumps(world.comparison())
    for stream in ("trials", "scores"):
        file = tmp_path / f"{stream}.jsonl"
        rows = file.read_text(encoding="utf-8").splitlines(keepends=True)
        file.write_text("".join(reversed(rows)), encoding="utf-8")
    assert canon.dumps(world.comparison()) == before


# -------------------------------------------------------------------------- distinct answers


def test_equal_answers_to_a_question_count_once_where_scorers_are_compared(tmp_path: Path) -> None:
    world = World(tmp_path)
    for defense in "abc":
        world.answer(0, "p1", defense, {"tokens": 1, "judge": 0}, text="the same")
    world.answer(1, "p1", "a", {"tokens": 1, "judge": 1}, text="the same")  # another question
    world.answer(2, "p1", "a", {"tokens": 0, "judge": 0})
    world.answer(3, "p1", "a", {"tokens": 1, "judge": "?"})
    world.answer(4, "p1", "a", {"tokens": 1, "judge": "n/a"})
    world.answer(5, "p1", "a", {"tokens": 1})
    found = world.comparison()
    assert (found["answers"], found["distinct"]) == (8, 6)
    (pair,) = found["pairs"]
    assert pair["table"] == [[1, 1, 1], [0, 1, 0], [0, 0, 0]]
    assert (pair["n"], pair["n_decisive"], pair["agreed"], pair["unread"]) == (4, 3, 2, 2)
    # p_o = 2/3; p_e = 2/3 * 1/3 + 1/3 * 2/3 = 4/9.
    assert pair["kappa"] == pytest.approx((2 / 3 - 4 / 9) / (1 - 4 / 9))


def test_one_and_the_same_label_on_both_sides_gives_no_kappa(tmp_path: Path) -> None:
    world = World(tmp_path)
    for query in range(3):
        world.answer(query, "p1", "a", {"tokens": 0, "judge": 0})
    (pair,) = world.comparison()["pairs"]
    assert (pair["agreed"], pair["n_decisive"], pair["kappa"]) == (3, 3, None)


def test_a_scorer_that_labels_equal_answers_differently_is_counted(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.answer(0, "p1", "a", {"tokens": 1, "human": 1}, text="the same")
    world.answer(0, "p1", "b", {"tokens": 1, "human": 0}, text="the same")
    world.answer(0, "p1", "c", {"tokens": 1}, text="the same")
    coverage = {one["scorer"]: one["conflicting"] for one in world.comparison()["coverage"]}
    assert coverage == {"tokens": 0, "human": 1}


# ------------------------------------------------------------------- substrings that vanish


def test_substring_successes_that_vanish_are_counted_and_listed_once_each(tmp_path: Path) -> None:
    world = World(tmp_path)
    for defense in "ab":
        world.answer(0, "p1", defense, {"published": 1, "tokens": 0}, text="all females")
    key = world.answer(1, "p1", "a", {"published": 1, "tokens": 0}, text="x" * 900 + " females")
    world.answer(2, "p1", "a", {"published": 1, "tokens": 1}, text="a male")
    world.answer(3, "p1", "a", {"published": 0, "tokens": 0})
    found = world.comparison()["vanishing"]
    assert (found["count"], found["of"], found["distinct"]) == (3, 4, 2)
    first, second = found["records"]
    assert (first["times"], first["question"], first["wanted"]) == (2, "question 0", [WANTED])
    assert (first["answer"], first["cut"]) == ("all females", [0, 0])
    assert second["trial"] == key
    assert len(second["answer"]) == EXCERPT
    assert second["cut"][0] + EXCERPT + second["cut"][1] == 908
    for one in (first, second):
        start, stop = one["match"]
        assert one["answer"][start:stop] == WANTED


def test_the_list_of_vanishing_successes_is_bounded_and_its_count_is_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    for query in range(MAX_LISTED + 3):
        world.answer(query, "p1", "a", {"published": 1, "tokens": 0}, text="females")
    found = world.comparison()["vanishing"]
    assert (found["count"], found["distinct"]) == (MAX_LISTED + 3, MAX_LISTED + 3)
    assert len(found["records"]) == MAX_LISTED
    assert found["records"][0]["query_id"] == "q0"


def test_without_both_string_rules_nothing_vanishes(tmp_path: Path) -> None:
    assert two_labels(tmp_path).comparison()["vanishing"] is None


def test_an_answer_without_a_marked_match_is_listed_from_its_start(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.answer(0, "p1", "a", {"published": 1, "tokens": 0}, text="y" * (EXCERPT + 5))
    (one,) = world.comparison()["vanishing"]["records"]
    assert (one["match"], one["cut"], len(one["answer"])) == (None, [0, 5], EXCERPT)
