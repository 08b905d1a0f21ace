"""Negation: one statement of the passage is turned into its denial.

Source: "In RAG We Trust?" (Fasolino, 2026), section III-B: a negation is inserted ("was the
44th President" becomes "was never the 44th President").

Deviations: the paper inserts after a copula or auxiliary only. Ours reads the sentence, puts
"not" or "never" after the finite auxiliary or copula of its main clause, and gives any other
verb do-support ("wrote" becomes "did not write"). The sentence is the one that shares most
words with the question. Where that sentence is negated already the rule refuses: it neither
negates twice nor turns to another sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragassay.matching import tokenize
from ragassay.tampering.clauses import (
    MAX_SENTENCE,
    Predicate,
    is_negated,
    predicates,
    sentence_spans,
)
from ragassay.tampering.edits import Edit, Scene, Tampered, edited
from ragassay.tampering.language import analyze
from ragassay.tampering.words import word_set

_STEM = 5  # letters by which two forms of a word count as the same
_TRIVIAL = word_set(
    """
    a an the of in on at to for from by with and or as is are was were be been do does did has
    have had will would can could what which who whom whose when where why how many much it its
    he she they that this his her their there not never
    """
)
_FULL = {"'ll": "will", "'ve": "have"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Negation:
    """Negates the sentence that is closest to the question.

    ``never`` is the share of past statements that are negated by "never" rather than "not".
    """

    name: ClassVar[str] = "negation"
    version: ClassVar[str] = "1"
    shared: ClassVar[bool] = False

    never: float = 0.5

    def apply(
        self,
        passage_text: str,
        question: str,
        rng: np.random.Generator,
        *,
        scene: Scene = Scene(),  # noqa: B008 - frozen
    ) -> Tampered:
        """Negate one sentence of a passage.

        Parameters
        ----------
        passage_text, question : str
            The passage, and the question that it is retrieved for.
        rng : numpy.random.Generator
            Draws "not" or "never".
        scene : Scene
            Not used.

        Raises
        ------
        BackendUnavailable
            spaCy or its English model is not installed.
        """
        never = float(rng.random()) < self.never
        place = _place(passage_text, question)
        if place is None:
            reason = "negated already" if is_negated(passage_text) else "no verb to negate"
            return Tampered(passage_text, (), False, reason)
        start, predicate = place
        edit = _edit(passage_text, start, predicate, never)
        found = edited(passage_text, [edit], otherwise="no verb to negate")
        # The word that is put in may change which sentence is closest to the question.
        if _place(found.text, question) is not None:
            return Tampered(passage_text, (), False, "could be negated twice")
        return found

    def prepare(self, passages: Sequence[str]) -> None:
        """Read many passages in one batch, before they are tampered with one by one."""
        analyze([text[a:b] for text in passages for a, b in _ranked(text, "")], "verbs")


def _place(text: str, question: str) -> tuple[int, Predicate] | None:
    """Return the offset of the closest sentence that can be negated, and its predicate.

    None where there is none, or where a negated one is closer.
    """
    spans = _ranked(text, question)
    analyses = analyze([text[start:stop] for start, stop in spans], "verbs")
    for (start, stop), analysis in zip(spans, analyses, strict=True):
        sentence = text[start:stop]
        if is_negated(sentence):
            return None
        predicate = next(predicates(sentence, analysis), None)
        if predicate is not None:
            return start, predicate
    return None


def _ranked(text: str, question: str) -> list[tuple[int, int]]:
    """Return the sentences, those that share most words with the question first."""
    asked = _stems(question)
    spans = [span for span in sentence_spans(text) if span[1] - span[0] <= MAX_SENTENCE]
    shared = [len(asked & _stems(text[start:stop])) for start, stop in spans]
    order = sorted(range(len(spans)), key=lambda at: (-shared[at], at))
    return [spans[at] for at in order]


def _stems(text: str) -> set[str]:
    return {t.text[:_STEM] for t in tokenize(text) if t.text not in _TRIVIAL}


def _edit(text: str, offset: int, predicate: Predicate, never: bool) -> Edit:
    word = predicate.word
    start, stop = offset + word.start, offset + predicate.stop
    before = text[start:stop]
    denial = "never" if never and predicate.past else "not"
    if predicate.mode == "do":
        return Edit(start, stop, before, _do(word.tag, word.lemma.lower(), before), "negation")
    head, tail = text[start : offset + word.stop], text[offset + word.stop : stop]
    return Edit(start, stop, before, _inserted(head, tail, predicate, denial), "negation")


def _do(tag: str, lemma: str, before: str) -> str:
    auxiliary = {"VBD": "did", "VBZ": "does"}.get(tag, "do")
    if before[:1].isupper():
        auxiliary = auxiliary.capitalize()
    return f"{auxiliary} not {lemma}"


def _inserted(head: str, tail: str, predicate: Predicate, denial: str) -> str:
    """Put the denial behind an auxiliary (``head``) and the adverb after it (``tail``)."""
    plain = head.lower().replace("’", "'")
    if plain == "can" and not tail:
        return f"{head}not"
    if plain in _FULL:
        head = f" {_FULL[plain]}"
    elif plain == "'d":
        head = " had" if predicate.participle else " would"
    return f"{head}{tail} {denial}"
