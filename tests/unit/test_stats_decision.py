"""Thresholds, actions, calibration error and Platt's sigmoid, against independent computations."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragassay.stats.calibration_error import calibration_error, ece, fit_platt
from ragassay.stats.decision import (
    Costs,
    action,
    actions,
    bin_probabilities,
    compare_rules,
    escalation_band,
    relative_change,
    share_in_band,
    tau_d,
    tau_ds,
)
from ragassay.stats.dose import Resampling

cents = st.integers(0, 100).map(lambda n: n / 100)


def how() -> Resampling:
    return Resampling(np.random.default_rng(5), draws=500)


@given(cents, st.sampled_from([1, 4, 9, 19, 99]), cents, st.sampled_from([0.25, 1.0, 4.0, 20.0]))
def test_the_action_is_the_cheapest_in_exact_arithmetic(
    p: float, rho: int, c_a: float, kappa: float
) -> None:
    exact = {name: Fraction(str(value)) for name, value in (("p", p), ("c", c_a), ("k", kappa))}
    costs = {
        "BLOCK": 1 - exact["p"], "ESCALATE": exact["c"], "PASS": rho * exact["k"] * exact["p"]
    }  # fmt: skip
    cheapest = min(costs, key=costs.__getitem__)  # the first of equal ones
    assert action(p, Costs(rho, c_a), kappa=kappa) == cheapest
    del costs["ESCALATE"]
    assert action(p, Costs(rho), kappa=kappa) == min(costs, key=costs.__getitem__)


@given(cents, st.sampled_from([0.5, 1, 4, 9, 19]), st.sampled_from([0.01, 0.25, 1.0, 3.0, 100.0]))
def test_two_actions_part_at_the_threshold(p: float, rho: float, kappa: float) -> None:
    wanted = "BLOCK" if p >= tau_ds(rho, kappa) - 1e-12 else "PASS"
    assert action(p, Costs(rho), kappa=kappa) == wanted


def test_the_band_of_escalation() -> None:
    low, high = escalation_band(Costs(9, 0.3)) or (0.0, 0.0)
    assert (low, high) == (pytest.approx(1 / 30), 0.7)
    grid = np.linspace(0, 1, 1001)
    found = grid[actions(grid, Costs(9, 0.3)) == "ESCALATE"]
    assert low <= found.min() < low + 0.001
    assert high - 0.0011 < found.max() < high
    assert escalation_band(Costs(9, 0.9)) is None
    assert not (actions(grid, Costs(9, 0.9)) == "ESCALATE").any()


def test_the_share_in_the_band_is_what_trust_can_change() -> None:
    grid = np.linspace(0, 1, 501)
    least, most = (actions(grid, Costs(9), kappa=k) for k in (0.25, 20.0))
    assert share_in_band(grid, 9).count == (least != most).sum()
    assert share_in_band([0.0, 1.0], 9).count == 0


def test_which_rules_differ() -> None:
    found = compare_rules([0.2, 0.05, 0.9], 9, [1.0, 20.0, 1.0])
    assert (found.half_and_tau_d, found.half_and_tau_ds, found.tau_d_and_tau_ds) == (1, 2, 1)
    assert found.identical is False
    assert compare_rules([], 9).identical is None
    assert compare_rules([0.0, 1.0], 9, [0.25, 20.0]).identical is True


def test_what_is_impossible_is_refused() -> None:
    for bad in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="positive finite rho"):
            tau_d(bad)
    with pytest.raises(ValueError, match=r"probabilities in \[0, 1\]"):
        actions([float("nan")], Costs(9))
    with pytest.raises(ValueError, match="c_a >= 0"):
        Costs(9, -0.1)
    assert relative_change(0, 5) is None


@given(st.lists(st.tuples(cents, st.booleans()), max_size=40), st.integers(1, 50))
def test_bins_keep_every_candidate(pairs: list[tuple[float, bool]], limit: int) -> None:
    p, kind = [a for a, _ in pairs], [b for _, b in pairs]
    found = bin_probabilities(p, kind, limit=limit)
    assert sum(b.poison for b in found) == sum(kind)
    assert sum(b.clean + b.poison for b in found) == len(p)
    assert len(found) <= limit
    mean = sum(b.p * (b.clean + b.poison) for b in found)
    assert mean == pytest.approx(sum(p), abs=1e-9)


# -------------------------------------------------------------------------- calibration error


def plain_ece(p: list[float], y: list[int], bins: int) -> float:
    """Bin by bin with exact fractions, to the definition."""
    total = Fraction(0)
    for b in range(bins):
        low, high = Fraction(b, bins), Fraction(b + 1, bins)
        inside = [
            i for i, x in enumerate(map(Fraction, map(str, p)))
            if low < x <= high or (b == 0 and x == 0)
        ]  # fmt: skip
        if inside:
            confidence = sum(Fraction(str(p[i])) for i in inside) / len(inside)
            share = Fraction(sum(y[i] for i in inside), len(inside))
            total += Fraction(len(inside), len(p)) * abs(share - confidence)
    return float(total)


@given(st.lists(st.tuples(cents, st.integers(0, 1)), min_size=1, max_size=60),
       st.sampled_from([1, 10, 15, 20]))  # fmt: skip
def test_the_error_is_that_of_the_definition(pairs: list[tuple[float, int]], bins: int) -> None:
    p, y = [a for a, _ in pairs], [b for _, b in pairs]
    assert ece(p, y, bins=bins) == pytest.approx(plain_ece(p, y, bins), abs=1e-12)


def test_the_error_comes_with_bins_prevalence_and_interval() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(400)
    y = rng.random(400) < p
    found = calibration_error(p, y, [i // 10 for i in range(400)], how())
    assert (found.n, found.positive) == (400, int(y.sum()))
    assert sum(b.n for b in found.bins) == 400
    assert found.value == pytest.approx(sum(b.n * abs(b.frequency - b.confidence)
                                            for b in found.bins) / 400)  # fmt: skip
    assert found.interval is not None
    assert 0 < found.interval.low < found.interval.high < 0.2
    nothing = calibration_error([], [], [], how())
    assert (nothing.value, nothing.interval, nothing.bins) == (None, None, ())
    assert calibration_error([0.5, 0.2], [1, 0], ["a", "a"], how()).interval is None


def test_platt_is_that_of_scikit_learn() -> None:
    calibration = pytest.importorskip("sklearn.calibration")
    for seed, shift, scale in ((0, 1.0, 1.0), (1, 0.2, 50.0), (2, 3.0, 0.01)):
        rng = np.random.default_rng(seed)
        y = rng.random(200) < 0.3
        scores = scale * (rng.normal(size=200) + shift * y) + 7
        theirs = calibration._sigmoid_calibration(scores, y)  # a, b of 1 / (1 + exp(a s + b))
        grid = np.linspace(scores.min(), scores.max(), 50)
        expected = 1 / (1 + np.exp(theirs[0] * grid + theirs[1]))
        found = fit_platt(scores, y).probability(grid)
        assert found == pytest.approx(expected, abs=2e-4)


def test_platt_is_the_optimum_and_stays_finite_where_classes_separate() -> None:
    scores, y = np.arange(10.0), np.arange(10) >= 5
    found = fit_platt(scores, y)
    assert np.isfinite([found.slope, found.intercept]).all()
    wanted = np.where(y, 6 / 7, 1 / 7)

    def loss(slope: float, intercept: float) -> float:
        z = slope * scores + intercept
        return float((np.logaddexp(0, z) - wanted * z).sum())

    best = loss(found.slope, found.intercept)
    for nudge in (-0.01, 0.01):
        assert best < loss(found.slope + nudge, found.intercept)
        assert best < loss(found.slope, found.intercept + nudge)
    assert found.probability([1e9, -1e9]).tolist() == [1.0, 0.0]
    with pytest.raises(ValueError, match="poison and clean"):
        fit_platt([1.0, 2.0], [1, 1])
    flat = fit_platt([2.0, 2.0, 2.0], [1, 0, 0])
    assert flat.slope == pytest.approx(0, abs=1e-6)
