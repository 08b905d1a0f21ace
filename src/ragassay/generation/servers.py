"""Which of the servers of one model is asked next, and how many requests each has at once.

A server that fails cools down, 0.5 s after the first failure in a row, then 1 s, 2 s, ... up
to 30 s, or as long as its ``Retry-After`` asks; all requests keep away from it meanwhile, and
then one alone tries whether it is back. A server that is too busy (HTTP 408, 429, 503, 504, a
time-out) gets half as many requests at once, at least one, and one more after each round of
answers. What fails at the same time counts once. None of this changes an answer, only when a
request is sent, and where.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ragassay.errors import BackendError, BackendUnavailable

_FIRST_DELAY = 0.5
_LONGEST_DELAY = 30.0
_LONGEST_ASKED = 3600.0  # a server that names a time beyond is asked again after this one


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that failed.

    ``again``: the server is at fault, and another attempt may help. ``wait``: seconds that the
    server asked for. ``busy``: it has too many requests.
    """

    error: BackendError
    again: bool = False
    wait: float | None = None
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Ticket:
    """The right to send one request to ``url``, given at ``since`` (seconds of the clock)."""

    url: str
    since: float


@dataclass(slots=True)
class Turn:
    """One request on its way to an answer: since when, and what it has seen of the servers."""

    since: float
    faults_before: dict[str, int]
    not_before: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Server:
    url: str
    limit: int
    in_flight: int = 0
    answers: int = 0  # of requests sent since the limit last changed
    in_a_row: int = 0  # faults since the last answer
    faults: int = 0
    last_fault: float = -math.inf
    due: float = -math.inf
    asked: float = -math.inf  # the part of ``due`` that the server asked for
    error: BackendError = field(default_factory=lambda: BackendError("no failure"))

    @property
    def has_room(self) -> bool:
        return self.in_flight < (1 if self.in_a_row else self.limit)


class Servers:
    """Hands out the right to ask, to any number of threads.

    Parameters
    ----------
    urls : sequence of str
        At least one; equal ones count once.
    concurrency : int
        Requests in flight at most, per server.
    retries : int
        After one more failure than this, in a row and at every server, a waiting request fails.
    patience_seconds : float
        How long a request waits for servers that all are out of reach, and the longest
        ``Retry-After`` that is waited for.
    clock : callable, optional
        Seconds that never run backwards.
    """

    def __init__(
        self,
        urls: Sequence[str],
        concurrency: int,
        *,
        retries: int,
        patience_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._servers = {url: _Server(url, concurrency) for url in urls}
        self._concurrency = concurrency
        self._retries = retries
        self._patience = patience_seconds
        self._clock = clock
        self._changed = threading.Condition()  # guards all servers

    def turn(self) -> Turn:
        """Begin with a request."""
        with self._changed:
            faults = {url: server.faults for url, server in self._servers.items()}
            return Turn(self._clock(), faults)

    def put_off(self, turn: Turn, url: str, seconds: float) -> None:
        """Keep a request, and no other, away from a server for ``seconds``."""
        turn.not_before[url] = self._clock() + seconds

    def take(self, turn: Turn, canceled: threading.Event) -> Ticket | BackendError:
        """Wait until the request can be sent; an error says why it never can.

        :meth:`wake` must be called after ``canceled`` was set. Each ticket must be settled.
        """
        with self._changed:
            while not canceled.is_set():
                found = self.choose(turn)
                if not isinstance(found, float):
                    return found
                self._changed.wait(None if math.isinf(found) else found)
        return BackendError("the request was canceled", retryable=True)

    def choose(self, turn: Turn) -> Ticket | BackendError | float:
        """Of the servers that are due and have room, take the one with the fewest in flight.

        Returns
        -------
        Ticket, BackendError or float
            Where to send the request; why it fails; or how many seconds to wait before asking
            again, infinity where another request must end first.
        """
        with self._changed:
            now = self._clock()
            due = {
                server.url: max(server.due, turn.not_before.get(server.url, -math.inf))
                for server in self._servers.values()
            }
            servers = self._servers.values()
            ready = [server for server in servers if server.has_room and due[server.url] <= now]
            if ready:
                chosen = min(ready, key=lambda server: server.in_flight)
                chosen.in_flight += 1
                return Ticket(chosen.url, now)
            near = [server for server in servers if server.asked - now <= self._patience]
            if not near:
                first = min(servers, key=lambda server: server.asked)
                return _with(first.error, f"; it asks for {first.asked - now:.0f} s more")
            first = min(near, key=lambda server: due[server.url])
            if all(due[server.url] > now for server in near):
                if self._is_lost(near, turn, due[first.url]):
                    return _with(first.error)
                return due[first.url] - now
            later = [when - now for when in due.values() if when > now]
            return min(later, default=math.inf)

    def settle(self, ticket: Ticket, failure: Failure | None) -> None:
        """Take a ticket back: the server answered (None), or what failed."""
        with self._changed:
            server = self._servers[ticket.url]
            server.in_flight -= 1
            if failure is None:
                self._answered(server, ticket)
            elif failure.again:
                self._failed(server, ticket, failure)
            self._changed.notify_all()

    def wake(self) -> None:
        """Make every thread in :meth:`take` look whether it was canceled."""
        with self._changed:
            self._changed.notify_all()

    def limit(self, url: str) -> int:
        """How many requests a server has at once, at most."""
        with self._changed:
            return self._servers[url].limit

    # ------------------------------------------------------------------ internals

    def _answered(self, server: _Server, ticket: Ticket) -> None:
        server.in_a_row = 0
        if ticket.since < server.last_fault or server.limit == self._concurrency:
            return
        server.answers += 1
        if server.answers >= server.limit:
            server.limit += 1
            server.answers = 0

    def _failed(self, server: _Server, ticket: Ticket, failure: Failure) -> None:
        now = self._clock()
        server.error = failure.error
        wait = failure.wait or 0.0
        # Requests that were under way together fail together: one fault, not many.
        if ticket.since >= server.last_fault:
            if failure.wait is None or server.in_a_row:
                wait = max(wait, back_off(server.in_a_row))
            server.in_a_row += 1
            server.faults += 1
            server.last_fault = now
            server.answers = 0
            if failure.busy:
                server.limit = max(1, server.limit // 2)
        if failure.wait is not None:
            server.asked = max(server.asked, now + min(failure.wait, _LONGEST_ASKED))
        server.due = max(server.due, now + min(wait, _LONGEST_ASKED))

    def _is_lost(self, servers: Sequence[_Server], turn: Turn, next_due: float) -> bool:
        """Whether a request has seen these servers, none of which is due, fail often enough.

        What a server did to other requests counts too: while it cools down, only one of them
        finds out whether it is back.
        """
        seen = min(
            min(server.in_a_row, server.faults - turn.faults_before[server.url])
            for server in servers
        )
        unreachable = all(isinstance(server.error, BackendUnavailable) for server in servers)
        impatient = unreachable and next_due > turn.since + self._patience
        return seen > self._retries or (seen > 0 and impatient)


def back_off(failures: int) -> float:
    """Seconds to wait after a failure that ``failures`` others went before.

    Examples
    --------
    >>> [back_off(failures) for failures in (0, 1, 2, 9)]
    [0.5, 1.0, 2.0, 30.0]
    """
    return min(_FIRST_DELAY * 2.0 ** min(failures, 32), _LONGEST_DELAY)


def _with(error: BackendError, more: str = "") -> BackendError:
    """Copy a server's last error: an exception that several threads raise mixes their traces."""
    return type(error)(f"{error}{more}", retryable=error.retryable)
