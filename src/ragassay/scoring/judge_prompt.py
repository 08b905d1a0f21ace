"""What a judge is shown of an answer: a case, and the answer as delimited data.

The answer, and with it the question, target and references, is text that nobody vouches for.
All of it goes into the prompt as JSON strings, in which every line break and control
character is escaped, so that no text can start a line of its own. The answer stands between
two lines with a marker that derives from a digest of everything shown, and is checked not to
occur in it. What is cut off a long answer is told in the case, not inside of the answer, where
anything can be faked.

This keeps an answer from ending its own block or posing as the rules or as a reply. It cannot
keep a model from doing what it reads all the same.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ragassay.canon import content_key, digest
from ragassay.matching import has_content
from ragassay.plugins import Answered
from ragassay.prompts import Template
from ragassay.types import Json, Message

SLOTS = frozenset({"case", "answer", "boundary"})
DECISIONS = ("yes", "no", "uncertain")
NOT_APPLICABLE = "not_applicable"
# What json leaves as it is and some reader takes for the end of a line, or does not show.
_UNSEEN = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One distinct answer as the judge sees it.

    ``shown`` are the offsets of what is shown of the answer: one span, or beginning and end.
    """

    key: str
    id: str
    boundary: str
    question: str
    wanted: tuple[str, ...]
    references: tuple[str, ...]
    reference_source: str
    answer: str
    shown: tuple[tuple[int, int], ...]

    @property
    def left_out(self) -> int:
        """How many characters of the answer are not shown."""
        return len(self.answer) - sum(stop - start for start, stop in self.shown)

    def find(self, quote: str) -> tuple[int, int] | None:
        """Where a quote stands in what is shown of the answer: its first place, exactly.

        A quote without a letter or digit stands nowhere.
        """
        if not has_content(quote):
            return None
        for start, stop in self.shown:
            at = self.answer.find(quote, start, stop)
            if at >= 0:
                return at, at + len(quote)
        return None

    def render(self, template: Template) -> tuple[Message, ...]:
        """Fill the judge's prompt."""
        pieces = [self.answer[start:stop] for start, stop in self.shown]
        return template.render(
            {
                "case": quoted(self._case()),
                "answer": quoted(pieces[0] if len(pieces) == 1 else pieces),
                "boundary": self.boundary,
            }
        )

    def schema(self) -> dict[str, Json]:
        """The JSON schema of a reply about this item."""
        decided: list[str] = [*DECISIONS]
        choices = {
            "target_endorsed": decided if self.wanted else [NOT_APPLICABLE],
            "reference_correct": decided if self.references else [NOT_APPLICABLE],
            "abstains": decided,
        }
        properties: dict[str, Json] = {
            name: {"type": "string", "enum": choices[name]} if name in choices
            else {"type": "string"}
            for name in REPLY_KEYS
        }  # fmt: skip
        return {
            "type": "object",
            "properties": properties,
            "required": list(REPLY_KEYS),
            "additionalProperties": False,
        }

    def _case(self) -> dict[str, Any]:
        case: dict[str, Any] = {
            "item": self.id,
            "question": self.question,
            "target": self.wanted[0] if self.wanted else None,
            "other_names_of_the_target": list(self.wanted[1:]),
            "references": list(self.references) or None,
        }
        if self.reference_source and self.references:
            case["references_come_from"] = self.reference_source
        if self.left_out:
            case["characters_left_out"] = self.left_out
        return case


REPLY_KEYS = (
    "item", "target_endorsed", "target_span", "reference_correct", "reference_span", "abstains",
)  # fmt: skip


def key_of(answered: Answered) -> str:
    """Digest what the judge sees of an answer; equal ones are judged once."""
    return content_key(
        question=answered.query.text,
        wanted=answered.target.wanted,
        references=answered.target.references,
        answer=answered.answer,
    )


def item_of(answered: Answered, *, answer_chars: int) -> Item:
    """Prepare an answer for the judge.

    Parameters
    ----------
    answered : Answered
        The answer; forms of target and references without a letter or digit are left out.
    answer_chars : int
        How many characters of the answer are shown at most: two thirds from its beginning,
        the rest from its end.
    """
    key, text = key_of(answered), answered.answer
    wanted = tuple(filter(has_content, answered.target.wanted))
    references = tuple(filter(has_content, answered.target.references))
    shown: tuple[tuple[int, int], ...] = ((0, len(text)),)
    if len(text) > answer_chars:
        head = answer_chars * 2 // 3
        shown = ((0, head), (len(text) - (answer_chars - head), len(text)))
    seen = "\n".join([answered.query.text, *wanted, *references, answered.reference_source, text])
    return Item(
        key=key,
        id=digest(["judge item", key])[:12],
        boundary=_boundary(key, seen),
        question=answered.query.text,
        wanted=wanted,
        references=references,
        reference_source=answered.reference_source,
        answer=text,
        shown=shown,
    )


def quoted(value: Any) -> str:
    r"""Write a value as one line of JSON without line breaks or unseen characters.

    Examples
    --------
    >>> print(quoted("a\n\u2028b"))
    "a\n\u2028b"
    """
    text = json.dumps(value, ensure_ascii=False)
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _boundary(key: str, seen: str) -> str:
    attempt = 0
    while True:
        marker = digest(["judge boundary", key, attempt])[:24]
        if marker not in seen:
            return marker
        attempt += 1
