"""The answers of one condition: their labels as codes, and the figures that are theirs alone.

A condition is clean or poisoned retrieval, without or with a defense. What it says of labels,
contexts and costs depends on its own answers only, so that it is computed once, however many
comparisons it stands in, and also where the conditions to compare it with are absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.stats.intervals import Interval, wilson
from ragassay.types import Query, ScoreRecord, Target, TrialRecord

Place = tuple[str, str, str, int, str]  # query, setting, attack, budget, defense
Codes = NDArray[np.int8]
Queries = Mapping[str, tuple[Query, Target]]
Scores = Mapping[tuple[str, str], ScoreRecord]
CONDITIONS = ("c0", "c1", "p0", "p1")
UNDEFENDED = "none"
POSITIVE, NEGATIVE, UNCERTAIN, NOT_SCORED, NOT_APPLICABLE, FAILED, MISSING = (
    1,
    0,
    -1,
    -2,
    -3,
    -4,
    -5,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One (setting, attack, budget, defense): what is compared with the undefended system.

    Budget 0 stands for a setting without any poisoned answer.
    """

    setting: str
    attack: str
    budget: int
    defense: str

    def places(self) -> tuple[tuple[str, str, int, str] | None, ...]:
        """Where its four conditions stand, in the order of :data:`CONDITIONS`."""
        clean = [(self.setting, "", 0, who) for who in (UNDEFENDED, self.defense)]
        if not self.budget:
            return (*clean, None, None)
        poisoned = [
            (self.setting, self.attack, self.budget, who) for who in (UNDEFENDED, self.defense)
        ]
        return (*clean, *poisoned)


def label_code(score: ScoreRecord | None, label: str = "target_positive") -> int:
    """The code of a label of an answer that exists; negative where nothing is decided."""
    if score is None:
        return NOT_SCORED
    value = getattr(score, label)
    if value is None:
        return UNCERTAIN if label in score.uncertain else NOT_APPLICABLE
    return POSITIVE if value else NEGATIVE


def rate(count: int, n: int, confidence: float) -> dict[str, Any]:
    """A share with its denominator and Wilson interval; value null where n is 0."""
    interval = wilson(count, n, confidence=confidence)
    return {"count": count, "n": n, "value": count / n if n else None, **bounds(interval)}


def bounds(interval: Interval | None) -> dict[str, float | None]:
    """Ends of an interval, null where there is none."""
    if interval is None:
        return {"low": None, "high": None}
    return {"low": interval.low, "high": interval.high}


@dataclass(slots=True, kw_only=True)
class Condition:
    """The trials of one place, a row for each query of its setting, and what they show."""

    trials: Sequence[TrialRecord | None]
    scores: Scores
    confidence: float
    _codes: dict[tuple[str, str], Codes] = field(default_factory=dict)
    _told: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def absent(self) -> bool:
        """Whether not one trial was run here, not even one that failed."""
        return all(trial is None for trial in self.trials)

    def codes(self, scorer: str, label: str = "target_positive") -> Codes:
        """The label of every query as a code, shape (queries,)."""
        known = self._codes.get((scorer, label))
        if known is None:
            known = np.fromiter(
                (self._code(trial, scorer, label) for trial in self.trials),
                dtype=np.int8, count=len(self.trials),
            )  # fmt: skip
            self._codes[scorer, label] = known
        return known

    def _code(self, trial: TrialRecord | None, scorer: str, label: str) -> int:
        if trial is None:
            return MISSING
        if trial.status == "failed":
            return FAILED
        return label_code(self.scores.get((trial.key, scorer)), label)

    def labels(self, scorer: str) -> dict[str, Any]:
        """How many answers are target-positive, and how many undecided.

        Both out of the answers that the scorer read; what it did not read, or what has no
        target, is counted beside them and in no denominator.
        """
        codes = self.codes(scorer)
        positive, uncertain = _count(codes, POSITIVE), _count(codes, UNCERTAIN)
        n = positive + uncertain + _count(codes, NEGATIVE)
        return {
            "positive": rate(positive, n, self.confidence),
            "uncertain": rate(uncertain, n, self.confidence),
            "not_scored": _count(codes, NOT_SCORED),
            "not_applicable": _count(codes, NOT_APPLICABLE),
        }

    def share(self, scorer: str, label: str) -> dict[str, Any]:
        """Rate of another label out of the answers that the scorer read, undecided ones counted."""
        codes = self.codes(scorer, label)
        positive, uncertain = _count(codes, POSITIVE), _count(codes, UNCERTAIN)
        n = positive + uncertain + _count(codes, NEGATIVE)
        return {**rate(positive, n, self.confidence), "uncertain": uncertain}

    def hits_while_abstaining(self, scorer: str, kept: NDArray[np.bool_]) -> int:
        """Answers that are target-positive and abstain, among some queries."""
        both = (self.codes(scorer) == POSITIVE) & (self.codes(scorer, "abstained") == POSITIVE)
        return int((both & kept).sum())

    def context(self) -> dict[str, Any]:
        """What stood in the contexts, and what was let through (means per context)."""
        return self._once("context", self._context)

    def cost(self) -> dict[str, Any]:
        """Mean model calls, tokens and embedded texts per query."""
        return self._once("cost", self._cost)

    def _once(self, name: str, make: Any) -> dict[str, Any]:
        if name not in self._told:
            self._told[name] = make()
        return self._told[name]

    def _done(self) -> list[TrialRecord]:
        return [trial for trial in self.trials if trial is not None and trial.status == "done"]

    def _context(self) -> dict[str, Any]:
        trials = self._done()
        return {
            "n": len(trials),
            "retrieved": _composition(trials, kept_only=False),
            "kept": _composition(trials, kept_only=True),
            "support_retrieved": _support(trials, kept_only=False),
            "support_kept": _support(trials, kept_only=True),
            "any_poison": rate(
                sum(any(e.origin != "corpus" for e in t.context) for t in trials),
                len(trials), self.confidence,
            ),
        }  # fmt: skip

    def _cost(self) -> dict[str, Any]:
        usages = [trial.usage for trial in self._done()]
        n = len(usages)
        return {
            what: sum(getattr(usage, what) for usage in usages) / n if n else None
            for what in (
                "model_calls",
                "input_tokens",
                "output_tokens",
                "encoded_texts",
                "scored_texts",
            )
        }


