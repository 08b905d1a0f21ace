"""TrustRAG: drop tight clusters of passages, then weigh what is left against own knowledge.

Stage 1 (:class:`TrustRAGFilter`) looks at embeddings and n-gram overlap, stage 2
(:class:`TrustRAGConflict`) asks the model three times; :class:`TrustRAG` is both. The encoder
is the experiment's: the paper uses SimCSE (``princeton-nlp/sup-simcse-bert-base-uncased``), and
its threshold of 0.88 was chosen for that encoder.

Source: Zhou et al., "TrustRAG: Enhancing Robustness and Trustworthiness in RAG" (2025), sections
3.2 (K-means filtering) and 3.3 (conflict resolution); released code at revision 11dcea0
(``k_mean_filtering`` with n-gram gate, ``conflict_query``).

Deviations: kept passages return in rank order (``compat = true`` keeps the released cluster
order; the set is the same). Copies of a text share one embedding. Where the released code fails
because all embeddings are equal, nothing is kept, which is its own result for passages that are
nearly equal; a zero vector has cosine 0. The prompts are our own wording with the published
roles. The released consolidation prompt quotes the template of an injection attack that its own
benchmark uses, which leaks the test into the defense; ours describes no attack text. Texts are
filtered without titles. Intermediate answers are limited by ``max_tokens`` (the released code
allows 4096), decoding is the experiment's (released: temperature 0.01). The filter gives no
score, so no AUROC; an empty result is recorded as ``emptied``, not as detection.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragassay import prompts
from ragassay.defenses.prompt_control import check_max_tokens, check_slots
from ragassay.defenses.rouge import any_overlap, overlap_test
from ragassay.defenses.two_means import Undecided, two_means, unit_rows
from ragassay.errors import BackendUnavailable, ConfigError
from ragassay.plugins import Tools
from ragassay.types import Hit, Json, Query, Verdict

_NEEDS = "the TrustRAG filter needs scikit-learn: pip install 'ragassay[local]'"
_INTERNAL_SLOTS = frozenset({"question"})
_CONSOLIDATE_SLOTS = frozenset({"question", "internal", "documents"})
_FINAL_SLOTS = frozenset({"question", "internal", "consolidated"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRAGFilter:
    """Drop tight clusters and near-copies among the passages (TrustRAG stage 1 alone).

    Parameters
    ----------
    tau : float
        Mean pairwise cosine above which a cluster counts as malicious, in (0, 1].
    rouge_threshold : float
        ROUGE-L F-measure above which two passages count as overlapping, in [0, 1).
    compat : bool
        Keep the released order (clusters) instead of rank order.
    """

    version: ClassVar[str] = "1"
    tau: float = 0.88
    rouge_threshold: float = 0.25
    compat: bool = False

    def __post_init__(self) -> None:
        _check_thresholds(self.tau, self.rouge_threshold)

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Keep what the filter leaves; the victim answers from it."""
        kept, trace = _stage1(self, hits, tools)
        return Verdict(kept=kept, trace={"filter": trace})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRAGConflict:
    """Weigh all passages against the model's own knowledge in three calls (stage 2 alone).

    Parameters
    ----------
    max_tokens : int
        Longest output in tokens of the two intermediate calls; the last call answers under the
        experiment's setting.
    internal_prompt, consolidate_prompt, final_prompt : str
        Templates of the three calls. Slots: ``question``; ``question``, ``internal``,
        ``documents``; ``question``, ``internal``, ``consolidated``.
    """

    version: ClassVar[str] = "1"
    max_tokens: int = 128
    internal_prompt: str = "trustrag_internal"
    consolidate_prompt: str = "trustrag_consolidate"
    final_prompt: str = "trustrag_final"

    def __post_init__(self) -> None:
        _check_stage2(self)

    def model_calls(self, k: int) -> int:
        """Calls for a context of any size: memory, consolidation, answer."""
        return 3

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Keep all hits and answer from the consolidated information."""
        answer, trace = _stage2(self, query, tools.ordered(hits), tools)
        return Verdict(kept=tuple(hits), answer=answer, trace={"conflict": trace})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRAG:
    """Filter tight clusters, then resolve conflicts in three calls (TrustRAG stages 1 and 2).

    Parameters
    ----------
    tau, rouge_threshold, compat
        Stage 1; see :class:`TrustRAGFilter`. With ``compat`` the documents of stage 2 stand in
        the released order too, whatever the experiment's passage order.
    max_tokens, internal_prompt, consolidate_prompt, final_prompt
        Stage 2; see :class:`TrustRAGConflict`.
    """

    version: ClassVar[str] = "1"
    tau: float = 0.88
    rouge_threshold: float = 0.25
    compat: bool = False
    max_tokens: int = 128
    internal_prompt: str = "trustrag_internal"
    consolidate_prompt: str = "trustrag_consolidate"
    final_prompt: str = "trustrag_final"

    def __post_init__(self) -> None:
        _check_thresholds(self.tau, self.rouge_threshold)
        _check_stage2(self)

    def model_calls(self, k: int) -> int:
        """Calls for a context of any size: memory, consolidation, answer."""
        return 3

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Filter, then answer from what is left; with nothing left, from memory alone."""
        kept, filtered = _stage1(self, hits, tools)
        documents = kept if self.compat else tools.ordered(kept)
        answer, conflict = _stage2(self, query, documents, tools)
        return Verdict(kept=kept, answer=answer, trace={"filter": filtered, "conflict": conflict})


