"""Several servers with one model: who is asked, and what happens when one is away."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ragassay.errors import BackendError, ConfigError, Interrupted
from ragassay.experiments.spending import remote_host
from ragassay.generation import openai_calls
from ragassay.generation import servers as servers_module
from ragassay.generation.cache import GenerationCache
from ragassay.generation.gather import ModelClient
from ragassay.generation.openai import OpenAIServer
from ragassay.types import Generation, Message, Request, Sampling


class Server(ThreadingHTTPServer):
    """Answers after 0.02 s, or refuses what ``refuses`` says; ``hangs`` until it is released."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = self.refused = self.in_flight = 0
        self.times: list[float] = []
        self.lock = threading.Lock()
        self.refuses: Callable[[Server], dict[str, str] | None] = lambda server: None
        self.hangs = False
        self.released = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients that hang up are part of the play

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        server = self.server
        with server.lock:
            server.asked += 1
            server.times.append(time.monotonic())
            server.in_flight += 1
            headers = server.refuses(server)
            server.refused += headers is not None
        if headers is None:
            if server.hangs:
                server.released.wait(20.0)
            time.sleep(0.02)
        with server.lock:  # before the reply, which makes room for the next request
            server.in_flight -= 1
        if headers is None:
            self.answer()
        else:
            self.reply(503, {"error": {"message": "no"}}, headers)

    def answer(self) -> None:
        message = {"role": "assistant", "content": "Hello"}
        body = {"id": "c", "object": "chat.completion", "created": 0, "model": "m",
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
                }  # fmt: skip
        self.reply(200, body, {})

    def reply(self, status: int, body: Any, headers: dict[str, str]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Server]]:
    monkeypatch.setattr(servers_module, "_FIRST_DELAY", 0.01)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    made = [Server() for _ in range(3)]
    threads = [
        threading.Thread(target=s.serve_forever, kwargs={"poll_interval": 0.01}) for s in made
    ]
    for thread in threads:
        thread.start()
    yield made
    for server, thread in zip(made, threads, strict=True):
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def requests(count: int) -> list[Request]:
    sampling = Sampling(temperature=0.0, max_tokens=5)
    return [Request(messages=(Message(role="user", content=str(n)),), sampling=sampling)
            for n in range(count)]  # fmt: skip


def several(*urls: str, **options: Any) -> OpenAIServer:
    return OpenAIServer(model="m", base_url=urls[0], more_urls=urls[1:], served_as="M",
                        **options)  # fmt: skip


def test_requests_are_spread_over_the_servers(servers: list[Server]) -> None:
    model = several(*(server.url for server in servers), concurrency=6)
    answers = model.generate(requests(60))
    model.close()
    assert all(isinstance(answer, Generation) and answer.text == "Hello" for answer in answers)
    assert sum(server.asked for server in servers) == 60
    assert min(server.asked for server in servers) >= 10


def test_a_server_that_cannot_be_reached_is_left_out_for_a_while(servers: list[Server]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    model = several(gone, servers[0].url, concurrency=2)
    answers = model.generate(requests(12))
    assert all(isinstance(answer, Generation) for answer in answers)
    assert servers[0].asked == 12
    model.close()


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "0"}])
def test_a_replica_that_refuses_everything_at_once_does_not_attract_the_requests(
    servers: list[Server], headers: dict[str, str]
) -> None:
    bad, good = servers[:2]
    bad.refuses = lambda server: headers
    model = several(bad.url, good.url, concurrency=8)
    answers = model.generate(requests(80))
    model.close()
    assert all(isinstance(answer, Generation) for answer in answers)
    assert good.asked == 80
    assert bad.asked <= 20  # the first eight, and one at a time to see whether it is back


