"""A Haystack pipeline over a Haystack document store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ragassay.errors import BackendError, BackendUnavailable, ConfigError
from ragassay.plugins import Document, SystemAnswer, UsedPassage
from ragassay.plugins.systems import MARK
from ragassay.systems.made_pipeline import MadePipeline, reached, score_of, text_of
from ragassay.systems.template import check_slot, filled


@dataclass(frozen=True, kw_only=True)
class HaystackPipeline(MadePipeline):
    """A Haystack pipeline, made by a function of yours.

    The function returns the pipeline and its document store; and where the pipeline retrieves
    by vectors, as a third value the component that embeds documents.

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
    inputs : dict
        What the pipeline is run with: component to inputs; the slot ``{question}`` stands for
        the question.
    answer : str
        Where the answer is in what comes out, with dots between keys and positions.
    used : str
        Where the list of documents is that the answer was made from; empty: it is not told. The
        first part names a component, whose output is asked for.
    """

    inputs: dict[str, Any] = field(
        default_factory=lambda: {
            "retriever": {"query": "{question}"}, "prompt": {"question": "{question}"},
        }
    )  # fmt: skip
    answer: str = "llm.replies.0"
    used: str = ""

    version: ClassVar[str] = "1"
    kind: ClassVar[str] = "haystack"
    returns: ClassVar[str] = "(pipeline, document store) or (pipeline, document store, embedder)"
    most: ClassVar[int] = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_slot("inputs", self.inputs, "question")
        if not self.answer:
            raise ConfigError("answer must say where the answer is, such as llm.replies.0")

    def settings(self) -> dict[str, Any]:
        """What of the adapter can change an answer."""
        return {"inputs": self.inputs, "answer": self.answer, "used": self.used}

    def ingest(self, passages: Sequence[Document]) -> None:
        """Embed documents where there is an embedder, and write them."""
        try:
            from haystack import Document as HaystackDocument
            from haystack.document_stores.types import DuplicatePolicy
        except ImportError as error:
            raise BackendUnavailable(
                "haystack needs haystack-ai: pip install 'ragassay[haystack]'"
            ) from error
        _, store, *embedder = self.parts()
        documents = [
            HaystackDocument(
                id=each.id, content=each.text, meta={**each.metadata, "title": each.title}
            )
            for each in passages
        ]
        if embedder:
            documents = embedder[0].run(documents=documents)["documents"]
        store.write_documents(documents, policy=DuplicatePolicy.OVERWRITE)

    def ask(self, question: str) -> SystemAnswer:
        """Run the pipeline."""
        pipeline = self.parts()[0]
        wanted = {path.partition(".")[0] for path in (self.answer, self.used) if path}
        output = pipeline.run(
            filled(self.inputs, {"question": question}), include_outputs_from=wanted
        )
        found = reached(output, self.answer)
        if found is None:
            raise BackendError(
                f"answer = {self.answer!r} finds nothing; the pipeline gave "
                f"{', '.join(sorted(output)) or 'nothing':.200}"
            )
        documents = reached(output, self.used) if self.used else None
        used = tuple(
            UsedPassage(id=str(each.id), text=str(each.content or ""), score=score_of(each.score))
            for each in documents or ()
        )
        return SystemAnswer(text=text_of(found, f"answer = {self.answer!r}"), used=used)

    def remove(self, ids: Sequence[str]) -> None:
        """Delete documents that are there."""
        store = self.parts()[1]
        there = [each for each in ids if each in self.marked()]
        if there:
            store.delete_documents(there)

    def reset(self) -> None:
        """Delete all that is marked."""
        self.remove(sorted(self.marked()))

    def marked(self) -> frozenset[str]:
        """Ids of the marked documents."""
        store = self.parts()[1]
        found = store.filter_documents(
            filters={"field": f"meta.{MARK}", "operator": "==", "value": True}
        )
        return frozenset(str(each.id) for each in found)
