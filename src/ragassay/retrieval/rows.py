"""Vectors of single texts, by key, in one SQLite file."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragassay.cache_file import CacheFile
from ragassay.errors import StoreError

SCHEMA_VERSION = 1
_KEYS_PER_QUERY = 10_000
_LOG = logging.getLogger(__name__)
_COLUMNS = """
    key TEXT PRIMARY KEY,
    dimension INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    vector BLOB NOT NULL
"""

Vectors = NDArray[np.float32]


class VectorRows:
    """A table of vectors by key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = CacheFile(
            path, what="cache of embeddings", table="embedding", columns=_COLUMNS,
            version=SCHEMA_VERSION,
        )  # fmt: skip
        self.close = self._file.close

    def get(self, keys: Sequence[str]) -> dict[str, Vectors]:
        """Look up keys; damaged rows are dropped with a warning, as if they were not there."""
        found: dict[str, Vectors] = {}
        damaged: list[str] = []
        with self._file.reading() as db:
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                rows = db.execute(
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
                db.executemany("DELETE FROM embedding WHERE key = ?", [(k,) for k in damaged])
        if damaged:
            _LOG.warning("%s: %d damaged rows are encoded again", self._path, len(damaged))
        return found

    def put(self, vectors: dict[str, Vectors]) -> dict[str, Vectors]:
        """Store rows in one transaction; what another process stored first is what counts."""
        blobs = {key: vector.astype("<f4").tobytes() for key, vector in vectors.items()}
        with self._file.writing() as db:
            db.executemany(
                "INSERT INTO embedding VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                [(key, len(b) // 4, zlib.crc32(b), b) for key, b in blobs.items()],
            )
        return vectors | self.get(list(vectors))


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
