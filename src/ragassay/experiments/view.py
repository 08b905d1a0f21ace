"""What one attack sees of one question: what it declared, and nothing else.

Every access is refused unless the attack's :class:`~ragassay.types.Knowledge` declares it, and
every use is counted, whether or not a cache answers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ragassay.errors import ConfigError, KnowledgeError
from ragassay.plugins.access import WhiteBoxEncoder, WhiteBoxLM
from ragassay.plugins.protocols import VictimAnswer
from ragassay.types import (
    Cost,
    Generation,
    Hit,
    Knowledge,
    Message,
    Passage,
    Query,
    Request,
    Sampling,
    Target,
    ToolUsage,
)

LLM = ("none", "helper", "query", "internals")
RETRIEVER = ("none", "query", "gradients")
CORPUS = ("none", "partial", "contents")


class Asks(Protocol):
    """What is needed of a model client."""

    def ask(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer each request, in order, or raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """An answer (empty where the system declined), ids in and kept of its context, and cost."""

    text: str
    retrieved: frozenset[str]
    kept: frozenset[str]
    usage: ToolUsage


class System(Protocol):
    """The system under attack, as far as any attacker may reach it.

    ``standing`` is poison of other attackers that is in the corpus already.
    """

    def hits(self, query: Query, k: int | None, standing: Sequence[Passage]) -> tuple[Hit, ...]:
        """The top-k of corpus and standing poison (``None``: the experiment's k)."""

    def scores(self, query: Query, texts: Sequence[str]) -> NDArray[np.float64]:
        """The score with which each text would be ranked for a question, shape (n,)."""

    def answer(self, query: Query, poison: Sequence[Passage], against: str) -> Outcome:
        """What the system does with the poison in its corpus.

        ``against`` is the title of the defense that it has, empty for none.
        """

    def encoder(self) -> WhiteBoxEncoder:
        """The retriever's encoder, opened."""

    def language_model(self) -> WhiteBoxLM:
        """The attacker's language model, opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What there is to be reached, before an attack's declaration narrows it."""

    system: System | None = None
    group: str = ""
    paraphrases: tuple[str, ...] = ()
    budget: int = 1
    max_words: int | None = None
    standing: tuple[Passage, ...] = ()
    against: str = ""


class View:
    """An :class:`~ragassay.plugins.AttackerView` over a real system.

    Parameters
    ----------
    knowledge : Knowledge
        What the attack declares.
    question : str
        The exact question.
    target : Target
        What counts as right and what the attacker wants.
    drafts : tuple of str
        Texts published with the data set.
    helper : Asks
        The attacker's own language model.
    reach : Reach
        Everything else that there is.
    """

    def __init__(
        self,
        *,
        knowledge: Knowledge,
        question: str,
        target: Target,
        drafts: tuple[str, ...],
        helper: Asks,
        reach: Reach | None = None,
    ) -> None:
        self._knowledge = knowledge
        self._question = question
        self._target = target
        self._drafts = drafts
        self._helper = helper
        self._reach = reach or Reach()
        self._spent = Cost()
        self._encoder: _Opened | None = None
        self._language_model: _Opened | None = None

    @property
    def cost(self) -> Cost:
        """What was spent so far, wall time not included.

        Passages handed to :meth:`similarity` and :meth:`ask_victim` count as encoder forwards.
        """
        cost = self._spent
        if self._encoder is not None:
            forwards, backwards, busy = self._encoder.since()
            cost = replace(
                cost,
                encoder_forwards=cost.encoder_forwards + forwards,
                encoder_backwards=cost.encoder_backwards + backwards,
                gpu_seconds=round(cost.gpu_seconds + busy, 6),
            )
        if self._language_model is not None:
            forwards, backwards, busy = self._language_model.since()
            cost = replace(
                cost,
                model_forwards=cost.model_forwards + forwards,
                model_backwards=cost.model_backwards + backwards,
                gpu_seconds=round(cost.gpu_seconds + busy, 6),
            )
        return cost

    @property
    def question(self) -> str:
        """The exact question."""
        if self._knowledge.query != "exact":
            raise KnowledgeError(
                f"the attack reads the exact question but declares query={self._knowledge.query!r}"
            )
        return self._question

    @property
    def paraphrases(self) -> tuple[str, ...]:
        """The paraphrases to optimize on; those for evaluation are not among them."""
        if self._knowledge.query == "none":
            raise KnowledgeError("the attack reads paraphrases but declares query='none'")
        if self._knowledge.query == "paraphrases" and not self._reach.paraphrases:
            raise ConfigError(
                f"an attack that knows paraphrases only needs some for query "
                f"{self._target.query_id!r}; add [paraphrases] to the experiment"
            )
        return self._reach.paraphrases

    @property
    def correct_answers(self) -> tuple[str, ...]:
        """The accepted correct answers."""
        if not self._knowledge.correct_answer:
            raise KnowledgeError(
                "the attack reads the correct answer but declares correct_answer=False"
            )
        return self._target.references

    @property
    def drafts(self) -> tuple[str, ...]:
        """Texts published with the data set that argue for the attacker's answer."""
        return self._drafts

    @property
    def budget(self) -> int:
        """How many passages are asked for."""
        return self._reach.budget

    @property
    def max_words(self) -> int | None:
        """Most words of a passage, or None."""
        return self._reach.max_words

    def ask_helper(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        max_tokens: int = 96,
        temperature: float = 1.0,
        sample_index: int = 0,
    ) -> list[str]:
        """Ask the attacker's own language model; calls and tokens are counted."""
        self._need("llm", LLM, "helper", "asks a language model")
        sampling = Sampling(temperature=temperature, max_tokens=max_tokens)
        answers = self._helper.ask(
            [
                Request(messages=tuple(prompt), sampling=sampling, sample_index=sample_index)
                for prompt in prompts
            ]
        )
        self._count(
            [
                ToolUsage(model_calls=1, input_tokens=a.input_tokens, output_tokens=a.output_tokens)
                for a in answers
            ]
        )
        return [answer.text for answer in answers]

    def ask_victim(self, passages: Sequence[str]) -> VictimAnswer:
        """Ask the system with these passages added to the corpus."""
        self._need("llm", LLM, "query", "asks the victim")
        query = self._query(self.question)
        added = [Passage(id=f"probe-{number}", text=text) for number, text in enumerate(passages)]
        reach = self._reach
        outcome = self._system.answer(query, [*reach.standing, *added], reach.against)
        self._count([outcome.usage], encoded=len(added) + outcome.usage.encoded_texts)
        return VictimAnswer(
            outcome.text,
            [passage.id in outcome.retrieved for passage in added],
            [passage.id in outcome.kept for passage in added] if reach.against else None,
        )

    @property
    def language_model(self) -> WhiteBoxLM:
        """The attacker's model with its internals."""
        self._need("llm", LLM, "internals", "reads a language model's internals")
        if self._language_model is None:
            self._language_model = _Opened(self._system.language_model())
        model: WhiteBoxLM = self._language_model.model
        return model

    def similarity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Mean score of texts over the question(s), shape ``(len(texts),)``."""
        self._need("retriever", RETRIEVER, "query", "scores texts with the retriever")
        queries = self._queries("scores texts against the question")
        if not texts:
            return np.zeros(0)
        self._spent = replace(
            self._spent, encoder_forwards=self._spent.encoder_forwards + len(texts)
        )
        rows = [self._system.scores(query, texts) for query in queries]
        mean: NDArray[np.float64] = np.mean(rows, axis=0, dtype=np.float64)
        return mean

    @property
    def encoder(self) -> WhiteBoxEncoder:
        """The retriever's encoder with its gradients."""
        self._need("retriever", RETRIEVER, "gradients", "reads the encoder's gradients")
        if self._encoder is None:
            self._encoder = _Opened(self._system.encoder())
        encoder: WhiteBoxEncoder = self._encoder.model
        return encoder

    def retrieved(self, k: int | None = None) -> tuple[Hit, ...]:
        """Passages of the corpus for the question(s), best first."""
        self._need("corpus", CORPUS, "partial", "reads what is retrieved")
        queries = self._queries("searches for the question")
        if k is not None and k < 1:
            raise ConfigError(f"k must be at least 1, got {k}")
        found = [self._system.hits(query, k, self._reach.standing) for query in queries]
        hits = found[0] if len(found) == 1 else _merged(found)
        if self._knowledge.corpus == "contents":
            return hits
        return tuple(replace(h, passage=replace(h.passage, text="", title="")) for h in hits)

    # ----------------------------------------------------------------------------- internals

    @property
    def _system(self) -> System:
        if self._reach.system is None:
            raise ConfigError("there is no system here that the attack could reach")
        return self._reach.system

    def _need(self, field: str, levels: tuple[str, ...], least: str, what: str) -> None:
        declared = getattr(self._knowledge, field)
        if levels.index(declared) < levels.index(least):
            raise KnowledgeError(
                f"the attack {what} but declares {field}={declared!r}; it needs "
                f"{field}={least!r}{' or more' if least != levels[-1] else ''}"
            )

    def _queries(self, what: str) -> list[Query]:
        if self._knowledge.query == "none":
            raise KnowledgeError(f"the attack {what} but declares query='none'")
        known = [self.question] if self._knowledge.query == "exact" else self.paraphrases
        return [self._query(text) for text in known]

    def _query(self, text: str) -> Query:
        return Query(id=self._target.query_id, text=text, group=self._reach.group)

    def _count(self, usages: Sequence[ToolUsage], *, encoded: int = 0) -> None:
        self._spent = replace(
            self._spent,
            model_calls=self._spent.model_calls + sum(u.model_calls for u in usages),
            input_tokens=self._spent.input_tokens + sum(u.input_tokens for u in usages),
            output_tokens=self._spent.output_tokens + sum(u.output_tokens for u in usages),
            encoder_forwards=self._spent.encoder_forwards + encoded,
        )


class _Opened:
    """An opened model, and where its counters stood: it is shared by all questions."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._start = (model.forwards, model.backwards, _busy(model))

    def since(self) -> tuple[int, int, float]:
        forwards, backwards, busy = self._start
        model = self.model
        return model.forwards - forwards, model.backwards - backwards, _busy(model) - busy


def _busy(model: Any) -> float:
    """Seconds of the accelerator so far; opened models need not tell."""
    return float(getattr(model, "accelerator_seconds", 0.0))


def _merged(found: Sequence[tuple[Hit, ...]]) -> tuple[Hit, ...]:
    """Join the hits of several questions: each passage once, with its best score."""
    best: dict[str, Hit] = {}
    for hits in found:
        for hit in hits:
            other = best.get(hit.passage.id)
            if other is None or hit.score > other.score:
                best[hit.passage.id] = hit
    k = max(len(hits) for hits in found)
    ordered = sorted(best.values(), key=lambda hit: (-hit.score, hit.passage.id))[:k]
    return tuple(replace(hit, rank=rank) for rank, hit in enumerate(ordered, start=1))
