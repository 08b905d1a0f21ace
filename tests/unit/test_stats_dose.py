"""Rates by dose, delivery, contrasts, decoding noise, the effective dose and monotonicity."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import chi2_contingency

from ragassay.stats.dose import (
    Resampling,
    Runs,
    contrasts,
    decoding_noise,
    delivery,
    dose_response,
    fooled_rate,
    rate,
)
from ragassay.stats.dose_table import DoseTable, nondecreasing, nondecreasing_rows
from ragassay.stats.effective_dose import ed50, firth_logistic
from ragassay.stats.intervals import Interval
from ragassay.stats.trend import monotonicity, trend


def how(draws: int = 2000, seed: int = 1) -> Resampling:
    return Resampling(np.random.default_rng(seed), draws=draws)


def runs(rows: list[tuple[int, int, int, int, int, int, Any]]) -> Runs:
    """Rows of requested, applied, clean correct, correct, adopted, abstained, group."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * 7
    return Runs(
        *(np.array(column, dtype=np.int64) for column in columns[:2]),
        *(np.array(column, dtype=bool) for column in columns[2:6]),
        groups=list(columns[6]),
    )


def graded(counts: list[tuple[int, int]]) -> tuple[Any, Any, list[int]]:
    """Doses, outcomes and groups of their own, for (events, runs) at dose 0, 1, ..."""
    doses = np.repeat(np.arange(len(counts)), [n for _, n in counts])
    outcome = np.concatenate([np.arange(n) < k for k, n in counts])
    return doses, outcome, list(range(len(doses)))


# ------------------------------------------------------------------------------------- rates

GRID = [
    # requested, applied, clean correct, correct, adopted, abstained, question
    (1, 0, 1, 1, 0, 0, "a"), (1, 1, 1, 0, 1, 0, "a"), (1, 1, 1, 0, 1, 1, "b"),
    (2, 1, 1, 1, 0, 0, "b"), (2, 2, 0, 0, 0, 1, "c"), (2, 2, 1, 0, 0, 1, "c"),
]  # fmt: skip


def test_the_fooled_rate_has_the_clean_correct_runs_as_its_base() -> None:
    found = fooled_rate(runs(GRID), how())
    assert (found.count, found.n, found.groups, found.value) == (3, 5, 3, 0.6)
    assert found.interval is not None
    assert found.interval.low <= 0.6 <= found.interval.high


def test_the_outcomes_by_applied_dose_are_counted() -> None:
    zero, one, two = dose_response(runs(GRID), how())
    assert [(p.dose, p.n) for p in (zero, one, two)] == [(0, 1), (1, 3), (2, 2)]
    assert [(p.fooled.count, p.fooled.n) for p in (zero, one, two)] == [(0, 1), (2, 3), (1, 1)]
    assert [(p.adopted.count, p.abstained.count) for p in (zero, one, two)] == [
        (0, 0), (2, 1), (0, 2)
    ]  # fmt: skip
    assert [p.adopted_and_abstained for p in (zero, one, two)] == [0, 1, 0]
    assert (one.resolved.correct, one.resolved.abstained, one.resolved.wrong) == (1, 1, 1)


def test_the_three_outcomes_add_up_to_the_clean_correct_runs() -> None:
    for point in dose_response(runs(GRID), how()):
        parts = point.resolved
        assert parts.correct + parts.abstained + parts.wrong == point.fooled.n


def test_a_dose_without_a_clean_correct_run_has_no_fooled_rate() -> None:
    [point] = dose_response(runs([(1, 1, 0, 0, 1, 0, "a")]), how())
    assert (point.fooled.value, point.fooled.n, point.fooled.interval) == (None, 0, None)
    assert point.adopted.value == 1.0


def test_no_runs_give_no_points() -> None:
    assert dose_response(runs([]), how()) == delivery(runs([]), how()) == ()
    assert fooled_rate(runs([]), how()).value is None


def test_one_question_gives_no_interval() -> None:
    assert rate(np.array([True, False]), ["a", "a"], how()).interval is None


