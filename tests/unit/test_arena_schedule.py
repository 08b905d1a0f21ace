"""Rounds are a pure function of their number, and balanced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest

from ragassay.arena.pool import Documents, Position, QueryPool
from ragassay.arena.schedule import Design, Round, draw_round, draw_rounds
from ragassay.errors import NotEstimable

ONE = Documents(("text",), (1.0,))


def pool(query_id: str, attackers: Mapping[str, Iterable[Position]]) -> QueryPool:
    sets = {name: dict.fromkeys(positions, ONE) for name, positions in attackers.items()}
    return QueryPool(query_id, "?", (), tuple("abcdef"), ONE, sets)


SIX = {name: range(6) for name in ("a1", "a2", "a3", "a4", "a5", "a6")}
POOLS = [
    pool("q1", {**SIX, "free": [None]}),
    pool("q2", {**SIX, "free": [None]}),
    pool("q3", {**SIX, "rare": range(6), "free": [None]}),
    pool("alone", {"a1": range(6)}),
]


def test_a_round_depends_on_its_number_and_seed_alone() -> None:
    design = Design(seed=5)
    straight = list(draw_rounds(POOLS, design, count=60))
    resumed = list(draw_rounds(POOLS[::-1], design, start=30, count=30))
    assert resumed == straight[30:]
    assert [draw_round(i, POOLS, design) for i in (59, 0, 31)] == [
        straight[59], straight[0], straight[31],
    ]  # fmt: skip
    assert list(draw_rounds(POOLS, Design(seed=6), count=60)) != straight


def test_every_number_of_attackers_and_every_query_is_drawn_equally_often() -> None:
    rounds = list(draw_rounds(POOLS, Design(largest=6), count=3_000))
    sizes = Counter(len(r.attackers) for r in rounds)
    assert set(sizes) == {2, 3, 4, 5, 6}
    assert min(sizes.values()) > 500  # of 600 expected
    queries = Counter(r.query_id for r in rounds)
    assert set(queries) == {"q1", "q2", "q3"}  # one attacker is no competition
    assert min(queries.values()) > 900
    taken = Counter(name for r in rounds for name in r.attackers if r.query_id != "q3")
    assert max(taken.values()) < 1.1 * min(taken.values())


def check(played: Round) -> None:
    by_id = {p.query_id: p for p in POOLS}
    here = by_id[played.query_id]
    assert set(played.attackers) <= set(here.participants)
    for assignment in played.assignments:
        assert tuple(sorted(assignment)) == played.attackers
        given = [p for p in assignment.values() if p is not None]
        assert len(set(given)) == len(given)
        assert all((p is None) == (name == "free") for name, p in assignment.items())


@pytest.mark.parametrize("mode", ["latin", "full"])
def test_in_each_round_each_attacker_gets_each_answer_equally_often(mode: str) -> None:
    for played in draw_rounds(POOLS, Design(mode=mode, largest=5), count=200):  # type: ignore[arg-type]
        check(played)
        targeted = [name for name in played.attackers if name != "free"]
        pairs = Counter((n, a[n]) for a in played.assignments for n in targeted)
        answers = {p for _, p in pairs}
        assert len(answers) == len(targeted)
        assert len(pairs) == len(targeted) ** 2
        assert len(set(pairs.values())) == 1


def test_all_answers_of_the_pool_are_used() -> None:
    rounds = draw_rounds(POOLS, Design(attackers=2), count=300)
    assert {p for r in rounds for a in r.assignments for p in a.values()} == {None, *range(6)}


def test_a_fixed_number_of_attackers_and_random_assignments() -> None:
    rounds = list(draw_rounds(POOLS, Design(attackers=4, mode="random", random_draws=3), count=50))
    assert {len(r.attackers) for r in rounds} == {4}
    assert {len(r.assignments) for r in rounds} == {3}
    for played in rounds:
        check(played)


def test_one_attacker_is_the_single_setting() -> None:
    rounds = list(draw_rounds(POOLS, Design(attackers=1), count=100))
    assert {len(r.attackers) for r in rounds} == {1}
    assert {r.query_id for r in rounds} == {"q1", "q2", "q3", "alone"}


def test_attackers_get_only_answers_that_all_of_them_have() -> None:
    here = pool("q", {"a": [0, 1, 2], "b": [1, 2, 5], "c": [3]})
    rounds = list(draw_rounds([here], Design(), count=50))
    assert {r.attackers for r in rounds} == {("a", "b")}
    assert {p for r in rounds for a in r.assignments for p in a.values()} == {1, 2}


@pytest.mark.parametrize("pools", [[], [pool("q", {"a": [0]})], [pool("q", {"a": [0], "b": [0]})]])
def test_rounds_that_cannot_be_drawn_are_an_error(pools: list[QueryPool]) -> None:
    with pytest.raises(NotEstimable, match="round 7 cannot be drawn: no query has 2 or more"):
        draw_round(7, pools, Design())
