"""How calibrated detectors do under attack: what they flag, intercept and let through.

Source: "Prevented is not protected", appendices D and H (thresholds from held-out clean
contexts, hard abstention, interception with Wilson intervals, medians by budget).

Deviations: a context without a score (too small for a detector) is never flagged; it stays in
every denominator but that of the medians, which count it apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragassay.stats.detection import calibrate_threshold
from ragassay.stats.proportions import Proportion, proportion
from ragassay.stats.roc import Scores, known_scores, score_array

NOMINAL_RATES = (0.01, 0.05, 0.10, 0.20)
Labels = Sequence[bool | None]


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
    known = known_scores(calibration)
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
    scores, target, new = score_array(cell.scores), list(cell.target), list(cell.newly_induced)
    if not len(scores) == len(target) == len(new):
        raise ValueError(
            f"need one score and two labels a context, got {len(scores)} scores, "
            f"{len(target)} and {len(new)} labels"
        )
    flags = (scores > threshold).tolist()  # false for NaN
    clean_flags = score_array(clean) > threshold

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
    values = score_array(scores)
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
