"""Limits, cool-downs and waits of several servers, by a clock that stands still."""

from __future__ import annotations

import math
import threading

import pytest

from ragassay.errors import BackendError, BackendUnavailable
from ragassay.generation.servers import Failure, Servers, Ticket, Turn

A, B = "http://a/v1", "http://b/v1"
BROKEN = Failure(BackendError("server a: HTTP 500", retryable=True), again=True)
BUSY = Failure(BackendError("server a: HTTP 503", retryable=True), again=True, busy=True)
AWAY = Failure(BackendUnavailable("server a cannot be reached", retryable=True), again=True)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def servers_of(
    clock: Clock, *urls: str, concurrency: int = 8, retries: int = 6, patience: float = 60.0
) -> Servers:
    return Servers(
        urls or (A,), concurrency, retries=retries, patience_seconds=patience, clock=clock
    )


def asking(wait: float) -> Failure:
    return Failure(BackendError("server a: HTTP 429", retryable=True), again=True, wait=wait)


def take(servers: Servers, turn: Turn | None = None) -> Ticket:
    found = servers.choose(turn or servers.turn())
    assert isinstance(found, Ticket), found
    return found


def seconds(servers: Servers, turn: Turn | None = None) -> float:
    found = servers.choose(turn or servers.turn())
    assert isinstance(found, float), found
    return found


def error(servers: Servers, turn: Turn | None = None) -> BackendError:
    found = servers.choose(turn or servers.turn())
    assert isinstance(found, BackendError), found
    return found


def test_the_server_with_the_fewest_in_flight_is_asked(clock: Clock) -> None:
    servers = servers_of(clock, A, B)
    first = take(servers)
    assert (first.url, take(servers).url, take(servers).url) == (A, B, A)
    servers.settle(first, None)
    assert [take(servers).url for _ in range(2)] == [A, B]


def test_a_server_that_fails_cools_down_longer_each_time_until_it_answers(clock: Clock) -> None:
    servers = servers_of(clock, retries=99)
    waits = []
    for _ in range(8):
        servers.settle(take(servers), BROKEN)
        waits.append(seconds(servers))
        clock.now += waits[-1]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    servers.settle(take(servers), None)
    servers.settle(take(servers), BROKEN)
    assert seconds(servers) == 0.5


def test_requests_that_fail_together_are_one_failure(clock: Clock) -> None:
    servers = servers_of(clock)
    tickets = [take(servers) for _ in range(6)]
    for ticket in tickets:
        clock.now += 0.01
        servers.settle(ticket, BUSY)
    assert seconds(servers) == pytest.approx(0.5 - 0.05)
    assert servers.limit(A) == 4


def test_a_fault_of_the_request_says_nothing_of_the_server(clock: Clock) -> None:
    servers = servers_of(clock)
    servers.settle(take(servers), Failure(BackendError("HTTP 400"), again=False))
    assert take(servers).url == A
    assert servers.limit(A) == 8


def test_one_request_finds_out_whether_a_server_is_back(clock: Clock) -> None:
    servers = servers_of(clock)
    servers.settle(take(servers), BROKEN)
    clock.now += 0.5
    probe = take(servers)
    assert seconds(servers) == math.inf
    servers.settle(probe, None)
    assert [take(servers).url for _ in range(8)] == [A] * 8


def test_a_request_that_failed_goes_to_another_server_at_once(clock: Clock) -> None:
    servers = servers_of(clock, A, B)
    turn = servers.turn()
    servers.settle(take(servers, turn), BROKEN)
    servers.put_off(turn, A, 0.6)
    assert take(servers, turn).url == B
    clock.now += 0.55  # A may be asked again, though not by this request
    assert take(servers, turn).url == B
    assert take(servers).url == A


def test_with_all_servers_cooling_down_the_first_that_is_due_is_waited_for(clock: Clock) -> None:
    servers = servers_of(clock, A, B)
    servers.settle(take(servers), BROKEN)
    clock.now += 0.2
    servers.settle(take(servers), BROKEN)
    assert seconds(servers) == pytest.approx(0.3)
    clock.now += 0.3
    assert take(servers).url == A


def test_a_busy_server_gets_half_and_one_more_after_each_round_of_answers(clock: Clock) -> None:
    servers = servers_of(clock, concurrency=5)
    limits = []
    for _ in range(4):
        servers.settle(take(servers), BUSY)
        limits.append(servers.limit(A))
        clock.now += 30.0
    assert limits == [2, 1, 1, 1]
    for before, answers, after in ((1, 1, 2), (2, 2, 3), (3, 3, 4), (4, 4, 5), (5, 9, 5)):
        for _ in range(answers):
            assert servers.limit(A) == before
            servers.settle(take(servers), None)
        assert servers.limit(A) == after


