"""A share of things that come in clusters, with an interval that respects the clusters.

Source: Wilson (1927), JASA 22(158), for independent things; the cluster bootstrap of
:mod:`ragassay.stats.intervals` (clusters are questions, as in "Ranking is not judgment").

Deviations: where every cluster has the same share, resampling shows no spread, which is not
certainty. A Wilson interval over the clusters stands in there: as wide as if each cluster had
been seen once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ragassay.stats.dose import Resampling
from ragassay.stats.intervals import MIN_GROUPS, Interval, cluster_bootstrap, wilson

Method = Literal["wilson", "cluster bootstrap", "wilson over clusters", "none"]


@dataclass(frozen=True, slots=True)
class ClusteredShare:
    """``count`` of ``n`` things in ``clusters`` clusters.

    ``method`` names the interval: "wilson" where every cluster has one thing, "cluster
    bootstrap", "wilson over clusters" where that has no width, or "none" (nothing there, or one
    cluster that holds several things).
    """

    count: int
    n: int
    clusters: int
    interval: Interval | None
    method: Method

    @property
    def value(self) -> float | None:
        """The share, count / n; None where n is 0."""
        return self.count / self.n if self.n else None


def clustered_share(
    events: Sequence[bool] | np.ndarray[Any, np.dtype[np.bool_]],
    clusters: Sequence[Any],
    how: Resampling,
) -> ClusteredShare:
    """Bound the share of true events.

    Parameters
    ----------
    events : sequence of bool, length n
        Whether the event occurred for each thing.
    clusters : sequence, length n
        The cluster of each thing (a question); equal labels are one cluster.
    how : Resampling
        Draws, level and generator.

    Returns
    -------
    ClusteredShare
        Without an interval where it cannot be had.

    Raises
    ------
    ValueError
        The lengths differ.

    Examples
    --------
    >>> how = Resampling(np.random.default_rng(1))
    >>> found = clustered_share([True, True, True, True], ["a", "a", "b", "b"], how)
    >>> found.count, found.n, found.clusters, found.method
    (4, 4, 2, 'wilson over clusters')
    """
    flags = np.asarray(events, dtype=np.bool_)
    if flags.shape != (len(clusters),):
        raise ValueError(f"need one cluster an event, got {len(clusters)} for {flags.shape}")
    count, n, groups = int(flags.sum()), len(clusters), len(set(clusters))

    def share(interval: Interval | None, method: Method) -> ClusteredShare:
        return ClusteredShare(count, n, groups, interval, method)

    if n == groups:
        found = wilson(count, n, confidence=how.confidence)
        return share(found, "none" if found is None else "wilson")
    if groups < MIN_GROUPS:
        return share(None, "none")
    (drawn,) = cluster_bootstrap(
        flags.astype(np.float64), clusters, draws=how.draws, confidence=how.confidence, rng=how.rng
    )
    if drawn is None or drawn.high > drawn.low:
        return share(drawn, "none" if drawn is None else "cluster bootstrap")
    return share(_over_clusters(count, n, groups, how.confidence), "wilson over clusters")


def _over_clusters(count: int, n: int, groups: int, confidence: float) -> Interval:
    """Wilson's interval with one observation a cluster; a broken count is rounded outwards."""
    low = wilson(math.floor(count * groups / n), groups, confidence=confidence)
    high = wilson(math.ceil(count * groups / n), groups, confidence=confidence)
    assert low is not None  # groups > 0
    assert high is not None
    return Interval(low.low, high.high)
