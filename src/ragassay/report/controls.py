"""Names of contexts with passages removed, and their labels for the record browser.

A trial says what it kept (``"keep 1,3"``); what that means follows from the whole context. A
context can have several names: with one poison passage, "no poison" is "without passage 1".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ragassay.store.columns import NEGATIVE, POSITIVE, UNCERTAIN, Trial, Trials
from ragassay.types import ContextEntry, TrialRecord

MAX_LISTED = 30_000  # of all records of a page together
_KEEP = "keep "
_WITHOUT = 4
_FAILED = "f"
_LETTERS = {POSITIVE: "1", NEGATIVE: "0", UNCERTAIN: "?"}

Place = tuple[str, str, str, int, str]


def control_name(control: str, entries: Sequence[ContextEntry]) -> tuple[int, str]:
    """Name what a control kept of a context; the number orders names as readers want them.

    Parameters
    ----------
    control : str
        ``"keep 1,3"`` or ``"keep none"``: ranks of the whole context, from 1.
    entries : sequence of ContextEntry
        The whole context.

    Examples
    --------
    >>> entry = lambda origin: ContextEntry(id=origin, score=1.0, origin=origin, gold=False,
    ...                                     kept=True)
    >>> control_name("keep 2", [entry("own"), entry("corpus")])
    (0, 'no poison, or without passage 1')
    """
    kept = _kept(control)
    if kept is None:
        return 9, control
    every = frozenset(range(1, len(entries) + 1))
    poison = frozenset(i for i, e in enumerate(entries, 1) if e.origin != "corpus" or e.copy)
    own = frozenset(i for i, e in enumerate(entries, 1) if "own" in (e.origin, e.copy))
    support = frozenset(i for i, e in enumerate(entries, 1) if e.gold) - poison
    background = every - poison
    named = [
        (0, "no poison", background),
        *([(1, "no own poison", every - own)] if own and own != poison else []),
        (2, "poison only", poison),
        *((3, f"passage {i} alone", frozenset({i})) for i in sorted(poison)),
        *((_WITHOUT, f"without passage {i}", every - {i}) for i in sorted(poison)),
    ]
    if support:
        named += [
            (5, "without support", every - support),
            (6, "neither poison nor support", background - support),
        ]
    fitting = [(order, name) for order, name, which in named if which == kept]
    if fitting:
        names = list(dict.fromkeys(name for _, name in fitting))
        return fitting[0][0], ", or ".join(names) + ("" if kept else " (empty context)")
    if background <= kept:
        return 7, f"of the poison, only {_passages(kept & poison)}"
    return 8, f"only {_passages(kept)}"


def _kept(control: str) -> frozenset[int] | None:
    ranks = control.removeprefix(_KEEP)
    if ranks == control:
        return None
    if ranks == "none":
        return frozenset()
    parts = ranks.split(",")
    return frozenset(map(int, parts)) if all(part.isdecimal() for part in parts) else None


def _rank(order: int, kept: frozenset[int]) -> tuple[int, list[int]]:
    """Small subsets first, in the order of their passages; what leaves one out, from the first."""
    ranks = sorted(kept)
    return (0, [-rank for rank in ranks]) if order == _WITHOUT else (len(ranks), ranks)


def _passages(ranks: Iterable[int]) -> str:
    numbers = sorted(ranks)
    return f"passage{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


@dataclass(slots=True, kw_only=True)
class Controls:
    """The trials with passages removed, by the place of the whole context.

    ``names`` numbers the names that were listed; ``room`` is how many more a page takes.
    """

    removed: Mapping[Place, Sequence[Trial]]
    rules: Sequence[str]
    room: int = MAX_LISTED
    names: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, trials: Trials, rules: Sequence[str]) -> Controls:
        """Collect the trials with passages removed."""
        removed: dict[Place, list[Trial]] = {}
        for row in np.flatnonzero(~trials.control.equal("")).tolist():
            place = (
                *(column.values[column.codes[row]] for column in
                  (trials.query, trials.setting, trials.attack)),
                int(trials.budget[row]), trials.defense.values[trials.defense.codes[row]],
            )  # fmt: skip
            removed.setdefault(place, []).append(trials.at(row))
        return cls(removed=removed, rules=rules, room=MAX_LISTED)

    def listed(self, record: TrialRecord) -> tuple[list[list[int | str]], int]:
        """The reduced contexts of a trial as [name, letter for each rule], and how many are left.

        A letter says whether the answer is target-positive: ``1``, ``0``, ``?`` uncertain, ``x``
        not scored, ``f`` failed.
        """
        found = []
        for trial in self.removed.get(_place(record), ()):
            order, name = control_name(trial.control, record.context)
            kept = _kept(trial.control) or frozenset()
            found.append(((order, *_rank(order, kept)), name, trial))
        found.sort(key=lambda one: one[0])
        fitting = found[: self.room]
        self.room -= len(fitting)
        return [
            [self.names.setdefault(name, len(self.names)), self._letters(trial)]
            for _, name, trial in fitting
        ], len(found) - len(fitting)

    def _letters(self, trial: Trial) -> str:
        if trial.status == "failed":
            return _FAILED * len(self.rules)
        return "".join(_LETTERS.get(trial.label(rule), "x") for rule in self.rules)


def _place(trial: TrialRecord) -> Place:
    spec = trial.spec
    return spec.query_id, spec.setting, spec.attack, spec.budget, spec.defense_label