def test_a_broken_server_keeps_its_limit(clock: Clock) -> None:
    servers = servers_of(clock)
    servers.settle(take(servers), BROKEN)
    assert servers.limit(A) == 8


def test_answers_to_what_was_sent_before_do_not_raise_the_limit(clock: Clock) -> None:
    servers = servers_of(clock, concurrency=4)
    tickets = [take(servers) for _ in range(4)]
    clock.now += 1.0
    servers.settle(tickets[0], BUSY)
    for ticket in tickets[1:]:
        servers.settle(ticket, None)
    assert servers.limit(A) == 2
    clock.now += 0.5
    assert [take(servers).url for _ in range(2)] == [A, A]
    assert seconds(servers) == math.inf


def test_the_time_that_a_server_asks_for_holds_for_all_requests(clock: Clock) -> None:
    servers = servers_of(clock)
    first, second = take(servers), take(servers)
    servers.settle(first, asking(7.0))
    assert seconds(servers) == 7.0
    servers.settle(second, asking(9.0))
    assert seconds(servers) == 9.0


def test_a_server_that_asks_for_no_time_and_fails_on_cools_down_all_the_same(clock: Clock) -> None:
    servers = servers_of(clock)
    servers.settle(take(servers), asking(0.0))
    servers.settle(take(servers), asking(0.0))
    assert seconds(servers) == 1.0


def test_a_server_that_asks_for_more_than_our_patience_is_not_waited_for(clock: Clock) -> None:
    servers = servers_of(clock, A, B, patience=60.0)
    servers.settle(take(servers), asking(100.0))
    tickets = [take(servers) for _ in range(8)]
    assert {ticket.url for ticket in tickets} == {B}
    assert seconds(servers) == 100.0
    for ticket in tickets:
        servers.settle(ticket, asking(math.inf))
    assert str(error(servers)) == "server a: HTTP 429; it asks for 100 s more"
    clock.now += 40.0
    assert seconds(servers) == 60.0
    clock.now += 60.0
    assert take(servers).url == A
    clock.now += 3500.0
    assert take(servers).url == B


def test_failures_in_a_row_end_the_waiting_of_a_request_that_saw_them(clock: Clock) -> None:
    servers = servers_of(clock, retries=2)
    waiting = servers.turn()
    for _ in range(2):
        servers.settle(take(servers), BROKEN)
        assert seconds(servers, waiting) > 0
        clock.now += 30.0
    servers.settle(take(servers), BROKEN)
    found = error(servers, waiting)
    assert (str(found), found.retryable) == ("server a: HTTP 500", True)
    assert seconds(servers) == 2.0  # one that has just come waits


def test_failures_with_an_answer_between_do_not_end_the_waiting(clock: Clock) -> None:
    servers = servers_of(clock, retries=2)
    waiting = servers.turn()
    for _ in range(9):
        servers.settle(take(servers), BROKEN)
        assert seconds(servers, waiting) > 0
        clock.now += 30.0
        servers.settle(take(servers), None)


def test_servers_out_of_reach_are_waited_for_as_long_as_patience_lasts(clock: Clock) -> None:
    servers = servers_of(clock, A, B, retries=99, patience=3.0)
    turn = servers.turn()
    for _ in range(2):
        for _ in (A, B):
            servers.settle(take(servers, turn), AWAY)
        clock.now += seconds(servers, turn)
    for _ in (A, B):
        servers.settle(take(servers, turn), AWAY)
    assert isinstance(error(servers, turn), BackendUnavailable)
    fresh = servers.turn()
    assert seconds(servers, fresh) == 2.0
    clock.now += 2.0
    servers.settle(take(servers, fresh), AWAY)
    servers.settle(take(servers, fresh), BROKEN)  # this one can be reached
    assert seconds(servers, fresh) > 3.0


def test_waiting_ends_with_room_and_with_a_cancel() -> None:
    servers = Servers((A,), 1, retries=6, patience_seconds=60.0)
    canceled = threading.Event()
    ticket = take(servers)
    found: list[Ticket | BackendError] = []

    def wait() -> None:
        found.append(servers.take(servers.turn(), canceled))

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    servers.settle(ticket, None)
    while not found:
        threads[0].join(0.005)
    assert isinstance(found[0], Ticket)
    canceled.set()
    servers.wake()
    for thread in threads:
        thread.join(5.0)
    assert str(found[1]) == "the request was canceled"
