"""Intervals: Wilson for a single rate, cluster bootstrap for paired effects.

Source: Wilson (1927), JASA 22(158); Efron and Tibshirani (1993), An Introduction to the
Bootstrap; clustering by injection group as in "Prevented is not protected", section 3.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

MIN_GROUPS = 2
COARSE_GROUPS = 10
_MAX_ENUMERATED = 7


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float


def wilson(successes: int, n: int, *, confidence: float = 0.95) -> Interval | None:
    """Bound a proportion by the Wilson score interval, without continuity correction.

    Parameters
    ----------
    successes, n : int
        Count and denominator, ``0 <= successes <= n``.
    confidence : float
        Two-sided level in (0, 1).

    Returns
    -------
    Interval or None
        None where n is 0: nothing is known.

    Raises
    ------
    ValueError
        The counts or the level are impossible.

    Examples
    --------
    >>> wilson(0, 96)
    Interval(low=0.0, high=0.038475587934152496)
    """
    if not 0 <= successes <= n:
        raise ValueError(f"need 0 <= successes <= n, got {successes} of {n}")
    if not 0 < confidence < 1:
        raise ValueError(f"need 0 < confidence < 1, got {confidence}")
    if n == 0:
        return None
    z = float(ndtri(0.5 + confidence / 2))
    rate = successes / n
    scale = 1 + z * z / n
    center = (rate + z * z / (2 * n)) / scale
    half = z * float(np.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))) / scale
    low = 0.0 if successes == 0 else max(0.0, center - half)
    high = 1.0 if successes == n else min(1.0, center + half)
    return Interval(low, high)


def cluster_bootstrap(
    values: NDArray[np.float64],
    groups: Sequence[Any],
    *,
    draws: int = 10_000,
    confidence: float = 0.95,
    rng: np.random.Generator,
) -> list[Interval | None]:
    """Bound the means of the columns by resampling whole groups.

    Groups are drawn with replacement and keep all their queries together; the statistic is
    sum of values over sum of sizes, so that groups of unequal size weigh by size. All columns
    see the same resamples. Percentile interval, linear interpolation.

    Parameters
    ----------
    values : array, shape (q,) or (q, m)
        One row per query, one column per effect.
    groups : sequence, length q
        The injection group of each query.
    draws : int
        Number of resamples.
    confidence : float
        Two-sided level in (0, 1).
    rng : numpy.random.Generator
        The only source of randomness.

    Returns
    -------
    list of Interval or None
        One per column; None where there are fewer than two groups.

    Raises
    ------
    ValueError
        The lengths differ, there is no row, or a value is not finite.
    """
    sums, sizes = _group_sums(values, groups)
    if len(sizes) < MIN_GROUPS:
        return [None] * sums.shape[1]
    # Sorted by label above: the result does not depend on the order of the queries.
    weights = rng.multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=draws)
    means = (weights @ sums) / (weights @ sizes)[:, None]
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return [Interval(float(a), float(b)) for a, b in zip(low, high, strict=True)]


def enumerate_cluster_bootstrap(
    values: NDArray[np.float64], groups: Sequence[Any]
) -> NDArray[np.float64]:
    """Return the means of all G**G equally likely resamples of G groups, shape (G**G,).

    Raises
    ------
    ValueError
        There are more than seven groups.
    """
    sums, sizes = _group_sums(values, groups)
    if len(sizes) > _MAX_ENUMERATED:
        raise ValueError(f"at most {_MAX_ENUMERATED} groups can be enumerated, got {len(sizes)}")
    picks = np.array(list(itertools.product(range(len(sizes)), repeat=len(sizes))))
    means: NDArray[np.float64] = sums[picks, 0].sum(axis=1) / sizes[picks].sum(axis=1)
    return means


def _group_sums(
    values: NDArray[np.float64], groups: Sequence[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    table = np.asarray(values, dtype=np.float64)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or len(table) != len(groups) or len(table) == 0:
        raise ValueError(
            f"need values of shape (q,) or (q, m) with q = {len(groups)} > 0 groups, "
            f"got {np.shape(values)}"
        )
    if not np.isfinite(table).all():
        raise ValueError("values must be finite: drop the unscored queries first")
    labels, index = np.unique(np.asarray(groups), return_inverse=True)
    sums = np.zeros((len(labels), table.shape[1]))
    np.add.at(sums, index, table)
    sizes = np.bincount(index, minlength=len(labels)).astype(np.float64)
    return sums, sizes
