"""How many trials an arena consists of: exactly for released documents, else bounded from above."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ragassay.arena.pool import QueryPool
from ragassay.arena.retrieval import merge
from ragassay.arena.variants import VARIANTS
from ragassay.config import ArenaPart
from ragassay.experiments.arena_pools import arena_part, cut, released_pools
from ragassay.experiments.arena_rounds import Drawn, draw, singles
from ragassay.experiments.arena_variants import WAYS, context_of
from ragassay.experiments.estimate import Estimate
from ragassay.experiments.plan import UNDEFENDED
from ragassay.experiments.setup import Setup
from ragassay.store import RunFolder


def estimate(setup: Setup, out: Path | None = None) -> Estimate:
    """Count the trials of a run and what its folder already holds.

    Nothing is crafted, encoded or asked. Contexts of released documents follow from their
    scores, so that distinct ones are counted; which contexts crafted poison will give is not
    known, so that every play counts. Answers without the passages of an untargeted attacker
    depend on what is answered and are in neither number.
    """
    part, folder = arena_part(setup), setup.run_folder(out)
    seed = setup.experiment.file.seed
    questions = len(setup.evaluated)
    contexts = _released(setup, part, seed) if part.released else _bound(setup, part)
    studied = _variants(setup, part)
    trials = len(setup.defenses) * contexts + studied
    done = 0
    if folder.is_dir():
        done = RunFolder(folder).index("trials").newest_done()
    calls: dict[str, int] = {}
    for defense in setup.defenses:
        instance: Any = defense.instance
        each = max(
            instance.model_calls(s.arm.k) if hasattr(instance, "model_calls") else 1
            for s in setup.settings
        )
        calls[defense.title] = contexts * each
    calls[UNDEFENDED] += studied
    exact = "distinct contexts" if part.released else "contexts at most"
    return Estimate(
        folder=folder,
        trials=trials,
        done=done,
        calls=calls,
        made_of=f"{contexts:,} {exact} ({questions} questions, {part.rounds:,} rounds"
        f"{' at most' if part.stopping == 'sure' else ''}) x "
        f"{len(setup.defenses)} defenses (with none)"
        + (f" + {studied:,} at most for triggers and contents" if studied else ""),
    )


def _bound(setup: Setup, part: ArenaPart) -> int:
    budgets, plays = len(setup.experiment.file.budgets), _plays(setup, part)
    if "order" in part.studies:
        plays += len(setup.evaluated) * math.comb(len(setup.attacks), 2) * 6
    scenes = budgets * (2 if {"content", "trigger"} & {*part.studies} else 1)
    return len(setup.settings) * (len(setup.evaluated) + plays * scenes)


def _variants(setup: Setup, part: ArenaPart) -> int:
    """Contexts of the study of triggers and contents beside those of the documents as they are."""
    if "trigger" not in part.studies:
        return 0
    scenes = [
        context for way in WAYS for variant in VARIANTS
        if ":" in (context := context_of(way, variant, bool(part.released)))
    ]  # fmt: skip
    if not part.released:
        return len(setup.settings) * _plays(setup, part) * len(scenes)
    drawn = _drawn(list(released_pools(setup, part).values()), part, setup.experiment.file.seed)
    return len(setup.settings) * sum(len(each.assignments) for each in drawn) * len(scenes)


def _plays(setup: Setup, part: ArenaPart) -> int:
    """Single plays and rounds of crafted documents, at most."""
    rivals = len(setup.attacks)
    largest = max(part.attackers, default=min(rivals, part.answers))
    per_round = {"latin": largest, "full": math.factorial(largest), "random": part.draws}
    plays = len(setup.evaluated) * rivals * min(part.single, part.answers)
    plays += part.rounds * per_round[part.assignment]
    return plays


def _released(setup: Setup, part: ArenaPart, seed: int) -> int:
    pools = released_pools(setup, part)
    drawn = list(_drawn(list(pools.values()), part, seed))
    total = 0
    for setting in setup.settings:
        found: set[tuple[str, tuple[str, ...]]] = set()
        for budget in setup.experiment.file.budgets:
            known = {name: cut(pool, budget, setting.arm.k) for name, pool in pools.items()}
            for name, pool in known.items():
                found.add((name, merge(pool.clean, {}, setting.arm.k).texts))
            for each in drawn:
                pool = known[each.query_id]
                for assignment in each.assignments:
                    injected = pool.injected(assignment)
                    found.add((each.query_id, merge(pool.clean, injected, setting.arm.k).texts))
                    if {"content", "trigger"} & {*part.studies}:
                        best = [
                            max(zip(d.scores, d.texts, strict=True))[1] for d in injected.values()
                        ]
                        found.add((each.query_id, ("", *sorted(best))))
        total += len(found)
    return total


def _drawn(pools: list[QueryPool], part: ArenaPart, seed: int) -> Iterator[Drawn]:
    yield from singles(pools, part, seed)
    for index in range(part.rounds):
        yield draw(index, pools, part, seed)
