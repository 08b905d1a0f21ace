"""Embeddings kept on disk, so that a second run encodes nothing.

A corpus is one float32 matrix in a ``.npy`` file beside a small ``.json`` file that says what
it is; single texts (questions, poison, passages that a defense embeds) lie in one SQLite file.
Whatever does not prove to be whole is encoded again with a warning, never trusted. A corpus is
encoded in parts that are kept until the matrix is written, so that an interrupted run does not
start from the beginning.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from filelock import FileLock

from ragassay.canon import digest, dumps
from ragassay.errors import BackendError, RagassayError, StoreError
from ragassay.plugins import Encoder
from ragassay.retrieval.rows import VectorRows, Vectors, disk_errors

MATRIX_VERSION = 1
PART_SIZE = 1_024
_LOG = logging.getLogger(__name__)
Progress = Callable[[int, int], None]


class EmbeddingStore:
    """The embeddings of one encoder, shared by threads and processes.

    Parameters
    ----------
    cache_dir : Path
        Folder of all caches; ``embeddings.sqlite`` and ``embeddings/`` are made in it.
    encoder : Encoder
        What embeds a text that is not there yet; called by one thread at a time.
    identity : str, optional
        What the embeddings are filed under; the encoder's own identity if absent.

    Attributes
    ----------
    encoded : int
        Texts that the encoder was really given.
    reused : int
        Texts whose vector was on disk.
    seconds : float
        Wall time inside the encoder.

    Raises
    ------
    StoreError
        The SQLite file is none, is of a newer format, or cannot be written.
    """

    def __init__(self, cache_dir: Path, encoder: Encoder, *, identity: str = "") -> None:
        self.encoded = 0
        self.reused = 0
        self.seconds = 0.0
        self._encoder = encoder
        self._identity = identity or encoder.identity
        self._folder = Path(cache_dir) / "embeddings"
        self._encoding = threading.Lock()
        self._counting = threading.Lock()
        self._rows = VectorRows(Path(cache_dir) / "embeddings.sqlite")

    def embed(self, texts: Sequence[str], *, max_tokens: int | None) -> Vectors:
        """Embed single texts, encoding only those that are not on disk.

        Parameters
        ----------
        texts : sequence of str, length n
        max_tokens : int or None
            The encoder's limit; part of the key.

        Returns
        -------
        ndarray of float32, shape (n, d)

        Raises
        ------
        BackendError
            The encoder fails, or returns something else than n finite vectors.
        StoreError
            The SQLite file cannot be read or written.
        """
        if not texts:
            return _checked(self._encoder.encode([], max_tokens=max_tokens), 0, self._identity)
        keys = [digest([self._identity, max_tokens, text]) for text in texts]
        by_key = dict(zip(keys, texts, strict=True))
        found = self._rows.get(list(by_key))
        reused = len(found)
        if len(found) < len(by_key):
            with self._encoding:
                # another thread may have encoded the same texts in the meantime
                found |= self._rows.get([key for key in by_key if key not in found])
                reused = len(found)
                missing = [key for key in by_key if key not in found]
                if missing:
                    vectors = self._encode([by_key[key] for key in missing], max_tokens)
                    found |= self._rows.put(dict(zip(missing, vectors, strict=True)))
        with self._counting:
            self.reused += reused
        return np.stack([found[key] for key in keys])

    def corpus_matrix(
        self,
        ids: Sequence[str],
        texts: Sequence[str],
        *,
        fingerprint: str,
        max_tokens: int | None,
        progress: Progress | None = None,
    ) -> Vectors:
        """Return the matrix of a corpus, from disk where it is there and whole.

        Equal texts are encoded once and get equal rows. Other processes that want the same
        matrix wait for it.

        Parameters
        ----------
        ids, texts : sequence of str, length n
            In the order of the rows.
        fingerprint : str
            Digest of the data set; together with the texts, it names the file.
        max_tokens : int or None
            The encoder's limit.
        progress : callable, optional
            Hears (distinct texts done, distinct texts in all).

        Returns
        -------
        ndarray of float32, shape (n, d)
            Memory-mapped and read-only.

        Raises
        ------
        BackendError
            The encoder fails.
        StoreError
            The folder cannot be written.
        """
        facts: dict[str, object] = {
            "v": MATRIX_VERSION,
            "encoder": self._identity,
            "max_tokens": max_tokens,
            "fingerprint": fingerprint,
            "ids": _digest_of(ids),
            "texts": _digest_of(texts),
        }
        path = self._folder / f"{digest(facts)[:32]}.npy"
        with disk_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            with FileLock(path.with_suffix(".lock")):
                matrix = _load_matrix(path, facts, len(texts))
                if matrix is None:
                    distinct = sorted(set(texts), key=lambda text: (len(text), text))
                    parts = self._parts(path, distinct, max_tokens, progress)
                    _write_matrix(path, facts, texts, distinct, parts)
                    matrix = _load_matrix(path, facts, len(texts))
                    for part in self._folder.glob(f"{path.stem}-*.part"):
                        part.unlink(missing_ok=True)
                else:
                    with self._counting:
                        self.reused += len(texts)
                    if progress is not None:
                        progress(len(texts), len(texts))
        if matrix is None:
            raise StoreError(f"{path} cannot be read back after writing; is the disk full?")
        return matrix

    def close(self) -> None:
        """Close the SQLite file. Closing twice does nothing."""
        self._rows.close()

    def _parts(
        self, path: Path, distinct: Sequence[str], max_tokens: int | None, progress: Progress | None
    ) -> Iterator[Vectors]:
        for number, start in enumerate(range(0, len(distinct), PART_SIZE)):
            texts = distinct[start : start + PART_SIZE]
            part = path.with_name(f"{path.stem}-{number}.part")
            vectors = _read_part(part, len(texts))
            if vectors is None:
                with self._encoding:
                    vectors = self._encode(texts, max_tokens)
                payload = vectors.astype("<f4").tobytes()
                _replace(part, hashlib.sha256(payload).digest() + payload)
            else:
                with self._counting:
                    self.reused += len(texts)
            if progress is not None:
                progress(start + len(texts), len(distinct))
            yield vectors

    def _encode(self, texts: Sequence[str], max_tokens: int | None) -> Vectors:
        start = time.perf_counter()
        try:
            vectors = self._encoder.encode(list(texts), max_tokens=max_tokens)
        except RagassayError:
            raise
        except Exception as error:  # a user's encoder may raise anything
            raise BackendError(
                f"encoder {self._identity} failed: {type(error).__name__}: "
                f"{' '.join(str(error).split())[:300]}"
            ) from error
        spent = time.perf_counter() - start
        with self._counting:
            self.encoded += len(texts)
            self.seconds += spent
        return _checked(vectors, len(texts), self._identity)


# ---------------------------------------------------------------------------- corpus matrices


def _load_matrix(path: Path, facts: dict[str, object], rows: int) -> Vectors | None:
    """Map a matrix that is what it should be; otherwise None, with a warning if it is there."""
    sidecar = path.with_suffix(".json")
    if not path.exists() and not sidecar.exists():
        return None
    try:
        said = json.loads(sidecar.read_text(encoding="utf-8"))
        matrix: Vectors = np.load(path, mmap_mode="r", allow_pickle=False)
        expected = {**facts, "shape": list(matrix.shape), "sha256": _sha256(path)}
    except (OSError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split())[:200]
    else:
        if said == expected and matrix.dtype == np.float32 and matrix.shape[0] == rows:
            return matrix
        reason = "its contents are not those that its .json file states"
    _LOG.warning("%s is encoded again: %s", path, reason)
    return None


def _write_matrix(
    path: Path,
    facts: dict[str, object],
    texts: Sequence[str],
    distinct: Sequence[str],
    parts: Iterator[Vectors],
) -> None:
    positions: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        positions.setdefault(text, []).append(row)
    temporary = path.with_suffix(".tmp")
    matrix: np.memmap[tuple[int, ...], np.dtype[np.float32]] | None = None
    start = 0
    for vectors in parts:
        if matrix is None:
            matrix = np.lib.format.open_memmap(
                temporary, mode="w+", dtype=np.float32, shape=(len(texts), vectors.shape[1])
            )
        for text, vector in zip(distinct[start:], vectors, strict=False):
            matrix[positions[text]] = vector
        start += len(vectors)
    if matrix is None:
        raise ValueError("a corpus matrix needs at least one text")
    shape = list(matrix.shape)
    matrix.flush()
    del matrix
    _sync(temporary)
    stated = {**facts, "shape": shape, "sha256": _sha256(temporary)}
    temporary.replace(path)
    _replace(path.with_suffix(".json"), (dumps(stated) + "\n").encode("utf-8"))


def _read_part(path: Path, rows: int) -> Vectors | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    payload = content[32:]
    if hashlib.sha256(payload).digest() != content[:32] or not payload or len(payload) % (4 * rows):
        _LOG.warning("%s is damaged and is encoded again", path)
        return None
    return np.frombuffer(payload, dtype="<f4").astype(np.float32).reshape(rows, -1)


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    _sync(temporary)
    temporary.replace(path)


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(texts: Sequence[str]) -> str:
    """Digest a sequence of texts, however large, without a copy of it."""
    state = hashlib.sha256()
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        state.update(b"%d:" % len(content))
        state.update(content)
    return state.hexdigest()


def _checked(vectors: Vectors, rows: int, identity: str) -> Vectors:
    """Refuse what is no finite float matrix with one row a text."""
    array = np.asarray(vectors, dtype=np.float32)
    if array.ndim != 2 or array.shape[0] != rows or array.shape[1] == 0:
        raise BackendError(
            f"encoder {identity}: expected {rows} vectors, got an array of shape {array.shape}"
        )
    if not np.isfinite(array).all():
        bad = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise BackendError(f"encoder {identity}: the vector of text {bad + 1} is not finite")
    return array
