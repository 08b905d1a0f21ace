"""Does an outcome rise with the dose: a trend test, and a test for a fall anywhere.

Source: Cochran (1954), Biometrics 10(4), and Armitage (1955), Biometrics 11(3), for the trend;
Robertson, Wright and Dykstra (1988), Order Restricted Statistical Inference, for the distance
from the nearest nondecreasing curve.

Deviations: the permutation of the trend test stays within questions, so that an easy question
at a low dose does not pass for an effect. The distance is tested by a bootstrap over questions,
recentered on the nearest nondecreasing curve, since runs of a question are not independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragassay.stats.dose import Counts, Resampling
from ragassay.stats.dose_table import (
    CELLS_AT_ONCE,
    DoseTable,
    Floats,
    check_runs,
    nondecreasing,
    nondecreasing_rows,
)
from ragassay.stats.intervals import MIN_GROUPS, Interval
from ragassay.stats.paired import Labels


@dataclass(frozen=True, slots=True)
class Step:
    """The change of a rate from one dose to the next, a fraction, with its interval."""

    lower: int
    upper: int
    value: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Monotonicity:
    """Does the rate rise with the dose everywhere?

    ``rises`` tells of the observed rates. ``distance`` is the weighted squared distance of the
    rates from the nearest nondecreasing curve, ``p_value`` that of a distance as large under
    that curve; small means that the rate falls somewhere. None below two questions.
    """

    rates: tuple[float, ...]
    nearest: tuple[float, ...]
    rises: bool
    distance: float
    p_value: float | None
    steps: tuple[Step, ...]


def monotonicity(
    doses: Counts, outcome: Labels, groups: Sequence[Any], how: Resampling
) -> Monotonicity | None:
    """Test whether an outcome's rate is nondecreasing in the dose.

    Parameters
    ----------
    doses : array of int, shape (n,)
        Applied dose of each run.
    outcome : array of bool, shape (n,)
        Fooled (of clean-correct runs), adopted or abstained.
    groups : sequence, length n
        Question text, the unit of resampling.
    how : Resampling
        Draws, level and generator.

    Returns
    -------
    Monotonicity or None
        None with fewer than two doses: there is nothing to be monotone in.

    Examples
    --------
    >>> doses = np.repeat([1, 2, 3], 50)
    >>> outcome = np.tile(np.arange(50), 3) < np.repeat([10, 40, 12], 50)
    >>> found = monotonicity(doses, outcome, list(range(150)), Resampling(np.random.default_rng(1)))
    >>> found.rises, found.p_value < 0.05
    (False, True)
    """
    table = DoseTable.of(doses, outcome, groups)
    if table is None or len(table.doses) < 2:
        return None
    sizes = table.sizes.sum(axis=0)
    rates = table.hits.sum(axis=0) / sizes
    nearest = nondecreasing(rates, sizes)
    distance = float((sizes * (rates - nearest) ** 2).sum())
    rises = bool((np.diff(rates) >= 0).all())
    p_value, spans = None, [None] * (len(rates) - 1)
    if len(table.hits) >= MIN_GROUPS:
        p_value, spans = _tested(table, rates, nearest, distance, how)  # type: ignore[assignment]
    steps = tuple(
        Step(int(a), int(b), float(change), span)
        for a, b, change, span in zip(
            table.doses[:-1], table.doses[1:], np.diff(rates), spans, strict=True
        )
    )
    return Monotonicity(
        tuple(map(float, rates)), tuple(map(float, nearest)), rises, 0.0 if rises else distance,
        p_value, steps,
    )  # fmt: skip


def _tested(
    table: DoseTable, rates: Floats, nearest: Floats, distance: float, how: Resampling
) -> tuple[float, list[Interval | None]]:
    drawn, weights = [], []
    for hits, sizes in table.resamples(how):
        full = (sizes > 0).all(axis=1)  # a resample may miss a dose
        drawn.append(hits[full] / sizes[full])
        weights.append(sizes[full])
    found, size = np.concatenate(drawn), np.concatenate(weights)
    changes = np.diff(found, axis=1)
    tail = (1 - how.confidence) / 2
    if not len(found):
        return 1.0, [None] * changes.shape[1]
    low, high = np.quantile(changes, [tail, 1 - tail], axis=0)
    spans: list[Interval | None] = [
        Interval(float(a), float(b)) for a, b in zip(low, high, strict=True)
    ]
    if not (np.diff(rates) < 0).any():
        return 1.0, spans
    moved = found - rates + nearest
    far = (size * (moved - nondecreasing_rows(moved * size, size)) ** 2).sum(axis=1)
    return float((1 + (far >= distance - 1e-12).sum()) / (1 + len(far))), spans


@dataclass(frozen=True, slots=True)
class Trend:
    """A linear trend of an outcome over the dose.

    ``z`` is the stratified Cochran-Armitage statistic, above 0 where the rate rises;
    ``p_value`` is two-sided, by permutation within questions. ``informative`` counts the
    questions that have more than one dose and more than one outcome; only they say anything.
    """

    z: float
    p_value: float
    informative: int


def trend(doses: Counts, outcome: Labels, groups: Sequence[Any], how: Resampling) -> Trend | None:
    """Test whether an outcome's rate changes linearly with the dose.

    Under the hypothesis that the dose does nothing, the outcomes of a question's runs could
    have come in any order; they are permuted within each question.

    Parameters
    ----------
    doses, outcome, groups, how
        As for :func:`monotonicity`. Give every run one group for the test without strata.

    Returns
    -------
    Trend or None
        None where no question has both several doses and several outcomes.

    Examples
    --------
    >>> doses = np.tile([0, 1, 2, 3], 10)
    >>> outcome = doses >= 2
    >>> found = trend(doses, outcome, [i // 4 for i in range(40)],
    ...               Resampling(np.random.default_rng(1), draws=999))
    >>> round(found.z, 2), found.p_value, found.informative
    (4.9, 0.001, 10)
    """
    check_runs(doses, outcome, groups)
    places: dict[Any, list[int]] = {}
    for row, group in enumerate(groups):
        places.setdefault(group, []).append(row)
    x, y = doses.astype(np.float64), outcome.astype(np.float64)
    total = variance = 0.0
    kept = []
    for rows in places.values():
        dx, dy = x[rows] - x[rows].mean(), y[rows] - y[rows].mean()
        spread = float((dx**2).sum() * (dy**2).sum())
        if spread > 0:
            total += float((dx * dy).sum())
            variance += spread / (len(rows) - 1)
            kept.append((dx, dy))
    if not kept:
        return None
    sums = np.zeros(how.draws)
    for dx, dy in kept:
        step = max(1, CELLS_AT_ONCE // len(dx))
        for start in range(0, how.draws, step):
            stop = min(how.draws, start + step)
            drawn = how.rng.permuted(np.tile(dy, (stop - start, 1)), axis=1)
            sums[start:stop] += drawn @ dx
    extreme = int((np.abs(sums) >= abs(total) - 1e-9).sum())
    return Trend(total / variance**0.5, (1 + extreme) / (1 + how.draws), len(kept))
