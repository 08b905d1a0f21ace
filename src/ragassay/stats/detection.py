"""Detector scores, their calibration on clean contexts, and operating points.

Source: "Prevented is not protected", appendices D and H (score statistics, calibration);
"Ranking is not judgment" (operating points at a matched false-positive rate).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

_MAX_EXACT = 10


def threshold_index(n: int, fpr: float) -> int:
    """Return the 0-based position of the threshold among n sorted clean scores.

    ``ceil((1 - fpr) n) - 1`` in exact arithmetic on the decimal form of ``fpr``, because
    0.99 * 500 in binary need not be 495.

    Raises
    ------
    ValueError
        n < 1, or fpr is outside (0, 1).
    """
    if n < 1:
        raise ValueError("need at least one clean score to calibrate on")
    if not 0 < fpr < 1:
        raise ValueError(f"need 0 < fpr < 1, got {fpr}")
    return math.ceil((1 - Fraction(str(fpr))) * n) - 1


def calibrate_threshold(scores: Sequence[float] | NDArray[np.float64], fpr: float) -> float:
    """Choose the threshold t of the rule "flag iff score > t" on clean scores.

    At most the share ``fpr`` of the clean scores lies above t; ties never raise it.

    Parameters
    ----------
    scores : sequence of float, shape (n,)
        Scores of n clean contexts, larger is more suspicious.
    fpr : float
        Nominal false-positive rate in (0, 1).

    Raises
    ------
    ValueError
        There is no score, one is not finite, or ``fpr`` is out of range.

    References
    ----------
    "Prevented is not protected", appendix D.

    Examples
    --------
    >>> calibrate_threshold([1.0] * 99 + [2.0], 0.01)
    1.0
    """
    ordered = np.sort(_finite(scores))
    return float(ordered[threshold_index(len(ordered), fpr)])


@dataclass(frozen=True, slots=True)
class ScoreStatistics:
    """Three anomaly scores of a context; larger is more anomalous."""

    negative_min: float
    gap: float
    dispersion: float


def score_statistics(scores: Sequence[float] | NDArray[np.float64]) -> ScoreStatistics:
    """Summarize the retrieval scores of one context.

    Returns
    -------
    ScoreStatistics
        Minus the smallest score, largest minus smallest, population standard deviation.

    Raises
    ------
    ValueError
        There is no score, or one is not finite.
    """
    values = _finite(scores)
    return ScoreStatistics(
        negative_min=0.0 - float(values.min()),  # never -0.0
        gap=float(values.max() - values.min()),
        dispersion=float(values.std()),
    )


@dataclass(frozen=True, slots=True)
class GraphStatistics:
    """Connectivity of a weighted similarity graph, by exact enumeration."""

    lambda2: float
    conductance: float
    modularity: float


def graph_statistics(weights: NDArray[np.float64]) -> GraphStatistics:
    """Compute connectivity statistics of a small weighted graph.

    Parameters
    ----------
    weights : array, shape (k, k)
        Symmetric, non-negative, zero diagonal, every node with some weight; 2 <= k <= 10.

    Returns
    -------
    GraphStatistics
        Second-smallest eigenvalue of the normalized Laplacian; smallest conductance over
        all cuts; largest Newman modularity over all partitions.

    Raises
    ------
    ValueError
        The matrix is not of that form.
    """
    w = np.asarray(weights, dtype=np.float64)
    k = len(w)
    if w.shape != (k, k) or not 2 <= k <= _MAX_EXACT:
        raise ValueError(f"need a square matrix of 2 to {_MAX_EXACT} nodes, got {w.shape}")
    if not np.allclose(w, w.T) or (w < 0).any() or np.diag(w).any() or (w.sum(axis=1) <= 0).any():
        raise ValueError("weights must be symmetric, >= 0, with zero diagonal and no lone node")
    degree = w.sum(axis=1)
    root = 1 / np.sqrt(degree)
    laplacian = np.eye(k) - root[:, None] * w * root[None, :]
    total = degree.sum()
    # Row c of `sets` is the node set whose bits make up the number c.
    sets = (np.arange(2**k)[:, None] >> np.arange(k) & 1).astype(np.float64)
    volume = sets @ degree
    cut = volume - ((sets @ w) * sets).sum(axis=1)
    proper = slice(1, 2**k - 1)
    conductance = (cut[proper] / np.minimum(volume[proper], total - volume[proper])).min()
    excess = w / total - np.outer(degree, degree) / total**2
    modularity = _best_partition(((sets @ excess) * sets).sum(axis=1).tolist())
    return GraphStatistics(
        float(np.linalg.eigvalsh(laplacian)[1]), max(0.0, float(conductance)), modularity
    )


def auroc(
    positive: Sequence[float] | NDArray[np.float64], negative: Sequence[float] | NDArray[np.float64]
) -> float | None:
    """Probability that a positive scores above a negative, with ties counted one half.

    Parameters
    ----------
    positive, negative : sequence of float
        Scores of the two classes, larger is more suspicious.

    Returns
    -------
    float or None
        None where a class is empty.

    Raises
    ------
    ValueError
        A score is not finite.

    Examples
    --------
    >>> auroc([0.9, 0.5], [0.5, 0.1])
    0.875
    """
    if len(positive) == 0 or len(negative) == 0:
        return None
    p, n = _finite(positive), _finite(negative)
    ranks = rankdata(np.concatenate([p, n]))
    return float((ranks[: len(p)].sum() - len(p) * (len(p) + 1) / 2) / (len(p) * len(n)))


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """A threshold (flag iff score > threshold) and the share of positives it misses."""

    threshold: float
    fnr: float


def fnr_at_fpr(
    positive: Sequence[float] | NDArray[np.float64],
    negative: Sequence[float] | NDArray[np.float64],
    fpr: float,
) -> OperatingPoint | None:
    """Miss rate at the smallest threshold whose false-positive rate is at most ``fpr``.

    It is read off the evaluated candidates themselves, so it is an oracle's operating point.

    Parameters
    ----------
    positive, negative : sequence of float
        Scores of poison and of clean candidates.
    fpr : float
        Largest allowed false-positive rate in (0, 1).

    Returns
    -------
    OperatingPoint or None
        None where either class is empty.

    References
    ----------
    "Ranking is not judgment", operating points at a matched false-positive rate.
    """
    if len(positive) == 0 or len(negative) == 0:
        return None
    threshold = calibrate_threshold(negative, fpr)
    return OperatingPoint(threshold, float((_finite(positive) <= threshold).mean()))


def _finite(scores: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise ValueError(f"need a non-empty list of finite scores, got shape {values.shape}")
    return values


def _best_partition(value: Sequence[float]) -> float:
    """Largest sum of block values over all partitions of a set of nodes.

    ``value[c]`` belongs to the block whose bits make up c. Every partition is covered: the
    block of the lowest node is split off in all ways, and the rest is solved before.
    """
    best = [0.0] * len(value)
    for nodes in range(1, len(value)):
        lowest = nodes & -nodes
        others = part = nodes ^ lowest
        best[nodes] = value[nodes]
        while part:
            part = (part - 1) & others
            best[nodes] = max(best[nodes], value[lowest | part] + best[others ^ part])
    return best[-1]
