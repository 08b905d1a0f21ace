"""From an experiment file to its parts: data set, plug-ins, identities, resolved settings."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragassay import plugins, prompts
from ragassay.canon import digest, to_plain
from ragassay.config import AttackPart, ExperimentFile, Part, read
from ragassay.data.assembly import corpus_fingerprint
from ragassay.data.jsonl import existing_file
from ragassay.errors import ConfigError, PluginError
from ragassay.experiments.arena_released import resolve_arena
from ragassay.experiments.dose_parts import tampering_facts
from ragassay.experiments.opened_models import with_language_model
from ragassay.experiments.protocols import protocol
from ragassay.experiments.questions import evaluated_questions, held_out
from ragassay.plugins import Attack, Defense, Fitted, Generator, ModelScorer, Retriever, Scorer
from ragassay.tampering.edits import Rule
from ragassay.types import Dataset, Query, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A validated experiment file. ``base`` is the folder that its paths are relative to."""

    file: ExperimentFile
    raw: bytes
    base: Path
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A built plug-in with the name that tables show and the identity that keys hold."""

    title: str
    plugin: str
    identity: str
    instance: Any
    options: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAttack(Named):
    """An attack, with the longest passages it may inject and whether it sees earlier poison."""

    max_words: int | None = None
    sequential: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A retriever with its number of passages: one way of making contexts."""

    retriever: Named
    k: int

    @property
    def title(self) -> str:
        """The retriever's name or label."""
        return self.retriever.title


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A generator with its decoding: one system that answers."""

    generator: Named
    sampling: Sampling

    @property
    def title(self) -> str:
        """The generator's name or label."""
        return self.generator.title


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A victim over an arm; ``label`` is empty where the experiment has only one of each."""

    label: str
    arm: Arm
    victim: Victim


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Every part of an experiment, built but not yet loaded (models load on first use).

    ``held_out`` are questions without a target that only measure clean utility. ``paraphrases``
    are those that attacks may see, by query id; ``parents`` maps an evaluated paraphrase to the
    question whose poison it is asked against. ``language_model`` scores tokens where a defense
    declares that it reads with it; ``rules`` tamper with passages (dose protocol).
    """

    experiment: Experiment
    dataset: Dataset
    evaluated: tuple[Query, ...]
    held_out: tuple[Query, ...]
    arms: tuple[Arm, ...]
    victims: tuple[Victim, ...]
    helper: Named
    attacks: tuple[NamedAttack, ...]
    defenses: tuple[Named, ...]
    scorers: tuple[Named, ...]
    template: prompts.Template
    language_model: Named | None = None
    paraphrases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[Named, ...] = ()

    @property
    def protocol(self) -> str:
        """Label of the protocol, such as ``aligned/1``."""
        return protocol(self.experiment.file.protocol).label

    @property
    def attacked(self) -> tuple[Query, ...]:
        """The questions that poison is crafted for: the evaluated ones without paraphrases."""
        return tuple(query for query in self.evaluated if query.id not in self.parents)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Every victim over every arm, victims first: a model is loaded once."""
        return tuple(
            Setting(label=self._label(victim, arm), arm=arm, victim=victim)
            for victim in self.victims
            for arm in self.arms
        )

    def _label(self, victim: Victim, arm: Arm) -> str:
        parts = []
        if len(self.victims) > 1:
            parts.append(victim.title)
        if len(self.arms) > 1:
            parts.append(arm.title)
        return " / ".join(parts)

    @property
    def corpus_fingerprint(self) -> str:
        """Digest of the corpus alone: other questions over it reuse its index."""
        return corpus_fingerprint(self.dataset.corpus)

    @property
    def prompt_identity(self) -> str:
        """What the victim's prompt depends on beside question and passages."""
        prompt = self.experiment.file.prompt
        return f"{self.template.digest}:{prompt.order}:{'titles' if prompt.titles else 'text'}"

    def resolved(self) -> dict[str, Any]:
        """Everything that can change a result, with defaults; its digest names the run."""
        file = self.experiment.file.model_dump(mode="json", exclude={"run", "protocol"})
        for kind in ("retriever", "generator"):
            if len(file[kind]) == 1:  # as it is written where there is one
                file[kind] = file[kind][0]
        for where in ("path", "corpus", "queries", "qrels", "targets"):
            if isinstance(file["dataset"].get(where), str):
                del file["dataset"][where]  # where the data lie is not what they are
        if not file["system"]:  # else protocol "system" says what they are
            del file["system"]
        if file["ladder"] is None:
            del file["ladder"]
        if file["tax"] is None:  # runs from before there was such a part keep their names
            del file["tax"]
        resolve_arena(file, self.experiment.file.arena, self.experiment.base)
        reading = file.pop("language_model")
        if self.language_model is not None:  # else it can change nothing
            file["language_model"] = {**reading, "identity": self.language_model.identity}
        paraphrases = file.pop("paraphrases")
        if paraphrases is not None:
            paraphrases["content"] = self._paraphrases_identity()
            del paraphrases["path"]
            file["paraphrases"] = paraphrases
        if file["dose"] is None:
            del file["dose"]  # as it was before there was one
        return {
            "v": 1,
            "protocol": self.protocol,
            "experiment": file,
            "dataset": {
                "name": self.dataset.name,
                "fingerprint": self.dataset.fingerprint,
                "passages": len(self.dataset.corpus),
                "questions": len(self.dataset.queries),
                "evaluated": len(self.evaluated),
                "groups": len({query.group for query in self.evaluated}),
                "has_qrels": self.dataset.has_qrels,
            },
            "settings": {
                setting.label: {
                    "retriever": setting.arm.retriever.identity,
                    "k": setting.arm.k,
                    "generator": setting.victim.generator.identity,
                }
                for setting in self.settings
            },
            "utility": len(self.held_out),
            "prompt": self.prompt_identity,
            "attacks": {part.title: part.identity for part in self.attacks if "attack" in file},
            "defenses": {part.title: part.identity for part in self.defenses},
            "scorers": {part.title: part.identity for part in self.scorers},
            "headline": self.headline,
            **tampering_facts(self),
        }

    def _paraphrases_identity(self) -> str:
        part = self.experiment.file.paraphrases
        if part is None:
            return ""
        if part.path:
            content = existing_file(self.experiment.base / part.path).read_bytes()
            return hashlib.sha256(content).hexdigest()[:16]
        template = template_beside(part.prompt, self.experiment.base)
        return digest([self.helper.identity, template.digest])[:16]

    @property
    def headline(self) -> str:
        """The scorer that leads the report: the one named, else the first."""
        return self.experiment.file.scoring.headline or self.scorers[0].title

    def run_folder(self, out: Path | None = None) -> Path:
        """Where the run lies: as given, else ``runs/<name>-<digest of all settings>``."""
        if out is not None:
            return out
        if self.experiment.file.run.folder:
            return Path(self.experiment.file.run.folder)
        name = self.experiment.file.name
        return Path("runs") / f"{name}-{digest(to_plain(self.resolved()))[:8]}"