# ----------------------------------------------------------------------------------- stage 1


def filter_kmeans(
    texts: Sequence[str],
    embeddings: ArrayLike,
    *,
    rouge_threshold: float = 0.25,
    tau: float = 0.88,
    compat: bool = False,
) -> list[int]:
    """Decide which passages of one context survive TrustRAG's K-means filter.

    Without any overlapping pair the context passes unchanged. Otherwise two clusters are formed;
    one whose mean pairwise cosine reaches ``tau`` is dropped, both if both exceed it, and of
    overlapping passages in what remains none survives.

    Defined cases: no passage gives none; one passage passes. Of two overlapping passages with
    different embeddings one survives (the one in cluster 0), as published. If all embeddings
    are equal and two passages overlap, none survives.

    Parameters
    ----------
    texts : sequence of str, length k
        Passages in rank order.
    embeddings : array-like of float, shape (k, d)
        Their embeddings, not normalized. Copies of a text take the embedding of the first.
    rouge_threshold : float
        Overlap means a ROUGE-L F-measure (stemmed) strictly above this.
    tau : float
        Cosine threshold.
    compat : bool
        Return the survivors in the released order: cluster 1, then cluster 0.

    Returns
    -------
    list of int
        Indices of the survivors, ascending unless ``compat``.

    Raises
    ------
    ConfigError
        The embeddings are not a finite array of shape (k, d).
    BackendUnavailable
        scikit-learn or rouge-score is not installed.

    References
    ----------
    Zhou et al. (TrustRAG, 2025), section 3.2.
    """
    vectors = _vectors(texts, embeddings)
    if not any_overlap(texts, rouge_threshold):
        return list(range(len(texts)))
    overlaps = overlap_test(texts, rouge_threshold)
    if (vectors == vectors[0]).all():
        return []
    labels = _two_clusters(vectors)
    clusters = [[i for i, label in enumerate(labels) if label == c] for c in (0, 1)]
    kept = _survivors(clusters, _cosines(vectors), tau, lambda group: _thin(group, overlaps))
    return kept if compat else sorted(kept)


def _survivors(
    clusters: Sequence[list[int]],
    cosines: NDArray[np.float64],
    tau: float,
    thin: Callable[[list[int]], list[int]],
) -> list[int]:
    means = [_mean_pair(cosines, cluster) for cluster in clusters]
    for single, other in ((1, 0), (0, 1)):
        if len(clusters[single]) != 1:
            continue
        mean = means[other]
        if mean is None or mean <= tau:
            return clusters[other]
        near = cosines[clusters[other][0], clusters[single][0]] > tau
        return [] if near else clusters[single]
    # Neither cluster is a singleton, so both means are defined.
    zero, one = (mean if mean is not None else 0.0 for mean in means)
    if min(zero, one) > tau:
        return []
    if max(zero, one) < tau:
        return thin(clusters[1]) + thin(clusters[0])
    return thin(clusters[1 if zero >= one else 0])


def _thin(group: list[int], overlaps: Callable[[int, int], bool]) -> list[int]:
    """Remove overlapping passages of a list; no representative of a pair survives."""
    removed: set[int] = set()
    first: int | None = None
    for place, i in enumerate(group):
        if i in removed:
            continue
        partner = next((j for j in group[place + 1 :] if overlaps(i, j)), None)
        if partner is not None:
            removed |= {i, partner}
            first = i if first is None else first
        if first is not None and i not in removed and overlaps(i, first):
            removed.add(i)
    return [i for i in group if i not in removed]


