"""The built-in pipeline over Chroma, embedded or a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ragassay.errors import BackendUnavailable
from ragassay.plugins import Document
from ragassay.plugins.systems import MARK
from ragassay.systems.store_pipeline import StorePipeline, Vectors, VectorStore, document_of
from ragassay.types import Passage

_BATCH = 1000


@dataclass(frozen=True, kw_only=True)
class ChromaPipeline(StorePipeline):
    """The built-in pipeline over a Chroma collection.

    Parameters
    ----------
    path, url : str
        A folder for Chroma in this process, or the address of a Chroma server; one of them.
    collection : str
        Name of the collection; made where it is not there.
    corpus : bool
        Put the passages of the data set in that are not there yet. They stay.
    k : int
        Passages retrieved.
    encoder, encoder_options : str, dict
        What embeds documents and questions; for a collection that is there already, what it was
        filled with.
    generator, generator_options, max_tokens : str, dict, int
        The model that answers, decoded greedily, and its longest answer.
    defense, defense_options : str, dict
        What stands between retrieval and model; not one that is calibrated.
    template : str
        The prompt.
    settle_seconds : float
        How long a server may take until what was written shows.
    """

    kind = "chroma"

    def connect(self) -> VectorStore:
        """Open the collection."""
        try:
            import chromadb
            from chromadb.config import Settings
        except ImportError as error:
            raise BackendUnavailable(
                "chroma needs chromadb: pip install 'ragassay[chroma]'"
            ) from error
        settings = Settings(anonymized_telemetry=False)
        if self.path:
            client: Any = chromadb.PersistentClient(path=self.path, settings=settings)
        else:
            parts = urlsplit(self.url)
            secure = parts.scheme == "https"
            client = chromadb.HttpClient(
                host=parts.hostname or "", port=parts.port or (443 if secure else 8000),
                ssl=secure, settings=settings,
            )  # fmt: skip
        collection = client.get_or_create_collection(
            self.collection,
            configuration={"hnsw": {"space": "cosine", "ef_search": 200}},
            embedding_function=None,
        )
        return ChromaStore(client, collection)


class ChromaStore:
    """A Chroma collection as the pipeline needs it."""

    def __init__(self, client: Any, collection: Any) -> None:
        self._client = client
        self._collection = collection

    def add(self, documents: Sequence[Document], vectors: Vectors) -> None:
        """Put documents in."""
        for start in range(0, len(documents), _BATCH):
            some = documents[start : start + _BATCH]
            self._collection.upsert(
                ids=[each.id for each in some],
                embeddings=vectors[start : start + _BATCH],
                documents=[each.text for each in some],
                metadatas=[{**each.metadata, "title": each.title} for each in some],
            )

    def search(self, vector: Vectors, k: int) -> list[tuple[Passage, float]]:
        """The most similar documents."""
        found = self._collection.query(
            query_embeddings=[vector], n_results=k,
            include=["documents", "metadatas", "distances"],
        )  # fmt: skip
        columns = (found["ids"][0], found["documents"][0], found["metadatas"][0],
                   found["distances"][0])  # fmt: skip
        return [
            (document_of(name, text or "", metadata or {}), 1.0 - float(distance))
            for name, text, metadata, distance in zip(*columns, strict=True)
        ]

    def delete(self, ids: Sequence[str]) -> None:
        """Delete what is there."""
        for start in range(0, len(ids), _BATCH):
            self._collection.delete(ids=list(ids[start : start + _BATCH]))

    def marked(self) -> frozenset[str]:
        """Ids of the marked documents."""
        return frozenset(self._collection.get(where={MARK: True}, include=[])["ids"])

    def missing(self, ids: Sequence[str]) -> list[str]:
        """Which ids are not there."""
        there: set[str] = set()
        for start in range(0, len(ids), _BATCH):
            some = list(ids[start : start + _BATCH])
            there.update(self._collection.get(ids=some, include=[])["ids"])
        return [each for each in ids if each not in there]

    def contents(self) -> Iterator[tuple[str, str]]:
        """Id and text of every document."""
        offset = 0
        while True:
            found: Mapping[str, Any] = self._collection.get(
                include=["documents"], limit=_BATCH, offset=offset
            )
            yield from zip(found["ids"], found["documents"], strict=True)
            offset += len(found["ids"])
            if len(found["ids"]) < _BATCH:
                return

    def close(self) -> None:
        """Close the client."""
        close = getattr(self._client, "close", None)
        if close is not None:
            close()
