"""What an edit or a defense changes: rates and AUROCs before and after, on the same questions.

Source: "Ranking is not judgment" (S1): paired cluster bootstrap over query clusters, since the
same questions stand before and after an edit of the poison.

Deviations: a rate is a ratio, and its denominator may differ between both sides (an edited
passage may not be retrieved any more), so both sides are resampled by the same draws of
questions and divided separately. Draws that leave a side empty are left out and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.stats.detection import auroc
from ragassay.stats.dose import Resampling
from ragassay.stats.intervals import Interval
from ragassay.stats.roc import GroupedScores, cluster_counts, score_array

Floats = NDArray[np.float64]
MIN_SIDE = 5
"""Questions that each side of a comparison needs for an interval: with fewer, resampling shows
hardly any spread, and none at all where all of them agree."""


@dataclass(frozen=True, slots=True)
class Change:
    """A figure before and after, and its difference with an interval.

    ``value`` is after minus before, None where one of them is not estimable. ``interval`` is
    None where a side has fewer than ``MIN_SIDE`` clusters; ``fewest`` is how many the smaller
    one has. ``n_before`` and ``n_after`` are the denominators (for an AUROC the scored
    candidates), ``clusters`` the distinct questions of both sides, ``left_out`` the draws
    without a value.
    """

    before: float | None
    after: float | None
    interval: Interval | None
    n_before: int
    n_after: int
    clusters: int
    fewest: int = 0
    left_out: int = 0

    @property
    def value(self) -> float | None:
        """After minus before."""
        if self.before is None or self.after is None:
            return None
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Events:
    """Events and the question of each; an event may be any bool, one a candidate."""

    events: Sequence[bool] | NDArray[np.bool_]
    clusters: Sequence[Any]


def rate_change(before: Events, after: Events, how: Resampling) -> Change:
    """Estimate the difference of two rates on the same questions.

    Parameters
    ----------
    before, after : Events
        For a miss rate: whether each retrieved poison passed, and its question.
    how : Resampling
        Draws, level and generator.

    Raises
    ------
    ValueError
        A side has not one cluster an event.

    Examples
    --------
    >>> how = Resampling(np.random.default_rng(1))
    >>> found = rate_change(Events([False, True], "ab"), Events([True, True], "ab"), how)
    >>> found.value, found.clusters
    (0.5, 2)
    """
    labels = _labels(before.clusters, after.clusters)
    sides = [_sums(side, labels) for side in (before, after)]
    rates = [float(hits.sum() / sizes.sum()) if sizes.sum() else None for hits, sizes in sides]

    def drawn(counts: Floats) -> Floats:
        with np.errstate(invalid="ignore"):
            first, second = ((counts @ hits) / (counts @ sizes) for hits, sizes in sides)
        difference: Floats = second - first
        return difference

    fewest = min(int((sizes > 0).sum()) for _, sizes in sides)
    counts = (len(before.clusters), len(after.clusters))
    return _change(rates, counts, (len(labels), fewest), drawn, how)


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores of poison and of clean candidates, each with its question."""

    poison: GroupedScores
    clean: GroupedScores


def auroc_change(before: Scored, after: Scored, how: Resampling) -> Change:
    """Estimate the difference of two AUROCs (ties one half) on the same questions.

    Candidates without a score are in neither side.

    Parameters
    ----------
    before, after : Scored
        Candidates before and after an edit.
    how : Resampling
        Draws, level and generator.

    Raises
    ------
    ValueError
        Lengths differ, or a score is infinite.
    """
    kept = [(_known(side.poison), _known(side.clean)) for side in (before, after)]
    labels = _labels(*(groups for side in kept for _, groups in side))
    values = [auroc(p, n) for (p, _), (n, _) in kept]
    tables = [_wins(side, labels) for side in kept]

    def drawn(counts: Floats) -> Floats:
        found = []
        for wins, p_sizes, n_sizes in tables:
            pairs = (counts @ p_sizes) * (counts @ n_sizes)
            with np.errstate(invalid="ignore"):
                found.append(((counts @ wins) * counts).sum(axis=1) / pairs)
        difference: Floats = found[1] - found[0]
        return difference

    sizes = tuple(len(p) + len(n) for (p, _), (n, _) in kept)
    fewest = min(len(set(groups)) for side in kept for _, groups in side)
    return _change(values, (sizes[0], sizes[1]), (len(labels), fewest), drawn, how)


# --------------------------------------------------------------------------------- internals


def _change(
    values: Sequence[float | None],
    sizes: tuple[int, int],
    clusters: tuple[int, int],
    drawn: Any,
    how: Resampling,
) -> Change:
    interval, left_out = None, 0
    together, fewest = clusters
    if fewest >= MIN_SIDE and None not in values:
        differences = drawn(cluster_counts(together, how.draws, how.rng))
        found = differences[np.isfinite(differences)]
        left_out = len(differences) - len(found)
        tail = (1 - how.confidence) / 2
        if len(found):
            low, high = np.quantile(found, [tail, 1 - tail])
            interval = Interval(float(low), float(high))
    return Change(values[0], values[1], interval, *sizes, together, fewest, left_out)


def _labels(*clusters: Sequence[Any]) -> dict[Any, int]:
    return {label: i for i, label in enumerate(sorted({each for one in clusters for each in one}))}


def _sums(side: Events, labels: dict[Any, int]) -> tuple[Floats, Floats]:
    flags = np.asarray(side.events, dtype=np.float64)
    if flags.shape != (len(side.clusters),):
        raise ValueError(f"need one cluster an event, got {len(side.clusters)} for {flags.shape}")
    index = np.array([labels[each] for each in side.clusters], dtype=np.int64)
    size = len(labels)
    hits: Floats = np.bincount(index, weights=flags, minlength=size).astype(np.float64)
    return hits, np.bincount(index, minlength=size).astype(np.float64)


def _known(side: GroupedScores) -> tuple[Floats, list[Any]]:
    scores = score_array(side.scores)
    if len(scores) != len(side.groups):
        raise ValueError(f"need one cluster a score, got {len(side.groups)} for {len(scores)}")
    known = ~np.isnan(scores)
    return scores[known], [g for g, keep in zip(side.groups, known, strict=True) if keep]


def _wins(
    side: tuple[tuple[Floats, list[Any]], tuple[Floats, list[Any]]], labels: dict[Any, int]
) -> tuple[Floats, Floats, Floats]:
    """Pairs that the poison wins, by the clusters of both, and the sizes of the clusters."""
    (p, p_groups), (n, n_groups) = side
    size = len(labels)
    p_index = np.array([labels[each] for each in p_groups], dtype=np.int64)
    n_index = np.array([labels[each] for each in n_groups], dtype=np.int64)
    wins = np.zeros((size, size))
    above = (p[:, None] > n[None, :]) + 0.5 * (p[:, None] == n[None, :])
    np.add.at(wins, (p_index[:, None], n_index[None, :]), above)
    return (
        wins,
        np.bincount(p_index, minlength=size).astype(np.float64),
        np.bincount(n_index, minlength=size).astype(np.float64),
    )
