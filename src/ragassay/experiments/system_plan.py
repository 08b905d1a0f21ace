"""How many questions the protocol puts to each system."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from ragassay.experiments.estimate import Estimate
from ragassay.experiments.setup import Setup
from ragassay.experiments.system_setup import SystemSetup
from ragassay.store import RunFolder


def estimate(setup: Setup, out: Path | None = None) -> Estimate:
    """Count the questions of a run and what its folder already holds; nobody is asked.

    As in the aligned protocol every budget counts that an attack does not rule out itself.
    """
    setup = cast(SystemSetup, setup)
    folder = setup.run_folder(out)
    cells = [
        (attack.title, budget)
        for attack in setup.attacks
        for budget in sorted(setup.experiment.file.budgets)
        if budget <= getattr(attack.instance, "max_passages", budget)
    ]
    each = len(setup.evaluated) * (1 + len(cells))
    done = 0
    if folder.is_dir():
        done = RunFolder(folder).index("trials").newest_done()
    named = ", ".join(f"{attack} p={budget}" for attack, budget in cells)
    return Estimate(
        folder=folder,
        trials=each * len(setup.systems),
        done=done,
        calls={f"questions to {system.title}": each for system in setup.systems},
        made_of=f"{len(setup.evaluated)} questions x {len(setup.systems)} systems x "
        f"(clean, {named})",
    )
