"""Exact dense retrieval: cosine or dot product over embeddings, with a poison overlay.

Scores are exact sums of fixed-point numbers (:mod:`ragassay.retrieval.fixed`), so that a score
depends on its two vectors alone; a blocked float32 product only sieves out what cannot be
among the best (:mod:`ragassay.retrieval.scan`).

Source: exact maximum inner product search as in BEIR (Thakur et al., NeurIPS Datasets and
Benchmarks 2021); merging injected passages with the clean top-k: Zou et al., PoisonedRAG,
USENIX Security 2025.

Deviations: token limits of corpus, queries and poison are three settings; ties go to the
corpus, then to the smaller id; fixed-point scores as described above.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, overload

import numpy as np
from numpy.typing import NDArray

from ragassay import plugins
from ragassay.canon import digest
from ragassay.data.corpus_file import SortedCorpus, ids_of
from ragassay.errors import ConfigError, PluginError
from ragassay.plugins import Encoder
from ragassay.plugins.access import OpenEncoder, WhiteBoxEncoder
from ragassay.retrieval.corpus_matrix import Contents, Storage, Stored, contents_of
from ragassay.retrieval.faiss_scan import searcher
from ragassay.retrieval.fixed import Similarity, all_scores, fixed_point
from ragassay.retrieval.ranking import (
    check_k,
    hits_of,
    indexed_text,
    ordered_corpus,
    ordered_poison,
    top_rows,
)
from ragassay.retrieval.rows import Vectors
from ragassay.retrieval.vectors import EmbeddingStore
from ragassay.types import Hit, Passage, Query

Option = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseRetriever:
    """Exact nearest neighbors of embeddings; only the poison of a trial is encoded anew.

    Parameters
    ----------
    encoder : str
        A registered encoder, or ``"file.py:Class"`` relative to the current folder.
    encoder_options : dict
        Options of the encoder, such as ``{dtype = "bfloat16"}``.
    similarity : {"cosine", "dot"}
        Cosine gives 0 for a zero vector.
    max_tokens_corpus, max_tokens_query, max_tokens_poison : int
        Where the encoder cuts a text, special tokens included.
    titles : bool
        Whether a passage is embedded with its title before the text, poison included.
    storage : {"float32", "float16"}
        Number type of the corpus vectors on disk. float16 halves the bytes; scores then count
        with the rounded vectors, which changes few ranks.
    accelerator : {"none", "faiss"}
        What sieves the corpus. faiss (extra ``[faiss]``) keeps a float32 copy in memory; its
        candidates are scored as all others, and where they do not prove to hold the best, the
        corpus is scanned. Cannot change a result.
    """

    version: ClassVar[str] = "1"

    encoder: str = "minilm"
    encoder_options: dict[str, Option] = field(default_factory=dict)
    similarity: Similarity = "cosine"
    max_tokens_corpus: int = 256
    max_tokens_query: int = 256
    max_tokens_poison: int = 256
    titles: bool = True
    storage: Storage = "float32"
    accelerator: Literal["none", "faiss"] = field(default="none", metadata={"identity": False})
    _encoder: Encoder = field(init=False, repr=False, compare=False)
    _embedder: Encoder = field(init=False, repr=False, compare=False)
    _origin: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("max_tokens_corpus", "max_tokens_query", "max_tokens_poison"):
            if getattr(self, name) < 3:
                raise ConfigError(
                    f"{name} must be at least 3 (two special tokens and one of text), "
                    f"got {getattr(self, name)}"
                )
        found = plugins.find("encoder", self.encoder)
        encoder = plugins.build(found, self.encoder_options)
        # isinstance(encoder, Encoder) would evaluate the identity, which may need the weights
        for name in ("encode", "identity"):
            if inspect.getattr_static(encoder, name, None) is None:
                raise PluginError(f"encoder {self.encoder!r} lacks {name!r}, which it must offer")
        object.__setattr__(self, "_encoder", encoder)
        object.__setattr__(self, "_embedder", encoder)
        object.__setattr__(self, "_origin", plugins.identity(found, encoder))

    @property
    def encoder_identity(self) -> str:
        """What embeddings are filed under: the encoder's identity, options and origin."""
        return f"{self._encoder.identity}@{digest([self._origin])[:16]}"

    @property
    def identity(self) -> str:
        """Digest of all options and of the encoder.

        Raises
        ------
        BackendUnavailable
            The encoder's weights are not there.
        """
        parts = [
            self.version,
            self.encoder_identity,
            self.similarity,
            self.max_tokens_corpus,
            self.max_tokens_query,
            self.max_tokens_poison,
            self.titles,
            *([self.storage] if self.storage != "float32" else []),
        ]
        return f"dense:{digest(parts)[:16]}"

    def white_box(self) -> WhiteBoxEncoder:
        """Open the encoder for attacks that use gradients; its weights are loaded once.

        Raises
        ------
        ConfigError
            The encoder does not give gradients.
        """
        if not isinstance(self._encoder, OpenEncoder):
            raise ConfigError(
                f"encoder {self.encoder!r} gives no gradients, and a white-box attack needs them; "
                "use 'minilm' or 'sentence_transformers'"
            )
        return self._encoder.white_box(
            similarity=self.similarity,
            query_tokens=self.max_tokens_query,
            passage_tokens=self.max_tokens_poison,
        )

    def vector_bytes(self, passages: int) -> int | None:
        """Size of the vectors of so many passages on disk; None if their length is not known.

        It is known of an encoder that has ``dimensions``.
        """
        dimensions = getattr(self._encoder, "dimensions", None)
        if not isinstance(dimensions, int):
            return None
        return passages * dimensions * (4 if self.storage == "float32" else 2)

    def spread(self, over: Callable[[Encoder], Encoder]) -> DenseRetriever:
        """A copy whose texts are embedded elsewhere.

        Parameters
        ----------
        over : callable
            Makes a stand-in of the encoder, with the same identity and the same vectors. It may
            have ``encode_parts(parts, *, max_tokens)``, which yields the vectors of several
            parts of texts in their order and works on them side by side.
        """
        other = copy.copy(self)
        object.__setattr__(other, "_embedder", over(self._encoder))
        return other

    def index(
        self,
        corpus: Sequence[Passage],
        *,
        fingerprint: str,
        cache_dir: Path,
        progress: Callable[[int, int], None] | None = None,
    ) -> DenseIndex:
        """Embed a corpus, or load the embeddings that an earlier run left.

        Parameters
        ----------
        corpus : sequence of Passage
            In any order.
        fingerprint : str
            Digest of the data set.
        cache_dir : Path
            Where embeddings are kept.
        progress : callable, optional
            Hears (texts done, texts in all).

        Raises
        ------
        DataError
            The corpus is empty, holds only empty texts, or two passages share an id.
        BackendError
            The encoder fails.
        StoreError
            The cache cannot be read or written.
        """
        passages = ordered_corpus(corpus, titles=self.titles)
        store = EmbeddingStore(cache_dir, self._embedder, identity=self.encoder_identity)
        texts = _IndexedTexts(passages, titles=self.titles)
        matrix = store.corpus_matrix(
            texts,
            contents=texts.contents(),
            fingerprint=fingerprint,
            max_tokens=self.max_tokens_corpus,
            storage=self.storage,
            progress=progress,
        )
        return DenseIndex(self, passages, matrix, store)


