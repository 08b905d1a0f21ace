"""Whether success alone, or strength, predicts who wins on questions that were not seen.

Source: PoisonArena, section 4.2: success of single attackers does not tell who wins.

Deviations: scores come from other questions than the plays that they predict (five folds), and
accuracy stands beside that of a random pick among the attackers of the same plays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ragassay.arena.figures import Play
from ragassay.canon import rng_for
from ragassay.errors import NotEstimable
from ragassay.experiments.arena_outcomes import places_of
from ragassay.experiments.conditions import bounds
from ragassay.stats.intervals import cluster_bootstrap
from ragassay.stats.ranking import count_wins, fit

FOLDS = 5
Scores = Mapping[str, float]


def prediction(
    plays: Sequence[Play],
    alone: Sequence[Play],
    untargeted: Collection[str],
    seed: int,
    statistics: Mapping[str, Any],
) -> dict[str, Any]:
    """How often the best attacker by success alone, and by strength, was among the winners.

    Only plays count that are decided among targeted attackers, all of whom have both scores from
    the other folds.

    Returns
    -------
    dict
        ``s_asr``, ``theta`` and their ``difference`` (theta minus s_asr) with intervals over
        questions, ``chance``, ``n`` plays on ``queries`` questions.
    """
    fold_of = _folds([play.group for play in (*plays, *alone)], seed)
    hits: dict[str, list[float]] = {"s_asr": [], "theta": []}
    lucky: list[float] = []
    groups: list[str] = []
    for fold in range(FOLDS):
        by_success = _success([p for p in alone if fold_of[p.group] != fold])
        by_strength = _strength([p for p in plays if fold_of[p.group] != fold], untargeted)
        for play in plays:
            names = [name for name in play.attackers if name not in untargeted]
            won = [name for name in names if name in play.judgment.winners]
            known = set(names) <= set(by_success) & set(by_strength)
            if fold_of[play.group] != fold or not known or not 0 < len(won) < len(names):
                continue
            hits["s_asr"].append(_best(names, by_success) in won)
            hits["theta"].append(_best(names, by_strength) in won)
            lucky.append(len(won) / len(names))
            groups.append(play.group)
    if not groups:
        nothing = {"value": None, "low": None, "high": None}
        return {"n": 0, "queries": 0, "chance": None, "s_asr": nothing, "theta": nothing,
                "difference": nothing, "over_chance": nothing}  # fmt: skip
    single, strong, chance = (np.asarray(v, dtype=np.float64) for v in (*hits.values(), lucky))
    columns = np.stack([single, strong, strong - single, single - chance], axis=1)
    intervals = cluster_bootstrap(
        columns, groups, draws=statistics["draws"], confidence=statistics["confidence"],
        rng=rng_for("arena-prediction", seed),
    )  # fmt: skip
    told = {
        name: {"value": float(column.mean()), **bounds(interval)}
        for name, column, interval in zip(
            ("s_asr", "theta", "difference", "over_chance"), columns.T, intervals, strict=True
        )
    }
    return {"n": len(groups), "queries": len(set(groups)), "chance": float(chance.mean()), **told}


def _folds(groups: Sequence[str], seed: int) -> dict[str, int]:
    names = sorted(set(groups))
    order = rng_for("arena-folds", seed, names).permutation(len(names))
    return {names[int(i)]: place % FOLDS for place, i in enumerate(order)}


def _success(alone: Sequence[Play]) -> dict[str, float]:
    won: dict[str, list[bool]] = {}
    for play in alone:
        judged = play.judgment
        for name in (*judged.winners, *judged.losers):
            won.setdefault(name, []).append(name in judged.winners)
    return {name: sum(values) / len(values) for name, values in won.items()}


def _strength(plays: Sequence[Play], untargeted: Collection[str]) -> dict[str, float]:
    names = sorted({name for play in plays for name in play.attackers} - set(untargeted))
    if len(names) < 2:
        return {}
    try:
        theta = fit(count_wins(len(names), places_of(plays, names)))
    except NotEstimable:
        return {}
    return dict(zip(names, map(float, theta), strict=True))


def _best(names: Sequence[str], scores: Scores) -> str:
    return min(names, key=lambda name: (-scores[name], name))
