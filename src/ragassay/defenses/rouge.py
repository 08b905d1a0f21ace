"""ROUGE-L with stemming: do two passages share much of their wording?

Source: Lin (2004), "ROUGE: A Package for Automatic Evaluation of Summaries"; tokenizer and
stemmer are those of the rouge-score library.

Deviations: the longest common subsequence is found with bit-parallel integers; the values are
those of rouge-score.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ragassay.errors import BackendUnavailable


def any_overlap(texts: Sequence[str], rouge_threshold: float = 0.25) -> bool:
    """Tell whether any two passages overlap: the gate before any clustering.

    Raises
    ------
    BackendUnavailable
        rouge-score is not installed.
    """
    return any(rouge_l(a, b) > rouge_threshold for a, b in itertools.combinations(texts, 2))


def rouge_l(a: str, b: str) -> float:
    """Return the ROUGE-L F-measure of two texts, stemmed; 0 if either has no token.

    Equal to ``rouge_score``'s value (its tokenizer and stemmer are used), but a text is stemmed
    once and the longest common subsequence is found with bit operations.

    Raises
    ------
    BackendUnavailable
        rouge-score is not installed.

    References
    ----------
    Lin (2004), ROUGE; Hyyrö (2004), bit-parallel longest common subsequence.

    Examples
    --------
    >>> rouge_l("the cat sat on the mat", "the cat lay on the mat")
    0.8333333333333334
    """
    first, second = _tokens(a), _tokens(b)
    if not first or not second:
        return 0.0
    common = _common_length(first, second)
    precision, recall = common / len(second), common / len(first)
    return 2 * precision * recall / (precision + recall) if common else 0.0


def overlap_test(texts: Sequence[str], threshold: float) -> Callable[[int, int], bool]:
    """Return a test of two positions for overlap; each pair is compared once."""

    @functools.cache
    def ordered_pair(i: int, j: int) -> bool:
        return rouge_l(texts[i], texts[j]) > threshold

    return lambda i, j: ordered_pair(min(i, j), max(i, j))


def _common_length(first: Sequence[str], second: Sequence[str]) -> int:
    places: dict[str, int] = {}
    for i, token in enumerate(first):
        places[token] = places.get(token, 0) | 1 << i
    full = (1 << len(first)) - 1
    row = full
    for token in second:
        match = row & places.get(token, 0)
        row = ((row + match) | (row - match)) & full
    return len(first) - row.bit_count()


@functools.lru_cache(maxsize=2048)
def _tokens(text: str) -> tuple[str, ...]:
    tokenize, stemmer = _tools()
    return tuple(tokenize(text, stemmer))


class _Stemmer:
    """A stemmer that remembers words: stemming is most of the work, and words come again."""

    def __init__(self, stem: Callable[[str], str]) -> None:
        self.stem = functools.lru_cache(maxsize=65_536)(stem)


@functools.lru_cache(maxsize=1)
def _tools() -> tuple[Callable[[str, Any], list[str]], _Stemmer]:
    try:
        from nltk.stem.porter import PorterStemmer
        from rouge_score.tokenize import tokenize
    except ImportError as error:
        raise BackendUnavailable(
            "ROUGE-L needs rouge-score: pip install 'ragassay[local]'"
        ) from error
    return tokenize, _Stemmer(PorterStemmer().stem)


def forget() -> None:
    """Forget texts and words that were seen; only time depends on it."""
    _tokens.cache_clear()
    _tools.cache_clear()
