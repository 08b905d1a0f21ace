"""Readers of the formats in which published attacks release their targets and texts.

The layout is recognized from the keys of the first entry, and all entries must have it.
Texts stay as released, damaged encoding included (``ragassay data check`` reports it).

Source: the files released with PoisonedRAG (Zou et al., USENIX Security 2025; adv_texts),
PoisonArena (single-attack rows and the arena's eight wrong answers per question) and
RobustRAG (Xiang et al., 2024; incorrect_context), and their conversions to JSON lines.

Deviations: PoisonedRAG, RobustRAG and the arena release only the part that argues for the
answer, so those texts are marked as incomplete; an attack that needs a retrieval part must
add it. PoisonArena's single-attack rows are whole passages. Where PoisonArena gives the
position of the wrong answer only in the file name, it is read as target 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ragassay.data.assembly import Parts, Question, ReleasedTarget, Selection, assemble
from ragassay.data.entries import Entry
from ragassay.data.jsonl import existing_file, is_json_lines, read_json_entries, read_jsonl
from ragassay.data.layouts import ROBUSTRAG, Layout, layout_of
from ragassay.errors import ConfigError, DataError
from ragassay.types import Dataset, Passage

__all__ = ["ReleasedTarget", "RobustRAGRelease", "read_targets"]


def read_targets(path: str | Path) -> tuple[ReleasedTarget, ...]:
    """Read targets and texts in any of the known layouts.

    =====================  =========================================================
    targets                ``query_id, query, correct_answers, incorrect_answers,
                           poison_passages``
    native                 ``query_id, target, wanted, texts``
    attack                 ``query_id, query, target_answer, correct_answers, method,
                           answer_position, docs, scores``
    arena                  ``query_id, query, correct_answers, incorrect_answers,
                           adv_docs``
    PoisonedRAG            ``id, question, correct answer, incorrect answer, adv_texts``
    PoisonArena attack     ``id, question, answer, incorrect_answer, adv_texts``
    PoisonArena arena      ``id, question, correct answer, all_adv_docs``
    RobustRAG              ``question, correct answer, incorrect answer,
                           incorrect_context, context``
    =====================  =========================================================

    Parameters
    ----------
    path : str or Path
        JSON lines, or one JSON array, or one JSON object keyed by query id; plain or gzip.

    Returns
    -------
    tuple of ReleasedTarget
        In file order; an arena entry gives one per wrong answer.

    Raises
    ------
    DataError
        The file is damaged, its layout is unknown, or entries differ in layout.
    """
    path = Path(path)
    found: list[ReleasedTarget] = []
    first: Layout | None = None
    for entry in _entries(path):
        layout = layout_of(entry)
        first = first or layout
        if layout is not first:
            raise entry.error(
                f"mixed layouts: this entry is of the layout {layout.name!r}, the first of "
                f"{first.name!r}"
            )
        found.extend(layout.read(entry))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustRAGRelease:
    """A JSON file in RobustRAG's layout, as a whole data set with its search results as corpus.

    The search results of all questions are put together and identical pairs of title and
    text merged; a result without a text is left out, as RobustRAG does. Entries without an
    ``id`` are numbered from 0. No relevance is annotated.

    Parameters
    ----------
    path : str
        The JSON file (realtimeqa.json, open_nq.json, ...).
    group_size : int
        Questions per injection group.
    limit : int
        Use the targets of the first n questions only; 0 uses all.
    name : str
        Name of the data set; the file's name without ending if empty.
    """

    path: str
    group_size: int = 10
    limit: int = 0
    name: str = ""

    version: ClassVar[str] = "1"

    def __post_init__(self) -> None:
        if not self.path:
            raise ConfigError("path is empty: name the JSON file in RobustRAG's layout")
        self._selection()

    def _selection(self) -> Selection:
        return Selection(limit=self.limit, group_size=self.group_size)

    def load(self) -> Dataset:
        """Read the file.

        Raises
        ------
        DataError
            It is damaged or not in RobustRAG's layout, or an id occurs twice.
        """
        path = Path(self.path)
        released: dict[str, ReleasedTarget] = {}
        questions: list[Question] = []
        passages: dict[tuple[str, str], None] = {}
        for entry in _entries(path):
            if layout_of(entry) is not ROBUSTRAG:
                raise entry.error(f"not in RobustRAG's layout: {ROBUSTRAG.keys}")
            (target,) = ROBUSTRAG.read(entry)
            twin = released.get(target.query_id)
            if twin is not None:
                raise entry.error(f"id {target.query_id!r} was already used on line {twin.line}")
            released[target.query_id] = target
            questions.append(_question(entry, target))
            passages.update(dict.fromkeys(_search_results(entry)))
        if not any(text.strip() for _, text in passages):
            raise DataError(f"all {len(passages)} passages are empty", path=path)
        parts = Parts(
            name=self.name or path.name.removesuffix(".gz").rsplit(".", 1)[0],
            corpus=tuple(
                Passage(id=f"p{number}", title=title, text=text)
                for number, (title, text) in enumerate(passages)
            ),
            questions=tuple(questions),
            released=tuple(target for target in released.values() if target.wanted),
            targets_path=path,
        )
        return assemble(parts, self._selection())


# --------------------------------------------------------------------------------- internals


def _entries(path: Path) -> Iterator[Entry]:
    existing_file(path)
    if is_json_lines(path):
        for number, (line, row) in enumerate(read_jsonl(path)):
            yield Entry(row, path, line, str(number))
        return
    for line, key, value in read_json_entries(path):
        yield Entry({}, path, line, key).part("entry", key, value)


def _question(entry: Entry, target: ReleasedTarget) -> Question:
    if not target.question.strip():
        raise entry.error(f"the question {target.query_id!r} is empty")
    facts = {
        key.replace(" ", "_"): entry.row[key]
        for key in ("choices", "choices answer", "question id")
        if key in entry.row
    }
    return Question(
        id=target.query_id, text=target.question, references=target.references, metadata=facts
    )


def _search_results(entry: Entry) -> Iterator[tuple[str, str]]:
    for number, result in enumerate(entry.array("context"), start=1):
        part = entry.part("context", number, result)
        if "text" in part.row:
            yield part.optional_text("title"), part.optional_text("text")
