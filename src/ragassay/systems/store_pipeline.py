"""The built-in pipeline over a real vector store: retrieve, defend, prompt, generate.

Retrieval, also of the poison, is the store's own, with its approximate search where it has
one. Everything after it is that of the aligned protocol: the same blinding of ids, the same
checks of a defense, the same prompt, the same cache of generations.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ragassay import plugins, prompts
from ragassay.canon import digest
from ragassay.config import MAX_K, PromptPart
from ragassay.errors import BackendError, ConfigError, PluginError
from ragassay.experiments.clients import cache_folder
from ragassay.experiments.trial import Bench, Job, run_trial
from ragassay.generation.cache import GenerationCache
from ragassay.generation.gather import ModelClient
from ragassay.plugins import Document, SystemAnswer, UsedPassage
from ragassay.plugins.systems import MARK
from ragassay.systems.locality import checked_url, is_local
from ragassay.types import Hit, Passage, Query, Sampling, TrialSpec

_FREE = {"identity": False}
_BATCH = 256
Vectors = NDArray[np.float32]


class VectorStore(Protocol):
    """What the pipeline needs of a store. Ids are the store's own."""

    def add(self, documents: Sequence[Document], vectors: Vectors) -> None:
        """Put documents in with their vectors, shape ``(n, d)``; an id replaces."""

    def search(self, vector: Vectors, k: int) -> list[tuple[Passage, float]]:
        """The k most similar by cosine, with their similarity; vector of shape ``(d,)``."""

    def delete(self, ids: Sequence[str]) -> None:
        """Delete; ids that are not there are no error."""

    def marked(self) -> frozenset[str]:
        """Ids of the marked documents."""

    def missing(self, ids: Sequence[str]) -> list[str]:
        """Which of these ids are not there."""

    def contents(self) -> Iterable[tuple[str, str]]:
        """Id and text of every document."""

    def close(self) -> None:
        """Let go of files and connections."""


class _Open:
    """What an open pipeline holds."""

    def __init__(self) -> None:
        self.stack = ExitStack()
        self.store: VectorStore | None = None
        self.client: ModelClient | None = None
        self.bench: Bench | None = None
        self.parts: _Parts | None = None


@dataclass(frozen=True, slots=True)
class _Parts:
    """The plug-ins of a pipeline, built."""

    encoder: Any
    generator: Any
    defense: Any
    defense_identity: str
    generator_identity: str


