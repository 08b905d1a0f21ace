from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ragassay.errors import BackendError, BackendUnavailable, Interrupted, StoreError
from ragassay.generation.cache import GenerationCache, request_digest
from ragassay.generation.gather import ModelClient
from ragassay.types import Generation, Message, Request

SOON = 10.0  # seconds after which a test counts as hung
Answers = list[Generation | BackendError]


def ask_for(*texts: object) -> list[Request]:
    return [Request(messages=(Message(role="user", content=str(text)),)) for text in texts]


def text_of(request: Request) -> str:
    return request.messages[-1].content


def answer(request: Request) -> Generation:
    return Generation(
        text=text_of(request).upper(), finish="stop", input_tokens=2, output_tokens=1, seconds=0.5
    )


class Model:
    """Counts what it is sent; ``act`` replaces what it does."""

    identity = "model"

    def __init__(
        self, *, gathers: bool = False, act: Callable[[list[Request]], Any] | None = None
    ) -> None:
        self.gathers = gathers
        self.waves: list[list[str]] = []
        self._act = act
        self._lock = threading.Lock()

    def generate(self, requests: Sequence[Request]) -> Answers:
        with self._lock:
            self.waves.append([text_of(request) for request in requests])
        if self._act is not None:
            return self._act(list(requests))  # type: ignore[no-any-return]
        return [answer(request) for request in requests]

    @property
    def sent(self) -> Counter[str]:
        return Counter(text for wave in self.waves for text in wave)


class Stream(Model):
    """Yields answers one by one; ``act`` is a generator function."""

    def generate_iter(
        self, requests: Sequence[Request]
    ) -> Iterator[tuple[int, Generation | BackendError]]:
        self.waves.append([text_of(request) for request in requests])
        if self._act is not None:
            yield from self._act(list(requests))
            return
        for position in reversed(range(len(requests))):
            yield position, answer(requests[position])


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[GenerationCache]:
    with GenerationCache(tmp_path / "cache.sqlite") as cache:
        yield cache


@pytest.fixture
def connect(cache: GenerationCache) -> Iterator[Callable[..., ModelClient]]:
    clients: list[ModelClient] = []

    def make(model: Any, **options: Any) -> ModelClient:
        clients.append(ModelClient(model, cache, **options))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def in_threads(n: int, work: Callable[[int], Any]) -> list[Any]:
    """Results or exceptions of n threads; none may hang."""
    with ThreadPoolExecutor(n) as pool:
        futures = [pool.submit(work, i) for i in range(n)]
        return [f.exception(timeout=SOON) or f.result() for f in futures]


both_modes = pytest.mark.parametrize("gathers", [False, True])
all_modes = pytest.mark.parametrize(
    ("kind", "gathers"), [(Model, False), (Model, True), (Stream, False), (Stream, True)]
)


@all_modes
def test_answers_come_in_order_and_again_from_the_cache(
    connect: Callable[..., ModelClient], kind: type[Model], gathers: bool
) -> None:
    model = kind(gathers=gathers)
    client = connect(model)
    first = client.ask(ask_for("a", "b", "a"))
    assert [g.text for g in first] == ["A", "B", "A"]
    assert [(g.cached, g.seconds) for g in first] == [(False, 0.5), (False, 0.5), (True, 0.0)]
    assert first[1].digest == request_digest("model", ask_for("b")[0])
    again = client.ask(ask_for("b"))[0]
    assert (again.text, again.cached, again.seconds, again.input_tokens) == ("B", True, 0.0, 2)
    assert (client.calls, client.joined, client.cached) == (2, 1, 1)
    assert (client.input_tokens, client.output_tokens) == (4, 2)
    assert client.ask([]) == []


@all_modes
def test_fifty_threads_never_send_a_request_twice(
    connect: Callable[..., ModelClient], kind: type[Model], gathers: bool
) -> None:
    model = kind(gathers=gathers)
    client = connect(model)
    start = threading.Barrier(50)

    def work(i: int) -> list[str]:
        start.wait()
        texts = []
        for turn in range(4):
            with client.worker():
                wanted = [f"r{(i + turn + j) % 20}" for j in range(5)]
                texts += [g.text for g in client.ask(ask_for(*wanted, wanted[0]))]
        return texts

    results = in_threads(50, work)
    assert all(r[:6] == [f"R{(i + j) % 20}" for j in (0, 1, 2, 3, 4, 0)]
               for i, r in enumerate(results))  # fmt: skip
    assert model.sent == Counter({f"r{i}": 1 for i in range(20)})
    assert client.calls == 20
    assert client.calls + client.joined + client.cached == 50 * 4 * 6