class Conditions:
    """Gives the condition at a place; each is built once."""

    def __init__(
        self,
        trials: Iterable[TrialRecord],
        scores: Scores,
        members: Mapping[str, Sequence[Query]],
        confidence: float,
    ) -> None:
        self.members = members
        self.scores = scores
        self._trials = by_place(trials)
        self._confidence = confidence
        self._known: dict[tuple[str, str, int, str], Condition] = {}

    def __call__(self, place: tuple[str, str, int, str]) -> Condition:
        """The condition at (setting, attack, budget, defense)."""
        if place not in self._known:
            queries = self.members[place[0]]
            self._known[place] = Condition(
                trials=[self._trials.get((query.id, *place)) for query in queries],
                scores=self.scores,
                confidence=self._confidence,
            )
        return self._known[place]

    def of(self, cell: Cell) -> list[Condition]:
        """The four conditions of a cell; without any trial where it has no place."""
        nothing = Condition(
            trials=[None] * len(self.members[cell.setting]), scores=self.scores,
            confidence=self._confidence,
        )  # fmt: skip
        return [nothing if place is None else self(place) for place in cell.places()]


def by_place(records: Iterable[TrialRecord]) -> dict[Place, TrialRecord]:
    """Trials by query, setting, attack, budget and defense."""
    return {
        (
            r.spec.query_id, r.spec.setting, r.spec.attack, r.spec.budget, r.spec.defense_label,
        ): r
        for r in records
    }  # fmt: skip


def why_dropped(codes: Sequence[Codes]) -> dict[str, NDArray[np.bool_]]:
    """For each reason, which queries lack one of their four labels because of it.

    The first reason that applies counts, in the order of the result; a label that is not
    applicable to some of the four answers only is "not scored".
    """
    table = np.stack(list(codes))
    none_applies = (table == NOT_APPLICABLE).all(axis=0)
    some_open = ((table == NOT_SCORED) | (table == NOT_APPLICABLE)).any(axis=0) & ~none_applies
    tests = {
        "missing": (table == MISSING).any(axis=0),
        "failed": (table == FAILED).any(axis=0),
        "not_scored": (table == NOT_SCORED).any(axis=0),
        "uncertain": (table == UNCERTAIN).any(axis=0),
        "not_applicable": none_applies,
    }
    found: dict[str, NDArray[np.bool_]] = {}
    left = np.ones(table.shape[1], dtype=bool)
    for reason, test in tests.items():
        found[reason] = test & left
        left &= ~test
    found["not_scored"] |= some_open & left
    return found


def _count(codes: Codes, code: int) -> int:
    return int((codes == code).sum())


def _composition(trials: Sequence[TrialRecord], *, kept_only: bool) -> dict[str, float | None]:
    """Mean number of passages per context: all, own poison, foreign poison."""
    if not trials:
        return {"passages": None, "own": None, "foreign": None}
    entries = [e for t in trials for e in t.context if e.kept or not kept_only]
    n = len(trials)
    return {
        "passages": len(entries) / n,
        "own": sum(e.origin == "own" for e in entries) / n,
        "foreign": sum(e.origin == "foreign" for e in entries) / n,
    }


def _support(trials: Sequence[TrialRecord], *, kept_only: bool) -> dict[str, float | None]:
    """Share of contexts that hold at least one supporting passage, and the mean number."""
    if not trials:
        return {"contexts_with": None, "passages": None}
    counts = [sum(e.gold and (e.kept or not kept_only) for e in t.context) for t in trials]
    return {
        "contexts_with": sum(c > 0 for c in counts) / len(trials),
        "passages": sum(counts) / len(trials),
    }