def load_experiment(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read and validate an experiment file.

    Parameters
    ----------
    path : str or Path
        A TOML file (see the reference of the experiment file).
    overrides : sequence of str
        Settings such as ``"retriever.k=10"`` or ``"defense+=my.py:KeepShort"``.

    Raises
    ------
    ConfigError
        The file is missing or wrong; the message is one line.
    """
    file, raw = read(Path(path), overrides)
    return Experiment(
        file=file, raw=raw, base=Path(path).resolve().parent, overrides=tuple(overrides)
    )


def load_dataset(experiment: Experiment) -> Dataset:
    """Read the data set of an experiment.

    Raises
    ------
    DataError
        A file is wrong; the message names file, line and value.
    """
    part = experiment.file.dataset
    found = plugins.find("dataset", part.plugin, folder=experiment.base)
    dataset: Dataset = plugins.build(found, part.options, folder=experiment.base).load()
    return dataset


def helper_of(experiment: Experiment) -> Named:
    """The attacker's own model: the helper, or else the first generator."""
    part = experiment.file.helper or experiment.file.generator[0]
    return _named("generator", part, experiment.base, Generator)


def set_up(experiment: Experiment) -> Setup:
    """Read the data set and build every plug-in of an experiment.

    Raises
    ------
    ConfigError
        A plug-in or an option is wrong, or no question has an attacker's target.
    DataError
        The data set is wrong.
    """
    file, base = experiment.file, experiment.base
    template = _template(file.prompt.template, base)
    defenses, language_model = with_language_model(
        [
            _named("defense", part, base, Defense)
            for part in (Part(plugin="none"), *_without_none(file.defense))
        ],
        lambda: _named("generator", file.language_model, base, Generator),
        wanted=file.tax is not None and file.tax.perplexity,
    )
    arms = tuple(
        Arm(retriever=_named("retriever", part, base, Retriever), k=part.k)
        for part in file.retriever
    )
    victims = tuple(
        Victim(
            generator=_named("generator", part, base, Generator),
            sampling=Sampling(
                temperature=part.temperature, top_p=part.top_p, max_tokens=part.max_tokens
            ),
        )
        for part in file.generator
    )
    helper = victims[0].generator if file.helper is None else helper_of(experiment)
    dataset = load_dataset(experiment)
    evaluated = evaluated_questions(file, dataset)
    if file.ladder is not None and file.ladder.evaluation:
        evaluated = evaluated[: file.ladder.evaluation]
    return Setup(
        experiment=experiment,
        dataset=dataset,
        evaluated=evaluated,
        held_out=held_out(file, dataset, evaluated),
        arms=arms,
        victims=victims,
        helper=helper,
        attacks=tuple(named_attack(part, base) for part in file.attack),
        defenses=defenses,
        scorers=tuple(build_scorer(part, base) for part in file.scoring.rules),
        template=template,
        rules=tuple(
            _named("tamper", part, base, Rule) for part in (file.dose.rules if file.dose else ())
        ),
        language_model=language_model,
    )


def build_scorer(part: Part, base: Path) -> Named:
    """Build a label rule: one that reads answers itself, or one that asks a model.

    Raises
    ------
    PluginError
        It is unknown, cannot be built, or offers neither.
    """
    return _named("scorer", part, base, Scorer, ModelScorer)


def is_fitted(instance: Any) -> bool:
    """Tell whether a defense must be calibrated before it is used."""
    return isinstance(instance, Fitted)


def _without_none(parts: Sequence[Part]) -> list[Part]:
    return [part for part in parts if part.plugin != "none"]


def template_beside(name: str, base: Path) -> prompts.Template:
    """Load a template from a file beside the experiment, else by name."""
    path = base / name
    return prompts.load(str(path) if path.is_file() else name)


def _template(name: str, base: Path) -> prompts.Template:
    template = template_beside(name, base)
    wrong = template.slots ^ {"contexts", "question"}
    if wrong:
        raise ConfigError(
            f"prompt.template {name!r} must have the slots {{{{contexts}}}} and {{{{question}}}}; "
            f"missing or unknown: {sorted(wrong)}"
        )
    return template


def named_attack(part: AttackPart, base: Path) -> NamedAttack:
    """Build an attack.

    ``max_words`` is the attack's own option where it has one of that name, and the limit of
    every passage otherwise.

    Raises
    ------
    ConfigError
        The plug-in or an option is wrong.
    """
    found = plugins.find("attack", part.plugin, folder=base)
    own = dataclasses.is_dataclass(found.cls) and any(
        f.name == "max_words" for f in dataclasses.fields(found.cls)
    )
    limit = None if own else part.max_words
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ConfigError(
            f"attack {part.title!r}: max_words must be a whole number from 1, got {limit!r}"
        )
    options = {k: v for k, v in part.options.items() if own or k != "max_words"}
    named = _named("attack", part, base, Attack, options=options)
    return NamedAttack(
        **{f.name: getattr(named, f.name) for f in dataclasses.fields(Named)},
        max_words=limit,
        sequential=part.sequential,
    )


def _named(
    kind: plugins.Kind,
    part: Part,
    base: Path,
    *protocols: type,
    options: dict[str, Any] | None = None,
) -> Named:
    found = plugins.find(kind, part.plugin, folder=base)
    options = part.options if options is None else options
    instance = plugins.build(found, options, folder=base)
    if not isinstance(instance, protocols):
        needed = " or ".join(f"({', '.join(_members(each))})" for each in protocols)
        raise PluginError(
            f"{kind} {part.plugin!r} lacks a method that a {kind} must offer {needed}"
        )
    own = getattr(instance, "identity", None)
    return Named(
        title=part.title,
        plugin=found.name,
        identity=own if isinstance(own, str) else plugins.identity(found, instance),
        instance=instance,
        options=options,
    )


def _members(protocol: type) -> list[str]:
    names = {*vars(protocol), *getattr(protocol, "__annotations__", {})}
    return sorted(name for name in names if not name.startswith("_"))
