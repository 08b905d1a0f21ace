"""Chat models behind any OpenAI-compatible server: OpenAI, vLLM, Ollama, llama.cpp, gateways.

The SDK's own retries are off. Ours wait 0.5 s, 1 s, 2 s, ... (at most 30 s, at most a quarter
more by a jitter that derives from the request), or as long as the server's ``Retry-After``
asks, after HTTP 408, 409, 429 and 5xx, time-outs and broken connections. Anything else fails
at once. A failure is always a BackendError and never an empty text: a reply without choices
or without content is a failure, too. The one exception: to a request with a JSON schema, a
refusal is a reply like any other that does not follow the schema.

Deviations: prompts go out as valid Unicode; a lone surrogate becomes U+FFFD. The server's
sampling is only as repeatable as the server makes it; ``ragassay doctor`` measures it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from ragassay.canon import digest
from ragassay.errors import BackendError, BackendUnavailable, ConfigError
from ragassay.generation import openai_wire as wire
from ragassay.types import Generation, Request

_OPENAI = "https://api.openai.com/v1"
_FIRST_DELAY = 0.5
_LONGEST_DELAY = 30.0
_RETRIED = frozenset({408, 409, 429})


class _Connection:
    """What a server plug-in holds while the process lives: client, pool, running calls."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clients: dict[str, Any] = {}
        self.in_flight: Counter[str] = Counter()
        self.down_until: dict[str, float] = {}
        self.pool: ThreadPoolExecutor | None = None
        self.running: set[threading.Event] = set()


