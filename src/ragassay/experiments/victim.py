"""The system under attack as an attacker's view reaches it: the experiment's own pipeline.

An attack is crafted once and played in every setting. What it observes while it is crafted is
the first arm's retriever and the first victim; in the other settings it transfers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay import plugins
from ragassay.canon import digest
from ragassay.errors import BackendError, ConfigError
from ragassay.experiments.context import Context, Ready, expanded, make_ready
from ragassay.experiments.opened_models import OpenedModels
from ragassay.experiments.plan import UNDEFENDED
from ragassay.experiments.setup import Arm, Named, Setup, is_fitted
from ragassay.experiments.trial import Bench, Job, run_trial
from ragassay.experiments.view import Asks, Outcome
from ragassay.plugins import Index
from ragassay.plugins.access import OpenEncoder, OpenGenerator, WhiteBoxEncoder, WhiteBoxLM
from ragassay.types import Hit, Passage, Query, TrialSpec

_FIRST_LOOK = 32  # corpus passages that may stand between scored texts before a wider search


class AttackedSystem:
    """The first setting of an experiment, ready to be queried by attackers.

    Parameters
    ----------
    setup : Setup
        The experiment.
    index : callable
        Gives the index of the first arm; called once, when something is first retrieved.
    victim : callable
        Gives the client of the first victim; called once, when it is first asked.
    models : OpenedModels, optional
        What defenses look into.
    """

    def __init__(
        self,
        setup: Setup,
        index: Callable[[], Index],
        victim: Callable[[], Asks],
        models: OpenedModels | None = None,
    ) -> None:
        self._setup = setup
        self._models = models
        self._setting = setup.settings[0]
        self._open_index = index
        self._open_victim = victim
        self._armed: dict[str, dict[tuple[str, str], Ready]] = {}

    def hits(self, query: Query, k: int | None, standing: Sequence[Passage]) -> tuple[Hit, ...]:
        """The top-k of corpus and standing poison."""
        return self._top(query, standing, k or self._setting.arm.k)

    def scores(self, query: Query, texts: Sequence[str]) -> NDArray[np.float64]:
        """The score with which each text would be ranked for a question, shape (n,).

        The overlay of the index scores them, so that any retriever serves: the search is
        widened until every text is found.
        """
        passages = [Passage(id=f"probe-{number}", text=text) for number, text in enumerate(texts)]
        total = len(self._setup.dataset.corpus) + len(passages)
        k = min(total, len(passages) + _FIRST_LOOK)
        while True:
            hits = self._index.poisoned([query], passages, k)[0]
            found = {hit.passage.id: hit.score for hit in hits}
            if k >= total or all(passage.id in found for passage in passages):
                return np.array([found[passage.id] for passage in passages], dtype=np.float64)
            k = min(total, 4 * k)

    def answer(self, query: Query, poison: Sequence[Passage], against: str) -> Outcome:
        """What the system does with the poison in its corpus.

        Raises
        ------
        ConfigError
            The experiment has no defense of this title.
        BackendError
            The victim's model, or one that the defense asks, failed.
        """
        ready = self._ready(against or UNDEFENDED, query.group)
        hits = self._top(query, poison, expanded(self._setting.arm, ready.expand).k)
        spec = self._spec(query, ready.identity, against or UNDEFENDED)
        job = Job(
            key=digest([spec, hits]), spec=spec, query=query, context=hits, owner={},
            gold=frozenset(), defense=ready.instance,
        )  # fmt: skip
        record = run_trial(job, self._bench)
        if record.status == "failed":
            raise BackendError(f"while the attack asked the victim: {record.error}")
        return Outcome(
            text=record.answer or "",
            retrieved=frozenset(entry.id for entry in record.context),
            kept=frozenset(
                entry.id for entry in record.context if entry.kept and not record.declined
            ),
            usage=record.usage,
        )

    def encoder(self) -> WhiteBoxEncoder:
        """The retriever's encoder, opened; loaded once.

        Raises
        ------
        ConfigError
            The retriever has no encoder whose gradients can be had.
        """
        return self._encoder

    def language_model(self) -> WhiteBoxLM:
        """The attacker's language model, opened; loaded once.

        Raises
        ------
        ConfigError
            The generator does not give its internals.
        """
        return self._language_model

    # ----------------------------------------------------------------------------- internals

    def _top(self, query: Query, poison: Sequence[Passage], k: int) -> tuple[Hit, ...]:
        if not poison:
            return self._index.search([query], k)[0]
        return self._index.poisoned([query], poison, k)[0]

    @cached_property
    def _index(self) -> Index:
        return self._open_index()

    @cached_property
    def _bench(self) -> Bench:
        setup = self._setup
        return Bench(
            model=self._open_victim(),
            embed=embedder(self._index),
            template=setup.template,
            prompt=setup.experiment.file.prompt,
            sampling=self._setting.victim.sampling,
            seed=setup.experiment.file.seed,
            k=self._setting.arm.k,
            victim=self._setting.victim.generator,
            models=self._models,
        )

    def _ready(self, title: str, group: str) -> Ready:
        """A defense as it stands in the experiment, calibrated for the question's group."""
        if title not in self._armed:
            setup, arm = self._setup, self._setting.arm
            chosen = tuple(each for each in setup.defenses if each.title == title)
            if not chosen:
                raise ConfigError(
                    f"an attack is tuned against {title!r}, which is no defense of the "
                    f"experiment; it has {', '.join(each.title for each in setup.defenses)}"
                )
            asked = [*setup.evaluated, *setup.held_out]
            clean: dict[str, Context] = {}
            if any(is_fitted(each.instance) for each in chosen):
                found = self._index.search(asked, arm.k)
                clean = {query.id: hits for query, hits in zip(asked, found, strict=True)}
            self._armed[title] = make_ready(
                replace(setup, defenses=chosen), arm, self._index, clean,
                lambda query: self._bench.tools(query, "calibration"),
            )  # fmt: skip
        return self._armed[title][title, group]

    def _spec(self, query: Query, defense: str, label: str) -> TrialSpec:
        setup = self._setup
        return TrialSpec(
            protocol="attacker",
            dataset=setup.dataset.fingerprint,
            query_id=query.id,
            question=query.text,
            attack="",
            budget=0,
            poison="",
            retriever=f"{self._setting.arm.retriever.identity}:k{self._setting.arm.k}",
            defense=defense,
            defense_label=label,
            prompt=setup.prompt_identity,
            generator=self._setting.victim.generator.identity,
            sampling=self._setting.victim.sampling,
            seed=setup.experiment.file.seed,
        )

    @cached_property
    def _encoder(self) -> WhiteBoxEncoder:
        return open_encoder(self._setting.arm)

    @cached_property
    def _language_model(self) -> WhiteBoxLM:
        return open_language_model(self._setup.helper)


