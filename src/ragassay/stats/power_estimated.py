"""Power of a gate that estimates the correlation within groups from the run it decides about.

The design effect is then a figure of the sample too, so that the chance to decide depends on how
the cases fall into groups and not on their number alone. The outcomes of whole groups are drawn
from their exact distribution (beta-binomial, Dirichlet-multinomial), and the tests of
:mod:`ragassay.stats.onesided` decide with the effective sample of :mod:`ragassay.stats.clusters`.

Source: Skellam (1948), Journal of the Royal Statistical Society B 10(2); Mosimann (1962),
Biometrika 49(1/2); Korn and Graubard (1998), Survey Methodology 24(2).

The draws are the same in every call, so that equal questions get equal answers. A chance of 80 %
has a standard error of 0.3 points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragassay.stats.clusters import ASSUMED_ICC, design_effect, estimated_design_effect
from ragassay.stats.clusters import estimated_size as size_of

Floats = NDArray[np.float64]
DRAWS = 20_000
_SEED = 20260
_CELLS = 4_000_000  # counts held at once


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutcomes:
    """What one group of ``size`` questions can be, and how likely.

    ``first`` and ``second`` are how many of its questions have each outcome (for a rate the
    second is 0), ``chance`` the probability of that; arrays of the same length.
    """

    size: int
    first: Floats
    second: Floats
    chance: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Samples of groups as the gate sees them: shape (draws,) each.

    ``first`` and ``second`` are counts of an effective sample of ``size`` questions.
    """

    first: Floats
    second: Floats
    size: Floats


def samples(groups: int, one: GroupOutcomes, *, alpha: float, draws: int = DRAWS) -> Samples:
    """Draw samples of equal groups, and find the effective sample of each.

    Parameters
    ----------
    groups : int
        Groups in a sample, at least 2.
    one : GroupOutcomes
        The distribution that every group is drawn from.
    alpha : float
        One-sided error of the tests that will use them.
    draws : int
        How many samples.

    Raises
    ------
    ValueError
        There are fewer than two groups: nothing can be estimated.
    """
    if groups < 2:
        raise ValueError(f"a correlation is estimated from at least two groups, got {groups}")
    n, rng = groups * one.size, np.random.default_rng(_SEED)
    order = np.argsort(-one.chance, kind="stable")  # the common ones first: faster to draw
    first, second = one.first[order], one.second[order]
    chance = one.chance[order] / one.chance.sum()
    draw = _by_group if groups < len(chance) else _by_outcome
    up, down, square = (
        np.concatenate(parts)
        for parts in zip(
            *(
                draw(rng, groups, count, chance, (first, second, (first - second) ** 2))
                for count in _chunks(draws, min(groups, len(chance)))
            ),
            strict=True,
        )
    )
    mean = (up - down) / n
    deff = np.maximum(
        design_effect(one.size, ASSUMED_ICC),
        estimated_design_effect(
            n, groups, up + down - n * mean**2, square - groups * (one.size * mean) ** 2
        ),
    )
    size = size_of(n, groups, deff, alpha=alpha)
    return Samples(first=up / n * size, second=down / n * size, size=size)


def chance_to_decide(
    found: Samples, test: Callable[[Floats, Floats, Floats], Floats], alpha: float
) -> float:
    """Share of samples that a test of first, second and size decides."""
    return float((test(found.first, found.second, found.size) <= alpha).mean())


def _chunks(draws: int, width: int) -> list[int]:
    most = max(1, _CELLS // width)
    return [min(most, draws - start) for start in range(0, draws, most)]


def _by_outcome(
    rng: np.random.Generator, groups: int, draws: int, chance: Floats, of: tuple[Floats, ...]
) -> tuple[Floats, ...]:
    """Draw how many groups have each outcome; sums of what each outcome brings."""
    counts = rng.multinomial(groups, chance, size=draws)
    return tuple(counts @ each for each in of)


def _by_group(
    rng: np.random.Generator, groups: int, draws: int, chance: Floats, of: tuple[Floats, ...]
) -> tuple[Floats, ...]:
    """Draw the outcome of every group; fewer draws where there are more outcomes than groups."""
    drawn = np.searchsorted(np.cumsum(chance)[:-1], rng.random((draws, groups)), side="right")
    return tuple(each[drawn].sum(axis=1) for each in of)
