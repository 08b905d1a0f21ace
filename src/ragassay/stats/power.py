"""How many questions a study needs, and what effect a run could have seen.

For a rate (``J``, a poisoned rate) and for a paired difference (``N``, ``H``) the probability that
the one-sided tests of :mod:`ragassay.stats.onesided` decide is summed over every possible outcome:
binomial or multinomial for independent questions, and for groups the distribution of the total of
beta-binomial or Dirichlet-multinomial groups, by convolution. So the power is exact for the test
with a stated correlation within groups. Where the table of outcomes would be too large (paired
differences of more than :data:`MAX_EXACT` questions), a normal approximation takes its place.

Source: Connett, Smith and McHugh (1987), Statistics in Medicine 6(1) (exact power of paired
comparisons); Donner, Birkett and Buck (1981), American Journal of Epidemiology 114(6) (samples of
groups); Skellam (1948), Journal of the Royal Statistical Society B 10(2) (beta-binomial); Mosimann
(1962), Biometrika 49(1/2) (Dirichlet-multinomial).

A gate that estimates the correlation from the run decides less often. Its power is not summed but
simulated (:mod:`ragassay.stats.power_estimated`), where a sampling says that it is not ``known``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ragassay.stats import onesided
from ragassay.stats.power_estimated import GroupOutcomes, Samples, chance_to_decide, samples
from ragassay.stats.power_outcomes import Difference as Difference
from ragassay.stats.power_outcomes import Sampling as Sampling
from ragassay.stats.power_outcomes import (
    difference_chances,
    group_changes,
    rate_chances,
    whole_size,
)

Side = Literal["below", "above"]
Floats = NDArray[np.float64]
MAX_EXACT = 1500
MAX_QUERIES = 1_000_000
_NEXT = 4  # so many larger sizes must reach the power too: exact power goes in saw-teeth
_HALVINGS = 30
INDEPENDENT = Sampling()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A number of questions in whole groups, what it reaches, and whether that is exact."""

    n: int
    groups: int
    reached: float
    exact: bool


def rate_power(
    n: int,
    rate: float,
    threshold: float,
    side: Side,
    *,
    alpha: float = 0.05,
    sampling: Sampling = INDEPENDENT,
) -> float:
    """Probability that a rate is shown to be below, or above, a threshold.

    Exact where the correlation is known, else simulated.

    Parameters
    ----------
    n : int
        Questions; taken up to whole groups.
    rate, threshold : float
        The true rate and the one to be excluded, in [0, 1].
    side : {"below", "above"}
        What is to be shown of the rate.
    alpha : float
        One-sided error of the test.
    sampling : Sampling
        Groups and their correlation, and whether the test knows it.

    Raises
    ------
    ValueError
        ``n`` is below 1, a rate is outside [0, 1], or the correlation is to be estimated from
        a single group.

    Examples
    --------
    >>> round(rate_power(150, 0.0, 0.02, "below"), 3)
    1.0
    """
    if not sampling.exact:
        tail = onesided.rate_below if side == "below" else onesided.rate_above
        found = _drawn(n, Difference(first=rate, second=0.0), sampling, alpha)
        return chance_to_decide(found, lambda x, _, worth: tail(x, worth, threshold), alpha)
    size, chance = rate_chances(n, rate, sampling)
    return float(chance[_rate_decides(size, threshold, side, alpha, sampling)].sum())


def difference_power(
    n: int,
    expected: Difference,
    delta: float,
    side: Side,
    *,
    alpha: float = 0.05,
    sampling: Sampling = INDEPENDENT,
    exact_to: int = MAX_EXACT,
) -> float:
    """Probability that a paired difference is shown to be below, or above, ``delta``.

    Parameters
    ----------
    n : int
        Questions; taken up to whole groups. Exact up to ``exact_to`` of them.
    expected : Difference
        The true shares of questions that change each way.
    delta : float
        The difference to be excluded, in (-1, 1).
    side, alpha, sampling
        As for :func:`rate_power`.

    Examples
    --------
    >>> round(difference_power(100, Difference(first=0.3, second=0.05), 0.0, "above"), 2)
    1.0
    """
    size = whole_size(n, sampling)
    test = onesided.difference_below if side == "below" else onesided.difference_above
    if not sampling.exact:
        found = _drawn(size, expected, sampling, alpha)
        return chance_to_decide(found, lambda b, c, worth: test(b, c, worth, delta), alpha)
    worth = size / sampling.design_effect
    if size > exact_to:
        return _approximate_power(worth, expected, delta, side, alpha)
    first, second, chance = difference_chances(size, expected, sampling)
    scale = 1 / sampling.design_effect
    decides = test(first * scale, second * scale, worth, delta) <= alpha
    return float(chance[decides].sum())


def rate_width(
    n: int, rate: float, *, confidence: float = 0.95, sampling: Sampling = INDEPENDENT
) -> float:
    """Expected width of the two-sided interval of a rate: exact, over all outcomes.

    Where the correlation is not known, the mean over simulated samples.
    """
    if not sampling.exact:
        alpha = (1 - confidence) / 2
        found = _drawn(n, Difference(first=rate, second=0.0), sampling, alpha)
        low, high = onesided.rate_bounds(found.first, found.size, alpha)
        return float((high - low).mean())
    size, chance = rate_chances(n, rate, sampling)
    counts, worth = _effective_counts(size, sampling)
    low, high = onesided.rate_bounds(counts, worth, (1 - confidence) / 2)
    return float((chance * (high - low)).sum())