def test_intervals_resample_questions_and_not_runs() -> None:
    outcome = np.repeat([True, False], 50)
    by_question = rate(outcome, ["a"] * 50 + ["b"] * 50, how()).interval
    by_run = rate(outcome, list(range(100)), how()).interval
    assert by_question == Interval(0.0, 1.0)
    assert by_run is not None
    assert by_run.high - by_run.low < 0.25


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("applied", [1, 1, 1, 1, 1, 2], "need 0 <= applied <= requested"),
        ("applied", [-1, 0, 0, 0, 0, 0], "need 0 <= applied <= requested"),
        ("applied", [0.5] * 6, "an array of 6 integers"),
        ("requested", [2] * 5, "an array of 6 integers"),
        ("correct", [1] * 6, "an array of 6 bools"),
        ("adopted", [True] * 7, "an array of 6 bools"),
    ],
)
def test_arrays_that_cannot_be_are_refused(field: str, value: list[Any], message: str) -> None:
    given = runs(GRID)
    arrays = {name: getattr(given, name) for name in Runs.__slots__}
    arrays["requested"] = np.array([1] * 5 + [1])
    arrays["applied"] = np.zeros(6, dtype=int)
    with pytest.raises(ValueError, match=message):
        Runs(**{**arrays, field: np.array(value)})


# ---------------------------------------------------------------------------------- delivery


def test_requested_is_compared_with_applied() -> None:
    one, two = delivery(runs(GRID), how())
    assert (one.requested, one.n, one.exact.count, one.exact.n) == (1, 3, 2, 3)
    assert one.mean == pytest.approx(2 / 3)
    assert (two.requested, two.n, two.exact.count, two.mean) == (2, 3, 2, pytest.approx(5 / 3))


def test_at_one_requested_the_mean_is_the_exact_share() -> None:
    applied = np.array([1, 0, 0, 1, 1])
    no = np.zeros(5, dtype=bool)
    [found] = delivery(Runs(np.ones(5, dtype=int), applied, no, no, no, no, list("abcde")), how())
    assert found.mean == found.exact.value


# --------------------------------------------------------------------------------- contrasts


def random_runs(seed: int, size: int = 300) -> tuple[list[str], Runs]:
    rng = np.random.default_rng(seed)
    requested = rng.integers(1, 4, size)
    flags = rng.random((4, size)) < 0.6
    groups = [f"q{n}" for n in rng.integers(0, 20, size)]
    applied = np.minimum(requested, rng.integers(0, 4, size))
    rules = [("entity", "number", "negation")[n] for n in rng.integers(0, 3, size)]
    return rules, Runs(requested, applied, *flags, groups=groups)


def test_contrasts_on_a_common_set_of_questions_add_up() -> None:
    for seed in range(5):
        rules, given = random_runs(seed)
        found = {(d.first, d.second): d for d in contrasts(rules, given, how(200))}
        assert len({d.questions for d in found.values()}) == 1
        names = list(dict.fromkeys(rules))
        a, b, c = (found[pair].value for pair in itertools.combinations(names, 2))
        assert a is not None
        assert b is not None
        assert c is not None
        assert a + c == pytest.approx(b)


def test_a_contrast_is_paired_by_question() -> None:
    rows = []
    for question, base in enumerate([0, 0, 1, 1]):
        rows += [(1, 1, 1, 1 - base, 0, 0, question), (1, 1, 1, 1 - base, 0, 0, question)]
    [found] = contrasts(["a", "b"] * 4, runs(rows), how())
    assert found.value == 0
    assert found.interval == Interval(0.0, 0.0)  # the questions differ, the rules do not


def test_questions_without_a_clean_correct_run_under_each_rule_are_left_out() -> None:
    rows = [
        (1, 1, 1, 0, 0, 0, "a"), (1, 1, 1, 1, 0, 0, "a"),
        (1, 1, 1, 0, 0, 0, "b"), (1, 1, 0, 1, 0, 0, "b"),
    ]  # fmt: skip
    [found] = contrasts(["x", "y", "x", "y"], runs(rows), how())
    assert (found.questions, found.value, found.interval) == (1, 1.0, None)


def test_rules_that_share_no_question_are_not_compared() -> None:
    rows = [(1, 1, 1, 0, 0, 0, "a"), (1, 1, 1, 1, 0, 0, "b")]
    [found] = contrasts(["x", "y"], runs(rows), how())
    assert (found.questions, found.value, found.interval) == (0, None, None)


def test_each_pair_may_be_compared_on_its_own_questions() -> None:
    rows = [
        (1, 1, 1, 0, 0, 0, "a"), (1, 1, 1, 1, 0, 0, "a"),
        (1, 1, 1, 0, 0, 0, "b"),
    ]  # fmt: skip
    found = contrasts(["x", "y", "z"], runs(rows), how(), common=False)
    assert [(d.first, d.second, d.questions) for d in found] == [
        ("x", "y", 1), ("x", "z", 0), ("y", "z", 0)
    ]  # fmt: skip
    with pytest.raises(ValueError, match="one rule per run"):
        contrasts(["x"], runs(rows), how())


