"""PoisonedRAG, black box: a passage that is retrieved and that makes the reader err.

Source: Zou et al. (2025), "PoisonedRAG: Knowledge Corruption Attacks to Retrieval-Augmented
Generation of Large Language Models", USENIX Security, section 4 (black-box setting).

Deviations: the helper's prompt is our own wording (``prompt`` loads another from a file).
The released generator has no verification loop; ours has the paper's. ``order = "suffix"``
is the form of the PoisonArena release (text, question, full stop); ``order = "none"`` plays
texts that are whole passages already. White space within a written text is squeezed; its
length is asked for and recorded, not enforced. The declared knowledge is that of the paper,
also where released texts spare the attacker the helper model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from ragassay import prompts
from ragassay.canon import digest
from ragassay.errors import ConfigError
from ragassay.matching import clean_str, has_content
from ragassay.plugins import AttackerView
from ragassay.types import Json, Knowledge, Passage, PoisonSet, Target

Order = Literal["prefix", "suffix", "none"]
Source = Literal["released", "generated"]
_HELPER_TOKENS = 96  # the helper's usual limit; about two tokens a word need more beyond 48


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
    text is kept and marked unverified. ``order`` and ``separator`` say how question and text
    are joined; ``prompt`` and ``verify_prompt`` are templates (names or files).
    """

    version: ClassVar[str] = "1"
    knowledge: ClassVar[Knowledge] = Knowledge(llm="helper", query="exact")

    n: int = 5
    order: Order = "prefix"
    separator: str = "."
    source: Source = "released"
    max_words: int = 30
    trials: int = 50
    prompt: str = "poisonedrag_write"
    verify_prompt: str = "poisonedrag_verify"

    def __post_init__(self) -> None:
        for name in ("n", "max_words", "trials"):
            if getattr(self, name) < 1:
                raise ConfigError(f"need {name} >= 1, got {getattr(self, name)}")
        for name, known in (("order", get_args(Order)), ("source", get_args(Source))):
            if getattr(self, name) not in known:
                raise ConfigError(
                    f"need {name} to be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )
        _check_slots(self.prompt, needed={"question", "answer"}, optional={"words"})
        _check_slots(self.verify_prompt, needed={"context", "question"}, optional=set())

    @property
    def max_passages(self) -> int:
        """Largest budget that this attack can fill."""
        return self.n

    def craft(self, target: Target, view: AttackerView, rng: np.random.Generator) -> PoisonSet:
        """Write up to ``n`` passages.

        Raises
        ------
        ConfigError
            ``source`` is ``"released"`` and the data set has no texts for the query.
        """
        if not target.wanted:
            raise ConfigError(f"query {target.query_id!r} has no wrong answer to argue for")
        if self.source == "released":
            texts = view.drafts[: self.n]
            if not texts:
                raise ConfigError(
                    f"the data set has no poison texts for query {target.query_id!r}; set "
                    'source = "generated" for attack poisonedrag'
                )
            notes: list[Mapping[str, Json]] = [{"verified": None, "trials": 0} for _ in texts]
        else:
            written = [self._write(i, target, view) for i in range(self.n)]
            texts = tuple(text for text, _ in written)
            notes = [note for _, note in written]
        passages, details = [], []
        for i, (text, note) in enumerate(zip(texts, notes, strict=True)):
            whole = build_black_box(view.question, text, order=self.order, separator=self.separator)
            key = digest([target.query_id, "poisonedrag", i, whole])[:16]
            passages.append(Passage(id=f"poison-{key}", text=whole))
            details.append(
                {
                    **note,
                    "order": self.order,
                    "separator": self.separator,
                    "words": len(text.split()),
                    "payload": text,
                    "payload_intact": clean_str(target.wanted[0]) in clean_str(text),
                }
            )
        return PoisonSet(
            attack="poisonedrag",
            query_id=target.query_id,
            passages=tuple(passages),
            knowledge=self.knowledge,
            wanted=target.wanted,
            details=tuple(details),
        )

    def _write(
        self, index: int, target: Target, view: AttackerView
    ) -> tuple[str, Mapping[str, Json]]:
        wanted = target.wanted[0]
        write = prompts.load(self.prompt).render(
            {"question": view.question, "answer": wanted, "words": str(self.max_words)}
        )
        last = ""
        for trial in range(1, self.trials + 1):
            [draft] = view.ask_helper(
                [write],
                max_tokens=max(_HELPER_TOKENS, 2 * self.max_words),
                sample_index=index * self.trials + trial - 1,  # no two draws share one
            )
            draft = " ".join(draft.split())
            if not has_content(draft):
                continue  # an empty draft cannot convince anybody
            last = draft
            check = prompts.load(self.verify_prompt).render(
                {"context": draft, "question": view.question}
            )
            [answer] = view.ask_helper([check], temperature=0.0)
            if has_content(wanted) and clean_str(wanted) in clean_str(answer):
                return draft, {"verified": True, "trials": trial}
        return last, {"verified": False, "trials": self.trials}


def _check_slots(prompt: str, *, needed: set[str], optional: set[str]) -> None:
    found = prompts.load(prompt).slots
    if not needed <= found <= needed | optional:
        may = f" and may have {sorted(optional)}" if optional else ""
        raise ConfigError(
            f"prompt {prompt!r} has the slots {sorted(found)}, it needs {sorted(needed)}{may}"
        )
