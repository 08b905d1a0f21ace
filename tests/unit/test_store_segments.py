from __future__ import annotations

import errno
import gzip
import hashlib
import logging
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragassay.errors import StoreError
from ragassay.store import RunFolder, codecs, index, segments
from ragassay.store.keys import Keys, short
from ragassay.types import ContextEntry, Sampling, ScoreRecord, TrialRecord, TrialSpec

SPEC = TrialSpec(
    protocol="aligned/1", dataset="d", query_id="q", question="Wo liegt \ud800 Köln?", attack="",
    budget=0, poison="", retriever="r", defense="n", defense_label="none", prompt="p",
    generator="g", sampling=Sampling(), seed=1,
)  # fmt: skip
KEYS = [hashlib.sha256(b"%d" % i).hexdigest() for i in range(400)]
CODECS = ("gzip", "zstd")


def trial(key: str, status: str = "done") -> TrialRecord:
    return TrialRecord(
        key=key, spec=SPEC, status=status,  # type: ignore[arg-type]
        answer=f'answer ,"key":"{key[:4]}", "status":"failed" to {key}',
        trace={"key": "x", "status": "done"},
    )  # fmt: skip


def fill(path: Path, compression: str, *, pack: bool = True) -> RunFolder:
    folder = RunFolder(path)
    with folder.writer(compression=compression, segment_bytes=40_000):
        for key in KEYS:
            folder.append("trials", key, trial(key))
        if pack:
            folder.pack(least=1)
    return folder


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "BLOCK_BYTES", 5_000)
    monkeypatch.setattr(index, "WRITTEN_FROM", 0)


def names(folder: RunFolder) -> list[str]:
    return [part.path.name for part in segments.parts_of(folder.path, "trials")]


# ------------------------------------------------------------------------------- segments


@pytest.mark.parametrize("compression", CODECS)
def test_segments_read_as_the_plain_file_does(tmp_path: Path, compression: str) -> None:
    plain, packed = fill(tmp_path / "a", "none"), fill(tmp_path / "b", compression, pack=False)
    assert names(plain) == ["trials.jsonl"]
    assert len(names(packed)) > 3
    assert names(packed)[-1] == "trials.jsonl"
    assert list(packed.trials().items()) == list(plain.trials().items())
    assert packed.columns().key(7) == KEYS[7]
    assert packed.columns().record(7) == plain.trials()[KEYS[7]]


def test_a_packed_segment_is_an_ordinary_gzip_file(tmp_path: Path) -> None:
    folder = fill(tmp_path / "run", "gzip")
    text = b"".join(gzip.decompress((folder.path / name).read_bytes()) for name in names(folder))
    assert text.count(b"\n") == len(KEYS)


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("left", [0.3, 0.8])
def test_a_segment_that_ends_early_keeps_its_whole_records(
    tmp_path: Path, compression: str, left: float, caplog: pytest.LogCaptureFixture
) -> None:
    folder = fill(tmp_path / "run", compression)
    last = folder.path / names(folder)[-1]
    before = len(list(folder.read("trials")))
    packed = last.read_bytes()
    last.write_bytes(packed[: int(len(packed) * left)])
    with caplog.at_level(logging.WARNING):
        kept = list(folder.trials())
    assert kept == KEYS[: len(kept)]
    earlier = sum(name != last.name for name in names(folder))
    assert before * earlier / (earlier + 1) * 0.9 < len(kept) < before
    assert "ends early" in caplog.text
    with folder.writer():
        assert list(folder.trials()) == kept
        assert last.with_name(last.name + ".torn").exists()
        for key in KEYS[len(kept) :]:
            folder.append("trials", key, trial(key))
    assert list(folder.trials()) == KEYS


def test_an_early_end_before_later_records_is_an_error_until_writing_mends_it(
    tmp_path: Path,
) -> None:
    folder = fill(tmp_path / "run", "gzip")
    second = folder.path / names(folder)[1]
    second.write_bytes(second.read_bytes()[:-400])
    with pytest.raises(StoreError, match="ends early, and there are later records"):
        folder.trials()
    with folder.writer():
        missing = set(KEYS) - set(folder.trials())
    assert 0 < len(missing) < len(KEYS) / 3
    assert second.with_name(second.name + ".torn").exists()