@dataclass(frozen=True, slots=True)
class _Failure:
    """One attempt that failed; ``wait`` is what the server asked for, in seconds."""

    error: BackendError
    again: bool = False
    wait: float | None = None


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
        Requests in flight at most, over all threads.
    timeout_seconds : float
        How long the server may be silent.
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
        and not for a while to one that could not be reached. Needs ``base_url`` and
        ``served_as``.
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
        canceled = threading.Event()
        connection = self._connection
        with connection.lock:
            connection.running.add(canceled)
            if connection.pool is None:
                connection.pool = ThreadPoolExecutor(self.concurrency, "openai")
            pool = connection.pool
        futures: dict[Future[Generation | BackendError], int] = {}
        try:
            for position, request in enumerate(requests):
                futures[pool.submit(self._answer, request, canceled)] = position
            for future in as_completed(futures):
                yield futures[future], _result(future)
        finally:
            canceled.set()
            for future in futures:
                future.cancel()
            with connection.lock:
                connection.running.discard(canceled)

    def cancel(self) -> None:
        """Make running calls return soon: no further attempts, no waiting between them."""
        with self._connection.lock:
            for canceled in self._connection.running:
                canceled.set()

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        connection = self._connection
        with connection.lock:
            clients, connection.clients = connection.clients, {}
            pool, connection.pool = connection.pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        for client in clients.values():
            client.close()

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

    def _answer(self, request: Request, canceled: threading.Event) -> Generation | BackendError:
        """Ask, and ask again where that may help."""
        key = digest(request)
        patience = time.monotonic() + self.patience_seconds
        for attempt in range(self.retries + 1):
            if canceled.is_set():
                break
            outcome = self._attempt(request)
            if isinstance(outcome, Generation):
                return outcome
            if not outcome.again or attempt == self.retries:
                return _after(outcome.error, attempt + 1)
            if outcome.wait is not None and outcome.wait > self.patience_seconds:
                return _after(outcome.error, attempt + 1, f"; it asks for {outcome.wait:g} s more")
            wait = _delay(outcome, key, attempt)
            out_of_reach = isinstance(outcome.error, BackendUnavailable)
            if out_of_reach and time.monotonic() + wait > patience:
                return _after(outcome.error, attempt + 1)
            canceled.wait(wait)
        return BackendError(f"server {self._host}: the request was canceled", retryable=True)

    def _attempt(self, request: Request) -> Generation | _Failure:
        connection, url = self._connection, self._take_server()
        try:
            found = self._attempt_at(url, request)
        finally:
            with connection.lock:
                connection.in_flight[url] -= 1
        if isinstance(found, _Failure) and isinstance(found.error, BackendUnavailable):
            with connection.lock:
                connection.down_until[url] = time.monotonic() + _LONGEST_DELAY
        return found

    def _take_server(self) -> str:
        """The server with the fewest requests in flight, of those that can be reached."""
        connection, now = self._connection, time.monotonic()
        with connection.lock:
            up = [url for url in self._urls if connection.down_until.get(url, now) <= now]
            url = min(up or self._urls, key=lambda url: connection.in_flight[url])
            connection.in_flight[url] += 1
        return url

    def _attempt_at(self, url: str, request: Request) -> Generation | _Failure:
        start, host = time.monotonic(), _host_of(url)
        try:
            client = self._client(url)
            reply = client.chat.completions.create(**self._parameters(request))
        except BackendError as error:
            return _Failure(error)
        except Exception as error:  # of the SDK, of its HTTP library, of a reply that is no JSON
            if wire.withheld(error, structured=request.schema is not None):
                return Generation(text="", seconds=time.monotonic() - start)
            return self._failure(error, host)
        read = wire.read_reply(
            reply, time.monotonic() - start, structured=request.schema is not None
        )
        return read if isinstance(read, Generation) else self._fail(read, host)

    def _client(self, url: str) -> Any:
        clients = self._connection.clients
        with self._connection.lock:
            if url not in clients:
                try:
                    from openai import OpenAI
                except ImportError as error:
                    raise BackendUnavailable(
                        "the package openai is not installed (pip install openai)"
                    ) from error
                clients[url] = OpenAI(
                    api_key=self._key() or "not-needed",
                    base_url=url,
                    timeout=self.timeout_seconds,
                    max_retries=0,
                )
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

    def _failure(self, error: Exception, host: str) -> _Failure:
        # By name and by attribute: the SDK changed its HTTP library between versions.
        status = getattr(error, "status_code", None)
        names = {kind.__name__ for kind in type(error).__mro__}
        if isinstance(status, int):
            return self._refused(error, status, host)
        if "APITimeoutError" in names:
            return self._fail(f"no answer within {self.timeout_seconds:g} s", host, again=True)
        if "APIConnectionError" in names:
            cause = type(error.__cause__).__name__
            if cause == "ConnectError":
                message = f"server {host} cannot be reached: {self._scrub(error.__cause__)}"
                return _Failure(BackendUnavailable(message, retryable=True), again=True)
            return self._fail(f"the connection broke ({cause})", host, again=True)
        if isinstance(error, ValueError):
            return self._fail(f"its reply cannot be read: {self._scrub(error)}", host, again=True)
        return self._fail(f"{type(error).__name__}: {self._scrub(error)}", host)

    def _refused(self, error: Exception, status: int, host: str) -> _Failure:
        if status in (401, 403):  # such replies like to quote the key
            return self._fail(
                f"HTTP {status}, it does not accept the key in the environment variable "
                f"{self.api_key_env}",
                host,
            )
        again = status in _RETRIED or status >= 500
        if getattr(error, "code", None) == "insufficient_quota":  # a 429 that no waiting cures
            again = False
        headers = getattr(getattr(error, "response", None), "headers", {})
        return self._fail(
            f"HTTP {status}: {self._scrub(error)}",
            host,
            again=again,
            wait=wire.retry_after(headers),
        )

    def _fail(
        self, what: str, host: str, *, again: bool = False, wait: float | None = None
    ) -> _Failure:
        error = BackendError(f"server {host}: {what}", retryable=again)
        return _Failure(error, again, wait)

    def _scrub(self, error: object) -> str:
        text, key = str(error), self._key()
        return wire.one_line(text.replace(key, "***") if key else text)


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
        return BackendError("the request was canceled", retryable=True)


def _after(error: BackendError, attempts: int, more: str = "") -> BackendError:
    tries = f" ({attempts} attempts)" if attempts > 1 else ""
    return type(error)(f"{error}{more}{tries}", retryable=error.retryable)


def _delay(failure: _Failure, key: str, attempt: int) -> float:
    """Seconds before the next attempt; the jitter spreads requests that failed together."""
    wait = failure.wait
    if wait is None:
        wait = min(_FIRST_DELAY * 2**attempt, _LONGEST_DELAY)
    jitter = int(digest([key, attempt])[:8], 16) / 2**32
    return wait * (1 + jitter / 4)
