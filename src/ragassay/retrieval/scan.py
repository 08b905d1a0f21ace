"""The exact k nearest rows of a large matrix for many queries, at the speed of float32.

The matrix is read once, in blocks, for all queries together. A block's product in float32 is
only a sieve: its error has a strict bound (Higham, Accuracy and Stability of Numerical
Algorithms, 2002, section 3.1: any order of summation errs by at most d u / (1 - d u) times the
product of the lengths), so a row whose rounded score lies more than that bound below the k-th
best so far cannot be among the k best. The few rows that pass are scored exactly
(:mod:`ragassay.retrieval.fixed`). What comes out are the exact scores in the exact order,
whatever the block size, the number of queries, the threads or the BLAS library. Where the
processor has tiles for it, a coarser sieve comes first (:mod:`ragassay.retrieval.coarse`).

Where many rows tie, or lie closer than float32 can tell, the block is scored exactly as a
whole, which takes several times as long.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragassay.retrieval.coarse import (
    LEAST_QUERIES,
    CoarseSieve,
    Rounded,
    rounding_bound,
    tiles,
    widen,
)
from ragassay.retrieval.corpus_matrix import Stored
from ragassay.retrieval.fixed import (
    FRACTION_BITS,
    Fixed,
    Similarity,
    all_scores,
    fixed_point,
    pair_scores,
)
from ragassay.retrieval.ranking import top_rows
from ragassay.retrieval.rows import Vectors

FIRST_ROWS = 1_024  # scored exactly, so that the sieve has something to go by
MOST_ROWS = 32_768
_EXACT_ROWS = 4_096
_GROUP = 512  # queries in one product
_PRODUCT_NUMBERS = 2**22  # of a block, 16 MiB of float32: it stays in the cache
_PAIRS = 4_096
_COARSE_PAIRS = 4  # times the rows of a block: more are cheaper to multiply in float32
_UNIT = 2.0**-24  # rounding of float32
_SAME_LENGTH = 1e-3
_GROWTH = 4
_TILE = 64
_TAME = 1e15  # lengths beyond this, or below its inverse, could over- or underflow


def error_bound(dimension: int) -> float:
    """Most by which a score in float32 can differ from the exact one, for vectors of length 1.

    Twice the bound of a sum, for the product and for the lengths of the rows; then the rounding
    to fixed point.
    """
    steps = (dimension + 16) * _UNIT
    return 2 * steps / (1 - steps) + 4.2 * math.sqrt(dimension) * 2.0 ** -(FRACTION_BITS + 1)


Pairs = tuple[NDArray[np.intp], NDArray[np.intp]]


class Found(NamedTuple):
    """The best rows of each query, shapes (queries, k): best first, ties by row ascending."""

    rows: NDArray[np.intp]
    scores: NDArray[np.float64]


class Scan:
    """Exact search over a matrix that may be larger than memory.

    Parameters
    ----------
    matrix : ndarray of float32 or float16, shape (n, d)
        Usually memory-mapped. It must not change.
    similarity : {"cosine", "dot"}
        Cosine gives 0 for a zero row.
    coarse : bool
        Whether a coarser sieve may come first. The results are the same.
    """

    def __init__(self, matrix: Stored, similarity: Similarity, *, coarse: bool = True) -> None:
        self._matrix = matrix
        self._coarse = coarse
        self._similarity: Similarity = similarity
        self._lengths: NDArray[np.float32] | None = None
        mapped = getattr(matrix, "_mmap", None)
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_SEQUENTIAL"):
            mapped.madvise(mmap.MADV_SEQUENTIAL)

    def top(self, queries: Vectors, k: int) -> Found:
        """Return the k best rows for each query.

        Parameters
        ----------
        queries : ndarray of float32, shape (m, d)
        k : int
            At least 1; more than n gives all n.

        Returns
        -------
        Found
            Rows and exact scores, shapes (m, min(k, n)).
        """
        n, dimension = self._matrix.shape
        k = min(k, n)
        if not len(queries) or not n:
            return Found(np.empty((len(queries), k), np.intp), np.empty((len(queries), k)))
        first = max(FIRST_ROWS, 2 * k)
        height = max(first, min(MOST_ROWS, _PRODUCT_NUMBERS // min(len(queries), _GROUP)))
        height = min(n, height)
        torch = tiles() if self._coarse and len(queries) >= LEAST_QUERIES else None
        rounded = None if torch is None else Rounded(torch, height, dimension)
        known, lengths = self._lengths is not None, self._row_lengths()
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            groups = [
                _Group(queries[start : start + _GROUP], k, height, self._similarity, pool, torch)
                for start in range(0, len(queries), _GROUP)
            ]
            space = np.empty((0 if self._matrix.dtype == np.float32 else height, dimension), "f4")
            for start, stop in _blocks(n, first, height):
                block = _Block(self._matrix[start:stop], space, pool, rounded if start else None)
                if not known:
                    lengths[start:stop] = _row_lengths_of(block.floats, pool)
                for group in groups:
                    self._add(group, block, start, lengths[start:stop])
        self._lengths = lengths
        found = [group.best for group in groups]
        return Found(
            np.concatenate([best.rows for best in found]),
            np.concatenate([best.scores for best in found]),
        )

    def _row_lengths(self) -> NDArray[np.float32]:
        return (
            self._lengths if self._lengths is not None else np.empty(len(self._matrix), np.float32)
        )

    def _add(self, group: _Group, block: _Block, start: int, lengths: NDArray[np.float32]) -> None:
        """Let the rows of a block compete with the best so far."""
        passed = group.sieve(block, lengths) if start else None
        if passed is None:
            for first in range(start, start + len(block), _EXACT_ROWS):
                stop = min(first + _EXACT_ROWS, start + len(block))
                group.add_all(fixed_point(self._matrix[first:stop], self._similarity), first)
        elif len(passed[0]):
            rows, numbers = passed
            distinct, places = np.unique(rows + start, return_inverse=True)
            passages = fixed_point(self._matrix[distinct], self._similarity)
            group.add_pairs(passages, places, numbers, distinct[places])


# --------------------------------------------------------------------------------- internals


class _Block:
    """Consecutive rows as they are stored; as float32 and bfloat16 once somebody asks."""

    def __init__(
        self, stored: Stored, space: Vectors, pool: ThreadPoolExecutor, rounded: Rounded | None
    ) -> None:
        self.stored = stored
        self._space = space
        self._pool = pool
        self._rounded = rounded
        self._loaded = False
        self._floats: Vectors | None = None

    def __len__(self) -> int:
        return len(self.stored)

    @property
    def floats(self) -> Vectors:
        if self._floats is None:
            self._floats = _as_float32(self.stored, self._space, self._pool)
        return self._floats

    @property
    def rounded(self) -> Rounded | None:
        if self._rounded is not None and not self._loaded:
            self._rounded.load(self.stored, self._pool, os.cpu_count() or 1)
            self._loaded = True
        return self._rounded


class _Group:
    """Some queries, the best rows of each so far, and memory for products (new one is slow)."""

    def __init__(
        self,
        queries: Vectors,
        k: int,
        height: int,
        similarity: Similarity,
        pool: ThreadPoolExecutor,
        torch: Any,
    ) -> None:
        self._similarity: Similarity = similarity
        self._k = k
        self._pool = pool
        self._fixed = fixed_point(queries, similarity)
        whole = queries.astype(np.float64)
        self._lengths = np.sqrt(np.square(whole).sum(axis=1))
        some = np.where(self._lengths > 0, self._lengths, 1.0)
        self._units = np.ascontiguousarray((whole / some[:, None]).T, dtype=np.float32)
        self._product = np.empty((0, 0), np.float32)
        self._height = height
        self._passing = np.empty((height, len(queries)), bool)
        self._error = error_bound(queries.shape[1])
        self._coarse = None if torch is None else CoarseSieve(torch, self._units, height)
        self.best = Found(
            np.empty((len(queries), 0), np.intp), np.empty((len(queries), 0), np.float64)
        )

    def sieve(self, block: _Block, lengths: NDArray[np.float32]) -> Pairs | None:
        """Pairs of row and query that may be among the best; None where these are too many."""
        low, high = float(lengths.min()), float(lengths.max())
        if not high < _TAME or (low < 1 / _TAME and not _tame(block.floats, lengths)):
            return None
        inverse = None
        if self._similarity == "cosine" and (low == 0 or high > low * (1 + _SAME_LENGTH)):
            inverse = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
            low = high = 1.0
        floors = self._floors(low, high, self._error)
        if inverse is None:
            found = self._through_coarse(block, low, high, floors)
            if found is not None:
                return found
        if not len(self._product):
            self._product = np.empty((self._height, len(self._passing[0])), np.float32)
        product = np.matmul(block.floats, self._units, out=self._product[: len(block)])
        if inverse is not None:
            product *= inverse[:, None]
        return self._reaching(product, floors, len(block))

    def _floors(self, low: float, high: float, error: float) -> NDArray[np.float32]:
        """The least product of a row with each query that could still be among the best."""
        least = self.best.scores[:, -1]
        if self._similarity == "cosine":
            wanted = least - error
            floors = wanted * np.where(wanted > 0, low, high)
        else:
            some = np.where(self._lengths > 0, self._lengths, 1.0)
            floors = least / some - error * high
        floors[self._lengths == 0] = np.inf  # all rows tie: the first ones stay
        return np.nextafter(floors.astype(np.float32), np.float32(-np.inf))

    def _through_coarse(
        self, block: _Block, low: float, high: float, floors: NDArray[np.float32]
    ) -> Pairs | None:
        """What passes both sieves; None where there is no coarse one, or too much passes it."""
        if self._coarse is None or block.rounded is None:
            return None
        bound = rounding_bound(len(self._units), block.stored.dtype, low)
        if bound > 1:
            return None
        rough = self._floors(low, high, self._error + bound)
        multiplied = self._coarse.product(block.rounded, rough)
        pairs = None
        if multiplied is not None:
            pairs = self._reaching(*multiplied, _COARSE_PAIRS * len(block))
        if pairs is None:
            return None
        rows, numbers = pairs
        units = self._units.T
        kept = np.zeros(len(rows), bool)
        for first in range(0, len(rows), _PAIRS):
            some = slice(first, first + _PAIRS)
            floats = np.asarray(block.stored[rows[some]], dtype=np.float32)
            products = np.einsum("ij,ij->i", floats, units[numbers[some]])
            np.greater_equal(products, floors[numbers[some]], out=kept[some])
        rows, numbers = rows[kept], numbers[kept]
        return (rows, numbers) if len(rows) <= len(block) else None

    def _reaching(self, product: NDArray[Any], floors: NDArray[Any], most: int) -> Pairs | None:
        """Places at which a product is not below the floor of its column, if at most ``most``."""
        columns = product.shape[1]
        tiled = np.tile(floors, _TILE)
        step = -(-len(product) // (os.cpu_count() or 1) // _TILE) * _TILE

        def compare(start: int) -> NDArray[np.intp]:
            some = product[start : start + step]
            passing = self._passing[start : start + len(some)]
            whole = len(some) // _TILE * _TILE  # long rows compare faster
            wide = (-1, _TILE * columns)
            np.greater_equal(some[:whole].reshape(wide), tiled, out=passing[:whole].reshape(wide))
            np.greater_equal(some[whole:], floors, out=passing[whole:])
            places: NDArray[np.intp] = np.flatnonzero(passing) + start * columns
            return places

        parts = list(self._pool.map(compare, range(0, len(product), step)))
        if sum(map(len, parts)) > most:
            return None
        rows, numbers = np.divmod(np.concatenate(parts), columns)
        return rows, numbers

    def add_all(self, block: Fixed, start: int) -> None:
        """Score every row of a block exactly."""
        scores = all_scores(self._fixed, block, self._similarity)
        rows = np.stack([top_rows(row, self._k) for row in scores])
        self._keep(
            np.repeat(np.arange(len(scores)), rows.shape[1]),
            rows.reshape(-1) + start,
            np.take_along_axis(scores, rows, axis=1).reshape(-1),
        )

    def add_pairs(
        self,
        passages: Fixed,
        places: NDArray[np.intp],
        numbers: NDArray[np.intp],
        rows: NDArray[np.intp],
    ) -> None:
        """Score pairs exactly: query ``numbers[i]`` and ``passages[places[i]]``, a ``rows[i]``."""
        scores = np.concatenate([
            pair_scores(
                self._fixed[numbers[first : first + _PAIRS]],
                passages[places[first : first + _PAIRS]],
                self._similarity,
            )
            for first in range(0, len(numbers), _PAIRS)
        ])  # fmt: skip
        better = scores > self.best.scores[numbers, -1]  # a later row loses a tie
        self._keep(numbers[better], rows[better], scores[better])

    def _keep(
        self, numbers: NDArray[np.intp], rows: NDArray[np.intp], scores: NDArray[np.float64]
    ) -> None:
        """Merge scored rows into the best, at most k of them for each query."""
        before = self.best.rows
        count = len(before)
        all_numbers = np.concatenate([np.repeat(np.arange(count), before.shape[1]), numbers])
        all_rows = np.concatenate([before.reshape(-1), rows])
        all_scores_ = np.concatenate([self.best.scores.reshape(-1), scores])
        order = np.lexsort((all_rows, -all_scores_, all_numbers))
        sizes = np.bincount(all_numbers, minlength=count)
        most = min(self._k, int(sizes.min()))
        starts = np.cumsum(sizes) - sizes
        kept = order[starts[:, None] + np.arange(most)]
        self.best = Found(all_rows[kept], all_scores_[kept])


def _tame(block: Vectors, lengths: NDArray[np.float32]) -> bool:
    """Whether all rows that are not zero are long enough for float32."""
    short = lengths < 1 / _TAME
    return not block[short].any()


def _blocks(n: int, first: int, height: int) -> Iterator[tuple[int, int]]:
    """Small blocks first: the sieve gets finer with each, and few rows pass it later."""
    start, size = 0, first
    while start < n:
        yield start, min(n, start + size)
        start += size
        size = min(height, _GROWTH * size)


def _as_float32(block: Stored, space: Vectors, pool: ThreadPoolExecutor) -> Vectors:
    if block.dtype == np.float32:
        return block.view(np.ndarray)
    floats = space[: len(block)]
    if widen(block, floats):
        return floats
    step = max(256, -(-len(block) // (os.cpu_count() or 1)))
    starts = range(0, len(block), step)
    list(pool.map(lambda s: _halves(block[s : s + step], floats[s : s + step]), starts))
    return floats


def _halves(block: Stored, floats: Vectors) -> None:
    """Widen finite float16 to float32, four times as fast as a cast.

    Sign, exponent and fraction are moved to where float32 has them; the exponents then differ
    by a factor of 2^112, which also turns the denormal ones into normal ones.
    """
    bits = np.ascontiguousarray(block).view(np.int16)
    for start in range(0, len(bits), 256):  # small enough for the nearest cache
        wide = floats[start : start + 256].view(np.int32)
        wide[...] = bits[start : start + 256]
        wide <<= 13
        wide &= np.int32(-0x70002000)  # the bits of 0x8FFFE000
        floats[start : start + 256] *= np.float32(2.0**112)


def _row_lengths_of(block: Vectors, pool: ThreadPoolExecutor) -> NDArray[np.float32]:
    lengths = np.empty(len(block), np.float32)
    step = max(256, -(-len(block) // (os.cpu_count() or 1)))

    def measure(start: int) -> None:
        some = block[start : start + step]
        np.sqrt(np.einsum("ij,ij->i", some, some), out=lengths[start : start + step])

    list(pool.map(measure, range(0, len(block), step)))
    return lengths
