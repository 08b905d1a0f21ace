"""PoisonedRAG, black box: a passage that is retrieved and that makes the reader err.

Source: Zou et al. (2025), "PoisonedRAG: Knowledge Corruption Attacks to Retrieval-Augmented
Generation of Large Language Models", USENIX Security, section 4 (black-box setting).

Deviations: the helper's prompt is our own wording (``prompt`` loads another from a file).
The released generator has no verification loop; ours has the paper's. ``order = "suffix"``
is the form of the PoisonArena release (text, question, full stop); ``order = "none"`` plays
texts that are whole passages already. White space within a written text is squeezed. Its
length is asked for and recorded; it is enforced only where ``slack`` is set. A draft that an
earlier text of the question equals is drawn again, so that the texts differ. The declared
knowledge is that of the paper, also where released texts spare the attacker the helper model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from ragassay import prompts
from ragassay.attacks.writing import (
    Trials,
    check_slots,
    holds,
    make_passages,
    write_verified,
)
from ragassay.errors import ConfigError
from ragassay.plugins import AttackerView
from ragassay.types import Json, Knowledge, PoisonSet, Target

Order = Literal["prefix", "suffix", "none"]
Source = Literal["released", "generated"]


def build_black_box(
    question: str, text: str, *, order: Order = "prefix", separator: str = "."
) -> str:
    """Join the retrieval part (the question) and the generation part of a passage.

    The released code joins without a space and keeps a question mark.

    Parameters
    ----------
    question, text : str
        The retrieval part S and the generation part I.
    order : "prefix", "suffix" or "none"
        ``S + separator + I`` (PoisonedRAG), ``I + S + separator`` (PoisonArena), or I alone.
    separator : str
        What follows the question.

    References
    ----------
    Zou et al. (2025), section 4, and the released code.

    Examples
    --------
    >>> build_black_box("who wrote Hamlet", "Bacon wrote it.")
    'who wrote Hamlet.Bacon wrote it.'
    """
    if order == "prefix":
        return f"{question}{separator}{text}"
    return f"{text}{question}{separator}" if order == "suffix" else text


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonedRAG:
    """PoisonedRAG black-box: the question, then a text that argues for the wrong answer.

    ``source = "released"`` uses the texts published with the data set; ``"generated"`` asks
    the experiment's helper model for ``n`` texts of at most ``max_words`` words, each tried
    up to ``trials`` times until a reader of the text alone gives the wrong answer; the last
    text is kept and marked unverified. With ``slack`` set, a text of more than ``max_words +
    slack`` words is a failed trial. ``order`` and ``separator`` say how question and text are
    joined; ``prompt`` and ``verify_prompt`` are templates (names or files).
    """

    version: ClassVar[str] = "2"
    knowledge: ClassVar[Knowledge] = Knowledge(llm="helper", query="exact")

    n: int = 5
    order: Order = "prefix"
    separator: str = "."
    source: Source = "released"
    max_words: int = 30
    slack: int | None = None
    trials: int = 50
    prompt: str = "poisonedrag_write"
    verify_prompt: str = "poisonedrag_verify"

    def __post_init__(self) -> None:
        for name in ("n", "max_words", "trials"):
            if getattr(self, name) < 1:
                raise ConfigError(f"need {name} >= 1, got {getattr(self, name)}")
        if self.slack is not None and self.slack < 0:
            raise ConfigError(f"need slack >= 0, got {self.slack}")
        for name, known in (("order", get_args(Order)), ("source", get_args(Source))):
            if getattr(self, name) not in known:
                raise ConfigError(
                    f"need {name} to be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )
        check_slots(self.prompt, needed={"question", "answer"}, optional={"words"})
        check_slots(self.verify_prompt, needed={"context", "question"}, optional=set())

    @property
    def max_passages(self) -> int:
        """Largest budget that this attack can fill."""
        return self.n

    def craft(self, target: Target, view: AttackerView, rng: np.random.Generator) -> PoisonSet:
        """Write up to ``n`` passages, and no more than are asked for.

        Raises
        ------
        ConfigError
            ``source`` is ``"released"`` and the data set has no texts for the query.
        """
        if not target.wanted:
            raise ConfigError(f"query {target.query_id!r} has no wrong answer to argue for")
        written = self._released(target, view) or self._generated(target, view)
        passages = make_passages(
            "poisonedrag",
            target.query_id,
            [
                build_black_box(view.question, text, order=self.order, separator=self.separator)
                for text, _ in written
            ],
        )
        return PoisonSet(
            attack="poisonedrag",
            query_id=target.query_id,
            passages=passages,
            knowledge=self.knowledge,
            wanted=target.wanted,
            details=tuple(self._details(target, text, note) for text, note in written),
        )

    def _details(self, target: Target, text: str, note: Mapping[str, Json]) -> Mapping[str, Json]:
        words = len(text.split())
        return {
            **note,
            "order": self.order,
            "separator": self.separator,
            "words": words,
            "over_limit": words > self.max_words,
            "payload": text,
            "payload_intact": holds(text, target.wanted[0]),
        }

    def _released(self, target: Target, view: AttackerView) -> list[tuple[str, Mapping[str, Json]]]:
        if self.source != "released":
            return []
        texts = view.drafts[: self.n]
        if not texts:
            raise ConfigError(
                f"the data set has no poison texts for query {target.query_id!r}; set "
                'source = "generated"'
            )
        return [(text, {"verified": None, "trials": 0}) for text in texts]

    def _generated(
        self, target: Target, view: AttackerView
    ) -> list[tuple[str, Mapping[str, Json]]]:
        written: list[tuple[str, Mapping[str, Json]]] = []
        for number in range(min(self.n, getattr(view, "budget", self.n))):
            earlier = [text for text, _ in written]
            written.append(self._write(number, target.wanted[0], view, earlier))
        return written

    def _write(
        self, number: int, wanted: str, view: AttackerView, earlier: Sequence[str]
    ) -> tuple[str, Mapping[str, Json]]:
        longest = None if self.slack is None else self.max_words + self.slack
        reader = prompts.load(self.verify_prompt)
        draft = write_verified(
            view,
            prompts.load(self.prompt).render(
                {"question": view.question, "answer": wanted, "words": str(self.max_words)}
            ),
            usable=lambda text: (
                text not in earlier and (longest is None or len(text.split()) <= longest)
            ),
            read=lambda text: reader.render({"context": text, "question": view.question}),
            convinces=lambda answer: holds(answer, wanted),
            trials=Trials(
                count=self.trials, max_words=self.max_words, first_sample=number * self.trials
            ),
        )
        note: dict[str, Json] = {"verified": draft.verified, "trials": draft.trials}
        if draft.text in earlier:
            note["duplicate"] = True
        return draft.text, note
