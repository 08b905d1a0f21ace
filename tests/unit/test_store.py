from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ragassay.errors import StoreError
from ragassay.store import RunFolder, score_from, trial_from
from ragassay.types import (
    ContextEntry,
    Evidence,
    Sampling,
    ScoreRecord,
    ToolUsage,
    TrialRecord,
    TrialSpec,
)

SPEC = TrialSpec(
    protocol="aligned/1", dataset="d", query_id="q", question="Wo liegt \ud800 Köln?", attack="",
    budget=0, poison="", retriever="r", defense="n", defense_label="none", prompt="p",
    generator="g", sampling=Sampling(), seed=1,
)  # fmt: skip
TRIAL = TrialRecord(
    key="k", spec=SPEC, status="done",
    context=(ContextEntry(id="a", score=0.5, origin="own", gold=False, kept=True),),
    answer="北京\n", trace={"x": [1, {"y": None}]}, usage=ToolUsage(model_calls=2),
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def test_records_come_back_as_they_were_written(folder: RunFolder) -> None:
    score = ScoreRecord(
        trial_key="k", scorer="tokens", version="1", target_positive=None, correct=True,
        abstained=False, evidence=(Evidence(label="reference", start=0, stop=2),),
    )  # fmt: skip
    with folder.writer():
        folder.append("trials", "k", TRIAL)
        folder.append("scores", "k", score)
    back = folder.trials()["k"]
    assert back.spec == SPEC
    assert back.context == TRIAL.context
    assert back.answer == TRIAL.answer
    assert back.usage == TRIAL.usage
    assert back.trace == {"x": [1, {"y": None}]}
    assert folder.scores() == {("k", "tokens"): score}


def test_the_newest_record_of_a_key_counts(folder: RunFolder) -> None:
    failed = {"key": "k", "spec": SPEC, "status": "failed"}
    with folder.writer():
        folder.append("trials", "k", TrialRecord(**failed))  # type: ignore[arg-type]
        folder.append("trials", "k", TRIAL)
    assert folder.trials()["k"].status == "done"


@pytest.mark.parametrize("torn", [b"{", b'{"v":1,"kind":"trials"', b"\xff\xfe", b"x" * 200_000])
def test_a_torn_last_line_is_cut_off_and_writing_goes_on(
    folder: RunFolder, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with folder.writer():
        folder.append("trials", "k", TRIAL)
    file = folder.path / "trials.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + torn)
    with caplog.at_level(logging.WARNING):
        assert set(folder.trials()) == {"k"}
        with folder.writer():
            assert file.read_bytes() == whole
            folder.append("trials", "k2", TRIAL)
    assert "torn" in caplog.text
    assert set(folder.trials()) == {"k", "k2"}


def test_a_file_that_is_nothing_but_a_torn_line_becomes_empty(folder: RunFolder) -> None:
    folder.path.mkdir()
    (folder.path / "trials.jsonl").write_bytes(b'{"v":1')
    with folder.writer():
        assert (folder.path / "trials.jsonl").read_bytes() == b""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"v":2,"kind":"trials","key":"k","at":"","body":{}}', "record version 2"),
        ('{"v":1,"kind":"scores","key":"k","at":"","body":{}}', "kind 'scores'"),
        ("not json", "damaged record"),
        ("[]", "damaged record"),
    ],
)
def test_a_wrong_record_names_file_and_line(folder: RunFolder, line: str, expected: str) -> None:
    folder.path.mkdir()
    (folder.path / "trials.jsonl").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(StoreError, match=r"trials\.jsonl:1") as caught:
        folder.trials()
    assert expected in str(caught.value)


def test_an_unknown_key_in_a_record_is_an_error_not_ignored() -> None:
    from ragassay.canon import to_plain

    with pytest.raises(StoreError, match="unknown key 'surprise'"):
        trial_from({**to_plain(TRIAL), "surprise": 1})
    with pytest.raises(StoreError, match="incomplete"):
        score_from({"trial_key": "k", "evidence": []})


