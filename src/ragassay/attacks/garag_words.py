"""Typos: which words of a text may have one, and which typos a word can have.

Source: the kinds of typos are those of GARAG (Cho et al., 2024, EMNLP Findings): a neighboring
key, a common misspelling, a word cut short, and letters inside a word swapped.

Deviations: the keyboard map is derived from the rows of a QWERTY keyboard, the misspellings are
a short list of our own (the option ``misspellings`` adds to it). A typo never makes a
word of the answer. A swap is drawn like any other typo; released code fixes the seed of all
random numbers at each swap.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np

from ragassay import matching
from ragassay.errors import ConfigError

_PIECE = re.compile(r"\s+|\S+")
MIN_LETTERS = 3
MAX_LETTERS = 40  # what is longer is no word, and would have very many typos
MAX_CUT = 3
_ROWS = (("qwertyuiop", 0.0), ("asdfghjkl", 0.25), ("zxcvbnm", 0.75))
_STOP_WORDS = """
    a about above after again all also am an and any are as at be because been before being
    below between both but by can could did do does doing down during each few for from further
    had has have having he her here hers herself him himself his how i if in into is it its
    itself just may me might more most must my myself no nor not now of off on once only or
    other our ours out over own same shall she should so some such than that the their theirs
    them themselves then there these they this those through to too under until up upon us very
    was we were what when where which while who whom whose why will with within without would
    you your yours yourself
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def keyboard_neighbors() -> dict[str, str]:
    """Keys that touch each letter's key on a QWERTY keyboard, in alphabetical order.

    Examples
    --------
    >>> keyboard_neighbors()["s"]
    'adewxz'
    """
    places = {
        letter: (row, shift + column)
        for row, (letters, shift) in enumerate(_ROWS)
        for column, letter in enumerate(letters)
    }
    return {
        letter: "".join(
            sorted(
                other
                for other, (row, column) in places.items()
                if other != letter and abs(row - y) <= 1 and abs(column - x) <= 1
            )
        )
        for letter, (y, x) in places.items()
    }


_NEIGHBORS = keyboard_neighbors()


@lru_cache(maxsize=1)
def own_misspellings() -> Mapping[str, tuple[str, ...]]:
    """The misspellings that come with the package: how a word is misspelled, by word."""
    lines = (files(__package__) / "garag_misspellings.txt").read_text(encoding="utf-8")
    entries = [line.split() for line in lines.splitlines() if line and not line.startswith("#")]
    return {word: tuple(wrong) for word, *wrong in entries}


