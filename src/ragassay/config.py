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

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ragassay.errors import ConfigError

MAX_K = 200  # passages of one context
INJECTION_ORDERS = ("simultaneous", "sequential")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Part(BaseModel):
    """A plug-in by name, with its options; every further key is an option."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    plugin: str
    label: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """The options as given."""
        return dict(self.model_extra or {})

    @property
    def title(self) -> str:
        """The name that tables show."""
        return self.label or self.plugin.rpartition(":")[2]


def _as_part(value: Any) -> Any:
    return {"plugin": value} if isinstance(value, str) else value


def _as_parts(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _one_or_several(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_as_part(each) for each in value)
    return (_as_part(value),)


class AttackPart(Part):
    """An attack, when it is injected, and how long its passages may be.

    ``order = "sequential"`` shows it the corpus with the poison of the attacks listed before it
    (``"simultaneous"``, the default: the clean corpus); any other value is the attack's own
    option of that name. ``max_words`` likewise limits the words of each passage, unless the
    attack has an option of that name.
    """

    @property
    def sequential(self) -> bool:
        """Whether it comes after the attacks listed before it, and sees their poison."""
        return (self.model_extra or {}).get("order") == "sequential"

    @property
    def max_words(self) -> Any:
        """The limit as given, not checked; None if there is none."""
        return (self.model_extra or {}).get("max_words")

    @property
    def options(self) -> dict[str, Any]:
        """The attack's own options; ``max_words`` is among them where it is given."""
        options = dict(self.model_extra or {})
        if options.get("order") in INJECTION_ORDERS:
            del options["order"]
        return options


PartField = Annotated[Part, BeforeValidator(_as_part)]
Parts = Annotated[tuple[PartField, ...], BeforeValidator(_as_parts)]
AttackParts = Annotated[
    tuple[Annotated[AttackPart, BeforeValidator(_as_part)], ...], BeforeValidator(_as_parts)
]


class RetrieverPart(Part):
    """The retriever, and how many passages it hands over."""

    plugin: str = "dense"
    k: Annotated[int, Field(ge=1, le=MAX_K)] = 5


class GeneratorPart(Part):
    """The victim's model and its decoding."""

    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_tokens: Annotated[int, Field(ge=1, le=16_384)] = 64


class PromptPart(_Strict):
    """The victim's prompt: template, order of the passages, with or without titles."""

    template: str = "answer"
    order: Literal["rank", "reverse", "shuffle"] = "rank"
    titles: bool = False


class CalibrationPart(_Strict):
    """Where detectors find clean contexts to calibrate on.

    ``held_out`` takes questions of the data set that are not evaluated; ``crossfit``
    calibrates for each injection group on the clean contexts of all other groups; ``auto``
    takes the former where at least 100 such questions exist. ``ids`` names the questions
    outright; one that is also evaluated is refused.
    """

    source: Literal["auto", "held_out", "crossfit"] = "auto"
    queries: Annotated[int, Field(ge=10)] = 500
    ids: Annotated[tuple[str, ...], BeforeValidator(_as_parts)] = ()


class EvidencePart(_Strict):
    """Which passages are taken out of poisoned contexts to see what the answer depends on.

    ``queries``: those whose poisoned answer is target-positive under some rule that needs no
    model, or all. ``defenses``: under every defense, or for the undefended system alone.
    ``attribution``: whose contexts are answered for every subset of their poison passages, at
    most ``max_poison`` of them.
    """

    queries: Literal["positives", "all"] = "positives"
    defenses: Literal["all", "undefended"] = "all"
    attribution: Literal["undefended", "all", "off"] = "undefended"
    max_poison: Annotated[int, Field(ge=1, le=5)] = 5


class UtilityPart(_Strict):
    """How many held-out clean questions every defense answers as well.

    They are disjoint from the attacked questions and from those that calibrate detectors.
    """

    queries: Annotated[int, Field(ge=1)] = 200


class ParaphrasesPart(_Strict):
    """Ten paraphrases of each attacked question: five to optimize on, five to evaluate on.

    ``path`` names a file of JSON lines ``{"query_id": ..., "paraphrases": [ten]}``; without it
    the helper model writes them from the template ``prompt``. With ``evaluate`` the last five
    are asked as questions of their own.
    """

    path: str = ""
    prompt: str = "paraphrase"
    evaluate: bool = False


class TaxPart(_Strict):
    """What is measured of the poison only on request, because it takes a language model.

    ``perplexity``: that of every passage under the helper's model, or the first victim's, where
    it can be opened.
    """

    perplexity: bool = False


class ScoringPart(_Strict):
    """Which rules label the answers, and which of them leads the report."""

    rules: Parts = (Part(plugin="endorse"), Part(plugin="tokens"), Part(plugin="published"))
    headline: str = ""

    @model_validator(mode="after")
    def _headline_is_a_rule(self) -> ScoringPart:
        titles = [rule.title for rule in self.rules]
        if not titles:
            raise ValueError("scoring.rules must name at least one scorer")
        twice = sorted({title for title in titles if titles.count(title) > 1})
        if twice:
            raise ValueError(f"two scoring.rules are called {twice[0]!r}; give one a 'label'")
        if self.headline and self.headline not in titles:
            raise ValueError(f"headline {self.headline!r} is not among the rules {titles}")
        return self


class StatisticsPart(_Strict):
    """Bootstrap draws and the confidence level of all intervals."""

    draws: Annotated[int, Field(ge=100, le=1_000_000)] = 10_000
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95


class RunPart(_Strict):
    """What may not change a result; it is in no key.

    ``workers`` 0 chooses by the generator; ``max_failures`` trials failing in a row stop the
    run; more than the share ``error_budget`` of failed trials makes it end with an error.
    """

    folder: str = ""
    workers: Annotated[int, Field(ge=0, le=4096)] = 0
    error_budget: Annotated[float, Field(ge=0, le=1)] = 0.05
    max_failures: Annotated[int, Field(ge=1)] = 25


class ExperimentFile(_Strict):
    """The whole file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,80}$")]
    seed: int = 12
    budgets: Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_as_parts)] = (
        1,
        5,
    )
    dataset: PartField
    retriever: Annotated[tuple[RetrieverPart, ...], BeforeValidator(_one_or_several)] = (
        RetrieverPart(),
    )
    generator: Annotated[tuple[GeneratorPart, ...], BeforeValidator(_one_or_several)]
    helper: GeneratorPart | None = None
    prompt: PromptPart = PromptPart()
    attack: AttackParts = (AttackPart(plugin="poisonedrag"),)
    paraphrases: ParaphrasesPart | None = None
    defense: Parts = ()
    calibration: CalibrationPart = CalibrationPart()
    evidence: EvidencePart | None = None
    utility: UtilityPart | None = None
    tax: TaxPart | None = None
    scoring: ScoringPart = ScoringPart()
    statistics: StatisticsPart = StatisticsPart()
    run: RunPart = RunPart()

    @model_validator(mode="after")
    def _titles_are_unique(self) -> ExperimentFile:
        if not self.attack:
            raise ValueError("at least one [[attack]] is needed")
        if not self.budgets or len(set(self.budgets)) != len(self.budgets):
            raise ValueError(f"budgets must be distinct and not empty, got {list(self.budgets)}")
        for kind in ("retriever", "generator", "attack", "defense"):
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
