"""One trial: one query, one context, one defense, end to end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ragassay import canon
from ragassay.canon import rng_for
from ragassay.config import MAX_K, PromptPart
from ragassay.errors import BackendError, ConfigError, Interrupted, PluginError, RagassayError
from ragassay.experiments.context import Context, blind
from ragassay.experiments.opened_models import OpenedModels, counted
from ragassay.experiments.poison import Asks
from ragassay.experiments.setup import Named
from ragassay.matching import normalize_text
from ragassay.plugins import Defense
from ragassay.plugins.access import WhiteBoxLM
from ragassay.prompts import Template
from ragassay.types import (
    ContextEntry,
    Generation,
    Hit,
    Message,
    Query,
    Request,
    Sampling,
    Target,
    ToolUsage,
    TrialRecord,
    TrialSpec,
    Verdict,
)

_LOG = logging.getLogger(__name__)

Embed = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A trial to run: its spec and key, the context, the ledger's view of it, the defense.

    ``injected`` maps a query id to the normalized texts that were injected with it, among the
    queries whose poison was there: a corpus passage that equals one counts as poison too.
    ``template`` replaces the victim's prompt where a protocol asks otherwise. ``targets`` are
    what the answer is labeled for: scores of a target stand under ``<key>#<name>``, those of
    the question's own target under the key. With ``screen`` the defense says what it lets
    through, and the victim is not asked: the record has no answer and gets no label.
    """

    key: str
    spec: TrialSpec
    query: Query
    context: Context
    owner: Mapping[str, str]
    gold: frozenset[str]
    defense: Defense
    injected: Mapping[str, frozenset[str]] = field(default_factory=dict)
    template: Template | None = None
    targets: Mapping[str, Target] | None = None
    screen: bool = False

    def scored(self) -> dict[str, Target] | None:
        """Targets by the key of their scores; None for the question's own."""
        if self.targets is None:
            return None
        return {score_key(self.key, name): target for name, target in self.targets.items()}


def score_key(trial: str, target: str) -> str:
    """Where the scores of one of several targets stand."""
    return f"{trial}#{target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all trials of a run share: the models and the victim's prompt.

    ``k`` is the size of a context, ``victim`` the generator behind ``model``, ``models`` what
    opens it. Once ``stopped`` is set, models that defenses look into refuse to go on.
    """

    model: Asks
    embed: Embed
    template: Template
    prompt: PromptPart
    sampling: Sampling
    seed: int
    k: int = MAX_K
    victim: Named | None = None
    models: OpenedModels | None = None
    stopped: threading.Event = field(default_factory=threading.Event)

    def tools(self, query: Query, key: str, template: Template | None = None) -> DefenseTools:
        """Make the tools for one trial; ``template`` is the victim's prompt (None: as set)."""
        return DefenseTools(self, query, key, template)


class DefenseTools:
    """The tools of one trial; every call is counted, whether or not the cache answers it."""

    def __init__(
        self, bench: Bench, query: Query, key: str, template: Template | None = None
    ) -> None:
        self._bench = bench
        self._template = template or bench.template
        self._query = query
        self.rng = rng_for(bench.seed, "defense", key)
        self.usage = ToolUsage()

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Ask the model and count."""
        answers = self._bench.model.ask(requests)
        self.usage = replace(
            self.usage,
            model_calls=self.usage.model_calls + len(answers),
            input_tokens=self.usage.input_tokens + sum(a.input_tokens for a in answers),
            output_tokens=self.usage.output_tokens + sum(a.output_tokens for a in answers),
        )
        return answers

    def ask(
        self, prompts: Sequence[Sequence[Message]], *, max_tokens: int | None = None
    ) -> list[str]:
        """Ask the victim's model; see :class:`ragassay.plugins.Tools`."""
        sampling = self._bench.sampling
        if max_tokens is not None:
            sampling = replace(sampling, max_tokens=max_tokens)
        requests = [Request(messages=tuple(prompt), sampling=sampling) for prompt in prompts]
        return [answer.text for answer in self.generate(requests)]

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts with the experiment's encoder, shape ``(len(texts), d)``."""
        self.usage = replace(self.usage, encoded_texts=self.usage.encoded_texts + len(texts))
        return self._bench.embed(texts)

    @property
    def k(self) -> int:
        """How many passages a context has."""
        return self._bench.k

    @property
    def victim_model(self) -> WhiteBoxLM:
        """The victim's model, opened; see :class:`ragassay.plugins.Tools`."""
        bench = self._bench
        if bench.models is None or bench.victim is None:
            raise PluginError("the victim's model cannot be opened here")
        return counted(bench.models.victim(bench.victim), self._count, self._check)

    def token_nll(self, texts: Sequence[str]) -> list[NDArray[np.float64]]:
        """Losses of tokens; see :class:`ragassay.plugins.Tools`."""
        self.usage = replace(self.usage, scored_texts=self.usage.scored_texts + len(texts))
        return self._models().reading().token_nll(texts, self._check)

    def token_halves(self, texts: Sequence[str]) -> list[tuple[str, str]]:
        """Cut texts at the middle of their tokens."""
        return self._models().reading().halves(texts)

    def answer_prompt(self, query: Query, hits: Sequence[Hit]) -> tuple[Message, ...]:
        """Render the victim's own prompt."""
        contexts = "\n".join(self.passage_text(hit) for hit in self.ordered(hits))
        return self._template.render({"contexts": contexts, "question": query.text})

    def passage_text(self, hit: Hit) -> str:
        """The text of a passage as the victim sees it."""
        passage = hit.passage
        with_title = self._bench.prompt.titles and passage.title
        return f"{passage.title}\n{passage.text}" if with_title else passage.text

    def ordered(self, hits: Sequence[Hit]) -> tuple[Hit, ...]:
        """Hits in the experiment's prompt order."""
        order = self._bench.prompt.order
        if order == "reverse":
            return tuple(reversed(hits))
        if order == "shuffle":
            rng = rng_for(self._bench.seed, "order", self._query.id)
            place_of = rng.permutation(MAX_K)  # of fixed size: a filtered context keeps its order
            return tuple(sorted(hits, key=lambda hit: int(place_of[hit.rank - 1])))
        return tuple(hits)

    def _models(self) -> OpenedModels:
        if self._bench.models is None:
            raise PluginError("no language model scores texts here")
        return self._bench.models

    def _count(self, calls: int, input_tokens: int, output_tokens: int) -> None:
        self.usage = replace(
            self.usage,
            model_calls=self.usage.model_calls + calls,
            input_tokens=self.usage.input_tokens + input_tokens,
            output_tokens=self.usage.output_tokens + output_tokens,
        )

    def _check(self) -> None:
        if self._bench.stopped.is_set():
            raise Interrupted("stopped; what was scored so far is kept in the cache")


