"""A cache in one SQLite file with one table, shared by threads and by processes.

A write is one transaction that survives the death of the process. A file that is something else,
or of a newer version, is left as it is.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from ragassay.errors import StoreError

_BUSY_SECONDS = 30.0
_ELSEWHERE = "set RAGASSAY_CACHE to another folder"


class CacheFile:
    """The file; made where absent, with its folder.

    Parameters
    ----------
    path : Path
    what : str
        What it is, for messages: "generation cache".
    table, columns : str
        Its table, and what stands between the parentheses of its definition.
    version : int
        Format of the table, at least 1.

    Raises
    ------
    StoreError
        The file is something else, was written by a newer ragassay, or cannot be opened for
        writing.
    """

    def __init__(self, path: Path, *, what: str, table: str, columns: str, version: int) -> None:
        self.path = path
        self._what = what
        self._table = table
        self._columns = columns
        self._version = version
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{what} {path}: its folder cannot be made: {error.strerror or error}; {_ELSEWHERE}"
            ) from error
        with self._translated():
            self._db = sqlite3.connect(
                path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        self._close = weakref.finalize(self, self._db.close)
        try:
            with self._translated():
                self._open()
        except BaseException:
            self._close()
            raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Let one thread at a time read; errors of SQLite become a :class:`StoreError`."""
        with self._lock, self._translated():
            yield self._db

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Give one transaction: all of it is kept, or nothing where an error leaves the block."""
        with self._lock, self._translated(), self._transaction():
            yield self._db

    def close(self) -> None:
        """Close the file. Closing twice does nothing."""
        with self._lock:
            self._close()

    def _open(self) -> None:
        # Before anything is written, as the file may be someone else's; and in one transaction,
        # as another process may be making it.
        with self._transaction("DEFERRED"):
            known = self._known()
        if not known:
            self._use_wal()
            with self._transaction():
                if not self._known():  # another process may have made it while we waited
                    self._db.execute(f"CREATE TABLE {self._table} ({self._columns}) WITHOUT ROWID")
                    self._db.execute(f"PRAGMA user_version = {self._version}")
        self._db.execute("PRAGMA synchronous = NORMAL")  # with WAL: safe against kill -9

    def _known(self) -> bool:
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version > self._version:
            raise StoreError(
                f"{self._what} {self.path} has format {version}, this ragassay knows "
                f"{self._version}; use a newer ragassay or {_ELSEWHERE}"
            )
        tables = {row[0] for row in self._db.execute("SELECT name FROM sqlite_master")}
        if bool(tables) != bool(version) or (version and self._table not in tables):
            raise StoreError(
                f"{self.path} is an SQLite file but no {self._what}; it is left as it is. Move it "
                f"away or {_ELSEWHERE}"
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
    def _transaction(self, kind: Literal["DEFERRED", "IMMEDIATE"] = "IMMEDIATE") -> Iterator[None]:
        self._db.execute(f"BEGIN {kind}")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self._what} {self.path}: {_reason(error)}") from error


def _reason(error: sqlite3.Error) -> str:
    reason = str(error)
    if "not a database" in reason or "malformed" in reason:
        return f"{reason}; it is left as it is. Move it away or {_ELSEWHERE}"
    if "locked" in reason:
        return f"{reason}: another process has been writing for {_BUSY_SECONDS:g} s"
    return reason
