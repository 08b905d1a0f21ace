"""How well probabilities of being poison are calibrated, and Platt's way to calibrate scores.

Source: Guo et al. (2017), ICML, for the expected calibration error (15 equal-width bins, as in
"Ranking is not judgment"); Platt (1999) with the targets and the Newton iteration of Lin, Lin and
Weng (2007), Machine Learning 68(3).

Deviations: bins are closed on the right, and the first one also holds 0. The interval resamples
whole questions; since the error is a sum of absolute values it is biased upwards, and more so in
resamples, so that the interval may lie above a small estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragassay.stats.decision import probabilities
from ragassay.stats.dose import Resampling
from ragassay.stats.intervals import MIN_GROUPS, Interval
from ragassay.stats.roc import cluster_counts

BINS = 15
_ITERATIONS = 100
_GRADIENT = 1e-9


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Candidates with a probability in (low, high]: mean probability and share of poison."""

    low: float
    high: float
    n: int
    confidence: float
    frequency: float


@dataclass(frozen=True, slots=True)
class CalibrationError:
    """Expected calibration error of ``n`` candidates, of which ``positive`` are poison.

    ``value`` is None without a candidate, ``interval`` below two clusters. The prevalence
    belongs beside the figure, which depends on it.
    """

    value: float | None
    interval: Interval | None
    n: int
    positive: int
    bins: tuple[ReliabilityBin, ...]


def ece(p: ArrayLike, y: ArrayLike, *, bins: int = BINS) -> float | None:
    """Expected calibration error: mean distance of confidence and frequency, by bin.

    Parameters
    ----------
    p : array_like, shape (m,)
        Probabilities of being poison.
    y : array_like, shape (m,)
        1 or True for poison, 0 or False for clean.
    bins : int
        Number of equal-width bins on [0, 1], closed on the right.

    Returns
    -------
    float or None
        None without a candidate.

    Raises
    ------
    ValueError
        Shapes differ, a probability is outside [0, 1], a label is neither 0 nor 1, or
        ``bins`` < 1.

    Examples
    --------
    >>> round(ece([0.1, 0.1, 0.9, 0.9], [0, 1, 1, 1]), 12)
    0.25
    """
    prob, label, index = _binned(p, y, bins)
    if not len(prob):
        return None
    excess = np.bincount(index, weights=label - prob, minlength=bins)
    return float(np.abs(excess).sum() / len(prob))


