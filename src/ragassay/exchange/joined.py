"""The joined records of the Aligned RAG Evaluation harness: answers by content hash.

Source: "Prevented is not protected", released harness and factorial evaluation, kinds
``external_four_condition_records`` and ``factorial_records``. An output's key is the SHA-256
of its canonical JSON, and so is the ``sha256`` of the whole, over everything but itself.

Deviations: removal controls are kept in the trace of the undefended poisoned answer and the
held-out utility answers are counted; neither is analyzed. A text with a lone surrogate has no
hash in that format and is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragassay.data.entries import Entry, kind_of
from ragassay.data.jsonl import read_json_entries
from ragassay.errors import DataError
from ragassay.exchange.four import DEFENSE, trace_of
from ragassay.exchange.rows import (
    CONDITIONS,
    UNDEFENDED,
    Place,
    Problems,
    Row,
    checked_attack,
    is_undefended,
)
from ragassay.types import Json

KINDS = ("external_four_condition_records", "factorial_records")
NO_SETTING = "external_jsonl"
_STRATA = ("occupancy", "support_presence", "co_retrieved", "support_semantics")
_SURROGATE = "a lone surrogate, which has no hash in this format"
_CELL = re.compile(r"(.+?)(?:[_\-. ]p?=?)?(\d{1,6})", re.DOTALL)


@dataclass(kw_only=True)
class Joined:
    """A file of joined records. ``attack`` and ``budget`` hold where a record names no cell."""

    path: Path
    attack: str = "attack"
    budget: int = 1
    victim: str = ""
    dataset: str = ""
    _document: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    _wrong: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    layout = "joined"
    complete = True

    def __post_init__(self) -> None:
        checked_attack(self.attack, self.budget)

    @property
    def files(self) -> tuple[Path, ...]:
        """The file that is read."""
        return (self.path,)

    @property
    def details(self) -> dict[str, Json]:
        """What the file says of itself."""
        known = ("kind", "version", "setting_id", "sha256")
        return {k: v for k in known if isinstance(v := self._document.get(k), str)}

    def rows(self, problems: Problems) -> Iterator[Row]:
        """Yield the answers, record by record; an answer that several records share, once."""
        try:
            records = self._load()
        except DataError as error:
            problems.take(error)
            return
        shared: dict[tuple[Any, ...], str] = {}
        used: set[str] = set()
        for number, record in enumerate(records, start=1):
            if not isinstance(record, dict):
                problems.add(f"must be an object, found {kind_of(record)}",
                             path=self.path, record=f"record {number}")  # fmt: skip
                continue
            where = f"record {number} (id {record.get('id')!r:.60})"
            try:
                yield from self._record(record, where, shared, used, problems)
            except DataError as error:
                problems.take(error)
        for key in self._wrong.keys() - used:
            problems.add(f"output {key[:12]}: {self._wrong[key]}", path=self.path)

    def notes(self) -> list[str]:
        """Say what of the file is not used."""
        records = [r for r in self._document.get("records", ()) if isinstance(r, dict)]
        lanes = Counter(lane for record in records for lane in record.get("controls") or ())
        found = []
        if lanes:
            listed = ", ".join(f"{lane} {count:,}" for lane, count in sorted(lanes.items()))
            found.append(f"Removal controls are kept in the traces and not analyzed: {listed}.")
        utility = self._document.get("utility")
        if isinstance(utility, list) and utility:
            found.append(f"{len(utility):,} held-out utility pairs are not imported: not used yet.")
        return found

    def file_of(self, place: Place) -> str:
        """All conditions are in one file."""
        return ""

    def _load(self) -> list[Any]:
        if not self._document:
            self._read()
        records = self._list("records")
        if not records:
            raise DataError("'records' is empty, expected a list of records", path=self.path)
        return records

    def _read(self) -> None:
        document = {key: value for _, key, value in read_json_entries(self.path)}
        kind = document.get("kind")
        if kind not in KINDS:
            raise DataError(
                f"'kind' is {kind!r:.60}, expected one of {', '.join(KINDS)}", path=self.path
            )
        seal = document.get("sha256")
        if seal is not None:
            bare = {key: value for key, value in document.items() if key != "sha256"}
            try:
                sealed = fingerprint(bare)
            except UnicodeEncodeError as error:
                raise DataError(f"the file holds {_SURROGATE}", path=self.path) from error
            if sealed != seal:
                raise DataError(
                    "the file was changed after it was sealed: its content does not have the "
                    f"'sha256' {seal!r:.20} that it names; take the original",
                    path=self.path,
                )
        self._document = document
        for key, item in self._mapping("outputs").items():
            try:
                if fingerprint(item) != key:
                    self._wrong[key] = "the content does not have the hash that it stands under"
            except UnicodeEncodeError:
                self._wrong[key] = f"it holds {_SURROGATE}"

    def _mapping(self, name: str) -> Mapping[str, Any]:
        value = self._document.get(name)
        if not isinstance(value, dict):
            raise DataError(f"{name!r} must be an object, found {kind_of(value)}", path=self.path)
        return value

    def _list(self, name: str) -> list[Any]:
        value = self._document.get(name)
        if not isinstance(value, list):
            raise DataError(f"{name!r} must be an array, found {kind_of(value)}", path=self.path)
        return value

    def _record(
        self,
        record: dict[str, Any],
        where: str,
        shared: dict[tuple[Any, ...], str],
        used: set[str],
        problems: Problems,
    ) -> Iterator[Row]:
        entry = Entry(record, self.path, 0)
        query_id = self._named(entry, "id", where)
        method = record.get("method") or self._document.get("method") or DEFENSE
        if not isinstance(method, str):
            raise self._error(where, f"'method' must be a string, found {kind_of(method)}")
        undefended = is_undefended(method)
        attack, budget = self._cell(record.get("cell"))
        conditions = record.get("conditions")
        if not isinstance(conditions, dict):
            raise self._error(where, f"'conditions' must be an object, found {kind_of(conditions)}")
        for name in conditions.keys() - set(CONDITIONS):
            problems.add(f"unknown condition {name!r:.60}", path=self.path, record=where)
        for name in CONDITIONS:
            if name not in conditions:
                continue
            used.add(str(conditions[name]))
            if undefended and name.endswith("_defended"):
                continue  # the undefended system once more
            item = self._output(conditions[name], name, where)
            poisoned = name.startswith("poisoned")
            place = (query_id, *((attack, budget) if poisoned else ("", 0)))
            if name != "poisoned_defended":  # the others stand in several records
                system = UNDEFENDED if name.endswith("_undefended") else method
                first = shared.get((*place, system))
                if first == conditions[name]:
                    continue
                if first is not None:
                    raise self._error(
                        where, f"{name} is not the answer that another record of this query has"
                    )
                shared[(*place, system)] = conditions[name]
            yield self._row(entry, item, where, place, name, method)

    def _row(
        self,
        entry: Entry,
        item: Mapping[str, Any],
        where: str,
        place: tuple[Any, ...],
        condition: str,
        method: str,
    ) -> Row:
        query_id, attack, budget = place
        output = Entry(item, self.path, 0)
        try:
            question, answer = output.text("question"), output.text("answer")
            wanted, references = output.answers("target"), output.answers("references")
            given = entry.row.get("metadata")
            metadata = given
            if isinstance(given, dict) and given and given.keys() <= set(CONDITIONS):
                metadata = given.get(condition)
            trace = trace_of({**item, "metadata": metadata}, output)
        except DataError as error:
            raise self._error(where, f"{condition}: {self._said(error)}") from error
        if entry.row.get("query") not in (None, question):
            raise self._error(where, f"'query' and the question of its answer {condition} differ")
        if condition == "poisoned_undefended":
            trace.update(self._strata(entry.row, where))
        group = entry.row.get("group_id")
        axes = self._document.get("axes")
        axes = axes if isinstance(axes, dict) else {}
        setting = str(self._document.get("setting_id") or "")
        return Row(
            path=self.path,
            line=0,
            record=where,
            query_id=query_id,
            question=question,
            answer=answer,
            references=references,
            wanted=wanted,
            group="" if group is None else self._named(entry, "group_id", where),
            dataset=self.dataset or _name(axes.get("dataset")),
            victim=self.victim or _name(axes.get("victim")),
            setting="" if setting == NO_SETTING else setting,
            attack=attack,
            budget=budget,
            defense=UNDEFENDED if condition.endswith("_undefended") else method,
            trace=trace,
        )

    def _strata(self, record: Mapping[str, Any], where: str) -> dict[str, Json]:
        trace: dict[str, Json] = {k: record[k] for k in _STRATA if record.get(k) is not None}
        controls = record.get("controls")
        if isinstance(controls, dict) and controls:
            trace["controls"] = {
                lane: self._output(key, f"control {lane}", where).get("answer")
                for lane, key in controls.items()
            }
        return trace

    def _output(self, key: Any, name: str, where: str) -> Mapping[str, Any]:
        item = self._mapping("outputs").get(key) if isinstance(key, str) else None
        if not isinstance(item, dict):
            raise self._error(where, f"{name} names the output {key!r:.20}, which is not there")
        if key in self._wrong:
            raise self._error(where, f"{name}, output {key[:12]}: {self._wrong[key]}")
        return item

    def _cell(self, cell: Any) -> tuple[str, int]:
        return (self.attack, self.budget) if cell is None else split_cell(str(cell))

    def _named(self, entry: Entry, name: str, where: str) -> str:
        try:
            return entry.id(name)
        except DataError as error:
            raise self._error(where, self._said(error)) from error

    def _said(self, error: DataError) -> str:
        return str(error).removeprefix(f"{self.path}:0: ")

    def _error(self, where: str, message: str) -> DataError:
        return DataError(f"{where}: {message}", path=self.path)


def fingerprint(value: Any) -> str:
    """Hash as the harness does.

    Raises
    ------
    UnicodeEncodeError
        A text holds a lone surrogate.

    Examples
    --------
    >>> fingerprint({"b": 1, "a": "é"}) == fingerprint({"a": "é", "b": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def split_cell(cell: str) -> tuple[str, int]:
    """Read attack and budget from the name of a cell.

    Examples
    --------
    >>> split_cell("poisonedrag_p5"), split_cell("hotpot-3"), split_cell("strong")
    (('poisonedrag', 5), ('hotpot', 3), ('strong', 1))
    """
    match = _CELL.fullmatch(cell)
    if match and int(match[2]):
        return match[1], int(match[2])
    return cell, 1


def _name(value: Any) -> str:
    """Read a name from a string, or from an object that has a ``model`` or a ``name``."""
    if isinstance(value, dict):
        value = value.get("model") or value.get("name")
    return value if isinstance(value, str) else ""
