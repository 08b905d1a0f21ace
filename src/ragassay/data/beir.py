"""A data set in the BEIR layout: corpus, queries, relevance, and the attacker's targets.

``corpus.jsonl`` holds ``{_id, title, text}``, ``queries.jsonl`` ``{_id, text, metadata}`` and
``qrels/<split>.tsv`` rows of query id, passage id and score. Targets may be in any layout of
:mod:`ragassay.data.released`. Everything is checked on reading: a row that points nowhere, an
id used twice or a text that is no text stops the run before a model is asked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from ragassay.data.assembly import Parts, Question, Selection, assemble, listed
from ragassay.data.corpus_file import CorpusFile, cache_folder, ids_of, passage_of
from ragassay.data.entries import Entry
from ragassay.data.jsonl import existing_file, is_gzip, nearest, read_jsonl, read_tsv
from ragassay.data.released import read_targets
from ragassay.errors import ConfigError, DataError
from ragassay.types import Dataset, Passage

Reading = Literal["auto", "memory", "disk"]

_PLAIN_BYTES = 2**28
_GZIP_RATIO = 4
REFERENCE_FIELDS = ("references", "correct_answers", "answers", "expanded_answers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beir:
    """A folder in the BEIR layout, with targets in any released format.

    Parameters
    ----------
    path : str
        The folder.
    queries, corpus : str
        Other file names than ``queries.jsonl`` and ``corpus.jsonl`` (or ``.jsonl.gz``). All
        file names are looked for in the folder first, then from the current folder.
    qrels : str
        Relevance; by default the only file in ``qrels/``, else its ``test.tsv``, else none.
    targets : str
        What the attacker wants; by default ``targets.jsonl`` if there is one, else nothing.
    group_size : int
        Questions per injection group, where the questions do not name their group.
    limit : int
        Use the targets of the first n targeted questions only; 0 uses all.
    groups : tuple of str
        Use the targets of these groups only.
    target : int
        Which target of a question is used, from 1, where the file offers several.
    reference_fields : tuple of str
        Keys of a query's metadata that hold accepted answers.
    name : str
        Name of the data set; the folder's name if empty.
    reading : {"auto", "memory", "disk"}
        Whether the corpus is read into memory, or stays on disk and passages are read from it
        when they are needed; "auto" leaves files of more than 256 MiB on disk (64 MiB where
        they are compressed). Cannot change a result.
    """

    path: str
    queries: str = ""
    corpus: str = ""
    qrels: str = ""
    targets: str = ""
    group_size: int = 10
    limit: int = 0
    groups: tuple[str, ...] = ()
    target: int = 1
    reference_fields: tuple[str, ...] = REFERENCE_FIELDS
    name: str = ""
    reading: Reading = field(default="auto", metadata={"identity": False})

    version: ClassVar[str] = "1"

    def __post_init__(self) -> None:
        if not self.path:
            raise ConfigError("path is empty: name the folder of the data set")
        self._selection()

    def _selection(self) -> Selection:
        return Selection(
            groups=self.groups, limit=self.limit, target=self.target, group_size=self.group_size
        )

    def load(self) -> Dataset:
        """Read and validate the folder.

        Raises
        ------
        ConfigError
            ``groups`` or ``target`` names what the data do not have.
        DataError
            A file is missing, damaged or contradicts another one.
        """
        return assemble(self.parts(), self._selection())

    def parts(self) -> Parts:
        """Read all files, before groups are formed and targets selected."""
        folder = Path(self.path)
        if not folder.is_dir():
            reason = "is a file, expected a folder" if folder.exists() else "no such folder"
            raise DataError(reason + ("" if folder.exists() else nearest(folder)), path=folder)
        corpus = open_corpus(_named_or_found(folder, self.corpus, "corpus.jsonl"), self.reading)
        questions = read_questions(
            _named_or_found(folder, self.queries, "queries.jsonl"), self.reference_fields
        )
        qrels = _resolved(folder, self.qrels) if self.qrels else _qrels_file(folder)
        targets = _resolved(folder, self.targets) if self.targets else _optional_targets(folder)
        return Parts(
            name=self.name or folder.resolve().name,
            corpus=corpus,
            questions=questions,
            gold=None if qrels is None else read_qrels(qrels, questions, corpus),
            released=() if targets is None else read_targets(targets),
            targets_path=targets,
        )


def open_corpus(path: Path, reading: Reading = "auto") -> Sequence[Passage]:
    """Read a corpus into memory, or open it on disk where it is large.

    Raises
    ------
    DataError
        As for :func:`read_corpus`.
    StoreError
        The index of a large file cannot be kept in the cache.
    """
    if reading == "auto":
        most = _PLAIN_BYTES // (_GZIP_RATIO if is_gzip(existing_file(path)) else 1)
        reading = "disk" if path.stat().st_size > most else "memory"
    return CorpusFile(path, cache_folder()) if reading == "disk" else read_corpus(path)


def read_corpus(path: Path) -> tuple[Passage, ...]:
    """Read passages ``{_id, title, text}`` into memory; a missing title is empty.

    Raises
    ------
    DataError
        A key is missing or of the wrong type, an id occurs twice, or all texts are empty.
    """
    lines: dict[str, int] = {}
    passages = []
    for line, row in read_jsonl(path):
        entry = Entry(row, path, line)
        _new_id(entry, lines)
        passages.append(passage_of(entry))
    if not any(passage.text.strip() for passage in passages):
        raise DataError(f"all {len(passages)} passages are empty", path=path)
    return tuple(passages)


def read_questions(
    path: Path, reference_fields: Sequence[str] = REFERENCE_FIELDS
) -> tuple[Question, ...]:
    """Read questions ``{_id, text, metadata}``; accepted answers stand in the metadata.

    Raises
    ------
    DataError
        A key is missing or of the wrong type, a question is empty, or an id occurs twice.
    """
    lines: dict[str, int] = {}
    questions = []
    for line, row in read_jsonl(path):
        entry = Entry(row, path, line)
        key, text = _new_id(entry, lines), entry.text("text")
        if not text.strip():
            raise entry.error(f"the question {key!r} is empty")
        facts = row.get("metadata")
        about = entry.part("metadata of query", key, {} if facts is None else facts)
        references = [answer for name in reference_fields for answer in about.answers(name)]
        questions.append(
            Question(
                id=key,
                text=text,
                references=tuple(references),
                group=about.id("group") if "group" in about.row else "",
                metadata=about.row,
            )
        )
    return tuple(questions)


def read_qrels(
    path: Path, questions: Sequence[Question], corpus: Sequence[Passage]
) -> dict[str, tuple[str, ...]]:
    """Read the ids of the relevant passages (score above 0) of each question.

    Raises
    ------
    DataError
        A row is malformed, names an unknown question or passage, or contradicts another.
    """
    query_ids = {question.id for question in questions}
    passage_ids = ids_of(corpus)
    scores: dict[tuple[str, str], float] = {}
    dangling = []
    for line, fields in read_tsv(path):
        if len(fields) != 3:
            raise DataError(
                f"expected 3 columns (query-id, corpus-id, score), found {len(fields)}",
                path=path,
                line=line,
            )
        pair, score = (fields[0], fields[1]), _score(fields[2])
        if score is None:
            if line == 1:  # the header
                continue
            raise DataError(f"score {fields[2]!r:.40} is not a number", path=path, line=line)
        if pair[0] not in query_ids:
            dangling.append(f"query {pair[0]!r} (line {line})")
        if pair[1] not in passage_ids:
            dangling.append(f"passage {pair[1]!r} (line {line})")
        if scores.setdefault(pair, score) != score:
            raise DataError(
                f"query {pair[0]!r}, passage {pair[1]!r} has both score {scores[pair]:g} "
                f"and {score:g}",
                path=path,
                line=line,
            )
    if dangling:
        raise DataError(f"{len(dangling)} unknown ids: {listed(dangling)}", path=path)
    gold: dict[str, list[str]] = {}
    for (query_id, passage_id), score in scores.items():
        if score > 0:
            gold.setdefault(query_id, []).append(passage_id)
    return {query_id: tuple(ids) for query_id, ids in gold.items()}


# --------------------------------------------------------------------------------- internals


def _new_id(entry: Entry, lines: dict[str, int]) -> str:
    key = entry.id("_id")
    first = lines.setdefault(key, entry.line)
    if first != entry.line:
        raise entry.error(f"id {key!r} was already used on line {first}")
    return key


def _score(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _resolved(folder: Path, given: str) -> Path:
    inside = folder / given  # an absolute path stays as it is
    return inside if inside.exists() or not Path(given).exists() else Path(given)


def _found(folder: Path, file: str) -> Path | None:
    present = [path for path in (folder / file, folder / f"{file}.gz") if path.exists()]
    if len(present) == 2:
        raise DataError(f"holds both {file} and {file}.gz; keep one or name one", path=folder)
    return present[0] if present else None


def _named_or_found(folder: Path, given: str, file: str) -> Path:
    if given:
        return _resolved(folder, given)
    path = _found(folder, file)
    if path is None:
        raise DataError(
            f"the folder has no {file} or {file}.gz{nearest(folder / file)}", path=folder
        )
    return path


def _optional_targets(folder: Path) -> Path | None:
    return _found(folder, "targets.jsonl")


def _qrels_file(folder: Path) -> Path | None:
    files = sorted(
        path for path in (folder / "qrels").glob("*") if path.name.endswith((".tsv", ".tsv.gz"))
    )
    if len(files) <= 1:
        return files[0] if files else None
    tests = [path for path in files if path.name in ("test.tsv", "test.tsv.gz")]
    if len(tests) == 1:
        return tests[0]
    raise DataError(
        f"holds {listed([path.name for path in files])}: say which with qrels = 'qrels/...'",
        path=folder / "qrels",
    )
