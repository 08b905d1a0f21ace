"""Chat models behind any OpenAI-compatible server: OpenAI, vLLM, Ollama, llama.cpp, gateways.

The SDK's own retries are off. Ours follow on HTTP 408, 409, 429 and 5xx, time-outs and broken
connections. They go to another server where one is ready, else wait 0.5 s, 1 s, 2 s, ... (at
most 30 s, at most a quarter more by a jitter that derives from the request), or as long as the
server's ``Retry-After`` asks. Which server is asked, and how many requests it has at once, is
up to :mod:`ragassay.generation.servers`. Anything else fails at once. A failure is always a
BackendError and never an empty text: a reply without choices or without content is a failure,
too. The one exception: to a request with a JSON schema, a refusal is a reply like any other
that does not follow the schema.

Deviations: prompts go out as valid Unicode; a lone surrogate becomes U+FFFD. The server's
sampling is only as repeatable as the server makes it; ``ragassay doctor`` measures it.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from ragassay.canon import digest
from ragassay.errors import BackendError, ConfigError
from ragassay.generation import openai_wire as wire
from ragassay.generation.openai_calls import Calls
from ragassay.generation.openai_faults import failed, failure_of
from ragassay.generation.servers import Failure, Servers, Ticket, back_off
from ragassay.types import Generation, Request

_OPENAI = "https://api.openai.com/v1"
_Answer = Generation | BackendError


class _Running:
    """One call of ``generate_iter``: whether it was canceled, and the futures that are done."""

    def __init__(self) -> None:
        self.canceled = threading.Event()
        self.done: queue.SimpleQueue[Future[_Answer] | None] = queue.SimpleQueue()

    def cancel(self) -> None:
        self.canceled.set()
        self.done.put(None)


class _Connection:
    """What a server plug-in holds while the process lives: clients, pool, running calls."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clients: dict[str, Calls] = {}
        self.pool: ThreadPoolExecutor | None = None
        self.running: set[_Running] = set()
        self.servers: Servers | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIServer:
    """A chat model on any OpenAI-compatible server.

    Parameters
    ----------
    model : str
        The model's name on the server.
    base_url : str
        For example ``http://localhost:8000/v1``; empty: OpenAI.
    api_key_env : str
        The *name* of the environment variable that holds the key. With a ``base_url`` the
        variable may be absent, for servers that need no key; where it is set, its value is
        sent to that server.
    concurrency : int
        Requests in flight at most, over all threads. A server that is too busy gets fewer for
        a while.
    timeout_seconds : float
        How long the server may be silent. Connecting takes 10 s at most.
    retries : int
        Further attempts after the first.
    patience_seconds : float
        How long a server that cannot be reached is tried, and the longest ``Retry-After``
        that is waited for.
    seed : int, optional
        Sent along; with a temperature above 0 the sample index is added, so that repeated
        draws differ.
    system_as_user : bool
        Put the system text in front of the first user turn, for models without that role.
    max_tokens_field : {"max_tokens", "max_completion_tokens"}
        What the server calls the limit; newer OpenAI models want the second.
    more_urls : tuple of str
        Further servers with the same model. A request goes to the one with the fewest in flight,
        and not for a while to one that fails. Needs ``base_url`` and ``served_as``.
    json_schema : {"strict", "object", "off"}
        How the server is told that a reply must follow a JSON schema, where a request has one:
        by the schema itself, by "some JSON object" for servers that know no schemas, or not.
    served_as : str
        Names the model in cache keys in place of ``model@host``, so that replicas on several
        hosts, or one that moved, share their answers.
    """

    model: str
    base_url: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    concurrency: int = field(default=8, metadata={"identity": False})
    timeout_seconds: float = field(default=120.0, metadata={"identity": False})
    retries: int = field(default=6, metadata={"identity": False})
    patience_seconds: float = field(default=60.0, metadata={"identity": False})
    seed: int | None = None
    system_as_user: bool = False
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    json_schema: wire.JsonSchemaMode = "strict"
    served_as: str = ""
    more_urls: tuple[str, ...] = field(default=(), metadata={"identity": False})
    _connection: _Connection = field(
        init=False, repr=False, compare=False, default_factory=_Connection
    )

    version: ClassVar[str] = "1"

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigError("openai: model must be the model's name on the server, got ''")
        self._check_numbers()
        if self.more_urls and not (self.base_url and self.served_as):
            raise ConfigError(
                "openai: more_urls needs base_url, and served_as to name the model that all of the "
                "servers have"
            )
        if self.base_url:
            for url in self._urls:
                _check_url(url)
        elif not os.environ.get(self.api_key_env):
            raise ConfigError(
                f"openai: the environment variable {self.api_key_env} is not set; it must hold "
                "the API key (or set base_url for a server of your own)"
            )

    @property
    def identity(self) -> str:
        """Model and host (or ``served_as``), and the options that can change an output."""
        name = self.served_as or f"{self.model}@{self._host}"
        extras = [
            "" if self.seed is None else f"seed={self.seed}",
            "system_as_user" if self.system_as_user else "",
            "" if self.max_tokens_field == "max_tokens" else self.max_tokens_field,
            "" if self.json_schema == "strict" else f"json_schema={self.json_schema}",
        ]
        return ";".join([f"openai:{name}", *filter(None, extras)])

    @property
    def host(self) -> str:
        """Where requests go, as ``host`` or ``host:port``; ``[...]`` around an IPv6 address."""
        return self.hosts[0]

    @property
    def hosts(self) -> tuple[str, ...]:
        """All servers that requests go to."""
        return tuple(urlsplit(url).netloc for url in self._urls)

    @property
    def gathers(self) -> bool:
        """False: every worker calls on its own thread, and the pool bounds concurrency."""
        return False

    def generate(self, requests: Sequence[Request]) -> list[Generation | BackendError]:
        """Answer each request, in order; a failed one is returned, not raised."""
        answers = dict(self.generate_iter(requests))
        return [answers[position] for position in range(len(requests))]

    def generate_iter(
        self, requests: Sequence[Request]
    ) -> Iterator[tuple[int, Generation | BackendError]]:
        """Yield ``(position, answer)`` as answers come. Closing it gives up the rest."""
        call, connection = _Running(), self._connection
        with connection.lock:
            connection.running.add(call)
            if connection.pool is None:
                connection.pool = ThreadPoolExecutor(self.concurrency, "openai")
            pool = connection.pool
        left: dict[Future[_Answer], int] = {}
        try:
            for position, request in enumerate(requests):
                future = pool.submit(self._answer, request, call.canceled)
                left[future] = position
                future.add_done_callback(call.done.put)
            # Not the futures are waited for: one whose connection hangs may be done much later
            # than it was canceled.
            while left and (done := call.done.get()) is not None:
                yield left.pop(done), _result(done)
            for position in left.values():
                yield position, _canceled()
        finally:
            call.canceled.set()
            self._servers.wake()
            for future in left:
                future.cancel()
            with connection.lock:
                connection.running.discard(call)

    def cancel(self) -> None:
        """End running calls now; what is not answered yet fails. Later calls are not concerned."""
        connection = self._connection
        with connection.lock:
            for call in connection.running:
                call.cancel()
            clients, connection.clients = connection.clients, {}
        self._servers.wake()
        for client in clients.values():
            client.end()

    def close(self) -> None:
        """End running calls and close the connections; the next call opens them again."""
        self.cancel()
        connection = self._connection
        with connection.lock:
            pool, connection.pool = connection.pool, None
        if pool is not None:
            # Its threads end with their calls; one that is just connecting is not waited for.
            pool.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------------ internals

    @property
    def _host(self) -> str:
        return _host_of(self._urls[0])

    @property
    def _urls(self) -> tuple[str, ...]:
        return (self.base_url or _OPENAI, *self.more_urls)

    def _check_numbers(self) -> None:
        for name, least in (("concurrency", 1), ("retries", 0), ("patience_seconds", 0)):
            if not getattr(self, name) >= least:
                raise ConfigError(
                    f"openai: {name} must be at least {least}, got {getattr(self, name)}"
                )
        if not self.timeout_seconds > 0:
            raise ConfigError(
                f"openai: timeout_seconds must be above 0, got {self.timeout_seconds}"
            )
        if self.max_tokens_field not in ("max_tokens", "max_completion_tokens"):
            raise ConfigError(
                "openai: max_tokens_field must be max_tokens or max_completion_tokens, "
                f"got {self.max_tokens_field!r}"
            )
        if self.json_schema not in ("strict", "object", "off"):
            raise ConfigError(
                f"openai: json_schema must be strict, object or off, got {self.json_schema!r}"
            )

    @property
    def _servers(self) -> Servers:
        connection = self._connection
        with connection.lock:
            if connection.servers is None:
                connection.servers = Servers(
                    self._urls,
                    self.concurrency,
                    retries=self.retries,
                    patience_seconds=self.patience_seconds,
                )
            return connection.servers

    def _answer(self, request: Request, canceled: threading.Event) -> Generation | BackendError:
        """Ask, and ask again where that may help."""
        key, servers = digest(request), self._servers
        turn = servers.turn()
        for attempt in range(self.retries + 1):
            ticket = servers.take(turn, canceled)
            if isinstance(ticket, BackendError):
                return _after(ticket, attempt)
            outcome = self._attempt(ticket, request, canceled)
            if isinstance(outcome, Generation):
                return outcome
            if canceled.is_set():
                break
            if not outcome.again or attempt == self.retries:
                return _after(outcome.error, attempt + 1)
            servers.put_off(turn, ticket.url, _delay(outcome, key, attempt))
        return _canceled()

    def _attempt(
        self, ticket: Ticket, request: Request, canceled: threading.Event
    ) -> Generation | Failure:
        found: Generation | Failure = Failure(_canceled())
        try:
            found = self._attempt_at(ticket.url, request, canceled)
            if isinstance(found, Failure) and canceled.is_set():
                found = Failure(_canceled())  # our doing, not the server's
        finally:
            self._servers.settle(ticket, found if isinstance(found, Failure) else None)
        return found

    def _attempt_at(
        self, url: str, request: Request, canceled: threading.Event
    ) -> Generation | Failure:
        start, host = time.monotonic(), _host_of(url)
        try:
            reply = self._client(url, canceled).complete(self._parameters(request))
        except BackendError as error:
            return Failure(error)
        except Exception as error:  # of the SDK, of its HTTP library, of a reply that is no JSON
            if wire.withheld(error, structured=request.schema is not None):
                return Generation(text="", seconds=time.monotonic() - start)
            return failure_of(
                error,
                host,
                timeout_seconds=self.timeout_seconds,
                api_key_env=self.api_key_env,
                key=self._key(),
            )
        read = wire.read_reply(
            reply, time.monotonic() - start, structured=request.schema is not None
        )
        return read if isinstance(read, Generation) else failed(read, host)

    def _client(self, url: str, canceled: threading.Event) -> Calls:
        with self._connection.lock:
            if canceled.is_set():  # a client made now would be one that nobody ends
                raise _canceled()
            clients = self._connection.clients
            if url not in clients:
                clients[url] = Calls(url, self._key() or "not-needed", self.timeout_seconds)
            return clients[url]

    def _key(self) -> str:
        return os.environ.get(self.api_key_env, "")

    def _parameters(self, request: Request) -> dict[str, Any]:
        sampling = request.sampling
        parameters: dict[str, Any] = {
            "model": self.model,
            "messages": wire.messages_out(request.messages, system_as_user=self.system_as_user),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            self.max_tokens_field: sampling.max_tokens,
        }
        if self.seed is not None:
            draws = request.sample_index if sampling.temperature > 0 else 0
            parameters["seed"] = self.seed + draws
        form = wire.response_format(request.schema, self.json_schema)
        if form is not None:
            parameters["response_format"] = form
        return parameters


def _host_of(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"{host}:{parts.port}" if parts.port else host


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query:
        raise ConfigError(
            "openai: base_url must not hold credentials or a query; "
            "put the key into the variable that api_key_env names"
        )
    try:
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no port
        usable = False
    if not usable:
        raise ConfigError(f"openai: base_url must look like http://localhost:8000/v1, got {url!r}")


def _result(future: Future[Generation | BackendError]) -> Generation | BackendError:
    try:
        return future.result()
    except CancelledError:
        return _canceled()


def _canceled() -> BackendError:
    return BackendError("the request was canceled", retryable=True)


def _after(error: BackendError, attempts: int) -> BackendError:
    tries = f" ({attempts} attempts)" if attempts > 1 else ""
    return type(error)(f"{error}{tries}", retryable=error.retryable)


def _delay(failure: Failure, key: str, attempt: int) -> float:
    """Seconds before the server is asked again; the jitter spreads what failed together."""
    wait = back_off(attempt) if failure.wait is None else failure.wait
    jitter = int(digest([key, attempt])[:8], 16) / 2**32
    return wait * (1 + jitter / 4)
