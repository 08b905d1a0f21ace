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
import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from ragassay.canon import dumps
from ragassay.errors import BackendError, StoreError
from ragassay.retrieval.matrix_draft import Draft, open_draft, replace_file
from ragassay.retrieval.rows import Vectors, disk_errors

Progress = Callable[[int, int], None]
Encode = Callable[[Iterable[Sequence[str]]], Iterator[Vectors]]
Storage = Literal["float32", "float16"]
Stored = NDArray[np.floating[Any]]

WINDOW = 16_384
PART_SIZE = 1_024
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
        Turns parts of texts into finite vectors, one array of shape (len(part), d) for each, in
        their order. It may ask for later parts before it gives the vectors of earlier ones.
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
        encode: Encode,
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
        with open_draft(self._path.with_suffix(".part"), len(self._texts), self._type) as draft:
            ahead: deque[_Step] = deque()  # asked for, in the order in which they take effect
            done = 0

            def take() -> None:
                nonlocal done
                step = ahead.popleft()
                step.effect()
                if step.texts_done:
                    done += step.texts_done
                    self._tell(done, total)

            def parts() -> Iterator[Sequence[str]]:
                for step in self._steps(draft, copies):
                    ahead.append(step)
                    if step.to_encode:
                        yield step.to_encode
                    elif len(ahead) == 1:
                        take()

            for vectors in self._encode(parts()):
                while not ahead[0].to_encode:
                    take()
                ahead[0].vectors = vectors
                take()
            while ahead:
                take()
            draft.finish()
            stated = {**self._facts, "shape": draft.shape, "sha256": draft.sha256}
        # in this order: after a kill between two steps, nothing has to be encoded again
        replace_file(self._path.with_suffix(".json"), (dumps(stated) + "\n").encode("utf-8"))
        draft.path.replace(self._path)
        draft.log.unlink(missing_ok=True)

    def _steps(self, draft: Draft, copies: _Copies) -> Iterator[_Step]:
        """What is to be done, window by window; each step is planned when it is asked for."""
        for start in range(0, len(self._texts), WINDOW):
            stop = min(start + WINDOW, len(self._texts))
            mine = copies.within(start, stop)
            if draft.has(f"rows {start}", range(start, stop)):
                fresh = stop - start - len(mine)
                self.reused += fresh
                yield _Step(partial(draft.count_in, start, stop), texts_done=fresh)
            else:
                yield from self._window_steps(draft, start, stop, mine)

    def _window_steps(
        self, draft: Draft, start: int, stop: int, copies: dict[int, int]
    ) -> Iterator[_Step]:
        texts = self._texts[start:stop]
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
                yield _Step(lambda: None, texts_done=len(some))
                continue
            step = _Step(
                lambda: None,
                texts_done=len(some),
                to_encode=[texts[row - start] for row in some],
            )
            step.effect = partial(_write, draft, name, some, step)
            yield step

        def complete() -> None:
            for row, first in same.items():
                draft.copy(first, row)
            draft.state(f"rows {start}", range(start, stop))
            draft.count_in(start, stop)

        yield _Step(complete)

    def _tell(self, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(done, max(done, total))


@dataclass(slots=True, eq=False)
class _Step:
    """Something to do in its turn; with ``to_encode``, once these texts have their vectors."""

    effect: Callable[[], None]
    texts_done: int = 0
    to_encode: Sequence[str] = ()
    vectors: Vectors | None = None


def _write(draft: Draft, name: str, rows: Sequence[int], step: _Step) -> None:
    if step.vectors is None:
        raise BackendError(f"the encoder gave no vectors for {len(rows)} texts")
    draft.write(name, rows, step.vectors)


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


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
