"""What a profile and the rungs of a ladder read: poison passages and clean texts.

A poison passage carries what is needed to edit it and to check the edit: its question, the
attacker's answer, the correct answers, and the payload, the part that argues for the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ragassay.data.entries import Entry
from ragassay.data.jsonl import nearest, read_jsonl
from ragassay.data.poison_check import read_texts
from ragassay.errors import ConfigError, DataError
from ragassay.types import PoisonSet

Join = Callable[[str, str], str]
"""Joins a question and a text that argues for an answer into a passage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonText:
    """One poison passage.

    Attributes
    ----------
    query_id, question : str
        The question that it attacks; ``question`` may be empty where nobody said it.
    text : str
        The passage as it is injected.
    number : int
        Its place among the passages of the question, from 0.
    wanted, references : tuple of str
        The attacker's answer with its aliases; correct answers.
    payload : str
        The part that argues for the answer, where the attack names it; else empty.
    cluster : str
        What it is resampled with: the question, or the first of several questions that share
        their passages; the question's id if empty.
    """

    query_id: str
    question: str
    text: str
    number: int = 0
    wanted: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    payload: str = ""
    cluster: str = ""

    @property
    def group(self) -> str:
        """The label to resample by."""
        return self.cluster or self.query_id


class CleanText(NamedTuple):
    """A clean passage; ``id`` tells what was retrieved."""

    id: str
    text: str


def poison_texts(
    poison: PoisonSet, question: str, references: Sequence[str] = ()
) -> tuple[PoisonText, ...]:
    """Take the passages of a crafted set, with the payload that its details name."""
    details = poison.details or ({},) * len(poison.passages)
    payloads = [detail.get("payload") for detail in details]
    return tuple(
        PoisonText(
            query_id=poison.query_id,
            question=question,
            text=passage.text,
            number=number,
            wanted=poison.wanted,
            references=tuple(references),
            payload=payload if isinstance(payload, str) else "",
        )
        for number, (passage, payload) in enumerate(zip(poison.passages, payloads, strict=True))
    )


def read_poison_texts(
    path: str | Path, *, questions: Mapping[str, str] | None = None, join: Join | None = None
) -> dict[str, tuple[PoisonText, ...]]:
    """Read poison in any known layout, by the name of its attack (empty where there is none).

    Parameters
    ----------
    path : str or Path
        A file of ``ragassay attack``, or as published attacks release theirs.
    questions : mapping of str to str, optional
        Questions by id, for layouts that do not repeat them.
    join : callable, optional
        Puts the question to texts that were released without it; texts that are whole passages
        stay as they are.

    Raises
    ------
    DataError
        The file is damaged or of no known layout, or holds no passage.
    ConfigError
        ``join`` is given, and all texts are whole passages already.
    """
    path = Path(path)
    known = questions or {}
    sets: dict[str, tuple[PoisonText, ...]] = {}
    joined = 0
    for name, members in read_texts(path).items():
        found: list[PoisonText] = []
        shared: dict[tuple[str, ...], str] = {}
        for each in members:
            target = each.target
            question = target.question or known.get(target.query_id, "")
            cluster = shared.setdefault(target.texts, target.query_id)
            adds = join if join is not None and question and not target.complete else None
            joined += adds is not None
            found += [
                PoisonText(
                    query_id=target.query_id,
                    question=question,
                    text=text if adds is None else adds(question, text),
                    number=number,
                    wanted=target.wanted,
                    references=target.references,
                    payload="" if adds is None else text,
                    cluster=cluster,
                )
                for number, text in enumerate(target.texts)
            ]
        sets[name] = tuple(found)
    if not any(sets.values()):
        raise DataError("holds no poison passage", path=path)
    if join is not None and not joined:
        raise ConfigError(
            f"{path}: nothing to join, the texts are whole passages or their questions are "
            "not known"
        )
    return sets


def read_clean_texts(path: str | Path) -> tuple[CleanText, ...]:
    """Read clean passages: JSON lines with a ``text``, or a folder with ``corpus.jsonl``.

    Titles do not count: poison has none. An id may be ``_id`` or ``id``; without one, passages
    are numbered by their lines.

    Raises
    ------
    DataError
        The file is missing or damaged, or a line has no text.
    """
    path = Path(path)
    return tuple(_clean(_corpus_file(path) if path.is_dir() else path))


def with_text(poison: PoisonText, text: str) -> PoisonText:
    """The same passage with another text."""
    return replace(poison, text=text)


# --------------------------------------------------------------------------------- internals


def _clean(path: Path) -> Iterator[CleanText]:
    for line, row in read_jsonl(path):
        entry = Entry(row, path, line)
        key = next((name for name in ("_id", "id") if name in row), "")
        yield CleanText(entry.id(key) if key else str(line), entry.text("text"))


def _corpus_file(folder: Path) -> Path:
    for name in ("corpus.jsonl", "corpus.jsonl.gz"):
        if (folder / name).is_file():
            return folder / name
    raise DataError(
        f"the folder has no corpus.jsonl or corpus.jsonl.gz{nearest(folder / 'corpus.jsonl')}",
        path=folder,
    )
