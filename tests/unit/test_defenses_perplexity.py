from __future__ import annotations

import numpy as np
import pytest

from ragassay.defenses.perplexity import Perplexity, perplexity
from ragassay.defenses.raguard import (
    RAGuard,
    chunk_perplexity,
    joint_halves,
    measure,
    share_threshold,
)
from ragassay.errors import ConfigError, NotEstimable
from ragassay.testing import ScriptedTools, check_defense, make_hits, make_query
from ragassay.testing.toys import WORDS, ToyLM
from ragassay.types import Hit, Query

RNG = np.random.default_rng(3)


def greedy(start: str, words: int) -> str:
    """A text that the toy finds as probable as can be."""
    toy = ToyLM()
    ids = toy.tokenize(start)
    while len(ids) < words:
        ids = (*ids, int(np.argmax(toy.next_logits([ids])[0][: len(WORDS)])))
    return toy.decode(ids)


def rare(words: int, start: str = "ba") -> str:
    """A text that goes on with the least probable words."""
    toy = ToyLM()
    ids = toy.tokenize(start)
    while len(ids) < words:
        ids = (*ids, int(np.argmin(toy.next_logits([ids])[0][: len(WORDS)])))
    return toy.decode(ids)


def noise(words: int) -> str:
    return " ".join(RNG.choice(WORDS, size=words))


CLEAN: list[tuple[Query, tuple[Hit, ...]]] = [
    (
        Query(id=f"c{n}", text=f"question {n}", group="g"),
        make_hits(
            [noise(24) for _ in range(5)], scores=[0.9 - i / 10 - n / 1000 for i in range(5)]
        ),
    )
    for n in range(60)
]


def test_perplexity_is_the_exponential_of_the_mean_loss() -> None:
    assert perplexity([]) is None
    assert perplexity([0.0]) == 1.0
    assert perplexity(np.log([2.0, 8.0])) == pytest.approx(4.0)


def test_the_threshold_is_the_order_statistic_of_clean_passages() -> None:
    tools = ScriptedTools()
    ready = Perplexity(fpr=0.05, passages=1000).fit(CLEAN, tools)
    assert ready.n_calibration == 300
    scores = sorted(
        perplexity(each) or 0.0
        for each in tools.token_nll([hit.passage.text for _, hits in CLEAN for hit in hits])
    )
    assert ready.threshold == scores[284]
    assert ready.thresholds["0.05"] == ready.threshold
    assert len(tools.scored) == 600


def test_improbable_passages_are_dropped_and_fluent_ones_pass() -> None:
    ready = Perplexity().fit(CLEAN, ScriptedTools())
    hits = make_hits([greedy("ba", 24), rare(24), "ba", ""])
    verdict = ready.apply(make_query(), hits, ScriptedTools())
    assert [hit.rank for hit in verdict.kept] == [1, 3, 4]
    assert set(verdict.suspicion) == {"p1", "p2"}
    assert verdict.suspicion["p2"] > ready.threshold > verdict.suspicion["p1"]
    assert verdict.trace["removed_ranks"] == [2]
    assert verdict.trace["passage_thresholds"] == dict(ready.thresholds)


def test_calibration_takes_at_most_so_many_passages_whatever_their_order() -> None:
    tools = ScriptedTools()
    ready = Perplexity(passages=50).fit(CLEAN, tools)
    assert ready.n_calibration == len(tools.scored) == 50
    assert Perplexity(passages=50).fit(CLEAN[::-1], ScriptedTools()) == ready
    with pytest.raises(ConfigError, match="passages >= 1"):
        Perplexity(passages=0)
    with pytest.raises(NotEstimable, match="two tokens"):
        Perplexity().fit([(make_query(), make_hits(["ba", ""]))], ScriptedTools())


# ------------------------------------------------------------------------------------ raguard


@pytest.mark.parametrize(("tokens", "first"), [(4, 2), (5, 3), (20, 10), (21, 11)])
def test_halves_meet_at_the_middle_token(tokens: int, first: int) -> None:
    one, two = joint_halves(np.arange(1, tokens))
    assert (len(one), len(two)) == (first - 1, tokens - first)
    assert [*one, *two] == list(range(1, tokens))


def test_the_difference_is_signed_and_the_maximum_is_not() -> None:
    assert chunk_perplexity(20.0, 80.0) == (-60.0, 80.0)


def test_separate_halves_are_scored_as_texts_of_their_own() -> None:
    tools, toy = ScriptedTools(), ToyLM()
    text = noise(21)
    (found,) = measure([text], "separate", 20, tools)
    assert found is not None
    words = text.split()
    one, two = toy.perplexity([" ".join(words[:11]), " ".join(words[11:])])
    assert found == (pytest.approx(one - two), pytest.approx(max(one, two)))
    (joint,) = measure([text], "joint", 20, tools)
    assert joint is not None
    assert joint != found


