"""Asks the model of a scorer: many threads, through the cache, and not for long in vain."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from ragassay.cluster.pool import Pool
from ragassay.errors import BackendError, BackendUnavailable, Interrupted
from ragassay.experiments.clients import client_of, threads_for
from ragassay.experiments.setup import Named
from ragassay.generation.cache import GenerationCache
from ragassay.generation.gather import ModelClient
from ragassay.plugins import ModelScorer
from ragassay.types import Generation, Request

CACHE_FILE = "generations.sqlite"
_FAILURES_IN_A_ROW = 10


class Asker:
    """Puts requests to a model; a failure of one is an outcome, not an exception.

    When the model cannot be reached at all, or fails ten times in a row, ``gone`` is set and
    every further request fails at once.

    Attributes
    ----------
    gone : bool
        Whether the model was given up.
    last_error : str
        What the last failed request failed with.
    """

    def __init__(self, client: ModelClient, cache: GenerationCache, workers: int) -> None:
        self._client = client
        self._cache = cache
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="scorer")
        self._lock = threading.Lock()
        self._failures = 0
        self.gone = False
        self.last_error = ""

    @property
    def calls(self) -> int:
        """Requests that were sent."""
        return self._client.calls

    @property
    def cached(self) -> int:
        """Requests that the cache answered."""
        return self._client.cached

    @property
    def input_tokens(self) -> int:
        """Tokens of the requests that were sent."""
        return self._client.input_tokens

    @property
    def output_tokens(self) -> int:
        """Tokens of the replies that were not in the cache."""
        return self._client.output_tokens

    def ask(self, requests: Sequence[Request]) -> list[Generation | BackendError]:
        """Answer each request, in order.

        Raises
        ------
        Interrupted
            The user stopped; replies that came are in the cache.
        """
        futures = [self._pool.submit(self._one, request) for request in requests]
        try:
            return [future.result() for future in futures]
        except KeyboardInterrupt:
            for future in futures:
                future.cancel()
            self._client.stop()
            raise Interrupted(
                "stopped; labels and replies that came are kept, the same command goes on from "
                "there"
            ) from None

    def __enter__(self) -> Asker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=error is None, cancel_futures=True)
        self._client.close()
        self._pool.shutdown(wait=True)
        self._cache.close()

    def _one(self, request: Request) -> Generation | BackendError:
        if self.gone:
            return BackendError(self.last_error, retryable=True)
        try:
            with self._client.worker():
                generation = self._client.ask([request])[0]
        except BackendError as error:
            with self._lock:
                self._failures += 1
                self.last_error = str(error)
                lost = isinstance(error, BackendUnavailable)
                self.gone = self.gone or lost or self._failures >= _FAILURES_IN_A_ROW
            return error
        with self._lock:
            self._failures = 0
        return generation


def asking(scorer: Named, cache: Path, workers: int = 0, pool: Pool | None = None) -> Asker:
    """Open the cache and get ready to ask a scorer's model; to be used in a ``with``.

    ``workers`` 0: 128 threads for a model that gathers requests, else 32; see
    :func:`~ragassay.experiments.clients.threads_for`.
    """
    instance: ModelScorer = scorer.instance
    store = GenerationCache(cache / CACHE_FILE)
    threads = workers or threads_for(instance.backend, pool)
    return Asker(client_of(instance.backend, store, pool), store, threads)
