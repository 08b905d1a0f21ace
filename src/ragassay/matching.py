"""How two texts are compared: the published substring form, and whole tokens in any script.

Source: ``clean_str`` is the normalization of the released PoisonedRAG code (Zou et al.,
2025). The token form is ours: lower case by case folding, compatibility forms unified
(NFKC), numbers with their sign and decimal point, one token per character in scripts that
are written without spaces.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

# Scripts without spaces between words, and Hangul, whose particles stick to the noun.
_SOLO = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003134f"
)
_TOKEN = re.compile(
    rf"""
    (?P<solo>[{_SOLO}])
  | (?P<number>(?:(?<![^\s(\[]) [-+])?          # a sign stands at the start of a word
        (?:\d{{1,3}}(?:,\d{{3}})+(?![\d]) | \d+) (?:\.\d+)? (?![^\W\d_{_SOLO}]))
  | (?P<word>[^\W_{_SOLO}]+(?:'[^\W_{_SOLO}]+)*)
  | (?P<symbol>[%‰°$€£¥₹])
    """,
    re.VERBOSE,
)
_ARTICLES = frozenset({"a", "an", "the"})
_SAME = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "−": "-", "‐": "-", "‑": "-"})


@dataclass(frozen=True, slots=True)
class Token:
    """A normalized token and where it stands in the original text (``text[start:stop]``)."""

    text: str
    start: int
    stop: int


def clean_str(text: str) -> str:
    """Normalize as the released PoisonedRAG code does: strip, one final full stop, lower case.

    Examples
    --------
    >>> clean_str("  Bacon. ")
    'bacon'
    """
    text = text.strip()
    if len(text) > 1 and text.endswith("."):
        text = text[:-1]
    return text.lower()


def tokenize(text: str) -> list[Token]:
    """Split a text into normalized tokens.

    Examples
    --------
    >>> [token.text for token in tokenize("Paris’s 1,000 cafés cost 3.5% more, not -2")]
    ['paris', '1000', 'cafés', 'cost', '3.5', '%', 'more', 'not', '-2']
    """
    folded, origin = _fold(text)
    tokens = []
    for match in _TOKEN.finditer(folded):
        word, start, stop = match[0], match.start(), match.end()
        if match.lastgroup == "number":
            word = word.replace(",", "").removeprefix("+")
        elif match.lastgroup == "word" and word.endswith("'s"):
            word, stop = word[:-2], stop - 2
        tokens.append(Token(word, origin[start], origin[stop - 1] + 1))
    return tokens


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
    words = [token.text for token in tokens]
    size = len(wanted)
    target = list(wanted)
    at = 0
    while True:
        try:
            at = words.index(target[0], at)
        except ValueError:
            return
        if words[at : at + size] == target:
            yield tokens[at].start, tokens[at + size - 1].stop
        at += 1


def normalize_question(text: str) -> str:
    """Reduce a question to its tokens, so that spelling variants of one question are equal."""
    return " ".join(token.text for token in tokenize(text))


def _fold(text: str) -> tuple[str, Sequence[int]]:
    """Case-fold and unify compatibility forms; map each new character to its origin."""
    if text.isascii():
        return text.lower(), range(len(text))
    out: list[str] = []
    origin: list[int] = []
    start = 0
    for end in range(1, len(text) + 1):
        if end < len(text) and unicodedata.combining(text[end]):
            continue
        piece = unicodedata.normalize("NFKC", text[start:end].translate(_SAME)).casefold()
        piece = piece.translate(_SAME)
        out.append(piece)
        origin += [start] * (len(piece) - 1) + [end - 1] * bool(piece)
        start = end
    return "".join(out), origin
