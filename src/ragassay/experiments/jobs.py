"""Runs trials: spreads them over workers, writes alone, goes on where an earlier run stopped.

Workers compute, the main thread alone writes the run folder. A failed trial is recorded and
tried again by the next run; a bounded number of failures in a row stops the run with
everything finished kept.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from ragassay.cluster.pool import Pool
from ragassay.errors import BackendError, Interrupted
from ragassay.experiments.clients import threads_for
from ragassay.experiments.labeling import stamped
from ragassay.experiments.monitor import Monitor
from ragassay.experiments.setup import Named, Setup, Victim
from ragassay.experiments.trial import Bench, Job, run_trial
from ragassay.generation.gather import ModelClient
from ragassay.plugins import ModelScorer, Scorer
from ragassay.store import RunFolder
from ragassay.types import ScoreRecord, TrialRecord

STOPPED = "stopped; finished trials are kept, the same command goes on from there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the trials of one setting are run with."""

    setup: Setup
    victim: Victim
    folder: RunFolder
    bench: Bench
    model: ModelClient
    monitor: Monitor
    pool: Pool | None = None

    @property
    def workers(self) -> int:
        """How many trials run at once: as configured, else by the kind of generator."""
        wanted = self.setup.experiment.file.run.workers
        return wanted or threads_for(self.victim.generator.instance, self.pool)


class Written:
    """Ids that a stream has: those of its index, and those that were added since."""

    def __init__(self, there: Container[str] = ()) -> None:
        self._there = there
        self._new: set[str] = set()

    def __contains__(self, key: object) -> bool:
        return key in self._new or key in self._there

    def update(self, keys: Iterable[str]) -> None:
        """Add ids."""
        self._new.update(keys)


@dataclass(slots=True)
class Spent:
    """What a run has spent so far; ``passages`` are the ids of those already written."""

    trials_run: int = 0
    trials_reused: int = 0
    evidence_calls: int = 0
    failures_in_a_row: int = 0
    last_error: str = ""
    passages: Written = field(default_factory=Written)


def run_jobs(jobs: Sequence[Job], work: Work, spent: Spent) -> None:
    """Run the trials that are not done yet, and write and label each as it comes.

    Raises
    ------
    BackendError
        Too many trials failed in a row; finished ones are kept.
    Interrupted
        The user stopped the run; finished trials are kept.
    """
    done = work.folder.index("trials").done([job.key for job in jobs])
    todo = [job for job in jobs if job.key not in done]
    reused = len(jobs) - len(todo)
    spent.trials_reused += reused
    work.monitor.progress(reused, len(jobs))
    limit = work.setup.experiment.file.run.max_failures
    finished = _execute(todo, work.bench, work.model, work.workers)
    for ran, (job, record) in enumerate(finished, start=1):
        scores = _keep(job, record, work, spent)
        work.monitor.trial(record, scores)
        work.monitor.progress(reused + ran, len(jobs))
        if spent.failures_in_a_row >= limit:
            raise BackendError(
                f"{limit} trials failed in a row, the last one with: {spent.last_error}. "
                f"{spent.trials_run - limit} finished trials are kept in {work.folder.path}; "
                "the same command goes on from there"
            )


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
        _halt(pool, model, bench)
        for future, job in waiting.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                yield job, future.result()
        raise Interrupted(STOPPED) from None
    except BaseException:
        _halt(pool, model, bench)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _finished(waiting: dict[Future[TrialRecord], Job]) -> Iterator[tuple[Job, TrialRecord]]:
    ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in ready:
        job = waiting.pop(future)
        yield job, future.result()


def _halt(pool: ThreadPoolExecutor, model: ModelClient, bench: Bench) -> None:
    bench.stopped.set()
    model.stop()
    pool.shutdown(wait=True, cancel_futures=True)


def _keep(job: Job, record: TrialRecord, work: Work, spent: Spent) -> list[ScoreRecord]:
    setup, folder = work.setup, work.folder
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
    if record.answer is None:
        return []
    scores = list(_score(record, job, setup))
    folder.append_many("scores", [(score.trial_key, score) for score in scores])
    return scores


def readers(setup: Setup) -> list[Named]:
    """The scorers that read answers themselves, without asking a model."""
    return [part for part in setup.scorers if not isinstance(part.instance, ModelScorer)]


def _score(record: TrialRecord, job: Job, setup: Setup) -> Iterator[ScoreRecord]:
    """Label a fresh answer at once, except by scorers that ask a model: these follow in bulk."""
    targets = job.scored()
    if targets is None:
        targets = {record.key: setup.dataset.targets[job.query.id]}
    for part in readers(setup):
        scorer: Scorer = part.instance
        for key, target in targets.items():
            score = scorer.score(
                trial_key=key,
                query=job.query,
                target=target,
                answer=record.answer or "",
                declined=record.declined,
            )
            yield stamped(score, part)
