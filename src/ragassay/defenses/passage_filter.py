"""What all calibrated filters of single passages share: drop what scores above a threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ragassay.defenses.abstention import UncalibratedDetector
from ragassay.types import Hit, Json, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedPassageFilter:
    """A threshold from clean passages, and what follows from the scores of a context.

    Parameters
    ----------
    threshold : float
        A passage is dropped if its score is strictly above.
    n_calibration : int
        Number of clean passages that the threshold comes from.
    fpr : float
        Nominal share of clean passages that are dropped.
    thresholds : mapping of str to float
        What the same calibration gives at the published nominal rates (``"0.05"``). They stand
        in the trace as ``passage_thresholds``; ``thresholds`` is the name of those of detectors
        that judge a whole context.
    """

    threshold: float
    n_calibration: int
    fpr: float
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def judge(
        self,
        hits: Sequence[Hit],
        scores: Sequence[float | None],
        detail: Mapping[str, Json] | None = None,
    ) -> Verdict:
        """Keep the passages that do not score above the threshold; no score passes.

        Where nothing is kept, the victim answers without context, and the trace says
        ``emptied``.
        """
        trace: dict[str, Json] = {
            "threshold": self.threshold,
            "n_calibration": self.n_calibration,
            "fpr": self.fpr,
            "passage_thresholds": dict(self.thresholds),
            **(detail or {}),
        }
        flagged = [score is not None and score > self.threshold for score in scores]
        return filtered(hits, scores, flagged, trace)


@dataclass(frozen=True, slots=True, kw_only=True)
class UncalibratedPassageFilter(UncalibratedDetector):
    """What a filter of passages is before it has seen clean ones.

    Parameters
    ----------
    fpr : float
        Nominal share of clean passages that are dropped, in (0, 1).
    """

    version: ClassVar[str] = "1"
    fpr: float = 0.05


def filtered(
    hits: Sequence[Hit],
    scores: Sequence[float | None],
    flagged: Sequence[bool],
    detail: Mapping[str, Json] | None = None,
) -> Verdict:
    """Drop flagged passages; scores become the suspicion of the passages that have one.

    Parameters
    ----------
    hits : sequence of Hit, length k
        The context in rank order.
    scores : sequence of float or None, length k
        Suspicion of each passage, larger = more suspicious.
    flagged : sequence of bool, length k
        Which ones are dropped.
    detail : mapping, optional
        More for the trace.
    """
    kept = tuple(hit for hit, bad in zip(hits, flagged, strict=True) if not bad)
    return Verdict(
        kept=kept,
        suspicion={
            hit.passage.id: score
            for hit, score in zip(hits, scores, strict=True)
            if score is not None
        },
        trace={
            "scores": list(scores),
            "removed_ranks": [h.rank for h, bad in zip(hits, flagged, strict=True) if bad],
            "emptied": bool(hits) and not kept,
            **(detail or {}),
        },
    )
