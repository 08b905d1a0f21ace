"""ContentPoison: a genuine passage with a short trigger that makes the model say the target.

Source: Zhang et al. (2024), "Human-Imperceptible Retrieval Poisoning Attacks in LLM-Powered
Applications", FSE Companion, as run by PoisonArena; the search is that of Zou et al. (2023),
"Universal and Transferable Adversarial Attacks on Aligned Language Models".

Deviations: the prompt is the victim's own template (``prompt``), whose wording is ours. The
places where the trigger is tried are ends of words, the nearest ones to its own place. A
candidate counts only if its text has exactly its tokens, alone and in the prompt, not merely as
many. Released code goes on with the current trigger; tested and returned is the best one met, by
the loss of the keyword behind the first passage. A space parts the trigger from the passage.
Published experiments carry the trigger on genuine passages; ``carrier = "misinformation"`` takes
the texts that argue for the target instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from ragassay import prompts
from ragassay.attacks.contentpoison_frame import Frame, wanted_output
from ragassay.attacks.contentpoison_search import Schedule, Trigger, TriggerSearch
from ragassay.attacks.search_passages import check_choices, check_counts
from ragassay.attacks.writing import make_passages
from ragassay.errors import ConfigError
from ragassay.matching import find_spans, has_content, phrase, tokenize
from ragassay.plugins import AttackerView
from ragassay.types import Json, Knowledge, Passage, PoisonSet, Target

Carrier = Literal["clean_retrieved", "misinformation"]
FIRST_TRIGGER = "!!!!!{answer}!!!!!"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentPoison:
    """ContentPoison: one optimized trigger behind each of ``n`` genuine passages.

    The trigger is searched once, for the model's answer from the ``context`` best passages of
    the clean corpus, and stands behind each ``carrier``: those passages
    (``"clean_retrieved"``) or the texts published with the data set (``"misinformation"``).
    Each of ``steps`` steps sums gradients over ``positions`` places, drawn from ``pool``, of a
    loss that gives ``keyword_weight`` to the tokens of the answer, and scores ``batch``
    single-token changes, drawn from the ``top`` best of a position. Every ``test_every`` steps
    the model is asked; if it does not answer as wanted, the trigger grows by one mark and the
    pool shrinks by ``pool_step``. PoisonArena's configuration has ``batch = 512``, its script
    32. For a quick look, ``steps = 4``, ``test_every = 2``, ``batch = 4``, ``context = 2``.
    """

    version: ClassVar[str] = "1"
    knowledge: ClassVar[Knowledge] = Knowledge(
        llm="internals", corpus="contents", query="exact", correct_answer=True
    )

    n: int = 5
    carrier: Carrier = "clean_retrieved"
    context: int = 5
    steps: int = 500
    test_every: int = 50
    batch: int = 32
    top: int = 256
    positions: int = 3
    pool: int = 60
    pool_step: int = 5
    keyword_weight: float = 0.8
    answer_tokens: int = 64
    prompt: str = "answer"

    def __post_init__(self) -> None:
        check_counts(self, "n", "context", "steps", "test_every", "batch", "top", "positions")
        check_counts(self, "pool", "answer_tokens")
        check_choices(self, carrier=Carrier)
        if self.pool_step < 0:
            raise ConfigError(f"need pool_step >= 0, got {self.pool_step}")
        if not 0 < self.keyword_weight <= 1:
            raise ConfigError(f"need keyword_weight above 0, at most 1, got {self.keyword_weight}")
        check_answer_prompt(self.prompt)

    @property
    def max_passages(self) -> int:
        """Largest budget that this attack can fill."""
        return self.n

    def craft(self, target: Target, view: AttackerView, rng: np.random.Generator) -> PoisonSet:
        """Search a trigger and put it behind up to ``n`` passages.

        Raises
        ------
        ConfigError
            There is no wrong or no correct answer, nothing is retrieved, or there are no
            texts where they are to carry the trigger.
        """
        if not target.wanted or not has_content(target.wanted[0]) or not view.correct_answers:
            raise ConfigError(
                f"contentpoison needs a correct and a wrong answer for query {target.query_id!r}"
            )
        count = min(self.n, view.budget)
        known, carriers = self._texts(target, view, count)
        found = self._search(target.wanted[0], view, known, rng)
        texts = [carrier.text + found.text for carrier in carriers]
        passages = make_passages("contentpoison", target.query_id, texts)
        titles = [carrier.title for carrier in carriers]
        return PoisonSet(
            attack="contentpoison",
            query_id=target.query_id,
            passages=tuple(map(_titled, passages, titles)),
            knowledge=self.knowledge,
            wanted=target.wanted,
            details=tuple(
                {**_note(found), **self._carried(carrier, text)}
                for carrier, text in zip(carriers, texts, strict=True)
            ),
        )

    # ----------------------------------------------------------------------------- internals

    def _texts(
        self, target: Target, view: AttackerView, count: int
    ) -> tuple[list[str], list[Passage]]:
        """The passages of the prompt, in which the trigger is searched, and its carriers."""
        hits = view.retrieved(max(self.context, count))
        clean = [
            Passage(id=hit.passage.id, text=hit.passage.text.strip(), title=hit.passage.title)
            for hit in hits
            if hit.passage.text.strip()
        ]
        if self.carrier == "clean_retrieved":
            if not clean:
                raise ConfigError(
                    f"contentpoison: nothing is retrieved for query {target.query_id!r} that "
                    "could carry a trigger"
                )
            return [passage.text for passage in clean[: self.context]], clean[:count]
        drafts = [text.strip() for text in view.drafts if text.strip()][:count]
        if not drafts:
            raise ConfigError(
                f"the data set has no poison texts for query {target.query_id!r}; set "
                'carrier = "clean_retrieved" for attack contentpoison'
            )
        others = [passage.text for passage in clean[: self.context - 1]]
        return [drafts[0], *others], [Passage(id="", text=text) for text in drafts]

    def _search(
        self, wanted: str, view: AttackerView, known: Sequence[str], rng: np.random.Generator
    ) -> Trigger:
        model = view.language_model
        frame = Frame(model, prompts.load(self.prompt), view.question, known)
        correct = view.correct_answers

        def convinced(place: int, insert: str) -> tuple[bool, str]:
            said = model.generate(frame.messages(place, insert), self.answer_tokens)
            return says(said, wanted) and not any(says(said, right) for right in correct), said

        search = TriggerSearch(
            frame=frame,
            output=wanted_output(model, wanted),
            schedule=Schedule(
                steps=self.steps,
                test_every=self.test_every,
                batch=self.batch,
                top=self.top,
                positions=self.positions,
                pool=self.pool,
                pool_step=self.pool_step,
                keyword_weight=self.keyword_weight,
            ),
            convinced=convinced,
            rng=rng,
        )
        return search.run(FIRST_TRIGGER.format(answer=wanted))

    def _carried(self, carrier: Passage, text: str) -> dict[str, Json]:
        return {
            "carrier": self.carrier,
            "carrier_id": carrier.id or None,
            "trigger_start": len(carrier.text),
            "trigger_end": len(text),
            "words": len(text.split()),
        }


def says(answer: str, wanted: str) -> bool:
    """Tell whether an answer holds a phrase as whole tokens.

    Examples
    --------
    >>> says("It is New York.", "new york"), says("Nowhere", "no")
    (True, False)
    """
    return has_content(wanted) and any(True for _ in find_spans(tokenize(answer), phrase(wanted)))


def check_answer_prompt(prompt: str) -> None:
    """Refuse a template that cannot put passages and a question to the victim.

    Raises
    ------
    ConfigError
        It lacks a slot or has one too many.
    """
    slots = prompts.load(prompt).slots
    if slots != {"contexts", "question"}:
        raise ConfigError(
            f"prompt {prompt!r} has the slots {sorted(slots)}, it needs ['contexts', 'question']"
        )


def _titled(passage: Passage, title: str) -> Passage:
    return replace(passage, title=title)


def _note(found: Trigger) -> dict[str, Json]:
    last = found.tests[-1] if found.tests else {}
    return {
        "trigger": found.text,
        "start_loss": found.start_loss,
        "loss": found.loss,
        "success": found.success,
        "iterations": found.iterations,
        "stop": found.stop,
        "answer": last.get("answer"),
        "tests": [dict(test) for test in found.tests],
        "retokenization_losses": found.lost,
        "trace": [list(entry) for entry in found.trace],
    }
