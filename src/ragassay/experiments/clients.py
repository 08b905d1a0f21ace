"""What a run opens: the cache of generations, one client per model, an index per arm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ragassay.cluster.pool import Pool
from ragassay.cluster.ray_workers import ray_pool
from ragassay.cluster.remote import RemoteEncoder, RemoteGenerator
from ragassay.config import RunPart
from ragassay.data.corpus_file import cache_folder as cache_folder
from ragassay.experiments.monitor import Monitor
from ragassay.experiments.opened_models import OpenedModels
from ragassay.experiments.setup import Arm, Named, Setup, Victim
from ragassay.generation.cache import GenerationCache
from ragassay.generation.gather import WAVE, ModelClient
from ragassay.plugins import Generator, Index

_ASKING_ENGINES, _ASKING_SERVERS, _MOST_THREADS = 128, 32, 1024


@contextmanager
def open_pool(run: RunPart, monitor: Monitor) -> Iterator[Pool | None]:
    """Connect to the workers that ``[run]`` asks for, None without; they end on leaving.

    Raises
    ------
    BackendUnavailable
        Ray is not installed, or no cluster answers.
    ConfigError
        No node of the cluster has room for a worker.
    """
    if run.executor == "local":
        yield None
        return
    monitor.stage("connecting to Ray")
    with ray_pool(
        address=run.ray_address, workers=run.ray_workers, cpus=run.ray_cpus, gpus=run.ray_gpus
    ) as pool:
        yield pool


@contextmanager
def open_index(
    setup: Setup, arm: Arm, cache: Path, monitor: Monitor, pool: Pool | None = None
) -> Iterator[Index]:
    """Index the corpus for an arm, or load what an earlier run left; closed on leaving.

    With a pool, a retriever that can be spread (``dense``) has its texts embedded there.
    """
    retriever = arm.retriever.instance
    spread = getattr(retriever, "spread", None)
    if pool is not None and spread is not None:
        workers = pool
        retriever = spread(lambda encoder: RemoteEncoder(encoder, workers))
    index = retriever.index(
        setup.dataset.corpus,
        fingerprint=setup.corpus_fingerprint,
        cache_dir=cache,
        progress=monitor.progress,
    )
    try:
        yield index
    finally:
        close = getattr(index, "close", None)
        if close is not None:
            close()


@dataclass(slots=True)
class Clients:
    """One client per model, opened when first asked for; all share one cache.

    ``opened`` are the models that defenses look into. With a ``pool``, the models that gather
    requests, which are those that run in a process, answer there; servers are asked from here.
    """

    store: GenerationCache
    own_helper: Named
    opened: OpenedModels
    pool: Pool | None = None
    open_ones: dict[str, ModelClient] = field(default_factory=dict)

    @property
    def helper(self) -> ModelClient:
        """The attackers' own model."""
        return self._client(self.own_helper)

    def of(self, victim: Victim) -> ModelClient:
        """A victim's model."""
        return self._client(victim.generator)

    @property
    def calls(self) -> int:
        """Requests sent to all models."""
        return sum(client.calls for client in self.open_ones.values())

    @property
    def input_tokens(self) -> int:
        """Tokens of the requests sent to all models."""
        return sum(client.input_tokens for client in self.open_ones.values())

    @property
    def output_tokens(self) -> int:
        """Tokens of their answers."""
        return sum(client.output_tokens for client in self.open_ones.values())

    @property
    def seconds(self) -> float:
        """Wall time in all models."""
        return sum(client.seconds for client in self.open_ones.values())

    def _client(self, part: Named) -> ModelClient:
        client = self.open_ones.get(part.identity)
        if client is None:
            client = client_of(part.instance, self.store, self.pool)
            self.open_ones[part.identity] = client
        return client


def client_of(generator: Generator, store: GenerationCache, pool: Pool | None) -> ModelClient:
    """A client that asks a generator, on the workers of a pool where that makes sense."""
    if pool is None or not generator.gathers:
        return ModelClient(generator, store)
    remote = RemoteGenerator(generator, pool)
    return ModelClient(remote, store, wave=max(WAVE, remote.wave))


@contextmanager
def open_model(generator: Generator, run: RunPart, monitor: Monitor) -> Iterator[ModelClient]:
    """A client of one model outside of a run, on the workers of ``[run]`` where that makes sense.

    Raises
    ------
    BackendUnavailable, ConfigError
        As :func:`open_pool`, which is not needed for a server.
    """
    with ExitStack() as opened:
        pool = opened.enter_context(open_pool(run, monitor)) if generator.gathers else None
        store = GenerationCache(cache_folder() / "generations.sqlite")
        opened.callback(store.close)
        client = client_of(generator, store, pool)
        opened.callback(client.close)
        yield client


def threads_for(generator: Generator, pool: Pool | None) -> int:
    """How many threads ask a model: enough to fill its batches, on every worker of a pool."""
    if not generator.gathers:
        return _ASKING_SERVERS
    return _ASKING_ENGINES if pool is None else min(_MOST_THREADS, _ASKING_ENGINES * pool.size)


@contextmanager
def open_clients(setup: Setup, cache: Path, pool: Pool | None = None) -> Iterator[Clients]:
    """Open the cache of generations; models are opened on first use, all closed on leaving."""
    clients = Clients(
        GenerationCache(cache / "generations.sqlite"),
        setup.helper,
        OpenedModels(setup.language_model, cache),
        pool,
    )
    try:
        yield clients
    finally:
        for client in clients.open_ones.values():
            client.close()
        clients.opened.close()
        clients.store.close()
