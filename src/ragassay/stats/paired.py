"""Paired comparisons: exact McNemar, the four matched conditions, jointly decisive queries.

Source: McNemar (1947), Psychometrika 12(2); "Prevented is not protected", sections 2.1 and 4.2;
Holm (1979), Scandinavian Journal of Statistics 6(2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest

from ragassay.stats.intervals import Interval, cluster_bootstrap

Labels = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class McNemar:
    """Queries that gained and lost the outcome, and the exact two-sided p-value."""

    gained: int
    lost: int
    p_value: float


def mcnemar_exact(before: Labels, after: Labels) -> McNemar:
    """Test whether a binary outcome differs between two matched conditions.

    Only queries whose outcome changed say anything: without an effect, gains and losses are
    equally likely. Where nothing changed the p-value is 1. Queries count as independent,
    which injection groups may violate.

    Parameters
    ----------
    before, after : array of bool, shape (n,)
        Outcome of query i in each condition.

    Raises
    ------
    ValueError
        The shapes differ, are not (n,), or a dtype is not bool.

    References
    ----------
    McNemar (1947), Psychometrika 12(2), 153-157.

    Examples
    --------
    >>> mcnemar_exact(np.array([False] * 6), np.array([True] * 6))
    McNemar(gained=6, lost=0, p_value=0.03125)
    """
    _check(before, after)
    gained, lost = int((~before & after).sum()), int((before & ~after).sum())
    p = float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
    return McNemar(gained, lost, p)


@dataclass(frozen=True, slots=True)
class Transition:
    """A 2 x 2 table of two matched conditions."""

    both: int
    first_only: int
    second_only: int
    neither: int


@dataclass(frozen=True, slots=True)
class FourConditions:
    """Counts and rates of the four-condition record over n queries.

    ``c0``, ``c1``, ``p0``, ``p1`` count target-positive answers under clean and poisoned
    retrieval without (0) and with (1) the defense. Rates are fractions of n.
    """

    n: int
    c0: int
    c1: int
    p0: int
    p1: int
    prevented: int
    introduced: int
    transitions: dict[str, Transition]

    @property
    def P(self) -> float:  # noqa: N802 - the paper's symbol
        """Share of queries whose target answer the defense prevents."""
        return self.prevented / self.n

    @property
    def J(self) -> float:  # noqa: N802
        """Share of queries where the defense introduces the target answer."""
        return self.introduced / self.n

    @property
    def N(self) -> float:  # noqa: N802
        """Net reduction P - J = r_p0 - r_p1."""
        return (self.p0 - self.p1) / self.n

    @property
    def H(self) -> float:  # noqa: N802
        """Increase of the target rate on clean retrieval, r_c1 - r_c0."""
        return (self.c1 - self.c0) / self.n

    @property
    def Gamma(self) -> float:  # noqa: N802
        """Factorial contrast N + H = (r_p0 - r_c0) - (r_p1 - r_c1)."""
        return (self.p0 - self.p1 + self.c1 - self.c0) / self.n

    @property
    def prevented_share(self) -> float | None:
        """P / r_p0, the figure of publications that count attack success; None at r_p0 = 0."""
        return self.prevented / self.p0 if self.p0 else None


def four_conditions(c0: Labels, c1: Labels, p0: Labels, p1: Labels) -> FourConditions:
    """Contrast the four matched conditions.

    Parameters
    ----------
    c0, c1, p0, p1 : array of bool, shape (n,), n > 0
        Whether the answer to query i is target-positive in each condition.

    Raises
    ------
    ValueError
        The shapes differ, n is 0, or a dtype is not bool.

    References
    ----------
    "Prevented is not protected", section 2.1.

    Examples
    --------
    >>> off, on = np.array([False, False, True, True]), np.array([True, False, False, True])
    >>> four = four_conditions(off, on, off, on)
    >>> four.P, four.J, four.N, four.H
    (0.25, 0.25, 0.0, 0.0)
    """
    for other in (c1, p0, p1):
        _check(c0, other)
    if len(c0) == 0:
        raise ValueError("need at least one query")
    return FourConditions(
        n=len(c0), c0=int(c0.sum()), c1=int(c1.sum()), p0=int(p0.sum()), p1=int(p1.sum()),
        prevented=int((p0 & ~p1).sum()), introduced=int((~p0 & p1).sum()),
        transitions={
            "attack_without_defense": _transition(c0, p0),
            "attack_with_defense": _transition(c1, p1),
            "defense_on_clean": _transition(c0, c1),
            "defense_on_poisoned": _transition(p0, p1),
        },
    )  # fmt: skip


def contributions(c0: Labels, c1: Labels, p0: Labels, p1: Labels) -> NDArray[np.float64]:
    """Return what each query adds to P, J, N, H and Gamma.

    The column means are the rates of :func:`four_conditions`; resampling the rows of this
    table together keeps the four labels of a query together.

    Parameters
    ----------
    c0, c1, p0, p1 : array of bool, shape (n,)
        As for :func:`four_conditions`.

    Returns
    -------
    array of float64, shape (n, 5)
        Columns P, J, N, H, Gamma; entries are integers from -2 to 2.

    Raises
    ------
    ValueError
        The shapes differ or a dtype is not bool.
    """
    for other in (c1, p0, p1):
        _check(c0, other)
    a, b, c, d = (x.astype(np.float64) for x in (c0, c1, p0, p1))
    prevented, introduced = c * (1 - d), (1 - c) * d
    return np.column_stack([prevented, introduced, c - d, b - a, c - d + b - a])


@dataclass(frozen=True, slots=True)
class DecisiveDifference:
    """Two systems on the queries whose answers are decided for both.

    ``positive_a`` and ``positive_b`` count positives among the ``n_decisive`` of ``n`` queries, in
    ``groups`` injection groups. ``interval`` is that of :attr:`value`; None below two groups.
    """

    n: int
    n_decisive: int
    groups: int
    positive_a: int
    positive_b: int
    interval: Interval | None

    @property
    def count(self) -> int:
        """Positives of a minus positives of b."""
        return self.positive_a - self.positive_b

    @property
    def value(self) -> float | None:
        """Rate of a minus rate of b, a fraction; None where no query is decided for both."""
        return self.count / self.n_decisive if self.n_decisive else None


def decisive_difference(
    a: ArrayLike,
    b: ArrayLike,
    groups: Sequence[Any],
    *,
    draws: int = 10_000,
    confidence: float = 0.95,
    rng: np.random.Generator,
) -> DecisiveDifference:
    """Compare the positive rates of two systems where a label decides both their answers.

    Queries with an undecided answer of either system are left out, so that the difference is
    paired. They are not missing at random (a defense that hedges is undecided more often),
    so the number left out belongs beside the figure.

    Parameters
    ----------
    a, b : array_like, shape (n,)
        Label of query i for each system: True or 1, False or 0, None or -1 (not decided).
    groups : sequence, length n
        Injection group of query i, the unit of resampling.
    draws, confidence, rng
        As for :func:`ragassay.stats.intervals.cluster_bootstrap`.

    Returns
    -------
    DecisiveDifference
        Below 0: a is positive less often than b.

    Raises
    ------
    ValueError
        The lengths differ, a label is none of the above, or a setting is out of range.

    References
    ----------
    "Prevented is not protected", section 4.2 and table 3: 77 of 100 queries decided for both,
    11 positives fewer, -14.3 percentage points.

    Examples
    --------
    >>> rng = np.random.default_rng(7)
    >>> found = decisive_difference([1, 0, 0, -1], [1, 1, 1, 1], ["g", "g", "h", "h"], rng=rng)
    >>> found.count, found.n_decisive, found.n
    (-2, 3, 4)
    """
    first, second = _tri_state(a), _tri_state(b)
    if first.shape != second.shape or len(first) != len(groups):
        raise ValueError(
            f"need labels of the same queries, got {len(first)} and {len(second)} "
            f"with {len(groups)} groups"
        )
    both = (first >= 0) & (second >= 0)
    kept = [group for group, decided in zip(groups, both, strict=True) if decided]
    difference = (first - second)[both].astype(np.float64)
    interval = None
    if kept:
        (interval,) = cluster_bootstrap(
            difference, kept, draws=draws, confidence=confidence, rng=rng
        )
    return DecisiveDifference(
        n=len(first), n_decisive=len(kept), groups=len(set(kept)),
        positive_a=int((first[both] == 1).sum()), positive_b=int((second[both] == 1).sum()),
        interval=interval,
    )  # fmt: skip


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number by Holm's step-down method.

    Parameters
    ----------
    p_values : sequence of float
        One per test, each in [0, 1].

    Returns
    -------
    list of float
        Adjusted p-values, in the given order.

    Raises
    ------
    ValueError
        A p-value is outside [0, 1] or not a number.

    References
    ----------
    Holm (1979), Scandinavian Journal of Statistics 6(2), 65-70.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    for p in p_values:
        if not 0 <= p <= 1:
            raise ValueError(f"need p-values in [0, 1], got {p}")
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def _transition(first: Labels, second: Labels) -> Transition:
    return Transition(
        both=int((first & second).sum()), first_only=int((first & ~second).sum()),
        second_only=int((~first & second).sum()), neither=int((~first & ~second).sum()),
    )  # fmt: skip


def _check(first: Labels, second: Labels) -> None:
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"need equal shapes (n,), got {first.shape} and {second.shape}")
    if first.dtype != np.bool_ or second.dtype != np.bool_:
        raise ValueError("outcomes must be bool: drop the unscored queries first")


def _tri_state(labels: ArrayLike) -> NDArray[np.int8]:
    """Bring labels to 1, 0 and -1."""
    given = np.asarray(labels)
    if given.dtype == object:
        given = np.array([-1 if label is None else label for label in given.tolist()])
    if given.ndim == 1 and not len(given):
        return np.zeros(0, dtype=np.int8)
    if given.ndim != 1 or given.dtype.kind not in "biu" or not np.isin(given, (-1, 0, 1)).all():
        raise ValueError("labels must be True or 1, False or 0, None or -1, in one dimension")
    return given.astype(np.int8)
