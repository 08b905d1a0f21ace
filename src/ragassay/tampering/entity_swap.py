"""Entity swap: every name becomes another name of the same type.

Source: "In RAG We Trust?" (Fasolino, 2026), section III-B: named entities are replaced with
same-type alternatives from a fixed table, one consistent mapping per passage.

Deviations: the paper's table is not printed; the tables are ours. What is a name, and of what
type, is told by spaCy's small English model beside the tables. Places agree: a city moves
with its country, which the paper's rule does not keep ("Madrid, Germany"). Names that the
question holds are kept (``keep_asked``), so that the passage stays evidence for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragassay.tampering.articles import with_article
from ragassay.tampering.edits import Edit, Scene, Tampered, edited
from ragassay.tampering.language import analyze
from ragassay.tampering.mentions import Mention, find_mentions
from ragassay.tampering.substitutes import Substitutes, draw_substitutes


@dataclass(frozen=True, slots=True, kw_only=True)
class EntitySwap:
    """Swaps places, persons, nationalities, languages and organizations.

    ``keep_asked`` keeps the names that the question holds.
    """

    name: ClassVar[str] = "entity_swap"
    version: ClassVar[str] = "1"
    shared: ClassVar[bool] = False

    keep_asked: bool = True

    def apply(
        self,
        passage_text: str,
        question: str,
        rng: np.random.Generator,
        *,
        scene: Scene = Scene(),  # noqa: B008 - frozen
    ) -> Tampered:
        """Swap the names of a passage; the substitutes are drawn for this passage alone.

        Parameters
        ----------
        passage_text, question : str
            The passage, and the question that it is retrieved for.
        rng : numpy.random.Generator
            The only source of randomness.
        scene : Scene
            Not used.

        Raises
        ------
        BackendUnavailable
            spaCy or its English model is not installed.
        """
        return self.apply_together(passage_text, question, rng, (passage_text,))

    def prepare(self, passages: Sequence[str]) -> None:
        """Read many passages in one batch, before they are tampered with one by one."""
        analyze(passages, "names")

    def apply_together(
        self,
        passage_text: str,
        question: str,
        rng: np.random.Generator,
        texts: tuple[str, ...],
    ) -> Tampered:
        """Swap the names of one passage of several that are to agree.

        Equal ``texts`` and equal generators give equal substitutes, whichever the passage.
        """
        by_text = dict(zip(texts, analyze(texts, "names"), strict=True))
        mentions = {text: find_mentions(text, found) for text, found in by_text.items()}
        substitutes = draw_substitutes(
            [mention for text in texts for mention in mentions[text]],
            question=question,
            texts=texts,
            keep_asked=self.keep_asked,
            rng=rng,
        )
        own = mentions.get(passage_text)
        if own is None:
            raise ValueError("the passage must be one of the texts that are to agree")
        edits = [edit for mention in own for edit in _edit(passage_text, mention, substitutes)]
        return edited(passage_text, edits, otherwise="no name to swap")


def _edit(text: str, mention: Mention, substitutes: Substitutes) -> list[Edit]:
    name = substitutes.get((mention.kind, mention.key))
    if name is None:
        return []
    start, after = with_article(text, mention.start, name)
    kind = f"entity:{mention.kind.removesuffix(' without article').replace(' ', '_')}"
    return [Edit(start, mention.stop, text[start : mention.stop], after, kind)]
