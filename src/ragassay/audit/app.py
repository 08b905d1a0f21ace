"""The annotation page: one blinded answer at a time, every label on disk before the next.

The server reads the open part of a packet and appends to its label files; the sealed key is
never opened here. It is meant for one machine: it listens on 127.0.0.1, and
:mod:`ragassay.audit.guard` keeps out whoever does not have the link. Whoever can read the
process list of the machine can see the link while a browser is started with it; start with
``open_browser=False`` on a shared machine.

Texts leave as JSON and enter the page as text nodes, so that nothing in an answer is executed.
"""

from __future__ import annotations

import json
import logging
import secrets
import shlex
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragassay.audit import rubric
from ragassay.audit.guard import BODY_LIMIT, Guard, Refusal, encode
from ragassay.audit.labels import (
    LabelBook,
    annotators,
    check_annotator,
    check_labels,
    read_labels,
    read_packet,
)
from ragassay.audit.packet import FIELDS, LABELS, RUBRIC_VERSION, Item, Packet
from ragassay.errors import BackendUnavailable, ConfigError, RagassayError, StoreError

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

Sent = Mapping[str, Any]
Reply = Mapping[str, Any]

COMMENT_LIMIT = 4000
"""Characters that a comment may have."""

_LOG = logging.getLogger(__name__)
_DAY = 24 * 3600.0
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_MISSING = "the annotation page needs starlette and uvicorn: pip install 'ragassay[audit]'"