def difference_width(
    n: int, expected: Difference, *, confidence: float = 0.95, sampling: Sampling = INDEPENDENT
) -> float:
    """Expected width of the two-sided interval of a paired difference."""
    size = whole_size(n, sampling)
    scale, alpha = 1 / sampling.design_effect, (1 - confidence) / 2
    if not sampling.exact:
        found = _drawn(size, expected, sampling, alpha)
        low, high = onesided.difference_bounds(found.first, found.second, found.size, alpha)
        return float((high - low).mean())
    if size > MAX_EXACT:  # the width hardly varies then: at the expected outcome
        first, second = np.array([expected.first * size]), np.array([expected.second * size])
        chance = np.ones(1)
    else:
        first, second, chance = difference_chances(size, expected, sampling)
    low, high = onesided.difference_bounds(first * scale, second * scale, size * scale, alpha)
    return float((chance * (high - low)).sum())


def queries_needed(
    reached: Callable[[int], float],
    goal: float,
    *,
    sampling: Sampling = INDEPENDENT,
    exact_to: int = MAX_QUERIES,
    falling: bool = False,
) -> Plan | None:
    """Find the least number of questions in whole groups that reaches a goal.

    Parameters
    ----------
    reached : callable
        Power, or expected width, of a number of questions.
    goal : float
        The power to reach, or with ``falling`` the width not to exceed.
    sampling : Sampling
        The groups.
    exact_to : int
        Up to where ``reached`` is exact.

    Returns
    -------
    Plan or None
        The next four sizes reach the goal too, since exact power rises in saw-teeth. None where
        a million questions would not do.
    """
    step = sampling.cluster_size

    def enough(groups: int) -> bool:
        value = reached(groups * step)
        return value <= goal if falling else value >= goal

    most = max(2, MAX_QUERIES // step)
    high = 2
    while not enough(high):
        if high >= most:
            return None
        high = min(2 * high, most)
    low = high // 2 if high > 2 else int(not sampling.exact)  # a single group estimates nothing
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    groups, streak = high, 0
    while streak < _NEXT:
        streak += 1
        if not enough(groups + streak):
            groups, streak = groups + streak + 1, 0
            while not enough(groups):
                groups += 1
    n = groups * step
    return Plan(n=n, groups=groups, reached=reached(n), exact=n <= exact_to)


def detectable_rate(
    n: int,
    threshold: float = 0.0,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    sampling: Sampling = INDEPENDENT,
) -> float | None:
    """Return the smallest rate that would be shown to be above a threshold with this power.

    At threshold 0 that is the smallest rate of which at least one case would be seen. None where
    even a rate of 1 would not be shown.
    """

    def seen(rate: float) -> float:
        return rate_power(n, rate, threshold, "above", alpha=alpha, sampling=sampling)

    return _smallest(seen, threshold, 1.0, power)


def detectable_difference(
    n: int,
    second: float,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    sampling: Sampling = INDEPENDENT,
    exact_to: int = MAX_EXACT,
) -> float | None:
    """Return the smallest difference above 0 that would be told from 0 with this power.

    Parameters
    ----------
    n : int
        Questions.
    second : float
        Share of questions that change against the difference (for ``N``: introduced).

    Returns
    -------
    float or None
        A fraction; None where even the largest possible difference would not be told.
    """

    def seen(value: float) -> float:
        expected = Difference(first=min(second + value, 1 - second), second=second)
        return difference_power(
            n, expected, 0.0, "above", alpha=alpha, sampling=sampling, exact_to=exact_to
        )

    return _smallest(seen, 0.0, 1 - 2 * second, power)


def _smallest(
    seen: Callable[[float], float], low: float, high: float, power: float
) -> float | None:
    if high <= low or seen(high) < power:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) >= power else (middle, high)
        if high - low < 1e-5:
            break
    return high


def _drawn(n: int, expected: Difference, sampling: Sampling, alpha: float) -> Samples:
    """Samples of groups whose correlation is estimated from each of them."""
    groups = whole_size(n, sampling) // sampling.cluster_size
    first, second, chance = group_changes(sampling.cluster_size, expected, sampling.icc)
    kept = chance > 0
    one = GroupOutcomes(
        size=sampling.cluster_size, first=first[kept], second=second[kept], chance=chance[kept]
    )
    return samples(groups, one, alpha=alpha)


def _effective_counts(size: int, sampling: Sampling) -> tuple[Floats, float]:
    scale = 1 / sampling.design_effect
    return np.arange(size + 1, dtype=np.float64) * scale, size * scale


def _rate_decides(
    size: int, threshold: float, side: Side, alpha: float, sampling: Sampling
) -> NDArray[np.bool_]:
    counts, worth = _effective_counts(size, sampling)
    test = onesided.rate_below if side == "below" else onesided.rate_above
    return np.asarray(test(counts, worth, threshold) <= alpha)


def _approximate_power(
    worth: float, expected: Difference, delta: float, side: Side, alpha: float
) -> float:
    """Power by the normal distribution, with the test's correction for continuity."""
    value = expected.value
    spread = expected.first + expected.second - value**2
    null = max(spread + value**2 - delta**2, abs(delta) * (1 - abs(delta)))
    distance = (delta - value if side == "below" else value - delta) - 1 / worth
    if spread <= 0:
        return float(distance > 0)
    needed = float(-ndtri(alpha)) * np.sqrt(null / worth)
    return float(ndtr((distance - needed) / np.sqrt(spread / worth)))
