"""What a control ladder left in a run folder, arranged for the analysis: who judged what how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ragassay.construction.texts import PoisonText
from ragassay.stats.filter_rates import Candidates
from ragassay.types import ContextEntry, TrialRecord

Variant = tuple[str, str]  # rung, filler
Passage = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One filter on the candidates of a cell.

    ``contexts`` are (run, question) pairs, a run being a seed of a trained scorer and empty for
    all others. ``contaminated`` says of each whether poison reached the model. ``probabilities``
    are those of a trained scorer, empty elsewhere.
    """

    runs: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    poison: list[bool] = field(default_factory=list)
    blocked: list[bool] = field(default_factory=list)
    scores: list[float | None] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    contexts: list[tuple[str, str]] = field(default_factory=list)
    contaminated: list[bool] = field(default_factory=list)

    def candidates(self) -> Candidates:
        """As the statistics take it; without scores where no passage has one."""
        scored = any(score is not None for score in self.scores)
        return Candidates(
            queries=self.queries,
            poison=np.array(self.poison, dtype=np.bool_),
            blocked=np.array(self.blocked, dtype=np.bool_),
            scores=self.scores if scored else (),
            runs=self.runs,
        )

    def passes(self) -> dict[tuple[str, str, str], bool]:
        """Whether each candidate passed, by run, question and passage."""
        places = zip(self.runs, self.queries, self.ids, self.blocked, strict=True)
        return {(run, query, each): not blocked for run, query, each, blocked in places}

    def add(self, run: str, query: str, entry: tuple[str, bool, bool, float | None]) -> None:
        """Add a candidate: its id, whether it is poison and blocked, its score."""
        self.runs.append(run)
        self.queries.append(query)
        self.ids.append(entry[0])
        self.poison.append(entry[1])
        self.blocked.append(entry[2])
        self.scores.append(entry[3])


def is_poison(entry: ContextEntry) -> bool:
    """Whether a passage was injected, or has the text of one that was."""
    return entry.origin != "corpus" or bool(entry.copy)


def judged_trials(trials: Iterable[TrialRecord], k: int) -> Judged:
    """Collect what a defense did with the first ``k`` retrieved passages of each question.

    All filters judge the same candidates, also one that retrieves more. What a filter removed
    is what its trace says where it says so: a passage that only did not fit is not blocked.
    """
    found = Judged()
    for trial in trials:
        query = trial.spec.query_id
        removed = removed_places(trial)
        found.contexts.append(("", query))
        passed = [e for e in trial.context if e.kept and not trial.declined]
        found.contaminated.append(any(map(is_poison, passed)))
        for place, entry in enumerate(trial.context[:k]):
            score = trial.suspicion.get(entry.id)
            found.add("", query, (entry.id, is_poison(entry), place in removed, score))
    return found


def removed_places(trial: TrialRecord) -> set[int]:
    """Places in the context, from 0, of the passages that a defense took out."""
    if trial.declined:
        return set(range(len(trial.context)))
    ranks = trial.trace.get("removed_ranks")
    if isinstance(ranks, (list, tuple)) and all(isinstance(rank, int) for rank in ranks):
        return {rank - 1 for rank in ranks if isinstance(rank, int)}
    return {place for place, entry in enumerate(trial.context) if not entry.kept}


def judged_learned(bodies: Iterable[Mapping[str, Any]], threshold: float) -> Judged:
    """Collect what trained scorers say, pooled over seeds; blocked from the threshold on."""
    found = Judged()
    for body in bodies:
        run = str(body["seed"])
        reached: dict[str, bool] = {}
        for query, passage, poison, p in body["candidates"]:
            blocked = p >= threshold
            found.add(run, query, (passage, bool(poison), blocked, p))
            found.probabilities.append(p)
            reached[query] = reached.get(query, False) or (bool(poison) and not blocked)
        found.contexts.extend((run, query) for query in reached)
        found.contaminated.extend(reached.values())
    return found


@dataclass(frozen=True, slots=True)
class Edited:
    """The edited poison of an attack on a rung, by question."""

    of_query: Mapping[str, Sequence[Passage]]

    def all(self) -> Iterator[tuple[str, Passage]]:
        """Question id and passage, in order."""
        for query, passages in self.of_query.items():
            for passage in passages:
                yield query, passage

    def outcomes(
        self, judged: Judged
    ) -> tuple[list[bool | None], list[bool | None], list[bool | None], list[str]]:
        """Retrieved, intact and passed for each crafted passage, and its question.

        All three are unknown where the edit was not possible.
        """
        passes = judged.passes()
        retrieved: list[bool | None] = []
        payload: list[bool | None] = []
        gate: list[bool | None] = []
        queries: list[str] = []
        for run, query in judged.contexts:
            for passage in self.of_query.get(query, ()):
                possible = bool(passage["id"])
                found = passes.get((run, query, passage["id"]))
                retrieved.append(found is not None if possible else None)
                payload.append(bool(passage["edit"]["payload_intact"]) if possible else None)
                gate.append(found if possible else None)
                queries.append(query)
        return retrieved, payload, gate, queries

    def texts(self, questions: Mapping[str, str]) -> tuple[PoisonText, ...]:
        """The passages that could be edited, for a profile."""
        return tuple(
            PoisonText(
                query_id=query, question=questions[query], text=passage["text"],
                number=passage["number"],
            )
            for query, passage in self.all()
            if passage["id"]
        )  # fmt: skip


def edited_sets(
    bodies: Iterable[Mapping[str, Any]],
) -> dict[tuple[str, str, Variant], Edited]:
    """Edited poison by arm, attack and rung with filler."""
    found: dict[tuple[str, str, Variant], dict[str, Sequence[Passage]]] = {}
    for body in bodies:
        place = body["arm"], body["attack"], (body["rung"], body["filler"])
        found.setdefault(place, {})[body["query_id"]] = body["passages"]
    return {place: Edited(of_query) for place, of_query in found.items()}
