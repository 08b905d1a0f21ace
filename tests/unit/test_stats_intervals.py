from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from ragassay.stats import intervals
from ragassay.stats.intervals import (
    Interval,
    cluster_bootstrap,
    enumerate_cluster_bootstrap,
    wilson,
)

VALUES = np.array([1.0, 0.0, 0.0, 1.0, 1.0, 1.0])
GROUPS = ["A", "A", "B", "C", "C", "C"]


def rng(seed: int = 5) -> np.random.Generator:
    return np.random.default_rng(seed)


# ------------------------------------------------------------------------------------ Wilson


@given(st.integers(1, 2000), st.floats(0, 1), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_wilson_agrees_with_statsmodels(n: int, share: float, confidence: float) -> None:
    k = round(share * n)
    low, high = proportion_confint(k, n, alpha=1 - confidence, method="wilson")
    found = wilson(k, n, confidence=confidence)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_rate_and_mirrors_with_it(counts: tuple[int, int]) -> None:
    k, n = counts
    found, mirrored = wilson(k, n), wilson(n - k, n)
    assert found is not None
    assert mirrored is not None
    assert 0 <= found.low <= k / n <= found.high <= 1
    assert found.low == pytest.approx(1 - mirrored.high, abs=1e-12)


def test_wilson_of_nothing_is_not_an_interval() -> None:
    assert wilson(0, 0) is None


def test_wilson_ends_exactly_at_0_and_1() -> None:
    assert wilson(0, 7).low == 0.0  # type: ignore[union-attr]
    assert wilson(7, 7).high == 1.0  # type: ignore[union-attr]


@pytest.mark.parametrize(("k", "n"), [(-1, 5), (6, 5), (1, 0)])
def test_wilson_refuses_impossible_counts(k: int, n: int) -> None:
    with pytest.raises(ValueError, match="0 <= successes <= n"):
        wilson(k, n)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95])
