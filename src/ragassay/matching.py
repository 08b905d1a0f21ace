"""How two texts are compared: the published substring form, and whole tokens in any script.

Source: ``clean_str`` is the normalization of the released PoisonedRAG code (Zou et al.,
2025). The token form is ours: lower case by case folding, compatibility forms unified
(NFKC), numbers with their sign and decimal point, one token per character in scripts that
are written without spaces. ``profile_text`` is the normalization of "Ranking is not judgment"
for the test whether a passage holds its question word for word.

Deviations: none from ``clean_str``. ``profile_text`` turns punctuation and symbols into spaces
where the paper removes them, because PoisonedRAG joins question and text without a space. Beyond
NFKC, a raised digit or a fraction does not run
into the number before it ("10²" is 10 and 2, not 102), nor "™" into the word before it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

# Scripts without spaces between words, and Hangul, whose particles stick to the noun.
_SOLO = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]"
)
_APOSTROPHES = "\u2019\u2018\u02bc\u02bb\u00b4"
_HYPHENS = "\u2212\u2010\u2011"
_INVISIBLE = "\u00ad\u200c\u200d\u2060\ufeff" + "".join(map(chr, range(0xFE00, 0xFE10)))
_SAME = str.maketrans(
    dict.fromkeys(_APOSTROPHES, "'") | dict.fromkeys(_HYPHENS, "-") | dict.fromkeys(_INVISIBLE, "")
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ASCII_SHAPE = str.maketrans(_LETTERS + "0123456789", "L" * 26 + "0" * 10)
# Longest run of marks on one letter that is composed at once (UAX 15, stream-safe format):
# normalizing a longer one takes time that grows with its square.
_MAX_CLUSTER = 32

# Works on the shape of a text, where L is a letter or mark, 0 a digit, S a character of a
# script without spaces, $ a currency sign, % a percent or degree sign, and any other
# character itself. Quantifiers are possessive or bounded, so that time is linear.
_SIGN = r"(?:(?<![L0S)\]}%.+/-])[-+])"  # a hyphen after a word is not a sign
_TOKEN = re.compile(
    rf"""
    (?P<solo>S)
  | (?P<number>{_SIGN}?
      (?:(?<!0\.)(?:0{{1,3}}(?:,000){{1,8}}+(?!0)|0++)\.0++(?!\.0)   # one decimal point
        |0{{1,3}}(?:,000){{1,8}}+(?!0)
        |0++
        |(?<![L0S.])\.0++(?!\.0)
      )(?:L[L0]*+)?)                                                 # 5th, 3.5kg
  | (?P<word>L[L0]*+(?:'L[L0]*+)*+)
  | (?P<symbol>(?:{_SIGN}(?=\$0))?[$%])
    """,
    re.VERBOSE,
)
_ARTICLES = frozenset({"a", "an", "the"})


@dataclass(frozen=True, slots=True)
class Token:
    """A normalized token and where it stands in the original text (``text[start:stop]``)."""

    text: str
    start: int
    stop: int


def clean_str(text: str) -> str:
    """Normalize as the released PoisonedRAG code does: strip, one final full stop, lower case.

    A text that is a single full stop stays as it is.

    Examples
    --------
    >>> clean_str("  Bacon. ")
    'bacon'
    """
    text = text.strip()
    if len(text) > 1 and text.endswith("."):
        text = text[:-1]
    return text.lower()


def has_content(text: str) -> bool:
    """Tell whether a text has a letter or a digit, without which nothing can be looked for."""
    return any(character.isalnum() for character in text)


class Tokens(tuple[Token, ...]):
    """The tokens of a text; ``words`` are their texts, for looking through them often."""

    words: tuple[str, ...]


@lru_cache(maxsize=8)
def tokenize(text: str) -> Tokens:
    """Split a text into normalized tokens, in time linear in its length.

    The last few texts are remembered: one answer is read by several rules in a row.

    Examples
    --------
    >>> [token.text for token in tokenize("Paris’s 1,000 cafés cost 3.5% more, not -2")]
    ['paris', '1000', 'cafés', 'cost', '3.5', '%', 'more', 'not', '-2']
    """
    folded = _fold(text)
    tokens = []
    for match in _TOKEN.finditer(folded.shape):
        start, stop = match.span()
        word = folded.text[start:stop]
        if match.lastgroup == "number":
            word = word.replace(",", "").removeprefix("+")
            if word.startswith((".", "-.")):
                word = word.replace(".", "0.", 1)
        elif match.lastgroup == "word" and word.endswith("'s"):
            word, stop = word[:-2], stop - 2
        tokens.append(Token(word, folded.starts[start], folded.stops[stop - 1]))
    result = Tokens(tokens)
    result.words = tuple(token.text for token in tokens)
    return result


@lru_cache(maxsize=65_536)
def phrase(text: str) -> tuple[str, ...]:
    """Return the tokens of a phrase to look for, a leading article left out.

    An empty result means that there is nothing to look for.
    """
    words = tuple(token.text for token in tokenize(text))
    return words[1:] if len(words) > 1 and words[0] in _ARTICLES else words


def find_spans(tokens: Sequence[Token], wanted: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield where the wanted tokens occur contiguously, as spans of the original text."""
    if not wanted:
        return
    words = tokens.words if isinstance(tokens, Tokens) else tuple(t.text for t in tokens)
    if wanted[0] not in words:
        return
    size = len(wanted)
    target = tuple(wanted)
    at = 0
    while True:
        try:
            at = words.index(target[0], at)
        except ValueError:
            return
        if words[at : at + size] == target:
            yield tokens[at].start, tokens[at + size - 1].stop
        at += 1


def normalize_text(text: str) -> str:
    """Reduce a text to its tokens, so that spelling variants of one text are equal."""
    return " ".join(token.text for token in tokenize(text))


def normalize_question(text: str) -> str:
    """Reduce a question to its tokens, so that spelling variants of one question are equal."""
    return normalize_text(text)


class _Spaced(dict[int, str | int]):
    """A translation table that turns punctuation and symbols into spaces, filled as it is used."""

    def __missing__(self, code: int) -> str | int:
        spaced: str | int = " " if unicodedata.category(chr(code))[0] in "PS" else code
        self[code] = spaced
        return spaced


_SPACED = _Spaced({ord("\u03c2"): "\u03c3"})  # the final sigma depends on what follows it


def profile_text(text: str) -> str:
    """Lower-case, turn punctuation and symbols into spaces, and squeeze white space.

    Examples
    --------
    >>> profile_text("who wrote Hamlet?.The play")
    'who wrote hamlet the play'
    """
    return " ".join(text.lower().translate(_SPACED).split())


def holds_verbatim(question: str, passage: str) -> bool | None:
    """Tell whether a passage holds a question word for word, compared by characters.

    Source: "Ranking is not judgment", section V-A (verbatim containment). The test is on
    characters, so that a question counts that runs into the next word without a space.

    Returns
    -------
    bool or None
        None where the question has no letter or digit.

    Examples
    --------
    >>> holds_verbatim("who wrote Hamlet?", "who wrote Hamlet?.The play was written by Bacon.")
    True
    """
    wanted = profile_text(question)
    return wanted in profile_text(passage) if wanted else None


def verbatim_spans(question: str, passage: str) -> list[tuple[int, int]]:
    """Find a question's verbatim occurrences, as spans of the passage that do not overlap.

    A span starts and stops at a letter or digit of the question; punctuation around it is
    outside.

    Examples
    --------
    >>> verbatim_spans("Who wrote Hamlet?", "who wrote Hamlet?.Bacon did.")
    [(0, 16)]
    """
    wanted = profile_text(question)
    if not wanted:
        return []
    chars: list[str] = []
    places: list[int] = []
    for place, char in enumerate(passage):
        # Lower-casing may make several characters of one, all of which stand at its place.
        for piece in char.lower().translate(_SPACED):
            piece = " " if piece.isspace() else piece
            if piece != " " or (chars and chars[-1] != " "):
                chars.append(piece)
                places.append(place)
    spaced, spans, at = "".join(chars), [], 0
    while (at := spaced.find(wanted, at)) >= 0:
        stop = at + len(wanted)
        spans.append((places[at], places[stop - 1] + 1))
        at = stop
    return spans


# --------------------------------------------------------------------------------- internals


class _Folded(NamedTuple):
    """A folded text, its shape, and the span of the original behind each character."""

    text: str
    shape: str
    starts: Sequence[int]
    stops: Sequence[int]


def _fold(text: str) -> _Folded:
    """Case-fold and unify compatibility forms; remember where each character comes from."""
    if text.isascii():
        lower = text.lower()
        size = len(text)
        return _Folded(lower, lower.translate(_ASCII_SHAPE), range(size), range(1, size + 1))
    known: dict[str, tuple[str, str]] = {}
    pieces: list[str] = []
    shapes: list[str] = []
    starts: list[int] = []
    stops: list[int] = []
    last = ""
    for start, stop in _clusters(text):
        cluster = text[start:stop]
        if cluster not in known:
            known[cluster] = _fold_cluster(cluster)
        piece, shape = known[cluster]
        if _stands_apart(cluster[0], piece, last):
            piece, shape = " " + piece, " " + shape
        pieces.append(piece)
        shapes.append(shape)
        starts += [start] * len(piece)
        stops += [stop] * len(piece)
        last = piece[-1:] or last
    return _Folded("".join(pieces), "".join(shapes), starts, stops)


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """Cut a text into characters with the marks that belong to them."""
    start, size = 0, len(text)
    while start < size:
        stop = start + 1
        while stop < size and stop - start < _MAX_CLUSTER and _joins(text[stop]):
            stop += 1
        yield start, stop
        start = stop


def _joins(character: str) -> bool:
    """Tell whether a character can be composed with the one before it (marks, Hangul jamo)."""
    return character >= "\u0300" and (
        unicodedata.category(character)[0] == "M" or "\u1160" <= character <= "\u11ff"
    )


def _fold_cluster(cluster: str) -> tuple[str, str]:
    # Case folding can undo a composition, and composition can bring in what was unified.
    piece = unicodedata.normalize("NFKC", cluster.translate(_SAME)).casefold()
    piece = unicodedata.normalize("NFKC", piece).translate(_SAME)
    piece = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in piece)
    return piece, "".join(map(_shape, piece))


def _shape(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Nd":
        return "0"
    if character.isalnum() or category in {"Mn", "Mc"}:
        return "S" if _SOLO.match(character) else "L"
    if category == "Sc":
        return "$"
    return "%" if character in "%‰°" else character


def _stands_apart(character: str, piece: str, last: str) -> bool:
    """Tell whether NFKC would glue a raised sign to what stands before it."""
    if character < "\u00a0" or not last.isalnum():
        return False
    if piece[:1].isdecimal():
        return last.isdecimal() and not character.isdecimal()
    return piece[:1].isalpha() and unicodedata.decomposition(character).startswith("<super>")
