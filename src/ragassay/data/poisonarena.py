"""The questions of the PoisonArena release on Natural Questions, with their clean passages.

Reads a folder of converted files: ``arena-nq.jsonl`` (questions, correct and wrong answers, texts)
and ``clean-corpus-nq.jsonl`` (the passages that a dense retriever found for them).

Source: the public release of "Uncovering Competing Poisoning Attacks in Retrieval-Augmented
Generation".

Deviations: the corpus holds only passages that were retrieved for some question, about five for
each; no relevance is annotated. Every question is an injection group of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ragassay.data.assembly import Parts, Question, Selection, assemble
from ragassay.data.beir import read_corpus
from ragassay.data.jsonl import nearest
from ragassay.data.released import read_targets
from ragassay.errors import ConfigError, DataError
from ragassay.types import Dataset

_QUESTIONS, _CORPUS = "arena-nq.jsonl", "clean-corpus-nq.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonArena:
    """The released questions of PoisonArena on Natural Questions, for an arena.

    Parameters
    ----------
    path : str
        The folder of the released files, or the folder that holds it as ``poisonarena``.
    limit : int
        Use the first n questions only; 0 uses all.
    target : int
        Which wrong answer leads, from 1; an arena takes the others too.
    """

    path: str
    limit: int = 0
    target: int = 1

    version: ClassVar[str] = "1"

    def __post_init__(self) -> None:
        if not self.path:
            raise ConfigError("path is empty: name the folder of the released files")
        self._selection()

    def _selection(self) -> Selection:
        return Selection(limit=self.limit, target=self.target, group_size=1)

    def load(self) -> Dataset:
        """Read the files.

        Raises
        ------
        ConfigError
            No question has so many wrong answers.
        DataError
            A file is missing, damaged or contradicts another one.
        """
        folder = Path(self.path)
        if not (folder / _QUESTIONS).is_file():
            folder = folder / "poisonarena"
        if not (folder / _QUESTIONS).is_file():
            hint = "" if Path(self.path).exists() else nearest(Path(self.path))
            raise DataError(f"there is no {_QUESTIONS} in it{hint}", path=Path(self.path))
        released = read_targets(folder / _QUESTIONS)
        questions = {
            each.query_id: Question(
                id=each.query_id, text=each.question, references=each.references
            )
            for each in released
        }
        parts = Parts(
            name="poisonarena-nq",
            corpus=read_corpus(folder / _CORPUS),
            questions=tuple(questions.values()),
            released=released,
            targets_path=folder / _QUESTIONS,
        )
        return assemble(parts, self._selection())
