from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragassay.errors import BackendUnavailable
from ragassay.retrieval import coarse, faiss_scan, scan
from ragassay.retrieval.dense import DenseRetriever
from ragassay.retrieval.fixed import all_scores, fixed_point
from ragassay.retrieval.ranking import top_rows
from ragassay.retrieval.scan import Found, Scan
from ragassay.types import Passage, Query


def exact(matrix: np.ndarray, queries: np.ndarray, k: int, similarity: Any) -> Found:
    """All scores at once, as the scan defines them."""
    scores = all_scores(
        fixed_point(queries, similarity), fixed_point(matrix, similarity), similarity
    )
    rows = np.stack([top_rows(row, k) for row in scores])
    return Found(rows, np.take_along_axis(scores, rows, axis=1))


def same(one: Found, other: Found) -> bool:
    return np.array_equal(one.rows, other.rows) and np.array_equal(one.scores, other.scores)


def hard_matrix(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Rows of many lengths, zero rows, and rows that differ by less than float32 can tell."""
    matrix = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4, size=(n, 1))
    if rng.random() < 0.5:
        matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    near = rng.integers(0, n, size=n // 3)
    matrix[rng.integers(0, n, size=n // 3)] = matrix[near] * (
        1 + 1e-7 * rng.normal(size=(n // 3, 1))
    )
    matrix[rng.random(n) < 0.05] = 0
    return matrix.astype(np.float32)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(["cosine", "dot"]), st.booleans())
def test_the_sieve_never_loses_a_row_that_belongs(seed: int, similarity: Any, half: bool) -> None:
    rng = np.random.default_rng(seed)
    n, d, m = int(rng.integers(1, 400)), int(rng.integers(1, 40)), int(rng.integers(1, 12))
    matrix: np.ndarray = hard_matrix(rng, n, d)
    queries = hard_matrix(rng, max(m, 3), d)[:m]
    if half:
        matrix = matrix.clip(-6e4, 6e4).astype(np.float16)
    k = int(rng.integers(1, 20))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "FIRST_ROWS", int(rng.integers(1, 20)))
        patch.setattr(scan, "MOST_ROWS", int(rng.integers(1, 90)))
        patch.setattr(scan, "_GROUP", int(rng.integers(1, 6)))
        patch.setattr(scan, "_PAIRS", int(rng.integers(1, 6)))
        searched = Scan(matrix, similarity)
        wanted = exact(matrix, queries, k, similarity)
        assert same(searched.top(queries, k), wanted)
        assert same(searched.top(queries, k), wanted)  # the lengths are now known


def test_most_blocks_are_sieved_and_not_scored_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(20_000, 64)).astype(np.float32)
    queries = rng.normal(size=(20, 64)).astype(np.float32)
    whole = []
    before = scan._Group.add_all
    monkeypatch.setattr(
        scan._Group, "add_all", lambda group, *rest: whole.append(1) or before(group, *rest)
    )
    for similarity in ("cosine", "dot"):
        assert same(
            Scan(matrix, similarity).top(queries, 10),  # type: ignore[arg-type]
            exact(matrix, queries, 10, similarity),
        )
    assert len(whole) == 2  # the first block of each


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e-16, 1e16, 1e22])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_numbers_near_the_ends_of_float32_are_scored_exactly(scale: float, similarity: Any) -> None:
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(4_000, 8)).astype(np.float32)
    matrix[::3] *= np.float32(scale)
    queries = rng.normal(size=(5, 8)).astype(np.float32)
    assert same(Scan(matrix, similarity).top(queries, 7), exact(matrix, queries, 7, similarity))
    queries *= np.float32(scale)
    assert same(Scan(matrix, similarity).top(queries, 7), exact(matrix, queries, 7, similarity))


def test_a_corpus_of_one_vector_gives_the_first_rows() -> None:
    matrix = np.tile(np.array([[3.0, 4.0]], np.float32), (5_000, 1))
    found = Scan(matrix, "cosine").top(np.array([[1, 1], [0, 0], [-1, 0]], np.float32), 3)
    assert found.rows.tolist() == [[0, 1, 2]] * 3
    assert found.scores[1].tolist() == [0.0] * 3


def test_scores_that_rise_all_the_way_are_found_all_the_same() -> None:
    matrix = np.linspace(0.1, 1, 9_000, dtype=np.float32)[:, None] * np.ones((1, 3), np.float32)
    queries = np.ones((2, 3), np.float32)
    assert same(Scan(matrix, "dot").top(queries, 5), exact(matrix, queries, 5, "dot"))
    assert Scan(matrix, "dot").top(queries, 5).rows[0].tolist() == [8999, 8998, 8997, 8996, 8995]


def test_every_float16_is_widened_to_itself() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    halves = bits.view(np.float16)
    halves = halves[np.isfinite(halves)].reshape(-1, 8)
    wanted = halves.astype(np.float32).view(np.int32)
    floats = np.empty(halves.shape, np.float32)
    scan._halves(halves, floats)
    assert np.array_equal(floats.view(np.int32), wanted)
    pytest.importorskip("torch", reason="torch is not installed (extra [local])")
    floats[:] = 0
    assert coarse.widen(halves, floats)
    assert np.array_equal(floats.view(np.int32), wanted)


# ---------------------------------------------------------------------------- the coarse sieve


@pytest.fixture
def with_tiles(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """torch counts as loaded on a processor with tiles; how many pairs passed, block by block."""
    torch = pytest.importorskip("torch", reason="torch is not installed (extra [local])")
    monkeypatch.setattr(scan, "tiles", lambda: torch)
    monkeypatch.setattr(scan, "LEAST_QUERIES", 1)
    passed: list[int] = []
    before = scan._Group._through_coarse

    def counted(group: Any, *rest: Any) -> Any:
        found = before(group, *rest)
        if found is not None:
            passed.append(len(found[0]))
        return found

    monkeypatch.setattr(scan._Group, "_through_coarse", counted)
    return passed


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_two_sieves_give_the_same_as_all_scores(
    with_tiles: list[int], similarity: Any, dtype: str
) -> None:
    rng = np.random.default_rng(3)
    centers = rng.normal(size=(40, 48))
    matrix = centers[rng.integers(0, 40, size=30_000)] + 0.4 * rng.normal(size=(30_000, 48))
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    matrix[5_000:5_040] = matrix[20_000]  # ties, and rows that bfloat16 cannot tell apart
    matrix[6_000:6_500] = matrix[20_001] * (1 + 1e-4 * rng.normal(size=(500, 48)))
    stored = matrix.astype(dtype)
    queries = (centers[:24] + 0.3 * rng.normal(size=(24, 48))).astype(np.float32)
    queries[0] = 0
    queries[1] = matrix[20_001]
    queries[2] = matrix[20_000]
    wanted = exact(stored, queries, 10, similarity)
    searched = Scan(stored, similarity)
    assert same(searched.top(queries, 10), wanted)
    assert same(searched.top(queries, 10), wanted)
    assert with_tiles  # it was used, and dropped most pairs
    assert sum(with_tiles) < 0.05 * stored.shape[0] * len(queries)
    assert same(Scan(stored, similarity, coarse=False).top(queries, 10), wanted)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.sampled_from(["cosine", "dot"]), st.booleans())
def test_the_coarse_sieve_never_loses_a_row_that_belongs(
    with_tiles: list[int], seed: int, similarity: Any, half: bool
) -> None:
    rng = np.random.default_rng(seed)
    n, d, m = int(rng.integers(20, 400)), int(rng.integers(1, 40)), int(rng.integers(2, 12))
    matrix: np.ndarray = hard_matrix(rng, n, d)
    if rng.random() < 0.7:  # alike, all on one side: floors above 0, which the bits need
        matrix = np.abs(matrix)
        matrix /= np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-3)
    queries = np.abs(hard_matrix(rng, n, d)[:m])
    if half:
        matrix = matrix.clip(-6e4, 6e4).astype(np.float16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "FIRST_ROWS", int(rng.integers(1, 20)))
        patch.setattr(scan, "MOST_ROWS", int(rng.integers(1, 90)))
        patch.setattr(scan, "_COARSE_PAIRS", 50)
        patch.setattr(scan, "_PAIRS", int(rng.integers(1, 6)))
        k = int(rng.integers(1, 6))
        wanted = exact(matrix, queries, k, similarity)
        assert same(Scan(matrix, similarity).top(queries, k), wanted)


def test_rounding_moves_a_product_by_less_than_the_bound() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (extra [local])")
    rng = np.random.default_rng(4)
    largest = 0.0
    for d in (2, 24, 384):
        # just above the middle between two numbers of bfloat16: rounding moves most
        rows = rng.choice([-1.0, 1.0], size=(500, d)) * (1 + 2.0**-8 * (1 + 2.0**-10))
        rounded = torch.from_numpy(rows).float().to(torch.bfloat16).double().numpy()
        moved = np.abs(rounded @ rounded.T - rows @ rows.T)
        largest = max(largest, float(moved.max()) / float(np.square(rows[0]).sum()))
    bound = coarse.rounding_bound(384, np.dtype(np.float32), 1.0)
    assert 0.9 * bound < largest <= bound


def test_every_float16_is_rounded_to_bfloat16_with_whole_numbers() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (extra [local])")
    bits = np.arange(2**16, dtype=np.uint16)
    halves = bits[np.isfinite(bits.view(np.float16))].reshape(-1, 8)
    rounded = np.empty(halves.shape, np.int16)
    coarse._round_halves(halves.view(np.int16), rounded)
    scaled = torch.from_numpy(rounded).view(torch.bfloat16).double().numpy() * 2.0**112
    given = halves.view(np.float16).astype(np.float64)
    normal = np.abs(given) >= 2.0**-14
    moved = np.abs(scaled - given)
    assert (moved <= np.where(normal, coarse.UNIT * np.abs(given), 2.0**-24 * 4)).all()
    nearest = torch.from_numpy(given).float().to(torch.bfloat16).double().numpy()
    tie = np.abs(np.abs(given - nearest) - moved) == 0  # ties go up here, to even there
    assert tie[normal].all()


def test_denormal_float16_widens_the_bound_with_the_length_of_the_shortest_row() -> None:
    half, single = np.dtype(np.float16), np.dtype(np.float32)
    assert coarse.rounding_bound(4, half, 1e6) == pytest.approx(
        coarse.rounding_bound(4, single, 1e6), rel=1e-6
    )
    lost = np.full(16, 2.0**-14)  # tiles take it for 0
    query = np.full(16, 0.25)
    assert coarse.rounding_bound(16, half, 1.0) >= lost @ query
    assert coarse.rounding_bound(16, half, 0.0) == np.inf


def test_without_torch_or_tiles_there_is_no_coarse_sieve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # type: ignore[arg-type]
    assert coarse.tiles() is None
    assert not coarse.widen(np.zeros((1, 1), np.float16), np.zeros((1, 1), np.float32))
    old = SimpleNamespace(backends=SimpleNamespace(mkldnn=SimpleNamespace(is_available=bool)))
    monkeypatch.setitem(sys.modules, "torch", old)  # type: ignore[arg-type]
    assert coarse.tiles() is None


def test_more_rows_than_there_are_and_no_query() -> None:
    matrix = np.eye(3, dtype=np.float32)
    assert Scan(matrix, "dot").top(matrix[:1], 10).rows.tolist() == [[0, 1, 2]]
    assert Scan(matrix, "dot").top(matrix[:0], 2).rows.shape == (0, 2)


# ------------------------------------------------------------------------------------- float16


def test_float16_storage_halves_the_bytes_and_is_another_retriever(tmp_path: Path) -> None:
    corpus = [Passage(id=f"p{n}", text=f"word{n % 50} and word{n}") for n in range(300)]
    asked = [Query(id="q", text="word7 and word57", group="g")]
    sizes, hits = {}, {}
    for storage in ("float32", "float16"):
        retriever = DenseRetriever(encoder="hashing", storage=storage)  # type: ignore[arg-type]
        index = retriever.index(corpus, fingerprint="f", cache_dir=tmp_path / storage)
        hits[storage] = index.search(asked, 5)
        [file] = (tmp_path / storage / "embeddings").glob("*.npy")
        sizes[storage] = file.stat().st_size - 128
    assert sizes["float16"] * 2 == sizes["float32"]
    assert hits["float16"] == hits["float32"]  # counts of words are exact in both


# --------------------------------------------------------------------------------------- faiss


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_faiss_gives_the_same_and_is_checked(similarity: Any) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed (extra [faiss])")
    rng = np.random.default_rng(2)
    matrix = hard_matrix(rng, 3_000, 16)
    queries = hard_matrix(rng, 30, 16)
    queries[0] = 0
    ours = Scan(matrix, similarity)
    accelerated = faiss_scan.FaissScan(matrix, similarity, ours)
    for k in (1, 10, 2_990, 4_000):
        assert same(accelerated.top(queries, k), exact(matrix, queries, k, similarity))
    assert accelerated.unproved > 0  # zero queries tie everywhere
    plain = rng.normal(size=(3_000, 16)).astype(np.float32)
    accelerated = faiss_scan.FaissScan(plain, similarity, Scan(plain, similarity))
    asked = rng.normal(size=(30, 16)).astype(np.float32)
    assert same(accelerated.top(asked, 10), exact(plain, asked, 10, similarity))
    assert accelerated.unproved == 0


def test_faiss_is_no_other_retriever_and_is_named_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fast = DenseRetriever(encoder="hashing", accelerator="faiss")
    assert fast.identity == DenseRetriever(encoder="hashing").identity
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    corpus = [Passage(id="a", text="b")]
    with pytest.raises(BackendUnavailable, match=r"pip install 'ragassay\[faiss\]'"):
        fast.index(corpus, fingerprint="f", cache_dir=tmp_path)