def calibration_error(
    p: ArrayLike, y: ArrayLike, clusters: Sequence[Any], how: Resampling, *, bins: int = BINS
) -> CalibrationError:
    """Estimate the expected calibration error, with its bins and an interval.

    Parameters
    ----------
    p, y, bins
        As for :func:`ece`; the evaluation candidates only.
    clusters : sequence, length m
        The question of each candidate, the unit of resampling.
    how : Resampling
        Draws, level and generator.

    Raises
    ------
    ValueError
        As for :func:`ece`; or the number of clusters differs.
    """
    prob, label, index = _binned(p, y, bins)
    if len(clusters) != len(prob):
        raise ValueError(f"need one cluster a candidate, got {len(clusters)} for {len(prob)}")
    return CalibrationError(
        value=ece(prob, label, bins=bins),
        interval=_interval(label - prob, index, clusters, how, bins),
        n=len(prob),
        positive=int(label.sum()),
        bins=tuple(
            ReliabilityBin(
                low=b / bins, high=(b + 1) / bins, n=int((index == b).sum()),
                confidence=float(prob[index == b].mean()),
                frequency=float(label[index == b].mean()),
            )
            for b in np.unique(index).tolist()
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Platt:
    """A sigmoid over scores: p = 1 / (1 + exp(-(slope * score + intercept)))."""

    slope: float
    intercept: float

    def probability(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Turn scores of shape (m,) into probabilities of being poison."""
        z = self.slope * np.asarray(scores, dtype=np.float64) + self.intercept
        # Split by sign, so that exp never overflows.
        small = np.exp(-np.abs(z))
        return np.where(z >= 0, 1 / (1 + small), small / (1 + small))


def fit_platt(scores: ArrayLike, y: ArrayLike) -> Platt:
    """Fit Platt's sigmoid on calibration candidates.

    Parameters
    ----------
    scores : array_like, shape (m,)
        Scores, larger is more suspicious.
    y : array_like, shape (m,)
        1 or True for poison, 0 or False for clean; both must occur.

    Raises
    ------
    ValueError
        Shapes differ, a score is not finite, a label is neither 0 nor 1, or a kind is absent.

    References
    ----------
    Platt (1999), Probabilistic outputs for support vector machines; Lin, Lin and Weng (2007).

    Examples
    --------
    >>> found = fit_platt([0.0, 1.0, 2.0, 3.0], [0, 0, 1, 1])
    >>> found.slope > 0, round(float(found.probability([1.5])[0]), 6)
    (True, 0.5)
    """
    s, label = np.asarray(scores, dtype=np.float64), _labels(y)
    if s.shape != label.shape or s.ndim != 1 or not np.isfinite(s).all():
        raise ValueError(f"need finite scores with a label each, got {s.shape} and {label.shape}")
    positive = float(label.sum())
    negative = len(label) - positive
    if not positive or not negative:
        raise ValueError(
            f"need poison and clean candidates to calibrate on, got {positive:g} and {negative:g}"
        )
    center, scale = float(s.mean()), float(s.std()) or 1.0
    design = np.column_stack([(s - center) / scale, np.ones(len(s))])
    # Platt's targets: the posterior means under a uniform prior, so that the fit is finite.
    wanted = np.where(label == 1, (positive + 1) / (positive + 2), 1 / (negative + 2))
    weights = np.array([0.0, np.log((positive + 1) / (negative + 1))])
    for _ in range(_ITERATIONS):
        prob = Platt(1.0, 0.0).probability(design @ weights)
        gradient = design.T @ (prob - wanted)
        if np.abs(gradient).max() < _GRADIENT * len(s):
            break
        hessian = design.T @ (design * (prob * (1 - prob))[:, None]) + 1e-12 * np.eye(2)
        step = np.linalg.solve(hessian, gradient).astype(np.float64)
        weights = _descend(design, wanted, weights, step)
    slope, intercept = (float(w) for w in weights)
    return Platt(slope / scale, intercept - slope * center / scale)


# --------------------------------------------------------------------------------- internals


def _descend(
    design: NDArray[np.float64],
    wanted: NDArray[np.float64],
    weights: NDArray[np.float64],
    step: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Take the Newton step, halved until the loss does not rise."""

    def loss(at: NDArray[np.float64]) -> float:
        z = design @ at
        return float((np.logaddexp(0, z) - wanted * z).sum())

    before = loss(weights)
    for power in range(40):
        found: NDArray[np.float64] = weights - step * 0.5**power
        if loss(found) <= before:
            return found
    return weights


def _binned(
    p: ArrayLike, y: ArrayLike, bins: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    if bins < 1:
        raise ValueError(f"need bins >= 1, got {bins}")
    prob, label = probabilities(p), _labels(y)
    if prob.shape != label.shape:
        raise ValueError(f"need a label for each probability, got {label.shape} for {prob.shape}")
    edges = np.arange(bins + 1) / bins
    index = np.maximum(np.searchsorted(edges, prob, side="left") - 1, 0)
    return prob, label, index.astype(np.int64)


def _labels(y: ArrayLike) -> NDArray[np.float64]:
    label = np.asarray(y, dtype=np.float64)
    if label.ndim != 1 or not np.isin(label, (0.0, 1.0)).all():
        raise ValueError("labels must be True or 1, False or 0, in one dimension")
    return label


def _interval(
    excess: NDArray[np.float64],
    index: NDArray[np.int64],
    clusters: Sequence[Any],
    how: Resampling,
    bins: int,
) -> Interval | None:
    labels = {label: i for i, label in enumerate(sorted(set(clusters)))}
    if len(labels) < MIN_GROUPS:
        return None
    member = np.array([labels[label] for label in clusters])
    sums = np.zeros((len(labels), bins))
    np.add.at(sums, (member, index), excess)
    counts = cluster_counts(len(labels), how.draws, how.rng)
    found = np.abs(counts @ sums).sum(axis=1) / (counts @ np.bincount(member))
    tail = (1 - how.confidence) / 2
    low, high = np.quantile(found, [tail, 1 - tail])
    return Interval(float(low), float(high))
