"""The language model that reads passages for defenses: losses of tokens, each text scored once.

A text goes through the model alone, so that its losses depend on nothing but itself: not on
the worker that asked, nor on what else was asked. They are kept in one SQLite file under a
digest of model and text, for all runs and processes.

Texts longer than the model's window (1,024 tokens at most) are read in windows that move on by
half a window; each token is scored in the first window that holds it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragassay.cache_file import CacheFile
from ragassay.canon import digest
from ragassay.plugins.access import Ids, WhiteBoxLM

SCHEMA_VERSION = 1
WINDOW = 1024  # tokens, unless the model takes fewer
_GROUP = 16  # texts between two writes
_COLUMNS = "digest TEXT PRIMARY KEY, identity TEXT NOT NULL, nll BLOB NOT NULL"

Losses = NDArray[np.float64]


class ReadingModel:
    """A language model that scores texts through a cache, from any number of threads.

    Parameters
    ----------
    identity : str
        Everything about the model that can change a loss.
    open_model : callable
        Loads the model; called once, when a text is not in the cache.
    cache : Path
        The SQLite file; it and its folder are made where absent.

    Attributes
    ----------
    scored : int
        Texts that really went through the model.
    seconds : float
        Wall time that they took, the loading included.
    """

    def __init__(self, identity: str, open_model: Callable[[], WhiteBoxLM], cache: Path) -> None:
        self.identity = identity
        self.scored = 0
        self.seconds = 0.0
        self._open = open_model
        self._store = _LossStore(cache)
        self._lock = threading.RLock()
        self._model: WhiteBoxLM | None = None

    def token_nll(
        self, texts: Sequence[str], check: Callable[[], None] = lambda: None
    ) -> list[Losses]:
        """Score texts.

        Parameters
        ----------
        texts : sequence of str
        check : callable
            Called before each text that the model has to read; raises to stop.

        Returns
        -------
        list of ndarray of float64
            For each text the negative log-likelihood (natural logarithm) of its tokens but the
            first, in order: one fewer than it has tokens, and none for a text without tokens.

        Raises
        ------
        BackendError
            The model cannot be loaded or fails.
        StoreError
            The cache cannot be read or written.
        """
        keys = [digest(["token_nll", SCHEMA_VERSION, self.identity, text]) for text in texts]
        found = self._store.get_many(keys)
        if len(found) < len(set(keys)):
            with self._lock:
                missing = {k: t for k, t in zip(keys, texts, strict=True) if k not in found}
                found |= self._store.get_many(list(missing))  # by another thread, meanwhile
                found |= self._score({k: t for k, t in missing.items() if k not in found}, check)
        return [found[key] for key in keys]

    def halves(self, texts: Sequence[str]) -> list[tuple[str, str]]:
        """Cut each text at the middle of its tokens; the first part has the odd one.

        Raises
        ------
        BackendError
            The model cannot be loaded.
        """
        with self._lock:
            model = self._loaded()
            ids = [model.tokenize(text) for text in texts]
        middles = [(len(each) + 1) // 2 for each in ids]
        return [
            (model.decode(each[:middle]), model.decode(each[middle:]))
            for each, middle in zip(ids, middles, strict=True)
        ]

    def close(self) -> None:
        """Close the cache. Closing twice does nothing."""
        self._store.close()

    def _loaded(self) -> WhiteBoxLM:
        if self._model is None:
            self._model = self._open()
        return self._model

    def _score(self, missing: dict[str, str], check: Callable[[], None]) -> dict[str, Losses]:
        if not missing:
            return {}
        start = time.perf_counter()
        model = self._loaded()
        done: dict[str, Losses] = {}
        fresh: dict[str, Losses] = {}
        try:
            for key, text in missing.items():
                check()
                fresh[key] = token_losses(model, model.tokenize(text))
                if len(fresh) == _GROUP:
                    done |= self._keep(fresh)
                    fresh = {}
        finally:
            done |= self._keep(fresh)
            self.seconds += time.perf_counter() - start
        return done

    def _keep(self, fresh: dict[str, Losses]) -> dict[str, Losses]:
        if not fresh:
            return {}
        self.scored += len(fresh)
        self._store.put_many(fresh, self.identity)
        # What is in the file counts, also where another process was faster.
        return self._store.get_many(list(fresh))


def token_losses(model: WhiteBoxLM, ids: Ids) -> Losses:
    """Negative log-likelihood of all tokens but the first, shape (max(len(ids) - 1, 0),).

    Parameters
    ----------
    model : WhiteBoxLM
        Where it has an attribute ``window``, no more tokens than that are read at once.
    ids : tuple of int
        No begin-of-text token is added.

    References
    ----------
    The strided evaluation that is usual for GPT-2; see the module's description.
    """
    window = min(WINDOW, int(getattr(model, "window", WINDOW)))
    parts, done = [], 1
    for begin in range(0, max(len(ids) - 1, 0), max(window // 2, 1)):
        end = min(begin + window, len(ids))
        part = tuple(ids[begin:end])
        parts.append(model.logprob(part[: done - begin], part[done - begin :]))
        done = end
        if end == len(ids):
            break
    if not parts:
        return np.zeros(0)
    return 0.0 - np.concatenate(parts).astype(np.float64)


class _LossStore:
    """One SQLite file of float32 losses, safe to share between threads and processes."""

    def __init__(self, path: Path) -> None:
        self._file = CacheFile(
            path, what="cache of token losses", table="token_nll", columns=_COLUMNS,
            version=SCHEMA_VERSION,
        )  # fmt: skip
        self.close = self._file.close

    def get_many(self, keys: Sequence[str]) -> dict[str, Losses]:
        with self._file.reading() as db:
            rows = db.execute(
                "SELECT digest, nll FROM token_nll WHERE digest IN "
                "(SELECT value FROM json_each(?))",
                (json.dumps(sorted(set(keys))),),
            ).fetchall()
        return {key: np.frombuffer(nll, dtype="<f4").astype(np.float64) for key, nll in rows}

    def put_many(self, losses: dict[str, Losses], identity: str) -> None:
        rows = [(key, identity, nll.astype("<f4").tobytes()) for key, nll in losses.items()]
        with self._file.writing() as db:
            db.executemany("INSERT INTO token_nll VALUES (?, ?, ?) ON CONFLICT DO NOTHING", rows)
