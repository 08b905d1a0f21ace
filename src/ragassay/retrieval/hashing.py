"""A hashing encoder: vectors without a model.

Source: Weinberger et al., Feature hashing for large scale multitask learning, ICML 2009.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ragassay.errors import ConfigError

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class HashingEncoder:
    """Signed word counts in hashed buckets: no model, for tests and small machines.

    Texts that share words are close; meaning plays no part. A vector holds small integers, so
    equal scores are common, which makes it a good test of tie-breaking.

    Parameters
    ----------
    dimensions : int
        Length of a vector, from 1 to 65,536.
    """

    version: ClassVar[str] = "1"

    dimensions: int = 256

    def __post_init__(self) -> None:
        if not 1 <= self.dimensions <= 65_536:
            raise ConfigError(f"dimensions must be from 1 to 65536, got {self.dimensions}")

    @property
    def identity(self) -> str:
        """Name, version and dimensions."""
        return f"hashing:{self.version}:{self.dimensions}"

    def encode(self, texts: Sequence[str], *, max_tokens: int | None = None) -> NDArray[np.float32]:
        """Embed texts; one without a word gives the zero vector.

        Parameters
        ----------
        texts : sequence of str, length n
        max_tokens : int, optional
            Only the first so many words count.

        Returns
        -------
        ndarray of float32, shape (n, dimensions)

        Examples
        --------
        >>> one, other = HashingEncoder().encode(["the red fox", "Fox, red: the"])
        >>> bool((one == other).all())
        True
        """
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in _WORD.findall(text.lower())[:max_tokens]:
                code = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8)
                value = int.from_bytes(code.digest(), "little")
                vectors[row, (value >> 1) % self.dimensions] += 1.0 if value & 1 else -1.0
        return vectors
