from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ragassay.cache_file import CacheFile
from ragassay.errors import StoreError


def opened(path: Path, *, version: int = 1) -> CacheFile:
    return CacheFile(
        path, what="toy cache", table="toy", columns="key TEXT PRIMARY KEY", version=version
    )


def test_many_that_make_one_file_at_once_all_get_it(tmp_path: Path) -> None:
    at_once = threading.Barrier(8)

    def open_and_write(number: int) -> None:
        at_once.wait()
        file = opened(tmp_path / f"{number // 8}.sqlite")
        with file.writing() as db:
            db.execute("INSERT INTO toy VALUES (?)", (str(number % 8),))
        file.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(open_and_write, range(8 * 40)))
    for number in range(40):
        with opened(tmp_path / f"{number}.sqlite").reading() as db:
            assert db.execute("SELECT count(*) FROM toy").fetchone() == (8,)


def test_an_error_inside_of_a_transaction_leaves_nothing(tmp_path: Path) -> None:
    file = opened(tmp_path / "toy.sqlite")

    def fail() -> None:
        with file.writing() as db:
            db.execute("INSERT INTO toy VALUES ('a')")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with pytest.raises(StoreError, match=r"^toy cache .*toy\.sqlite: UNIQUE"), file.writing() as db:
        db.executemany("INSERT INTO toy VALUES (?)", [("b",), ("b",)])
    with file.reading() as db:
        assert db.execute("SELECT * FROM toy").fetchall() == []


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    opened(tmp_path / "toy.sqlite", version=2).close()
    with pytest.raises(StoreError, match="has format 2, this ragassay knows 1"):
        opened(tmp_path / "toy.sqlite")
