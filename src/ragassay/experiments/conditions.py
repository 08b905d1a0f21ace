"""The answers of one condition: their labels as codes, and the figures that are theirs alone.

A condition is clean or poisoned retrieval, without or with a defense. What it says of labels,
contexts and costs depends on its own answers only, so that it is computed once, however many
comparisons it stands in, and also where the conditions to compare it with are absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.stats.intervals import Interval, wilson
from ragassay.store.columns import (
    FAILED,
    MISSING,
    NEGATIVE,
    NOT_APPLICABLE,
    NOT_SCORED,
    POSITIVE,
    UNCERTAIN,
    USAGE,
    Codes,
    Ints,
    Trials,
    asked,
)
from ragassay.types import Query, ScoreRecord, Target

Queries = Mapping[str, tuple[Query, Target]]
Scores = Mapping[tuple[str, str], ScoreRecord]
CONDITIONS = ("c0", "c1", "p0", "p1")
UNDEFENDED = "none"


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
    """The trials of one place, and what they show.

    ``rows`` are those of ``trials``, one for each query of the setting, -1 where it has none.
    """

    rows: Ints
    trials: Trials
    confidence: float
    _codes: dict[tuple[str, str], Codes] = field(default_factory=dict)
    _told: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def absent(self) -> bool:
        """Whether not one trial was run here, not even one that failed."""
        return bool((self.rows < 0).all())

    @property
    def done(self) -> Ints:
        """The rows of the trials that are done, in the order of the queries."""
        there = self.rows[self.rows >= 0]
        return there[self.trials.done[there]]

    @property
    def poisoned(self) -> NDArray[np.bool_]:
        """Which contexts hold any poison, shape (queries,)."""
        found = np.zeros(len(self.rows), dtype=np.bool_)
        there = self.rows >= 0
        counts = self.trials.counts(kept_only=False)[self.rows[there]]
        found[there] = (counts[:, 1] + counts[:, 2]) > 0
        return found

    def codes(self, scorer: str, label: str = "target_positive") -> Codes:
        """The label of every query as a code, shape (queries,)."""
        known = self._codes.get((scorer, label))
        if known is None:
            known = np.full(len(self.rows), MISSING, dtype=np.int8)
            there = self.rows >= 0
            known[there] = self.trials.labels(scorer, label)[self.rows[there]]
            self._codes[scorer, label] = known
        return known

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

    def _context(self) -> dict[str, Any]:
        retrieved, kept = (
            self.trials.counts(kept_only=some)[self.done].astype(np.int64) for some in (False, True)
        )
        n = len(retrieved)
        return {
            "n": n,
            "retrieved": _composition(retrieved),
            "kept": _composition(kept),
            "support_retrieved": _support(retrieved),
            "support_kept": _support(kept),
            "any_poison": rate(
                int((retrieved[:, 1] + retrieved[:, 2] > 0).sum()), n, self.confidence
            ),
        }

    def _cost(self) -> dict[str, Any]:
        usage = self.trials.usage[self.done]
        n = len(usage)
        totals = usage.sum(axis=0).tolist()
        return {what: total / n if n else None for what, total in zip(USAGE, totals, strict=True)}


class Conditions:
    """Gives the condition at a place; each is built once."""

    def __init__(
        self, trials: Trials, members: Mapping[str, Sequence[Query]], confidence: float
    ) -> None:
        self.members = members
        self.trials = trials
        self._confidence = confidence
        self._numbers = {
            setting: asked(trials, (query.id for query in some))
            for setting, some in members.items()
        }
        self._known: dict[tuple[str, str, int, str], Condition] = {}

    def __call__(self, place: tuple[str, str, int, str]) -> Condition:
        """The condition at (setting, attack, budget, defense)."""
        if place not in self._known:
            rows = self.trials.rows(place, self._numbers[place[0]])
            self._known[place] = self._condition(rows)
        return self._known[place]

    def of(self, cell: Cell) -> list[Condition]:
        """The four conditions of a cell; without any trial where it has no place."""
        nothing = np.full(len(self.members[cell.setting]), -1, dtype=np.int64)
        return [
            self._condition(nothing) if place is None else self(place) for place in cell.places()
        ]

    def _condition(self, rows: Ints) -> Condition:
        return Condition(rows=rows, trials=self.trials, confidence=self._confidence)


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


def _composition(counts: Ints) -> dict[str, float | None]:
    """Mean number of passages per context: all, own poison, foreign poison."""
    n = len(counts)
    totals = counts.sum(axis=0).tolist()
    return {
        what: totals[i] / n if n else None for i, what in enumerate(("passages", "own", "foreign"))
    }


def _support(counts: Ints) -> dict[str, float | None]:
    """Share of contexts that hold at least one supporting passage, and the mean number."""
    n, gold = len(counts), counts[:, 3]
    if not n:
        return {"contexts_with": None, "passages": None}
    return {"contexts_with": int((gold > 0).sum()) / n, "passages": int(gold.sum()) / n}
