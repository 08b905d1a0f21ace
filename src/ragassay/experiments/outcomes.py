"""Attacks without a target: whether the system declines, or loses its correct answer.

A target-positive rate says nothing of an attack that wants no answer of its own. It succeeds at a
question that the same system, with the same defense, handled on clean retrieval, while poison is
in its context: where it answered and now declines (``declined``), or where it was correct and no
longer is (``incorrect``).

Source: declining, Shafran et al., "Machine Against the RAG"; the lost answer, GARAG (Cho et al.).

Deviations: only questions that were handled on clean retrieval count, so that what the system
could not do anyway is no success. Labels that are missing or undecided are counted, in no rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast, get_args

import numpy as np

from ragassay.canon import to_plain
from ragassay.experiments.conditions import UNDEFENDED, Cell, Conditions, rate
from ragassay.store.columns import NEGATIVE, POSITIVE

Outcome = Literal["target", "declined", "incorrect"]
OUTCOMES: tuple[str, ...] = get_args(Outcome)
TARGET: Outcome = "target"
_LABELS = {"declined": ("abstained", NEGATIVE), "incorrect": ("correct", POSITIVE)}


def outcome_of(attack: Any) -> Outcome:
    """What an attack counts as success: its ``outcome``, else whether it has a target.

    Examples
    --------
    >>> from ragassay.attacks.jamming import Jamming
    >>> outcome_of(Jamming())
    'declined'
    """
    given: Any = getattr(attack, "outcome", "")
    if given in OUTCOMES:
        return cast("Outcome", given)
    return "incorrect" if getattr(attack, "untargeted", False) else TARGET


def outcome_rows(
    cells: Iterable[Cell],
    scorers: Sequence[str],
    conditions: Conditions,
    kinds: Mapping[str, str],
    confidence: float,
) -> list[dict[str, Any]]:
    """Success of the attacks that want no answer of their own.

    Parameters
    ----------
    cells : iterable of Cell
        Settings, attacks, budgets and defenses of a run.
    scorers : sequence of str
        Whose labels are read.
    conditions : Conditions
        The labels.
    kinds : mapping
        Attack to outcome; other attacks have the outcome ``target`` and no row.
    confidence : float
        Of the Wilson intervals.

    Returns
    -------
    list of dict
        Plain JSON: the cell, ``outcome``, ``success`` out of the questions that were handled on
        clean retrieval and are decided under attack, ``handled`` out of all that are decided on
        clean retrieval, and ``undecided`` questions, which lack one of the two labels.
    """
    rows = []
    chosen = [c for c in cells if c.budget and kinds.get(c.attack, TARGET) in _LABELS]
    for scorer in scorers:
        for cell in chosen:
            label, handled_code = _LABELS[kinds[cell.attack]]
            four = conditions.of(cell)
            pair = (0, 2) if cell.defense == UNDEFENDED else (1, 3)
            clean, poisoned = (four[i].codes(scorer, label) for i in pair)
            read, attacked = (
                np.isin(codes, (POSITIVE, NEGATIVE)) for codes in (clean, poisoned)
            )  # fmt: skip
            handled = clean == handled_code
            both = handled & attacked
            won = both & (poisoned != handled_code) & four[pair[1]].poisoned
            rows.append(
                {
                    "scorer": scorer,
                    **to_plain(cell),
                    "outcome": kinds[cell.attack],
                    "success": rate(int(won.sum()), int(both.sum()), confidence),
                    "handled": rate(int(handled.sum()), int(read.sum()), confidence),
                    "undecided": int((~(read & attacked)).sum()),
                }
            )
    return rows
