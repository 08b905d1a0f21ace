"""Passages that come with the data set, played exactly as they stand.

Source: none; it is how whole passages of a published or a generated set of poison enter a run
(the split-knowledge probe of "Prevented is not protected", sections 2.2 and 4.4, among them).

Deviations: nothing is added, not even the question, so a text that was released without its
retrieval part (PoisonedRAG's part I) may not be retrieved; ``poisonedrag`` adds it. The declared
knowledge is what playing the texts takes; whoever wrote them may have known more.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragassay.canon import digest
from ragassay.errors import ConfigError
from ragassay.matching import clean_str
from ragassay.plugins import AttackerView
from ragassay.types import Knowledge, Passage, PoisonSet, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The poison texts of the data set as they are, in their order, and nothing else.

    ``limit`` takes only the first texts of each question; 0 takes all.
    """

    version: ClassVar[str] = "1"
    knowledge: ClassVar[Knowledge] = Knowledge(query="none")

    limit: int = 0

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise ConfigError(f"need limit >= 0 (0 takes all texts), got {self.limit}")

    @property
    def max_passages(self) -> int:
        """Largest budget that this attack can fill; without a limit the data set decides."""
        return self.limit or sys.maxsize

    def craft(self, target: Target, view: AttackerView, rng: np.random.Generator) -> PoisonSet:
        """Take the texts.

        Raises
        ------
        ConfigError
            The data set has no text for the query, or one without content.
        """
        texts = view.drafts[: self.limit or None]
        if not texts:
            raise ConfigError(
                f"the data set has no poison texts for query {target.query_id!r}; attack released "
                "needs some for every question that has a target"
            )
        for number, text in enumerate(texts, start=1):
            if not text.strip():
                raise ConfigError(f"poison text {number} of query {target.query_id!r} is empty")
        wanted = clean_str(target.wanted[0]) if target.wanted else ""
        keys = [digest([target.query_id, "released", i, text]) for i, text in enumerate(texts)]
        return PoisonSet(
            attack="released",
            query_id=target.query_id,
            passages=tuple(
                Passage(id=f"poison-{key[:16]}", text=text)
                for key, text in zip(keys, texts, strict=True)
            ),
            knowledge=self.knowledge,
            wanted=target.wanted,
            details=tuple(
                {
                    "words": len(text.split()),
                    "payload_intact": wanted in clean_str(text) if wanted else None,
                }
                for text in texts
            ),
        )
