"""Runs an experiment: resumes what is there, spreads trials over workers, writes alone.

Workers compute, this process's main thread alone writes the run folder. A failed trial is
recorded and tried again by the next run; a bounded number of failures in a row stops the run
with everything finished kept.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragassay import canon
from ragassay.errors import BackendError, Interrupted, TooManyFailures
from ragassay.experiments.aligned import analyze
from ragassay.experiments.claim import claim
from ragassay.experiments.context import Contexts, make_ready, retrieve
from ragassay.experiments.labeling import insist, label, stamped
from ragassay.experiments.paraphrases import with_paraphrases
from ragassay.experiments.perplexity import perplexity_of
from ragassay.experiments.plan import Stage
from ragassay.experiments.poison import Crafter, craft_all
from ragassay.experiments.setup import Arm, Experiment, Named, Setting, Setup, Victim, set_up
from ragassay.experiments.spending import note
from ragassay.experiments.tax import FACTS, attack_facts
from ragassay.experiments.trial import Bench, Job, run_trial
from ragassay.experiments.victim import AttackedSystem, embedder
from ragassay.generation.cache import GenerationCache
from ragassay.generation.gather import ModelClient
from ragassay.plugins import Index, ModelScorer, Scorer
from ragassay.store import RunFolder
from ragassay.types import Query, ScoreRecord, TrialRecord

_STOPPED = "stopped; finished trials are kept, the same command goes on from there"


@dataclass(slots=True)
class Monitor:
    """What a run tells while it works. Replace the functions that you want to hear."""

    stage: Callable[[str], None] = lambda text: None
    progress: Callable[[int, int], None] = lambda done, total: None
    trial: Callable[[TrialRecord, list[ScoreRecord]], None] = lambda record, scores: None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run left behind, and what it spent this time.

    ``evidence_calls`` are those of ``model_calls`` that answered contexts with evidence removed.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What the trials of one setting are run with."""

    setup: Setup
    victim: Victim
    folder: RunFolder
    bench: Bench
    model: ModelClient
    monitor: Monitor

    @property
    def workers(self) -> int:
        """How many trials run at once: as configured, else by the kind of generator."""
        wanted = self.setup.experiment.file.run.workers
        return wanted or (128 if self.victim.generator.instance.gathers else 32)


@dataclass(slots=True)
class _Spent:
    trials_run: int = 0
    trials_reused: int = 0
    evidence_calls: int = 0
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
    try:
        return _run(experiment, out, monitor or Monitor())
    except KeyboardInterrupt:
        raise Interrupted(_STOPPED) from None


def _run(experiment: Experiment, out: Path | None, monitor: Monitor) -> RunResult:
    start = time.perf_counter()
    monitor.stage("reading the data set")
    setup = set_up(experiment)
    folder = RunFolder(setup.run_folder(out))
    cache = cache_folder()
    with folder.writer(), ExitStack() as stack:
        clients = stack.enter_context(open_clients(setup, cache))
        setup = with_paraphrases(setup, clients.helper)
        claim(folder, setup)
        perplexity = perplexity_of(setup, cache)
        monitor.stage("encoding the corpus")
        indexes = {
            arm.title: stack.enter_context(open_index(setup, arm, cache, monitor))
            for arm in setup.arms
        }
        monitor.stage("crafting the poison")
        crafter = Crafter(
            setup=setup,
            helper=clients.helper,
            system=AttackedSystem(
                setup,
                lambda: indexes[setup.arms[0].title],
                lambda: clients.of(setup.victims[0]),
            ),
        )
        sets = craft_all(crafter, folder, monitor.progress)
        monitor.stage("retrieving")
        contexts = {arm.title: retrieve(setup, arm, indexes[arm.title], sets) for arm in setup.arms}
        facts = attack_facts(crafter, sets, indexes[setup.arms[0].title], perplexity)
        folder.write_text(FACTS, canon.dumps(facts) + "\n")
        spent = _Spent(passages=folder.keys("passages"))
        for setting in setup.settings:
            model = clients.of(setting.victim)
            index = indexes[setting.arm.title]
            stage, bench = _prepare(setup, setting, index, contexts[setting.arm.title], model)
            work = _Work(
                setup=setup, victim=setting.victim, folder=folder, bench=bench, model=model,
                monitor=monitor,
            )  # fmt: skip
            named = f" ({setting.label})" if setting.label else ""
            monitor.stage(f"running trials{named}")
            _run_jobs(stage.jobs(), work, spent)
            if experiment.file.evidence is not None:
                monitor.stage(f"removing evidence{named}")
                # Which answers are positive decides what follows.
                label(folder, _readers(setup), cache=cache)
                before = clients.calls
                _run_jobs(_control_jobs(stage, setup, folder), work, spent)
                spent.evidence_calls += clients.calls - before
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
            model_calls=clients.calls,
            evidence_calls=spent.evidence_calls,
            encoded_texts=sum(getattr(index, "encoded", 0) for index in indexes.values()),
            seconds=time.perf_counter() - start,
            model_seconds=clients.seconds,
            encoder_seconds=sum(getattr(i, "encode_seconds", 0.0) for i in indexes.values()),
        )
        folder.write_text("timing.json", canon.dumps(_timing(result)) + "\n")
    _within_budget(result, experiment, spent.last_error)
    insist(labeled, folder.path)
    return result


