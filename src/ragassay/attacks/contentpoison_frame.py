"""Where a ContentPoison trigger stands: the prompt, its places, and the wanted output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ragassay.plugins.access import Ids, WhiteBoxLM
from ragassay.prompts import Template
from ragassay.types import Message

OPENING = "Based on the available information, the answer is"
_WORD = re.compile(r"\S+")


class Sides(NamedTuple):
    """The tokens of a prompt before and after a trigger.

    ``exact``: the trigger's own tokens stand between them, unmelted with their neighbors.
    """

    left: Ids
    right: Ids
    exact: bool


class Output(NamedTuple):
    """The tokens of the wanted output, and which of them are the keyword."""

    ids: Ids
    keyword: slice


@dataclass(frozen=True, slots=True)
class Frame:
    """The victim's prompt over some passages, with a place for a trigger.

    Parameters
    ----------
    model : WhiteBoxLM
    template : Template
        A prompt with the slots ``contexts`` and ``question``.
    question : str
    passages : sequence of str
        Texts in rank order; the trigger belongs behind the first.
    """

    model: WhiteBoxLM
    template: Template
    question: str
    passages: Sequence[str]

    @property
    def contexts(self) -> str:
        """The passages, one per line."""
        return "\n".join(self.passages)

    @property
    def origin(self) -> int:
        """The trigger's own place, as a character position: the end of the first passage."""
        return len(self.passages[0])

    def places(self, count: int) -> list[int]:
        """The ``count`` ends of words that are nearest to the origin, nearest first.

        Distance is counted in words; of two at the same distance the earlier comes first.
        """
        ends = [match.end() for match in _WORD.finditer(self.contexts)]
        home = ends.index(self.origin)
        order = sorted(range(len(ends)), key=lambda i: (abs(i - home), i))
        return [ends[i] for i in order[:count]]

    def messages(self, place: int, insert: str) -> tuple[Message, ...]:
        """The prompt with a text inserted."""
        contexts = self.contexts
        known = contexts[:place] + insert + contexts[place:]
        return self.template.render({"contexts": known, "question": self.question})

    def tokens(self, place: int, insert: str) -> Ids:
        """The tokens of the prompt with a text inserted, up to where the answer starts."""
        return self.model.chat_ids(self.messages(place, insert))

    def sides(self, place: int, trigger: Ids, insert: str) -> Sides:
        """Find what stands around a trigger when its text is inserted."""
        whole, bare = self.tokens(place, insert), self.tokens(place, "")
        start = _shared(whole, bare)
        size = len(trigger)
        starts = [i for i in range(len(whole) - size + 1) if whole[i : i + size] == trigger]
        if starts:
            at = min(starts, key=lambda i: (abs(i - start), i))
            return Sides(whole[:at], whole[at + size :], exact=True)
        rest = min(_shared(whole[::-1], bare[::-1]), len(whole) - start, len(bare) - start)
        return Sides(whole[:start], whole[len(whole) - rest :], exact=False)


def wanted_output(model: WhiteBoxLM, answer: str) -> Output:
    """Tokens of the sentence that the model should say, and where the answer stands in it.

    The keyword is every token with a character of the answer. Where the tokens do not spell the
    sentence, it is put together from the tokens of its three parts.
    """
    head, key, tail = OPENING, f" {answer}", "."
    ids = model.tokenize(head + key + tail)
    if model.decode(ids) == head + key + tail:
        begin, end = len(head) + 1, len(head) + len(key)
        spans = [
            (len(model.decode(ids[:i])), len(model.decode(ids[: i + 1]))) for i in range(len(ids))
        ]
        inside = [i for i, (start, stop) in enumerate(spans) if start < end and stop > begin]
        return Output(ids, slice(inside[0], inside[-1] + 1))
    parts = [model.tokenize(part) for part in (head, key, tail)]
    start = len(parts[0])
    return Output(parts[0] + parts[1] + parts[2], slice(start, start + len(parts[1])))


def token_weights(length: int, keyword: slice, weight: float) -> list[float]:
    """Weights of the target tokens: ``weight`` for the keyword, ``1 - weight`` elsewhere.

    Examples
    --------
    >>> token_weights(4, slice(1, 2), 0.75)
    [0.25, 0.75, 0.25, 0.25]
    """
    inside = range(*keyword.indices(length))
    return [weight if i in inside else 1 - weight for i in range(length)]


def _shared(one: Ids, other: Ids) -> int:
    """Length of the common beginning."""
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
