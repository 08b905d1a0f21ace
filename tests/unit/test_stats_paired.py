from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from ragassay.stats.intervals import enumerate_cluster_bootstrap
from ragassay.stats.paired import (
    McNemar,
    Transition,
    contributions,
    decisive_difference,
    four_conditions,
    holm,
    mcnemar_exact,
)

FOUR_LABELS = st.lists(st.tuples(*[st.booleans()] * 4), min_size=1, max_size=60).map(
    lambda rows: np.array(rows, dtype=bool).T
)


def outcomes(gained: int, lost: int, same: int = 3) -> tuple[Any, Any]:
    before = np.array([False] * gained + [True] * lost + [True] * same, dtype=bool)
    after = np.array([True] * gained + [False] * lost + [True] * same, dtype=bool)
    return before, after


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_agrees_with_statsmodels(gained: int, lost: int) -> None:
    found = mcnemar_exact(*outcomes(gained, lost))
    assert (found.gained, found.lost) == (gained, lost)
    oracle = mcnemar([[3, gained], [lost, 0]], exact=True).pvalue
    assert found.p_value == pytest.approx(float(oracle), rel=1e-9)


def test_mcnemar_without_a_change_has_p_value_1() -> None:
    assert mcnemar_exact(*outcomes(0, 0)) == McNemar(0, 0, 1.0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (np.array([True]), np.array([True, False])),
        (np.array([[True]]), np.array([[True]])),
        (np.array([1]), np.array([0])),
        (np.array([1.0, np.nan]), np.array([True, False])),
        (np.array([True, None]), np.array([True, False])),
    ],
)
def test_mcnemar_refuses_what_is_not_two_matched_rows_of_labels(before: Any, after: Any) -> None:
    with pytest.raises(ValueError, match=r"need equal shapes|must be bool"):
        mcnemar_exact(before, after)


@given(FOUR_LABELS)
def test_the_identities_hold_exactly(labels: NDArray[np.bool_]) -> None:
    four = four_conditions(*labels)
    n = four.n
    assert four.prevented - four.introduced == four.p0 - four.p1
    assert four.N * n == pytest.approx(four.prevented - four.introduced, abs=1e-9)
    assert four.Gamma * n == pytest.approx((four.p0 - four.c0) - (four.p1 - four.c1), abs=1e-9)
    assert four.Gamma == pytest.approx(four.N + four.H, abs=1e-12)
    assert four.prevented / n == four.P
    assert four.introduced / n == four.J
    assert (four.prevented_share is None) == (four.p0 == 0)


@given(FOUR_LABELS)
def test_the_transition_tables_add_up_to_the_counts(labels: NDArray[np.bool_]) -> None:
    four = four_conditions(*labels)
    pairs = {
        "attack_without_defense": (four.c0, four.p0),
        "attack_with_defense": (four.c1, four.p1),
        "defense_on_clean": (four.c0, four.c1),
        "defense_on_poisoned": (four.p0, four.p1),
    }
    assert set(four.transitions) == set(pairs)
    for name, (first, second) in pairs.items():
        table = four.transitions[name]
        assert table.both + table.first_only == first
        assert table.both + table.second_only == second
        assert table.both + table.first_only + table.second_only + table.neither == four.n
    on_poisoned = four.transitions["defense_on_poisoned"]
    assert (on_poisoned.first_only, on_poisoned.second_only) == (four.prevented, four.introduced)


@given(FOUR_LABELS)
def test_the_contributions_average_to_the_rates(labels: NDArray[np.bool_]) -> None:
    four = four_conditions(*labels)
    table = contributions(*labels)
    assert table.shape == (four.n, 5)
    rates = [four.P, four.J, four.N, four.H, four.Gamma]
    assert table.mean(axis=0) == pytest.approx(rates, abs=1e-12)
    p, j, n, h, gamma = table.T
    assert (n == p - j).all()
    assert (gamma == n + h).all()


@given(FOUR_LABELS)
def test_no_defense_changes_nothing(labels: NDArray[np.bool_]) -> None:
    c0, _, p0, _ = labels
    four = four_conditions(c0, c0, p0, p0)
    assert (four.P, four.J, four.N, four.H, four.Gamma) == (0, 0, 0, 0, 0)


def test_ten_queries_by_hand() -> None:
    # P = 3, J = 2, H = +1 of 10, as in the fixture that the methods describe.
    c0 = np.array([1, 0, 0, 0, 0, 0, 0, 0, 0, 0], dtype=bool)
    c1 = np.array([1, 1, 0, 0, 0, 0, 0, 0, 0, 0], dtype=bool)
    p0 = np.array([1, 1, 1, 1, 1, 1, 0, 0, 0, 0], dtype=bool)
    p1 = np.array([1, 1, 1, 0, 0, 0, 1, 1, 0, 0], dtype=bool)
    four = four_conditions(c0, c1, p0, p1)
    assert (four.P, four.J, four.N, four.H, four.Gamma) == (0.3, 0.2, 0.1, 0.1, 0.2)
    assert four.prevented_share == 0.5
    assert four.transitions["attack_without_defense"] == Transition(1, 0, 5, 4)