# ------------------------------------------------------------------------------------- noise


def test_decoding_noise_counts_agreement_by_order_and_tests_its_direction() -> None:
    equal = np.array([True] * 8 + [False] * 2)
    one = np.array([True] * 8 + [True, False])
    two = np.array([True] * 8 + [False, False])
    order = np.array([True, False] * 5)
    found = decoding_noise(equal, one, two, order)
    assert (found.agree.count, found.agree.n) == (8, 10)
    assert (found.agree_first.count, found.agree_first.n) == (4, 5)
    assert (found.agree_second.count, found.agree_second.n) == (4, 5)
    assert (found.symmetry.lost, found.symmetry.gained, found.symmetry.p_value) == (1, 0, 1.0)
    assert found.order_p == 1.0


def test_noise_with_one_order_only_has_no_test_of_order() -> None:
    yes = np.ones(4, dtype=bool)
    assert decoding_noise(yes, yes, yes, yes).order_p is None
    none = np.zeros(0, dtype=bool)
    assert decoding_noise(none, none, none, none).agree.value is None


def test_equal_answers_with_unequal_labels_are_refused() -> None:
    yes, no = np.ones(2, dtype=bool), np.zeros(2, dtype=bool)
    with pytest.raises(ValueError, match="score them by one rule"):
        decoding_noise(yes, yes, no, yes)
    with pytest.raises(ValueError, match="one shape"):
        decoding_noise(yes, yes, yes, yes[:1])


# ---------------------------------------------------------------------------- effective dose


def penalized(doses: Any, hits: Any, sizes: Any) -> Any:
    """The logistic curve that maximizes Firth's penalized likelihood, by brute force."""

    def loss(ab: Any) -> float:
        p = np.clip(expit(ab[0] + ab[1] * doses), 1e-15, 1 - 1e-15)
        w = sizes * p * (1 - p)
        det = w.sum() * (w * doses**2).sum() - (w * doses).sum() ** 2
        likelihood = (hits * np.log(p) + (sizes - hits) * np.log1p(-p)).sum()
        return -float(likelihood + 0.5 * np.log(max(det, 1e-300)))

    return minimize(loss, np.zeros(2), method="Nelder-Mead",
                    options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000}).x  # fmt: skip


@pytest.mark.parametrize(
    ("hits", "sizes"),
    [
        ([0, 3, 7, 10], [10, 10, 10, 10]), ([1, 2, 9, 4], [50, 20, 15, 5]),
        ([0, 0, 10, 10], [10, 10, 10, 10]), ([0, 10], [10, 10]), ([5, 0, 3], [9, 0, 4]),
        ([0, 0, 0], [5, 5, 5]),
    ],
)  # fmt: skip
def test_the_logistic_fit_maximizes_the_penalized_likelihood(
    hits: list[int], sizes: list[int]
) -> None:
    doses, k, n = (np.array(x, dtype=float) for x in (range(len(hits)), hits, sizes))
    a, b = firth_logistic(doses, k[None], n[None])
    assert [a[0], b[0]] == pytest.approx(list(penalized(doses, k, n)), abs=2e-4)


def test_separated_doses_have_a_finite_curve_and_the_midpoint_as_their_effective_dose() -> None:
    found = ed50(*graded([(0, 20), (0, 20), (20, 20), (20, 20)]), how(200))
    assert found.value == pytest.approx(1.5, abs=1e-6)
    assert found.slope is not None
    assert found.slope < 20


@pytest.mark.parametrize("model", ["logistic", "isotonic"])
def test_the_effective_dose_of_a_known_curve_is_found(model: Any) -> None:
    rng = np.random.default_rng(3)
    doses = rng.integers(0, 6, 6000)
    fooled = rng.random(6000) < expit(1.5 * (doses - 2.4))
    groups = [int(g) for g in rng.integers(0, 400, 6000)]
    found = ed50(doses, fooled, groups, how(500), model=model)
    assert found.value == pytest.approx(2.4, abs=0.15)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 2.4 < found.high
    assert found.estimable == 1.0


