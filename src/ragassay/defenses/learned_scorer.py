"""A logistic regression that tells poison from clean passages, with calibrated probabilities.

The plug-in loads a scorer that was trained before. Training needs labeled candidates, which no
defense sees, so it is offered to protocols: :meth:`LearnedScorer.measure`,
:meth:`LearnedScorer.train` and :meth:`LearnedScorer.ablation`.

Source: "Ranking is not judgment", the authors' own learned scorer: 40/20/40 split of the
questions into fit, calibration and evaluation, seeds 11, 22, 33, 44 and 55, ablation of the
length feature.

Deviations: the paper does not list its features or its model. Ours are those of
``ragassay.defenses.learned_features``, standardized on the fit part, in a logistic regression
with an L2 penalty (C = 1); a value that is not defined counts as the mean. The source of a
passage is no feature. Calibration is Platt's (with his smoothed targets) or isotonic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from ragassay.defenses.contradiction import LLM
from ragassay.defenses.learned_features import (
    DEFAULT_FEATURES,
    PERPLEXITY_FEATURES,
    FeatureTable,
    Labeled,
    feature_rows,
    measure,
)
from ragassay.defenses.learned_model import CalibrationKind, TrainedScorer, from_json
from ragassay.defenses.learned_training import SEEDS, Trained, drop_one, train
from ragassay.defenses.passage_filter import filtered
from ragassay.errors import ConfigError, DataError
from ragassay.plugins import Tools
from ragassay.types import Hit, Json, Query, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedScorer:
    """Drop passages, or decline, where a trained scorer says that poison is likely.

    Parameters
    ----------
    path : str
        JSON file of a trained scorer, relative to the experiment file.
    threshold : float
        A passage is poison if its probability reaches this, in (0, 1]. With a miss r times as
        costly as a false alarm, 1 / (1 + r) minimizes the expected cost.
    action : {"filter", "block"}
        Drop such passages, or decline to answer where there is one.
    sha256 : str
        Digest of the file: filled in where it is empty, checked where it is given. The digest,
        not the path, counts for the identity of the defense.
    """

    version: ClassVar[str] = "1"
    path: str = field(metadata={"identity": False})
    threshold: float = 0.5
    action: Literal["filter", "block"] = "filter"
    sha256: str = ""
    _scorer: TrainedScorer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ConfigError(f"need 0 < threshold <= 1, got {self.threshold}")
        if not self.path:
            raise ConfigError("path is empty: name the JSON file of a trained scorer")
        try:
            content = Path(self.path).read_bytes()
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror or error}", path=self.path) from error
        found = hashlib.sha256(content).hexdigest()
        if self.sha256 not in ("", found):
            raise DataError(f"the SHA-256 is {found}, not {self.sha256}", path=self.path)
        object.__setattr__(self, "sha256", found)
        object.__setattr__(self, "_scorer", from_json(content, path=self.path))

    @property
    def reads_language_model(self) -> bool:
        """Whether a feature is a perplexity, so that the language model counts for the key."""
        return not {*PERPLEXITY_FEATURES}.isdisjoint(self._scorer.features)

    def model_calls(self, k: int) -> int:
        """Calls for k passages: the victim's, and those of contradictions where they count."""
        if "contradiction" not in self._scorer.features:
            return 1
        return 1 + k + (k * (k - 1) // 2 if self._scorer.nli == LLM else 0)

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Score each passage in its context; the probability of poison is its suspicion.

        Raises
        ------
        BackendUnavailable
            The scorer reads perplexities, and the tools have none.
        """
        scorer = self._scorer
        (rows,) = feature_rows([(query, hits)], scorer.features, tools, nli=scorer.nli)
        probabilities = scorer.probabilities(rows).tolist()
        flagged = [p >= self.threshold for p in probabilities]
        detail: dict[str, Json] = {
            "threshold": self.threshold,
            "features": scorer.features,
            "skipped": scorer.skipped,
            "values": [[None if np.isnan(x) else float(x) for x in row] for row in rows],
        }
        verdict = filtered(hits, probabilities, flagged, detail)
        if self.action == "block" and any(flagged):
            return Verdict(kept=(), abstain=True, suspicion=verdict.suspicion, trace=verdict.trace)
        return verdict

    # ------------------------------------------------------- for protocols with labels

    @staticmethod
    def measure(
        candidates: Sequence[Labeled],
        tools: Tools,
        *,
        features: Sequence[str] = DEFAULT_FEATURES,
        nli: str = LLM,
    ) -> FeatureTable:
        """Measure labeled contexts; see :func:`ragassay.defenses.learned_features.measure`."""
        return measure(candidates, tools, features=features, nli=nli)

    @staticmethod
    def train(
        table: FeatureTable,
        *,
        seeds: Sequence[int] = SEEDS,
        calibration: CalibrationKind = "platt",
        drop: Sequence[str] = (),
    ) -> tuple[Trained, ...]:
        """Train once for each seed; see :func:`ragassay.defenses.learned_training.train`."""
        return tuple(train(table, seed=s, calibration=calibration, drop=drop) for s in seeds)

    @staticmethod
    def ablation(
        table: FeatureTable,
        *,
        seeds: Sequence[int] = SEEDS,
        calibration: CalibrationKind = "platt",
    ) -> dict[str, tuple[Trained, ...]]:
        """Train without one feature at a time; ``""`` is with all of them."""
        return drop_one(table, seeds=seeds, calibration=calibration)
