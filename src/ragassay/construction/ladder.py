"""The control ladder: poison with its cues taken away one by one, the payload left alone.

Source: "Ranking is not judgment" (S1), sections V-B and III-C: template, prefix removed, length
matched, both, mimicry; payload-preserving edits; placebo fillers of equal length.

Deviations: the prefix is every verbatim occurrence of the question (compared as in the profile),
with the punctuation that joins it. A passage that is too short is padded, after the payload, to a
word count drawn from the clean lengths within [l5, l95]; one that is inside stays, a longer one is
not cut. Where an attack does not name its payload, it is the sentences that give the attacker's
answer, or all of the passage but the question. An edited passage must be embedded, retrieved and
scored again; nothing here does that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from ragassay.canon import rng_for
from ragassay.construction.filler import Filler, FillerPool, Kind, split_sentences
from ragassay.construction.mimicry import NOT_POSSIBLE, Rewrite, mimic
from ragassay.construction.profile import CleanLengths, count_words
from ragassay.construction.texts import CleanText, PoisonText, poison_texts
from ragassay.errors import ConfigError
from ragassay.matching import find_spans, phrase, tokenize, verbatim_spans
from ragassay.types import Passage, PoisonSet

Rung = Literal["template", "prefix_removed", "length_matched", "both", "mimicry"]
RUNGS: tuple[Rung, ...] = get_args(Rung)
_REMOVES = frozenset({"prefix_removed", "both"})
_PADS = frozenset({"length_matched", "both", "mimicry"})
_JOINING = re.compile(r"[.?!,;:]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """An edited passage and what was done to it.

    Attributes
    ----------
    rung : str
        Which rung it is for.
    text : str or None
        The edited passage; None where the edit is not possible, and then ``reason`` says why.
    changed : bool
        Whether it differs from the passage as it was.
    removed : int
        Occurrences of the question that were deleted.
    filler : str
        Kind of the words that were appended; empty where none were.
    words_before, words_after : int
        Word counts.
    drawn : int or None
        The word count that was drawn; None where the length was left alone.
    sources : tuple of str
        Ids of clean passages that filler or mimicked text comes from.
    payload : tuple of str
        The sentences that must survive.
    payload_intact : bool
        Whether they do, word for word but for white space.
    reference_left : bool
        For mimicry: whether a correct answer is still there.
    """

    rung: Rung
    text: str | None
    changed: bool
    removed: int
    filler: Kind | Literal[""]
    words_before: int
    words_after: int
    drawn: int | None
    sources: tuple[str, ...]
    payload: tuple[str, ...]
    payload_intact: bool
    reference_left: bool = False
    reason: str = ""

    @property
    def possible(self) -> bool:
        """Whether there is an edited passage."""
        return self.text is not None

    def record(self) -> dict[str, Any]:
        """Everything but the text, as plain JSON values."""
        return {
            "rung": self.rung, "possible": self.possible, "changed": self.changed,
            "removed": self.removed, "filler": self.filler, "words_before": self.words_before,
            "words": self.words_after, "drawn": self.drawn, "sources": list(self.sources),
            "payload": " ".join(self.payload), "payload_intact": self.payload_intact,
            "reference_left": self.reference_left, "reason": self.reason,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The settings that all edits of a corpus share.

    ``lengths`` and ``pool`` come from the clean corpus, ``filler`` is the kind of padding,
    ``rewrite`` an optional model for mimicry. Equal settings and texts give equal edits: what
    is drawn derives from the seed, the question's id and the passage's number, and does not
    depend on rung or filler.
    """

    lengths: CleanLengths
    pool: FillerPool
    seed: int = 0
    filler: Kind = "clean"
    rewrite: Rewrite | None = None

    def edit(self, poison: PoisonText, rung: Rung, *, retrieved: Sequence[CleanText] = ()) -> Edit:
        """Edit one passage for a rung.

        Parameters
        ----------
        poison : PoisonText
            The passage as its attack wrote it.
        rung : str
            One of :data:`RUNGS`.
        retrieved : sequence of CleanText
            What is retrieved for the question without poison, best first: mimicry takes from
            it, filler does not.

        Raises
        ------
        ConfigError
            The rung is unknown.
        NotEstimable
            No clean sentence can serve as filler.
        """
        if rung not in RUNGS:
            raise ConfigError(f"rung is {rung!r:.40}, expected one of {', '.join(RUNGS)}")
        if rung == "mimicry":
            return self._mimicked(poison, retrieved)
        payload, text, removed = payload_of(poison), poison.text, 0
        if rung in _REMOVES:
            text, removed = remove_question(poison.question, text)
            if not text:
                return _impossible(rung, poison, payload, "nothing is left without the question")
        padded, drawn, added = self._padded(poison, rung, text, retrieved)
        return _edit(rung, poison, padded, payload, drawn=drawn, added=added, removed=removed)

    def _mimicked(self, poison: PoisonText, retrieved: Sequence[CleanText]) -> Edit:
        made = mimic(poison, retrieved, rewrite=self.rewrite)
        if made.text is None:
            return replace(_impossible("mimicry", poison, (), ""), reason=made.reason)
        padded, drawn, added = self._padded(poison, "mimicry", made.text, retrieved)
        edit = _edit("mimicry", poison, padded, made.payload, drawn=drawn, added=added)
        return replace(
            edit, sources=(made.source, *edit.sources), reference_left=made.reference_left
        )

    def _padded(
        self, poison: PoisonText, rung: Rung, text: str, retrieved: Sequence[CleanText]
    ) -> tuple[str, int | None, Filler | None]:
        """Bring a text that is too short to a clean length."""
        words = count_words(text)
        if rung not in _PADS or self.lengths.where(words) != "below":
            return text, None, None
        key = (self.seed, "ladder", poison.query_id, poison.number)
        drawn = int(rng_for(*key, "words").choice(self.lengths.inside))
        added = self.pool.draw(
            drawn - words, key, kind=self.filler, retrieved=[each.id for each in retrieved],
            avoid=(*poison.wanted, *poison.references),
        )  # fmt: skip
        return f"{text.rstrip()} {added.text}", drawn, added


