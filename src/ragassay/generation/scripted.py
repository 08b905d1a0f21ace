"""Rule-based models for tests and dry runs: no weights, no network, the same answer always.

The script ``extract`` reads like a naive model: it believes the passage that resembles the
question most. The rule, exactly:

1. In the last message, the question is what follows the last line that starts with
   ``Question:`` or ``Query:`` (on that line). Without such a line it is the last non-empty
   line.
2. The contexts are the lines between the first line that starts with a label (``Contexts:``,
   ``Context:``, ``Passages:``, ``Documents:``, ``Memorized Documents:``, ``Suggested words:``,
   ``Information from documents:``) and the question. Every non-empty line is one passage.
3. Words are lower-cased runs of letters and digits, without a short list of function words.
   The passage with the most distinct words of the question wins; on a tie, the one that
   comes first.
4. The answer is that passage's sentence with the most distinct words of the question, on a
   tie the first. Sentences that end in a question mark are no answers.
5. If no passage has a word of the question, or no sentence is left, the answer is ``text``.

A poison text that repeats the question (PoisonedRAG) therefore wins over a clean passage, and
the poisoned answer differs from the clean one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ragassay.canon import digest
from ragassay.errors import BackendError, ConfigError
from ragassay.generation.scripted_judge import judge
from ragassay.types import Generation, Request

_LABEL = re.compile(
    r"(contexts?|passages?|documents?|memorized documents|suggested words"
    r"|information from documents)[ \t]*:",
    re.IGNORECASE,
)
_QUESTION = re.compile(r"(?:question|query)[ \t]*:", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_FUNCTION_WORDS = frozenset(
    _WORD.findall(
        "a an and are as at be by did do does for from had has have how in is it its of on or "
        "that the their this to was were what when where which who whom whose why will with"
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted:
    """A rule-based stand-in for a model, for tests and dry runs.

    Parameters
    ----------
    script : {"extract", "echo", "fixed", "fail", "judge"}
        ``extract`` answers with a sentence of the passage that is most like the question (the
        module's documentation gives the rule); ``echo`` repeats the last message; ``fixed``
        says ``text``; ``fail`` fails every request; ``judge`` plays the model behind the judge,
        by whole tokens.
    text : str
        What ``fixed`` says, and ``extract`` when the contexts hold nothing.
    fail_every : int
        About one request in so many fails; which ones depends on the request alone, not on
        order or threads. 1: all, 0: none.
    delay_seconds : float
        How long each call takes, whatever the number of requests in it.
    gathers : bool
        Whether the requests of all workers come in one call, as for a local engine.
    """

    script: Literal["extract", "echo", "fixed", "fail", "judge"] = "extract"
    text: str = "I don't know"
    fail_every: int = 0
    delay_seconds: float = field(default=0.0, metadata={"identity": False})
    gathers: bool = field(default=False, metadata={"identity": False})

    version: ClassVar[str] = "1"

    def __post_init__(self) -> None:
        if self.script not in ("extract", "echo", "fixed", "fail", "judge"):
            raise ConfigError(
                f"scripted: script must be extract, echo, fixed, fail or judge, got {self.script!r}"
            )
        if self.fail_every < 0:
            raise ConfigError(f"scripted: fail_every must be 0 or more, got {self.fail_every}")
        if not 0 <= self.delay_seconds < 3600:
            raise ConfigError(
                f"scripted: delay_seconds must be between 0 and 3600, got {self.delay_seconds}"
            )

    @property
    def identity(self) -> str:
        """Script and options."""
        options = digest([self.version, self.script, self.text, self.fail_every])
        return f"scripted:{self.script}:{options[:12]}"

    def generate(self, requests: Sequence[Request]) -> list[Generation | BackendError]:
        """Answer each request, in order, by the script."""
        if self.delay_seconds:
            time.sleep(self.delay_seconds)
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Generation | BackendError:
        if self.script == "fail":
            return BackendError("scripted: every request fails")
        if self.fail_every and not int(digest(request), 16) % self.fail_every:
            return BackendError(f"scripted: one request in {self.fail_every} fails", retryable=True)
        prompt = request.messages[-1].content if request.messages else ""
        if self.script == "fixed":
            return _reply(request, self.text)
        if self.script == "echo":
            return _reply(request, prompt)
        if self.script == "judge":
            return _reply(request, judge(prompt) or self.text)
        return _reply(request, extract(prompt) or self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """A model whose reply depends on a substring of the last message.

    Parameters
    ----------
    rules : tuple of (str, str)
        Substring and reply; the first rule whose substring occurs decides.
    default : str
        The reply where no rule applies.
    gathers : bool
        Whether the requests of all workers come in one call.
    """

    rules: tuple[tuple[str, str], ...] = ()
    default: str = "I don't know"
    gathers: bool = field(default=False, metadata={"identity": False})

    version: ClassVar[str] = "1"

    @property
    def identity(self) -> str:
        """Rules and default."""
        return f"replies:{digest([self.version, self.rules, self.default])[:12]}"

    def generate(self, requests: Sequence[Request]) -> list[Generation | BackendError]:
        """Answer each request, in order, by the first rule that applies."""
        return [_reply(request, self._choose(request)) for request in requests]

    def _choose(self, request: Request) -> str:
        prompt = request.messages[-1].content if request.messages else ""
        return next((reply for part, reply in self.rules if part in prompt), self.default)


def extract(prompt: str) -> str:
    r"""Answer a prompt by the rule of this module; ``""`` where its contexts hold nothing.

    Examples
    --------
    >>> extract("Contexts:\nOslo is in Norway. It rains.\nTea.\n\nQuery: Where is Oslo?")
    'Oslo is in Norway.'
    """
    passages, question = _split(prompt)
    words = _words(question)
    overlaps = [len(words & _words(passage)) for passage in passages]
    if not any(overlaps):
        return ""
    best = passages[overlaps.index(max(overlaps))]
    sentences = [s for s in _SENTENCE.split(best.strip()) if s and not s.endswith("?")]
    return max(sentences, key=lambda sentence: len(words & _words(sentence)), default="")


def _split(prompt: str) -> tuple[list[str], str]:
    lines = [line.strip() for line in prompt.splitlines()]
    asked = [i for i, line in enumerate(lines) if _QUESTION.match(line)]
    if not asked:
        filled = [i for i, line in enumerate(lines) if line]
        end = filled[-1] if filled else 0
        question = lines[end] if filled else ""
    else:
        end = asked[-1]
        question = _QUESTION.sub("", lines[end], count=1)
    start = next((i for i, line in enumerate(lines[:end]) if _LABEL.match(line)), end)
    passages = lines[start:end]
    if passages:
        passages[0] = _LABEL.sub("", passages[0], count=1).strip()
    return [passage for passage in passages if passage], question


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower())) - _FUNCTION_WORDS


def _reply(request: Request, text: str) -> Generation:
    """Wrap a text; words count as tokens, and ``max_tokens`` cuts."""
    words = text.split()
    cut = len(words) > request.sampling.max_tokens
    if cut:
        words = words[: request.sampling.max_tokens]
        text = " ".join(words)
    return Generation(
        text=text,
        finish="length" if cut else "stop",
        input_tokens=sum(len(message.content.split()) for message in request.messages),
        output_tokens=len(words),
    )
