"""Drop passages that a language model finds improbable.

Random triggers and other gradient-searched strings have a high perplexity; fluent poison does
not, and where clean passages are unusual themselves the score reads the domain. The direction
was fixed before testing and is not an option: high = suspicious.

Source: perplexity filter of "Ranking is not judgment" (Table V), after Jain et al. 2023,
"Baseline Defenses for Adversarial Attacks Against Aligned Language Models", with GPT-2.

Deviations: the language model is that of the experiment, the embedded SmolLM2 unless
``[language_model]`` names another. The first token is not scored and no begin-of-text token is
added; texts beyond 1,024 tokens are read in windows that move on by 512. Clean passages are
those retrieved for calibration questions, at most ``passages`` distinct ones, chosen by a digest
of their text. A text of fewer than two tokens has no score and passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ragassay.canon import digest
from ragassay.defenses.abstention import calibrated
from ragassay.defenses.passage_filter import CalibratedPassageFilter, UncalibratedPassageFilter
from ragassay.errors import ConfigError
from ragassay.plugins import Tools
from ragassay.types import Hit, Query, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedPerplexity(CalibratedPassageFilter):
    """Drop passages whose perplexity exceeds a calibrated threshold."""

    version: ClassVar[str] = "1"
    reads_language_model: ClassVar[bool] = True

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Keep passages of usual perplexity."""
        losses = tools.token_nll([hit.passage.text for hit in hits])
        return self.judge(hits, [perplexity(each) for each in losses])


@dataclass(frozen=True, slots=True, kw_only=True)
class Perplexity(UncalibratedPassageFilter):
    """Drop passages of high perplexity under the experiment's language model (calibrated).

    Parameters
    ----------
    fpr : float
        Nominal share of clean passages that are dropped, in (0, 1).
    passages : int
        Distinct clean passages to calibrate on, at most.
    """

    reads_language_model: ClassVar[bool] = True
    passages: int = 200

    def __post_init__(self) -> None:
        # Not super(): a slotted dataclass is built twice.
        UncalibratedPassageFilter.__post_init__(self)
        if self.passages < 1:
            raise ConfigError(f"need passages >= 1, got {self.passages}")

    def fit(
        self, clean: Sequence[tuple[Query, tuple[Hit, ...]]], tools: Tools
    ) -> CalibratedPerplexity:
        """Take the threshold from distinct clean passages.

        Raises
        ------
        NotEstimable
            No clean passage has two tokens.
        """
        texts = sorted({hit.passage.text for _, hits in clean for hit in hits}, key=digest)
        scores = [perplexity(each) for each in tools.token_nll(texts[: self.passages])]
        found = calibrated(
            scores, self.fpr, detector="perplexity", needs="passages of at least two tokens"
        )
        return CalibratedPerplexity(
            fpr=self.fpr,
            threshold=found.threshold,
            n_calibration=found.n_calibration,
            thresholds=found.thresholds,
        )


def perplexity(losses: ArrayLike) -> float | None:
    """Exponential of the mean loss of tokens; None for no token.

    Parameters
    ----------
    losses : array-like of float, shape (n,)
        Negative log-likelihoods, natural logarithm.

    Examples
    --------
    >>> round(perplexity([1.0, 2.0, 3.0]), 4)
    7.3891
    """
    values = np.asarray(losses, dtype=np.float64)
    return float(np.exp(values.mean())) if len(values) else None
