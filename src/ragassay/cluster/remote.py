"""Stand-ins for an encoder and a local language model whose work is done by a pool of workers.

They have the identity of what they stand for, so that caches and keys know no difference. The
parts that are sent do not depend on the number of workers: a text, or a request, has the same
companions whoever does the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.cluster.parcel import pack
from ragassay.cluster.pool import Pool, Task
from ragassay.cluster.worker import Failed
from ragassay.errors import BackendError
from ragassay.plugins import Encoder, Generator
from ragassay.types import Generation, Request

PART_OF_TEXTS = 1_024
LEAST_REQUESTS = 32


class RemoteEncoder:
    """An encoder whose texts are embedded by workers.

    Parameters
    ----------
    encoder : Encoder
        What it stands for; it is packed, and never loaded here by this class.
    pool : Pool
        Where the texts go.
    """

    def __init__(self, encoder: Encoder, pool: Pool) -> None:
        self._parcel = pack("encoder", encoder)
        self._pool = pool

    @property
    def identity(self) -> str:
        """That of the encoder."""
        return self._parcel.identity

    def encode(self, texts: Sequence[str], *, max_tokens: int | None = None) -> NDArray[np.float32]:
        """Embed texts in parts of 1,024: shape (n, d).

        Raises
        ------
        BackendError
            The encoder fails, or a part was lost too often.
        """
        parts = [texts[at : at + PART_OF_TEXTS] for at in range(0, len(texts), PART_OF_TEXTS)]
        found = list(self.encode_parts(parts or [[]], max_tokens=max_tokens))
        return found[0] if len(found) == 1 else np.concatenate(found)

    def encode_parts(
        self, parts: Iterable[Sequence[str]], *, max_tokens: int | None = None
    ) -> Iterator[NDArray[np.float32]]:
        """Embed several parts side by side, each as one call; vectors come in their order."""
        tasks = (
            Task(
                method="encode",
                arguments=(self._parcel, list(part), max_tokens),
                what=f"{len(part):,} texts for encoder {self.identity}",
            )
            for part in parts
        )
        for found in self._pool.in_order(tasks):
            yield np.asarray(_value(found), dtype=np.float32)


class RemoteGenerator:
    """A local language model whose requests are answered by workers.

    Parameters
    ----------
    generator : Generator
        What it stands for: one that gathers requests. It is packed, and never loaded here by
        this class.
    pool : Pool
        Where the requests go.

    Attributes
    ----------
    wave : int
        How many requests keep all workers busy.
    """

    gathers = True

    def __init__(self, generator: Generator, pool: Pool) -> None:
        self._parcel = pack("generator", generator)
        self._pool = pool
        lanes = getattr(generator, "batch_size", 0)
        self._part = max(LEAST_REQUESTS, lanes if isinstance(lanes, int) else 0)
        self.wave = 2 * self._part * pool.size
        self._running: set[Future[Any]] = set()

    @property
    def identity(self) -> str:
        """That of the generator."""
        return self._parcel.identity

    def generate(self, requests: Sequence[Request]) -> list[Generation | BackendError]:
        """Answer each request, in order; a failed one is returned, not raised."""
        answers = dict(self.generate_iter(requests))
        return [answers[position] for position in range(len(requests))]

    def generate_iter(
        self, requests: Sequence[Request]
    ) -> Iterator[tuple[int, Generation | BackendError]]:
        """Yield ``(position, answer)`` as parts of the requests get done.

        Raises
        ------
        BackendUnavailable
            No worker can be started, or the model is not there.
        """
        starts = {}
        for start in range(0, len(requests), self._part):
            some = list(requests[start : start + self._part])
            task = Task(
                method="generate",
                arguments=(self._parcel, some),
                what=f"{len(some)} requests for generator {self.identity}",
            )
            starts[self._pool.submit(task)] = range(start, start + len(some))
        self._running |= starts.keys()
        try:
            for future in as_completed(starts):
                yield from zip(
                    starts[future], self._outcomes(future, len(starts[future])), strict=True
                )
        finally:
            self._running -= starts.keys()
            self._pool.abandon(starts)

    def cancel(self) -> None:
        """Make running calls return soon."""
        self._pool.abandon(list(self._running))

    def _outcomes(self, future: Future[Any], count: int) -> list[Generation | BackendError]:
        try:
            found = _value(future.result())
        except BackendError as error:
            return [error] * count
        if not isinstance(found, list) or len(found) != count:
            what = f"{len(found)} results" if isinstance(found, list) else type(found).__name__
            wrong = f"generator {self.identity} returned {what} for {count} requests"
            return [BackendError(wrong)] * count
        return [one.error() if isinstance(one, Failed) else one for one in found]


def _value(found: Any) -> Any:
    if isinstance(found, Failed):
        raise found.error()
    return found
