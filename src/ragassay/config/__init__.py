"""The experiment file: its schema, overrides from the command line, and clear errors.

One TOML file describes a run. Unknown keys are errors with a suggestion; everything that can
change a result ends up in the resolved configuration, everything under ``[run]`` (workers,
folders, budgets for errors) cannot. Secrets appear only as names of environment variables.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from ragassay.config.arena import ArenaPart, arena_faults, with_arena_defaults
from ragassay.config.dose import DosePart, with_dose_defaults
from ragassay.config.ladder import LadderPart, ladder_faults, with_ladder_defaults
from ragassay.config.parts import (
    INJECTION_ORDERS,
    MAX_K,
    AttackPart,
    AttackParts,
    CalibrationPart,
    EvidencePart,
    GeneratorPart,
    LanguageModelPart,
    ParaphrasesPart,
    Part,
    PartField,
    Parts,
    PromptPart,
    RetrieverPart,
    RunPart,
    ScoringPart,
    StatisticsPart,
    Strict,
    TaxPart,
    UtilityPart,
    as_parts,
    one_or_several,
)
from ragassay.errors import ConfigError

__all__ = [
    "INJECTION_ORDERS",
    "MAX_K",
    "ArenaPart",
    "AttackPart",
    "CalibrationPart",
    "DosePart",
    "EvidencePart",
    "ExperimentFile",
    "GeneratorPart",
    "LadderPart",
    "LanguageModelPart",
    "ParaphrasesPart",
    "Part",
    "PromptPart",
    "RetrieverPart",
    "RunPart",
    "ScoringPart",
    "StatisticsPart",
    "TaxPart",
    "UtilityPart",
    "apply_override",
    "parse",
    "read",
    "scorer_parts",
]


class ExperimentFile(Strict):
    """The whole file."""

    protocol: Literal["aligned", "arena", "dose", "ladder", "system"] = "aligned"
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,80}$")]
    seed: int = 12
    budgets: Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(as_parts)] = (
        1,
        5,
    )
    dataset: PartField
    retriever: Annotated[tuple[RetrieverPart, ...], BeforeValidator(one_or_several)] = (
        RetrieverPart(),
    )
    generator: Annotated[tuple[GeneratorPart, ...], BeforeValidator(one_or_several)]
    system: Parts = ()
    helper: GeneratorPart | None = None
    language_model: LanguageModelPart = LanguageModelPart()
    prompt: PromptPart = PromptPart()
    attack: AttackParts = (AttackPart(plugin="poisonedrag"),)
    paraphrases: ParaphrasesPart | None = None
    dose: DosePart | None = None
    defense: Parts = ()
    calibration: CalibrationPart = CalibrationPart()
    evidence: EvidencePart | None = None
    utility: UtilityPart | None = None
    tax: TaxPart | None = None
    arena: ArenaPart | None = None
    ladder: LadderPart | None = None
    scoring: ScoringPart = ScoringPart()
    statistics: StatisticsPart = StatisticsPart()
    run: RunPart = RunPart()

    @model_validator(mode="before")
    @classmethod
    def _a_system_brings_its_generator(cls, tree: Any) -> Any:
        """The model of a file without one is the attackers' helper: the embedded one."""
        if isinstance(tree, dict) and tree.get("protocol") == "system":
            return {"generator": {"plugin": "smollm2"}, **tree}
        return tree

    @model_validator(mode="after")
    def _systems_stand_alone(self) -> ExperimentFile:
        if self.protocol != "system":
            if self.system:
                raise ValueError('[[system]] needs protocol = "system"')
            return self
        if not self.system:
            raise ValueError('protocol = "system" needs at least one [[system]]')
        for key in ("defense", "evidence", "utility", "paraphrases"):
            if getattr(self, key):
                raise ValueError(
                    f'[{key}] has no meaning with protocol = "system", which sees questions and '
                    "answers only; the first [[system]] is defense off, the others are on"
                )
        if any(part.title == "none" for part in self.system[1:]):
            raise ValueError("a [[system]] after the first cannot be called 'none'")
        return self

    @model_validator(mode="before")
    @classmethod
    def _of_the_protocol(cls, tree: Any) -> Any:
        return with_arena_defaults(with_ladder_defaults(with_dose_defaults(tree)))

    @model_validator(mode="after")
    def _fits_the_protocol(self) -> ExperimentFile:
        fault = "" if self.arena is None else arena_faults(self)
        fault = fault or ("" if self.ladder is None else ladder_faults(self))
        if fault:
            raise ValueError(fault)
        return self

    @model_validator(mode="after")
    def _titles_are_unique(self) -> ExperimentFile:
        if not self.attack and self.protocol != "dose":
            raise ValueError("at least one [[attack]] is needed")
        if not self.budgets or len(set(self.budgets)) != len(self.budgets):
            raise ValueError(f"budgets must be distinct and not empty, got {list(self.budgets)}")
        for kind in ("retriever", "generator", "attack", "defense", "system"):
            parts: tuple[Part, ...] = getattr(self, kind)
            if kind in ("retriever", "generator") and not parts:
                raise ValueError(f"at least one [{kind}] is needed")
            titles = [part.title for part in parts]
            twice = sorted({t for t in titles if titles.count(t) > 1})
            if twice:
                raise ValueError(
                    f"two [[{kind}]] entries are called {twice[0]!r}; give one a 'label'"
                )
        return self


