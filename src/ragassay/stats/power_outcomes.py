"""What samples of correlated groups can turn out to be, and with what chance.

Binomial or multinomial for independent questions; for groups beta-binomial or
Dirichlet-multinomial, and for all groups together the convolution of one group with itself.

Source: Skellam (1948), Journal of the Royal Statistical Society B 10(2) (beta-binomial); Mosimann
(1962), Biometrika 49(1/2) (Dirichlet-multinomial).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, irfftn, next_fast_len, rfft, rfftn
from scipy.special import gammaln
from scipy.stats import betabinom, binom

from ragassay.stats.clusters import design_effect

Floats = NDArray[np.float64]
_NEGLIGIBLE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Questions come in groups of ``cluster_size`` whose outcomes correlate by ``icc``.

    ``known`` says whether the test is told that correlation, or estimates it from the run.
    """

    cluster_size: int = 1
    icc: float = 0.0
    known: bool = True

    def __post_init__(self) -> None:
        if self.cluster_size < 1 or not 0 <= self.icc < 1:
            raise ValueError(
                f"need cluster_size >= 1 and 0 <= icc < 1, got {self.cluster_size}, {self.icc}"
            )

    @property
    def design_effect(self) -> float:
        """How many times more questions are needed than with independent ones."""
        return design_effect(self.cluster_size, self.icc)

    @property
    def exact(self) -> bool:
        """Whether chances can be summed: nothing has to be estimated."""
        return self.known or self.cluster_size == 1

    def whole(self, n: int) -> int:
        """The least number of questions in whole groups that is at least ``n``."""
        return -(-n // self.cluster_size) * self.cluster_size


INDEPENDENT = Sampling()


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


def whole_size(n: int, sampling: Sampling) -> int:
    """Take a number of questions up to whole groups; ValueError below 1."""
    if n < 1:
        raise ValueError(f"need at least one question, got {n}")
    return sampling.whole(n)


def rate_chances(n: int, rate: float, sampling: Sampling) -> tuple[int, Floats]:
    """The number of questions in whole groups, and the chance of every count from 0 to it."""
    size = whole_size(n, sampling)
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


def difference_chances(
    size: int, expected: Difference, sampling: Sampling
) -> tuple[Floats, Floats, Floats]:
    """Counts of changes each way that are not negligible, and the chance of each pair."""
    m, icc = sampling.cluster_size, sampling.icc
    if icc == 0 or m == 1:
        first, second, chance = group_changes(size, expected, 0.0)
    else:
        first, second, chance = _total(size, expected, m, icc)
    kept = chance > _NEGLIGIBLE
    return first[kept], second[kept], chance[kept]


@functools.lru_cache(maxsize=8)
def _total(size: int, expected: Difference, m: int, icc: float) -> tuple[Floats, Floats, Floats]:
    """All groups together: the convolution of one group with itself."""
    a, b, chance = group_changes(m, expected, icc)
    one = np.zeros((m + 1, m + 1))
    one[a.astype(int), b.astype(int)] = chance
    length = next_fast_len(size + 1, real=True)
    table = irfftn(rfftn(one, (length, length)) ** (size // m), (length, length))
    table = np.clip(table[: size + 1, : size + 1], 0.0, 1.0)
    first, second = np.nonzero(table > _NEGLIGIBLE)
    return first.astype(float), second.astype(float), table[first, second]


def group_changes(m: int, expected: Difference, icc: float) -> tuple[Floats, Floats, Floats]:
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
