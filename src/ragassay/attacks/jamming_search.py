"""Jamming by search: a blocker document whose words are climbed until the system declines.

Source: jamming with blocker documents (optimized form; released code
``avitalsh/jamming_attack`` for the settings).

Deviations: true hill climbing, and no mode that reproduces the released code, which never
moves on from the initial document, compares its first loss with the wrong sign and never
resets its count of idle iterations. Candidates are whole words rather than an encoder's tokens;
without a file of text (``path``), they come from a short list of our own, each as probable as
any other, where the source counts the tokens of WikiText-103. The oracle encoder is any
installed one, on the attacker's side; its work is counted in the details, not in the view's
cost. A document that is not retrieved has no score and costs a query. A question that the
system declines without poison is not searched. Each distinct document is asked about once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ragassay import plugins
from ragassay.attacks.jamming import DECLINING, RESPONSES, Response, check_response, declines
from ragassay.attacks.jamming_words import FREQUENT, Words, read_words
from ragassay.attacks.writing import make_passages
from ragassay.canon import digest
from ragassay.errors import ConfigError
from ragassay.plugins import AttackerView
from ragassay.types import Json, Knowledge, PoisonSet, Target

Similarity = Callable[[Sequence[str]], NDArray[np.floating[Any]]]
"""Similarity of answers to the target response, shape ``(n,)``; larger is closer."""
Ask = Callable[[str], tuple[str, bool]]
"""Asks the system with one document added: its answer, and whether it was retrieved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The system under attack, the oracle, and what stands in front of the searched words.

    ``jammed`` tells whether an answer ends the search.
    """

    ask: Ask
    similarity: Similarity
    head: str
    jammed: Callable[[str], bool] = declines


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a search ends: iterations, iterations without gain, queries; and words per step."""

    iterations: int = 1000
    patience: int = 100
    batch: int = 32
    queries: int = 32_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Climbed:
    """What a search found.

    ``loss`` is minus the similarity of the answer to the target response, None if the document
    was never retrieved. ``trace`` holds (iteration, loss) at the start and at every gain.
    """

    words: tuple[str, ...]
    answer: str
    loss: float | None
    retrieved: bool
    trace: tuple[tuple[int, float | None], ...]
    iterations: int
    queries: int
    stop: str


