from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ragassay.errors import StoreError
from ragassay.generation.cache import SCHEMA_VERSION, GenerationCache, request_digest
from ragassay.types import Generation, Message, Request, Sampling

REQUEST = Request(messages=(Message(role="user", content="Where is Köln? \ud800"),))
ANSWER = Generation(
    text="Am Rhein.\x00\n\ud83d", finish="length", input_tokens=7, output_tokens=3, digest="d1",
    seconds=0.5,
)  # fmt: skip

WRITER = """
import sys
from ragassay.generation.cache import GenerationCache
from ragassay.types import Generation

path, name, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
cache = GenerationCache(path)
for i in range(rounds):
    batch = [Generation(text=f"{name} {i} {j} " + "x" * 500, digest=f"{name}-{i}-{j}")
             for j in range(8)]
    cache.put_many([*batch, Generation(text=name, digest=f"both-{i}")], identity="m")
    print(i, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "generations.sqlite"


def start_writer(path: Path, name: str, rounds: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(rounds)],
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def test_a_stored_answer_comes_back_unchanged_also_after_reopening(path: Path) -> None:
    with GenerationCache(path) as cache:
        assert cache.put_many([ANSWER], identity="m") == {}
    with GenerationCache(path) as cache:
        found = cache.get_many(["absent", "d1", "d1"])
        assert found == {"d1": replace(ANSWER, cached=True, seconds=0.0)}
        assert cache.count() == 1
        assert cache.get_many([]) == {}


def test_the_row_names_the_model_and_the_time(path: Path) -> None:
    with GenerationCache(path) as cache:
        cache.put_many([ANSWER], identity="model \ud800")
    row = sqlite3.connect(path).execute("SELECT identity, created_at FROM generation").fetchone()
    assert row[0] == "model \\ud800"
    assert row[1].endswith("+00:00")


def test_the_first_answer_stays_and_a_later_writer_is_told(path: Path) -> None:
    with GenerationCache(path) as cache:
        cache.put_many([ANSWER], identity="m")
        earlier = cache.put_many(
            [replace(ANSWER, text="other"), replace(ANSWER, digest="d2")], identity="m"
        )
        assert {digest: g.text for digest, g in earlier.items()} == {"d1": ANSWER.text}
        assert cache.get_many(["d1"])["d1"].text == ANSWER.text
        assert cache.count() == 2


def test_thousands_of_keys_are_looked_up_at_once(path: Path) -> None:
    with GenerationCache(path) as cache:
        digests = [f"{i:064d}" for i in range(3000)]
        cache.put_many([replace(ANSWER, digest=digest) for digest in digests], identity="m")
        assert sorted(cache.get_many(digests)) == digests


def test_the_key_depends_on_all_that_can_change_an_answer_and_on_nothing_else() -> None:
    variants = [
        request_digest("m", REQUEST),
        request_digest("n", REQUEST),
        request_digest("m", replace(REQUEST, sample_index=1)),
        request_digest("m", replace(REQUEST, sampling=Sampling(temperature=0.5))),
        request_digest("m", replace(REQUEST, sampling=Sampling(top_p=0.5))),
        request_digest("m", replace(REQUEST, sampling=Sampling(max_tokens=65))),
        request_digest("m", Request(messages=(Message(role="system", content="a"),))),
        request_digest("m", Request(messages=(Message(role="user", content="a"),))),
    ]
    assert len(set(variants)) == len(variants)
    whole = replace(REQUEST, sampling=Sampling(temperature=0, top_p=1))
    assert request_digest("m", whole) == variants[0]


def test_an_answer_without_a_key_is_refused(path: Path) -> None:
    with GenerationCache(path) as cache, pytest.raises(ValueError, match="digest"):
        cache.put_many([Generation(text="a")], identity="m")


@pytest.mark.parametrize("content", [b"not a database, but my notes\n" * 50, b"short"])
def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.sqlite"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"notes\.sqlite.*not a database"):
        GenerationCache(path)
    assert path.read_bytes() == content


def test_a_database_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE songs (name)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="no generation cache"):
        GenerationCache(path)
    assert path.read_bytes() == before


def test_a_newer_format_is_refused(path: Path) -> None:
    GenerationCache(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    with pytest.raises(StoreError, match=f"format {SCHEMA_VERSION + 1}.*newer ragassay"):
        GenerationCache(path)


def test_a_read_only_cache_names_file_and_reason(path: Path) -> None:
    with GenerationCache(path) as cache:
        cache._file._db.execute("PRAGMA query_only = 1")  # what SQLite says for a read-only file
        with pytest.raises(StoreError, match=r"generations\.sqlite: .*readonly"):
            cache.put_many([ANSWER], identity="m")
        cache._file._db.execute("PRAGMA query_only = 0")
        cache.put_many([ANSWER], identity="m")


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere"
)
def test_a_read_only_file_is_refused_on_opening(path: Path) -> None:
    GenerationCache(path).close()
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        with pytest.raises(StoreError, match=r"generations\.sqlite"):
            GenerationCache(path)
    finally:
        path.parent.chmod(0o755)


def test_a_full_disk_loses_the_batch_but_not_the_file(path: Path) -> None:
    with GenerationCache(path) as cache:
        cache.put_many([ANSWER], identity="m")
        pages = cache._file._db.execute("PRAGMA page_count").fetchone()[0]
        cache._file._db.execute(f"PRAGMA max_page_count = {pages}")
        big = [replace(ANSWER, digest=f"b{i}", text="x" * 9000) for i in range(20)]
        with pytest.raises(StoreError, match=r"generations\.sqlite: .*full"):
            cache.put_many(big, identity="m")
        assert cache.count() == 1
        cache._file._db.execute("PRAGMA max_page_count = 100000")
        cache.put_many(big, identity="m")
        assert cache.count() == 21


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StoreError, match="folder cannot be made"):
        GenerationCache(tmp_path / "file" / "below" / "cache.sqlite")
    with pytest.raises(StoreError, match="unable to open"):
        GenerationCache(tmp_path)


def test_a_closed_cache_says_so(path: Path) -> None:
    cache = GenerationCache(path)
    cache.close()
    cache.close()
    with pytest.raises(StoreError, match="closed"):
        cache.get_many(["d1"])


def test_many_threads_share_one_cache(path: Path) -> None:
    with GenerationCache(path) as cache:

        def work(name: int) -> None:
            for i in range(20):
                cache.put_many([replace(ANSWER, digest=f"{name}-{i}")], identity="m")
                assert f"{name}-{i}" in cache.get_many([f"{name}-{i}"])

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert cache.count() == 160


def test_two_processes_write_the_same_new_file_at_once(path: Path) -> None:
    writers = [start_writer(path, name, 30) for name in ("a", "b")]
    outputs = [writer.communicate(timeout=60)[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    assert all(len(output.split()) == 30 for output in outputs)
    with GenerationCache(path) as cache:
        assert cache.count() == 2 * 30 * 8 + 30


def test_kill_9_while_writing_loses_at_most_the_running_batch(path: Path) -> None:
    writer = start_writer(path, "a", 10**6)
    assert writer.stdout is not None
    reported = -1
    for line in writer.stdout:
        reported = int(line)
        if reported == 40:
            break
    os.kill(writer.pid, signal.SIGKILL)
    reported = max([reported, *map(int, writer.stdout.read().split())])
    writer.wait()
    writer.stdout.close()
    with GenerationCache(path) as cache:
        assert cache.count() % 9 == 0
        assert cache.count() // 9 - (reported + 1) in (0, 1)
        assert cache._file._db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        cache.put_many([ANSWER], identity="m")
