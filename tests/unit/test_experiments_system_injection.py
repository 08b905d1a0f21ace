from __future__ import annotations

from typing import Any

import pytest

from ragassay.errors import BackendError
from ragassay.experiments import system_injection
from ragassay.experiments.system_injection import Injection, injected
from ragassay.plugins import Document


class Store:
    """A store whose ingest is given up, and arrives once time has passed."""

    title = "slow"
    settle_seconds = 2.0

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.late: set[str] = set()
        self.arrived = False

    def ingest(self, documents: tuple[Document, ...]) -> None:
        self.late = {each.id for each in documents}
        raise BackendError("the store was silent for 60 s")

    def arrive(self, seconds: float) -> None:
        assert seconds == self.settle_seconds
        self.held |= self.late
        self.arrived = True

    def remove(self, ids: Any) -> None:
        self.held -= set(ids)

    def until(self, holds: Any) -> bool:
        return bool(holds(frozenset(self.held)))


class Journal:
    def __init__(self) -> None:
        self.open: set[str] = set()

    def begin(self, ingested: Any) -> None:
        self.open.add(ingested.namespace)

    def end(self, namespace: str) -> None:
        self.open.remove(namespace)


def test_poison_that_arrives_after_its_request_was_given_up_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store: Any = Store()
    journal: Any = Journal()
    monkeypatch.setattr(system_injection.time, "sleep", store.arrive)
    poison = Injection(
        namespace="n", documents=(Document(id="x", text="poison", metadata={}),), owner={"x": None}
    )  # type: ignore[dict-item]
    with pytest.raises(BackendError, match="silent"), injected(store, journal, poison):
        raise AssertionError("nothing was ingested")
    assert store.arrived
    assert store.held == set()
    assert journal.open == set()
