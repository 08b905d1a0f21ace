"""What tampering with a passage yields: the new text and every edit that led to it.

An :class:`Edit` replaces ``text[start:stop]`` of the passage *before* tampering, so that the
edits of a passage, applied to its text in any order, give the new text exactly and nothing
outside of them has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from ragassay.types import Message

Ask = Callable[[Sequence[Message], int], str]
"""Asks a model: the messages and the number of the attempt (from 0); gives the raw answer."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement: ``before`` stood at ``[start, stop)`` of the old text, now ``after``.

    ``kind`` says what was replaced: ``entity:city``, ``number:year``, ``negation``,
    ``rewrite`` and the like; the part in front of the colon is the rule's.
    """

    start: int
    stop: int
    before: str
    after: str
    kind: str


@dataclass(frozen=True, slots=True)
class Tampered:
    """A passage after a rule: its text, the edits in text order, and whether it changed.

    ``applied`` is true exactly when the text differs from the one before. ``reason`` says why
    a rule left the passage as it was ("" where it did not).
    """

    text: str
    edits: tuple[Edit, ...] = ()
    applied: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a rule may use beside the passage and the question.

    ``context`` are the texts of all passages of the prompt, for rules that agree over
    passages. ``target`` is the answer that the attacker wants, ``ask`` the attacker's
    language model; only rewriting needs them.
    """

    context: tuple[str, ...] = ()
    target: str = ""
    ask: Ask | None = field(default=None, compare=False)


@runtime_checkable
class Rule(Protocol):
    """A way to tamper with one passage. Its dataclass fields are its options.

    ``shared`` rules get one generator for all passages of a prompt, and so agree; the others
    get one of their own for each passage.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    shared: ClassVar[bool]

    def apply(
        self,
        passage_text: str,
        question: str,
        rng: np.random.Generator,
        *,
        scene: Scene = ...,
    ) -> Tampered:
        """Tamper with a passage, or leave it as it is where the rule finds nothing to edit."""


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Carry out edits, in any order, on the text that they were made for.

    Raises
    ------
    ValueError
        Two edits overlap, or the text does not hold what an edit replaces.

    Examples
    --------
    >>> apply_edits("It was red.", [Edit(3, 6, "was", "was not", "negation")])
    'It was not red.'
    """
    pieces: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda e: (e.start, e.stop)):
        if not at <= edit.start <= edit.stop:
            raise ValueError(f"edits overlap at {edit.start}: {edit.before[:40]!r}")
        if text[edit.start : edit.stop] != edit.before:
            found = text[edit.start : edit.stop][:40]
            raise ValueError(f"need {edit.before[:40]!r} at {edit.start}, the text has {found!r}")
        pieces += [text[at : edit.start], edit.after]
        at = edit.stop
    return "".join([*pieces, text[at:]])


def edited(text: str, edits: Iterable[Edit], *, otherwise: str) -> Tampered:
    """Carry out edits; ``otherwise`` is the reason where nothing changes.

    Edits that change nothing are left out.

    Raises
    ------
    ValueError
        As for :func:`apply_edits`.

    Examples
    --------
    >>> edited("It was red.", [], otherwise="no number")
    Tampered(text='It was red.', edits=(), applied=False, reason='no number')
    """
    kept = tuple(sorted((e for e in edits if e.before != e.after), key=lambda e: e.start))
    new = apply_edits(text, kept)
    if new == text:  # also where edits cancel each other
        return Tampered(text, (), False, otherwise)
    return Tampered(new, kept, True, "")
