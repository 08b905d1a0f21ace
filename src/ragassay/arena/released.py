"""The released documents, scores and clean retrievals of PoisonArena on Natural Questions.

Reads a folder of converted files: ``arena-nq.jsonl`` (questions and wrong answers),
``clean-contexts-nq.jsonl``, ``attack-nq-<attacker>.jsonl.gz``, and for paraphrases
``run-nq-serials-contriever.jsonl.gz`` and ``serials-nq-<attacker>.jsonl.gz``.

Source: the public release of "Uncovering Competing Poisoning Attacks in Retrieval-Augmented
Generation". Its GARAG documents want no answer. ContentPoison covers 20 of 100 questions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ragassay.arena.pool import Documents, Position, QueryPool
from ragassay.data.entries import Entry
from ragassay.data.jsonl import nearest, read_jsonl
from ragassay.errors import DataError

# The order of the released code, on which its draws depend.
ATTACKERS = (
    "poisonedrag_white", "poisonedrag_black", "garag", "gaslite", "corpus_poison",
    "content_poison", "advdecoding",
)  # fmt: skip
UNTARGETED = ("garag",)
EVALUATION_PARAPHRASES = 5  # the last of each question's ten; the first are for optimizing

_QUESTIONS = "arena-nq.jsonl"
_CLEAN = "clean-contexts-nq.jsonl"
_CLEAN_PARAPHRASES = "run-nq-serials-contriever.jsonl.gz"

_Sets = dict[str, dict[str, dict[Position, Documents]]]  # query, attacker, position


def data_folder(path: str | Path) -> Path:
    """Find the released files in a folder, or in its subfolder ``poisonarena``.

    Raises
    ------
    DataError
        There is no such folder, or it does not hold them.
    """
    path = Path(path)
    if not path.is_dir():
        what = "is a file, expected a folder" if path.exists() else f"no such folder{nearest(path)}"
        raise DataError(what, path=path)
    for folder in (path, path / "poisonarena"):
        if (folder / _QUESTIONS).is_file():
            return folder
    raise DataError(
        f"not the PoisonArena files: there is no {_QUESTIONS} in it or in its folder poisonarena",
        path=path,
    )


def read_questions(folder: Path) -> list[QueryPool]:
    """Read the 100 questions with what each attacker injects, in released order.

    Raises
    ------
    DataError
        A file is missing or damaged, names an unknown question, or does not fit another.
    """
    questions = _read_answers(folder)
    clean = _read_clean(folder / _CLEAN, set(questions))
    sets: _Sets = {query_id: {} for query_id in questions}
    for attacker in ATTACKERS:
        path = folder / f"attack-nq-{attacker}.jsonl.gz"
        for entry in _entries(path):
            query_id = _known(entry, "query_id", questions)
            position = _position(entry, attacker, questions[query_id])
            _check_method(entry, attacker)
            _put(sets, entry, query_id, attacker, position, _documents(entry))
    return [
        QueryPool(
            query_id=query_id,
            question=entry.text("query"),
            references=entry.answers("correct_answers"),
            answers=entry.strings("incorrect_answers"),
            clean=clean[query_id],
            documents=sets[query_id],
        )
        for query_id, entry in questions.items()
    ]


def read_paraphrases(folder: Path) -> list[QueryPool]:
    """Read the paraphrases, all ten of each question, by number; resampled by question.

    Raises
    ------
    DataError
        As for :func:`read_questions`.
    """
    questions = _read_answers(folder)
    clean = _read_clean(folder / _CLEAN_PARAPHRASES, None)
    sets: _Sets = {query_id: {} for query_id in clean}
    about: dict[str, tuple[str, str]] = {}
    for attacker in ATTACKERS:
        path = folder / f"serials-nq-{attacker}.jsonl.gz"
        for entry in _entries(path):
            base = _known(entry, "base_query_id", questions)
            position = _position(entry, attacker, questions[base])
            _check_method(entry, attacker)
            texts = entry.strings("docs")
            for number, item in enumerate(entry.array("queries"), start=1):
                part = entry.part("queries", number, item)
                query_id = _known(part, "query_id", clean)
                said = base, part.text("query")
                if about.setdefault(query_id, said) != said:
                    raise part.error(
                        f"paraphrase {query_id!r} is another text, or of another question, "
                        "than in an earlier row"
                    )
                _put(sets, part, query_id, attacker, position, _documents(part, texts))
    return [
        QueryPool(
            query_id=query_id,
            question=about[query_id][1],
            references=questions[about[query_id][0]].answers("correct_answers"),
            answers=questions[about[query_id][0]].strings("incorrect_answers"),
            clean=clean[query_id],
            documents=sets[query_id],
            cluster=about[query_id][0],
        )
        for query_id in sorted(about, key=lambda name: (len(name), name))
    ]


def evaluation_half(pools: list[QueryPool]) -> list[QueryPool]:
    """Keep of each question the last five paraphrases, which no attack was optimized for."""
    by_question: dict[str, list[QueryPool]] = {}
    for pool in pools:
        by_question.setdefault(pool.cluster, []).append(pool)
    return [pool for some in by_question.values() for pool in some[-EVALUATION_PARAPHRASES:]]


# --------------------------------------------------------------------------------- internals


def _entries(path: Path) -> Iterator[Entry]:
    for line, row in read_jsonl(path):
        yield Entry(row, path, line)


def _read_answers(folder: Path) -> dict[str, Entry]:
    questions: dict[str, Entry] = {}
    for entry in _entries(folder / _QUESTIONS):
        query_id = entry.id("query_id")
        if query_id in questions:
            raise entry.error(
                f"question {query_id!r} already stands on line {questions[query_id].line}"
            )
        if not entry.strings("incorrect_answers"):
            raise entry.error(f"question {query_id!r} has no 'incorrect_answers'")
        questions[query_id] = entry
    return questions


def _read_clean(path: Path, expected: set[str] | None) -> dict[str, Documents]:
    clean: dict[str, Documents] = {}
    last = 0
    for entry in _entries(path):
        query_id = entry.id("query_id")
        if query_id in clean:
            raise entry.error(f"the retrieval of {query_id!r} stands twice")
        if expected is not None and query_id not in expected:
            raise entry.error(f"question {query_id!r} is not in {_QUESTIONS}")
        documents = _documents(entry, entry.strings("doc_ids"))
        if list(documents.scores) != sorted(documents.scores, reverse=True):
            raise entry.error("'scores' must fall from the best to the last")
        clean[query_id] = documents
        last = entry.line
    missing = sorted((expected or set()) - set(clean))
    if missing:
        raise DataError(
            f"there is no retrieval of {len(missing)} questions, such as {missing[0]!r}",
            path=path,
            line=last,
        )
    return clean


def _documents(entry: Entry, texts: tuple[str, ...] | None = None) -> Documents:
    texts = entry.strings("docs") if texts is None else texts
    scores: list[float] = []
    for item in entry.array("scores"):
        score = entry.number(item)
        if not math.isfinite(score):
            raise entry.error(f"'scores' must be finite numbers, found {item!r:.40}")
        scores.append(score)
    if len(scores) != len(texts):
        raise entry.error(f"found {len(scores)} 'scores' for {len(texts)} documents")
    return Documents(texts, tuple(scores))


def _known(entry: Entry, key: str, known: Any) -> str:
    query_id = entry.id(key)
    if query_id not in known:
        raise entry.error(f"{key!r} {query_id!r:.60} is not among the questions")
    return query_id


def _position(entry: Entry, attacker: str, question: Entry) -> Position:
    if entry.row.get("answer_position") is None:
        if attacker not in UNTARGETED:
            raise entry.error(f"{attacker} needs an 'answer_position', a whole number from 1")
        return None
    if attacker in UNTARGETED:
        raise entry.error(f"{attacker} wants no answer: 'answer_position' must be null")
    position = entry.position("answer_position")
    answers = question.strings("incorrect_answers")
    target = entry.text("target_answer")
    if position > len(answers) or answers[position - 1] != target:
        raise entry.error(
            f"'target_answer' {target!r:.60} is not the incorrect answer {position} on line "
            f"{question.line} of {question.path.name}"
        )
    return position - 1


def _check_method(entry: Entry, attacker: str) -> None:
    method = entry.text("method")
    if method != attacker:
        raise entry.error(f"expected rows of the method {attacker!r}, found {method!r:.60}")


def _put(
    sets: _Sets,
    entry: Entry,
    query_id: str,
    attacker: str,
    position: Position,
    documents: Documents,
) -> None:
    mine = sets[query_id].setdefault(attacker, {})
    if position in mine:
        raise entry.error(f"documents of {attacker} for {query_id!r} and this answer stand twice")
    mine[position] = documents
