"""Runs an experiment: resumes what is there, spreads trials over workers, writes alone.

Workers compute, this process's main thread alone writes the run folder. A failed trial is
recorded and tried again by the next run; a bounded number of failures in a row stops the run
with everything finished kept.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragassay import canon
from ragassay.errors import BackendError, Interrupted, TooManyFailures
from ragassay.experiments.aligned import analyze
from ragassay.experiments.claim import claim
from ragassay.experiments.context import make_ready, retrieve
from ragassay.experiments.labeling import insist, label, stamped
from ragassay.experiments.plan import jobs_of
from ragassay.experiments.poison import craft_all
from ragassay.experiments.setup import Experiment, Setup, set_up
from ragassay.experiments.spending import note
from ragassay.experiments.trial import Bench, Job, run_trial
from ragassay.generation.cache import GenerationCache
from ragassay.generation.gather import ModelClient
from ragassay.plugins import Index, ModelScorer, Scorer
from ragassay.store import RunFolder
from ragassay.types import PoisonSet, Query, ScoreRecord, TrialRecord


@dataclass(slots=True)
class Monitor:
    """What a run tells while it works. Replace the functions that you want to hear."""

    stage: Callable[[str], None] = lambda text: None
    progress: Callable[[int, int], None] = lambda done, total: None
    trial: Callable[[TrialRecord, list[ScoreRecord]], None] = lambda record, scores: None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run left behind, and what it spent this time."""

    folder: Path
    summary: dict[str, Any]
    trials_run: int
    trials_reused: int
    model_calls: int
    encoded_texts: int
    seconds: float
    model_seconds: float
    encoder_seconds: float


@dataclass(slots=True)
class _Spent:
    trials_run: int = 0
    trials_reused: int = 0
    failures_in_a_row: int = 0
    last_error: str = ""
    passages: set[str] = field(default_factory=set)


def cache_folder() -> Path:
    """Where generations and embeddings are kept: ``RAGASSAY_CACHE`` or the user's cache."""
    named = os.environ.get("RAGASSAY_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ragassay"


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
    start = time.perf_counter()
    monitor = monitor or Monitor()
    monitor.stage("reading the data set")
    setup = set_up(experiment)
    folder = RunFolder(setup.run_folder(out))
    cache = cache_folder()
    with folder.writer(), _clients(setup, cache) as (model, helper):
        claim(folder, setup)
        monitor.stage("crafting the poison")
        sets = craft_all(setup, folder, helper, monitor.progress)
        monitor.stage("encoding and retrieving")
        with _indexed(setup, cache, monitor) as index:
            jobs, bench = _prepare(setup, index, sets, model)
            monitor.stage("running trials")
            spent = _run_jobs(jobs, bench, setup, folder, model, monitor)
        monitor.stage("labeling answers")
        labeled = label(folder, setup.scorers, cache=cache, progress=monitor.progress)
        note(folder, [each for each in labeled if each.asks_a_model])
        monitor.stage("analyzing")
        summary = analyze(folder.path)
        folder.write_text("summary.json", canon.dumps(summary) + "\n")
        result = RunResult(
            folder=folder.path,
            summary=summary,
            trials_run=spent.trials_run,
            trials_reused=spent.trials_reused,
            model_calls=model.calls + (helper.calls if helper is not model else 0),
            encoded_texts=getattr(index, "encoded", 0),
            seconds=time.perf_counter() - start,
            model_seconds=model.seconds,
            encoder_seconds=getattr(index, "encode_seconds", 0.0),
        )
        folder.write_text("timing.json", canon.dumps(_timing(result)) + "\n")
    _within_budget(result, experiment, spent.last_error)
    insist(labeled, folder.path)
    return result


@contextmanager
def _indexed(setup: Setup, cache: Path, monitor: Monitor) -> Iterator[Index]:
    index = setup.retriever.instance.index(
        setup.dataset.corpus,
        fingerprint=setup.corpus_fingerprint,
        cache_dir=cache,
        progress=monitor.progress,
    )
    try:
        yield index
    finally:
        close = getattr(index, "close", None)
        if close is not None:
            close()


def _prepare(
    setup: Setup, index: Index, sets: Mapping[tuple[str, str], PoisonSet], model: ModelClient
) -> tuple[list[Job], Bench]:
    """Retrieve all contexts, calibrate the detectors, and list the trials."""
    contexts = retrieve(setup, index, sets)
    bench = Bench(
        model=model,
        embed=_embedder(index),
        template=setup.template,
        prompt=setup.experiment.file.prompt,
        sampling=setup.sampling,
        seed=setup.experiment.file.seed,
    )
    ready = make_ready(
        setup, index, contexts.clean, lambda query: bench.tools(query, "calibration")
    )
    return jobs_of(setup, contexts, ready), bench


# --------------------------------------------------------------------------------- the trials


def _run_jobs(
    jobs: Sequence[Job],
    bench: Bench,
    setup: Setup,
    folder: RunFolder,
    model: ModelClient,
    monitor: Monitor,
) -> _Spent:
    spent = _Spent(passages=folder.keys("passages"))
    done = {key for key, record in folder.trials().items() if record.status == "done"}
    todo = [job for job in jobs if job.key not in done]
    spent.trials_reused = len(jobs) - len(todo)
    monitor.progress(spent.trials_reused, len(jobs))
    limit = setup.experiment.file.run.max_failures
    for job, record in _execute(todo, bench, model, _workers(setup)):
        scores = _keep(job, record, setup, folder, spent)
        monitor.trial(record, scores)
        monitor.progress(spent.trials_reused + spent.trials_run, len(jobs))
        if spent.failures_in_a_row >= limit:
            raise BackendError(
                f"{limit} trials failed in a row, the last one with: {spent.last_error}. "
                f"{spent.trials_run - limit} finished trials are kept in {folder.path}; "
                "the same command goes on from there"
            )
    return spent


def _execute(
    todo: Sequence[Job], bench: Bench, model: ModelClient, workers: int
) -> Iterator[tuple[Job, TrialRecord]]:
    def work(job: Job) -> TrialRecord:
        with model.worker():
            return run_trial(job, bench)

    pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="trial")
    waiting: dict[Future[TrialRecord], Job] = {}
    queue = iter(todo)
    try:
        for job in queue:
            waiting[pool.submit(work, job)] = job
            if len(waiting) < 2 * workers:
                continue
            yield from _finished(waiting)
        while waiting:
            yield from _finished(waiting)
    except KeyboardInterrupt:
        _halt(pool, model)
        for future, job in waiting.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                yield job, future.result()
        raise Interrupted(
            "stopped; finished trials are kept, the same command goes on from there"
        ) from None
    except BaseException:
        _halt(pool, model)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _finished(waiting: dict[Future[TrialRecord], Job]) -> Iterator[tuple[Job, TrialRecord]]:
    ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in ready:
        job = waiting.pop(future)
        yield job, future.result()


