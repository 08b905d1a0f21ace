from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri

from ragassay.stats.detection import auroc
from ragassay.stats.intervals import Interval
from ragassay.stats.roc import AurocEstimate, GroupedScores, auroc_bootstrap, auroc_interval

NAN = float("nan")
SCORES = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=25)  # many ties


def delong_by_definition(p: list[float], n: list[float]) -> float:
    def wins(a: float, b: float) -> float:
        return float(a > b) + 0.5 * float(a == b)

    by_positive = [np.mean([wins(a, b) for b in n]) for a in p]
    by_negative = [np.mean([wins(a, b) for a in p]) for b in n]
    return float(np.var(by_positive, ddof=1) / len(p) + np.var(by_negative, ddof=1) / len(n))


@given(SCORES.filter(lambda s: len(s) > 1), SCORES.filter(lambda s: len(s) > 1))
def test_delong_intervals_follow_the_definition(p: list[float], n: list[float]):
    found = auroc_interval(p, n)
    value, variance = auroc(p, n), delong_by_definition(p, n)
    assert found.value == value
    assert found.interval is not None
    assert 0 <= found.interval.low <= found.value <= found.interval.high <= 1
    if variance > 1e-12:
        half = ndtri(0.975) * variance**0.5
        assert found.method == "delong"
        assert found.interval.low == pytest.approx(max(0, value - half))
        assert found.interval.high == pytest.approx(min(1, value + half))


@pytest.mark.parametrize(("m", "n"), [(1, 1), (2, 2), (60, 200), (3, 50)])
def test_full_separation_is_not_certainty(m: int, n: int):
    above, below = [2.0] * m, [1.0] * n
    best, worst = auroc_interval(above, below), auroc_interval(below, above)
    assert (best.value, worst.value) == (1.0, 0.0)
    assert best.method == worst.method == "score"
    assert best.interval is not None
    assert worst.interval is not None
    assert best.interval.high == 1.0
    assert 0 < best.interval.low < 1
    assert worst.interval.low == 0.0
    assert worst.interval.high == pytest.approx(1 - best.interval.low)


def test_score_intervals_hold_the_values_within_z_of_their_standard_error():
    found = auroc_interval([2.0] * 10, [1.0] * 15).interval
    assert found is not None
    true, extra = found.low, (10 + 15) / 2 - 1
    variance = true * (1 - true) / 150
    variance *= 1 + extra * ((1 - true) / (2 - true) + true / (1 + true))
    assert (1 - true) / variance**0.5 == pytest.approx(ndtri(0.975))


def test_scores_that_never_differ_give_an_interval_around_one_half():
    found = auroc_interval([1.0] * 5, [1.0] * 5)
    assert (found.value, found.method) == (0.5, "score")
    assert found.interval is not None
    assert found.interval.low == pytest.approx(1 - found.interval.high)
    assert 0 < found.interval.low < 0.5


def test_intervals_cover_the_true_area_at_about_their_level():
    rng = np.random.default_rng(5)
    true = 0.7602  # of two normal distributions one standard deviation apart
    covered = [
        found.interval.low <= true <= found.interval.high
        for found in (
            auroc_interval(rng.normal(1, 1, 40), rng.normal(0, 1, 40)) for _ in range(400)
        )
    ]
    assert 0.91 <= np.mean(covered) <= 0.985


def test_missing_scores_are_counted_and_an_empty_class_has_no_area():
    found = auroc_interval([1.0, None], [0.0, NAN, 0.5])
    assert (found.value, found.n_positive, found.n_negative, found.unscored) == (1.0, 1, 2, 2)
    assert auroc_interval([None], [1.0]) == AurocEstimate(None, None, "none", 0, 1, 1)


def test_the_level_of_the_interval_is_checked_and_widens_it():
    p, n = [0.9, 0.5, 0.7], [0.5, 0.1, 0.6]
    narrow, wide = auroc_interval(p, n, confidence=0.5), auroc_interval(p, n, confidence=0.9)
    assert wide.interval.low < narrow.interval.low
    with pytest.raises(ValueError, match="confidence"):
        auroc_interval(p, n, confidence=1.0)


def grouped(scores: list[float | None], groups: list[str]) -> GroupedScores:
    return GroupedScores(scores, groups)


def test_the_cluster_bootstrap_agrees_with_all_equally_likely_resamples():
    p, n = {"a": [0.9, 0.4], "b": [0.6], "c": [0.2, 0.8]}, {"a": [0.3], "b": [0.7, 0.1], "c": [0.5]}
    exact = []
    for draw in itertools.product("abc", repeat=3):
        exact.append(auroc([s for g in draw for s in p[g]], [s for g in draw for s in n[g]]))
    found = auroc_bootstrap(
        grouped([s for g in p for s in p[g]], [g for g in p for _ in p[g]]),
        grouped([s for g in n for s in n[g]], [g for g in n for _ in n[g]]),
        rng=np.random.default_rng(0),
        draws=20_000,
        confidence=0.5,
    )
    low, high = np.quantile(exact, [0.25, 0.75])
    assert found.method == "cluster bootstrap"
    assert found.interval.low == pytest.approx(low, abs=0.02)
    assert found.interval.high == pytest.approx(high, abs=0.02)


def test_ties_count_one_half_in_every_resample():
    found = auroc_bootstrap(
        grouped([1.0, 1.0], ["a", "b"]),
        grouped([1.0, 1.0], ["a", "b"]),
        rng=np.random.default_rng(0),
        draws=200,
    )
    assert (found.value, found.interval) == (0.5, Interval(0.5, 0.5))


def test_equal_seeds_give_equal_intervals_whatever_the_order_of_the_queries():
    rng = np.random.default_rng(2)
    p, n = rng.normal(1, 1, 30).tolist(), rng.normal(0, 1, 30).tolist()
    groups = [f"g{i % 6}" for i in range(30)]
    one, two = (
        auroc_bootstrap(
            grouped(p[::step], groups[::step]),
            grouped(n[::step], groups[::step]),
            rng=np.random.default_rng(9),
            draws=500,
        )
        for step in (1, -1)
    )
    assert one.interval.low == pytest.approx(two.interval.low)
    assert one.interval.high == pytest.approx(two.interval.high)
    assert one.interval.low < one.value < one.interval.high


def test_resamples_that_lack_a_class_are_left_out():
    found = auroc_bootstrap(
        grouped([1.0], ["a"]), grouped([0.0, None], ["b", "c"]), rng=np.random.default_rng(0)
    )
    assert found.interval == Interval(1.0, 1.0)
    assert found.unscored == 1


def test_one_cluster_gives_no_interval():
    found = auroc_bootstrap(
        grouped([1.0, 2.0], ["a", "a"]), grouped([0.0], ["a"]), rng=np.random.default_rng(0)
    )
    assert (found.value, found.interval, found.method) == (1.0, None, "none")


def test_other_groups_and_draws_are_refused():
    rng = np.random.default_rng(0)
    good = grouped([1.0], ["a"])
    with pytest.raises(ValueError, match="one group a score"):
        auroc_bootstrap(grouped([1.0], []), good, rng=rng)
    with pytest.raises(ValueError, match="draws >= 1"):
        auroc_bootstrap(good, good, rng=rng, draws=0)