def test_wilson_refuses_impossible_levels(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence"):
        wilson(1, 2, confidence=confidence)


# ------------------------------------------------------------------------- cluster bootstrap


@pytest.mark.parametrize("confidence", [0.5, 0.8])
def test_the_bootstrap_has_the_quantiles_of_the_enumeration(confidence: float) -> None:
    generator = rng()
    values = generator.normal(size=40)
    groups = [f"g{i % 5 if i < 30 else 0}" for i in range(40)]  # unequal sizes
    exact = enumerate_cluster_bootstrap(values, groups)
    assert exact.shape == (5**5,)
    tail = (1 - confidence) / 2
    low, high = np.quantile(exact, [tail, 1 - tail])
    [found] = cluster_bootstrap(values, groups, draws=40_000, confidence=confidence, rng=rng(1))
    assert found is not None
    # A quantile q of B draws lies, with four standard errors of its rank, between these two.
    for end, q in ((found.low, tail), (found.high, 1 - tail)):
        error = 4 * np.sqrt(q * (1 - q) / 40_000)
        least, most = np.quantile(exact, [q - error, q + error])
        assert least - 1e-12 <= end <= most + 1e-12
    assert found.low == pytest.approx(low, abs=0.02)
    assert found.high == pytest.approx(high, abs=0.02)


def test_every_resample_is_a_ratio_of_sums() -> None:
    # Groups of sizes 2, 1, 3: the mean of A, A, C is (1 + 1 + 3) / (2 + 2 + 3).
    exact = enumerate_cluster_bootstrap(VALUES, GROUPS)
    assert exact[0 * 9 + 0 * 3 + 2] == pytest.approx(5 / 7)
    assert exact[0 * 9 + 1 * 3 + 2] == pytest.approx(VALUES.mean())


def test_all_columns_see_the_same_resamples() -> None:
    generator = rng()
    column = generator.normal(size=60)
    groups = [str(i % 12) for i in range(60)]
    other = generator.normal(size=60)
    table = np.column_stack([column, other, column + other, -column])
    a, _, _, negated = cluster_bootstrap(table, groups, draws=500, rng=rng(3))
    [alone] = cluster_bootstrap(column, groups, draws=500, rng=rng(3))
    assert a is not None
    assert negated is not None
    assert alone is not None
    assert (a.low, a.high) == pytest.approx((alone.low, alone.high), abs=1e-12)
    assert (negated.low, negated.high) == pytest.approx((-a.high, -a.low), abs=1e-12)


def test_the_order_of_the_queries_does_not_matter() -> None:
    generator = rng()
    values = generator.integers(-1, 2, size=(50, 3)).astype(np.float64)
    groups = [f"g{i // 5}" for i in range(50)]
    order = generator.permutation(50)
    one = cluster_bootstrap(values, groups, draws=400, rng=rng(9))
    two = cluster_bootstrap(values[order], [groups[i] for i in order], draws=400, rng=rng(9))
    assert one == two


def test_equal_generators_give_equal_intervals_and_others_do_not() -> None:
    values, groups = rng().normal(size=30), [str(i) for i in range(30)]
    one = cluster_bootstrap(values, groups, draws=200, rng=rng(1))
    assert one == cluster_bootstrap(values, groups, draws=200, rng=rng(1))
    assert one != cluster_bootstrap(values, groups, draws=200, rng=rng(2))


def test_many_groups_are_resampled_in_pieces_without_losing_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values, groups = rng().normal(size=(30, 2)), [str(i % 10) for i in range(30)]
    whole = cluster_bootstrap(values, groups, draws=101, rng=rng(1))
    monkeypatch.setattr("ragassay.stats.intervals._CELLS_AT_ONCE", 70)
    pieces = cluster_bootstrap(values, groups, draws=101, rng=rng(1))
    for a, b in zip(whole, pieces, strict=True):
        assert a is not None
        assert b is not None
        assert (a.low, a.high) == pytest.approx((b.low, b.high), abs=1e-12)


def test_effects_that_balance_in_every_group_give_a_zero_width_interval_for_their_sum() -> None:
    prevented, introduced = np.array([1.0, 0, 0, 0]), np.array([0.0, 1, 0, 0])
    table = np.column_stack([prevented - introduced, prevented, introduced])
    net, up, down = cluster_bootstrap(table, ["g", "g", "h", "h"], draws=500, rng=rng())
    assert net == Interval(0.0, 0.0)
    assert up == down == Interval(0.0, 0.5)


def test_fewer_than_two_groups_give_no_interval() -> None:
    assert cluster_bootstrap(np.ones((3, 2)), ["A"] * 3, rng=rng()) == [None, None]


@pytest.mark.parametrize(
    ("values", "groups", "match"),
    [
        (np.ones(3), ["a", "b"], "shape"),
        (np.empty(0), [], "shape"),
        (np.ones((2, 2, 2)), ["a", "b"], "shape"),
        (np.array([1.0, np.nan]), ["a", "b"], "finite"),
    ],
)
def test_bad_tables_are_refused(
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], groups: list[str], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        cluster_bootstrap(values, groups, rng=rng())


@pytest.mark.parametrize(("draws", "confidence"), [(0, 0.95), (10, 1.0), (10, 0.0)])
def test_bad_settings_are_refused(draws: int, confidence: float) -> None:
    with pytest.raises(ValueError, match="need"):
        cluster_bootstrap(VALUES, GROUPS, draws=draws, confidence=confidence, rng=rng())


def test_enumeration_refuses_what_it_cannot_list() -> None:
    assert len(enumerate_cluster_bootstrap(np.ones(6), [str(i) for i in range(6)])) == 6**6
    with pytest.raises(ValueError, match="at most 7"):
        enumerate_cluster_bootstrap(np.ones(8), [str(i) for i in range(8)])
    with pytest.raises(ValueError, match="shape"):
        enumerate_cluster_bootstrap(np.ones((2, 2)), ["a", "b"])


def test_quantiles_of_sorted_rows_are_those_of_numpy_to_the_last_bit():
    rng = np.random.default_rng(8)
    for size in (1, 2, 3, 40, 999, 1_000, 10_000):
        rows = rng.normal(size=(7, size)) / 3
        rows[0] = np.round(rows[0])
        ordered = np.sort(rows, axis=1)
        for share in (0.0, 0.005, 0.025, 0.05, 0.31, 0.5, 0.95, 0.975, 0.995, 1.0, 1 - 0.05 / 2):
            found = intervals._sorted_quantile(ordered, share)
            assert found.tolist() == np.quantile(rows, share, axis=1).tolist()
