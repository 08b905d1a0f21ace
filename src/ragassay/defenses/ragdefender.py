"""RAGDefender: estimate how many passages are adversarial, then drop the most alike ones.

Stage 1 counts: by clustering the embeddings in two and asking TF-IDF which cluster is meant
(single-hop questions), or by how concentrated each passage's similarities are (multi-hop).
Stage 2 sums squared similarities over the most similar pairs and drops as many passages as
stage 1 counted.

Source: Kim, Lee and Koo, "Rescuing the Unpoisoned: Efficient Defense against Knowledge
Corruption Attacks on RAG Systems" (RAGDefender, ACSAC 2025), sections 4.1 and 4.2; released code
at revision b2ce6b9.

Deviations: the released code chooses the mode by the name of the data set; here it is an option.
The encoder is the experiment's (released: paraphrase-MiniLM-L6-v2; paper: Stella). TF-IDF terms
are matched as whole lower-case tokens, and medians of an even number are the mean of the middle
two; ``compat = true`` matches terms as substrings of the raw text and takes the lower middle
value, as released. Terms of equal weight go by the alphabet, passages of equal score by rank,
values within 1e-9 are equal. Copies of a text share one embedding, a zero vector has cosine 0.
Without any TF-IDF term no passage votes, and a single passage is kept; the released code fails
there. Stage 2's scores depend on how many passages stage 1 counted, so they stand in the trace
and are no suspicion.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragassay.errors import BackendUnavailable, ConfigError
from ragassay.plugins import Tools
from ragassay.types import Hit, Query, Verdict

Mode = Literal["clustering", "concentration"]
TOP_TERMS = 5
_DECIMALS = 9  # to which similarities are compared
_SLACK = 10.0**-_DECIMALS
_NEEDS = "ragdefender needs scikit-learn: pip install 'ragassay[local]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class RAGDefender:
    """Drop the passages that are most alike, as many as two estimates say (RAGDefender).

    With two or more passages, ``clustering`` always drops at least one.

    Parameters
    ----------
    mode : {"clustering", "concentration"}
        How adversarial passages are counted: as published for single-hop or for multi-hop
        questions.
    compat : bool
        Match terms and take medians as the released code does.
    """

    version: ClassVar[str] = "1"
    mode: Mode = "clustering"
    compat: bool = False

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Keep what stage 2 leaves; the victim answers from it."""
        texts = [hit.passage.text for hit in hits]
        vectors = tools.encode(texts) if len(texts) > 1 else np.zeros((len(texts), 1))
        found = find_adversarial(texts, vectors, mode=self.mode, compat=self.compat)
        kept = tuple(hit for i, hit in enumerate(hits) if i not in found.removed)
        return Verdict(
            kept=kept,
            trace={
                "n_adversarial": found.n_adversarial,
                "scores": list(found.scores),
                "removed_ranks": [hits[i].rank for i in sorted(found.removed)],
                "emptied": bool(hits) and not kept,
            },
        )


@dataclass(frozen=True, slots=True)
class Adversarial:
    """What RAGDefender says of one context.

    Parameters
    ----------
    n_adversarial : int
        Stage 1's count, from 0 to k.
    scores : tuple of float, length k
        Stage 2's frequency scores.
    removed : tuple of int
        Indices of the dropped passages, largest score first.
    """

    n_adversarial: int
    scores: tuple[float, ...]
    removed: tuple[int, ...]


def find_adversarial(
    texts: Sequence[str], embeddings: ArrayLike, *, mode: Mode, compat: bool = False
) -> Adversarial:
    """Run both stages on one context.

    Parameters
    ----------
    texts : sequence of str, length k
        Passages in rank order.
    embeddings : array-like of float, shape (k, d)
        Their embeddings, not normalized. Copies of a text take the embedding of the first.
    mode : {"clustering", "concentration"}
        Stage 1.
    compat : bool
        As released.

    Raises
    ------
    ConfigError
        The embeddings are not a finite array of shape (k, d).
    BackendUnavailable
        scikit-learn is not installed.

    References
    ----------
    Kim, Lee and Koo (RAGDefender, 2025), section 4.
    """
    k = len(texts)
    if k < 2:
        return Adversarial(0, (0.0,) * k, ())
    vectors = _vectors(texts, embeddings)
    cosines = _cosines(vectors)
    if mode == "clustering":
        n_adv = count_by_clustering(texts, vectors, compat=compat)
    else:
        n_adv = count_by_concentration(cosines, compat=compat)
    pairs = [(i, j, float(cosines[i, j])) for i, j in itertools.combinations(range(k), 2)]
    # A stable sort: equal pairs stay in the order of their ranks.
    closest = sorted(pairs, key=lambda pair: -pair[2])[: pair_budget(n_adv)]
    scores = frequency_scores(k, closest)
    order = sorted(range(k), key=lambda i: (-round(scores[i], _DECIMALS), i))
    return Adversarial(n_adv, tuple(scores), tuple(order[:n_adv]))


