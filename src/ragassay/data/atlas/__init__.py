"""The data set that comes with the package: facts of the real world and of invented ones.

No model can have learned the invented facts, so there an answer from memory can be told from
an answer from evidence; the metadata of a question says of which world it is.
The files lie beside this module in the layout of
:mod:`ragassay.data.beir`: ``corpus.jsonl``, ``queries.jsonl`` (metadata: group, world,
references), ``qrels.tsv`` and ``targets.jsonl`` with several targets per question.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ragassay.data.assembly import Selection, assemble
from ragassay.data.beir import Beir
from ragassay.types import Dataset

FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Atlas:
    """The embedded data set: 40 questions on real and invented facts, three targets for each.

    Parameters
    ----------
    groups : tuple of str
        Use the targets of these injection groups only (``g1`` ... ``g4``); all if empty.
    limit_per_group : int
        Use the targets of the first n questions of each group only; 0 uses all.
    target : int
        Which wrong answer the attacker wants, from 1.
    """

    groups: tuple[str, ...] = ()
    limit_per_group: int = 0
    target: int = 1

    version: ClassVar[str] = "1"

    def __post_init__(self) -> None:
        self._selection()

    def _selection(self) -> Selection:
        return Selection(
            groups=self.groups, limit_per_group=self.limit_per_group, target=self.target
        )

    def load(self) -> Dataset:
        """Read the embedded files.

        Raises
        ------
        ConfigError
            ``groups`` or ``target`` names what the data do not have.
        DataError
            The installed files are damaged.
        """
        parts = Beir(
            path=str(FOLDER), qrels="qrels.tsv", targets="targets.jsonl", name="atlas"
        ).parts()
        return assemble(parts, self._selection())
