"""Prompt templates: text files in this folder, our own wording, or a user's file.

A template is split into turns by lines that read ``@@ system``, ``@@ user`` or
``@@ assistant``; ``{{name}}`` marks a slot. Slots are filled in one pass, so that a passage
which contains ``{{question}}`` stays as it is. The digest of the file goes into every key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Literal, cast

from ragassay.errors import ConfigError
from ragassay.types import Message

_ROLE = re.compile(r"^@@ (system|user|assistant)[ \t]*$", re.MULTILINE)
_SLOT = re.compile(r"\{\{([a-z_]+)\}\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A prompt with slots. ``digest`` is the first 16 hexadecimal digits of its SHA-256."""

    name: str
    turns: tuple[tuple[str, str], ...]
    digest: str

    @property
    def slots(self) -> frozenset[str]:
        """Names of all slots."""
        return frozenset(slot for _, text in self.turns for slot in _SLOT.findall(text))

    def render(self, values: Mapping[str, str]) -> tuple[Message, ...]:
        """Fill the slots.

        Raises
        ------
        ConfigError
            A slot has no value.
        """
        missing = self.slots - values.keys()
        if missing:
            raise ConfigError(f"prompt {self.name!r} needs a value for {sorted(missing)[0]!r}")
        return tuple(
            Message(
                role=cast(Literal["system", "user", "assistant"], role),
                content=_SLOT.sub(lambda match: values[match[1]], text),
            )
            for role, text in self.turns
        )


def parse(name: str, text: str) -> Template:
    """Read a template from its text.

    Raises
    ------
    ConfigError
        The text does not start with a turn line.
    """
    text = text.replace("\r\n", "\n")
    parts = _ROLE.split(text)
    if len(parts) < 3 or parts[0].strip():
        raise ConfigError(f"prompt {name!r} must start with a line '@@ system' or '@@ user'")
    turns = tuple(
        (role, body.strip("\n")) for role, body in zip(parts[1::2], parts[2::2], strict=True)
    )
    return Template(name=name, turns=turns, digest=hashlib.sha256(text.encode()).hexdigest()[:16])


@lru_cache(maxsize=256)
def load(name: str) -> Template:
    """Load a template by name (``answer``) or from a user's file (``./mine.txt``).

    Raises
    ------
    ConfigError
        There is no such template or file, or it is not UTF-8.
    """
    builtin = files(__package__) / f"{name}.txt"
    if re.fullmatch(r"[a-z0-9_]+", name) and builtin.is_file():
        return parse(name, builtin.read_text(encoding="utf-8"))
    path = Path(name)
    if not path.is_file():
        known = sorted(p.name[:-4] for p in files(__package__).iterdir() if p.name.endswith(".txt"))
        raise ConfigError(f"no prompt {name!r}: give a file, or one of {', '.join(known)}")
    try:
        return parse(name, path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"prompt file {name} is not UTF-8: {error}") from error