@pytest.mark.parametrize("model", ["logistic", "isotonic"])
def test_where_half_is_not_reached_nothing_is_extrapolated(model: Any) -> None:
    found = ed50(*graded([(0, 40), (4, 40), (8, 40), (12, 40)]), how(300), model=model)
    assert found.value is None
    assert found.reason == "half is not reached at the largest dose"
    assert found.high is None
    assert found.estimable is not None
    assert found.estimable < 0.2


@pytest.mark.parametrize("model", ["logistic", "isotonic"])
def test_where_half_has_fallen_at_once_there_is_no_effective_dose(model: Any) -> None:
    found = ed50(*graded([(30, 40), (35, 40), (39, 40)]), how(300), model=model)
    assert (found.value, found.reason) == (None, "half has fallen at the smallest dose")
    assert found.low is None


def test_a_rate_that_falls_with_the_dose_has_no_effective_dose() -> None:
    found = ed50(*graded([(30, 40), (20, 40), (10, 40)]), how(300))
    assert (found.value, found.reason) == (None, "the rate does not rise with the dose")


def test_one_dose_or_no_run_or_one_question_are_told() -> None:
    assert ed50(*graded([(3, 9)]), how(50)).reason == "fewer than two doses"
    none = np.zeros(0, dtype=int), np.zeros(0, dtype=bool), []
    assert ed50(*none, how(50)).value is None
    doses, fooled, _ = graded([(0, 9), (9, 9)])
    found = ed50(doses, fooled, ["one"] * 18, how(50))
    assert (found.value, found.low, found.high, found.estimable) == (
        pytest.approx(0.5), None, None, None
    )  # fmt: skip
    with pytest.raises(ValueError, match="logistic or isotonic"):
        ed50(doses, fooled, ["one"] * 18, how(50), model="probit")  # type: ignore[arg-type]


def test_an_interval_that_reaches_beyond_the_doses_is_open() -> None:
    found = ed50(*graded([(0, 12), (2, 12), (7, 12)]), how(500))
    assert found.value is not None
    assert found.low is not None
    assert found.high is None


# ------------------------------------------------------------------------------ monotonicity


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 50)), min_size=1, max_size=6))
def test_the_nearest_curve_is_the_min_max_of_pooled_means(cells: list[tuple[float, int]]) -> None:
    rates, weights = (np.array(x, dtype=float) for x in zip(*cells, strict=True))
    size = len(cells)

    def pooled(i: int, j: int) -> float:
        part = slice(i, j + 1)
        return float((rates[part] * weights[part]).sum() / weights[part].sum())

    expected = [
        max(min(pooled(i, j) for j in range(at, size)) for i in range(at + 1)) for at in range(size)
    ]
    assert nondecreasing(rates, weights).tolist() == pytest.approx(expected, abs=1e-9)


def test_a_rising_rate_is_at_distance_zero() -> None:
    found = monotonicity(*graded([(1, 40), (10, 40), (30, 40)]), how(300))
    assert found is not None
    assert (found.rises, found.distance, found.p_value) == (True, 0.0, 1.0)
    assert [(s.lower, s.upper, s.value) for s in found.steps] == [
        (0, 1, pytest.approx(9 / 40)), (1, 2, pytest.approx(0.5))
    ]  # fmt: skip
    assert all(step.interval for step in found.steps)


def test_a_clear_fall_is_found_and_a_slight_one_is_not() -> None:
    clear = monotonicity(*graded([(0, 80), (60, 80), (20, 80)]), how(500))
    slight = monotonicity(*graded([(0, 80), (41, 80), (40, 80)]), how(500))
    assert clear is not None
    assert slight is not None
    assert clear.p_value is not None
    assert slight.p_value is not None
    assert clear.p_value < 0.01
    assert slight.p_value > 0.2
    assert not slight.rises