def with_misspellings(more: Sequence[Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Add misspellings, each a word and how it is misspelled, to those of the package.

    Raises
    ------
    ConfigError
        An entry has no misspelling, or white space in a word.

    Examples
    --------
    >>> with_misspellings([("Vienna", "Viena")])["vienna"]
    ('Viena',)
    """
    found = dict(own_misspellings())
    for entry in more:
        if len(entry) < 2 or any(len(word.split()) != 1 or word.strip() != word for word in entry):
            raise ConfigError(
                f"misspellings: got {list(entry)!r:.60}, need a word and its misspellings, "
                'such as ["receive", "recieve"]'
            )
        word, *wrong = entry
        found[word.lower()] = tuple(dict.fromkeys((*found.get(word.lower(), ()), *wrong)))
    return found


@dataclass(frozen=True, slots=True)
class Words:
    """A text in pieces, with the words that may be changed.

    ``pieces`` joined are the text. ``cores`` are the words of the text without the punctuation
    around them, each as (piece, start, stop); ``open`` numbers those that may have a typo.
    """

    pieces: tuple[str, ...]
    cores: tuple[tuple[int, int, int], ...]
    open: tuple[int, ...]

    @property
    def count(self) -> int:
        """Words of the text: runs without white space."""
        return len(self.cores)

    def word(self, number: int) -> str:
        """A word without the punctuation around it."""
        piece, start, stop = self.cores[number]
        return self.pieces[piece][start:stop]

    def text(self, edits: Mapping[int, str]) -> str:
        """The text with some words, by number, replaced."""
        pieces = list(self.pieces)
        for number, new in edits.items():
            piece, start, stop = self.cores[number]
            pieces[piece] = pieces[piece][:start] + new + pieces[piece][stop:]
        return "".join(pieces)


def split_words(text: str, protected: Collection[str], typos: Typos) -> Words:
    """Find the words of a text that may have a typo.

    These are words of 3 to 40 letters and nothing but letters, that are neither stop words nor
    protected, and for which there is a typo.

    Parameters
    ----------
    text : str
    protected : collection of str
        Tokens of answers; see :func:`answer_words`.
    typos : Typos
        What typos there are.

    Examples
    --------
    >>> names = {"ottawa"}
    >>> words = split_words("Ottawa is (officially) the capital.", names, Typos({}, names))
    >>> [words.word(i) for i in words.open]
    ['officially', 'capital']
    """
    pieces = tuple(_PIECE.findall(text))
    cores: list[tuple[int, int, int]] = []
    open_words = []
    for place, piece in enumerate(pieces):
        if piece.isspace():
            continue
        letters = [i for i, character in enumerate(piece) if character.isalnum()]
        start, stop = (letters[0], letters[-1] + 1) if letters else (0, 0)
        core = piece[start:stop]
        if (
            MIN_LETTERS <= len(core) <= MAX_LETTERS
            and core.isalpha()
            and core.lower() not in STOP_WORDS
            and not {token.text for token in matching.tokenize(core)} & set(protected)
            and typos.of(core)
        ):
            open_words.append(len(cores))
        cores.append((place, start, stop))
    return Words(pieces, tuple(cores), tuple(open_words))


def answer_words(answers: Sequence[str]) -> frozenset[str]:
    """The normalized tokens of some answers, which a typo must not touch.

    Examples
    --------
    >>> sorted(answer_words(["New York's mayor", "NYC"]))
    ['mayor', 'new', 'nyc', 'york']
    """
    return frozenset(token.text for answer in answers for token in matching.tokenize(answer))


class Typos:
    """All typos that a word can have, by kind.

    Parameters
    ----------
    misspellings : mapping of str to tuple of str
        Common misspellings, by word in lower case.
    protected : collection of str
        Words that no typo may make.
    """

    def __init__(
        self, misspellings: Mapping[str, tuple[str, ...]], protected: Collection[str]
    ) -> None:
        self._misspellings = misspellings
        self._protected = frozenset(protected)
        self._known: dict[str, tuple[tuple[str, ...], ...]] = {}

    def of(self, word: str) -> tuple[tuple[str, ...], ...]:
        """The typos of a word: one tuple for each kind that it can have.

        Examples
        --------
        >>> Typos({"bern": ("Burn",)}, ()).of("Bern")[1:]
        (('Burn',), ('ern', 'Ber'), ('Bren',))
        """
        if word not in self._known:
            kinds = (
                _slips(word),
                tuple(_like(word, wrong) for wrong in self._misspellings.get(word.lower(), ())),
                _cuts(word),
                _swaps(word),
            )
            kept = (self._fit(word, kind) for kind in kinds)
            self._known[word] = tuple(kind for kind in kept if kind)
        return self._known[word]

    def draw(self, word: str, rng: np.random.Generator) -> str:
        """Draw a typo: a kind, then one of its typos."""
        kinds = self.of(word)
        kind = kinds[int(rng.integers(len(kinds)))]
        return kind[int(rng.integers(len(kind)))]

    def _fit(self, word: str, typos: Sequence[str]) -> tuple[str, ...]:
        return tuple(
            typo
            for typo in dict.fromkeys(typos)
            if typo != word and not {t.text for t in matching.tokenize(typo)} & self._protected
        )


# --------------------------------------------------------------------------------- internals


def _slips(word: str) -> tuple[str, ...]:
    return tuple(
        word[:i] + (key.upper() if letter.isupper() else key) + word[i + 1 :]
        for i, letter in enumerate(word)
        for key in _NEIGHBORS.get(letter.lower(), "")
    )


def _cuts(word: str) -> tuple[str, ...]:
    most = min(MAX_CUT, len(word) - MIN_LETTERS)
    return tuple(
        cut for size in range(1, most + 1) for cut in (word[size:], word[: len(word) - size])
    )


def _swaps(word: str) -> tuple[str, ...]:
    return tuple(word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in range(1, len(word) - 2))


def _like(word: str, wrong: str) -> str:
    if word.isupper():
        return wrong.upper()
    return wrong[:1].upper() + wrong[1:] if word[:1].isupper() else wrong
