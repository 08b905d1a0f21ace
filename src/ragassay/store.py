"""The run folder: append, read, verify. One writer, one line a record, nothing lost.

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

Every line of a stream is ``{"v": 1, "kind": ..., "key": ..., "at": ..., "body": {...}}``.
A last line without a line end is what a killed process leaves: it is cut off on opening and
logged. A record of a newer version, or of an unknown kind, is an error.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from ragassay import canon
from ragassay.errors import StoreError
from ragassay.types import (
    ContextEntry,
    Cost,
    EditsRecord,
    Evidence,
    Knowledge,
    Passage,
    PassageEdits,
    PoisonSet,
    Query,
    Sampling,
    ScoreRecord,
    Target,
    TextEdit,
    ToolUsage,
    TrialRecord,
    TrialSpec,
)

VERSION = 1
STREAMS = (
    "queries", "targets", "poison", "rungs", "passages", "rounds", "trials", "edits", "scores",
    "learned",
)  # fmt: skip
_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")


class RunFolder:
    """A folder of one run. Open it for writing with :meth:`writer`; reading needs no lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def writer(self) -> Iterator[RunFolder]:
        """Hold the folder for writing; it is created where absent.

        Raises
        ------
        StoreError
            Another process holds it, or it cannot be written.
        """
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
            for stream in STREAMS:
                _cut_torn_line(self._file(stream))
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
        _append(self._file(stream), lines.encode("utf-8", "surrogatepass"))

    def read(self, stream: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield ``(key, body)`` of each record, oldest first.

        Raises
        ------
        StoreError
            A line is damaged, of a newer version, or of another kind.
        """
        path = self._file(stream)
        if not path.exists():
            return
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if not raw.endswith(b"\n"):
                    _LOG.warning("%s:%d: the last line is torn and is left out", path, number)
                    return
                yield _decode(raw, stream, path, number)

    def keys(self, stream: str) -> set[str]:
        """All keys of a stream."""
        return {key for key, _ in self.read(stream)}

    def trials(self) -> dict[str, TrialRecord]:
        """The newest record of every trial, by key (a retried failure is superseded)."""
        return dict(self._records("trials", trial_from))

    def scores(self) -> dict[tuple[str, str], ScoreRecord]:
        """The newest score of every trial and scorer, by (trial key, scorer)."""
        return {
            (record.trial_key, record.scorer): record
            for _, record in self._records("scores", score_from)
        }

    def poison(self) -> dict[str, PoisonSet]:
        """The poison sets by key."""
        return dict(self._records("poison", poison_from))

    def passages(self) -> dict[str, Passage]:
        """Corpus passages that stood in some context, by id."""
        return dict(self._records("passages", lambda body: _make(Passage, body)))

    def edits(self) -> dict[str, EditsRecord]:
        """Arms and edits by trial key; empty where the protocol has none."""
        return dict(self._records("edits", edits_from))

    def queries(self) -> dict[str, tuple[Query, Target]]:
        """Questions and targets by query id, in the order of the run."""
        return dict(
            self._records(
                "queries",
                lambda body: (_make(Query, body["query"]), _make(Target, body["target"])),
            )
        )

    def targets(self) -> dict[str, dict[str, Target]]:
        """Targets by name, for each question whose answers are labeled for several of them."""
        return dict(
            self._records(
                "targets",
                lambda body: {name: _make(Target, each) for name, each in body.items()},
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


# ------------------------------------------------------------------------------- the records


def trial_from(body: Mapping[str, Any]) -> TrialRecord:
    """Rebuild a trial record from its JSON body."""
    record = _make(TrialRecord, body)
    spec = _make(TrialSpec, body["spec"])
    return replace(
        record,
        spec=replace(spec, sampling=_make(Sampling, body["spec"]["sampling"])),
        context=tuple(_make(ContextEntry, entry) for entry in body["context"]),
        usage=_make(ToolUsage, body["usage"]),
    )


def score_from(body: Mapping[str, Any]) -> ScoreRecord:
    """Rebuild a score record from its JSON body."""
    record = _make(ScoreRecord, body)
    return replace(record, evidence=tuple(_make(Evidence, item) for item in body["evidence"]))


def poison_from(body: Mapping[str, Any]) -> PoisonSet:
    """Rebuild a poison set from its JSON body."""
    return replace(
        _make(PoisonSet, body),
        passages=tuple(_make(Passage, item) for item in body["passages"]),
        knowledge=_make(Knowledge, body["knowledge"]),
        cost=_make(Cost, body["cost"]),
    )


def edits_from(body: Mapping[str, Any]) -> EditsRecord:
    """Rebuild a record of edits from its JSON body."""
    passages = [_make(PassageEdits, item) for item in body["passages"]]
    return replace(
        _make(EditsRecord, body),
        passages=tuple(
            replace(each, edits=tuple(_make(TextEdit, edit) for edit in each.edits))  # type: ignore[arg-type]
            for each in passages
        ),
    )


def _make(cls: type[_T], body: Mapping[str, Any]) -> _T:
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    unknown = body.keys() - known
    if unknown:
        raise StoreError(
            f"a {cls.__name__} record holds the unknown key {sorted(unknown)[0]!r}; "
            "it was written by another version of ragassay"
        )
    try:
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in body.items()})
    except TypeError as error:
        raise StoreError(f"a {cls.__name__} record is incomplete: {error}") from error


def _decode(raw: bytes, stream: str, path: Path, number: int) -> tuple[str, dict[str, Any]]:
    try:
        line = json.loads(raw.decode("utf-8", "surrogatepass"))
        version, kind, key, body = line["v"], line["kind"], line["key"], line["body"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{path}:{number}: damaged record ({error}); restore the file, or delete this line "
            "and run again: only that record is repeated"
        ) from error
    if version != VERSION:
        raise StoreError(
            f"{path}:{number}: record version {version}, this ragassay reads {VERSION}; update it"
        )
    if kind != stream:
        raise StoreError(f"{path}:{number}: a record of kind {kind!r} in the stream {stream!r}")
    return key, body


# --------------------------------------------------------------------------------- the bytes


def _append(path: Path, data: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
    try:
        before = os.fstat(descriptor).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError as error:
            os.ftruncate(descriptor, before)
            raise StoreError(
                f"{path} cannot be written: {error.strerror or error}; everything written "
                "before is kept, run the same command again once there is room"
            ) from error
    finally:
        os.close(descriptor)


def _cut_torn_line(path: Path) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return
    if size == 0:
        return
    with path.open("rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) == b"\n":
            return
        keep, step = 0, 1 << 16
        position = size
        while position > 0:
            start = max(0, position - step)
            file.seek(start)
            found = file.read(position - start).rfind(b"\n")
            if found >= 0:
                keep = start + found + 1
                break
            position = start
        file.truncate(keep)
    _LOG.warning("%s: cut off a torn last line of %d bytes", path, size - keep)
