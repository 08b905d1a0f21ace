"""CorpusPoison: passages that are close to many queries, carrying a wrong answer.

Source: Zhong et al. (2023), "Poisoning Retrieval Corpora by Injecting Adversarial Passages",
EMNLP; with a misleading text as in PoisonArena.

Deviations: the text is kept and only a trigger behind it is searched
(``layout = "answer_plus_trigger"``), so the payload stays intact; ``layout = "flip_all"`` is
what PoisonArena's code does: the first 50 tokens of the text, special tokens included, may all
be replaced. A candidate counts only if its text has exactly its tokens (not with
``flip_all``), and masks that are left are no part of the text. Hits come before scores when
candidates are compared. The passage is stored even if nothing improved it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ragassay.attacks.hotflip import flip_search
from ragassay.attacks.poisonedrag import Source
from ragassay.attacks.search_passages import (
    Assign,
    Meter,
    Payload,
    assemble,
    check_choices,
    check_counts,
    clusters,
    known_queries,
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

Layout = Literal["answer_plus_trigger", "flip_all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusPoison:
    """CorpusPoison: HotFlip on a trigger that brings a text close to the queries.

    ``source``, ``max_words`` and ``trials`` say how the text comes about, as in
    ``poisonedrag``. The trigger has ``tokens`` tokens, masks at first. Gradients and
    comparisons take ``batch`` queries each; with several queries and passages, each passage
    attacks one k-means cluster of the queries (``assign = "kmeans"``) or all of them
    (``"all"``, PoisonArena's). PoisonArena has ``iterations = 100``; for a quick look,
    ``tokens = 10``, ``iterations = 10`` and ``candidates = 20`` take about 200 forward passes a
    passage instead of 500,000.
    """

    version: ClassVar[str] = "1"
    knowledge: ClassVar[Knowledge] = Knowledge(llm="helper", retriever="gradients", query="exact")
    title: ClassVar[str] = "corpuspoison"

    n: int = 5
    source: Source = "released"
    max_words: int = 30
    trials: int = 50
    layout: Layout = "answer_plus_trigger"
    tokens: int = 50
    iterations: int = 5000
    candidates: int = 100
    batch: int = 64
    assign: Assign = "kmeans"

    def __post_init__(self) -> None:
        check_counts(
            self, "n", "max_words", "trials", "tokens", "iterations", "candidates", "batch"
        )
        check_choices(self, source=Source, layout=Layout, assign=Assign)

    @property
    def max_passages(self) -> int:
        """Largest budget that this attack can fill."""
        return self.n

    def craft(self, target: Target, view: AttackerView, rng: np.random.Generator) -> PoisonSet:
        """Write up to ``n`` passages.

        Raises
        ------
        ConfigError
            There are no texts or no paraphrases, or the encoder has no mask token.
        """
        known = known_queries(view, self.knowledge)
        count = min(self.n, view.budget)
        writer = writer_of(count, self.source, self.max_words, self.trials)
        payloads = write_payloads(target, view, rng, question=known[0], writer=writer)
        encoder = view.encoder
        meter = Meter(encoder)
        queries = encoder.embed(known, kind="query")
        bars = self._bars(view, len(known))
        parts = clusters(encoder, queries, len(payloads), self.assign)
        crafted = []
        for payload, rows, random in zip(payloads, parts, rng.spawn(len(payloads)), strict=True):
            limits = None if bars is None else bars[rows]
            text, note = self._search(payload, view, queries[rows], random, limits)
            crafted.append((text, payload, {**note, "queries": [int(row) for row in rows]}))
        return assemble(self.title, target, self.knowledge, crafted, meter.cost())

    def _bars(self, view: AttackerView, count: int) -> NDArray[np.float64] | None:
        """What a passage must score above to be a hit, by query: not known here."""
        return None

    def _search(
        self,
        payload: Payload,
        view: AttackerView,
        queries: NDArray[np.float32],
        rng: np.random.Generator,
        bars: NDArray[np.float64] | None,
    ) -> tuple[str, dict[str, Json]]:
        encoder = view.encoder
        slot, start = self._begin(payload.text, view.max_words, encoder)
        search = TokenSearch(encoder, slot, queries)
        found = flip_search(
            search,
            encoder,
            start,
            rng,
            iterations=self.iterations,
            candidates=self.candidates,
            batch=self.batch,
            bars=bars,
        )
        first = slot.text(start) if slot.wrapped else payload.text
        text, note = report(found, encoder, queries, slot, first, keep=not slot.wrapped)
        return text, {**note, "layout": self.layout}

    def _begin(
        self, text: str, max_words: int | None, encoder: WhiteBoxEncoder
    ) -> tuple[Slot | RawSlot, Ids]:
        if self.layout == "answer_plus_trigger":
            slot = Slot(encoder, before=text, max_words=max_words)
            return slot, (mask_of(encoder),) * slot_length(slot, self.tokens)
        room = max(self.tokens - len(encoder.opening) - len(encoder.closing), 1)
        start = (*encoder.opening, *encoder.tokenize(text)[:room], *encoder.closing)
        return RawSlot(encoder), start


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusPoisonParaphrases(CorpusPoison):
    """CorpusPoison that knows paraphrases of the question only.

    As ``corpuspoison``; it optimizes on the experiment's optimization paraphrases and never
    sees the question that is asked.
    """

    knowledge: ClassVar[Knowledge] = Knowledge(
        llm="helper", retriever="gradients", query="paraphrases"
    )
    title: ClassVar[str] = "corpuspoison_paraphrases"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusPoisonRanked(CorpusPoison):
    """CorpusPoison that knows how well the best clean passage scores.

    As ``corpuspoison``; a candidate that outscores the best clean passage is preferred to all
    that do not.
    """

    knowledge: ClassVar[Knowledge] = Knowledge(
        llm="helper", retriever="gradients", corpus="partial", query="exact"
    )
    title: ClassVar[str] = "corpuspoison_ranked"

    def _bars(self, view: AttackerView, count: int) -> NDArray[np.float64] | None:
        hits = view.retrieved(1)
        return np.full(count, hits[0].score) if hits else None