def test_a_second_client_on_the_same_file_sends_nothing(
    connect: Callable[..., ModelClient],
) -> None:
    connect(Model()).ask(ask_for("a"))
    model = Model(gathers=True)
    assert connect(model).ask(ask_for("a"))[0].cached
    assert model.waves == []


def test_a_wave_leaves_when_every_registered_worker_waits(
    connect: Callable[..., ModelClient],
) -> None:
    model = Model(gathers=True)
    client = connect(model, idle_seconds=60.0)
    registered = threading.Barrier(20)

    def work(i: int) -> None:
        with client.worker(), client.worker():
            registered.wait()
            for turn in range(3):
                client.ask(ask_for(f"{turn}-{i}", f"shared-{turn}"))

    assert in_threads(20, work) == [None] * 20
    assert [len(wave) for wave in model.waves] == [21, 21, 21]


def test_a_wave_does_not_leave_without_workers_whose_answers_are_being_committed(
    tmp_path: Path,
) -> None:
    class SlowCache(GenerationCache):
        def put_many(self, *args: Any, **options: Any) -> dict[str, Generation]:
            time.sleep(0.03)
            return super().put_many(*args, **options)

    model = Model(gathers=True)
    registered = threading.Barrier(20)
    with SlowCache(tmp_path / "slow.sqlite") as cache:
        client = ModelClient(model, cache, idle_seconds=60.0)

        def work(i: int) -> None:
            with client.worker():
                registered.wait()
                for turn in range(3):
                    client.ask(ask_for(f"{turn}-{i}"))

        assert in_threads(20, work) == [None] * 20
        client.close()
    assert [len(wave) for wave in model.waves] == [20, 20, 20]


def test_a_wave_holds_at_most_so_many_requests_in_the_order_of_their_keys(
    connect: Callable[..., ModelClient],
) -> None:
    model = Model(gathers=True)
    requests = ask_for(*range(10))
    connect(model, wave=4).ask(requests)
    assert [len(wave) for wave in model.waves] == [4, 4, 2]
    digests = {text_of(request): request_digest("model", request) for request in requests}
    assert all(wave == sorted(wave, key=digests.__getitem__) for wave in model.waves)


def test_a_worker_that_does_not_ask_holds_a_wave_up_only_briefly(
    connect: Callable[..., ModelClient],
) -> None:
    client = connect(Model(gathers=True), idle_seconds=0.05)
    with client.worker():
        assert in_threads(1, lambda i: client.ask(ask_for("a"))[0].text) == ["A"]


@both_modes
def test_a_generator_that_raises_fails_all_who_wait_and_not_the_next(
    connect: Callable[..., ModelClient], gathers: bool
) -> None:
    broken = [True]

    def act(requests: list[Request]) -> Answers:
        if broken[0]:
            raise RuntimeError("out of\nmemory")
        return [answer(request) for request in requests]

    client = connect(Model(gathers=gathers, act=act))
    errors = in_threads(8, lambda i: client.ask(ask_for("same", i)))
    assert {type(error) for error in errors} == {BackendError}
    assert {str(error) for error in errors} == {
        "generator model raised RuntimeError: out of memory"
    }
    broken[0] = False
    assert client.ask(ask_for("same"))[0].text == "SAME"


@both_modes
def test_a_back_end_that_is_not_there_keeps_its_error_type(
    connect: Callable[..., ModelClient], gathers: bool
) -> None:
    def act(requests: list[Request]) -> Answers:
        raise BackendUnavailable("no weights")

    with pytest.raises(BackendUnavailable, match="no weights"):
        connect(Model(gathers=gathers, act=act)).ask(ask_for("a"))


@both_modes
def test_even_an_exit_inside_the_generator_leaves_nobody_hanging(
    connect: Callable[..., ModelClient], gathers: bool
) -> None:
    asked = threading.Event()
    joined = threading.Event()

    def act(requests: list[Request]) -> Answers:
        asked.set()
        joined.wait(SOON)
        raise KeyboardInterrupt

    client = connect(Model(gathers=gathers, act=act))

    def work(i: int) -> None:
        if i:
            asked.wait(SOON)
            threading.Timer(0.05, joined.set).start()
        client.ask(ask_for("a"))

    errors = in_threads(2, work)
    assert isinstance(errors[0], Interrupted if gathers else KeyboardInterrupt)
    assert isinstance(errors[1], Interrupted)


@pytest.mark.parametrize("extra", [-1, 1])
@both_modes
def test_a_wrong_number_of_results_is_a_failure_that_says_so(
    connect: Callable[..., ModelClient], gathers: bool, extra: int
) -> None:
    def act(requests: list[Request]) -> Answers:
        return ([answer(r) for r in requests] * 2)[: len(requests) + extra]

    client = connect(Model(gathers=gathers, act=act))
    with pytest.raises(BackendError, match=f"returned {3 + extra} results for 3 requests"):
        client.ask(ask_for("a", "b", "c"))


