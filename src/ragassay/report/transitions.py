"""Which comparisons a run holds, how their labels move, and which of them a page lists.

A page holds so many trials: where there are more, records in which a label flips or in which the
rules disagree come first, then uncertain ones, evenly over all comparisons. Everything is counted
on whole columns, so that it takes no more memory for a million trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragassay.report.grids import UNDEFENDED
from ragassay.store.columns import Ints, Trials, asked

MAX_TRIALS = 8_000
COMPARED = (
    ("P", "prevented"), ("J", "introduced"), ("+", "stays positive"), ("-", "stays negative"),
    ("h", "harmed on clean"), ("d", "rules disagree"), ("x", "dropped (a label is missing)"),
)  # fmt: skip
ATTACKED = (
    ("I", "induced by the attack"), ("R", "positive on clean only"), ("+", "positive"),
    ("-", "negative"), ("d", "rules disagree"), ("x", "a label is missing"),
)  # fmt: skip
_FLIPS = b"PJIR"
_ABSENT = 3  # an urgency: no trial at all

Spot = tuple[str, str, int]  # setting, attack, budget
Letters = NDArray[np.uint8]
Labels = NDArray[np.int8]  # 1, 0, or below 0 where there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One query of one comparison; ``trials`` are rows of c0, c1, p0 and p1, -1 for none."""

    query_id: str
    cell: int
    defense: int
    trials: tuple[int, ...]
    classes: str
    harmed: str
    disagree: bool


@dataclass(frozen=True, slots=True)
class _Comparison:
    """All queries of one place and defense: rows (queries, 4) and a letter for each rule."""

    rows: Ints
    classes: Letters
    harmed: Letters
    disagree: NDArray[np.bool_]
    urgent: NDArray[np.int8]


