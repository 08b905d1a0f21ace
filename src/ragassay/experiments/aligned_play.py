"""Plays the aligned protocol: four matched answers a query, then contexts without evidence."""

from __future__ import annotations

import numpy as np

from ragassay.experiments.context import retrieve
from ragassay.experiments.jobs import readers
from ragassay.experiments.labeling import label
from ragassay.experiments.plan import Stage
from ragassay.experiments.session import Session
from ragassay.experiments.trial import Job
from ragassay.store.columns import POSITIVE


def play(session: Session) -> None:
    """Run every trial of the protocol; what the run folder holds is not run again."""
    setup, folder, monitor = session.setup, session.folder, session.monitor
    for arm in setup.arms:
        session.index(arm)
    sets = session.craft()
    monitor.stage("retrieving")
    contexts = {arm.title: retrieve(setup, arm, session.index(arm), sets) for arm in setup.arms}
    for setting in setup.settings:
        found = contexts[setting.arm.title]
        ready = session.calibrated(setting, found.clean)
        stage = Stage(setup=setup, setting=setting, contexts=found, ready=ready)
        named = f" ({setting.label})" if setting.label else ""
        monitor.stage(f"running trials{named}")
        session.run(stage.jobs(), setting)
        if setup.experiment.file.evidence is not None:
            monitor.stage(f"removing evidence{named}")
            # Which answers are positive decides what follows.
            label(folder, readers(setup), cache=session.cache)
            before = session.clients.calls
            session.run(_control_jobs(stage, session), setting)
            session.spent.evidence_calls += session.clients.calls - before


def _control_jobs(stage: Stage, session: Session) -> list[Job]:
    """The trials with evidence removed; labels of models and people do not decide which.

    So that a run gives the same trials whether or not it was scored again in between.
    """
    trials = session.folder.columns()
    positive = np.zeros(len(trials), dtype=bool)
    for part in readers(session.setup):
        positive |= trials.labels(part.title) == POSITIVE
    return stage.control_jobs(trials, positive)