@pytest.mark.parametrize("wrong", [None, "text", Generation(text=None)])  # type: ignore[arg-type]
def test_a_result_of_the_wrong_type_is_a_failure_and_not_an_answer(
    connect: Callable[..., ModelClient], cache: GenerationCache, wrong: Any
) -> None:
    client = connect(Model(act=lambda requests: [wrong]))
    with pytest.raises(BackendError, match="where a Generation or a BackendError belongs"):
        client.ask(ask_for("a"))
    assert cache.count() == 0


@both_modes
def test_the_first_failure_is_raised_after_the_good_answers_are_kept(
    connect: Callable[..., ModelClient], cache: GenerationCache, gathers: bool
) -> None:
    def act(requests: list[Request]) -> Answers:
        return [
            BackendError(f"no {text_of(r)}", retryable=True) if "x" in text_of(r) else answer(r)
            for r in requests
        ]

    model = Model(gathers=gathers, act=act)
    client = connect(model)
    for _ in range(2):
        with pytest.raises(BackendError, match="no x1") as caught:
            client.ask(ask_for("a", "x1", "b", "x2"))
        assert caught.value.retryable
    assert cache.count() == 2
    assert model.sent == {"a": 1, "b": 1, "x1": 2, "x2": 2}, "failures are not cached"


@both_modes
def test_a_stream_that_breaks_off_keeps_what_it_gave(
    connect: Callable[..., ModelClient], cache: GenerationCache, gathers: bool
) -> None:
    def act(requests: list[Request]) -> Iterator[tuple[int, Generation]]:
        for position in (2, 0, 3):
            yield position, answer(requests[position])
        raise OSError("died")

    with pytest.raises(BackendError, match="raised OSError: died"):
        connect(Stream(gathers=gathers, act=act)).ask(ask_for(*range(5)))
    assert cache.count() == 3


@pytest.mark.parametrize(
    ("positions", "message"), [((0,), "did not answer"), ((0, 0), "twice"), ((0, 7), "7 of 2")]
)
def test_a_stream_with_wrong_positions_is_a_failure(
    connect: Callable[..., ModelClient], positions: tuple[int, ...], message: str
) -> None:
    def act(requests: list[Request]) -> Iterator[tuple[int, Generation]]:
        for position in positions:
            yield position, answer(requests[0])

    with pytest.raises(BackendError, match=message):
        connect(Stream(act=act)).ask(ask_for("a", "b"))


def test_a_worker_goes_on_as_soon_as_its_answer_is_in_the_cache(
    connect: Callable[..., ModelClient], cache: GenerationCache
) -> None:
    release = threading.Event()
    first: list[str] = []

    def act(requests: list[Request]) -> Iterator[tuple[int, Generation]]:
        first.append(text_of(requests[0]))
        yield 0, answer(requests[0])
        assert release.wait(SOON)
        for position in range(1, len(requests)):
            yield position, answer(requests[position])

    client = connect(Stream(gathers=True, act=act), idle_seconds=60.0)
    both = threading.Barrier(2)

    def work(i: int) -> tuple[str, bool, int]:
        with client.worker():
            both.wait()
            text = client.ask(ask_for(i))[0].text
            seen = (text, release.is_set(), cache.count())
            release.set()
            return seen

    results = sorted(in_threads(2, work), key=lambda result: result[1])
    assert results[0] == (first[0], False, 1)
    assert results[1][1:] == (True, 2)


def test_stop_ends_waiting_workers_and_keeps_what_is_running(
    connect: Callable[..., ModelClient], cache: GenerationCache
) -> None:
    running, release = threading.Event(), threading.Event()

    def act(requests: list[Request]) -> Answers:
        running.set()
        assert release.wait(SOON)
        return [answer(request) for request in requests]

    model = Model(gathers=True, act=act)
    client = connect(model)

    def work(i: int) -> list[Generation]:
        if i:
            running.wait(SOON)
        return client.ask(ask_for(i))

    with ThreadPoolExecutor(5) as pool:
        futures = [pool.submit(work, i) for i in range(5)]
        running.wait(SOON)
        while client.calls < 5:
            time.sleep(0.001)
        client.stop()
        errors = [future.exception(timeout=SOON) for future in futures[1:]]
        assert not futures[0].done()
        release.set()
        assert futures[0].result(timeout=SOON)[0].text == "0"
    assert {type(error) for error in errors} == {Interrupted}
    assert model.waves == [["0"]]
    assert cache.count() == 1
    with pytest.raises(Interrupted):
        client.ask(ask_for("later"))


