"""The largest set of vertices of a small graph without an edge between them, exactly."""

from __future__ import annotations

from collections.abc import Sequence


def max_independent_set(n: int, edges: Sequence[Sequence[int]]) -> list[int]:
    """Return the maximum independent set; of several, the lexicographically smallest.

    Vertices are in order of rank, so that ties go to better ranks. Exact, by branching on a
    vertex of largest degree; sets that were solved are remembered.

    Parameters
    ----------
    n : int
        Number of vertices, 0 or more.
    edges : sequence of (int, int)
        Pairs of different vertices from 0 to n - 1, in any order.

    Returns
    -------
    list of int
        Ascending.

    Raises
    ------
    ValueError
        An edge joins a vertex with itself or names one that is not there.

    Examples
    --------
    >>> max_independent_set(4, [(0, 2), (0, 3), (1, 2), (1, 3)])
    [0, 1]
    """
    near = [0] * n
    for i, j in edges:
        if not (0 <= i < n and 0 <= j < n) or i == j:
            raise ValueError(f"need an edge between two different ones of {n} vertices, got {i, j}")
        near[i] |= 1 << j
        near[j] |= 1 << i
    known: dict[int, int] = {0: 0}
    chosen = []
    left = (1 << n) - 1
    while left:
        best = _largest(left, near, known)
        vertex = (left & -left).bit_length() - 1
        left ^= 1 << vertex
        without_neighbors = left & ~near[vertex]
        if 1 + _largest(without_neighbors, near, known) == best:
            chosen.append(vertex)
            left = without_neighbors
    return chosen


def _largest(vertices: int, near: Sequence[int], known: dict[int, int]) -> int:
    """Size of the maximum independent set among some vertices, as the bits of a number."""
    if vertices in known:
        return known[vertices]
    best_vertex, most = -1, 0
    rest = vertices
    while rest:
        vertex = (rest & -rest).bit_length() - 1
        rest &= rest - 1
        degree = (near[vertex] & vertices).bit_count()
        if degree > most:
            best_vertex, most = vertex, degree
    if best_vertex < 0:
        size = vertices.bit_count()
    elif most == 1:
        size = vertices.bit_count() - _matched(vertices, near)
    else:
        without = vertices & ~(1 << best_vertex)
        size = max(
            1 + _largest(without & ~near[best_vertex], near, known),
            _largest(without, near, known),
        )
    known[vertices] = size
    return size


def _matched(vertices: int, near: Sequence[int]) -> int:
    """Number of edges where no vertex has more than one: each costs one vertex."""
    ends = 0
    rest = vertices
    while rest:
        vertex = (rest & -rest).bit_length() - 1
        rest &= rest - 1
        ends += (near[vertex] & vertices) != 0
    return ends // 2
