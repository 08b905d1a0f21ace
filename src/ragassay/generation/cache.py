"""The generation cache: one content-addressed SQLite file for all conditions, runs, processes.

Equal requests get equal answers because the key is a digest of everything that can change the
answer: the model's identity, the messages, the sampling settings and the sample index. The
first answer that is stored under a key stays; a later one is dropped, and its writer is told.
Failures are never stored.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, cast

from ragassay import canon
from ragassay.cache_file import CacheFile
from ragassay.types import Generation, Request

SCHEMA_VERSION = 1
_COLUMNS = """
    digest TEXT PRIMARY KEY,
    identity TEXT NOT NULL,
    text BLOB NOT NULL,
    finish TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    created_at TEXT NOT NULL
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
        self._file = CacheFile(
            self.path, what="generation cache", table="generation", columns=_COLUMNS,
            version=SCHEMA_VERSION,
        )  # fmt: skip

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
        with self._file.reading() as db:
            return _select(db, wanted)

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
        with self._file.writing() as db:
            there = [g.digest for g in generations if not _insert(db, g, label, now)]
            return _select(db, there)

    def count(self) -> int:
        """Return the number of stored generations."""
        with self._file.reading() as db:
            return int(db.execute("SELECT count(*) FROM generation").fetchone()[0])

    def close(self) -> None:
        """Close the file. Closing twice does nothing."""
        self._file.close()

    def __enter__(self) -> GenerationCache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _insert(db: sqlite3.Connection, generation: Generation, identity: str, now: str) -> bool:
    cursor = db.execute(
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


def _select(db: sqlite3.Connection, digests: Sequence[str]) -> dict[str, Generation]:
    rows = db.execute(
        "SELECT digest, text, finish, input_tokens, output_tokens FROM generation "
        "WHERE digest IN (SELECT value FROM json_each(?))",
        (json.dumps(digests),),
    )
    return {row[0]: _generation(row) for row in rows}


def _generation(row: Sequence[Any]) -> Generation:
    return Generation(
        digest=row[0],
        text=bytes(row[1]).decode("utf-8", "surrogatepass"),
        finish=cast(Literal["stop", "length", "unknown"], row[2]),
        input_tokens=row[3],
        output_tokens=row[4],
        cached=True,
    )
