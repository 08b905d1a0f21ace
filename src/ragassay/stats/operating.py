"""How calibrated detectors do under attack: what they flag, intercept and let through.

Source: "Prevented is not protected", appendices D and H (thresholds from held-out clean
contexts, hard abstention, interception with Wilson intervals, medians by budget); DeLong, DeLong
and Clarke-Pearson (1988), Biometrics 44(3) (variance of the AUROC); Newcombe (2006), Statistics
in Medicine 25(4), part 2, method 5 (its score interval).

Deviations: a context without a score (too small for a detector) is never flagged; it stays in
every denominator but those of the AUROC and the medians, which count it apart.
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

from ragassay.stats.detection import auroc, calibrate_threshold
from ragassay.stats.intervals import MIN_GROUPS, Interval
from ragassay.stats.proportions import Proportion, proportion

NOMINAL_RATES = (0.01, 0.05, 0.10, 0.20)
Scores = Sequence[float | None] | NDArray[np.float64]
"""Anomaly scores, larger is more suspicious; None or NaN where a context has none."""
Labels = Sequence[bool | None]
_DRAWS_AT_ONCE = 2**21


# -------------------------------------------------------------------------------- thresholds


@dataclass(frozen=True, slots=True)
class Threshold:
    """The rule "flag iff score > value", from ``n`` clean scores; None where n is 0."""

    fpr: float
    value: float | None
    n: int


def nominal_thresholds(
    calibration: Scores, rates: Sequence[float] = NOMINAL_RATES
) -> tuple[Threshold, ...]:
    """Choose a threshold for each nominal false-positive rate on clean calibration contexts.

    Parameters
    ----------
    calibration : sequence of float or None, length n
        Scores of clean contexts that are in no evaluation.
    rates : sequence of float
        Nominal rates in (0, 1).

    Returns
    -------
    tuple of Threshold
        In the order of ``rates``; at most that share of the calibration scores is above.

    Raises
    ------
    ValueError
        A score is infinite, or a rate is out of range.

    Examples
    --------
    >>> [threshold.value for threshold in nominal_thresholds(range(100), [0.01, 0.2])]
    [98.0, 79.0]
    """
    known = _known(calibration)
    for rate in rates:
        if not 0 < rate < 1:
            raise ValueError(f"need 0 < fpr < 1, got {rate}")
    return tuple(
        Threshold(rate, calibrate_threshold(known, rate) if len(known) else None, len(known))
        for rate in rates
    )


# --------------------------------------------------------------------------- operating points


@dataclass(frozen=True, slots=True)
class AttackedContexts:
    """The contexts of one cell (attack, budget), in one order.

    Parameters
    ----------
    scores : sequence of float or None
        Anomaly score of each context.
    target : sequence of bool or None
        Whether the undefended answer is target-positive; None where not known.
    newly_induced : sequence of bool or None
        Whether it is, and the clean answer is not; None where not known.
    """

    scores: Scores
    target: Labels
    newly_induced: Labels


@dataclass(frozen=True, slots=True)
class OperatingReport:
    """One detector at one threshold on one cell.

    Parameters
    ----------
    flagged : Proportion
        Flagged contexts of all contexts of the cell.
    intercepted, intercepted_new : Proportion
        Flagged ones of the target-positive and of the newly induced contexts.
    target_before, target_after : Proportion
        Target-positive answers without the detector and after hard abstention, of the contexts
        whose undefended label is known.
    clean_fpr : Proportion
        Flagged ones of the clean test contexts: the realized false-positive rate.
    unscored, unlabeled : int
        Contexts of the cell without a score (never flagged) and without a target label.
    """

    threshold: float
    flagged: Proportion
    intercepted: Proportion
    intercepted_new: Proportion
    target_before: Proportion
    target_after: Proportion
    clean_fpr: Proportion
    unscored: int
    unlabeled: int


def operating_report(
    threshold: float | None, cell: AttackedContexts, clean: Scores, *, confidence: float = 0.95
) -> OperatingReport | None:
    """Evaluate the rule "flag iff score > threshold, and abstain" on one cell.

    Parameters
    ----------
    threshold : float or None
        From :func:`nominal_thresholds`.
    cell : AttackedContexts
        Scores and labels of the attacked contexts.
    clean : sequence of float or None
        Scores of clean test contexts, which were not calibrated on.
    confidence : float
        Level of the Wilson intervals, which count contexts as independent.

    Returns
    -------
    OperatingReport or None
        None where there is no threshold.

    Raises
    ------
    ValueError
        Lengths differ, or a score or the threshold is not finite.

    Examples
    --------
    >>> cell = AttackedContexts([0.9, 0.1, 0.8], [True, True, False], [True, False, False])
    >>> report = operating_report(0.5, cell, [0.2, 0.3])
    >>> report.intercepted.value, report.target_after.count, report.clean_fpr.count
    (0.5, 1, 0)
    """
    if threshold is None:
        return None
    if not np.isfinite(threshold):
        raise ValueError(f"need a finite threshold, got {threshold}")
    scores, target, new = _array(cell.scores), list(cell.target), list(cell.newly_induced)
    if not len(scores) == len(target) == len(new):
        raise ValueError(
            f"need one score and two labels a context, got {len(scores)} scores, "
            f"{len(target)} and {len(new)} labels"
        )
    flags = (scores > threshold).tolist()  # false for NaN
    clean_flags = _array(clean) > threshold

    def rate(events: Sequence[bool]) -> Proportion:
        return proportion(sum(events), len(events), confidence=confidence)

    known = [(flag, bool(label)) for flag, label in zip(flags, target, strict=True)
             if label is not None]  # fmt: skip
    return OperatingReport(
        threshold=float(threshold),
        flagged=rate(flags),
        intercepted=rate([flag for flag, label in known if label]),
        intercepted_new=rate([flag for flag, label in zip(flags, new, strict=True) if label]),
        target_before=rate([label for _, label in known]),
        target_after=rate([label and not flag for flag, label in known]),
        clean_fpr=rate(clean_flags.tolist()),
        unscored=int(np.isnan(scores).sum()),
        unlabeled=len(target) - len(known),
    )


# -------------------------------------------------------------------------------------- AUROC


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
    p, n = _known(positive), _known(negative)
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
    counts = _cluster_counts(len(labels), draws, rng)
    pairs = (counts @ p_sizes) * (counts @ n_sizes)
    complete = pairs > 0
    found = ((counts @ wins) * counts).sum(axis=1)[complete] / pairs[complete]
    tail = (1 - confidence) / 2
    if len(found) == 0:
        return AurocEstimate(value, None, "none", len(p), len(n), unscored)
    low, high = np.quantile(found, [tail, 1 - tail])
    interval = Interval(float(low), float(high))
    return AurocEstimate(value, interval, "cluster bootstrap", len(p), len(n), unscored)


# ------------------------------------------------------------------------- medians by budget


@dataclass(frozen=True, slots=True)
class BudgetScores:
    """Quartiles of the scores of the contexts with one poison budget; None where none scored."""

    budget: int
    n: int
    unscored: int
    lower_quartile: float | None
    median: float | None
    upper_quartile: float | None


def scores_by_budget(scores: Scores, budgets: Sequence[int]) -> tuple[BudgetScores, ...]:
    """Summarize scores by poison budget (0: clean), so that a collapse shows.

    Parameters
    ----------
    scores : sequence of float or None, length n
        Anomaly scores.
    budgets : sequence of int, length n
        Poison budget of each context.

    Returns
    -------
    tuple of BudgetScores
        By ascending budget; quartiles by linear interpolation.

    Raises
    ------
    ValueError
        The lengths differ, or a score is infinite.

    Examples
    --------
    >>> [(row.budget, row.median) for row in scores_by_budget([0.1, 0.9, 0.7], [0, 1, 1])]
    [(0, 0.1), (1, 0.8)]
    """
    values = _array(scores)
    if len(values) != len(budgets):
        raise ValueError(f"need one budget a score, got {len(budgets)} for {len(values)}")
    of = np.asarray(budgets, dtype=np.int64)
    rows = []
    for budget in np.unique(of).tolist():
        cell = values[of == budget]
        known = cell[~np.isnan(cell)]
        quartiles: list[float | None] = [None, None, None]
        if len(known):
            quartiles = [float(q) for q in np.quantile(known, [0.25, 0.5, 0.75])]
        rows.append(BudgetScores(budget, len(known), len(cell) - len(known), *quartiles))
    return tuple(rows)


# --------------------------------------------------------------------------------- internals


def _array(scores: Scores) -> NDArray[np.float64]:
    values = np.array([np.nan if s is None else s for s in scores], dtype=np.float64)
    if values.ndim != 1 or np.isinf(values).any():
        raise ValueError(f"need a list of finite scores, got shape {values.shape}")
    return values


def _known(scores: Scores) -> NDArray[np.float64]:
    values = _array(scores)
    return values[~np.isnan(values)]


def _grouped(cell: GroupedScores) -> tuple[NDArray[np.float64], list[Any]]:
    values = _array(cell.scores)
    if len(values) != len(cell.groups):
        raise ValueError(f"need one group a score, got {len(cell.groups)} for {len(values)}")
    groups = [group for group, score in zip(cell.groups, values, strict=True) if score == score]
    return values[~np.isnan(values)], groups


def _cluster_counts(groups: int, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """How often each cluster is drawn in each resample, shape (draws, groups)."""
    counts = np.zeros((draws, groups))
    step = max(1, _DRAWS_AT_ONCE // groups)
    for start in range(0, draws, step):
        part = counts[start : start + step]
        picks = rng.integers(groups, size=(len(part), groups))
        np.add.at(part, (np.arange(len(part))[:, None], picks), 1.0)
    return counts


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
