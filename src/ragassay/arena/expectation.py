"""Exact m-F1: retrieval figures of randomized rounds without sampling a round.

A round draws a query, a number of attackers, the attackers and their answers. Retrieval adds no
chance of its own, so the mean over all rounds is a finite sum.

Source: the protocol of "Uncovering Competing Poisoning Attacks in Retrieval-Augmented
Generation" (PoisonArena), section 3.3, with the draws of :mod:`ragassay.arena.schedule`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ragassay.arena.assignment import count_assignments
from ragassay.arena.pool import QueryPool, injected_by, restricted
from ragassay.arena.retrieval import RetrievalFigures, expected_hits, poison_figures
from ragassay.arena.schedule import Design


@dataclass(frozen=True, slots=True)
class RoundExpectation:
    """Expected figures of an attacker given that it takes part.

    ``queries`` counts the queries in which it can; ``probability`` is that of taking part in a
    round; where rounds weigh by their plays it is the expected number of its plays in a round.
    """

    figures: RetrievalFigures
    queries: int
    probability: float


def expected_round_figures(
    pools: Sequence[QueryPool], design: Design, k: int, *, by_play: bool = False
) -> dict[str, RoundExpectation]:
    """Expected retrieval figures of every attacker over the rounds of a design.

    Parameters
    ----------
    pools : sequence of QueryPool
        The queries.
    design : Design
        How rounds are drawn. Every round weighs the same, so that the mode of assignment does
        not matter: all have this mean.
    k : int
        Size of the context.
    by_play : bool
        Weigh a round by its plays instead, of which a Latin square has as many as targeted
        attackers: this is the mean over plays.

    Returns
    -------
    dict of str to RoundExpectation
        By name. Attackers that never take part are absent.

    Notes
    -----
    A set of attackers that cannot be dealt different answers is drawn again by the schedule. Where
    attackers have documents for different answers, the schedule deals only those that all of them
    have; so does this function.
    """
    weights: dict[str, list[float]] = {}
    sums: dict[str, list[tuple[float, RetrievalFigures]]] = {}
    queries: dict[str, int] = {}
    total = 0.0
    open_to = [pool for pool in pools if len(design.sizes(len(pool.participants)))]
    for pool in open_to:
        seen: set[str] = set()
        sizes = design.sizes(len(pool.participants))
        for size in sizes:
            subsets = list(itertools.combinations(pool.participants, size))
            plain = 1 / (len(open_to) * len(sizes) * len(subsets))
            for names in subsets:
                hits = expected_hits(_common(pool, names), names, k)
                if hits is None:
                    continue
                targeted = sum(not pool.untargeted(name) for name in names)
                weight = plain * (_plays(design, targeted) if by_play else 1)
                total += plain
                seen.update(names)
                for name in names:
                    figures = poison_figures(hits[name], injected_by(pool, name), k)
                    weights.setdefault(name, []).append(weight)
                    sums.setdefault(name, []).append((weight, figures))
        for name in seen:
            queries[name] = queries.get(name, 0) + 1
    return {
        name: RoundExpectation(_mean(sums[name]), queries[name], math.fsum(weights[name]) / total)
        for name in sorted(sums)
    }


def _plays(design: Design, targeted: int) -> int:
    """How many plays a round with so many targeted attackers has."""
    if not targeted:
        return 1
    if design.mode == "random":
        return design.random_draws
    return count_assignments(targeted, design.mode).assignments


def _common(pool: QueryPool, names: Sequence[str]) -> QueryPool:
    """Keep the answers that all targeted attackers have documents for."""
    targeted = [set(pool.positions(name)) for name in names if not pool.untargeted(name)]
    common = set.intersection(*targeted) if targeted else set()
    if all(positions == common for positions in targeted):
        return pool
    return restricted(pool, common)


def _mean(parts: Sequence[tuple[float, RetrievalFigures]]) -> RetrievalFigures:
    total = math.fsum(weight for weight, _ in parts)
    return RetrievalFigures(
        math.fsum(weight * f.precision for weight, f in parts) / total,
        math.fsum(weight * f.recall for weight, f in parts) / total,
        math.fsum(weight * f.f1 for weight, f in parts) / total,
    )
