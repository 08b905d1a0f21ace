"""Many keys in 16 bytes each, and the rows that have one of them."""

from __future__ import annotations

import binascii
import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WIDTH = 16
_DIGEST = 64  # hexadecimal digits of a SHA-256


def short(key: bytes) -> bytes:
    """The first half of a SHA-256 in hexadecimal, of any other key a digest of its own.

    Examples
    --------
    >>> short(b"ab" * 32).hex() == "ab" * 16
    True
    """
    if len(key) == _DIGEST:
        try:
            return binascii.unhexlify(key[: 2 * WIDTH])
        except binascii.Error:
            pass
    return hashlib.blake2b(key, digest_size=WIDTH).digest()


def encoded(key: str) -> bytes:
    """A key as UTF-8, lone surrogates included."""
    return key.encode("utf-8", "surrogatepass")


class Keys:
    """Finds rows by key. The later of two rows with one key is the newer one.

    Parameters
    ----------
    raw : bytes
        :func:`short` of the key of each row, one after another.
    """

    def __init__(self, raw: bytes | bytearray) -> None:
        self.words: NDArray[np.uint64] = np.frombuffer(bytes(raw), dtype=">u8").astype(
            np.uint64
        ).reshape(-1, 2)  # fmt: skip
        self._order = np.argsort(self.words[:, 0], kind="stable")
        self._first = self.words[self._order, 0]

    def __len__(self) -> int:
        return len(self.words)

    def rows(self, key: bytes) -> list[int]:
        """All rows of a key, oldest first."""
        first, second = np.frombuffer(short(key), dtype=">u8").astype(np.uint64)
        start, stop = (int(np.searchsorted(self._first, first, side)) for side in ("left", "right"))
        return [int(row) for row in self._order[start:stop] if self.words[row, 1] == second]

    def newest(self, keys: Sequence[bytes]) -> NDArray[np.int64]:
        """The newest row of each key, -1 where there is none, shape (keys,)."""
        if not keys or not len(self):
            return np.full(len(keys), -1, dtype=np.int64)
        wanted = np.frombuffer(b"".join(map(short, keys)), dtype=">u8").astype(np.uint64)
        wanted = wanted.reshape(-1, 2)
        behind = np.searchsorted(self._first, wanted[:, 0], "right")
        rows = self._order[np.maximum(behind - 1, 0)]
        hit = (behind > 0) & (self.words[rows] == wanted).all(axis=1)
        found = np.where(hit, rows, -1)
        near = (behind > 0) & ~hit & (self.words[rows, 0] == wanted[:, 0])
        for i in np.flatnonzero(near).tolist():  # two keys that agree in their first 64 bits
            found[i] = max(self.rows(keys[i]), default=-1)
        return found

    def newest_rows(self) -> NDArray[np.int64]:
        """The newest row of each key, in the order in which the keys first came."""
        every = np.arange(len(self), dtype=np.int64)
        order = np.lexsort((every, self.words[:, 1], self.words[:, 0]))
        words = self.words[order]
        differs = (words[1:] != words[:-1]).any(axis=1)
        first = np.concatenate([np.ones(min(1, len(self)), dtype=bool), differs])
        last = np.concatenate([differs, np.ones(min(1, len(self)), dtype=bool)])
        if first.all():
            return every
        found: NDArray[np.int64] = order[last][np.argsort(order[first], kind="stable")]
        return found

    def starting(self, digits: str) -> list[int]:
        """Rows whose key may start with these hexadecimal digits: 16 of them are looked at."""
        low = int(digits[:WIDTH].ljust(WIDTH, "0"), 16)
        high = int(digits[:WIDTH].ljust(WIDTH, "f"), 16)
        start = int(np.searchsorted(self._first, np.uint64(low), "left"))
        stop = int(np.searchsorted(self._first, np.uint64(high), "right"))
        return sorted(int(row) for row in self._order[start:stop])
