"""A corpus that stays on disk: passages are read from their file when they are asked for.

Opening a file for the first time reads and checks every line, as :mod:`ragassay.data.jsonl`
does, and keeps an index of it in the cache, under the digest of the file's bytes: where each
line starts, the order of the ids, and what was computed from the texts. Memory does not grow
with the corpus; the index takes some 50 bytes a passage on disk. Compressed files cannot be
read from the middle, so the index of such a file holds a plain copy of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, overload

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from ragassay.data.entries import Entry
from ragassay.data.jsonl import existing_file, is_gzip, read_placed_jsonl
from ragassay.errors import DataError, StoreError
from ragassay.types import Passage

INDEX_VERSION = 1
_BATCH = 10_000
_SCHEMA = """
CREATE TABLE passage (row INTEGER PRIMARY KEY, id BLOB NOT NULL);
CREATE TABLE fact (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


def cache_folder() -> Path:
    """Where indexes, generations and embeddings are kept: ``RAGASSAY_CACHE`` or the user's."""
    named = os.environ.get("RAGASSAY_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ragassay"


def passage_of(entry: Entry) -> Passage:
    """Read a passage ``{_id, title, text}``; a missing title is empty.

    Raises
    ------
    DataError
        A key is missing or of the wrong type.
    """
    return Passage(id=entry.id("_id"), title=entry.optional_text("title"), text=entry.text("text"))


class _OnDisk(Sequence[Passage]):
    """Passages by position, read in the order in which they lie on disk."""

    @abstractmethod
    def _read(self, positions: Sequence[int] | NDArray[np.int64]) -> list[Passage]:
        """Read the passages at some positions, in the order of the positions."""

    @overload
    def __getitem__(self, position: int) -> Passage: ...

    @overload
    def __getitem__(self, position: slice) -> tuple[Passage, ...]: ...

    def __getitem__(self, position: int | slice) -> Passage | tuple[Passage, ...]:
        if isinstance(position, slice):
            return tuple(self._read(range(*position.indices(len(self)))))
        if not -len(self) <= position < len(self):
            raise IndexError(f"passage {position} of {len(self)}")
        return self._read([position % len(self)])[0]

    def __iter__(self) -> Iterator[Passage]:
        for start in range(0, len(self), _BATCH):
            yield from self._read(range(start, min(start + _BATCH, len(self))))


class CorpusFile(_OnDisk):
    """The passages of a JSON-lines file, in the order of its lines; safe to share by threads.

    Parameters
    ----------
    path : Path
        Lines ``{_id, title, text}``, plain or gzip. The file must not change while it is used.
    cache_dir : Path
        Where the index is kept.

    Raises
    ------
    DataError
        The file is missing or damaged, an id occurs twice, or all texts are empty.
    StoreError
        The index cannot be written or read.
    """

    def __init__(self, path: Path, cache_dir: Path) -> None:
        self._path = existing_file(path)
        folder = cache_dir / "corpora" / f"{_sha256(path)[:32]}-{INDEX_VERSION}"
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(folder.with_suffix(".lock")):
                if not _whole(folder):
                    shutil.rmtree(folder, ignore_errors=True)
                    _build(path, folder)
            self._starts: NDArray[np.int64] = np.load(folder / "starts.npy", mmap_mode="r")
            self._order: NDArray[np.int64] = np.load(folder / "order.npy", mmap_mode="r")
            plain = folder / "corpus.jsonl"
            self._file = (plain if plain.exists() else path).open("rb")
            self._index = sqlite3.connect(
                folder / "index.sqlite", check_same_thread=False, isolation_level=None, timeout=30
            )
        except (OSError, ValueError, sqlite3.Error) as error:
            raise StoreError(
                f"the index of {path} cannot be kept in {folder.parent}: {error}; free some space "
                "or set RAGASSAY_CACHE to a folder that can be written"
            ) from error
        self._lock = threading.Lock()
        self._closing = weakref.finalize(self, _close, self._file, self._index)

    def __len__(self) -> int:
        return len(self._order)

    @property
    def by_id(self) -> SortedCorpus:
        """The same passages, sorted by id."""
        return SortedCorpus(self, self._order)

    @property
    def ids(self) -> Container[str]:
        """The ids, to ask whether one is there."""
        return _Ids(self)

    def has_id(self, key: str) -> bool:
        """Whether a passage has this id."""
        found = self._select("SELECT 1 FROM passage WHERE id = ?", _bytes(key))
        return found is not None

    def remembered(self, name: str, compute: Callable[[], str]) -> str:
        """What was computed from these passages before, under a name that says what it is."""
        known = self._select("SELECT value FROM fact WHERE key = ?", name)
        if known is not None:
            return str(known[0])
        value = compute()
        with self._lock:
            self._index.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value))
        return value

    def close(self) -> None:
        """Close the files. Closing twice does nothing."""
        self._closing()

    def _read(self, positions: Sequence[int] | NDArray[np.int64]) -> list[Passage]:
        wanted = np.asarray(positions, dtype=np.int64)
        found: list[Passage] = [Passage(id="", text="")] * len(wanted)
        for place in np.argsort(wanted, kind="stable").tolist():
            row = int(wanted[place])
            start, stop = self._starts[row : row + 2].tolist()
            with self._lock:
                self._file.seek(start)
                raw = self._file.read(stop - start)
            try:
                found[place] = passage_of(Entry(json.loads(raw), self._path, row + 1))
            except ValueError as error:
                raise DataError(
                    "the line is no longer what it was when the file was opened; run again",
                    path=self._path,
                    line=row + 1,
                ) from error
        return found

    def _select(self, query: str, *values: object) -> Any:
        with self._lock:
            return self._index.execute(query, values).fetchone()


