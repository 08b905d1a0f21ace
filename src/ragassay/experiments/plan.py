"""Which trials a run consists of. Pure: no model is asked, nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.canon import digest
from ragassay.experiments.context import ANY_GROUP, Contexts, Ready
from ragassay.experiments.controls import Kept, control_label, controls_of, poison_of, subsets_of
from ragassay.experiments.setup import Named, Setting, Setup
from ragassay.experiments.trial import Job
from ragassay.store.columns import Trials, encoded
from ragassay.types import Query, TrialSpec

CLEAN = ("", 0)
UNDEFENDED = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A setting with its contexts and its calibrated defenses: what trials are made from."""

    setup: Setup
    setting: Setting
    contexts: Contexts
    ready: Mapping[tuple[str, str], Ready]

    def jobs(self) -> list[Job]:
        """List every trial of the setting, the undefended ones first.

        For each query and defense there is one clean trial and one for each (attack, budget):
        the four answers of a cell are the clean and the poisoned one, without and with the
        defense, so that clean trials are shared by all budgets and attacks. Held-out
        questions have the clean trial alone.
        """
        cells = [CLEAN, *sorted({(a, budget) for a, budget, _ in self.contexts.poisoned})]
        jobs = []
        for defense in self.setup.defenses:
            for cell in cells:
                jobs += [self._job(query, cell, defense.title) for query in self.setup.evaluated]
            jobs += [self._job(query, CLEAN, defense.title) for query in self.setup.held_out]
        return jobs

    def control_jobs(self, trials: Trials, positive: NDArray[np.bool_]) -> list[Job]:
        """List the trials with evidence removed, for poisoned trials that are done.

        ``positive`` tells of each row of ``trials`` whether its answer is target-positive under a
        rule that needs no model.
        """
        part = self.setup.experiment.file.evidence
        if part is None:
            return []
        jobs: dict[str, Job] = {}
        parents = self.jobs()
        rows = trials.keys.newest([encoded(parent.key) for parent in parents])
        for parent, row in zip(parents, rows.tolist(), strict=True):
            undefended = parent.spec.defense_label == UNDEFENDED
            if row < 0 or not trials.done[row] or not parent.spec.budget:
                continue
            if part.defenses == "undefended" and not undefended:
                continue
            if part.queries == "positives" and not positive[row]:
                continue
            context = trials.at(row).context
            kept = set(controls_of(context, annotated=bool(parent.gold)).values())
            attributed = part.attribution == "all" or (
                part.attribution == "undefended" and undefended
            )
            if attributed and len(poison_of(context)) <= part.max_poison:
                kept |= {each for _, each in subsets_of(context)}
            for each in sorted(kept):
                if len(each) < len(context):
                    job = _reduced(parent, each)
                    jobs[job.key] = job
        return list(jobs.values())

    def _job(self, query: Query, cell: tuple[str, int], defense: str) -> Job:
        attack, budget = cell
        clean = cell == CLEAN
        setup, victim = self.setup, self.setting.victim
        group = ANY_GROUP if query.split else query.group
        armed = self.ready[defense, group]
        contexts = self.contexts.of(armed.expand)
        spec = TrialSpec(
            protocol=setup.protocol,
            dataset=setup.dataset.fingerprint,
            query_id=query.id,
            question=query.text,
            attack=attack,
            budget=budget,
            poison="" if clean else contexts.poison[attack, budget, query.id],
            retriever=f"{self.setting.arm.retriever.identity}:k{self.setting.arm.k}",
            defense=armed.identity,
            defense_label=defense,
            prompt=setup.prompt_identity,
            generator=victim.generator.identity,
            sampling=victim.sampling,
            seed=setup.experiment.file.seed,
            setting=self.setting.label,
        )
        context = contexts.clean[query.id]
        if not clean:
            context = contexts.poisoned[attack, budget, query.id]
        return Job(
            key=digest(spec),
            spec=spec,
            query=query,
            context=context,
            owner=self._owner(query),
            gold=frozenset(setup.dataset.targets[query.id].gold_ids),
            defense=armed.instance,
            injected={} if clean else contexts.injected[attack, query.group],
        )

    def _owner(self, query: Query) -> Mapping[str, str]:
        """The ledger of origin; a paraphrase owns the poison of its question."""
        parent = self.setup.parents.get(query.id)
        if parent is None:
            return self.contexts.owner
        return {
            passage: query.id if owner == parent else owner
            for passage, owner in self.contexts.owner.items()
        }


def _reduced(parent: Job, kept: Kept) -> Job:
    """The same trial with only some passages of its context, which keep their ranks."""
    spec = replace(parent.spec, control=control_label(kept, len(parent.context)))
    return replace(
        parent, key=digest(spec), spec=spec, context=tuple(parent.context[i] for i in kept)
    )


def expected_calls(setup: Setup, cells: int, queries: int) -> dict[str, int]:
    """Bound the model calls of each defense from above, without looking at any context.

    ``cells`` counts pairs of attack and budget, ``queries`` the evaluated questions.
    """
    contexts = queries * (1 + cells) + len(setup.held_out)
    return {
        defense.title: sum(contexts * calls_a_context(defense, s.arm.k) for s in setup.settings)
        for defense in setup.defenses
    }


def scorer_calls(scorer: Named) -> str:
    """Under what name the calls of a scorer are counted."""
    return f"scorer {scorer.title}"


def calls_a_context(defense: Named, k: int) -> int:
    """How many calls one context of k passages may take.

    A defense says so in ``model_calls(k)``; one that does not is taken to need the victim's
    single call.
    """
    instance: Any = defense.instance
    return int(instance.model_calls(k)) if hasattr(instance, "model_calls") else 1
