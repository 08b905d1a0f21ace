"""Plays the dose protocol: tampers with retrieved passages, and asks what the answers become."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragassay.errors import PluginError
from ragassay.experiments.context import Context
from ragassay.experiments.dose_contexts import (
    DoseContexts,
    clean_contexts,
    dose_passages,
    doses_of,
    irrelevant_contexts,
)
from ragassay.experiments.dose_plan import DoseStage
from ragassay.experiments.dose_rows import EDITS
from ragassay.experiments.labeling import BATCH, stamped
from ragassay.experiments.session import Session
from ragassay.experiments.setup import Arm, Named, Setting
from ragassay.experiments.trial import Job, score_key
from ragassay.plugins import EditScorer
from ragassay.store import RunFolder
from ragassay.tampering.dose import tamper
from ragassay.types import EditsRecord, ScoreRecord, TextEdit, TrialRecord


def play(session: Session) -> None:
    """Run every trial of the protocol; what the run folder holds is not run again."""
    setup, monitor = session.setup, session.monitor
    for arm in setup.arms:
        doses_of(setup, arm)  # a dose above k is told before anything is encoded
    contexts = {arm.title: _contexts(session, arm) for arm in setup.arms}
    planned = []
    for setting in setup.settings:
        found = contexts[setting.arm.title]
        ready = session.calibrated(setting, found.clean)
        stage = DoseStage(setup=setup, setting=setting, contexts=found, ready=ready)
        _assert_zero_is_clean(session, stage, setting)
        jobs, edits = stage.jobs()
        _keep_edits(session.folder, edits)  # of all settings before the first answer
        _keep_passages(session, jobs)
        planned.append((setting, jobs))
    for setting, jobs in planned:
        monitor.stage(f"running trials{f' ({setting.label})' if setting.label else ''}")
        session.run(jobs, setting)
    monitor.stage("reading adoption")
    for scorer in setup.scorers:
        if isinstance(scorer.instance, EditScorer):
            label_adoption(session.folder, scorer)


def _contexts(session: Session, arm: Arm) -> DoseContexts:
    setup, monitor = session.setup, session.monitor
    index = session.index(arm)
    monitor.stage("retrieving")
    clean = clean_contexts(setup, arm, index)
    part = setup.experiment.file.dose
    irrelevant: dict[str, Context] = {}
    if part is not None and "irrelevant" in part.controls:
        irrelevant = irrelevant_contexts(setup, arm, index, clean)
    monitor.stage("tampering with passages")
    asks = any(getattr(rule.instance, "asks", False) for rule in setup.rules)
    helper = session.clients.helper if asks else None
    return DoseContexts(
        clean=clean,
        irrelevant=irrelevant,
        dosed=dose_passages(setup, arm, clean, helper),
    )


def _assert_zero_is_clean(session: Session, stage: DoseStage, setting: Setting) -> None:
    """Refuse to run where the prompt at dose 0 is not the clean one, byte for byte.

    Raises
    ------
    PluginError
        A rule changed a prompt without being asked to.
    """
    bench = session.bench(setting)
    for query in session.setup.evaluated:
        job = stage.clean_job(query)
        tools = bench.tools(query, job.key)
        texts = tuple(hit.passage.text for hit in job.context)
        clean = tools.answer_prompt(query, job.context)
        for rule in session.setup.rules:
            dosed = tamper(
                rule.instance, texts, 0, question=query.text, rng=bench.tools(query, "zero").rng
            )
            context = stage.tampered(query, dosed)
            if tools.answer_prompt(query, context) != clean:
                raise PluginError(
                    f"rule {rule.title!r}: the prompt of question {query.id!r} at dose 0 is not "
                    "the clean one"
                )


def _keep_edits(folder: RunFolder, edits: list[EditsRecord]) -> None:
    known = folder.keys("edits")
    new = [(record.trial_key, record) for record in edits if record.trial_key not in known]
    for start in range(0, len(new), BATCH):
        folder.append_many("edits", new[start : start + BATCH])


def _keep_passages(session: Session, jobs: list[Job]) -> None:
    """Write the passages before tampering, which edits refer to."""
    new = {
        hit.passage.id: hit.passage
        for job in jobs
        for hit in job.context
        if hit.passage.id not in session.spent.passages and hit.passage.id not in job.owner
    }
    if new:
        session.folder.append_many("passages", list(new.items()))
        session.spent.passages.update(new)


# ----------------------------------------------------------------------------------- adoption


def label_adoption(folder: RunFolder, scorer: Named) -> None:
    """Tell of every answer over passages whether it asserts an edit of its context.

    The label is ``target_positive`` of a score under ``<trial key>#edits``. Answers that have
    one of this scorer already are left alone.
    """
    known = {
        key
        for (key, title), score in folder.scores().items()
        if title == scorer.title and score.provenance.get("identity") == scorer.identity
    }
    batch: list[tuple[str, ScoreRecord]] = []
    for record in _adoptions(folder, scorer, known):
        batch.append((record.trial_key, record))
        if len(batch) >= BATCH:
            folder.append_many("scores", batch)
            batch = []
    if batch:
        folder.append_many("scores", batch)


def _adoptions(folder: RunFolder, scorer: Named, known: set[str]) -> Iterator[ScoreRecord]:
    trials, queries = folder.trials(), folder.queries()
    texts = {key: passage.text for key, passage in folder.passages().items()}
    for key, record in folder.edits().items():
        trial = trials.get(key)
        place = score_key(key, EDITS)
        if trial is None or trial.status != "done" or record.arm == "closed_book":
            continue
        if place in known:
            continue
        query, target = queries[trial.spec.query_id]
        instance: Any = scorer.instance
        score = instance.score_edits(
            trial_key=place,
            query=query,
            target=target,
            answer="" if trial.declined else trial.answer or "",
            passages=_before(trial, record, texts),
        )
        yield stamped(score, scorer)


def _before(
    trial: TrialRecord, record: EditsRecord, texts: dict[str, str]
) -> list[tuple[str, tuple[TextEdit, ...]]]:
    """The passages of a context as they were, with the edits applied to each."""
    edited = {each.position: each for each in record.passages if each.applied}
    return [
        (texts[edited[at].passage], edited[at].edits) if at in edited else (texts[entry.id], ())
        for at, entry in enumerate(trial.context)
    ]
