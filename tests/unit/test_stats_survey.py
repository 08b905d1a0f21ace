"""Weighted estimates: unbiased by enumeration of all samples, and intervals by simulation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ragassay.stats.agreement import cohen_kappa, confusion
from ragassay.stats.allocation import allocate
from ragassay.stats.intervals import wilson
from ragassay.stats.survey import (
    PartOfDesign,
    Weighted,
    inclusion,
    kappa,
    rate,
    total,
    total_variance,
    weighted,
)

# Six units; a random part of three of all, two of the first four, one of the last three.
MEMBER = np.array([[1, 1, 0], [1, 1, 0], [1, 1, 0], [1, 1, 1], [1, 0, 1], [1, 0, 1]], dtype=bool)
PARTS = [PartOfDesign(6, 3), PartOfDesign(4, 2), PartOfDesign(3, 1)]
VALUES = np.array([1.0, 0.0, 3.0, -2.0, 0.5, 4.0])


def all_samples() -> Iterator[NDArray[np.int64]]:
    """The units of every possible draw, all equally likely."""
    choices = [
        itertools.combinations(np.flatnonzero(column), part.drawn)
        for part, column in zip(PARTS, MEMBER.T, strict=True)
    ]
    for parts in itertools.product(*choices):
        yield np.array(sorted(set().union(*map(set, parts))))


def drawn(units: NDArray[np.int64]) -> Weighted:
    return weighted(PARTS, MEMBER[units])


# --------------------------------------------------------------------------- probabilities


def test_inclusion_probabilities_are_the_shares_of_all_possible_samples() -> None:
    alone, pairs, count = np.zeros(6), np.zeros((6, 6)), 0
    for units in all_samples():
        alone[units] += 1
        pairs[np.ix_(units, units)] += 1
        count += 1
    whole = weighted(PARTS, MEMBER)
    assert count == 20 * 6 * 3
    assert whole.inclusion == pytest.approx(alone / count, abs=1e-12)
    assert whole.joint == pytest.approx(pairs / count, abs=1e-12)
    assert whole.inclusion == pytest.approx(inclusion(PARTS, MEMBER))


def test_a_total_is_unbiased_over_all_possible_samples() -> None:
    found = [total(VALUES[units], drawn(units)) for units in all_samples()]
    assert np.mean(found) == pytest.approx(VALUES.sum(), abs=1e-12)


def test_the_variance_of_a_total_is_unbiased_over_all_possible_samples() -> None:
    totals, variances = [], []
    for units in all_samples():
        totals.append(total(VALUES[units], drawn(units)))
        variances.append(total_variance(VALUES[units], drawn(units)))
    assert None not in variances
    assert np.mean(variances) == pytest.approx(np.var(totals), abs=1e-12)


def test_a_part_of_the_sample_chosen_at_random_stays_unbiased() -> None:
    expected, count = 0.0, 0
    for units in all_samples():
        for some in itertools.combinations(range(len(units)), 2):
            chosen = np.isin(np.arange(len(units)), some)
            share = 1 / len(list(itertools.combinations(range(len(units)), 2)))
            expected += share * total(VALUES[units][chosen], drawn(units).labeled(chosen))
        count += 1
    assert expected / count == pytest.approx(VALUES.sum(), abs=1e-12)


def test_a_single_random_draw_gives_no_variance() -> None:
    sample = weighted([PartOfDesign(5, 1), PartOfDesign(2, 1)], np.array([[1, 0], [1, 1]], bool))
    assert sample.estimable
    lone = weighted([PartOfDesign(5, 1)], np.ones((2, 1), dtype=bool))
    assert not lone.estimable
    assert total_variance(np.ones(2), lone) is None
    found = rate(np.array([True, False]), lone)
    assert found is not None
    assert (found.value, found.interval) == (0.5, None)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: PartOfDesign(3, 4), "need 0 <= drawn <= size"),
        (lambda: weighted([PartOfDesign(4, 0)], np.ones((1, 1), bool)), r"in \(0, 1\]"),
        (lambda: weighted(PARTS, np.ones((2, 2), bool)), "need membership of shape"),
        (lambda: rate(np.ones(2, bool), drawn(np.arange(3)), sizes=np.ones(2)), "one entry per"),
    ],
)
def test_impossible_designs_are_refused(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


# -------------------------------------------------------------------------------- estimates


def test_a_census_is_exact() -> None:
    sample = weighted([PartOfDesign(4, 4)], np.ones((4, 1), dtype=bool))
    found = rate(np.array([True, False, False, False]), sample)
    assert found is not None
    assert found.interval is not None
    assert (found.value, found.interval.low, found.interval.high) == (0.25, 0.25, 0.25)
    a, b = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    measured = kappa(a, b, 2, sample)
    assert measured is not None
    assert measured.interval is not None
    assert measured.value == pytest.approx(cohen_kappa(confusion(a.tolist(), b.tolist(), [0, 1])))
    assert measured.interval.high - measured.interval.low == pytest.approx(0, abs=1e-7)


def test_a_small_random_sample_of_a_large_population_has_the_wilson_interval() -> None:
    sample = weighted([PartOfDesign(10**6, 20)], np.ones((20, 1), dtype=bool))
    for k in (0, 3, 20):
        found, expected = rate(np.arange(20) < k, sample), wilson(k, 20)
        assert found is not None
        assert found.interval is not None
        assert expected is not None
        assert found.interval.low == pytest.approx(expected.low, abs=1e-4)
        assert found.interval.high == pytest.approx(expected.high, abs=1e-4)


def test_trials_weigh_by_their_number() -> None:
    sample = weighted([PartOfDesign(4, 4)], np.ones((4, 1), dtype=bool))
    found = rate(np.array([True, False, False, False]), sample, sizes=np.array([7.0, 1, 1, 1]))
    assert found is not None
    assert found.value == pytest.approx(0.7)


def test_a_domain_is_counted_alone_and_an_empty_one_is_not_estimable() -> None:
    sample = weighted([PartOfDesign(8, 4)], np.ones((4, 1), dtype=bool))
    positive, domain = np.array([True, False, True, True]), np.array([True, True, False, False])
    found = rate(positive, sample, domain=domain)
    assert found is not None
    assert (found.value, found.n) == (0.5, 2)
    assert rate(positive, sample, domain=np.zeros(4, dtype=bool)) is None
    assert kappa(positive.astype(int), positive.astype(int), 2, sample, domain=~domain) is None


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(1, 9)), min_size=2, max_size=6))
def test_estimates_stay_within_their_range(units: list[tuple[bool, bool, int]]) -> None:
    n = len(units)
    a, b = np.array([u[0] for u in units]), np.array([u[1] for u in units])
    sizes = np.array([float(u[2]) for u in units])
    sample = weighted(PARTS, MEMBER[:n])
    found = rate(a == b, sample, sizes=sizes)
    assert found is not None
    assert found.interval is not None
    assert 0 <= found.interval.low <= found.value <= found.interval.high <= 1
    measured = kappa(a.astype(int), b.astype(int), 2, sample, sizes=sizes)
    if measured is not None:
        assert measured.interval is not None
        assert -1 <= measured.interval.low <= measured.value <= measured.interval.high <= 1


# -------------------------------------------------------------------------------- simulation

AUDITS = 1000


class World:
    """A population whose strata hold most of what the scorer gets wrong."""

    def __init__(self, *, wrong: float, found: float, positive: float, size: int) -> None:
        rng = np.random.default_rng(round(1000 * wrong))
        n = 3000
        self.human = rng.random(n) < positive
        error = rng.random(n) < wrong
        self.scorer = self.human ^ error
        self.trials = rng.integers(1, 6, n).astype(np.float64)
        self.strata = np.column_stack(
            [
                rng.random(n) < np.where(error, found, 0.05),
                rng.random(n) < np.where(error, 0.5, 0.03),
                rng.random(n) < 0.2,
            ]
        )
        draws = allocate(size, 0.3, self.strata)
        self.member = np.column_stack([np.ones(n, dtype=bool), self.strata])
        self.parts = [
            PartOfDesign(int(column.sum()), count)
            for column, count in zip(self.member.T, draws, strict=True)
        ]

    def truth(self) -> dict[str, float]:
        value = cohen_kappa(confusion(self.human.tolist(), self.scorer.tolist(), [False, True]))
        assert value is not None
        return {
            "rate": float(self.human.mean()),
            "by trial": float(self.human @ self.trials / self.trials.sum()),
            "agreement": float((self.human == self.scorer).mean()),
            "kappa": value,
        }

    def audit(self, rng: np.random.Generator) -> dict[str, Any]:
        chosen = np.zeros(len(self.human), dtype=bool)
        for part, column in zip(self.parts, self.member.T, strict=True):
            chosen[rng.choice(np.flatnonzero(column), part.drawn, replace=False)] = True
        sample = weighted(self.parts, self.member[chosen])
        human, scorer = self.human[chosen], self.scorer[chosen]
        return {
            "rate": rate(human, sample),
            "by trial": rate(human, sample, sizes=self.trials[chosen]),
            "agreement": rate(human == scorer, sample),
            "kappa": kappa(human.astype(int), scorer.astype(int), 2, sample),
        }


@pytest.mark.parametrize(
    ("wrong", "found", "positive", "size"),
    [(0.12, 0.8, 0.3, 100), (0.2, 0.6, 0.3, 100), (0.12, 0.3, 0.5, 60)],
)
def test_intervals_cover_the_truth_as_often_as_they_say(
    wrong: float, found: float, positive: float, size: int
) -> None:
    world = World(wrong=wrong, found=found, positive=positive, size=size)
    truth = world.truth()
    rng = np.random.default_rng(11)
    covered = dict.fromkeys(truth, 0)
    values: dict[str, list[float]] = {name: [] for name in truth}
    for _ in range(AUDITS):
        for name, estimate in world.audit(rng).items():
            bounds = estimate.interval
            covered[name] += bounds.low <= truth[name] <= bounds.high
            values[name].append(estimate.value)
    for name in ("rate", "by trial", "agreement"):
        assert 0.93 <= covered[name] / AUDITS <= 0.97, (name, covered)
        assert np.mean(values[name]) == pytest.approx(truth[name], abs=0.01)
    assert covered["kappa"] / AUDITS >= 0.93, covered


# -------------------------------------------------------------------------------- allocation


@given(
    st.integers(1, 60),
    st.floats(0, 1),
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=50),
)
def test_an_allocation_fits_and_expects_about_the_size_asked_for(
    size: int, share: float, rows: list[tuple[bool, bool]]
) -> None:
    member = np.array(rows, dtype=bool)
    draws = allocate(size, share, member)
    limits = [len(member), *member.sum(axis=0)]
    assert all(0 <= n <= limit for n, limit in zip(draws, limits, strict=True))
    parts = [PartOfDesign(int(limit), n) for n, limit in zip(draws, limits, strict=True)]
    everything = np.column_stack([np.ones(len(member), dtype=bool), member])
    expected = inclusion(parts, everything).sum()
    assert expected <= size + 0.5
    assert expected >= min(size, len(member)) - 1.5


def test_without_strata_the_size_is_met_exactly() -> None:
    assert allocate(7, 0.3, np.zeros((20, 0), dtype=bool)) == [7]
    assert allocate(70, 0.3, np.zeros((20, 0), dtype=bool)) == [20]


def test_what_empty_strata_cannot_use_goes_to_the_random_part() -> None:
    assert allocate(10, 0.3, np.zeros((20, 2), dtype=bool)) == [10, 0, 0]


@pytest.mark.parametrize(("size", "share"), [(0, 0.5), (5, -0.1), (5, 1.1)])
def test_impossible_allocations_are_refused(size: int, share: float) -> None:
    with pytest.raises(ValueError, match="need size"):
        allocate(size, share, np.zeros((4, 1), dtype=bool))
