"""BM25 over words, computed by bm25s, with poison that counts in the statistics.

Ranks and ties are decided here, over the scores of all passages: the library's own selection
promises no order for equal scores, and fails where k exceeds the corpus (xhluca/bm25s 116, 127).

Source: Robertson and Zaragoza, The probabilistic relevance framework: BM25 and beyond, 2009;
the variants as in Kamphuis et al., Which BM25 do you mean?, ECIR 2020; Lv and Zhai, CIKM 2011
and SIGIR 2011 (BM25+, BM25L); Lu, BM25S, 2024.

Deviations: words are runs of at least two letters or digits, in lower case, unstemmed (the
library's default). Scores are rounded to 9 decimals, so that equal passages get equal scores in
whatever order their terms are summed.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ragassay.canon import digest
from ragassay.errors import BackendUnavailable, ConfigError, DataError
from ragassay.retrieval.ranking import (
    check_k,
    hits_of,
    indexed_text,
    ordered_corpus,
    ordered_poison,
    top_rows,
)
from ragassay.types import Hit, Passage, Query

Method = Literal["lucene", "robertson", "atire", "bm25l", "bm25+"]

_DECIMALS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class BM25Retriever:
    """BM25 over words; injected poison changes word frequencies and lengths as it would in life.

    Parameters
    ----------
    k1 : float
        Saturation of the term frequency; above 0.
    b : float
        Weight of the passage length, from 0 to 1.
    delta : float
        Lower bound of a term's weight; only ``bm25l`` and ``bm25+`` use it.
    method : {"lucene", "robertson", "atire", "bm25l", "bm25+"}
        Variant of the formula.
    stopwords : {"english", "none"}
        Which words are left out.
    titles : bool
        Whether a passage is indexed with its title before the text, poison included.
    statistics : {"rebuilt", "frozen"}
        ``rebuilt`` is exact: corpus and poison are indexed together. ``frozen`` keeps the
        document frequencies and the average length of the clean corpus, an approximation that
        is fast for large corpora; words that only poison has then count nothing.
    """

    version: ClassVar[str] = "1"

    k1: float = 1.5
    b: float = 0.75
    delta: float = 0.5
    method: Method = "lucene"
    stopwords: Literal["english", "none"] = "english"
    titles: bool = True
    statistics: Literal["rebuilt", "frozen"] = "rebuilt"

    def __post_init__(self) -> None:
        if not (0 < self.k1 < math.inf and 0 <= self.b <= 1 and 0 <= self.delta < math.inf):
            raise ConfigError(
                f"need k1 > 0, 0 <= b <= 1 and delta >= 0, got k1 = {self.k1}, b = {self.b}, "
                f"delta = {self.delta}"
            )

    @property
    def identity(self) -> str:
        """Digest of all options."""
        parts = [
            self.version,
            float(self.k1),
            float(self.b),
            float(self.delta),
            self.method,
            self.stopwords,
            self.titles,
            self.statistics,
        ]
        return f"bm25:{digest(parts)[:16]}"

    def index(
        self,
        corpus: Sequence[Passage],
        *,
        fingerprint: str,
        cache_dir: Path,
        progress: Callable[[int, int], None] | None = None,
    ) -> BM25Index:
        """Index a corpus in memory; nothing is kept on disk.

        Parameters
        ----------
        corpus : sequence of Passage
            In any order.
        fingerprint, cache_dir
            Not used.
        progress : callable, optional
            Hears (passages, passages) once.

        Raises
        ------
        DataError
            The corpus is empty, holds no indexable word, or two passages share an id.
        BackendUnavailable
            bm25s is not installed.
        """
        passages = tuple(ordered_corpus(corpus, titles=self.titles))
        index = BM25Index(self, passages)
        if progress is not None:
            progress(len(passages), len(passages))
        return index


class BM25Index:
    """An indexed corpus. Made by :meth:`BM25Retriever.index`; safe to share by threads.

    Parameters
    ----------
    options : BM25Retriever
        Formula, stop words, titles, statistics.
    passages : tuple of Passage, length n
        Sorted by id.

    Raises
    ------
    DataError
        No passage has an indexable word.
    BackendUnavailable
        bm25s is not installed.
    """

    def __init__(self, options: BM25Retriever, passages: tuple[Passage, ...]) -> None:
        self._options = options
        self._passages = passages
        self._ids = frozenset(passage.id for passage in passages)
        self._library = _bm25s()
        self._vocabulary: dict[str, int] = {}
        self._tokens = _numbered(self._words_of(passages), self._vocabulary)
        if not self._vocabulary:
            raise DataError(
                f"none of the {len(passages)} passages has a word that BM25 indexes (single "
                "characters and stop words are left out)"
            )
        self._average = sum(map(len, self._tokens)) / len(self._tokens)
        self._model = self._built(self._tokens, self._vocabulary)
        self._lock = threading.Lock()
        self._clean: dict[tuple[str, int], tuple[Hit, ...]] = {}
        self._frequencies: Counter[int] | None = None

    def search(self, queries: Sequence[Query], k: int) -> list[tuple[Hit, ...]]:
        """Exact top-k of the clean corpus for each query, remembered by its text.

        Passages that share no word with the query score 0 and fill up the list by id.

        Raises
        ------
        ConfigError
            ``k`` is below 1.
        """
        check_k(k)
        found = []
        for query in queries:
            with self._lock:
                hits = self._clean.get((query.text, k))
            if hits is None:
                scores = self._scores(self._model, self._vocabulary, self._words(query.text))
                rows = top_rows(scores, k)
                hits = hits_of(self._passages, rows, scores[rows])
                with self._lock:
                    self._clean[query.text, k] = hits
            found.append(hits)
        return found

    @property
    def scores_alone(self) -> bool:
        """Whether the score of an injected passage does not depend on the others."""
        return self._options.statistics == "frozen"

    def poisoned(
        self, queries: Sequence[Query], poison: Sequence[Passage], k: int
    ) -> list[tuple[Hit, ...]]:
        """Top-k of corpus and poison together, exact unless statistics are frozen.

        One index is built for all queries of a call; the corpus is not tokenized again.

        Raises
        ------
        DataError
            A poison passage has the id of a corpus passage or of another.
        ConfigError
            ``k`` is below 1.
        """
        check_k(k)
        injected = ordered_poison(poison, self._ids)
        if not injected or not queries:
            return self.search(queries, k)
        words = self._words_of(injected)
        passages = (*self._passages, *injected)  # corpus before poison, each by id
        score = self._rebuilt(words) if self._options.statistics == "rebuilt" else None
        found = []
        for query in queries:
            asked = self._words(query.text)
            scores = score(asked) if score is not None else self._frozen(asked, words)
            rows = top_rows(scores, k)
            found.append(hits_of(passages, rows, scores[rows]))
        return found

    def _rebuilt(self, poison: list[list[str]]) -> Callable[[list[str]], NDArray[np.float64]]:
        vocabulary = dict(self._vocabulary)
        model = self._built(self._tokens + _numbered(poison, vocabulary), vocabulary)
        return lambda asked: self._scores(model, vocabulary, asked)

    def _frozen(self, asked: list[str], poison: list[list[str]]) -> NDArray[np.float64]:
        with self._lock:
            if self._frequencies is None:
                self._frequencies = Counter(word for tokens in self._tokens for word in set(tokens))
        weights = [
            (word, _idf(self._options.method, self._frequencies[number], len(self._tokens)))
            for word in asked
            if (number := self._vocabulary.get(word)) is not None
        ]
        own = []
        for words in poison:
            counts = Counter(words)
            length = len(words) / self._average
            own.append(sum(w * _saturated(self._options, counts[t], length) for t, w in weights))
        clean = self._scores(self._model, self._vocabulary, asked)
        return np.concatenate([clean, np.round(np.array(own, dtype=np.float64), _DECIMALS)])

    def _scores(
        self, model: Any, vocabulary: Mapping[str, int], asked: list[str]
    ) -> NDArray[np.float64]:
        known = [vocabulary[word] for word in asked if word in vocabulary]
        if not known:  # the library fails on a query without a known word
            return np.zeros(int(model.scores["num_docs"]), dtype=np.float64)
        scores: NDArray[np.float64] = np.asarray(model.get_scores(known), dtype=np.float64)
        return np.round(scores, _DECIMALS)

    def _built(self, tokens: list[list[int]], vocabulary: dict[str, int]) -> Any:
        options = self._options
        model = self._library.BM25(
            k1=options.k1,
            b=options.b,
            delta=options.delta,
            method=options.method,
            dtype="float64",
            backend="numpy",  # "auto" would let installed packages decide
        )
        model.index((tokens, vocabulary), create_empty_token=False, show_progress=False)
        return model

    def _words_of(self, passages: Sequence[Passage]) -> list[list[str]]:
        return self._split([indexed_text(p, titles=self._options.titles) for p in passages])

    def _words(self, text: str) -> list[str]:
        return self._split([text])[0]

    def _split(self, texts: list[str]) -> list[list[str]]:
        words: list[list[str]] = self._library.tokenize(
            texts,
            stopwords="english" if self._options.stopwords == "english" else [],
            return_ids=False,
            show_progress=False,
        )
        return words


# --------------------------------------------------------------------------------- internals


def _bm25s() -> Any:
    try:
        import bm25s
    except ImportError as error:
        raise BackendUnavailable(
            f"the retriever 'bm25' needs bm25s ({error}): pip install 'ragassay[local]'"
        ) from error
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to DEBUG on import
    return bm25s


def _numbered(texts: list[list[str]], vocabulary: dict[str, int]) -> list[list[int]]:
    """Turn words into numbers, adding new words to the vocabulary."""
    return [[vocabulary.setdefault(word, len(vocabulary)) for word in words] for words in texts]


def _idf(method: Method, frequency: int, count: int) -> float:
    """Inverse document frequency of a word that ``frequency`` of ``count`` passages have."""
    odds = (count - frequency + 0.5) / (frequency + 0.5)
    match method:
        case "lucene":
            return math.log(1 + odds)
        case "robertson":
            return math.log(max(odds, 1.0))
        case "atire":
            return math.log(count / frequency)
        case "bm25l":
            return math.log((count + 1) / (frequency + 0.5))
        case "bm25+":
            return math.log((count + 1) / frequency)


def _saturated(options: BM25Retriever, count: int, length: float) -> float:
    """Weight of a word that occurs ``count`` times; ``length`` is in average lengths."""
    k1, delta = options.k1, options.delta
    norm = 1 - options.b + options.b * length
    match options.method:
        case "lucene" | "robertson":
            return count / (k1 * norm + count) if count else 0.0
        case "atire":
            return count * (k1 + 1) / (k1 * norm + count) if count else 0.0
        case "bm25l":
            shifted = (count / norm if count else 0.0) + delta
            return (k1 + 1) * shifted / (k1 + shifted)
        case "bm25+":
            return (count * (k1 + 1) / (k1 * norm + count) if count else 0.0) + delta
