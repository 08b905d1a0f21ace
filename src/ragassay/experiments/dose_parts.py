"""The dose protocol's questions, and the prompts of its arms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragassay import prompts
from ragassay.canon import rng_for
from ragassay.config import ExperimentFile
from ragassay.errors import ConfigError
from ragassay.matching import has_content
from ragassay.types import Dataset, Query

if TYPE_CHECKING:
    from ragassay.experiments.setup import Setup


def answerable(file: ExperimentFile, dataset: Dataset) -> tuple[Query, ...]:
    """Draw the questions of a dose run: those with an accepted answer, in the data set's order.

    Raises
    ------
    ConfigError
        There is no such question, or ``contexts = "gold"`` meets one without a supporting
        passage and no other is left.
    """
    part = file.dose
    if part is None:
        raise ConfigError("the experiment has no [dose]")
    known = [
        query
        for query in dataset.queries
        if any(has_content(form) for form in dataset.targets[query.id].references)
        and (part.contexts == "retrieved" or dataset.targets[query.id].gold_ids)
    ]
    if not known:
        lacking = "an accepted answer"
        if part.contexts == "gold":
            lacking += " and a supporting passage (dose.contexts = 'gold')"
        raise ConfigError(f"no question of the data set {dataset.name!r} has {lacking}")
    if not part.queries:
        return tuple(known)
    rng = rng_for(file.seed, "dose questions", dataset.fingerprint)
    chosen = sorted(rng.permutation(len(known))[: part.queries].tolist())
    return tuple(known[i] for i in chosen)


def closed_book(file: ExperimentFile, base: Path) -> prompts.Template:
    """The prompt without passages.

    Raises
    ------
    ConfigError
        It is missing, or its only slot is not the question.
    """
    name = file.dose.closed_book_prompt if file.dose else ""
    path = base / name
    template = prompts.load(str(path) if path.is_file() else name)
    if template.slots != {"question"}:
        raise ConfigError(
            f"dose.closed_book_prompt {name!r} must have the slot {{{{question}}}} and no other, "
            f"it has {sorted(template.slots)}"
        )
    return template


def tampering_facts(setup: Setup) -> dict[str, Any]:
    """What a resolved dose experiment adds: its rules, and what each arm is told."""
    file = setup.experiment.file
    if file.dose is None:
        return {}
    arms = {"with passages": setup.template}
    if "closed_book" in file.dose.controls:
        arms["closed book"] = closed_book(file, setup.experiment.base)
    return {
        "rules": {rule.title: rule.identity for rule in setup.rules},
        "instructions": {
            arm: {
                "digest": template.digest,
                "turns": [{"role": role, "text": text} for role, text in template.turns],
            }
            for arm, template in arms.items()
        },
    }