def run_trial(job: Job, bench: Bench) -> TrialRecord:
    """Run one trial. A back end that fails gives a failed record, never an outcome.

    Raises
    ------
    ConfigError
        The defense broke its contract (kept a passage it was not given, and the like).
    PluginError
        The defense raised something that is not ours: a fault in it, which must not pass for
        an outcome.
    """
    start = time.perf_counter()
    tools = bench.tools(job.query, job.key, job.template)
    hits, back = blind(job.context, salt=job.key, titles=bench.prompt.titles)
    try:
        verdict = job.defense.apply(job.query, hits, tools)
        _check(verdict, hits, job.spec.defense_label)
        answer, generation = (None, "") if job.screen else _answer(job, verdict, tools)
    except BackendError as error:
        return TrialRecord(
            key=job.key,
            spec=job.spec,
            status="failed",
            error=str(error),
            seconds=round(time.perf_counter() - start, 6),
        )
    except RagassayError:
        raise
    except Exception as error:
        _LOG.debug("defense %s failed", job.spec.defense_label, exc_info=True)
        raise PluginError(
            f"defense {job.spec.defense_label!r} raised {type(error).__name__} on question "
            f"{job.query.id!r}: {error}"
        ) from error
    kept = {back[hit.passage.id] for hit in verdict.kept}
    return TrialRecord(
        key=job.key,
        spec=job.spec,
        status="done",
        context=tuple(
            ContextEntry(
                id=hit.passage.id,
                score=hit.score,
                origin=_origin(hit.passage.id, job),
                gold=hit.passage.id in job.gold,
                kept=hit.passage.id in kept,
                copy=_copy(hit, job),
            )
            for hit in job.context
        ),
        answer=answer,
        declined=verdict.abstain,
        suspicion={back.get(key, key): value for key, value in verdict.suspicion.items()},
        trace=verdict.trace,
        usage=tools.usage,
        generation=generation,
        seconds=round(time.perf_counter() - start, 6),
    )


def _answer(job: Job, verdict: Verdict, tools: DefenseTools) -> tuple[str, str]:
    if verdict.abstain:
        return "", ""
    if verdict.answer is not None:
        return verdict.answer, ""
    request = Request(
        messages=tools.answer_prompt(job.query, verdict.kept),
        sampling=job.spec.sampling,
        sample_index=job.spec.sample,
    )
    generation = tools.generate([request])[0]
    return generation.text, generation.digest


def _origin(passage_id: str, job: Job) -> Literal["corpus", "own", "foreign"]:
    owner = job.owner.get(passage_id)
    if owner is None:
        return "corpus"
    return "own" if owner == job.query.id else "foreign"


def _copy(hit: Hit, job: Job) -> Literal["", "own", "foreign"]:
    if not job.injected or hit.passage.id in job.owner:
        return ""
    text = normalize_text(hit.passage.text)
    if text in job.injected.get(job.query.id, ()):
        return "own"
    return "foreign" if any(text in texts for texts in job.injected.values()) else ""


def _check(verdict: Verdict, hits: Sequence[Hit], label: str) -> None:
    given = [hit.passage.id for hit in hits]
    kept = [hit.passage.id for hit in verdict.kept]
    unknown = sorted((set(kept) | set(verdict.suspicion)) - set(given) - {"context"})
    if unknown:
        raise ConfigError(f"defense {label!r} names passages that it was not given: {unknown[0]}")
    if len(set(kept)) != len(kept):
        raise ConfigError(f"defense {label!r} keeps a passage twice")
    if verdict.abstain and verdict.answer is not None:
        raise ConfigError(f"defense {label!r} both answers and abstains")
    try:
        canon.dumps(verdict.trace)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"defense {label!r}: its trace is not plain JSON: {error}") from error
