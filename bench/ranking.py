"""How fast strengths are resampled: all bootstrap draws at once against one choix fit a draw.

Seven attackers, 100 queries, 1,000 draws. Three refits are timed: choix.opt_pairwise, which has
the same penalty and so the same answer; choix.ilsr_pairwise, without one; and the same on a table
of wins, which has to be summed up first. A refit is timed over a few draws. Processor time.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable

import choix
import numpy as np

from ragassay.stats.ranking import PRIOR_SD, fit
from ragassay.stats.ranking_certainty import rank

STRENGTHS = np.array([1.7, 0.1, -0.2, -0.1, -0.4, -0.5, -0.6])


def simulated(queries: int, rounds: int, seed: int) -> np.ndarray:
    """Wins per query of rounds of 2 to 7 attackers with one winner, drawn by strength."""
    rng = np.random.default_rng(seed)
    n = len(STRENGTHS)
    wins = np.zeros((queries, n, n))
    for q in range(queries):
        for _ in range(rounds):
            some = rng.permutation(n)[: rng.integers(2, n + 1)]
            luck = STRENGTHS[some] - np.log(-np.log(rng.random(len(some))))
            best = int(some[np.argmax(luck)])
            wins[q, best, some[some != best]] += 1
    return wins


def listed(wins: np.ndarray) -> list[tuple[int, int]]:
    pairs = itertools.product(range(len(wins)), repeat=2)
    return [pair for pair in pairs for _ in range(int(wins[pair]))]


def seconds(work: Callable[[], object], repeat: int) -> float:
    start = time.process_time()
    for _ in range(repeat):
        work()
    return (time.process_time() - start) / repeat


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=40, help="rounds a query")
    parser.add_argument("--draws", type=int, default=1_000)
    options = parser.parse_args()
    wins = simulated(options.queries, options.rounds, seed=0)
    data = listed(wins.sum(axis=0))
    table = wins.sum(axis=0)
    alpha = 1 / (2 * PRIOR_SD**2)
    n = len(STRENGTHS)
    ours = seconds(lambda: rank(wins, rng=np.random.default_rng(1), draws=options.draws), repeat=3)
    print(f"{options.queries} queries, {len(data):,} comparisons, {options.draws:,} draws")
    print(f"ragassay, all draws: {ours:.3f} s")
    refits: dict[str, tuple[Callable[[], np.ndarray], int]] = {
        "choix.opt_pairwise": (lambda: choix.opt_pairwise(n, data, alpha=alpha, tol=1e-10), 1),
        "choix.ilsr_pairwise": (lambda: choix.ilsr_pairwise(n, data), 10),
        "choix.ilsr_pairwise_dense": (lambda: choix.ilsr_pairwise_dense(table), 100),
    }
    for name, (refit, repeat) in refits.items():
        total = seconds(refit, repeat) * options.draws
        print(f"{name}, one refit a draw: {total:,.1f} s, {total / ours:,.0f} times as long")
    theirs = choix.opt_pairwise(n, data, alpha=alpha, tol=1e-12)
    print(f"largest difference to choix: {np.abs(theirs - fit(wins.sum(axis=0))).max():.1e}")


if __name__ == "__main__":
    main()
