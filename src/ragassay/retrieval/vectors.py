"""Embeddings kept on disk, so that a second run encodes nothing.

A corpus is one matrix (:mod:`ragassay.retrieval.corpus_matrix`); single texts (questions,
poison, passages that a defense embeds) lie in one SQLite file. Whatever does not prove to be
whole is encoded again with a warning, never trusted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ragassay.canon import digest
from ragassay.errors import BackendError, RagassayError
from ragassay.plugins import Encoder
from ragassay.retrieval.corpus_matrix import Contents, CorpusMatrix, Progress, Storage, Stored
from ragassay.retrieval.rows import VectorRows, Vectors

MATRIX_VERSION = 1


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
        texts: Sequence[str],
        *,
        contents: Contents,
        fingerprint: str,
        max_tokens: int | None,
        storage: Storage = "float32",
        progress: Progress | None = None,
    ) -> Stored:
        """Return the matrix of a corpus, from disk where it is there and whole.

        Equal texts are encoded once and get equal rows. Other processes that want the same
        matrix wait for it. Where ``texts`` is read from disk as it is asked for, memory does
        not grow with the texts.

        Parameters
        ----------
        texts : sequence of str, length n
            In the order of the rows; asked for in slices.
        contents : Contents
            Digests of ids and texts.
        fingerprint : str
            Digest of the data set; together with the contents, it names the file.
        max_tokens : int or None
            The encoder's limit.
        storage : {"float32", "float16"}
            Number type on disk.
        progress : callable, optional
            Hears (distinct texts done, distinct texts in all).

        Returns
        -------
        ndarray of float32 or float16, shape (n, d)
            Memory-mapped and read-only.

        Raises
        ------
        BackendError
            The encoder fails, or a number does not fit float16.
        StoreError
            The folder cannot be written.
        """
        facts: dict[str, object] = {
            "v": MATRIX_VERSION,
            "encoder": self._identity,
            "max_tokens": max_tokens,
            "fingerprint": fingerprint,
            "ids": contents.ids,
            "texts": contents.texts,
        }
        if storage != "float32":
            facts["storage"] = storage
        matrix = CorpusMatrix(
            self._folder / f"{digest(facts)[:32]}.npy",
            facts=facts,
            texts=texts,
            storage=storage,
            encode=lambda parts: self._encode_parts(parts, max_tokens),
            progress=progress,
        )
        found = matrix.load_or_make()
        with self._counting:
            self.reused += matrix.reused
        return found

    def close(self) -> None:
        """Close the SQLite file. Closing twice does nothing."""
        self._rows.close()

    def _encode_parts(
        self, parts: Iterable[Sequence[str]], max_tokens: int | None
    ) -> Iterator[Vectors]:
        """Encode parts one by one, or side by side where the encoder knows how."""
        side_by_side = getattr(self._encoder, "encode_parts", None)
        if side_by_side is None:
            for part in parts:
                with self._encoding:
                    vectors = self._encode(part, max_tokens)
                yield vectors
            return
        sizes: deque[int] = deque()

        def noted() -> Iterator[Sequence[str]]:
            for part in parts:
                sizes.append(len(part))
                yield part

        found = side_by_side(noted(), max_tokens=max_tokens)
        while True:
            start = time.perf_counter()
            try:
                vectors = next(found)
            except StopIteration:
                return
            if not sizes:
                raise BackendError(f"encoder {self._identity} gave vectors that nobody asked for")
            size = sizes.popleft()
            with self._counting:
                self.encoded += size
                self.seconds += time.perf_counter() - start
            yield _checked(vectors, size, self._identity)

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
