"""Several servers with one model: who is asked, and what happens when one is away."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ragassay.errors import ConfigError
from ragassay.experiments.spending import remote_host
from ragassay.generation import openai as module
from ragassay.generation.openai import OpenAIServer
from ragassay.types import Generation, Message, Request, Sampling


class Server(ThreadingHTTPServer):
    """Answers with its own name, slowly."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.asked += 1
        time.sleep(0.02)
        message = {"role": "assistant", "content": "Hello"}
        body = {"id": "c", "object": "chat.completion", "created": 0, "model": "m",
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
                }  # fmt: skip
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Server]]:
    monkeypatch.setattr(module, "_FIRST_DELAY", 0.01)
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
    down = model._connection.down_until
    assert list(down) == [gone]
    assert model._take_server() == servers[0].url
    down[gone] = time.monotonic() - 1  # the while is over
    assert model._take_server() == gone
    model.close()


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
