"""From outcomes to a verdict: passes, fails or undecided by one-sided tests of the same level.

A rule *passes* where the data contradict that it is broken, and *fails* where they contradict that
it is met, each with the error ``alpha``. So neither a false pass nor a false failure is more likely
than ``alpha``; where the interval reaches over the limit, nothing is decided.

Source: Berger (1982), Technometrics 24(4) (a conjunction is accepted when each part is, without
adjustment); Holm (1979), Scandinavian Journal of Statistics 6(2) (any part may reject).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ragassay.stats import onesided
from ragassay.stats.clusters import MIN_GROUPS, Effective, effective
from ragassay.stats.intervals import Interval

Values = NDArray[np.int64]
Verdict = Literal["pass", "fail", "undecided"]
Shape = Literal["rate", "difference", "change"]
MAX_MORE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A mean and its limit. ``shape`` says what values a question can have.

    A ``rate`` has 0 and 1, a ``difference`` -1, 0 and 1, a ``change`` -2 to 2.
    """

    shape: Shape
    at_least: bool
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a sample says of a requirement.

    ``estimate`` is the mean and ``interval`` its two one-sided bounds, fractions. ``p_met`` is
    small where the data contradict that the requirement is broken, ``p_broken`` where they
    contradict that it is met. All are None where the sample has fewer than two groups.
    """

    sample: Effective
    estimate: float
    interval: Interval | None
    p_met: float | None
    p_broken: float | None


def weigh(
    values: Values,
    groups: Sequence[Any],
    requirement: Requirement,
    *,
    alpha: float,
    icc: float | None = None,
    bounds: bool = True,
) -> Evidence:
    """Weigh a sample against a requirement.

    Parameters
    ----------
    values : array of int, shape (n,), n > 0
        The outcome of each question.
    groups : sequence, length n
        Its injection group.
    requirement : Requirement
        What the mean must be.
    alpha : float
        One-sided error.
    icc : float, optional
        Correlation within groups that is assumed; else it is estimated.
    bounds : bool
        Whether to find the interval too; the verdict does not need it.
    """
    sample = effective(values.astype(np.float64), groups, alpha=alpha, icc=icc)
    estimate = float(values.mean())
    if sample.size <= 0:
        return Evidence(sample=sample, estimate=estimate, interval=None, p_met=None, p_broken=None)
    below, above = _tails(values, sample.size, requirement)
    return Evidence(
        sample=sample,
        estimate=estimate,
        interval=_interval(values, sample.size, requirement.shape, alpha) if bounds else None,
        p_met=above if requirement.at_least else below,
        p_broken=below if requirement.at_least else above,
    )


def decide(p_met: float | None, p_broken: float | None, alpha: float) -> Verdict:
    """The verdict by the p-values; ``p_broken`` adjusted by Holm where there are several rules."""
    if p_met is None or p_broken is None:
        return "undecided"
    if p_broken <= alpha:
        return "fail"
    return "pass" if p_met <= alpha else "undecided"


def more_queries(
    values: Values,
    evidence: Evidence,
    requirement: Requirement,
    *,
    alpha: float,
    tests: int = 1,
) -> int | None:
    """How many more questions would decide, if all went on as in the sample.

    Parameters
    ----------
    values, evidence, requirement, alpha
        As given to :func:`weigh`, and what it found.
    tests : int
        Over how many tests a failure is adjusted.

    Returns
    -------
    int or None
        Whole groups of the mean size of the sample. None where the estimate is the limit itself,
        or a million would not do. It is a forecast: with that many, chance may still put the
        estimate elsewhere (``ragassay power`` plans for a stated power).
    """
    n, groups = evidence.sample.n, evidence.sample.groups
    if evidence.sample.size <= 0 or n == 0:
        return None
    met = evidence.estimate >= requirement.limit
    if not requirement.at_least:
        met = evidence.estimate <= requirement.limit
    level = alpha if met else alpha / tests
    step = n / groups

    def decided(more: int) -> bool:
        size = evidence.sample.size * (n + more * step) / n
        below, above = _tails(values, size, requirement)
        wanted = (above if requirement.at_least else below) if met else (
            below if requirement.at_least else above
        )  # fmt: skip
        return wanted <= level

    high = 1
    while not decided(high):
        high *= 2
        if high * step > MAX_MORE:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decided(middle) else (middle, high)
    return int(np.ceil(high * step))


def worse_p_value(
    changes: Values, groups: Sequence[Any], *, icc: float | None = None, alpha: float = 0.05
) -> tuple[float, float]:
    """Test whether paired outcomes got worse: ``changes`` above 0 are for the worse.

    Returns
    -------
    tuple of float
        The p-value to decide by, and that of McNemar's exact test with questions independent.
        Without an assumed correlation the larger one of McNemar's and of the exact sign-flip test
        over groups; with one, McNemar's of the effective counts.
    """
    toward, away = int((changes > 0).sum()), int((changes < 0).sum())
    plain = onesided.more_changes(toward, away)
    if icc is not None:
        deff = effective(changes.astype(np.float64), groups, alpha=alpha, icc=icc).design_effect
        return onesided.more_changes(toward / deff, away / deff), plain
    if len(set(groups)) < MIN_GROUPS:
        return 1.0, plain
    return max(plain, onesided.sign_flip(changes, groups)), plain


def _tails(values: Values, size: float, requirement: Requirement) -> tuple[float, float]:
    """P-values that are small where the mean is below, and above, the limit."""
    limit = requirement.limit
    if requirement.shape == "rate":
        count = float(values.mean()) * size
        return (
            float(onesided.rate_below(count, size, limit)),
            float(onesided.rate_above(count, size, limit)),
        )
    if requirement.shape == "difference":
        first, second = float((values > 0).mean()) * size, float((values < 0).mean()) * size
        return (
            float(onesided.difference_below(first, second, size, limit)),
            float(onesided.difference_above(first, second, size, limit)),
        )
    mean, square = float(values.mean()), float((values**2).mean())
    below = onesided.mean_below(mean, square, size, 2.0, limit)
    return below, 1 - below


def _interval(values: Values, size: float, shape: Shape, alpha: float) -> Interval:
    if shape == "rate":
        return onesided.rate_interval(float(values.mean()) * size, size, alpha)
    if shape == "difference":
        first, second = float((values > 0).mean()) * size, float((values < 0).mean()) * size
        return onesided.difference_interval(first, second, size, alpha)
    mean, square = float(values.mean()), float((values**2).mean())
    return onesided.mean_interval(mean, square, size, 2.0, alpha)
