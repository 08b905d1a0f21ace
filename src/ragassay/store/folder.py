"""The run folder: append, read, find. One writer, one line a record, nothing lost.

::

    experiment.toml   the experiment file, byte for byte as given
    resolved.json     every setting with its default, and the identities of all parts
    environment.json  versions, platform, model digests (not part of any result)
    queries.jsonl     questions, references, targets
    targets.jsonl     where answers are labeled for several targets: these, by name
    poison.jsonl      the poison sets, with provenance and cost: the ledger of origin
    passages.jsonl    corpus passages that stood in some context
    rounds.jsonl      (arena) who competed with which answers, and what was retrieved
    trials.jsonl      one record per trial, raw
    edits.jsonl       dose protocol: the arm of each trial, and the edits of its passages
    scores.jsonl      one record per trial and scorer
    rungs.jsonl       edited poison of a control ladder, with what was edited
    learned.jsonl     what learned scorers say of the candidates of a control ladder
    summary.json      the analysis: equal inputs give equal bytes
    report.html/.md   what people read

A stream may also stand in finished segments, see :mod:`ragassay.store.segments`.

Every line of a stream is ``{"v": 1, "kind": ..., "key": ..., "at": ..., "body": {...}}``.
A last line without a line end is what a killed process leaves: it is cut off on opening and
logged. A record of a newer version, or of an unknown kind, is an error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from ragassay import canon
from ragassay.errors import StoreError
from ragassay.store import segments
from ragassay.store.codecs import NONE, codec
from ragassay.store.columns import Trials
from ragassay.store.index import StreamIndex
from ragassay.store.leftovers import sweep
from ragassay.store.lines import VERSION, append, cut_torn_line, decode
from ragassay.store.reading import read_trials
from ragassay.store.records import edits_from, make, poison_from, score_from, trial_from
from ragassay.types import (
    EditsRecord,
    Passage,
    PoisonSet,
    Query,
    ScoreRecord,
    Target,
    TrialRecord,
)

STREAMS = (
    "queries", "targets", "poison", "rungs", "passages", "rounds", "trials", "edits", "scores",
    "learned",
)  # fmt: skip
_T = TypeVar("_T")


class RunFolder:
    """A folder of one run. Open it for writing with :meth:`writer`; reading needs no lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._compression: str | None = None
        self._segment_bytes = segments.SEGMENT_BYTES

    @contextmanager
    def writer(
        self, *, compression: str | None = None, segment_bytes: int = segments.SEGMENT_BYTES
    ) -> Iterator[RunFolder]:
        """Hold the folder for writing; it is created where absent.

        Parameters
        ----------
        compression : {"none", "gzip", "zstd"}, optional
            How a stream's file is packed when it has reached its size; with ``"none"`` it grows
            on. Default: as the stream's newest segment.
        segment_bytes : int
            The size from which a file is packed.

        Raises
        ------
        StoreError
            Another process holds it, or it cannot be written.
        ConfigError
            zstd is asked for and not installed.
        """
        if compression not in (None, NONE):
            codec(str(compression))
        self._compression, self._segment_bytes = compression, segment_bytes
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / ".lock", timeout=0)
            lock.acquire()
        except Timeout as error:
            raise StoreError(
                f"{self.path} is in use by another ragassay process; wait for it to end, "
                "or give this run a folder of its own (--out)"
            ) from error
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror or error}") from error
        try:
            sweep(self.path)
            for stream in STREAMS:
                cut_torn_line(self._file(stream))
                self._mend(stream)
            yield self
        finally:
            lock.release()

    def append(self, stream: str, key: str, value: Any) -> None:
        """Write one record at the end of a stream, whole or not at all.

        Raises
        ------
        StoreError
            The line could not be written (full disk, read-only); what was there before stays.
        """
        self.append_many(stream, [(key, value)])

    def append_many(self, stream: str, items: list[tuple[str, Any]]) -> None:
        """Write several records with one write; see :meth:`append`."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        lines = "".join(
            canon.dumps({"v": VERSION, "kind": stream, "key": key, "at": at, "body": value}) + "\n"
            for key, value in items
        )
        size = append(self._file(stream), lines.encode("utf-8", "surrogatepass"))
        if size >= self._segment_bytes and (name := self._packing(stream)) != NONE:
            segments.rotate(self.path, stream, name)

    def pack(self, *, least: int = 1 << 16) -> None:
        """Pack the files that still grow, as at the end of a run; small ones stay as they are."""
        for stream in STREAMS:
            file, name = self._file(stream), self._packing(stream)
            if name != NONE and file.exists() and file.stat().st_size >= least:
                segments.rotate(self.path, stream, name)

    def _packing(self, stream: str) -> str:
        if self._compression is None:
            return segments.compression_of(self.path, stream)
        return self._compression

    def _mend(self, stream: str) -> None:
        """Finish what an interrupted rotation left, and save what is whole of a torn segment."""
        segments.mend(self.path, stream)
        name = self._packing(stream)
        for part in segments.parts_of(self.path, stream):
            if part.number and part.codec == NONE and name != NONE:
                segments.pack(part, name)

    def read(self, stream: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield ``(key, body)`` of each record, oldest first.

        Raises
        ------
        StoreError
            A line is damaged, of a newer version, or of another kind.
        """
        with segments.opened(self.path, stream) as files:
            before, number = -1, 0
            for line, place in segments.lines(files):
                number = number + 1 if place.file == before else 1
                before = place.file
                yield decode(line, stream, files[place.file][0].path, number)

    def index(self, stream: str) -> StreamIndex:
        """Where the records of a stream are, by key, without reading what is indexed already.

        Raises
        ------
        StoreError
            A record is damaged.
        """
        return StreamIndex(self.path, stream)

    def refresh_indexes(self) -> None:
        """Bring the indexes of the large streams up to date, for those who look for records."""
        for stream in ("trials", "scores", "passages"):
            self.index(stream)

    def keys(self, stream: str) -> set[str]:
        """All keys of a stream."""
        return {key for key, _ in self.read(stream)}

    def trials(self) -> dict[str, TrialRecord]:
        """The newest record of every trial, by key (a retried failure is superseded)."""
        return dict(self._records("trials", trial_from))

    def columns(self) -> Trials:
        """The newest record of every trial with its labels, in columns and bounded memory."""
        return read_trials(self.path)

    def scores(self) -> dict[tuple[str, str], ScoreRecord]:
        """The newest score of every trial and scorer, by (trial key, scorer)."""
        return {
            (record.trial_key, record.scorer): record
            for _, record in self._records("scores", score_from)
        }

    def poison(self) -> dict[str, PoisonSet]:
        """The poison sets by key."""
        return dict(self._records("poison", poison_from))

    def each_poison(self) -> Iterator[PoisonSet]:
        """The poison sets one by one, the newest of each key, without keeping them."""
        newest = {key: number for number, (key, _) in enumerate(self.read("poison"))}
        chosen = set(newest.values())
        for number, (_, one) in enumerate(self._records("poison", poison_from)):
            if number in chosen:
                yield one

    def passages(self) -> dict[str, Passage]:
        """Corpus passages that stood in some context, by id."""
        return dict(self._records("passages", lambda body: make(Passage, body)))

    def edits(self) -> dict[str, EditsRecord]:
        """Arms and edits by trial key; empty where the protocol has none."""
        return dict(self._records("edits", edits_from))

    def queries(self) -> dict[str, tuple[Query, Target]]:
        """Questions and targets by query id, in the order of the run."""
        return dict(
            self._records(
                "queries",
                lambda body: (make(Query, body["query"]), make(Target, body["target"])),
            )
        )

    def targets(self) -> dict[str, dict[str, Target]]:
        """Targets by name, for each question whose answers are labeled for several of them."""
        return dict(
            self._records(
                "targets",
                lambda body: {name: make(Target, each) for name, each in body.items()},
            )
        )

    def write_text(self, name: str, text: str) -> None:
        """Replace a whole file atomically."""
        self.write_bytes(name, text.encode("utf-8", "surrogatepass"))

    def write_bytes(self, name: str, data: bytes) -> None:
        """Replace a whole file atomically: readers see the old one or the new one."""
        path = self.path / name
        temporary = path.with_name(f".{name}.{os.getpid()}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error

    def read_json(self, name: str) -> dict[str, Any]:
        """Read one of the folder's JSON files.

        Raises
        ------
        StoreError
            It is not there or not a JSON object.
        """
        path = self.path / name
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise StoreError(
                f"{self.path} has no {name}: is it a run folder, and has the run ended?"
            ) from error
        except (OSError, ValueError) as error:
            raise StoreError(f"{path} cannot be read: {error}") from error
        if not isinstance(value, dict):
            raise StoreError(f"{path} must hold a JSON object")
        return value

    def _records(
        self, stream: str, build: Callable[[Mapping[str, Any]], _T]
    ) -> Iterator[tuple[str, _T]]:
        for key, body in self.read(stream):
            try:
                record = build(body)
            except (StoreError, KeyError, TypeError, ValueError) as error:
                raise StoreError(f"{self._file(stream)}: record {key[:12]}: {error}") from error
            yield key, record

    def _file(self, stream: str) -> Path:
        return self.path / f"{stream}.jsonl"
