"""Strengths updated round by round, and when their order counts as settled.

Source: "Uncovering Competing Poisoning Attacks in Retrieval-Augmented Generation"
(PoisonArena), equations 4 to 7.

Deviations: rule "batch" uses the correct gradient at the strengths of the start of the round;
"printed" follows equation 5 as printed, whose strengths drift away from sum 0; "sequential" is
the released code, which updates pair by pair in place, so that the order of the winners and
losers matters (by about 1e-5 at the learning rate 0.01). A stable order does not mean stable
strengths: :func:`slope` tells whether they still move.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ragassay.stats.ranking import Floats, round_gradient

OnlineRule = Literal["batch", "printed", "sequential"]

LEARNING_RATE = 0.01
SLOPE_ROUNDS = 100


def online_update(
    theta: ArrayLike,
    winners: Sequence[int],
    losers: Sequence[int],
    *,
    rate: float = LEARNING_RATE,
    rule: OnlineRule = "batch",
) -> Floats:
    """Return the strengths after one round.

    Parameters
    ----------
    theta : array, shape (n,)
        Strengths at its start.
    winners, losers : sequence of int
        Places in ``theta``. Without winners, or without losers, nothing changes.
    rate : float
        Learning rate.
    rule : {"batch", "printed", "sequential"}
        See the module.

    Examples
    --------
    >>> online_update([0.0, 0.0], [0], [1]).tolist()
    [0.005, -0.005]
    """
    strengths = np.array(theta, dtype=np.float64)
    if rule == "sequential":
        for winner in winners:
            for loser in losers:
                strengths += rate * round_gradient(strengths, [winner], [loser])
        return strengths
    gradient = round_gradient(
        strengths, winners, losers, rule="correct" if rule == "batch" else "printed"
    )
    moved: Floats = strengths + rate * gradient
    return moved


def online_path(
    n: int,
    rounds: Iterable[tuple[Sequence[int], Sequence[int]]],
    *,
    rate: float = LEARNING_RATE,
    rule: OnlineRule = "batch",
) -> Floats:
    """Return the strengths after each round, starting from zeros.

    Returns
    -------
    array, shape (rounds, n)
    """
    theta = np.zeros(n)
    path = []
    for winners, losers in rounds:
        theta = online_update(theta, winners, losers, rate=rate, rule=rule)
        path.append(theta)
    return np.array(path).reshape(len(path), n)


def slope(path: ArrayLike, *, last: int = SLOPE_ROUNDS) -> Floats | None:
    """Change of each strength per round over the last rounds, by least squares.

    Returns
    -------
    array, shape (n,), or None
        None where there are fewer than two rounds.
    """
    tail = np.asarray(path, dtype=np.float64)[-last:]
    if len(tail) < 2:
        return None
    at = np.arange(len(tail)) - (len(tail) - 1) / 2
    change: Floats = at @ tail / (at @ at)
    return change


def stable_rounds(rank_history: Sequence[Sequence[int]]) -> int:
    """Count for how many rounds, the current one included, the ranks have not changed.

    Examples
    --------
    >>> stable_rounds([[1, 2], [2, 1], [2, 1]])
    2
    """
    if not len(rank_history):
        return 0
    now = list(rank_history[-1])
    count = 0
    for before in reversed(rank_history):
        if list(before) != now:
            break
        count += 1
    return count


def converged(rank_history: Sequence[Sequence[int]], r: int) -> bool:
    """Tell whether the ranks are the same in the last r rounds, the current one included.

    Source: PoisonArena, equation 7, which leaves r open.

    Raises
    ------
    ValueError
        ``r`` is below 1.
    """
    if r < 1:
        raise ValueError(f"need r >= 1, got {r}")
    return stable_rounds(rank_history) >= r
