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

Deviations: the test that is planned for knows the correlation. A gate that estimates it from the
run decides somewhat less often; see the documentation for how much.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, irfftn, next_fast_len, rfft, rfftn
from scipy.special import betaincinv, gammaln, ndtr, ndtri
from scipy.stats import betabinom, binom

from ragassay.stats import onesided
from ragassay.stats.clusters import design_effect

Side = Literal["below", "above"]
Floats = NDArray[np.float64]
MAX_EXACT = 1500
MAX_QUERIES = 1_000_000
_NEXT = 4  # so many larger sizes must reach the power too: exact power goes in saw-teeth
_NEGLIGIBLE = 1e-12
_HALVINGS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Questions come in groups of ``cluster_size`` whose outcomes correlate by ``icc``."""

    cluster_size: int = 1
    icc: float = 0.0

    def __post_init__(self) -> None:
        if self.cluster_size < 1 or not 0 <= self.icc < 1:
            raise ValueError(
                f"need cluster_size >= 1 and 0 <= icc < 1, got {self.cluster_size}, {self.icc}"
            )

    @property
    def design_effect(self) -> float:
        """How many times more questions are needed than with independent ones."""
        return design_effect(self.cluster_size, self.icc)

    def whole(self, n: int) -> int:
        """The least number of questions in whole groups that is at least ``n``."""
        return -(-n // self.cluster_size) * self.cluster_size


INDEPENDENT = Sampling()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A number of questions in whole groups, what it reaches, and whether that is exact."""

    n: int
    groups: int
    reached: float
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What is expected of a paired difference: shares of questions that change each way.

    For ``N``, ``first`` is the share prevented and ``second`` the share introduced. For ``H``,
    ``first`` is the share that becomes target-positive on clean retrieval, ``second`` the share
    that ceases to be.
    """

    first: float
    second: float

    def __post_init__(self) -> None:
        if self.first < 0 or self.second < 0 or self.first + self.second > 1:
            raise ValueError(f"need shares that sum to at most 1, got {self.first}, {self.second}")

    @property
    def value(self) -> float:
        """The difference, a fraction."""
        return self.first - self.second


def rate_power(
    n: int,
    rate: float,
    threshold: float,
    side: Side,
    *,
    alpha: float = 0.05,
    sampling: Sampling = INDEPENDENT,
) -> float:
    """Probability that a rate is shown to be below, or above, a threshold. Exact.

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
        Groups and their correlation; the test knows the correlation.

    Raises
    ------
    ValueError
        ``n`` is below 1, or a rate is outside [0, 1].

    Examples
    --------
    >>> round(rate_power(150, 0.0, 0.02, "below"), 3)
    1.0
    """
    size, chance = _rate_chances(n, rate, sampling)
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
    size = _checked(n, sampling)
    worth = size / sampling.design_effect
    if size > exact_to:
        return _approximate_power(worth, expected, delta, side, alpha)
    first, second, chance = _difference_chances(size, expected, sampling)
    scale = 1 / sampling.design_effect
    test = onesided.difference_below if side == "below" else onesided.difference_above
    decides = test(first * scale, second * scale, worth, delta) <= alpha
    return float(chance[decides].sum())


def rate_width(
    n: int, rate: float, *, confidence: float = 0.95, sampling: Sampling = INDEPENDENT
) -> float:
    """Expected width of the two-sided interval of a rate: exact, over all outcomes."""
    size, chance = _rate_chances(n, rate, sampling)
    counts, worth = _effective_counts(size, sampling)
    alpha = (1 - confidence) / 2
    with np.errstate(invalid="ignore"):
        low = np.where(counts <= 0, 0.0, betaincinv(counts, worth - counts + 1, alpha))
        left = np.maximum(worth - counts, 0.0)
        high = np.where(left <= 1e-9, 1.0, betaincinv(counts + 1, left, 1 - alpha))
    return float((chance * (high - low)).sum())


def difference_width(
    n: int, expected: Difference, *, confidence: float = 0.95, sampling: Sampling = INDEPENDENT
) -> float:
    """Expected width of the two-sided interval of a paired difference."""
    size = _checked(n, sampling)
    scale, alpha = 1 / sampling.design_effect, (1 - confidence) / 2
    if size > MAX_EXACT:  # the width hardly varies then: at the expected outcome
        first, second = np.array([expected.first * size]), np.array([expected.second * size])
        chance = np.ones(1)
    else:
        first, second, chance = _difference_chances(size, expected, sampling)
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
    low = high // 2 if high > 2 else 0
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


# ------------------------------------------------------------------------- outcomes and chances


def _checked(n: int, sampling: Sampling) -> int:
    if n < 1:
        raise ValueError(f"need at least one question, got {n}")
    return sampling.whole(n)


def _rate_chances(n: int, rate: float, sampling: Sampling) -> tuple[int, Floats]:
    """The number of questions in whole groups, and the chance of every count from 0 to it."""
    size = _checked(n, sampling)
    if not 0 <= rate <= 1:
        raise ValueError(f"need a rate in [0, 1], got {rate}")
    m, icc = sampling.cluster_size, sampling.icc
    if rate in (0.0, 1.0) or icc == 0 or m == 1:
        return size, binom.pmf(np.arange(size + 1), size, rate)
    spread = (1 - icc) / icc
    one = betabinom.pmf(np.arange(m + 1), m, rate * spread, (1 - rate) * spread)
    length = next_fast_len(size + 1, real=True)
    total = irfft(rfft(one, length) ** (size // m), length)[: size + 1]
    return size, np.clip(total, 0.0, 1.0)


def _effective_counts(size: int, sampling: Sampling) -> tuple[Floats, float]:
    scale = 1 / sampling.design_effect
    return np.arange(size + 1, dtype=np.float64) * scale, size * scale


def _rate_decides(
    size: int, threshold: float, side: Side, alpha: float, sampling: Sampling
) -> NDArray[np.bool_]:
    counts, worth = _effective_counts(size, sampling)
    test = onesided.rate_below if side == "below" else onesided.rate_above
    return np.asarray(test(counts, worth, threshold) <= alpha)


def _difference_chances(
    size: int, expected: Difference, sampling: Sampling
) -> tuple[Floats, Floats, Floats]:
    """Counts of changes each way that are not negligible, and the chance of each pair."""
    m, icc = sampling.cluster_size, sampling.icc
    if icc == 0 or m == 1:
        first, second, chance = _changes(size, expected, 0.0)
    else:
        first, second, chance = _total(size, expected, m, icc)
    kept = chance > _NEGLIGIBLE
    return first[kept], second[kept], chance[kept]


@functools.lru_cache(maxsize=8)
def _total(size: int, expected: Difference, m: int, icc: float) -> tuple[Floats, Floats, Floats]:
    """All groups together: the convolution of one group with itself."""
    a, b, chance = _changes(m, expected, icc)
    one = np.zeros((m + 1, m + 1))
    one[a.astype(int), b.astype(int)] = chance
    length = next_fast_len(size + 1, real=True)
    table = irfftn(rfftn(one, (length, length)) ** (size // m), (length, length))
    table = np.clip(table[: size + 1, : size + 1], 0.0, 1.0)
    first, second = np.nonzero(table > _NEGLIGIBLE)
    return first.astype(float), second.astype(float), table[first, second]


def _changes(m: int, expected: Difference, icc: float) -> tuple[Floats, Floats, Floats]:
    """One group of m questions: Dirichlet-multinomial, or multinomial without correlation."""
    a, b = (each.ravel().astype(float) for each in np.indices((m + 1, m + 1)))
    inside = a + b <= m
    a, b = a[inside], b[inside]
    counts = np.stack([a, b, m - a - b])
    shares = np.array([expected.first, expected.second, 1 - expected.first - expected.second])
    shares = np.maximum(shares, 0.0)
    impossible = ((shares[:, None] == 0) & (counts > 0)).any(axis=0)
    used = shares > 0
    x, p = counts[used], shares[used][:, None]
    logs = gammaln(m + 1) - gammaln(x + 1).sum(axis=0)
    if icc == 0:
        logs = logs + (x * np.log(p)).sum(axis=0)
    else:
        spread = (1 - icc) / icc
        logs = logs + gammaln(spread) - gammaln(m + spread)
        logs = logs + (gammaln(x + p * spread) - gammaln(p * spread)).sum(axis=0)
    return a, b, np.exp(np.where(impossible, -np.inf, logs))


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