@dataclass(frozen=True, kw_only=True)
class StorePipeline(ABC):
    """The options of a pipeline over a vector store; see the stores."""

    path: str = field(default="", metadata=_FREE)
    url: str = field(default="", metadata=_FREE)
    collection: str = "ragassay"
    corpus: bool = False
    k: int = 5
    encoder: str = "minilm"
    encoder_options: dict[str, Any] = field(default_factory=dict)
    generator: str = "smollm2"
    generator_options: dict[str, Any] = field(default_factory=dict)
    defense: str = "none"
    defense_options: dict[str, Any] = field(default_factory=dict)
    template: str = "answer"
    max_tokens: int = 64
    settle_seconds: float = field(default=0.0, metadata=_FREE)
    _open: _Open = field(
        init=False, repr=False, compare=False, default_factory=_Open, metadata=_FREE
    )  # fmt: skip

    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.url):
            raise ConfigError(
                f"{self.kind} needs a path (embedded) or a url (a server): one of them"
            )
        if self.url:
            checked_url("url", self.url)
        if not 1 <= self.k <= MAX_K:
            raise ConfigError(f"k must be from 1 to {MAX_K}, got {self.k}")
        if self.max_tokens < 1:
            raise ConfigError(f"max_tokens must be at least 1, got {self.max_tokens}")
        if not self.collection:
            raise ConfigError("collection must be the name of a collection, got ''")
        wrong = prompts.load(self.template).slots ^ {"contexts", "question"}
        if wrong:
            raise ConfigError(
                f"template {self.template!r} must have the slots contexts and question; missing or "
                f"unknown: {sorted(wrong)}"
            )
        self._parts()

    @abstractmethod
    def connect(self) -> VectorStore:
        """Open the store."""

    @property
    def identity(self) -> str:
        """Everything that can change an answer; where the store lies does not count."""
        parts = self._parts()
        settings = [
            self.kind, self.collection, self.k, self.max_tokens, parts.encoder.identity,
            parts.generator_identity, parts.defense_identity, prompts.load(self.template).digest,
        ]  # fmt: skip
        return f"{self.kind}:{digest(settings)[:16]}"

    @property
    def local(self) -> bool:
        """Whether the store is on this machine."""
        return not self.url or is_local(self.url)

    @property
    def host(self) -> str:
        """The server's URL."""
        return self.url

    @property
    def store(self) -> VectorStore:
        """The store, opened when it is first needed."""
        if self._open.store is None:
            self._open.store = self.connect()
            self._open.stack.callback(self._open.store.close)
        return self._open.store

    def ingest(self, passages: Sequence[Document]) -> None:
        """Embed documents and put them in."""
        for start in range(0, len(passages), _BATCH):
            some = passages[start : start + _BATCH]
            self.store.add(some, self._encode([each.text for each in some]))

    def prepare(self, corpus: Sequence[Passage]) -> None:
        """With ``corpus`` put the passages of the data set in that are not there yet."""
        if not self.corpus:
            return
        documents = {store_id(each.id): each for each in corpus}
        missing = set(self.store.missing(list(documents)))
        self.ingest(
            [
                Document(id=name, text=each.text, title=each.title, metadata={"name": each.id})
                for name, each in documents.items()
                if name in missing
            ]
        )

    def ask(self, question: str) -> SystemAnswer:
        """Retrieve, let the defense decide, and generate.

        Raises
        ------
        BackendError
            The model or the store failed.
        """
        found = self.store.search(self._encode([question])[0], self.k)
        found.sort(key=lambda each: (-each[1], each[0].id))
        hits = tuple(
            Hit(passage=passage, rank=rank, score=score)
            for rank, (passage, score) in enumerate(found, start=1)
        )
        client, bench = self._bench()
        query = Query(id=digest(question)[:16], text=question, group="")
        job = self._job(query, hits)
        with client.worker():
            record = run_trial(job, bench)
        if record.status != "done" or record.answer is None:
            raise BackendError(record.error)
        texts = {hit.passage.id: hit.passage.text for hit in hits}
        used = tuple(
            UsedPassage(id=each.id, text=texts[each.id], score=each.score, kept=each.kept)
            for each in record.context
        )
        return SystemAnswer(text=record.answer, used=used, declined=record.declined)

    def remove(self, ids: Sequence[str]) -> None:
        """Delete documents by id."""
        if ids:
            self.store.delete(list(ids))

    def reset(self) -> None:
        """Delete all that is marked."""
        self.remove(sorted(self.marked()))

    def marked(self) -> frozenset[str]:
        """Ids of the marked documents."""
        return self.store.marked()

    def close(self) -> None:
        """Close store and model."""
        self._open.stack.close()
        self._open.store, self._open.client, self._open.bench = None, None, None

    # ----------------------------------------------------------------------------- internals

    def _encode(self, texts: Sequence[str]) -> Vectors:
        vectors = np.asarray(self._parts().encoder.encode(list(texts)), dtype=np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)

    def _job(self, query: Query, hits: tuple[Hit, ...]) -> Job:
        parts = self._parts()
        spec = TrialSpec(
            protocol=f"{self.kind}/{self.version}", dataset="", query_id=query.id,
            question=query.text, attack="", budget=0,
            poison=digest([[hit.passage.text, hit.score] for hit in hits]), retriever=self.kind,
            defense=parts.defense_identity, defense_label=self.defense, prompt=self.template,
            generator=parts.generator_identity, sampling=Sampling(max_tokens=self.max_tokens),
            seed=0,
        )  # fmt: skip
        return Job(
            key=digest(spec), spec=spec, query=query, context=hits, owner={}, gold=frozenset(),
            defense=parts.defense,
        )  # fmt: skip

    version: ClassVar[str] = "1"

    def _bench(self) -> tuple[ModelClient, Bench]:
        if self._open.client is None or self._open.bench is None:
            cache = GenerationCache(cache_folder() / "generations.sqlite")
            self._open.stack.callback(cache.close)
            client = ModelClient(self._parts().generator, cache)
            self._open.stack.callback(client.close)
            self._open.client = client
            self._open.bench = Bench(
                model=client,
                embed=self._encode,
                template=prompts.load(self.template),
                prompt=PromptPart(template=self.template),
                sampling=Sampling(max_tokens=self.max_tokens),
                seed=0,
                k=self.k,
            )
        return self._open.client, self._open.bench

    def _parts(self) -> _Parts:
        if self._open.parts is not None:
            return self._open.parts
        encoder, _ = _built("encoder", self.encoder, self.encoder_options)
        generator, generator_identity = _built("generator", self.generator, self.generator_options)
        defense, defense_identity = _built("defense", self.defense, self.defense_options)
        if isinstance(defense, plugins.Fitted) or getattr(defense, "reads_language_model", False):
            raise ConfigError(
                f"defense {self.defense!r} is calibrated, or reads with a language model; only the "
                'aligned protocol offers that (protocol = "aligned")'
            )
        if getattr(defense, "expand", 1) != 1:
            raise ConfigError(f"defense {self.defense!r} asks for more passages than k; not here")
        parts = _Parts(encoder, generator, defense, defense_identity, generator_identity)
        self._open.parts = parts
        return parts


def store_id(name: str) -> str:
    """The id of a passage of the data set in a store: a UUID, as all stores take."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"ragassay/{name}"))


def document_of(name: str, text: str, metadata: Mapping[str, Any]) -> Passage:
    """What the pipeline sees of a stored document: the data set's own id where it has one."""
    own = metadata.get("name")
    poison = bool(metadata.get(MARK))
    return Passage(
        id=own if isinstance(own, str) and own and not poison else name,
        text=text,
        title=str(metadata.get("title") or ""),
    )


def _built(kind: plugins.Kind, name: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    found = plugins.find(kind, name)
    instance = plugins.build(found, options)
    own = getattr(instance, "identity", None)
    try:
        identity = own if isinstance(own, str) else plugins.identity(found, instance)
    except TypeError as error:
        raise PluginError(f"{kind} {name!r}: {error}") from error
    return instance, identity
