"""How much of the annotated support a poisoned context still holds.

Source: "Prevented is not protected", appendix H, "Exposure strata": contexts that retain all,
some or none of the passages that the data set marks as support, and the target-positive answers
within each.

Deviations: a query without annotated support belongs to no stratum and is counted apart.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from ragassay.stats.proportions import Proportion, share_true

Stratum = Literal["all", "some", "none"]
STRATA: tuple[Stratum, ...] = get_args(Stratum)


def support_stratum(support: Collection[str], context: Collection[str]) -> Stratum | None:
    """Tell whether a context holds all, some or none of the annotated support.

    Parameters
    ----------
    support : collection of str
        Ids of the passages that support the truth.
    context : collection of str
        Ids of the passages in the context.

    Returns
    -------
    {"all", "some", "none"} or None
        None where nothing is annotated.

    Examples
    --------
    >>> support_stratum(["a", "b"], ["b", "x"])
    'some'
    """
    wanted = set(support)
    if not wanted:
        return None
    left = len(wanted & set(context))
    if left == 0:
        return "none"
    return "all" if left == len(wanted) else "some"


@dataclass(frozen=True, slots=True)
class StratumRow:
    """The contexts of one stratum; ``stratum`` None: no support is annotated.

    ``target`` counts target-positive answers among those with a label.
    """

    stratum: Stratum | None
    contexts: int
    target: Proportion


def by_stratum(
    strata: Sequence[Stratum | None], target: Sequence[bool | None], *, confidence: float = 0.95
) -> tuple[StratumRow, ...]:
    """Count contexts and target-positive answers per stratum.

    Parameters
    ----------
    strata : sequence, length n
        Stratum of each context.
    target : sequence of bool or None, length n
        Whether its answer is target-positive; None where that is not known.
    confidence : float
        Level of the Wilson intervals.

    Returns
    -------
    tuple of StratumRow
        Always "all", "some", "none" in this order, then None where some query has no annotation.

    Raises
    ------
    ValueError
        The lengths differ, or a stratum is none of these.

    Examples
    --------
    >>> rows = by_stratum(["all", "none", "none"], [True, True, None])
    >>> [(row.stratum, row.contexts, row.target.count, row.target.n) for row in rows]
    [('all', 1, 1, 1), ('some', 0, 0, 0), ('none', 2, 1, 1)]
    """
    if len(strata) != len(target):
        raise ValueError(f"need one label a context, got {len(target)} for {len(strata)}")
    unknown = sorted({str(s) for s in strata if s is not None and s not in STRATA})
    if unknown:
        raise ValueError(f"unknown stratum {unknown[0]!r}; known: {', '.join(STRATA)}")
    wanted: tuple[Stratum | None, ...] = (*STRATA, None) if None in strata else STRATA
    rows = []
    for stratum in wanted:
        labels = [label for s, label in zip(strata, target, strict=True) if s == stratum]
        rows.append(StratumRow(stratum, len(labels), share_true(labels, confidence=confidence)))
    return tuple(rows)
