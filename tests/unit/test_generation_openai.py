from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ragassay import plugins
from ragassay.canon import dumps
from ragassay.errors import BackendError, BackendUnavailable, ConfigError
from ragassay.generation import servers as servers_module
from ragassay.generation.cache import GenerationCache
from ragassay.generation.gather import ModelClient
from ragassay.generation.openai import OpenAIServer
from ragassay.types import Generation, Message, Request, Sampling

KEY = "sk-very-secret-0123456789"
REQUEST = Request(
    messages=(Message(role="system", content="Be brief."), Message(role="user", content="Hi")),
    sampling=Sampling(temperature=0.0, top_p=0.9, max_tokens=5),
)

Act = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    body: Any

    def do_POST(self) -> None:
        self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.bodies.append(self.body)
            self.server.times.append(time.monotonic())
            self.server.authorizations.append(self.headers.get("Authorization"))
            self.server.in_flight += 1
            self.server.most_in_flight = max(self.server.most_in_flight, self.server.in_flight)
            act = self.server.script.pop(0) if self.server.script else self.server.default
        try:
            act(self)
        finally:
            with self.server.lock:
                self.server.in_flight -= 1

    def reply(self, status: int, body: Any, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Plays ``script``, one entry per request, then ``default`` for ever."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.script: list[Act] = []
        self.default: Act = say("Hello")
        self.bodies: list[Any] = []
        self.times: list[float] = []
        self.authorizations: list[str | None] = []
        self.in_flight = 0
        self.most_in_flight = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients that hang up are part of the play

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


def completion(content: Any, finish: str = "stop", **message: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
        "usage": {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13},
    }


def say(content: Any, finish: str = "stop", **message: Any) -> Act:
    return lambda handler: handler.reply(200, completion(content, finish, **message))


def status(code: int, body: Any = None, **headers: str) -> Act:
    return lambda handler: handler.reply(code, body or {"error": {"message": "no"}}, **headers)


def die_half_way(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"id": "c1", "choi')
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


@pytest.fixture(autouse=True)
def _fast_and_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers_module, "_FIRST_DELAY", 0.01)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[..., OpenAIServer]]:
    made: list[OpenAIServer] = []

    def make(**options: Any) -> OpenAIServer:
        made.append(OpenAIServer(**{"model": "m", "base_url": server.url, **options}))
        return made[-1]

    yield make
    for generator in made:
        generator.close()


def failure(generator: OpenAIServer, request: Request = REQUEST) -> BackendError:
    (answer,) = generator.generate([request])
    assert isinstance(answer, BackendError)
    assert "\n" not in str(answer)
    return answer


def text(generator: OpenAIServer, request: Request = REQUEST) -> str:
    (answer,) = generator.generate([request])
    assert isinstance(answer, Generation), answer
    return answer.text


def test_an_answer_carries_text_finish_and_usage(
    server: Server, connect: Callable[..., OpenAIServer]
) -> None:
    server.script = [say("Hello"), say(" cut off\n", "length"), say("", "stop"), say("\ud800")]
    answers = [connect().generate([REQUEST])[0] for _ in range(4)]
    assert all(isinstance(answer, Generation) for answer in answers)
    first = answers[0]
    assert isinstance(first, Generation)
    assert (first.text, first.finish, first.input_tokens, first.output_tokens) == (
        "Hello", "stop", 11, 2,
    )  # fmt: skip
    assert first.seconds > 0
    assert [(a.text, a.finish) for a in answers[1:] if isinstance(a, Generation)] == [
        (" cut off\n", "length"), ("", "stop"), ("\ud800", "stop"),
    ]  # fmt: skip
    assert server.bodies[0] == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ],
        "temperature": 0.0,
        "top_p": 0.9,
        "max_tokens": 5,
    }


def test_usage_that_the_server_does_not_tell_counts_as_none(
    server: Server, connect: Callable[..., OpenAIServer]
) -> None:
    body = completion("Hello")
    del body["usage"]
    server.script = [status(200, body)]
    (answer,) = connect().generate([REQUEST])
    assert isinstance(answer, Generation)
    assert (answer.input_tokens, answer.output_tokens) == (0, 0)


