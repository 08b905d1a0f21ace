"""Coordinated edits: the same substitute in all passages of the prompt.

Source: "In RAG We Trust?" (Fasolino, 2026), section VII-A: edits that do not agree leave
contradictions between passages, which warn the reader; an attacker would not leave them.

Deviations: none, since the paper only names the gap. The substitutes are drawn once for the
texts of all passages, tampered with or not, so that the dose changes how many passages
agree on the false value and not which value it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from ragassay.errors import ConfigError
from ragassay.tampering.edits import Edit, Scene, Tampered, edited
from ragassay.tampering.entity_swap import EntitySwap
from ragassay.tampering.number_swap import NumberSwap

Swapped = Literal["entities", "numbers", "both"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinated:
    """Swaps names, numbers or both, with one mapping for all passages.

    ``swap`` says what; ``keep_asked`` keeps what the question holds.
    """

    name: ClassVar[str] = "coordinated"
    version: ClassVar[str] = "1"
    shared: ClassVar[bool] = True

    swap: Swapped = "entities"
    keep_asked: bool = True

    def __post_init__(self) -> None:
        if self.swap not in get_args(Swapped):
            raise ConfigError(
                f"need swap to be one of {', '.join(get_args(Swapped))}, got {self.swap!r}"
            )

    def apply(
        self,
        passage_text: str,
        question: str,
        rng: np.random.Generator,
        *,
        scene: Scene = Scene(),  # noqa: B008 - frozen
    ) -> Tampered:
        """Swap within one passage by the mapping of all of them.

        Parameters
        ----------
        passage_text, question : str
            The passage, and the question that it is retrieved for.
        rng : numpy.random.Generator
            A generator in the same state for every passage of the prompt.
        scene : Scene
            ``context`` holds the texts of all passages, in one order.

        Raises
        ------
        BackendUnavailable
            Names are swapped, and spaCy or its English model is not installed.
        """
        texts = scene.context if passage_text in scene.context else (*scene.context, passage_text)
        texts = tuple(dict.fromkeys(texts))
        names, numbers = rng.spawn(2)
        edits: list[Edit] = []
        if self.swap in {"entities", "both"}:
            swap = EntitySwap(keep_asked=self.keep_asked)
            edits += swap.apply_together(passage_text, question, names, texts).edits
        if self.swap in {"numbers", "both"}:
            taken = [(edit.start, edit.stop) for edit in edits]
            found = NumberSwap(keep_asked=self.keep_asked)
            for edit in found.apply_together(passage_text, question, numbers, texts).edits:
                if not any(a < edit.stop and edit.start < b for a, b in taken):
                    edits.append(edit)
        return edited(passage_text, edits, otherwise="nothing to swap")

    def prepare(self, passages: Sequence[str]) -> None:
        """Read many passages in one batch, before they are tampered with one by one."""
        if self.swap in {"entities", "both"}:
            EntitySwap().prepare(passages)
