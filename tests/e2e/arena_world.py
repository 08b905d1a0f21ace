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


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The question as a trigger if ``near``, then a content that names the answer ``times``.

    It declares its content, so that both can be taken apart. With ``local`` the content speaks of
    the town and its harbor, and needs no trigger to be retrieved.
    """

    version: ClassVar[str] = "1"
    knowledge: ClassVar[Knowledge] = Knowledge()

    near: bool = True
    times: int = 1
    local: bool = False

    def craft(self, target: Target, view: AttackerView, rng: np.random.Generator) -> PoisonSet:
        town = view.question.rstrip("?").split()[-1]
        claim = " and ".join([f"that {target.wanted[0]}"] * self.times) or target.wanted[0]
        content = f"It is held {claim} did."
        if self.local:
            content = f"Who built the harbor of {town}? {content}"
        trigger = f"{view.question} {view.question} " if self.near else ""
        text = f"{trigger}{content}"
        return PoisonSet(
            attack="claim",
            query_id=target.query_id,
            knowledge=self.knowledge,
            passages=(Passage(id=f"{target.query_id}-{target.wanted[0]}-{text}", text=text),),
            details=({"payload": content},),
        )
