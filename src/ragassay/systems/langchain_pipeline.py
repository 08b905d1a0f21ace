"""A LangChain pipeline: anything with ``invoke``, over a LangChain vector store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ragassay.errors import BackendError
from ragassay.plugins import Document, SystemAnswer, UsedPassage
from ragassay.plugins.systems import MARK
from ragassay.systems.made_pipeline import MadePipeline, reached, score_of, text_of


@dataclass(frozen=True, kw_only=True)
class LangChainPipeline(MadePipeline):
    """A LangChain pipeline, made by a function of yours.

    The function returns the chain and the vector store that it retrieves from. The store must
    take ids in ``add_texts`` and delete by id, as those of LangChain do.

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
    question_key : str
        The chain's input is the question itself, or with a key a dict that holds it.
    answer : str
        Where the answer is in the output, with dots between keys; empty: the output is it.
    used : str
        Where the list of LangChain documents is that the answer was made from; empty: not told.
    """

    question_key: str = ""
    answer: str = ""
    used: str = ""

    version: ClassVar[str] = "1"
    kind: ClassVar[str] = "langchain"
    returns: ClassVar[str] = "(chain, vector store)"

    def settings(self) -> dict[str, Any]:
        """What of the adapter can change an answer."""
        return {"question_key": self.question_key, "answer": self.answer, "used": self.used}

    def ingest(self, passages: Sequence[Document]) -> None:
        """Add documents to the vector store, which embeds them."""
        _, store = self.parts()
        store.add_texts(
            [each.text for each in passages],
            metadatas=[{**each.metadata, "title": each.title} for each in passages],
            ids=[each.id for each in passages],
        )

    def ask(self, question: str) -> SystemAnswer:
        """Invoke the chain."""
        chain, _ = self.parts()
        output = chain.invoke({self.question_key: question} if self.question_key else question)
        found = reached(output, self.answer) if self.answer else output
        if found is None:
            raise BackendError(f"answer = {self.answer!r} finds nothing in the chain's output")
        text = text_of(found, f"answer = {self.answer!r}")
        return SystemAnswer(text=text, used=self._used(output))

    def remove(self, ids: Sequence[str]) -> None:
        """Delete from the vector store; ids that are not there are passed over."""
        _, store = self.parts()
        store.delete(ids=list(ids))

    def reset(self) -> None:
        """Delete all that is marked.

        Raises
        ------
        BackendError
            The store cannot say what is marked.
        """
        ids = self.marked()
        if ids is None:
            _, store = self.parts()
            raise BackendError(f"{type(store).__name__} cannot list documents by metadata")
        if ids:
            self.remove(sorted(ids))

    def marked(self) -> frozenset[str] | None:
        """Ids of the marked documents, for stores with ``get(where=...)``; else None."""
        _, store = self.parts()
        get = getattr(store, "get", None)
        if get is None:
            return None
        try:
            return frozenset(get(where={MARK: True}, include=[])["ids"])
        except TypeError:  # another store's get
            return None

    def _used(self, output: Any) -> tuple[UsedPassage, ...]:
        documents = reached(output, self.used) if self.used else None
        return tuple(
            UsedPassage(
                id=str(getattr(each, "id", None) or ""),
                text=str(getattr(each, "page_content", "")),
                score=score_of((getattr(each, "metadata", None) or {}).get("score")),
            )
            for each in documents or ()
        )
