"""A LangChain pipeline over Chroma in a folder, made for ragassay to put under test.

``make`` returns the chain and the vector store that it retrieves from. Put your own in its
place. The embeddings and the model are the embedded ones of ragassay, wrapped for LangChain.
"""

from __future__ import annotations

from typing import Any

from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda

from ragassay import plugins
from ragassay.types import Message, Request

PROMPT = ChatPromptTemplate.from_template(
    "Answer the question from the contexts, as briefly as possible.\n\n"
    "Contexts:\n{contexts}\n\nQuestion: {question}"
)


class EmbeddedEncoder(Embeddings):
    """An encoder of ragassay as LangChain knows them."""

    def __init__(self, name: str) -> None:
        self.encoder = plugins.build(plugins.find("encoder", name), {})

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts."""
        return self.encoder.encode(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        """Embed a question."""
        return self.embed_documents([text])[0]


def embedded_model(name: str) -> Runnable[Any, str]:
    """A generator of ragassay as a step of a chain."""
    generator = plugins.build(plugins.find("generator", name), {})

    def answer(prompt: Any) -> str:
        (reply,) = generator.generate(
            [Request(messages=(Message(role="user", content=prompt.to_messages()[0].content),))]
        )
        if isinstance(reply, Exception):
            raise reply
        return reply.text

    return RunnableLambda(answer)


def make(
    store: str, guard: bool = False, k: int = 5, encoder: str = "minilm", generator: str = "smollm2"
) -> tuple[Runnable[Any, Any], Chroma]:
    """Make the chain and its store; ``guard`` passes over documents that repeat the question."""
    documents = Chroma(
        collection_name="documents",
        embedding_function=EmbeddedEncoder(encoder),
        persist_directory=store,
        collection_metadata={"hnsw:space": "cosine"},
    )

    def retrieve(question: str) -> dict[str, Any]:
        found: list[Document] = documents.similarity_search(question, k=k)
        kept = [each for each in found if not (guard and question in each.page_content)]
        return {
            "question": question,
            "documents": kept,
            "contexts": "\n".join(each.page_content for each in kept),
        }

    model = PROMPT | embedded_model(generator)

    def answer(found: dict[str, Any]) -> dict[str, Any]:
        return {"answer": model.invoke(found), "documents": found["documents"]}

    return RunnableLambda(retrieve) | RunnableLambda(answer), documents
