"""A LlamaIndex pipeline: a query engine over an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ragassay.errors import BackendError, BackendUnavailable, ConfigError
from ragassay.plugins import Document, SystemAnswer, UsedPassage
from ragassay.plugins.systems import MARK
from ragassay.systems.made_pipeline import MadePipeline, score_of, text_of


@dataclass(frozen=True, kw_only=True)
class LlamaIndexPipeline(MadePipeline):
    """A LlamaIndex query engine, made by a function of yours.

    The function returns a function that makes the query engine from the index, and the index.
    The engine is made anew for every question, because one that was made earlier does not see
    what was inserted since. Marks are kept out of what the models see.

    Parameters
    ----------
    factory : str
        ``file.py:function``, relative to the experiment file.
    options : dict
        Arguments of the function, such as ``guard = true``.
    local : bool
        That the store is on this machine.
    concurrency : int
        Questions at once.
    """

    version: ClassVar[str] = "1"
    kind: ClassVar[str] = "llamaindex"
    returns: ClassVar[str] = "(function from index to query engine, index)"

    def ingest(self, passages: Sequence[Document]) -> None:
        """Insert nodes, which the index embeds."""
        try:
            from llama_index.core.schema import TextNode
        except ImportError as error:
            raise BackendUnavailable(
                "llamaindex needs llama-index-core: pip install 'ragassay[llamaindex]'"
            ) from error
        _, index = self.parts()
        index.insert_nodes(
            [
                TextNode(
                    id_=each.id,
                    text=each.text,
                    metadata={**each.metadata, "title": each.title},
                    excluded_embed_metadata_keys=[*each.metadata, "title"],
                    excluded_llm_metadata_keys=[*each.metadata, "title"],
                )
                for each in passages
            ]
        )

    def ask(self, question: str) -> SystemAnswer:
        """Query the engine."""
        make_engine, index = self.parts()
        if not callable(make_engine) or hasattr(make_engine, "query"):
            raise ConfigError(
                f"factory {self.factory!r} must return {self.returns}: an engine that is made "
                "before poison goes in would never see it"
            )
        reply = make_engine(index).query(question)
        used = tuple(
            UsedPassage(id=str(each.node.node_id), text=str(each.node.get_content()),
                        score=score_of(each.score))
            for each in getattr(reply, "source_nodes", None) or ()
        )  # fmt: skip
        return SystemAnswer(text=text_of(reply, "the query engine's response"), used=used)

    def remove(self, ids: Sequence[str]) -> None:
        """Delete nodes; of a document store, which refuses unknown ones, those that are there."""
        _, index = self.parts()
        there = self.marked() if self._keeps_documents(index) else None
        wanted = [each for each in ids if there is None or each in there]
        if wanted:
            index.delete_nodes(wanted, delete_from_docstore=True)

    def reset(self) -> None:
        """Delete all that is marked.

        Raises
        ------
        BackendError
            The index cannot say what is marked.
        """
        ids = self.marked()
        if ids is None:
            raise BackendError("llamaindex: the index cannot list its nodes by metadata")
        self.remove(sorted(ids))

    def marked(self) -> frozenset[str] | None:
        """Ids of the marked nodes in the document store, or in a vector store that lists them."""
        _, index = self.parts()
        documents: dict[str, Any] = dict(getattr(index.docstore, "docs", None) or {})
        if self._keeps_documents(index):
            return frozenset(
                name for name, node in documents.items()
                if node.metadata.get(MARK) and name in self._known(index)
            )  # fmt: skip
        nodes = self._listed(index)
        if nodes is None:
            return None
        return frozenset(node.node_id for node in nodes if node.metadata.get(MARK))

    @staticmethod
    def _keeps_documents(index: Any) -> bool:
        """Whether the document store holds the nodes, as beside vector stores without texts."""
        texts = bool(getattr(index.vector_store, "stores_text", False))
        return not texts or bool(getattr(index.docstore, "docs", None))

    @staticmethod
    def _known(index: Any) -> frozenset[str]:
        return frozenset(index.index_struct.nodes_dict.values())

    @staticmethod
    def _listed(index: Any) -> list[Any] | None:
        get_nodes = getattr(index.vector_store, "get_nodes", None)
        if get_nodes is None:
            return None
        try:
            return list(get_nodes(node_ids=None, filters=None) or ())
        except NotImplementedError:  # what the base class of vector stores says
            return None
