"""The journal of what went into stores, and poison that goes in and out again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragassay.errors import BackendError, ConfigError, StoreError
from ragassay.experiments.setup import Named
from ragassay.experiments.system_access import Access
from ragassay.experiments.system_injection import Lost, injected, injection, withdraw
from ragassay.experiments.system_journal import Ingested, Journal
from ragassay.plugins import Document
from ragassay.types import Knowledge, Passage, PoisonSet


class Memory:
    """A store in memory that can lose, keep or refuse what it should not."""

    local = True

    def __init__(self, fault: str = "") -> None:
        self.documents: dict[str, Document] = {}
        self.fault = fault

    def ingest(self, passages: Sequence[Document]) -> None:
        if self.fault == "ingest":
            self.documents.update({each.id: each for each in passages[:1]})
            raise ConnectionError("gone in the middle")
        if self.fault != "deaf":
            self.documents.update({each.id: each for each in passages})

    def ask(self, question: str) -> str:
        return question

    def remove(self, ids: Sequence[str]) -> None:
        if self.fault == "remove":
            raise ConnectionError("not now")
        if self.fault != "keeps":
            for each in ids:
                self.documents.pop(each, None)

    def reset(self) -> None:
        self.documents = {k: v for k, v in self.documents.items() if not v.marked}

    def marked(self) -> set[str]:
        return {name for name, each in self.documents.items() if each.marked}


def access(system: Any) -> Access:
    return Access(Named(title="s", plugin="s", identity="s", instance=system, options={}))


def poison(count: int = 3) -> Any:
    passages = tuple(Passage(id=f"p{i}", text=f"text {i}") for i in range(count))
    return injection(
        [("q", PoisonSet(attack="a", query_id="q", passages=passages, knowledge=Knowledge()))]
    )


def test_what_is_begun_and_not_ended_is_open(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    assert journal.open_entries() == []
    first = Ingested(system="s", namespace="n1", ids=("a", "b"))
    journal.begin(first)
    journal.begin(Ingested(system="s", namespace="n2", ids=("c",)))
    journal.end("n2")
    assert journal.open_entries() == [first]
    journal.end("n1")
    assert journal.open_entries() == []


@given(cut=st.integers(0, 400))
def test_a_journal_cut_anywhere_tells_what_its_whole_lines_tell(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    journal = Journal(tmp_path_factory.mktemp("j") / "j")
    for number in range(3):
        journal.begin(Ingested(system="s", namespace=f"n{number}", ids=("a",)))
    data = journal.path.read_bytes()[:cut]
    journal.path.write_bytes(data)
    whole = data.count(b"\n")
    assert [each.namespace for each in journal.open_entries()] == [f"n{i}" for i in range(whole)]
    journal.begin(Ingested(system="s", namespace="last", ids=()))  # a torn line does not spoil it
    assert len(journal.open_entries()) == whole + 1


@pytest.mark.parametrize(
    "line", [b"{}", b"no json", b"\xff", b'{"v":2,"event":"ingest"}', b'{"v":1,"event":"x"}',
             b'{"v":1,"event":"ingest","system":"s","namespace":"n","ids":[1]}'],
)  # fmt: skip
def test_a_damaged_line_is_named_and_never_passed_over(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "j").write_bytes(line + b"\n")
    with pytest.raises(StoreError, match=r"j:1: damaged line .*system clean --marked"):
        Journal(tmp_path / "j").open_entries()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    script = (
        "import sys; from pathlib import Path; "
        "from ragassay.experiments.system_journal import Journal\n"
        f"with Journal(Path({str(tmp_path / 'j')!r})).held(): pass"
    )
    with journal.held():
        other = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False
        )
    assert "in use by another ragassay process" in other.stderr
    with journal.held():
        pass


def test_poison_is_marked_in_while_asked_and_out_afterwards(tmp_path: Path) -> None:
    system, journal = Memory(), Journal(tmp_path / "j")
    system.documents["own"] = Document(id="own", text="mine")
    set_ = poison()
    with injected(access(system), journal, set_):
        assert len(system.marked()) == 3
        assert len(journal.open_entries()[0].ids) == 3
    assert set(system.documents) == {"own"}
    assert journal.open_entries() == []
    again = poison()
    assert again.ids == set_.ids  # equal runs break ties by id alike
    assert again.namespace != set_.namespace


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, BackendError])
def test_poison_is_removed_whatever_ends_the_block(tmp_path: Path, error: type) -> None:
    system, journal = Memory(), Journal(tmp_path / "j")
    with pytest.raises(error), injected(access(system), journal, poison()):
        raise error("stop")
    assert not system.documents
    assert not journal.open_entries()


def test_an_ingestion_that_breaks_off_is_removed(tmp_path: Path) -> None:
    system, journal = Memory("ingest"), Journal(tmp_path / "j")
    block = injected(access(system), journal, poison())
    with pytest.raises(BackendError, match="gone in the middle"), block:
        pytest.fail("the block ran without its poison")
    assert not system.documents


def test_poison_that_never_arrives_or_gets_lost_is_noticed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    block = injected(access(Memory("deaf")), journal, poison())
    with pytest.raises(Lost, match="only 0 are in its store"), block:
        pytest.fail("the block ran without its poison")
    system = Memory()
    with pytest.raises(Lost, match="lost poison"), injected(access(system), journal, poison()):
        system.documents.clear()
    assert not journal.open_entries()


@pytest.mark.parametrize(("fault", "why"), [("remove", "not now"), ("keeps", "still there")])
def test_what_cannot_be_removed_stays_in_the_journal(tmp_path: Path, fault: str, why: str) -> None:
    system, journal = Memory(fault), Journal(tmp_path / "j")
    block = injected(access(system), journal, poison())
    with pytest.raises(StoreError, match=rf"{why}.*ragassay system clean"), block:
        pass
    (entry,) = journal.open_entries()
    system.fault = ""
    withdraw(access(system), journal, entry.namespace, entry.ids, late=True)
    assert not system.documents
    assert not journal.open_entries()


def test_a_system_without_optional_methods_is_reset(tmp_path: Path) -> None:
    class Bare:
        def __init__(self) -> None:
            self.inner = Memory()

        def ingest(self, passages: Sequence[Document]) -> None:
            self.inner.ingest(passages)

        def ask(self, question: str) -> str:
            return ""

        def reset(self) -> None:
            self.inner.reset()

    system, journal = Bare(), Journal(tmp_path / "j")
    assert access(system).marked() is None
    with injected(access(system), journal, poison()):
        assert len(system.inner.documents) == 3
    assert not system.inner.documents
    with pytest.raises(ConfigError, match="does not say that it writes to this machine only"):
        access(system).check_local(allowed=False)
    access(system).check_local(allowed=True)


def test_answers_of_the_wrong_kind_are_failures() -> None:
    system = Memory()
    for wrong in (None, 3, b"bytes", {"answer": "x"}, "x" * 1_000_001):
        system.ask = lambda question, wrong=wrong: wrong  # type: ignore[method-assign]
        with pytest.raises(BackendError, match="system 's'"):
            access(system).ask("?")
