"""How sure a ranking is: intervals of strengths and ranks, and when to stop playing.

Source: Efron and Tibshirani (1993), An Introduction to the Bootstrap (percentile intervals);
resampling of whole queries because rounds about one query share its documents and its answers;
Goldstein and Spiegelhalter (1996), JRSS A 159(3), for intervals of ranks.

Deviations: none. Resamples in which the comparisons do not connect everybody say nothing about
relative strengths; they are left out and counted.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragassay.stats.intervals import MIN_GROUPS, Interval
from ragassay.stats.ranking import (
    PRIOR_SD,
    Floats,
    connected,
    fit,
    prior_precision,
    ranks,
    solve,
    win_probability,
)

MIN_USABLE = 0.5  # share of resamples that must connect everybody
_CELLS_AT_ONCE = 2**22


@dataclass(frozen=True, slots=True)
class Ranking:
    """Strengths and ranks of n competitors with their uncertainty.

    Attributes
    ----------
    theta, ranks : array, shape (n,)
        Estimates from all rounds; rank 1 is the strongest.
    groups : int
        Number of resampled groups (queries).
    draws : array, shape (usable, n)
        Strengths in each usable resample; empty where nothing can be resampled.
    unusable : int
        Resamples left out because their comparisons do not connect everybody.
    confidence : float
        Two-sided level of the intervals.
    """

    theta: Floats
    ranks: NDArray[np.int64]
    groups: int
    draws: Floats
    unusable: int
    confidence: float

    @property
    def estimable(self) -> bool:
        """Whether there are intervals: two groups, and half of the resamples usable."""
        usable = len(self.draws)
        return self.groups >= MIN_GROUPS and usable > MIN_USABLE * (usable + self.unusable)

    @property
    def theta_intervals(self) -> list[Interval | None]:
        """Percentile interval of each strength."""
        return self._quantiles(self.draws, "linear")

    @property
    def rank_intervals(self) -> list[Interval | None]:
        """Percentile interval of each rank, in whole ranks."""
        return self._quantiles(ranks(self.draws).astype(np.float64), "inverted_cdf")

    @property
    def rank_probabilities(self) -> Floats | None:
        """Share of resamples in which competitor i has rank r + 1, shape (n, n)."""
        if not self.estimable:
            return None
        places = np.arange(1, len(self.theta) + 1)
        shares: Floats = (ranks(self.draws)[:, :, None] == places).mean(axis=0)
        return shares

    @property
    def superiority(self) -> Floats | None:
        """Share of resamples in which i is stronger than j, ties by half, shape (n, n).

        The diagonal is 0.5.
        """
        if not self.estimable:
            return None
        gaps = self.draws[:, :, None] - self.draws[:, None, :]
        share: Floats = (0.5 * (np.sign(gaps) + 1)).mean(axis=0)
        return share

    @property
    def win_probabilities(self) -> Floats:
        """Estimated probability that i beats j in a decided comparison, shape (n, n)."""
        return win_probability(self.theta[:, None], self.theta[None, :])

    @property
    def win_probability_intervals(self) -> list[list[Interval | None]]:
        """Percentile interval of each :attr:`win_probabilities`."""
        n = len(self.theta)
        beats = win_probability(self.draws[:, :, None], self.draws[:, None, :])
        flat = self._quantiles(beats.reshape(len(self.draws), n * n), "linear")
        return [flat[i * n : (i + 1) * n] for i in range(n)]

    @property
    def same_order(self) -> float | None:
        """Share of resamples that give the same complete order."""
        if not self.estimable:
            return None
        return float((ranks(self.draws) == self.ranks).all(axis=1).mean())

    def undecided(self, certainty: float) -> list[tuple[int, int]]:
        """Neighbors in the order of which the upper is stronger in too few resamples.

        Parameters
        ----------
        certainty : float
            Share of resamples that decides a pair.

        Returns
        -------
        list of (int, int)
            Upper and lower competitor; all neighbors where nothing can be resampled.
        """
        order = np.argsort(self.ranks)
        pairs = [(int(a), int(b)) for a, b in itertools.pairwise(order)]
        share = self.superiority
        if share is None:
            return pairs
        return [(a, b) for a, b in pairs if share[a, b] < certainty]

    def _quantiles(self, values: Floats, method: str) -> list[Interval | None]:
        if not self.estimable:
            return [None] * (values.shape[1])
        tail = (1 - self.confidence) / 2
        low, high = np.quantile(values, [tail, 1 - tail], axis=0, method=method)  # type: ignore[call-overload]
        return [Interval(float(a), float(b)) for a, b in zip(low, high, strict=True)]


def rank(
    wins: ArrayLike,
    *,
    rng: np.random.Generator,
    draws: int = 1_000,
    confidence: float = 0.95,
    prior_sd: float = PRIOR_SD,
) -> Ranking:
    """Estimate strengths, and resample whole groups for their uncertainty.

    Parameters
    ----------
    wins : array, shape (g, n, n)
        Wins of each group (query): entry ``[q, i, j]`` counts in how many rounds of group q
        i beat j. Groups without a decided round count too.
    rng : numpy.random.Generator
        The only source of randomness.
    draws : int
        Number of resamples.
    confidence : float
        Two-sided level in (0, 1).
    prior_sd : float
        Standard deviation of the normal prior. There must be one: in a resample somebody may
        win everything.

    Raises
    ------
    NotEstimable
        The comparisons of all groups together do not connect all competitors.
    ValueError
        A shape or number is impossible.
    """
    table = np.asarray(wins, dtype=np.float64)
    if table.ndim != 3 or not table.size:
        raise ValueError(f"need wins of shape (groups, n, n), got {table.shape}")
    if draws < 1 or not 0 < confidence < 1:
        raise ValueError(f"need draws >= 1 and 0 < confidence < 1, got {draws} and {confidence}")
    theta = fit(table.sum(axis=0), prior_sd=prior_sd)
    count, n = len(table), len(theta)
    kept, unusable = [np.empty((0, n))], 0
    step = max(1, _CELLS_AT_ONCE // max(count, n * n))
    for done in range(0, draws if count >= MIN_GROUPS else 0, step):
        size = min(step, draws - done)
        times = rng.multinomial(count, np.full(count, 1 / count), size=size).astype(np.float64)
        resampled = (times @ table.reshape(count, -1)).reshape(size, n, n)
        usable = connected(resampled)
        unusable += int((~usable).sum())
        # From the estimate of all rounds, a resample takes few steps.
        start = np.broadcast_to(theta, (int(usable.sum()), n))
        if len(start):
            kept.append(solve(resampled[usable], prior_precision(prior_sd), start))
    return Ranking(theta, ranks(theta), count, np.concatenate(kept), unusable, confidence)


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """When enough rounds have been played.

    Attributes
    ----------
    stable_rounds : int
        Rounds in which the online order must not have changed (the paper's r, left open there).
    min_rounds, max_rounds : int
        Bounds of the number of rounds.
    min_participations : int
        Rounds in which each competitor must have taken part.
    certainty : float
        Share of resamples that must agree on each pair of neighbors.
    """

    stable_rounds: int = 200
    min_rounds: int = 500
    max_rounds: int = 4_000
    min_participations: int = 100
    certainty: float = 0.95


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to stop, why, and how sure the order is.

    ``undecided`` lists neighbors whose order is not sure; a ranking that stops at the round
    limit may have some, and says so here. ``same_order`` is the share of resamples with the
    same complete order, None where not estimable.
    """

    stop: bool
    reason: str
    undecided: tuple[tuple[int, int], ...]
    same_order: float | None


def decide(
    rule: StoppingRule,
    *,
    rounds: int,
    participations: ArrayLike,
    stable: int,
    ranking: Ranking,
) -> Decision:
    """Decide whether enough rounds have been played.

    Resampling over queries sees only the queries that there are: where neighbors stay
    undecided for want of queries, more rounds cannot help and the round limit ends the play.
    Repeated looks make a chance stop more likely than a single look would; look every 100
    rounds or so, not after each.

    Parameters
    ----------
    rule : StoppingRule
        What must hold.
    rounds : int
        Rounds played.
    participations : array, shape (n,)
        Rounds in which each competitor took part.
    stable : int
        For how many rounds the online order has not changed.
    ranking : Ranking
        Of the rounds so far.
    """
    undecided = tuple(ranking.undecided(rule.certainty))
    fewest = int(np.min(participations))

    def answer(stop: bool, reason: str) -> Decision:
        return Decision(stop, reason, undecided, ranking.same_order)

    if rounds >= rule.max_rounds:
        return answer(True, f"the limit of {rule.max_rounds} rounds is reached")
    if rounds < rule.min_rounds:
        return answer(False, f"{rounds} of at least {rule.min_rounds} rounds are played")
    if fewest < rule.min_participations:
        return answer(
            False, f"a competitor took part in {fewest} of {rule.min_participations} rounds"
        )
    if stable < rule.stable_rounds:
        return answer(False, f"the order is stable for {stable} of {rule.stable_rounds} rounds")
    if undecided:
        return answer(False, f"{len(undecided)} pairs of neighbors are not decided")
    return answer(
        True,
        f"the order is stable for {stable} rounds and each pair of neighbors is decided in "
        f"{rule.certainty:.0%} of the resamples",
    )
