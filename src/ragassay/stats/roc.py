"""The area under the ROC curve of a detector, with an interval.

Source: DeLong, DeLong and Clarke-Pearson (1988), Biometrics 44(3) (variance); Newcombe (2006),
Statistics in Medicine 25(4), part 2, method 5 (score interval).

Deviations: DeLong's variance is zero where the classes separate fully, which is common here and
is not certainty; the score interval stands in there. A context without a score is in neither
class and is counted apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import rankdata

from ragassay.stats.detection import auroc
from ragassay.stats.intervals import MIN_GROUPS, Interval

Scores = Sequence[float | None] | NDArray[np.float64]
"""Anomaly scores, larger is more suspicious; None or NaN where a context has none."""
_DRAWS_AT_ONCE = 2**21


def score_array(scores: Scores) -> NDArray[np.float64]:
    """Return scores as an array of shape (n,) with NaN where there is none.

    Raises
    ------
    ValueError
        A score is infinite.
    """
    values = np.array([np.nan if s is None else s for s in scores], dtype=np.float64)
    if values.ndim != 1 or np.isinf(values).any():
        raise ValueError(f"need a list of finite scores, got shape {values.shape}")
    return values


def known_scores(scores: Scores) -> NDArray[np.float64]:
    """Return the scores that are there, in order.

    Raises
    ------
    ValueError
        A score is infinite.
    """
    values = score_array(scores)
    return values[~np.isnan(values)]


@dataclass(frozen=True, slots=True)
class AurocEstimate:
    """Area under the ROC curve, ties counted one half.

    ``method`` names the interval: "delong"; "score" where DeLong's variance is zero or not
    defined (as at 0 and 1, where it would claim certainty); "cluster bootstrap"; or "none".
    """

    value: float | None
    interval: Interval | None
    method: Literal["delong", "score", "cluster bootstrap", "none"]
    n_positive: int
    n_negative: int
    unscored: int


def auroc_interval(
    positive: Scores, negative: Scores, *, confidence: float = 0.95
) -> AurocEstimate:
    """Estimate the AUROC with an interval that counts contexts as independent.

    Parameters
    ----------
    positive, negative : sequence of float or None
        Scores of attacked and of clean contexts.
    confidence : float
        Two-sided level in (0, 1).

    Returns
    -------
    AurocEstimate
        Value and interval are None where a class has no score.

    Raises
    ------
    ValueError
        A score is infinite, or the level is out of range.

    References
    ----------
    DeLong et al. (1988), Biometrics 44(3), 837-845; Newcombe (2006), Statistics in Medicine
    25(4), 559-573.

    Examples
    --------
    >>> auroc_interval([0.9, 0.5], [0.5, 0.1]).value
    0.875
    """
    if not 0 < confidence < 1:
        raise ValueError(f"need 0 < confidence < 1, got {confidence}")
    p, n = known_scores(positive), known_scores(negative)
    value = auroc(p, n)
    unscored = len(positive) + len(negative) - len(p) - len(n)
    if value is None:
        return AurocEstimate(None, None, "none", len(p), len(n), unscored)
    z = float(ndtri(0.5 + confidence / 2))
    variance = _delong_variance(p, n)
    if variance is None or variance <= 0:
        interval = _score_interval(value, len(p), len(n), z)
        return AurocEstimate(value, interval, "score", len(p), len(n), unscored)
    half = z * variance**0.5
    interval = Interval(max(0.0, value - half), min(1.0, value + half))
    return AurocEstimate(value, interval, "delong", len(p), len(n), unscored)


@dataclass(frozen=True, slots=True)
class GroupedScores:
    """Scores of contexts and the cluster (query or injection group) of each."""

    scores: Scores
    groups: Sequence[Any]


def auroc_bootstrap(
    positive: GroupedScores,
    negative: GroupedScores,
    *,
    rng: np.random.Generator,
    draws: int = 10_000,
    confidence: float = 0.95,
) -> AurocEstimate:
    """Estimate the AUROC with an interval from resampling whole clusters.

    A cluster keeps its attacked and its clean contexts together, since they share queries.
    Percentile interval, linear interpolation; resamples that lack a class are left out.

    Parameters
    ----------
    positive, negative : GroupedScores
        Attacked and clean contexts; equal labels are one cluster.
    rng : numpy.random.Generator
        The only source of randomness.
    draws : int
        Number of resamples.
    confidence : float
        Two-sided level in (0, 1).

    Returns
    -------
    AurocEstimate
        Without an interval where there are fewer than two clusters with scores.

    Raises
    ------
    ValueError
        Lengths differ, a score is infinite, or ``draws`` or ``confidence`` is out of range.
    """
    if draws < 1 or not 0 < confidence < 1:
        raise ValueError(f"need draws >= 1 and 0 < confidence < 1, got {draws}, {confidence}")
    (p, p_groups), (n, n_groups) = _grouped(positive), _grouped(negative)
    value = auroc(p, n)
    unscored = len(positive.scores) + len(negative.scores) - len(p) - len(n)
    labels = {label: i for i, label in enumerate(sorted({*p_groups, *n_groups}))}
    if value is None or len(labels) < MIN_GROUPS:
        return AurocEstimate(value, None, "none", len(p), len(n), unscored)
    p_index = np.array([labels[group] for group in p_groups])
    n_index = np.array([labels[group] for group in n_groups])
    wins = np.zeros((len(labels), len(labels)))
    above = (p[:, None] > n[None, :]) + 0.5 * (p[:, None] == n[None, :])
    np.add.at(wins, (p_index[:, None], n_index[None, :]), above)
    p_sizes = np.bincount(p_index, minlength=len(labels))
    n_sizes = np.bincount(n_index, minlength=len(labels))
    counts = cluster_counts(len(labels), draws, rng)
    pairs = (counts @ p_sizes) * (counts @ n_sizes)
    complete = pairs > 0
    found = ((counts @ wins) * counts).sum(axis=1)[complete] / pairs[complete]
    tail = (1 - confidence) / 2
    if len(found) == 0:
        return AurocEstimate(value, None, "none", len(p), len(n), unscored)
    low, high = np.quantile(found, [tail, 1 - tail])
    interval = Interval(float(low), float(high))
    return AurocEstimate(value, interval, "cluster bootstrap", len(p), len(n), unscored)


def cluster_counts(groups: int, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw clusters with replacement: how often each is drawn, shape (draws, groups)."""
    counts = np.zeros((draws, groups))
    step = max(1, _DRAWS_AT_ONCE // groups)
    for start in range(0, draws, step):
        part = counts[start : start + step]
        picks = rng.integers(groups, size=(len(part), groups))
        np.add.at(part, (np.arange(len(part))[:, None], picks), 1.0)
    return counts


# --------------------------------------------------------------------------------- internals


def _grouped(cell: GroupedScores) -> tuple[NDArray[np.float64], list[Any]]:
    values = score_array(cell.scores)
    if len(values) != len(cell.groups):
        raise ValueError(f"need one group a score, got {len(cell.groups)} for {len(values)}")
    groups = [group for group, score in zip(cell.groups, values, strict=True) if score == score]
    return values[~np.isnan(values)], groups


def _delong_variance(p: NDArray[np.float64], n: NDArray[np.float64]) -> float | None:
    """Variance of the AUROC from the placements of each score among the other class."""
    if len(p) < 2 or len(n) < 2:
        return None
    ranks = rankdata(np.concatenate([p, n]))
    above = (ranks[: len(p)] - rankdata(p)) / len(n)
    below = 1 - (ranks[len(p) :] - rankdata(n)) / len(p)
    return float(above.var(ddof=1) / len(p) + below.var(ddof=1) / len(n))


def _score_interval(value: float, m: int, n: int, z: float) -> Interval:
    """Newcombe's method 5: the true values that lie within z of their own standard error."""
    extra = (m + n) / 2 - 1

    def excess(true: float) -> float:
        factor = z * z / (m * n) * (1 + extra * ((1 - true) / (2 - true) + true / (1 + true)))
        if value == 0:  # both sides divided by their common root, true = 0
            return true - factor * (1 - true)
        if value == 1:  # likewise 1 - true
            return (1 - true) - factor * true
        return (value - true) ** 2 - factor * true * (1 - true)

    low = 0.0 if value == 0 else float(brentq(excess, 0.0, value))
    high = 1.0 if value == 1 else float(brentq(excess, value, 1.0))
    return Interval(low, high)
