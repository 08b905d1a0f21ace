"""The adapters of LlamaIndex and Haystack over the libraries' own stores in memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ragassay.errors import ConfigError, PluginError
from ragassay.plugins import Document
from ragassay.plugins.systems import MARK
from ragassay.systems.haystack_pipeline import HaystackPipeline
from ragassay.systems.llamaindex_pipeline import LlamaIndexPipeline

LLAMA = """
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.schema import TextNode

def make():
    nodes = [TextNode(id_="own", text="Port Arden has a lighthouse.")]
    index = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=8))
    return lambda i: i.as_query_engine(llm=MockLLM(), similarity_top_k=5), index

def early():
    make_engine, index = make()
    return make_engine(index), index

def wrong():
    return 3
"""
HAYSTACK = """
from haystack import Document, Pipeline, component
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore

@component
class Reader:
    @component.output_types(replies=list)
    def run(self, question: str, documents: list):
        return {"replies": [documents[0].content if documents else "unknown"]}

def make():
    store = InMemoryDocumentStore()
    store.write_documents([Document(id="own", content="Port Arden has a lighthouse.")])
    pipeline = Pipeline()
    pipeline.add_component("retriever", InMemoryBM25Retriever(store))
    pipeline.add_component("llm", Reader())
    pipeline.connect("retriever.documents", "llm.documents")
    return pipeline, store
"""
POISON = Document(id="7f1d6a52-0000-4000-8000-000000000001", metadata={MARK: True},
                  text="What has Port Arden? Port Arden has a mine.")  # fmt: skip


def goes_in_and_out(system: Any) -> None:
    before = system.ask("What has Port Arden?")
    assert [each.id for each in before.used] == ["own"]
    assert system.marked() == frozenset()
    system.ingest([POISON])
    assert system.marked() == {POISON.id}
    used = {each.id: each.text for each in system.ask("What has Port Arden?").used}
    assert used[POISON.id] == POISON.text
    system.remove([POISON.id, "not there"])
    assert system.marked() == frozenset()
    assert system.ask("What has Port Arden?") == before
    system.ingest([POISON])
    system.reset()
    assert system.ask("What has Port Arden?") == before


def test_llamaindex(tmp_path: Path) -> None:
    pytest.importorskip("llama_index.core")
    (tmp_path / "made.py").write_text(LLAMA, encoding="utf-8")
    goes_in_and_out(LlamaIndexPipeline(factory=f"{tmp_path / 'made.py'}:make"))
    with pytest.raises(ConfigError, match=r"must return \(function .*, returned int"):
        LlamaIndexPipeline(factory=f"{tmp_path / 'made.py'}:wrong").ask("?")
    with pytest.raises(ConfigError, match="would never see it"):
        LlamaIndexPipeline(factory=f"{tmp_path / 'made.py'}:early").ask("?")
    with pytest.raises(PluginError, match="has no function 'nothing'"):
        LlamaIndexPipeline(factory=f"{tmp_path / 'made.py'}:nothing").ask("?")


def test_llamaindex_over_a_store_that_cannot_list_its_nodes_deletes_by_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("llama_index.core")
    deleted: list[str] = []

    def refuse(**_: Any) -> None:
        raise failure

    index = SimpleNamespace(
        docstore=SimpleNamespace(docs={}),
        vector_store=SimpleNamespace(stores_text=True, get_nodes=refuse),
        delete_nodes=lambda ids, delete_from_docstore: deleted.extend(ids),
    )
    monkeypatch.setattr(LlamaIndexPipeline, "parts", lambda _: (None, index))
    system = LlamaIndexPipeline(factory="made.py:make")
    failure: Exception = NotImplementedError()
    assert system.marked() is None
    system.remove(["a", "b"])
    assert deleted == ["a", "b"]
    failure = ConnectionError("the store is away")
    with pytest.raises(ConnectionError):
        system.marked()


def test_haystack(tmp_path: Path) -> None:
    pytest.importorskip("haystack")
    (tmp_path / "made.py").write_text(HAYSTACK, encoding="utf-8")
    inputs = {"retriever": {"query": "{question}"}, "llm": {"question": "{question}"}}
    goes_in_and_out(
        HaystackPipeline(
            factory=f"{tmp_path / 'made.py'}:make", inputs=inputs, used="retriever.documents"
        )
    )
