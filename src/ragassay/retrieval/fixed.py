"""Scores as exact sums: vectors in fixed point.

A floating-point matrix product sums in an order that depends on the shape of the call and on
the BLAS kernel, so that equal passages get scores that differ in the last bits and change
places from call to call. Here every vector is scaled below length 1 and rounded to a multiple
of 2^-26. The products are then integers (times 2^-52) whose sums stay below 2^53 by the
Cauchy-Schwarz inequality, and a float64 product is exact in whatever order it sums. A score
thus depends on its two vectors alone, not on block size, number of queries, threads or BLAS;
rounding moves it by some 1e-8, less than float32 arithmetic would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Similarity = Literal["cosine", "dot"]

FRACTION_BITS = 26


@dataclass(frozen=True, slots=True)
class Fixed:
    """Vectors as integers in float64, shape (n, d), each times 2^-26 and its power of 2."""

    whole: NDArray[np.float64]
    scale: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.whole)

    def __getitem__(self, part: slice | NDArray[np.intp]) -> Fixed:
        return Fixed(self.whole[part], self.scale[part])


def fixed_point(vectors: NDArray[np.floating[Any]], similarity: Similarity) -> Fixed:
    """Scale each row below length 1 and round it to multiples of 2^-26.

    For cosine the divisor is the length itself, for dot the next power of 2 above it, which
    is kept as the row's scale. A zero row stays zero.
    """
    whole = np.array(vectors, dtype=np.float64, order="C")
    length = np.sqrt(np.square(whole).sum(axis=1))
    if similarity == "cosine":
        divisor, scale = np.where(length > 0, length, 1.0), np.ones_like(length)
    else:
        divisor = scale = np.ldexp(1.0, np.frexp(length)[1])
    whole /= divisor[:, None]
    whole *= 2.0**FRACTION_BITS
    return Fixed(np.rint(whole, out=whole), scale)


def all_scores(queries: Fixed, passages: Fixed, similarity: Similarity) -> NDArray[np.float64]:
    """Similarity of each query to each passage, shape (queries, passages)."""
    sums = queries.whole @ passages.whole.T
    return _scaled(sums, queries.scale[:, None], passages.scale, similarity)


def pair_scores(queries: Fixed, passages: Fixed, similarity: Similarity) -> NDArray[np.float64]:
    """Similarity of query i to passage i, shape (pairs,); equal to :func:`all_scores`."""
    sums = np.einsum("ij,ij->i", queries.whole, passages.whole)
    return _scaled(sums, queries.scale, passages.scale, similarity)


def _scaled(
    sums: NDArray[np.float64],
    query_scale: NDArray[np.float64],
    passage_scale: NDArray[np.float64],
    similarity: Similarity,
) -> NDArray[np.float64]:
    sums *= 2.0 ** (-2 * FRACTION_BITS)
    sums *= query_scale
    sums *= passage_scale
    if similarity == "cosine":
        np.clip(sums, -1.0, 1.0, out=sums)  # rounding can exceed 1 by 1e-8
    sums += 0.0  # turns -0.0 into 0.0
    return sums
