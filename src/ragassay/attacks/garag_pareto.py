"""Selection among several objectives at once, all of them minimized.

Source: Deb, Pratap, Agarwal and Meyarivan (2002), "A Fast and Elitist Multiobjective Genetic
Algorithm: NSGA-II", IEEE Transactions on Evolutionary Computation 6(2).

Deviations: none. Ties break by the order of the points.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def dominates(one: ArrayLike, other: ArrayLike) -> bool:
    """Tell whether a point is nowhere worse and somewhere better (smaller).

    Examples
    --------
    >>> dominates([1, 2], [1, 3]), dominates([1, 2], [2, 1]), dominates([1, 2], [1, 2])
    (True, False, False)
    """
    a, b = np.asarray(one), np.asarray(other)
    return bool((a <= b).all() and (a < b).any())


def fronts(points: ArrayLike) -> list[list[int]]:
    """Sort points by dominance.

    Parameters
    ----------
    points : array_like, shape (n, m)
        One row for each point, one column for each objective.

    Returns
    -------
    list of list of int
        Row numbers, ascending within a front; the first front is dominated by no point, the next
        only by points of the first, and so on.

    Examples
    --------
    >>> fronts([[1, 2], [2, 1], [2, 2], [3, 3]])
    [[0, 1], [2], [3]]
    """
    rows = np.asarray(points, dtype=np.float64)
    if len(rows) == 0:
        return []
    no_worse = (rows[:, None] <= rows[None]).all(axis=2)
    better = (rows[:, None] < rows[None]).any(axis=2)
    above = no_worse & better  # above[i, j]: i dominates j
    left = np.ones(len(rows), dtype=np.bool_)
    found = []
    while left.any():
        front = left & ~(above & left[:, None]).any(axis=0)
        found.append([int(i) for i in np.flatnonzero(front)])
        left &= ~front
    return found


def crowding(points: ArrayLike) -> NDArray[np.float64]:
    """How much room there is around each point of one front.

    Parameters
    ----------
    points : array_like, shape (n, m)

    Returns
    -------
    ndarray, shape (n,)
        The sum over the objectives of the distance between a point's two neighbors, as a share
        of the front's range; infinite for the ends. An objective without a range adds nothing.

    Examples
    --------
    >>> crowding([[0, 4], [1, 2], [4, 0]]).tolist()
    [inf, 2.0, inf]
    """
    rows = np.asarray(points, dtype=np.float64)
    distance = np.zeros(len(rows))
    for column in rows.T:
        order = np.argsort(column, kind="stable")
        width = column[order[-1]] - column[order[0]] if len(order) else 0.0
        if width == 0:
            continue
        distance[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / width
        distance[order[[0, -1]]] = np.inf
    return distance


def survivors(points: ArrayLike, count: int) -> list[int]:
    """Choose the best points: whole fronts, then the least crowded of the front that is cut.

    Returns
    -------
    list of int
        At most ``count`` row numbers, front by front.

    Examples
    --------
    >>> survivors([[0, 4], [1, 2], [1.2, 1.9], [4, 0], [5, 5]], 3)
    [0, 3, 2]
    """
    rows = np.asarray(points, dtype=np.float64)
    kept: list[int] = []
    for front in fronts(rows):
        room = count - len(kept)
        if room <= 0:
            break
        if len(front) <= room:
            kept += front
            continue
        order = np.argsort(-crowding(rows[front]), kind="stable")
        kept += [front[i] for i in order[:room]]
    return kept


def tournament(
    points: ArrayLike, ranks: Sequence[int], room: Sequence[float], rng: np.random.Generator
) -> int:
    """Draw two points and return the better: the dominating one, else the less crowded one.

    ``ranks`` are numbers of fronts and ``room`` crowding distances, one for each point; where
    both are equal the one drawn first wins.
    """
    count = len(np.asarray(points))
    if count == 1:
        return 0
    one, other = (int(i) for i in rng.choice(count, size=2, replace=False))
    if ranks[one] != ranks[other]:
        return one if ranks[one] < ranks[other] else other
    return other if room[other] > room[one] else one
