"""The dose at which half of the clean-correct answers fall.

Source: Firth (1993), Biometrika 80(1), and Heinze and Schemper (2002), Statistics in Medicine
21(16), for the logistic fit; Ayer et al. (1955), Annals of Mathematical Statistics 26(4), for
the isotonic one. "In RAG We Trust?" (Fasolino, 2026) gives the dose-response and fits no model.

Deviations: none; the model is ours. Nothing is extrapolated beyond the doses observed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import expit

from ragassay.stats.dose import Counts, Resampling
from ragassay.stats.dose_table import DoseTable, Floats, nondecreasing_rows
from ragassay.stats.intervals import MIN_GROUPS
from ragassay.stats.paired import Labels

Model = Literal["logistic", "isotonic"]
_STEPS = 60
_LONGEST_STEP = 3.0


@dataclass(frozen=True, slots=True)
class ED50:
    """The dose at which the modeled fooled rate is one half.

    ``value`` is None where it is not estimable, and ``reason`` says why. ``low`` and ``high``
    bound it; None there means beyond the doses observed. ``estimable`` is the share of
    resamples with an estimate. ``intercept`` and ``slope`` are those of the logistic curve.
    """

    model: Model
    value: float | None
    reason: str
    low: float | None
    high: float | None
    estimable: float | None
    intercept: float | None = None
    slope: float | None = None


def ed50(
    doses: Counts, fooled: Labels, groups: Sequence[Any], how: Resampling,
    *, model: Model = "logistic",
) -> ED50:  # fmt: skip
    """Estimate the dose at which half of the clean-correct answers fall.

    Parameters
    ----------
    doses : array of int, shape (n,)
        Applied dose of each clean-correct run.
    fooled : array of bool, shape (n,)
        Whether the corrupted answer is not correct.
    groups : sequence, length n
        Question text, the unit of resampling.
    how : Resampling
        Draws, level and generator.
    model : "logistic" or "isotonic"
        A logistic curve over the dose, fitted with Firth's penalty (finite under
        separation), or the nondecreasing step fit, interpolated linearly.

    Returns
    -------
    ED50
        Nothing is extrapolated: outside of the observed doses it is not estimable. Resamples
        without an estimate count as beyond the doses on the side where they lie.

    Raises
    ------
    ValueError
        The lengths differ or the model is unknown.

    Examples
    --------
    >>> doses = np.repeat([0, 1, 2, 3], 10)
    >>> share = np.repeat([0, 3, 7, 10], 10)
    >>> fooled = np.tile(np.arange(10), 4) < share
    >>> found = ed50(doses, fooled, list(range(40)), Resampling(np.random.default_rng(1)))
    >>> round(found.value, 2)
    1.5
    """
    table = DoseTable.of(doses, fooled, groups)
    if model not in ("logistic", "isotonic"):
        raise ValueError(f"need model to be logistic or isotonic, got {model!r}")
    if table is None or len(table.doses) < 2:
        return ED50(model, None, "fewer than two doses", None, None, None)
    locate = _logistic_half if model == "logistic" else _isotonic_half
    hits, sizes = table.hits.sum(axis=0), table.sizes.sum(axis=0)
    value = float(locate(table.doses, hits[None], sizes[None])[0])
    intercept = slope = None
    if model == "logistic":
        a, b = firth_logistic(table.doses, hits[None], sizes[None])
        intercept, slope = float(a[0]), float(b[0])
    reason = _why_not(value, hits, sizes)
    if len(table.hits) < MIN_GROUPS:
        low = high = share = None
    else:
        drawn = np.concatenate([locate(table.doses, h, s) for h, s in table.resamples(how)])
        share = float(np.isfinite(drawn).mean())
        low, high = _bounds(drawn, how.confidence)
    found = None if reason else value
    return ED50(model, found, reason, low, high, share, intercept, slope)


def _why_not(value: float, hits: Floats, sizes: Floats) -> str:
    if np.isposinf(value):
        return "half is not reached at the largest dose"
    if np.isneginf(value):
        return "half has fallen at the smallest dose"
    if np.isnan(value):
        top = float((hits / sizes).max())
        return "the rate does not rise with the dose" if top else "no answer falls"
    return ""


def _bounds(drawn: Floats, confidence: float) -> tuple[float | None, float | None]:
    """Return percentiles; one that lies beyond the doses is None."""
    known = np.sort(np.where(np.isnan(drawn), np.inf, drawn))  # no rise: never half
    tail = (1 - confidence) / 2
    ends = (known[int(np.floor(tail * (len(known) - 1)))],
            known[int(np.ceil((1 - tail) * (len(known) - 1)))])  # fmt: skip
    low, high = (float(end) if np.isfinite(end) else None for end in ends)
    return low, high


def firth_logistic(doses: Floats, hits: Floats, sizes: Floats) -> tuple[Floats, Floats]:
    """Fit logit p = a + b dose to counts, with Firth's penalty, for many tables at once.

    Parameters
    ----------
    doses : array, shape (d,)
        Two different ones at least.
    hits, sizes : array, shape (m, d)
        Events and runs at each dose, one row per table; a size may be 0.

    Returns
    -------
    tuple of arrays, shape (m,)
        Intercepts and slopes; NaN where a table has fewer than two doses.

    Examples
    --------
    >>> counts = np.array([[0.0, 10.0]]), np.array([[10.0, 10.0]])
    >>> a, b = firth_logistic(np.array([0.0, 1.0]), *counts)
    >>> bool(abs(a[0] + np.log(21)) < 1e-6), bool(abs(b[0] - 2 * np.log(21)) < 1e-6)
    (True, True)
    """
    a, b = np.zeros(len(hits)), np.zeros(len(hits))
    poor = (sizes > 0).sum(axis=1) < 2
    for _ in range(_STEPS):
        p = expit(a[:, None] + b[:, None] * doses)
        weight = np.maximum(sizes * p * (1 - p), 1e-12 * (sizes > 0))
        s0, s1, s2 = (
            weight.sum(axis=1), (weight * doses).sum(axis=1), (weight * doses**2).sum(axis=1),
        )  # fmt: skip
        det = np.where(poor, 1.0, s0 * s2 - s1**2)
        leverage = weight * (s2[:, None] - 2 * doses * s1[:, None] + doses**2 * s0[:, None])
        pull = hits - sizes * p + leverage / det[:, None] * (0.5 - p)
        u0, u1 = pull.sum(axis=1), (pull * doses).sum(axis=1)
        step_a, step_b = (s2 * u0 - s1 * u1) / det, (s0 * u1 - s1 * u0) / det
        longest = np.maximum(np.abs(step_a), np.abs(step_b))
        shrink = np.minimum(1.0, _LONGEST_STEP / np.maximum(longest, 1e-300))
        a, b = a + shrink * step_a, b + shrink * step_b
        if longest[~poor].max(initial=0.0) < 1e-10:
            break
    return np.where(poor, np.nan, a), np.where(poor, np.nan, b)


def _logistic_half(doses: Floats, hits: Floats, sizes: Floats) -> Floats:
    """Return the dose of one half per table: +inf beyond the doses, -inf below, NaN no rise."""
    a, b = firth_logistic(doses, hits, sizes)
    with np.errstate(divide="ignore", invalid="ignore"):
        half = -a / b
    half = np.where(b > 1e-9, half, np.nan)
    return np.where(half > doses[-1], np.inf, np.where(half < doses[0], -np.inf, half))


def _isotonic_half(doses: Floats, hits: Floats, sizes: Floats) -> Floats:
    """The dose of one half of the nearest nondecreasing curve of each table, interpolated."""
    fitted = nondecreasing_rows(hits, sizes)
    found = np.full(len(hits), np.inf)
    open_ = np.ones(len(hits), dtype=np.bool_)
    last_dose, last = np.full((2, len(hits)), np.nan)
    for dose, level in zip(doses, fitted.T, strict=True):
        here = open_ & ~np.isnan(level)  # a resample may miss a dose
        first = here & np.isnan(last) & (level >= 0.5)
        found[first] = np.where(level[first] == 0.5, dose, -np.inf)
        later = here & ~np.isnan(last) & (level >= 0.5)
        share = (0.5 - last[later]) / (level[later] - last[later])
        found[later] = last_dose[later] + share * (dose - last_dose[later])
        open_ &= ~(first | later)
        last_dose[here], last[here] = dose, level[here]
    return found
