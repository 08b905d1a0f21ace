"""K-means into two clusters, as scikit-learn does it with ten starts from seed 0, for few points.

Source: Lloyd (1982), IEEE Transactions on Information Theory 28(2); Arthur and Vassilvitskii
(2007), SODA (k-means++, greedy with two candidates); scikit-learn from 1.3 on,
``KMeans(n_clusters=2, n_init=10, max_iter=500, random_state=0)`` after ``StandardScaler`` and
scaling to length 1.

Deviations: none in the clusters and their numbers. What scikit-learn draws from its seed does not
depend on the points, so that it is drawn once; distances follow from the inner products of the
points. Where a comparison is so close that another order of summation could decide it, nothing is
said, and scikit-learn itself has to be asked.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

MOST_POINTS = 62  # a cluster is a set of bits
_CLOSE = 1e-7  # relative; rounding moves distances by less than a thousandth of it
_STARTS = 10
_TOLERANCE = 1e-4

Floats = NDArray[np.float64]


class Undecided(Exception):
    """Rounding could decide: another order of summation may give other clusters."""


def unit_rows(vectors: Floats) -> Floats:
    """Scale columns to mean 0 and variance 1, then rows to length 1; zero rows stay.

    Columns whose numbers are all equal become 0.

    Raises
    ------
    Undecided
        A column varies by so little that rounding would be scaled up.
    """
    mean = vectors.mean(axis=0)
    centered = vectors - mean
    constant = (vectors == vectors[0]).all(axis=0)
    centered[:, constant] = 0.0
    variance = np.square(centered).mean(axis=0)
    if (variance[~constant] <= 1e-10 * np.square(mean[~constant])).any():
        raise Undecided
    variance[constant] = 1.0
    centered /= np.sqrt(variance)
    lengths = np.sqrt(np.square(centered).sum(axis=1, keepdims=True))
    scaled: Floats = centered / np.where(lengths > 0, lengths, 1.0)
    return scaled


def two_means(rows: Floats) -> list[int]:
    """Cluster rows into two; 0 and 1 are as scikit-learn numbers them.

    Parameters
    ----------
    rows : array, shape (n, d)
        At least two points that are not all equal.

    Returns
    -------
    list of int, length n

    Raises
    ------
    Undecided
        A comparison is too close, or there are more than :data:`MOST_POINTS` points.
    """
    n = len(rows)
    if n > MOST_POINTS:
        raise Undecided
    centered = rows - rows.mean(axis=0)
    inner = centered @ centered.T
    points = _Points(inner)
    if not points.scale > 1e-6:
        raise Undecided
    best, best_inertia = -1, np.inf
    for first, chances in _draws(n):
        ends = {points.run(first, second) for second in points.seconds(first, chances)}
        if len(ends) > 1:  # two candidates that are equally good lead to different ends
            raise Undecided
        (found,) = ends
        if best < 0:
            best, best_inertia = found, points.inertia(found)
        elif found not in (best, points.all & ~best):
            inertia = points.inertia(found)
            if points.less(inertia, best_inertia):
                best, best_inertia = found, inertia
    return [best >> i & 1 for i in range(n)]


# --------------------------------------------------------------------------------- internals


@lru_cache(maxsize=64)
def _draws(n: int) -> tuple[tuple[int, tuple[float, float]], ...]:
    """First center and two chances of each start, as scikit-learn draws them for n points."""
    source = np.random.RandomState(0)
    drawn = []
    for _ in range(_STARTS):
        first = int(source.choice(n, p=np.ones(n) / n))
        one, other = source.uniform(size=2).tolist()
        drawn.append((first, (one, other)))
    return tuple(drawn)


class _Points:
    """Points by their inner products. A clustering is the set of bits of cluster 1."""

    def __init__(self, inner: Floats) -> None:
        self.n = len(inner)
        self.all = (1 << self.n) - 1
        self._inner: list[list[float]] = inner.tolist()
        own = np.diagonal(inner)
        distances = np.maximum(own[:, None] + own[None, :] - 2 * inner, 0.0)
        np.fill_diagonal(distances, 0.0)
        self._distances: list[list[float]] = distances.tolist()
        self._total = float(own.sum())
        self.scale = float(own.max())
        self._stops = _TOLERANCE  # times the mean variance of a column, at most the scale
        self._known: dict[tuple[int, int], int] = {}
        self._means: dict[int, tuple[list[float], float]] = {}

    def less(self, a: float, b: float) -> bool:
        """Whether a < b; they must differ clearly."""
        if abs(a - b) <= _CLOSE * self.scale:
            raise Undecided
        return a < b

    def seconds(self, first: int, chances: tuple[float, float]) -> list[int]:
        """The better one of two candidates for the second center, by what is left to it.

        Both where they are equally good: two that are nearest to each other leave the same.
        """
        row = self._distances[first]
        total = sum(row)
        one, other = (self._at(row, chance * total) for chance in chances)
        if one == other:
            return [one]
        left = [sum(map(min, row, self._distances[c])) for c in (one, other)]
        if abs(left[0] - left[1]) <= _CLOSE * self.scale:
            return [one, other]
        return [other if left[1] < left[0] else one]

    def run(self, first: int, second: int) -> int:
        """Move centers until no point changes its cluster."""
        if (first, second) in self._known:
            return self._known[first, second]
        now = 0
        for i, (a, b) in enumerate(
            zip(self._distances[first], self._distances[second], strict=True)
        ):
            now |= self.less(b, a) << i
        moved = self._moved((1 << first, 1 << second), now)
        for _ in range(4 * self.n + 8):
            after = self._next(now)
            if after == now:
                self._known[first, second] = now
                return now
            if moved <= self._stops * self.scale:  # scikit-learn may stop before
                raise Undecided
            moved = self._moved((self.all & ~now, now), after)
            now = after
        raise Undecided

    def inertia(self, ones: int) -> float:
        """Sum of the squared distances to the own center."""
        return self._total - sum(
            self._mean(part)[1] * part.bit_count() for part in (ones, self.all & ~ones)
        )

    def _at(self, row: list[float], wanted: float) -> int:
        """Place at which the running sum reaches a value that lies clearly within a step."""
        reached = 0.0
        for place, step in enumerate(row):
            if step <= 1e-12 * self.scale:  # an equal point: no chance
                continue
            reached += step
            if self.less(wanted, reached):
                return place
        raise Undecided

    def _next(self, ones: int) -> int:
        """Each point to the nearer one of both means."""
        if not ones or ones == self.all:
            raise Undecided
        (zero_products, zero_own), (one_products, one_own) = (
            self._mean(self.all & ~ones), self._mean(ones),
        )  # fmt: skip
        found = 0
        for i, (a, b) in enumerate(zip(zero_products, one_products, strict=True)):
            found |= self.less(one_own - 2 * b, zero_own - 2 * a) << i
        return found

    def _mean(self, part: int) -> tuple[list[float], float]:
        """Inner products of each point with the mean of some, and of that mean with itself."""
        if part not in self._means:
            members = [i for i in range(self.n) if part >> i & 1]
            rows = [self._inner[i] for i in members]
            size = len(members)
            products = [sum(column) / size for column in zip(*rows, strict=True)]
            self._means[part] = products, sum(products[i] for i in members) / size
        return self._means[part]

    def _moved(self, before: tuple[int, int], ones: int) -> float:
        """Squared way of both centers, from the means of ``before`` to those of a clustering."""
        way = 0.0
        for old, new in zip(before, (self.all & ~ones, ones), strict=True):
            if not new:
                raise Undecided
            products, own = self._mean(old)
            members = [i for i in range(self.n) if new >> i & 1]
            across = sum(products[i] for i in members) / len(members)
            way += own + self._mean(new)[1] - 2 * across
        return way