def test_the_monotonicity_test_keeps_its_level_where_the_rate_is_flat() -> None:
    rng = np.random.default_rng(5)
    low = 0
    for trial in range(120):
        doses = np.tile([1, 2, 3], 60)
        question = np.repeat(rng.random(60), 3)  # questions differ in difficulty
        outcome = rng.random(180) < question
        groups = [n // 3 for n in range(180)]
        found = monotonicity(doses, outcome, groups, how(200, seed=trial))
        assert found is not None
        assert found.p_value is not None
        low += found.p_value < 0.05
    assert low <= 14  # 6 expected


def test_one_dose_is_neither_monotone_nor_not() -> None:
    assert monotonicity(*graded([(3, 9)]), how(50)) is None
    doses, outcome, _ = graded([(3, 9), (2, 9)])
    found = monotonicity(doses, outcome, ["a"] * 18, how(50))
    assert found is not None
    assert found.p_value is None
    assert [step.interval for step in found.steps] == [None]


def test_the_trend_of_one_stratum_is_cochran_s_and_armitage_s() -> None:
    doses, outcome, _ = graded([(2, 20), (6, 20), (11, 20)])
    found = trend(doses, outcome, ["all"] * 60, how(4000))
    assert found is not None
    n, p = 60, outcome.mean()
    spread = (doses**2).sum() - doses.sum() ** 2 / n
    z = ((doses - doses.mean()) * outcome).sum() / np.sqrt(p * (1 - p) * spread)
    assert found.z == pytest.approx(z * np.sqrt((n - 1) / n))
    table = np.array([[2, 18], [11, 9]])
    both, flags, _ = graded([(2, 20), (11, 20)])
    two = trend(both, flags, ["all"] * 40, how(4000))
    assert two is not None
    statistic = chi2_contingency(table, correction=False).statistic
    assert two.z**2 == pytest.approx(statistic * 39 / 40)


def test_the_permutation_agrees_with_all_permutations() -> None:
    doses = np.array([0, 1, 2, 0, 1, 2])
    outcome = np.array([False, False, True, False, True, True])
    found = trend(doses, outcome, list("aaabbb"), how(20_000))
    sums = [
        sum(d for d, y in zip(doses[:3], one, strict=True) if y)
        + sum(d for d, y in zip(doses[3:], two, strict=True) if y)
        for one in itertools.permutations(outcome[:3])
        for two in itertools.permutations(outcome[3:])
    ]
    center = 1 + 2  # a mean dose of 1 for each of three events
    exact = np.mean([abs(s - center) >= abs(5 - center) for s in sums])
    assert found is not None
    assert found.p_value == pytest.approx(exact, abs=0.01)


def test_the_trend_does_not_take_easy_questions_for_an_effect() -> None:
    doses = np.repeat([0, 3], 20)
    outcome = np.repeat([False, True], 20)
    confounded = [f"q{n // 4}" for n in range(40)]  # each question at one dose only
    assert trend(doses, outcome, confounded, how(200)) is None
    found = trend(doses, outcome, ["all"] * 40, how(200))
    assert found is not None
    assert found.p_value < 0.01


def test_a_falling_rate_has_a_negative_trend() -> None:
    doses, outcome, _ = graded([(18, 20), (10, 20), (2, 20)])
    found = trend(doses, outcome, ["all"] * 60, how(500))
    assert found is not None
    assert found.z < -4
    assert found.informative == 1


def test_arrays_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="a dose, an outcome and a group per run"):
        trend(np.array([1, 2]), np.array([True]), ["a"], how(10))
    with pytest.raises(ValueError, match="drop what is unscored"):
        ed50(np.array([1]), np.array([1]), ["a"], how(10))  # type: ignore[arg-type]


def test_resamples_keep_whole_questions() -> None:
    doses, outcome = np.array([0, 1, 0, 1]), np.array([False, True, False, True])
    table = DoseTable.of(doses, outcome, ["a", "a", "b", "b"])
    assert table is not None
    for hits, sizes in table.resamples(how(50)):
        assert (sizes == 2).all()
        assert (hits == [0, 2]).all()


def test_equal_generators_give_equal_figures() -> None:
    rules, given = random_runs(1)
    assert dose_response(given, how(200)) == dose_response(given, how(200))
    assert contrasts(rules, given, how(200)) == contrasts(rules, given, how(200))
    arguments = given.applied, given.fooled, given.groups
    assert ed50(*arguments, how(200)) == ed50(*arguments, how(200))
    assert trend(*arguments, how(200)) == trend(*arguments, how(200))
    assert monotonicity(*arguments, how(200)) == monotonicity(*arguments, how(200))


def test_many_nondecreasing_curves_at_once_are_those_of_one_by_one() -> None:
    rng = np.random.default_rng(3)
    sizes = rng.integers(0, 6, size=(400, 5)).astype(float)
    hits = np.floor(sizes * rng.random(sizes.shape) + 0.5)
    found = nondecreasing_rows(hits, sizes)
    assert (np.isnan(found) == (sizes == 0)).all()
    for hit, size, row in zip(hits, sizes, found, strict=True):
        known = size > 0
        if known.any():
            one = nondecreasing(hit[known] / size[known], size[known])
            assert row[known] == pytest.approx(one, abs=1e-12)
