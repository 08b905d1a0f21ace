"""What gradient attacks share around the search: queries, texts to carry, and the poison set."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from ragassay.attacks.poisonedrag import PoisonedRAG, Source
from ragassay.attacks.search_tokens import Found, RawSlot, Slot, comparable
from ragassay.canon import digest
from ragassay.errors import ConfigError
from ragassay.matching import clean_str
from ragassay.plugins import AttackerView
from ragassay.plugins.access import WhiteBoxEncoder
from ragassay.types import Cost, Json, Knowledge, Message, Passage, PoisonSet, Target

Assign = Literal["kmeans", "all"]
Compat = Literal["paper", "released"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """A text that argues for the attacker's answer, and how it came about."""

    text: str
    note: Mapping[str, Json]


def known_queries(view: AttackerView, knowledge: Knowledge) -> tuple[str, ...]:
    """The questions that an attack may optimize on.

    Raises
    ------
    ConfigError
        It knows paraphrases only, and there are none.
    """
    if knowledge.query == "exact":
        return (view.question,)
    if not view.paraphrases:
        raise ConfigError(
            "the attack knows paraphrases of the question only, and there are none; add "
            "[paraphrases] to the experiment"
        )
    return view.paraphrases


def write_payloads(
    target: Target,
    view: AttackerView,
    rng: np.random.Generator,
    *,
    question: str,
    writer: PoisonedRAG,
) -> list[Payload]:
    """Get the texts that the passages carry, as PoisonedRAG does, without its question part.

    Raises
    ------
    ConfigError
        There is no wrong answer, or there are no released texts where they are asked for.
    """
    seen = cast("AttackerView", _Writing(view, question))
    written = writer.craft(target, seen, rng)
    return [
        Payload(text=passage.text, note={key: note[key] for key in ("verified", "trials")})
        for passage, note in zip(written.passages, written.details, strict=True)
    ]


def writer_of(n: int, source: Source, max_words: int, trials: int) -> PoisonedRAG:
    """The attack that writes the texts to carry."""
    return PoisonedRAG(n=n, source=source, max_words=max_words, trials=trials, order="none")


def clusters(
    encoder: WhiteBoxEncoder, queries: NDArray[np.floating], count: int, assign: Assign
) -> list[NDArray[np.intp]]:
    """Say which queries each of some passages attacks.

    Parameters
    ----------
    queries : ndarray, shape (Q, D)
        Embedded queries.
    count : int
        Number of passages.
    assign : {"kmeans", "all"}
        One k-means cluster for each passage (in turn where there are fewer), or all queries.

    Returns
    -------
    list of ndarray of int, length ``count``
        Row numbers, ascending. Larger clusters come first.

    Examples
    --------
    >>> from ragassay.testing.toys import ToyEncoder
    >>> rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]])
    >>> [part.tolist() for part in clusters(ToyEncoder(), rows, 2, "kmeans")]
    [[0, 2], [1]]
    """
    everything = np.arange(len(queries))
    if count == 1 or assign == "all" or len(queries) == 1:
        return [everything] * count
    points = comparable(encoder, queries)
    distinct, labels = np.unique(points, axis=0, return_inverse=True)
    if len(distinct) > count:
        from sklearn.cluster import KMeans

        labels = KMeans(n_clusters=count, random_state=0, n_init=10).fit_predict(points)
    parts = [everything[labels.reshape(-1) == label] for label in np.unique(labels)]
    parts.sort(key=lambda part: (-len(part), int(part[0])))
    return [parts[number % len(parts)] for number in range(count)]


def slot_length(slot: Slot, wanted: int) -> int:
    """How many tokens the slot gets: what is wanted, within the encoder's and the word limit."""
    limits = [limit for limit in (slot.room, slot.word_room) if limit is not None]
    return min([wanted, *limits])


def mean_similarity(
    encoder: WhiteBoxEncoder, queries: NDArray[np.floating], texts: Sequence[str]
) -> list[float]:
    """Mean similarity of texts to the queries, from the texts themselves."""
    rows = comparable(encoder, encoder.embed(texts)) @ comparable(encoder, queries).T
    return [float(value) for value in rows.mean(axis=1)]


