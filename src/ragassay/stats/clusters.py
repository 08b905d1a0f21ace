"""How much a sample of whole groups is worth: design effects and effective sample sizes.

Questions of one injection group share their poison, so that their outcomes may hang together.
``n`` questions in groups then tell as much as ``n / deff`` independent ones.

Source: Kish (1965), Survey Sampling, chapter 5 (design effect); Eldridge, Ashby and Kerry (2006),
International Journal of Epidemiology 35(5) (groups of unequal size); Korn and Graubard (1998),
Survey Methodology 24(2) (effective size with a correction for few groups); Donner (1986),
International Statistical Review 54(1) (analysis of variance estimate of the correlation).

Deviations: the design effect is never taken below that of a correlation of :data:`ASSUMED_ICC`.
A rate of 0 has no estimate at all, and few groups estimate it badly; without a floor a bound on
a rare outcome would be too narrow just where it matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

ASSUMED_ICC = 0.05
MIN_GROUPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """What a sample of groups is worth.

    ``n`` questions in ``groups`` groups, their design effect, and the ``size`` of the independent
    sample that tells as much; ``size`` is 0 where nothing can be said (fewer than two groups).
    """

    n: int
    groups: int
    design_effect: float
    size: float


def design_effect(cluster_size: float, icc: float, *, cv: float = 0.0) -> float:
    """How many times larger the variance of a mean is than with independent questions.

    Parameters
    ----------
    cluster_size : float
        Mean number of questions in a group, at least 1.
    icc : float
        Correlation of two outcomes in one group, in [0, 1].
    cv : float
        Coefficient of variation of the group sizes; 0 where all have the same.

    Raises
    ------
    ValueError
        A value is out of range.

    Examples
    --------
    >>> design_effect(10, 0.05)
    1.45
    """
    if cluster_size < 1 or not 0 <= icc <= 1 or cv < 0:
        raise ValueError(
            f"need cluster_size >= 1, 0 <= icc <= 1, cv >= 0, got {cluster_size}, {icc}, {cv}"
        )
    return max(1.0, 1 + ((1 + cv * cv) * cluster_size - 1) * icc)


def estimate_icc(values: NDArray[np.float64], groups: Sequence[Any]) -> float | None:
    """Estimate the correlation within groups by one-way analysis of variance.

    Parameters
    ----------
    values : array, shape (n,)
        The outcome of each question.
    groups : sequence, length n
        Its group.

    Returns
    -------
    float or None
        At most 1, below 0 where groups differ less than by chance. None where no group has two
        questions, there are fewer than two groups, or all outcomes are equal.
    """
    sums, sizes = _sums(values, groups)
    n, count = float(sizes.sum()), len(sizes)
    if count < MIN_GROUPS or n == count or np.ptp(values) == 0:
        return None
    mean = sums.sum() / n
    between = float((sizes * (sums / sizes - mean) ** 2).sum()) / (count - 1)
    total = float(((np.asarray(values, dtype=np.float64) - mean) ** 2).sum())
    within = (total - between * (count - 1)) / (n - count)
    size = (n - float((sizes**2).sum()) / n) / (count - 1)
    scale = between + (size - 1) * within
    return (between - within) / scale if scale > 0 else None


def effective(
    values: NDArray[np.float64],
    groups: Sequence[Any],
    *,
    alpha: float = 0.05,
    icc: float | None = None,
    floor: float = ASSUMED_ICC,
) -> Effective:
    """Find the independent sample that tells as much as these outcomes in groups.

    Parameters
    ----------
    values : array, shape (n,)
        The outcome of each question, any numbers.
    groups : sequence, length n
        Its group.
    alpha : float
        One-sided error of the bounds that will use it.
    icc : float, optional
        A correlation that is known or assumed. Then the design effect follows from it and
        nothing is estimated; with 0, questions count as independent.
    floor : float
        The least correlation that an estimate may imply.

    Returns
    -------
    Effective
        Without ``icc``: ``n / deff`` times the squared ratio of the quantiles of Student's t with
        ``n - 1`` and ``groups - 1`` degrees of freedom.

    Raises
    ------
    ValueError
        The lengths differ, or there is no question.
    """
    sums, sizes = _sums(values, groups)
    n, count = int(sizes.sum()), len(sizes)
    weighted = float((sizes**2).sum()) / n
    if icc is not None:
        deff = max(1.0, 1 + (weighted - 1) * icc)
        return Effective(n=n, groups=count, design_effect=deff, size=n / deff)
    if count < MIN_GROUPS:
        return Effective(n=n, groups=count, design_effect=float(n), size=0.0)
    mean = sums.sum() / n
    spread = ((np.asarray(values, dtype=np.float64) - mean) ** 2).sum()
    estimated = estimated_design_effect(n, count, spread, ((sums - sizes * mean) ** 2).sum())
    deff = max(1 + (weighted - 1) * floor, float(estimated))
    size = float(estimated_size(n, count, deff, alpha=alpha))
    return Effective(n=n, groups=count, design_effect=deff, size=size)


def estimated_design_effect(
    n: int, groups: int, spread: ArrayLike, between: ArrayLike
) -> NDArray[np.float64]:
    """Variance of a mean by its groups over that of independent questions; never below 1.

    Parameters
    ----------
    n, groups : int
        Questions, and groups of them; at least two.
    spread : array_like
        Sum of the squared distances of the outcomes from their mean.
    between : array_like
        The same of the groups: of their sums from their sizes times the mean.

    Returns
    -------
    array of float64
        1 where all outcomes are equal, and so nothing is known.
    """
    within, across = np.broadcast_arrays(np.asarray(spread, float), np.asarray(between, float))
    scale = groups / (groups - 1) * (n - 1) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        found = scale * across / within
    return np.maximum(1.0, np.where(within > 0, found, 1.0))


def estimated_size(
    n: int, groups: int, deff: ArrayLike, *, alpha: float = 0.05
) -> NDArray[np.float64]:
    """Effective sample where the design effect is estimated from few groups; see `effective`."""
    ratio = float(stdtrit(n - 1, 1 - alpha) / stdtrit(groups - 1, 1 - alpha))
    return np.minimum(float(n), n / np.asarray(deff, float) * min(1.0, ratio**2))


def _sums(
    values: NDArray[np.float64], groups: Sequence[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if len(values) != len(groups) or not len(values):
        raise ValueError(f"need a group for each value, got {len(values)} and {len(groups)}")
    labels = {label: i for i, label in enumerate(sorted(set(groups)))}
    index = np.array([labels[label] for label in groups])
    sums = np.zeros(len(labels))
    np.add.at(sums, index, np.asarray(values, dtype=np.float64))
    return sums, np.bincount(index).astype(np.float64)
