"""Abstain when the retrieval scores of a context look unlike those of clean contexts.

A single poisoned passage often scores far above its clean neighbors. The orientation was fixed
before testing and is not an option: larger = more anomalous. Under many poisoned passages the
scores are uniformly high and these detectors are expected to fail; the sign is not to be
flipped afterwards.

Source: aligned evaluation of RAG defenses ("Prevented is not protected"), section 3.1 and
appendices D and H: score gap (``rc_gap``) and score dispersion (``rc_dstd``), calibrated on
clean queries to a nominal false-positive rate, flagged contexts hard-abstained.

Deviations: calibration contexts are chosen by the experiment (held out, or the clean contexts of
other injection groups), not fixed at 500. A context without passages has no score and is never
flagged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NoReturn

import numpy as np

from ragassay.errors import ConfigError, NotEstimable
from ragassay.plugins import Tools
from ragassay.stats.detection import calibrate_threshold, score_statistics
from ragassay.types import Hit, Json, Query, Verdict

Statistic = Literal["gap", "dispersion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedScoreDetector:
    """Abstain if a statistic of the retrieval scores exceeds a calibrated threshold.

    Parameters
    ----------
    statistic : {"gap", "dispersion"}
        Largest minus smallest score, or the population standard deviation of the scores.
    threshold : float
        A context is flagged if its statistic is strictly above.
    n_calibration : int
        Number of clean contexts that the threshold comes from.
    fpr : float
        Nominal false-positive rate.
    """

    version: ClassVar[str] = "1"
    statistic: Statistic
    threshold: float
    n_calibration: int
    fpr: float

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Abstain on a flagged context, else keep all hits."""
        score = context_score(hits, self.statistic) if hits else None
        trace: dict[str, Json] = {
            "score": score,
            "threshold": self.threshold,
            "n_calibration": self.n_calibration,
            "fpr": self.fpr,
        }
        flagged = score is not None and score > self.threshold
        return Verdict(
            kept=() if flagged else tuple(hits),
            abstain=flagged,
            suspicion={} if score is None else {"context": score},
            trace=trace,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Uncalibrated:
    """What both detectors are before they have seen clean contexts."""

    version: ClassVar[str] = "1"
    statistic: ClassVar[Statistic]
    fpr: float = 0.01

    def __post_init__(self) -> None:
        _check_fpr(self.fpr)

    def fit(
        self, clean: Sequence[tuple[Query, tuple[Hit, ...]]], tools: Tools
    ) -> CalibratedScoreDetector:
        """Calibrate on clean contexts."""
        return _calibrate(self.statistic, self.fpr, clean)

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Refuse: only what :meth:`fit` returns can judge a context."""
        _not_fitted(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreGap(_Uncalibrated):
    """Abstain if the best retrieval score is far above the worst (calibrated).

    Parameters
    ----------
    fpr : float
        Nominal false-positive rate on clean contexts, in (0, 1).
    """

    statistic: ClassVar[Statistic] = "gap"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreDispersion(_Uncalibrated):
    """Abstain if the retrieval scores are widely spread (calibrated).

    Parameters
    ----------
    fpr : float
        Nominal false-positive rate on clean contexts, in (0, 1).
    """

    statistic: ClassVar[Statistic] = "dispersion"


def context_score(hits: Sequence[Hit], statistic: Statistic) -> float:
    """Return a statistic of the retrieval scores of a context (at least one hit)."""
    statistics = score_statistics(np.array([hit.score for hit in hits], dtype=np.float64))
    return float(statistics.gap if statistic == "gap" else statistics.dispersion)


def _calibrate(
    statistic: Statistic, fpr: float, clean: Sequence[tuple[Query, tuple[Hit, ...]]]
) -> CalibratedScoreDetector:
    scores = [context_score(hits, statistic) for _, hits in clean if hits]
    if not scores:
        raise NotEstimable(
            f"the score {statistic} detector needs clean contexts with passages to calibrate on, "
            f"got {len(clean)} contexts and none with passages"
        )
    return CalibratedScoreDetector(
        statistic=statistic,
        threshold=float(calibrate_threshold(np.array(scores, dtype=np.float64), fpr)),
        n_calibration=len(scores),
        fpr=fpr,
    )


def _check_fpr(fpr: float) -> None:
    if not 0 < fpr < 1:
        raise ConfigError(f"need 0 < fpr < 1, got {fpr}")


def _not_fitted(detector: _Uncalibrated) -> NoReturn:
    name = type(detector).__name__
    raise ConfigError(
        f"{name} is not calibrated: call {name}.fit(clean_contexts, tools) and apply its result"
    )
