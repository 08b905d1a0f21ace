from __future__ import annotations

import json
import logging
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ragassay.errors import BackendError, StoreError
from ragassay.retrieval import corpus_matrix, matrix_draft
from ragassay.retrieval.corpus_matrix import contents_of
from ragassay.retrieval.hashing import HashingEncoder
from ragassay.retrieval.matrix_draft import Draft
from ragassay.retrieval.vectors import EmbeddingStore

TEXTS = ["red fox", "blue whale", "red fox", "naïve \U0001f98a", "lone \ud800 half", ""]
IDS = [f"p{i}" for i in range(len(TEXTS))]


class Spy:
    """Hashing that keeps a record, can be slow, and can stop after some texts."""

    def __init__(self, identity: str = "spy", *, stop_after: int | None = None) -> None:
        self.identity = identity
        self.stop_after = stop_after
        self.seen: list[str] = []
        self.inside = 0
        self.most_inside = 0

    def encode(self, texts: Sequence[str], *, max_tokens: int | None = None) -> NDArray[np.float32]:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        time.sleep(0.01)
        if self.stop_after is not None and len(self.seen) + len(texts) > self.stop_after:
            raise BackendError("stopped")
        self.seen += texts
        self.inside -= 1
        return HashingEncoder(dimensions=16).encode(texts, max_tokens=max_tokens)


class HashingSpy:
    """The same without the waits."""

    def __init__(self, spy: Spy) -> None:
        self.spy = spy

    def encode(self, texts: Sequence[str], *, max_tokens: int | None = None) -> NDArray[np.float32]:
        self.spy.seen += texts
        return HashingEncoder(dimensions=16).encode(texts, max_tokens=max_tokens)


class SideBySide(Spy):
    """Takes up to four parts before it gives the vectors of the first."""

    ahead = 4

    def encode_parts(
        self, parts: Iterable[Sequence[str]], *, max_tokens: int | None = None
    ) -> Iterator[NDArray[np.float32]]:
        taken: deque[NDArray[np.float32]] = deque()
        for part in parts:
            taken.append(HashingSpy(self).encode(part, max_tokens=max_tokens))
            if len(taken) == self.ahead:
                yield taken.popleft()
        yield from taken


class Broken:
    identity = "broken"

    def __init__(self, result: object) -> None:
        self.result = result

    def encode(self, texts: Sequence[str], *, max_tokens: int | None = None) -> NDArray[np.float32]:
        if isinstance(self.result, Exception):
            raise self.result
        return np.asarray(self.result, dtype=np.float32)


def matrix(store: EmbeddingStore, texts: Sequence[str] = TEXTS, **options: object) -> np.ndarray:
    settings = {"fingerprint": "f", "max_tokens": 9, **options}
    contents = contents_of((f"p{i}", text) for i, text in enumerate(texts))
    return store.corpus_matrix(texts, contents=contents, **settings)  # type: ignore[arg-type]


def expected(texts: Sequence[str] = TEXTS) -> np.ndarray:
    return HashingEncoder(dimensions=16).encode(texts)


# ------------------------------------------------------------------------------ single texts


def test_a_second_store_encodes_nothing_and_returns_the_same_bits(tmp_path: Path) -> None:
    first = EmbeddingStore(tmp_path, Spy())
    found = first.embed(TEXTS, max_tokens=9)
    assert np.array_equal(found, expected())
    assert (first.encoded, first.reused) == (5, 0)  # one text comes twice
    assert first.seconds >= 0.01
    first.close()
    second = EmbeddingStore(tmp_path, Spy())
    assert np.array_equal(second.embed(TEXTS[::-1], max_tokens=9), found[::-1])
    assert (second.encoded, second.reused, second.seconds) == (0, 5, 0.0)


def test_limit_and_encoder_are_part_of_the_key(tmp_path: Path) -> None:
    store = EmbeddingStore(tmp_path, Spy())
    store.embed(["red fox"], max_tokens=9)
    cut = store.embed(["red fox"], max_tokens=1)
    assert np.array_equal(cut, expected(["red"]))
    assert store.encoded == 2
    assert EmbeddingStore(tmp_path, Spy(), identity="other").embed(["red fox"], max_tokens=9).any()
    other = EmbeddingStore(tmp_path, Spy("third"))
    other.embed(["red fox"], max_tokens=9)
    assert other.encoded == 1


def test_no_text_gives_no_row(tmp_path: Path) -> None:
    assert EmbeddingStore(tmp_path, Spy()).embed([], max_tokens=None).shape == (0, 16)