@pytest.mark.parametrize("fpr", [0.03, 0.06, 0.15])
def test_all_three_tests_together_keep_the_nominal_level(fpr: float) -> None:
    ready = RAGuard(fpr=fpr, passages=1000, expand=1).fit(CLEAN, ScriptedTools())
    assert ready.n_calibration == 300
    verdicts = [ready.apply(query, hits, ScriptedTools()) for query, hits in CLEAN]
    failed = [tests for v in verdicts for tests in v.trace["failed"]]  # type: ignore[union-attr]
    each = round(fpr / 3 * 300)
    for test in ("difference", "maximum", "similarity"):
        assert sum(test in tests for tests in failed) == each
    flagged = sum(len(hits) - len(v.kept) for v, (_, hits) in zip(verdicts, CLEAN, strict=True))
    assert each <= flagged <= 3 * each
    for verdict, (_, hits) in zip(verdicts, CLEAN, strict=True):  # the score is the flag
        for hit in hits:
            dropped = verdict.suspicion[hit.passage.id] > ready.threshold
            assert dropped == (hit not in verdict.kept)


def test_the_thresholds_of_other_rates_flag_what_those_rates_would() -> None:
    strict = RAGuard(fpr=0.01).fit(CLEAN, ScriptedTools())
    loose = RAGuard(fpr=0.2).fit(CLEAN, ScriptedTools())
    assert strict.thresholds["0.2"] == loose.threshold == share_threshold(200, 0.2)
    assert strict.thresholds["0.01"] == strict.threshold


def test_a_passage_too_like_the_question_or_of_uneven_halves_is_dropped() -> None:
    ready = RAGuard(expand=1).fit(CLEAN, ScriptedTools())
    uneven = rare(32, greedy("ba", 16))
    plain = CLEAN[0][1][2].passage.text
    hits = make_hits([noise(24), uneven, plain, "ba be bi"], scores=[5.0, 0.6, 0.6, 9.0])
    verdict = ready.apply(make_query(), hits, ScriptedTools())
    failed = verdict.trace["failed"]
    assert "similarity" in failed[0]  # type: ignore[index]
    assert set(failed[1]) >= {"difference", "maximum"}  # type: ignore[index]
    assert verdict.trace["difference"][1] < 0  # type: ignore[index, operator]
    assert verdict.trace["not_scorable_ranks"] == [4]
    assert [hit.rank for hit in verdict.kept] == [3, 4]
    assert set(verdict.suspicion) == {"p1", "p2", "p3"}


def test_the_best_that_pass_are_kept_as_many_as_a_context_has() -> None:
    assert RAGuard().expand == 5
    ready = RAGuard(min_tokens=4).fit(CLEAN, ScriptedTools())
    assert ready.expand == 5
    hits = make_hits([CLEAN[n][1][2].passage.text for n in range(10)], scores=[0.6] * 10)
    passing = [h.rank for h in ready.apply(make_query(), hits, ScriptedTools(k=10)).kept]
    assert len(passing) > 3
    verdict = ready.apply(make_query(), hits, ScriptedTools(k=3))
    assert [hit.rank for hit in verdict.kept] == passing[:3]
    assert verdict.trace["surplus_ranks"] == passing[3:]


def test_both_filters_share_one_pass() -> None:
    tools = ScriptedTools()
    one = Perplexity(passages=1000).fit(CLEAN, tools)
    before = set(tools.scored)
    other = RAGuard(passages=1000).fit(CLEAN, tools)
    hits = make_hits([noise(30) for _ in range(3)])
    one.apply(make_query(), hits, tools)
    other.apply(make_query(), hits, tools)
    assert set(tools.scored) == before | {hit.passage.text for hit in hits}


@pytest.mark.parametrize("halves", ["joint", "separate"])
def test_raguard_keeps_the_contract(halves: str) -> None:
    check_defense(RAGuard(halves=halves, min_tokens=4))  # type: ignore[arg-type]


def test_raguard_refuses_what_cannot_work() -> None:
    for wrong in ({"expand": 0}, {"min_tokens": 3}, {"passages": 0}):
        with pytest.raises(ConfigError, match="need expand"):
            RAGuard(**wrong)  # type: ignore[arg-type]
    with pytest.raises(NotEstimable, match="at least 20 tokens"):
        RAGuard().fit([(make_query(), make_hits(["ba be bi"]))], ScriptedTools())
