"""What the label does to the conclusion: the same answers under every scorer, side by side.

Source: "Prevented is not protected", sections 3 and 4.2, tables 3 and 10: rates of positive and
of uncertain labels, ranks of defenses under each, and paired differences between two defenses
on the queries that a label decides for both. Cohen (1960) for agreement on distinct answers;
Kendall (1945), tau-b, for the agreement of two orders.

Deviations: the paper compares two labels and three pipelines; here any number. Rates are out of
the answers that a scorer read, so that a scorer that labeled some of the answers is not
diluted by the rest, which is counted beside. Equal answers to a question count once where
two scorers are compared, as each is judged once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from ragassay.canon import rng_for
from ragassay.experiments.conditions import UNDEFENDED, Conditions, Queries, bounds
from ragassay.experiments.distinct import (
    WHOLE,
    WITHIN,
    Answers,
    coverage,
    pair_table,
    vanishing,
)
from ragassay.stats.paired import decisive_difference
from ragassay.store.columns import FAILED, MISSING, NOT_APPLICABLE, UNCERTAIN, Codes, Ints

MIN_RANKED = 3

Place = tuple[str, str, int]  # setting, attack, budget


def compare_labels(
    conditions: Conditions,
    summary: Mapping[str, Any],
    rows: Ints,
    queries: Queries,
    seed: int,
) -> dict[str, Any] | None:
    """Compare what the scorers of a run make of the same answers.

    Parameters
    ----------
    conditions : Conditions
        The answers of the run by place.
    summary : mapping
        The analysis so far: ``scorers``, ``cells``, ``confidence`` and ``draws``.
    rows : array
        The trials to compare, rows of those of ``conditions``.
    queries : mapping
        Questions and targets by query id.
    seed : int
        The seed of the run; each bootstrap derives its own from it and from what it bounds.

    Returns
    -------
    dict or None
        See the reference of ``summary.json``; None where fewer than two scorers read any answer
        for its target.
    """
    trials = conditions.trials
    chosen = np.zeros(len(trials), dtype=np.bool_)
    chosen[rows] = True
    done = trials.by_key[(chosen & trials.done)[trials.by_key]]
    # A scorer that says of any answer that it gives the target, does not, or is uncertain.
    scorers = [
        name for name in summary["scorers"] if (trials.labels(name)[done] >= UNCERTAIN).any()
    ]
    if len(scorers) < 2:
        return None
    answers = Answers.collect(trials, done, queries, scorers)
    places: dict[Place, list[Mapping[str, Any]]] = {}
    for cell in summary["cells"]:
        if cell["budget"]:
            place = (cell["setting"], cell["attack"], cell["budget"])
            places.setdefault(place, []).append(cell)
    bootstrap = _Bootstrap(conditions, summary["draws"], summary["confidence"], seed)
    return {
        "scorers": scorers,
        "answers": len(done),
        "distinct": answers.number,
        "coverage": [
            coverage(name, trials.labels(name)[done], answers.conflicts[name]) for name in scorers
        ],
        "cells": [
            _place(place, cells, scorers, bootstrap) for place, cells in places.items()
        ],
        "pairs": [pair_table(a, b, answers.codes) for a, b in combinations(scorers, 2)],
        "vanishing": (
            vanishing(trials, done, queries)
            if {WITHIN, WHOLE} <= set(scorers) else None
        ),
    }  # fmt: skip


# ------------------------------------------------------------------------ one setting and attack


@dataclass(frozen=True, slots=True)
class _Bootstrap:
    """Paired differences of two systems at a place, under a label."""

    conditions: Conditions
    draws: int
    confidence: float
    seed: int

    def difference(self, place: Place, scorer: str, a: str, b: str) -> dict[str, Any]:
        first, second = (self.conditions((*place, who)).codes(scorer) for who in (a, b))
        there = _answered(first) & _answered(second)
        groups = [
            query.group
            for query, kept in zip(self.conditions.members[place[0]], there, strict=True)
            if kept
        ]
        found = decisive_difference(
            np.maximum(first[there], UNCERTAIN),
            np.maximum(second[there], UNCERTAIN),
            groups,
            draws=self.draws,
            confidence=self.confidence,
            rng=rng_for(self.seed, "decisive", [*place, scorer, a, b]),
        )
        return {
            "scorer": scorer,
            "a": a,
            "b": b,
            "n": found.n,
            "n_decisive": found.n_decisive,
            "groups": found.groups,
            "positive_a": found.positive_a,
            "positive_b": found.positive_b,
            "count": found.count,
            "value": found.value,
            **bounds(found.interval),
        }


def _answered(codes: Codes) -> Any:
    """Queries that have an answer to which the label applies, read or not."""
    return ~np.isin(codes, (MISSING, FAILED, NOT_APPLICABLE))


def _place(
    place: Place,
    cells: Sequence[Mapping[str, Any]],
    scorers: Sequence[str],
    bootstrap: _Bootstrap,
) -> dict[str, Any]:
    rows = [_row(cell) for cell in cells if cell["scorer"] in scorers]
    for scorer in scorers:
        _rank([r for r in rows if r["scorer"] == scorer and r["defense"] != UNDEFENDED])
    systems = list(dict.fromkeys(row["defense"] for row in rows))
    # Defenses among themselves first, then each of them beside the undefended system.
    pairs = sorted(combinations(systems, 2), key=lambda pair: UNDEFENDED in pair)
    return {
        "setting": place[0],
        "attack": place[1],
        "budget": place[2],
        "rows": rows,
        "orders": [_orders(a, b, rows) for a, b in combinations(scorers, 2)],
        "differences": [
            bootstrap.difference(place, scorer, *_undefended_last(pair))
            for pair in pairs
            for scorer in scorers
        ],
    }


def _undefended_last(pair: tuple[str, str]) -> tuple[str, str]:
    return (pair[1], pair[0]) if pair[0] == UNDEFENDED else pair


def _row(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one system under one scorer; effects are null where not estimable."""
    bare = cell["defense"] == UNDEFENDED
    effects = {} if bare or not cell["estimable"] else cell["effects"]
    return {
        "scorer": cell["scorer"],
        "defense": cell["defense"],
        "p0": cell["labels"]["p0"],
        "p1": cell["labels"]["p1"],
        "n": cell["n"],
        "dropped": sum(cell["dropped"].values()),
        **{name: effects.get(name) for name in ("P", "J", "N")},
        "rank_p1": None,
        "rank_N": None,
    }


