"""Exact search: against faiss, the bare product, float16 storage, and poison beside it."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import tempfile
import time
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
    name="search_float16_same",
    what="questions with the same 10 from float16 storage, vectors in 20,000 clusters",
    against="float32 storage", kind="at least", target=0.999, unit="share",
)  # fmt: skip
SAME_RANDOM = Row(
    name="search_float16_same_random",
    what="questions with the same 10 from float16 storage, vectors of random directions",
    against="float32 storage", kind="at least", target=0.999, unit="share",
)  # fmt: skip
FINE = Row(
    name="search_float32_sieve", what="the same without the bfloat16 sieve",
    against="the bare blocked float32 product, no top-k, same threads", kind="at most", target=1.7,
)  # fmt: skip
POISON = Row(
    name="poisoned", what="poisoned retrieval, 100 queries x 50 poison passages, encoder apart",
    against="one clean pass over 1,000,000 passages", kind="at most", target=0.05,
)  # fmt: skip
ROWS = (FAISS, BARE, FINE, HALF, SAME, SAME_RANDOM, POISON)


def measure(*, quick: bool) -> Iterator[Row]:
    """All rows, over one set of arrays."""
    n, m, rounds = (20_000, 20, 2) if quick else (1_000_000, 100, 7)
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        queries = _unit(rng.standard_normal((m, DIMENSION), dtype=np.float32))
        _write(Path(folder), n, rng)
        yield from _search(Path(folder), queries, n, rounds)
        yield _clustered(Path(folder) / "clustered", n, 10 * m)
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
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401 - loaded as by a run with a neural encoder: it brings a sieve
    from ragassay.retrieval.coarse import tiles
    from ragassay.retrieval.scan import Scan

    single = np.load(folder / "float32.npy", mmap_mode="r")
    double = np.load(folder / "float16.npy", mmap_mode="r")
    scans = {
        "float32": Scan(single, "cosine"), "float16": Scan(double, "cosine"),
        "fine": Scan(single, "cosine", coarse=False),
    }  # fmt: skip
    sieve = (
        "sieved in bfloat16 by torch, which an encoder has loaded" if tiles() is not None
        else "sieved in float32: no bfloat16 tiles, or no torch"
    )  # fmt: skip
    start = time.perf_counter()
    scans["float32"].top(queries, K)
    first_pass = {"first_pass_with_lengths_of_rows_seconds": round(time.perf_counter() - start, 3)}
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
        "fine": lambda: found.update(fine=scans["fine"].top(queries, K)),
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
    figures = {**medians(seconds), **first_pass, "sieve": sieve}
    if note:
        yield replace(FAISS, note=note)
    else:
        kept = _kept(found["float32"].rows, found["faiss"])
        yield replace(
            FAISS, value=ratio(seconds, "faiss", "float32"),
            figures={
                **figures, "same_members_as_faiss": kept,
                "float32_sieve_alone": ratio(seconds, "faiss", "fine"),
            },
            note=f"{sieve}; in float32 alone {ratio(seconds, 'faiss', 'fine'):.3g} times",
        )  # fmt: skip
    yield replace(BARE, value=ratio(seconds, "float32", "bare"), figures=figures, note=sieve)
    yield replace(
        FINE, value=ratio(seconds, "fine", "bare"),
        figures={"same_result": bool(np.array_equal(found["fine"].rows, found["float32"].rows))},
    )  # fmt: skip
    stored = ("float32", "float16")
    sizes = {name: (folder / f"{name}.npy").stat().st_size for name in stored}
    rows = {name: found[name].rows for name in stored}
    sets = statistics.mean(
        float(set(a) == set(b)) for a, b in zip(rows["float32"], rows["float16"], strict=True)
    )
    yield replace(
        HALF, value=ratio(seconds, "float16", "float32"), figures={**figures, "bytes": sizes}
    )
    yield replace(
        SAME_RANDOM, value=sets,
        figures={"members_kept": _kept(rows["float32"], rows["float16"]), "queries": len(queries)},
        note="no structure: the 10th and 11th are about as near as rounding to float16 moves "
        "them for some questions",
    )  # fmt: skip


def _clustered(folder: Path, n: int, asked: int) -> Row:
    """The same members from both storages, for passages in clusters and questions near one.

    A cluster holds n / 20,000 passages at cosines of about 0.8 with its center and of many sizes,
    as passages on one subject have it with neural encoders.
    """
    from ragassay.retrieval.scan import Scan

    folder.mkdir()
    rng = np.random.default_rng(1)
    count = max(20, n // 50)
    centers = _unit(rng.standard_normal((count, DIMENSION), dtype=np.float32))

    def near(some: np.ndarray, spread: np.ndarray) -> np.ndarray:
        noise = _unit(rng.standard_normal((len(some), DIMENSION), dtype=np.float32))
        return _unit(centers[some] + spread[:, None].astype(np.float32) * noise)

    files = {
        name: np.lib.format.open_memmap(
            folder / f"{name}.npy", mode="w+", dtype=name, shape=(n, DIMENSION)
        )
        for name in ("float32", "float16")
    }
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        rows = near(rng.integers(0, count, size), rng.uniform(0.4, 1.2, size))
        for file in files.values():
            file[start : start + size] = rows
    queries = near(rng.integers(0, count, asked), rng.uniform(0.4, 0.8, asked))
    found = {name: Scan(file, "cosine").top(queries, K) for name, file in files.items()}
    both = zip(found["float32"].rows, found["float16"].rows, strict=True)
    sets = statistics.mean(float(set(a) == set(b)) for a, b in both)
    more = Scan(files["float32"], "cosine").top(queries, K + 1).scores
    gap = float(np.median(more[:, K - 1] - more[:, K]))
    shutil.rmtree(folder)
    return replace(
        SAME, value=sets,
        figures={
            "members_kept": _kept(found["float32"].rows, found["float16"].rows),
            "queries": asked, "clusters": count, "median_gap_between_10th_and_11th": gap,
        },
        note=f"{asked:,} questions; simulated, passages at cosines of 0.64 to 0.93 to the center "
        f"of their cluster; median gap between 10th and 11th {gap:.2g}",
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
