"""Defenses that change nothing but the prompt: how far does an instruction alone go?

Two interventions carry the name "prompt control". The paper describes an added instruction to
be cautious about unreliable evidence; the released artifact asks RobustRAG's keyword-only
question instead, which tells the model to trust the context. They differ in direction, so
they are two plug-ins, and the numbers of one must never be set beside those of the other.

Source: aligned evaluation of RAG defenses ("Prevented is not protected"), section 3.1 for the
cautious instruction and its artifact for the keyword-only one; the latter follows Xiang et
al. (RobustRAG, 2024), question-answering prompt of the keyword aggregation.

Deviations: both prompts are our own wording, with worked examples of our own. The artifact
allows 150 tokens; here the experiment's ``max_tokens`` holds unless the option sets another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ragassay import prompts
from ragassay.errors import ConfigError
from ragassay.plugins import Tools
from ragassay.types import Hit, Query, Verdict

ANSWER_SLOTS = frozenset({"contexts", "question"})
_LINE_END = re.compile(r"[\r\n]")


@dataclass(frozen=True, slots=True, kw_only=True)
class CautiousPrompt:
    """Answer once, warned that passages may be unreliable and should be weighed.

    Parameters
    ----------
    prompt : str
        Built-in template or file, with the slots ``contexts`` and ``question``.
    max_tokens : int, optional
        Longest answer in tokens; by default the experiment's setting.
    """

    version: ClassVar[str] = "1"
    prompt: str = "cautious"
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        check_slots(self.prompt, ANSWER_SLOTS)
        check_max_tokens(self.max_tokens)

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Keep all hits and answer from them with the cautious prompt."""
        raw = _answer(self.prompt, self.max_tokens, query, hits, tools)
        return Verdict(kept=tuple(hits), answer=raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeywordOnlyPrompt:
    """Answer once in keywords, from the given passages and not from prior knowledge.

    The first line of the output is the answer; ``trace["raw"]`` holds the whole output.

    Parameters
    ----------
    prompt : str
        Built-in template or file, with the slots ``contexts`` and ``question``.
    max_tokens : int, optional
        Longest answer in tokens; by default the experiment's setting.
    """

    version: ClassVar[str] = "1"
    prompt: str = "keyword_answer"
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        check_slots(self.prompt, ANSWER_SLOTS)
        check_max_tokens(self.max_tokens)

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Keep all hits and answer from them with the keyword-only prompt."""
        raw = _answer(self.prompt, self.max_tokens, query, hits, tools)
        return Verdict(kept=tuple(hits), answer=first_line(raw), trace={"raw": raw})


def first_line(text: str) -> str:
    r"""Return the first line that holds text, stripped; empty for white space only.

    Examples
    --------
    >>> first_line("\n Paris \nContext: ...")
    'Paris'
    """
    return _LINE_END.split(text.strip(), maxsplit=1)[0].strip()


def check_slots(prompt: str, wanted: frozenset[str]) -> None:
    """Check that a prompt has exactly the slots that a defense fills.

    Raises
    ------
    ConfigError
        There is no such prompt, or a slot is missing or unknown.
    """
    found = prompts.load(prompt).slots
    if found != wanted:
        raise ConfigError(
            f"prompt {prompt!r} has the slots {sorted(found)}, it needs exactly {sorted(wanted)}"
        )


def check_max_tokens(max_tokens: int | None) -> None:
    """Check a token limit.

    Raises
    ------
    ConfigError
        The limit is below 1.
    """
    if max_tokens is not None and max_tokens < 1:
        raise ConfigError(f"need max_tokens >= 1, got {max_tokens}")


def _answer(
    prompt: str, max_tokens: int | None, query: Query, hits: Sequence[Hit], tools: Tools
) -> str:
    contexts = "\n".join(tools.passage_text(hit) for hit in tools.ordered(hits))
    messages = prompts.load(prompt).render({"contexts": contexts, "question": query.text})
    (raw,) = tools.ask([messages], max_tokens=max_tokens)
    return raw
