"""The aligned evaluation: four matched answers per query, and what a defense changes.

Source: "Prevented is not protected" (Aligned RAG Evaluation), sections 2.1 and 4.

T_sd is 1 where the answer under retrieval s (c clean, p poisoned) and defense d (0 off, 1 on)
is target-positive; r_sd is its mean over the queries of a cell. P = share of queries with
T_p0 = 1 and T_p1 = 0 (prevented), J the reverse (introduced), N = P - J = r_p0 - r_p1,
H = r_c1 - r_c0, Gamma = N + H. A query with any of the four labels missing is dropped from
that scorer's cell, and the number dropped stands beside every figure.

The summary is a function of the run folder alone: the same records give the same bytes.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragassay.canon import rng_for, to_plain
from ragassay.errors import ConfigError
from ragassay.experiments.conditions import (
    CONDITIONS,
    UNDEFENDED,
    Cell,
    Condition,
    Conditions,
    Queries,
    Scores,
    bounds,
    rate,
    why_dropped,
)
from ragassay.experiments.labels import compare_labels
from ragassay.experiments.outcomes import outcome_rows
from ragassay.experiments.poison import delivery_warnings
from ragassay.experiments.sections import sections
from ragassay.experiments.tax import condition_f1, read_facts, run_tax
from ragassay.stats.intervals import COARSE_GROUPS, cluster_bootstrap
from ragassay.stats.paired import FourConditions, contributions, four_conditions, mcnemar_exact
from ragassay.store import RunFolder
from ragassay.store.columns import POSITIVE, Ints, Trials
from ragassay.store.reading import trials_of
from ragassay.types import Query, TrialRecord

EFFECTS = ("P", "J", "N", "H", "Gamma")
FROM_TEXT_TO_READER = ("published", "tokens", "polarity", "endorse", "judge", "human")
_MAX_WARNED = 4


def analyze(store: RunFolder, scorers: Sequence[str] | None = None) -> dict[str, Any]:
    """Analyze a run folder; see :func:`ragassay.experiments.protocols.analyze`."""
    resolved = store.read_json("resolved.json")
    settings = resolved["experiment"]
    records, queries = store.columns(), store.queries()
    members = settings_of(resolved, queries)
    attacked = {query.id for each in members.values() for query in each}
    # Contexts with evidence removed and held-out questions have sections of their own.
    known = np.array([name in attacked for name in records.query.values], dtype=np.bool_)
    rows = np.flatnonzero(records.control.equal("") & known[records.query.codes])
    defenses = list(resolved["defenses"])
    cells = [
        Cell(setting=setting, attack=attack, budget=budget, defense=defense)
        for setting, pairs in _pairs(members, records, rows).items()
        for attack, budget in pairs or [("", 0)]
        for defense in defenses
    ]
    chosen = choose_scorers(resolved, records.scores, scorers, store.path)
    if not chosen:
        raise ConfigError(f"{store.path} has no labels yet: ragassay score RUN --scorer NAME")
    headline = resolved["headline"] if resolved["headline"] in chosen else chosen[0]
    conditions = Conditions(records, members, settings["statistics"]["confidence"])
    judge = Judge(settings["statistics"], settings["seed"], members, conditions)
    analyzed = [judge.cell(cell, scorer) for scorer in chosen for cell in cells]
    planned = resolved.get("planned")
    if planned is None:  # imported answers say how many there are: not every place has one
        planned = _planned(members, cells)
    done = int(records.done[rows].sum())
    failed = len(rows) - done
    facts = read_facts(store)
    summary = {
        "v": 1,
        "protocol": resolved["protocol"],
        "name": settings["name"],
        "headline": headline,
        "scorers": chosen,
        "settings": list(members),
        "attacks": sorted({cell.attack for cell in cells if cell.budget}),
        "defenses": [name for name in defenses if name != UNDEFENDED],
        "dataset": resolved["dataset"],
        "k": _k(resolved),
        "confidence": settings["statistics"]["confidence"],
        "draws": settings["statistics"]["draws"],
        "trials": {"planned": planned, "done": done, "failed": failed,
                   "missing": planned - done - failed},
        "errors": _errors(records, rows),
        "cells": analyzed,
    }  # fmt: skip
    summary["label_comparison"] = compare_labels(
        conditions, summary, rows, queries, settings["seed"]
    )
    summary.update(
        sections(
            {**resolved, "scorers": chosen}, records, queries,
            {label: [queries[q.id] for q in each] for label, each in members.items()},
        )
    )  # fmt: skip
    kinds = {title: each.get("outcome", "target") for title, each in facts.items()}
    told = outcome_rows(cells, chosen, conditions, kinds, summary["confidence"])
    summary["outcomes"] = {"attacks": kinds, "rows": told}
    f1 = {
        (cell.setting, cell.attack, cell.budget): condition_f1(
            conditions.of(cell)[2], facts[cell.attack], cell.budget
        )
        for cell in cells
        if cell.attack in facts and cell.defense == UNDEFENDED
    }
    summary["tax"] = run_tax(facts, analyzed, headline, told, f1)
    summary["warnings"] = [*_warnings(queries, analyzed, headline), *delivery_warnings(facts)]
    return summary


def settings_of(resolved: Mapping[str, Any], queries: Queries) -> dict[str, list[Query]]:
    """The settings of a run, and the queries of each.

    A setting is a victim, a data set and an encoding arm; a run that names none has one,
    called ``""``, of all queries.
    """
    named: Mapping[str, Mapping[str, Any]] = resolved.get("settings") or {"": {}}
    return {
        label: [
            query
            for query, _ in queries.values()
            if not query.split and (not about.get("dataset") or query.dataset == about["dataset"])
        ]
        for label, about in named.items()
    }


def _k(resolved: Mapping[str, Any]) -> int | None:
    """How many passages a context holds; ``None`` where settings differ or it is not known."""
    retriever = resolved["experiment"].get("retriever") or {}
    parts = retriever if isinstance(retriever, list) else [retriever]
    several = {part.get("k") for part in parts}
    return several.pop() if len(several) == 1 else None


def choose_scorers(
    resolved: Mapping[str, Any], there: Iterable[str], asked: Sequence[str] | None, path: Path
) -> list[str]:
    """Which scorers to analyze, in order: those asked for, or all that have a part in the run.

    ``there`` are the scorers that have records.

    Raises
    ------
    ConfigError
        One is asked for twice, or is neither of the run nor has a record in it.
    """
    ranks = {name: i for i, name in enumerate(FROM_TEXT_TO_READER)}
    known = sorted(
        {*resolved["scorers"], *there},
        key=lambda name: (ranks.get(name, len(ranks)), name),
    )
    if asked is None:
        return known
    if not asked:
        raise ConfigError(f"no scorer is asked for; {path} has {', '.join(known)}")
    for name in asked:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ConfigError(
                f"scorer {name!r} has no record in {path}, which has {', '.join(known)}{hint}"
            )
        if list(asked).count(name) > 1:
            raise ConfigError(f"scorer {name!r} is asked for twice")
    return list(asked)


def _pairs(
    members: Mapping[str, Sequence[Query]], trials: Trials, rows: Ints
) -> dict[str, list[tuple[str, int]]]:
    """For each setting its (attack, budget) pairs, in order."""
    found: dict[str, set[tuple[str, int]]] = {}
    table = np.column_stack([trials.setting.codes, trials.attack.codes, trials.budget])[rows]
    for setting, attack, budget in np.unique(table[table[:, 2] > 0], axis=0).tolist():
        pair = (trials.attack.values[attack], budget)
        found.setdefault(trials.setting.values[setting], set()).add(pair)
    return {label: sorted(found.get(label, ()), key=_natural) for label in members}


def _natural(pair: tuple[str, int]) -> tuple[Any, ...]:
    """Order names as people do: ``rate_5%`` before ``rate_10%``."""
    parts = re.split(r"([0-9]+)", pair[0])
    return ([int(part) if i % 2 else part for i, part in enumerate(parts)], *pair)


def _planned(members: Mapping[str, Sequence[Query]], cells: Sequence[Cell]) -> int:
    places = {place for cell in cells for place in cell.places() if place is not None}
    return sum(len(members[place[0]]) for place in places)


def judge_of(
    settings: Mapping[str, Any],
    members: Mapping[str, Sequence[Query]],
    trials: Iterable[TrialRecord],
    scores: Scores,
) -> Judge:
    """What turns some of the trials of a run into figures of the four conditions."""
    columns = trials_of(trials, scores)
    conditions = Conditions(columns, members, settings["statistics"]["confidence"])
    return Judge(settings["statistics"], settings["seed"], members, conditions)


@dataclass(frozen=True, slots=True)
class Judge:
    """Turns the conditions of a cell into figures, each with its interval and its denominator."""

    statistics: Mapping[str, Any]
    seed: int
    members: Mapping[str, Sequence[Query]]
    conditions: Conditions

    def cell(self, cell: Cell, scorer: str) -> dict[str, Any]:
        four = self.conditions.of(cell)
        named = dict(zip(CONDITIONS, four, strict=True))
        codes = [condition.codes(scorer) for condition in four]
        dropped = why_dropped(codes)
        kept = ~np.logical_or.reduce(list(dropped.values()))
        groups = [
            query.group for query, in_ in zip(self.members[cell.setting], kept, strict=True) if in_
        ]
        place = {"scorer": scorer, **to_plain(cell)}
        shared = {
            **place,
            "n": len(groups),
            "groups": len(set(groups)),
            "dropped": {reason: int(lost.sum()) for reason, lost in dropped.items()},
            "absent": [name for name, condition in named.items() if condition.absent],
            "labels": {name: condition.labels(scorer) for name, condition in named.items()},
            "correct": {name: one.share(scorer, "correct") for name, one in named.items()},
            "abstained": {name: one.share(scorer, "abstained") for name, one in named.items()},
            "context": {name: condition.context() for name, condition in named.items()},
            "cost": {name: condition.cost() for name, condition in named.items()},
        }
        if not groups:
            return {**shared, "estimable": False}
        labels = [(each == POSITIVE)[kept] for each in codes]
        return {
            **shared,
            "estimable": True,
            **self._compared(place, labels, groups),
            "hits_while_abstaining": {
                name: condition.hits_while_abstaining(scorer, kept)
                for name, condition in named.items()
            },
        }

    def _compared(
        self, place: Mapping[str, Any], labels: Sequence[Any], groups: Sequence[str]
    ) -> dict[str, Any]:
        four = four_conditions(*labels)
        level = self.statistics["confidence"]
        return {
            "rates": {
                name: rate(int(label.sum()), len(groups), level)
                for name, label in zip(CONDITIONS, labels, strict=True)
            },
            "effects": self._effects(place, four, labels, groups),
            "prevented_share": rate(four.prevented, four.p0, level),
            "transitions": to_plain(four.transitions),
            "mcnemar": {
                "poisoned": to_plain(mcnemar_exact(labels[2], labels[3])),
                "clean": to_plain(mcnemar_exact(labels[0], labels[1])),
            },
        }

    def _effects(
        self,
        place: Mapping[str, Any],
        four: FourConditions,
        labels: Sequence[Any],
        groups: Sequence[str],
    ) -> dict[str, Any]:
        # A run without settings keeps the draws that it had before there were any.
        seed = {key: value for key, value in place.items() if key != "setting" or value}
        intervals = cluster_bootstrap(
            contributions(*labels),
            groups,
            draws=self.statistics["draws"],
            confidence=self.statistics["confidence"],
            rng=rng_for(self.seed, "bootstrap", seed),
        )
        counts = {
            "P": four.prevented,
            "J": four.introduced,
            "N": four.p0 - four.p1,
            "H": four.c1 - four.c0,
            "Gamma": (four.p0 - four.p1) + (four.c1 - four.c0),
        }
        return {
            name: {"count": counts[name], "value": counts[name] / four.n, **bounds(interval)}
            for name, interval in zip(EFFECTS, intervals, strict=True)
        }


def _errors(trials: Trials, rows: Ints) -> list[dict[str, Any]]:
    """The distinct errors of failed trials with their counts, most frequent first."""
    codes = trials.error.codes[rows[~trials.done[rows]]]
    counts = {trials.error.values[code]: n for code, n in Counter(codes.tolist()).items()}
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"error": error, "trials": count} for error, count in ordered[:20]]


def _warnings(queries: Queries, cells: Sequence[Mapping[str, Any]], headline: str) -> list[str]:
    warnings = []
    groups = len({query.group for query, _ in queries.values() if not query.split})
    if groups < 2:
        warnings.append(
            "All queries share one injection group: no interval can be given for P, J, N, H, Gamma."
        )
    elif groups < COARSE_GROUPS:
        warnings.append(
            f"Only {groups} injection groups: the cluster-bootstrap intervals are coarse."
        )
    warnings += _abstaining(cells)
    leading = [cell for cell in cells if cell["scorer"] == headline]
    if not any(cell["estimable"] for cell in leading):
        warnings.append(_nothing(leading))
    return warnings


def _abstaining(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Undefended hits that abstain at the same time, each place by itself where they are few."""
    told = []
    for scorer in dict.fromkeys(cell["scorer"] for cell in cells):
        found = [
            (cell, cell["hits_while_abstaining"]["p0"])
            for cell in cells
            if cell["scorer"] == scorer
            and cell["defense"] == UNDEFENDED
            and cell.get("hits_while_abstaining", {"p0": 0})["p0"]
        ]
        end = "undefended target-positive answers are abstentions at the same time."
        if len(found) > _MAX_WARNED:
            total = sum(number for _, number in found)
            told.append(f"Rule {scorer!r}, {len(found)} attacks and settings: {total} {end}")
        else:
            told += [f"Rule {scorer!r}, {_where(cell)}: {number} {end}" for cell, number in found]
    return told


def _where(cell: Mapping[str, Any]) -> str:
    setting = f"{cell['setting']}, " if cell["setting"] else ""
    return f"{setting}{cell['attack']} at p={cell['budget']}"


def _nothing(cells: Sequence[Mapping[str, Any]]) -> str:
    absent = {name for cell in cells for name in cell["absent"]}
    if cells and all("c0" in cell["absent"] for cell in cells):
        return "Nothing is estimable: the run has no answers on clean retrieval to compare with."
    if cells and all("p0" in cell["absent"] for cell in cells):
        return "Nothing is estimable: the run has no answers under attack."
    if absent:
        return "Nothing is estimable: no comparison has all four conditions."
    return "Nothing is estimable: no query has all four answers scored."


__all__ = ["CONDITIONS", "EFFECTS", "UNDEFENDED", "Cell", "Condition", "analyze", "settings_of"]
