"""Poison that was crafted before: ``ragassay attack`` wrote it, a run plays it.

Source: none; a file made by this project (see the reference of poison files).

Deviations: none. Knowledge and cost are those of the attack that crafted the texts.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from ragassay.data.poison_file import PoisonLine, read_poison
from ragassay.errors import ConfigError, DataError
from ragassay.plugins import AttackerView
from ragassay.types import Knowledge, PoisonSet, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonFile:
    """Play a poison set from a file that ``ragassay attack`` wrote.

    ``path`` is the file, relative to the experiment file. A line that was made for another
    question or another target is refused.
    """

    version: ClassVar[str] = "1"

    path: str
    _lines: dict[str, PoisonLine] = field(init=False, repr=False, compare=False)
    _digest: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.path:
            raise ConfigError("path is empty: name the file that ragassay attack wrote")
        lines = {line.poison.query_id: line for line in read_poison(self.path)}
        kinds = {line.poison.knowledge for line in lines.values()}
        if len(kinds) > 1:
            raise DataError(
                "the lines declare different knowledge; one file holds one attack",
                path=self.path,
            )
        object.__setattr__(self, "_lines", lines)
        content = hashlib.sha256(Path(self.path).read_bytes()).hexdigest()
        object.__setattr__(self, "_digest", content)

    @property
    def identity(self) -> str:
        """The digest of the file; where it lies does not count."""
        return f"file:{self._digest[:16]}"

    @property
    def knowledge(self) -> Knowledge:
        """What the attack that crafted the texts declared."""
        return next(iter(self._lines.values())).poison.knowledge

    @property
    def max_passages(self) -> int:
        """The most passages that were asked for when it was crafted."""
        return max(line.asked for line in self._lines.values())

    @property
    def outcome(self) -> str:
        """What the attack that crafted the texts counts as success; empty if it does not say."""
        line = next(iter(self._lines.values()))
        return str(line.provenance.get("outcome", ""))

    @property
    def untargeted(self) -> bool:
        """Whether the attack that crafted the texts wanted no answer of its own."""
        return not any(line.poison.wanted for line in self._lines.values())

    def play(self, question: str, target: Target) -> PoisonSet:
        """Return the poison of a question, with the cost of crafting it.

        Raises
        ------
        DataError
            The file has no line for the question, or one made for another wording or target.
        """
        line = self._line(target)
        if line.question != question:
            raise DataError(
                f"the poison of query {target.query_id!r} was made for the question "
                f"{line.question!r:.80}, the experiment asks {question!r:.80}",
                path=self.path,
                line=line.line,
            )
        return line.poison

    def craft(self, target: Target, view: AttackerView, rng: np.random.Generator) -> PoisonSet:
        """Return the poison of a question; see :meth:`play`."""
        if self.knowledge.query == "exact":
            return self.play(view.question, target)
        return self._line(target).poison

    def _line(self, target: Target) -> PoisonLine:
        line = self._lines.get(target.query_id)
        if line is None:
            raise DataError(
                f"no poison for query {target.query_id!r}; the file holds "
                f"{len(self._lines)} queries, craft the missing ones with ragassay attack",
                path=self.path,
            )
        if line.poison.wanted and line.poison.wanted != target.wanted:
            raise DataError(
                f"the poison of query {target.query_id!r} was made for the target "
                f"{list(line.poison.wanted)!r:.80}, the experiment's is "
                f"{list(target.wanted)!r:.80}",
                path=self.path,
                line=line.line,
            )
        return line
