"""A count, its denominator and its interval, kept together.

Source: Wilson (1927), JASA 22(158), for the interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ragassay.stats.intervals import Interval, wilson


@dataclass(frozen=True, slots=True)
class Proportion:
    """``count`` of ``n`` with a Wilson interval; ``interval`` is None where n is 0."""

    count: int
    n: int
    interval: Interval | None

    @property
    def value(self) -> float | None:
        """The rate, count / n; None where n is 0."""
        return self.count / self.n if self.n else None


def proportion(count: int, n: int, *, confidence: float = 0.95) -> Proportion:
    """Bound ``count`` of ``n``.

    Raises
    ------
    ValueError
        The counts or the level are impossible.

    Examples
    --------
    >>> proportion(0, 0)
    Proportion(count=0, n=0, interval=None)
    """
    return Proportion(int(count), int(n), wilson(int(count), int(n), confidence=confidence))


def share_true(labels: Iterable[bool | None], *, confidence: float = 0.95) -> Proportion:
    """Share of true ones among the labels that are known; None is not counted at all.

    Examples
    --------
    >>> found = share_true([True, False, None, True])
    >>> found.count, found.n
    (2, 3)
    """
    known = [bool(label) for label in labels if label is not None]
    return proportion(sum(known), len(known), confidence=confidence)
