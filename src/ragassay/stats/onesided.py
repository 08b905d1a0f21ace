"""One-sided tests of a rate, of a paired difference and of a change, for samples in groups.

A requirement such as "at most 2 %" is decided by two of them: whether the data contradict that it
is met, and whether they contradict that it is broken. Each errs with at most the stated level,
and between the two nothing is decided. Together they are a two-sided interval of twice that error.

Counts may be fractions: those of an effective sample (:mod:`ragassay.stats.clusters`).

Source: Clopper and Pearson (1934), Biometrika 26(4), with the effective sizes of Korn and Graubard
(1998), Survey Methodology 24(2); Tango (1998), Statistics in Medicine 17(8) (score test of a paired
difference); Bonett and Price (2012), Journal of Educational and Behavioral Statistics 37(4)
(adjusted Wald interval); McNemar (1947), Psychometrika 12(2); Fisher (1935), The Design of
Experiments, section 21 (the test by changing signs).

Deviations: Tango's statistic is corrected for continuity by one question, so that small samples
stay below the level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv, ndtr, ndtri

from ragassay.stats.intervals import Interval

Floats = NDArray[np.float64]
_STEPS = 40  # halvings, to 1e-12


def rate_below(count: ArrayLike, n: ArrayLike, threshold: float) -> Floats:
    """P-value against "the rate is above the threshold": small means that it is below.

    Parameters
    ----------
    count, n : array_like
        Successes and size, possibly fractions, ``0 <= count <= n``, ``n > 0``; they broadcast.
    threshold : float
        In [0, 1].

    Examples
    --------
    >>> round(float(rate_below(0, 149, 0.02)), 4)
    0.0493
    """
    x, size = np.broadcast_arrays(np.asarray(count, float), np.asarray(n, float))
    left = np.maximum(size - x, 0.0)
    left = np.where(left < 1e-9 * size, 0.0, left)  # of a scaled count that is the size itself
    inner = betainc(np.maximum(left, 1e-300), x + 1, 1 - threshold)
    return np.where(left <= 0, 1.0, inner)


def rate_above(count: ArrayLike, n: ArrayLike, threshold: float) -> Floats:
    """P-value against "the rate is at most the threshold": small means that it is above."""
    x, size = np.broadcast_arrays(np.asarray(count, float), np.asarray(n, float))
    return rate_below(np.maximum(size - x, 0.0), size, 1 - threshold)


def rate_interval(count: float, n: float, alpha: float) -> Interval:
    """Both one-sided bounds of one rate, each with error ``alpha``."""
    low, high = rate_bounds(count, n, alpha)
    return Interval(float(low), float(high))


def rate_bounds(count: ArrayLike, n: ArrayLike, alpha: float) -> tuple[Floats, Floats]:
    """Both one-sided bounds of rates, each with error ``alpha``; arrays broadcast."""
    x, size = np.broadcast_arrays(np.asarray(count, float), np.asarray(n, float))
    left = np.maximum(size - x, 0.0)
    with np.errstate(invalid="ignore"):
        low = np.where(x <= 0, 0.0, betaincinv(x, left + 1, alpha))
        high = np.where(left <= 1e-9 * size, 1.0, betaincinv(x + 1, left, 1 - alpha))
    return low, high


def difference_score(first: ArrayLike, second: ArrayLike, n: ArrayLike, delta: float) -> Floats:
    """Tango's score statistic of a paired difference, without correction.

    Parameters
    ----------
    first, second : array_like
        Questions with only the first, and only the second outcome; fractions are allowed.
    n : array_like
        All questions.
    delta : float
        The difference under test, in (-1, 1): ``first / n - second / n`` in expectation.

    Returns
    -------
    array of float64
        Above 0 where the difference is larger than ``delta``.
    """
    return _score(first, second, n, delta, 0.0)


def difference_below(first: ArrayLike, second: ArrayLike, n: ArrayLike, delta: float) -> Floats:
    """P-value against "the difference is above delta": small means that it is below.

    The arguments are those of :func:`difference_score`.
    """
    if delta >= 1:
        return np.zeros(np.broadcast_shapes(np.shape(first), np.shape(second), np.shape(n)))
    if delta <= -1:
        return np.ones(np.broadcast_shapes(np.shape(first), np.shape(second), np.shape(n)))
    return np.asarray(ndtr(_score(first, second, n, delta, 1.0)))


def difference_above(first: ArrayLike, second: ArrayLike, n: ArrayLike, delta: float) -> Floats:
    """P-value against "the difference is at most delta": small means that it is above."""
    return difference_below(second, first, n, -delta)


def difference_bounds(
    first: ArrayLike, second: ArrayLike, n: ArrayLike, alpha: float
) -> tuple[Floats, Floats]:
    """Both one-sided bounds of paired differences, each with error ``alpha``; arrays broadcast."""
    b, c, size = np.broadcast_arrays(
        np.asarray(first, float), np.asarray(second, float), np.asarray(n, float)
    )
    return -_upper(c, b, size, alpha), _upper(b, c, size, alpha)


def difference_interval(first: float, second: float, n: float, alpha: float) -> Interval:
    """Both one-sided bounds of one paired difference, each with error ``alpha``."""
    low, high = difference_bounds(first, second, n, alpha)
    return Interval(float(low), float(high))


def mean_below(mean: float, square: float, n: float, largest: float, delta: float) -> float:
    """P-value against "the mean of a change is above delta", by an adjusted Wald test.

    Parameters
    ----------
    mean, square : float
        Mean and mean square of the changes, each in ``[-largest, largest]``.
    n : float
        Size of the (effective) sample.
    largest : float
        The largest change that one question can make; two questions with it, one in each
        direction, are added before the variance is taken.
    delta : float
        The mean under test.
    """
    center, error = _adjusted(mean, square, n, largest)
    return float(ndtr((center - delta) / error))


def mean_interval(mean: float, square: float, n: float, largest: float, alpha: float) -> Interval:
    """Both one-sided bounds of the mean of a change, each with error ``alpha``."""
    center, error = _adjusted(mean, square, n, largest)
    half = float(-ndtri(alpha)) * error
    return Interval(max(-largest, center - half), min(largest, center + half))


def more_changes(toward: float, away: float) -> float:
    """One-sided McNemar test: are there more changes in one direction than in the other?

    Parameters
    ----------
    toward, away : float
        Questions that changed in the direction asked about, and against it; fractions are
        allowed. Exact for whole numbers.

    Examples
    --------
    >>> more_changes(6, 0)
    0.015625
    """
    if toward <= 0:
        return 1.0
    return float(betainc(toward, away + 1, 0.5))


def sign_flip(changes: NDArray[np.int64], groups: Sequence[Any]) -> float:
    """Exact one-sided test of a change in samples of groups: are the changes above 0?

    Without an effect old and new are exchangeable, so that all changes of a group may as well
    have the other sign. The distribution over all assignments of signs to groups is computed, not
    sampled. Where every question is its own group and changes are -1, 0 or 1, this is McNemar's
    exact test.

    Parameters
    ----------
    changes : array of int, shape (n,)
        New minus old, in the direction asked about.
    groups : sequence, length n
        The group of each question.

    Returns
    -------
    float
        At least ``2**-G`` for G groups that changed: few groups cannot show much.

    Examples
    --------
    >>> sign_flip(np.array([1, 1, 1]), ["a", "b", "c"])
    0.125
    """
    totals: dict[Any, int] = {}
    for change, group in zip(np.asarray(changes).tolist(), groups, strict=True):
        totals[group] = totals.get(group, 0) + int(change)
    sums = [abs(total) for total in totals.values() if total]
    if not sums:
        return 1.0
    # Counted from all signs negative: each group adds 0 or twice its sum.
    chance = np.ones(1)
    for each in sums:
        wider = np.zeros(len(chance) + each)
        wider[: len(chance)] += chance / 2
        wider[each:] += chance / 2
        chance = wider
    reached = (sum(totals.values()) + sum(sums)) // 2
    return float(min(1.0, chance[reached:].sum()))


def _upper(first: Floats, second: Floats, n: Floats, alpha: float) -> Floats:
    low, top = (first - second) / n, np.ones(np.shape(n))
    for _ in range(_STEPS):
        middle = (low + top) / 2
        inside = ndtr(_score(first, second, n, middle, 1.0)) > alpha
        low, top = np.where(inside, middle, low), np.where(inside, top, middle)
    return np.asarray(top)


def _score(
    first: ArrayLike, second: ArrayLike, n: ArrayLike, delta: ArrayLike, correction: float
) -> Floats:
    b, c, size, at = np.broadcast_arrays(
        np.asarray(first, float), np.asarray(second, float), np.asarray(n, float),
        np.asarray(delta, float),
    )  # fmt: skip
    half = -b - c + (2 * size - b + c) * at
    root = np.sqrt(np.maximum(half * half + 8 * size * c * at * (1 - at), 0.0))
    least = np.maximum((root - half) / (4 * size), np.maximum(0.0, -at))
    variance = size * np.maximum(2 * least + at * (1 - at), 0.0)
    distance = b - c - size * at + correction
    with np.errstate(divide="ignore", invalid="ignore"):
        found = distance / np.sqrt(variance)
    return np.asarray(np.where(variance > 0, found, np.sign(distance) * 40.0))


def _adjusted(mean: float, square: float, n: float, largest: float) -> tuple[float, float]:
    center = mean * n / (n + 2)
    second = (square * n + 2 * largest**2) / (n + 2)
    return center, float(np.sqrt(max(second - center**2, 0.0) / (n + 2)))
