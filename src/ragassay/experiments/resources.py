"""What a run takes: tokens, hours and bytes, from counts, a sample of the corpus and speeds.

These are estimates that lean to the high side, like the number of calls: every call is taken to
hold a whole context of average passages, and to be answered at full length. What attacks ask
while they craft, and the traces that defenses leave, are not counted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragassay import canon
from ragassay.errors import ConfigError, StoreError
from ragassay.experiments.estimate import Estimate
from ragassay.experiments.setup import Setup
from ragassay.types import ContextEntry, Passage, ScoreRecord, TrialRecord, TrialSpec

CHARACTERS_PER_TOKEN = 4
SAMPLE = 256
TIMING = "timing.json"
_DIGEST = "0" * 64


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
    folder. Hours are None where the speed is not known.
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
    longest = max(victim.sampling.max_tokens for victim in setup.victims)
    number = len(setup.dataset.corpus) if passages is None else passages
    sample = _sample(setup)
    calls = sum(counts.calls.values())
    inputs = calls * -(-_prompt_characters(setup, sample, k) // CHARACTERS_PER_TOKEN)
    outputs = calls * longest
    encoded, size = _vectors(setup, number)
    stored = _folder_bytes(setup, counts, sample, k, longest * CHARACTERS_PER_TOKEN, number)
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


def _prompt_characters(setup: Setup, sample: list[Passage], k: int) -> int:
    titles = setup.experiment.file.prompt.titles
    texts = [f"{p.title}\n{p.text}" if titles and p.title else p.text for p in sample]
    average = sum(map(len, texts)) / max(1, len(texts))
    question = sum(len(q.text) for q in setup.evaluated) / max(1, len(setup.evaluated))
    empty = setup.template.render(dict.fromkeys(setup.template.slots, ""))
    return round(sum(len(m.content) for m in empty) + question + k * (average + 1))


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
    """Bytes of the streams: records of the usual shape, as they are written."""
    trial = _size(_trial(setup, k, "x" * answer))
    score = _size(
        ScoreRecord(
            trial_key=_DIGEST, scorer="x" * 16, version="1", target_positive=True, correct=False,
            abstained=False, stance="endorses", provenance={"identity": "x" * 32},
        )
    )  # fmt: skip
    passage = sum(map(_size, sample)) / max(1, len(sample))
    questions = len(setup.evaluated) + len(setup.held_out)
    retrieved = min(passages, questions * k) * len(setup.arms)
    poison = len(setup.attacked) * len(setup.attacks) * max(setup.experiment.file.budgets)
    trials = counts.trials + counts.controls
    return round(trials * (trial + score * len(setup.scorers)) + (retrieved + poison) * passage)


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
    )  # fmt: skip


def _size(record: Any) -> int:
    return len(canon.dumps(canon.to_plain(record)).encode("utf-8", "surrogatepass")) + 1
