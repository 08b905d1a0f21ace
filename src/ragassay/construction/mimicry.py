"""Mimicry: a clean passage that was retrieved for the question, with only the target fact changed.

Source: "Ranking is not judgment" (S1), section V-B, the last rung of the control ladder.

Deviations: S1 does not say how the fact is changed. By default every place where the passage gives
a correct answer (whole tokens, longest first) gets the attacker's, in the case of the place; a
passage without a correct answer cannot be used, and the record says so. A model may do it instead;
its text is kept only if it gives the attacker's answer, gives no correct one, and is still the same
passage (at least half of the words in common, in order).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from ragassay.construction.filler import split_sentences
from ragassay.construction.texts import CleanText, PoisonText
from ragassay.matching import find_spans, phrase, tokenize

NOT_POSSIBLE = "not possible"
MIN_SAME = 0.5
_ARTICLE = re.compile(r"(?:^|\W)(?:a|an|the)\s+$", re.IGNORECASE)
_LEADING_ARTICLE = re.compile(r"^(?:a|an|the)\s+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteRequest:
    """What a model is given to change the target fact of a passage."""

    question: str
    passage: str
    references: tuple[str, ...]
    wanted: str


Rewrite = Callable[[RewriteRequest], str]
"""Returns the passage with the fact changed; the caller configures the model behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mimicked:
    """A mimicking passage, or why there is none.

    Attributes
    ----------
    text : str or None
        The passage; None where it was not possible, and then ``reason`` says why.
    source : str
        Id of the clean passage.
    payload : tuple of str
        Its sentences that give the attacker's answer.
    replaced : int
        Places that were changed; 0 where a model wrote it.
    reference_left : bool
        Whether a correct answer is still there (one that the attacker's answer holds).
    reason : str
        Empty where it was possible; else it starts with "not possible".
    """

    text: str | None
    source: str = ""
    payload: tuple[str, ...] = ()
    replaced: int = 0
    reference_left: bool = False
    reason: str = ""


def mimic(
    poison: PoisonText, retrieved: Sequence[CleanText], *, rewrite: Rewrite | None = None
) -> Mimicked:
    """Make a mimicking passage from what was retrieved clean for the question.

    The passage number n of a question uses the n-th retrieved passage that can be used, so that
    passages differ.

    Parameters
    ----------
    poison : PoisonText
        Whose question and answers it takes; its text is not used.
    retrieved : sequence of CleanText
        Clean passages, best first.
    rewrite : callable, optional
        A model that changes the fact; then a passage need not give a correct answer.
    """
    if not poison.wanted or not phrase(poison.wanted[0]):
        return _impossible("the attack has no answer to put in")
    if rewrite is not None:
        if poison.number >= len(retrieved):
            return _impossible(f"only {len(retrieved)} clean passages were retrieved")
        return _rewritten(poison, retrieved[poison.number], rewrite)
    if not any(map(phrase, poison.references)):
        return _impossible("no correct answer is known")
    usable = [each for each in retrieved if _reference_spans(each.text, poison)]
    if poison.number >= len(usable):
        return _impossible(
            f"{len(usable)} of {len(retrieved)} retrieved passages give a correct answer, "
            f"passage {poison.number + 1} needs one of its own"
        )
    source = usable[poison.number]
    spans = _reference_spans(source.text, poison)
    text = replace_spans(source.text, spans, poison.wanted[0])
    return _made(poison, source.id, text, len(spans))


def replace_spans(text: str, spans: Sequence[tuple[int, int]], wanted: str) -> str:
    """Put an answer in the place of spans, in the case of each place.

    An answer in plain lower case takes over capitals; one with capitals of its own keeps them.
    An article is not doubled.

    Parameters
    ----------
    text : str
        The passage.
    spans : sequence of (int, int)
        Places that do not overlap, in ascending order.
    wanted : str
        What is put there.

    Examples
    --------
    >>> replace_spans("Paris is big. PARIS!", [(0, 5), (14, 19)], "lyon")
    'Lyon is big. LYON!'
    """
    pieces, last = [], 0
    for start, stop in spans:
        put = _cased(wanted, text[start:stop])
        if _ARTICLE.search(text[:start]):
            put = _LEADING_ARTICLE.sub("", put)
        pieces += [text[last:start], put]
        last = stop
    return "".join([*pieces, text[last:]])


# --------------------------------------------------------------------------------- internals


def _impossible(why: str) -> Mimicked:
    return Mimicked(text=None, reason=f"{NOT_POSSIBLE}: {why}")


def _reference_spans(text: str, poison: PoisonText) -> list[tuple[int, int]]:
    """Where a correct answer stands that is not the attacker's, longest first, no overlaps."""
    unwanted = {phrase(answer) for answer in poison.wanted}
    looked_for = {found for found in map(phrase, poison.references) if found} - unwanted
    tokens = tokenize(text)
    spans: list[tuple[int, int]] = []
    for answer in sorted(looked_for, key=lambda words: (-len(words), words)):
        for start, stop in find_spans(tokens, answer):
            if all(stop <= left or start >= right for left, right in spans):
                spans.append((start, stop))
    return sorted(spans)


def _cased(wanted: str, place: str) -> str:
    if any(char.isupper() for char in wanted):
        return wanted
    letters = [char for char in place if char.isalpha()]
    if len(letters) > 1 and all(char.isupper() for char in letters):
        return wanted.upper()
    return wanted[:1].upper() + wanted[1:] if place[:1].isupper() else wanted


def _gives(text: str, answers: Sequence[str]) -> bool:
    tokens = tokenize(text)
    found = (phrase(answer) for answer in answers)
    return any(words and next(find_spans(tokens, words), None) is not None for words in found)


def _made(poison: PoisonText, source: str, text: str, replaced: int) -> Mimicked:
    payload = tuple(s for s in split_sentences(text) if _gives(s, poison.wanted))
    return Mimicked(
        text=text,
        source=source,
        payload=payload or (text,),
        replaced=replaced,
        reference_left=_gives(text, poison.references),
    )


def _rewritten(poison: PoisonText, source: CleanText, rewrite: Rewrite) -> Mimicked:
    text = rewrite(
        RewriteRequest(
            question=poison.question, passage=source.text, references=poison.references,
            wanted=poison.wanted[0],
        )
    ).strip()  # fmt: skip
    if not _gives(text, poison.wanted):
        return _impossible("the model's text does not give the attacker's answer")
    if _reference_spans(text, poison):
        return _impossible("the model's text still gives a correct answer")
    words = SequenceMatcher(None, source.text.split(), text.split(), autojunk=False)
    if words.ratio() < MIN_SAME:
        return _impossible("the model's text is another passage")
    return _made(poison, source.id, text, 0)
