"""Rates of filters, paired changes, collapse and success, against plain computations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragassay.stats.clustered_share import clustered_share
from ragassay.stats.collapse import OperatingFigures, collapse, figures_of, ratio_bound
from ragassay.stats.decision import Costs
from ragassay.stats.dose import Resampling
from ragassay.stats.filter_rates import Candidates, closes_the_door, filter_report, harm
from ragassay.stats.intervals import Interval, wilson
from ragassay.stats.ladder_success import all_of, attack_success, intact
from ragassay.stats.paired_clusters import Events, Scored, auroc_change, rate_change
from ragassay.stats.roc import GroupedScores

flags = st.lists(st.booleans(), min_size=1, max_size=20)


def how(draws: int = 500) -> Resampling:
    return Resampling(np.random.default_rng(3), draws=draws)


def cell(seed: int = 0, queries: int = 12, shift: float = 1.0) -> Candidates:
    rng = np.random.default_rng(seed)
    names = [f"q{i // 10}" for i in range(10 * queries)]
    poison = np.array([i % 10 < 4 for i in range(10 * queries)])
    scores = rng.normal(size=len(names)) + shift * poison
    return Candidates(queries=names, poison=poison, blocked=scores > 1.5, scores=scores)


# -------------------------------------------------------------------------------- the shares


def test_one_thing_a_cluster_gives_wilson() -> None:
    found = clustered_share([True] * 3 + [False] * 7, range(10), how())
    assert (found.interval, found.method) == (wilson(3, 10), "wilson")


def test_no_spread_is_not_certainty() -> None:
    found = clustered_share([True] * 500, [i // 5 for i in range(500)], how())
    assert (found.interval, found.method) == (wilson(100, 100), "wilson over clusters")
    half = clustered_share([True, False] * 3, [0, 0, 1, 1, 2, 2], how())
    low, high = wilson(1, 3), wilson(2, 3)
    assert low is not None
    assert high is not None
    assert half.interval == Interval(low.low, high.high)


def test_a_cluster_alone_and_nothing_have_no_interval() -> None:
    assert clustered_share([True, False], ["a", "a"], how()).interval is None
    nothing = clustered_share([], [], how())
    assert (nothing.value, nothing.interval, nothing.method) == (None, None, "none")


def test_clusters_widen_the_interval() -> None:
    events = [i // 10 % 2 == 0 for i in range(200)]  # clusters agree within themselves
    found = clustered_share(events, [i // 10 for i in range(200)], how(2000))
    alone = wilson(100, 200)
    assert found.interval is not None
    assert alone is not None
    assert found.interval.high - found.interval.low > 2 * (alone.high - alone.low)


# -------------------------------------------------------------------------------- the report


def test_the_rates_of_a_report_follow_from_the_candidates() -> None:
    candidates = cell()
    found = filter_report(candidates, how())
    poison, blocked = candidates.poison, candidates.blocked
    assert found.fnr.value == pytest.approx((~blocked[poison]).mean())
    assert found.fpr.value == pytest.approx(blocked[~poison].mean())
    assert found.retention.value == pytest.approx(1 - blocked[~poison].mean())
    dirty = {q for q, p, b in zip(candidates.queries, poison, blocked, strict=True) if p and not b}
    assert found.contamination.count == len(dirty)
    assert found.contamination.n == 12


def test_the_area_is_that_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    candidates = cell(shift=0.5)
    found = filter_report(candidates, how())
    expected = metrics.roc_auc_score(candidates.poison, candidates.scores)
    assert found.auroc.value == pytest.approx(expected, abs=1e-12)


def test_the_matched_rate_is_the_smallest_threshold_that_keeps_the_rate() -> None:
    candidates = cell(shift=0.5)
    scores = np.asarray(candidates.scores, dtype=float)
    clean, poison = scores[~candidates.poison], scores[candidates.poison]
    fits = [t for t in np.unique(clean) if (clean > t).mean() <= 0.05]
    found = filter_report(candidates, how()).matched
    assert found is not None
    assert found.threshold == min(fits)
    assert found.fnr.value == pytest.approx((poison <= min(fits)).mean())
    assert found.fpr.value is not None
    assert found.fpr.value <= 0.05


def test_a_filter_without_scores_has_no_matched_rate_and_no_area() -> None:
    plain = cell()
    found = filter_report(
        Candidates(queries=plain.queries, poison=plain.poison, blocked=plain.blocked), how()
    )
    assert found.matched is None
    assert found.auroc.value is None
    assert found.fnr.value is not None


def test_what_has_no_score_is_never_flagged() -> None:
    candidates = Candidates(
        queries=list("abcd"), poison=np.array([True, True, False, False]),
        blocked=np.zeros(4, dtype=bool), scores=[None, 0.9, 0.1, None],
    )  # fmt: skip
    found = filter_report(candidates, how()).matched
    assert found is not None
    assert (found.fnr.count, found.fnr.n, found.unscored) == (1, 2, 2)


def test_a_zero_miss_rate_that_blocks_most_is_closing_the_door() -> None:
    assert closes_the_door(0.0, 0.51)
    assert closes_the_door(0.0, 0.5) is False
    assert closes_the_door(0.01, 1.0) is False
    assert closes_the_door(None, 1.0) is None


def test_contexts_of_several_seeds_count_each_and_resample_by_question() -> None:
    candidates = Candidates(
        queries=["a", "a", "b", "b"], runs=[11, 22, 11, 22], poison=np.array([True] * 4),
        blocked=np.array([True, False, True, True]),
    )  # fmt: skip
    found = filter_report(candidates, how())
    assert (found.contamination.count, found.contamination.n) == (1, 4)
    assert found.contamination.clusters == 2


def test_harm_counts_what_passed_was_blocked_and_was_escalated() -> None:
    candidates = Candidates(
        queries=["a", "a", "b", "b"], poison=np.array([True, False, True, False]),
        blocked=np.array([False, True, False, False]),
        escalated=np.array([False, False, True, False]),
    )  # fmt: skip
    found = harm(candidates, Costs(9, 0.3), how())
    assert found.value == pytest.approx(1000 * (9 + 1 + 0.3) / 2)
    assert found.contexts == 2
    assert found.interval is not None
    assert found.interval.low <= found.value <= found.interval.high
    with pytest.raises(ValueError, match="c_a is not given"):
        harm(candidates, Costs(9), how())


def test_impossible_candidates_are_refused() -> None:
    both = np.array([True])
    with pytest.raises(ValueError, match="both blocked and escalated"):
        Candidates(queries=["a"], poison=both, blocked=both, escalated=both)
    with pytest.raises(ValueError, match="blocked must be an array of 1 bools"):
        Candidates(queries=["a"], poison=both, blocked=np.array([1, 0], dtype=bool))


# ------------------------------------------------------------------------------------ changes


def test_a_change_of_rates_is_that_of_all_equally_likely_draws() -> None:
    before = Events([True, False, False, True, False, False], list("aabcde"))
    after = Events([True, True, False, True, False], list("abcde"))

    def rate(side: Events, draw: tuple[str, ...]) -> float:
        taken = [bool(e) for name in draw
                 for e, c in zip(side.events, side.clusters, strict=True) if c == name]  # fmt: skip
        return sum(taken) / len(taken)

    exact = [rate(after, d) - rate(before, d) for d in itertools.product("abcde", repeat=5)]
    found = rate_change(before, after, how(20_000))
    assert found.value == pytest.approx(3 / 5 - 2 / 6)
    assert found.interval is not None
    low, high = np.quantile(np.repeat(exact, 1000), [0.025, 0.975])
    assert found.interval.low == pytest.approx(low, abs=0.1)
    assert found.interval.high == pytest.approx(high, abs=0.1)


def test_a_change_against_itself_is_exactly_zero() -> None:
    side = cell().misses
    found = rate_change(side, side, how())
    assert (found.value, found.interval) == (0.0, Interval(0.0, 0.0))


def test_a_change_of_areas_is_paired_by_question() -> None:
    def scored(candidates: Candidates) -> Scored:
        scores, poison = np.asarray(candidates.scores, dtype=float), candidates.poison
        names = np.array(candidates.queries)
        return Scored(
            GroupedScores(scores[poison], names[poison].tolist()),
            GroupedScores(scores[~poison], names[~poison].tolist()),
        )

    good, bad = scored(cell(shift=3.0)), scored(cell(shift=0.0))
    found = auroc_change(good, bad, how())
    assert found.value is not None
    assert found.interval is not None
    assert found.interval.low < found.value < found.interval.high < 0
    assert auroc_change(good, good, how()).interval == Interval(0.0, 0.0)
    reversed_ = auroc_change(bad, good, how())
    assert reversed_.value == pytest.approx(-found.value)


def test_a_side_without_retrieved_poison_has_no_change() -> None:
    found = rate_change(Events([True], ["a"]), Events([], []), how())
    assert (found.value, found.interval) == (None, None)


# ----------------------------------------------------------------------------------- collapse


def test_the_modes_in_their_order() -> None:
    start = OperatingFigures(fnr=0.1, auroc=0.95)

    def mode(**after: object) -> str | None:
        return collapse(start, OperatingFigures(**after)).mode  # type: ignore[arg-type]

    assert mode(fnr=0.19, auroc=0.4) == "none"
    assert mode(fnr=0.5, auroc=0.59) == "signal"
    assert mode(fnr=0.5, auroc=0.7, auroc_interval=Interval(0.5, 0.9)) == "signal"
    assert mode(fnr=0.5, auroc=0.7, auroc_interval=Interval(0.6, 0.8)) == "mixed"
    assert mode(fnr=0.5, auroc=0.8, fnr_matched=0.25) == "calibration"
    assert mode(fnr=0.5, auroc=0.8, fnr_matched=0.26) == "mixed"
    assert mode(fnr=0.5, auroc=0.8) == "mixed"
    assert mode(fnr=0.5) is None
    assert mode(fnr=None) is None


def test_the_ratio_is_missing_where_the_ranking_did_not_get_worse() -> None:
    found = collapse(OperatingFigures(fnr=0.0, auroc=0.7), OperatingFigures(fnr=0.5, auroc=0.7))
    assert (found.delta_auroc, found.ratio) == (0.0, None)
    assert ratio_bound(0.7, 0.8) is None


def test_the_figures_of_a_report_decide() -> None:
    before, after = (figures_of(filter_report(cell(shift=s), how())) for s in (4.0, 0.0))
    assert collapse(before, after).mode == "signal"


# ------------------------------------------------------------------------------------ success


@given(st.lists(st.sampled_from([True, False, None]), max_size=4))
def test_the_conjunction_of_what_is_unknown_covers_all_that_it_may_be(
    parts: list[bool | None],
) -> None:
    worlds = itertools.product(*([p] if p is not None else [True, False] for p in parts))
    possible = {all(world) for world in worlds}
    expected = possible.pop() if len(possible) == 1 else None
    assert all_of(*parts) is expected


def test_success_is_over_all_passages_and_the_miss_rate_over_the_retrieved() -> None:
    found = attack_success(
        [True, True, False, False, None], [True, True, True, True, True],
        [True, False, None, None, None], list("aabbc"), how(),
    )  # fmt: skip
    assert found.success == (True, False, False, False, None)
    assert (found.rate.count, found.rate.n, found.unknown) == (1, 4, 1)
    assert (found.miss_rate.count, found.miss_rate.n) == (1, 2)
    assert (found.retrieval_survival.count, found.retrieval_survival.n) == (2, 4)
    with pytest.raises(ValueError, match="one entry a passage"):
        attack_success([True], [], [True], ["a"], how())


def test_a_payload_is_intact_where_text_and_reader_agree() -> None:
    assert intact(True)
    assert intact(True, False, False)
    assert not intact(True, True, False)
    assert not intact(False, True, True)