def _close(file: BinaryIO, index: sqlite3.Connection) -> None:
    file.close()
    index.close()


class SortedCorpus(_OnDisk):
    """A view of a corpus file in the order of its ids."""

    def __init__(self, corpus: CorpusFile, order: NDArray[np.int64]) -> None:
        self.corpus = corpus
        self._order = order

    def __len__(self) -> int:
        return len(self._order)

    def _read(self, positions: Sequence[int] | NDArray[np.int64]) -> list[Passage]:
        return self.corpus._read(self._order[np.asarray(positions, dtype=np.int64)])


class _Ids(Container[str]):
    def __init__(self, corpus: CorpusFile) -> None:
        self._corpus = corpus

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._corpus.has_id(key)


def ids_of(corpus: Sequence[Passage]) -> Container[str]:
    """The ids of a corpus, to ask whether one is there."""
    if isinstance(corpus, SortedCorpus):
        return corpus.corpus.ids
    if isinstance(corpus, CorpusFile):
        return corpus.ids
    return frozenset(passage.id for passage in corpus)


# ------------------------------------------------------------------------------ making the index


def _whole(folder: Path) -> bool:
    try:
        starts = np.load(folder / "starts.npy", mmap_mode="r")
        order = np.load(folder / "order.npy", mmap_mode="r")
        return len(starts) == len(order) + 1 and (folder / "index.sqlite").stat().st_size > 0
    except (OSError, ValueError, EOFError):
        return False


def _build(path: Path, folder: Path) -> None:
    """Make the index in a folder of another name, so that it is there whole or not at all."""
    draft = Path(tempfile.mkdtemp(prefix="making-", dir=folder.parent))
    try:
        with closing(sqlite3.connect(draft / "index.sqlite", isolation_level=None)) as index:
            index.executescript(_SCHEMA)
            index.execute("PRAGMA journal_mode = OFF")
            index.execute("BEGIN")
            count = _read_all(path, draft, index)
            index.execute("CREATE INDEX by_id ON passage (id)")
            _refuse_doubles(path, index)
            order = np.lib.format.open_memmap(
                draft / "order.npy", mode="w+", dtype=np.int64, shape=(count,)
            )
            rows = index.execute("SELECT row FROM passage ORDER BY id")
            for start in range(0, count, _BATCH):
                some = rows.fetchmany(min(_BATCH, count - start))
                order[start : start + len(some)] = [row for (row,) in some]
            order.flush()
            index.execute("COMMIT")
        draft.replace(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _read_all(path: Path, draft: Path, index: sqlite3.Connection) -> int:
    """Check every line; note ids and where the lines start; copy what is compressed."""
    starts: Any = (draft / "starts.raw").open("wb")
    copy = (draft / "corpus.jsonl").open("wb") if is_gzip(path) else None
    some: list[tuple[int, bytes]] = []
    count, stop, filled = 0, 0, False
    with starts:
        for line, place, raw, row in read_placed_jsonl(path):
            passage = passage_of(Entry(row, path, line))
            filled = filled or bool(passage.text.strip())
            starts.write(np.int64(place).tobytes())
            if copy is not None:
                if not count and place:
                    copy.write(b" " * place)  # where a byte order mark stood
                copy.write(raw)
            some.append((count, _bytes(passage.id)))
            if len(some) == _BATCH:
                index.executemany("INSERT INTO passage VALUES (?, ?)", some)
                some.clear()
            count, stop = count + 1, place + len(raw)
        starts.write(np.int64(stop).tobytes())
    index.executemany("INSERT INTO passage VALUES (?, ?)", some)
    if copy is not None:
        copy.close()
    if not filled:
        raise DataError(f"all {count} passages are empty", path=path)
    kept = np.lib.format.open_memmap(
        draft / "starts.npy", mode="w+", dtype=np.int64, shape=(count + 1,)
    )
    kept[:] = np.memmap(draft / "starts.raw", dtype=np.int64, mode="r")
    kept.flush()
    (draft / "starts.raw").unlink()
    return count


def _refuse_doubles(path: Path, index: sqlite3.Connection) -> None:
    twice = index.execute(
        "SELECT later.row, earlier.row, later.id FROM passage AS later JOIN passage AS earlier "
        "ON earlier.id = later.id AND earlier.row < later.row ORDER BY later.row, earlier.row"
    ).fetchone()
    if twice is not None:
        key = twice[2].decode("utf-8", "surrogatepass")
        raise DataError(
            f"id {key!r} was already used on line {twice[1] + 1}", path=path, line=twice[0] + 1
        )


def _bytes(key: str) -> bytes:
    """UTF-8 sorts as the code points do, half surrogates included."""
    return key.encode("utf-8", "surrogatepass")


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=path) from error


def rows_of(corpus: Iterable[Passage]) -> Iterator[list[str]]:
    """Id, title and text of each passage, as fingerprints count them."""
    for passage in corpus:
        yield [passage.id, passage.title, passage.text]