def test_threads_that_want_the_same_texts_encode_them_once_and_never_together(
    tmp_path: Path,
) -> None:
    spy = Spy()
    store = EmbeddingStore(tmp_path, spy)
    start = threading.Barrier(4)

    def work(_: int) -> np.ndarray:
        start.wait()
        return store.embed(TEXTS, max_tokens=9)

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(work, range(4)):
            assert np.array_equal(found, expected())
    assert sorted(spy.seen) == sorted(set(TEXTS))
    assert spy.most_inside == 1
    assert (store.encoded, store.reused) == (5, 15)


def test_processes_share_one_file(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from ragassay.retrieval.corpus_matrix import contents_of\n"
        "from ragassay.retrieval.hashing import HashingEncoder\n"
        "from ragassay.retrieval.vectors import EmbeddingStore\n"
        "store = EmbeddingStore(pathlib.Path(sys.argv[1]), HashingEncoder())\n"
        "for n in range(60):\n"
        "    store.embed([f'text {n}', f'text {n + 1}'], max_tokens=9)\n"
        "contents = contents_of([('a', 'text')])\n"
        "store.corpus_matrix(['text'], contents=contents, fingerprint='f', max_tokens=9)\n"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for run in runs:
        _, errors = run.communicate(timeout=60)
        assert (run.returncode, errors) == (0, b"")
    store = EmbeddingStore(tmp_path, HashingEncoder())
    store.embed([f"text {n}" for n in range(61)], max_tokens=9)
    assert store.encoded == 0


def test_a_damaged_row_is_encoded_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    EmbeddingStore(tmp_path, Spy()).embed(["red fox", "blue whale"], max_tokens=9)
    with sqlite3.connect(tmp_path / "embeddings.sqlite") as db:
        db.execute("UPDATE embedding SET vector = zeroblob(length(vector))")
    store = EmbeddingStore(tmp_path, Spy())
    assert np.array_equal(store.embed(["red fox"], max_tokens=9), expected(["red fox"]))
    assert store.encoded == 1
    assert "1 damaged rows are encoded again" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"this is no database at all, but it is long enough", "Move it away"),
        (None, "no cache of embeddings"),
    ],
)
def test_a_file_of_someone_else_is_left_alone(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "embeddings.sqlite"
    if content is None:
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE mine (x)")
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=message):
        EmbeddingStore(tmp_path, Spy())
    assert path.read_bytes() == before


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    EmbeddingStore(tmp_path, Spy()).close()
    with sqlite3.connect(tmp_path / "embeddings.sqlite") as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="format 99"):
        EmbeddingStore(tmp_path, Spy())


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([[1.0, float("nan")]], "vector of text 1 is not finite"),
        ([[1.0], [2.0]], r"expected 1 vectors, got an array of shape \(2, 1\)"),
        ([1.0], "array of shape"),
        (KeyError("token\n7"), "broken failed: KeyError"),
        (BackendError("own words"), "^own words$"),
    ],
)
def test_an_encoder_that_misbehaves_is_named_and_leaves_nothing(
    tmp_path: Path, result: object, message: str
) -> None:
    store = EmbeddingStore(tmp_path, Broken(result))
    with pytest.raises(BackendError, match=message):
        store.embed(["a"], max_tokens=9)
    with pytest.raises(BackendError, match=message):
        matrix(store, ["a"])
    later = EmbeddingStore(tmp_path, Spy("broken"))
    later.embed(["a"], max_tokens=9)
    assert later.encoded == 1


# ---------------------------------------------------------------------------- corpus matrices


def test_a_matrix_is_written_once_and_then_mapped(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    first = EmbeddingStore(tmp_path, Spy())
    found = matrix(first, progress=lambda done, total: heard.append((done, total)))
    assert np.array_equal(found, expected())
    assert first.encoded == 5  # equal texts once
    assert heard == [(5, 5)]
    second = EmbeddingStore(tmp_path, Spy())
    again = matrix(second)
    assert isinstance(again, np.memmap)
    assert not again.flags.writeable
    assert np.array_equal(again, found)
    assert (second.encoded, second.reused) == (0, 6)
    assert {path.suffix for path in (tmp_path / "embeddings").iterdir()} <= {
        ".npy",
        ".json",
        ".lock",
    }


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": 1},
        {"fingerprint": "g"},
        {"texts": [*TEXTS[:-1], "changed"]},
    ],
)
def test_other_contents_are_another_matrix(tmp_path: Path, change: dict[str, object]) -> None:
    matrix(EmbeddingStore(tmp_path, Spy()))
    store = EmbeddingStore(tmp_path, Spy())
    matrix(store, **change)  # type: ignore[arg-type]
    assert store.encoded == 5


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 8)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: truncate(next(folder.glob("*.npy"))),
        lambda folder: flip(next(folder.glob("*.npy"))),
        lambda folder: next(folder.glob("*.npy")).write_bytes(b""),
        lambda folder: next(folder.glob("*.npy")).write_bytes(b"\x80\x04not an array"),
        lambda folder: next(folder.glob("*.npy")).unlink(),
        lambda folder: next(folder.glob("*.json")).unlink(),
        lambda folder: next(folder.glob("*.json")).write_text("{", encoding="utf-8"),
        lambda folder: next(folder.glob("*.json")).write_text("[]", encoding="utf-8"),
        lambda folder: next(folder.glob("*.json")).write_bytes(b"\xff\xfe"),
    ],
)
def test_a_damaged_matrix_is_encoded_again_and_never_trusted(
    tmp_path: Path, damage: object, caplog: pytest.LogCaptureFixture
) -> None:
    matrix(EmbeddingStore(tmp_path, Spy()))
    damage(tmp_path / "embeddings")  # type: ignore[operator]
    store = EmbeddingStore(tmp_path, Spy())
    with caplog.at_level(logging.WARNING):
        assert np.array_equal(matrix(store), expected())
    assert store.encoded == 5
    assert "is encoded again" in caplog.text