def report(
    found: Found,
    encoder: WhiteBoxEncoder,
    queries: NDArray[np.floating],
    slot: Slot | RawSlot,
    first: str,
    *,
    keep: bool,
) -> tuple[str, dict[str, Json]]:
    """The passage that a search came to, and its details.

    Parameters
    ----------
    found : Found
        What the search found.
    first : str
        The passage before it.
    keep : bool
        Whether the first passage is taken where the search has not improved on it.

    Returns
    -------
    tuple of str and dict
        The passage, and among the details ``start_score`` and ``score``, the mean similarities
        of the two texts, and ``score_tokens``, that of the tokens that were searched, which
        the text need not have (``same_tokens``).
    """
    text = first if keep and not found.trace else slot.text(found.ids)
    start, score = mean_similarity(encoder, queries, [first, text])
    if keep and score < start:
        text, score = first, start
    whole = slot.sequence(found.ids)
    special = {*encoder.opening, *encoder.closing, encoder.mask} if slot.wrapped else set()
    return text, {
        "start_score": start,
        "score": score,
        "score_tokens": found.score,
        "same_tokens": encoder.tokenize(text) == tuple(i for i in whole if i not in special),
        "trigger_tokens": sum(i != encoder.mask for i in found.ids),
        "iterations": found.iterations,
        "evaluations": found.evaluations,
        "retokenization_losses": found.losses,
        "trace": [[iteration, value] for iteration, value in found.trace],
    }


def assemble(
    attack: str,
    target: Target,
    knowledge: Knowledge,
    crafted: Sequence[tuple[str, Payload, Mapping[str, Json]]],
    cost: Cost,
) -> PoisonSet:
    """Make the poison set of some (text, payload, details)."""
    passages, details = [], []
    for number, (text, payload, note) in enumerate(crafted):
        key = digest([target.query_id, attack, number, text])[:16]
        passages.append(Passage(id=f"poison-{key}", text=text))
        details.append(
            {
                **payload.note,
                "words": len(text.split()),
                "payload": payload.text,
                "payload_unchanged": payload.text in text,
                "payload_intact": clean_str(target.wanted[0]) in clean_str(text),
                **note,
            }
        )
    return PoisonSet(
        attack=attack,
        query_id=target.query_id,
        passages=tuple(passages),
        knowledge=knowledge,
        wanted=target.wanted,
        details=tuple(details),
        cost=cost,
    )


class Meter:
    """Counts what an encoder does while an attack works."""

    def __init__(self, encoder: WhiteBoxEncoder) -> None:
        self._encoder = encoder
        self._forwards = encoder.forwards
        self._backwards = encoder.backwards
        self._start = time.perf_counter()

    def cost(self) -> Cost:
        """Encoder passes and seconds so far."""
        return Cost(
            encoder_forwards=self._encoder.forwards - self._forwards,
            encoder_backwards=self._encoder.backwards - self._backwards,
            seconds=round(time.perf_counter() - self._start, 6),
        )


def check_counts(attack: Any, *names: str) -> None:
    """Refuse options below 1.

    Raises
    ------
    ConfigError
        One is.
    """
    for name in names:
        if getattr(attack, name) < 1:
            raise ConfigError(f"need {name} >= 1, got {getattr(attack, name)}")


def check_choices(attack: Any, **kinds: Any) -> None:
    """Refuse options that are not among the literals of their type.

    Raises
    ------
    ConfigError
        One is not.
    """
    for name, kind in kinds.items():
        if getattr(attack, name) not in get_args(kind):
            known = ", ".join(get_args(kind))
            raise ConfigError(f"need {name} to be one of {known}, got {getattr(attack, name)!r}")


def mask_of(encoder: WhiteBoxEncoder) -> int:
    """The encoder's mask token.

    Raises
    ------
    ConfigError
        It has none.
    """
    if encoder.mask is None:
        raise ConfigError(
            f"the encoder {encoder.identity} has no mask token to start from; use another start"
        )
    return encoder.mask


class _Writing:
    """The part of a view that writing texts takes, with the question that the attack knows."""

    def __init__(self, view: AttackerView, question: str) -> None:
        self._view = view
        self.question = question

    @property
    def drafts(self) -> tuple[str, ...]:
        return self._view.drafts

    def ask_helper(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        max_tokens: int = 96,
        temperature: float = 1.0,
        sample_index: int = 0,
    ) -> list[str]:
        return self._view.ask_helper(
            prompts, max_tokens=max_tokens, temperature=temperature, sample_index=sample_index
        )
