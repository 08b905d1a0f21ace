"""Abstain when the passages of a context cluster unlike those of clean contexts.

Poisoned passages resemble each other, so that a context with some of them falls into parts. The
orientation was fixed before testing and is not an option: weak connectivity, small conductance
and large modularity are anomalous. A context that is poisoned throughout is one tight cluster,
and these detectors are expected to pass it; the sign is not to be flipped afterwards.

Source: aligned evaluation of RAG defenses ("Prevented is not protected"), section 3.1 and
appendices D and H: spectral connectivity, conductance and modularity of the similarity graph of
the retrieved passages, calibrated on clean queries to a nominal false-positive rate, flagged
contexts hard-abstained.

Deviations: passages are embedded by the experiment's own encoder, not by a separate
all-mpnet-base-v2. The published graph functions are not released; the graph and its statistics
are those of ``ragassay.stats.graphs`` (exact up to 10 passages). Calibration contexts are chosen
by the experiment, not fixed at 500. A context of fewer than three passages, or one without any
positive similarity, has no score and is never flagged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ragassay.defenses.abstention import CalibratedDetector, UncalibratedDetector, calibrated
from ragassay.errors import ConfigError
from ragassay.plugins import Tools
from ragassay.stats.graphs import (
    MIN_NODES,
    GraphStatistic,
    GraphValue,
    context_weights,
    graph_suspicion,
)
from ragassay.types import Hit, Query, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedGraphDetector(CalibratedDetector):
    """Abstain if a statistic of the similarity graph exceeds a calibrated threshold.

    Parameters
    ----------
    statistic : {"connectivity", "conductance", "modularity"}
        Which statistic; the first two count negatively.
    threshold : float
        A context is flagged if its statistic is strictly above.
    n_calibration : int
        Number of clean contexts that the threshold comes from.
    fpr : float
        Nominal false-positive rate.
    """

    version: ClassVar[str] = "1"
    statistic: GraphStatistic

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Abstain on a flagged context, else keep all hits."""
        [found] = context_suspicions([hits], self.statistic, tools)
        if found is None:
            return self.judge(hits, None, {"exact": None})
        return self.judge(hits, found.value, {"exact": found.exact})


@dataclass(frozen=True, slots=True, kw_only=True)
class _GraphDetector(UncalibratedDetector):
    """What the three detectors are before they have seen clean contexts."""

    statistic: ClassVar[GraphStatistic]

    def fit(
        self, clean: Sequence[tuple[Query, tuple[Hit, ...]]], tools: Tools
    ) -> CalibratedGraphDetector:
        """Calibrate on clean contexts, whose passages are embedded in one call."""
        found = context_suspicions([hits for _, hits in clean], self.statistic, tools)
        calibration = calibrated(
            [None if score is None else score.value for score in found],
            self.fpr,
            detector=f"graph {self.statistic}",
            needs=f"at least {MIN_NODES} passages, some of them similar,",
        )
        return CalibratedGraphDetector(
            statistic=self.statistic,
            fpr=self.fpr,
            threshold=calibration.threshold,
            n_calibration=calibration.n_calibration,
            thresholds=calibration.thresholds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphConnectivity(_GraphDetector):
    """Abstain if the similarity graph of the passages is weakly connected (calibrated).

    Parameters
    ----------
    fpr : float
        Nominal false-positive rate on clean contexts, in (0, 1).
    """

    statistic: ClassVar[GraphStatistic] = "connectivity"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphConductance(_GraphDetector):
    """Abstain if a cheap cut splits the similarity graph of the passages (calibrated).

    Parameters
    ----------
    fpr : float
        Nominal false-positive rate on clean contexts, in (0, 1).
    """

    statistic: ClassVar[GraphStatistic] = "conductance"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphModularity(_GraphDetector):
    """Abstain if the passages fall into clear clusters (calibrated).

    Parameters
    ----------
    fpr : float
        Nominal false-positive rate on clean contexts, in (0, 1).
    """

    statistic: ClassVar[GraphStatistic] = "modularity"


def context_suspicions(
    contexts: Sequence[Sequence[Hit]], statistic: GraphStatistic, tools: Tools
) -> list[GraphValue | None]:
    """Score contexts by their similarity graphs; larger is more anomalous.

    All passages are embedded in one call, and equal texts once: an encoder may give copies
    slightly different vectors in one batch.

    Parameters
    ----------
    contexts : sequence of sequence of Hit
        The retrieved passages of each context.
    statistic : {"connectivity", "conductance", "modularity"}
        Which statistic.
    tools : Tools
        Only ``encode`` is used, and not where every context is too small.

    Returns
    -------
    list of GraphValue or None
        One per context; None where it is too small or nothing in it is similar.

    Raises
    ------
    ConfigError
        The encoder returns something other than one finite vector per text.
    """
    large = [hits for hits in contexts if len(hits) >= MIN_NODES]
    texts = list(dict.fromkeys(hit.passage.text for hits in large for hit in hits))
    if not texts:
        return [None] * len(contexts)
    vectors = _vectors(texts, tools)
    row = {text: i for i, text in enumerate(texts)}
    scores: list[GraphValue | None] = []
    for hits in contexts:
        if len(hits) < MIN_NODES:
            scores.append(None)
            continue
        rows = vectors[[row[hit.passage.text] for hit in hits]]
        scores.append(graph_suspicion(context_weights(rows), statistic))
    return scores


def _vectors(texts: Sequence[str], tools: Tools) -> NDArray[np.float32]:
    vectors = np.asarray(tools.encode(texts))
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise ConfigError(
            f"the encoder must return finite vectors of shape ({len(texts)}, d) for "
            f"{len(texts)} texts, got shape {vectors.shape}"
            + ("" if np.isfinite(vectors).all() else " with NaN or infinite values")
        )
    return vectors
