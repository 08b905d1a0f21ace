"""Two detectors that read a single cue each: floors to compare with, not defenses.

Where one of them separates poison from clean passages, a detector's success on that data says
how the poison was written, not that poison is recognized.

Source: "Ranking is not judgment", Table V and section V-A: the length-only and containment-only
reference detectors.

Deviations: lengths and thresholds come from the passages of clean contexts, each distinct text
counted once, not from a sample of the corpus. The graded scores are ours, as the paper does not
say how it reads a matched false-positive rate off a binary cue: the distance of the logarithm of
the word count from its clean median, and the longest run of the question's words as a share of
the question. A text without words counts as one word long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragassay.defenses.abstention import calibrated
from ragassay.defenses.passage_filter import CalibratedPassageFilter, UncalibratedPassageFilter
from ragassay.defenses.surface import contained_share, word_count
from ragassay.errors import NotEstimable
from ragassay.matching import holds_verbatim
from ragassay.plugins import Tools
from ragassay.types import Hit, Query, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedLength(CalibratedPassageFilter):
    """Drop passages of unusual length.

    Parameters
    ----------
    low, high : float
        5th and 95th percentile of the clean word counts (linear interpolation).
    median_log : float
        Median of the natural logarithms of the clean word counts.
    graded : bool
        Score by the distance from the median, instead of 1 outside of [low, high] and 0 inside.
    """

    version: ClassVar[str] = "1"
    low: float
    high: float
    median_log: float
    graded: bool

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Keep passages of usual length."""
        scores = [self.score(hit.passage.text) for hit in hits]
        return self.judge(hits, scores, {"low": self.low, "high": self.high})

    def score(self, text: str) -> float:
        """Score one text; larger is more unusual."""
        words = word_count(text)
        if self.graded:
            return abs(_log_words(words) - self.median_log)
        return 0.0 if self.low <= words <= self.high else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthOnly(UncalibratedPassageFilter):
    """Drop passages whose length in words is unusual for clean passages (reference).

    Without ``graded`` a passage outside of the 5th to 95th percentile is dropped, so that about
    a tenth of the clean ones is, whatever ``fpr`` says.

    Parameters
    ----------
    fpr : float
        Nominal share of clean passages that are dropped where ``graded``, in (0, 1).
    graded : bool
        Score by the distance of the logarithm of the length from its clean median.
    """

    graded: bool = False

    def fit(self, clean: Sequence[tuple[Query, tuple[Hit, ...]]], tools: Tools) -> CalibratedLength:
        """Take quantiles and threshold from the distinct clean passages.

        Raises
        ------
        NotEstimable
            There is no clean passage.
        """
        texts = sorted({hit.passage.text for _, hits in clean for hit in hits})
        if not texts:
            raise NotEstimable(
                f"length_only needs clean passages to calibrate on, got {len(clean)} contexts "
                "without any"
            )
        counts = [word_count(text) for text in texts]
        low, high = (float(q) for q in np.quantile(counts, [0.05, 0.95]))
        median = float(np.median([_log_words(count) for count in counts]))
        distances = [abs(_log_words(count) - median) for count in counts]
        found = calibrated(distances, self.fpr, detector="length", needs="passages")
        return CalibratedLength(
            low=low,
            high=high,
            median_log=median,
            graded=self.graded,
            fpr=self.fpr if self.graded else 0.1,
            threshold=found.threshold if self.graded else 0.0,
            n_calibration=found.n_calibration,
            thresholds=found.thresholds if self.graded else {},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedContainment(CalibratedPassageFilter):
    """Drop passages that repeat the question.

    Parameters
    ----------
    graded : bool
        Score by the longest run of the question's words, instead of 1 and 0.
    """

    version: ClassVar[str] = "1"
    graded: bool

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Keep passages that do not repeat the question."""
        scores = [_containment(query.text, hit.passage.text, self.graded) for hit in hits]
        return self.judge(hits, scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainmentOnly(UncalibratedPassageFilter):
    """Drop passages that hold the question verbatim (reference).

    The threshold is calibrated in either case: where more than ``fpr`` of the clean passages
    hold their question, the binary score drops nothing.

    Parameters
    ----------
    fpr : float
        Nominal share of clean passages that are dropped, in (0, 1).
    graded : bool
        Score by the longest run of the question's words in the passage, as a share of them.
    """

    graded: bool = False

    def fit(
        self, clean: Sequence[tuple[Query, tuple[Hit, ...]]], tools: Tools
    ) -> CalibratedContainment:
        """Calibrate on the distinct pairs of question and clean passage.

        Raises
        ------
        NotEstimable
            There is no clean passage.
        """
        pairs = sorted({(query.text, hit.passage.text) for query, hits in clean for hit in hits})
        found = calibrated(
            [_containment(question, text, self.graded) for question, text in pairs],
            self.fpr,
            detector="containment",
            needs="passages",
        )
        return CalibratedContainment(
            graded=self.graded,
            fpr=self.fpr,
            threshold=found.threshold,
            n_calibration=found.n_calibration,
            thresholds=found.thresholds,
        )


def _log_words(count: int) -> float:
    return math.log(max(count, 1))


def _containment(question: str, text: str, graded: bool) -> float:
    if graded:
        return contained_share(question, text)
    return 1.0 if holds_verbatim(question, text) else 0.0
