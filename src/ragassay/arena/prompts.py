"""How many prompts a protocol asks for, and how many of them are distinct.

Prompts are told apart by the question and the texts of the context in their order: equal ones
get one stored answer, so that only distinct ones cost a model call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ragassay.arena.pool import Assignment, QueryPool
from ragassay.arena.retrieval import merge
from ragassay.arena.schedule import Round


@dataclass(frozen=True, slots=True)
class PromptCount:
    """Prompts asked for, and distinct ones.

    Attributes
    ----------
    plays : int
        Assignments played; each asks one prompt.
    distinct : int
        Distinct prompts among them.
    removals_at_most : int
        Plays of an untargeted attacker that may ask a second prompt, from which its passages are
        removed. Whether they do depends on what the model answers.
    removals_in_context : int
        Those of them whose context holds such a passage: elsewhere the second prompt would be
        the first one again.
    distinct_with_removals : int
        Distinct prompts if every one of ``removals_in_context`` is asked.
    """

    plays: int
    distinct: int
    removals_at_most: int
    removals_in_context: int
    distinct_with_removals: int


def count_prompts(
    plays: Iterable[tuple[str, Assignment]], pools: Mapping[str, QueryPool], k: int
) -> PromptCount:
    """Count the prompts of plays, each a query and an assignment.

    Parameters
    ----------
    plays : iterable of (str, mapping)
        Query id, and attacker to position of its answer.
    pools : mapping of str to QueryPool
        By query id.
    k : int
        Size of the context.
    """
    first: set[tuple[str, tuple[str, ...]]] = set()
    second: set[tuple[str, tuple[str, ...]]] = set()
    asked = removals = in_context = 0
    known: dict[tuple[str, tuple[tuple[str, int | None], ...]], tuple[tuple[str, ...], ...]] = {}
    for query_id, assignment in plays:
        pool = pools[query_id]
        place = query_id, tuple(sorted(assignment.items()))
        if place not in known:
            known[place] = _prompts(pool, assignment, k)
        whole, *removed = known[place]
        asked += 1
        first.add((query_id, whole))
        free = sum(position is None for position in assignment.values())
        removals += bool(free)
        in_context += bool(removed)
        second.update((query_id, texts) for texts in removed)
    return PromptCount(asked, len(first), removals, in_context, len(first | second))


def plays_of(rounds: Iterable[Round]) -> Iterable[tuple[str, Assignment]]:
    """List the plays of rounds, as :func:`count_prompts` takes them."""
    return ((r.query_id, assignment) for r in rounds for assignment in r.assignments)


def _prompts(pool: QueryPool, assignment: Assignment, k: int) -> tuple[tuple[str, ...], ...]:
    """The context, and the context without each untargeted attacker that is in it."""
    context = merge(pool.clean, pool.injected(assignment), k)
    free: Sequence[str] = [name for name, position in assignment.items() if position is None]
    removed = [context.without(name) for name in free if context.hits[name]]
    return (context.texts, *removed)