@contextmanager
def open_index(setup: Setup, arm: Arm, cache: Path, monitor: Monitor) -> Iterator[Index]:
    """Index the corpus for an arm, or load what an earlier run left; closed on leaving."""
    index = arm.retriever.instance.index(
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
    setup: Setup, setting: Setting, index: Index, contexts: Contexts, model: ModelClient
) -> tuple[Stage, Bench]:
    """Calibrate the detectors of a setting, and ready what its trials share."""
    bench = Bench(
        model=model,
        embed=embedder(index),
        template=setup.template,
        prompt=setup.experiment.file.prompt,
        sampling=setting.victim.sampling,
        seed=setup.experiment.file.seed,
    )
    ready = make_ready(
        setup, setting.arm, index, contexts.clean, lambda query: bench.tools(query, "calibration")
    )
    return Stage(setup=setup, setting=setting, contexts=contexts, ready=ready), bench


def _control_jobs(stage: Stage, setup: Setup, folder: RunFolder) -> list[Job]:
    """The trials with evidence removed; labels of models and people do not decide which.

    So that a run gives the same trials whether or not it was scored again in between.
    """
    readers = {part.title for part in _readers(setup)}
    positive = {
        key
        for (key, scorer), score in folder.scores().items()
        if scorer in readers and score.target_positive is True
    }
    return stage.control_jobs(folder.trials(), positive.__contains__)


# --------------------------------------------------------------------------------- the trials


def _run_jobs(jobs: Sequence[Job], work: _Work, spent: _Spent) -> None:
    done = {key for key, record in work.folder.trials().items() if record.status == "done"}
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
        _halt(pool, model)
        for future, job in waiting.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                yield job, future.result()
        raise Interrupted(_STOPPED) from None
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


def _keep(job: Job, record: TrialRecord, work: _Work, spent: _Spent) -> list[ScoreRecord]:
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
    scores = list(_score(record, job.query, setup))
    folder.append_many("scores", [(score.trial_key, score) for score in scores])
    return scores


def _readers(setup: Setup) -> list[Named]:
    """The scorers that read answers themselves, without asking a model."""
    return [part for part in setup.scorers if not isinstance(part.instance, ModelScorer)]


def _score(record: TrialRecord, query: Query, setup: Setup) -> Iterator[ScoreRecord]:
    """Label a fresh answer at once, except by scorers that ask a model: these follow in bulk."""
    target = setup.dataset.targets[query.id]
    for part in _readers(setup):
        scorer: Scorer = part.instance
        score = scorer.score(
            trial_key=record.key,
            query=query,
            target=target,
            answer=record.answer or "",
            declined=record.declined,
        )
        yield stamped(score, part)


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
        "evidence_calls": result.evidence_calls,
        "encoded_texts": result.encoded_texts,
        "trials_run": result.trials_run,
        "trials_reused": result.trials_reused,
    }


@dataclass(slots=True)
class Clients:
    """One client per model, opened when first asked for; all share one cache."""

    store: GenerationCache
    own_helper: Named
    open_ones: dict[str, ModelClient] = field(default_factory=dict)

    @property
    def helper(self) -> ModelClient:
        """The attackers' own model."""
        return self._client(self.own_helper)

    def of(self, victim: Victim) -> ModelClient:
        """A victim's model."""
        return self._client(victim.generator)

    @property
    def calls(self) -> int:
        """Requests sent to all models."""
        return sum(client.calls for client in self.open_ones.values())

    @property
    def seconds(self) -> float:
        """Wall time in all models."""
        return sum(client.seconds for client in self.open_ones.values())

    def _client(self, part: Named) -> ModelClient:
        client = self.open_ones.get(part.identity)
        if client is None:
            client = self.open_ones[part.identity] = ModelClient(part.instance, self.store)
        return client


@contextmanager
def open_clients(setup: Setup, cache: Path) -> Iterator[Clients]:
    """Open the cache of generations; models are opened on first use, all closed on leaving."""
    clients = Clients(GenerationCache(cache / "generations.sqlite"), setup.helper)
    try:
        yield clients
    finally:
        for client in clients.open_ones.values():
            client.close()
        clients.store.close()
