"""Reads trials and scores into columns, from a run folder or from values in memory."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from ragassay import canon
from ragassay.errors import StoreError
from ragassay.store.columns import (
    COPIES,
    COPY_SHIFT,
    GOLD,
    KEPT,
    LABELS,
    NOT_APPLICABLE,
    NOT_SCORED,
    ORIGINS,
    UNCERTAIN,
    USAGE,
    Coded,
    Column,
    Entries,
    Trials,
)
from ragassay.store.keys import Keys, encoded, short
from ragassay.store.lines import decode
from ragassay.store.records import make, names_of, score_from, trial_from
from ragassay.store.segments import LineReader, Part, Place, lines, opened
from ragassay.types import (
    ContextEntry,
    ScoreRecord,
    ToolUsage,
    TrialRecord,
    TrialSpec,
)

BATCH = 1 << 16
_CODED = ("query", "setting", "attack", "defense", "control", "error", "thresholds")
_PLACE = np.dtype([("file", "<u2"), ("offset", "<u8"), ("inside", "<i4"), ("length", "<u4")])
_NOWHERE = np.uint32(0)  # a length: no record is that short
_TRIAL, _SPEC, _ENTRY, _USAGE, _SCORE = map(
    names_of, (TrialRecord, TrialSpec, ContextEntry, ToolUsage, ScoreRecord)
)
_ORIGIN = {name: i for i, name in enumerate(ORIGINS)}
_COPY = {name: i << COPY_SHIFT for i, name in enumerate(COPIES)}


class Source(Protocol):
    """Where whole records are read again."""

    def trials(self, rows: Sequence[int]) -> list[TrialRecord]:
        """The records of some rows."""

    def scores(self, scorer: str, rows: Sequence[int]) -> list[ScoreRecord | None]:
        """The labels of some rows by a scorer."""


def read_trials(folder: Path) -> Trials:
    """Read the trials and the scores of a run folder.

    Raises
    ------
    StoreError
        A record is damaged.
    """
    growing = _Growing()
    with opened(folder, "trials") as files:
        for key, body, place in _bodies(files, "trials"):
            growing.add(key, body, place, folder / "trials.jsonl")
    trials = growing.frozen(_Nothing())
    columns = _Labels(trials)
    with opened(folder, "scores") as files:
        for _, body, place in _bodies(files, "scores"):
            columns.add(body, place, folder / "scores.jsonl")
    source = _Files(folder, growing.placed)
    found = growing.frozen(source, columns.frozen())
    source.columns = found
    return found


def trials_of(
    records: Iterable[TrialRecord], scores: Mapping[tuple[str, str], ScoreRecord]
) -> Trials:
    """Put records that are in memory into columns."""
    kept = list(records)
    growing = _Growing()
    for record in kept:
        growing.add(record.key, canon.to_plain(record), _NO_PLACE, Path())
    trials = growing.frozen(_Nothing())
    columns = _Labels(trials)
    for score in scores.values():
        columns.add(canon.to_plain(score), _NO_PLACE, Path())
    return growing.frozen(_Memory(kept, growing.chosen, scores), columns.frozen())


_NO_PLACE = Place(0, 0, -1, 1)


def _bodies(files: list[tuple[Part, BinaryIO]], stream: str) -> Iterable[tuple[str, Any, Place]]:
    before, number = -1, 0
    for line, place in lines(files):
        number = number + 1 if place.file == before else 1
        before = place.file
        yield *decode(line, stream, files[place.file][0].path, number), place


# ---------------------------------------------------------------------------------- trials


@dataclass(slots=True)
class _Growing:
    """Columns to which rows are added; equal values are kept once."""

    names: bytearray = field(default_factory=bytearray)
    lengths: array[int] = field(default_factory=lambda: array("I"))
    short: bytearray = field(default_factory=bytearray)
    codes: dict[str, array[int]] = field(
        default_factory=lambda: {name: array("i") for name in _CODED}
    )
    numbers: dict[str, dict[Any, int]] = field(
        default_factory=lambda: {name: {} for name in (*_CODED, "passages")}
    )
    budget: array[int] = field(default_factory=lambda: array("i"))
    done: bytearray = field(default_factory=bytearray)
    declined: bytearray = field(default_factory=bytearray)
    answers: bytearray = field(default_factory=bytearray)
    usage: array[int] = field(default_factory=lambda: array("q"))
    detected: array[float] = field(default_factory=lambda: array("d"))
    count: array[int] = field(default_factory=lambda: array("i"))
    ids: array[int] = field(default_factory=lambda: array("i"))
    similar: array[float] = field(default_factory=lambda: array("d"))
    flags: bytearray = field(default_factory=bytearray)
    places: array[int] = field(default_factory=lambda: array("q"))
    chosen: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    placed: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, dtype=_PLACE))
    made: dict[str, Any] = field(default_factory=dict)

    def add(self, key: str, body: Any, place: Place, path: Path) -> None:
        try:
            self._add(key, body, place)
        except (StoreError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"{path}: record {key[:12]}: {error}") from error

    def _add(self, key: str, body: Any, place: Place) -> None:
        if not (
            body.keys() == _TRIAL
            and body["spec"].keys() == _SPEC
            and body["usage"].keys() == _USAGE
            and all(entry.keys() == _ENTRY for entry in body["context"])
        ):  # an earlier version left out what has a default
            body = canon.to_plain(trial_from(body))
        spec, trace, answer = body["spec"], body["trace"], body["answer"]
        name = encoded(key)
        self.names += name
        self.lengths.append(len(name))
        self.short += short(name)
        thresholds = trace.get("thresholds")
        self._code("query", spec["query_id"])
        self._code("setting", spec["setting"])
        self._code("attack", spec["attack"])
        self._code("defense", spec["defense_label"])
        self._code("control", spec["control"])
        self._code("error", body["error"])
        if isinstance(thresholds, Mapping):
            self._code("thresholds", tuple(sorted(thresholds.items())))
        else:
            self.codes["thresholds"].append(-1)
        self.budget.append(spec["budget"])
        self.done.append(body["status"] == "done")
        self.declined.append(bool(body["declined"]))
        self.answers += bytes(16) if answer is None else _digest(answer)
        usage = body["usage"]
        self.usage.extend([usage[what] for what in USAGE])
        detected = body["suspicion"].get("context")
        self.detected.append(float("nan") if detected is None else detected)
        passages = self.numbers["passages"]
        self.count.append(len(body["context"]))
        for entry in body["context"]:
            self.ids.append(passages.setdefault(entry["id"], len(passages)))
            self.similar.append(entry["score"])
            self.flags.append(
                _ORIGIN[entry["origin"]] + (GOLD if entry["gold"] else 0)
                + (KEPT if entry["kept"] else 0) + _COPY[entry["copy"]]
            )  # fmt: skip
        self.places.extend(place)

    def _code(self, name: str, value: Any) -> None:
        numbers = self.numbers[name]
        self.codes[name].append(numbers.setdefault(value, len(numbers)))

    def frozen(self, source: Source, scores: Mapping[str, Column] | None = None) -> Trials:
        """The columns; of each key the newest row, where its first one stood."""
        if not self.made:
            self.made = self._make()
        return Trials(**self.made, source=source, scores=scores or {})

    def _make(self) -> dict[str, Any]:
        keys = Keys(self.short)
        self.chosen = chosen = keys.newest_rows()
        count = np.frombuffer(self.count, dtype=np.int32)
        start = np.cumsum(count, dtype=np.int64) - count
        self.placed = _places(self.places)[chosen]
        return {
            "keys": keys if len(chosen) == len(keys) else Keys(_chosen(self.short, chosen)),
            "names": _names(self.names, self.lengths)[chosen],
            **{
                name: Coded.of(np.frombuffer(codes, dtype=np.int32)[chosen], self.numbers[name])
                for name, codes in self.codes.items()
            },
            "budget": np.frombuffer(self.budget, dtype=np.int32)[chosen],
            "done": np.frombuffer(self.done, dtype=bool)[chosen],
            "declined": np.frombuffer(self.declined, dtype=bool)[chosen],
            "answers": np.frombuffer(self.answers, dtype=np.uint64).reshape(-1, 2)[chosen],
            "usage": np.frombuffer(self.usage, dtype=np.int64).reshape(-1, len(USAGE))[chosen],
            "detected": np.frombuffer(self.detected, dtype=np.float64)[chosen],
            "entries": Entries(
                start=start[chosen],
                count=count[chosen],
                ids=np.frombuffer(self.ids, dtype=np.int32),
                scores=np.frombuffer(self.similar, dtype=np.float64),
                flags=np.frombuffer(self.flags, dtype=np.uint8),
                names=list(self.numbers["passages"]),
            ),
        }


def _digest(answer: str) -> bytes:
    return hashlib.blake2b(encoded(answer), digest_size=16).digest()


def _chosen(raw: bytearray, rows: NDArray[np.int64]) -> bytes:
    return np.frombuffer(raw, dtype="V16")[rows].tobytes()


def _names(names: bytearray, lengths: array[int]) -> NDArray[Any]:
    """The keys as UTF-8, shape (rows,): of one width where they have one, as digests do."""
    width = max(lengths, default=1)
    if min(lengths, default=1) == width and width:
        return np.frombuffer(names, dtype=f"S{width}")
    ends = np.cumsum(np.frombuffer(lengths, dtype=np.uint32), dtype=np.int64)
    found = np.empty(len(lengths), dtype=object)
    for i, (stop, length) in enumerate(zip(ends.tolist(), lengths, strict=True)):
        found[i] = bytes(names[stop - length : stop])
    return found


def _places(flat: array[int]) -> NDArray[np.void]:
    table = np.frombuffer(flat, dtype=np.int64).reshape(-1, len(Place._fields))
    found = np.zeros(len(table), dtype=_PLACE)
    for i, name in enumerate(Place._fields):
        found[name] = table[:, i]
    return found


# ---------------------------------------------------------------------------------- scores


class _Labels:
    """Labels as codes, joined to the rows of their trials in batches."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._columns: dict[str, Column] = {}
        self._batch: list[tuple[str, bytes, tuple[int, ...], Place]] = []

    def add(self, body: Any, place: Place, path: Path) -> None:
        """Add a record; the later one of a trial and scorer counts."""
        try:
            if body.keys() != _SCORE:
                make(ScoreRecord, body)
            uncertain = body.get("uncertain", ())
            codes = tuple([_code(body[name], name, uncertain) for name in LABELS])
            self._batch.append((body["scorer"], encoded(body["trial_key"]), codes, place))
        except (StoreError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{path}: a record of {body.get('trial_key')!r:.20}: {error}"
                             ) from error  # fmt: skip
        if len(self._batch) >= BATCH:
            self._join()

    def frozen(self) -> dict[str, Column]:
        """The columns by scorer."""
        self._join()
        return self._columns

    def _join(self) -> None:
        rows = self._trials.keys.newest([key for _, key, _, _ in self._batch])
        places = np.array([tuple(place) for *_, place in self._batch], dtype=_PLACE)
        codes = np.array([codes for _, _, codes, _ in self._batch], dtype=np.int8)
        scorers = [scorer for scorer, *_ in self._batch]
        for scorer in dict.fromkeys(scorers):
            column = self._columns.get(scorer)
            if column is None:
                column = self._columns[scorer] = self._empty()
            mine = np.array([each == scorer for each in scorers]) & (rows >= 0)
            column.places[rows[mine]] = places[mine]
            for i, name in enumerate(LABELS):
                column.codes[name][rows[mine]] = codes[mine, i]
        self._batch = []

    def _empty(self) -> Column:
        size = len(self._trials)
        return Column(
            codes={name: np.full(size, NOT_SCORED, dtype=np.int8) for name in LABELS},
            places=np.zeros(size, dtype=_PLACE),
        )


