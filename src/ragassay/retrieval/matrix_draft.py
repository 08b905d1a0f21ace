"""The file of a corpus matrix while it is being made, and the log of what is in it."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ragassay.canon import dumps
from ragassay.errors import BackendError
from ragassay.retrieval.rows import Vectors

_READ_BYTES = 2**23
_LOG = logging.getLogger(__name__)


class Draft:
    """A matrix file in the making, and the log of what is in it.

    Every line of the log names some rows and states the digest of their bytes, so that it does
    not matter in which order the two files reach the disk.
    """

    def __init__(self, path: Path, file: BinaryIO, rows: int, kind: np.dtype[Any]) -> None:
        self.path = path
        self.log = path.with_suffix(".parts")
        self._file = file
        self._rows = rows
        self._kind = kind
        self._dimension = 0
        self._known: dict[str, str] = {}
        self._header = b""
        self._whole = hashlib.sha256()
        self._read_log()

    @property
    def shape(self) -> list[int]:
        """Rows and numbers a row."""
        return [self._rows, self._dimension]

    @property
    def sha256(self) -> str:
        """Digest of the file, once all windows are counted in."""
        return self._whole.hexdigest()

    def has(self, name: str, rows: Sequence[int]) -> bool:
        """Whether the rows are in the file, byte for byte."""
        known = self._known.get(name)
        if known is None:
            return False
        if known == self._digest(rows):
            return True
        _LOG.warning("%s is damaged (%s); this is encoded again", self.path, name)
        return False

    def write(self, name: str, rows: Sequence[int], vectors: Vectors) -> None:
        """Put vectors to their rows."""
        if not self._dimension:
            self._set_dimension(vectors.shape[1])
            self._append({"dimension": self._dimension})
        if vectors.shape[1] != self._dimension:
            raise BackendError(
                f"the encoder gave vectors of {self._dimension} numbers, then of {vectors.shape[1]}"
            )
        with np.errstate(over="ignore"):
            kept = vectors.astype(self._kind)
        if not np.isfinite(kept).all():
            raise BackendError(
                "the encoder gave a number beyond 65,504, which float16 cannot hold; set "
                'storage = "float32"'
            )
        for row, vector in zip(rows, kept, strict=True):
            self._put(vector.tobytes(), self._place(row))
        self._append({"what": name, "sha256": hashlib.sha256(kept.tobytes()).hexdigest()})

    def copy(self, source: int, row: int) -> None:
        """Give a row the vector of an earlier one."""
        self._put(self._read(source, source + 1), self._place(row))

    def state(self, name: str, rows: Sequence[int]) -> None:
        """Note that these rows are complete."""
        self._append({"what": name, "sha256": self._digest(rows)})

    def count_in(self, start: int, stop: int) -> None:
        """Add the next rows to the digest of the whole file."""
        if not start:
            self._whole.update(self._header)
        for content in self._contents(range(start, stop)):
            self._whole.update(content)

    def finish(self) -> None:
        """Wait until the file is on the disk."""
        os.fsync(self._file.fileno())

    # ----------------------------------------------------------------------------- internals

    def _read_log(self) -> None:
        try:
            content = self.log.read_bytes()
        except FileNotFoundError:
            return
        whole = []
        for line in content.split(b"\n"):
            try:
                said = json.loads(line)
            except ValueError:  # cut off by a kill, or damaged
                continue
            if isinstance(said, dict) and isinstance(said.get("dimension"), int):
                self._set_dimension(said["dimension"])
            elif isinstance(said, dict) and {"what", "sha256"} <= said.keys():
                self._known[str(said["what"])] = str(said["sha256"])
            whole.append(line + b"\n")
        if not self._dimension:
            self._known = {}
        if b"".join(whole) != content:  # the next line must start on a line of its own
            replace_file(self.log, b"".join(whole))

    def _set_dimension(self, dimension: int) -> None:
        self._dimension = dimension
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header,
            {"descr": self._kind.str, "fortran_order": False, "shape": (self._rows, dimension)},
        )
        self._header = header.getvalue()
        self._put(self._header, 0)
        self._file.truncate(self._place(self._rows))

    def _append(self, said: dict[str, object]) -> None:
        with self.log.open("ab") as file:
            file.write((dumps(said) + "\n").encode("utf-8"))

    def _place(self, row: int) -> int:
        return len(self._header) + row * self._dimension * self._kind.itemsize

    def _read(self, start: int, stop: int) -> bytes:
        self._file.seek(self._place(start))
        return self._file.read(self._place(stop) - self._place(start))

    def _put(self, content: bytes, place: int) -> None:
        self._file.seek(place)
        self._file.write(content)

    def _contents(self, rows: Sequence[int]) -> Iterator[bytes]:
        if not isinstance(rows, range):
            yield from (self._read(row, row + 1) for row in rows)
            return
        step = max(1, _READ_BYTES // (self._dimension * self._kind.itemsize))
        for start in range(rows.start, rows.stop, step):
            yield self._read(start, min(start + step, rows.stop))

    def _digest(self, rows: Sequence[int]) -> str:
        state = hashlib.sha256()
        for content in self._contents(rows):
            state.update(content)
        return state.hexdigest()


@contextmanager
def open_draft(path: Path, rows: int, kind: np.dtype[Any]) -> Iterator[Draft]:
    """Open the file of a matrix of so many rows, and what its log says of it."""
    path.touch()
    with path.open("r+b", buffering=2**16) as file:
        yield Draft(path, file, rows, kind)


def replace_file(path: Path, content: bytes) -> None:
    """Give a file new content at once, on the disk when this returns."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    temporary.replace(path)
