"""Benign words that bring a passage to a clean length: prose, shuffled words, pseudowords.

Source: "Ranking is not judgment" (S1), section V-B (length rung and its placebos of equal length).

Deviations: S1 leaves the filler open. Ours are sentences of clean passages that were not retrieved
for the question, from which sentences that hold one of the answers are left out; the last one is
cut, so that the count is exact. All kinds start from the same sentences. Pseudowords keep the
letters' number and case, digits' number and punctuation of each word, and alternate consonants
and vowels; one that is a word of the clean passages is drawn again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from ragassay.canon import rng_for
from ragassay.construction.texts import CleanText
from ragassay.errors import ConfigError, NotEstimable
from ragassay.matching import find_spans, phrase, tokenize

Kind = Literal["clean", "shuffled", "pseudowords"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+")
_MIN_WORDS = 4  # of a sentence that serves as filler
_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwz", "aeiou"
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Filler:
    """Words to append, and the ids of the passages that they come from."""

    text: str
    kind: Kind
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FillerPool:
    """Sentences of clean passages. Build it with :func:`filler_pool`."""

    sentences: tuple[CleanText, ...]
    vocabulary: frozenset[str]

    def draw(
        self, words: int, key: Sequence[Any], *, kind: Kind = "clean",
        retrieved: Collection[str] = (), avoid: Sequence[str] = (),
    ) -> Filler:  # fmt: skip
        """Draw exactly ``words`` words.

        Parameters
        ----------
        words : int
            How many; 0 gives an empty filler.
        key : sequence
            What the draw is for; equal keys draw equal sentences for every kind.
        kind : str
            ``"clean"``, ``"shuffled"`` or ``"pseudowords"``.
        retrieved : collection of str
            Ids of passages that were retrieved for the question.
        avoid : sequence of str
            Answers that the filler must not hold.

        Raises
        ------
        ConfigError
            The kind is unknown.
        NotEstimable
            No sentence is left.
        """
        if kind not in KINDS:
            raise ConfigError(f"filler is {kind!r:.40}, expected one of {', '.join(KINDS)}")
        if words <= 0:
            return Filler("", kind, ())
        taken, sources = self._take(words, rng_for(*key, "filler"), set(retrieved), avoid)
        if kind == "shuffled":
            order = rng_for(*key, "shuffled").permutation(len(taken))
            taken = [taken[i] for i in order]
        elif kind == "pseudowords":
            rng = rng_for(*key, "pseudowords")
            taken = [_pseudoword(word, rng, self.vocabulary) for word in taken]
        return Filler(" ".join(taken), kind, sources)

    def _take(
        self, words: int, rng: np.random.Generator, retrieved: set[str], avoid: Sequence[str]
    ) -> tuple[list[str], tuple[str, ...]]:
        answers = [found for found in map(phrase, avoid) if found]
        taken: list[str] = []
        sources: dict[str, None] = {}
        while len(taken) < words:  # a small pool is gone through again
            before = len(taken)
            for place in rng.permutation(len(self.sentences)).tolist():
                source, sentence = self.sentences[place]
                if source in retrieved or _holds(sentence, answers):
                    continue
                taken += sentence.split()
                sources[source] = None
                if len(taken) >= words:
                    break
            if len(taken) == before:
                raise NotEstimable(
                    f"none of {len(self.sentences)} clean sentences can serve as filler: all "
                    "come from retrieved passages or hold an answer"
                )
        return taken[:words], tuple(sources)


def filler_pool(clean: Iterable[CleanText]) -> FillerPool:
    """Collect the sentences of clean passages.

    Raises
    ------
    NotEstimable
        No passage has a sentence of four words.
    """
    sentences: list[CleanText] = []
    vocabulary: set[str] = set()
    for passage in clean:
        for sentence in split_sentences(passage.text):
            vocabulary.update(sentence.lower().split())
            if len(sentence.split()) >= _MIN_WORDS:
                sentences.append(CleanText(passage.id, sentence))
    if not sentences:
        raise NotEstimable(f"no clean passage has a sentence of {_MIN_WORDS} words or more")
    bare = {re.sub(r"\W+", "", word) for word in vocabulary}
    return FillerPool(tuple(sentences), frozenset(bare))


def split_sentences(text: str) -> list[str]:
    """Split a text after full stops, question and exclamation marks that white space follows.

    Examples
    --------
    >>> split_sentences("Bacon wrote it. Did he? Yes!")
    ['Bacon wrote it.', 'Did he?', 'Yes!']
    """
    pieces, start = [], 0
    for match in _END.finditer(text):
        pieces.append(text[start : match.end()].strip())
        start = match.end()
    pieces.append(text[start:].strip())
    return [piece for piece in pieces if piece]


# --------------------------------------------------------------------------------- internals


def _holds(sentence: str, answers: Sequence[tuple[str, ...]]) -> bool:
    if not answers:
        return False
    tokens = tokenize(sentence)
    return any(next(find_spans(tokens, answer), None) is not None for answer in answers)


def _pseudoword(word: str, rng: np.random.Generator, vocabulary: frozenset[str]) -> str:
    for _ in range(_TRIES):
        made = _respelled(word, rng)
        bare = re.sub(r"\W+", "", made).lower()
        # Too short to be anything else than some word; and punctuation stays what it is.
        if len(bare) < 3 or bare not in vocabulary:
            break
    return made


def _respelled(word: str, rng: np.random.Generator) -> str:
    vowel = bool(rng.integers(2))
    made = []
    for char in word:
        if char.isalpha():
            letters = _VOWELS if vowel else _CONSONANTS
            letter = letters[int(rng.integers(len(letters)))]
            made.append(letter.upper() if char.isupper() else letter)
            vowel = not vowel
        else:
            made.append(str(rng.integers(10)) if char.isdigit() else char)
    return "".join(made)