def count_by_clustering(
    texts: Sequence[str], vectors: NDArray[np.float64], *, compat: bool = False
) -> int:
    """Count adversarial passages as the smaller of two clusters, or the larger one.

    The larger one is meant where more than half of the passages hold more than two of the five
    weightiest terms.

    Parameters
    ----------
    texts : sequence of str, length k >= 2
        Passages.
    vectors : ndarray of float64, shape (k, d)
        Embeddings, clustered by Ward linkage.
    compat : bool
        See :func:`term_votes`.
    """
    try:
        from sklearn.cluster import AgglomerativeClustering
    except ImportError as error:
        raise BackendUnavailable(_NEEDS) from error
    k = len(texts)
    ones = int(AgglomerativeClustering(n_clusters=2).fit_predict(vectors).sum())
    smaller = term_votes(texts, compat=compat) <= k // 2
    return min(ones, k - ones) if smaller else max(ones, k - ones)


def term_votes(texts: Sequence[str], *, compat: bool = False) -> int:
    """Count the passages that hold more than half of the weightiest TF-IDF terms.

    Parameters
    ----------
    texts : sequence of str, length k
        Passages; English stop words are removed.
    compat : bool
        A passage holds a term that is a substring of its raw text (case counts), as released,
        instead of one of its lower-case tokens.

    Returns
    -------
    int
        From 0 to k; 0 where no term is left.
    """
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError as error:
        raise BackendUnavailable(_NEEDS) from error
    vectorizer = TfidfVectorizer(stop_words="english")
    tokens = [set(vectorizer.build_analyzer()(text)) for text in texts]
    if not any(tokens):
        return 0
    sums = np.asarray(vectorizer.fit_transform(texts).sum(axis=0)).ravel()
    weight = zip(vectorizer.get_feature_names_out().tolist(), sums.tolist(), strict=True)
    ranked = sorted(weight, key=lambda item: (-round(item[1], _DECIMALS), item[0]))
    terms = [term for term, _ in ranked[:TOP_TERMS]]
    held: Sequence[str | set[str]] = texts if compat else tokens
    return sum(sum(term in each for term in terms) > len(terms) // 2 for each in held)


def count_by_concentration(cosines: NDArray[np.float64], *, compat: bool = False) -> int:
    """Count adversarial passages by how high their mean and median similarities are.

    Parameters
    ----------
    cosines : ndarray of float64, shape (k, k)
        Cosines of all pairs, the diagonal included.
    compat : bool
        Take the lower of the two middle values as the median, as released.
    """
    k = len(cosines)
    means = cosines.mean(axis=0)
    medians = _median(cosines, compat)
    mean, median = float(means.mean()), float(_median(medians[:, None], compat)[0])
    high = (means > mean + _SLACK) | (medians > (median + mean) / 2 + _SLACK)
    marked = int(high.sum())
    return marked if marked > 0 and mean < median - _SLACK else k - marked


def pair_budget(n_adv: int) -> int:
    """Return how many of the most similar pairs count: max(1, n(n-1)/2).

    Examples
    --------
    >>> pair_budget(4)
    6
    """
    return max(1, n_adv * (n_adv - 1) // 2)


def frequency_scores(k: int, pairs: Sequence[tuple[int, int, float]]) -> list[float]:
    """Sum sign(s) s^2 of the pairs that hold a passage, for each of k passages.

    Examples
    --------
    >>> frequency_scores(3, [(0, 1, 0.5), (1, 2, -0.1)])
    [0.25, 0.24, -0.010000000000000002]
    """
    scores = [0.0] * k
    for i, j, similarity in pairs:
        weight = similarity * abs(similarity)
        scores[i] += weight
        scores[j] += weight
    return scores


def _median(columns: NDArray[np.float64], compat: bool) -> NDArray[np.float64]:
    ordered = np.sort(columns, axis=0)
    k = len(ordered)
    lower = ordered[(k - 1) // 2]
    middle: NDArray[np.float64] = lower if compat else (lower + ordered[k // 2]) / 2
    return middle


def _vectors(texts: Sequence[str], embeddings: ArrayLike) -> NDArray[np.float64]:
    vectors = np.asarray(embeddings, dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise ConfigError(
            f"need finite embeddings of shape ({len(texts)}, d), got shape {vectors.shape}"
            + ("" if np.isfinite(vectors).all() else " with NaN or infinite values")
        )
    first = {text: i for i, text in reversed(list(enumerate(texts)))}
    return vectors[[first[text] for text in texts]]


def _cosines(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = vectors / np.where(lengths > 0, lengths, 1.0)
    return np.round(rows @ rows.T, _DECIMALS)
