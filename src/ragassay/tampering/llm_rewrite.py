"""LLM rewriting: a language model rewrites the passage so that it asserts the target.

Source: "In RAG We Trust?" (Fasolino, 2026), section VII-A, names it as the next measurement:
a model that writes internally consistent passages removes the contradictions that rule-based
edits leave. There is no published prompt; ours is the template ``tampering_rewrite``.

Deviations: none, since nothing is published. A reply that does not hold the target, or is
empty, equal to the passage or much longer than it, is not used; the next attempt asks again.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragassay import prompts
from ragassay.errors import ConfigError
from ragassay.matching import find_spans, has_content, phrase, tokenize
from ragassay.tampering.edits import Edit, Scene, Tampered, edited

_SLOTS = frozenset({"question", "answer", "passage", "words"})
_NEEDED = frozenset({"question", "answer", "passage"})
_PREAMBLE = re.compile(
    r"\s*(?:(?:sure|certainly|of course)\b[^\n]{0,60}\n+)?(?:here(?: is|'s)[^\n:]{0,60}:\s*\n*)?"
    r"(?:\*{0,2}(?:rewritten |revised |new )?passage\*{0,2}:\*{0,2}\s*)?",
    re.I,
)
_FENCED = re.compile(r"\s*```\w*\n(?P<inside>.*?)\n```\s*\Z", re.S)
_PIECE = re.compile(r"\s+|[^\s]+")
_MAX_PIECES = 2_000  # compared word by word; a longer passage is one edit
_GROWTH = 3.0
_SPARE_WORDS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMRewrite:
    """A configured model rewrites the passage to assert the attacker's answer.

    ``prompt`` is a template (a name or a file) with the slots ``question``, ``answer`` and
    ``passage``, and optionally ``words``; ``trials`` is how often the model is asked at most.
    """

    name: ClassVar[str] = "llm_rewrite"
    version: ClassVar[str] = "1"
    shared: ClassVar[bool] = False
    asks: ClassVar[bool] = True

    prompt: str = "tampering_rewrite"
    trials: int = 3

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ConfigError(f"need trials >= 1, got {self.trials}")
        slots = prompts.load(self.prompt).slots
        if not _NEEDED <= slots <= _SLOTS:
            raise ConfigError(
                f"prompt {self.prompt!r} has the slots {sorted(slots)}, "
                f"it needs {sorted(_NEEDED)} and may have ['words']"
            )

    def apply(
        self,
        passage_text: str,
        question: str,
        rng: np.random.Generator,
        *,
        scene: Scene = Scene(),  # noqa: B008 - frozen
    ) -> Tampered:
        """Have a passage rewritten.

        Parameters
        ----------
        passage_text, question : str
            The passage, and the question that it is retrieved for.
        rng : numpy.random.Generator
            Not used; ``scene.ask`` gets the number of the attempt instead.
        scene : Scene
            ``target`` and ``ask`` are needed.

        Raises
        ------
        ConfigError
            The scene has no target or no model.
        BackendError
            The model failed; this never becomes an unchanged passage.
        """
        if not has_content(scene.target):
            raise ConfigError("rewriting needs the answer that the attacker wants")
        if scene.ask is None:
            raise ConfigError("rewriting needs a model to ask: configure the attacker's helper")
        if not has_content(passage_text):
            return Tampered(passage_text, (), False, "empty passage")
        values = {
            "question": question, "answer": scene.target, "passage": passage_text,
            "words": str(len(passage_text.split())),
        }  # fmt: skip
        messages = prompts.load(self.prompt).render(values)
        reason = ""
        for attempt in range(self.trials):
            reply = cleaned(scene.ask(messages, attempt))
            reason = _fault(reply, passage_text, scene.target)
            if not reason:
                edits = differences(passage_text, reply)
                return edited(passage_text, edits, otherwise="the reply is the passage")
        return Tampered(passage_text, (), False, reason)


def cleaned(reply: str) -> str:
    """Return a reply without the model's announcement, code fence and quotes around it.

    Examples
    --------
    >>> cleaned('Here is the rewritten passage: "It is in Rome."')
    'It is in Rome.'
    """
    fenced = _FENCED.match(reply)
    text = fenced["inside"] if fenced else reply
    preamble = _PREAMBLE.match(text)
    text = text[preamble.end() if preamble else 0 :].strip()
    for left, right in (('"', '"'), ("“", "”")):
        inner = text[1:-1]
        if len(text) > 1 and text[0] == left and text[-1] == right and left not in inner:
            return inner.strip()
    return text


def _fault(reply: str, passage: str, target: str) -> str:
    """Return why a reply cannot be used; "" where it can."""
    if not has_content(reply):
        return "empty reply"
    if reply == passage:
        return "the reply is the passage"
    if next(find_spans(tokenize(reply), phrase(target)), None) is None:
        return "the reply does not hold the target"
    if len(reply.split()) > _GROWTH * len(passage.split()) + _SPARE_WORDS:
        return "the reply is much longer than the passage"
    return ""


def differences(before: str, after: str) -> list[Edit]:
    """Return the edits, word by word, that turn one text into another.

    Examples
    --------
    >>> [(e.before, e.after) for e in differences("It is in Paris now.", "It is in Rome now.")]
    [('Paris', 'Rome')]
    """
    old, new = _PIECE.findall(before), _PIECE.findall(after)
    if max(len(old), len(new)) > _MAX_PIECES:
        return [Edit(0, len(before), before, after, "rewrite")]
    places = [0]
    for piece in old:
        places.append(places[-1] + len(piece))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [
        Edit(places[a], places[b], "".join(old[a:b]), "".join(new[c:d]), "rewrite")
        for tag, a, b, c, d in matcher.get_opcodes()
        if tag != "equal"
    ]
