"""A pool of workers that may die: hands out tasks, sends lost ones again, and counts how often.

A worker does one task at a time, so that a worker that is lost costs one task. Where there is
no room for another in its place, the ones that are left do its work. One thread owns all
state; everything else talks to it through a queue.

Tasks must be functions of what they are given: one that was lost may have been done, and is
done again.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from ragassay.errors import BackendError, BackendUnavailable, Interrupted, RagassayError

MAX_LOSSES = 3
"""How often a task, or a worker that does not start, may be lost before that is an error."""

PAUSE_SECONDS = 60.0
"""After how long a start is tried again where the last ones failed and other workers live."""

_PATIENCE_SECONDS = 60.0
_STOPPED = "stopped; what the workers had not sent back is done again by the next run"
_LOG = logging.getLogger(__name__)


class WorkerLost(Exception):
    """A worker died, or its machine is gone. The message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One call of a method of a worker; ``what`` says what is lost if it is ("1,024 texts")."""

    method: str
    arguments: tuple[Any, ...]
    what: str


class Workers(Protocol):
    """What starts workers and talks to them. Called by one thread at a time."""

    def start(self) -> tuple[Any, Future[None]]:
        """Start a worker: how it is addressed, and what is done once it can work.

        The future fails with :class:`WorkerLost`, or with the error of a worker that cannot
        be used.
        """

    def send(self, worker: Any, task: Task) -> Future[Any]:
        """Give a task to a worker; the future fails with :class:`WorkerLost` if it dies."""

    def kill(self, worker: Any) -> None:
        """End a worker, whatever it does."""

    def end(self, workers: Sequence[Any]) -> None:
        """Kill workers of which some may still live; those that do may clear up first."""


@dataclass(slots=True, eq=False)
class _Job:
    task: Task
    future: Future[Any] = field(default_factory=Future)
    losses: int = 0

    def settle(self, *, value: Any = None, error: BaseException | None = None) -> None:
        if self.future.done():  # abandoned in the meantime
            return
        if error is None:
            self.future.set_result(value)
        else:
            self.future.set_exception(error)


@dataclass(slots=True, eq=False)
class _Worker:
    handle: Any
    ready: bool = False
    job: _Job | None = None


class Pool:
    """Workers that are started when there is work for them, at most ``size`` at a time.

    Parameters
    ----------
    workers : Workers
        Starts them.
    size : int
        At least 1.
    max_losses : int
        A task that was lost more often is given up. So many failed starts in a row are the end
        of starting, as long as another worker lives and none is lost.
    pause : float
        Seconds after which a start is tried again all the same: machines come back.
    """

    def __init__(
        self,
        workers: Workers,
        *,
        size: int,
        max_losses: int = MAX_LOSSES,
        pause: float = PAUSE_SECONDS,
    ) -> None:
        if size < 1:
            raise ValueError(f"a pool needs at least one worker, got {size}")
        self.size = size
        self._workers = workers
        self._max_losses = max_losses
        self._pause = pause
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        self._waiting: deque[_Job] = deque()  # this and all below: of the thread alone
        self._members: list[_Worker] = []
        self._failed_starts = 0
        self._failed_at = 0.0
        self._last_failure = ""
        self._thread = threading.Thread(target=self._serve, name="workers", daemon=True)
        self._thread.start()

    def submit(self, task: Task) -> Future[Any]:
        """Queue a task.

        Returns
        -------
        Future
            Its value, or the error that its worker reported. It fails with
            :class:`BackendError` if the task was lost too often, with
            :class:`BackendUnavailable` if no worker can be started, and with
            :class:`Interrupted` if the pool is closed first.
        """
        job = _Job(task)
        with self._closing:
            if self._closed:
                job.settle(error=Interrupted(_STOPPED))
            else:
                self._events.put(partial(self._waiting.append, job))
        return job.future

    def in_order(self, tasks: Iterable[Task]) -> Iterator[Any]:
        """Yield the values of tasks in their order; tasks are made shortly before their turn.

        Raises
        ------
        RagassayError
            As :meth:`submit`; the tasks behind it are dropped.
        """
        ahead: deque[Future[Any]] = deque()
        try:
            for task in tasks:
                ahead.append(self.submit(task))
                if len(ahead) >= 4 * self.size:
                    yield ahead[0].result()
                    ahead.popleft()
            while ahead:
                yield ahead[0].result()
                ahead.popleft()
        finally:
            self.abandon(ahead)

    def abandon(self, futures: Iterable[Future[Any]]) -> None:
        """Make futures that are not done fail with Interrupted; nobody waits for them any more."""
        given_up = [future for future in futures if not future.done()]
        with self._closing:
            if given_up and not self._closed:
                self._events.put(partial(self._drop, given_up))

    def close(self) -> None:
        """End all workers, whatever they do, and fail what is not done. May be called twice."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._events.put(None)
        self._thread.join()

    # --------------------------------------------------------------------------- the thread

    def _serve(self) -> None:
        while True:
            stuck = bool(self._waiting) and not any(worker.ready for worker in self._members)
            try:
                event = self._events.get(timeout=_PATIENCE_SECONDS if stuck else None)
            except queue.Empty:
                _LOG.warning(
                    "no worker has started for %g s; is there room for one in the cluster?",
                    _PATIENCE_SECONDS,
                )
                continue
            if event is None:
                break
            event()
            self._start_workers()
            self._hand_out()
        self._workers.end([worker.handle for worker in self._members])
        for worker in self._members:
            if worker.job is not None:
                worker.job.settle(error=Interrupted(_STOPPED))
        for job in self._waiting:
            job.settle(error=Interrupted(_STOPPED))

    def _start_workers(self) -> None:
        wanted = len(self._waiting) + sum(w.job is not None for w in self._members)
        while len(self._members) < min(self.size, wanted):
            if self._failed_starts >= self._max_losses:
                if not self._members:
                    self._give_up()
                    return
                if time.monotonic() < self._failed_at + self._pause:
                    return
                self._failed_starts = self._max_losses - 1  # one more
            try:
                handle, ready = self._workers.start()
            except Exception as error:  # of whatever library starts them
                self._note_failure(error)
                continue
            worker = _Worker(handle)
            self._members.append(worker)
            ready.add_done_callback(partial(self._post, self._started, worker))

    def _hand_out(self) -> None:
        for worker in list(self._members):
            if worker.ready and worker.job is None:
                job = self._next()
                if job is None:
                    return
                try:
                    done = self._workers.send(worker.handle, job.task)
                except Exception as error:  # what cannot be sent is not sent again
                    job.settle(error=_failure(job.task, error))
                    self._events.put(lambda: None)
                    continue
                worker.job = job
                done.add_done_callback(partial(self._post, self._done, worker))

    def _post(
        self, what: Callable[[_Worker, Future[Any]], None], worker: _Worker, done: Future[Any]
    ) -> None:
        self._events.put(partial(what, worker, done))

    def _next(self) -> _Job | None:
        while self._waiting:
            job = self._waiting.popleft()
            if not job.future.done():
                return job
        return None

    def _started(self, worker: _Worker, done: Future[Any]) -> None:
        error = done.exception()
        if error is None:
            worker.ready = True
            self._failed_starts = 0
            return
        self._members.remove(worker)
        self._workers.kill(worker.handle)
        self._note_failure(error)

    def _note_failure(self, error: BaseException) -> None:
        self._failed_starts += 1
        self._failed_at = time.monotonic()
        self._last_failure = _one_line(error)
        _LOG.warning("a worker could not be started: %s", self._last_failure)

    def _done(self, worker: _Worker, done: Future[Any]) -> None:
        job, worker.job = worker.job, None
        if job is None:
            return
        error = done.exception()
        if error is None:
            job.settle(value=done.result())
        elif isinstance(error, WorkerLost):
            self._members.remove(worker)
            self._workers.kill(worker.handle)
            self._failed_starts = (
                0  # there may be room now, and where none is left it must be tried
            )
            self._lose(job, error)
        else:
            job.settle(error=_failure(job.task, error))

    def _lose(self, job: _Job, error: WorkerLost) -> None:
        job.losses += 1
        reason = _one_line(error)
        if job.losses > self._max_losses:
            job.settle(
                error=BackendError(
                    f"{job.task.what}: lost {job.losses} times with the worker that had it, the "
                    f"last time with: {reason}"
                )
            )
        elif not job.future.done():
            _LOG.warning("a worker was lost (%s); sent again: %s", reason, job.task.what)
            self._waiting.appendleft(job)

    def _give_up(self) -> None:
        for job in self._waiting:
            job.settle(error=BackendUnavailable(f"no worker can be started: {self._last_failure}"))
        self._waiting.clear()
        self._failed_starts = 0  # what is asked later tries again

    def _drop(self, futures: list[Future[Any]]) -> None:
        for future in futures:
            if not future.done():
                future.set_exception(Interrupted(_STOPPED))


def _failure(task: Task, error: BaseException) -> BaseException:
    if isinstance(error, RagassayError):
        return error
    return BackendError(f"{task.what}: {type(error).__name__}: {_one_line(error)}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:400] or type(error).__name__