def test_a_sidecar_that_states_something_else_is_not_believed(tmp_path: Path) -> None:
    matrix(EmbeddingStore(tmp_path, Spy()))
    sidecar = next((tmp_path / "embeddings").glob("*.json"))
    stated = json.loads(sidecar.read_text(encoding="utf-8"))
    assert stated["shape"] == [6, 16]
    sidecar.write_text(json.dumps({**stated, "encoder": "another"}), encoding="utf-8")
    store = EmbeddingStore(tmp_path, Spy())
    matrix(store)
    assert store.encoded == 5


def test_an_interrupted_encoding_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(corpus_matrix, "PART_SIZE", 4)
    monkeypatch.setattr(corpus_matrix, "WINDOW", 10)
    texts = [f"text number {n}" for n in range(22)]
    with pytest.raises(BackendError, match="stopped"):
        matrix(EmbeddingStore(tmp_path, Spy(stop_after=12)), texts)
    part = next((tmp_path / "embeddings").glob("*.part"))
    content = bytearray(part.read_bytes())
    content[content.index(expected([texts[5]]).tobytes())] ^= 1
    part.write_bytes(content)
    spy = Spy()
    heard: list[tuple[int, int]] = []
    found = matrix(
        EmbeddingStore(tmp_path, spy), texts, progress=lambda *step: heard.append(tuple(step))
    )
    assert np.array_equal(found, expected(texts))
    assert len(spy.seen) == 22 - 10 + 4  # a window of 10 was whole, and one part of it damaged
    assert heard[-1] == (22, 22)
    assert "damaged" in caplog.text
    assert not list((tmp_path / "embeddings").glob("*.part"))


def test_parts_that_are_encoded_side_by_side_give_the_same_file_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_matrix, "PART_SIZE", 3)
    monkeypatch.setattr(corpus_matrix, "WINDOW", 8)
    texts = [f"text number {n % 17} {'and more ' * (n % 3)}" for n in range(40)]
    stores = [
        EmbeddingStore(tmp_path / "one", Spy()), EmbeddingStore(tmp_path / "many", SideBySide())
    ]  # fmt: skip
    heard: list[list[tuple[int, int]]] = [[], []]
    found = [
        matrix(store, texts, progress=lambda *step, into=into: into.append(step))
        for store, into in zip(stores, heard, strict=True)
    ]
    assert np.array_equal(*found)
    files = [
        {p.name: p.read_bytes() for p in (tmp_path / name / "embeddings").iterdir()}
        for name in ("one", "many")
    ]
    assert files[0] == files[1]
    assert heard[0] == heard[1]
    assert stores[0].encoded == stores[1].encoded == len(set(texts))


def test_fewer_vectors_than_parts_are_an_error(tmp_path: Path) -> None:
    class Short(SideBySide):
        def encode_parts(
            self, parts: Iterable[Sequence[str]], *, max_tokens: int | None = None
        ) -> Iterator[NDArray[np.float32]]:
            list(parts)
            return iter(())

    with pytest.raises(BackendError, match="no vectors for 5 texts"):
        matrix(EmbeddingStore(tmp_path, Short()))


