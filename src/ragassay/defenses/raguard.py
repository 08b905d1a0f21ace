"""RAGuard: drop passages whose halves differ in perplexity, or that are too like the question.

More passages are retrieved than are needed. Of each the perplexities of both halves and the
similarity to the question are compared with those of clean passages; one that is unusual in any
of three tests is dropped, and the best of the rest are kept.

Source: Cheng et al. 2025, "RAGuard" (arXiv 2510.25025), as two independent readers summarize
it; compared in "Ranking is not judgment". Not the layered system of the same name by Kumar et al.

Deviations: the paper was not at hand, and leaves open here: ``expand`` times ``retriever.k``
passages are retrieved; the halves are cut at the middle token; the difference is tested by its
absolute value; each test has a third of ``fpr``, so that all three together keep it. With
``halves = "joint"`` one pass over the whole text gives both perplexities, which
:mod:`~ragassay.defenses.perplexity` shares; the second half is then read behind the first, which
makes it more probable, in clean passages too. The similarity is the retrieval score. A single
score for rankings is the largest of the three shares of clean passages below; it is the flag
too: above the threshold exactly where a test fails. A passage of fewer than ``min_tokens``
tokens has no score and passes. The language model is that of the experiment. Calibration takes
at most ``passages`` distinct pairs of question and clean passage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragassay.canon import digest
from ragassay.defenses.passage_filter import CalibratedPassageFilter, UncalibratedPassageFilter
from ragassay.defenses.perplexity import perplexity
from ragassay.errors import ConfigError, NotEstimable
from ragassay.plugins import Tools
from ragassay.stats.operating import NOMINAL_RATES
from ragassay.types import Hit, Json, Query, Verdict

Halves = Literal["joint", "separate"]
TESTS = ("difference", "maximum", "similarity")


class ChunkPerplexity(NamedTuple):
    """What two perplexities say: first minus second, signed, and the larger."""

    difference: float
    maximum: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibratedRAGuard(CalibratedPassageFilter):
    """Drop passages that fail one of three calibrated tests, and keep the best of the rest.

    Parameters
    ----------
    clean : ndarray of float64, shape (3, n)
        Sorted clean values of each test: absolute difference, maximum, similarity.
    halves : {"joint", "separate"}
        Whether the second half is read behind the first, or alone.
    min_tokens : int
        Shorter passages have no score.
    expand : int
        How many times as many passages are retrieved.
    """

    version: ClassVar[str] = "1"
    reads_language_model: ClassVar[bool] = True
    clean: NDArray[np.float64]
    halves: Halves
    min_tokens: int
    expand: int

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Keep the best passages that pass all tests, as many as a context has."""
        chunks = measure([hit.passage.text for hit in hits], self.halves, self.min_tokens, tools)
        shares = [
            None if chunk is None else self._below(chunk, hit.score)
            for chunk, hit in zip(chunks, hits, strict=True)
        ]
        detail: dict[str, Json] = {
            "difference": [None if chunk is None else chunk.difference for chunk in chunks],
            "maximum": [None if chunk is None else chunk.maximum for chunk in chunks],
            "similarity": [hit.score for hit in hits],
            "failed": [
                [name for name, x in zip(TESTS, share or (), strict=False) if x > self.threshold]
                for share in shares
            ],
            "not_scorable_ranks": [
                hit.rank for hit, share in zip(hits, shares, strict=True) if share is None
            ],
        }
        verdict = self.judge(hits, [None if s is None else max(s) for s in shares], detail)
        surplus = [hit.rank for hit in verdict.kept[tools.k :]]
        return replace(
            verdict,
            kept=verdict.kept[: tools.k],
            trace={**verdict.trace, "surplus_ranks": surplus},
        )

    def _below(self, chunk: ChunkPerplexity, similarity: float) -> tuple[float, ...]:
        values = (abs(chunk.difference), chunk.maximum, similarity)
        n = self.clean.shape[1]
        return tuple(
            int(np.searchsorted(row, value, side="left")) / n
            for row, value in zip(self.clean, values, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RAGuard(UncalibratedPassageFilter):
    """Drop passages by the perplexities of their halves and their similarity (RAGuard).

    Parameters
    ----------
    fpr : float
        Nominal share of clean passages that fail any of the three tests, in (0, 1).
    expand : int
        Retrieve so many times ``retriever.k`` passages, and keep the best that pass.
    halves : {"joint", "separate"}
        One pass over the text, or one over each half alone.
    min_tokens : int
        Passages of fewer tokens have no score and pass; at least 4.
    passages : int
        Distinct pairs of question and clean passage to calibrate on, at most.
    """

    reads_language_model: ClassVar[bool] = True
    expand: int = 5
    halves: Halves = "joint"
    min_tokens: int = 20
    passages: int = 200

    def __post_init__(self) -> None:
        # Not super(): a slotted dataclass is built twice.
        UncalibratedPassageFilter.__post_init__(self)
        if self.expand < 1 or self.min_tokens < 4 or self.passages < 1:
            raise ConfigError(
                "need expand >= 1, min_tokens >= 4 and passages >= 1, got "
                f"expand={self.expand}, min_tokens={self.min_tokens}, passages={self.passages}"
            )

    def fit(
        self, clean: Sequence[tuple[Query, tuple[Hit, ...]]], tools: Tools
    ) -> CalibratedRAGuard:
        """Take what is usual from clean passages.

        Raises
        ------
        NotEstimable
            No clean passage is long enough.
        """
        pairs = sorted(
            {(query.text, hit.passage.text): hit.score for query, hits in clean for hit in hits}
            .items(),
            key=lambda pair: digest([pair[0][1], pair[0][0]]),
        )[: self.passages]  # fmt: skip
        chunks = measure([text for (_, text), _ in pairs], self.halves, self.min_tokens, tools)
        rows = [
            (abs(chunk.difference), chunk.maximum, score)
            for chunk, (_, score) in zip(chunks, pairs, strict=True)
            if chunk is not None
        ]
        if not rows:
            raise NotEstimable(
                f"raguard needs clean passages of at least {self.min_tokens} tokens to calibrate "
                f"on, got {len(pairs)} and none that long"
            )
        return CalibratedRAGuard(
            clean=np.sort(np.array(rows, dtype=np.float64).T, axis=1),
            halves=self.halves,
            min_tokens=self.min_tokens,
            expand=self.expand,
            fpr=self.fpr,
            threshold=share_threshold(len(rows), self.fpr),
            n_calibration=len(rows),
            thresholds={
                f"{rate:g}": share_threshold(len(rows), rate)
                for rate in sorted({*NOMINAL_RATES, self.fpr})
            },
        )


def chunk_perplexity(first: float, second: float) -> ChunkPerplexity:
    """Compare the perplexities of two halves.

    Examples
    --------
    >>> chunk_perplexity(80.0, 20.0)
    ChunkPerplexity(difference=60.0, maximum=80.0)
    """
    return ChunkPerplexity(first - second, max(first, second))


def joint_halves(losses: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Split the losses of a text at its middle token; the first half has the odd one.

    Parameters
    ----------
    losses : array-like of float, shape (n - 1,)
        Of all n tokens but the first.

    Examples
    --------
    >>> [part.tolist() for part in joint_halves([1.0, 2.0, 3.0, 4.0])]  # five tokens, 3 + 2
    [[1.0, 2.0], [3.0, 4.0]]
    """
    values = np.asarray(losses, dtype=np.float64)
    middle = (len(values) + 2) // 2
    return values[: middle - 1], values[middle - 1 :]


def share_threshold(n: int, fpr: float) -> float:
    """The share of n clean values below a value that fails one of three tests of level fpr / 3.

    A value fails where it is above the clean value at place ``ceil((1 - fpr / 3) n)``, that is
    where more than this share of the clean values are below it.

    Examples
    --------
    >>> share_threshold(300, 0.05)  # five of 300 values may fail each test
    0.98
    """
    place = math.ceil((1 - Fraction(str(fpr)) / 3) * n)
    return (place - 1) / n


def measure(
    texts: Sequence[str], halves: Halves, min_tokens: int, tools: Tools
) -> list[ChunkPerplexity | None]:
    """Compare the perplexities of the halves of texts; None for those that are too short."""
    losses = tools.token_nll(texts)
    long = [i for i, each in enumerate(losses) if len(each) + 1 >= min_tokens]
    if halves == "joint":
        parts = [joint_halves(losses[i]) for i in long]
    else:
        cut = tools.token_halves([texts[i] for i in long])
        flat = tools.token_nll([part for pair in cut for part in pair])
        parts = list(zip(flat[::2], flat[1::2], strict=True))
    result: list[ChunkPerplexity | None] = [None] * len(texts)
    for i, (first, second) in zip(long, parts, strict=True):
        one, two = perplexity(first), perplexity(second)
        if one is not None and two is not None:
            result[i] = chunk_perplexity(one, two)
    return result
