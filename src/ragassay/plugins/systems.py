"""What a system under test offers: it takes passages in, answers questions, and forgets again.

Poison is marked in the metadata of every passage that goes in, so that it can be found and
removed by another process, also after a crash. A system under test must not read the mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

MARK = "ragassay_poison"  # metadata key; its value is True
NAMESPACE = "ragassay_namespace"  # metadata key; its value names the injection


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A passage on its way into a system's store.

    ``id`` is a UUID in its usual form, because some stores take nothing else. ``metadata``
    holds the mark for poison and is empty for passages of the data set.
    """

    id: str
    text: str
    title: str = ""
    metadata: Mapping[str, bool | str] = field(default_factory=dict)

    @property
    def marked(self) -> bool:
        """Whether it is poison."""
        return bool(self.metadata.get(MARK))


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedPassage:
    """A passage that an answer was made from, as far as the system tells.

    ``kept`` is False where the system retrieved it and then put it aside.
    """

    id: str = ""
    text: str = ""
    score: float = 0.0
    kept: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemAnswer:
    """An answer, raw, and the passages behind it, best first; none where that is not told.

    ``declined``: the system says itself that it gives no answer.
    """

    text: str
    used: tuple[UsedPassage, ...] = ()
    declined: bool = False


@runtime_checkable
class System(Protocol):
    """A RAG system under test.

    Optional members, looked up by name:

    ``remove(ids)``
        Delete these documents; ids that are not there are no error. Preferred to ``reset``.
    ``marked()``
        Ids of all marked documents in the store. Where it is absent, nobody but the journal
        knows what is left.
    ``prepare(corpus)``
        Put passages of the data set into the store where they are missing; called once, before
        any question.
    ``close()``
        Let go of files and connections; the next call opens them again.
    ``local``
        Whether everything that is written stays on this machine. Absent means no.
    ``host``
        Where it writes otherwise, for messages.
    ``concurrency``
        How many questions may be asked at once (1).
    ``settle_seconds``
        How long the store may take until what was written or deleted shows (0).
    """

    def ingest(self, passages: Sequence[Document]) -> None:
        """Put documents into the store. The same id again replaces the document."""

    def ask(self, question: str) -> str | SystemAnswer:
        """Answer one question."""

    def reset(self) -> None:
        """Bring the store back to what it was: delete all that bears the mark.

        It is also called by a process that ingested nothing itself.
        """
