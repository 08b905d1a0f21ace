"""Removal controls: which passages to take out of a poisoned context, and what that shows.

Source: "Prevented is not protected" (Aligned RAG Evaluation), section 2.2 and appendix G.

From a poisoned context passages are removed after retrieval: order kept, nothing refilled,
nothing ranked again, the same prompt. A passage counts as poison if it was injected, or if its
normalized text equals an injected one (a natural copy). An empty context is legal.

A control is named by what it is for (``no_poison``), a trial by what it kept (``keep 1,3``):
many controls keep the same passages, and each distinct context is answered once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from ragassay.types import ContextEntry

NO_POISON = "no_poison"
NO_OWN = "no_own_poison"
POISON_ONLY = "poison_only"
BACKGROUND_ONLY = "background_only"
SUPPORT_BACKGROUND = "support_background"
POISON_BACKGROUND = "poison_background"

Kept = tuple[int, ...]


def poison_of(entries: Sequence[ContextEntry]) -> Kept:
    """Positions (from 0) of the poison passages of a context, natural copies among them."""
    return tuple(i for i, e in enumerate(entries) if e.origin != "corpus" or e.copy)


def own_of(entries: Sequence[ContextEntry]) -> Kept:
    """Positions of the poison that was written for this query."""
    return tuple(i for i, e in enumerate(entries) if "own" in (e.origin, e.copy))


def support_of(entries: Sequence[ContextEntry]) -> Kept:
    """Positions of the annotated supporting passages that are not poison."""
    poison = set(poison_of(entries))
    return tuple(i for i, e in enumerate(entries) if e.gold and i not in poison)


def controls_of(entries: Sequence[ContextEntry], *, annotated: bool) -> dict[str, Kept]:
    """Name the positions that each removal control keeps.

    Parameters
    ----------
    entries : sequence of ContextEntry
        A poisoned context in rank order.
    annotated : bool
        Whether supporting passages are annotated for this query; without, the controls that
        need them are left out.

    Returns
    -------
    dict
        ``no_poison``, ``no_own_poison``, ``poison_only``, ``single_i`` and ``without_i`` for
        each poison passage at rank i (from 1), and with annotated support ``background_only``
        (neither poison nor support), ``support_background`` and ``poison_background``. Empty
        where the context holds no poison.

    Examples
    --------
    >>> entry = lambda origin: ContextEntry(id=origin, score=1.0, origin=origin, gold=False,
    ...                                     kept=True)
    >>> controls_of([entry("own"), entry("corpus")], annotated=False)["no_poison"]
    (1,)
    """
    poison, own, support = (set(f(entries)) for f in (poison_of, own_of, support_of))
    everything = range(len(entries))
    if not poison:
        return {}

    def keep(drop: set[int]) -> Kept:
        return tuple(i for i in everything if i not in drop)

    result = {
        NO_POISON: keep(poison),
        NO_OWN: keep(own),
        POISON_ONLY: tuple(sorted(poison)),
    }
    for i in sorted(poison):
        result[f"single_{i + 1}"] = (i,)
        result[f"without_{i + 1}"] = keep({i})
    if annotated:
        result[BACKGROUND_ONLY] = keep(poison | support)
        result[SUPPORT_BACKGROUND] = keep(poison)
        result[POISON_BACKGROUND] = keep(support)
    return result


def subsets_of(entries: Sequence[ContextEntry]) -> Iterator[tuple[int, Kept]]:
    """Yield for every subset of the poison passages its bit mask and what is kept.

    Bit j stands for the j-th poison passage in rank order; the rest of the context stays.
    """
    poison = poison_of(entries)
    background = [i for i in range(len(entries)) if i not in set(poison)]
    for size in range(len(poison) + 1):
        for chosen in combinations(range(len(poison)), size):
            mask = sum(1 << j for j in chosen)
            yield mask, tuple(sorted([*background, *(poison[j] for j in chosen)]))


def control_label(kept: Kept, total: int) -> str:
    """Name the trial that keeps these positions: ``""`` where nothing was removed.

    Examples
    --------
    >>> control_label((0, 2), 3), control_label((0, 1, 2), 3), control_label((), 3)
    ('keep 1,3', '', 'keep none')
    """
    if len(kept) == total:
        return ""
    return "keep " + (",".join(str(i + 1) for i in kept) or "none")
