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
_CELLS_AT_ONCE = 2**21  # of the draws x kinds table, so that memory stays bounded


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
    Interval(low=0.0, high=0.038475587857675686)
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
        The lengths differ, there is no row, a value is not finite, or ``draws`` or
        ``confidence`` is out of range.

    Examples
    --------
    >>> rng = np.random.default_rng(7)
    >>> cluster_bootstrap(np.array([1.0, 0.0, 1.0]), ["a", "a", "a"], rng=rng)
    [None]
    """
    if draws < 1:
        raise ValueError(f"need draws >= 1, got {draws}")
    if not 0 < confidence < 1:
        raise ValueError(f"need 0 < confidence < 1, got {confidence}")
    sums, sizes = _group_sums(values, groups)
    if len(sizes) < MIN_GROUPS:
        return [None] * sums.shape[1]
    # Groups with equal sums and sizes are interchangeable, so only how often each kind of
    # group is drawn matters: a multinomial over the kinds, of which 0/1 labels leave few.
    kinds, members = np.unique(np.column_stack([sums, sizes]), axis=0, return_counts=True)
    step = max(1, _CELLS_AT_ONCE // len(kinds))
    means = np.concatenate(
        [
            _resampled_means(kinds, members, min(step, draws - done), rng)
            for done in range(0, draws, step)
        ]
    )
    tail = (1 - confidence) / 2
    ordered = np.sort(np.ascontiguousarray(means.T), axis=1)  # faster than selecting
    low, high = (_sorted_quantile(ordered, share) for share in (tail, 1 - tail))
    return [Interval(float(a), float(b)) for a, b in zip(low, high, strict=True)]


def enumerate_cluster_bootstrap(
    values: NDArray[np.float64], groups: Sequence[Any]
) -> NDArray[np.float64]:
    """Return the means of all equally likely resamples, the exact bootstrap distribution.

    Parameters
    ----------
    values : array, shape (q,)
        One value per query.
    groups : sequence, length q
        The injection group of each query; G different ones.

    Returns
    -------
    array, shape (G**G,)
        In the order of the draws, first group first.

    Raises
    ------
    ValueError
        There are more than seven groups, or ``values`` has several columns.
    """
    sums, sizes = _group_sums(values, groups)
    if sums.shape[1] != 1:
        raise ValueError(f"need values of shape (q,), got {np.shape(values)}")
    if len(sizes) > _MAX_ENUMERATED:
        raise ValueError(f"at most {_MAX_ENUMERATED} groups can be enumerated, got {len(sizes)}")
    picks = np.array(list(itertools.product(range(len(sizes)), repeat=len(sizes))))
    means: NDArray[np.float64] = sums[picks, 0].sum(axis=1) / sizes[picks].sum(axis=1)
    return means


def _resampled_means(
    kinds: NDArray[np.float64], members: NDArray[np.int64], draws: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw groups with replacement; means per draw and column, shape (draws, m).

    ``kinds`` holds the distinct (sums..., size) of the groups, ``members`` how many have each.
    """
    count = int(members.sum())
    drawn = rng.multinomial(count, members / count, size=draws).astype(np.float64)
    means: NDArray[np.float64] = (drawn @ kinds[:, :-1]) / (drawn @ kinds[:, -1])[:, None]
    return means


def _sorted_quantile(ordered: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Quantile of each sorted row, interpolated as ``numpy.quantile`` does to the last bit."""
    place = share * (ordered.shape[1] - 1)
    before = int(place)
    part = place - before
    low, high = ordered[:, before], ordered[:, min(before + 1, ordered.shape[1] - 1)]
    gap = high - low
    between: NDArray[np.float64] = high - gap * (1 - part) if part >= 0.5 else low + gap * part
    return between


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
    # Sorted by label, so that the draws do not depend on the order of the queries.
    labels = {label: i for i, label in enumerate(sorted(set(groups)))}
    index = np.array([labels[label] for label in groups])
    sums = np.zeros((len(labels), table.shape[1]))
    np.add.at(sums, index, table)
    sizes = np.bincount(index, minlength=len(labels)).astype(np.float64)
    return sums, sizes
