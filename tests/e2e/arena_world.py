"""Attackers of known strength, loaded by the tests as ``arena_world.py:Echo``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragassay.plugins import AttackerView
from ragassay.types import Knowledge, Passage, PoisonSet, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """Repeat the last words of the question, then state the wanted answer.

    The more it repeats, the nearer it stands to the question.
    """

    version: ClassVar[str] = "1"
    knowledge: ClassVar[Knowledge] = Knowledge()

    words: int = 0
    passages: int = 2

    def craft(self, target: Target, view: AttackerView, rng: np.random.Generator) -> PoisonSet:
        asked = view.question.rstrip("?").split()
        echo = " ".join(asked[-self.words :] if self.words else [])
        return PoisonSet(
            attack="echo",
            query_id=target.query_id,
            knowledge=self.knowledge,
            passages=tuple(
                Passage(
                    id=f"{target.query_id}-{self.words}-{target.wanted[0]}-{i}",
                    text=f"{echo} that {target.wanted[0]} {'x' * (i + 1)}{self.words}",
                )
                for i in range(self.passages)
            ),
        )
