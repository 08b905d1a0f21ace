"""Requests with a JSON schema: what the server is told, and what a refusal becomes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ragassay.errors import BackendError, ConfigError
from ragassay.generation.cache import request_digest
from ragassay.generation.openai import OpenAIServer
from ragassay.types import Generation, Message, Request

SCHEMA: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
PLAIN = Request(messages=(Message(role="user", content="Reply with JSON"),))
STRUCTURED = Request(messages=PLAIN.messages, schema=SCHEMA)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    status: int = 200
    body: Any = None
    seen: list[Any]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.server.seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        data = json.dumps(self.server.body).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.seen = []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def completion(finish: str = "stop", **message: Any) -> dict[str, Any]:
    return {
        "id": "c", "object": "chat.completion", "created": 0, "model": "m",
        "choices": [{"index": 0, "finish_reason": finish,
                     "message": {"role": "assistant", **message}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
    }  # fmt: skip


def ask(server: Server, request: Request, **options: Any) -> Generation | BackendError:
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    model = OpenAIServer(model="m", base_url=url, retries=0, **options)
    try:
        return model.generate([request])[0]
    finally:
        model.close()


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("strict", {"type": "json_schema",
                    "json_schema": {"name": "reply", "strict": True, "schema": SCHEMA}}),
        ("object", {"type": "json_object"}),
        ("off", None),
    ],
)  # fmt: skip
def test_the_server_is_told_of_a_schema_in_the_form_that_it_knows(
    server: Server, mode: Any, expected: Any
) -> None:
    server.body = completion(content="{}")
    answer = ask(server, STRUCTURED, json_schema=mode)
    assert isinstance(answer, Generation)
    assert answer.text == "{}"
    assert server.seen[0].get("response_format") == expected
    ask(server, PLAIN, json_schema=mode)
    assert "response_format" not in server.seen[1]


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (200, completion(content=None, refusal="I will not."), "I will not."),
        (200, completion("content_filter", content=None), ""),
        (200, completion("content_filter", content=""), ""),
        (400, {"error": {"message": "filtered", "code": "content_filter"}}, ""),
    ],
)
def test_a_refusal_is_a_reply_where_a_schema_tells_it_from_an_answer(
    server: Server, status: int, body: Any, text: str
) -> None:
    server.status, server.body = status, body
    structured, plain = ask(server, STRUCTURED), ask(server, PLAIN)
    assert isinstance(structured, Generation)
    assert structured.text == text
    assert structured.finish == "unknown"
    assert isinstance(plain, BackendError)


@pytest.mark.parametrize("status", [400, 401, 404])
def test_other_faults_of_a_request_with_a_schema_stay_failures(server: Server, status: int) -> None:
    server.status, server.body = status, {"error": {"message": "no schemas here"}}
    assert isinstance(ask(server, STRUCTURED), BackendError)


def test_the_form_is_part_of_the_identity_only_where_it_is_not_the_default() -> None:
    def identity(**options: Any) -> str:
        return OpenAIServer(model="m", base_url="http://h:1/v1", **options).identity

    assert identity() == "openai:m@h:1"
    assert len({identity(), identity(json_schema="object"), identity(json_schema="off")}) == 3
    with pytest.raises(ConfigError, match="json_schema must be strict, object or off"):
        identity(json_schema="perhaps")


def test_a_schema_is_part_of_the_cache_key() -> None:
    assert request_digest("m", PLAIN) != request_digest("m", STRUCTURED)


def test_the_host_is_where_requests_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert OpenAIServer(model="m").host == "api.openai.com"
    assert OpenAIServer(model="m", base_url="http://[::1]:8000/v1").host == "[::1]:8000"
