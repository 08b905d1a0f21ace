"""Typed access to one object of a data file, with errors that say where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragassay.errors import DataError


@dataclass(frozen=True, slots=True)
class Entry:
    """An object of a data file: what it holds, where, and the key it stands under.

    Every accessor raises :class:`~ragassay.errors.DataError` where a value is missing or of
    the wrong kind.
    """

    row: Mapping[str, Any]
    path: Path
    line: int
    key: str = ""

    def id(self, name: str) -> str:
        """Return an id as a string; a whole number becomes its decimal digits."""
        value = self._present(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or not value.strip():
            found = "an empty string" if isinstance(value, str) else kind_of(value)
            raise self.error(f"{name!r} must be a string or a whole number, found {found}")
        return value

    def text(self, name: str) -> str:
        """Return a string that must be there; it may be empty."""
        value = self._present(name)
        if not isinstance(value, str):
            raise self.error(f"{name!r} must be a string, found {kind_of(value)}")
        return value

    def optional_text(self, name: str) -> str:
        """Return a string; a missing key and null are the empty string."""
        return "" if self.row.get(name) is None else self.text(name)

    def answers(self, name: str) -> tuple[str, ...]:
        """Return answers from a string, a number, an array of them, or nothing (or null)."""
        value = self.row.get(name)
        if value is None:
            return ()
        items = value if isinstance(value, list) else [value]
        for item in items:
            if isinstance(item, bool) or not isinstance(item, (str, int, float)):
                raise self.error(
                    f"{name!r} must be a string or an array of strings, found {kind_of(item)}"
                )
        return tuple(str(item) for item in items)

    def array(self, name: str) -> list[Any]:
        """Return an array."""
        value = self._present(name)
        if not isinstance(value, list):
            raise self.error(f"{name!r} must be an array, found {kind_of(value)}")
        return value

    def strings(self, name: str) -> tuple[str, ...]:
        """Return an array of strings."""
        return self.all_strings(name, self.array(name))

    def all_strings(self, name: str, items: object) -> tuple[str, ...]:
        """Check that a part of this object is an array of strings."""
        if not isinstance(items, list):
            raise self.error(f"{name!r} must hold arrays of strings, found {kind_of(items)}")
        for number, item in enumerate(items, start=1):
            if not isinstance(item, str):
                raise self.error(f"{name!r} {number} must be a string, found {kind_of(item)}")
        return tuple(items)

    def position(self, name: str) -> int:
        """Return a whole number from 1; a missing key and null are 1."""
        value = self.row.get(name)
        if value is None:
            return 1
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error(f"{name!r} must be a whole number from 1, found {value!r:.40}")
        return value

    def flag(self, name: str) -> bool:
        """Return true or false; a missing key is false."""
        value = self.row.get(name, False)
        if not isinstance(value, bool):
            raise self.error(f"{name!r} must be true or false, found {value!r:.40}")
        return value

    def number(self, value: object) -> float:
        """Check that a part of this object is a number."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(f"expected a number, found {kind_of(value)}")
        return float(value)

    def part(self, name: str, number: object, value: object) -> Entry:
        """View an object inside this one."""
        if not isinstance(value, dict):
            raise self.error(f"{name!r} {number} must be an object, found {kind_of(value)}")
        return Entry(value, self.path, self.line, self.key)

    def error(self, message: str) -> DataError:
        """Build an error that names this place."""
        return DataError(message, path=self.path, line=self.line)

    def _present(self, name: str) -> Any:
        if name not in self.row:
            found = ", ".join(repr(key)[:40] for key in sorted(self.row)[:12]) or "nothing"
            raise self.error(f"the key {name!r} is missing, found {found}")
        return self.row[name]


def kind_of(value: object) -> str:
    """Name a JSON value's kind for a message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    names: dict[type, str] = {dict: "an object", list: "an array", str: "a string"}
    return names.get(type(value), "a number")
