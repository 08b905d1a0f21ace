"""The answers of a dose run with their arms and labels, as the rows that figures are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragassay.experiments.conditions import UNDEFENDED
from ragassay.experiments.trial import score_key
from ragassay.matching import normalize_question
from ragassay.stats.dose import Runs
from ragassay.stats.paired import Labels
from ragassay.store import RunFolder
from ragassay.types import EditsRecord, Query, ScoreRecord, Target, TrialRecord

EDITS = "edits"  # the scores of adoption stand under <trial key>#edits
System = tuple[str, str]  # setting, defense
Spot = tuple[str, str, str, int, int]  # query, arm, rule, draw, requested dose


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One planned answer: its arm and edits, its trial if it is done, its question's text."""

    edits: EditsRecord
    trial: TrialRecord | None
    status: str
    group: str

    @property
    def spot(self) -> Spot:
        """Where it stands among the answers of its system."""
        e = self.edits
        return e.query_id, e.arm, e.rule, e.draw, e.requested


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Tampered answers that pair with a clean one, with all labels known.

    ``low_overlap`` is the withdrawn measure, ``known`` whether the closed-book answer is
    correct; both None where that is not known. ``dropped`` counts what was left out, by reason.
    """

    answers: tuple[Answer, ...]
    runs: Runs
    known: tuple[bool | None, ...]
    low_overlap: tuple[bool | None, ...]
    dropped: Mapping[str, int]

    def mask(self, values: Iterable[bool]) -> Labels:
        """A mask over the rows."""
        return np.array(list(values), dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class DoseRecords:
    """All records of a run folder that a dose analysis reads."""

    answers: Mapping[System, Mapping[Spot, Answer]]
    scores: Mapping[tuple[str, str], ScoreRecord]
    queries: Mapping[str, tuple[Query, Target]]
    rules: Sequence[str] = ()
    adoption_by: str = ""

    @classmethod
    def read(cls, store: RunFolder, scorers: Sequence[str], rules: Sequence[str]) -> DoseRecords:
        """Join plan, trials and labels of a folder; ``scorers`` in order of preference."""
        trials, scores, queries = store.trials(), store.scores(), store.queries()
        answers: dict[System, dict[Spot, Answer]] = {}
        for record in store.edits().values():
            trial = trials.get(record.trial_key)
            status = "missing" if trial is None else trial.status
            answer = Answer(
                edits=record,
                trial=trial if status == "done" else None,
                status=status,
                group=normalize_question(queries[record.query_id][0].text),
            )
            answers.setdefault((record.setting, record.defense), {})[answer.spot] = answer
        reads = {title for key, title in scores if key.endswith(f"#{EDITS}")}
        by = next((title for title in scorers if title in reads), min(reads, default=""))
        return cls(answers, scores, queries, rules, by)

    def label(self, answer: Answer | None, scorer: str, name: str) -> bool | None:
        """A label of an answer; None where it is not known."""
        if answer is None or answer.trial is None:
            return None
        score = self.scores.get((answer.edits.trial_key, scorer))
        return None if score is None else getattr(score, name)

    def adoption(self, answer: Answer | None) -> ScoreRecord | None:
        """The reading of adoption of an answer."""
        if answer is None or answer.trial is None:
            return None
        return self.scores.get((score_key(answer.edits.trial_key, EDITS), self.adoption_by))

    def sampled(self, system: System) -> bool:
        """Whether each draw has clean answers of its own."""
        return any(spot[1] == "clean" and spot[3] for spot in self.answers.get(system, {}))

    def partner(self, system: System, answer: Answer, arm: str) -> Answer | None:
        """The answer of another arm to the same question, of the same draw where drawn."""
        draw = answer.edits.draw if self.sampled(system) else 0
        return self.answers.get(system, {}).get((answer.edits.query_id, arm, "", draw, 0))

    def arm(self, system: System, arm: str) -> list[Answer]:
        """The answers of an arm: rules in the order of the experiment, then by question."""
        found = self.answers.get(system, {})
        rank = {rule: place for place, rule in enumerate(self.rules)}
        spots = sorted(
            (spot for spot in found if spot[1] == arm),
            key=lambda spot: (rank.get(spot[2], len(rank)), spot[2], spot[0], *spot[3:]),
        )
        return [found[spot] for spot in spots]

    def rows(self, system: System, scorer: str) -> Rows:
        """The tampered answers of a system beside their clean ones."""
        kept: list[Answer] = []
        labels: list[tuple[bool, bool, bool, bool]] = []
        known, overlap = [], []
        dropped = {"missing": 0, "failed": 0, "not_scored": 0}
        bare = (system[0], UNDEFENDED)
        for answer in self.arm(system, "tampered"):
            clean = self.partner(system, answer, "clean")
            for each in (answer, clean):
                if each is None or each.trial is None:
                    dropped["failed" if each and each.status == "failed" else "missing"] += 1
                    break
            else:
                adopted = self.adoption(answer)
                four = (
                    self.label(clean, scorer, "correct"),
                    self.label(answer, scorer, "correct"),
                    adopted.target_positive if adopted is not None else None,
                    self.label(answer, scorer, "abstained"),
                )
                if self.adoption_by == "":
                    four = (four[0], four[1], False, four[3])
                if any(value is None for value in four):
                    dropped["not_scored"] += 1
                    continue
                kept.append(answer)
                labels.append(tuple(bool(value) for value in four))  # type: ignore[arg-type]
                told = adopted.provenance.get("withdrawn_low_overlap") if adopted else None
                overlap.append(told if isinstance(told, bool) else None)
                closed = self.partner(bare, answer, "closed_book")
                known.append(self.label(closed, scorer, "correct"))
        return Rows(
            answers=tuple(kept),
            runs=runs_of(kept, labels),
            known=tuple(known),
            low_overlap=tuple(overlap),
            dropped=dropped,
        )


def runs_of(answers: Sequence[Answer], labels: Sequence[tuple[bool, bool, bool, bool]]) -> Runs:
    """Make arrays; labels are clean correct, correct, adopted, abstained."""
    columns = np.array(labels, dtype=np.bool_).reshape(len(answers), 4).T
    return Runs(
        requested=np.array([a.edits.requested for a in answers], dtype=np.int64),
        applied=np.array([a.edits.applied for a in answers], dtype=np.int64),
        clean_correct=columns[0],
        correct=columns[1],
        adopted=columns[2],
        abstained=columns[3],
        groups=[a.group for a in answers],
    )


def delivered(answers: Sequence[Answer]) -> Runs:
    """The same without labels, for figures of delivery alone."""
    none: Any = (False, False, False, False)
    return runs_of(answers, [none] * len(answers))
