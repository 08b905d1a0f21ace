"""A view for testing attacks: it gives exactly what an attack declares, and refuses the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.errors import KnowledgeError
from ragassay.plugins.access import WhiteBoxEncoder, WhiteBoxLM
from ragassay.plugins.protocols import VictimAnswer
from ragassay.testing.scripted import Replies, _reply
from ragassay.types import Cost, Hit, Knowledge, Message

_LEVELS = {
    "llm": ("none", "helper", "query", "internals"),
    "retriever": ("none", "query", "gradients"),
    "corpus": ("none", "partial", "contents"),
}


class AttackScene:
    """Everything an attack may meet, narrowed to what it declares.

    Parameters
    ----------
    knowledge : Knowledge
        What the attack declares.
    question : str
        The exact question.
    paraphrases, correct_answers, drafts : tuple of str
        What the data set holds.
    budget : int
        Passages asked for.
    max_words : int, optional
        Most words of a passage.
    replies : callable, mapping or str
        The attacker's own language model; see :data:`~ragassay.testing.scripted.Replies`.
    encoder : WhiteBoxEncoder, optional
        The retriever's encoder, such as a :class:`~ragassay.testing.toys.ToyEncoder`.
    language_model : WhiteBoxLM, optional
        The opened language model, such as a :class:`~ragassay.testing.toys.ToyLM`.
    hits : tuple of Hit
        What is retrieved from the clean corpus, best first.
    victim : callable, optional
        Takes the passages put to it; returns the answer, or the answer and one truth value
        each for whether they were retrieved (all, if only an answer comes back).

    Attributes
    ----------
    refused : list of str
        What was reached for without being declared.
    asked : int
        Prompts put to the attacker's language model.
    victim_asked : int
        Times the victim was asked.
    """

    def __init__(
        self,
        knowledge: Knowledge,
        *,
        question: str = "What is the capital of Canada?",
        paraphrases: tuple[str, ...] = (),
        correct_answers: tuple[str, ...] = ("Ottawa",),
        drafts: tuple[str, ...] = (),
        budget: int = 5,
        max_words: int | None = None,
        replies: Replies = "The capital of Canada is Toronto.",
        encoder: WhiteBoxEncoder | None = None,
        language_model: WhiteBoxLM | None = None,
        hits: tuple[Hit, ...] = (),
        victim: Callable[[Sequence[str]], str | tuple[str, Sequence[bool]]] | None = None,
    ) -> None:
        self.refused: list[str] = []
        self.asked = 0
        self.victim_asked = 0
        self.budget = budget
        self.max_words = max_words
        self.drafts = drafts
        self._knowledge = knowledge
        self._question = question
        self._paraphrases = paraphrases
        self._correct_answers = correct_answers
        self._replies = replies
        self._encoder = encoder
        self._language_model = language_model
        self._hits = hits
        self._victim = victim

    @property
    def cost(self) -> Cost:
        """What the opened models and the helper have been asked so far."""
        forwards, backwards = _counts(self._encoder)
        model_forwards, model_backwards = _counts(self._language_model)
        return Cost(
            model_calls=self.asked + self.victim_asked,
            encoder_forwards=forwards,
            encoder_backwards=backwards,
            model_forwards=model_forwards,
            model_backwards=model_backwards,
        )

    @property
    def question(self) -> str:
        """The exact question; needs ``query="exact"``."""
        self._check(self._knowledge.query == "exact", "question", 'query="exact"')
        return self._question

    @property
    def paraphrases(self) -> tuple[str, ...]:
        """The optimization paraphrases; need ``query="paraphrases"`` or ``"exact"``."""
        self._check(self._knowledge.query != "none", "paraphrases", 'query="paraphrases"')
        return self._paraphrases

    @property
    def correct_answers(self) -> tuple[str, ...]:
        """The accepted answers; need ``correct_answer=True``."""
        self._check(self._knowledge.correct_answer, "correct_answers", "correct_answer=True")
        return self._correct_answers

    def ask_helper(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        max_tokens: int = 96,
        temperature: float = 1.0,
        sample_index: int = 0,
    ) -> list[str]:
        """Ask the scripted language model; needs ``llm="helper"`` or more."""
        self._least("llm", "helper", "ask_helper")
        self.asked += len(prompts)
        return [_reply(self._replies, tuple(prompt)) for prompt in prompts]

    def ask_victim(self, passages: Sequence[str]) -> VictimAnswer:
        """Ask the given victim; needs ``llm="query"`` or more and ``query="exact"``."""
        self._least("llm", "query", "ask_victim")
        self._check(self._knowledge.query == "exact", "ask_victim", 'query="exact"')
        self.victim_asked += 1
        found = _there(self._victim, "victim")(passages)
        if isinstance(found, str):
            return VictimAnswer(found, [True] * len(passages))
        answer, retrieved = found
        return VictimAnswer(answer, retrieved)

    @property
    def language_model(self) -> WhiteBoxLM:
        """The opened language model; needs ``llm="internals"``."""
        self._least("llm", "internals", "language_model")
        model: WhiteBoxLM = _there(self._language_model, "language_model")
        return model

    @property
    def encoder(self) -> WhiteBoxEncoder:
        """The opened encoder; needs ``retriever="gradients"``."""
        self._least("retriever", "gradients", "encoder")
        encoder: WhiteBoxEncoder = _there(self._encoder, "encoder")
        return encoder

    def similarity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Mean similarity of texts to the question(s); needs ``retriever="query"`` or more."""
        self._least("retriever", "query", "similarity")
        encoder: WhiteBoxEncoder = _there(self._encoder, "encoder")
        if not texts:
            return np.zeros(0)
        queries = encoder.embed(self._queries("similarity"), kind="query").astype(np.float64)
        passages = encoder.embed(texts).astype(np.float64)
        if encoder.similarity == "cosine":
            queries, passages = _unit(queries), _unit(passages)
        found: NDArray[np.float64] = (passages @ queries.T).mean(axis=1)
        return found

    def retrieved(self, k: int | None = None) -> tuple[Hit, ...]:
        """The clean hits; need ``corpus="partial"``, and ``"contents"`` for their texts."""
        self._least("corpus", "partial", "retrieved")
        self._queries("retrieved")
        hits = self._hits[:k]
        if self._knowledge.corpus == "contents":
            return hits
        return tuple(
            Hit(
                passage=type(hit.passage)(id=hit.passage.id, text=""),
                rank=hit.rank,
                score=hit.score,
            )
            for hit in hits
        )

    # ----------------------------------------------------------------------------- internals

    def _queries(self, what: str) -> tuple[str, ...]:
        self._check(self._knowledge.query != "none", what, 'query="paraphrases"')
        return (self._question,) if self._knowledge.query == "exact" else self._paraphrases

    def _least(self, field: str, level: str, what: str) -> None:
        levels = _LEVELS[field]
        declared = getattr(self._knowledge, field)
        self._check(levels.index(declared) >= levels.index(level), what, f'{field}="{level}"')

    def _check(self, declared: bool, what: str, how: str) -> None:
        if not declared:
            self.refused.append(what)
            raise KnowledgeError(f"the attack reads {what} without declaring {how}")


def _there(value: Any, name: str) -> Any:
    if value is None:
        raise AssertionError(f"this scene has no {name}: pass {name}= to AttackScene")
    return value


def _counts(model: Any) -> tuple[int, int]:
    return (0, 0) if model is None else (model.forwards, model.backwards)


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    result: NDArray[np.float64] = vectors / np.where(lengths > 0, lengths, 1)
    return result
