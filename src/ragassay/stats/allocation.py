"""How many units each part of a sampling design draws; see :mod:`ragassay.stats.survey`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ragassay.stats.survey import Bools, PartOfDesign, inclusion


def allocate(size: int, share: float, member: Bools) -> list[int]:
    """Divide a sample among a random part and strata, so that about ``size`` units are drawn.

    Strata overlap, so that some units are drawn twice; the strata get as many draws (as evenly as
    their sizes allow) as keep the expected number of different units at ``size``. What they
    cannot use goes to the random part.

    Parameters
    ----------
    size : int
        Number of units wanted; without strata, or in a smaller population, it is met exactly.
    share : float
        Share of the sample that the random part draws, in [0, 1].
    member : array of bool, shape (units, strata)
        The whole population.

    Returns
    -------
    list of int
        Draws of the random part, then of every stratum.

    Raises
    ------
    ValueError
        ``size`` is below 1, or ``share`` is outside [0, 1].

    Examples
    --------
    >>> allocate(4, 0.5, np.array([[True], [True], [False], [False], [False], [False]]))
    [3, 2]
    """
    if size < 1 or not 0 <= share <= 1:
        raise ValueError(f"need size >= 1 and 0 <= share <= 1, got {size} and {share}")
    units, strata = member.shape
    kinds, counts = np.unique(member, axis=0, return_counts=True)
    sizes = [int(x) for x in member.sum(axis=0)]
    everything = np.column_stack([np.ones(len(kinds), dtype=bool), kinds])

    def expected(draws: Sequence[int]) -> float:
        parts = [PartOfDesign(n, d) for n, d in zip((units, *sizes), draws, strict=True)]
        return float(counts @ inclusion(parts, everything))

    random = min(units, size, round(share * size)) if strata else min(units, size)
    limit = size + 0.5
    drawn = _largest(sum(sizes), lambda n: expected([random, *_even(n, sizes)]) <= limit)
    by_stratum = _even(drawn, sizes)
    if drawn == sum(sizes):
        random += _largest(units - random, lambda n: expected([random + n, *by_stratum]) <= limit)
    return [random, *by_stratum]


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """Largest number from 0 to ``most`` that fits, where everything below one that fits does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _even(draws: int, sizes: Sequence[int]) -> list[int]:
    """Spread draws evenly over strata of limited sizes; the first get what does not divide."""
    result, left = [0] * len(sizes), draws
    while left and (open_ := [i for i, size in enumerate(sizes) if result[i] < size]):
        each = max(1, left // len(open_))
        for i in open_:
            more = min(each, sizes[i] - result[i], left)
            result[i] += more
            left -= more
    return result
