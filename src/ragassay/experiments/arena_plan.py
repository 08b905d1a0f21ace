"""How many trials an arena consists of: exactly for released documents, else bounded from above."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ragassay.arena.pool import QueryPool
from ragassay.arena.retrieval import merge
from ragassay.config import ArenaPart
from ragassay.experiments.arena_pools import arena_part, cut, released_pools
from ragassay.experiments.arena_rounds import Drawn, draw, singles
from ragassay.experiments.estimate import Estimate
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
    trials = len(setup.defenses) * contexts
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
    exact = "distinct contexts" if part.released else "contexts at most"
    return Estimate(
        folder=folder,
        trials=trials,
        done=done,
        calls=calls,
        made_of=f"{contexts:,} {exact} ({questions} questions, {part.rounds:,} rounds"
        f"{' at most' if part.stopping == 'sure' else ''}) x "
        f"{len(setup.defenses)} defenses (with none)",
    )


def _bound(setup: Setup, part: ArenaPart) -> int:
    rivals = len(setup.attacks)
    largest = max(part.attackers, default=min(rivals, part.answers))
    per_round = {"latin": largest, "full": math.factorial(largest), "random": part.draws}
    plays = len(setup.attacked) * rivals * min(part.single, part.answers)
    plays += part.rounds * per_round[part.assignment]
    if "order" in part.studies:
        plays += len(setup.attacked) * math.comb(rivals, 2) * 6
    scenes = len(setup.experiment.file.budgets) * (2 if "content" in part.studies else 1)
    return len(setup.settings) * (len(setup.evaluated) + plays * scenes)


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
                    if "content" in part.studies:
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
