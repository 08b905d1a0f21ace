"""One answer as it came, and the list of what is wrong with the files it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ragassay.errors import ConfigError, DataError
from ragassay.types import ContextEntry, Json, Passage

UNDEFENDED = "none"
CONDITIONS = ("clean_undefended", "poisoned_undefended", "clean_defended", "poisoned_defended")
MAX_SHOWN = 20
_NO_DEFENSE = frozenset({"", "none", "no_defense", "no defense", "undefended"})

Place = tuple[str, str, int, str]  # setting, attack, budget, defense


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An answer, where it stands, and what is known of how it came about.

    ``line`` 0 means that the place is named by ``record`` instead. ``budget`` 0 is clean
    retrieval, where ``attack`` is empty. An empty ``group`` is a group of its own. ``setting``
    is a label where the source has one; else it is made of victim and data set.
    """

    path: Path
    line: int
    query_id: str
    question: str
    answer: str
    record: str = ""
    references: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    group: str = ""
    dataset: str = ""
    victim: str = ""
    setting: str = ""
    attack: str = ""
    budget: int = 0
    defense: str = UNDEFENDED
    context: tuple[ContextEntry, ...] = ()
    passages: tuple[Passage, ...] = ()
    trace: Mapping[str, Json] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The setting's label; empty where nothing is known of victim and data set."""
        return self.setting or "/".join(part for part in (self.victim, self.dataset) if part)

    @property
    def place(self) -> Place:
        """The condition, in one value."""
        return (self.label, self.attack, self.budget, self.defense)


class Problems:
    """Collects what does not match up: the first twenty in full, the rest as a number."""

    def __init__(self) -> None:
        self.count = 0
        self.shown: list[str] = []

    def add(
        self, message: str, *, path: Path | None = None, line: int = 0, record: str = ""
    ) -> None:
        """Note a problem and where it is."""
        text = f"{record}: {message}" if record else message
        self.take(DataError(text, path=path, line=line or None))

    def at(self, row: Row, message: str) -> None:
        """Note a problem of a row."""
        self.add(message, path=row.path, line=row.line, record=row.record)

    def take(self, error: DataError) -> None:
        """Note a problem that a reader has raised."""
        self.count += 1
        if len(self.shown) < MAX_SHOWN:
            self.shown.append(str(error).replace("\n", " "))

    def raise_any(self) -> None:
        """Raise one DataError that lists them; do nothing where there is none."""
        if not self.count:
            return
        if self.count == 1:
            raise DataError(f"{self.shown[0]} (nothing was imported)")
        head = f"{self.count:,} problems, nothing was imported"
        if self.count > len(self.shown):
            head += f"; the first {len(self.shown)}"
        raise DataError("\n  ".join([head + ":", *self.shown]))


class Source(Protocol):
    """Where answers come from. ``rows`` can be called again and then gives the same."""

    @property
    def layout(self) -> str:
        """Name of the layout, for the run folder."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are read."""

    @property
    def details(self) -> Mapping[str, Json]:
        """How the files were understood, for the run folder (no paths)."""

    @property
    def complete(self) -> bool:
        """Whether every system must have answers on clean and on poisoned retrieval."""

    def rows(self, problems: Problems) -> Iterator[Row]:
        """Yield the answers in file order; what cannot be read goes to ``problems``."""

    def notes(self) -> list[str]:
        """What a reader should know, after ``rows`` has ended."""

    def file_of(self, place: Place) -> str:
        """Name of the file that should hold a condition; empty where all are in one file."""


def is_undefended(label: str) -> bool:
    """Tell whether a name means that there is no defense."""
    return label.strip().casefold() in _NO_DEFENSE


def checked_attack(attack: str, budget: int) -> None:
    """Refuse an attack or a budget that would pass for clean retrieval.

    Raises
    ------
    ConfigError
        The attack has no name, or the budget is below 1.
    """
    if not attack.strip():
        raise ConfigError("the attack needs a name (--attack)")
    if budget < 1:
        raise ConfigError(f"the budget must be a whole number from 1, got {budget} (--budget)")