def _halt(pool: ThreadPoolExecutor, model: ModelClient) -> None:
    model.stop()
    pool.shutdown(wait=True, cancel_futures=True)


def _keep(
    job: Job, record: TrialRecord, setup: Setup, folder: RunFolder, spent: _Spent
) -> list[ScoreRecord]:
    new = [
        hit.passage
        for hit in job.context
        if hit.passage.id not in spent.passages and hit.passage.id not in job.owner
    ]
    if new:
        folder.append_many("passages", [(passage.id, passage) for passage in new])
        spent.passages.update(passage.id for passage in new)
    folder.append("trials", record.key, record)
    spent.trials_run += 1
    if record.status == "failed":
        spent.failures_in_a_row += 1
        spent.last_error = record.error
        return []
    spent.failures_in_a_row = 0
    scores = list(_score(record, job.query, setup))
    folder.append_many("scores", [(score.trial_key, score) for score in scores])
    return scores


def _score(record: TrialRecord, query: Query, setup: Setup) -> Iterator[ScoreRecord]:
    """Label a fresh answer at once, except by scorers that ask a model: these follow in bulk."""
    target = setup.dataset.targets[query.id]
    for part in setup.scorers:
        if isinstance(part.instance, ModelScorer):
            continue
        scorer: Scorer = part.instance
        score = scorer.score(
            trial_key=record.key,
            query=query,
            target=target,
            answer=record.answer or "",
            declined=record.declined,
        )
        yield stamped(score, part)


def _workers(setup: Setup) -> int:
    wanted = setup.experiment.file.run.workers
    if wanted:
        return wanted
    return 128 if setup.generator.instance.gathers else 32


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
        "encoded_texts": result.encoded_texts,
        "trials_run": result.trials_run,
        "trials_reused": result.trials_reused,
    }


@contextmanager
def _clients(setup: Setup, cache: Path) -> Iterator[tuple[ModelClient, ModelClient]]:
    store = GenerationCache(cache / "generations.sqlite")
    model = ModelClient(setup.generator.instance, store)
    helper = model
    if setup.helper is not setup.generator:
        helper = ModelClient(setup.helper.instance, store)
    try:
        yield model, helper
    finally:
        model.close()
        if helper is not model:
            helper.close()
        store.close()


def _embedder(index: Index) -> Callable[[Sequence[str]], Any]:
    embed = getattr(index, "embed", None)
    if embed is not None:
        return embed  # type: ignore[no-any-return]

    def refuse(texts: Sequence[str]) -> Any:
        raise BackendError(
            "this defense embeds passages, and the retriever has no encoder; "
            "use retriever.plugin = 'dense'"
        )

    return refuse