class Found:
    """The comparisons of a run, query by query.

    Parameters
    ----------
    trials : Trials
        The columns of the run.
    rules, defenses, queries, spots : sequences
        Label rules, the undefended system and the defenses, attacked queries, and places.
    clean_absent : set of Spot
        Places without any clean answer.
    """

    def __init__(
        self,
        trials: Trials,
        rules: Sequence[str],
        defenses: Sequence[str],
        queries: Sequence[str],
        spots: Sequence[Spot],
        clean_absent: set[Spot],
    ) -> None:
        self._trials, self._rules, self._queries = trials, rules, queries
        self._defenses, self._spots, self._bare = defenses, spots, clean_absent
        self._numbers = asked(trials, queries)
        start = 1 if len(defenses) > 1 else 0
        self._places = [
            (cell, defense) for cell in range(len(spots)) for defense in range(start, len(defenses))
        ]
        self._urgent = np.array(
            [self._compare(*place).urgent for place in self._places], dtype=np.int8
        ).reshape(len(self._places), len(queries))  # fmt: skip

    @property
    def total(self) -> int:
        """How many records have a trial."""
        return int((self._urgent < _ABSENT).sum())

    def bounded(self) -> list[Record]:
        """As many records as a page holds, urgent ones first and evenly over the comparisons."""
        order = self._order()
        size = max(1, len(self._queries))
        trials: set[int] = set()
        kept: list[Record] = []
        place, compared = -1, None
        known: dict[int, _Comparison] = {}
        chosen: list[int] = []
        for i in order.tolist():
            place = i // size
            compared = known.get(place)
            if compared is None:
                compared = known[place] = self._compare(*self._places[place])
            rows = {row for row in compared.rows[i % size].tolist() if row >= 0}
            if len(trials) + len(rows - trials) > MAX_TRIALS:
                break
            trials |= rows
            chosen.append(i)
        for i in sorted(chosen):
            kept.append(self._record(i // size, i % size, known[i // size]))
        return kept

    def _order(self) -> Ints:
        """Records by urgency, then by their turn within comparison and urgency, then in order."""
        urgent = self._urgent
        turn = np.zeros(urgent.shape, dtype=np.int32)
        for level in range(_ABSENT):
            mine = urgent == level
            turn[mine] = (np.cumsum(mine, axis=1, dtype=np.int32) - 1)[mine]
        flat, turns = urgent.ravel(), turn.ravel()
        there = np.flatnonzero(flat < _ABSENT)
        found: Ints = there[np.lexsort((there, turns[there], flat[there]))]
        return found

    def _record(self, place: int, query: int, compared: _Comparison) -> Record:
        cell, defense = self._places[place]
        return Record(
            query_id=self._queries[query], cell=cell, defense=defense,
            trials=tuple(compared.rows[query].tolist()),
            classes=compared.classes[query].tobytes().decode("ascii"),
            harmed=compared.harmed[query].tobytes().decode("ascii"),
            disagree=bool(compared.disagree[query]),
        )  # fmt: skip

    def _compare(self, cell: int, defense: int) -> _Comparison:
        setting, attack, budget = self._spots[cell]
        systems = (UNDEFENDED, self._defenses[defense])
        nothing = np.full(len(self._queries), -1, dtype=np.int64)
        rows = np.column_stack(
            [self._trials.rows((setting, "", 0, who), self._numbers) for who in systems]
            + [
                self._trials.rows((setting, attack, budget, who), self._numbers)
                if budget else nothing
                for who in systems
            ]
        )  # fmt: skip
        labels = np.stack([self._labels(rows, rule) for rule in self._rules], axis=1)
        if defense:
            classes, harmed = transition_classes(labels), harms(labels)
        else:
            bare = self._spots[cell] in self._bare
            classes = attack_classes(labels[:, :, 0], labels[:, :, 2], clean_absent=bare)
            harmed = np.full(classes.shape, ord("0"), dtype=np.uint8)
        disagree = ((labels == 1).any(axis=1) & (labels == 0).any(axis=1)).any(axis=1)
        flips = (
            disagree
            | (harmed == ord("1")).any(axis=1)
            | np.isin(classes, np.frombuffer(_FLIPS, dtype=np.uint8)).any(axis=1)
        )
        urgent = np.where(flips, 0, np.where((labels < 0).any(axis=(1, 2)), 1, 2)).astype(np.int8)
        urgent[(rows < 0).all(axis=1)] = _ABSENT
        return _Comparison(rows, classes, harmed, disagree, urgent)

    def _labels(self, rows: Ints, rule: str) -> Labels:
        """Labels of a rule, shape (queries, 4): 1, 0, or -1 where there is none."""
        found = np.full(rows.shape, -1, dtype=np.int8)
        there = rows >= 0
        found[there] = np.maximum(self._trials.labels(rule)[rows[there]], -1)
        return found


def transition_classes(labels: Labels) -> Letters:
    """Classify labels of c0, c1, p0 and p1, shape (..., 4).

    Returns
    -------
    array of uint8, shape (...)
        ``P`` prevented, ``J`` introduced, ``+`` stays positive, ``-`` stays negative, ``x``
        dropped: a label is missing, so that the query is in no figure of the cell.

    Examples
    --------
    >>> transition_classes(np.array([[0, 0, 1, 0], [0, 0, 0, 1], [0, -1, 1, 1]])).tobytes()
    b'PJx'
    """
    letters = np.frombuffer(b"-JP+", dtype=np.uint8)
    found = letters[2 * (labels[..., 2] == 1) + (labels[..., 3] == 1)]
    return np.where((labels < 0).any(axis=-1), np.uint8(ord("x")), found)


def attack_classes(clean: Labels, poisoned: Labels, *, clean_absent: bool = False) -> Letters:
    """Classify the undefended labels of queries, clean and under attack, of one shape.

    Returns
    -------
    array of uint8
        ``I`` induced, ``R`` positive on clean retrieval only, ``+`` positive (in both, where
        the run has clean answers), ``-`` negative, ``x`` a label is missing.

    Examples
    --------
    >>> attack_classes(np.array([0, 1, 1, -1]), np.array([1, 0, 1, 1])).tobytes()
    b'IR+x'
    """
    before = poisoned if clean_absent else clean
    letters = np.frombuffer(b"-IR+", dtype=np.uint8)
    found = letters[2 * (before == 1) + (poisoned == 1)]
    return np.where((poisoned < 0) | (before < 0), np.uint8(ord("x")), found)


def harms(labels: Labels) -> Letters:
    """``1`` where all four labels are there and the defense made a clean answer positive."""
    harmed = (labels >= 0).all(axis=-1) & (labels[..., 0] == 0) & (labels[..., 1] == 1)
    return np.where(harmed, np.uint8(ord("1")), np.uint8(ord("0")))
