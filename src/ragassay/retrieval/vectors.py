"""Embeddings on disk: what was encoded once is never encoded again.

A corpus is one memory-mapped matrix per (corpus, encoder, token limit, titles); single texts
(queries, poison, what defenses embed) are rows of one SQLite file.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.canon import digest
from ragassay.errors import StoreError
from ragassay.plugins import Encoder

_LOG = logging.getLogger(__name__)
_CHUNK = 512
Progress = Callable[[int, int], None]


class EmbeddingStore:
    """Embeds through the disk. Counts what was really ``encoded``, what was ``reused``.

    Safe for several threads and several processes on one folder.
    """

    def __init__(self, cache_dir: Path, encoder: Encoder) -> None:
        self._encoder = encoder
        self._identity = encoder.identity
        self._folder = cache_dir / "embeddings"
        self._lock = threading.RLock()
        self.encoded = 0
        self.reused = 0
        self.seconds = 0.0
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                self._folder / "texts.sqlite", timeout=30, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS texts (key TEXT PRIMARY KEY, vector BLOB NOT NULL)"
            )
            self._db.commit()
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"embedding cache {self._folder} cannot be used: {error}") from error

    def embed(self, texts: Sequence[str], *, max_tokens: int | None) -> NDArray[np.float32]:
        """Embed texts, shape ``(n, d)``, through the cache."""
        keys = [digest([self._identity, max_tokens, text]) for text in texts]
        with self._lock:
            known = self._lookup(keys)
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
            self.reused += len(texts) - len(missing)
            if missing:
                vectors = self._encode(list(missing.values()), max_tokens)
                known.update(zip(missing, vectors, strict=True))
                self._insert([(key, known[key]) for key in missing])
            if not keys:
                return self._encoder.encode([], max_tokens=max_tokens)
            return np.stack([known[key] for key in keys])

    def corpus_matrix(
        self,
        texts: Sequence[str],
        *,
        fingerprint: str,
        max_tokens: int | None,
        progress: Progress | None = None,
    ) -> NDArray[np.float32]:
        """Embed a corpus, shape ``(n, d)``, or map the matrix that an earlier run left."""
        name = digest([fingerprint, self._identity, max_tokens])[:32]
        path, card = self._folder / f"{name}.npy", self._folder / f"{name}.json"
        ready = self._load(path, card, len(texts))
        if ready is not None:
            self.reused += len(texts)
            return ready
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        matrix: NDArray[np.float32] | None = None
        for start in range(0, len(order), _CHUNK):
            rows = order[start : start + _CHUNK]
            vectors = self._encode([texts[i] for i in rows], max_tokens)
            if matrix is None:
                matrix = np.empty((len(texts), vectors.shape[1]), dtype=np.float32)
            matrix[rows] = vectors
            if progress is not None:
                progress(min(start + _CHUNK, len(order)), len(order))
        if matrix is None:
            return self._encoder.encode([], max_tokens=max_tokens)
        self._save(path, card, matrix)
        return self._load(path, card, len(texts)) if path.exists() else matrix  # type: ignore[return-value]

    def _encode(self, texts: list[str], max_tokens: int | None) -> NDArray[np.float32]:
        start = time.perf_counter()
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        vectors = self._encoder.encode([texts[i] for i in order], max_tokens=max_tokens)
        out = np.empty_like(vectors)
        out[order] = vectors
        self.seconds += time.perf_counter() - start
        self.encoded += len(texts)
        return out

    def _lookup(self, keys: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        found: dict[str, NDArray[np.float32]] = {}
        try:
            for start in range(0, len(keys), 500):
                part = list(dict.fromkeys(keys[start : start + 500]))
                marks = ",".join("?" * len(part))
                rows = self._db.execute(
                    f"SELECT key, vector FROM texts WHERE key IN ({marks})",  # noqa: S608
                    part,
                )
                found.update({key: np.frombuffer(raw, dtype="<f4") for key, raw in rows})
        except sqlite3.Error as error:
            raise StoreError(f"embedding cache {self._folder}: {error}") from error
        return found

    def _insert(self, items: list[tuple[str, NDArray[np.float32]]]) -> None:
        try:
            with self._db:
                self._db.executemany(
                    "INSERT OR IGNORE INTO texts VALUES (?, ?)",
                    [(key, vector.astype("<f4").tobytes()) for key, vector in items],
                )
        except sqlite3.Error as error:
            raise StoreError(f"embedding cache {self._folder}: {error}") from error

    def _load(self, path: Path, card: Path, rows: int) -> NDArray[np.float32] | None:
        if not path.exists() or not card.exists():
            return None
        try:
            expected: dict[str, Any] = json.loads(card.read_text(encoding="utf-8"))
            matrix = np.load(path, mmap_mode="r", allow_pickle=False)
            good = (
                list(matrix.shape) == expected["shape"]
                and matrix.shape[0] == rows
                and matrix.dtype == np.float32
                and _checksum(matrix) == expected["sha256"]
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            _LOG.warning("%s is damaged and is encoded again: %s", path, error)
            return None
        if not good:
            _LOG.warning("%s does not fit its card and is encoded again", path)
            return None
        return matrix  # type: ignore[no-any-return]

    def _save(self, path: Path, card: Path, matrix: NDArray[np.float32]) -> None:
        temporary = path.with_name(f"{path.stem}.{os.getpid()}.tmp.npy")
        text = json.dumps({"shape": list(matrix.shape), "sha256": _checksum(matrix)})
        try:
            np.save(temporary, matrix, allow_pickle=False)
            temporary.replace(path)
            note = card.with_name(f"{card.stem}.{os.getpid()}.tmp.json")
            note.write_text(text, encoding="utf-8")
            note.replace(card)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error


def _checksum(matrix: NDArray[np.float32]) -> str:
    import hashlib

    return hashlib.sha256(np.ascontiguousarray(matrix).data).hexdigest()
