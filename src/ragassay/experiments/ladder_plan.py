"""How many trials a control ladder consists of, and how many model calls at most."""

from __future__ import annotations

from pathlib import Path

from ragassay.config.ladder import variant_name
from ragassay.experiments.estimate import Estimate
from ragassay.experiments.ladder_play import ladder_part
from ragassay.experiments.plan import expected_calls
from ragassay.experiments.setup import Setup
from ragassay.store import RunFolder


def estimate(setup: Setup, out: Path | None = None) -> Estimate:
    """Count the trials of a run and what its folder already holds.

    Where the victim is not asked, only the calls that a defense itself makes are left, which is
    what it declares less the victim's own.
    """
    part = ladder_part(setup)
    cells = len(setup.attacks) * len(part.variants)
    contexts = len(setup.evaluated) * (1 + cells) * len(setup.settings)
    calls = expected_calls(setup, cells, len(setup.evaluated))
    if not part.end_to_end:
        calls = {title: max(0, count - contexts) for title, count in calls.items()}
    folder = setup.run_folder(out)
    done = 0
    if folder.is_dir():
        done = RunFolder(folder).index("trials").newest_done()
    rungs = ", ".join(variant_name(*each) for each in part.variants)
    return Estimate(
        folder=folder,
        trials=contexts * len(setup.defenses),
        done=done,
        calls=calls,
        made_of=f"{len(setup.evaluated)} questions x {len(setup.defenses)} defenses (with none) "
        f"x (clean, {len(setup.attacks)} attacks x rungs {rungs})",
    )