def edit_set(
    ladder: Ladder,
    poison: PoisonSet,
    rung: Rung,
    *,
    question: str,
    references: Sequence[str] = (),
    retrieved: Sequence[CleanText] = (),
) -> tuple[PoisonSet, tuple[Edit, ...]]:
    """Edit all passages of a crafted set for a rung.

    Parameters
    ----------
    ladder : Ladder
        Settings.
    poison : PoisonSet
        As its attack crafted it; a payload in its details is used.
    rung : str
        One of :data:`RUNGS`.
    question : str
        The question that is attacked.
    references : sequence of str
        Correct answers.
    retrieved : sequence of CleanText
        As for :meth:`Ladder.edit`.

    Returns
    -------
    tuple of PoisonSet and tuple of Edit
        The set with the passages that could be edited, with ids and details of their own; and
        what was done to each passage, impossible ones included.
    """
    texts = poison_texts(poison, question, references)
    edits = tuple(ladder.edit(each, rung, retrieved=retrieved) for each in texts)
    details = poison.details or ({},) * len(texts)
    mark = f".{rung}" + (f".{ladder.filler}" if rung in _PADS else "")
    kept = [
        (Passage(id=passage.id + mark, text=edit.text, title=passage.title), detail, edit)
        for passage, detail, edit in zip(poison.passages, details, edits, strict=True)
        if edit.text is not None
    ]
    made = replace(
        poison,
        passages=tuple(passage for passage, _, _ in kept),
        details=tuple({**detail, **edit.record()} for _, detail, edit in kept),
    )
    return made, edits


def remove_question(question: str, text: str) -> tuple[str, int]:
    """Delete a question's verbatim occurrences, with the punctuation that follows each.

    Returns
    -------
    tuple of str and int
        The text, with tidy spaces where something was deleted, and how often it was.

    Examples
    --------
    >>> remove_question("who wrote Hamlet", "who wrote Hamlet.The play is by Bacon.")
    ('The play is by Bacon.', 1)
    """
    spans = verbatim_spans(question, text)
    left = text
    for start, stop in reversed(spans):
        joining = _JOINING.match(left, stop)
        stop = stop if joining is None else joining.end()
        left = f"{left[:start].rstrip()} {left[stop:].lstrip()}".strip()
    return left, len(spans)


def payload_of(poison: PoisonText) -> tuple[str, ...]:
    """The sentences of a passage that argue for the attacker's answer.

    Those of the payload that its attack names; else the sentences that give the answer, without
    the question; else all of the passage but the question.
    """
    if poison.payload.strip():
        return tuple(split_sentences(poison.payload))
    rest = remove_question(poison.question, poison.text)[0] or poison.text
    sentences = split_sentences(rest)
    answers = [found for found in map(phrase, poison.wanted) if found]
    giving = tuple(
        sentence
        for sentence in sentences
        if any(next(find_spans(tokenize(sentence), a), None) is not None for a in answers)
    )
    return giving or tuple(sentences)


def payload_intact(payload: Sequence[str], text: str) -> bool:
    """Tell whether all sentences still occur, word for word but for white space.

    Examples
    --------
    >>> payload_intact(["Bacon wrote it."], "So:  Bacon wrote  it. And more.")
    True
    """
    spaced = " ".join(text.split())
    return all(" ".join(sentence.split()) in spaced for sentence in payload)


# --------------------------------------------------------------------------------- internals


def _edit(
    rung: Rung,
    poison: PoisonText,
    text: str,
    payload: tuple[str, ...],
    *,
    drawn: int | None,
    added: Filler | None,
    removed: int = 0,
) -> Edit:
    return Edit(
        rung=rung,
        text=text,
        changed=text != poison.text,
        removed=removed,
        filler="" if added is None else added.kind,
        words_before=count_words(poison.text),
        words_after=count_words(text),
        drawn=drawn,
        sources=() if added is None else added.sources,
        payload=payload,
        payload_intact=payload_intact(payload, text),
    )


def _impossible(rung: Rung, poison: PoisonText, payload: tuple[str, ...], why: str) -> Edit:
    return Edit(
        rung=rung, text=None, changed=False, removed=0, filler="",
        words_before=count_words(poison.text), words_after=0, drawn=None, sources=(),
        payload=payload, payload_intact=False, reason=f"{NOT_POSSIBLE}: {why}",
    )  # fmt: skip
