"""The prompts of the dose protocol's arms, and what a resolved dose experiment adds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragassay import prompts
from ragassay.config import ExperimentFile
from ragassay.errors import ConfigError

if TYPE_CHECKING:
    from ragassay.experiments.setup import Setup


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
