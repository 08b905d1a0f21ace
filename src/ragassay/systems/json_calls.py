"""Calls to a JSON service: time-outs, retries with back-off, a rate limit, bounded replies.

Tried again are HTTP 408, 425, 429 and 5xx, time-outs and connections that fail or break. The
waits are 0.5 s, 1 s, 2 s, ..., at most 30 s, or what ``Retry-After`` asks for. A service that
cannot be reached is tried for ``patience_seconds``, however many attempts that are, so that a
restart in between goes unnoticed. Redirects are not followed: they could lead to another
machine.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ragassay.errors import BackendError, BackendUnavailable
from ragassay.systems.locality import is_local
from ragassay.systems.template import opened_headers

MAX_REPLY_BYTES = 16 * 1024 * 1024
_RETRIED = frozenset({408, 425, 429})
_FIRST_DELAY = 0.5
_LONGEST_DELAY = 30.0


@dataclass(frozen=True, slots=True)
class _Failure:
    """An attempt that failed; ``unreached``: nobody was there."""

    error: BackendError
    again: bool = False
    unreached: bool = False
    wait: float | None = None


@dataclass(slots=True, kw_only=True)
class JsonCalls:
    """Sends JSON and reads JSON, from any number of threads."""

    headers: Mapping[str, str]
    timeout_seconds: float
    retries: int
    patience_seconds: float
    requests_per_second: float
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _clients: dict[bool, Any] = field(default_factory=dict)
    _next_start: float = 0.0

    def __call__(self, method: str, url: str, body: Any) -> Any:
        """Call, and return the reply's JSON; None for an empty reply.

        ``GET`` and ``DELETE`` send the body as query parameters where it is flat, any other
        method sends it as JSON.

        Raises
        ------
        BackendError
            The service failed, refused, or sent no JSON.
        BackendUnavailable
            It could not be reached as long as patience lasted.
        """
        start = time.monotonic()
        attempt = 0
        while True:
            outcome = self._once(method, url, body)
            if not isinstance(outcome, _Failure):
                return outcome[0]
            wait = outcome.wait
            if wait is None:
                wait = min(_FIRST_DELAY * 2**attempt, _LONGEST_DELAY)
            waited = time.monotonic() - start + wait
            tries_left = attempt < self.retries or outcome.unreached
            if not outcome.again or not tries_left:
                raise outcome.error
            if waited > self.patience_seconds and (outcome.unreached or outcome.wait is not None):
                raise outcome.error
            time.sleep(wait)
            attempt += 1

    def close(self) -> None:
        """Close all connections; the next call opens new ones."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def _once(self, method: str, url: str, body: Any) -> tuple[Any] | _Failure:
        import httpx

        self._take_turn()
        plain = method in ("GET", "DELETE") and _is_flat(body)
        sent: dict[str, Any] = {"params": body} if plain else {"json": body}
        try:
            with self._client(url).stream(method, url, **sent) as reply:
                data = bytearray()
                for part in reply.iter_bytes():
                    data += part
                    if len(data) > MAX_REPLY_BYTES:
                        error = f"{url} sent more than {MAX_REPLY_BYTES} bytes"
                        return _Failure(BackendError(error))
                return self._read(reply, bytes(data), url)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            message = f"{url} cannot be reached: {_words(error)}"
            return _Failure(BackendUnavailable(message, retryable=True), again=True, unreached=True)
        except httpx.TimeoutException:
            message = f"{url} was silent for {self.timeout_seconds:g} s"
            return _Failure(BackendError(message, retryable=True), again=True)
        except httpx.TransportError as error:  # broken off in the middle
            message = f"the connection to {url} broke: {_words(error)}"
            return _Failure(BackendError(message, retryable=True), again=True, unreached=True)
        except httpx.HTTPError as error:  # such as a reply that cannot be decompressed
            return _Failure(BackendError(f"{url}: {_words(error)}"))

    def _read(self, reply: Any, data: bytes, url: str) -> tuple[Any] | _Failure:
        status = int(reply.status_code)
        if status in _RETRIED or status >= 500:
            error = BackendError(f"{url} answered HTTP {status}: {_shown(data)}", retryable=True)
            return _Failure(error, again=True, wait=_retry_after(reply.headers))
        if status >= 300:
            return _Failure(BackendError(f"{url} answered HTTP {status}: {_shown(data)}"))
        if not data.strip():
            return (None,)
        try:
            return (json.loads(data.decode("utf-8-sig")),)
        except (ValueError, RecursionError) as error:
            return _Failure(
                BackendError(f"the reply of {url} is no JSON in UTF-8 ({error}): {_shown(data)}")
            )

    def _take_turn(self) -> None:
        """Wait for the next free place in time, so that calls start at the agreed rate."""
        if not self.requests_per_second:
            return
        with self._lock:
            now = time.monotonic()
            mine = max(now, self._next_start)
            self._next_start = mine + 1 / self.requests_per_second
        time.sleep(max(0.0, mine - now))

    def _client(self, url: str) -> Any:
        import httpx

        local = is_local(url)  # a proxy of the environment is not asked for this machine
        with self._lock:
            if local not in self._clients:
                self._clients[local] = httpx.Client(
                    headers=opened_headers(self.headers),
                    timeout=self.timeout_seconds,
                    trust_env=not local,
                    follow_redirects=False,
                )
            return self._clients[local]


def _is_flat(body: Any) -> bool:
    plain = (str, int, float, bool, type(None))
    return isinstance(body, Mapping) and all(
        isinstance(value, plain)
        or (isinstance(value, list) and all(isinstance(each, plain) for each in value))
        for value in body.values()
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return max(0.0, float(headers.get("Retry-After", "")))
    except ValueError:
        return None


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _shown(data: bytes) -> str:
    text = " ".join(data[:400].decode("utf-8", "replace").split())
    return text[:200] or "(empty)"
