"""Events and runs by question and dose, and their resamples over questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from ragassay.stats.dose import Counts, Resampling
from ragassay.stats.paired import Labels

Floats = NDArray[np.float64]
CELLS_AT_ONCE = 2**21  # so that memory stays bounded


@dataclass(frozen=True, slots=True)
class DoseTable:
    """Events and runs by question and dose, shape (questions, doses)."""

    doses: Floats
    hits: Floats
    sizes: Floats

    @classmethod
    def of(cls, doses: Counts, outcome: Labels, groups: Sequence[Any]) -> DoseTable | None:
        """Count; None without a run. Raises as :func:`check_runs`."""
        check_runs(doses, outcome, groups)
        if not len(groups):
            return None
        levels, column = np.unique(doses, return_inverse=True)
        labels = {label: i for i, label in enumerate(sorted(set(groups)))}
        row = np.array([labels[label] for label in groups])
        hits, sizes = np.zeros((2, len(labels), len(levels)))
        np.add.at(hits, (row, column), outcome.astype(np.float64))
        np.add.at(sizes, (row, column), 1.0)
        return cls(levels.astype(np.float64), hits, sizes)

    def resamples(self, how: Resampling) -> Iterator[tuple[Floats, Floats]]:
        """Draw questions with replacement: events and runs by dose, shape (draws, doses)."""
        count = len(self.hits)
        step = max(1, CELLS_AT_ONCE // count)
        for start in range(0, how.draws, step):
            size = min(step, how.draws - start)
            times = how.rng.multinomial(count, np.full(count, 1 / count), size=size)
            yield times @ self.hits, times @ self.sizes


def check_runs(doses: Counts, outcome: Labels, groups: Sequence[Any]) -> None:
    """Refuse arrays that do not belong together.

    Raises
    ------
    ValueError
        The lengths differ, doses are not integers or outcomes not bools.
    """
    if doses.shape != outcome.shape or doses.shape != (len(groups),):
        raise ValueError(
            f"need a dose, an outcome and a group per run, got {doses.shape}, {outcome.shape} "
            f"and {len(groups)}"
        )
    if outcome.dtype != np.bool_ or doses.dtype.kind not in "iu":
        raise ValueError("doses must be integers and outcomes bools: drop what is unscored")


def nondecreasing(rates: Floats, weights: Floats) -> Floats:
    """Return the nondecreasing values nearest to some rates, by weighted squares.

    Examples
    --------
    >>> nondecreasing(np.array([0.1, 0.5, 0.3]), np.array([1.0, 1.0, 1.0])).tolist()
    [0.1, 0.4, 0.4]
    """
    fitted: Floats = isotonic_regression(rates, weights=weights).x
    return fitted


def nondecreasing_rows(hits: Floats, sizes: Floats) -> Floats:
    """Return the nondecreasing rates nearest to those of many tables, by weighted squares.

    Parameters
    ----------
    hits, sizes : array, shape (m, d)
        Events (any weighted sums) and runs at each dose, one row per table.

    Returns
    -------
    array, shape (m, d)
        NaN where a size is 0. By the min-max formula of isotonic regression: the value at i is
        the largest over s <= i of the smallest over t >= i of the mean over s..t.

    Examples
    --------
    >>> nondecreasing_rows(np.array([[1.0, 5.0, 3.0]]), np.array([[10.0, 10.0, 10.0]])).tolist()
    [[0.1, 0.4, 0.4]]
    """
    count = hits.shape[1]
    fitted = np.full(hits.shape, np.nan)
    events = np.concatenate([np.zeros((len(hits), 1)), np.cumsum(hits, axis=1)], axis=1)
    runs = np.concatenate([np.zeros((len(sizes), 1)), np.cumsum(sizes, axis=1)], axis=1)
    for at in range(count):
        best = np.full(len(hits), -np.inf)
        for start in range(at + 1):
            lowest = np.full(len(hits), np.inf)
            for stop in range(at + 1, count + 1):
                with np.errstate(divide="ignore", invalid="ignore"):
                    mean = (events[:, stop] - events[:, start]) / (runs[:, stop] - runs[:, start])
                lowest = np.fmin(lowest, mean)
            best = np.fmax(best, lowest)
        fitted[:, at] = np.where(sizes[:, at] > 0, best, np.nan)
    return fitted
