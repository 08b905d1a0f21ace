"""Dense retrieval: exact top-k over a corpus, and over corpus and poison together.

Source: the retrieval settings of PoisonedRAG (dot product, top-5) and of "Prevented is not
protected", section 3 and appendix I (separate token limits for corpus, query and poison).

Deviations: scores are rounded to six decimals, so that order and ties do not depend on which
kernel the linear algebra library picks for a shape. Ties break by (score descending, corpus
before poison, id).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ragassay import plugins
from ragassay.canon import digest
from ragassay.errors import ConfigError, DataError
from ragassay.plugins import Encoder
from ragassay.retrieval.vectors import EmbeddingStore
from ragassay.types import Hit, Passage, Query

_DECIMALS = 6
_BLOCK_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseRetriever:
    """Exact search with an encoder: cosine or dot product, separate token limits.

    ``titles`` embeds a passage as title, space, text (the BEIR convention). ``encoder`` is a
    registered name or ``file.py:Class``; its options go into ``encoder_options``.
    """

    version: ClassVar[str] = "1"

    encoder: str = "minilm"
    encoder_options: dict[str, str | int | float | bool] = field(default_factory=dict)
    similarity: Literal["cosine", "dot"] = "cosine"
    max_tokens_corpus: int = 256
    max_tokens_query: int = 256
    max_tokens_poison: int = 256
    titles: bool = True

    def __post_init__(self) -> None:
        for name in ("max_tokens_corpus", "max_tokens_query", "max_tokens_poison"):
            if getattr(self, name) < 1:
                raise ConfigError(f"need {name} >= 1, got {getattr(self, name)}")

    @property
    def identity(self) -> str:
        """Digest of all options and of the encoder."""
        options = [
            self.version, self.similarity, self.max_tokens_corpus, self.max_tokens_query,
            self.max_tokens_poison, self.titles, self._encoder().identity,
        ]  # fmt: skip
        return f"dense:{digest(options)[:16]}"

    def index(
        self,
        corpus: Sequence[Passage],
        *,
        fingerprint: str,
        cache_dir: Path,
        progress: Callable[[int, int], None] | None = None,
    ) -> DenseIndex:
        """Encode the corpus, or load what an earlier run encoded.

        Raises
        ------
        DataError
            The corpus is empty, or all its texts are.
        """
        if not corpus:
            raise DataError("the corpus is empty: there is nothing to retrieve")
        if not any(passage.text.strip() for passage in corpus):
            raise DataError(f"all {len(corpus)} passages of the corpus have an empty text")
        store = EmbeddingStore(cache_dir, self._encoder())
        matrix = store.corpus_matrix(
            [self.passage_text(passage) for passage in corpus],
            fingerprint=digest([fingerprint, self.titles]),
            max_tokens=self.max_tokens_corpus,
            progress=progress,
        )
        return DenseIndex(self, corpus, matrix, store)

    def passage_text(self, passage: Passage) -> str:
        """The text that is embedded for a passage."""
        with_title = self.titles and passage.title
        return f"{passage.title} {passage.text}" if with_title else passage.text

    def _encoder(self) -> Encoder:
        found = plugins.find("encoder", self.encoder)
        encoder: Encoder = plugins.build(found, self.encoder_options)
        return encoder


class DenseIndex:
    """A searchable corpus; see :class:`ragassay.plugins.Index`."""

    def __init__(
        self,
        retriever: DenseRetriever,
        corpus: Sequence[Passage],
        matrix: NDArray[np.float32],
        store: EmbeddingStore,
    ) -> None:
        self._retriever = retriever
        # Sorted by id, so that positions break ties and the order of the file does not matter.
        order = sorted(range(len(corpus)), key=lambda i: corpus[i].id)
        self._corpus = [corpus[i] for i in order]
        self._ids = {passage.id for passage in corpus}
        self._matrix = self._scaled(np.asarray(matrix)[order])
        self._store = store
        self._memo: dict[tuple[str, int], tuple[Hit, ...]] = {}

    @property
    def encoded(self) -> int:
        """Texts that were really encoded since the index was made."""
        return self._store.encoded

    @property
    def encode_seconds(self) -> float:
        """Wall time spent in the encoder."""
        return self._store.seconds

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed passages as the corpus is, shape ``(n, d)``, unnormalized."""
        return self._store.embed(texts, max_tokens=self._retriever.max_tokens_corpus)

    def search(self, queries: Sequence[Query], k: int) -> list[tuple[Hit, ...]]:
        """Exact top-k of the clean corpus."""
        missing = list(
            dict.fromkeys(query.text for query in queries if (query.text, k) not in self._memo)
        )
        if missing:
            vectors = self._query_vectors(missing)
            block = max(1, _BLOCK_BYTES // (4 * len(self._corpus)))
            for start in range(0, len(missing), block):
                scores = _product(vectors[start : start + block], self._matrix)
                for text, row in zip(missing[start : start + block], scores, strict=True):
                    self._memo[text, k] = self._top(row, k)
        return [self._memo[query.text, k] for query in queries]

    def poisoned(
        self, queries: Sequence[Query], poison: Sequence[Passage], k: int
    ) -> list[tuple[Hit, ...]]:
        """Exact top-k of corpus and poison; only the poison is encoded.

        A corpus passage outside the clean top-k is beaten by k passages already, so merging
        the clean top-k with all poison is exact.

        Raises
        ------
        DataError
            A poison passage has the id of another passage.
        """
        ids = [passage.id for passage in poison]
        clash = next((i for i in ids if i in self._ids or ids.count(i) > 1), None)
        if clash is not None:
            raise DataError(f"a poison passage has the id of another passage: {clash!r}")
        clean = self.search(queries, k)
        if not poison:
            return clean
        vectors = self._scaled(
            self._store.embed(
                [self._retriever.passage_text(passage) for passage in poison],
                max_tokens=self._retriever.max_tokens_poison,
            )
        )
        scores = _product(self._query_vectors([query.text for query in queries]), vectors)
        return [_merge(hits, poison, row, k) for hits, row in zip(clean, scores, strict=True)]

    def _query_vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._scaled(self._store.embed(texts, max_tokens=self._retriever.max_tokens_query))

    def _scaled(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._retriever.similarity == "dot":
            return vectors
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        scaled: NDArray[np.float32] = vectors / np.where(norms > 0, norms, 1)
        return scaled

    def _top(self, scores: NDArray[np.float64], k: int) -> tuple[Hit, ...]:
        k = min(k, len(scores))
        cut = np.partition(scores, len(scores) - k)[len(scores) - k]
        candidates = np.flatnonzero(scores >= cut)  # with all ties at the boundary
        best = candidates[np.lexsort((candidates, -scores[candidates]))][:k]
        return tuple(
            Hit(passage=self._corpus[i], rank=rank, score=float(scores[i]))
            for rank, i in enumerate(best.tolist(), start=1)
        )


def _product(queries: NDArray[np.float32], vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    exact = np.asarray(queries @ vectors.T, dtype=np.float64)
    return np.round(exact, _DECIMALS) + 0.0  # no negative zero


def _merge(
    clean: tuple[Hit, ...], poison: Sequence[Passage], scores: NDArray[np.float64], k: int
) -> tuple[Hit, ...]:
    entries = [(-hit.score, 0, hit.passage.id, hit.passage) for hit in clean]
    entries += [
        (-float(score), 1, passage.id, passage)
        for passage, score in zip(poison, scores, strict=True)
    ]
    entries.sort(key=lambda entry: entry[:3])
    return tuple(
        Hit(passage=passage, rank=rank, score=-negative + 0.0)
        for rank, (negative, _, _, passage) in enumerate(entries[:k], start=1)
    )
