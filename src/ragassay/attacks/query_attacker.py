"""A defense-aware attacker who only asks: edits that pass the defense and keep their effect.

Source: "Ranking is not judgment", section III-C and table XIV: a black-box attacker with a
hard-label oracle, 500 queries and 60 iterations per document, tuned against one defense and
played against the others as it is.

Deviations: the paper names the attacker and its budgets only; the search is ours (hill climbing
on what one query shows: retrieved, kept by the defense, target in the answer). Both budgets are
per document. There is no surrogate encoder: retrieval is one of the labels. A document is tried
together with those accepted before it, because they are injected together and defenses compare
the passages of a context. Rewriting by a language model is added to edits of words, where the
paper has no LLM-guided arm (``edits = "words"`` leaves it out).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from ragassay import prompts
from ragassay.attacks.poisonedrag import PoisonedRAG, Source
from ragassay.attacks.word_edits import edit
from ragassay.attacks.writing import check_slots, holds, make_passages
from ragassay.errors import ConfigError
from ragassay.matching import find_spans, has_content, phrase, tokenize
from ragassay.plugins import AttackerView
from ragassay.types import Json, Knowledge, PoisonSet, Target

Edits = Literal["both", "words", "rewrite"]
STYLES = (
    "as an entry of an encyclopedia",
    "as a short news item",
    "in plain words for a child",
    "as a note that a teacher would write on a blackboard",
    "as part of a longer report, in a sober tone",
    "in fewer words",
    "in two or three longer sentences with harmless details",
    "with other words wherever possible",
)
"""Ways of rewriting that the helper is asked for, in turn."""


class Labels(NamedTuple):
    """What one query shows of a document, in the order in which they are needed."""

    retrieved: bool
    kept: bool
    gives_target: bool

    @property
    def succeeded(self) -> bool:
        """Whether the document is retrieved, passes and has its effect."""
        return all(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """A document and what tuning it took. ``path`` names the edits that led to it."""

    text: str
    labels: Labels
    first: Labels
    iterations: int
    queries: int
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAttacker:
    """Passages edited against a defense, by asking the defended system.

    The first texts are PoisonedRAG's (``source``, ``order``, ``max_words``, ``trials``). Each
    is edited for at most ``iterations`` rounds of ``batch`` candidates and ``queries`` questions
    to the system, until it is retrieved, kept and gives the target; otherwise the best is kept
    and marked unverified. ``edits`` are small changes of words, rewriting by the helper model
    (``rewrite_prompt``), or both in turn. ``against`` is the title of the defense in the
    experiment that the attacker is tuned against; empty: the system without one. To transfer
    the texts to other defenses, craft them into a file and play that.
    """

    version: ClassVar[str] = "1"
    knowledge: ClassVar[Knowledge] = Knowledge(llm="query", query="exact")

    against: str = ""
    n: int = 5
    queries: int = 500
    iterations: int = 60
    batch: int = 8
    edits: Edits = "both"
    source: Source = "released"
    order: Literal["prefix", "suffix", "none"] = "prefix"
    max_words: int = 30
    trials: int = 50
    rewrite_prompt: str = "query_attacker_rewrite"

    def __post_init__(self) -> None:
        for name in ("n", "queries", "iterations", "batch"):
            if getattr(self, name) < 1:
                raise ConfigError(f"need {name} >= 1, got {getattr(self, name)}")
        if self.edits not in get_args(Edits):
            raise ConfigError(
                f"need edits to be one of {', '.join(get_args(Edits))}, got {self.edits!r}"
            )
        check_slots(
            self.rewrite_prompt,
            needed={"text", "answer"},
            optional={"question", "style"},
        )
        self._writer(self.n)  # its options are checked there

    @property
    def max_passages(self) -> int:
        """Largest budget that this attack can fill."""
        return self.n

    def craft(self, target: Target, view: AttackerView, rng: np.random.Generator) -> PoisonSet:
        """Write and tune up to ``n`` passages, no more than are asked for.

        Raises
        ------
        ConfigError
            The query has no wrong answer, or no first texts, or the system that can be asked
            has no defense although ``against`` names one.
        """
        started = self._writer(min(self.n, view.budget)).craft(target, view, rng)
        tuned: list[Tuned] = []
        for number, passage in enumerate(started.passages):
            oracle = _Oracle(
                view, target.wanted, [each.text for each in tuned], self.queries, self.against
            )
            proposals = _Proposals(self, view, target.wanted[0], rng, number)
            tuned.append(self._tune(passage.text, oracle, proposals, rng))
        details = tuple(
            self._details(each, target, passage.text, note)
            for each, passage, note in zip(tuned, started.passages, started.details, strict=True)
        )
        return PoisonSet(
            attack="query_attacker",
            query_id=target.query_id,
            passages=make_passages(
                "query_attacker", target.query_id, [each.text for each in tuned]
            ),
            knowledge=self.knowledge,
            wanted=target.wanted,
            details=details,
        )

    def _tune(
        self, text: str, oracle: _Oracle, proposals: _Proposals, rng: np.random.Generator
    ) -> Tuned:
        first = labels = oracle.ask(text) or Labels(False, False, False)
        path: tuple[str, ...] = ()
        iteration = 0
        while not labels.succeeded and iteration < self.iterations and oracle.left:
            iteration += 1
            level: list[tuple[str, str]] = []
            for candidate, name in proposals.of(text):
                found = oracle.ask(candidate)
                if found is None or found < labels:
                    continue
                if found > labels:
                    # A gain is taken at once: the other candidates are edits of a worse text.
                    text, labels, path, level = candidate, found, (*path, name), []
                    break
                level.append((candidate, name))
            if level:  # no gain: drift along the plateau, a text is never traded for a worse one
                text, name = level[int(rng.integers(len(level)))]
                path = (*path, name)
        return Tuned(
            text=text, labels=labels, first=first, iterations=iteration, queries=oracle.asked,
            path=path,
        )  # fmt: skip

    def _details(self, tuned: Tuned, target: Target, start: str, note: Any) -> dict[str, Json]:
        return {
            "against": self.against,
            "verified": tuned.labels.succeeded,
            "labels": dict(tuned.labels._asdict()),
            "labels_start": dict(tuned.first._asdict()),
            "iterations": tuned.iterations,
            "victim_queries": tuned.queries,
            "edits": list(tuned.path),
            "start": start,
            "start_verified": note["verified"],
            "words": len(tuned.text.split()),
            "payload": tuned.text,
            "payload_intact": holds(tuned.text, target.wanted[0]),
        }

    def _writer(self, count: int) -> PoisonedRAG:
        return PoisonedRAG(
            n=count,
            order=self.order,
            source=self.source,
            max_words=self.max_words,
            trials=self.trials,
        )


# --------------------------------------------------------------------------------- internals


class _Oracle:
    """The system as an oracle of hard labels: a text is asked about once, within a budget."""

    def __init__(
        self,
        view: AttackerView,
        wanted: Sequence[str],
        before: Sequence[str],
        queries: int,
        against: str,
    ) -> None:
        self._view = view
        self._wanted = [phrase(form) for form in wanted if has_content(form)]
        self._before = tuple(before)
        self._queries = queries
        self._against = against
        self._known: set[str] = set()

    @property
    def asked(self) -> int:
        return len(self._known)

    @property
    def left(self) -> int:
        return self._queries - len(self._known)

    def ask(self, text: str) -> Labels | None:
        """Label a text; None if it was asked about before, is too long or the budget is spent."""
        limit = self._view.max_words
        too_long = limit is not None and len(text.split()) > limit  # it could not be injected
        if too_long or text in self._known or self.left == 0:
            return None
        self._known.add(text)
        answer = self._view.ask_victim((*self._before, text))
        kept = getattr(answer, "kept", None)
        if kept is None and self._against:
            raise ConfigError(
                f"query_attacker is tuned against {self._against!r}, but the system that it may "
                "ask has no defense"
            )
        retrieved = bool(answer.retrieved[-1])
        passes = retrieved and (True if kept is None else bool(kept[-1]))
        tokens = tokenize(str(answer))
        named = any(True for form in self._wanted for _ in find_spans(tokens, form))
        return Labels(retrieved, passes, passes and named)


class _Proposals:
    """Candidates that follow from a text, of which each still holds the attacker's answer."""

    def __init__(
        self,
        options: QueryAttacker,
        view: AttackerView,
        wanted: str,
        rng: np.random.Generator,
        number: int,
    ) -> None:
        self._options = options
        self._view = view
        self._wanted = wanted
        self._rng = rng
        self._sample = number * options.iterations * options.batch

    def of(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield at most ``batch`` candidates, each with the name of its edit."""
        must_hold = holds(text, self._wanted)
        for slot in range(self._options.batch):
            kind = self._options.edits
            if kind == "both":
                kind = "rewrite" if slot % 2 else "words"
            made, name = (
                self._rewrite(text)
                if kind == "rewrite"
                else edit(text, self._view.question, self._rng)
            )
            if has_content(made) and (holds(made, self._wanted) or not must_hold):
                yield made, name

    def _rewrite(self, text: str) -> tuple[str, str]:
        style = int(self._rng.integers(len(STYLES)))
        request = prompts.load(self._options.rewrite_prompt).render(
            {
                "text": text,
                "answer": self._wanted,
                "question": self._view.question,
                "style": STYLES[style],
            }
        )
        [reply] = self._view.ask_helper(
            [request],
            max_tokens=max(96, 4 * len(text.split())),
            sample_index=self._sample,
        )
        self._sample += 1
        return " ".join(reply.split()), f"rewrite {style}"
