"""An index of a stream by key: where each record is, without reading the stream again.

It is only a cache in ``.index/``. The records are the truth: an index that is stale, torn or
gone is made anew, and one that cannot be written is done without. What was appended since is
read alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ragassay.errors import StoreError
from ragassay.store import lines as records
from ragassay.store.codecs import NONE
from ragassay.store.keys import Keys, encoded, short
from ragassay.store.segments import LineReader, Part, Place, lines, lines_from, opened

FOLDER = ".index"
WRITTEN_FROM = 1 << 20  # bytes of a stream: a smaller one is read as fast as its index
_MAGIC = b"ragassay index 1\n"
_SAMPLE = 512
_ROW = np.dtype(
    [("key", "V16"), ("file", "<u2"), ("offset", "<u8"), ("inside", "<i4"), ("length", "<u4"),
     ("done", "?")]
)  # fmt: skip
_LOG = logging.getLogger(__name__)
Rows = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class _Mark:
    """What an index covers of a file, by which a change of it shows."""

    name: str
    covered: int
    changed: int
    sample: str


class StreamIndex:
    """The records of a stream by key, as of the moment at which it was opened."""

    def __init__(self, folder: Path, stream: str) -> None:
        self.folder, self.stream = folder, stream
        self._open(anew=False)

    def _open(self, *, anew: bool) -> None:
        self._rows, self.scanned = _up_to_date(self.folder, self.stream, anew=anew)
        self._keys = Keys(self._rows["key"].tobytes())

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and bool(self._keys.newest([encoded(key)])[0] >= 0)

    def done(self, keys: Iterable[str]) -> set[str]:
        """Those of some trials whose newest record says that they are done."""
        asked = list(keys)
        rows = self._keys.newest([encoded(key) for key in asked])
        says = self._rows["done"][np.maximum(rows, 0)] if len(self) else np.zeros(len(rows), bool)
        return {
            key for key, row, is_done in zip(asked, rows, says, strict=True) if row >= 0 and is_done
        }

    def newest_done(self) -> int:
        """How many keys there are whose newest record says that they are done."""
        return int(self._rows["done"][self._keys.newest_rows()].sum())

    def find(self, key: str) -> list[dict[str, Any]]:
        """The bodies of all records of a key, oldest first; only these are read.

        Raises
        ------
        StoreError
            A record is damaged.
        """
        return [
            body
            for found, body in self._read(lambda: self._keys.rows(encoded(key)))
            if found == key
        ]

    def starting(self, digits: str) -> list[str]:
        """The keys that start with these hexadecimal digits, oldest first, each once."""
        found = self._read(lambda: self._keys.starting(digits))
        return list(dict.fromkeys(key for key, _ in found if key.startswith(digits)))

    def _read(self, rows: Callable[[], list[int]]) -> list[tuple[str, dict[str, Any]]]:
        try:
            return list(self._records(rows()))
        except _Stale:  # edited, or rotated by another process since the index was opened
            self._open(anew=True)
            return list(self._records(rows()))

    def _records(self, rows: Iterable[int]) -> Iterator[tuple[str, dict[str, Any]]]:
        with opened(self.folder, self.stream) as files:
            read = LineReader(files)
            for row in rows:
                said = self._rows[row]
                place = Place(*(int(said[name]) for name in Place._fields))
                if place.file >= len(files):
                    raise _Stale(f"{self.folder}: the index names a file that is gone")
                path = files[place.file][0].path
                line = read(place)
                end = records.ending(self.stream)
                if not line.endswith(b"\n") or line.count(b"\n") > 1:
                    raise _Stale(f"{path}: no record starts at byte {place.offset}")
                if short(records.key_of(line, self.stream, end, path)) != said["key"].tobytes():
                    raise _Stale(f"{path}: another record starts at byte {place.offset}")
                yield records.decode(line, self.stream, path)


class _Stale(StoreError):
    """The index says that a record is where it is not."""


def _up_to_date(folder: Path, stream: str, *, anew: bool) -> tuple[Rows, int]:
    """The rows of the index, and how many bytes of the stream had to be read for it."""
    path = folder / FOLDER / f"{stream}.idx"
    marks, rows = ([], np.zeros(0, dtype=_ROW)) if anew else _load(path)
    with opened(folder, stream) as files:
        kept: list[int] = []  # only a prefix counts: what is behind a changed file is read again
        for number, (part, file) in enumerate(files):
            covered = _valid(marks, number, part, file)
            if covered is None:
                break
            kept.append(covered)
        valid = len(kept)
        rows = rows[rows["file"] < valid]
        found, scanned = [rows], 0
        for number in range(max(valid - 1, 0), len(files)):
            part, file = files[number]
            start = kept[number] if number < valid else 0
            size = os.fstat(file.fileno()).st_size
            if number < valid and (part.codec != NONE or start == size):
                continue
            found.append(_scan(files, number, start, stream))
            scanned += size - start
        rows = np.concatenate(found)
        if scanned or valid < len(marks):
            total = sum(os.fstat(file.fileno()).st_size for _, file in files)
            _save(path, [_mark(number, each, rows) for number, each in enumerate(files)], rows,
                  total)  # fmt: skip
    return rows, scanned


def _valid(marks: list[_Mark], number: int, part: Part, file: BinaryIO) -> int | None:
    """How many bytes of a file an index covers; None where the file is another now."""
    if number >= len(marks) or marks[number].name != part.path.name:
        return None
    mark, now = marks[number], os.fstat(file.fileno())
    if part.codec != NONE:
        return mark.covered if (now.st_size, _sample(file, now.st_size)) == (
            mark.covered, mark.sample) else None  # fmt: skip
    edited = now.st_size == mark.covered and now.st_mtime_ns != mark.changed
    if edited or now.st_size < mark.covered or _sample(file, mark.covered) != mark.sample:
        return None
    return mark.covered


def _scan(files: list[tuple[Part, BinaryIO]], number: int, start: int, stream: str) -> Rows:
    part, file = files[number]
    end = records.ending(stream)
    found = (
        lines_from(part, file, number, start)
        if part.codec == NONE
        else ((line, place) for line, place in lines(files[number : number + 1]))
    )
    rows, trials = [], stream == "trials"
    for line, place in found:
        key = short(records.key_of(line, stream, end, part.path))
        done = trials and (
            records.is_done(line)
            if line.endswith(end)
            else records.decode(line, stream, part.path)[1].get("status") == "done"
        )
        rows.append((key, number, place.offset, place.inside, place.length, done))
    return np.array(rows, dtype=_ROW)


def _mark(number: int, opened_file: tuple[Part, BinaryIO], rows: Rows) -> _Mark:
    part, file = opened_file
    now = os.fstat(file.fileno())
    covered = now.st_size
    if part.codec == NONE:  # a torn last line is not covered
        mine = rows[rows["file"] == number]
        covered = int(mine["offset"][-1] + mine["length"][-1]) if len(mine) else 0
    return _Mark(part.path.name, covered, now.st_mtime_ns, _sample(file, covered))


def _sample(file: BinaryIO, size: int) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for start in (0, max(0, size - _SAMPLE)):
        file.seek(start)
        digest.update(file.read(min(_SAMPLE, size - start)))
    return digest.hexdigest()


# --------------------------------------------------------------------------------- the file


def _load(path: Path) -> tuple[list[_Mark], Rows]:
    """Marks and rows of an index file; none where it is absent, torn or of another version."""
    nothing: tuple[list[_Mark], Rows] = [], np.zeros(0, dtype=_ROW)
    try:
        with path.open("rb") as file:
            if file.readline(64) != _MAGIC:
                return nothing
            said = json.loads(file.readline(1 << 24))
            data = file.read()
        if zlib.crc32(data) != said["crc"] or len(data) % _ROW.itemsize:
            return nothing
        return [_Mark(**mark) for mark in said["files"]], np.frombuffer(data, dtype=_ROW)
    except (OSError, ValueError, KeyError, TypeError):
        return nothing


def _save(path: Path, marks: list[_Mark], rows: Rows, size: int) -> None:
    """Write an index file whole, or do without it."""
    if size < WRITTEN_FROM:
        return
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    data = rows.tobytes()
    head = {"files": [asdict(mark) for mark in marks], "crc": zlib.crc32(data)}
    try:
        path.parent.mkdir(exist_ok=True)
        with temporary.open("wb") as file:
            file.write(_MAGIC + json.dumps(head).encode() + b"\n")
            file.write(data)
        temporary.replace(path)
    except OSError as error:
        _LOG.debug("%s is not written: %s", path, error)
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
