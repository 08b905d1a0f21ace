"""What competes in an arena: poison for every attacker and answer, with its retrieval scores.

Poison is crafted once for each question, attacker and answer, or read from a release. In the
run folder and in contexts an injected passage is known by a digest of its text, so that equal
contexts are one trial, whoever injected what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ragassay import canon, plugins
from ragassay.arena.pool import Documents, Position, QueryPool, restricted
from ragassay.arena.released import UNTARGETED, read_questions
from ragassay.config import ArenaPart
from ragassay.errors import ConfigError
from ragassay.experiments.arena_answers import (
    Answers,
    data_answers,
    released_answers,
    target_name,
)
from ragassay.experiments.arena_released import released_attackers, released_path
from ragassay.experiments.poison import craft_all
from ragassay.experiments.session import Session
from ragassay.experiments.setup import Arm, Setup
from ragassay.types import Cost, Passage, PoisonSet, Query

# The built-in attack that a released one stands for: what it must know is declared there.
_PUBLISHED = {
    "poisonedrag_white": "poisonedrag_whitebox", "poisonedrag_black": "poisonedrag",
    "garag": "garag", "gaslite": "gaslite", "corpus_poison": "corpuspoison",
    "content_poison": "contentpoison", "advdecoding": "advdecoding",
}  # fmt: skip

SetKey = tuple[str, str, Position]  # attacker, question, position of the wanted answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Competitors:
    """Attackers with their poison. ``released`` are pools with released scores, by question."""

    attackers: tuple[str, ...]
    untargeted: frozenset[str]
    answers: Answers
    sets: Mapping[SetKey, PoisonSet]
    released: Mapping[str, QueryPool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """The pools of one arm at one budget, by question, and the passages behind them.

    ``poison`` maps (question, text) to the passage that is injected, ``clean`` an id to one of
    the corpus.
    """

    by_query: Mapping[str, QueryPool]
    poison: Mapping[tuple[str, str], Passage]
    clean: Mapping[str, Passage]


def arena_part(setup: Setup) -> ArenaPart:
    """The settings of the arena.

    Raises
    ------
    ConfigError
        The experiment has none.
    """
    part = setup.experiment.file.arena
    if part is None:
        raise ConfigError("the experiment has no [arena]")
    return part


def competitors(session: Session) -> Competitors:
    """Craft or read the poison, and write wrong answers and poison into the run folder."""
    setup, folder = session.setup, session.folder
    part = arena_part(setup)
    if part.released:
        found = _released(setup, part)
    else:
        session.monitor.stage("finding wrong answers")
        answers = data_answers(setup, part, session.clients.helper, folder)
        found = _crafted(session, answers)
    known = folder.keys("targets")
    items = []
    for query in setup.evaluated:
        pool = found.answers.targets[setup.parents.get(query.id, query.id)]
        if query.id not in known:
            items.append(
                (query.id, {target_name(i): replace(target, query_id=query.id)
                            for i, target in enumerate(pool)})
            )  # fmt: skip
    if items:
        folder.append_many("targets", items)
    if part.released:
        there = folder.keys("poison")
        new = [(canon.digest([key, poison]), poison) for key, poison in found.sets.items()]
        folder.append_many("poison", [item for item in new if item[0] not in there])
    return found


def _crafted(session: Session, answers: Answers) -> Competitors:
    setup = session.setup
    session.monitor.stage("crafting the poison")
    free = {a.title for a in setup.attacks if getattr(a.instance, "untargeted", False)}
    sets: dict[SetKey, PoisonSet] = {}
    for position in range(answers.largest):
        made = craft_all(
            replace(session.crafter(), setup=position_setup(setup, answers, position)),
            session.folder, session.monitor.progress,
        )  # fmt: skip
        for (attack, query_id), poison in made.items():
            if query_id in setup.parents:
                continue
            if attack not in free:
                sets[attack, query_id, position] = poison
            elif not position:
                sets[attack, query_id, None] = poison
    return Competitors(
        attackers=tuple(attack.title for attack in setup.attacks),
        untargeted=frozenset(free),
        answers=answers,
        sets=sets,
    )


def position_setup(setup: Setup, answers: Answers, position: int) -> Setup:
    """The experiment in which every question has the target of a position."""
    targets = answers.at(position)
    drafts = answers.drafts[position] if position < len(answers.drafts) else {}
    known = {**setup.dataset.targets, **targets}
    return replace(
        setup,
        evaluated=tuple(query for query in setup.evaluated if query.id in targets),
        parents={},
        attacks=tuple(
            attack
            for attack in setup.attacks
            if not position or not getattr(attack.instance, "untargeted", False)
        ),
        dataset=replace(setup.dataset, targets=known, drafts=drafts),
    )


# -------------------------------------------------------------------------------- released


def released_pools(setup: Setup, part: ArenaPart) -> dict[str, QueryPool]:
    """The released pools of the attacked questions, with the attackers that compete.

    Raises
    ------
    ConfigError
        A question has no released documents, or is another one there.
    DataError
        The released files are damaged.
    """
    names = released_attackers(part)
    by_id = {
        pool.query_id: replace(
            restricted(pool, range(part.answers)),
            answers=pool.answers[: part.answers],
        )
        for pool in read_questions(released_path(setup.experiment.base, part))
    }
    missing = [query.id for query in setup.evaluated if query.id not in by_id]
    if missing:
        raise ConfigError(f"arena.released has no documents for question {missing[0]!r}")
    pools = {}
    for query in setup.evaluated:
        pool = by_id[query.id]
        if pool.question != query.text:
            raise ConfigError(
                f"question {query.id!r} of the data set is {query.text!r:.60}, the released "
                f"documents are for {pool.question!r:.60}"
            )
        documents = {name: pool.documents.get(name, {}) for name in names}
        pools[query.id] = replace(pool, documents=documents)
    return pools


def _released(setup: Setup, part: ArenaPart) -> Competitors:
    names, pools = released_attackers(part), released_pools(setup, part)
    answers = released_answers(setup, pools)
    return Competitors(
        attackers=names,
        untargeted=frozenset(set(UNTARGETED) & set(names)),
        answers=answers,
        sets={
            (name, query_id, position): _as_set(name, pool, position)
            for query_id, pool in pools.items()
            for name in names
            for position in pool.documents[name]
        },
        released=pools,
    )


def _as_set(name: str, pool: QueryPool, position: Position) -> PoisonSet:
    texts = pool.documents[name][position].texts
    published: Any = plugins.find("attack", _PUBLISHED[name]).cls
    return PoisonSet(
        attack=name,
        attacker=name,
        query_id=pool.query_id,
        passages=tuple(poison_passage(pool.query_id, Passage(id="", text=t)) for t in texts),
        knowledge=published.knowledge,
        wanted=() if position is None else (pool.answers[position],),
        cost=Cost(),
    )


# ---------------------------------------------------------------------------------- scores


def poison_passage(query_id: str, passage: Passage) -> Passage:
    """The passage under the id that contexts know it by."""
    return replace(passage, id=poison_id(query_id, passage))


def poison_id(query_id: str, passage: Passage) -> str:
    """An id by question and text."""
    return "poison-" + canon.digest([query_id, passage.title, passage.text])[:20]


def scored(
    session: Session,
    arm: Arm,
    rivals: Competitors,
    budget: int,
    queries: Sequence[Query] | None = None,
    corpus: Mapping[str, Passage] | None = None,
) -> Pools:
    """Score what everybody would inject, exactly as the retriever ranks it.

    Of a passage that can be in no context, because k corpus passages beat it, the score is not
    known and stands as minus infinity.

    Raises
    ------
    ConfigError
        The retriever scores a passage by what else is injected.
    """
    setup = session.setup
    if corpus is None:
        corpus = {passage.id: passage for passage in setup.dataset.corpus}
    poison: dict[tuple[str, str], Passage] = {}
    pools: dict[str, QueryPool] = {}
    if not rivals.released and not getattr(session.index(arm), "scores_alone", True):
        raise ConfigError(
            f"retriever {arm.title!r} scores a passage by what else is injected, so that an arena "
            "would be retrieved again for each set of attackers; use bm25 with statistics = "
            "'frozen', or a dense retriever"
        )
    encode_ahead = None if rivals.released else getattr(session.index(arm), "encode_poison", None)
    if encode_ahead is not None:  # one call with all of it: larger batches
        encode_ahead([p for each in rivals.sets.values() for p in each.passages[:budget]])
    for query in setup.evaluated if queries is None else queries:
        parent = setup.parents.get(query.id, query.id)
        mine = {
            (attacker, position): each.passages[:budget]
            for (attacker, owner, position), each in rivals.sets.items()
            if owner == parent
        }
        texts = {p.text: poison_passage(parent, p) for some in mine.values() for p in some}
        poison.update({(query.id, text): passage for text, passage in texts.items()})
        if rivals.released:
            pools[query.id] = cut(rivals.released[query.id], budget, arm.k)
        else:
            pools[query.id] = _pool(session, arm, query, mine, texts, rivals)
    return Pools(by_query=pools, poison=poison, clean=corpus)


def cut(pool: QueryPool, budget: int, k: int) -> QueryPool:
    """Keep the first ``budget`` documents of everybody and the best k clean ones.

    Raises
    ------
    ConfigError
        The release has fewer clean documents.
    """

    def first(documents: Documents, n: int) -> Documents:
        return Documents(documents.texts[:n], documents.scores[:n])

    if len(pool.clean.texts) < k:
        raise ConfigError(
            f"retriever.k = {k}, but the release has {len(pool.clean.texts)} clean documents for "
            f"question {pool.query_id!r}; use a smaller k"
        )
    return replace(
        pool,
        clean=first(pool.clean, k),
        documents={
            name: {position: first(each, budget) for position, each in sets.items()}
            for name, sets in pool.documents.items()
        },
    )


def _pool(
    session: Session,
    arm: Arm,
    query: Query,
    mine: Mapping[tuple[str, Position], tuple[Passage, ...]],
    texts: Mapping[str, Passage],
    rivals: Competitors,
) -> QueryPool:
    index = session.index(arm)
    injected = list(texts.values())
    clean = index.search([query], arm.k)[0]
    hits = index.poisoned([query], injected, arm.k + len(injected))[0]
    score_of = {hit.passage.id: hit.score for hit in hits}
    documents: dict[str, dict[Position, Documents]] = {}
    for (attacker, position), passages in mine.items():
        documents.setdefault(attacker, {})[position] = Documents(
            tuple(passage.text for passage in passages),
            tuple(score_of.get(texts[p.text].id, float("-inf")) for p in passages),
        )
    parent = session.setup.parents.get(query.id, query.id)
    pool = rivals.answers.targets[parent]
    return QueryPool(
        query_id=query.id,
        question=query.text,
        references=pool[0].references,
        answers=tuple(target.wanted[0] for target in pool),
        clean=Documents(tuple(hit.passage.id for hit in clean), tuple(hit.score for hit in clean)),
        documents=documents,
        cluster=parent,
    )
