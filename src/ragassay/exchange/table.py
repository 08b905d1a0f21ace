"""One long file, JSON lines or CSV, a row an answer, whose columns are named by the user."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ragassay.data.delimited import read_delimited
from ragassay.data.entries import Entry
from ragassay.data.jsonl import is_json_lines, read_jsonl
from ragassay.errors import ConfigError, DataError
from ragassay.exchange.four import DEFENSE, trace_of
from ragassay.exchange.rows import UNDEFENDED, Place, Problems, Row, checked_attack, is_undefended
from ragassay.types import Json

# Each field, and the names of columns that are taken for it without being told.
FIELDS: dict[str, tuple[str, ...]] = {
    "query_id": ("query_id", "qid", "question_id", "id"),
    "question": ("question", "query", "query_text"),
    "answer": ("answer", "response", "output", "prediction", "generated_answer"),
    "target": ("target", "target_answer", "incorrect_answer", "wrong_answer"),
    "references": ("references", "reference", "correct_answers", "correct_answer",
                   "ground_truth", "gold_answer", "gold"),
    "reference_source": ("reference_source",),
    "group_id": ("group_id", "group"),
    "condition": ("condition",),
    "retrieval": ("retrieval",),
    "defense": ("defense", "defence", "method"),
    "attack": ("attack",),
    "budget": ("budget", "n_poison"),
    "setting": ("setting", "setting_id"),
    "victim": ("victim", "model", "generator", "llm"),
    "dataset": ("dataset", "data_set"),
    "metadata": ("metadata",),
}  # fmt: skip
REQUIRED = ("query_id", "question", "answer")
CLEAN, POISONED = False, True
_UNSAID: bool | None = None
# What a value says: (poisoned, defended), each None where it does not say.
MEANINGS: dict[str, tuple[bool | None, bool | None]] = {
    "clean": (CLEAN, _UNSAID),
    "poisoned": (POISONED, _UNSAID),
    "undefended": (_UNSAID, False),
    "defended": (_UNSAID, True),
    "clean_undefended": (CLEAN, False),
    "poisoned_undefended": (POISONED, False),
    "clean_defended": (CLEAN, True),
    "poisoned_defended": (POISONED, True),
}
_SYNONYMS = {
    "c0": "clean_undefended", "c1": "clean_defended", "p0": "poisoned_undefended",
    "p1": "poisoned_defended", "benign": "clean", "no_attack": "clean", "0": "clean",
    "false": "clean", "poison": "poisoned", "attacked": "poisoned", "adversarial": "poisoned",
    "1": "poisoned", "true": "poisoned", "none": "undefended", "no_defense": "undefended",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Table:
    """A long file. ``columns`` maps fields to its columns, ``values`` its values to meanings.

    What the file does not say (attack, budget, defense, victim, data set) is taken from the
    attributes with these names. ``separator`` splits lists of targets and references in cells.
    """

    path: Path
    columns: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    attack: str = "attack"
    budget: int = 1
    defense: str = DEFENSE
    victim: str = ""
    dataset: str = ""
    separator: str = ""

    layout = "table"
    complete = True

    def __post_init__(self) -> None:
        checked_attack(self.attack, self.budget)
        for name in self.columns:
            if name not in FIELDS:
                raise ConfigError(f"--map: no field {name!r}{_near(name, FIELDS)}")
        for value, meaning in self.values.items():
            if meaning not in MEANINGS:
                raise ConfigError(
                    f"--value {value}={meaning}: the meaning must be one of {', '.join(MEANINGS)}"
                )

    @property
    def files(self) -> tuple[Path, ...]:
        """The file that is read."""
        return (self.path,)

    @property
    def details(self) -> dict[str, Json]:
        """Which columns and values were taken for what."""
        return {"columns": dict(sorted(self._columns.items())), "values": dict(self.values)}

    def rows(self, problems: Problems) -> Iterator[Row]:
        """Yield the answers, row by row."""
        try:
            columns = self._columns
        except DataError as error:
            problems.take(error)
            return
        try:
            for line, row in self._raw(problems):
                named = {name: row.get(column) for name, column in columns.items()
                         if column in row}  # fmt: skip
                try:
                    yield self._row(Entry(named, self.path, line))
                except DataError as error:
                    problems.take(error)
        except DataError as error:
            problems.take(error)

    def notes(self) -> list[str]:
        """Say which columns were not used."""
        unused = [name for name in self._header if name not in self._columns.values()]
        if not unused:
            return []
        listed = ", ".join(f"{name:.40}" for name in unused[:12])
        more = f" and {len(unused) - 12} more" if len(unused) > 12 else ""
        return [f"Columns that are not used: {listed}{more} (--map FIELD=COLUMN)."]

    def file_of(self, place: Place) -> str:
        """All conditions are in one file."""
        return ""

    @cached_property
    def _header(self) -> tuple[str, ...]:
        for _, row in self._raw(Problems()):
            return tuple(row)
        raise DataError("the file holds no row", path=self.path)

    @cached_property
    def _columns(self) -> dict[str, str]:
        """Find the column of each field: the one named, else one with a usual name."""
        header = self._header
        simple = {_simple(name): name for name in reversed(header)}
        found: dict[str, str] = {}
        for name, usual in FIELDS.items():
            if name in self.columns:
                column = self.columns[name]
                if column not in header:
                    raise DataError(
                        f"there is no column {column!r} (--map {name}={column})"
                        f"{_near(column, header)}",
                        path=self.path,
                        line=1,
                    )
                found[name] = column
                continue
            if name == "metadata" and not is_json_lines(self.path):
                continue  # an object, which no cell holds
            taken = {*found.values(), *self.columns.values()}
            match = next((simple[u] for u in usual if simple.get(u, "") not in taken | {""}), None)
            if match is not None:
                found[name] = match
        missing = [name for name in REQUIRED if name not in found]
        if missing:
            raise DataError(
                f"no column for {missing[0]!r} (--map {missing[0]}=COLUMN); "
                f"found: {', '.join(f'{name:.40}' for name in header[:20])}",
                path=self.path,
                line=1,
            )
        if not found.keys() & {"condition", "retrieval", "budget", "attack"}:
            raise DataError(
                "nothing tells clean from poisoned answers: name a column of conditions "
                "(--map condition=COLUMN or --map retrieval=COLUMN)",
                path=self.path,
                line=1,
            )
        return found

    def _raw(self, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
        if is_json_lines(self.path):
            return read_jsonl(self.path)
        return read_delimited(self.path, problems)

    def _row(self, entry: Entry) -> Row:
        poisoned, defense = self._condition(entry)
        return Row(
            path=self.path,
            line=entry.line,
            query_id=entry.id("query_id"),
            question=entry.text("question"),
            answer=entry.text("answer"),
            references=self._forms(entry, "references"),
            wanted=self._forms(entry, "target"),
            group=_cell(entry, "group_id"),
            dataset=_cell(entry, "dataset") or self.dataset,
            victim=_cell(entry, "victim") or self.victim,
            setting=_cell(entry, "setting"),
            attack=(_cell(entry, "attack") or self.attack) if poisoned else "",
            budget=(_budget(entry) or self.budget) if poisoned else 0,
            defense=defense,
            trace=trace_of(entry.row, entry),
        )

    def _condition(self, entry: Entry) -> tuple[bool, str]:
        """Find out whether retrieval was poisoned, and by what the answer was defended."""
        poisoned, defended = self._meaning(entry, "condition")
        said = self._meaning(entry, "retrieval")[0]
        poisoned = said if said is not None else poisoned
        if poisoned is None:
            attack = _cell(entry, "attack")
            poisoned = _budget(entry) > 0 or bool(attack and self._read(attack)[0] is not CLEAN
                                                  and not is_undefended(attack))  # fmt: skip
        label = _cell(entry, "defense")
        meaning = self._read(label)[1] if label else None
        named = bool(label) and meaning is None and not is_undefended(label)
        if defended is None:
            defended = named or meaning is True
        if not defended:
            return poisoned, UNDEFENDED
        if label and not named and meaning is not True:
            raise entry.error(f"the condition says defended, but the defense is {label!r:.60}")
        return poisoned, label if named else self.defense

    def _meaning(self, entry: Entry, name: str) -> tuple[bool | None, bool | None]:
        value = _cell(entry, name)
        if not value:
            if name in entry.row:
                raise entry.error(f"{name!r} is empty")
            return (None, None)
        meaning = self._read(value)
        if meaning == (None, None):
            raise entry.error(
                f"what does {name} {value!r:.60} mean? Say so: --value VALUE=MEANING, where the "
                f"meaning is one of {', '.join(MEANINGS)}"
            )
        return meaning

    def _read(self, value: str) -> tuple[bool | None, bool | None]:
        simple = _simple(value)
        meaning = self.values.get(value) or _SYNONYMS.get(simple, simple)
        return MEANINGS.get(meaning, (None, None))

    def _forms(self, entry: Entry, name: str) -> tuple[str, ...]:
        """Read a target or references: a list, a JSON list in a cell, or separated forms."""
        value = entry.row.get(name)
        if not isinstance(value, str):
            return entry.answers(name)
        if not value.strip():
            return ()
        if value.lstrip().startswith("["):
            try:
                items = json.loads(value)
            except ValueError:
                items = None
            if isinstance(items, list) and all(isinstance(item, str) for item in items):
                return tuple(items)
        if self.separator:
            return tuple(part.strip() for part in value.split(self.separator) if part.strip())
        return (value,)


def _cell(entry: Entry, name: str) -> str:
    """Read a name from a cell: a string, a number or a flag; empty where there is none."""
    value = entry.row.get(name)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return str(value).strip()
    raise entry.error(f"{name!r} must be a string or a whole number, found {value!r:.40}")


def _budget(entry: Entry) -> int:
    """Read how many passages were injected; 0 where that is not said."""
    value = entry.row.get("budget")
    if value is None or value == "":
        return 0
    try:
        number = float(value) if not isinstance(value, bool) else -1
    except (TypeError, ValueError):
        number = -1
    if number < 0 or number != int(number):
        raise entry.error(f"'budget' must be a whole number from 0, found {value!r:.40}")
    return int(number)


def _simple(name: str) -> str:
    return re.sub(r"[^0-9a-z]+", "_", name.casefold()).strip("_")


def _near(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
