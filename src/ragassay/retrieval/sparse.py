"""BM25 retrieval through bm25s, with our own total order and exact poisoned scores.

Source: Robertson and Zaragoza (2009); the bm25s library (Lù, 2024).

Deviations: BM25 weights depend on the whole collection, so injected passages change the
scores of clean ones. ``statistics = "rebuilt"`` scores corpus and poison as one collection,
which is exact; ``"frozen"`` keeps the corpus statistics, which scales better and is an
approximation. Every document is scored and ordered by (score descending, corpus before
poison, id); bm25s's own top-k is not used (it fails for k above the corpus size and leaves
the order of ties open).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ragassay.canon import digest
from ragassay.errors import BackendUnavailable, ConfigError, DataError
from ragassay.types import Hit, Passage, Query

Tokens = list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BM25Retriever:
    """BM25 over words, by bm25s; poisoned retrieval with exact collection statistics."""

    version: ClassVar[str] = "1"

    k1: float = 1.5
    b: float = 0.75
    method: Literal["lucene", "robertson", "atire", "bm25l", "bm25+"] = "lucene"
    stopwords: Literal["english", "none"] = "english"
    titles: bool = True
    statistics: Literal["rebuilt", "frozen"] = "rebuilt"

    def __post_init__(self) -> None:
        if self.k1 < 0 or not 0 <= self.b <= 1:
            raise ConfigError(f"need k1 >= 0 and 0 <= b <= 1, got k1 = {self.k1}, b = {self.b}")

    @property
    def identity(self) -> str:
        """Digest of all options."""
        options = [self.version, self.k1, self.b, self.method, self.stopwords, self.titles,
                   self.statistics]  # fmt: skip
        return f"bm25:{digest(options)[:16]}"

    def index(
        self,
        corpus: Sequence[Passage],
        *,
        fingerprint: str,
        cache_dir: Path,
        progress: Callable[[int, int], None] | None = None,
    ) -> BM25Index:
        """Index the corpus (in memory: it takes seconds, so nothing is kept on disk).

        Raises
        ------
        DataError
            The corpus is empty, or all its texts are.
        """
        if not corpus:
            raise DataError("the corpus is empty: there is nothing to retrieve")
        if not any(passage.text.strip() for passage in corpus):
            raise DataError(f"all {len(corpus)} passages of the corpus have an empty text")
        index = BM25Index(self, corpus)
        if progress is not None:
            progress(len(corpus), len(corpus))
        return index

    def tokens(self, texts: Sequence[str]) -> list[Tokens]:
        """Split texts into lower-case words."""
        bm25s = _bm25s()
        split: list[Tokens] = bm25s.tokenize(
            list(texts),
            stopwords="en" if self.stopwords == "english" else [],
            return_ids=False,
            show_progress=False,
        )
        return split

    def model(self, documents: list[Tokens]) -> Any:
        """Build a bm25s model over tokenized documents; None where they hold no word."""
        if not any(documents):
            return None
        model = _bm25s().BM25(k1=self.k1, b=self.b, method=self.method, backend="numpy")
        model.index(documents, show_progress=False)
        return model

    def passage_text(self, passage: Passage) -> str:
        """The text that is indexed for a passage."""
        with_title = self.titles and passage.title
        return f"{passage.title} {passage.text}" if with_title else passage.text


class BM25Index:
    """A searchable corpus; see :class:`ragassay.plugins.Index`."""

    encoded = 0
    encode_seconds = 0.0

    def __init__(self, retriever: BM25Retriever, corpus: Sequence[Passage]) -> None:
        self._retriever = retriever
        self._corpus = sorted(corpus, key=lambda passage: passage.id)
        self._ids = {passage.id for passage in corpus}
        self._tokens = retriever.tokens([retriever.passage_text(p) for p in self._corpus])
        self._model = retriever.model(self._tokens)
        self._memo: dict[tuple[str, int], tuple[Hit, ...]] = {}

    def search(self, queries: Sequence[Query], k: int) -> list[tuple[Hit, ...]]:
        """Top-k of the clean corpus."""
        for query in queries:
            if (query.text, k) not in self._memo:
                scores = self._scores(self._model, query.text, len(self._corpus))
                self._memo[query.text, k] = _top(scores, self._corpus, k)
        return [self._memo[query.text, k] for query in queries]

    def poisoned(
        self, queries: Sequence[Query], poison: Sequence[Passage], k: int
    ) -> list[tuple[Hit, ...]]:
        """Top-k of corpus and poison together.

        Raises
        ------
        DataError
            A poison passage has the id of another passage.
        """
        ids = [passage.id for passage in poison]
        clash = next((i for i in ids if i in self._ids or ids.count(i) > 1), None)
        if clash is not None:
            raise DataError(f"a poison passage has the id of another passage: {clash!r}")
        if not poison:
            return self.search(queries, k)
        injected = sorted(poison, key=lambda passage: passage.id)
        tokens = self._retriever.tokens([self._retriever.passage_text(p) for p in injected])
        passages = self._corpus + injected
        if self._retriever.statistics == "rebuilt":
            model = self._retriever.model(self._tokens + tokens)
            return [
                _top(self._scores(model, query.text, len(passages)), passages, k)
                for query in queries
            ]
        return [
            _top(
                np.concatenate([
                    self._scores(self._model, query.text, len(self._corpus)),
                    self._frozen(query.text, tokens),
                ]),
                passages,
                k,
            )
            for query in queries
        ]  # fmt: skip

    def _scores(self, model: Any, question: str, size: int) -> NDArray[np.float64]:
        words = self._known(model, question)
        if not words:
            return np.zeros(size)
        return _rounded(np.asarray(model.get_scores(words), dtype=np.float64))

    def _known(self, model: Any, question: str) -> Tokens:
        if model is None:
            return []
        [words] = self._retriever.tokens([question])
        return [word for word in words if word in model.vocab_dict]

    def _frozen(self, question: str, tokens: Sequence[Tokens]) -> NDArray[np.float64]:
        """Score passages by the lucene formula with the corpus's own statistics."""
        n = len(self._tokens)
        average = sum(map(len, self._tokens)) / n
        k1, b = self._retriever.k1, self._retriever.b
        out = np.zeros(len(tokens))
        for word in self._known(self._model, question):
            frequency = sum(word in set(document) for document in self._tokens)
            idf = np.log(1 + (n - frequency + 0.5) / (frequency + 0.5))
            for i, document in enumerate(tokens):
                count = document.count(word)
                out[i] += idf * count / (count + k1 * (1 - b + b * len(document) / average))
        return _rounded(out)


def _rounded(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    out: NDArray[np.float64] = np.round(scores, 6)
    return out


def _top(scores: NDArray[np.float64], passages: Sequence[Passage], k: int) -> tuple[Hit, ...]:
    k = min(k, len(scores))
    cut = np.partition(scores, len(scores) - k)[len(scores) - k]
    candidates = np.flatnonzero(scores >= cut)
    best = candidates[np.lexsort((candidates, -scores[candidates]))][:k]
    return tuple(
        Hit(passage=passages[i], rank=rank, score=float(scores[i]))
        for rank, i in enumerate(best.tolist(), start=1)
    )


def _bm25s() -> Any:
    try:
        import bm25s
    except ImportError as error:
        raise BackendUnavailable(
            f"BM25 needs bm25s ({error}): pip install 'ragassay[local]'"
        ) from error
    return bm25s
