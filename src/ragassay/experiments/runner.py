"""Runs an experiment: opens its parts, lets its protocol play, labels, analyzes."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragassay import canon
from ragassay.errors import Interrupted, TooManyFailures
from ragassay.experiments.claim import claim
from ragassay.experiments.clients import cache_folder, open_clients, open_pool
from ragassay.experiments.jobs import STOPPED, Spent, Written
from ragassay.experiments.labeling import insist, label
from ragassay.experiments.monitor import Monitor
from ragassay.experiments.paraphrases import with_paraphrases
from ragassay.experiments.protocols import protocol
from ragassay.experiments.session import Session
from ragassay.experiments.setup import Experiment
from ragassay.experiments.spending import note
from ragassay.store import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run left behind, and what it spent this time.

    ``evidence_calls`` are those of ``model_calls`` that answered contexts with evidence removed.
    Tokens are those of ``model_calls``.
    """

    folder: Path
    summary: dict[str, Any]
    trials_run: int
    trials_reused: int
    model_calls: int
    evidence_calls: int
    encoded_texts: int
    seconds: float
    model_seconds: float
    encoder_seconds: float
    input_tokens: int
    output_tokens: int


def run(
    experiment: Experiment, *, out: Path | None = None, monitor: Monitor | None = None
) -> RunResult:
    """Run an experiment, or finish one that was interrupted.

    Parameters
    ----------
    experiment : Experiment
        From :func:`ragassay.load_experiment`.
    out : Path, optional
        The run folder; default ``runs/<name>-<digest of the settings>``.
    monitor : Monitor, optional
        Hears of stages, progress and finished trials.

    Returns
    -------
    RunResult
        The folder, the summary, and what this call spent.

    Raises
    ------
    ConfigError, DataError
        The experiment or its data are wrong.
    StoreError
        The folder holds another experiment, is in use, or cannot be written.
    BackendError
        Too many trials failed in a row; finished ones are kept.
    TooManyFailures
        The run ended with more failed trials than its error budget allows, or with answers
        that the model behind a scorer did not label; the summary is written and counts them
        as dropped.
    Interrupted
        The user stopped the run; finished trials are kept.
    """
    try:
        return _run(experiment, out, monitor or Monitor())
    except KeyboardInterrupt:
        raise Interrupted(STOPPED) from None


def _run(experiment: Experiment, out: Path | None, monitor: Monitor) -> RunResult:
    start = time.perf_counter()
    monitor.stage("reading the data set")
    setup = protocol(experiment.file.protocol).set_up(experiment)
    folder = RunFolder(setup.run_folder(out))
    cache = cache_folder()
    run = experiment.file.run
    size = max(1, round(run.segment_mib * 2**20))
    with ExitStack() as stack:
        pool = stack.enter_context(open_pool(run, monitor))
        stack.enter_context(folder.writer(compression=run.compression, segment_bytes=size))
        clients = stack.enter_context(open_clients(setup, cache, pool))
        setup = with_paraphrases(setup, clients.helper)
        claim(folder, setup)
        spent = Spent(passages=Written(folder.index("passages")))
        session = Session(
            setup=setup, folder=folder, cache=cache, clients=clients, monitor=monitor,
            spent=spent, stack=stack,
        )  # fmt: skip
        played = protocol(setup.protocol)
        played.play(session)
        monitor.stage("labeling answers")
        labeled = label(folder, setup.scorers, cache=cache, progress=monitor.progress, pool=pool)
        note(folder, [each for each in labeled if each.asks_a_model])
        monitor.stage("analyzing")
        summary = played.analyze(folder, None)
        folder.write_text("summary.json", canon.dumps(summary) + "\n")
        indexes = session.indexes.values()
        result = RunResult(
            folder=folder.path,
            summary=summary,
            trials_run=spent.trials_run,
            trials_reused=spent.trials_reused,
            model_calls=clients.calls,
            evidence_calls=spent.evidence_calls,
            encoded_texts=sum(getattr(index, "encoded", 0) for index in indexes),
            seconds=time.perf_counter() - start,
            model_seconds=clients.seconds,
            encoder_seconds=sum(getattr(i, "encode_seconds", 0.0) for i in indexes),
            input_tokens=clients.input_tokens,
            output_tokens=clients.output_tokens,
        )
        folder.write_text("timing.json", canon.dumps(_timing(result)) + "\n")
        folder.pack()
        folder.refresh_indexes()
    _within_budget(result, experiment, spent.last_error)
    insist(labeled, folder.path)
    return result


def _within_budget(result: RunResult, experiment: Experiment, last_error: str) -> None:
    planned = result.summary["trials"]["planned"]
    failed = result.summary["trials"]["failed"]
    budget = experiment.file.run.error_budget
    if failed == planned:
        message = f"not estimable: {failed} of {planned} trials failed"
    elif failed > budget * planned:
        message = (
            f"{failed} of {planned} trials failed, more than run.error_budget = {budget:g} "
            "allows; the report counts them as dropped"
        )
    else:
        return
    raise TooManyFailures(f"{message}. The last error: {last_error}", folder=result.folder)


def _timing(result: RunResult) -> dict[str, Any]:
    return {
        "seconds": round(result.seconds, 3),
        "model_seconds": round(result.model_seconds, 3),
        "encoder_seconds": round(result.encoder_seconds, 3),
        "model_calls": result.model_calls,
        "input_tokens": result.input_tokens,
        "output_tokens": result.output_tokens,
        "evidence_calls": result.evidence_calls,
        "encoded_texts": result.encoded_texts,
        "trials_run": result.trials_run,
        "trials_reused": result.trials_reused,
    }
