"""The aligned record in the arena: N, H and Gamma of a defense while several attackers compete.

Source: "Prevented is not protected" (Aligned RAG Evaluation), section 2.1, applied to the plays of
PoisonArena.

Deviations: the unit is a play instead of a question. For the system, T is 1 where the answer holds
the target of any attacker of the play; for an attacker, where it holds its own. On clean retrieval
the answer is labeled for the same targets. Untargeted attackers are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ragassay.canon import rng_for
from ragassay.experiments.arena_outcomes import ROUNDS, Asked, Outcomes
from ragassay.experiments.arena_results import share_of
from ragassay.experiments.conditions import CONDITIONS, UNDEFENDED, bounds
from ragassay.stats.intervals import cluster_bootstrap
from ragassay.stats.paired import contributions, four_conditions

EFFECTS = ("P", "J", "N", "H", "Gamma")
Four = tuple[bool, bool, bool, bool]


def aligned_rows(
    outcomes: Outcomes,
    resolved: Mapping[str, Any],
    scorers: Sequence[str],
    scenes: Sequence[str],
) -> list[dict[str, Any]]:
    """One row for each rule, scene, defense, and attacker (empty: any of those who compete)."""
    defenses = [name for name in resolved["defenses"] if name != UNDEFENDED]
    rows = []
    for scorer in scorers:
        for scene in scenes:
            asked = outcomes.asked(ROUNDS, scene)
            names = sorted(
                {a for each in asked for a, at in each.assignment.items() if at is not None}
            )
            for defense in defenses:
                for attacker in ("", *names):
                    rows.append(_row(outcomes, resolved, asked, scorer, scene, defense, attacker))
    return rows


def _row(
    outcomes: Outcomes,
    resolved: Mapping[str, Any],
    asked: Sequence[Asked],
    scorer: str,
    scene: str,
    defense: str,
    attacker: str,
) -> dict[str, Any]:
    statistics, seed = resolved["experiment"]["statistics"], resolved["experiment"]["seed"]
    kept: list[Four] = []
    groups: list[str] = []
    dropped = 0
    for each in asked:
        wanted = [
            position
            for name, position in each.assignment.items()
            if position is not None and attacker in ("", name)
        ]
        if not wanted:
            continue
        four = _four(outcomes, each, scorer, defense, wanted)
        if four is None:
            dropped += 1
            continue
        kept.append(four)
        groups.append(each.body["cluster"])
    label, _, context = scene.rpartition("|")
    setting, _, budget = label.rpartition("|")
    place = {"scorer": scorer, "scene": scene, "setting": setting, "budget": int(budget),
             "context": context, "defense": defense, "attacker": attacker,
             "n": len(kept), "queries": len(set(groups)), "dropped": dropped}  # fmt: skip
    if not kept:
        return {**place, "estimable": False}
    table = np.asarray(kept, dtype=bool).T
    told = four_conditions(*table)
    intervals = cluster_bootstrap(
        contributions(*table), groups, draws=statistics["draws"],
        confidence=statistics["confidence"],
        rng=rng_for(seed, "arena-aligned", scorer, scene, defense, attacker),
    )  # fmt: skip
    counts = {
        "P": told.prevented, "J": told.introduced, "N": told.p0 - told.p1,
        "H": told.c1 - told.c0, "Gamma": (told.p0 - told.p1) + (told.c1 - told.c0),
    }  # fmt: skip
    return {
        **place,
        "estimable": True,
        "rates": {
            name: share_of(
                list(map(bool, column)), groups, statistics,
                seed, scorer, scene, defense, attacker, name,
            )
            for name, column in zip(CONDITIONS, table, strict=True)
        },
        "effects": {
            name: {"count": counts[name], "value": counts[name] / told.n, **bounds(interval)}
            for name, interval in zip(EFFECTS, intervals, strict=True)
        },
    }  # fmt: skip


def _four(
    outcomes: Outcomes, asked: Asked, scorer: str, defense: str, wanted: Sequence[int]
) -> Four | None:
    """Labels in the order of the conditions; None where one is not known."""
    setting = asked.scene.rpartition("|")[0].rpartition("|")[0]
    query, poisoned = asked.body["query_id"], asked.played["context"]
    labels = [
        _any(outcomes, (query, setting, who, context), scorer, wanted)
        for context in ("", poisoned)
        for who in (UNDEFENDED, defense)
    ]
    if any(label is None for label in labels):
        return None
    return (bool(labels[0]), bool(labels[1]), bool(labels[2]), bool(labels[3]))


def _any(
    outcomes: Outcomes, place: tuple[str, str, str, str], scorer: str, wanted: Sequence[int]
) -> bool | None:
    """Whether the answer holds any of the targets; three-valued."""
    found = [outcomes.score(*place, scorer, position) for position in wanted]
    values = [None if score is None else score.target_positive for score in found]
    if True in values:
        return True
    return None if None in values else False