class DenseIndex:
    """An embedded corpus. Made by :meth:`DenseRetriever.index`; safe to share by threads.

    Parameters
    ----------
    options : DenseRetriever
        Similarity, token limits, titles.
    passages : sequence of Passage, length n
        Sorted by id.
    matrix : ndarray of float32 or float16, shape (n, d)
        Their embeddings.
    store : EmbeddingStore
        Where other texts are embedded.
    """

    def __init__(
        self,
        options: DenseRetriever,
        passages: Sequence[Passage],
        matrix: Stored,
        store: EmbeddingStore,
    ) -> None:
        self._options = options
        self._passages = passages
        self._ids = ids_of(passages)
        self._dimension = matrix.shape[1]
        self._scan = searcher(matrix, options.similarity, options.accelerator)
        self._store = store
        self._lock = threading.Lock()
        self._clean: dict[tuple[str, int], tuple[Hit, ...]] = {}

    @property
    def encoded(self) -> int:
        """How many texts were really encoded, the corpus included."""
        return self._store.encoded

    @property
    def reused(self) -> int:
        """How many embeddings came from disk."""
        return self._store.reused

    @property
    def encode_seconds(self) -> float:
        """Wall time inside the encoder."""
        return self._store.seconds

    def search(self, queries: Sequence[Query], k: int) -> list[tuple[Hit, ...]]:
        """Exact top-k of the clean corpus for each query, remembered by its text.

        Parameters
        ----------
        queries : sequence of Query
        k : int
            At least 1; more than the corpus holds gives the whole corpus.

        Returns
        -------
        list of tuple of Hit
            By score descending, then id ascending.

        Raises
        ------
        ConfigError
            ``k`` is below 1.
        BackendError
            The encoder fails.
        """
        check_k(k)
        with self._lock:
            texts = [t for t in dict.fromkeys(q.text for q in queries) if (t, k) not in self._clean]
        if texts:
            rows, scores = self._scan.top(self._embedded(texts), k)
            found = [hits_of(self._passages, *best) for best in zip(rows, scores, strict=True)]
            with self._lock:
                self._clean |= {(t, k): hits for t, hits in zip(texts, found, strict=True)}
        return [self._clean[query.text, k] for query in queries]

    def poisoned(
        self, queries: Sequence[Query], poison: Sequence[Passage], k: int
    ) -> list[tuple[Hit, ...]]:
        """Exact top-k of corpus and poison together; of passages, only poison is encoded.

        A corpus passage outside the clean top-k is beaten by k others, with or without
        poison, so the clean top-k is all that is needed of the corpus.

        Parameters
        ----------
        queries : sequence of Query
        poison : sequence of Passage
            All that is injected at once, in any order.
        k : int
            At least 1.

        Returns
        -------
        list of tuple of Hit
            By score descending, then corpus before poison, then id ascending.

        Raises
        ------
        DataError
            A poison passage has the id of a corpus passage or of another.
        ConfigError
            ``k`` is below 1.
        BackendError
            The encoder fails.
        """
        injected = ordered_poison(poison, self._ids)
        clean = self.search(queries, k)
        if not injected or not queries:
            return clean
        similarity = self._options.similarity
        asked = fixed_point(self._embedded([query.text for query in queries]), similarity)
        scores = all_scores(
            asked, fixed_point(self.encode_poison(injected), similarity), similarity
        )
        return [_merged(hits, injected, row, k) for hits, row in zip(clean, scores, strict=True)]

    def encode_poison(self, poison: Sequence[Passage]) -> Vectors:
        """Embed poison, shape (n, d); all that a run injects at once fills larger batches.

        Raises
        ------
        BackendError
            The encoder fails.
        """
        options = self._options
        return self._store.embed(
            [indexed_text(passage, titles=options.titles) for passage in poison],
            max_tokens=options.max_tokens_poison,
        )

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts as passages of the corpus are (for defenses): shape (n, d), float32.

        Raises
        ------
        BackendError
            The encoder fails.
        """
        if not texts:
            return np.zeros((0, self._dimension), dtype=np.float32)
        return self._store.embed(texts, max_tokens=self._options.max_tokens_corpus)

    def close(self) -> None:
        """Close the files of the embedding store."""
        self._store.close()

    def _embedded(self, texts: Sequence[str]) -> Vectors:
        return self._store.embed(texts, max_tokens=self._options.max_tokens_query)


# --------------------------------------------------------------------------------- internals


class _IndexedTexts(Sequence[str]):
    """What is embedded of each passage, made when it is asked for."""

    def __init__(self, passages: Sequence[Passage], *, titles: bool) -> None:
        self._passages = passages
        self._titles = titles

    def __len__(self) -> int:
        return len(self._passages)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [indexed_text(p, titles=self._titles) for p in self._passages[place]]
        return indexed_text(self._passages[place], titles=self._titles)

    def contents(self) -> Contents:
        """Digests of ids and texts; those of a corpus on disk are computed once."""

        def whole() -> Contents:
            return contents_of((p.id, indexed_text(p, titles=self._titles)) for p in self._passages)

        if isinstance(self._passages, SortedCorpus):
            name = f"by id, {'titles and texts' if self._titles else 'texts'}"
            kept = self._passages.corpus.remembered(name, lambda: " ".join(whole()))
            return Contents(*kept.split())
        return whole()


def _merged(
    clean: tuple[Hit, ...], poison: tuple[Passage, ...], scores: NDArray[np.float64], k: int
) -> tuple[Hit, ...]:
    passages = [*(hit.passage for hit in clean), *poison]
    values = np.concatenate([[hit.score for hit in clean], scores])
    rows = top_rows(values, k)  # corpus before poison, each in its order: ties fall rightly
    return hits_of(passages, rows, values[rows])
