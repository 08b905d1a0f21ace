"""One-sided tests, design effects and power, against closed forms, other libraries, simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binomtest, multinomial
from statsmodels.stats.proportion import proportion_confint

from ragassay.canon import rng_for
from ragassay.gate.decision import Requirement, weigh
from ragassay.stats import clusters, onesided, power, power_estimated
from ragassay.stats.power import Difference, Sampling

# ------------------------------------------------------------------------------ design effects


def test_design_effects_have_their_closed_forms() -> None:
    assert clusters.design_effect(10, 0.05) == 1.45
    assert clusters.design_effect(1, 0.9) == 1
    assert clusters.design_effect(10, 0.1, cv=0.5) == pytest.approx(1 + (1.25 * 10 - 1) * 0.1)
    with pytest.raises(ValueError, match="icc"):
        clusters.design_effect(10, 1.5)


def test_the_correlation_is_one_where_groups_decide_and_none_where_nothing_differs() -> None:
    groups = ["a"] * 5 + ["b"] * 5
    assert clusters.estimate_icc(np.array([1.0] * 5 + [0.0] * 5), groups) == pytest.approx(1)
    assert clusters.estimate_icc(np.ones(10), groups) is None
    assert clusters.estimate_icc(np.arange(10.0), list("abcdefghij")) is None


def test_the_estimated_correlation_is_that_of_the_groups_drawn() -> None:
    rng = rng_for("test", "icc")
    rate = rng.beta(0.3 * 4, 0.7 * 4, size=2000)  # icc = 1 / (1 + 4)
    values = (rng.random((2000, 8)) < rate[:, None]).astype(float).ravel()
    found = clusters.estimate_icc(values, np.repeat(np.arange(2000), 8).tolist())
    assert found == pytest.approx(0.2, abs=0.03)


def test_an_effective_sample_is_never_larger_than_the_sample_nor_optimistic_about_groups() -> None:
    rare = np.zeros(100)
    single = clusters.effective(rare, list(range(100)))
    grouped = clusters.effective(rare, [i // 10 for i in range(100)])
    assert single.size == pytest.approx(100)
    assert grouped.design_effect == pytest.approx(1.45)  # no case, so nothing but the floor
    assert grouped.size < 100 / 1.45
    assert clusters.effective(rare, [i // 10 for i in range(100)], icc=0.0).size == 100
    assert clusters.effective(rare, ["one"] * 100).size == 0
    together = np.repeat([0.0, 1.0], 50)
    assert clusters.effective(together, [i // 10 for i in range(100)]).size < 10


# ---------------------------------------------------------------------------- one-sided tests


@pytest.mark.parametrize(("count", "n"), [(0, 40), (3, 40), (39, 40), (40, 40)])
def test_rates_are_bounded_as_clopper_and_pearson_do(count: int, n: int) -> None:
    found = onesided.rate_interval(count, n, 0.05)
    low, high = proportion_confint(count, n, alpha=0.1, method="beta")
    assert found.low == pytest.approx(0 if count == 0 else low)
    assert found.high == pytest.approx(1 if count == n else high)


@given(n=st.integers(1, 60), share=st.floats(0, 1), limit=st.floats(0.01, 0.99))
def test_rate_tests_are_the_binomial_ones(n: int, share: float, limit: float) -> None:
    count = round(share * n)
    below, above = onesided.rate_below(count, n, limit), onesided.rate_above(count, n, limit)
    assert below == pytest.approx(binomtest(count, n, limit, alternative="less").pvalue)
    assert above == pytest.approx(binomtest(count, n, limit, alternative="greater").pvalue)


def test_one_case_shows_that_a_rate_is_above_zero_and_none_does_not() -> None:
    assert onesided.rate_above(1, 50, 0.0) == 0
    assert onesided.rate_above(0, 50, 0.0) == 1
    assert onesided.rate_below(0, 149, 0.02) < 0.05 < onesided.rate_below(0, 148, 0.02)


@given(
    counts=st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(1, 30)),
    delta=st.floats(-0.9, 0.9),
)
def test_the_score_is_that_of_the_constrained_likelihood(
    counts: tuple[int, int, int], delta: float
) -> None:
    b, c, rest = counts
    n = b + c + rest
    low, high = max(0.0, -delta) + 1e-9, (1 - delta) / 2 - 1e-9

    def minus(q: float) -> float:  # q: share of "second only"; first only is q + delta
        shares = (q + delta, q, 1 - 2 * q - delta)
        return -sum(k * math.log(max(p, 1e-300)) for k, p in zip((b, c, rest), shares, strict=True))

    q = minimize_scalar(minus, bounds=(low, high), method="bounded", options={"xatol": 1e-10}).x
    variance = n * (2 * q + delta - delta**2)
    found = float(onesided.difference_score(b, c, n, delta))
    if variance > 1e-4:
        assert found == pytest.approx((b - c - n * delta) / math.sqrt(variance), rel=1e-2, abs=1e-2)


def test_the_interval_of_a_difference_holds_what_the_tests_do_not_exclude() -> None:
    found = onesided.difference_interval(30, 5, 100, 0.05)
    assert found.low < 0.25 < found.high
    assert onesided.difference_above(30, 5, 100, found.low) == pytest.approx(0.05, abs=1e-6)
    assert onesided.difference_below(30, 5, 100, found.high) == pytest.approx(0.05, abs=1e-6)
    nothing = onesided.difference_interval(0, 0, 100, 0.05)
    assert nothing.low == pytest.approx(-nothing.high)
    assert 0.02 < nothing.high < 0.06  # nothing changed, and that is no proof


def test_mcnemar_by_effective_counts_is_exact_for_whole_ones() -> None:
    for up, down in itertools.product(range(6), range(6)):
        expected = binomtest(up, up + down, 0.5, alternative="greater").pvalue if up + down else 1.0
        assert onesided.more_changes(up, down) == pytest.approx(expected)


@given(st.lists(st.integers(-2, 2), min_size=1, max_size=12), st.integers(1, 6))
def test_the_sign_flip_test_counts_every_assignment(changes: list[int], groups: int) -> None:
    labels = [i % groups for i in range(len(changes))]
    sums = [sum(c for c, g in zip(changes, labels, strict=True) if g == k) for k in set(labels)]
    total = sum(sums)
    signs = list(itertools.product((-1, 1), repeat=len(sums)))
    hits = sum(sum(s * v for s, v in zip(each, sums, strict=True)) >= total for each in signs)
    found = onesided.sign_flip(np.array(changes), labels)
    expected = hits / len(signs) if any(sums) else 1.0
    assert found == pytest.approx(expected)


def test_the_sign_flip_test_of_single_questions_is_mcnemars() -> None:
    changes = np.array([1] * 7 + [-1] * 2 + [0] * 20)
    found = onesided.sign_flip(changes, list(range(len(changes))))
    assert found == pytest.approx(onesided.more_changes(7, 2))


# ------------------------------------------------------------------------------------- power


def test_the_power_of_a_rate_is_the_sum_over_all_outcomes() -> None:
    n, rate, limit = 80, 0.01, 0.06
    expected = sum(
        math.comb(n, x) * rate**x * (1 - rate) ** (n - x)
        for x in range(n + 1)
        if binomtest(x, n, limit, alternative="less").pvalue <= 0.05
    )
    assert power.rate_power(n, rate, limit, "below") == pytest.approx(expected)


def test_the_power_of_a_difference_is_the_sum_over_all_outcomes() -> None:
    n, shares = 24, (0.4, 0.05, 0.55)
    expected = sum(
        multinomial.pmf((b, c, n - b - c), n, shares)
        for b in range(n + 1)
        for c in range(n + 1 - b)
        if onesided.difference_above(b, c, n, 0.1) <= 0.05
    )
    found = power.difference_power(n, Difference(first=0.4, second=0.05), 0.1, "above")
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("groups", "size", "icc"), [(100, 1, 0.0), (10, 10, 0.05), (20, 10, 0.2)], ids=str
)
def test_power_agrees_with_simulation_within_two_points(groups: int, size: int, icc: float) -> None:
    rng = rng_for("test", "power", groups, size)
    n, draws = groups * size, 20_000
    sampling = Sampling(cluster_size=size, icc=icc)
    expected = Difference(first=0.25, second=0.05)
    shares = np.array([0.25, 0.05, 0.7])
    chance = (
        np.broadcast_to(shares, (draws, groups, 3)) if icc == 0
        else rng.dirichlet(shares * (1 - icc) / icc, size=(draws, groups))
    )  # fmt: skip
    totals = rng.multinomial(size, chance).sum(axis=1) / sampling.design_effect
    worth = n / sampling.design_effect
    simulated = (onesided.difference_above(totals[:, 0], totals[:, 1], worth, 0.05) <= 0.05).mean()
    found = power.difference_power(n, expected, 0.05, "above", sampling=sampling)
    assert found == pytest.approx(simulated, abs=0.02)
    simulated = (onesided.rate_above(totals[:, 0], worth, 0.15) <= 0.05).mean()
    found = power.rate_power(n, 0.25, 0.15, "above", sampling=sampling)
    assert found == pytest.approx(simulated, abs=0.02)


@pytest.mark.parametrize(("groups", "size", "icc"), [(10, 10, 0.05), (60, 3, 0.2)], ids=str)
def test_power_of_a_gate_that_estimates_agrees_with_that_gate(
    groups: int, size: int, icc: float
) -> None:
    """The gate decides on drawn questions one by one; planning draws whole groups."""
    rng = rng_for("test", "estimated power", groups, size)
    draws, labels = 3000, np.repeat(np.arange(groups), size).tolist()
    shares = np.array([0.25, 0.05, 0.7])
    chance = rng.dirichlet(shares * (1 - icc) / icc, size=(draws, groups))
    u = rng.random((draws, groups, size, 1))
    kinds = (u > np.cumsum(chance, axis=-1)[:, :, None, :-1]).sum(axis=-1).reshape(draws, -1)
    sampling = Sampling(cluster_size=size, icc=icc, known=False)

    def decided(values: np.ndarray, need: Requirement) -> float:
        found = [weigh(row, labels, need, alpha=0.05, bounds=False).p_met for row in values]
        return float(np.mean([p is not None and p <= 0.05 for p in found]))

    n = groups * size
    found = power.rate_power(n, 0.25, 0.15, "above", sampling=sampling)
    need = Requirement(shape="rate", at_least=True, limit=0.15)
    assert found == pytest.approx(decided((kinds == 0).astype(np.int64), need), abs=0.03)
    expected = Difference(first=0.25, second=0.05)
    found = power.difference_power(n, expected, 0.05, "above", sampling=sampling)
    need = Requirement(shape="difference", at_least=True, limit=0.05)
    values = np.array([1, -1, 0])[kinds]
    assert found == pytest.approx(decided(values, need), abs=0.03)
    told = Sampling(cluster_size=size, icc=icc)
    assert found < power.difference_power(n, expected, 0.05, "above", sampling=told)


def test_what_is_simulated_is_the_same_in_every_call_and_needs_two_groups() -> None:
    sampling = Sampling(cluster_size=10, icc=0.1, known=False)

    def reached(n: int) -> float:
        return power.rate_power(n, 0.3, 0.1, "above", sampling=sampling)

    assert reached(100) == reached(100)
    with pytest.raises(ValueError, match="two groups"):
        reached(10)
    found = power.queries_needed(lambda n: 1.0, 0.8, sampling=sampling)
    assert found is not None
    assert found.groups == 2
    wide = power.rate_width(200, 0.1, sampling=sampling)
    assert wide > power.rate_width(200, 0.1, sampling=Sampling(cluster_size=10, icc=0.1))
    expected = Difference(first=0.3, second=0.05)
    wide = power.difference_width(200, expected, sampling=sampling)
    assert wide > power.difference_width(200, expected, sampling=Sampling(cluster_size=10, icc=0.1))


def test_common_and_rare_ways_to_draw_agree() -> None:
    """Few groups are drawn one by one, many by how often each outcome comes."""
    chance = np.array([0.6, 0.3, 0.1])
    of = (np.array([0.0, 1.0, 2.0]), np.array([2.0, 0.0, 0.0]))
    means = [
        [total.mean() for total in draw(np.random.default_rng(1), 30, 20_000, chance, of)]
        for draw in (power_estimated._by_group, power_estimated._by_outcome)
    ]
    assert means[0] == pytest.approx([30 * 0.5, 30 * 1.2], rel=0.01)
    assert means[1] == pytest.approx([30 * 0.5, 30 * 1.2], rel=0.01)


def test_correlation_within_groups_costs_questions() -> None:
    def needed(sampling: Sampling) -> power.Plan:
        found = power.queries_needed(
            lambda n: power.rate_power(n, 0.005, 0.05, "below", sampling=sampling), 0.8,
            sampling=sampling,
        )  # fmt: skip
        assert found is not None
        return found

    alone, grouped = needed(power.INDEPENDENT), needed(Sampling(cluster_size=10, icc=0.1))
    assert alone.exact
    assert grouped.n > 1.4 * alone.n
    assert grouped.n == 10 * grouped.groups
    assert power.rate_power(alone.n, 0.005, 0.05, "below") == alone.reached >= 0.8


def test_a_rate_that_never_occurs_needs_the_rule_of_three() -> None:
    found = power.queries_needed(lambda n: power.rate_power(n, 0.0, 0.02, "below"), 0.8)
    assert found is not None
    assert found.n == 149


def test_a_limit_that_is_the_truth_is_never_told_from_it() -> None:
    assert power.queries_needed(lambda n: power.rate_power(n, 0.02, 0.02, "below"), 0.8) is None


def test_the_expected_width_falls_with_the_number_and_is_that_of_the_interval() -> None:
    wide, narrow = power.rate_width(100, 0.1), power.rate_width(400, 0.1)
    assert 0.45 < narrow / wide < 0.55
    low, high = proportion_confint(10, 100, alpha=0.05, method="beta")
    assert wide == pytest.approx(high - low, abs=0.01)
    expected = Difference(first=0.3, second=0.05)
    found = power.queries_needed(
        lambda n: power.difference_width(n, expected), 0.2, falling=True
    )  # fmt: skip
    assert found is not None
    assert power.difference_width(found.n, expected) <= 0.2 < power.difference_width(100, expected)


def test_the_detectable_effect_is_the_least_with_the_power() -> None:
    effect = power.detectable_difference(100, 0.02)
    assert effect is not None

    def reached(value: float) -> float:
        return power.difference_power(100, Difference(first=0.02 + value, second=0.02), 0, "above")

    assert reached(effect) >= 0.8 > reached(effect - 0.002)
    assert power.detectable_rate(100) == pytest.approx(1 - 0.2 ** (1 / 100), abs=1e-4)
    assert power.detectable_difference(2, 0.0) is None


def test_the_approximation_meets_the_exact_power_where_they_change_over() -> None:
    expected, sampling = Difference(first=0.1, second=0.06), Sampling(cluster_size=10, icc=0.05)
    exact = power.difference_power(1500, expected, 0.0, "above", sampling=sampling)
    near = power.difference_power(1500, expected, 0.0, "above", sampling=sampling, exact_to=100)
    assert near == pytest.approx(exact, abs=0.02)


def test_impossible_studies_are_refused() -> None:
    with pytest.raises(ValueError, match="sum to at most 1"):
        Difference(first=0.7, second=0.4)
    with pytest.raises(ValueError, match="cluster_size"):
        Sampling(cluster_size=0)
    with pytest.raises(ValueError, match="at least one"):
        power.rate_power(0, 0.1, 0.2, "below")