@pytest.mark.parametrize(("encoder", "parts"), [(Spy, 1), (SideBySide, SideBySide.ahead)])
def test_a_stop_at_any_write_costs_at_most_the_parts_under_way_and_changes_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: type[Spy], parts: int
) -> None:
    monkeypatch.setattr(corpus_matrix, "PART_SIZE", 3)
    monkeypatch.setattr(corpus_matrix, "WINDOW", 8)
    texts = [f"text number {n % 17} {'and more ' * (n % 3)}" for n in range(20)]
    distinct = len(set(texts))
    put, append, replace = (
        Draft._put, Draft._append, matrix_draft.replace_file
    )  # fmt: skip
    left = [10**6]

    class Stop(BaseException):
        pass

    def counted(act: object, cut: object) -> object:
        def step(*args: object) -> None:
            left[0] -= 1
            if left[0] == 0:
                cut(*args)  # type: ignore[operator]
            if left[0] <= 0:
                raise Stop
            act(*args)  # type: ignore[operator]

        return step

    monkeypatch.setattr(
        Draft,
        "_put",
        counted(put, lambda draft, content, place: put(draft, content[: len(content) // 2], place)),
    )

    def half_a_line(draft: Draft, said: dict[str, object]) -> None:
        append(draft, said)
        content = draft.log.read_bytes()
        draft.log.write_bytes(content[: -len(json.dumps(said)) // 2])

    monkeypatch.setattr(Draft, "_append", counted(append, half_a_line))
    for module in (corpus_matrix, matrix_draft):
        monkeypatch.setattr(module, "replace_file", counted(replace, lambda path, content: None))
    matrix(EmbeddingStore(tmp_path / "whole", Spy()), texts)
    steps = 10**6 - left[0]
    wanted = {p.name: p.read_bytes() for p in (tmp_path / "whole" / "embeddings").iterdir()}
    for step in range(1, steps + 1):
        left[0] = step
        folder = tmp_path / str(step)
        first, second = encoder(), encoder()
        for spy in (first, second):
            monkeypatch.setattr(spy, "encode", HashingSpy(spy).encode)
        with pytest.raises(Stop):
            matrix(EmbeddingStore(folder, first), texts)
        left[0] = 10**6
        matrix(EmbeddingStore(folder, second), texts)
        found = {p.name: p.read_bytes() for p in (folder / "embeddings").iterdir()}
        assert found == wanted
        assert len(first.seen) + len(second.seen) <= distinct + 3 * parts


def test_a_killed_process_is_resumed_with_the_same_bytes(tmp_path: Path) -> None:
    program = (
        "import sys, time, pathlib\n"
        "from ragassay.retrieval import corpus_matrix\n"
        "from ragassay.retrieval.hashing import HashingEncoder\n"
        "from ragassay.retrieval.vectors import EmbeddingStore\n"
        "corpus_matrix.PART_SIZE, corpus_matrix.WINDOW = 5, 40\n"
        "texts = [f'text number {n}' for n in range(600)]\n"
        "contents = corpus_matrix.contents_of((text, text) for text in texts)\n"
        "store = EmbeddingStore(pathlib.Path(sys.argv[1]), HashingEncoder())\n"
        "def tell(done, total):\n"
        "    print(done, flush=True)\n"
        "    time.sleep(float(sys.argv[2]))\n"
        "store.corpus_matrix(texts, contents=contents, fingerprint='f', max_tokens=9,\n"
        "                    progress=tell)\n"
    )
    command = [sys.executable, "-c", program]
    done = 0
    for wait in (0, 30, 50):
        with subprocess.Popen([*command, str(tmp_path / "killed"), "0.01"], stdout=-1) as run:
            assert run.stdout is not None
            for _ in range(wait + 1):
                line = run.stdout.readline()
            run.kill()
        assert int(line) >= done  # it goes on where it was
        done = int(line)
    assert 0 < done < 600
    for name in ("killed", "whole"):
        subprocess.run([*command, str(tmp_path / name), "0"], check=True, stdout=-3)
    [killed], [whole] = (
        list((tmp_path / name / "embeddings").glob("*.npy")) for name in ("killed", "whole")
    )
    assert killed.read_bytes() == whole.read_bytes()


def test_numbers_too_large_for_float16_are_refused(tmp_path: Path) -> None:
    store = EmbeddingStore(tmp_path, Broken([[70_000.0, 1.0]]))
    with pytest.raises(BackendError, match='storage = "float32"'):
        matrix(store, ["a"], storage="float16")


def test_texts_that_only_seem_equal_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_matrix, "WINDOW", 4)
    all_equal = corpus_matrix._Copies(np.arange(1, 6), np.zeros(5, np.int64))
    monkeypatch.setattr(corpus_matrix, "_copies", lambda texts: all_equal)
    assert np.array_equal(matrix(EmbeddingStore(tmp_path, Spy())), expected())


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StoreError, match="folder cannot be made"):
        EmbeddingStore(tmp_path / "file", Spy())
    store = EmbeddingStore(tmp_path, Spy())
    (tmp_path / "embeddings").write_text("in the way", encoding="utf-8")
    with pytest.raises(StoreError, match="cannot be kept in"):
        matrix(store)
