"""Exact search: against faiss, the bare product, float16 storage, and poison beside it."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from side_by_side import Row, medians, ratio, take_turns

DIMENSION = 384
K = 10
BLOCK = 32_768

SIZE = "100 queries x 1,000,000 x 384"
FAISS = Row(
    name="search_faiss", what=f"exact top-10, {SIZE} float32 from a memory map",
    against="faiss-cpu IndexFlatIP on the same arrays", kind="at least", target=6,
)  # fmt: skip
BARE = Row(
    name="search_bare", what="the same",
    against="the bare blocked float32 product, no top-k, same threads", kind="at most", target=1.7,
)  # fmt: skip
HALF = Row(
    name="search_float16", what="the same from float16 storage", against="float32 storage",
    kind="at most", target=1.3,
)  # fmt: skip
SAME = Row(
    name="search_float16_same", what="members of the top-10 that float16 storage keeps",
    against="float32 storage", kind="at least", target=0.999, unit="share",
)  # fmt: skip
POISON = Row(
    name="poisoned", what="poisoned retrieval, 100 queries x 50 poison passages, encoder apart",
    against="one clean pass over 1,000,000 passages", kind="at most", target=0.05,
)  # fmt: skip
ROWS = (FAISS, BARE, HALF, SAME, POISON)


def measure(*, quick: bool) -> Iterator[Row]:
    """All rows, over one set of arrays."""
    n, m, rounds = (20_000, 20, 2) if quick else (1_000_000, 100, 7)
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        queries = _unit(rng.standard_normal((m, DIMENSION), dtype=np.float32))
        _write(Path(folder), n, rng)
        yield from _search(Path(folder), queries, n, rounds)
        yield _poisoned(Path(folder), queries, n, rounds)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _write(folder: Path, n: int, rng: np.random.Generator) -> None:
    files = {
        name: np.lib.format.open_memmap(
            folder / f"{name}.npy", mode="w+", dtype=name, shape=(n, DIMENSION)
        )
        for name in ("float32", "float16")
    }
    for start in range(0, n, BLOCK):
        rows = _unit(rng.standard_normal((min(BLOCK, n - start), DIMENSION), dtype=np.float32))
        for file in files.values():
            file[start : start + BLOCK] = rows


def _search(folder: Path, queries: np.ndarray, n: int, rounds: int) -> Iterator[Row]:
    from ragassay.retrieval.scan import Scan

    single = np.load(folder / "float32.npy", mmap_mode="r")
    double = np.load(folder / "float16.npy", mmap_mode="r")
    scans = {"float32": Scan(single, "cosine"), "float16": Scan(double, "cosine")}
    found: dict[str, Any] = {}
    columns = np.ascontiguousarray(queries.T)
    space = np.empty((BLOCK, len(queries)), np.float32)

    def bare() -> None:
        for start in range(0, n, BLOCK):
            block = single[start : start + BLOCK]
            np.matmul(block, columns, out=space[: len(block)])

    ways = {
        "bare": bare,
        "float32": lambda: found.update(float32=scans["float32"].top(queries, K)),
        "float16": lambda: found.update(float16=scans["float16"].top(queries, K)),
    }
    try:
        import faiss
    except ImportError:
        note = "faiss is not installed: pip install 'ragassay[faiss]'"
    else:
        note = ""
        index = faiss.IndexFlatIP(DIMENSION)
        for start in range(0, n, BLOCK):
            index.add(np.ascontiguousarray(single[start : start + BLOCK]))
        ways["faiss"] = lambda: found.update(faiss=index.search(queries, K)[1])
    seconds = take_turns(ways, rounds)
    figures = medians(seconds)
    if note:
        yield replace(FAISS, note=note)
    else:
        kept = _kept(found["float32"].rows, found["faiss"])
        yield replace(
            FAISS, value=ratio(seconds, "faiss", "float32"),
            figures={**figures, "same_members_as_faiss": kept},
        )  # fmt: skip
    yield replace(BARE, value=ratio(seconds, "float32", "bare"), figures=figures)
    sizes = {name: (folder / f"{name}.npy").stat().st_size for name in scans}
    rows = {name: found[name].rows for name in scans}
    sets = statistics.mean(
        float(set(a) == set(b)) for a, b in zip(rows["float32"], rows["float16"], strict=True)
    )
    yield replace(
        HALF, value=ratio(seconds, "float16", "float32"), figures={**figures, "bytes": sizes}
    )
    yield replace(
        SAME, value=_kept(rows["float32"], rows["float16"]),
        figures={"queries_with_the_same_set": sets, "vectors": "normal, length 1"},
    )  # fmt: skip


def _kept(ours: np.ndarray, theirs: np.ndarray) -> float:
    return statistics.mean(len(set(a) & set(b)) / len(a) for a, b in zip(ours, theirs, strict=True))


def _poisoned(folder: Path, queries: np.ndarray, n: int, rounds: int) -> Row:
    """The whole call of the index, with all vectors of questions and poison known to it."""
    from ragassay.retrieval.dense import DenseIndex, DenseRetriever
    from ragassay.retrieval.vectors import EmbeddingStore
    from ragassay.types import Passage, Query

    class Vectors:
        """An encoder that draws a vector for each text, by its number."""

        identity = "bench-vectors"

        def encode(self, texts: Any, *, max_tokens: int | None = None) -> np.ndarray:
            numbers = [int(text.split()[-1]) for text in texts]
            rows = [np.random.default_rng(i).standard_normal(DIMENSION) for i in numbers]
            return _unit(np.array(rows, dtype=np.float32))

    class Numbered:
        """As many passages as rows, without keeping them."""

        def __len__(self) -> int:
            return n

        def __getitem__(self, row: int) -> Passage:
            return Passage(id=f"p{row:09d}", text=f"passage {row}")

        def __iter__(self) -> Iterator[Passage]:
            return iter(())

    store = EmbeddingStore(folder / "cache", Vectors())  # type: ignore[arg-type]
    index = DenseIndex(
        DenseRetriever(encoder="hashing"), Numbered(),  # type: ignore[arg-type]
        np.load(folder / "float32.npy", mmap_mode="r"), store,
    )  # fmt: skip
    asked = [Query(id=str(i), text=f"question {-i}".replace("-", "9"), group="g")
             for i in range(len(queries))]  # fmt: skip
    poison = [Passage(id=f"x{i}", text=f"poison {7_000_000 + i}") for i in range(50)]
    index.poisoned(asked, poison, K)
    seconds = take_turns(
        {
            "clean": lambda: (index._clean.clear(), index.search(asked, K)),
            "poisoned": lambda: index.poisoned(asked, poison, K),
        },
        rounds,
    )
    index.close()
    return replace(POISON, value=ratio(seconds, "poisoned", "clean"), figures=medians(seconds))
