"""Abstain when the retrieval scores of a context look unlike those of clean contexts.

A single poisoned passage often scores far above its clean neighbors. The orientation was fixed
before testing and is not an option: larger = more anomalous, where the smallest score counts
negatively. Under many poisoned passages the scores are uniformly high and these detectors are
expected to fail; the sign is not to be flipped afterwards.

Source: aligned evaluation of RAG defenses ("Prevented is not protected"), section 3.1 and
appendices D and H: minimum score (``rc_min``), score gap (``rc_gap``) and score dispersion
(``rc_dstd``), calibrated on clean queries to a nominal false-positive rate, flagged contexts
hard-abstained.

Deviations: calibration contexts are chosen by the experiment (held out, or the clean contexts of
other injection groups), not fixed at 500. A context without passages has no score and is never
flagged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ragassay.defenses.abstention import CalibratedDetector, UncalibratedDetector, calibrated
from ragassay.plugins import Tools
from ragassay.stats.detection import score_statistics
from ragassay.types import Hit, Query, Verdict

Statistic = Literal["gap", "dispersion", "minimum"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedScoreDetector(CalibratedDetector):
    """Abstain if a statistic of the retrieval scores exceeds a calibrated threshold.

    Parameters
    ----------
    statistic : {"gap", "dispersion", "minimum"}
        Largest minus smallest score, the population standard deviation of the scores, or minus
        the smallest score.
    threshold : float
        A context is flagged if its statistic is strictly above.
    n_calibration : int
        Number of clean contexts that the threshold comes from.
    fpr : float
        Nominal false-positive rate.
    """

    version: ClassVar[str] = "1"
    statistic: Statistic

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Abstain on a flagged context, else keep all hits."""
        return self.judge(hits, context_score(hits, self.statistic) if hits else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScoreDetector(UncalibratedDetector):
    """What the three detectors are before they have seen clean contexts."""

    statistic: ClassVar[Statistic]

    def fit(
        self, clean: Sequence[tuple[Query, tuple[Hit, ...]]], tools: Tools
    ) -> CalibratedScoreDetector:
        """Calibrate on clean contexts."""
        calibration = calibrated(
            [context_score(hits, self.statistic) if hits else None for _, hits in clean],
            self.fpr,
            detector=f"score {self.statistic}",
            needs="passages",
        )
        return CalibratedScoreDetector(
            statistic=self.statistic,
            fpr=self.fpr,
            threshold=calibration.threshold,
            n_calibration=calibration.n_calibration,
            thresholds=calibration.thresholds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreGap(_ScoreDetector):
    """Abstain if the best retrieval score is far above the worst (calibrated).

    Parameters
    ----------
    fpr : float
        Nominal false-positive rate on clean contexts, in (0, 1).
    """

    statistic: ClassVar[Statistic] = "gap"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreDispersion(_ScoreDetector):
    """Abstain if the retrieval scores are widely spread (calibrated).

    Parameters
    ----------
    fpr : float
        Nominal false-positive rate on clean contexts, in (0, 1).
    """

    statistic: ClassVar[Statistic] = "dispersion"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreMinimum(_ScoreDetector):
    """Abstain if the worst retrieval score is unusually low (calibrated).

    Parameters
    ----------
    fpr : float
        Nominal false-positive rate on clean contexts, in (0, 1).
    """

    statistic: ClassVar[Statistic] = "minimum"


def context_score(hits: Sequence[Hit], statistic: Statistic) -> float:
    """Return a statistic of the retrieval scores of a context (at least one hit)."""
    found = score_statistics(np.array([hit.score for hit in hits], dtype=np.float64))
    if statistic == "gap":
        return found.gap
    return found.dispersion if statistic == "dispersion" else found.negative_min
