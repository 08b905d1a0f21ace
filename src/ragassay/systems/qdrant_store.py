"""The built-in pipeline over Qdrant, embedded or a server."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragassay.errors import BackendUnavailable
from ragassay.plugins import Document
from ragassay.plugins.systems import MARK
from ragassay.systems.store_pipeline import StorePipeline, Vectors, VectorStore, document_of
from ragassay.types import Passage

_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class QdrantPipeline(StorePipeline):
    """The built-in pipeline over a Qdrant collection.

    Parameters
    ----------
    path, url : str
        A folder for Qdrant in this process, or the address of a Qdrant server; one of them.
    collection : str
        Name of the collection; made where it is not there.
    corpus : bool
        Put the passages of the data set in that are not there yet. They stay.
    text_field : str
        Where the text is in the payload of a point.
    api_key_env : str
        Name of the environment variable with the server's key; empty: none is sent.
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

    text_field: str = "text"
    api_key_env: str = field(default="", metadata={"identity": False})

    kind = "qdrant"

    def connect(self) -> VectorStore:
        """Open the collection.

        Raises
        ------
        BackendUnavailable
            The client is not installed, or the key is not set.
        """
        try:
            from qdrant_client import QdrantClient
        except ImportError as error:
            raise BackendUnavailable(
                "qdrant needs qdrant-client: pip install 'ragassay[qdrant]'"
            ) from error
        if self.path:
            client = QdrantClient(path=self.path)
        else:
            key = os.environ.get(self.api_key_env) if self.api_key_env else None
            if self.api_key_env and not key:
                raise BackendUnavailable(
                    f"qdrant: the environment variable {self.api_key_env} is not set"
                )
            client = QdrantClient(url=self.url, api_key=key)
        return QdrantStore(client, self.collection, self.text_field)


class QdrantStore:
    """A Qdrant collection as the pipeline needs it. It is made when the first vector comes."""

    def __init__(self, client: Any, collection: str, text_field: str) -> None:
        self._client = client
        self._name = collection
        self._text = text_field

    def add(self, documents: Sequence[Document], vectors: Vectors) -> None:
        """Put documents in."""
        from qdrant_client import models

        if not self._client.collection_exists(self._name):
            size = int(vectors.shape[1])
            distance = models.Distance.COSINE
            self._client.create_collection(
                self._name, vectors_config=models.VectorParams(size=size, distance=distance)
            )
        for start in range(0, len(documents), _BATCH):
            points = [
                models.PointStruct(
                    id=each.id, vector=vector.tolist(),
                    payload={**each.metadata, self._text: each.text, "title": each.title},
                )
                for each, vector in zip(
                    documents[start : start + _BATCH], vectors[start : start + _BATCH], strict=True
                )
            ]  # fmt: skip
            self._client.upsert(self._name, points, wait=True)

    def search(self, vector: Vectors, k: int) -> list[tuple[Passage, float]]:
        """The most similar documents."""
        if not self._client.collection_exists(self._name):
            return []
        found = self._client.query_points(
            self._name, query=vector.tolist(), limit=k, with_payload=True
        ).points
        return [
            (document_of(str(p.id), str((p.payload or {}).get(self._text, "")), p.payload or {}),
             float(p.score))
            for p in found
        ]  # fmt: skip

    def delete(self, ids: Sequence[str]) -> None:
        """Delete what is there."""
        if self._client.collection_exists(self._name):
            self._client.delete(self._name, points_selector=list(ids), wait=True)

    def marked(self) -> frozenset[str]:
        """Ids of the marked documents."""
        from qdrant_client import models

        condition = models.FieldCondition(key=MARK, match=models.MatchValue(value=True))
        points = self._points(models.Filter(must=[condition]), payload=False)
        return frozenset(str(point.id) for point in points)

    def missing(self, ids: Sequence[str]) -> list[str]:
        """Which ids are not there."""
        if not self._client.collection_exists(self._name):
            return list(ids)
        there: set[str] = set()
        for start in range(0, len(ids), _BATCH):
            some = list(ids[start : start + _BATCH])
            found = self._client.retrieve(self._name, ids=some, with_payload=False)
            there.update(str(uuid.UUID(str(point.id))) for point in found)
        return [each for each in ids if each not in there]

    def contents(self) -> Iterator[tuple[str, str]]:
        """Id and text of every document."""
        for point in self._points(None, payload=True):
            yield str(point.id), str((point.payload or {}).get(self._text, ""))

    def close(self) -> None:
        """Close the client, which lets go of its folder."""
        self._client.close()

    def _points(self, chosen: Any, *, payload: bool) -> Iterator[Any]:
        if not self._client.collection_exists(self._name):
            return
        offset = None
        while True:
            points, offset = self._client.scroll(
                self._name, scroll_filter=chosen, limit=_BATCH, offset=offset,
                with_payload=payload,
            )  # fmt: skip
            yield from points
            if offset is None:
                return
