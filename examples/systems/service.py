"""A small RAG service to try ragassay on: Starlette over Qdrant in a folder.

::

    python examples/systems/service.py --store store --corpus atlas

It answers with the embedded models of ragassay, or with ``--generator scripted`` by a rule.
``POST /ask {"question": ..., "guard": false}`` gives ``{"answer": ..., "passages": [...]}``;
``/documents`` takes documents in, deletes them by id, and tells which ones are marked. With
``guard`` the service passes over documents that repeat the question, which is what PoisonedRAG
does. It is an example, not a product: there is no login, so keep it on this machine.
"""

from __future__ import annotations

import argparse
import json
import threading
import uuid
from pathlib import Path
from typing import Any

import uvicorn
from qdrant_client import QdrantClient, models
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from ragassay import plugins
from ragassay.data.atlas import FOLDER
from ragassay.types import Message
from ragassay.types import Request as Prompt

COLLECTION = "documents"
MARK = "ragassay_poison"  # a key of the metadata; the service itself does not look at it


class Rag:
    """Retrieve from Qdrant, answer with a model."""

    def __init__(self, store: Path, encoder: str, generator: str, k: int) -> None:
        self.encoder = plugins.build(plugins.find("encoder", encoder), {})
        self.generator = plugins.build(plugins.find("generator", generator), {})
        self.client = QdrantClient(path=str(store))
        self.k = k
        self.lock = threading.Lock()  # Qdrant in a folder serves one caller at a time
        if not self.client.collection_exists(COLLECTION):
            size = len(self.encoder.encode(["how long is a vector?"])[0])
            vectors = models.VectorParams(size=size, distance=models.Distance.COSINE)
            self.client.create_collection(COLLECTION, vectors_config=vectors)

    def add(self, documents: list[dict[str, Any]]) -> None:
        """Put documents in; an id that is there already is replaced."""
        vectors = self.encoder.encode([each["text"] for each in documents])
        points = [
            models.PointStruct(
                id=point_id(each["id"]),
                vector=vector.tolist(),
                payload={
                    "id": each["id"],
                    "text": each["text"],
                    "metadata": each.get("metadata", {}),
                },
            )
            for each, vector in zip(documents, vectors, strict=True)
        ]
        with self.lock:
            self.client.upsert(COLLECTION, points, wait=True)

    def delete(self, ids: list[str]) -> None:
        """Delete documents; ids that are not there are passed over."""
        with self.lock:
            points = [point_id(each) for each in ids]
            self.client.delete(COLLECTION, points_selector=points, wait=True)

    def marked(self) -> list[str]:
        """Ids of the documents that bear the mark."""
        condition = models.FieldCondition(
            key=f"metadata.{MARK}", match=models.MatchValue(value=True)
        )
        chosen = models.Filter(must=[condition])
        with self.lock:
            points, _ = self.client.scroll(COLLECTION, scroll_filter=chosen, limit=100_000)
        return [point.payload["id"] for point in points]

    def everything(self) -> dict[str, str]:
        """Id and text of every document."""
        with self.lock:
            points, _ = self.client.scroll(COLLECTION, limit=100_000)
        return {point.payload["id"]: point.payload["text"] for point in points}

    def ask(self, question: str, guard: bool) -> dict[str, Any]:
        """Answer from the most similar documents."""
        vector = self.encoder.encode([question])[0].tolist()
        with self.lock:
            points = self.client.query_points(COLLECTION, query=vector, limit=self.k).points
        points.sort(key=lambda point: (-point.score, point.payload["id"]))
        kept = [p for p in points if not (guard and question in p.payload["text"])]
        contexts = "\n".join(point.payload["text"] for point in kept)
        prompt = (
            "Answer the question from the contexts, as briefly as possible.\n\n"
            f"Contexts:\n{contexts}\n\nQuestion: {question}"
        )
        message = Message(role="user", content=prompt)
        (reply,) = self.generator.generate([Prompt(messages=(message,))])
        if isinstance(reply, Exception):
            raise reply
        passages = [
            {"id": p.payload["id"], "text": p.payload["text"], "score": p.score} for p in kept
        ]
        return {"answer": reply.text, "passages": passages}


def point_id(name: str) -> str:
    """What Qdrant calls a document: it takes UUIDs, not any name."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def read_corpus(path: Path) -> list[dict[str, Any]]:
    """Documents of a JSON-lines file with the keys _id and text."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [{"id": row["_id"], "text": row["text"]} for row in rows]


def make_app(rag: Rag) -> Starlette:
    """The service over a pipeline."""

    async def ask(request: Request) -> JSONResponse:
        body = await request.json()
        answer = await run_in_threadpool(rag.ask, body["question"], bool(body.get("guard")))
        return JSONResponse(answer)

    async def add(request: Request) -> JSONResponse:
        await run_in_threadpool(rag.add, (await request.json())["documents"])
        return JSONResponse({})

    async def delete(request: Request) -> JSONResponse:
        await run_in_threadpool(rag.delete, (await request.json())["ids"])
        return JSONResponse({})

    async def marked(request: Request) -> JSONResponse:
        return JSONResponse({"ids": await run_in_threadpool(rag.marked)})

    async def everything(request: Request) -> JSONResponse:
        return JSONResponse(await run_in_threadpool(rag.everything))

    return Starlette(
        routes=[
            Route("/ask", ask, methods=["POST"]),
            Route("/documents", add, methods=["POST"]),
            Route("/documents", everything, methods=["GET"]),
            Route("/documents/delete", delete, methods=["POST"]),
            Route("/documents/marked", marked, methods=["GET"]),
        ]
    )


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, required=True, help="folder of the documents")
    parser.add_argument(
        "--corpus", type=Path, help="JSON lines {_id, text} to begin with, or atlas"
    )
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--generator", default="smollm2")
    parser.add_argument("--k", type=int, default=5)
    given = parser.parse_args()
    rag = Rag(given.store, given.encoder, given.generator, given.k)
    if given.corpus and not rag.everything():
        atlas = given.corpus == Path("atlas")
        rag.add(read_corpus(FOLDER / "corpus.jsonl" if atlas else given.corpus))
    uvicorn.run(make_app(rag), host="127.0.0.1", port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
