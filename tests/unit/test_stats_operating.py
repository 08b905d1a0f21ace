from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtri

from ragassay.stats.detection import auroc
from ragassay.stats.intervals import Interval, wilson
from ragassay.stats.operating import (
    NOMINAL_RATES,
    AttackedContexts,
    AurocEstimate,
    BudgetScores,
    GroupedScores,
    Threshold,
    auroc_bootstrap,
    auroc_interval,
    nominal_thresholds,
    operating_report,
    scores_by_budget,
)

NAN = float("nan")
SCORES = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=25)  # many ties
OPTIONAL = st.one_of(st.none(), st.integers(-4, 4).map(float))
LABEL = st.sampled_from([True, False, None])


# -------------------------------------------------------------------------------- thresholds


def test_thresholds_are_conservative_order_statistics_at_the_four_nominal_rates():
    found = nominal_thresholds([float(i) for i in range(500)])
    assert [t.fpr for t in found] == list(NOMINAL_RATES) == [0.01, 0.05, 0.1, 0.2]
    assert [t.value for t in found] == [494.0, 474.0, 449.0, 399.0]
    assert {t.n for t in found} == {500}


@given(SCORES)
def test_no_nominal_rate_is_exceeded_on_the_calibration_scores(scores: list[float]):
    for threshold in nominal_thresholds(scores):
        assert sum(s > threshold.value for s in scores) <= threshold.fpr * len(scores) + 1e-9


def test_contexts_without_a_score_are_not_calibrated_on():
    assert nominal_thresholds([None, 1.0, NAN, 2.0], [0.5]) == (Threshold(0.5, 1.0, 2),)
    assert nominal_thresholds([None, NAN], [0.5]) == (Threshold(0.5, None, 0),)
    assert nominal_thresholds([], [0.01, 0.2]) == (
        Threshold(0.01, None, 0),
        Threshold(0.2, None, 0),
    )


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, NAN])
def test_rates_out_of_range_are_refused_even_without_scores(rate: float):
    with pytest.raises(ValueError, match="0 < fpr < 1"):
        nominal_thresholds([], [rate])


def test_infinite_scores_are_refused():
    with pytest.raises(ValueError, match="finite"):
        nominal_thresholds([1.0, float("inf")])


# --------------------------------------------------------------------------- operating points


def test_a_cell_is_counted_with_its_denominators():
    cell = AttackedContexts(
        scores=[0.9, 0.5, 0.2, None, 0.8, 0.7],
        target=[True, True, True, True, False, None],
        newly_induced=[True, False, True, None, False, None],
    )
    found = operating_report(0.5, cell, [0.1, 0.6, 0.5, NAN])
    assert found is not None
    counts = {
        name: (getattr(found, name).count, getattr(found, name).n)
        for name in ("flagged", "intercepted", "intercepted_new", "target_before",
                     "target_after", "clean_fpr")
    }  # fmt: skip
    assert counts == {
        "flagged": (3, 6),
        "intercepted": (1, 4),  # the score at the threshold and the missing one are not flagged
        "intercepted_new": (1, 2),
        "target_before": (4, 5),
        "target_after": (3, 5),
        "clean_fpr": (1, 4),
    }
    assert found.intercepted.interval == wilson(1, 4)
    assert (found.threshold, found.unscored, found.unlabeled) == (0.5, 1, 1)


@given(st.lists(st.tuples(OPTIONAL, LABEL, LABEL), max_size=20), st.integers(-5, 5).map(float))
def test_target_positives_are_either_intercepted_or_remain(rows: list, threshold: float):
    scores, target, new = zip(*rows, strict=True) if rows else ((), (), ())
    found = operating_report(threshold, AttackedContexts(scores, target, new), [])
    assert found is not None
    assert found.target_before.count == found.intercepted.count + found.target_after.count
    assert found.intercepted.n == found.target_before.count
    assert found.target_before.n == found.target_after.n == len(rows) - found.unlabeled
    assert found.intercepted.count <= found.flagged.count
    assert found.clean_fpr.value is None


def test_a_stricter_nominal_rate_never_intercepts_more():
    rng = np.random.default_rng(1)
    cell = AttackedContexts(rng.normal(1, 1, 60), [True] * 60, [True] * 60)
    clean = rng.normal(0, 1, 200)
    reports = [operating_report(t.value, cell, clean) for t in nominal_thresholds(clean)]
    caught = [report.intercepted.count for report in reports]
    assert caught == sorted(caught)
    assert [round(report.clean_fpr.value, 3) for report in reports] == [0.01, 0.05, 0.1, 0.2]


def test_no_positive_has_no_interception_rate():
    found = operating_report(0.5, AttackedContexts([0.9], [False], [False]), [0.1])
    assert found is not None
    assert (found.intercepted.value, found.intercepted.interval) == (None, None)
    assert operating_report(None, AttackedContexts([0.9], [True], [True]), [0.1]) is None


@pytest.mark.parametrize(
    ("scores", "target", "new", "threshold", "message"),
    [
        ([1.0], [True, False], [True], 0.5, "one score and two labels"),
        ([1.0], [True], [], 0.5, "one score and two labels"),
        ([float("inf")], [True], [True], 0.5, "finite scores"),
        ([1.0], [True], [True], NAN, "finite threshold"),
    ],
)
def test_other_cells_are_refused(scores, target, new, threshold: float, message: str):
    with pytest.raises(ValueError, match=message):
        operating_report(threshold, AttackedContexts(scores, target, new), [0.0])


# -------------------------------------------------------------------------------------- AUROC


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


# ------------------------------------------------------------------------- medians by budget


def test_medians_show_the_collapse_and_count_what_has_no_score():
    scores: NDArray[np.float64] | list = [0.2, 0.4, 0.9, 0.7, None, 0.1, NAN]
    found = scores_by_budget(scores, [0, 0, 1, 1, 1, 5, 3])
    assert found == (
        BudgetScores(0, 2, 0, pytest.approx(0.25), pytest.approx(0.3), pytest.approx(0.35)),
        BudgetScores(1, 2, 1, pytest.approx(0.75), pytest.approx(0.8), pytest.approx(0.85)),
        BudgetScores(3, 0, 1, None, None, None),
        BudgetScores(5, 1, 0, 0.1, 0.1, 0.1),
    )
    assert scores_by_budget([], []) == ()


def test_a_budget_is_needed_for_every_score():
    with pytest.raises(ValueError, match="one budget a score"):
        scores_by_budget([0.1], [])
