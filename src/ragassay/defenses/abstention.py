"""What all calibrated detectors of a retrieved context share: abstain above a threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ragassay.errors import ConfigError, NotEstimable
from ragassay.plugins import Tools
from ragassay.stats.detection import calibrate_threshold
from ragassay.stats.operating import NOMINAL_RATES
from ragassay.types import Hit, Json, Query, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedDetector:
    """A threshold from clean contexts, and what follows from a score.

    Parameters
    ----------
    threshold : float
        A context is flagged if its score is strictly above.
    n_calibration : int
        Number of clean contexts that the threshold comes from.
    fpr : float
        Nominal false-positive rate.
    thresholds : mapping of str to float
        What the same calibration gives at the published nominal rates (``"0.05"``), kept in the
        trace so that every operating point can be read off one run.
    """

    threshold: float
    n_calibration: int
    fpr: float
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def judge(
        self, hits: Sequence[Hit], score: float | None, detail: Mapping[str, Json] | None = None
    ) -> Verdict:
        """Abstain if the score is above the threshold; a context without a score passes."""
        trace: dict[str, Json] = {
            "score": score,
            "threshold": self.threshold,
            "n_calibration": self.n_calibration,
            "fpr": self.fpr,
            "thresholds": dict(self.thresholds),
            **(detail or {}),
        }
        flagged = score is not None and score > self.threshold
        return Verdict(
            kept=() if flagged else tuple(hits),
            abstain=flagged,
            suspicion={} if score is None else {"context": score},
            trace=trace,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UncalibratedDetector:
    """What a detector is before it has seen clean contexts.

    Parameters
    ----------
    fpr : float
        Nominal false-positive rate on clean contexts, in (0, 1).
    """

    version: ClassVar[str] = "1"
    fpr: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.fpr < 1:
            raise ConfigError(f"need 0 < fpr < 1, got {self.fpr}")

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Refuse: only what ``fit`` returns can judge a context."""
        name = type(self).__name__
        raise ConfigError(
            f"{name} is not calibrated: call {name}.fit(clean_contexts, tools) and apply its result"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Thresholds from clean contexts: the detector's own, and those of the published rates."""

    threshold: float
    n_calibration: int
    thresholds: Mapping[str, float]


def calibrated(
    scores: Sequence[float | None], fpr: float, *, detector: str, needs: str
) -> Calibration:
    """Calibrate on the scores of clean contexts.

    Parameters
    ----------
    scores : sequence of float or None
        One per clean context; None where it has no score.
    fpr : float
        Nominal false-positive rate.
    detector, needs : str
        Name of the detector and what a context must have, for the message.

    Raises
    ------
    NotEstimable
        No context has a score.
    """
    found = [score for score in scores if score is not None]
    if not found:
        raise NotEstimable(
            f"the {detector} detector needs clean contexts with {needs} to calibrate on, "
            f"got {len(scores)} contexts and none with {needs}"
        )
    known = np.array(found, dtype=np.float64)
    return Calibration(
        threshold=float(calibrate_threshold(known, fpr)),
        n_calibration=len(found),
        thresholds={
            f"{rate:g}": float(calibrate_threshold(known, rate))
            for rate in sorted({*NOMINAL_RATES, fpr})
        },
    )
