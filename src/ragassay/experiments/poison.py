"""Crafting the poison, once: every attack sees only what it declares, and its cost is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ragassay.canon import digest, rng_for
from ragassay.errors import ConfigError, KnowledgeError
from ragassay.experiments.setup import Named, Setup
from ragassay.plugins import Attack
from ragassay.store import RunFolder
from ragassay.types import (
    Cost,
    Generation,
    Knowledge,
    Message,
    PoisonSet,
    Request,
    Sampling,
    Target,
)


class Asks(Protocol):
    """What is needed of a model client."""

    def ask(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer each request, in order, or raise."""


class View:
    """What one attack sees of one query: what it declared, and nothing else."""

    def __init__(
        self,
        *,
        knowledge: Knowledge,
        question: str,
        target: Target,
        drafts: tuple[str, ...],
        helper: Asks,
    ) -> None:
        self._knowledge = knowledge
        self._question = question
        self._target = target
        self._drafts = drafts
        self._helper = helper
        self.cost = Cost()

    @property
    def question(self) -> str:
        """The exact question."""
        if self._knowledge.query != "exact":
            raise KnowledgeError(
                f"the attack reads the exact question but declares query={self._knowledge.query!r}"
            )
        return self._question

    @property
    def correct_answers(self) -> tuple[str, ...]:
        """The accepted correct answers."""
        if not self._knowledge.correct_answer:
            raise KnowledgeError(
                "the attack reads the correct answer but declares correct_answer=False"
            )
        return self._target.references

    @property
    def drafts(self) -> tuple[str, ...]:
        """Texts published with the data set that argue for the attacker's answer."""
        return self._drafts

    def ask_helper(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        max_tokens: int = 96,
        temperature: float = 1.0,
        sample_index: int = 0,
    ) -> list[str]:
        """Ask the attacker's own language model; calls and tokens are counted."""
        if self._knowledge.llm == "none":
            raise KnowledgeError("the attack asks a language model but declares llm='none'")
        sampling = Sampling(temperature=temperature, max_tokens=max_tokens)
        answers = self._helper.ask(
            [
                Request(messages=tuple(prompt), sampling=sampling, sample_index=sample_index)
                for prompt in prompts
            ]
        )
        self.cost = replace(
            self.cost,
            model_calls=self.cost.model_calls + len(answers),
            input_tokens=self.cost.input_tokens + sum(a.input_tokens for a in answers),
            output_tokens=self.cost.output_tokens + sum(a.output_tokens for a in answers),
        )
        return [answer.text for answer in answers]


def visible_target(target: Target, knowledge: Knowledge) -> Target:
    """Blank what an attack did not declare: correct answers and supporting passages."""
    return replace(
        target,
        references=target.references if knowledge.correct_answer else (),
        gold_ids=target.gold_ids if knowledge.corpus == "contents" else (),
    )


def craft_all(
    setup: Setup,
    folder: RunFolder,
    helper: Asks,
    progress: Callable[[int, int], None] | None = None,
) -> dict[tuple[str, str], PoisonSet]:
    """Craft the poison of every attack for every evaluated query, or read it from the run.

    Returns
    -------
    dict
        ``(attack title, query id)`` to poison set. Sets that the run folder already holds
        under the same key (attack, options, question, target, drafts, seed) are not crafted
        again.
    """
    known = folder.poison()
    result: dict[tuple[str, str], PoisonSet] = {}
    total = len(setup.attacks) * len(setup.evaluated)
    for attack in setup.attacks:
        for query in setup.evaluated:
            key = _key(setup, attack, query.id, query.text)
            if key not in known:
                known[key] = _craft(setup, attack, query.id, query.text, helper)
                folder.append("poison", key, known[key])
            result[attack.title, query.id] = known[key]
            if progress is not None:
                progress(len(result), total)
    return result


def group_poison(
    sets: Mapping[tuple[str, str], PoisonSet], setup: Setup, attack: str, budget: int
) -> dict[str, list[tuple[str, PoisonSet]]]:
    """Collect, for each injection group, the sets whose first ``budget`` passages go in."""
    groups: dict[str, list[tuple[str, PoisonSet]]] = {}
    for query in setup.evaluated:
        poison = sets[attack, query.id]
        cut = replace(poison, passages=poison.passages[:budget])
        groups.setdefault(query.group, []).append((query.id, cut))
    return groups


def _craft(setup: Setup, attack: Named, query_id: str, question: str, helper: Asks) -> PoisonSet:
    instance: Attack = attack.instance
    target = setup.dataset.targets[query_id]
    view = View(
        knowledge=instance.knowledge,
        question=question,
        target=target,
        drafts=setup.dataset.drafts.get(query_id, ()),
        helper=helper,
    )
    rng = rng_for(setup.experiment.file.seed, "craft", attack.identity, query_id)
    start = time.perf_counter()
    poison = instance.craft(visible_target(target, instance.knowledge), view, rng)
    if poison.query_id != query_id:
        raise ConfigError(
            f"attack {attack.title!r} returned poison for {poison.query_id!r}, asked for "
            f"{query_id!r}"
        )
    cost = replace(view.cost, seconds=round(time.perf_counter() - start, 6))
    return replace(
        poison, attack=attack.title, attacker=attack.title, wanted=target.wanted, cost=cost
    )


def _key(setup: Setup, attack: Named, query_id: str, question: str) -> str:
    target = setup.dataset.targets[query_id]
    return digest(
        [
            attack.title,
            attack.identity,
            query_id,
            question,
            target,
            list(setup.dataset.drafts.get(query_id, ())),
            setup.helper.identity,
            setup.experiment.file.seed,
        ]
    )