def test_a_second_writer_is_refused_until_the_first_has_ended(folder: RunFolder) -> None:
    code = (
        "import sys; from pathlib import Path; from ragassay.store import RunFolder\n"
        "from ragassay.errors import StoreError\n"
        "try:\n"
        "    with RunFolder(Path(sys.argv[1])).writer(): pass\n"
        "except StoreError as error: print(error); sys.exit(4)\n"
    )
    command = [sys.executable, "-c", code, str(folder.path)]
    with folder.writer():
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        assert second.returncode == 4
        assert "in use by another" in second.stdout
    assert subprocess.run(command, check=False).returncode == 0


def test_a_full_disk_loses_nothing_written_before(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with folder.writer():
        folder.append("trials", "k", TRIAL)
        before = (folder.path / "trials.jsonl").read_bytes()
        real = os.write

        def full(descriptor: int, data: Any) -> int:
            if len(data) > 20:
                return real(descriptor, bytes(data)[:20])
            raise OSError(errno.ENOSPC, "No space left on device")

        def fail(descriptor: int, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        for broken in (full, fail):
            calls = iter([full, fail]) if broken is full else iter([fail])
            monkeypatch.setattr(os, "write", lambda d, b, calls=calls: next(calls)(d, b))
            with pytest.raises(StoreError, match="No space left"):
                folder.append("trials", "k2", TRIAL)
            monkeypatch.setattr(os, "write", real)
            assert (folder.path / "trials.jsonl").read_bytes() == before
        folder.append("trials", "k3", TRIAL)
    assert set(folder.trials()) == {"k", "k3"}


def test_an_interrupt_in_the_middle_of_a_line_takes_it_back(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def interrupted(descriptor: int, data: Any) -> int:
        if len(data) > 20 and not started:
            started.append(real(descriptor, bytes(data)[:20]))
            return started[0]
        raise KeyboardInterrupt

    started: list[int] = []
    with folder.writer():
        folder.append("trials", "k", TRIAL)
        monkeypatch.setattr(os, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            folder.append("trials", "k2", TRIAL)
        monkeypatch.setattr(os, "write", real)
        folder.append("trials", "k3", TRIAL)
    assert set(folder.trials()) == {"k", "k3"}


def test_temporary_files_of_dead_writers_are_swept(folder: RunFolder) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left, alive = str(dead.pid), str(os.getppid())
    names = {  # name: whether it goes, and whether it is old
        f".trials.00001.jsonl.gz.{left}.tmp": (True, False),
        f".trials.00001.jsonl.gz.{alive}.tmp": (True, False),  # the lock says that nobody writes it
        f".summary.json.{left}.tmp": (True, True),
        f".report.html.{left}.tmp": (False, False),  # perhaps of another machine
        f".report.html.{alive}.tmp": (False, True),
        f"provenance/.scoring.json.{left}.tmp": (True, True),
        f".index/trials.idx.{left}.tmp": (True, True),
        f".index/scores.idx.{alive}.tmp": (False, True),
        f".mine.txt.{left}.tmp": (False, True),
        f"summary.json.{left}.tmp": (False, True),
        ".summary.json.tmp": (False, True),
        "trials.00001.jsonl.gz.torn": (False, True),
    }
    for name, (_, old) in names.items():
        path = folder.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half", encoding="utf-8")
        if old:
            os.utime(path, (0, 0))
    (folder.path / f".poison.jsonl.{left}.tmp").mkdir()
    with folder.writer():
        there = {name for name in names if (folder.path / name).exists()}
    assert there == {name for name, (goes, _) in names.items() if not goes}


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with (
        pytest.raises(StoreError, match="cannot be written"),
        RunFolder(tmp_path / "file" / "run").writer(),
    ):
        pass


def test_a_folder_without_a_run_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"has no summary\.json"):
        RunFolder(tmp_path).read_json("summary.json")
    (tmp_path / "summary.json").write_text(json.dumps([1]), encoding="utf-8")
    with pytest.raises(StoreError, match="must hold a JSON object"):
        RunFolder(tmp_path).read_json("summary.json")