def test_options_reach_the_server(
    server: Server, connect: Callable[..., OpenAIServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    generator = connect(
        api_key_env="MY_KEY", seed=7, system_as_user=True, max_tokens_field="max_completion_tokens"
    )
    warm = Request(
        messages=(Message(role="user", content="a \ud800 b"),),
        sampling=Sampling(temperature=1.0),
        sample_index=2,
    )
    text(generator)
    text(generator, warm)
    assert server.bodies[0]["messages"] == [{"role": "user", "content": "Be brief.\n\nHi"}]
    assert server.bodies[0]["max_completion_tokens"] == 5
    assert "max_tokens" not in server.bodies[0]
    assert [body["seed"] for body in server.bodies] == [7, 9]
    assert server.bodies[1]["messages"][0]["content"] == "a \ufffd b"
    assert server.authorizations == [f"Bearer {KEY}"] * 2
    text(connect())
    assert server.authorizations[-1] == "Bearer not-needed"


@pytest.mark.parametrize("asks", ["seconds", "milliseconds"])
def test_a_server_that_is_busy_is_given_the_time_it_asks_for(
    server: Server, connect: Callable[..., OpenAIServer], asks: str
) -> None:
    headers = {"Retry_After": "0.2"} if asks == "seconds" else {"retry_after_ms": "200"}
    server.script = [status(429, **headers)]
    assert text(connect()) == "Hello"
    assert 0.2 <= server.times[1] - server.times[0] < 1.0


def test_a_time_to_come_back_can_be_a_date_and_can_be_nonsense(
    server: Server, connect: Callable[..., OpenAIServer]
) -> None:
    past = formatdate(time.time() - 100, usegmt=True)
    server.script = [status(429, Retry_After=value) for value in (past, "soon", "nan", "-3")]
    assert text(connect()) == "Hello"


def test_a_server_that_asks_for_more_than_our_patience_fails_at_once(
    server: Server, connect: Callable[..., OpenAIServer]
) -> None:
    server.script = [status(429, Retry_After="3600")]
    error = failure(connect())
    assert "HTTP 429" in str(error)
    assert "asks for 3600 s" in str(error)
    assert error.retryable
    assert len(server.bodies) == 1


@pytest.mark.parametrize("code", [408, 409, 500, 503])
def test_passing_faults_of_the_server_are_retried(
    server: Server, connect: Callable[..., OpenAIServer], code: int
) -> None:
    server.script = [status(code), status(code)]
    assert text(connect()) == "Hello"
    assert len(server.bodies) == 3


def test_a_server_that_keeps_failing_fails_and_says_how_often_it_was_asked(
    server: Server, connect: Callable[..., OpenAIServer]
) -> None:
    server.default = status(500, {"error": {"message": "cuda\nerror"}})
    error = failure(connect(retries=2))
    assert "HTTP 500" in str(error)
    assert "cuda" in str(error)
    assert "(3 attempts)" in str(error)
    assert error.retryable
    assert len(server.bodies) == 3


@pytest.mark.parametrize("code", [400, 404, 422])
def test_faults_of_the_request_are_not_retried(
    server: Server, connect: Callable[..., OpenAIServer], code: int
) -> None:
    server.default = status(code, {"error": {"message": "no such model"}})
    error = failure(connect())
    assert f"HTTP {code}" in str(error)
    assert "no such model" in str(error)
    assert not error.retryable
    assert len(server.bodies) == 1


def test_a_used_up_quota_is_not_retried(
    server: Server, connect: Callable[..., OpenAIServer]
) -> None:
    server.default = status(429, {"error": {"message": "pay", "code": "insufficient_quota"}})
    assert "pay" in str(failure(connect()))
    assert len(server.bodies) == 1


@pytest.mark.parametrize("code", [401, 403])
def test_a_refused_key_is_not_retried_and_never_shown(
    server: Server,
    connect: Callable[..., OpenAIServer],
    monkeypatch: pytest.MonkeyPatch,
    code: int,
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    server.default = status(code, {"error": {"message": f"Incorrect API key: {KEY}"}})
    generator = connect(api_key_env="MY_KEY")
    error = failure(generator)
    assert "MY_KEY" in str(error)
    assert KEY not in f"{error!r} {generator!r} {generator.identity}"
    assert len(server.bodies) == 1


def test_a_key_that_the_server_quotes_elsewhere_is_blotted_out(
    server: Server, connect: Callable[..., OpenAIServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    server.default = status(400, {"error": {"message": f"your key {KEY} is fine"}})
    error = str(failure(connect(api_key_env="MY_KEY")))
    assert KEY not in error
    assert "***" in error


def test_a_server_that_hangs_is_given_up_after_the_time_out(
    server: Server, connect: Callable[..., OpenAIServer]
) -> None:
    release = threading.Event()

    def hang(handler: Handler) -> None:
        release.wait(5.0)

    server.script = [hang]
    assert text(connect(timeout_seconds=0.15)) == "Hello"
    server.script = [hang, hang]
    error = failure(connect(timeout_seconds=0.15, retries=1))
    assert "no answer within 0.15 s" in str(error)
    assert error.retryable
    release.set()


def test_a_connection_that_dies_half_way_is_retried_and_never_half_an_answer(
    server: Server, connect: Callable[..., OpenAIServer]
) -> None:
    server.script = [die_half_way]
    assert text(connect()) == "Hello"
    server.default = die_half_way
    error = failure(connect(retries=1))
    assert "connection broke" in str(error)
    assert not isinstance(error, BackendUnavailable)


@pytest.mark.parametrize("body", [b'{"choices": [', b"\xff\xfe", b"[1, 2]", b'"Hello"', b"null"])
def test_a_reply_that_is_no_completion_is_a_failure(
    server: Server, connect: Callable[..., OpenAIServer], body: bytes
) -> None:
    server.default = status(200, body)
    assert "its reply" in str(failure(connect(retries=1)))


def test_a_web_page_instead_of_a_completion_is_a_failure(
    server: Server, connect: Callable[..., OpenAIServer]
) -> None:
    def page(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/html")
        handler.send_header("Content-Length", "13")
        handler.end_headers()
        handler.wfile.write(b"<html></html>")

    server.default = page
    assert "not a chat completion" in str(failure(connect(retries=1)))


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (say(None), "no content"),
        (say(None, "length"), "finish_reason 'length'"),
        (say(None, refusal="I must not."), "it refused: I must not."),
        (say(""  , "content_filter"), "content filter"),
        (say(None, "content_filter"), "content filter"),
        (say(["a"]), "no content"),
        (status(200, {**completion("x"), "choices": []}), "no choices"),
        (status(200, {**completion("x"), "choices": None}), "not a chat completion"),
        (status(200, {**completion("x"), "choices": [{}]}), "no content"),
    ],
)  # fmt: skip
def test_a_reply_without_content_is_a_failure_and_never_an_empty_answer(
    server: Server, connect: Callable[..., OpenAIServer], act: Act, message: str
) -> None:
    server.default = act
    error = failure(connect())
    assert message in str(error)
    assert not error.retryable
    assert len(server.bodies) == 1


def test_a_server_that_is_not_there_is_unavailable_after_our_patience() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    for options in ({"patience_seconds": 0.05, "retries": 100}, {"retries": 2}):
        start = time.monotonic()
        error = failure(OpenAIServer(model="m", base_url=url, **options))  # type: ignore[arg-type]
        assert isinstance(error, BackendUnavailable)
        assert f"127.0.0.1:{port} cannot be reached" in str(error)
        assert time.monotonic() - start < 3.0


def test_answers_keep_their_order_and_one_failure_harms_no_other(
    server: Server, connect: Callable[..., OpenAIServer]
) -> None:
    def echo(handler: Handler) -> None:
        content = handler.body["messages"][0]["content"]
        time.sleep(0.02 * (content == "0"))
        if content == "3":
            handler.reply(400, {"error": {"message": "bad"}})
        else:
            handler.reply(200, completion(content))

    server.default = echo
    requests = [Request(messages=(Message(role="user", content=str(i)),)) for i in range(6)]
    answers = connect().generate(requests)
    assert [a.text if isinstance(a, Generation) else "failed" for a in answers] == [
        "0", "1", "2", "failed", "4", "5",
    ]  # fmt: skip
    assert connect().generate([]) == []


def test_concurrency_is_bounded_over_all_threads(
    server: Server, connect: Callable[..., OpenAIServer]
) -> None:
    def slow(handler: Handler) -> None:
        time.sleep(0.03)
        handler.reply(200, completion("Hello"))

    server.default = slow
    generator = connect(concurrency=3)
    with ThreadPoolExecutor(4) as pool:
        lists = list(pool.map(lambda i: generator.generate([REQUEST] * 4), range(4)))
    assert [len(answers) for answers in lists] == [4] * 4
    assert server.most_in_flight == 3


def test_two_threads_with_the_same_request_make_one_http_call(
    server: Server, connect: Callable[..., OpenAIServer], tmp_path: Path
) -> None:
    def slow(handler: Handler) -> None:
        time.sleep(0.05)
        handler.reply(200, completion("Hello"))

    server.default = slow
    with GenerationCache(tmp_path / "cache.sqlite") as cache:
        client = ModelClient(connect(), cache)
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(lambda i: client.ask([REQUEST])[0].text, range(2)))
        client.close()
    assert answers == ["Hello", "Hello"]
    assert len(server.bodies) == 1


def test_cancel_ends_the_waiting_between_attempts_and_harms_no_later_call(
    server: Server, connect: Callable[..., OpenAIServer]
) -> None:
    server.default = status(429, Retry_After="2")
    generator = connect()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(generator.generate, [REQUEST])
        while not server.bodies:
            time.sleep(0.005)
        time.sleep(0.05)
        generator.cancel()
        (answer,) = future.result(timeout=1.0)
    assert isinstance(answer, BackendError)
    assert "canceled" in str(answer)
    server.default = say("Hello")
    assert text(generator) == "Hello"


def test_a_closed_plug_in_opens_its_connections_again(
    connect: Callable[..., OpenAIServer],
) -> None:
    generator = connect()
    assert text(generator) == "Hello"
    generator.close()
    assert text(generator) == "Hello"


def test_without_a_key_openai_is_refused_by_the_name_of_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="OTHER_KEY is not set"):
        OpenAIServer(model="m", api_key_env="OTHER_KEY")
    monkeypatch.setenv("OTHER_KEY", KEY)
    generator = OpenAIServer(model="m", api_key_env="OTHER_KEY")
    assert generator.identity == "openai:m@api.openai.com"


def test_the_identity_names_what_can_change_an_answer_and_nothing_else() -> None:
    def identity(**options: Any) -> str:
        url = "http://gpu1:8000/v1"
        return OpenAIServer(**{"model": "m", "base_url": url, **options}).identity

    base = identity()
    assert base == "openai:m@gpu1:8000"
    assert identity(concurrency=3, timeout_seconds=5.0, retries=1, patience_seconds=2.0) == base
    others = [
        identity(model="n"), identity(seed=0), identity(system_as_user=True),
        identity(base_url="http://gpu2:8000/v1"), identity(served_as="m-awq"),
        identity(max_tokens_field="max_completion_tokens"),
    ]  # fmt: skip
    assert len({base, *others}) == 7
    assert identity(served_as="x", base_url="http://gpu2/v1") == identity(served_as="x")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": ""}, "model"),
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"retries": -1}, "retries"),
        ({"timeout_seconds": 0.0}, "timeout_seconds"),
        ({"patience_seconds": float("nan")}, "patience_seconds"),
        ({"base_url": "localhost:8000"}, "must look like"),
        ({"base_url": "http://host:port/v1"}, "must look like"),
        ({"max_tokens_field": "limit"}, "max_tokens_field"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OpenAIServer(**{"model": "m", "base_url": "http://localhost/v1", **options})


@pytest.mark.parametrize("url", [f"http://u:{KEY}@host/v1", f"http://host/v1?key={KEY}"])
def test_a_secret_in_the_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigError, match="credentials") as caught:
        OpenAIServer(model="m", base_url=url)
    assert KEY not in str(caught.value)


def test_it_is_found_by_name_and_its_options_can_be_described() -> None:
    found = plugins.find("generator", "openai")
    generator = plugins.build(found, {"model": "m", "base_url": "http://h/v1", "seed": 3})
    assert isinstance(generator, plugins.Generator)
    assert plugins.identity(found, generator)
    described = plugins.describe(found)
    assert "_connection" not in dumps([option["name"] for option in described["options"]])
    assert described["deviations"]
