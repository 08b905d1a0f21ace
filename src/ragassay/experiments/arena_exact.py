"""What nothing random decides: retrieval figures over all assignments, and prompts counted.

Source: PoisonArena, appendix B.4.1. The mean over every assignment of answers and every round
that could be drawn is computed instead of sampled (:mod:`ragassay.arena.expectation`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ragassay.arena.expectation import RoundExpectation, expected_round_figures
from ragassay.arena.pool import QueryPool, injected_by
from ragassay.arena.retrieval import competition_figures
from ragassay.config import ArenaPart
from ragassay.experiments.arena_pools import Pools
from ragassay.experiments.arena_rounds import designs

FILE = "arena.json"
Table = dict[str, Any]


def exact_figures(
    scenes: Mapping[str, tuple[Pools, int]], part: ArenaPart, seed: int
) -> dict[str, Any]:
    """Retrieval figures of every scene: alone, in the rounds that can be drawn, and by pairs.

    Returns
    -------
    dict
        Plain JSON by the label of the scene: ``single`` and ``rounds`` by attacker, ``pairs`` as
        a list. Empty where an attacker has different numbers of documents for its answers, or
        where documents are shared and there are too many assignments to enumerate.
    """
    return {
        "v": 1,
        "scenes": {
            label: _scene(list(pools.by_query.values()), k, part, seed)
            for label, (pools, k) in scenes.items()
        },
    }


def _scene(pools: Sequence[QueryPool], k: int, part: ArenaPart, seed: int) -> Table:
    names = sorted({name for pool in pools for name in pool.participants})
    if not _even(pools):
        return {"single": {}, "rounds": {}, "pairs": [], "why": "uneven"}
    single: Table = {}
    for name in names:
        for attacker, found in competition_figures(pools, [name], k).items():
            single[attacker] = {
                **asdict(found.figures), "queries": found.queries, "deals": found.assignments,
            }  # fmt: skip
    pairs = []
    for a, b in itertools.combinations(names, 2):
        for attacker, found in competition_figures(pools, [a, b], k).items():
            pairs.append(
                {"attacker": attacker, "against": b if attacker == a else a,
                 **asdict(found.figures), "queries": found.queries, "deals": found.assignments}
            )  # fmt: skip
    if any(pool.shared for pool in pools) and len(names) > 4:
        return {"single": single, "rounds": {}, "pairs": pairs, "why": "shared"}
    several = [
        expected_round_figures(pools, design, k, by_play=True) for design in designs(part, seed)
    ]
    return {"single": single, "rounds": _mixed(several), "pairs": pairs, "why": ""}


def _even(pools: Sequence[QueryPool]) -> bool:
    try:
        for pool in pools:
            for name in pool.participants:
                injected_by(pool, name)
    except ValueError:
        return False
    return True


def _mixed(several: Sequence[Mapping[str, RoundExpectation]]) -> Table:
    """Mean over designs that are played in turn, each weighed by who takes part in it."""
    mixed: Table = {}
    for name in sorted({name for one in several for name in one}):
        mine = [one[name] for one in several if name in one]
        weight = sum(one.probability for one in mine)
        mixed[name] = {
            what: sum(one.probability * getattr(one.figures, what) for one in mine) / weight
            for what in ("precision", "recall", "f1")
        } | {
            "queries": max(one.queries for one in mine),
            "probability": weight / len(several),
        }
    return mixed
