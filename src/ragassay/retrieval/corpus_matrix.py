"""The vectors of a corpus: one matrix on disk, written once, in bounded memory.

The texts are read in windows of consecutive rows. Within a window they are sorted by length,
so that a batch wastes little padding, and encoded in parts; the vectors of a part go to their
places in the file at once, and a line in a log says that they are there. An encoding that is
killed at any moment goes on behind the last part whose bytes still have the digest that the log
states, and ends with the same bytes. The file becomes the ``.npy`` file of the matrix when it is
whole; a ``.json`` file beside it says what it is.

What grows with the corpus is some 40 bytes a passage, for the moment in which equal texts are
looked for.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from ragassay.canon import dumps
from ragassay.errors import BackendError, StoreError
from ragassay.retrieval.rows import Vectors, disk_errors

Progress = Callable[[int, int], None]
Storage = Literal["float32", "float16"]
Stored = NDArray[np.floating[Any]]

WINDOW = 16_384
PART_SIZE = 1_024
_READ_BYTES = 2**23
_LOG = logging.getLogger(__name__)


class Contents(NamedTuple):
    """Digests of the ids and of the texts of a corpus, in the order of the rows."""

    ids: str
    texts: str


def contents_of(pairs: Iterable[tuple[str, str]]) -> Contents:
    """Digest pairs of id and text, however many, without keeping them."""
    states = hashlib.sha256(), hashlib.sha256()
    for pair in pairs:
        for state, text in zip(states, pair, strict=True):
            content = text.encode("utf-8", "surrogatepass")
            state.update(b"%d:" % len(content))
            state.update(content)
    return Contents(states[0].hexdigest(), states[1].hexdigest())


class CorpusMatrix:
    """One matrix, on its way to disk or from there.

    Parameters
    ----------
    path : Path
        The ``.npy`` file.
    facts : dict
        What the matrix is, for the ``.json`` file.
    texts : sequence of str, length n
        In the order of the rows; asked for in slices.
    storage : {"float32", "float16"}
    encode : callable
        Turns some texts into finite vectors, shape (len(texts), d).
    progress : callable, optional
        Hears (distinct texts done, distinct texts in all).

    Attributes
    ----------
    reused : int
        Texts whose vector was on disk.
    """

    def __init__(
        self,
        path: Path,
        *,
        facts: dict[str, object],
        texts: Sequence[str],
        storage: Storage,
        encode: Callable[[Sequence[str]], Vectors],
        progress: Progress | None,
    ) -> None:
        self.reused = 0
        self._path = path
        self._facts = facts
        self._texts = texts
        self._type: np.dtype[Any] = np.dtype("<f4" if storage == "float32" else "<f2")
        self._encode = encode
        self._progress = progress

    def load_or_make(self) -> Stored:
        """Map the matrix; make it first where it is not there and whole.

        Raises
        ------
        BackendError
            The encoder fails, or a number does not fit float16.
        StoreError
            The folder cannot be written.
        """
        with disk_errors(self._path.parent):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self._path.with_suffix(".lock")):
                matrix = self._load()
                if matrix is not None:
                    self.reused += len(self._texts)
                    self._tell(len(self._texts), len(self._texts))
                    return matrix
                self._make()
                matrix = self._load()
        if matrix is None:
            raise StoreError(f"{self._path} cannot be read back after writing; is the disk full?")
        return matrix

    def _load(self) -> Stored | None:
        """Map a matrix that is what it should be; otherwise None, with a warning if it is there."""
        sidecar = self._path.with_suffix(".json")
        if not self._path.exists() and not sidecar.exists():
            return None
        try:
            said = json.loads(sidecar.read_text(encoding="utf-8"))
            matrix: Stored = np.load(self._path, mmap_mode="r", allow_pickle=False)
            shape = list(matrix.shape)
            expected = {**self._facts, "shape": shape, "sha256": _sha256(self._path)}
        except (OSError, ValueError, EOFError) as error:
            reason = " ".join(str(error).split())[:200]
        else:
            rows = len(self._texts)
            if said == expected and matrix.dtype == self._type and matrix.shape[0] == rows:
                return matrix
            reason = "its contents are not those that its .json file states"
        _LOG.warning("%s is encoded again: %s", self._path, reason)
        return None

    def _make(self) -> None:
        copies = _copies(self._texts)
        total = len(self._texts) - len(copies)
        done = 0
        with _open_draft(self._path.with_suffix(".part"), len(self._texts), self._type) as draft:
            for start in range(0, len(self._texts), WINDOW):
                stop = min(start + WINDOW, len(self._texts))
                mine = copies.within(start, stop)
                if draft.has(f"rows {start}", range(start, stop)):
                    self.reused += stop - start - len(mine)
                    done += stop - start - len(mine)
                    self._tell(done, total)
                else:
                    done = self._make_window(draft, start, stop, mine, (done, total))
                draft.count_in(start, stop)
            draft.finish()
            stated = {**self._facts, "shape": draft.shape, "sha256": draft.sha256}
        # in this order: after a kill between two steps, nothing has to be encoded again
        _replace(self._path.with_suffix(".json"), (dumps(stated) + "\n").encode("utf-8"))
        draft.path.replace(self._path)
        draft.log.unlink(missing_ok=True)

    def _make_window(
        self, draft: _Draft, start: int, stop: int, copies: dict[int, int], count: tuple[int, int]
    ) -> int:
        texts = self._texts[start:stop]
        done, total = count
        same: dict[int, int] = {}
        for row, first in copies.items():  # equal by a short digest: compare the texts themselves
            other = texts[first - start] if first >= start else self._texts[first]
            if other == texts[row - start]:
                same[row] = first
        rows = [row for row in range(start, stop) if row not in same]
        rows.sort(key=lambda row: (len(texts[row - start]), texts[row - start], row))
        for first in range(0, len(rows), PART_SIZE):
            some = rows[first : first + PART_SIZE]
            name = f"part {start} {first}"
            if draft.has(name, some):
                self.reused += len(some)
            else:
                draft.write(name, some, self._encode([texts[row - start] for row in some]))
            done += len(some)
            self._tell(done, total)
        for row, first in same.items():
            draft.copy(first, row)
        draft.state(f"rows {start}", range(start, stop))
        return done

    def _tell(self, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(done, max(done, total))


# ------------------------------------------------------------------------------ the file so far


class _Draft:
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
            _replace(self.log, b"".join(whole))

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
def _open_draft(path: Path, rows: int, kind: np.dtype[Any]) -> Iterator[_Draft]:
    path.touch()
    with path.open("r+b", buffering=2**16) as file:
        yield _Draft(path, file, rows, kind)


# ---------------------------------------------------------------------------------- equal texts


class _Copies:
    """Rows whose text seems to stand in an earlier row: ``first[i]`` for ``rows[i]``."""

    def __init__(self, rows: NDArray[np.int64], first: NDArray[np.int64]) -> None:
        self._rows = rows
        self._first = first

    def __len__(self) -> int:
        return len(self._rows)

    def within(self, start: int, stop: int) -> dict[int, int]:
        low, high = np.searchsorted(self._rows, [start, stop])
        pairs = zip(self._rows[low:high].tolist(), self._first[low:high].tolist(), strict=True)
        return dict(pairs)


def _copies(texts: Sequence[str]) -> _Copies:
    codes = np.empty(len(texts), np.uint64)
    for start in range(0, len(texts), WINDOW):
        for row, text in enumerate(texts[start : start + WINDOW], start):
            content = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
            codes[row] = int.from_bytes(content.digest(), "little")
    order = np.argsort(codes, kind="stable").astype(np.int64, copy=False)
    codes = codes[order]
    fresh = np.ones(len(codes), bool)
    fresh[1:] = codes[1:] != codes[:-1]
    starts, copies = np.flatnonzero(fresh), np.flatnonzero(~fresh)
    first = order[starts[np.searchsorted(starts, copies, side="right") - 1]]
    rows = order[copies]
    by_row = np.argsort(rows)
    return _Copies(rows[by_row], first[by_row])


# ---------------------------------------------------------------------------------------- files


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    temporary.replace(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