@both_modes
def test_stop_ends_a_stream_at_its_next_answer_and_closes_it(
    connect: Callable[..., ModelClient], cache: GenerationCache, gathers: bool
) -> None:
    running, closed = threading.Event(), threading.Event()

    def act(requests: list[Request]) -> Iterator[tuple[int, Generation]]:
        try:
            for position, request in enumerate(requests):
                running.set()
                time.sleep(0.01)
                yield position, answer(request)
        finally:
            closed.set()

    client = connect(Stream(gathers=gathers, act=act))
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(client.ask, ask_for(*range(400)))
        assert running.wait(SOON)
        client.stop()
        assert isinstance(future.exception(timeout=2.0), Interrupted)
    assert closed.wait(SOON)
    client.close()
    assert 1 <= cache.count() < 100


def test_stop_tells_the_back_end_and_its_failures_are_no_failures(
    connect: Callable[..., ModelClient],
) -> None:
    canceled = threading.Event()
    running = threading.Event()

    def act(requests: list[Request]) -> Answers:
        running.set()
        assert canceled.wait(SOON)
        return [BackendError("canceled")]

    model = Model(act=act)
    model.cancel = canceled.set  # type: ignore[attr-defined]
    client = connect(model)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(client.ask, ask_for("a"))
        assert running.wait(SOON)
        client.stop()
        assert isinstance(future.exception(timeout=SOON), Interrupted)


@both_modes
def test_a_cache_that_cannot_be_written_is_an_error_for_all_who_wait(
    connect: Callable[..., ModelClient], cache: GenerationCache, gathers: bool
) -> None:
    client = connect(Model(gathers=gathers))
    cache._file._db.execute("PRAGMA query_only = 1")
    errors = in_threads(4, lambda i: client.ask(ask_for("same", i)))
    assert {type(error) for error in errors} == {StoreError}
    cache._file._db.execute("PRAGMA query_only = 0")
    assert client.ask(ask_for("same"))[0].text == "SAME"


def test_a_cache_that_cannot_be_read_is_an_error(
    connect: Callable[..., ModelClient], cache: GenerationCache
) -> None:
    client = connect(Model(gathers=True))
    cache.close()
    with pytest.raises(StoreError, match="closed"):
        client.ask(ask_for("a"))


def test_the_answer_that_another_process_stored_first_is_the_one_that_counts(
    connect: Callable[..., ModelClient], cache: GenerationCache
) -> None:
    def act(requests: list[Request]) -> Answers:
        digest = request_digest("model", requests[0])
        cache.put_many([Generation(text="theirs", digest=digest)], identity="model")
        return [answer(requests[0])]

    assert connect(Model(act=act)).ask(ask_for("a"))[0].text == "theirs"


def test_seconds_count_the_wall_time_of_concurrent_calls_once(
    connect: Callable[..., ModelClient],
) -> None:
    together = threading.Barrier(4)

    def act(requests: list[Request]) -> Answers:
        together.wait(SOON)
        time.sleep(0.1)
        return [answer(requests[0])]

    client = connect(Model(act=act))
    in_threads(4, lambda i: client.ask(ask_for(i)))
    assert 0.1 <= client.seconds < 0.35


@both_modes
def test_closing_ends_all_threads_and_can_be_repeated(
    cache: GenerationCache, gathers: bool
) -> None:
    before = threading.active_count()
    client = ModelClient(Model(gathers=gathers), cache)
    client.ask(ask_for("a"))
    assert threading.active_count() > before
    client.close()
    client.close()
    assert threading.active_count() == before
    with pytest.raises(Interrupted):
        client.ask(ask_for("a"))


@pytest.mark.parametrize("gathers", [False, True])
def test_closing_closes_a_back_end_that_can_be_closed_after_its_last_call(
    cache: GenerationCache, gathers: bool
) -> None:
    class Closable(Model):
        open_calls = 0
        closed_at: tuple[int, ...] = ()

        def close(self) -> None:
            self.closed_at += (self.open_calls,)

    def act(requests: list[Request]) -> Answers:
        model.open_calls += 1
        asked.set()
        released.wait(5.0)
        model.open_calls -= 1
        return [answer(request) for request in requests]

    asked, released = threading.Event(), threading.Event()
    model = Closable(gathers=gathers, act=act)
    client = ModelClient(model, cache)
    asking = threading.Thread(target=client.ask, args=(ask_for("a"),))
    asking.start()
    assert asked.wait(5.0)
    closing = threading.Thread(target=client.close)
    closing.start()
    time.sleep(0.02)
    assert model.closed_at == ()
    released.set()
    closing.join()
    asking.join()
    assert model.closed_at == (0,)


def test_a_wave_of_nothing_is_refused(cache: GenerationCache) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ModelClient(Model(), cache, wave=0)
