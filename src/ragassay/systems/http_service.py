"""A RAG service that is asked over HTTP, in whatever JSON it speaks.

What goes out is a template with slots, what comes back is found by JMESPath expressions, so
that no code is needed for a service of one's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar
from urllib.parse import urlsplit

from ragassay.errors import BackendError, BackendUnavailable, ConfigError
from ragassay.plugins import Document, SystemAnswer, UsedPassage
from ragassay.systems.json_calls import JsonCalls
from ragassay.systems.locality import checked_url, is_local
from ragassay.systems.template import check_headers, check_slot, filled

_FREE = {"identity": False}


class _Connection:
    """Holds the calls of a service, once there are some."""

    calls: JsonCalls | None = None


@dataclass(frozen=True, kw_only=True)
class HttpService:
    """A RAG service behind HTTP: URLs, bodies and JMESPath expressions.

    Parameters
    ----------
    ask_url, ingest_url : str
        Where questions and documents go. Ingesting an id again must replace the document,
        because a request whose reply was lost is sent again.
    remove_url, reset_url, marked_url : str
        Where documents are deleted by id, where all marked ones are deleted, and where the ids
        of the marked ones are told. One of the first two is needed; all three are better.
    ask_method, ingest_method, remove_method, reset_method, marked_method : str
        HTTP methods. With GET and DELETE a flat body becomes the query of the URL.
    ask_body : dict
        What is sent with a question; the slot ``{question}`` stands for it. Further keys are
        settings of the service, such as ``guard = true``.
    ingest_body, passage : dict
        What is sent to ingest (slot ``{passages}``), and what a passage looks like in it (slots
        ``{id}``, ``{text}``, ``{title}``, ``{metadata}``). The service must keep the metadata.
    remove_body : dict
        What is sent to remove; slot ``{ids}``.
    answer : str
        Where the answer is in the reply, such as ``choices[0].message.content``.
    used : str
        Where the list of passages is that the answer was made from; empty: it is not told.
    used_id, used_text, used_score : str
        Where id, text and score are in such a passage.
    marked_ids : str
        Where the list of ids is in the reply of ``marked_url``.
    headers : dict
        Sent with every request. ``{env:NAME}`` stands for an environment variable.
    batch : int
        Documents of one request at most.
    concurrency : int
        Questions in flight.
    timeout_seconds, retries, patience_seconds : float
        How long the service may be silent, further attempts after a failure, and how long one
        that cannot be reached is tried.
    requests_per_second : float
        At most so many requests start in a second; 0: no limit.
    settle_seconds : float
        How long the service may take until what was written or deleted shows.
    """

    ask_url: str
    ingest_url: str
    remove_url: str = ""
    reset_url: str = ""
    marked_url: str = ""
    ask_method: str = "POST"
    ingest_method: str = "POST"
    remove_method: str = "POST"
    reset_method: str = "POST"
    marked_method: str = "GET"
    ask_body: dict[str, Any] = field(default_factory=lambda: {"question": "{question}"})
    ingest_body: dict[str, Any] = field(default_factory=lambda: {"passages": "{passages}"})
    passage: dict[str, Any] = field(
        default_factory=lambda: {"id": "{id}", "text": "{text}", "metadata": "{metadata}"}
    )
    remove_body: dict[str, Any] = field(default_factory=lambda: {"ids": "{ids}"})
    answer: str = "answer"
    used: str = ""
    used_id: str = "id"
    used_text: str = "text"
    used_score: str = "score"
    marked_ids: str = "ids"
    headers: dict[str, str] = field(default_factory=dict, metadata=_FREE)
    batch: int = field(default=100, metadata=_FREE)
    concurrency: int = field(default=4, metadata=_FREE)
    timeout_seconds: float = field(default=60.0, metadata=_FREE)
    retries: int = field(default=5, metadata=_FREE)
    patience_seconds: float = field(default=60.0, metadata=_FREE)
    requests_per_second: float = field(default=0.0, metadata=_FREE)
    settle_seconds: float = field(default=2.0, metadata=_FREE)
    _connection: _Connection = field(
        init=False, repr=False, compare=False, default_factory=_Connection,
        metadata=_FREE,
    )  # fmt: skip

    version: ClassVar[str] = "1"

    def __post_init__(self) -> None:
        for name in ("ask_url", "ingest_url", "remove_url", "reset_url", "marked_url"):
            value = getattr(self, name)
            if value or name in ("ask_url", "ingest_url"):
                checked_url(name, value)
        if not (self.remove_url or self.reset_url):
            raise ConfigError("http needs remove_url or reset_url: poison must be removed again")
        check_slot("ask_body", self.ask_body, "question")
        check_slot("ingest_body", self.ingest_body, "passages")
        for slot in ("id", "text", "metadata"):
            check_slot("passage", self.passage, slot)
        check_slot("remove_body", self.remove_body, "ids")
        check_headers(self.headers)
        for name in ("answer", "used", "used_id", "used_text", "used_score", "marked_ids"):
            if getattr(self, name):
                _path(name, getattr(self, name))
        if not self.answer:
            raise ConfigError("answer must say where the answer is in the reply, got ''")
        self._check_numbers()

    def _check_numbers(self) -> None:
        for name, least in (("batch", 1), ("concurrency", 1), ("retries", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("patience_seconds", "requests_per_second", "settle_seconds"):
            if not (0 <= getattr(self, name) < math.inf):
                raise ConfigError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if not (0 < self.timeout_seconds < math.inf):
            raise ConfigError(f"timeout_seconds must be above 0, got {self.timeout_seconds}")

    @property
    def local(self) -> bool:
        """Whether every URL leads to this machine."""
        return all(is_local(url) for url in self._urls)

    @property
    def host(self) -> str:
        """The hosts that are not this machine."""
        return ", ".join(sorted({urlsplit(u).netloc for u in self._urls if not is_local(u)}))

    def ingest(self, passages: Sequence[Document]) -> None:
        """Send documents, in batches."""
        for start in range(0, len(passages), self.batch):
            listed = [
                filled(
                    self.passage,
                    {"id": each.id, "text": each.text, "title": each.title,
                     "metadata": dict(each.metadata)},
                )
                for each in passages[start : start + self.batch]
            ]  # fmt: skip
            body = filled(self.ingest_body, {"passages": listed})
            self._call(self.ingest_method, self.ingest_url, body)

    def ask(self, question: str) -> SystemAnswer:
        """Ask, and find answer and passages in the reply.

        Raises
        ------
        BackendError
            The service failed, or the answer is not where it should be.
        """
        body = filled(self.ask_body, {"question": question})
        reply = self._call(self.ask_method, self.ask_url, body)
        text = _path("answer", self.answer).search(reply)
        if not isinstance(text, str):
            raise BackendError(
                f"{self.ask_url}: no text at answer = {self.answer!r} in the reply, found "
                f"{_kind(text)}; the reply {_told(reply)}"
            )
        return SystemAnswer(text=text, used=self._used(reply))

    def remove(self, ids: Sequence[str]) -> None:
        """Delete documents by id; where the service cannot, all that is marked."""
        if not self.remove_url:
            self.reset()
            return
        for start in range(0, len(ids), self.batch):
            body = filled(self.remove_body, {"ids": list(ids[start : start + self.batch])})
            self._call(self.remove_method, self.remove_url, body)

    def reset(self) -> None:
        """Delete all that is marked, in one call or by the ids that the service tells.

        Raises
        ------
        ConfigError
            The service is said to offer neither.
        """
        if self.reset_url:
            self._call(self.reset_method, self.reset_url, {})
            return
        ids = self.marked()
        if ids is None:
            raise ConfigError(
                "http: marked documents cannot be found without reset_url or marked_url"
            )
        self.remove(sorted(ids))

    def marked(self) -> frozenset[str] | None:
        """Ids of the marked documents; None where the service does not tell.

        Raises
        ------
        BackendError
            The ids are not where they should be.
        """
        if not self.marked_url:
            return None
        reply = self._call(self.marked_method, self.marked_url, {})
        found = _path("marked_ids", self.marked_ids).search(reply)
        if not isinstance(found, list) or not all(isinstance(each, str | int) for each in found):
            raise BackendError(
                f"{self.marked_url}: no list of ids at marked_ids = {self.marked_ids!r}, found "
                f"{_kind(found)}; the reply {_told(reply)}"
            )
        return frozenset(map(str, found))

    def close(self) -> None:
        """Close the connections."""
        if self._connection.calls is not None:
            self._connection.calls.close()

    @property
    def _urls(self) -> list[str]:
        every = (self.ask_url, self.ingest_url, self.remove_url, self.reset_url, self.marked_url)
        return [url for url in every if url]

    def _used(self, reply: Any) -> tuple[UsedPassage, ...]:
        if not self.used:
            return ()
        listed = _path("used", self.used).search(reply)
        if listed is None:
            return ()
        if not isinstance(listed, list):
            raise BackendError(
                f"{self.ask_url}: used = {self.used!r} finds {_kind(listed)}, expected a list"
            )
        return tuple(self._one_used(each) for each in listed)

    def _one_used(self, each: Any) -> UsedPassage:
        if isinstance(each, str):
            return UsedPassage(text=each)
        found: dict[str, Any] = {}
        for name in ("used_id", "used_text", "used_score"):
            path = getattr(self, name)
            found[name] = _path(name, path).search(each) if path else None
        score = found["used_score"]
        number = isinstance(score, int | float) and not isinstance(score, bool)
        return UsedPassage(
            id="" if found["used_id"] is None else str(found["used_id"]),
            text=found["used_text"] if isinstance(found["used_text"], str) else "",
            score=float(score) if number and math.isfinite(score) else 0.0,
        )

    def _call(self, method: str, url: str, body: Any) -> Any:
        if self._connection.calls is None:
            self._connection.calls = JsonCalls(
                headers=self.headers,
                timeout_seconds=self.timeout_seconds,
                retries=self.retries,
                patience_seconds=self.patience_seconds,
                requests_per_second=self.requests_per_second,
            )
        return self._connection.calls(method, url, body)


@lru_cache(maxsize=64)
def _path(option: str, expression: str) -> Any:
    try:
        import jmespath
        from jmespath.exceptions import JMESPathError
    except ImportError as error:
        raise BackendUnavailable("http needs jmespath: pip install 'ragassay[systems]'") from error
    try:
        return jmespath.compile(expression)
    except JMESPathError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{option} = {expression!r} is no JMESPath expression ({reason:.120}); such as "
            "choices[0].message.content"
        ) from error


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _told(reply: Any) -> str:
    if isinstance(reply, dict):
        return f"has the keys {', '.join(sorted(map(str, reply))[:12]) or '(none)':.200}"
    return f"is {_kind(reply)}"
