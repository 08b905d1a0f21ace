"""The order of hits, shared by all retrievers: ties, poison, and the k best.

All retrievers share one total order: score descending, corpus before poison, id ascending.
An index keeps its passages sorted by id, and poison (sorted by id too) is numbered after the
corpus; the order then reads "score descending, row ascending", and the hits cannot depend on
the order in which a corpus was read.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ragassay.data.corpus_file import CorpusFile
from ragassay.errors import ConfigError, DataError
from ragassay.types import Hit, Passage


def indexed_text(passage: Passage, *, titles: bool) -> str:
    """Return the text of a passage that is indexed: title, a space, text (as BEIR does)."""
    return f"{passage.title} {passage.text}".strip() if titles else passage.text


def ordered_corpus(corpus: Sequence[Passage], *, titles: bool) -> Sequence[Passage]:
    """Sort a corpus by id and refuse one that cannot be searched.

    A corpus on disk stays there; it was checked when it was opened.

    Raises
    ------
    DataError
        There is no passage, no passage has a text, or two share an id.
    """
    if not corpus:
        raise DataError("the corpus has no passage; retrieval needs at least one")
    if isinstance(corpus, CorpusFile):
        return corpus.by_id
    if not any(indexed_text(passage, titles=titles).strip() for passage in corpus):
        raise DataError(
            f"all {len(corpus)} passages of the corpus are empty; at least one needs a text"
        )
    ordered = tuple(sorted(corpus, key=lambda passage: passage.id))
    for one, other in pairwise(ordered):
        if one.id == other.id:
            raise DataError(f"two passages of the corpus share the id {one.id!r}; ids are unique")
    return ordered


def ordered_poison(poison: Sequence[Passage], corpus_ids: Container[str]) -> tuple[Passage, ...]:
    """Sort poison by id and refuse ids that are taken.

    Raises
    ------
    DataError
        A poison passage has the id of a corpus passage or of another poison passage.
    """
    ordered = tuple(sorted(poison, key=lambda passage: passage.id))
    for passage in ordered:
        if passage.id in corpus_ids:
            raise DataError(
                f"the poison passage {passage.id!r} has the id of a corpus passage; rename it"
            )
    for one, other in pairwise(ordered):
        if one.id == other.id:
            raise DataError(f"two poison passages share the id {one.id!r}; ids are unique")
    return ordered


def check_k(k: int) -> None:
    """Refuse a number of passages below 1.

    Raises
    ------
    ConfigError
        ``k`` is below 1.
    """
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")


def top_rows(scores: NDArray[np.float64], k: int) -> NDArray[np.intp]:
    """Return the rows of the k best scores, best first; equal scores by row ascending.

    A partition alone picks any of the rows that tie with the k-th score, so those are
    chosen by row afterwards.

    Parameters
    ----------
    scores : ndarray of float64, shape (n,)
        Finite scores.
    k : int
        At least 1; more than n gives all n.

    Returns
    -------
    ndarray of int, shape (min(k, n),)

    Examples
    --------
    >>> top_rows(np.array([1.0, 3.0, 3.0, 3.0, 2.0]), 2).tolist()
    [1, 2]
    """
    if k >= len(scores):
        return np.argsort(-scores, kind="stable")
    threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
    above = np.flatnonzero(scores > threshold)
    tied = np.flatnonzero(scores == threshold)[: k - len(above)]
    rows = np.concatenate([above, tied])  # each part ascends, and no tied row scores more
    return rows[np.argsort(-scores[rows], kind="stable")]


def hits_of(
    passages: Sequence[Passage], rows: NDArray[np.intp], scores: NDArray[np.float64]
) -> tuple[Hit, ...]:
    """Wrap ranked rows as hits; ``scores[i]`` belongs to ``rows[i]``."""
    return tuple(
        Hit(passage=passages[row], rank=rank, score=float(score))
        for rank, (row, score) in enumerate(zip(rows.tolist(), scores, strict=True), start=1)
    )
