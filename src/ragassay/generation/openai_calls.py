"""The OpenAI SDK as a client whose running calls can be ended from another thread.

Closing the SDK's client does not end them: a thread that waits for a socket goes on waiting
when the socket is closed under it. It wakes when the connection is shut down, for which the
sockets must be known. The HTTP library tells of them through its documented ``trace``.
"""

from __future__ import annotations

import socket
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ragassay.errors import BackendError, BackendUnavailable

_CONNECT_SECONDS = 10.0


class Calls:
    """Chat completions of one server.

    Parameters
    ----------
    url : str
        Where the API begins.
    key : str
        Sent along.
    timeout_seconds : float
        How long the server may be silent. Connecting takes 10 s at most.

    Raises
    ------
    BackendUnavailable
        The SDK is not installed.
    """

    def __init__(self, url: str, key: str, timeout_seconds: float) -> None:
        try:
            import openai
        except ImportError as error:
            raise BackendUnavailable(
                "the package openai is not installed (pip install openai)"
            ) from error
        self._lock = threading.Lock()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._running = 0
        self._ended = False
        self._client = openai.OpenAI(
            api_key=key,
            base_url=url,
            timeout=openai.Timeout(timeout_seconds, connect=min(timeout_seconds, _CONNECT_SECONDS)),
            max_retries=0,
            http_client=openai.DefaultHttpxClient(event_hooks={"request": [self._watch]}),
        )

    def complete(self, parameters: Mapping[str, Any]) -> Any:
        """Ask for a chat completion; whatever the SDK raises comes through.

        Raises
        ------
        BackendError
            :meth:`end` was called before.
        """
        with self._lock:
            if self._ended:
                raise BackendError("the request was canceled", retryable=True)
            self._running += 1
        try:
            return self._client.chat.completions.create(**parameters)
        finally:
            with self._lock:
                self._running -= 1
                last = self._ended and not self._running
            if last:
                self._client.close()

    def end(self) -> None:
        """Make all running calls fail now, and close the connections for good."""
        with self._lock:
            unused = not self._running and not self._ended
            self._ended = True
            for one in self._sockets:
                _shut(one)
        # Closing sockets that others still read would free their numbers for other files.
        if unused:
            self._client.close()

    def _watch(self, request: Any) -> None:
        request.extensions["trace"] = self._note

    def _note(self, event: str, info: Mapping[str, Any]) -> None:
        stream: Any = info.get("return_value") if event.endswith(".complete") else None
        if not hasattr(stream, "get_extra_info"):
            return
        opened = stream.get_extra_info("socket")
        if isinstance(opened, socket.socket):
            with self._lock:
                self._sockets.add(opened)
                if self._ended:
                    _shut(opened)


def _shut(opened: socket.socket) -> None:
    with suppress(OSError):  # closed already
        # Not the method of a TLS socket, which would take the encryption from under its reader.
        socket.socket.shutdown(opened, socket.SHUT_RDWR)