def _measures(row: Mapping[str, Any]) -> dict[str, float | None]:
    """What defenses are ranked by, lower is better."""
    net = row["N"]
    return {"p1": row["p1"]["positive"]["value"], "N": None if net is None else -net["value"]}


def _rank(rows: Sequence[dict[str, Any]]) -> None:
    """Give each defense its rank, 1 the best; equal figures share the better rank."""
    for measure in ("p1", "N"):
        known = [v for row in rows if (v := _measures(row)[measure]) is not None]
        for row in rows:
            value = _measures(row)[measure]
            if value is not None:
                row[f"rank_{measure}"] = 1 + sum(other < value for other in known)


def _orders(a: str, b: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How far two scorers put the defenses in the same order, and whom they reverse."""
    result: dict[str, Any] = {"scorers": [a, b]}
    for measure in ("p1", "N"):
        first, second = (
            {
                row["defense"]: value
                for row in rows
                if row["scorer"] == scorer
                and row["defense"] != UNDEFENDED
                and (value := _measures(row)[measure]) is not None
            }
            for scorer in (a, b)
        )
        shared = [name for name in first if name in second]
        result[measure] = {
            "n": len(shared),
            "tau_b": _tau_b([first[s] for s in shared], [second[s] for s in shared]),
            "reversed": [
                [x, y]
                for x, y in combinations(shared, 2)
                if (first[x] - first[y]) * (second[x] - second[y]) < 0
            ],
        }
    return result


def _tau_b(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau-b; None below three defenses, or where one side ties them all."""
    if len(first) < MIN_RANKED or len(set(first)) == 1 or len(set(second)) == 1:
        return None
    return float(kendalltau(first, second, variant="b").statistic)
