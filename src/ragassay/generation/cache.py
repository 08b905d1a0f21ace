"""The generation cache: one content-addressed SQLite file for all conditions, runs, processes.

Equal requests get equal answers because the key is a digest of everything that can change the
answer: the model's identity, the messages, the sampling settings and the sample index. The
first answer that is stored under a key stays; a later one is dropped, and its writer is told.
Failures are never stored.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, cast

from ragassay import canon
from ragassay.errors import StoreError
from ragassay.types import Generation, Request

SCHEMA_VERSION = 1
_BUSY_SECONDS = 30.0

_SCHEMA = """
CREATE TABLE generation (
    digest TEXT PRIMARY KEY,
    identity TEXT NOT NULL,
    text BLOB NOT NULL,
    finish TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    created_at TEXT NOT NULL
) WITHOUT ROWID
"""


def request_digest(identity: str, request: Request) -> str:
    """Return the cache key of a request to a model, as 64 hexadecimal digits.

    Parameters
    ----------
    identity : str
        The generator's identity: everything about the model that can change an output.
    request : Request
        Messages, sampling, sample index and schema all count; 0 and 0.0 are the same temperature.
    """
    sampling = request.sampling
    parts = [
        identity,
        request.messages,
        {
            "temperature": float(sampling.temperature),
            "top_p": float(sampling.top_p),
            "max_tokens": sampling.max_tokens,
        },
        request.sample_index,
    ]
    if request.schema is not None:
        parts.append(request.schema)
    return canon.digest(parts)


class GenerationCache:
    """A store of raw model outputs, safe to share between threads and between processes.

    Every :meth:`put_many` is one transaction that survives the death of the process.

    Parameters
    ----------
    path : str or Path
        The SQLite file; it and its folder are made where absent.

    Raises
    ------
    StoreError
        The file is not such a cache (it is left untouched), was written by a newer ragassay,
        or cannot be opened for writing.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"generation cache {self.path}: its folder cannot be made: {error.strerror}"
            ) from error
        with self._translated():
            self._db = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            with self._translated():
                self._open()
        except BaseException:
            self._db.close()
            raise

    def get_many(self, digests: Iterable[str]) -> dict[str, Generation]:
        """Look up keys; the ones that are not there are absent from the result.

        Returns
        -------
        dict
            Digest to generation, with ``cached=True`` and ``seconds=0``.

        Raises
        ------
        StoreError
            The file cannot be read.
        """
        wanted = list(dict.fromkeys(digests))
        if not wanted:
            return {}
        with self._lock, self._translated():
            return self._select(wanted)

    def put_many(
        self, generations: Sequence[Generation], *, identity: str
    ) -> dict[str, Generation]:
        """Store answers under their digests, in one transaction.

        Parameters
        ----------
        generations : sequence of Generation
            Each with its ``digest`` set.
        identity : str
            The model that gave them; kept beside each, for people who look into the file.

        Returns
        -------
        dict
            What was already there under some of the digests (written by another process in
            the meantime). It stays, and is the answer that counts.

        Raises
        ------
        StoreError
            The disk is full, the file is read-only or is locked for too long.
        """
        if any(not generation.digest for generation in generations):
            raise ValueError("a generation without a digest cannot be cached")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        label = identity.encode("utf-8", "backslashreplace").decode("utf-8")
        with self._lock, self._translated(), self._transaction():
            there = [g.digest for g in generations if not self._insert(g, label, now)]
            return self._select(there)

    def count(self) -> int:
        """Return the number of stored generations."""
        with self._lock, self._translated():
            return int(self._db.execute("SELECT count(*) FROM generation").fetchone()[0])

    def close(self) -> None:
        """Close the file. Closing twice does nothing."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> GenerationCache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self) -> None:
        self._check_version()  # before anything is written: the file may be someone else's
        self._use_wal()
        self._db.execute("PRAGMA synchronous = NORMAL")  # with WAL: safe against kill -9
        with self._transaction():
            if not self._check_version():
                self._db.execute(_SCHEMA)
                self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _check_version(self) -> int:
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"generation cache {self.path} has format {version}, this ragassay knows "
                f"{SCHEMA_VERSION}; use a newer ragassay or point RAGASSAY_CACHE elsewhere"
            )
        tables = {row[0] for row in self._db.execute("SELECT name FROM sqlite_master")}
        if bool(tables) != bool(version) or (version and "generation" not in tables):
            raise StoreError(
                f"{self.path} is an SQLite file but no generation cache; it is left as it is. "
                "Move it away or set RAGASSAY_CACHE to another folder"
            )
        return version

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

    def _insert(self, generation: Generation, identity: str, now: str) -> bool:
        cursor = self._db.execute(
            "INSERT INTO generation VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (
                generation.digest,
                identity,
                generation.text.encode("utf-8", "surrogatepass"),
                generation.finish,
                generation.input_tokens,
                generation.output_tokens,
                now,
            ),
        )
        return cursor.rowcount == 1

    def _select(self, digests: Sequence[str]) -> dict[str, Generation]:
        rows = self._db.execute(
            "SELECT digest, text, finish, input_tokens, output_tokens FROM generation "
            "WHERE digest IN (SELECT value FROM json_each(?))",
            (json.dumps(digests),),
        )
        return {row[0]: _generation(row) for row in rows}

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
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
            raise StoreError(f"generation cache {self.path}: {_reason(error)}") from error


def _generation(row: Sequence[Any]) -> Generation:
    return Generation(
        digest=row[0],
        text=bytes(row[1]).decode("utf-8", "surrogatepass"),
        finish=cast(Literal["stop", "length", "unknown"], row[2]),
        input_tokens=row[3],
        output_tokens=row[4],
        cached=True,
    )


def _reason(error: sqlite3.Error) -> str:
    reason = str(error)
    if "not a database" in reason or "malformed" in reason:
        return f"{reason}; it is left as it is. Move it away or set RAGASSAY_CACHE elsewhere"
    if "locked" in reason:
        return f"{reason}: another process has been writing for {_BUSY_SECONDS:g} s"
    return reason
