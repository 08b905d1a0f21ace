"""One's own questions with their answers, a row each: CSV or JSON lines.

Columns are found by their usual names (``question``, ``answer``, ``id``, ``group``) or named.
Targets come from a file of their own, such as ``ragassay data targets`` writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ragassay.data.assembly import Parts, Question, Selection, assemble
from ragassay.data.beir import read_corpus
from ragassay.data.delimited import read_delimited
from ragassay.data.entries import Entry
from ragassay.data.jsonl import is_json_lines, read_jsonl
from ragassay.data.released import read_targets
from ragassay.errors import ConfigError, DataError
from ragassay.types import Dataset

QUESTION = ("question", "query", "text", "input")
ANSWER = ("answer", "answers", "references", "reference", "expected", "ground_truth", "output")
ID = ("id", "_id", "query_id", "question_id")
GROUP = ("group", "group_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """A CSV or JSON-lines file of questions and their right answers.

    Parameters
    ----------
    path : str
        The file: ``.csv``, ``.tsv`` or ``.jsonl``, plain or gzip.
    question, answer, id, group : str
        Its columns, where they have other than the usual names. An answer may be a list, or in
        a CSV cell a JSON list. Without ids the rows are numbered: ``row-1``, ``row-2``, ...
    separator : str
        Separates several right answers within a cell; empty: a cell is one answer.
    corpus : str
        Passages, as JSON lines ``{_id, title, text}``; empty: the system has its own.
    targets : str
        The attacker's answers, in any released layout; empty: none yet.
    group_size : int
        Questions per injection group, where the rows do not name theirs.
    limit : int
        Use the targets of the first n targeted questions only; 0 uses all.
    name : str
        Name of the data set; the file's name without ending if empty.
    """

    path: str
    question: str = ""
    answer: str = ""
    id: str = ""
    group: str = ""
    separator: str = ""
    corpus: str = ""
    targets: str = ""
    group_size: int = 10
    limit: int = 0
    name: str = ""

    version: ClassVar[str] = "1"

    def __post_init__(self) -> None:
        if not self.path:
            raise ConfigError("path is empty: name the file of questions and answers")
        Selection(limit=self.limit, group_size=self.group_size)

    def load(self) -> Dataset:
        """Read and check the files.

        Raises
        ------
        DataError
            A file is missing or damaged, a column is not there, a question is empty, an id
            occurs twice, or there is no row.
        """
        path = Path(self.path)
        columns = {"question": self.question, "answer": self.answer, "id": self.id,
                   "group": self.group}  # fmt: skip
        questions = read_pairs(path, columns, self.separator)
        beside = path.parent
        targets = found_beside(beside, self.targets) if self.targets else None
        corpus = read_corpus(found_beside(beside, self.corpus)) if self.corpus else ()
        return assemble(
            Parts(
                name=self.name or path.name.partition(".")[0],
                corpus=corpus,
                questions=questions,
                released=() if targets is None else read_targets(targets),
                targets_path=targets,
            ),
            Selection(limit=self.limit, group_size=self.group_size),
        )


def found_beside(folder: Path, name: str) -> Path:
    """A file that is named relative to another one's folder, or else to the current one."""
    beside = folder / name
    return beside if beside.exists() else Path(name)


def read_pairs(
    path: Path, columns: Mapping[str, str] | None = None, separator: str = ""
) -> tuple[Question, ...]:
    """Read questions with their right answers.

    Parameters
    ----------
    path : Path
        CSV, TSV or JSON lines.
    columns : mapping, optional
        Names of the columns ``question``, ``answer``, ``id`` and ``group``; empty names are
        looked for.
    separator : str
        Separates several answers within a cell.

    Raises
    ------
    DataError
        As for :meth:`Pairs.load`.
    """
    given = dict(columns or {})
    found: list[Question] = []
    lines: dict[str, int] = {}
    names: dict[str, str] = {}
    for number, (line, row) in enumerate(_rows(path), start=1):
        if not names:
            names = _columns(row, given, path, line)
        entry = Entry(row, path, line)
        text = entry.text(names["question"]).strip()
        if not text:
            raise entry.error(f"the question ({names['question']!r}) is empty")
        name = entry.id(names["id"]) if "id" in names else f"row-{number}"
        if name in lines:
            raise entry.error(f"the id {name!r:.60} was used on line {lines[name]}")
        lines[name] = line
        group = str(row.get(names["group"]) or "").strip() if "group" in names else ""
        answers = _answers(entry, names["answer"], separator)
        found.append(Question(id=name, text=text, references=answers, group=group))
    if not found:
        raise DataError("the file holds no question", path=path)
    return tuple(found)


class _Refuse:
    """Takes the first row that cannot be used as an error."""

    def add(self, message: str, *, path: Path | None = None, line: int = 0) -> None:
        """Raise it."""
        raise DataError(message, path=path, line=line or None)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if is_json_lines(path):
        return read_jsonl(path)
    if path.name.removesuffix(".gz").casefold().endswith((".csv", ".tsv")):
        return read_delimited(path, _Refuse())
    raise DataError("the name tells no format; call it .csv, .tsv or .jsonl", path=path)


def _columns(
    row: Mapping[str, Any], given: Mapping[str, str], path: Path, line: int
) -> dict[str, str]:
    simple = {name.strip().casefold(): name for name in reversed(list(row))}
    found: dict[str, str] = {}
    for field, usual in (("question", QUESTION), ("answer", ANSWER), ("id", ID), ("group", GROUP)):
        named = given.get(field, "")
        if named and named not in row:
            raise DataError(
                f"there is no column {named!r} ({field} = {named!r}); found: {_listed(row)}",
                path=path, line=line,
            )  # fmt: skip
        match = named or next((simple[name] for name in usual if name in simple), "")
        if match:
            found[field] = match
        elif field in ("question", "answer"):
            raise DataError(
                f"no column for the {field}; name it ({field} = ...). Found: {_listed(row)}",
                path=path, line=line,
            )  # fmt: skip
    return found


def _listed(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name:.40}" for name in list(row)[:20])


def _answers(entry: Entry, name: str, separator: str) -> tuple[str, ...]:
    value = entry.row.get(name)
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            items = json.loads(value)
        except ValueError:
            items = None
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            return _distinct(items)
    if isinstance(value, str):
        return _distinct(value.split(separator) if separator else [value])
    return _distinct(entry.answers(name))


def _distinct(parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
