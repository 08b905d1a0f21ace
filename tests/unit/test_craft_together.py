"""Questions that are crafted for at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ragassay.experiments.craft_together import SharedClock, in_order


class Helper:
    """Counts the threads that register, and whether it was told to stop."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.stopped = threading.Event()
        self._lock = threading.Lock()

    @contextmanager
    def worker(self) -> Iterator[None]:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        try:
            yield
        finally:
            with self._lock:
                self.inside -= 1

    def stop(self) -> None:
        self.stopped.set()


def test_all_are_at_work_together_and_come_in_order() -> None:
    helper, meet = Helper(), threading.Barrier(5, timeout=30)

    def make(item: int) -> int:
        meet.wait()  # passes only if five are at work at once
        return 10 * item

    assert list(in_order(range(5), make, helper)) == [0, 10, 20, 30, 40]
    assert helper.most == 5
    assert not helper.stopped.is_set()


def test_what_fails_is_raised_in_its_place_and_the_rest_is_told_to_stop() -> None:
    helper = Helper()

    def make(item: int) -> int:
        if item == 1:
            raise ValueError("no")
        if item == 2:
            assert helper.stopped.wait(30)  # it waits for a model until it hears of it
        return item

    made = in_order(range(3), make, helper)
    assert next(made) == 0
    with pytest.raises(ValueError, match="no"):
        next(made)
    assert helper.stopped.is_set()
    assert helper.inside == 0


def test_leaving_early_stops_what_is_at_work() -> None:
    helper = Helper()

    def make(item: int) -> int:
        if item:
            assert helper.stopped.wait(30)
        return item

    made = in_order(range(3), make, helper)
    assert next(made) == 0
    made.close()
    assert helper.stopped.is_set()


def test_nothing_to_make_and_a_helper_without_threads() -> None:
    assert list(in_order([], str, object())) == []
    assert list(in_order([1, 2], str, object(), at_once=1)) == ["1", "2"]


def test_shared_seconds_add_up_to_the_time_that_passed() -> None:
    moments = [0.0, 2.0, 2.5, 4.0, 10.0, 11.0, 11.0, 20.0]
    clock = SharedClock(iter(moments).__next__)
    first, second = clock.start(), clock.start()
    third = clock.start()
    spent = [clock.stop(second), clock.stop(first), clock.stop(third)]
    again = clock.start()  # nobody was at work just before
    spent.append(clock.stop(again))
    assert sum(spent) == pytest.approx((11.0 - 0.0) + (20.0 - 11.0))
    assert spent[0] == pytest.approx(0.5 / 2 + 1.5 / 3)
