"""The trials of a run and their labels as columns: what a million of them cost is bounded.

Of a trial stay its place, its context and its counts, in arrays; of a label its code. Texts stay
in the files and are read again where they are shown: an answer is known by a digest, a whole
record by its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ragassay.store.keys import Keys, encoded
from ragassay.types import ContextEntry, ScoreRecord, TrialRecord

if TYPE_CHECKING:
    from ragassay.store.reading import Source

POSITIVE, NEGATIVE, UNCERTAIN, NOT_SCORED, NOT_APPLICABLE, FAILED, MISSING = (
    1,
    0,
    -1,
    -2,
    -3,
    -4,
    -5,
)
LABELS = ("target_positive", "correct", "abstained")
USAGE = ("model_calls", "input_tokens", "output_tokens", "encoded_texts", "scored_texts")
ORIGINS: tuple[Literal["corpus", "own", "foreign"], ...] = ("corpus", "own", "foreign")
COPIES: tuple[Literal["", "own", "foreign"], ...] = ("", "own", "foreign")
GOLD, KEPT, COPY_SHIFT = 4, 8, 4  # of an entry's flags: origin in 2 bits, 2 bits, the copy
COUNTED = ("passages", "own", "foreign", "gold")
_BATCH = 4096  # records that are read together, in the order in which they lie

Ints = NDArray[np.int64]
Codes = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of values of which few differ: their numbers, and the values by number."""

    codes: NDArray[np.int32]
    numbers: Mapping[Any, int]
    values: Sequence[Any]

    @classmethod
    def of(cls, codes: NDArray[np.int32], numbers: Mapping[Any, int]) -> Coded:
        """A column of numbers that were given in the order of the mapping."""
        return cls(codes, numbers, list(numbers))

    def number(self, value: Any) -> int:
        """The number of a value, -1 where no row has it."""
        return self.numbers.get(value, -1)

    def numbered(self, values: Iterable[Any]) -> NDArray[np.int32]:
        """The numbers of some values, shape (values,)."""
        return np.fromiter((self.numbers.get(v, -1) for v in values), dtype=np.int32)

    def equal(self, value: Any) -> NDArray[np.bool_]:
        """Which rows have a value, shape (rows,)."""
        found: NDArray[np.bool_] = self.codes == self.number(value)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """The passages of all contexts in one row: those of a trial are ``start`` and ``count``."""

    start: Ints
    count: NDArray[np.int32]
    ids: NDArray[np.int32]
    scores: NDArray[np.float64]
    flags: NDArray[np.uint8]
    names: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The labels of one scorer, shape (trials,) each: codes, and where the records stand."""

    codes: Mapping[str, Codes]
    places: NDArray[np.void]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """The newest record of every trial, a row each, in the order in which they first came.

    ``answers`` holds digests of answers in 128 bits, 0 for none. ``detected`` is the suspicion of
    the whole context, NaN where there is none, and ``thresholds`` what it was compared with.
    ``scores`` are the labels by scorer. :func:`ragassay.store.reading.trials_of` makes it.
    """

    keys: Keys
    names: NDArray[Any]
    query: Coded
    setting: Coded
    attack: Coded
    defense: Coded
    control: Coded
    error: Coded
    thresholds: Coded
    budget: NDArray[np.int32]
    done: NDArray[np.bool_]
    declined: NDArray[np.bool_]
    answers: NDArray[np.uint64]
    usage: Ints
    detected: NDArray[np.float64]
    entries: Entries
    scores: Mapping[str, Column]
    source: Source
    _known: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.budget)

    def key(self, row: int) -> str:
        """The key of a row."""
        return bytes(self.names[row]).decode("utf-8", "surrogatepass")

    def labels(self, scorer: str, label: str = "target_positive") -> Codes:
        """The label of every row as a code, shape (rows,); a failed trial is ``FAILED``."""
        name = f"{scorer}\0{label}"
        if name not in self._known:
            column = self.scores.get(scorer)
            given = (
                np.full(len(self), NOT_SCORED, dtype=np.int8)
                if column is None
                else column.codes[label]
            )
            self._known[name] = np.where(self.done, given, np.int8(FAILED))
        return self._known[name]  # type: ignore[no-any-return]

    @property
    def by_key(self) -> Ints:
        """The rows in the order of their keys."""
        return self._once("by_key", lambda: np.argsort(self.names, kind="stable"))  # type: ignore[no-any-return]

    def counts(self, *, kept_only: bool) -> NDArray[np.int32]:
        """Passages in each context: all, own poison, foreign poison, gold; shape (rows, 4)."""
        return self._once(f"counts {kept_only}", lambda: self._count(kept_only))  # type: ignore[no-any-return]

    def _count(self, kept_only: bool) -> NDArray[np.int32]:
        entries = self.entries
        origin, gold = entries.flags & 3, (entries.flags & GOLD) > 0
        there = (entries.flags & KEPT) > 0 if kept_only else np.ones(len(gold), dtype=bool)
        found = np.empty((len(self), len(COUNTED)), dtype=np.int32)
        stop = entries.start + entries.count
        for i, test in enumerate((there, origin == 1, origin == 2, gold)):
            total = np.zeros(len(gold) + 1, dtype=np.int64)
            np.cumsum(test & there, out=total[1:])
            found[:, i] = total[stop] - total[entries.start]
        return found

    def rows(
        self, place: tuple[str, str, int, str], queries: NDArray[np.int32], control: str = ""
    ) -> Ints:
        """The rows of some queries at (setting, attack, budget, defense), -1 where there is none.

        ``queries`` are numbers of :attr:`query`. Of two trials at one place the later row counts.
        """
        places, asked, order = self._once("grouped", self._grouped)
        found = np.full(len(queries), -1, dtype=np.int64)
        number = self._place(place, control)
        start, stop = (int(np.searchsorted(places, number, side)) for side in ("left", "right"))
        if number < 0 or start == stop:
            return found
        here = asked[start:stop]
        at = np.searchsorted(here, queries, "right") - 1
        hit = (at >= 0) & (here[np.maximum(at, 0)] == queries) & (queries >= 0)
        found[hit] = order[start + at[hit]]
        return found

    def _grouped(self) -> tuple[Ints, NDArray[np.int32], Ints]:
        place = np.zeros(len(self), dtype=np.int64)
        for column, size in self._radix():
            place = place * size + column
        order = np.lexsort((self.query.codes, place))
        return place[order], self.query.codes[order], order

    def _radix(self) -> list[tuple[NDArray[np.int32], int]]:
        named = [(c.codes, len(c.numbers)) for c in (self.setting, self.attack)]
        more = [(c.codes, len(c.numbers)) for c in (self.defense, self.control)]
        return [*named, (self.budget, 1 + int(self.budget.max(initial=0))), *more]

    def _place(self, place: tuple[str, str, int, str], control: str) -> int:
        setting, attack, budget, defense = place
        numbers = (self.setting.number(setting), self.attack.number(attack), budget,
                   self.defense.number(defense), self.control.number(control))  # fmt: skip
        found = 0
        for number, (_, size) in zip(numbers, self._radix(), strict=True):
            if not 0 <= number < size:
                return -1
            found = found * size + number
        return found

    def _once(self, name: str, make: Any) -> Any:
        if name not in self._known:
            self._known[name] = make()
        return self._known[name]

    def at(self, row: int) -> Trial:
        """A row as a value."""
        return Trial(self, row)

    def record(self, row: int) -> TrialRecord:
        """The whole record of a row, read again."""
        return self.source.trials([row])[0]

    def records(self, rows: Ints) -> Iterator[TrialRecord]:
        """The whole records of some rows, shape (n,), in their order, a batch in memory."""
        for start in range(0, len(rows), _BATCH):
            yield from self.source.trials(rows[start : start + _BATCH].tolist())

    def records_of(self, scorer: str, rows: Ints) -> Iterator[ScoreRecord | None]:
        """The whole labels of some rows by a scorer that has some; as :meth:`records`."""
        for start in range(0, len(rows), _BATCH):
            yield from self.source.scores(scorer, rows[start : start + _BATCH].tolist())

    def score(self, row: int, scorer: str) -> ScoreRecord | None:
        """The whole label of a row, read again; None where there is none."""
        column = self.scores.get(scorer)
        return None if column is None else self.source.scores(scorer, [row])[0]


@dataclass(frozen=True, slots=True)
class Trial:
    """One row of the columns, with the names that a :class:`~ragassay.types.TrialRecord` has."""

    of: Trials
    row: int

    @property
    def key(self) -> str:
        """The key."""
        return self.of.key(self.row)

    @property
    def status(self) -> str:
        """``done`` or ``failed``."""
        return "done" if self.of.done[self.row] else "failed"

    @property
    def control(self) -> str:
        """Which passages were kept, where some were removed."""
        return str(self.of.control.values[self.of.control.codes[self.row]])

    @property
    def declined(self) -> bool:
        """Whether the defense abstained."""
        return bool(self.of.declined[self.row])

    @property
    def detected(self) -> float | None:
        """The suspicion of the whole context."""
        value = float(self.of.detected[self.row])
        return None if value != value else value

    @property
    def thresholds(self) -> Mapping[str, float]:
        """What the suspicion of the context was compared with, by nominal rate."""
        code = self.of.thresholds.codes[self.row]
        return {} if code < 0 else dict(self.of.thresholds.values[code])

    @property
    def answer(self) -> str | None:
        """The answer, read again."""
        return self.of.record(self.row).answer

    @property
    def context(self) -> tuple[ContextEntry, ...]:
        """The passages of the context."""
        entries = self.of.entries
        start = int(entries.start[self.row])
        return tuple(
            ContextEntry(
                id=entries.names[entries.ids[i]], score=float(entries.scores[i]),
                origin=ORIGINS[flags & 3], gold=bool(flags & GOLD), kept=bool(flags & KEPT),
                copy=COPIES[flags >> COPY_SHIFT],
            )
            for i in range(start, start + int(entries.count[self.row]))
            for flags in (int(entries.flags[i]),)
        )  # fmt: skip

    @property
    def context_ids(self) -> list[str]:
        """Ids of the passages of the context, without making entries of them."""
        entries = self.of.entries
        start = int(entries.start[self.row])
        names = entries.names
        return [
            names[i] for i in entries.ids[start : start + int(entries.count[self.row])].tolist()
        ]

    def positive(self, scorer: str) -> bool | None:
        """Whether the answer is target-positive; None where it is missing or undecided."""
        code = self.label(scorer)
        return None if code < 0 else bool(code)

    def label(self, scorer: str, label: str = "target_positive") -> int:
        """A label as a code."""
        return int(self.of.labels(scorer, label)[self.row])


class Spots:
    """Trials by query, setting, attack, budget, defense and control."""

    def __init__(self, trials: Trials) -> None:
        self.trials = trials
        self._places: dict[tuple[Any, ...], Any] = {}
        self._every = np.arange(len(trials.query.numbers), dtype=np.int32)

    def get(self, spot: tuple[str, str, str, int, str, str]) -> Trial | None:
        """The trial at a spot."""
        place = spot[1:]
        rows = self._places.get(place)
        if rows is None:
            found = self.trials.rows(spot[1:5], self._every, spot[5])
            there = np.flatnonzero(found >= 0)
            rows = dict(zip(there.tolist(), found[there].tolist(), strict=True))
            self._places[place] = rows
        row = rows.get(self.trials.query.number(spot[0]))
        return None if row is None else Trial(self.trials, row)

    def controls(self) -> list[Trial]:
        """The trials with passages removed, one for each spot."""
        trials = self.trials
        places, queries, order = trials._once("grouped", trials._grouped)
        newest = np.ones(len(order), dtype=bool)
        if len(order):
            newest[:-1] = (places[1:] != places[:-1]) | (queries[1:] != queries[:-1])
        rows = np.sort(order[newest & ~trials.control.equal("")[order]])
        return [Trial(trials, row) for row in rows.tolist()]


def asked(trials: Trials, names: Iterable[str]) -> NDArray[np.int32]:
    """The numbers of some queries, for :meth:`Trials.rows`."""
    return trials.query.numbered(names)


__all__ = ["Coded", "Column", "Entries", "Keys", "Spots", "Trial", "Trials", "asked", "encoded"]
