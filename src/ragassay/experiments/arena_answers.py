"""The wrong answers that attackers of an arena may want, for each question.

Source: PoisonArena, appendix B.1: wrong answers of similar difficulty, proposed by a model.

Deviations: the targets of the data set come first; proposals of the configured helper model fill
the pool where they are asked for. An answer that stands twice, or is correct, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ragassay import plugins, prompts
from ragassay.arena.pool import QueryPool
from ragassay.config import ArenaPart
from ragassay.errors import BackendError, ConfigError
from ragassay.experiments.setup import Setup
from ragassay.experiments.view import Asks
from ragassay.matching import normalize_text
from ragassay.store import RunFolder
from ragassay.types import Query, Request, Sampling, Target

_DRAWS = 40
_AT_ONCE = 8
_PROPOSING = Sampling(temperature=1.0, max_tokens=32)
Drafts = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Targets of each question by position, and the drafts released for each position."""

    targets: Mapping[str, tuple[Target, ...]]
    drafts: Sequence[Drafts] = field(default=())

    def at(self, position: int) -> dict[str, Target]:
        """The targets of a position, by question; absent where a pool is smaller."""
        return {
            query_id: pool[position]
            for query_id, pool in self.targets.items()
            if position < len(pool)
        }

    @property
    def largest(self) -> int:
        """Size of the largest pool."""
        return max(map(len, self.targets.values()))


def target_name(position: int) -> str:
    """How scores call the target of a position: ``a1`` is the first."""
    return f"a{position + 1}"


def released_answers(setup: Setup, pools: Mapping[str, QueryPool]) -> Answers:
    """The wrong answers of released pools, with the references of the data set."""
    return Answers(
        targets={
            query.id: tuple(
                replace(setup.dataset.targets[query.id], wanted=(answer,))
                for answer in pools[query.id].answers
            )
            for query in setup.attacked
        }
    )


def data_answers(setup: Setup, part: ArenaPart, helper: Asks, folder: RunFolder) -> Answers:
    """The targets of the data set, and proposals where these are asked for and needed.

    Raises
    ------
    ConfigError
        A question has fewer than two wrong answers.
    BackendError
        The helper fails, or repeats itself.
    """
    drafts: list[Drafts] = [setup.dataset.drafts]
    pools = {query.id: [setup.dataset.targets[query.id]] for query in setup.attacked}
    for targets, texts in _further(setup, part.answers):
        drafts.append(texts)
        for query_id, pool in pools.items():
            target = targets.get(query_id)
            pool.append(target if target is not None else replace(pool[0], wanted=()))
    known = folder.targets()
    found = {}
    for query in setup.attacked:
        if query.id in known:  # proposals are drawn once, whatever the cache holds
            found[query.id] = tuple(known[query.id].values())
            continue
        pool, correct = _clean(pools[query.id]), setup.dataset.targets[query.id].references
        if part.proposals and len(pool) < part.answers:
            if not correct:
                raise ConfigError(
                    f"arena.proposals: question {query.id!r} has no correct answer to differ from"
                )
            pool += _proposed(query, pool, part.answers - len(pool), helper)
        if len(pool) < 2:
            raise ConfigError(
                f"question {query.id!r} has {len(pool)} wrong answer, an arena needs two; give "
                "the data set more targets, or set arena.proposals = true"
            )
        found[query.id] = tuple(pool)
    return Answers(targets=found, drafts=tuple(drafts))


def data_drafts(setup: Setup, answers: Answers) -> dict[tuple[str, int], tuple[str, ...]]:
    """The texts that the data set publishes for wrong answers, by question and position."""
    offered = [(setup.dataset.targets, setup.dataset.drafts), *_further(setup, answers.largest)]
    texts = {
        (query_id, normalize_text(targets[query_id].wanted[0])): some
        for targets, drafts in offered
        for query_id, some in drafts.items()
        if query_id in targets and targets[query_id].wanted
    }
    return {
        (query_id, position): texts[query_id, answer]
        for query_id, pool in answers.targets.items()
        for position, target in enumerate(pool)
        if (query_id, answer := normalize_text(target.wanted[0])) in texts
    }


def _further(setup: Setup, most: int) -> list[tuple[Mapping[str, Target], Drafts]]:
    """What the data set offers as second, third, ... target of each question."""
    part, base = setup.experiment.file.dataset, setup.experiment.base
    found = plugins.find("dataset", part.plugin, folder=base)
    first = int(part.options.get("target", 1))
    others: list[tuple[Mapping[str, Target], Drafts]] = []
    for number in range(1, most + 1):
        if number == first or len(others) + 1 >= most:
            continue
        try:
            instance = plugins.build(found, {**part.options, "target": number}, folder=base)
            dataset = instance.load()
        except ConfigError:  # no question has so many, or the data set has one target each
            break
        others.append((dataset.targets, dataset.drafts))
    return others


def _clean(pool: Sequence[Target]) -> list[Target]:
    """Keep the order of positions; an answer that is correct, stands twice or is missing ends it.

    Positions are the same for all questions where released drafts belong to them.
    """
    kept: list[Target] = []
    for target in pool:
        if not target.wanted or not _new(target.wanted[0], kept, target.references):
            break
        kept.append(target)
    return kept


def _new(answer: str, pool: Sequence[Target], references: Sequence[str]) -> bool:
    text = normalize_text(answer)
    taken = {normalize_text(t.wanted[0]) for t in pool} | {normalize_text(r) for r in references}
    return bool(text) and text not in taken


def _proposed(query: Query, pool: Sequence[Target], wanted: int, helper: Asks) -> list[Target]:
    base = pool[0]
    template = prompts.load("wrong_answer")
    messages = template.render({"question": query.text, "correct": base.references[0]})
    found: list[Target] = []
    for start in range(0, _DRAWS, _AT_ONCE):
        drawn = helper.ask(
            [
                Request(messages=messages, sampling=_PROPOSING, sample_index=start + i)
                for i in range(_AT_ONCE)
            ]
        )
        for each in drawn:
            text = each.text.strip().partition("\n")[0].strip().strip("\"'.")
            if len(found) < wanted and _new(text, [*pool, *found], base.references):
                found.append(replace(base, wanted=(text,)))
        if len(found) == wanted:
            return found
    raise BackendError(
        f"the helper proposed {len(found)} different wrong answers of query {query.id!r} in "
        f"{_DRAWS} draws, {wanted} are needed; use another [helper], or fewer arena.answers"
    )
