"""PoisonedRAG, white box: the retrieval part of the passage follows the encoder's gradient.

Source: Zou et al. (2025), "PoisonedRAG: Knowledge Corruption Attacks to Retrieval-Augmented
Generation of Large Language Models", USENIX Security, section 4 (white-box setting); HotFlip:
Ebrahimi et al., ACL 2018.

Deviations: the passage is encoded as one sequence while it is searched, as it will be when it
is indexed; only tokens of the retrieval part are replaced, by tokens that a text can hold, and
a candidate counts only if its text has exactly its tokens. Masks that are left when the search
ends are no part of the text, so they are left out when it is scored. Texts are cut where the
retriever cuts them, not at 128 tokens. ``compat = "released"`` does what the released code
does: retrieval part and text each keep their own special tokens, any token of the first may be
replaced by any token at all, each part is cut at 128 tokens, and nothing is encoded again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ragassay.attacks.hotflip import flip_search
from ragassay.attacks.poisonedrag import Source
from ragassay.attacks.search_passages import (
    Compat,
    Meter,
    Payload,
    assemble,
    check_choices,
    check_counts,
    mask_of,
    report,
    slot_length,
    write_payloads,
    writer_of,
)
from ragassay.attacks.search_tokens import RawSlot, Slot, TokenSearch
from ragassay.plugins import AttackerView
from ragassay.plugins.access import Ids, WhiteBoxEncoder
from ragassay.types import Json, Knowledge, PoisonSet, Target

Init = Literal["gold", "mask"]
Place = Literal["prefix", "suffix"]
_RELEASED_TOKENS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonedRAGWhiteBox:
    """PoisonedRAG white-box: HotFlip on the part that is there to be retrieved.

    ``source``, ``max_words`` and ``trials`` say how the text that argues for the wrong answer
    comes about, as in ``poisonedrag``. The retrieval part starts as the question
    (``init = "gold"``) or as ``init_tokens`` masks, and stands before the text
    (``order = "prefix"``) or behind it. Each of ``iterations`` draws one of its tokens and
    scores the ``candidates`` tokens of the largest first-order gain. PoisonArena's form is
    ``init = "mask"``, ``order = "suffix"``. For a quick look, ``iterations = 5`` and
    ``candidates = 20`` take about 100 forward passes a passage instead of 3,000.
    """

    version: ClassVar[str] = "1"
    knowledge: ClassVar[Knowledge] = Knowledge(llm="helper", retriever="gradients", query="exact")
    title: ClassVar[str] = "poisonedrag_whitebox"

    n: int = 5
    source: Source = "released"
    max_words: int = 30
    trials: int = 50
    init: Init = "gold"
    init_tokens: int = 30
    order: Place = "prefix"
    iterations: int = 30
    candidates: int = 100
    compat: Compat = "paper"

    def __post_init__(self) -> None:
        check_counts(self, "n", "max_words", "trials", "init_tokens", "iterations", "candidates")
        check_choices(self, source=Source, init=Init, order=Place, compat=Compat)

    @property
    def max_passages(self) -> int:
        """Largest budget that this attack can fill."""
        return self.n

    def craft(self, target: Target, view: AttackerView, rng: np.random.Generator) -> PoisonSet:
        """Write up to ``n`` passages.

        Raises
        ------
        ConfigError
            There are no texts for the query, or the encoder has no mask token to start from.
        """
        count = min(self.n, view.budget)
        writer = writer_of(count, self.source, self.max_words, self.trials)
        payloads = write_payloads(target, view, rng, question=view.question, writer=writer)
        encoder = view.encoder
        meter = Meter(encoder)
        queries = encoder.embed([view.question], kind="query")
        ceiling = self._ceiling(view)
        crafted = []
        for payload, random in zip(payloads, rng.spawn(len(payloads)), strict=True):
            text, note = self._search(payload, view, queries, random, ceiling)
            crafted.append((text, payload, note))
        return assemble(self.title, target, self.knowledge, crafted, meter.cost())

    def _ceiling(self, view: AttackerView) -> float | None:
        """The similarity above which the search stops: none here."""
        return None

    def _search(
        self,
        payload: Payload,
        view: AttackerView,
        queries: NDArray[np.float32],
        rng: np.random.Generator,
        ceiling: float | None,
    ) -> tuple[str, dict[str, Json]]:
        encoder = view.encoder
        slot, start = self._begin(payload.text, view)
        search = TokenSearch(encoder, slot, queries)
        found = flip_search(
            search,
            encoder,
            start,
            rng,
            iterations=self.iterations,
            candidates=self.candidates,
            stop_above=ceiling,
        )
        first = slot.text(start) if slot.wrapped else self._first_text(payload.text, view.question)
        text, note = report(found, encoder, queries, slot, first, keep=not slot.wrapped)
        return text, {**note, "order": self.order, "init": self.init, "compat": self.compat}

    def _begin(self, text: str, view: AttackerView) -> tuple[Slot | RawSlot, Ids]:
        encoder = view.encoder
        if self.compat == "released":
            return self._begin_released(text, view.question, encoder)
        around = {"before": text} if self.order == "suffix" else {"after": text}
        slot = Slot(encoder, max_words=view.max_words, **around)
        if self.init == "gold":
            return slot, slot.start_of(view.question)
        return slot, (mask_of(encoder),) * slot_length(slot, self.init_tokens)

    def _begin_released(
        self, text: str, question: str, encoder: WhiteBoxEncoder
    ) -> tuple[RawSlot, Ids]:
        room = _RELEASED_TOKENS - len(encoder.opening) - len(encoder.closing)
        parts = [
            (*encoder.opening, *encoder.tokenize(part)[:room], *encoder.closing)
            for part in (question, text)
        ]
        start = parts[0] if self.init == "gold" else (mask_of(encoder),) * self.init_tokens
        if self.order == "suffix":
            return RawSlot(encoder, before=parts[1]), start
        return RawSlot(encoder, after=parts[1]), start

    def _first_text(self, text: str, question: str) -> str:
        if self.init == "mask":
            return text
        return f"{question} {text}" if self.order == "prefix" else f"{text} {question}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonedRAGWhiteBoxStop(PoisonedRAGWhiteBox):
    """PoisonedRAG white-box that stops as soon as it beats the best clean passage.

    As ``poisonedrag_whitebox``, and it knows the score of the best clean passage: the search
    stops ``margin`` above it. The released code has 0.1, PoisonArena 0.2.
    """

    knowledge: ClassVar[Knowledge] = Knowledge(
        llm="helper", retriever="gradients", corpus="partial", query="exact"
    )
    title: ClassVar[str] = "poisonedrag_whitebox_stop"

    margin: float = 0.1

    def _ceiling(self, view: AttackerView) -> float | None:
        hits = view.retrieved(1)
        return hits[0].score + self.margin if hits else None
