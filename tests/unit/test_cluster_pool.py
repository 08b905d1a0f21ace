"""The pool of workers, without Ray: what is lost is sent again, and not for ever."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from ragassay.cluster.pool import Pool, Task, WorkerLost
from ragassay.errors import BackendError, BackendUnavailable, Interrupted, RagassayError

WAIT = 10.0


class FakeWorkers:
    """Workers that are threads of nobody: ``answer`` decides what becomes of a task."""

    def __init__(self, answer: Callable[[int, Task], Any], starts: Any = None) -> None:
        self.answer = answer
        self.starts = starts or (lambda number: None)
        self.started = 0
        self.alive: set[int] = set()
        self.sent: list[tuple[int, Any]] = []
        self.held: list[tuple[Future[Any], int, Task]] = []

    def start(self) -> tuple[int, Future[None]]:
        self.started += 1
        self.alive.add(self.started)
        return self.started, _settled(lambda: self.starts(self.started))

    def send(self, worker: int, task: Task) -> Future[Any]:
        assert worker in self.alive
        self.sent.append((worker, task.arguments[0]))
        return _settled(lambda: self.answer(worker, task))

    def kill(self, worker: int) -> None:
        self.alive.discard(worker)

    def end(self, workers: Sequence[int]) -> None:
        self.alive.difference_update(workers)


class HeldWorkers(FakeWorkers):
    """Workers that finish when the test says so."""

    def send(self, worker: int, task: Task) -> Future[Any]:
        future: Future[Any] = Future()
        self.sent.append((worker, task.arguments[0]))
        self.held.append((future, worker, task))
        return future


def _settled(make: Callable[[], Any]) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(make())
    except Exception as error:
        future.set_exception(error)
    return future


def task(content: Any) -> Task:
    return Task(method="work", arguments=(content,), what=f"text {content}")


@pytest.fixture
def pools() -> Iterator[Callable[..., Pool]]:
    made: list[Pool] = []

    def make(workers: FakeWorkers, **options: Any) -> Pool:
        made.append(Pool(workers, **options))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def until(condition: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(1000):
        if condition():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not happen within 10 s")


def test_values_come_in_the_order_of_the_tasks(pools: Callable[..., Pool]) -> None:
    workers = FakeWorkers(lambda worker, task: task.arguments[0] * 2)
    pool = pools(workers, size=3)
    assert list(pool.in_order(task(n) for n in range(50))) == [2 * n for n in range(50)]
    assert sorted(content for _, content in workers.sent) == list(range(50))
    assert workers.started <= 3


def test_tasks_are_made_shortly_before_their_turn(pools: Callable[..., Pool]) -> None:
    pool = pools(FakeWorkers(lambda worker, task: None), size=2)
    made: list[int] = []

    def tasks() -> Iterator[Task]:
        for n in range(100):
            made.append(n)
            yield task(n)

    stream = pool.in_order(tasks())
    next(stream)
    assert len(made) == 8  # four for each worker


def test_a_lost_worker_costs_its_task_and_another_worker_does_it(
    pools: Callable[..., Pool], caplog: pytest.LogCaptureFixture
) -> None:
    def answer(worker: int, task: Task) -> Any:
        if worker == 1:
            raise WorkerLost("killed by signal 9")
        return task.arguments[0]

    workers = FakeWorkers(answer)
    with caplog.at_level(logging.WARNING):
        assert list(pools(workers, size=1).in_order(map(task, range(5)))) == [0, 1, 2, 3, 4]
    assert workers.sent == [(1, 0), *((2, n) for n in range(5))]  # the lost one first
    assert workers.alive == {2}
    assert "killed by signal 9" in caplog.text
    assert "text 0" in caplog.text


def test_the_others_go_on_where_there_is_no_room_for_a_new_worker(
    pools: Callable[..., Pool],
) -> None:
    def starts(number: int) -> None:
        if number > 2:
            raise WorkerLost("no room")

    def answer(worker: int, task: Task) -> Any:
        if worker == 2:
            raise WorkerLost("node is gone")
        return task.arguments[0]

    workers = FakeWorkers(answer, starts)
    pool = pools(workers, size=2)
    assert list(pool.in_order(map(task, range(20)))) == list(range(20))
    assert workers.alive == {1}
    assert workers.started <= 6  # it does not try for ever


def test_when_the_last_worker_dies_new_ones_are_tried_though_starts_failed_before(
    pools: Callable[..., Pool],
) -> None:
    full = [True]

    def starts(number: int) -> None:
        if full[0] and number > 1:
            raise WorkerLost("no room")

    workers = HeldWorkers(lambda worker, task: None, starts)
    pool = pools(workers, size=2)
    futures = [pool.submit(task(0))]
    until(lambda: len(workers.held) == 1)
    futures += [pool.submit(task(n)) for n in range(1, 3)]
    until(lambda: workers.started == 1 + 3)
    full[0] = False
    workers.held[0][0].set_exception(WorkerLost("node is gone"))
    for number in range(3):
        until(lambda number=number: len(workers.held) > 1 + number)
        held, _, sent = workers.held[1 + number]
        held.set_result(sent.arguments[0])
    assert [future.result(WAIT) for future in futures] == [0, 1, 2]


def test_after_a_pause_the_pool_grows_back_one_failed_start_at_a_time(
    pools: Callable[..., Pool],
) -> None:
    full = [True]

    def starts(number: int) -> None:
        if full[0] and number > 1:
            raise WorkerLost("no room")

    workers = HeldWorkers(lambda worker, task: None, starts)
    pool = pools(workers, size=2, pause=0.2)
    futures = [pool.submit(task(0))]
    until(lambda: len(workers.held) == 1)
    futures += [pool.submit(task(n)) for n in range(1, 4)]
    until(lambda: workers.started == 1 + 3)
    threading.Event().wait(0.3)
    futures.append(pool.submit(task(4)))
    until(lambda: workers.started == 1 + 3 + 1)
    full[0] = False
    threading.Event().wait(0.3)
    futures.append(pool.submit(task(5)))
    until(lambda: len(workers.held) == 2)
    assert workers.started == 1 + 3 + 1 + 1
    pool.close()


def test_a_task_that_kills_its_workers_is_given_up_and_named(pools: Callable[..., Pool]) -> None:
    def answer(worker: int, task: Task) -> Any:
        if task.arguments[0] == "bad":
            raise WorkerLost("out of memory\n  at line 7")
        return task.arguments[0]

    workers = FakeWorkers(answer)
    pool = pools(workers, size=2, max_losses=2)
    good = [pool.submit(task(n)) for n in range(10)]
    bad = pool.submit(task("bad"))
    with pytest.raises(BackendError) as caught:
        bad.result(WAIT)
    assert str(caught.value) == (
        "text bad: lost 3 times with the worker that had it, the last time with: "
        "out of memory at line 7"
    )
    assert [future.result(WAIT) for future in good] == list(range(10))
    assert sum(content == "bad" for _, content in workers.sent) == 3


def test_where_no_worker_starts_every_task_fails_and_a_later_one_tries_again(
    pools: Callable[..., Pool],
) -> None:
    broken = [True]

    def starts(number: int) -> None:
        if broken[0]:
            raise WorkerLost("No module named 'ragassay'")

    workers = FakeWorkers(lambda worker, task: task.arguments[0], starts)
    pool = pools(workers, size=4)
    for future in [pool.submit(task(n)) for n in range(3)]:
        with pytest.raises(BackendUnavailable, match="no worker can be started: No module named"):
            future.result(WAIT)
    broken[0] = False
    assert pool.submit(task(7)).result(WAIT) == 7


def test_an_error_of_a_task_is_its_own_and_the_worker_stays(pools: Callable[..., Pool]) -> None:
    def answer(worker: int, task: Task) -> Any:
        if task.arguments[0] == 1:
            raise BackendError("the model failed")
        if task.arguments[0] == 2:
            raise KeyError("a fault")
        return task.arguments[0]

    workers = FakeWorkers(answer)
    pool = pools(workers, size=1)
    futures = [pool.submit(task(n)) for n in range(4)]
    assert futures[0].result(WAIT) == 0
    with pytest.raises(BackendError, match=r"^the model failed$"):
        futures[1].result(WAIT)
    with pytest.raises(BackendError, match="text 2: KeyError: 'a fault'"):
        futures[2].result(WAIT)
    assert futures[3].result(WAIT) == 3
    assert workers.started == 1


def test_closing_ends_all_workers_and_fails_what_is_not_done(pools: Callable[..., Pool]) -> None:
    workers = HeldWorkers(lambda worker, task: None)
    pool = pools(workers, size=2)
    futures = [pool.submit(task(n)) for n in range(5)]
    until(lambda: len(workers.held) == 2)
    pool.close()
    pool.close()
    assert workers.alive == set()
    for future in [*futures, pool.submit(task(9))]:
        with pytest.raises(Interrupted):
            future.result(WAIT)


def test_what_is_abandoned_fails_at_once_and_is_not_sent_any_more(
    pools: Callable[..., Pool],
) -> None:
    workers = HeldWorkers(lambda worker, task: None)
    pool = pools(workers, size=1)
    first, second, third = (pool.submit(task(n)) for n in range(3))
    until(lambda: len(workers.held) == 1)
    pool.abandon([first, second])
    for future in (first, second):
        with pytest.raises(Interrupted):
            future.result(WAIT)
    workers.held[0][0].set_result("late")
    until(lambda: len(workers.held) == 2)
    workers.held[1][0].set_result("third")
    assert third.result(WAIT) == "third"
    assert [content for _, content in workers.sent] == [0, 2]


def test_an_abandoned_task_is_not_sent_again_when_its_worker_dies(
    pools: Callable[..., Pool],
) -> None:
    workers = HeldWorkers(lambda worker, task: None)
    pool = pools(workers, size=1)
    first, second = (pool.submit(task(n)) for n in range(2))
    until(lambda: len(workers.held) == 1)
    pool.abandon([first])
    workers.held[0][0].set_exception(WorkerLost("gone"))
    until(lambda: len(workers.held) == 2)
    workers.held[1][0].set_result(1)
    assert second.result(WAIT) == 1
    assert [content for _, content in workers.sent] == [0, 1]


def test_an_error_in_a_stream_drops_what_is_behind_it(pools: Callable[..., Pool]) -> None:
    def answer(worker: int, task: Task) -> Any:
        if task.arguments[0] == 2:
            raise BackendError("no")
        return task.arguments[0]

    pool = pools(FakeWorkers(answer), size=2)
    seen: list[Any] = []
    with pytest.raises(RagassayError, match=r"^no$"):
        seen.extend(pool.in_order(map(task, range(100))))
    assert seen == [0, 1]


def test_a_pool_has_workers() -> None:
    with pytest.raises(ValueError, match="at least one worker"):
        Pool(FakeWorkers(lambda worker, task: None), size=0)