def embedder(index: Index) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    """The function with which an index embeds texts; one that refuses where it has no encoder."""
    embed: Callable[[Sequence[str]], NDArray[np.float32]] | None = getattr(index, "embed", None)
    if embed is not None:
        return embed

    def refuse(texts: Sequence[str]) -> NDArray[np.float32]:
        raise BackendError(
            "this defense embeds passages, and the retriever has no encoder; "
            "use retriever.plugin = 'dense'"
        )

    return refuse


def open_encoder(arm: Arm) -> WhiteBoxEncoder:
    """Open the encoder of an arm's retriever for white-box attacks.

    Raises
    ------
    ConfigError
        The retriever has none, or its encoder does not give gradients.
    """
    retriever: Any = arm.retriever.instance
    direct = getattr(retriever, "white_box", None)
    if direct is not None:
        opened: WhiteBoxEncoder = direct()
        return opened
    raise ConfigError(
        f"retriever {arm.title!r} has no encoder that can be opened, and a white-box attack needs "
        "its gradients; use retriever.plugin = 'dense'"
    )


def token_counter(name: str) -> tuple[Callable[[str], int], int]:
    """Count tokens as an encoder does, special tokens included, and say where it cuts.

    Raises
    ------
    ConfigError
        The encoder does not show its tokens, or has no limit.
    """
    encoder = plugins.build(plugins.find("encoder", name), {})
    if not isinstance(encoder, OpenEncoder):
        raise ConfigError(f"encoder {name!r} does not show its tokens; use 'minilm'")
    opened = encoder.white_box(similarity="cosine")
    limit = opened.max_tokens
    if limit is None:
        raise ConfigError(f"encoder {name!r} cuts no passage: it has no limit of tokens")
    frame = len(opened.opening) + len(opened.closing)
    return lambda text: frame + len(opened.tokenize(text)), limit


def open_language_model(part: Named) -> WhiteBoxLM:
    """Open a generator for attacks that need a language model's internals.

    Raises
    ------
    ConfigError
        It does not give them.
    """
    if not isinstance(part.instance, OpenGenerator):
        raise ConfigError(
            f"generator {part.title!r} gives no internals, and the attack needs those of a "
            "language model; name an open one in [helper], such as 'smollm2' or 'hf'"
        )
    return part.instance.white_box()
