"""Dealing with a system under test: where it writes, what marked documents it holds, its faults.

Whatever a system raises becomes a :class:`~ragassay.errors.BackendError` that names it, so that
a fault of the system is a failed trial and never an outcome.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ragassay.errors import BackendError, ConfigError, RagassayError, StoreError
from ragassay.experiments.setup import Named
from ragassay.plugins import Document, SystemAnswer
from ragassay.types import Passage

_T = TypeVar("_T")
_POLL_SECONDS = 0.1
_MAX_ANSWER = 1_000_000  # characters; a longer answer is a fault


@dataclass(frozen=True, slots=True)
class Access:
    """A system by its title, with every call guarded."""

    system: Named

    @property
    def title(self) -> str:
        """What the experiment calls it."""
        return self.system.title

    @property
    def concurrency(self) -> int:
        """How many questions it may be asked at once."""
        return max(1, int(getattr(self._instance, "concurrency", 1)))

    def check_local(self, *, allowed: bool) -> None:
        """Refuse a system that writes elsewhere, or does not say that it does not.

        Raises
        ------
        ConfigError
            It does, and that is not allowed.
        """
        if allowed or getattr(self._instance, "local", False) is True:
            return
        host = getattr(self._instance, "host", "")
        where = f"writes to {host}" if host else "does not say that it writes to this machine only"
        raise ConfigError(
            f"system {self.title!r} {where}; poison goes into a store that is not local only with "
            "--allow-remote (and 'local' = true tells that a store is on this machine)"
        )

    def check_unmarked(self, why: str) -> None:
        """Refuse a store that holds marked poison.

        Raises
        ------
        StoreError
            It does. ``why`` says what cannot be done.
        """
        found = self.marked()
        if found:
            raise StoreError(
                f"{why}: the store of system {self.title!r} holds {len(found)} marked poison "
                f"documents ({min(found):.60}, ...); remove them with ragassay system clean "
                "EXPERIMENT --marked, if no other run is using the store"
            )

    def prepare(self, corpus: Sequence[Passage]) -> None:
        """Let it take in what it lacks of the data set's passages, where it does that."""
        prepare = getattr(self._instance, "prepare", None)
        if prepare is not None:
            self._guarded("prepare", lambda: prepare(corpus))

    def ingest(self, documents: Sequence[Document]) -> None:
        """Put documents in."""
        self._guarded("ingest", lambda: self._instance.ingest(documents))

    def ask(self, question: str) -> SystemAnswer:
        """Ask a question."""
        answer = self._guarded("ask", lambda: self._instance.ask(question))
        if isinstance(answer, str):
            answer = SystemAnswer(text=answer)
        if not isinstance(answer, SystemAnswer) or not isinstance(answer.text, str):
            raise BackendError(
                f"system {self.title!r}: ask() returned {type(answer).__name__}, expected str or "
                "SystemAnswer"
            )
        if len(answer.text) > _MAX_ANSWER:
            raise BackendError(
                f"system {self.title!r}: an answer of {len(answer.text):,} characters, more than "
                f"{_MAX_ANSWER:,}"
            )
        return answer

    def remove(self, ids: Sequence[str]) -> None:
        """Take documents out: these, or all that is marked where it cannot do less."""
        remove = getattr(self._instance, "remove", None)
        if remove is not None:
            self._guarded("remove", lambda: remove(ids))
        else:
            self._guarded("reset", self._instance.reset)

    def reset(self) -> None:
        """Take out all that is marked."""
        self._guarded("reset", self._instance.reset)

    def marked(self) -> frozenset[str] | None:
        """Ids of marked documents; None where it cannot say."""
        marked: Callable[[], Collection[str] | None] | None
        marked = getattr(self._instance, "marked", None)
        if marked is None:
            return None
        found = self._guarded("marked", marked)
        return None if found is None else frozenset(map(str, found))

    def until(self, holds: Callable[[frozenset[str]], bool]) -> bool:
        """Look at the marked ids until they are as they should be, as long as it may take.

        True also where it cannot say.
        """
        deadline = time.monotonic() + self.settle_seconds
        while True:
            found = self.marked()
            if found is None or holds(found):
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)

    @property
    def settle_seconds(self) -> float:
        """How long what was written may take to show."""
        return float(getattr(self._instance, "settle_seconds", 0.0))

    def close(self) -> None:
        """Let go of files and connections."""
        close = getattr(self._instance, "close", None)
        if close is not None:
            self._guarded("close", close)

    @property
    def _instance(self) -> Any:
        return self.system.instance

    def _guarded(self, what: str, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except BackendError as error:
            raise BackendError(
                f"system {self.title!r}: {error}", retryable=error.retryable
            ) from error
        except RagassayError:
            raise
        except Exception as error:
            message = " ".join(str(error).split())
            raise BackendError(
                f"system {self.title!r}: {what}() raised {type(error).__name__}: {message:.300}"
            ) from error
