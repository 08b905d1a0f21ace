"""Agreement between labels: overall and decisive rates, Cohen's kappa, Krippendorff's alpha.

Source: "Prevented is not protected", section 4.2 and appendix F (overall and decisive
agreement); Cohen (1960), Educational and Psychological Measurement 20(1); Krippendorff (2011),
Computing Krippendorff's Alpha-Reliability; Efron and Tibshirani (1993) for the bootstrap.

Deviations: the paper gives no intervals for its agreement rates and no values of kappa; both
are given here. Its rule for a field that is not applicable to one side only is not stated: such
a pair is a disagreement, counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragassay.stats.intervals import Interval, wilson

MIN_UNITS = 2
MIN_DEFINED_SHARE = 0.8  # of the draws; below it the percentiles would describe another statistic
_CELLS_AT_ONCE = 2**21
_DECISIVE = ("yes", "no")

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """A percentile interval; ``undefined`` of the ``draws`` gave no value and were left out."""

    low: float
    high: float
    draws: int
    undefined: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A count with its denominator, rate and Wilson interval (None where n is 0)."""

    count: int
    n: int
    rate: float | None
    interval: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far two sides agree on a field.

    ``overall`` counts a pair with an uncertain label as a disagreement, and a pair where both
    say "not applicable" as an agreement. ``decisive`` keeps the pairs where both say yes or
    no, and ``kappa`` is taken over these; ``kappa3`` over all applicable pairs, uncertain as
    a third category. ``confusion`` has the human in rows, the other in columns, in the order of
    ``categories`` (the last is uncertain), over the applicable pairs.
    """

    n: int
    unscored: int
    both_na: int
    one_sided_na: int
    uncertain_human: int
    uncertain_other: int
    overall: Share
    decisive: Share
    kappa: float | None
    kappa3: float | None
    categories: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]


def confusion(
    a: Sequence[Hashable], b: Sequence[Hashable], categories: Sequence[Hashable]
) -> Counts:
    """Count pairs of labels.

    Parameters
    ----------
    a, b : sequence, length n
        Labels of the same units by two sides.
    categories : sequence, length k
        All labels that may occur, in the order of rows and columns.

    Returns
    -------
    array of int64, shape (k, k)
        ``a`` in rows, ``b`` in columns.

    Raises
    ------
    ValueError
        The lengths differ, a category is given twice, or a label is not among the categories.

    Examples
    --------
    >>> confusion(["yes", "no", "no"], ["yes", "yes", "no"], ["yes", "no"]).tolist()
    [[1, 0], [1, 1]]
    """
    place = {category: i for i, category in enumerate(categories)}
    if len(place) != len(categories):
        raise ValueError(f"a category is given twice: {list(categories)!r}")
    if len(a) != len(b):
        raise ValueError(f"need labels of the same units, got {len(a)} and {len(b)}")
    unknown = [label for label in (*a, *b) if label not in place]
    if unknown:
        raise ValueError(f"label {unknown[0]!r} is not among {list(categories)!r}")
    table = np.zeros((len(place), len(place)), dtype=np.int64)
    np.add.at(table, ([place[x] for x in a], [place[x] for x in b]), 1)
    return table


def cohen_kappa(matrix: ArrayLike) -> float | None:
    """Chance-corrected agreement of two sides, (p_o - p_e) / (1 - p_e).

    Parameters
    ----------
    matrix : array of int or float, shape (k, k)
        Counts or weights, one side in rows and the other in columns.

    Returns
    -------
    float or None
        None where there is no pair, or where both sides always give one and the same label
        (p_e = 1): then agreement is no evidence of reliability.

    Raises
    ------
    ValueError
        The matrix is not square, or an entry is negative or not finite.

    References
    ----------
    Cohen (1960), Educational and Psychological Measurement 20(1), 37-46.

    Examples
    --------
    >>> round(cohen_kappa([[20, 5], [10, 15]]), 9)
    0.4
    >>> cohen_kappa([[10, 0], [0, 0]]) is None
    True
    """
    table = np.asarray(matrix, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or table.size == 0:
        raise ValueError(f"need a square matrix, got shape {table.shape}")
    if not np.isfinite(table).all() or (table < 0).any():
        raise ValueError("counts must be finite and not negative")
    [value] = _kappas(table.reshape(1, -1), table.shape[0])
    return None if np.isnan(value) else float(value)


def agreement(
    human: Sequence[str | None],
    other: Sequence[str | None],
    *,
    uncertain: str = "uncertain",
    not_applicable: str = "not_applicable",
    decisive: tuple[str, ...] = _DECISIVE,
    confidence: float = 0.95,
) -> Agreement:
    """Compare the labels of a person with those of a scorer (or of another person).

    Parameters
    ----------
    human, other : sequence of str or None, length n
        Labels of the same units. A pair with a None (not scored) is left out and counted.
    uncertain, not_applicable : str
        What the two indecisive labels are called.
    decisive : tuple of str
        The decisive labels.
    confidence : float
        Level of the Wilson intervals, which treat the units as independent.

    Raises
    ------
    ValueError
        The lengths differ, or a label is unknown.

    References
    ----------
    "Prevented is not protected", section 4.2 and appendix F.

    Examples
    --------
    >>> found = agreement(["yes", "no", "no", "not_applicable"],
    ...                   ["yes", "no", "uncertain", "not_applicable"])
    >>> found.overall.count, found.overall.n, found.decisive.count, found.decisive.n
    (3, 4, 2, 2)
    """
    if len(human) != len(other):
        raise ValueError(f"need labels of the same units, got {len(human)} and {len(other)}")
    categories = (*decisive, uncertain)
    known = {*categories, not_applicable, None}
    for label in (*human, *other):
        if label not in known:
            raise ValueError(f"label {label!r} is not among {[*categories, not_applicable]!r}")
    pairs = [(a, b) for a, b in zip(human, other, strict=True) if a is not None and b is not None]
    absent = Counter((a == not_applicable) + (b == not_applicable) for a, b in pairs)
    applicable = [pair for pair in pairs if not_applicable not in pair]
    table = confusion([a for a, _ in applicable], [b for _, b in applicable], categories)
    sure = table[:-1, :-1]
    agreed = int(np.trace(sure))
    return Agreement(
        n=len(pairs),
        unscored=len(human) - len(pairs),
        both_na=absent[2],
        one_sided_na=absent[1],
        uncertain_human=int(table[-1].sum()),
        uncertain_other=int(table[:, -1].sum()),
        overall=_share(agreed + absent[2], len(pairs), confidence),
        decisive=_share(agreed, int(sure.sum()), confidence),
        kappa=cohen_kappa(sure),
        kappa3=cohen_kappa(table),
        categories=categories,
        confusion=tuple(tuple(int(x) for x in row) for row in table),
    )


def bootstrap_kappa(
    a: Sequence[Hashable],
    b: Sequence[Hashable],
    categories: Sequence[Hashable],
    *,
    groups: Sequence[Any] | None = None,
    draws: int = 10_000,
    confidence: float = 0.95,
    rng: np.random.Generator,
) -> Bootstrap | None:
    """Bound Cohen's kappa by resampling units, or whole groups of them.

    Percentile interval, linear interpolation. Draws in which kappa is undefined are left out
    and counted.

    Parameters
    ----------
    a, b : sequence, length n
        Labels of the same units by two sides.
    categories : sequence, length k
        All labels that may occur.
    groups : sequence, length n, optional
        Units of a group are drawn together (such as answers to one question).
    draws : int
        Number of resamples.
    confidence : float
        Two-sided level in (0, 1).
    rng : numpy.random.Generator
        The only source of randomness.

    Returns
    -------
    Bootstrap or None
        None with fewer than two units (or groups), where kappa itself is undefined, or where
        it is undefined in more than a fifth of the draws.

    Raises
    ------
    ValueError
        The lengths differ, a label is unknown, or ``draws`` or ``confidence`` is out of range.
    """
    _check_draws(draws, confidence)
    table = confusion(a, b, categories)
    groups = range(len(a)) if groups is None else groups
    if len(groups) != len(a):
        raise ValueError(f"need a group for each of {len(a)} units, got {len(groups)}")
    if len(set(groups)) < MIN_UNITS or cohen_kappa(table) is None:
        return None
    cells = _resampled(_cells_by_group(a, b, categories, groups), draws, rng)
    return _percentiles(_kappas(cells, len(categories)), confidence)


def krippendorff_alpha(ratings: Sequence[Sequence[Any]] | NDArray[Any]) -> float | None:
    """Reliability of any number of annotators, nominal labels, missing labels allowed.

    Parameters
    ----------
    ratings : array-like, shape (annotators, items)
        Labels; None, NaN or -1 where an annotator did not label the item.

    Returns
    -------
    float or None
        1 - observed over expected disagreement. None where no item has two labels, or where
        only one label ever occurs.

    Raises
    ------
    ValueError
        The rows have different lengths.

    References
    ----------
    Krippendorff (2011), Computing Krippendorff's Alpha-Reliability.

    Examples
    --------
    >>> round(krippendorff_alpha([[0, 1, 0, 0, 0, 0, 0, 0, 1, 0],
    ...                           [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]]), 3)
    0.095
    """
    contributions = _alpha_contributions(ratings)
    if len(contributions) == 0:
        return None
    [value] = _alphas(contributions.sum(axis=0)[None, :])
    return None if np.isnan(value) else float(value)


def bootstrap_alpha(
    ratings: Sequence[Sequence[Any]] | NDArray[Any],
    *,
    draws: int = 10_000,
    confidence: float = 0.95,
    rng: np.random.Generator,
) -> Bootstrap | None:
    """Bound Krippendorff's alpha by resampling items; see :func:`bootstrap_kappa`.

    Items with fewer than two labels say nothing about reliability and are not resampled.

    Returns
    -------
    Bootstrap or None
        None under the conditions of :func:`bootstrap_kappa`.

    Raises
    ------
    ValueError
        The rows have different lengths, or ``draws`` or ``confidence`` is out of range.
    """
    _check_draws(draws, confidence)
    contributions = _alpha_contributions(ratings)
    if len(contributions) < MIN_UNITS or krippendorff_alpha(ratings) is None:
        return None
    return _percentiles(_alphas(_resampled(contributions, draws, rng)), confidence)


def _share(count: int, n: int, confidence: float) -> Share:
    return Share(
        count=count,
        n=n,
        rate=count / n if n else None,
        interval=wilson(count, n, confidence=confidence),
    )


def _kappas(cells: Floats, k: int) -> Floats:
    """Kappa of many flattened k x k tables, shape (draws, k * k); NaN where undefined."""
    tables = cells.reshape(-1, k, k)
    n = tables.sum(axis=(1, 2))
    observed = np.trace(tables, axis1=1, axis2=2)
    expected = (tables.sum(axis=2) * tables.sum(axis=1)).sum(axis=1)
    # In counts, so that p_e = 1 is exact: 1 - p_e = (n^2 - sum of products) / n^2.
    room = n * n - expected
    # Weights round; a table in one diagonal cell leaves a rest of that size.
    defined = room > 1e-12 * n * n
    values = np.full(len(tables), np.nan)
    np.divide(n * observed - expected, room, out=values, where=defined)
    return values


def _cells_by_group(
    a: Sequence[Hashable],
    b: Sequence[Hashable],
    categories: Sequence[Hashable],
    groups: Sequence[Any],
) -> Floats:
    """Flattened confusion table of each group, shape (groups, k * k), sorted by label."""
    k = len(categories)
    place = {category: i for i, category in enumerate(categories)}
    order = {label: i for i, label in enumerate(sorted(set(groups)))}
    table = np.zeros((len(order), k * k))
    columns = [place[x] * k + place[y] for x, y in zip(a, b, strict=True)]
    np.add.at(table, ([order[group] for group in groups], columns), 1.0)
    return table


def _alpha_contributions(ratings: Sequence[Sequence[Any]] | NDArray[Any]) -> Floats:
    """Per pairable item: its disagreement, then its count of every label that occurs."""
    rows = [list(row) for row in ratings]
    if len({len(row) for row in rows}) > 1:
        raise ValueError(f"annotators rated {sorted({len(r) for r in rows})} items; need as many")
    items = [[x for x in column if not _missing(x)] for column in zip(*rows, strict=True)]
    pairable = [Counter(labels) for labels in items if len(labels) >= 2]
    categories = sorted({label for counts in pairable for label in counts}, key=repr)
    table = np.zeros((len(pairable), 1 + len(categories)))
    for row, counts in zip(table, pairable, strict=True):
        m = counts.total()
        row[0] = (m * m - sum(c * c for c in counts.values())) / (m - 1)
        row[1:] = [counts[category] for category in categories]
    return table


def _alphas(sums: Floats) -> Floats:
    """Alpha from summed contributions, shape (draws, 1 + k); NaN where undefined."""
    n = sums[:, 1:].sum(axis=1)
    expected = n * n - (sums[:, 1:] ** 2).sum(axis=1)
    ratio = np.full(len(sums), np.nan)
    np.divide((n - 1) * sums[:, 0], expected, out=ratio, where=expected > 0)
    return 1 - ratio


def _missing(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float | np.generic) and bool(value != value or value == -1)


def _resampled(rows: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """Sums of rows drawn with replacement, shape (draws, columns), in bounded memory.

    Equal rows are interchangeable, so only how often each kind of row is drawn matters: a
    multinomial over the kinds, of which labels leave few.
    """
    kinds, members = np.unique(rows, axis=0, return_counts=True)
    step = max(1, _CELLS_AT_ONCE // len(kinds))
    share = members / len(rows)
    return np.concatenate(
        [
            rng.multinomial(len(rows), share, size=min(step, draws - done)) @ kinds
            for done in range(0, draws, step)
        ]
    )


def _percentiles(values: Floats, confidence: float) -> Bootstrap | None:
    defined = values[~np.isnan(values)]
    if len(defined) < MIN_DEFINED_SHARE * len(values):
        return None
    tail = (1 - confidence) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return Bootstrap(float(low), float(high), len(values), len(values) - len(defined))


def _check_draws(draws: int, confidence: float) -> None:
    if draws < 1:
        raise ValueError(f"need draws >= 1, got {draws}")
    if not 0 < confidence < 1:
        raise ValueError(f"need 0 < confidence < 1, got {confidence}")