def _code(value: Any, label: str, uncertain: Sequence[str]) -> int:
    if value is None:
        return UNCERTAIN if label in uncertain else NOT_APPLICABLE
    return 1 if value else 0


# ---------------------------------------------------------------------------------- sources


class _Nothing:
    """No records behind the columns, while they are made."""

    def trials(self, rows: Sequence[int]) -> list[TrialRecord]:
        raise StoreError("these columns have no records")

    def scores(self, scorer: str, rows: Sequence[int]) -> list[ScoreRecord | None]:
        raise StoreError("these columns have no records")


@dataclass(slots=True)
class _Memory:
    """Records that are in memory."""

    records: list[TrialRecord]
    chosen: NDArray[np.int64]
    given: Mapping[tuple[str, str], ScoreRecord]

    def trials(self, rows: Sequence[int]) -> list[TrialRecord]:
        return [self.records[self.chosen[row]] for row in rows]

    def scores(self, scorer: str, rows: Sequence[int]) -> list[ScoreRecord | None]:
        return [self.given.get((each.key, scorer)) for each in self.trials(rows)]


@dataclass(slots=True)
class _Files:
    """Records in the files of a run folder."""

    folder: Path
    places: NDArray[np.void]
    columns: Trials | None = None

    def trials(self, rows: Sequence[int]) -> list[TrialRecord]:
        found: dict[int, TrialRecord] = {}
        with self._opened("trials") as files:
            for row, (key, body) in self._bodies(files, "trials", rows, self.places):
                self._same(row, key)
                found[row] = trial_from(body)
        return [found[row] for row in rows]

    def scores(self, scorer: str, rows: Sequence[int]) -> list[ScoreRecord | None]:
        assert self.columns is not None
        places = self.columns.scores[scorer].places
        there = [row for row in rows if places["length"][row] != _NOWHERE]
        found: dict[int, ScoreRecord] = {}
        with self._opened("scores") as files:
            for row, (_, body) in self._bodies(files, "scores", there, places):
                self._same(row, str(body.get("trial_key")))
                found[row] = score_from(body)
        return [found.get(row) for row in rows]

    def _opened(self, stream: str) -> AbstractContextManager[list[tuple[Part, BinaryIO]]]:
        return opened(self.folder, stream)

    def _bodies(
        self,
        files: list[tuple[Part, BinaryIO]],
        stream: str,
        rows: Sequence[int],
        places: NDArray[np.void],
    ) -> Iterable[tuple[int, tuple[str, Any]]]:
        read = LineReader(files)
        order = sorted(set(rows), key=lambda row: places[row][["file", "offset", "inside"]].item())
        for row in order:
            place = Place(*places[row].item())
            if place.file >= len(files):
                raise StoreError(
                    f"{self.folder}: the files of {stream} changed while they were read"
                )
            yield row, decode(read(place), stream, files[place.file][0].path)

    def _same(self, row: int, key: str) -> None:
        assert self.columns is not None
        if self.columns.key(row) != key:
            raise StoreError(f"{self.folder}: its records changed while they were read; try again")
