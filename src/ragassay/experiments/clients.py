"""What a run opens: the cache of generations, one client per model, an index per arm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ragassay.data.corpus_file import cache_folder as cache_folder
from ragassay.experiments.monitor import Monitor
from ragassay.experiments.opened_models import OpenedModels
from ragassay.experiments.setup import Arm, Named, Setup, Victim
from ragassay.generation.cache import GenerationCache
from ragassay.generation.gather import ModelClient
from ragassay.plugins import Index


@contextmanager
def open_index(setup: Setup, arm: Arm, cache: Path, monitor: Monitor) -> Iterator[Index]:
    """Index the corpus for an arm, or load what an earlier run left; closed on leaving."""
    index = arm.retriever.instance.index(
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

    ``opened`` are the models that defenses look into.
    """

    store: GenerationCache
    own_helper: Named
    opened: OpenedModels
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
    def seconds(self) -> float:
        """Wall time in all models."""
        return sum(client.seconds for client in self.open_ones.values())

    def _client(self, part: Named) -> ModelClient:
        client = self.open_ones.get(part.identity)
        if client is None:
            client = self.open_ones[part.identity] = ModelClient(part.instance, self.store)
        return client


@contextmanager
def open_clients(setup: Setup, cache: Path) -> Iterator[Clients]:
    """Open the cache of generations; models are opened on first use, all closed on leaving."""
    clients = Clients(
        GenerationCache(cache / "generations.sqlite"),
        setup.helper,
        OpenedModels(setup.language_model, cache),
    )
    try:
        yield clients
    finally:
        for client in clients.open_ones.values():
            client.close()
        clients.opened.close()
        clients.store.close()
