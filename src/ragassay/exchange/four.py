"""Four files, one per condition: clean or poisoned retrieval, without or with the defense.

Source: the input of the released Aligned RAG Evaluation harness, one JSON object a line with
``query_id``, ``question`` and ``answer``.

Deviations: a target may be a list, whose first form is the attacker's answer and the rest its
aliases; several defenses may stand side by side; and a field that is not known is an error,
where the harness passes over it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragassay.data.entries import Entry, kind_of
from ragassay.data.jsonl import read_jsonl
from ragassay.errors import ConfigError, DataError
from ragassay.exchange.rows import UNDEFENDED, Place, Problems, Row, checked_attack, is_undefended
from ragassay.types import Json

FIELDS = (
    "query_id", "question", "answer", "group_id", "target", "references", "reference_source",
    "method", "metadata",
)  # fmt: skip
DEFENSE = "defense"


@dataclass(frozen=True, kw_only=True)
class FourFiles:
    """Two files of undefended answers, and for each defense two files of defended ones.

    ``defended`` maps a defense's name to its clean and its poisoned file; under the empty
    name the defense is what the rows call ``method``, else ``"defense"``. ``ignore`` names
    fields to pass over.
    """

    clean_undefended: Path
    poisoned_undefended: Path
    defended: Mapping[str, tuple[Path, Path]] = field(default_factory=dict)
    attack: str = "attack"
    budget: int = 1
    victim: str = ""
    dataset: str = ""
    ignore: tuple[str, ...] = ()

    layout = "four"
    complete = True

    def __post_init__(self) -> None:
        checked_attack(self.attack, self.budget)
        for name in self.defended:
            if name and is_undefended(name):
                raise ConfigError(f"a defense cannot be called {name!r}: that means no defense")
        given = [path.resolve() for path in self.files]
        for position, path in enumerate(given):
            if path in given[:position]:
                raise ConfigError(f"{self.files[position]} is given for two conditions")

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are read."""
        pairs = [path for pair in self.defended.values() for path in pair]
        return (self.clean_undefended, self.poisoned_undefended, *pairs)

    @property
    def details(self) -> dict[str, Json]:
        """How the files were understood."""
        return {"attack": self.attack, "budget": self.budget, "ignored": sorted(self.ignore)}

    def rows(self, problems: Problems) -> Iterator[Row]:
        """Yield the answers, file by file."""
        unknown: set[str] = set()
        parts: list[tuple[Path, bool, str | None]] = [
            (self.clean_undefended, False, None),
            (self.poisoned_undefended, True, None),
        ]
        for name, (clean, poisoned) in self.defended.items():
            parts += [(clean, False, name), (poisoned, True, name)]
        for path, is_poisoned, given in parts:
            try:
                for line, row in read_jsonl(path):
                    entry = Entry(row, path, line)
                    _check_fields(entry, (*FIELDS, *self.ignore), unknown, problems)
                    try:
                        yield self._row(entry, is_poisoned, given)
                    except DataError as error:
                        problems.take(error)
            except DataError as error:
                problems.take(error)

    def notes(self) -> list[str]:
        """Say which of the four answers there are not."""
        return [] if self.defended else ["There are no defended answers: no defense is compared."]

    def file_of(self, place: Place) -> str:
        """Name the file that should hold a condition."""
        _, _, budget, defense = place
        if defense == UNDEFENDED:
            return (self.poisoned_undefended if budget else self.clean_undefended).name
        pair = self.defended.get(defense) or self.defended.get("")
        return pair[1 if budget else 0].name if pair else ""

    def _row(self, entry: Entry, poisoned: bool, name: str | None) -> Row:
        defense = UNDEFENDED
        if name is not None:
            defense = name or entry.optional_text("method") or DEFENSE
            if is_undefended(defense):
                raise entry.error(
                    f"'method' is {defense!r} in a file of defended answers; name the defense"
                )
        return Row(
            path=entry.path,
            line=entry.line,
            query_id=entry.id("query_id"),
            question=entry.text("question"),
            answer=entry.text("answer"),
            references=entry.answers("references"),
            wanted=entry.answers("target"),
            group=entry.id("group_id") if entry.row.get("group_id") is not None else "",
            dataset=self.dataset,
            victim=self.victim,
            attack=self.attack if poisoned else "",
            budget=self.budget if poisoned else 0,
            defense=defense,
            trace=trace_of(entry.row, entry),
        )


def trace_of(row: Mapping[str, Any], entry: Entry) -> dict[str, Json]:
    """Keep what is said of an answer beside the answer: source of its references, metadata.

    Raises
    ------
    DataError
        ``metadata`` is no object, or ``reference_source`` no string.
    """
    trace: dict[str, Json] = {}
    source = Entry(row, entry.path, entry.line).optional_text("reference_source")
    if source:
        trace["reference_source"] = source
    metadata = row.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise entry.error(f"'metadata' must be an object, found {kind_of(metadata)}")
    if metadata:
        trace["metadata"] = metadata
    return trace


def _check_fields(
    entry: Entry, known: tuple[str, ...], reported: set[str], problems: Problems
) -> None:
    """Report each unknown field once, where it first stands."""
    for name in entry.row:
        if name in known or name in reported:
            continue
        reported.add(name)
        close = difflib.get_close_matches(name, FIELDS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        problems.add(
            f"unknown field {name!r:.60}{hint} Put what else there is under 'metadata', or pass "
            f"over it (--ignore)",
            path=entry.path,
            line=entry.line,
        )
