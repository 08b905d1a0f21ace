"""Poison sets as files: one JSON object a line, one line a question, crafted once.

A line says what was crafted for one question, by which attack with which options, seed and
models, at what cost, and how many passages were asked for. It is marked ``"injected": true``.
The keys ``query_id, query, target_answer, correct_answers, method, docs`` are those in which
published attacks release their documents, so every reader of those reads these files too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from ragassay import canon
from ragassay.data.entries import Entry
from ragassay.data.jsonl import read_jsonl
from ragassay.errors import DataError, StoreError
from ragassay.types import Cost, Json, Knowledge, Passage, PoisonSet

VERSION = 1
KIND = "poison"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonLine:
    """The poison of one question, with its provenance.

    Attributes
    ----------
    key : str
        Digest of everything that the texts depend on.
    question : str
        The exact question that is attacked.
    poison : PoisonSet
        What was crafted; fewer passages than ``asked`` where the attack could not deliver.
    asked : int
        Passages asked for.
    references : tuple of str
        Accepted correct answers.
    left_out : tuple of int
        Lengths, in words, of passages that were longer than allowed.
    provenance : mapping
        Attack, options, seed, identities of models, version of ragassay.
    line : int
        Where it stands in its file, from 1; 0 before it is written.
    """

    key: str
    question: str
    poison: PoisonSet
    asked: int
    references: tuple[str, ...] = ()
    left_out: tuple[int, ...] = ()
    provenance: Mapping[str, Json] = field(default_factory=dict)
    line: int = 0


def read_poison(path: str | Path) -> tuple[PoisonLine, ...]:
    """Read a file of poison sets.

    Raises
    ------
    DataError
        The file is damaged or not of this kind, or a question has two lines; the message names
        file, line and value.
    """
    path = Path(path)
    found: dict[str, PoisonLine] = {}
    for line, row in read_jsonl(path):
        each = _line_from(Entry(row, path, line))
        twin = found.get(each.poison.query_id)
        if twin is not None:
            raise DataError(
                f"query {each.poison.query_id!r} already has poison on line {twin.line}; keep "
                "one of them",
                path=path,
                line=line,
            )
        found[each.poison.query_id] = each
    return tuple(found.values())


def is_poison_file(path: str | Path) -> bool:
    """Tell from its first line whether a file holds poison sets in this format."""
    first = next(read_jsonl(Path(path)), None)
    return first is not None and first[1].get("kind") == KIND and "key" in first[1]


def open_for_append(path: str | Path) -> tuple[PoisonLine, ...]:
    """Read what an interrupted command left, and cut off a torn last line.

    Returns
    -------
    tuple of PoisonLine
        Empty where there is no file yet.

    Raises
    ------
    DataError
        The file is damaged elsewhere.
    StoreError
        It cannot be written.
    """
    path = Path(path)
    try:
        with path.open("rb+") as file:
            raw = file.read()
            whole = raw.rfind(b"\n") + 1
            if whole < len(raw):
                file.truncate(whole)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
    return read_poison(path) if whole else ()


def append_poison(path: str | Path, line: PoisonLine) -> None:
    """Write one line at the end of a file, whole or not at all.

    Raises
    ------
    StoreError
        It cannot be written; what was there before stays.
    """
    path = Path(path)
    data = (canon.dumps(_plain(line)) + "\n").encode("utf-8", "surrogatepass")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            before = file.tell()
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(before)
                raise
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error


# --------------------------------------------------------------------------------- internals


def _plain(line: PoisonLine) -> dict[str, Any]:
    poison = line.poison
    row: dict[str, Any] = {
        "v": VERSION,
        "kind": KIND,
        "injected": True,
        "key": line.key,
        "query_id": poison.query_id,
        "query": line.question,
        "target_answer": list(poison.wanted),
        "correct_answers": list(line.references),
        "method": poison.attack,
        "docs": [passage.text for passage in poison.passages],
        "ids": [passage.id for passage in poison.passages],
        "details": list(poison.details),
        "asked": line.asked,
        "delivered": len(poison.passages),
        "left_out": list(line.left_out),
        "knowledge": asdict(poison.knowledge),
        "cost": asdict(poison.cost),
        "provenance": line.provenance,
    }
    if any(passage.title for passage in poison.passages):
        row["titles"] = [passage.title for passage in poison.passages]
    return row


def _line_from(entry: Entry) -> PoisonLine:
    _check_kind(entry)
    docs, ids = entry.strings("docs"), entry.strings("ids")
    titles = entry.strings("titles") if "titles" in entry.row else ("",) * len(docs)
    details = [
        entry.part("details", number, item).row
        for number, item in enumerate(entry.array("details"), start=1)
    ]
    for name, items in (("ids", ids), ("titles", titles)):
        if len(items) != len(docs):
            raise entry.error(f"{len(docs)} docs but {len(items)} {name}")
    if len(details) not in (0, len(docs)):
        raise entry.error(f"{len(docs)} docs but {len(details)} details")
    if len(set(ids)) != len(ids):
        raise entry.error("two docs share an id")
    if entry.row.get("delivered", len(docs)) != len(docs):
        raise entry.error(f"delivered is {entry.row['delivered']!r:.20}, but there are {len(docs)}")
    return PoisonLine(
        key=entry.text("key"),
        question=entry.text("query"),
        asked=entry.position("asked"),
        references=entry.answers("correct_answers"),
        left_out=tuple(int(entry.number(words)) for words in entry.array("left_out")),
        provenance=_part(entry, "provenance").row,
        line=entry.line,
        poison=PoisonSet(
            attack=entry.text("method"),
            attacker=entry.text("method"),
            query_id=entry.id("query_id"),
            wanted=entry.answers("target_answer"),
            passages=tuple(
                Passage(id=i, text=text, title=title)
                for i, text, title in zip(ids, docs, titles, strict=True)
            ),
            details=tuple(details),
            knowledge=_knowledge(_part(entry, "knowledge")),
            cost=_cost(_part(entry, "cost")),
        ),
    )


def _check_kind(entry: Entry) -> None:
    if entry.row.get("kind") != KIND:
        raise entry.error(
            f'not a poison set: "kind" is {entry.row.get("kind")!r:.40}, expected {KIND!r} '
            "(documents released by others are played by the attack 'released')"
        )
    if entry.row.get("v") != VERSION:
        raise entry.error(
            f"version {entry.row.get('v')!r:.20}, this ragassay reads {VERSION}; update it"
        )
    if entry.row.get("injected") is not True:
        raise entry.error('the line is not marked "injected": true, as all poison must be')


def _part(entry: Entry, name: str) -> Entry:
    return entry.part(name, "", entry.row.get(name))


def _knowledge(entry: Entry) -> Knowledge:
    known: dict[str, Any] = {}
    hints = get_type_hints(Knowledge)
    for f in fields(Knowledge):
        value = entry.row.get(f.name)
        allowed = get_args(hints[f.name]) or (True, False)
        if value not in allowed or isinstance(value, bool) is not (allowed == (True, False)):
            raise entry.error(
                f"knowledge.{f.name} is {json.dumps(value)[:40]}, expected one of "
                f"{', '.join(json.dumps(each) for each in allowed)}"
            )
        known[f.name] = value
    return Knowledge(**known)


def _cost(entry: Entry) -> Cost:
    amounts: dict[str, Any] = {}
    for f in fields(Cost):
        if f.name in entry.row:
            value = entry.number(entry.row[f.name])
            if value < 0:
                raise entry.error(f"cost.{f.name} is {value:g}, expected 0 or more")
            amounts[f.name] = value if isinstance(f.default, float) else int(value)
    return Cost(**amounts)
