from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest

from ragassay.errors import ConfigError, StoreError
from ragassay.store import remote

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def bucket() -> Any:
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    for name in (
        "resolved.json", "trials.jsonl", "trials.00001.jsonl.gz", "provenance/scoring.json",
        "report.html", ".lock", "trials.00001.jsonl.gz.torn", "evil.py", "sub/trials.jsonl",
        "provenance/..", "TRIALS.JSONL",
    ):  # fmt: skip
        system.pipe_file(f"/run/{name}", name.encode())
    return system


def test_only_files_of_a_run_come_and_the_copy_goes_away(bucket: Any) -> None:
    with remote.local("memory://run") as path:
        found = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
        assert found == [
            "provenance/scoring.json", "report.html", "resolved.json", "trials.00001.jsonl.gz",
            "trials.jsonl",
        ]  # fmt: skip
        assert (path / "trials.jsonl").read_bytes() == b"trials.jsonl"
    assert not path.exists()


@pytest.mark.parametrize("url", ["memory://run", "simplecache::memory://run"])
def test_a_command_takes_only_the_files_that_it_reads(bucket: Any, url: str) -> None:
    with remote.local(url, ["resolved.json", "trials"]) as path:
        found = sorted(file.name for file in path.rglob("*") if file.is_file())
        assert found == ["resolved.json", "trials.00001.jsonl.gz", "trials.jsonl"]
        assert (path / "trials.jsonl").read_bytes() == b"trials.jsonl"


def test_an_error_in_the_copy_names_the_url(bucket: Any) -> None:
    with pytest.raises(StoreError) as caught, remote.local("memory://run") as path:
        raise StoreError(f"{path}/trials.jsonl:1: damaged")
    assert str(caught.value) == "memory://run/trials.jsonl:1: damaged"


def test_a_path_is_itself(tmp_path: Path) -> None:
    with remote.local(tmp_path) as path:
        assert path == tmp_path
    assert not any(map(remote.is_url, (r"C:\runs\mine", "runs/a::b", "a::b")))


def test_a_download_is_bounded(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MAX_BYTES", 20)
    with pytest.raises(StoreError, match="larger than 20 bytes"), remote.local("memory://run"):
        pass
    monkeypatch.setattr(remote, "MAX_BYTES", 1 << 20)
    monkeypatch.setattr(remote, "MAX_FILES", 3)
    with pytest.raises(StoreError, match="more than 3 files"), remote.local("memory://run"):
        pass


@pytest.mark.parametrize(
    ("url", "error", "says"),
    [
        ("memory://nothing", StoreError, "there is no such folder"),
        ("memory://run/sub", StoreError, "is no run folder: it has no resolved.json"),
        ("nosuch://run", ConfigError, "fsspec knows no protocol 'nosuch'"),
        ("nosuch::memory://run", ConfigError, "fsspec knows no protocol 'nosuch'"),
        ("simplecache::nosuch://run", ConfigError, "fsspec knows no protocol 'nosuch'"),
        ("file:///no/such/folder", StoreError, "there is no such folder"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    bucket: Any, url: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says) as caught, remote.local(url):
        pass
    assert "\n" not in str(caught.value)


def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def none(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == "fsspec":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "fsspec", raising=False)
    monkeypatch.setattr(builtins, "__import__", none)
    with (
        pytest.raises(ConfigError, match=r"pip install 'ragassay\[remote\]'"),
        remote.local("s3://x"),
    ):
        pass
