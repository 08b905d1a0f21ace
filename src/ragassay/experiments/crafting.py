"""Poison sets as artifacts: ``ragassay attack`` crafts once and writes a file, runs play it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragassay import __version__, canon, config
from ragassay.data.poison_file import PoisonLine, append_poison, open_for_append
from ragassay.errors import DataError
from ragassay.experiments.clients import cache_folder, open_clients, open_index, open_pool
from ragassay.experiments.monitor import Monitor
from ragassay.experiments.outcomes import outcome_of
from ragassay.experiments.paraphrases import with_paraphrases
from ragassay.experiments.poison import (
    Crafted,
    Crafter,
    delivery,
    delivery_warnings,
    standing_poison,
)
from ragassay.experiments.setup import Experiment, NamedAttack, Setup, set_up
from ragassay.experiments.victim import AttackedSystem
from ragassay.plugins.accelerator import device_name
from ragassay.types import Passage, PoisonSet, Query

OPTION_PREFIX = "attack."


@dataclass(frozen=True, slots=True, kw_only=True)
class CraftedFile:
    """What a call of :func:`craft_file` left: the file, and what is short of what was asked."""

    path: Path
    lines: tuple[PoisonLine, ...]
    crafted: int
    reused: int
    warnings: tuple[str, ...]


def attack_experiment(
    source: Path, name: str, settings: Sequence[str] = ()
) -> tuple[Experiment, str]:
    """Read an experiment and make one attack the last of its list.

    Parameters
    ----------
    source : Path
        An experiment file, or the folder of a data set in the BEIR layout (then the default
        retriever and generator are attacked).
    name : str
        The title of one of the experiment's attacks, which is taken with its options, or else
        a plug-in. Attacks listed before it are kept only where it is injected after them.
    settings : sequence of str
        As for ``ragassay run``; ``attack.KEY=VALUE`` sets an option of this attack.

    Returns
    -------
    tuple of Experiment and str
        The experiment and the attack's title.

    Raises
    ------
    ConfigError
        The file, a setting or the attack is wrong.
    """
    own = [each.removeprefix(OPTION_PREFIX) for each in settings if _is_option(each)]
    others = [each for each in settings if not _is_option(each)]
    if source.is_dir():
        file, raw, base = folder_experiment(source, others), b"", Path.cwd()
    else:
        file, raw = config.read(source, others)
        base = source.resolve().parent
    place = next((i for i, part in enumerate(file.attack) if part.title == name), None)
    tree: dict[str, Any] = {"plugin": name}
    if place is not None:
        tree = file.attack[place].model_dump()
    for each in own:
        config.apply_override(tree, each)
    part = config.AttackPart.model_validate(tree)
    if place is None:
        place = len(file.attack)
    before = file.attack[:place] if part.sequential else ()
    file = file.model_copy(update={"attack": (*before, part)})
    experiment = Experiment(file=file, raw=raw, base=base, overrides=tuple(settings))
    return experiment, part.title


def craft_file(experiment: Experiment, out: Path, monitor: Monitor | None = None) -> CraftedFile:
    """Craft the last attack of an experiment for every attacked question, into a file.

    One line a question is appended as soon as it is crafted; what the file already holds is
    not crafted again.

    Raises
    ------
    DataError
        The file holds poison that was crafted with other settings or for other questions.
    ConfigError, KnowledgeError, BackendError, StoreError
        As for a run.
    """
    monitor = monitor or Monitor()
    monitor.stage("reading the data set")
    setup = set_up(experiment)
    kept = {line.poison.query_id: line for line in open_for_append(out)}
    cache = cache_folder()
    with ExitStack() as stack:
        pool = stack.enter_context(open_pool(experiment.file.run, monitor))
        clients = stack.enter_context(open_clients(setup, cache, pool))
        setup = with_paraphrases(setup, clients.helper)
        system = AttackedSystem(
            setup,
            lambda: stack.enter_context(open_index(setup, setup.arms[0], cache, monitor, pool)),
            lambda: clients.of(setup.victims[0]),
            clients.opened,
        )
        crafter = Crafter(setup=setup, helper=clients.helper, system=system)
        attack = setup.attacks[-1]
        sets = _earlier(crafter, monitor)
        before = [other.title for other in setup.attacks[:-1]]
        _refuse_strangers(kept, setup, out)
        monitor.stage(f"crafting {attack.title}")
        lines = []
        standing = {q.id: standing_poison(setup, sets, before, q) for q in setup.attacked}
        missing = [query for query in setup.attacked if query.id not in kept]
        made = crafter.each(attack, missing, standing)
        for query in setup.attacked:
            line = kept.get(query.id)
            if line is None:
                line = _line(crafter, attack, query, standing[query.id], next(made))
                append_poison(out, line)
            else:
                _check_key(line, crafter, attack, query, standing[query.id], out)
            lines.append(line)
            monitor.progress(len(lines), len(setup.attacked))
    sets |= {(attack.title, line.poison.query_id): line.poison for line in lines}
    report = {attack.title: delivery(crafter, sets)[attack.title]}
    return CraftedFile(
        path=out,
        lines=tuple(lines),
        crafted=len(lines) - len(kept),
        reused=len(kept),
        warnings=tuple(delivery_warnings(report)),
    )


# --------------------------------------------------------------------------------- internals


def _is_option(setting: str) -> bool:
    key = setting.partition("=")[0]
    return key.startswith(OPTION_PREFIX) and not key.split(".")[1].strip().isdigit()


def folder_experiment(folder: Path, settings: Sequence[str]) -> config.ExperimentFile:
    """Stand-in for an experiment file where only a data set is given."""
    tree: dict[str, Any] = {
        "name": "attack",
        "dataset": {"plugin": "beir", "path": str(folder.resolve())},
        "generator": {"plugin": "smollm2"},
    }
    for each in settings:
        config.apply_override(tree, each)
    return config.parse(tree, str(folder))


def _earlier(crafter: Crafter, monitor: Monitor) -> dict[tuple[str, str], PoisonSet]:
    """Craft the attacks that were injected before; files (the attack ``file``) make it cheap."""
    sets: dict[tuple[str, str], PoisonSet] = {}
    setup = crafter.setup
    for number, attack in enumerate(setup.attacks[:-1]):
        monitor.stage(f"crafting {attack.title}, which comes before")
        before = [other.title for other in setup.attacks[:number]] if attack.sequential else []
        standing = {q.id: standing_poison(setup, sets, before, q) for q in setup.attacked}
        made = crafter.each(attack, setup.attacked, standing)
        for query, crafted in zip(setup.attacked, made, strict=True):
            sets[attack.title, query.id] = crafted.poison
    return sets


def _line(
    crafter: Crafter,
    attack: NamedAttack,
    query: Query,
    standing: Sequence[Passage],
    made: Crafted,
) -> PoisonLine:
    setup = crafter.setup
    return PoisonLine(
        key=crafter.key(attack, query, standing),
        question=query.text,
        poison=made.poison,
        asked=made.asked,
        references=setup.dataset.targets[query.id].references,
        left_out=made.left_out,
        provenance=_provenance(crafter, attack, query),
    )


def _provenance(crafter: Crafter, attack: NamedAttack, query: Query) -> dict[str, Any]:
    dataset = crafter.setup.dataset
    facts: dict[str, Any] = crafter.facts(attack)
    if facts.pop("paraphrases") is not None:
        facts["paraphrases"] = list(crafter.setup.paraphrases.get(query.id, ()))
    return {
        **facts,
        "dataset": {"name": dataset.name, "fingerprint": dataset.fingerprint},
        "device": device_name(),
        "outcome": outcome_of(attack.instance),
        "ragassay": __version__,
    }


def _refuse_strangers(kept: dict[str, PoisonLine], setup: Setup, out: Path) -> None:
    attacked = {query.id for query in setup.attacked}
    for query_id, line in kept.items():
        if query_id not in attacked:
            raise DataError(
                f"holds poison for query {query_id!r}, which this experiment does not attack; "
                "choose another file (--out)",
                path=out,
                line=line.line,
            )


def _check_key(
    line: PoisonLine,
    crafter: Crafter,
    attack: NamedAttack,
    query: Query,
    standing: Sequence[Passage],
    out: Path,
) -> None:
    if line.key == crafter.key(attack, query, standing):
        return
    now = canon.to_plain(_provenance(crafter, attack, query))
    changed = [
        f"{name} was {line.provenance.get(name)!r:.60}, now is {value!r:.60}"
        for name, value in now.items()
        if name not in ("ragassay", "identity", "device", "outcome")
        and line.provenance.get(name) != value
    ]
    if not changed and line.provenance.get("identity") != now["identity"]:
        changed = ["the attack itself differs"]
    raise DataError(
        f"the poison of query {query.id!r} was crafted with other settings "
        f"({changed[0] if changed else 'the question, its target or its texts differ'}); choose "
        "another file (--out)",
        path=out,
        line=line.line,
    )
