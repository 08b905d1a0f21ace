"""Merging documents by score, and exact expectations against brute force."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from ragassay.arena.expectation import expected_round_figures
from ragassay.arena.pool import Documents, Position, QueryPool, injected_by, restricted
from ragassay.arena.prompts import count_prompts, plays_of
from ragassay.arena.retrieval import (
    competition_figures,
    count_deals,
    enumerate_assignments,
    expected_hits,
    merge,
    poison_figures,
)
from ragassay.arena.schedule import Design, draw_rounds


def documents(*pairs: tuple[str, float]) -> Documents:
    return Documents(tuple(text for text, _ in pairs), tuple(score for _, score in pairs))


def random_pool(
    query_id: str,
    seed: int,
    *,
    attackers: Mapping[str, Iterable[Position]],
    shared: bool = False,
    ties: bool = False,
) -> QueryPool:
    """A pool of three documents per attacker and answer, with scores around the clean ones."""
    rng = np.random.default_rng(seed)

    def scores(n: int) -> list[float]:
        drawn = rng.normal(size=n)
        return sorted((drawn.round(0) if ties else drawn).tolist(), reverse=True)

    sets = {
        name: {
            position: documents(
                *(
                    ("same" if shared and i == 1 else f"{query_id} {name} {position} {i}", score)
                    for i, score in enumerate(scores(3))
                )
            )
            for position in positions
        }
        for name, positions in attackers.items()
    }
    clean = documents(*((f"{query_id} clean {i}", s) for i, s in enumerate(scores(5))))
    answers = ("one", "two", "three", "four")
    return QueryPool(query_id, f"{query_id}?", ("right",), answers, clean, sets)


EVERYBODY = {"a": range(4), "b": range(4), "c": range(4), "free": [None]}


# ------------------------------------------------------------------------------------ merging


def test_of_equal_scores_clean_documents_come_first_then_names() -> None:
    clean = documents(("c0", 1.0), ("c1", 0.5))
    injected = {"b": documents(("b0", 1.0)), "a": documents(("a0", 1.0), ("a1", 0.5))}
    found = merge(clean, injected, 4)
    assert found.texts == ("c0", "a0", "b0", "c1")
    assert found.owners == ((), ("a",), ("b",), ())
    assert found.hits == {"a": 1, "b": 1}
    assert found.shared == ()


def test_a_text_of_two_attackers_counts_for_both_and_is_flagged() -> None:
    """The second copy is not retrieved itself, but its text is."""
    injected = {"a": documents(("same", 3.0)), "b": documents(("same", 2.0), ("b1", 1.0))}
    found = merge(documents(("c0", 2.5)), injected, 2)
    assert found.texts == ("same", "c0")
    assert found.owners == (("a", "b"), ())
    assert found.hits == {"a": 1, "b": 1}
    assert found.shared == ("same",)
    assert found.without("a") == ("same", "c0")


def test_documents_taken_out_leave_their_places_empty() -> None:
    injected = {"a": documents(("a0", 3.0)), "b": documents(("b0", 2.0))}
    found = merge(documents(("c0", 1.0), ("c1", 0.5)), injected, 3)
    assert found.without("a") == ("b0", "c0")


def test_a_context_may_be_smaller_than_k() -> None:
    assert merge(documents(("c0", 1.0)), {}, 5).texts == ("c0",)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [1, 3, 5, 20])
def test_hits_never_exceed_the_context_or_the_injected(seed: int, k: int) -> None:
    pool = random_pool("q", seed, attackers=EVERYBODY)
    for assignment in enumerate_assignments(pool, list(EVERYBODY)):
        hits = merge(pool.clean, pool.injected(assignment), k).hits
        assert set(hits) == set(EVERYBODY)
        assert sum(hits.values()) <= min(k, 12)
        assert max(hits.values()) <= 3


def test_f1_is_zero_without_hits_and_caps_where_more_is_retrieved_than_injected() -> None:
    assert poison_figures(0, 5, 5).f1 == 0
    assert poison_figures(5, 5, 10).f1 == pytest.approx(2 / 3)
    for hits, injected, k in ((6, 5, 5), (-1, 5, 5), (0, 0, 5), (0, 5, 0)):
        with pytest.raises(ValueError, match="hits"):
            poison_figures(hits, injected, k)


# ------------------------------------------------------------------------- exact expectations


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "free"], ["free"], list(EVERYBODY)])
def test_expected_hits_are_the_mean_over_all_assignments(
    names: list[str], ties: bool, shared: bool
) -> None:
    for seed in range(4):
        pool = random_pool("q", seed, attackers=EVERYBODY, ties=ties, shared=shared)
        assert pool.shared is shared
        dealt = list(enumerate_assignments(pool, names))
        hits = [merge(pool.clean, pool.injected(a), 5).hits for a in dealt]
        expected = {name: np.mean([h[name] for h in hits]) for name in names}
        assert expected_hits(pool, names, 5) == pytest.approx(expected)
        assert count_deals(pool, names) == len(dealt)


def test_every_way_to_deal_different_answers_is_enumerated() -> None:
    pool = random_pool("q", 0, attackers={"a": [0, 1], "b": [1, 3], "free": [None]})
    dealt = [(a["a"], a["b"], a["free"]) for a in enumerate_assignments(pool, ["a", "b", "free"])]
    assert dealt == [(0, 1, None), (0, 3, None), (1, 3, None)]


def test_attackers_without_enough_answers_have_no_expectation() -> None:
    pool = random_pool("q", 0, attackers={"a": [2], "b": [2]})
    assert list(enumerate_assignments(pool, ["a", "b"])) == []
    assert expected_hits(pool, ["a", "b"], 5) is None
    assert competition_figures([pool], ["a", "b"], 5) == {}


def test_document_sets_of_unequal_size_are_padded_and_refused_for_figures() -> None:
    sets: dict[str, dict[Position, Documents]] = {
        "a": {0: documents(("a0", -9.0)), 1: documents(("a1", -9.0), ("a2", -9.5))}
    }
    pool = QueryPool("q", "q?", (), ("one", "two"), documents(("c", 0.0)), sets)
    assert expected_hits(pool, ["a"], 5) == {"a": 1.5}
    with pytest.raises(ValueError, match=r"different numbers of documents for q: \[1, 2\]"):
        injected_by(pool, "a")


def test_figures_weigh_every_assignment_of_every_query_the_same() -> None:
    pools = [
        random_pool("q0", 1, attackers={"a": range(4), "b": range(4)}),
        random_pool("q1", 2, attackers={"a": [0, 1], "b": [0]}),
        random_pool("q2", 3, attackers={"a": range(4)}),
    ]
    found = competition_figures(pools, ["b", "a"], 5)
    hits = [
        merge(pool.clean, pool.injected(a), 5).hits["b"]
        for pool in pools[:2]
        for a in enumerate_assignments(pool, ["a", "b"])
    ]
    assert (found["b"].queries, found["b"].assignments) == (2, 13)
    assert len(hits) == 13
    assert found["b"].figures.f1 == pytest.approx(2 * np.mean(hits) / 8)
    assert found["b"].figures.precision == pytest.approx(np.mean(hits) / 5)
    assert found["b"].figures.recall == pytest.approx(np.mean(hits) / 3)


def test_restricting_answers_keeps_untargeted_documents() -> None:
    pool = restricted(random_pool("q", 0, attackers=EVERYBODY), {1, 2})
    assert pool.positions("a") == (1, 2)
    assert pool.untargeted("free")
    assert pool.participants == ("a", "b", "c", "free")


def test_an_attacker_without_documents_is_no_participant() -> None:
    sets: dict[str, dict[Position, Documents]] = {
        "a": {0: documents(("a0", 1.0))}, "b": {0: documents()}, "c": {},
    }  # fmt: skip
    pool = QueryPool("q", "q?", (), ("one",), documents(("c", 0.0)), sets)
    assert pool.participants == ("a",)
    assert pool.positions("b") == ()
    with pytest.raises(ValueError, match="b has no documents for answer 0 of q"):
        pool.injected({"b": 0})


def test_texts_need_a_score_each() -> None:
    with pytest.raises(ValueError, match="a score for each of 2 texts, got 1"):
        Documents(("a", "b"), (1.0,))


# ----------------------------------------------------------- expectation over random rounds


@pytest.mark.parametrize("design", [Design(), Design(attackers=2), Design(largest=3)])
def test_the_expectation_of_rounds_is_what_sampled_rounds_approach(design: Design) -> None:
    pools = [
        random_pool("q0", 1, attackers=EVERYBODY),
        random_pool("q1", 2, attackers={"a": range(4), "b": [0, 1], "c": [1, 2]}),
        random_pool("q2", 3, attackers={"a": [0], "b": [1]}),  # never playable
    ]
    by_id = {pool.query_id: pool for pool in pools}
    exact = expected_round_figures(pools, design, 5)
    sampled: dict[str, list[float]] = {name: [] for name in exact}
    took: dict[str, int] = dict.fromkeys(exact, 0)
    count = 3_000
    for played in draw_rounds(pools, design, count=count):
        pool = by_id[played.query_id]
        for name in played.attackers:
            took[name] += 1
        for assignment in played.assignments:
            hits = merge(pool.clean, pool.injected(assignment), 5).hits
            for name in played.attackers:
                sampled[name].append(poison_figures(hits[name], 3, 5).f1 / len(played.assignments))
    assert set(exact) == set(EVERYBODY)
    assert exact["a"].queries == 2
    for name, expected in exact.items():
        assert took[name] / count == pytest.approx(expected.probability, abs=0.04)
        mean = np.sum(sampled[name]) / took[name]
        assert mean == pytest.approx(expected.figures.f1, abs=0.03)


# ------------------------------------------------------------------------------------ prompts


def test_prompts_are_counted_once_however_often_they_are_asked() -> None:
    """Attacker a fills the context whoever else is there, so that all plays look alike."""
    strong = documents(*((f"a{i}", 9.0 + i) for i in range(3)))
    sets: dict[str, dict[Position, Documents]] = {
        "a": {0: strong, 1: strong},
        "b": {0: documents(("b0", 0.0)), 1: documents(("b1", 0.0))},
        "free": {None: documents(("f", 20.0))},
    }
    pool = QueryPool("q", "q?", (), ("one", "two"), documents(("c", 1.0)), sets)
    plays = [
        ("q", {"a": 0, "b": 1}),
        ("q", {"a": 1, "b": 0}),
        ("q", {"a": 0, "b": 1, "free": None}),
        ("q", {"b": 0, "free": None}),
    ]
    found = count_prompts(plays, {"q": pool}, 3)
    assert (found.plays, found.distinct) == (4, 3)
    assert (found.removals_at_most, found.removals_in_context) == (2, 2)
    assert found.distinct_with_removals == 5  # a2 a1; and c b0
    assert count_prompts(plays[:2], {"q": pool}, 3).removals_at_most == 0
    assert count_prompts([], {}, 3).plays == 0


def test_an_absent_untargeted_attacker_asks_for_no_other_prompt() -> None:
    sets: dict[str, dict[Position, Documents]] = {"free": {None: documents(("f", -5.0))}}
    pool = QueryPool("q", "q?", (), (), documents(("c", 1.0)), sets)
    found = count_prompts([("q", {"free": None})], {"q": pool}, 1)
    assert (found.removals_at_most, found.removals_in_context) == (1, 0)
    assert found.distinct_with_removals == found.distinct == 1


def test_the_prompts_of_rounds_are_their_assignments() -> None:
    pools = [random_pool(f"q{i}", i, attackers=EVERYBODY) for i in range(3)]
    rounds = list(draw_rounds(pools, Design(attackers=3, mode="full"), count=10))
    played = list(plays_of(rounds))
    assert len(played) == sum(len(r.assignments) for r in rounds)
    found = count_prompts(played, {pool.query_id: pool for pool in pools}, 5)
    assert found.plays == len(played)
    assert 1 < found.distinct <= found.plays
