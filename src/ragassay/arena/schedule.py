"""Rounds of an arena as a pure function of their number, so that any of them can be resumed.

Source: "Uncovering Competing Poisoning Attacks in Retrieval-Augmented Generation"
(PoisonArena), section 3.3: each round draws a query, 2 to n attackers, and as many answers.

Deviations: the released file has the number of attackers fixed at 4, draws 2 to 6 otherwise, and
restricts the query to those of ContentPoison whenever that takes part, so that success rates of
the attackers are about different queries. Here the query is drawn first, uniformly, and an
attacker without documents for it is no participant. An untargeted attacker takes no answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ragassay import canon
from ragassay.arena.assignment import AssignmentMode, assignments
from ragassay.arena.pool import Position, QueryPool
from ragassay.errors import NotEstimable

_MAX_REDRAWS = 1_000


@dataclass(frozen=True, slots=True)
class Design:
    """How rounds are drawn.

    Attributes
    ----------
    attackers : int or None
        A fixed number of attackers; None for a uniform draw from ``smallest`` to ``largest``.
    smallest : int
        Fewest attackers of a round.
    largest : int or None
        Most attackers of a round; None for all that have documents.
    mode : {"latin", "full", "random"}
        How answers are dealt out.
    random_draws : int
        Assignments per round of the mode "random".
    seed : int
        Of all draws.
    """

    attackers: int | None = None
    smallest: int = 2
    largest: int | None = None
    mode: AssignmentMode = "latin"
    random_draws: int = 1
    seed: int = 0

    def sizes(self, participants: int) -> range:
        """Possible numbers of attackers where so many have documents; may be empty."""
        if self.attackers is not None:
            fits = self.attackers <= participants
            return range(self.attackers, self.attackers + 1) if fits else range(0)
        largest = participants if self.largest is None else min(self.largest, participants)
        return range(self.smallest, largest + 1)


@dataclass(frozen=True, slots=True)
class Round:
    """One round: a query, its attackers, and the assignments of answers that are played.

    Each assignment is a mapping from attacker to the position of its answer in the query's pool,
    None for an untargeted attacker.
    """

    index: int
    query_id: str
    attackers: tuple[str, ...]
    assignments: tuple[dict[str, Position], ...]


def draw_round(index: int, pools: Sequence[QueryPool], design: Design) -> Round:
    """Draw one round; depends on nothing but its arguments.

    Parameters
    ----------
    index : int
        Number of the round.
    pools : sequence of QueryPool
        The queries. Their order does not matter.
    design : Design
        How to draw.

    Raises
    ------
    NotEstimable
        No query has enough attackers with documents for different answers.
    """
    rng = canon.rng_for("arena-round", design.seed, index)
    ordered = sorted(pools, key=lambda pool: pool.query_id)
    open_to = [pool for pool in ordered if len(design.sizes(len(pool.participants)))]
    for _ in range(_MAX_REDRAWS if open_to else 0):
        pool = open_to[int(rng.integers(len(open_to)))]
        present = pool.participants
        sizes = design.sizes(len(present))
        size = sizes[int(rng.integers(len(sizes)))]
        attackers = tuple(sorted(rng.choice(len(present), size, replace=False).tolist()))
        names = tuple(present[i] for i in attackers)
        dealt = _deal(pool, names, design, rng)
        if dealt:
            return Round(index, pool.query_id, names, tuple(dealt))
    raise NotEstimable(
        f"round {index} cannot be drawn: no query has {_wanted(design)} attackers with documents "
        "for different answers that all of them can be given"
    )


def draw_rounds(
    pools: Sequence[QueryPool], design: Design, *, count: int, start: int = 0
) -> Iterator[Round]:
    """Draw rounds ``start`` to ``start + count - 1``; see :func:`draw_round`."""
    for index in range(start, start + count):
        yield draw_round(index, pools, design)


def _deal(
    pool: QueryPool, names: Sequence[str], design: Design, rng: np.random.Generator
) -> list[dict[str, Position]]:
    """Deal out answers for which all targeted attackers have documents; none if too few."""
    targeted = [name for name in names if not pool.untargeted(name)]
    free: dict[str, Position] = {name: None for name in names if pool.untargeted(name)}
    if not targeted:
        return [free]
    common = sorted(set.intersection(*(set(pool.positions(name)) for name in targeted)))
    if len(common) < len(targeted):
        return []
    chosen = [common[i] for i in rng.choice(len(common), len(targeted), replace=False).tolist()]
    return [
        {**{name: chosen[i] for name, i in zip(targeted, row, strict=True)}, **free}
        for row in assignments(
            len(targeted), design.mode, rng=rng, random_draws=design.random_draws
        )
    ]


def _wanted(design: Design) -> str:
    return str(design.attackers) if design.attackers is not None else f"{design.smallest} or more"
