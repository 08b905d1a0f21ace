"""Vectors of single texts, by key, in one SQLite file."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
import weakref
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragassay.errors import StoreError

SCHEMA_VERSION = 1
_BUSY_SECONDS = 30.0
_KEYS_PER_QUERY = 10_000
_LOG = logging.getLogger(__name__)
_SCHEMA = """
CREATE TABLE embedding (
    key TEXT PRIMARY KEY,
    dimension INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    vector BLOB NOT NULL
) WITHOUT ROWID
"""

Vectors = NDArray[np.float32]


class VectorRows:
    """A table of vectors by key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        with disk_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        with self._translated():
            self._db = sqlite3.connect(
                path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        self.close = weakref.finalize(self, self._db.close)
        try:
            with self._translated():
                self._open()
        except BaseException:
            self.close()
            raise

    def get(self, keys: Sequence[str]) -> dict[str, Vectors]:
        """Look up keys; damaged rows are dropped with a warning, as if they were not there."""
        found: dict[str, Vectors] = {}
        damaged: list[str] = []
        with self._lock, self._translated():
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                rows = self._db.execute(
                    "SELECT key, dimension, checksum, vector FROM embedding "
                    "WHERE key IN (SELECT value FROM json_each(?))",
                    (json.dumps(keys[start : start + _KEYS_PER_QUERY]),),
                )
                for key, dimension, checksum, blob in rows:
                    if len(blob) == 4 * dimension and zlib.crc32(blob) == checksum:
                        found[key] = np.frombuffer(blob, dtype="<f4").astype(np.float32)
                    else:
                        damaged.append(key)
            if damaged:
                self._db.executemany("DELETE FROM embedding WHERE key = ?", [(k,) for k in damaged])
        if damaged:
            _LOG.warning("%s: %d damaged rows are encoded again", self._path, len(damaged))
        return found

    def put(self, vectors: dict[str, Vectors]) -> dict[str, Vectors]:
        """Store rows in one transaction; what another process stored first is what counts."""
        blobs = {key: vector.astype("<f4").tobytes() for key, vector in vectors.items()}
        with self._lock, self._translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany(
                    "INSERT INTO embedding VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    [(key, len(b) // 4, zlib.crc32(b), b) for key, b in blobs.items()],
                )
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        return vectors | self.get(list(vectors))

    def _open(self) -> None:
        if not self._known():
            self._use_wal()
            self._db.execute("BEGIN IMMEDIATE")
            try:
                if not self._known():  # another process may have made it while we waited
                    self._db.execute(_SCHEMA)
                    self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        self._db.execute("PRAGMA synchronous = NORMAL")  # with WAL: safe against kill -9

    def _known(self) -> bool:
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        tables = {row[0] for row in self._db.execute("SELECT name FROM sqlite_master")}
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self._path} has format {version}, this ragassay knows {SCHEMA_VERSION}; "
                "use a newer ragassay or set RAGASSAY_CACHE to another folder"
            )
        if bool(tables) != bool(version) or (version and "embedding" not in tables):
            raise StoreError(
                f"{self._path} is an SQLite file but holds no embeddings; move it away or set "
                "RAGASSAY_CACHE to another folder"
            )
        return bool(version)

    def _use_wal(self) -> None:
        # SQLite does not wait by itself when two processes switch a new file at once.
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL").fetchone()
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(
                f"embeddings {self._path}: {error}; move it away (it will be made again) or set "
                "RAGASSAY_CACHE to another folder"
            ) from error


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn an error of the disk into one line that says what to do."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"embeddings cannot be kept in {folder}: {error.strerror or error}; free some space "
            "or set RAGASSAY_CACHE to a folder that can be written"
        ) from error