def climb(
    scene: Scene,
    vocabulary: Words,
    start: tuple[str, ...],
    rng: np.random.Generator,
    limits: Limits,
) -> Climbed:
    """Climb from a first document, one word at a time, toward an answer.

    Each iteration draws one position and a batch of words, asks the system with every candidate
    and moves to the best of them where its loss is below the current one. Documents that are
    not retrieved have no loss and are never moved to.

    Parameters
    ----------
    scene : Scene
        The system and the oracle.
    vocabulary : Words
        What is drawn.
    start : tuple of str
        The first words, at least one.
    rng : numpy.random.Generator
        Draws positions and words.
    limits : Limits
        When to stop.

    Returns
    -------
    Climbed
        ``stop`` is ``"declined"``, ``"patience"``, ``"iterations"`` or ``"queries"``.
    """
    system = _System(scene, limits.queries)
    [best] = system.score([start])
    trace: list[tuple[int, float | None]] = [(0, best.loss)]
    stale = iteration = 0
    stop = "declined" if best.retrieved and scene.jammed(best.answer) else ""
    while not stop:
        if iteration == limits.iterations or stale == limits.patience:
            stop = "iterations" if iteration == limits.iterations else "patience"
            break
        iteration += 1
        position = int(rng.integers(len(start)))
        drawn = vocabulary.draw(limits.batch, rng)
        scored = system.score(
            [(*best.words[:position], word, *best.words[position + 1 :]) for word in drawn]
        )
        better = [each for each in scored if _below(each.loss, best.loss)]
        stale += 1
        if better:
            best = min(better, key=lambda each: each.loss or 0.0)
            trace.append((iteration, best.loss))
            stale = 0
            stop = "declined" if scene.jammed(best.answer) else ""
        if not stop and system.left == 0:
            stop = "queries"
    return Climbed(
        words=best.words,
        answer=best.answer,
        loss=best.loss,
        retrieved=best.retrieved,
        trace=tuple(trace),
        iterations=iteration,
        queries=system.asked,
        stop=stop,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JammingSearch:
    """Blocker document by hill climbing on the victim's answers.

    The document is the question, a full stop and ``words`` words, ``mask`` repeated at first.
    Each of at most ``iterations`` iterations changes one word to the best of ``batch`` drawn
    ones, if the victim's answer thereby comes closer to ``response`` in the ``oracle`` encoder
    (an encoder plug-in). The search ends when the victim declines, after ``patience`` iterations
    without a gain, or after ``queries`` questions to the victim. ``path`` is a text whose words
    are drawn by frequency, its ``drop`` most frequent ones left out; empty: a short built-in
    list. At the defaults a question can cost 32,000 answers of the victim.
    """

    version: ClassVar[str] = "1"
    knowledge: ClassVar[Knowledge] = Knowledge(llm="query", query="exact")
    untargeted: ClassVar[bool] = True
    outcome: ClassVar[str] = "declined"
    max_passages: ClassVar[int] = 1

    response: Response = "no_information"
    words: int = 50
    iterations: int = 1000
    patience: int = 100
    batch: int = 32
    queries: int = 32_000
    oracle: str = "minilm"
    mask: str = "[MASK]"
    path: str = ""
    drop: int = FREQUENT
    _vocabulary: Words = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_response(self.response)
        for name in ("words", "iterations", "patience", "batch", "queries"):
            if getattr(self, name) < 1:
                raise ConfigError(f"need {name} >= 1, got {getattr(self, name)}")
        if self.drop < 0:
            raise ConfigError(f"need drop >= 0, got {self.drop}")
        if len(self.mask.split()) != 1:
            raise ConfigError(f"need mask to be one word, got {self.mask!r}")
        plugins.find("encoder", self.oracle)
        object.__setattr__(self, "_vocabulary", read_words(self.path, drop=self.drop))

    @property
    def identity(self) -> str:
        """The options, with the words instead of the place of their file."""
        oracle = plugins.find("encoder", self.oracle)
        options = {
            name: getattr(self, name)
            for name in (
                "version", "response", "words", "iterations", "patience", "batch", "queries", "mask"
            )
        }  # fmt: skip
        vocabulary = [self._vocabulary.words, self._vocabulary.weights.tolist()]
        return f"jamming_search:{digest([options, vocabulary, oracle.name, oracle.origin])[:16]}"

    def craft(self, target: Target, view: AttackerView, rng: np.random.Generator) -> PoisonSet:
        """Search for one document; none where ``max_words`` leaves no room behind the question.

        The target's wrong answer is not used.

        Raises
        ------
        PluginError
            The oracle encoder is unknown.
        BackendError
            The victim or the oracle fails.
        """
        head = f"{view.question}. "
        room = self.words
        if view.max_words is not None:
            room = min(room, view.max_words - len(head.split()))
        if room < 1:
            return self._poison(target, (), ())
        clean = view.ask_victim(())
        start = (self.mask,) * room
        oracle = _Oracle(self.oracle, RESPONSES[self.response])
        if declines(clean):
            found = Climbed(
                words=start, answer=str(clean), loss=None, retrieved=False, trace=(),
                iterations=0, queries=0, stop="declines without poison",
            )  # fmt: skip
        else:
            found = climb(
                Scene(ask=lambda text: _answer(view, text), similarity=oracle, head=head),
                self._vocabulary,
                start,
                rng,
                Limits(
                    iterations=self.iterations,
                    patience=self.patience,
                    batch=self.batch,
                    queries=self.queries,
                ),
            )
        text = head + " ".join(found.words)
        return self._poison(target, (text,), (self._details(text, found, oracle),))

    def _details(self, text: str, found: Climbed, oracle: _Oracle) -> dict[str, Json]:
        payload = " ".join(found.words)
        return {
            "success": DECLINING,
            "response": RESPONSES[self.response],
            "verified": found.stop == "declined",
            "retrieved": found.retrieved,
            "stop": found.stop,
            "iterations": found.iterations,
            "victim_queries": found.queries + 1,  # and once without poison
            "oracle_texts": oracle.texts,
            "loss_start": found.trace[0][1] if found.trace else None,
            "loss": found.loss,
            "trace": [[iteration, loss] for iteration, loss in found.trace],
            "words": len(text.split()),
            "payload": payload,
            "payload_intact": payload in text,
        }

    def _poison(
        self, target: Target, texts: tuple[str, ...], details: tuple[dict[str, Json], ...]
    ) -> PoisonSet:
        return PoisonSet(
            attack="jamming_search",
            query_id=target.query_id,
            passages=make_passages("jamming_search", target.query_id, texts),
            knowledge=self.knowledge,
            wanted=(),
            details=details,
        )


# --------------------------------------------------------------------------------- internals


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scored:
    words: tuple[str, ...]
    answer: str
    retrieved: bool
    loss: float | None


class _System:
    """The system under attack with the oracle: counts queries, asks about a document once."""

    def __init__(self, scene: Scene, queries: int) -> None:
        self._scene = scene
        self._queries = queries
        self._known: set[tuple[str, ...]] = set()

    @property
    def asked(self) -> int:
        return len(self._known)

    @property
    def left(self) -> int:
        return self._queries - len(self._known)

    def score(self, candidates: Sequence[tuple[str, ...]]) -> list[_Scored]:
        """Score the candidates that were not asked about before, as far as queries last."""
        found: list[tuple[tuple[str, ...], str, bool]] = []
        for words in candidates:
            if words in self._known or self.left == 0:
                continue
            self._known.add(words)
            answer, retrieved = self._scene.ask(self._scene.head + " ".join(words))
            found.append((words, answer, retrieved))
        seen = [answer for _, answer, retrieved in found if retrieved]
        losses = iter([-float(value) for value in self._scene.similarity(seen)] if seen else [])
        return [
            _Scored(
                words=words,
                answer=answer,
                retrieved=retrieved,
                loss=next(losses) if retrieved else None,
            )
            for words, answer, retrieved in found
        ]


class _Oracle:
    """Cosine of answers to the target response in the attacker's own encoder."""

    def __init__(self, name: str, response: str) -> None:
        self._encoder = plugins.build(plugins.find("encoder", name), {})
        self._response = response
        self.texts = 0

    def __call__(self, answers: Sequence[str]) -> NDArray[np.floating[Any]]:
        distinct = list(dict.fromkeys(answers))
        self.texts += len(distinct) + 1
        vectors = np.asarray(self._encoder.encode([self._response, *distinct]), dtype=np.float64)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        units = vectors / np.where(lengths > 0, lengths, 1.0)
        near = dict(zip(distinct, units[1:] @ units[0], strict=True))
        return np.array([near[answer] for answer in answers])


def _answer(view: AttackerView, text: str) -> tuple[str, bool]:
    answer = view.ask_victim((text,))
    return str(answer), answer.retrieved[0]


def _below(loss: float | None, other: float | None) -> bool:
    return loss is not None and (other is None or loss < other)
