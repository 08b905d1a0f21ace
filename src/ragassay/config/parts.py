"""The tables of an experiment file that every protocol shares."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

MAX_K = 200  # passages of one context
INJECTION_ORDERS = ("simultaneous", "sequential")


class Strict(BaseModel):
    """A table of the file: unknown keys and values of another type are errors."""

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


def as_part(value: Any) -> Any:
    """A name stands for a part without options."""
    return {"plugin": value} if isinstance(value, str) else value


def as_parts(value: Any) -> Any:
    """Lists as tuples."""
    return tuple(value) if isinstance(value, list) else value


def one_or_several(value: Any) -> Any:
    """One table, or several of a kind."""
    if isinstance(value, (list, tuple)):
        return tuple(as_part(each) for each in value)
    return (as_part(value),)


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


PartField = Annotated[Part, BeforeValidator(as_part)]
Parts = Annotated[tuple[PartField, ...], BeforeValidator(as_parts)]
AttackParts = Annotated[
    tuple[Annotated[AttackPart, BeforeValidator(as_part)], ...], BeforeValidator(as_parts)
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


class LanguageModelPart(Part):
    """The model that scores the tokens of passages for defenses that read perplexity.

    Any generator that can be opened; the embedded one by default.
    """

    plugin: str = "smollm2"


class PromptPart(Strict):
    """The victim's prompt: template, order of the passages, with or without titles."""

    template: str = "answer"
    order: Literal["rank", "reverse", "shuffle"] = "rank"
    titles: bool = False


class CalibrationPart(Strict):
    """Where detectors find clean contexts to calibrate on.

    ``held_out`` takes questions of the data set that are not evaluated; ``crossfit``
    calibrates for each injection group on the clean contexts of all other groups; ``auto``
    takes the former where at least 100 such questions exist. ``ids`` names the questions
    outright; one that is also evaluated is refused.
    """

    source: Literal["auto", "held_out", "crossfit"] = "auto"
    queries: Annotated[int, Field(ge=10)] = 500
    ids: Annotated[tuple[str, ...], BeforeValidator(as_parts)] = ()


class EvidencePart(Strict):
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


class UtilityPart(Strict):
    """How many held-out clean questions every defense answers as well.

    They are disjoint from the attacked questions and from those that calibrate detectors.
    """

    queries: Annotated[int, Field(ge=1)] = 200


class ParaphrasesPart(Strict):
    """Ten paraphrases of each attacked question: five to optimize on, five to evaluate on.

    ``path`` names a file of JSON lines ``{"query_id": ..., "paraphrases": [ten]}``; without it
    the helper model writes them from the template ``prompt``. With ``evaluate`` the last five
    are asked as questions of their own.
    """

    path: str = ""
    prompt: str = "paraphrase"
    evaluate: bool = False


class TaxPart(Strict):
    """What is measured of the poison only on request, because it takes a language model.

    ``perplexity``: that of every passage under the model of ``[language_model]``.
    """

    perplexity: bool = False


class ScoringPart(Strict):
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


class StatisticsPart(Strict):
    """Bootstrap draws and the confidence level of all intervals."""

    draws: Annotated[int, Field(ge=100, le=1_000_000)] = 10_000
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95


class RunPart(Strict):
    """What may not change a result; it is in no key.

    ``workers`` 0 chooses by the generator; ``max_failures`` trials failing in a row stop the
    run; more than the share ``error_budget`` of failed trials makes it end with an error.
    ``allow_remote`` lets poison go into a store that is not on this machine. ``executor``
    ``"ray"`` spreads encoding and local models over a Ray cluster: the one at ``ray_address``,
    with ``ray_workers`` workers (0: as many as fit) of ``ray_cpus`` and ``ray_gpus`` each.
    ``compression`` packs a file of records that has reached ``segment_mib`` mebibytes.
    """

    folder: str = ""
    workers: Annotated[int, Field(ge=0, le=4096)] = 0
    error_budget: Annotated[float, Field(ge=0, le=1)] = 0.05
    max_failures: Annotated[int, Field(ge=1)] = 25
    allow_remote: bool = False
    executor: Literal["local", "ray"] = "local"
    ray_address: str = ""
    ray_workers: Annotated[int, Field(ge=0, le=4096)] = 0
    ray_cpus: Annotated[float, Field(gt=0, le=1024)] = 1.0
    ray_gpus: Annotated[float, Field(ge=0, le=64)] = 0.0
    compression: Literal["none", "gzip", "zstd"] = "none"
    segment_mib: Annotated[float, Field(gt=0, le=4096)] = 64
