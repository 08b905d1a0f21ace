"""Poison in a store for as long as questions are asked, and out again whatever happens."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ragassay.errors import BackendError, RagassayError, StoreError
from ragassay.experiments.system_access import Access
from ragassay.experiments.system_journal import Ingested, Journal
from ragassay.plugins import Document
from ragassay.plugins.systems import MARK, NAMESPACE
from ragassay.types import Passage, PoisonSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """The poison of one injection group under a namespace of its own.

    ``owner`` maps the id of a document in the store to the poison passage it is and to the
    query that this was written for.
    """

    namespace: str
    documents: tuple[Document, ...]
    owner: Mapping[str, tuple[Passage, str]]

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the documents in the store."""
        return tuple(document.id for document in self.documents)


def injection(members: Sequence[tuple[str, PoisonSet]]) -> Injection:
    """Make marked documents of poison sets, under a namespace that is new with every call.

    The ids derive from what the passages are: stores break ties by id, and equal runs, and both
    systems of one, shall break them alike.
    """
    namespace = f"ragassay-{uuid.uuid4().hex}"
    documents, owner = [], {}
    for query_id, poison in members:
        for position, passage in enumerate(poison.passages):
            document = Document(
                id=_id(query_id, position, passage),
                text=passage.text,
                title=passage.title,
                metadata={MARK: True, NAMESPACE: namespace},
            )
            documents.append(document)
            owner[document.id] = (passage, query_id)
    return Injection(namespace=namespace, documents=tuple(documents), owner=owner)


def _id(query_id: str, position: int, passage: Passage) -> str:
    named = "/".join(("ragassay-poison", query_id, str(position), passage.id))
    return str(uuid.uuid5(uuid.NAMESPACE_OID, named))


class Lost(BackendError):
    """Poison was not in the store while it should have been: the answers say nothing."""


@contextmanager
def injected(access: Access, journal: Journal, poison: Injection) -> Iterator[None]:
    """Have poison in a system's store within the block.

    Raises
    ------
    Lost
        The poison did not arrive, or was gone at the end of the block.
    StoreError
        It could not be removed; the journal says what is left.
    """
    ids = frozenset(poison.ids)
    journal.begin(Ingested(system=access.title, namespace=poison.namespace, ids=poison.ids))
    arrived = False  # a request that was given up can still arrive
    try:
        access.ingest(poison.documents)
        arrived = True
        if not access.until(ids.issubset):
            raise Lost(
                f"system {access.title!r}: of {len(ids)} ingested documents only "
                f"{len(ids & (access.marked() or frozenset()))} are in its store"
            )
        yield
        if not access.until(ids.issubset):
            raise Lost(
                f"system {access.title!r}: its store lost poison while questions were asked (was "
                "it restarted without its data?)"
            )
    finally:
        withdraw(access, journal, poison.namespace, poison.ids, late=not arrived)


def withdraw(
    access: Access, journal: Journal, namespace: str, ids: Sequence[str], *, late: bool = False
) -> None:
    """Remove documents, look whether they are gone, and settle the journal.

    With ``late`` a store that may take time to show a change is looked at again after that time:
    a request of a process that was killed, or that was given up, can still arrive.

    Raises
    ------
    StoreError
        They could not be removed.
    """
    try:
        gone = _gone(access, ids)
        if gone and late and access.settle_seconds:
            time.sleep(access.settle_seconds)
            gone = _gone(access, ids)
    except (RagassayError, KeyboardInterrupt) as error:
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        raise StoreError(_left(access, ids, why)) from error
    if not gone:
        raise StoreError(_left(access, ids, "they are still there after removal"))
    journal.end(namespace)


def _gone(access: Access, ids: Sequence[str]) -> bool:
    wanted = frozenset(ids)
    access.remove(ids)
    if not access.until(wanted.isdisjoint):
        access.remove(ids)
        if not access.until(wanted.isdisjoint):
            return False
    return True


def _left(access: Access, ids: Sequence[str], why: str) -> str:
    return (
        f"{len(ids)} poison documents may still be in the store of system {access.title!r} "
        f"({why:.300}); remove them with: ragassay system clean EXPERIMENT, with the settings of "
        "this run"
    )
