"""An experiment on systems that are only asked: its parts, and what of them can change a result.

The first ``[[system]]`` stands for defense off, and is called ``none`` in records, tables and
rules of the gate; each further one is a defense by its own title.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ragassay import plugins
from ragassay.config import Part
from ragassay.errors import ConfigError, PluginError
from ragassay.experiments.conditions import UNDEFENDED
from ragassay.experiments.setup import Experiment, Named, NamedAttack, Setup
from ragassay.experiments.setup import set_up as set_up_parts
from ragassay.plugins import System

NOT_TOLD = "not stated"
_INSIDE = ("retriever", "generator", "helper", "prompt", "language_model", "calibration")


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemSetup(Setup):
    """Every part of an experiment on systems. ``systems`` are in the order of the file."""

    systems: tuple[Named, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """What records call the systems: ``none``, then the titles of the others."""
        return (UNDEFENDED, *(system.title for system in self.systems[1:]))

    def resolved(self) -> dict[str, Any]:
        """Everything that can change a result, with defaults; its digest names the run."""
        plain = Setup.resolved(self)
        file: dict[str, Any] = plain["experiment"]
        for key in _INSIDE:  # what is inside of a system is not known here
            file.pop(key, None)
        file["system"] = [{"plugin": s.plugin, "label": s.title} for s in self.systems]
        named = zip(self.labels, self.systems, strict=True)
        asks = any(attack.instance.knowledge.llm != "none" for attack in self.attacks
                   if not plays(attack))  # fmt: skip
        return {
            **{key: value for key, value in plain.items() if key not in ("settings", "prompt")},
            "retriever": NOT_TOLD,
            "generator": NOT_TOLD,
            "helper": self.helper.identity if asks else "",
            "systems": dict(zip(self.labels, (s.title for s in self.systems), strict=True)),
            "defenses": {label: system.identity for label, system in named},
        }


def set_up(experiment: Experiment) -> SystemSetup:
    """Read the data set and build the systems, the attacks and the label rules.

    Raises
    ------
    ConfigError
        A plug-in or an option is wrong, an attack needs what no outsider has, or no question
        has a target.
    DataError
        The data set is wrong.
    """
    plain = set_up_parts(experiment)
    for attack in plain.attacks:
        check_outsider(attack)
    parts = {each.name: getattr(plain, each.name) for each in fields(Setup)}
    return SystemSetup(**parts, systems=build_systems(experiment))


def build_systems(experiment: Experiment) -> tuple[Named, ...]:
    """Build the systems of an experiment; nothing is opened.

    Raises
    ------
    ConfigError
        There is none, it is unknown or an option is wrong, or it lacks a method.
    """
    if experiment.file.protocol != "system":
        raise ConfigError('the experiment has no system under test: protocol = "system"')
    return tuple(_built(part, experiment.base) for part in experiment.file.system)


def plays(attack: NamedAttack) -> bool:
    """Whether an attack plays poison that was crafted before."""
    return hasattr(attack.instance, "play")


def check_outsider(attack: NamedAttack) -> None:
    """Refuse an attack that looks into retriever, corpus or victim, which stay closed here.

    Raises
    ------
    ConfigError
        It does.
    """
    if plays(attack):
        return
    knows = attack.instance.knowledge
    reached = [
        what
        for what, needed in (
            ("the victim's answers", knows.llm in ("query", "internals")),
            ("the retriever", knows.retriever != "none"),
            ("the corpus", knows.corpus != "none"),
        )
        if needed
    ]
    if reached:
        raise ConfigError(
            f"attack {attack.title!r} needs {' and '.join(reached)}, which a system under test "
            "does not offer; craft it against a model of it (ragassay attack) and play the file "
            '([[attack]] plugin = "file")'
        )


def _built(part: Part, base: Path) -> Named:
    found = plugins.find("system", part.plugin, folder=base)
    instance = plugins.build(found, part.options, folder=base)
    if not isinstance(instance, System):
        missing = [name for name in ("ingest", "ask", "reset") if not hasattr(instance, name)]
        raise PluginError(f"system {part.plugin!r} lacks {_listed(missing)}")
    own = getattr(instance, "identity", None)
    return Named(
        title=part.title,
        plugin=found.name,
        identity=own if isinstance(own, str) else plugins.identity(found, instance),
        instance=instance,
        options=part.options,
    )


def _listed(names: Sequence[str]) -> str:
    return " and ".join(f"the method {name}()" for name in names)
