"""Small edits of a passage that need no model: what cues it gives a filter, it gives by these.

Every edit is a pure function of the text, the question and a random generator; it returns the
text unchanged where it does not apply. None of them looks at the attacker's answer: whoever
uses them checks afterwards that the passage still holds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ragassay.matching import tokenize

Edit = Callable[[str, str, np.random.Generator], str]

_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_SHORT = 4  # question words of fewer letters say little about its subject
_FILLERS = (
    "Further notes on the subject are kept in the same file.",
    "The entry was checked when the collection was last revised.",
    "Readers may want to compare the neighboring entries.",
    "Several later accounts repeat the same point.",
    "The details vary little from one account to the next.",
    "An index of names stands at the end of the volume.",
    "The wording follows that of the earlier edition.",
    "Nothing in the records of that year contradicts it.",
)
_ADVERBS = ("indeed", "notably", "generally", "reportedly", "today", "officially", "in fact")


def drop_question(text: str, question: str, rng: np.random.Generator) -> str:
    """Remove every verbatim copy of the question, with the full stop that joins it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> drop_question("Who wrote Hamlet?.Bacon wrote it.", "who wrote Hamlet?", rng)
    'Bacon wrote it.'
    """
    if not question.strip():
        return text
    pattern = re.escape(question.strip()) + r"\.?"
    return _tidy(re.sub(pattern, " ", text, flags=re.IGNORECASE)) or text


def question_last(text: str, question: str, rng: np.random.Generator) -> str:
    """Move the question from the front to the end."""
    bare = drop_question(text, question, rng)
    return text if bare == text else f"{bare} {question.strip()}"


def scatter_question(text: str, question: str, rng: np.random.Generator) -> str:
    """Put some of the question's words in front, in random order, in place of the question."""
    words = [token.text for token in tokenize(question) if len(token.text) >= _SHORT]
    if not words:
        return text
    count = int(rng.integers(1, min(4, len(words)) + 1))
    chosen = [words[int(row)] for row in rng.permutation(len(words))[:count]]
    return f"{' '.join(chosen).capitalize()}: {drop_question(text, question, rng)}"


def add_filler(text: str, question: str, rng: np.random.Generator) -> str:
    """Append a sentence that says nothing."""
    filler = _FILLERS[int(rng.integers(len(_FILLERS)))]
    return f"{text} {filler}"


def drop_sentence(text: str, question: str, rng: np.random.Generator) -> str:
    """Remove one sentence of several."""
    sentences = _SENTENCE.split(text)
    if len(sentences) < 2:
        return text
    del sentences[int(rng.integers(len(sentences)))]
    return " ".join(sentences)


def swap_sentences(text: str, question: str, rng: np.random.Generator) -> str:
    """Exchange two sentences."""
    sentences = _SENTENCE.split(text)
    if len(sentences) < 2:
        return text
    one, other = (int(row) for row in rng.choice(len(sentences), size=2, replace=False))
    sentences[one], sentences[other] = sentences[other], sentences[one]
    return " ".join(sentences)


def drop_word(text: str, question: str, rng: np.random.Generator) -> str:
    """Remove one word of several."""
    words = text.split()
    if len(words) < 2:
        return text
    del words[int(rng.integers(len(words)))]
    return " ".join(words)


def swap_words(text: str, question: str, rng: np.random.Generator) -> str:
    """Exchange two neighboring words."""
    words = text.split()
    if len(words) < 2:
        return text
    at = int(rng.integers(len(words) - 1))
    words[at], words[at + 1] = words[at + 1], words[at]
    return " ".join(words)


def insert_word(text: str, question: str, rng: np.random.Generator) -> str:
    """Insert an adverb between two words."""
    words = text.split()
    if not words:
        return text
    words.insert(int(rng.integers(1, len(words) + 1)), _ADVERBS[int(rng.integers(len(_ADVERBS)))])
    return " ".join(words)


EDITS: tuple[Edit, ...] = (
    drop_question, question_last, scatter_question, add_filler, drop_sentence, swap_sentences,
    drop_word, swap_words, insert_word,
)  # fmt: skip


def edit(text: str, question: str, rng: np.random.Generator, *, most: int = 3) -> tuple[str, str]:
    """Apply one to ``most`` random edits.

    Returns
    -------
    tuple of str
        The text, and the names of the edits that changed it, joined by ``+``.
    """
    names = []
    for _ in range(int(rng.integers(1, most + 1))):
        chosen = EDITS[int(rng.integers(len(EDITS)))]
        changed = chosen(text, question, rng)
        if changed != text:
            text = changed
            names.append(chosen.__name__)
    return text, "+".join(names)


def _tidy(text: str) -> str:
    return " ".join(text.split())
