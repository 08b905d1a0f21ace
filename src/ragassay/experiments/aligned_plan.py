"""How many trials the aligned protocol consists of, and how many model calls at most."""

from __future__ import annotations

from pathlib import Path

from ragassay.experiments.estimate import Estimate
from ragassay.experiments.plan import expected_calls
from ragassay.experiments.setup import Setup
from ragassay.store import RunFolder


def estimate(setup: Setup, out: Path | None = None) -> Estimate:
    """Count the trials of a run and what its folder already holds.

    Nothing is crafted, encoded or asked. How many passages an attack will deliver is not
    known before it has crafted, so every budget counts, except those above the number that
    an attack declares (``max_passages``).
    """
    folder = setup.run_folder(out)
    cells = [
        (attack.title, budget)
        for attack in setup.attacks
        for budget in sorted(setup.experiment.file.budgets)
        if budget <= getattr(attack.instance, "max_passages", budget)
    ]
    done = 0
    if folder.is_dir():
        done = sum(
            record.status == "done" and not record.spec.control
            for record in RunFolder(folder).trials().values()
        )
    named = ", ".join(f"{attack} p={budget}" for attack, budget in cells)
    return Estimate(
        folder=folder,
        trials=len(setup.settings)
        * len(setup.defenses)
        * (len(setup.evaluated) * (1 + len(cells)) + len(setup.held_out)),
        done=done,
        calls=expected_calls(setup, len(cells)),
        made_of=f"{len(setup.evaluated)} questions x {len(setup.defenses)} defenses (with none) "
        f"x (clean, {named})",
    )