def test_a_server_gets_as_many_requests_at_once_as_it_takes(servers: list[Server]) -> None:
    busy = servers[0]
    busy.refuses = lambda server: {} if server.in_flight > 2 else None
    model = several(busy.url, concurrency=16)
    answers = model.generate(requests(80))
    model.close()
    assert all(isinstance(answer, Generation) for answer in answers)
    assert busy.refused <= 60  # with a limit that never shrinks: 90 to 190


def test_what_a_server_asks_of_one_request_holds_for_all(servers: list[Server]) -> None:
    busy = servers[0]
    busy.refuses = lambda server: {"Retry-After": "0.6"} if server.asked == 1 else None
    model = several(busy.url, concurrency=4)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(model.generate, requests(1))
        while not busy.refused:
            time.sleep(0.005)
        time.sleep(0.05)
        later = pool.submit(model.generate, requests(9)[1:])
        answers = first.result() + later.result()
    model.close()
    assert all(isinstance(answer, Generation) for answer in answers)
    assert min(busy.times[1:]) - busy.times[0] >= 0.6


def pool_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("openai_")]


def test_cancel_ends_calls_that_a_server_does_not_answer(servers: list[Server]) -> None:
    for server in servers:
        server.hangs = True
    model = several(*(server.url for server in servers), concurrency=6, timeout_seconds=60.0)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(model.generate, requests(12))
        while sum(server.in_flight for server in servers) < 6:
            time.sleep(0.005)
        start = time.monotonic()
        model.cancel()
        answers = future.result(timeout=5.0)
    assert all(isinstance(a, BackendError) and "canceled" in str(a) for a in answers)
    model.close()
    for thread in pool_threads():  # the HTTP calls have ended too, not only the waiting for them
        thread.join(5.0)
    assert time.monotonic() - start < 5.0
    assert pool_threads() == []
    for server in servers:
        server.hangs = False
        server.released.set()
    assert isinstance(model.generate(requests(1))[0], Generation)
    model.close()


def test_cancel_does_not_wait_for_a_call_that_cannot_be_ended(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting, released = threading.Event(), threading.Event()

    def connect(self: object, parameters: object) -> None:
        connecting.set()
        released.wait(20.0)
        raise OSError("too late")

    monkeypatch.setattr(openai_calls.Calls, "complete", connect)
    model = several(servers[0].url)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(model.generate, requests(2))
        assert connecting.wait(5.0)
        model.close()
        answers = future.result(timeout=5.0)
    released.set()
    assert ["canceled" in str(answer) for answer in answers] == [True, True]


@pytest.mark.parametrize("end", [ModelClient.stop, ModelClient.close])
def test_a_stop_does_not_wait_for_a_server_that_hangs(
    servers: list[Server], tmp_path: Path, end: Callable[[ModelClient], None]
) -> None:
    servers[0].hangs = True
    with GenerationCache(tmp_path / "cache.sqlite") as cache:
        client = ModelClient(several(servers[0].url, timeout_seconds=60.0), cache)
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(client.ask, requests(2))
            while servers[0].in_flight < 2:
                time.sleep(0.005)
            end(client)
            with pytest.raises(Interrupted):
                future.result(timeout=5.0)
        client.close()


def test_who_serves_is_in_no_key() -> None:
    one, other = several("http://a/v1"), several("http://b/v1", "http://c/v1")
    assert one.identity == other.identity == "openai:M"


def test_several_servers_need_a_name_for_their_model() -> None:
    with pytest.raises(ConfigError, match="more_urls needs base_url, and served_as"):
        OpenAIServer(model="m", base_url="http://a/v1", more_urls=("http://b/v1",))
    with pytest.raises(ConfigError, match=r"base_url must look like .*, got 'b:8000'"):
        several("http://a/v1", "b:8000")


def test_the_first_host_that_is_not_here_is_named() -> None:
    local = "http://localhost:8000/v1"
    assert remote_host(several(local, "http://gpu-2:8000/v1", "http://gpu-3/v1")) == "gpu-2"
    assert remote_host(several(local, "http://127.0.0.1:8001/v1")) == ""