@pytest.mark.parametrize("compression", CODECS)
def test_a_damaged_segment_is_an_error_that_names_it(tmp_path: Path, compression: str) -> None:
    folder = fill(tmp_path / "run", compression)
    first = folder.path / names(folder)[0]
    packed = bytearray(first.read_bytes())
    packed[len(packed) // 2] ^= 0xFF
    first.write_bytes(packed)
    with pytest.raises(StoreError, match=rf"{first.name} is damaged"):
        folder.trials()


def test_a_block_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fill(tmp_path / "run", "gzip")
    monkeypatch.setattr(codecs, "MAX_BLOCK", 1_000)
    with pytest.raises(StoreError, match="larger than 1000 bytes"):
        folder.trials()


@pytest.mark.parametrize("step", ["renamed", "packed"])
def test_a_rotation_that_was_interrupted_repeats_no_record(tmp_path: Path, step: str) -> None:
    folder = fill(tmp_path / "run", "none")
    growing = folder.path / "trials.jsonl"
    first = folder.path / "trials.00001.jsonl"
    growing.rename(first)
    if step == "packed":  # the plain file is there yet
        data = first.read_bytes()
        segments.pack(segments.Part(first, 1, "none"), "gzip")
        first.write_bytes(data)
    assert [key for key, _ in folder.read("trials")] == KEYS
    with folder.writer(compression="gzip"):
        pass
    assert names(folder) == ["trials.00001.jsonl.gz"]
    assert [key for key, _ in folder.read("trials")] == KEYS


def test_without_room_to_pack_a_segment_stays_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        folder = fill(tmp_path / "run", "gzip")
    assert "is not compressed: No space left" in caplog.text
    assert not list(folder.path.glob("*.gz"))
    assert list(folder.trials()) == KEYS
    with folder.writer(compression="gzip"):
        assert all(name.endswith(".gz") for name in names(folder))
    assert list(folder.trials()) == KEYS


def test_two_processes_read_while_one_rotates(tmp_path: Path) -> None:
    folder = fill(tmp_path / "run", "gzip")
    reader = (
        "import sys; from pathlib import Path; from ragassay.store import RunFolder\n"
        "run = RunFolder(Path(sys.argv[1])); before = 0\n"
        "for _ in range(12):\n"
        "    n = len(list(run.read('trials'))); k = len(run.index('trials'))\n"
        "    assert before <= n <= k, (before, n, k); before = n\n"
    )
    readers = [
        subprocess.Popen([sys.executable, "-c", reader, str(folder.path)], stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    with folder.writer(segment_bytes=20_000):
        round_ = 0
        while any(each.poll() is None for each in readers) and round_ < 20_000:
            folder.append("trials", KEYS[round_ % 400], trial(KEYS[round_ % 400]))
            round_ += 1
            time.sleep(0.001)  # a rotation every tenth of a second or so
    for each in readers:
        said = each.communicate()[1].splitlines()
        assert each.returncode == 0, said
        # a line may be seen while it is written; nothing else may be said
        assert all(line.endswith(b"the last line is torn and is left out") for line in said), said


# ---------------------------------------------------------------------------------- index


def test_the_index_finds_records_and_reads_only_what_is_new(tmp_path: Path) -> None:
    folder = fill(tmp_path / "run", "none")
    first = folder.index("trials")
    assert first.scanned > 0
    assert first.done([*KEYS, "absent"]) == set(KEYS)
    assert first.find(KEYS[9])[0]["key"] == KEYS[9]
    assert first.find("absent") == []
    assert first.starting(KEYS[9][:12]) == [KEYS[9]]
    assert KEYS[3] in first
    assert "absent" not in first
    assert folder.index("trials").scanned == 0
    with folder.writer():
        folder.append("trials", KEYS[9], trial(KEYS[9], "failed"))
    again = folder.index("trials")
    assert 0 < again.scanned < 2_000
    assert again.done(KEYS) == set(KEYS) - {KEYS[9]}
    assert [body["status"] for body in again.find(KEYS[9])] == ["done", "failed"]
    assert again.newest_done() == len(KEYS) - 1


def test_rotation_leaves_the_index_right(tmp_path: Path) -> None:
    folder = fill(tmp_path / "run", "none")
    held = folder.index("trials")
    with folder.writer(compression="gzip", segment_bytes=1):
        folder.append("trials", "more", trial("more"))
    assert names(folder) == ["trials.00001.jsonl.gz"]
    assert folder.index("trials").find("more")[0]["key"] == "more"
    assert held.find(KEYS[5])[0]["key"] == KEYS[5]  # opened before: it is made anew


def damage(path: Path, how: str) -> None:
    if how == "deleted":
        path.unlink()
    elif how == "torn":
        path.write_bytes(path.read_bytes()[:-100])
    elif how == "another":
        path.write_bytes(b"ragassay index 0\n{}\n")
    else:
        data = bytearray(path.read_bytes())
        data[-5] ^= 0xFF
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["deleted", "torn", "another", "flipped"])
def test_an_index_that_is_gone_or_damaged_is_made_anew(tmp_path: Path, how: str) -> None:
    folder = fill(tmp_path / "run", "gzip")
    folder.index("trials")
    damage(folder.path / ".index" / "trials.idx", how)
    again = folder.index("trials")
    assert again.scanned > 0
    assert again.done(KEYS) == set(KEYS)
    assert again.find(KEYS[-1])[0]["key"] == KEYS[-1]


def test_an_index_older_than_an_edit_of_the_file_is_made_anew(tmp_path: Path) -> None:
    folder = fill(tmp_path / "run", "none")
    folder.index("trials")
    file = folder.path / "trials.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:100] + lines[101:]))
    assert folder.index("trials").done(KEYS) == set(KEYS) - {KEYS[100]}
    file.write_bytes(file.read_bytes().replace(b'"status":"done","sus', b'"status":"dine","sus'))
    assert folder.index("trials").newest_done() == 0


def test_a_torn_last_line_is_in_no_index_and_comes_in_when_it_is_whole(tmp_path: Path) -> None:
    folder = fill(tmp_path / "run", "none")
    file = folder.path / "trials.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    assert folder.index("trials").done(KEYS) == set(KEYS[:-1])
    file.write_bytes(whole)
    assert folder.index("trials").done(KEYS) == set(KEYS)


def test_a_disk_without_room_for_the_index_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fill(tmp_path / "run", "gzip")
    (folder.path / ".index").write_text("in the way")
    assert folder.index("trials").done(KEYS) == set(KEYS)
    (folder.path / ".index").unlink()
    replace_ = Path.replace

    def full(self: Path, target: Any) -> Path:
        if target.name.endswith(".idx"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return replace_(self, target)

    monkeypatch.setattr(Path, "replace", full)
    assert folder.index("trials").find(KEYS[1])[0]["key"] == KEYS[1]
    assert not list((folder.path / ".index").iterdir())


def test_keys_that_agree_in_half_of_their_digest_are_told_apart() -> None:
    raw = b"".join([b"\1" * 8 + b"\2" * 8, b"\1" * 8 + b"\3" * 8, b"\1" * 8 + b"\2" * 8])
    keys = Keys(raw)
    assert keys.newest_rows().tolist() == [2, 1]
    text = (b"\1" * 8 + b"\3" * 8).hex().encode() * 2
    assert short(text) == raw[16:32]
    assert keys.newest([text, b"absent"]).tolist() == [1, -1]
    assert keys.rows(text) == [1]


# -------------------------------------------------------------------------------- columns


def test_columns_hold_the_newest_record_of_each_key_in_the_first_ones_place(
    tmp_path: Path,
) -> None:
    folder = RunFolder(tmp_path)
    score = ScoreRecord(
        trial_key="b", scorer="tokens", version="1", target_positive=None, correct=True,
        abstained=False, uncertain=("target_positive",),
    )  # fmt: skip
    with folder.writer():
        for key, status in (("a", "failed"), ("b", "done"), ("a", "done")):
            folder.append("trials", key, trial(key, status))
        folder.append("scores", "b", replace(score, correct=False))
        folder.append("scores", "b", score)
        folder.append("scores", "b#edits", replace(score, trial_key="b#edits"))
    found = folder.columns()
    assert [found.key(row) for row in range(len(found))] == ["a", "b"]
    assert found.done.all()
    assert found.labels("tokens").tolist() == [-2, -1]
    assert found.labels("tokens", "correct").tolist() == [-2, 1]
    assert found.score(1, "tokens") == score
    assert found.score(0, "tokens") is None
    assert found.record(0) == folder.trials()["a"]


def test_columns_hold_the_contexts(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    contexts = {
        "a": (ContextEntry(id="p1", score=0.5, origin="corpus", gold=True, kept=True),
              ContextEntry(id="x", score=0.25, origin="own", gold=False, kept=False)),
        "b": (),
        "c": (ContextEntry(id="p1", score=-1.0, origin="foreign", gold=False, kept=True,
                           copy="own"),),
    }  # fmt: skip
    with folder.writer():
        for key, context in contexts.items():
            folder.append("trials", key, replace(trial(key), context=context))
    found = folder.columns()
    assert [found.at(row).context for row in range(3)] == list(contexts.values())
    assert [found.at(row).context_ids for row in range(3)] == [["p1", "x"], [], ["p1"]]


def test_a_record_with_an_unknown_key_is_an_error_in_columns_too(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.writer():
        folder.append("trials", "a", trial("a"))
    file = tmp_path / "trials.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"declined"', b'"declines"'))
    with pytest.raises(StoreError, match="unknown key 'declines'"):
        folder.columns()
