"""What adapters of pipeline libraries share: a factory that is called once, lazily."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ragassay.errors import BackendError, ConfigError
from ragassay.systems.factory import factory_identity, load_factory

_FREE = {"identity": False}


class Made:
    """What the factory returned, once it was called."""

    parts: tuple[Any, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class MadePipeline:
    """A pipeline made by ``factory``, ``file.py:function``, called with ``options``.

    ``local`` says that the store it writes to is on this machine.
    """

    factory: str
    options: dict[str, Any] = field(default_factory=dict)
    local: bool = field(default=False, metadata=_FREE)
    concurrency: int = field(default=1, metadata=_FREE)
    _made: Made = field(
        init=False, repr=False, compare=False, default_factory=Made, metadata=_FREE
    )  # fmt: skip

    kind: ClassVar[str] = ""
    returns: ClassVar[str] = ""
    fewest: ClassVar[int] = 2
    most: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if not self.factory:
            raise ConfigError("factory must be 'path/to/file.py:function', got ''")
        if self.concurrency < 1:
            raise ConfigError(f"concurrency must be at least 1, got {self.concurrency}")

    def settings(self) -> dict[str, Any]:
        """Options of the adapter that can change an answer, beside those of the factory."""
        return {}

    @property
    def identity(self) -> str:
        """Digest of the factory's file, its options and the adapter's."""
        return factory_identity(self.kind, self.factory, {**self.options, "": self.settings()})

    def parts(self) -> tuple[Any, ...]:
        """What the factory made; it is called once.

        Raises
        ------
        ConfigError
            It returned something else than it should.
        """
        if self._made.parts is None:
            made = load_factory(self.factory)(**self.options)
            if not isinstance(made, tuple) or not self.fewest <= len(made) <= self.most:
                found = f"{len(made)} values" if isinstance(made, tuple) else type(made).__name__
                raise ConfigError(
                    f"factory {self.factory!r} must return {self.returns}, returned {found}"
                )
            self._made.parts = made
        return self._made.parts

    def close(self) -> None:
        """Forget the pipeline; the next call makes a new one."""
        parts, self._made.parts = self._made.parts, None
        for part in parts or ():
            close = getattr(part, "close", None)
            if callable(close):
                close()


def text_of(value: Any, where: str) -> str:
    """The text of an answer: a string, or what chat models return.

    Raises
    ------
    BackendError
        There is none.
    """
    for name in (None, "content", "text", "response", "data"):
        found = value if name is None else getattr(value, name, None)
        if isinstance(found, str):
            return found
    raise BackendError(f"no text at {where}, found {type(value).__name__}")


def score_of(value: Any) -> float:
    """A score as a number, 0 where there is none."""
    if isinstance(value, bool) or value is None:
        return 0.0
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 0.0
    return number if math.isfinite(number) else 0.0


def reached(value: Any, path: str) -> Any:
    """Follow keys, positions and attributes, separated by dots; None where the way ends.

    Examples
    --------
    >>> reached({"llm": {"replies": ["yes"]}}, "llm.replies.0")
    'yes'
    """
    for step in path.split("."):
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, Sequence) and not isinstance(value, str) and step.isdigit():
            value = value[int(step)] if int(step) < len(value) else None
        elif not step.startswith("_"):
            value = getattr(value, step, None)
        else:
            value = None
        if value is None:
            return None
    return value
