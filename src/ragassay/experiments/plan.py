"""Which trials a run consists of. Pure: no model is asked, nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragassay.canon import digest
from ragassay.experiments.context import Contexts, Ready
from ragassay.experiments.setup import PROTOCOL, Setup
from ragassay.experiments.trial import Job
from ragassay.types import Query, TrialSpec

CLEAN = ("", 0)


def jobs_of(setup: Setup, contexts: Contexts, ready: Mapping[tuple[str, str], Ready]) -> list[Job]:
    """List every trial of the run, the undefended ones first.

    For each query and defense there is one clean trial and one for each (attack, budget):
    the four answers of a cell are the clean and the poisoned one, without and with the
    defense, so that clean trials are shared by all budgets and attacks.
    """
    cells = [CLEAN, *sorted({(attack, budget) for attack, budget, _ in contexts.poisoned})]
    jobs = []
    for defense in setup.defenses:
        for attack, budget in cells:
            for query in setup.evaluated:
                jobs.append(_job(setup, contexts, query, (attack, budget), defense.title, ready))
    return jobs


def _job(
    setup: Setup,
    contexts: Contexts,
    query: Query,
    cell: tuple[str, int],
    defense: str,
    ready: Mapping[tuple[str, str], Ready],
) -> Job:
    attack, budget = cell
    clean = cell == CLEAN
    armed = ready[defense, query.group]
    spec = TrialSpec(
        protocol=PROTOCOL,
        dataset=setup.dataset.fingerprint,
        query_id=query.id,
        question=query.text,
        attack=attack,
        budget=budget,
        poison="" if clean else contexts.poison[attack, budget, query.id],
        retriever=f"{setup.retriever.identity}:k{setup.k}",
        defense=armed.identity,
        defense_label=defense,
        prompt=setup.prompt_identity,
        generator=setup.generator.identity,
        sampling=setup.sampling,
        seed=setup.experiment.file.seed,
    )
    return Job(
        key=digest(spec),
        spec=spec,
        query=query,
        context=contexts.clean[query.id] if clean else contexts.poisoned[attack, budget, query.id],
        owner=contexts.owner,
        gold=frozenset(setup.dataset.targets[query.id].gold_ids),
        defense=armed.instance,
    )


def expected_calls(setup: Setup, cells: int) -> dict[str, int]:
    """Bound the model calls of each defense from above, without looking at any context.

    A defense says how many calls one context may take in ``model_calls(k)``; one that does
    not is taken to need the victim's single call.
    """
    contexts = len(setup.evaluated) * (1 + cells)
    calls = {}
    for defense in setup.defenses:
        instance: Any = defense.instance
        per_context = instance.model_calls(setup.k) if hasattr(instance, "model_calls") else 1
        calls[defense.title] = per_context * contexts
    return calls
