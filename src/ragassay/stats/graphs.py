"""Similarity graph of a retrieved context: connectivity, conductance, modularity.

Source: "Prevented is not protected", appendices D and H (three graph scores over passage
embeddings); Chung (1997), Spectral Graph Theory (normalized Laplacian, conductance, the sweep
over the second eigenvector); Newman (2006), PNAS 103(23) (modularity); Clauset, Newman and
Moore (2004), Physical Review E 70(6) (greedy merging).

Deviations: the graph functions behind the publication are not released. Weights are
max(0, cosine) over the union of the directed 4-nearest-neighbor graphs, which is the complete
graph for up to five passages. Neighbors that tie are all taken, so that the order of the
passages cannot matter. Up to 10 passages the smallest conductance and the largest modularity are
exact (all cuts, all partitions) rather than found by Louvain, whose result depends on order.
Beyond, the sweep bounds the conductance from above and greedy merging bounds the modularity from
below; the result says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
GraphStatistic = Literal["connectivity", "conductance", "modularity"]

NEIGHBORS = 4
MIN_NODES = 3
MAX_EXACT = 10
_FLOOR = 1e-6
_TIE = 1e-9  # cosines that rounding alone tells apart are equal


@dataclass(frozen=True, slots=True)
class GraphValue:
    """A graph statistic, and whether it is exact or a bound from an approximation."""

    value: float
    exact: bool


def context_weights(embeddings: ArrayLike, *, neighbors: int = NEIGHBORS) -> Floats:
    """Build the similarity graph of a context from the embeddings of its passages.

    Parameters
    ----------
    embeddings : array, shape (k, d)
        One row per passage, not necessarily normalized. A zero row is similar to nothing.
    neighbors : int
        Each passage is linked to this many nearest ones, and to those that tie with the last.

    Returns
    -------
    array, shape (k, k)
        Symmetric, non-negative, zero diagonal; see :func:`similarity_weights`.

    Raises
    ------
    ValueError
        The embeddings are not a finite (k, d) array, or ``neighbors`` is below 1.

    Examples
    --------
    >>> context_weights([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]]).round(6).tolist()
    [[0.0, 1.0, 1e-06], [1.0, 0.0, 1e-06], [1e-06, 1e-06, 0.0]]
    """
    vectors = np.asarray(embeddings, dtype=np.float64)
    if vectors.ndim != 2 or not np.isfinite(vectors).all():
        raise ValueError(f"need finite embeddings of shape (k, d), got shape {vectors.shape}")
    # Scaled by the largest entry first: squares of huge or tiny entries would not be finite.
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    scaled = vectors / np.where(largest > 0, largest, 1.0)
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    rows = scaled / np.where(lengths > 0, lengths, 1.0)
    return similarity_weights(rows @ rows.T, neighbors=neighbors)


def similarity_weights(similarity: ArrayLike, *, neighbors: int = NEIGHBORS) -> Floats:
    """Build the weighted graph of a context from its similarity matrix.

    Parameters
    ----------
    similarity : array, shape (k, k)
        Symmetric up to rounding; the diagonal is not read.
    neighbors : int
        As in :func:`context_weights`.

    Returns
    -------
    array, shape (k, k)
        Where one passage is among the nearest of the other, max(similarity, 1e-6), else 0. All 0
        where no two passages are similar at all: such a graph has no edges.

    Raises
    ------
    ValueError
        The matrix is not finite, square and symmetric, or ``neighbors`` is below 1.
    """
    found = np.asarray(similarity, dtype=np.float64)
    if found.ndim != 2 or found.shape[0] != found.shape[1] or not np.isfinite(found).all():
        raise ValueError(f"need a finite similarity matrix of shape (k, k), got {found.shape}")
    if not np.allclose(found, found.T, atol=1e-6):
        raise ValueError("the similarity matrix must be symmetric")
    if neighbors < 1:
        raise ValueError(f"need neighbors >= 1, got {neighbors}")
    k = len(found)
    weights = (found + found.T) / 2
    np.fill_diagonal(weights, -np.inf)
    if k < 2 or weights.max() <= 0:
        return np.zeros((k, k))
    place = max(0, k - neighbors)  # position of the last neighbor in a row sorted upward
    near = weights >= np.sort(weights, axis=1)[:, [place]] - _TIE
    weights = np.where(near | near.T, np.maximum(weights, _FLOOR), 0.0)
    np.fill_diagonal(weights, 0.0)
    return weights


def connectivity(weights: ArrayLike) -> GraphValue | None:
    """Second-smallest eigenvalue of the normalized Laplacian I - D^(-1/2) W D^(-1/2).

    Parameters
    ----------
    weights : array, shape (k, k)
        Symmetric, non-negative, zero diagonal.

    Returns
    -------
    GraphValue or None
        Always exact. None where the graph has fewer than 3 nodes or no edges.

    Raises
    ------
    ValueError
        The matrix is not of that form, or one node of several has no edge.
    """
    w = _graph(weights)
    return None if w is None else GraphValue(max(0.0, float(_spectrum(w)[0][1])), exact=True)


def conductance(weights: ArrayLike, *, max_exact: int = MAX_EXACT) -> GraphValue | None:
    """Smallest cut(S) / min(vol S, vol rest) over all cuts of the graph in two.

    Parameters
    ----------
    weights : array, shape (k, k)
        As for :func:`connectivity`.
    max_exact : int
        Up to this many nodes all 2^(k-1) - 1 cuts are tried; beyond, the k - 1 cuts of the sweep
        over the second eigenvector, whose best is an upper bound.

    Returns
    -------
    GraphValue or None
        None where the graph has fewer than 3 nodes or no edges.

    Raises
    ------
    ValueError
        As for :func:`connectivity`.
    """
    w = _graph(weights)
    if w is None:
        return None
    exact = len(w) <= max_exact
    sides = _cuts(len(w)) if exact else _sweep(w)
    degree = w.sum(axis=1)
    volume = sides @ degree
    crossing = volume - ((sides @ w) * sides).sum(axis=1)
    smaller = np.minimum(volume, degree.sum() - volume)
    return GraphValue(max(0.0, float((crossing / smaller).min())), exact=exact)


def modularity(weights: ArrayLike, *, max_exact: int = MAX_EXACT) -> GraphValue | None:
    """Largest Newman modularity over all partitions of the graph, the trivial one included.

    Parameters
    ----------
    weights : array, shape (k, k)
        As for :func:`connectivity`.
    max_exact : int
        Up to this many nodes the best partition is found exactly; beyond, by greedy merging,
        which gives a lower bound (and never less than 0).

    Returns
    -------
    GraphValue or None
        None where the graph has fewer than 3 nodes or no edges.

    Raises
    ------
    ValueError
        As for :func:`connectivity`.
    """
    w = _graph(weights)
    if w is None:
        return None
    share = w / w.sum()
    degree = share.sum(axis=1)
    excess = share - np.outer(degree, degree)
    exact = len(w) <= max_exact
    return GraphValue(_best_partition(excess) if exact else _merge_greedily(excess), exact=exact)


def graph_suspicion(weights: ArrayLike, statistic: GraphStatistic) -> GraphValue | None:
    """Score how anomalous the graph of a context is; larger is more anomalous.

    The orientation was fixed before testing: minus the connectivity, minus the conductance, plus
    the modularity, since a tight cluster beside other passages is weakly tied to them.

    Parameters
    ----------
    weights : array, shape (k, k)
        As for :func:`connectivity`.
    statistic : {"connectivity", "conductance", "modularity"}
        Which one.

    Returns
    -------
    GraphValue or None
        To 12 decimals; None where the graph has fewer than 3 nodes or no edges.

    Raises
    ------
    ValueError
        As for :func:`connectivity`.

    Examples
    --------
    >>> graph_suspicion([[0, 1, 1], [1, 0, 1], [1, 1, 0]], "conductance")
    GraphValue(value=-1.0, exact=True)
    """
    found = _FUNCTIONS[statistic](weights)
    if found is None:
        return None
    value = found.value if statistic == "modularity" else -found.value
    # Rounded, so that equal graphs tie: rounding errors must not decide who is flagged.
    return GraphValue(round(value, 12) + 0.0, exact=found.exact)  # never -0.0


_FUNCTIONS: dict[GraphStatistic, Callable[[ArrayLike], GraphValue | None]] = {
    "connectivity": connectivity,
    "conductance": conductance,
    "modularity": modularity,
}


# --------------------------------------------------------------------------------- internals


def _graph(weights: ArrayLike) -> Floats | None:
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 2 or w.shape[0] != w.shape[1] or not np.isfinite(w).all():
        raise ValueError(f"need a finite matrix of weights of shape (k, k), got {w.shape}")
    if not np.allclose(w, w.T) or (w < 0).any() or np.diag(w).any():
        raise ValueError("weights must be symmetric, >= 0, with zero diagonal")
    if len(w) < MIN_NODES or not w.any():
        return None
    if (w.sum(axis=1) <= 0).any():
        alone = int(np.flatnonzero(w.sum(axis=1) <= 0)[0])
        raise ValueError(f"node {alone} has no edge: give it a small weight, as 1e-6")
    # No statistic depends on the scale, and sums of tiny weights stay normal.
    scaled: Floats = w / w.max()
    return scaled


def _spectrum(w: Floats) -> tuple[Floats, Floats]:
    root = 1 / np.sqrt(w.sum(axis=1))
    values, vectors = np.linalg.eigh(np.eye(len(w)) - root[:, None] * w * root[None, :])
    return values, vectors * root[:, None]


@lru_cache(maxsize=16)
def _cuts(k: int) -> Floats:
    """Rows of 0 and 1, one per cut: the side that the last node is not on."""
    numbers = np.arange(1, 2 ** (k - 1))
    return (numbers[:, None] >> np.arange(k) & 1).astype(np.float64)


def _sweep(w: Floats) -> Floats:
    """The cuts that separate the first 1, 2, ... nodes in the order of the second eigenvector."""
    order = np.argsort(_spectrum(w)[1][:, 1], kind="stable")
    sides = np.zeros((len(w) - 1, len(w)))
    for size, row in enumerate(sides, start=1):
        row[order[:size]] = 1.0
    return sides


@lru_cache(maxsize=16)
def _splits(k: int) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]:
    """For each set of nodes 1, 2, ...: the blocks of its lowest node, and what each leaves."""
    found = []
    for nodes in range(1, 2**k):
        lowest = nodes & -nodes
        others = nodes ^ lowest
        parts = np.zeros(1, dtype=np.int64)
        for bit in range(k):
            if others >> bit & 1:
                parts = np.concatenate([parts, parts | 1 << bit])
        found.append((parts | lowest, others ^ parts))
    return tuple(found)


def _best_partition(excess: Floats) -> float:
    """Largest sum of block values over all partitions; a block is worth its excess weight.

    Every partition is covered: the block of the lowest node is split off in all ways, and the
    rest was solved before.
    """
    k = len(excess)
    sets = (np.arange(2**k)[:, None] >> np.arange(k) & 1).astype(np.float64)
    value = ((sets @ excess) * sets).sum(axis=1)
    value[-1] = 0.0  # the partition in one block is worth exactly nothing
    best = np.zeros(2**k)
    for nodes, (block, rest) in enumerate(_splits(k), start=1):
        best[nodes] = (value[block] + best[rest]).max()
    return float(best[-1])


def _merge_greedily(excess: Floats) -> float:
    """Merge the two blocks that gain most until nothing gains; never ends below 0."""
    table = excess.copy()
    while len(table) > 1:
        gain = np.triu(table, 1)
        i, j = divmod(int(gain.argmax()), len(table))
        if gain[i, j] <= 0:
            break
        table[i] += table[j]
        table[:, i] += table[:, j]
        table = np.delete(np.delete(table, j, axis=0), j, axis=1)
    return max(0.0, float(np.trace(table)))
