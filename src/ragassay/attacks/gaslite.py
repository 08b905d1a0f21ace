"""GASLITE: a trigger behind a fixed text, searched over many positions at once.

Source: Ben-Tov and Sharif (2025), "GASLITEing the Retrieval: Exploring Vulnerabilities in Dense
Embedding-based Search", CCS; default options as in the authors' configuration.

Deviations: a candidate counts only if its text has exactly its tokens, not merely as many; the
candidate that changes nothing is always kept, so that the similarity never falls within an
iteration. ``compat = "released"`` compares numbers of tokens and drops that candidate where
the text is still that of the iteration's start, which forces a change at the first position.
The trigger starts as a continuation of the text by the attacker's helper model, not by GPT-2.
The optional penalties (fluency, length of the vector) and the time limit are not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ragassay.attacks.poisonedrag import Source
from ragassay.attacks.search_passages import (
    Assign,
    Compat,
    Meter,
    Payload,
    assemble,
    check_choices,
    check_counts,
    clusters,
    known_queries,
    report,
    slot_length,
    write_payloads,
    writer_of,
)
from ragassay.attacks.search_tokens import Found, Slot, TokenSearch, best_tokens, replaced
from ragassay.errors import ConfigError
from ragassay.plugins import AttackerView
from ragassay.plugins.access import Ids, WhiteBoxEncoder
from ragassay.types import Json, Knowledge, Message, PoisonSet, Target

Init = Literal["helper", "filler"]
_FILLER = "!"
_CONTINUE = (
    "Continue the text below with one or two sentences in the same style. Write nothing but the "
    "continuation.\n\n{text}"
)
_CONTINUATIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaslite:
    """GASLITE: multi-coordinate gradient search for a trigger of ``tokens`` tokens.

    ``source``, ``max_words`` and ``trials`` say how the text comes about, as in
    ``poisonedrag``. Each of ``iterations`` averages the gradients of ``gradient_copies``
    triggers (all but one with a random change), visits ``flips`` positions and scores at each
    ``candidates`` tokens, a share ``random_share`` of them drawn from the ``top`` best tokens
    and the others the very best; the ``beams`` best triggers go on. The trigger starts as a
    continuation by the helper model (``init = "helper"``) or as filler (``"filler"``). With
    several queries and passages, each passage attacks one k-means cluster of the queries
    (``assign = "kmeans"``) or all of them (``"all"``). PoisonArena has ``iterations = 30``; for
    a quick look, ``tokens = 10``, ``iterations = 10``, ``gradient_copies = 4``, ``flips = 5``
    and ``candidates = 16`` take about 850 forward passes a passage instead of 258,000.
    """

    version: ClassVar[str] = "1"
    knowledge: ClassVar[Knowledge] = Knowledge(llm="helper", retriever="gradients", query="exact")
    title: ClassVar[str] = "gaslite"

    n: int = 5
    source: Source = "released"
    max_words: int = 30
    trials: int = 50
    tokens: int = 100
    iterations: int = 100
    gradient_copies: int = 50
    top: int = 256
    candidates: int = 128
    random_share: float = 0.5
    flips: int = 20
    beams: int = 1
    init: Init = "helper"
    assign: Assign = "kmeans"
    compat: Compat = "paper"

    def __post_init__(self) -> None:
        check_counts(self, "n", "max_words", "trials", "tokens", "iterations", "gradient_copies")
        check_counts(self, "top", "candidates", "flips", "beams")
        check_choices(self, source=Source, init=Init, assign=Assign, compat=Compat)
        if not 0 <= self.random_share <= 1:
            raise ConfigError(f"need random_share from 0 to 1, got {self.random_share}")

    @property
    def max_passages(self) -> int:
        """Largest budget that this attack can fill."""
        return self.n

    def craft(self, target: Target, view: AttackerView, rng: np.random.Generator) -> PoisonSet:
        """Write up to ``n`` passages.

        Raises
        ------
        ConfigError
            There are no texts or no paraphrases, or no token can fill the trigger.
        """
        known = known_queries(view, self.knowledge)
        count = min(self.n, view.budget)
        writer = writer_of(count, self.source, self.max_words, self.trials)
        payloads = write_payloads(target, view, rng, question=known[0], writer=writer)
        encoder = view.encoder
        meter = Meter(encoder)
        queries = encoder.embed(known, kind="query")
        parts = clusters(encoder, queries, len(payloads), self.assign)
        allowed = readable_tokens(encoder)
        crafted = []
        for i, (payload, rows) in enumerate(zip(payloads, parts, strict=True)):
            [random] = rng.spawn(1)
            text, note = self._search(payload, view, queries[rows], random, allowed, i)
            crafted.append((text, payload, {**note, "queries": [int(row) for row in rows]}))
        return assemble(self.title, target, self.knowledge, crafted, meter.cost())

    def _search(
        self,
        payload: Payload,
        view: AttackerView,
        queries: NDArray[np.float32],
        rng: np.random.Generator,
        allowed: NDArray[np.bool_],
        number: int,
    ) -> tuple[str, dict[str, Json]]:
        encoder = view.encoder
        front = payload.text if payload.text.endswith((".", "!", "?")) else f"{payload.text}."
        slot = Slot(encoder, before=front, max_words=view.max_words)
        start = self._start(front, slot, view, allowed, number)
        search = TokenSearch(encoder, slot, queries)
        found = self.optimize(search, encoder, start, rng, allowed)
        keep = self.compat == "paper"
        text, note = report(found, encoder, queries, slot, slot.text(start), keep=keep)
        return text, {**note, "init": self.init, "compat": self.compat}

    def optimize(
        self,
        search: TokenSearch,
        encoder: WhiteBoxEncoder,
        start: Ids,
        rng: np.random.Generator,
        allowed: NDArray[np.bool_],
    ) -> Found:
        """Search a trigger.

        Parameters
        ----------
        search : TokenSearch
            Slot and queries.
        encoder : WhiteBoxEncoder
        start : tuple of int
            The first trigger.
        rng : numpy.random.Generator
        allowed : ndarray of bool, shape (V,)
            Tokens that the trigger may hold.

        Returns
        -------
        Found
            The best trigger met, the start included.
        """
        score = float(search.similarities([start]).mean())
        current, best, best_ids, trace = start, score, start, []
        done = self.iterations if start else 0
        gram = encoder.embeddings.T.astype(np.float64) @ encoder.embeddings
        for iteration in range(1, done + 1):
            search.new_step()
            slopes = self._average_slopes(search, current, rng, allowed, gram)
            current, reached = self._greedy(search, encoder, current, slopes, rng, allowed)
            if reached > best:
                best, best_ids = reached, current
                trace.append((iteration, best))
        return Found(
            ids=best_ids,
            start=score,
            score=best,
            iterations=done,
            evaluations=search.evaluations,
            losses=search.losses,
            trace=tuple(trace),
        )

    def _average_slopes(
        self,
        search: TokenSearch,
        current: Ids,
        rng: np.random.Generator,
        allowed: NDArray[np.bool_],
        gram: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Mean over copies of the unit one-hot gradients, as directions in embedding space.

        The one-hot gradient at a position is E g with g the gradient there. Its length is the
        square root of g' (E'E) g, so that the V numbers are needed once, not for each copy.
        """
        tokens = np.flatnonzero(allowed)
        copies = [current]
        for _ in range(self.gradient_copies - 1):
            position = int(rng.integers(len(current)))
            copies.append(replaced(current, position, int(rng.choice(tokens))))
        slopes = search.slopes(copies, search.direction(slice(None)))
        total = np.zeros(slopes[0].shape, dtype=np.float64)
        for slope in slopes:
            exact = slope.astype(np.float64)
            lengths = np.sqrt(np.maximum(((exact @ gram) * exact).sum(axis=1, keepdims=True), 0))
            total += exact / np.where(lengths > 0, lengths, 1)
        mean: NDArray[np.float64] = total / len(copies)
        return mean

    def _greedy(
        self,
        search: TokenSearch,
        encoder: WhiteBoxEncoder,
        current: Ids,
        slopes: NDArray[np.float64],
        rng: np.random.Generator,
        allowed: NDArray[np.bool_],
    ) -> tuple[Ids, float]:
        """Visit some positions in order; keep the best triggers at each."""
        count = self.flips if self.flips <= len(current) else max(int(0.67 * len(current)), 1)
        positions = np.sort(rng.choice(len(current), size=count, replace=False))
        gains = encoder.embeddings @ slopes[positions].T.astype(np.float32)
        released = self.compat == "released"
        beams = [current]
        for column, position in enumerate(positions.tolist()):
            ranked = best_tokens(gains[:, column], self.top, allowed=allowed)
            tried: list[Ids] = []
            for beam in beams:
                changed = [replaced(beam, position, token) for token in self._pick(ranked, rng)]
                tried += [beam, *changed]
            kept = self._kept(search, tried, beams, current, released=released)
            scores = search.similarities(kept).mean(axis=1)
            order = np.argsort(-scores, kind="stable")[: self.beams]
            beams = [kept[i] for i in order]
        return beams[0], float(search.similarities(beams[:1]).mean())

    def _pick(self, ranked: Sequence[int], rng: np.random.Generator) -> list[int]:
        """The best tokens, and some of the others, drawn with replacement."""
        drawn = round(self.candidates * self.random_share)
        head, rest = ranked[: self.candidates - drawn], ranked[self.candidates - drawn :]
        if not rest or not drawn:
            return list(head)
        return [*head, *(rest[i] for i in rng.integers(len(rest), size=drawn))]

    def _kept(
        self,
        search: TokenSearch,
        tried: Sequence[Ids],
        beams: Sequence[Ids],
        start: Ids,
        *,
        released: bool,
    ) -> list[Ids]:
        if not released:
            unchanged = set(beams)
            new = search.surviving(ids for ids in tried if ids not in unchanged)
            return [*beams, *new]
        kept = search.surviving((ids for ids in tried if ids != start), by_count=True)
        return kept or list(beams)

    def _start(
        self,
        front: str,
        slot: Slot,
        view: AttackerView,
        allowed: NDArray[np.bool_],
        number: int,
    ) -> Ids:
        length = slot_length(slot, self.tokens)
        if length == 0:
            return ()
        filler = _filler(slot, view.encoder, allowed, length)
        if self.init == "filler":
            return filler
        longest: Ids = ()
        for draw in range(_CONTINUATIONS):
            prompt = [Message(role="user", content=_CONTINUE.format(text=front))]
            [text] = view.ask_helper(
                [prompt],
                max_tokens=2 * length,
                sample_index=number * _CONTINUATIONS + draw,
            )
            ids = tuple(i for i in slot.start_of(" ".join(text.split())) if allowed[i])
            longest = max(longest, ids, key=len)
        return _fitted(slot, longest, filler)


