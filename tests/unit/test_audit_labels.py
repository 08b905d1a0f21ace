"""Labels of annotators: on the disk at once, the last one wins, undo, locks, damaged files."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ragassay.audit.labels import LabelBook, annotators, read_labels
from ragassay.audit.packet import Design, Item, Key, KeyEntry, Packet, Sample, write_packet
from ragassay.errors import ConfigError, StoreError

YES = {"target_endorsed": "yes", "reference_correct": "no", "abstains": "no"}
NO = {"target_endorsed": "no", "reference_correct": "yes", "abstains": "no"}
BARE = {
    "target_endorsed": "not_applicable", "reference_correct": "not_applicable", "abstains": "no",
}  # fmt: skip


@pytest.fixture
def packet(tmp_path: Path) -> Packet:
    items = tuple(
        Item(id=f"i{n}", question=f"q{n}", target="t", references=("r",), answer=f"a{n}")
        for n in range(3)
    )
    items += (Item(id="bare", question="q", target=None, answer="a"),)
    open_part = Packet(name="p", seed=1, answers=9, trials=9, design=Design(random=4), items=items)
    key = Key(items={item.id: KeyEntry() for item in items})
    return write_packet(Sample(packet=open_part, key=key), tmp_path / "packet")


def lines(packet: Packet, annotator: str = "ann") -> list[dict[str, Any]]:
    path = packet.folder() / "labels" / f"{annotator}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_label_is_one_line_with_all_that_was_said(packet: Packet) -> None:
    with LabelBook(packet, "ann") as book:
        book.append("i0", YES, comment="clear “case”", seconds=4.5)
    [line] = lines(packet)
    assert line.pop("at").endswith("+00:00")
    assert line == {
        "v": 1, "item": "i0", "annotator": "ann", "labels": YES, "comment": "clear “case”",
        "seconds": 4.5, "undo": False,
    }  # fmt: skip


def test_the_last_label_wins_and_undo_takes_it_back(packet: Packet) -> None:
    with LabelBook(packet, "ann") as book:
        book.append("i0", YES)
        book.append("i1", NO)
        book.append("i0", NO)
        assert [*book.current()] == ["i1", "i0"]
        assert book.undo("i0") is True
        assert book.undo("i0") is False
        assert [*book.current()] == ["i1"]
        book.append("i0", YES)
    assert len(lines(packet)) == 5
    with LabelBook(packet, "ann") as again:
        found = again.current()
    assert {item: label.labels for item, label in found.items()} == {"i1": NO, "i0": YES}


def test_labels_of_annotators_are_apart(packet: Packet) -> None:
    with LabelBook(packet, "ann") as one, LabelBook(packet, "bo.2") as two:
        one.append("i0", YES)
        two.append("i0", NO)
        assert one.current()["i0"].labels == YES
        assert two.current()["i0"].labels == NO
    assert annotators(packet.folder()) == ["ann", "bo.2"]


@pytest.mark.parametrize(
    ("item", "labels", "said"),
    [
        ("zz", YES, "'zz' is not in the packet"),
        ("i0", {**YES, "target_endorsed": "maybe"}, "got 'maybe', need yes or no or uncertain"),
        ("i0", {**YES, "target_endorsed": "not_applicable"}, "this item has a target"),
        ("i0", {**YES, "abstains": "not_applicable"}, "abstains: got 'not_applicable'"),
        ("bare", {**BARE, "target_endorsed": "no"}, "need not_applicable; this item has no target"),
        ("bare", {**BARE, "reference_correct": "uncertain"}, "has no references"),
        ("i0", {"target_endorsed": "yes"}, "exactly the fields"),
        ("i0", {**YES, "other": "yes"}, "exactly the fields"),
        ("i0", {**YES, "abstains": True}, "got True"),
        ("i0", "yes", "exactly the fields"),
    ],
)
def test_an_impossible_label_is_refused_and_nothing_is_written(
    packet: Packet, item: str, labels: Any, said: str
) -> None:
    with LabelBook(packet, "ann") as book:
        with pytest.raises(ConfigError, match=said):
            book.append(item, labels)
        assert book.current() == {}
    assert not (packet.folder() / "labels" / "ann.jsonl").exists()


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf, True, "3"])
def test_impossible_seconds_are_refused(packet: Packet, seconds: Any) -> None:
    with LabelBook(packet, "ann") as book, pytest.raises(ConfigError, match="seconds must be"):
        book.append("i0", YES, seconds=seconds)


def test_an_item_without_target_and_references_takes_only_not_applicable(packet: Packet) -> None:
    with LabelBook(packet, "ann") as book:
        assert book.append("bare", BARE).labels == BARE


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-a", "a b", "a/b", "..\\x", "é", "a" * 42, "a\n", "CON:", None]
)
def test_a_name_that_is_no_safe_file_name_is_refused(packet: Packet, name: Any) -> None:
    with pytest.raises(ConfigError, match="annotator"):
        LabelBook(packet, name)
    assert list((packet.folder() / "labels").iterdir()) == []


def test_names_that_differ_by_case_alone_are_refused(packet: Packet) -> None:
    with LabelBook(packet, "ann") as book:
        book.append("i0", YES)
    with pytest.raises(ConfigError, match="may not differ by case"):
        LabelBook(packet, "Ann")


def test_the_same_annotator_cannot_label_twice_at_once(packet: Packet) -> None:
    with LabelBook(packet, "ann"), pytest.raises(StoreError, match="somebody is labeling as 'ann'"):
        LabelBook(packet, "ann")
    with LabelBook(packet, "ann") as book:
        book.append("i0", YES)


def test_another_process_is_kept_out_and_let_in_afterwards(packet: Packet) -> None:
    code = (
        "import sys; from ragassay.audit.labels import LabelBook, read_packet\n"
        "with LabelBook(read_packet(sys.argv[1]), 'ann'): pass"
    )
    command = [sys.executable, "-c", code, str(packet.folder())]
    with LabelBook(packet, "ann"):
        held = subprocess.run(command, capture_output=True, text=True, check=False)
    free = subprocess.run(command, capture_output=True, text=True, check=False)
    assert held.returncode != 0
    assert "somebody is labeling as 'ann'" in held.stderr
    assert free.returncode == 0, free.stderr


def test_a_closed_book_takes_no_more_labels(packet: Packet) -> None:
    with LabelBook(packet, "ann") as book:
        book.append("i0", YES)
    with pytest.raises(StoreError, match="are closed"):
        book.append("i1", YES)
    assert len(lines(packet)) == 1


def test_a_torn_last_line_is_cut_off_and_logged(
    packet: Packet, caplog: pytest.LogCaptureFixture
) -> None:
    with LabelBook(packet, "ann") as book:
        book.append("i0", YES)
    path = packet.folder() / "labels" / "ann.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    assert [*read_labels(packet, "ann")] == ["i0"]
    assert "is left out" in caplog.text
    assert path.read_bytes() != whole
    with LabelBook(packet, "ann") as book:
        assert "cut off a torn last line" in caplog.text
        assert path.read_bytes() == whole
        book.append("i1", NO)
    assert [*read_labels(packet, "ann")] == ["i0", "i1"]


def test_a_file_that_is_one_torn_line_becomes_empty(packet: Packet) -> None:
    path = packet.folder() / "labels" / "ann.jsonl"
    path.write_bytes(b'{"v": 1, "item"')
    with LabelBook(packet, "ann") as book:
        assert book.current() == {}
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("not json", "damaged line"),
        ("[]", "damaged line"),
        ('{"v": 2}', "version 2"),
        ('{"v": 1}', "not a label of this packet"),
        (json.dumps({"v": 1, "item": "zz", "undo": False, "labels": YES}), "not a label"),
        (json.dumps({"v": 1, "item": "i0", "undo": False, "labels": BARE}), "not a label"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_the_line(
    packet: Packet, line: str, said: str
) -> None:
    path = packet.folder() / "labels" / "ann.jsonl"
    with LabelBook(packet, "ann") as book:
        book.append("i0", YES)
    path.write_text(path.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    with pytest.raises(StoreError, match=rf"ann\.jsonl:2: .*{said}"):
        LabelBook(packet, "ann")
    path.write_bytes(path.read_bytes().split(b"\n")[0] + b"\n")
    LabelBook(packet, "ann").close()  # the failed opening let go of the lock


def test_a_label_that_cannot_be_written_leaves_everything_as_it_was(
    packet: Packet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LabelBook(packet, "ann") as book:
        book.append("i0", YES)
        write = os.write

        def full_disk(descriptor: int, data: Any) -> int:
            write(descriptor, bytes(data)[:5])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("ragassay.audit.lines.os.write", full_disk)
        with pytest.raises(StoreError, match="No space left"):
            book.append("i0", NO)
        with pytest.raises(StoreError, match="No space left"):
            book.undo("i0")
        monkeypatch.undo()
        assert book.current()["i0"].labels == YES
        assert len(lines(packet)) == 1
        book.append("i1", NO)
    assert [*read_labels(packet, "ann")] == ["i0", "i1"]


def test_a_lone_surrogate_in_a_comment_survives(packet: Packet) -> None:
    with LabelBook(packet, "ann") as book:
        book.append("i0", YES, comment="\ud83d and \u2028")
    assert read_labels(packet, "ann")["i0"].comment == "\ud83d and \u2028"
