"""Crafting for several questions at once, where an attack only asks a language model.

A local engine answers fifty requests in hardly more time than one, and a server answers several
at a time. An attack that reads the retriever, the corpus or what stands there already is crafted
for one question after the other: the counters of opened models are shared.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from ragassay.experiments.setup import NamedAttack

AT_ONCE = 64
Item = TypeVar("Item")
Made = TypeVar("Made")


class SharedClock:
    """Wall time, split evenly among those who work at the same time.

    The seconds of all pieces of work add up to the time in which any was at work.

    Examples
    --------
    >>> now = iter([0.0, 1.0, 3.0, 4.0])
    >>> clock = SharedClock(lambda: next(now))
    >>> first, second = clock.start(), clock.start()
    >>> clock.stop(first), clock.stop(second)  # alone 0 to 1, both 1 to 3, alone 3 to 4
    (2.0, 2.0)
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._working = 0
        self._share = 0.0
        self._at = 0.0

    def start(self) -> float:
        """Begin a piece of work; what is returned is handed to :meth:`stop`."""
        with self._lock:
            self._advance(+1)
            return self._share

    def stop(self, started: float) -> float:
        """End a piece of work: its seconds."""
        with self._lock:
            self._advance(-1)
            return self._share - started

    def _advance(self, step: int) -> None:
        now = self._now()
        if self._working:
            self._share += (now - self._at) / self._working
        self._working += step
        self._at = now


def only_asks(attack: NamedAttack) -> bool:
    """Whether crafting for one question can neither see nor disturb another."""
    knowledge = attack.instance.knowledge
    return (
        knowledge.llm in ("none", "helper")
        and knowledge.retriever == "none"
        and knowledge.corpus == "none"
        and not attack.sequential
    )


def in_order(
    items: Sequence[Item], make: Callable[[Item], Made], helper: object, *, at_once: int = AT_ONCE
) -> Iterator[Made]:
    """Make one thing of each item on several threads; yield in the order of the items.

    Parameters
    ----------
    items : sequence
        What to make something of.
    make : callable
        Called on a thread.
    helper : object
        The model client. If it has ``worker()``, threads register with it, so that requests
        leave together; if it has ``stop()``, it is called when the loop is left early.
    at_once : int
        Threads.

    Raises
    ------
    Exception
        What ``make`` raised, at the place of its item.
    """
    worker: Callable[[], AbstractContextManager[None]] = getattr(helper, "worker", nullcontext)

    def work(item: Item) -> Made:
        with worker():
            return make(item)

    pool = ThreadPoolExecutor(max_workers=min(at_once, len(items)) or 1, thread_name_prefix="craft")
    waiting: deque[Future[Made]] = deque()
    try:
        waiting.extend(pool.submit(work, item) for item in items)
        while waiting:
            yield waiting[0].result()
            waiting.popleft()
    finally:
        if waiting and callable(stop := getattr(helper, "stop", None)):
            stop()
        pool.shutdown(wait=True, cancel_futures=True)
