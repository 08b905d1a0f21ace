"""What a run would cost, before it runs: trials, those already done, calls at most."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ragassay.experiments.plan import expected_calls
from ragassay.experiments.setup import Setup
from ragassay.store import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Counts for ``ragassay plan``; ``calls`` bounds each defense's model calls from above."""

    folder: Path
    queries: int
    cells: tuple[tuple[str, int], ...]
    trials: int
    done: int
    calls: dict[str, int]


def estimate(setup: Setup, out: Path | None = None) -> Estimate:
    """Count the trials of a run and what its folder already holds.

    Nothing is crafted, encoded or asked. How many passages an attack will deliver is not
    known before it has crafted, so every budget counts, except those above the number that
    an attack declares (``max_passages``).
    """
    folder = setup.run_folder(out)
    cells = tuple(
        (attack.title, budget)
        for attack in setup.attacks
        for budget in sorted(setup.experiment.file.budgets)
        if budget <= getattr(attack.instance, "max_passages", budget)
    )
    done = 0
    if folder.is_dir():
        done = sum(
            record.status == "done" and not record.spec.control
            for record in RunFolder(folder).trials().values()
        )
    return Estimate(
        folder=folder,
        queries=len(setup.evaluated),
        cells=cells,
        trials=len(setup.settings)
        * len(setup.defenses)
        * (len(setup.evaluated) * (1 + len(cells)) + len(setup.held_out)),
        done=done,
        calls=expected_calls(setup, len(cells)),
    )