def test_a_share_of_no_successful_attack_is_not_a_number() -> None:
    none = np.zeros(4, dtype=bool)
    assert four_conditions(none, none, none, ~none).prevented_share is None


def test_four_conditions_refuse_no_query_and_unscored_ones() -> None:
    empty = np.array([], dtype=bool)
    with pytest.raises(ValueError, match="at least one"):
        four_conditions(empty, empty, empty, empty)
    good = np.array([True, False])
    with pytest.raises(ValueError, match="shapes"):
        four_conditions(good, good, good, good[:1])
    unscored: Any = np.array([True, None])
    with pytest.raises(ValueError, match="bool"):
        four_conditions(good, good, good, unscored)
    with pytest.raises(ValueError, match="bool"):
        contributions(good, unscored, good, good)


@pytest.mark.parametrize("seed", range(5))
def test_holm_agrees_with_statsmodels(seed: int) -> None:
    p_values = (np.random.default_rng(seed).integers(0, 100, size=1 + 4 * seed) / 400).tolist()
    assert holm(p_values) == pytest.approx(list(multipletests(p_values, method="holm")[1]))


def test_holm_of_nothing_is_nothing() -> None:
    assert holm([]) == []


@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan")])
def test_holm_refuses_what_is_no_p_value(bad: float) -> None:
    with pytest.raises(ValueError, match="p-values"):
        holm([0.5, bad])


# ------------------------------------------------------------------------ jointly decisive


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_the_published_difference_is_over_the_queries_decided_for_both() -> None:
    # 77 of 100 decided for both: 4 positive for a, 15 for b, so 11 fewer.
    a = [True] * 4 + [False] * 73 + [None] * 13 + [True] * 10
    b = [False] * 62 + [True] * 15 + [True] * 13 + [None] * 10
    found = decisive_difference(a, b, [i // 10 for i in range(100)], rng=rng())
    assert (found.n, found.n_decisive, found.groups) == (100, 77, 8)
    assert (found.positive_a, found.positive_b, found.count) == (4, 15, -11)
    assert found.value is not None
    assert 100 * found.value == pytest.approx(-14.285714, abs=1e-4)
    assert found.interval is not None
    assert found.interval.low < found.value < found.interval.high


@pytest.mark.parametrize("kind", [list, lambda x: np.array(x, dtype=object)])
def test_none_and_minus_one_say_the_same(kind: Any) -> None:
    groups = list("aabbcc")
    words = decisive_difference(
        kind([True, None, False, True, False, None]),
        kind([False, True, False, None, True, None]), groups, rng=rng(),
    )  # fmt: skip
    codes = decisive_difference([1, -1, 0, 1, 0, -1], [0, 1, 0, -1, 1, -1], groups, rng=rng())
    assert words == codes
    assert (codes.n, codes.n_decisive, codes.count) == (6, 3, 0)


def test_the_interval_is_that_of_the_exact_resamples() -> None:
    a, b = [1, 1, 0, 0, -1, 1], [0, 1, 1, 0, 1, 0]
    groups = ["x", "x", "y", "y", "y", "z"]
    found = decisive_difference(a, b, groups, draws=200_000, rng=rng())
    exact = enumerate_cluster_bootstrap(np.array([1.0, 0, -1, 0, 1]), ["x", "x", "y", "y", "z"])
    low, high = np.quantile(exact, [0.025, 0.975], method="inverted_cdf")
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high), abs=0.02)


def test_swapping_the_systems_mirrors_the_difference() -> None:
    a, b, groups = [1, 0, 0, 1, -1], [0, 0, 1, 0, 1], list("vvwwx")
    one, other = (decisive_difference(x, y, groups, rng=rng()) for x, y in ((a, b), (b, a)))
    assert one.count == -other.count
    assert one.interval is not None
    assert other.interval is not None
    assert (one.interval.low, one.interval.high) == pytest.approx(
        (-other.interval.high, -other.interval.low), abs=0.1
    )


@pytest.mark.parametrize("labels", [([], []), ([-1, None, 1], [1, 0, None])])
def test_where_nothing_is_decided_for_both_there_is_no_figure(labels: Any) -> None:
    a, b = labels
    found = decisive_difference(a, b, ["g", "h", "g"][: len(a)], rng=rng())
    assert (found.n, found.n_decisive) == (len(a), 0)
    assert found.value is None
    assert found.interval is None


def test_one_group_has_a_difference_and_no_interval() -> None:
    found = decisive_difference([1, 0], [0, 0], ["g", "g"], rng=rng())
    assert found.value == 0.5
    assert found.interval is None


@pytest.mark.parametrize(
    ("a", "b", "groups", "why"),
    [
        ([1, 0], [1], ["g", "h"], "same queries"),
        ([1, 0], [1, 0], ["g"], "same queries"),
        ([2, 0], [1, 0], ["g", "h"], "must be True or 1"),
        ([0.5, 0], [1, 0], ["g", "h"], "must be True or 1"),
        (["yes", "no"], [1, 0], ["g", "h"], "must be True or 1"),
        ([[1, 0]], [1, 0], ["g", "h"], "must be True or 1"),
    ],
)
def test_labels_that_are_not_tri_state_or_do_not_match_are_refused(
    a: Any, b: Any, groups: Any, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        decisive_difference(a, b, groups, rng=rng())
