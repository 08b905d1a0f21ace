"""What competing attackers get into the context: merging by score, and exact expectations.

Source: "Uncovering Competing Poisoning Attacks in Retrieval-Augmented Generation"
(PoisonArena), appendix B.4.1 (precision, recall and F1 of each attacker's documents).

Deviations: retrieval is not random, so figures are means over all assignments of answers to
attackers instead of over sampled ones. The F1 of a retrieval without any own document is 0. A
text that several attackers injected counts for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragassay.arena.pool import Documents, Position, QueryPool, injected_by

_ROWS_AT_ONCE = 50_000


@dataclass(frozen=True, slots=True)
class RetrievalFigures:
    """Precision, recall and F1 of one attacker's documents in a context."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, slots=True)
class Context:
    """The k best of clean and injected documents, best first.

    ``owners`` names for each the attackers that injected this text, none for a clean one;
    ``hits`` counts for each attacker how many of its documents are in the context.
    """

    texts: tuple[str, ...]
    owners: tuple[tuple[str, ...], ...]
    hits: Mapping[str, int]

    @property
    def shared(self) -> tuple[str, ...]:
        """Texts that more than one attacker injected."""
        return tuple(
            text for text, owners in zip(self.texts, self.owners, strict=True) if len(owners) > 1
        )

    def without(self, attacker: str) -> tuple[str, ...]:
        """Return the texts that are left when an attacker's documents are taken out.

        What others injected too stays. The places are not filled up.
        """
        return tuple(
            text
            for text, owners in zip(self.texts, self.owners, strict=True)
            if owners != (attacker,)
        )


def poison_figures(hits: float, injected: int, k: int) -> RetrievalFigures:
    """Precision ``h / k``, recall ``h / n`` and F1 ``2 h / (n + k)`` of h hits.

    Parameters
    ----------
    hits : float
        Own documents in the context; a mean over contexts gives mean figures, since all three
        are linear in it.
    injected, k : int
        Documents injected, and size of the context.

    Examples
    --------
    >>> poison_figures(3, 5, 5).f1
    0.6

    Raises
    ------
    ValueError
        The counts are impossible.
    """
    if injected < 1 or k < 1 or not 0 <= hits <= injected:
        raise ValueError(f"need 0 <= hits <= injected and k >= 1, got {hits}, {injected}, {k}")
    return RetrievalFigures(hits / k, hits / injected, 2 * hits / (injected + k))


def merge(clean: Documents, injected: Mapping[str, Documents], k: int) -> Context:
    """Take the k best documents by score; of equal ones clean before injected, then by name.

    Parameters
    ----------
    clean : Documents
        The best clean documents.
    injected : mapping of str to Documents
        What each attacker injects.
    k : int
        Size of the context.
    """
    rows = [(-score, "", i, text) for i, (text, score) in enumerate(_pairs(clean))]
    by_text: dict[str, list[str]] = {}
    for attacker in sorted(injected):
        for i, (text, score) in enumerate(_pairs(injected[attacker])):
            rows.append((-score, attacker, i, text))
            names = by_text.setdefault(text, [])
            if attacker not in names:
                names.append(attacker)
    best = sorted(rows, key=lambda row: row[:3])[:k]
    retrieved = {text for _, attacker, _, text in best if attacker}
    hits = {
        attacker: sum(text in retrieved for text in injected[attacker].texts)
        for attacker in sorted(injected)
    }
    owners = tuple(tuple(by_text[text]) if attacker else () for _, attacker, _, text in best)
    return Context(tuple(row[3] for row in best), owners, hits)


def enumerate_assignments(
    pool: QueryPool, attackers: Sequence[str]
) -> Iterator[dict[str, Position]]:
    """Yield every way to give different answers of the pool to the attackers.

    Each attacker gets only answers for which it has documents; untargeted ones get none.
    """
    targeted, free = _kinds(pool, attackers)
    for chosen in _deals([pool.positions(name) for name in targeted]):
        yield {**dict(zip(targeted, chosen, strict=True)), **dict.fromkeys(free)}


def count_deals(pool: QueryPool, attackers: Sequence[str]) -> int:
    """Count the assignments of :func:`enumerate_assignments`."""
    targeted, _ = _kinds(pool, attackers)
    return sum(1 for _ in _deals([pool.positions(name) for name in targeted]))


def expected_hits(pool: QueryPool, attackers: Sequence[str], k: int) -> dict[str, float] | None:
    """Mean number of own documents in the context, over all assignments of answers.

    Parameters
    ----------
    pool : QueryPool
        The question.
    attackers : sequence of str
        Those who compete; each must have documents.
    k : int
        Size of the context.

    Returns
    -------
    dict of str to float, or None
        None where no assignment gives everybody an own answer.
    """
    names = sorted(attackers)
    if pool.shared:
        return _expected_one_by_one(pool, names, k)
    targeted, free = _kinds(pool, names)
    dealt = list(_deals([pool.positions(name) for name in targeted]))
    if not dealt:
        return None
    chosen = np.array(dealt, dtype=np.intp).reshape(len(dealt), len(targeted))
    columns: dict[str, NDArray[np.intp] | None] = {
        **dict.fromkeys(free),
        **{name: chosen[:, i] for i, name in enumerate(targeted)},
    }
    counts = _hits(pool, {name: columns[name] for name in names}, len(dealt), k)
    return {name: count / len(dealt) for name, count in counts.items()}


