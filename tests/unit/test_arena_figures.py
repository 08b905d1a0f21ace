"""Figures of recorded plays, with denominators and intervals."""

from __future__ import annotations

import numpy as np
import pytest

from ragassay.arena.figures import (
    Play,
    attacker_figures,
    pairwise_success,
    predicts_winner,
    strengths,
)
from ragassay.arena.outcomes import Judgment
from ragassay.errors import NotEstimable


def play(
    query: str, won: str, lost: str, unjudged: str = "", *, hits: dict[str, int] | None = None
) -> Play:
    return Play(
        round=0,
        query_id=query,
        judgment=Judgment(tuple(won), tuple(lost), tuple(unjudged)),
        k=5,
        hits=hits or {},
        injected=dict.fromkeys(hits or {}, 5),
    )


def test_success_is_over_plays_taken_part_in_and_wins_over_decided_ones() -> None:
    plays = [
        play("q1", "A", "B"), play("q1", "", "AB"), play("q2", "AB", ""), play("q2", "B", "A"),
        play("q3", "C", "B", "A"),
    ]  # fmt: skip
    found = attacker_figures(plays, draws=200)
    assert list(found) == ["A", "B", "C"]
    a, b = found["A"], found["B"]
    assert (a.success.total, a.success.n, a.success.value) == (2, 4, 0.5)
    assert (a.wins.total, a.wins.n, a.unjudged) == (1, 2, 1)
    assert (b.success.total, b.success.n, b.success.queries) == (2, 5, 3)
    assert (b.wins.total, b.wins.n) == (1, 3)
    assert found["C"].success.interval is None  # one query
    assert a.success.interval is not None


def test_retrieval_figures_are_over_plays_with_known_hits() -> None:
    plays = [
        play("q1", "A", "B", hits={"A": 5, "B": 0}),
        play("q2", "", "AB", hits={"A": 3, "B": 2}),
        play("q3", "", "AB"),
    ]
    found = attacker_figures(plays, draws=100)
    assert found["A"].f1.value == pytest.approx(0.8)
    assert found["B"].f1.value == pytest.approx(0.2)
    assert (found["A"].f1.n, found["A"].success.n) == (2, 3)
    assert found["A"].precision.value == found["A"].recall.value == pytest.approx(0.8)


def test_nothing_known_is_none_and_never_zero() -> None:
    found = attacker_figures([play("q", "", "", "A")])["A"]
    assert (found.success.value, found.success.n, found.unjudged) == (None, 0, 1)
    assert found.f1.value is None
    assert found.f1.interval is None
    assert attacker_figures([]) == {}


def test_intervals_resample_queries_and_repeat() -> None:
    rng = np.random.default_rng(0)
    plays = [
        play(f"q{q}", *("A", "B") if hit else ("B", "A"))
        for q in range(30)
        for hit in [rng.random() < 0.3] * 10  # all plays of a query agree
    ]
    found = attacker_figures(plays, draws=2_000)["A"].success
    assert found == attacker_figures(plays[::-1], draws=2_000)["A"].success
    assert found.interval is not None
    assert found.value is not None
    width = found.interval.high - found.interval.low
    assert width == pytest.approx(4 * np.sqrt(found.value * (1 - found.value) / 30), rel=0.2)


def test_paraphrases_of_a_question_are_resampled_together() -> None:
    one = [Play(0, f"s{i}", Judgment(("A",), ("B",)), 5, cluster="q") for i in range(10)]
    assert attacker_figures(one)["A"].success.queries == 1
    assert attacker_figures(one)["A"].success.interval is None


def test_strengths_order_attackers_and_leave_untargeted_ones_out() -> None:
    plays = []
    for q in range(20):
        plays += [play(f"q{q}", "A", "BG")] * 3 + [
            play(f"q{q}", "B", "AC"),
            play(f"q{q}", "C", "B"),
        ]
        plays += [play(f"q{q}", "", "ABC"), play(f"q{q}", "G", "A")]
    found = strengths(plays, leave_out={"G"}, draws=200)
    assert found.names == ("A", "B", "C")
    assert found.decided == 20 * 5
    assert found.participations == (20 * 6, 20 * 6, 20 * 3)
    assert found.ranking.theta.sum() == pytest.approx(0)
    assert found.ranking.ranks.tolist()[0] == 1
    again = strengths(plays[::-1], leave_out={"G"}, draws=200)
    assert (again.ranking.draws == found.ranking.draws).all()
    assert strengths(plays, draws=50).names == ("A", "B", "C", "G")


def test_attackers_that_never_met_are_named() -> None:
    plays = [play("q1", "A", "B"), play("q2", "C", "D"), play("q3", "", "AC")]
    with pytest.raises(NotEstimable, match=r"attackers \{A, B\} and \{C, D\} never met"):
        strengths(plays)


@pytest.mark.parametrize("plays", [[], [play("q", "A", "")], [play("q", "A", "G")]])
def test_one_attacker_has_no_strength(plays: list[Play]) -> None:
    with pytest.raises(NotEstimable, match="strengths need two attackers"):
        strengths(plays, leave_out={"G"})


def test_the_pairwise_table_counts_plays_of_both() -> None:
    plays = [play("q1", "A", "B"), play("q2", "AB", ""), play("q3", "C", "A", "B")]
    found = pairwise_success(plays)
    assert found["A", "B"] == (2, 3)
    assert found["B", "A"] == (1, 2)  # not judged in the third
    assert found["C", "B"] == (1, 1)
    assert ("B", "C") not in found


def test_a_prediction_stands_beside_chance() -> None:
    plays = [
        play("q1", "A", "B"), play("q2", "B", "AC"), play("q3", "AB", "C"), play("q4", "", "AB"),
        play("q5", "C", "D"),
    ]  # fmt: skip
    found = predicts_winner(plays, {"A": 0.9, "B": 0.5, "C": 0.5}, draws=100)
    assert (found.accuracy.total, found.accuracy.n) == (2, 3)
    assert found.chance == pytest.approx((1 / 2 + 1 / 3 + 2 / 3) / 3)
    nothing = predicts_winner([], {"A": 1.0})
    assert (nothing.accuracy.value, nothing.chance) == (None, None)


def test_of_equal_scores_the_first_name_is_predicted() -> None:
    found = predicts_winner([play("q1", "B", "A")], {"A": 0.5, "B": 0.5}, draws=10)
    assert found.accuracy.value == 0