def _vectors(texts: Sequence[str], embeddings: ArrayLike) -> NDArray[np.float64]:
    vectors = np.asarray(embeddings, dtype=np.float64)
    if not texts:
        return vectors
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise ConfigError(
            f"need finite embeddings of shape ({len(texts)}, d), got shape {vectors.shape}"
            + ("" if np.isfinite(vectors).all() else " with NaN or infinite values")
        )
    # An encoder may give copies slightly different vectors (batching); standardizing would
    # blow that noise up to unit variance.
    first = {text: i for i, text in reversed(list(enumerate(texts)))}
    return vectors[[first[text] for text in texts]]


def _two_clusters(vectors: NDArray[np.float64]) -> list[int]:
    try:
        return two_means(unit_rows(vectors))
    except Undecided:  # so close that rounding decides: as rounding does it there
        return _by_scikit_learn(vectors)


def _by_scikit_learn(vectors: NDArray[np.float64]) -> list[int]:
    try:
        from sklearn.cluster import KMeans
        from sklearn.preprocessing import StandardScaler
    except ImportError as error:
        raise BackendUnavailable(_NEEDS) from error
    scaled = StandardScaler().fit_transform(vectors)
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    rows = scaled / np.where(lengths > 0, lengths, 1.0)
    model = KMeans(n_clusters=2, n_init=10, max_iter=500, random_state=0)
    labels: list[int] = model.fit_predict(rows).tolist()
    return labels


def _cosines(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = vectors / np.where(lengths > 0, lengths, 1.0)
    cosines: NDArray[np.float64] = rows @ rows.T
    return cosines


def _mean_pair(cosines: NDArray[np.float64], cluster: Sequence[int]) -> float | None:
    pairs = [cosines[i, j] for i, j in itertools.combinations(cluster, 2)]
    return float(np.mean(pairs)) if pairs else None


def _stage1(
    options: TrustRAGFilter | TrustRAG, hits: Sequence[Hit], tools: Tools
) -> tuple[tuple[Hit, ...], dict[str, Json]]:
    texts = [hit.passage.text for hit in hits]
    overlap = any_overlap(texts, options.rouge_threshold)
    kept = list(range(len(texts)))
    if overlap:  # embeddings cannot matter otherwise, so they are not paid for
        kept = filter_kmeans(
            texts,
            tools.encode(texts),
            rouge_threshold=options.rouge_threshold,
            tau=options.tau,
            compat=options.compat,
        )
    trace: dict[str, Json] = {
        "overlap": overlap,
        "kept_ranks": [hits[i].rank for i in kept],
        "emptied": bool(hits) and not kept,
    }
    return tuple(hits[i] for i in kept), trace


# ----------------------------------------------------------------------------------- stage 2


def _stage2(
    options: TrustRAGConflict | TrustRAG, query: Query, documents: Sequence[Hit], tools: Tools
) -> tuple[str, dict[str, Json]]:
    asked = prompts.load(options.internal_prompt).render({"question": query.text})
    (internal,) = tools.ask([asked], max_tokens=options.max_tokens)
    asked = prompts.load(options.consolidate_prompt).render(
        {
            "question": query.text,
            "internal": internal.strip(),
            "documents": "\n".join(
                f"Externally Retrieved Document{i}: {tools.passage_text(hit)}"
                for i, hit in enumerate(documents, start=1)
            ),
        }
    )
    (consolidated,) = tools.ask([asked], max_tokens=options.max_tokens)
    asked = prompts.load(options.final_prompt).render(
        {
            "question": query.text,
            "internal": internal.strip(),
            "consolidated": consolidated.strip(),
        }
    )
    (final,) = tools.ask([asked])
    return final, {"internal": internal, "consolidated": consolidated, "final": final}


def _check_thresholds(tau: float, rouge_threshold: float) -> None:
    if not 0 < tau <= 1 or not 0 <= rouge_threshold < 1:
        raise ConfigError(
            "need 0 < tau <= 1 and 0 <= rouge_threshold < 1, "
            f"got tau={tau}, rouge_threshold={rouge_threshold}"
        )


def _check_stage2(options: TrustRAGConflict | TrustRAG) -> None:
    check_max_tokens(options.max_tokens)
    check_slots(options.internal_prompt, _INTERNAL_SLOTS)
    check_slots(options.consolidate_prompt, _CONSOLIDATE_SLOTS)
    check_slots(options.final_prompt, _FINAL_SLOTS)