@dataclass(frozen=True, slots=True, kw_only=True)
class GasliteParaphrases(Gaslite):
    """GASLITE that knows paraphrases of the question only.

    As ``gaslite``; it optimizes on the experiment's optimization paraphrases and never sees the
    question that is asked.
    """

    knowledge: ClassVar[Knowledge] = Knowledge(
        llm="helper", retriever="gradients", query="paraphrases"
    )
    title: ClassVar[str] = "gaslite_paraphrases"


def readable_tokens(encoder: WhiteBoxEncoder) -> NDArray[np.bool_]:
    """Tokens that a trigger may hold: usable ones in printable ASCII."""
    ascii_only = np.array([piece.isascii() for piece in encoder.pieces], dtype=np.bool_)
    result: NDArray[np.bool_] = encoder.usable & ascii_only
    return result


def _filler(slot: Slot, encoder: WhiteBoxEncoder, allowed: NDArray[np.bool_], length: int) -> Ids:
    """A trigger of one repeated token whose text has exactly these tokens."""
    exclamations = slot.start_of(" ".join([_FILLER] * length))
    tokens = dict.fromkeys([*exclamations[-1:], *np.flatnonzero(allowed).tolist()])
    for token in tokens:
        ids = (token,) * length
        if allowed[token] and slot.survives(ids):
            return ids
    raise ConfigError(
        f"no token of the encoder {encoder.identity} can fill a trigger of {length} tokens"
    )


def _fitted(slot: Slot, ids: Ids, filler: Ids) -> Ids:
    """Repeat, cut and pad a continuation to the length of the filler, so that it survives."""
    length = len(filler)
    repeated = ids * -(-length // len(ids)) if ids else ()
    for kept in range(length, 0, -1):
        trigger = (*repeated[:kept], *filler[kept:])
        if len(trigger) == length and slot.survives(trigger):
            return trigger
    return filler