def read(path: Path, overrides: Sequence[str] = ()) -> tuple[ExperimentFile, bytes]:
    """Read an experiment file.

    Parameters
    ----------
    path : Path
        A TOML file.
    overrides : sequence of str
        ``retriever.k=10`` sets a value, ``defense+=my.py:KeepShort`` appends to a list. The
        value is read as TOML, and as plain text where it is no TOML.

    Returns
    -------
    tuple of ExperimentFile and bytes
        The validated file and its bytes as given.

    Raises
    ------
    ConfigError
        The file is missing, is no TOML, or a key or value is wrong; one line says what is
        wrong and what would be right.
    """
    try:
        raw = path.read_bytes()
        tree = tomllib.loads(raw.decode("utf-8-sig"))
    except FileNotFoundError as error:
        near = difflib.get_close_matches(
            path.name, [p.name for p in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        )
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise ConfigError(f"no experiment file {path}{hint}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    for each in overrides:
        apply_override(tree, each)
    return parse(tree, str(path)), raw


def parse(tree: dict[str, Any], where: str = "experiment") -> ExperimentFile:
    """Validate an experiment given as nested dictionaries; see :func:`read`."""
    try:
        return ExperimentFile.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_explain(error, tree)}") from error


def scorer_parts(named: Sequence[str], overrides: Sequence[str] = ()) -> tuple[Part, ...]:
    """Read scorers as the command line names them.

    Parameters
    ----------
    named : sequence of str
        ``tokens``, ``mine.py:Rule``, or with a title of its own ``strict=mine.py:Rule``.
    overrides : sequence of str
        Options by title: ``judge.model=small``.

    Raises
    ------
    ConfigError
        A name is empty, a title stands twice, or an option is for none of them.

    Examples
    --------
    >>> scorer_parts(["tokens", "second=judge"], ["second.retries=1"])[1].options
    {'retries': 1}
    """
    options: dict[str, Any] = {}
    plugins: dict[str, str] = {}
    for each in named:
        title, equals, plugin = each.partition("=")
        plugin = plugin if equals else title
        title = title if equals else Part(plugin=plugin).title
        if not title or not plugin:
            raise ConfigError(f"--scorer {each!r}: expected NAME or TITLE=NAME")
        if title in plugins:
            raise ConfigError(f"--scorer: two are called {title!r}; write TITLE=NAME")
        plugins[title], options[title] = plugin, {}
    for override in overrides:
        title = override.partition("=")[0].partition(".")[0]
        if title not in options or "." not in override.partition("=")[0]:
            raise ConfigError(
                f"--set {override!r}: expected SCORER.OPTION=VALUE with one of {', '.join(options)}"
            )
        apply_override(options, override)
    try:
        return tuple(
            Part.model_validate({**options[title], "plugin": plugin, "label": title})
            for title, plugin in plugins.items()
        )
    except ValidationError as error:
        raise ConfigError(f"--set: {_explain(error, {})}") from error


def _explain(error: ValidationError, tree: dict[str, Any]) -> str:
    first = error.errors()[0]
    parts = [str(part) for part in first["loc"] if not str(part).startswith("function-")]
    if parts[1:2] == ["0"] and not isinstance(tree.get(parts[0]), list):
        del parts[1]  # [generator] is one table, [[generator]] several
    place = ".".join(parts)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "missing":
        return f"[{place}] is missing; it is required{more}"
    if first["type"] == "extra_forbidden":
        parent, _, key = place.rpartition(".")
        known = _known_keys(parent)
        close = difflib.get_close_matches(key, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
        return f"unknown key {place!r}{hint}{more}"
    message = first["msg"].removeprefix("Value error, ")
    shown = "" if first["type"] == "value_error" else f", got {first['input']!r:.80}"
    return f"{place + ': ' if place else ''}{message}{shown}{more}"


def _known_keys(parent: str) -> list[str]:
    model: type[BaseModel] = ExperimentFile
    for part in filter(None, parent.split(".")):
        field = model.model_fields.get(part)
        inner = field.annotation if field else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return sorted(model.model_fields)


def apply_override(tree: dict[str, Any], override: str) -> None:
    """Apply one ``key.path=value`` or ``key.path+=value`` to nested dictionaries, in place.

    Raises
    ------
    ConfigError
        It is not of this form, or the path leads nowhere.
    """
    path, equals, text = override.partition("=")
    append = path.endswith("+")
    keys = path.removesuffix("+").strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"--set {override!r}: expected key.path=value or key.path+=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    node: Any = tree
    for key in keys[:-1]:
        node = _step(node, key, override)
    last = keys[-1]
    if append:
        existing = node.setdefault(last, []) if isinstance(node, dict) else None
        if not isinstance(existing, list):
            raise ConfigError(f"--set {override!r}: {path.removesuffix('+')} is not a list")
        existing.append(value)
    elif isinstance(node, list):
        _step(node, last, override)
        node[int(last)] = value
    elif isinstance(node, dict):
        node[last] = value
    else:
        raise ConfigError(f"--set {override!r}: {'.'.join(keys[:-1])} holds a plain value")


def _step(node: Any, key: str, override: str) -> Any:
    if isinstance(node, list):
        if not key.isdigit() or int(key) >= len(node):
            raise ConfigError(
                f"--set {override!r}: {key!r} is no position in a list of {len(node)} (0 is first)"
            )
        return node[int(key)]
    if isinstance(node, dict):
        return node.setdefault(key, {})
    raise ConfigError(f"--set {override!r}: nothing can be set below {key!r}")
