"""Bradley-Terry strengths of competitors: likelihood, gradients, and the penalized estimate.

Source: Bradley and Terry (1952), Biometrika 39(3/4); the round likelihood of "Uncovering
Competing Poisoning Attacks in Retrieval-Augmented Generation" (PoisonArena), equations 1 to 3:
every winner of a round beats every loser of it. Caron and Doucet (2012), JCGS 21(1), for the
penalty as a prior.

Deviations: the paper's equation 5 prints the winner's exponential in the gradient of a loser.
The derivative of log(e^a / (e^a + e^b)) with respect to b is -e^b / (e^a + e^b), so the loser's
own exponential belongs there; ``rule="printed"`` gives the printed form for comparison. The
headline is the maximum of the likelihood over all rounds with a normal prior of standard
deviation 3 on each strength, instead of an online estimate that depends on the learning rate
and on where it stops. Strengths sum to 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit

from ragassay.errors import NotEstimable

Floats = NDArray[np.float64]
GradientRule = Literal["correct", "printed"]

PRIOR_SD = 3.0
_MAX_STEPS = 200
_STEP_TOLERANCE = 1e-11
_MAX_HALVINGS = 30


def win_probability(theta_i: ArrayLike, theta_j: ArrayLike) -> Floats:
    """Probability that i outperforms j, ``1 / (1 + exp(theta_j - theta_i))``.

    Examples
    --------
    >>> round(float(win_probability(1.0, 0.0)), 6)
    0.731059
    """
    probability: Floats = expit(np.subtract(theta_i, theta_j, dtype=np.float64))
    return probability


def round_log_likelihood(theta: ArrayLike, winners: Sequence[int], losers: Sequence[int]) -> float:
    """Log-likelihood of one round: the sum of log P(winner beats loser) over all such pairs.

    Parameters
    ----------
    theta : array, shape (n,)
        Strengths.
    winners, losers : sequence of int
        Places in ``theta``; none in both. A round without winners or losers says nothing: 0.
    """
    strengths, won, lost = _round(theta, winners, losers)
    return float(log_expit(strengths[won][:, None] - strengths[lost][None, :]).sum())


def round_gradient(
    theta: ArrayLike,
    winners: Sequence[int],
    losers: Sequence[int],
    *,
    rule: GradientRule = "correct",
) -> Floats:
    """Gradient of the log-likelihood of one round.

    Parameters
    ----------
    theta : array, shape (n,)
        Strengths at the start of the round.
    winners, losers : sequence of int
        Places in ``theta``; none in both.
    rule : {"correct", "printed"}
        "printed" follows the paper's equation 5, which is wrong for losers: the result does
        not sum to 0 and is no gradient of anything.

    Returns
    -------
    array, shape (n,)
        All zeros where nobody won or nobody lost.

    Examples
    --------
    >>> round_gradient([1.0, 0.0], [0], [1]).round(4).tolist()
    [0.2689, -0.2689]
    >>> round_gradient([1.0, 0.0], [0], [1], rule="printed").round(4).tolist()
    [0.2689, -0.7311]
    """
    strengths, won, lost = _round(theta, winners, losers)
    surprise = expit(strengths[lost][None, :] - strengths[won][:, None])  # P(loser beats winner)
    gradient = np.zeros_like(strengths)
    gradient[won] = surprise.sum(axis=1)
    gradient[lost] = -(surprise if rule == "correct" else 1 - surprise).sum(axis=0)
    return gradient


def count_wins(
    n: int,
    rounds: Iterable[tuple[Sequence[int], Sequence[int]]],
    weights: Iterable[float] | None = None,
) -> Floats:
    """Count how often each competitor beat each other.

    Parameters
    ----------
    n : int
        Number of competitors.
    rounds : iterable of (winners, losers)
        Places from 0 to n - 1. Several winners do not beat each other.
    weights : iterable of float, optional
        How much each round counts; 1 where absent.

    Returns
    -------
    array, shape (n, n)
        Entry ``[i, j]``: rounds in which i won and j lost.

    Raises
    ------
    ValueError
        A place is out of range or on both sides, or the numbers of rounds and weights differ.
    """
    wins = np.zeros((n, n))
    start = np.zeros(n)
    pairs = ((r, 1.0) for r in rounds) if weights is None else zip(rounds, weights, strict=True)
    for (winners, losers), weight in pairs:
        _, won, lost = _round(start, winners, losers)
        wins[np.ix_(won, lost)] += weight
    return wins


def components(wins: ArrayLike) -> list[tuple[int, ...]]:
    """Split competitors into groups between which nobody ever beat anybody.

    Strengths can be compared within a group only. Sorted by their smallest member.

    Examples
    --------
    >>> components([[0, 1, 0], [0, 0, 0], [0, 0, 0]])
    [(0, 1), (2,)]
    """
    met = _wins(wins)
    reach = _reachable(met + met.T > 0)
    return sorted({tuple(int(j) for j in np.flatnonzero(row)) for row in reach})


def dominance_classes(wins: ArrayLike) -> list[tuple[int, ...]]:
    """Split competitors into strongly connected classes of the relation "has beaten".

    With a single class the likelihood has a finite maximum. With several, some competitors
    only ever won against others, and only the penalty keeps their distance finite.
    Sorted by their smallest member.
    """
    reach = _reachable(_wins(wins) > 0)
    both = reach & reach.T
    return sorted({tuple(int(j) for j in np.flatnonzero(row)) for row in both})


def fit(wins: ArrayLike, *, prior_sd: float | None = PRIOR_SD) -> Floats:
    """Estimate strengths by penalized maximum likelihood, with sum 0.

    Maximizes ``sum_ij wins[i, j] log P(i beats j) - sum_i theta_i^2 / (2 prior_sd^2)``, which
    is concave, by Newton's method with step halving.

    Parameters
    ----------
    wins : array, shape (n, n)
        Entry ``[i, j]``: (weighted) number of times that i beat j; see :func:`count_wins`.
    prior_sd : float or None
        Standard deviation of the normal prior; None for plain maximum likelihood.

    Returns
    -------
    array, shape (n,)
        Strengths in natural-log odds.

    Raises
    ------
    NotEstimable
        The comparisons do not connect all competitors; or, without a prior, somebody was
        never beaten by the others (the maximum lies at infinity).
    ValueError
        ``wins`` is not a square array of finite numbers from 0, or ``prior_sd`` is not above 0.

    Examples
    --------
    >>> fit([[0, 3], [1, 0]], prior_sd=None).round(6).tolist()  # log(3) / 2 and its negative
    [0.549306, -0.549306]
    """
    table = _wins(wins)
    precision = prior_precision(prior_sd)
    groups = components(table)
    if len(groups) > 1:
        raise NotEstimable(
            f"comparisons do not connect all competitors: the groups {_shown(groups)} never met "
            "in a decided round, so their strengths cannot be compared"
        )
    classes = dominance_classes(table)
    if not precision and len(classes) > 1:
        raise NotEstimable(
            f"without a prior the strengths are infinite: between the classes {_shown(classes)} "
            "one side won every decided round; give prior_sd"
        )
    strengths: Floats = solve(table[None], precision, np.zeros((1, len(table))))[0]
    return strengths


def solve(wins: Floats, precision: float, start: Floats) -> Floats:
    """Maximize many penalized likelihoods at once; see :func:`fit`, which checks its input.

    Parameters
    ----------
    wins : array, shape (b, n, n)
        One table of wins per problem.
    precision : float
        Of the prior, ``1 / prior_sd^2``; 0 for none.
    start : array, shape (b, n)
        Where to start; rows sum to 0.

    Returns
    -------
    array, shape (b, n)

    Raises
    ------
    NotEstimable
        A problem did not converge.
    """
    theta = np.array(start, dtype=np.float64)
    active = np.arange(len(theta))
    for _ in range(_MAX_STEPS):
        step = _newton_step(wins[active], precision, theta[active])
        step = _halved(wins[active], precision, theta[active], step)
        theta[active] += step
        active = active[np.abs(step).max(axis=1, initial=0.0) > _STEP_TOLERANCE]
        if not len(active):
            centered: Floats = theta - theta.mean(axis=1, keepdims=True)
            return centered
    raise NotEstimable(f"strengths did not converge in {_MAX_STEPS} steps")


def prior_precision(prior_sd: float | None) -> float:
    """Precision of the prior; 0 for none.

    Raises
    ------
    ValueError
        ``prior_sd`` is not a number above 0.
    """
    if prior_sd is None:
        return 0.0
    if not (np.isfinite(prior_sd) and prior_sd > 0):
        raise ValueError(f"need prior_sd > 0 or None, got {prior_sd}")
    return float(prior_sd) ** -2


def ranks(theta: ArrayLike) -> NDArray[np.int64]:
    """Rank of each competitor from 1, the strongest; ties go to the one that is named first.

    Works on the last axis.

    Examples
    --------
    >>> ranks([0.0, 2.0, 0.0]).tolist()
    [2, 1, 3]
    """
    order = np.argsort(-np.asarray(theta, dtype=np.float64), axis=-1, kind="stable")
    return np.argsort(order, axis=-1, kind="stable") + 1


# --------------------------------------------------------------------------------- internals


def _round(
    theta: ArrayLike, winners: Sequence[int], losers: Sequence[int]
) -> tuple[Floats, NDArray[np.intp], NDArray[np.intp]]:
    strengths = np.asarray(theta, dtype=np.float64)
    won, lost = np.asarray(winners, dtype=np.intp), np.asarray(losers, dtype=np.intp)
    both = np.concatenate([won, lost])
    if len(both) and (both.min() < 0 or both.max() >= len(strengths)):
        raise ValueError(f"need places from 0 to {len(strengths) - 1}, got {both.tolist()}")
    if len(np.unique(both)) != len(both):
        raise ValueError(f"a competitor stands twice in a round: {both.tolist()}")
    return strengths, won, lost


def _wins(wins: ArrayLike) -> Floats:
    table = np.asarray(wins, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not len(table):
        raise ValueError(f"need wins of shape (n, n) with n > 0, got {table.shape}")
    if not np.isfinite(table).all() or (table < 0).any():
        raise ValueError("wins must be finite and not below 0")
    if np.diagonal(table).any():
        raise ValueError("nobody wins against themselves: the diagonal of wins must be 0")
    return table


def _reachable(edges: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Reflexive transitive closure on the last two axes, by repeated squaring."""
    reach = edges | np.eye(edges.shape[-1], dtype=bool)
    for _ in range(max(1, (edges.shape[-1] - 1).bit_length())):
        reach = np.matmul(reach.astype(np.float32), reach.astype(np.float32)) > 0
    return reach


