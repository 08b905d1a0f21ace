"""Dealing out answers: each attacker gets each answer equally often."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from ragassay.arena.assignment import assignments, count_assignments, full, latin


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 6])
def test_each_attacker_gets_each_answer_equally_often(m: int) -> None:
    for dealt, mode in ((full(m), "full"), (latin(m), "latin")):
        expected = count_assignments(m, mode)  # type: ignore[arg-type]
        assert len(dealt) == expected.assignments
        assert len(set(dealt)) == len(dealt)
        pairs = Counter((i, row[i]) for row in dealt for i in range(m))
        assert pairs == Counter(
            dict.fromkeys(itertools.product(range(m), repeat=2), expected.each_pair)
        )


@pytest.mark.parametrize("m", [2, 3, 4, 5])
def test_latin_squares_and_full_permutations_are_equal_in_expectation(m: int) -> None:
    """Exactly: over all orders of the attackers, for an outcome that depends on the whole row."""
    rng = np.random.default_rng(m)
    outcome = {row: Fraction(int(rng.integers(0, 1_000))) for row in full(m)}
    everything = sum(outcome.values()) / len(outcome)
    squares = [latin(m, order) for order in itertools.permutations(range(m))]
    means = [sum(outcome[row] for row in square) / m for square in squares]
    assert sum(means) / len(means) == everything
    assert m == 2 or any(mean != everything for mean in means)


def test_an_outcome_of_single_pairs_is_equal_in_every_square() -> None:
    """Where nobody disturbs anybody, one Latin square gives the mean of all permutations."""
    m = 4
    value = np.random.default_rng(0).random((m, m))
    means = [
        np.mean([[value[i, row[i]] for i in range(m)] for row in dealt], axis=0)
        for dealt in (full(m), latin(m), latin(m, [2, 0, 3, 1]))
    ]
    assert means[1] == pytest.approx(means[0])
    assert means[2] == pytest.approx(means[0])


def test_random_squares_have_uniform_rows() -> None:
    rng = np.random.default_rng(1)
    rows = Counter(row for _ in range(2_000) for row in assignments(3, "latin", rng=rng))
    assert len(rows) == 6
    assert min(rows.values()) > 900  # of 1,000 expected
    assert max(rows.values()) < 1_100


def test_random_assignments_are_permutations_of_the_asked_number() -> None:
    dealt = assignments(5, "random", rng=np.random.default_rng(0), random_draws=7)
    assert len(dealt) == 7
    assert all(sorted(row) == list(range(5)) for row in dealt)


def test_impossible_designs_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="Latin square"):
        full(9)
    with pytest.raises(ValueError, match="permutation of 0 to 2"):
        latin(3, [0, 0, 1])
    with pytest.raises(ValueError, match="permutation"):
        latin(0)
    with pytest.raises(ValueError, match="no fixed counts"):
        count_assignments(3, "random")
    with pytest.raises(ValueError, match="at least one attacker"):
        count_assignments(0, "full")
    with pytest.raises(ValueError, match="at least one random"):
        assignments(3, "random", rng=rng, random_draws=0)
