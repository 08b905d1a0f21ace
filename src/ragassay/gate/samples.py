"""The outcomes of a run that a rule is about: a value for each question, from the records alone."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.errors import GateUsage
from ragassay.experiments.aligned import choose_scorers, settings_of
from ragassay.experiments.conditions import UNDEFENDED, Cell, Conditions
from ragassay.gate.rules import Metric, Rule
from ragassay.store import RunFolder
from ragassay.store.columns import (
    FAILED,
    MISSING,
    NEGATIVE,
    NOT_APPLICABLE,
    NOT_SCORED,
    POSITIVE,
    UNCERTAIN,
    Codes,
)
from ragassay.types import Query

REASONS = {
    MISSING: "missing", FAILED: "failed", NOT_SCORED: "not scored", UNCERTAIN: "uncertain",
    NOT_APPLICABLE: "not applicable",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a figure is measured. Attack and budget are empty on clean retrieval."""

    setting: str
    attack: str
    budget: int
    defense: str
    scorer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The questions of a place that have all labels that a metric needs.

    ``values`` has 0 and 1 for rates, -1, 0 and 1 for differences. ``dropped`` counts the others by
    the first reason that applies, out of ``total``.
    """

    queries: tuple[Query, ...]
    values: NDArray[np.int64]
    dropped: dict[str, int]
    total: int

    @property
    def groups(self) -> list[str]:
        """The injection group of each question."""
        return [query.group for query in self.queries]


class Run:
    """A run folder, opened for reading."""

    def __init__(self, folder: str | Path | RunFolder) -> None:
        store = folder if isinstance(folder, RunFolder) else RunFolder(Path(folder))
        self.path = store.path
        self.resolved = store.read_json("resolved.json")
        trials, queries = store.columns(), store.queries()
        members = settings_of(self.resolved, queries)
        attacked = {query.id for each in members.values() for query in each}
        known = np.array([name in attacked for name in trials.query.values], dtype=np.bool_)
        rows = np.flatnonzero(trials.control.equal("") & known[trials.query.codes])
        self.name = str(self.resolved["experiment"]["name"])
        self.settings = list(members)
        self.defenses = list(self.resolved["defenses"])
        self.scorers = choose_scorers(self.resolved, trials.scores, None, store.path)
        headline = self.resolved["headline"]
        self.headline = headline if headline in self.scorers else (self.scorers or [headline])[0]
        table = np.column_stack([trials.setting.codes, trials.attack.codes, trials.budget])[rows]
        self.spots = sorted(
            (trials.setting.values[setting], trials.attack.values[attack], budget)
            for setting, attack, budget in np.unique(table[table[:, 2] > 0], axis=0).tolist()
        )
        self.answered = len(rows)
        self._conditions = Conditions(trials, members, confidence=0.95)
        self._members = members

    def places(self, rule: Rule) -> list[Place]:
        """Where a rule applies: everywhere that its scope leaves open.

        Without a scope that is every attack and budget, every defense, every setting, and the
        headline scorer. A run without a defense is measured as it is.

        Raises
        ------
        GateUsage
            The scope names something that the run does not have.
        """
        scorer = self._named(rule, "scorer", self.scorers) or [self.headline]
        settings = self._named(rule, "setting", self.settings) or self.settings
        defended = [name for name in self.defenses if name != UNDEFENDED]
        defenses = self._named(rule, "defense", [*defended, UNDEFENDED]) or (
            defended or [UNDEFENDED]
        )
        attacks = self._named(rule, "attack", sorted({attack for _, attack, _ in self.spots}))
        budgets = self._named(rule, "budget", sorted({str(p) for _, _, p in self.spots}))
        if not rule.metric.attacked:
            if attacks or budgets:
                raise GateUsage(
                    f"{rule.text!r}: {rule.metric.name} is measured on clean retrieval, "
                    "where there is no attack or budget"
                )
            spots = [(setting, "", 0) for setting in settings]
        else:
            spots = [
                (setting, attack, budget)
                for setting, attack, budget in self.spots
                if setting in settings
                and (not attacks or attack in attacks)
                and (not budgets or str(budget) in budgets)
            ]
        return [
            Place(setting=setting, attack=attack, budget=budget, defense=defense, scorer=scorer[0])
            for setting, attack, budget in spots
            for defense in defenses
        ]

    def sample(self, metric: Metric, place: Place) -> Sample:
        """The outcomes of a metric at a place; empty where the run has none."""
        queries = self._members.get(place.setting, [])
        cell = Cell(
            setting=place.setting, attack=place.attack, budget=place.budget, defense=place.defense
        )
        if place.setting not in self._members:
            return Sample(queries=(), values=np.zeros(0, dtype=np.int64), dropped={}, total=0)
        four = dict(zip(("c0", "c1", "p0", "p1"), self._conditions.of(cell), strict=True))
        codes = [four[name].codes(place.scorer, metric.label) for name in metric.needs]
        if metric.label == "correct":  # an answer that nobody can call correct is not correct
            codes = [np.where(code == UNCERTAIN, NEGATIVE, code).astype(np.int8) for code in codes]
        known = np.logical_and.reduce([(code == POSITIVE) | (code == NEGATIVE) for code in codes])
        dropped = _reasons(codes, ~known)
        total = len(queries)
        if metric.name == "prevented_share":
            subset = codes[0] != NEGATIVE  # those of which a share is taken, or may be
            dropped, total = _reasons(codes, ~known & subset), int(subset.sum())
            known &= subset
        labels = [(code == POSITIVE).astype(np.int64)[known] for code in codes]
        return Sample(
            queries=tuple(q for q, in_ in zip(queries, known, strict=True) if in_),
            values=_values(metric, labels), dropped=dropped, total=total,
        )  # fmt: skip

    def plugin_of(self, attack: str) -> str:
        """The name of the plug-in behind an attack's label, as far as the run tells it."""
        parts: Any = self.resolved["experiment"].get("attack") or []
        for part in parts if isinstance(parts, list) else []:
            if isinstance(part, dict) and attack in (part.get("label"), part.get("plugin")):
                return str(part.get("plugin", attack))
        return attack

    def _named(self, rule: Rule, name: str, known: Iterable[str]) -> list[str]:
        value, known = rule.scoped(name), list(known)
        if value is None:
            return []
        if value not in known:
            close = difflib.get_close_matches(value, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise GateUsage(
                f"{rule.text!r}: {self.path} has no {name} {value!r}{hint} "
                f"It has: {', '.join(map(repr, known)) or 'none'}"
            )
        return [value]


def pair(first: Sample, second: Sample) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
    """Values of both samples for the questions that they share, and their groups in the first.

    Questions are the same where id and text are.
    """
    index = {(q.id, q.text): i for i, q in enumerate(second.queries)}
    both = [
        (i, index[q.id, q.text]) for i, q in enumerate(first.queries) if (q.id, q.text) in index
    ]
    left, right = ([pairs[side] for pairs in both] for side in (0, 1))
    return first.values[left], second.values[right], [first.queries[i].group for i in left]


def _values(metric: Metric, labels: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    if len(labels) == 1:
        return labels[0]
    off, on = labels
    if metric.name == "introduced":
        return (1 - off) * on
    if metric.name in ("prevented", "prevented_share"):
        return off * (1 - on)
    return off - on if metric.name == "net_reduction" else on - off


def _reasons(codes: list[Codes], lost: NDArray[np.bool_]) -> dict[str, int]:
    """Count why questions have no value: the worst of their labels counts."""
    if not lost.any():
        return {}
    worst = np.min(np.stack(codes), axis=0)[lost]
    return {REASONS[int(code)]: int((worst == code).sum()) for code in sorted(set(worst.tolist()))}
