"""The words that a jamming search draws: from a text by frequency, or from a short list of ours.

The list stands in ``jamming_words.txt``, one word a line, in no order that means anything.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragassay.errors import DataError
from ragassay.matching import tokenize

FREQUENT = 100
"""How many of a text's most frequent words are left out: they say the least."""


@dataclass(frozen=True, slots=True)
class Words:
    """Words to draw, and how probable each is."""

    words: tuple[str, ...]
    weights: NDArray[np.float64] = field(repr=False, compare=False)

    def draw(self, count: int, rng: np.random.Generator) -> tuple[str, ...]:
        """Draw different words, more probable ones first of all; fewer where there are fewer."""
        size = min(count, len(self.words))
        rows = rng.choice(len(self.words), size=size, replace=False, p=self.weights)
        return tuple(self.words[int(row)] for row in rows)


def read_words(path: str = "", *, drop: int = FREQUENT) -> Words:
    """Read the words to draw: by frequency in a text file, or from our own short list.

    Parameters
    ----------
    path : str
        A UTF-8 text; its words are counted, lower-cased. Empty: our list, every word as
        probable as any other.
    drop : int
        How many of the most frequent words of the file are left out.

    Raises
    ------
    DataError
        The file cannot be read or holds too few words; the message names it.
    """
    if not path:
        text = (files(__package__) / "jamming_words.txt").read_text(encoding="utf-8")
        words = tuple(text.split())
        return Words(words, np.full(len(words), 1.0 / len(words)))
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8"
        raise DataError(f"the words to draw cannot be read: {reason}", path=path) from error
    counts = Counter(token.text for token in tokenize(text) if token.text.isalpha())
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[drop:]
    if not ranked:
        raise DataError(
            f"holds {len(counts)} different words, and the {drop} most frequent are left out; give "
            "a longer text or a smaller drop",
            path=path,
        )
    shares = np.array([count for _, count in ranked], dtype=np.float64)
    return Words(tuple(word for word, _ in ranked), shares / shares.sum())