def serve(packet: Path, *, port: int = 0, open_browser: bool = True) -> None:
    """Serve the annotation page of a packet until Ctrl-C.

    Parameters
    ----------
    packet : Path
        The packet folder.
    port : int, optional
        Port on 127.0.0.1; 0 takes a free one.
    open_browser : bool, optional
        Whether to open the page in the browser, too.

    Raises
    ------
    BackendUnavailable
        Starlette or uvicorn is not installed.
    ConfigError
        The port cannot be taken.
    StoreError
        The folder is no packet.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise BackendUnavailable(_MISSING) from error

    opened = read_packet(packet)
    token = secrets.token_urlsafe(32)
    with _listen(port) as listener:
        port = listener.getsockname()[1]
        app = create_app(opened, token=token, hosts=[f"127.0.0.1:{port}", f"localhost:{port}"])
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # the first line would hold the token
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_graceful_shutdown=2,
        )
        address = f"http://127.0.0.1:{port}/?token={token}"
        print(f"{opened.name}: {len(opened.items)} answers at {address} (Ctrl-C stops)", flush=True)
        if open_browser:  # the socket listens already, so the browser cannot come too early
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        with suppress(KeyboardInterrupt):  # uvicorn raises it again after it has shut down
            uvicorn.Server(config).run(sockets=[listener])
    print(f"stopped; every saved label is in {opened.folder() / LABELS}", flush=True)


def create_app(packet: Packet, *, token: str, hosts: Sequence[str]) -> Starlette:
    """Build the application behind the page.

    Parameters
    ----------
    packet : Packet
        As :func:`ragassay.audit.packet.read_packet` gives it.
    token : str
        The secret that every request must carry.
    hosts : sequence of str
        Accepted values of the ``Host`` header, port included.

    Raises
    ------
    BackendUnavailable
        Starlette is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.middleware import Middleware
        from starlette.routing import Route
    except ImportError as error:
        raise BackendUnavailable(_MISSING) from error

    desk = _Desk(packet)
    page = _Pages()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        desk.close()

    async def unknown(_: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return _answer({"error": "there is nothing here"}, status)

    return Starlette(
        routes=[
            Route("/", page.index),
            Route("/static/{name}", page.static),
            Route("/api/ping", _endpoint(desk.ping)),
            Route("/api/packet", _endpoint(desk.packet)),
            Route("/api/item/{number}", _endpoint(desk.item)),
            Route("/api/start", _endpoint(desk.start), methods=["POST"]),
            Route("/api/save", _endpoint(desk.save), methods=["POST"]),
            Route("/api/undo", _endpoint(desk.undo), methods=["POST"]),
        ],
        middleware=[Middleware(Guard, token=token, hosts=hosts)],
        exception_handlers={HTTPException: unknown},
        lifespan=lifespan,
    )


class _Pages:
    """The page and its parts, read once; only these names exist."""

    def __init__(self) -> None:
        here = files("ragassay.audit")
        self._index = (here / "templates" / "page.html").read_text(encoding="utf-8")
        self._static = {
            entry.name: entry.read_bytes()
            for entry in (here / "static").iterdir()
            if Path(entry.name).suffix in _TYPES
        }

    async def index(self, _: Request) -> Response:
        from starlette.responses import HTMLResponse

        return HTMLResponse(self._index)

    async def static(self, request: Request) -> Response:
        from starlette.responses import Response

        name = request.path_params["name"]
        if name not in self._static:
            return _answer({"error": "there is nothing here"}, 404)
        return Response(self._static[name], media_type=_TYPES[Path(name).suffix])


class _Desk:
    """What the page asks for and sends. Runs on the event loop alone, so one write at a time."""

    def __init__(self, packet: Packet) -> None:
        self._packet = packet
        self._places = {item.id: place for place, item in enumerate(packet.items)}
        self._books: dict[str, LabelBook] = {}

    def close(self) -> None:
        for book in self._books.values():
            book.close()
        self._books.clear()

    def ping(self, _: Sent) -> Reply:
        return {"packet": self._packet.name}

    def packet(self, _: Sent) -> Reply:
        folder = shlex.quote(str(self._packet.folder()))
        drawn_for = self._packet.rubric_version
        notice = (
            f"This packet was drawn for rubric {drawn_for}; shown here: rubric {RUBRIC_VERSION}."
        )
        return {
            "name": self._packet.name,
            "digest": self._packet.digest,
            "count": len(self._packet.items),
            "rubric": rubric.as_json(),
            "notice": "" if drawn_for == RUBRIC_VERSION else notice,
            "annotators": [self._known(name) for name in annotators(self._packet.folder())],
            "serve": f"ragassay audit serve {folder}",
            "next": f"ragassay audit agree {folder}",
            "comment_limit": COMMENT_LIMIT,
        }

    def item(self, asked: Sent) -> Reply:
        number, count = str(asked["number"]), len(self._packet.items)
        known = number.isascii() and number.isdigit() and len(number) < 10
        if not known or int(number) >= count:
            raise Refusal(
                404, f"there is no answer {number!r:.20}; the packet has 0 to {count - 1}"
            )
        item = self._packet.items[int(number)]
        return {**asdict(item), "allowed": {name: item.allowed(name) for name in FIELDS}}

    def start(self, sent: Sent) -> Reply:
        book = self._book(sent)
        return {"annotator": book.annotator, "count": len(self._packet.items), **self._state(book)}

    def save(self, sent: Sent) -> Reply:
        """Append a label. What is said already is not said twice: the page may ask again."""
        item, book = self._item(sent), self._book(sent)
        labels, comment = check_labels(item, sent.get("labels", {})), _comment(sent)
        now = book.current().get(item.id)
        if now is None or (dict(now.labels), now.comment) != (labels, comment):
            book.append(item.id, labels, comment=comment, seconds=_seconds(sent))
        return {"saved": item.id, "done": len(book.current())}

    def undo(self, sent: Sent) -> Reply:
        item, book = self._item(sent), self._book(sent)
        return {"undone": book.undo(item.id), **self._state(book)}

    def _book(self, sent: Sent) -> LabelBook:
        if sent.get("packet", self._packet.digest) != self._packet.digest:
            raise Refusal(409, "this page shows another packet than the server; load it again")
        name = check_annotator(sent.get("annotator", ""))
        if name not in self._books:
            try:
                self._books[name] = LabelBook(self._packet, name)
            except StoreError as error:  # asking again would not help
                raise Refusal(409, str(error)) from error
        return self._books[name]

    def _item(self, sent: Sent) -> Item:
        place = self._places.get(str(sent.get("item")))
        if place is None:
            raise Refusal(400, f"item {sent.get('item')!r:.80} is not in this packet")
        return self._packet.items[place]

    def _state(self, book: LabelBook) -> Reply:
        decided = [
            {"place": self._places[item], "labels": dict(label.labels), "comment": label.comment}
            for item, label in book.current().items()
        ]
        return {"decided": decided}

    def _known(self, name: str) -> Reply:
        try:
            book = self._books.get(name)
            done = len(book.current() if book else read_labels(self._packet, name))
        except StoreError as error:
            return {"name": name, "done": None, "problem": str(error)}
        return {"name": name, "done": done}


def _comment(sent: Sent) -> str:
    comment = sent.get("comment", "")
    if not isinstance(comment, str) or len(comment) > COMMENT_LIMIT:
        raise Refusal(400, f"comment: need a text of at most {COMMENT_LIMIT} characters")
    return comment


def _seconds(sent: Sent) -> float | None:
    """Time on the item; a clock that went astray is no reason to lose a label."""
    seconds = sent.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return round(float(seconds), 1) if 0 <= seconds <= _DAY else None


def _endpoint(deed: Callable[[Sent], Reply]) -> Callable[[Request], Awaitable[Response]]:
    """Turn a deed into a handler: JSON in, JSON out, one line for every error."""

    async def handle(request: Request) -> Response:
        try:
            sent = await _body(request) if request.method == "POST" else request.path_params
            return _answer(deed(sent), 200)
        except Refusal as refusal:
            return _answer({"error": refusal.reason}, refusal.status)
        except ConfigError as error:
            return _answer({"error": str(error)}, 400)
        except RagassayError as error:  # the disk, most likely: the page asks again
            _LOG.error("%s", error)
            return _answer({"error": str(error)}, 503)
        except Exception:
            _LOG.exception("%s %s", request.method, request.url.path)
            return _answer({"error": "the server failed; its terminal says how"}, 500)

    return handle


async def _body(request: Request) -> Sent:
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > BODY_LIMIT:
            raise Refusal(413, f"a request may have at most {BODY_LIMIT} bytes")
    try:
        sent = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "the body is not JSON in UTF-8") from error
    if not isinstance(sent, dict):
        raise Refusal(400, "the body is not a JSON object")
    return sent


def _answer(value: Reply, status: int) -> Response:
    from starlette.responses import Response

    return Response(encode(value), status_code=status, media_type="application/json")


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
    except (OSError, OverflowError) as error:
        listener.close()
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"port {port} on 127.0.0.1 cannot be taken: {why}; 0 is any free one"
        ) from error
    return listener