def connected(wins: Floats) -> NDArray[np.bool_]:
    """Tell for each of many tables, shape (b, n, n), whether comparisons connect everybody."""
    met = np.asarray(wins + np.swapaxes(wins, -1, -2) > 0)
    joined: NDArray[np.bool_] = np.asarray(_reachable(met).all(axis=(-1, -2)))
    return joined


def _newton_step(wins: Floats, precision: float, theta: Floats) -> Floats:
    surprise = expit(theta[:, None, :] - theta[:, :, None])  # [b, i, j]: P(j beats i)
    pull = wins * surprise
    gradient = pull.sum(axis=2) - pull.sum(axis=1) - precision * theta
    curve = (wins + np.swapaxes(wins, 1, 2)) * surprise * (1 - surprise)
    n = theta.shape[1]
    hessian = -curve
    diagonal = np.arange(n)
    total = curve.sum(axis=2)
    hessian[:, diagonal, diagonal] += total + precision
    # The likelihood does not change along (1, ..., 1). Curvature put there keeps the matrix
    # regular and moves nothing, because the gradient has no part in that direction.
    hessian += (total.mean(axis=1) / n + 1e-12)[:, None, None]
    step: Floats = np.linalg.solve(hessian, gradient[..., None])[..., 0]
    return step


def _halved(wins: Floats, precision: float, theta: Floats, step: Floats) -> Floats:
    """Shorten the steps that would lower the objective."""
    before = _objective(wins, precision, theta)
    slack = 1e-12 * (1 + np.abs(before))
    for _ in range(_MAX_HALVINGS):
        worse = _objective(wins, precision, theta + step) < before - slack
        if not worse.any():
            break
        step = np.where(worse[:, None], step / 2, step)
    return step


def _objective(wins: Floats, precision: float, theta: Floats) -> Floats:
    gaps = theta[:, :, None] - theta[:, None, :]
    value: Floats = (wins * log_expit(gaps)).sum(axis=(1, 2)) - precision / 2 * (theta**2).sum(
        axis=1
    )
    return value


def _shown(groups: Sequence[Sequence[int]]) -> str:
    return " and ".join("{" + ", ".join(map(str, group)) + "}" for group in groups)
