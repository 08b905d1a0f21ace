"""A coarser sieve in front of the float32 one: products in bfloat16, where the processor has tiles.

Such processors multiply bfloat16 many times as fast as float32 and add in float32. Rounding to
8 bits moves each number by at most 2^-8 of itself, so by the Cauchy-Schwarz inequality a product
of two vectors of length 1 by at most 2 * 2^-8 + 2^-16, whatever the vectors. Rows in float16 are
rounded with whole-number operations, and the difference of the exponents is made up for in the
queries. What passes is looked at again in float32, so that results do not depend on whether this
sieve was there.

torch does the products. It is used where it is loaded already (an encoder has loaded it): its
import takes longer than a search of a million vectors saves.
"""

from __future__ import annotations

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.retrieval.corpus_matrix import Stored
from ragassay.retrieval.rows import Vectors

UNIT = 2.0**-8  # rounding of bfloat16
LEAST_QUERIES = 16  # below, the products are no longer what takes the time
_HALVES = 1 << 17  # float16 numbers that are rounded at a time: they stay in the cache
_SCALE = 2.0**112  # the exponents of float16 and bfloat16 are counted from 15 and from 127
_FLUSHED = 2.0**-14  # float16 numbers below are denormal, and count as 0 in tiles


def rounding_bound(dimension: int, kind: np.dtype[Any], shortest: float) -> float:
    """Most by which the products of this sieve differ, as a share of the length of the row.

    Parameters
    ----------
    dimension : int
        d. Queries have length 1.
    kind : dtype
        Of the stored rows. Of float16 the denormal numbers are lost, each at most 2^-14.
    shortest : float
        Length of the shortest row. For float16 there is no bound if it is 0.
    """
    bound = 2 * UNIT + UNIT * UNIT
    if kind != np.float16:
        return bound
    lost = (1 + UNIT) * _FLUSHED * math.sqrt(dimension)
    return bound + lost / shortest if shortest > 0 else math.inf


def tiles() -> Any:
    """Return torch where it is loaded and the processor has bfloat16 tiles, else None."""
    torch = sys.modules.get("torch")
    told = getattr(getattr(torch, "cpu", None), "get_capabilities", None)
    if torch is None or told is None or not torch.backends.mkldnn.is_available():
        return None
    try:
        return torch if told().get("amx_bf16") and told().get("amx_tile") else None
    except RuntimeError:  # not known for this system
        return None


class Rounded:
    """Memory for blocks in bfloat16, and the block that is there now."""

    def __init__(self, torch: Any, height: int, dimension: int) -> None:
        self._torch = torch
        self._rounded = torch.empty((height, dimension), dtype=torch.bfloat16)
        self._bits = self._rounded.view(torch.int16).numpy()
        self._count = 0
        self.scaled = False

    @property
    def rows(self) -> Any:
        """The block, a tensor of shape (rows, d); by 2^-112 too small where it is ``scaled``."""
        return self._rounded[: self._count]

    def load(self, block: Stored, pool: ThreadPoolExecutor, threads: int) -> None:
        """Round a block of float32 or float16."""
        self._count = len(block)
        self.scaled = block.dtype == np.float16
        if not self.scaled:
            self.rows.copy_(_tensor(self._torch, block))
            return
        step = -(-len(block) // threads)
        given = np.ascontiguousarray(block).view(np.int16)
        bits = self._bits[: len(given)]
        list(pool.map(
            lambda start: _round_halves(given[start : start + step], bits[start : start + step]),
            range(0, len(given), step),
        ))  # fmt: skip


def _round_halves(bits: NDArray[np.int16], rounded: NDArray[np.int16]) -> None:
    """Round finite float16 to bfloat16 and divide by 2^112: three operations on 16 bits.

    The three last bits of the fraction go, after half of the last one that stays was added, which
    may carry into the exponent. Sign, exponent and fraction then stand where bfloat16 has them.
    """
    piece = max(1, _HALVES // bits.shape[1])
    for start in range(0, len(bits), piece):
        some = rounded[start : start + piece]
        np.add(bits[start : start + piece], np.int16(4), out=some)
        some >>= 3
        some &= np.int16(-0x7001)  # the bits of 0x8FFF


_Bits = tuple[NDArray[np.int16], NDArray[np.int16]]


class CoarseSieve:
    """Which pairs of row and query may reach a floor, by products in bfloat16.

    Parameters
    ----------
    torch : module
        From :func:`tiles`.
    units : ndarray of float32, shape (d, m)
        Queries of length 1.
    height : int
        Most rows of a block.
    """

    def __init__(self, torch: Any, units: Vectors, height: int) -> None:
        self._torch = torch
        self._units = torch.from_numpy(units).to(torch.bfloat16)
        self._large = self._units * _SCALE
        self._product = torch.empty((height, units.shape[1]), dtype=torch.bfloat16)
        self._bits = self._product.view(torch.int16).numpy()

    def product(self, block: Rounded, floors: NDArray[np.float32]) -> _Bits | None:
        """Multiply; None where a floor is not above 0, for which the comparison does not hold.

        Numbers above 0 are in the order of their bits, and those below 0 have the sign bit. The
        product is rounded to bfloat16, which keeps the order, so that a floor that is cut to
        bfloat16 loses nothing.
        """
        if not (floors > 0).all():
            return None
        rows = block.rows
        units = self._large if block.scaled else self._units
        self._torch.mm(rows, units, out=self._product[: len(rows)])
        least = (floors.view(np.int32) >> 16).astype(np.int16)
        least[np.isposinf(floors)] = np.iinfo(np.int16).max
        return self._bits[: len(rows)], least


def widen(block: Stored, floats: Vectors) -> bool:
    """Widen float16 to float32, if torch is loaded; says whether it did. Twice as fast as NumPy."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "from_numpy"):
        return False
    torch.from_numpy(floats).copy_(_tensor(torch, block))
    return True


def _tensor(torch: Any, array: Stored) -> Any:
    """The same memory as a tensor that is only read.

    torch warns of memory that cannot be written to, so it is shown a view that says it can.
    """
    pointer = dict(array.__array_interface__)
    pointer["data"] = (pointer["data"][0], False)
    holder = type("_Memory", (), {"__array_interface__": pointer, "owner": array})()
    return torch.from_numpy(np.asarray(holder))
