"""Who competes with which answers: the plays of an arena, a pure function of its settings.

Source: PoisonArena, section 3.3 and appendix C.5 (order of attack) and C.6 (content).

Deviations: see :mod:`ragassay.arena.schedule`. The order of attack is played for every pair of
attackers on every question, with two answers in both directions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ragassay import canon
from ragassay.arena.pool import Assignment, Position, QueryPool
from ragassay.arena.schedule import Design, draw_round
from ragassay.config import ArenaPart
from ragassay.errors import ConfigError, NotEstimable

Kind = Literal["single", "round", "order"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A group of plays of one question. ``index`` counts within its kind.

    ``single``: one attacker alone. ``round``: competitors, once for each assignment of answers.
    ``order``: two attackers; ``second`` names the one that crafted after the other, and is
    empty where both crafted against the clean corpus.
    """

    kind: Kind
    index: int
    query_id: str
    assignments: tuple[Assignment, ...]
    second: str = ""

    @property
    def key(self) -> str:
        """Its key in the run folder."""
        return f"{self.kind}-{self.index}"


def designs(part: ArenaPart, seed: int) -> tuple[Design, ...]:
    """How rounds are drawn, in turn; a single design where the number is random."""
    base = Design(mode=part.assignment, random_draws=part.draws, seed=seed)
    return tuple(replace(base, attackers=size) for size in part.attackers) or (base,)


def draw(index: int, pools: Sequence[QueryPool], part: ArenaPart, seed: int) -> Drawn:
    """Draw a round by its number.

    Raises
    ------
    ConfigError
        No question has so many attackers with documents for different answers.
    """
    several = designs(part, seed)
    try:
        found = draw_round(index, pools, several[index % len(several)])
    except NotEstimable as error:
        raise ConfigError(f"[arena]: {error}") from error
    return Drawn(kind="round", index=index, query_id=found.query_id, assignments=found.assignments)


def singles(pools: Sequence[QueryPool], part: ArenaPart, seed: int) -> Iterator[Drawn]:
    """Every attacker alone on every question, with ``single`` of its answers.

    Which answers these are is drawn for the question, so that all attackers play the same ones.
    """
    index = 0
    for pool in sorted(pools, key=lambda pool: pool.query_id):
        rng = canon.rng_for("arena-single", seed, pool.query_id)
        order = [int(i) for i in rng.permutation(len(pool.answers))]
        for attacker in pool.participants:
            chosen: list[Position] = [p for p in order if p in pool.positions(attacker)]
            if pool.untargeted(attacker):
                chosen = [None]
            for position in chosen[: part.single]:
                yield Drawn(
                    kind="single", index=index, query_id=pool.query_id,
                    assignments=({attacker: position},),
                )  # fmt: skip
                index += 1


def orders(pools: Sequence[QueryPool], free: frozenset[str]) -> Iterator[Drawn]:
    """Every pair of targeted attackers on every question: together, and one after the other."""
    index = 0
    for pool in sorted(pools, key=lambda pool: pool.query_id):
        names = [name for name in pool.participants if name not in free]
        for a, b in itertools.combinations(names, 2):
            common = sorted({*pool.positions(a)} & {*pool.positions(b)})[:2]
            if len(common) < 2:
                continue
            both: tuple[Assignment, ...] = (
                dict(zip((a, b), common, strict=True)),
                dict(zip((b, a), common, strict=True)),
            )
            for second in ("", a, b):
                yield Drawn(
                    kind="order", index=index, query_id=pool.query_id, assignments=both,
                    second=second,
                )  # fmt: skip
                index += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A play as recorded: its context, and what got into it.

    ``context`` is a digest, empty for the clean context. ``without`` gives for each untargeted
    attacker that is in it the digest of the context without its passages.
    """

    context: str
    hits: Mapping[str, int]
    injected: Mapping[str, int]
    without: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the same draws are played on: a setting, documents for each attacker, how retrieved.

    ``context`` is ``retrieved``, or ``content``: the best document of each attacker is put
    into the context, and nothing else. The study of triggers and contents adds ``retrieved`` and
    ``content`` with a variant of all documents, such as ``content:none+common``.
    """

    setting: str
    budget: int
    context: str = "retrieved"

    @property
    def guaranteed(self) -> bool:
        """Whether documents are put into the context without retrieval."""
        return guaranteed(self.context)

    @property
    def label(self) -> str:
        """What records call it."""
        return f"{self.setting}|{self.budget}|{self.context}"


def guaranteed(context: str) -> bool:
    """Whether a scene with this context has no retrieval."""
    return context.partition(":")[0] == "content"


def is_variant(scene: str) -> bool:
    """Whether a scene, by its label, belongs to the study of triggers and contents alone."""
    return ":" in scene.rpartition("|")[2]


def body_of(drawn: Drawn, cluster: str, played: Mapping[str, Sequence[Played]]) -> dict[str, Any]:
    """What the run folder holds of it; ``played`` by the label of the scene."""
    return {
        "kind": drawn.kind,
        "index": drawn.index,
        "query_id": drawn.query_id,
        "cluster": cluster,
        "second": drawn.second,
        "assignments": [dict(each) for each in drawn.assignments],
        "played": {
            scene: [
                {
                    "context": play.context, "hits": dict(play.hits),
                    "injected": dict(play.injected), "without": dict(play.without),
                }
                for play in plays
            ]
            for scene, plays in played.items()
        },
    }  # fmt: skip
