"""The HTTP adapter against a real server that does what servers do wrong."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ragassay.errors import BackendError, BackendUnavailable, ConfigError
from ragassay.plugins import Document
from ragassay.plugins.systems import MARK
from ragassay.systems.http_service import HttpService
from ragassay.systems.locality import is_local
from ragassay.systems.template import filled

Reply = tuple[int, bytes, dict[str, str]]


class Server:
    """Answers by ``reply(path, body)`` and keeps what it was sent."""

    def __init__(self) -> None:
        self.reply: Callable[[str, Any], Reply] = lambda path, body: (200, b"{}", {})
        self.seen: list[tuple[str, str, Any, dict[str, str]]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body = json.loads(raw) if raw else None
                owner.seen.append((self.command, self.path, body, dict(self.headers)))
                status, data, headers = owner.reply(self.path, body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST

            def log_message(self, *args: Any) -> None:
                pass

        self.httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.httpd.server_port}"
        threading.Thread(target=self.httpd.serve_forever, daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.httpd.shutdown()
    made.httpd.server_close()


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragassay.systems.json_calls._FIRST_DELAY", 0.01)


def service(url: str, **options: Any) -> HttpService:
    plain = {"ask_url": f"{url}/ask", "ingest_url": f"{url}/in", "remove_url": f"{url}/out",
             "marked_url": f"{url}/marked", "used": "passages", "timeout_seconds": 2.0,
             "patience_seconds": 1.0, "retries": 2}  # fmt: skip
    return HttpService(**{**plain, **options})


def test_a_question_goes_out_and_answer_and_passages_come_back(server: Server) -> None:
    reply = {
        "out": [{"text": "Ottawa"}],
        "passages": [{"id": 7, "text": "t", "score": 0.5}, "bare"],
    }
    server.reply = lambda path, body: (200, json.dumps(reply).encode(), {})
    system = service(server.url, answer="out[0].text", ask_body={"q": "{question}", "guard": True})
    answer = system.ask('a "quoted" {ids}?')
    assert server.seen[0][2] == {"q": 'a "quoted" {ids}?', "guard": True}
    assert answer.text == "Ottawa"
    assert [(u.id, u.text, u.score) for u in answer.used] == [("7", "t", 0.5), ("", "bare", 0.0)]
    system.close()
    assert system.ask("again").text == "Ottawa"
    assert system.local


def test_documents_go_in_with_their_mark_in_batches_and_out_by_id(server: Server) -> None:
    server.reply = lambda path, body: (200, b'{"ids": ["a", "b", "c"]}', {})
    system = service(server.url, batch=2)
    system.ingest([Document(id=i, text=f"t{i}", metadata={MARK: True}) for i in "abc"])
    assert [len(body["passages"]) for _, path, body, _ in server.seen if path == "/in"] == [2, 1]
    assert server.seen[0][2]["passages"][0] == {"id": "a", "text": "ta", "metadata": {MARK: True}}
    assert system.marked() == {"a", "b", "c"}
    system.reset()
    assert [body for _, path, body, _ in server.seen if path == "/out"] == [
        {"ids": ["a", "b"]}, {"ids": ["c"]}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "data", "message"),
    [
        (200, b"not json", "no JSON in UTF-8"),
        (200, '{"answer": "é"}'.encode("latin-1"), "no JSON in UTF-8"),
        (200, b'{"reply": "x"}', "no text at answer = 'answer'.*has the keys reply"),
        (200, b'{"answer": 3}', "found a int"),
        (200, b"", "is nothing"),
        (200, b"[1]", "is a list"),
        (200, b'{"answer": "x", "passages": 3}', "expected a list"),
        (302, b"", "HTTP 302"),
        (404, b"no such place", "HTTP 404: no such place"),
    ],
)
def test_a_wrong_reply_fails_at_once_and_says_why(
    server: Server, status: int, data: bytes, message: str
) -> None:
    server.reply = lambda path, body: (status, data, {"Location": "http://example.org/"})
    with pytest.raises(BackendError, match=message):
        service(server.url).ask("?")
    assert len(server.seen) == 1


def test_failures_that_may_pass_are_tried_again(server: Server) -> None:
    replies = iter([(503, b"", {}), (429, b"", {"Retry-After": "0.01"})])
    server.reply = lambda path, body: next(replies, (200, b'{"answer": "x"}', {}))
    assert service(server.url).ask("?").text == "x"
    assert len(server.seen) == 3
    server.reply = lambda path, body: (500, b"broken", {})
    with pytest.raises(BackendError, match="HTTP 500: broken"):
        service(server.url).ask("?")
    assert len(server.seen) == 6


def test_a_silent_server_is_given_up(server: Server) -> None:
    server.reply = lambda path, body: (time.sleep(1), (200, b"{}", {}))[1]
    with pytest.raises(BackendError, match=r"silent for 0\.1 s"):
        service(server.url, timeout_seconds=0.1, retries=1).ask("?")


def test_a_dead_server_is_waited_for_and_then_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = time.monotonic()
    with pytest.raises(BackendUnavailable, match=f"127.0.0.1:{port}/ask cannot be reached"):
        service(f"http://127.0.0.1:{port}", retries=0, patience_seconds=0.1).ask("?")
    assert time.monotonic() - start < 5


def test_a_reply_without_end_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragassay.systems.json_calls.MAX_REPLY_BYTES", 1000)
    server.reply = lambda path, body: (200, b"x" * 5000, {})
    with pytest.raises(BackendError, match="more than 1000 bytes"):
        service(server.url).ask("?")


def test_calls_start_at_the_agreed_rate(server: Server) -> None:
    server.reply = lambda path, body: (200, b'{"answer": "x"}', {})
    system = service(server.url, requests_per_second=20.0)
    start = time.monotonic()
    for _ in range(5):
        system.ask("?")
    assert time.monotonic() - start >= 4 / 20


def test_secrets_come_from_the_environment_only(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.reply = lambda path, body: (200, b'{"answer": "x"}', {})
    headers = {"Authorization": "Bearer {env:RAG_TEST_TOKEN}"}
    system = service(server.url, headers=headers)
    monkeypatch.delenv("RAG_TEST_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="RAG_TEST_TOKEN is not set"):
        system.ask("?")
    monkeypatch.setenv("RAG_TEST_TOKEN", "t0")
    system.ask("?")
    assert server.seen[-1][3]["Authorization"] == "Bearer t0"
    monkeypatch.setenv("RAG_TEST_TOKEN", "t1\n")  # as from a file
    service(server.url, headers=headers).ask("?")
    assert server.seen[-1][3]["Authorization"] == "Bearer t1"
    for bad in ("hidden\nX-Other: 1", "hidden\u00e9"):
        monkeypatch.setenv("RAG_TEST_TOKEN", bad)
        with pytest.raises(ConfigError, match="RAG_TEST_TOKEN has characters") as caught:
            service(server.url, headers=headers).ask("?")
        assert "hidden" not in str(caught.value)
    with pytest.raises(ConfigError, match="looks like a secret"):
        service(server.url, headers={"X-Api-Key": "abc"})
    with pytest.raises(ConfigError, match="user name or password"):
        service("http://me:pw@localhost:1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"answer": "out["}, "no JMESPath expression"),
        ({"answer": ""}, "answer must say"),
        ({"ask_body": {"q": "x"}}, "needs the slot {question}"),
        ({"passage": {"id": "{id}", "text": "{text}"}}, "needs the slot {metadata}"),
        ({"ask_url": "localhost:8000"}, "must be a URL"),
        ({"ask_url": "http://x:99999/"}, "must be a URL"),
        ({"remove_url": ""}, "remove_url or reset_url"),
        ({"timeout_seconds": 0.0}, "above 0"),
        ({"batch": 0}, "at least 1"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        service("http://localhost:1", **options)


def test_only_loopback_is_local() -> None:
    local = ["http://localhost/", "http://127.8.0.1:3/", "http://[::1]:80/"]
    remote = ["http://localhost.example.org/", "http://10.0.0.1/", "http://0.0.0.0/", "http://db/"]
    assert all(map(is_local, local))
    assert not any(map(is_local, remote))
    system = service("http://localhost:1", marked_url="http://db.example.org/m")
    assert not system.local
    assert system.host == "db.example.org"


def test_values_are_not_looked_through_for_slots() -> None:
    values = {"a": "{b}", "b": "secret"}
    assert filled(["{a}", "x {a}", "{c}", 1], values) == ["{b}", "x {b}", "{c}", 1]
