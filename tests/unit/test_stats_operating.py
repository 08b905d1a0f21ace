from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ragassay.stats.intervals import wilson
from ragassay.stats.operating import (
    NOMINAL_RATES,
    AttackedContexts,
    BudgetScores,
    Threshold,
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
