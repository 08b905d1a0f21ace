"""What a run takes: tokens, hours and bytes, from counts, a sample of the corpus and speeds.

These are estimates that lean to the high side, like the number of calls: every call of a defense
is taken to hold its longest template and a whole context of average passages, and to be answered
at full length; the judge's holds the longest answer. Passages are average ones of the corpus.
What attacks ask while they craft, and the traces that defenses leave, are not counted, and
records are not taken to be packed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragassay import canon, prompts
from ragassay.errors import ConfigError, StoreError
from ragassay.experiments.estimate import Estimate
from ragassay.experiments.plan import calls_a_context, scorer_calls
from ragassay.experiments.setup import Setup
from ragassay.plugins import ModelScorer
from ragassay.types import ContextEntry, Passage, ScoreRecord, ToolUsage, TrialRecord, TrialSpec

CHARACTERS_PER_TOKEN = 4
SAMPLE = 256
AROUND_PASSAGE = 40
"""Characters that a defense's prompt puts around a passage at most ("Document 3: ")."""

AROUND_ANSWER = 600
"""Characters around an answer in a judge's case: names, item, marker, a note on another try."""

TIMING = "timing.json"
_DIGEST = "0" * 64
_POISON_BYTES = 1024  # of a poison set beside its passages


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """How fast the models are: None where that is not known.

    ``tokens`` are input and output tokens a second, over all that work side by side; ``texts``
    are passages encoded a second. ``source`` says where that comes from.
    """

    tokens: float | None = None
    texts: float | None = None
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("tokens", "texts"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(f"{name} a second must be above 0, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a run takes, estimated.

    ``input_tokens`` and ``output_tokens`` are of all model calls; ``encoded`` counts passages
    over all arms with vectors, and ``vector_bytes`` is their size on disk (None where the
    encoder does not say how long its vectors are). ``folder_bytes`` is the size of the run
    folder as long as nothing in it is packed. Hours are None where the speed is not known.
    """

    passages: int
    input_tokens: int
    output_tokens: int
    encoded: int
    vector_bytes: int | None
    folder_bytes: int
    model_hours: float | None
    encoder_hours: float | None


def measured(folder: Path) -> Speeds:
    """The speeds of a finished run, from its ``timing.json``.

    Raises
    ------
    StoreError
        There is no such file, or it does not say how many tokens there were.
    """
    path = folder / TIMING
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        tokens = told["input_tokens"] + told["output_tokens"]
        asked, encoding = float(told["model_seconds"]), float(told["encoder_seconds"])
        texts = int(told["encoded_texts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{path} does not say what a run took ({' '.join(str(error).split())}); name the "
            "folder of a run that this version finished"
        ) from error
    return Speeds(
        tokens=tokens / asked if tokens and asked else None,
        texts=texts / encoding if texts and encoding else None,
        source=f"measured in {folder}",
    )


def resources(
    setup: Setup, counts: Estimate, *, speeds: Speeds, passages: int | None = None
) -> Resources:
    """Estimate what a run takes.

    Parameters
    ----------
    setup : Setup
        Its corpus is sampled for the length of passages.
    counts : Estimate
        Its trials and calls.
    speeds : Speeds
        For the hours.
    passages : int, optional
        How many passages the corpus is taken to have; by default, those that it has.
    """
    k = max(arm.k for arm in setup.arms)
    number = len(setup.dataset.corpus) if passages is None else passages
    sample = _sample(setup)
    answering = _answering(setup, sample, k)
    longest = _Size(*map(max, zip(*answering.values(), strict=True)))
    judging = _judging(setup, longest.output_tokens * CHARACTERS_PER_TOKEN)
    sizes = answering | judging
    sized = [(calls, sizes.get(what, longest)) for what, calls in counts.calls.items()]
    inputs = sum(calls * size.input_tokens for calls, size in sized)
    outputs = sum(calls * size.output_tokens for calls, size in sized)
    encoded, size = _vectors(setup, number)
    stored = _folder_bytes(
        setup, counts, sample, k, longest.output_tokens * CHARACTERS_PER_TOKEN, number
    )
    return Resources(
        passages=number,
        input_tokens=inputs,
        output_tokens=outputs,
        encoded=encoded,
        vector_bytes=size,
        folder_bytes=stored,
        model_hours=(inputs + outputs) / speeds.tokens / 3600 if speeds.tokens else None,
        encoder_hours=encoded / speeds.texts / 3600 if speeds.texts else None,
    )


# --------------------------------------------------------------------------------- internals


def _sample(setup: Setup) -> list[Passage]:
    """Passages at equal distances."""
    corpus = setup.dataset.corpus
    places = np.linspace(0, len(corpus) - 1, min(SAMPLE, len(corpus))).astype(int)
    return [corpus[int(place)] for place in dict.fromkeys(places.tolist())]


class _Size(NamedTuple):
    """Tokens of a call at most."""

    input_tokens: int
    output_tokens: int


def _answering(setup: Setup, sample: list[Passage], k: int) -> dict[str, _Size]:
    """The size of the calls of each defense."""
    titles = setup.experiment.file.prompt.titles
    texts = [f"{p.title}\n{p.text}" if titles and p.title else p.text for p in sample]
    passage = sum(map(len, texts)) / max(1, len(texts))
    question = sum(len(q.text) for q in setup.evaluated) / max(1, len(setup.evaluated))
    longest = max(victim.sampling.max_tokens for victim in setup.victims)
    victim = _characters(setup.template)
    found = {}
    for defense in setup.defenses:
        outputs = max(longest, _max_tokens(defense.instance))
        around = max(victim, template_characters(defense.instance))
        # What it asked before may stand in what it asks next, beside the context.
        before = 0 if calls_a_context(defense, k) == 1 else 2 * outputs * CHARACTERS_PER_TOKEN
        inside = question + before + k * (passage + AROUND_PASSAGE)
        found[defense.title] = _Size(_tokens(around + inside), outputs)
    return found


def _judging(setup: Setup, answer: int) -> dict[str, _Size]:
    """The size of the calls of each scorer that asks a model about an answer of so many characters.

    Questions and targets are the longest there are: their number is small, and they are known.
    """
    question = max((len(query.text) for query in setup.evaluated), default=0)
    found = {}
    for scorer in setup.scorers:
        if isinstance(scorer.instance, ModelScorer):
            case = question + _target_characters(setup) + answer + AROUND_ANSWER
            around = template_characters(scorer.instance)
            outputs = _max_tokens(scorer.instance) or answer // CHARACTERS_PER_TOKEN
            found[scorer_calls(scorer)] = _Size(_tokens(around + case), outputs)
    return found


def template_characters(instance: Any) -> int:
    """How long the longest prompt of a plug-in is without what it is filled with.

    A plug-in says so in ``template_characters()``; else its options ``prompt`` and ``*_prompt``
    are taken to name templates. 0 without any.
    """
    if hasattr(instance, "template_characters"):
        return int(instance.template_characters())
    named = (
        getattr(instance, f.name)
        for f in (fields(instance) if is_dataclass(instance) else ())
        if f.name == "prompt" or f.name.endswith("_prompt")
    )
    texts = [name for name in named if isinstance(name, str) and name]
    return max((_characters(prompts.load(name)) for name in texts), default=0)


def _characters(template: prompts.Template) -> int:
    return sum(len(m.content) for m in template.render(dict.fromkeys(template.slots, "")))


def _max_tokens(instance: Any) -> int:
    value = getattr(instance, "max_tokens", None)
    return value if isinstance(value, int) else 0


def _target_characters(setup: Setup) -> int:
    """The longest that a judge is shown of a question's target and references."""
    return max(
        (
            sum(map(len, (*target.wanted, *target.references)))
            for target in (setup.dataset.targets[query.id] for query in setup.evaluated)
        ),
        default=0,
    )


def _tokens(characters: float) -> int:
    return -int(-characters // CHARACTERS_PER_TOKEN)


def _vectors(setup: Setup, passages: int) -> tuple[int, int | None]:
    encoded, total = 0, 0
    known = True
    for arm in setup.arms:
        size = getattr(arm.retriever.instance, "vector_bytes", None)
        if size is None:
            continue  # it has no vectors
        encoded += passages
        stored = size(passages)
        known = known and stored is not None
        total += stored or 0
    return encoded, total if known else None


def _folder_bytes(
    setup: Setup, counts: Estimate, sample: list[Passage], k: int, answer: int, passages: int
) -> int:
    """Bytes of the streams: records of the usual shape, in their envelopes, as they are written."""
    trial = _size(_trial(setup, k, "x" * answer))
    scores = sum(_size(_score(scorer.instance)) for scorer in setup.scorers)
    passage = sum(map(_size, sample)) / max(1, len(sample))
    query = max(
        (_size((query, setup.dataset.targets.get(query.id))) for query in setup.evaluated),
        default=0,
    )
    questions = len(setup.evaluated) + len(setup.held_out)
    retrieved = min(passages, questions * k) * len(setup.arms)
    sets = len(setup.attacked) * len(setup.attacks)
    # A set repeats its passages in the details of how they were made.
    poison = sets * (_POISON_BYTES + 2 * max(setup.experiment.file.budgets) * passage)
    trials = counts.trials + counts.controls
    return round(trials * (trial + scores) + retrieved * passage + poison + questions * query)


def _score(scorer: Any) -> ScoreRecord:
    provenance: dict[str, Any] = {"identity": "x" * 32}
    if isinstance(scorer, ModelScorer):
        reply = "x" * _max_tokens(scorer) * CHARACTERS_PER_TOKEN
        provenance = {"model": "x" * 64, "generation": _DIGEST, "attempts": 1, "reply": reply}
    return ScoreRecord(
        trial_key=_DIGEST, scorer="x" * 16, version="1", target_positive=True, correct=False,
        abstained=False, stance="endorses", provenance=provenance,
    )  # fmt: skip


def _trial(setup: Setup, k: int, answer: str) -> TrialRecord:
    question = max((query.text for query in setup.evaluated), key=len, default="")
    setting = setup.settings[0]
    entry = ContextEntry(id="x" * 24, score=0.1234567890123456, origin="corpus", gold=False,
                         kept=True)  # fmt: skip
    return TrialRecord(
        key=_DIGEST,
        spec=TrialSpec(
            protocol=setup.protocol, dataset=setup.dataset.fingerprint, query_id="x" * 12,
            question=question, attack="x" * 16, budget=1, poison=_DIGEST,
            retriever=setting.arm.retriever.identity, defense="x" * 32, defense_label="x" * 16,
            prompt=setup.prompt_identity, generator=setting.victim.generator.identity,
            sampling=setting.victim.sampling, seed=setup.experiment.file.seed,
            setting=setting.label,
        ),
        status="done",
        context=(entry,) * k,
        answer=answer,
        generation=_DIGEST,
        seconds=1.234,
        suspicion={f"{place:024}": 0.1234567890123456 for place in range(k)},
        usage=ToolUsage(model_calls=k, input_tokens=9999, output_tokens=999),
    )  # fmt: skip


def _size(record: Any) -> int:
    line = {
        "at": "x" * 25,
        "body": canon.to_plain(record),
        "key": _DIGEST,
        "kind": "trials",
        "v": 1,
    }
    return len(canon.dumps(line).encode("utf-8", "surrogatepass")) + 1
