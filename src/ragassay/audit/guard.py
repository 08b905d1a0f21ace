"""Who may talk to the annotation server: a filter in front of the whole application.

The server listens on 127.0.0.1, which other users, other programs and every web page that the
browser has open can reach as well. Hence, for every request, static files included:

* **Host** must be one of ours, port included, else a foreign name that resolves to 127.0.0.1
  (DNS rebinding) would count as our own origin.
* **Token**: an HttpOnly, SameSite=Strict cookie, set by the first page that was opened with the
  token in its address; compared in constant time. Cookies are shared by all ports of a host, so
  the cookie's name holds the port.
* **Origin** must be there and be ours, and **Sec-Fetch-Site**, where sent, ``same-origin``, for
  everything that writes: SameSite alone does not keep other ports of 127.0.0.1 out. A writing
  request must be JSON and short, too.

Every reply, refusals included, forbids framing, sniffing, caching, and any script, style or
connection that is not our own. Plain ASGI: nothing is imported for it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from hmac import compare_digest
from typing import Any
from urllib.parse import parse_qs

BODY_LIMIT = 64 * 1024
"""Bytes that the body of a request may have."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_READS = ("GET", "HEAD")


def encode(value: object) -> bytes:
    r"""Write JSON as one line of ASCII that is inert even where it is taken for HTML.

    Examples
    --------
    >>> encode({"answer": "</script>"})
    b'{"answer":"\\u003c/script\\u003e"}\n'
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text.encode("ascii") + b"\n"


class Refusal(Exception):
    """A request that is not served: HTTP status and a one-line reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Guard:
    """Let through what carries the token and comes from our own page; refuse all else.

    Parameters
    ----------
    app : ASGI application
        Served behind the guard.
    token : str
        The secret of this server.
    hosts : sequence of str
        Values of ``Host`` that are ours, with the port, such as ``127.0.0.1:8765``.
    """

    def __init__(self, app: Asgi, *, token: str, hosts: Sequence[str]) -> None:
        if not token or not hosts:
            raise ValueError("a guard needs a token and at least one host")
        self._app = app
        self._token = token.encode()
        self._hosts = frozenset(host.lower() for host in hosts)
        port = hosts[0].rpartition(":")[2]
        self.cookie = f"ragassay_audit_{port if port.isdigit() else 0}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            by_address = self._check(scope)
        except Refusal as refusal:
            await _refuse(refusal, send)
            return
        cookie = [self._set_cookie()] if by_address else []

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in HEADERS}
                kept = [(n, v) for n, v in message.get("headers", []) if n.lower() not in own]
                message = {**message, "headers": [*kept, *HEADERS, *cookie]}
            await send(message)

        await self._app(scope, receive, guarded)

    def _check(self, scope: Scope) -> bool:
        """Refuse a request, or say whether it showed the token in its address."""
        host = _only(scope, b"host").lower()
        if host not in self._hosts:
            raise Refusal(403, "this server answers to 127.0.0.1 and localhost only")
        by_address = False
        if not self._has_cookie(scope):
            by_address = scope["path"] == "/" and self._has_address_token(scope)
            if not by_address:
                raise Refusal(
                    403, "no valid token: open the link that `ragassay audit serve` printed"
                )
        elif scope["path"] == "/":
            by_address = self._has_address_token(scope)
        site = _only(scope, b"sec-fetch-site")
        if scope["method"] in _READS:
            if scope["path"] != "/" and site not in {"", "none", "same-origin"}:
                raise Refusal(403, "a request from another site")
            return by_address
        if _only(scope, b"origin") != f"http://{host}" or site not in {"", "same-origin"}:
            raise Refusal(403, "labels are taken from the annotation page only")
        if _only(scope, b"content-type").partition(";")[0].strip().lower() != "application/json":
            raise Refusal(415, "a body of type application/json is expected")
        length = _only(scope, b"content-length") or "0"
        if not (length.isascii() and length.isdigit()):
            raise Refusal(400, "a Content-Length that is no number")
        if len(length) > 12 or int(length) > BODY_LIMIT:
            raise Refusal(413, f"a request may have at most {BODY_LIMIT} bytes")
        return by_address

    def _has_cookie(self, scope: Scope) -> bool:
        wanted = self.cookie.encode()
        for name, value in scope["headers"]:
            if name.lower() != b"cookie":
                continue
            for part in value.split(b";"):
                key, _, given = part.strip().partition(b"=")
                if key == wanted and compare_digest(given, self._token):
                    return True
        return False

    def _has_address_token(self, scope: Scope) -> bool:
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        return len(given) == 1 and compare_digest(given[0].encode(), self._token)

    def _set_cookie(self) -> tuple[bytes, bytes]:
        value = f"{self.cookie}={self._token.decode()}; Path=/; HttpOnly; SameSite=Strict"
        return (b"set-cookie", value.encode())


def _only(scope: Scope, name: bytes) -> str:
    """Value of a header that may be given once, empty where absent."""
    found = [value for key, value in scope["headers"] if key.lower() == name]
    if len(found) > 1:
        raise Refusal(400, f"the header {name.decode()} is given {len(found)} times")
    return str(found[0].decode("latin-1")) if found else ""


async def _refuse(refusal: Refusal, send: Send) -> None:
    body = encode({"error": refusal.reason})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *HEADERS,
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