@dataclass(frozen=True, slots=True)
class ExpectedFigures:
    """Exact mean figures of an attacker, and over how many queries and assignments."""

    figures: RetrievalFigures
    queries: int
    assignments: int


def competition_figures(
    pools: Sequence[QueryPool], attackers: Sequence[str], k: int
) -> dict[str, ExpectedFigures]:
    """Mean figures of fixed competitors over all queries in which each has documents.

    Every assignment of every query weighs the same. With one attacker these are the figures of
    the single-attacker setting.

    Returns
    -------
    dict of str to ExpectedFigures
        Empty where the attackers share no query.
    """
    names = sorted(attackers)
    parts: list[tuple[dict[str, RetrievalFigures], int]] = []
    for pool in pools:
        if not set(names) <= set(pool.participants):
            continue
        hits = expected_hits(pool, names, k)
        if hits is None:
            continue
        figures = {name: poison_figures(hits[name], injected_by(pool, name), k) for name in names}
        parts.append((figures, count_deals(pool, names)))
    if not parts:
        return {}
    total = sum(weight for _, weight in parts)
    return {
        name: ExpectedFigures(
            RetrievalFigures(
                math.fsum(f[name].precision * weight for f, weight in parts) / total,
                math.fsum(f[name].recall * weight for f, weight in parts) / total,
                math.fsum(f[name].f1 * weight for f, weight in parts) / total,
            ),
            queries=len(parts),
            assignments=total,
        )
        for name in names
    }


def _pairs(documents: Documents) -> Iterator[tuple[str, float]]:
    return zip(documents.texts, documents.scores, strict=True)


def _kinds(pool: QueryPool, attackers: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split attackers into those that want an answer and those that do not, by name."""
    names = sorted(attackers)
    return (
        [name for name in names if not pool.untargeted(name)],
        [name for name in names if pool.untargeted(name)],
    )


def _deals(
    options: Sequence[Sequence[int]], taken: tuple[int, ...] = ()
) -> Iterator[tuple[int, ...]]:
    """Choose one of each options, all different."""
    if len(taken) == len(options):
        yield taken
        return
    for position in options[len(taken)]:
        if position not in taken:
            yield from _deals(options, (*taken, position))


def _expected_one_by_one(pool: QueryPool, names: Sequence[str], k: int) -> dict[str, float] | None:
    """Means where attackers share texts, so that hits are no matter of places alone."""
    total, count = dict.fromkeys(names, 0), 0
    for assignment in enumerate_assignments(pool, names):
        hits = merge(pool.clean, pool.injected(assignment), k).hits
        total = {name: total[name] + hits[name] for name in names}
        count += 1
    return {name: total[name] / count for name in names} if count else None


def _hits(
    pool: QueryPool, columns: Mapping[str, NDArray[np.intp] | None], rows: int, k: int
) -> dict[str, int]:
    """Sum of hits over assignments; a column holds an attacker's answer in each of them."""
    total = dict.fromkeys(columns, 0)
    tables = {name: _score_table(pool.documents[name]) for name in columns}
    clean = np.asarray(pool.clean.scores)
    for start in range(0, rows, _ROWS_AT_ONCE):
        size = min(_ROWS_AT_ONCE, rows - start)
        blocks = [np.broadcast_to(clean, (size, len(clean)))]
        for name, column in columns.items():
            table, places = tables[name]
            if column is None:
                blocks.append(np.broadcast_to(table[0], (size, table.shape[1])))
            else:
                blocks.append(table[places[column[start : start + size]]])
        # Clean documents first, then by name: a stable sort keeps this order among equals.
        scores = np.concatenate(blocks, axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        edges = np.cumsum([block.shape[1] for block in blocks])
        owner = np.searchsorted(edges, order, side="right")  # 0 is clean
        owner[np.take_along_axis(scores, order, axis=1) == -np.inf] = 0  # padding
        found = np.bincount(owner.ravel(), minlength=len(blocks))
        for i, name in enumerate(columns, start=1):
            total[name] += int(found[i])
    return total


def _score_table(
    sets: Mapping[Position, Documents],
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Scores per answer, shape (answers, documents), and the row of each position."""
    filled = {position: documents for position, documents in sets.items() if documents.texts}
    sizes = {len(documents.texts) for documents in filled.values()}
    table = np.full((len(filled), max(sizes)), -np.inf)
    places = np.zeros(1 + max((p for p in filled if p is not None), default=0), dtype=np.intp)
    for row, (position, documents) in enumerate(filled.items()):
        table[row, : len(documents.scores)] = documents.scores
        if position is not None:
            places[position] = row
    return table, places
