"""From costs to thresholds to actions: pass, escalate or block a passage.

Source: "Ranking is not judgment" (S1), decision layer: block iff p >= 1 / (1 + rho), with prior
odds multiplied by a trust factor kappa that is clipped to [0.25, 20].

Deviations: the paper gives no rule for escalation. Ours takes the cheapest of three expected
costs, in units of a false block: passing rho kappa p, blocking 1 - p, escalating c_A (the
adjudicator is taken to be right). Ties go to BLOCK, then ESCALATE, then PASS; costs that differ
by less than 1e-12 are equal. Harm is summed over the candidates of a query and is in the same
units; its normalization is ours. Where the band of escalation is not empty, blocking starts at
1 - c_A and not at tau.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragassay.stats.proportions import Proportion, proportion

Action = Literal["PASS", "ESCALATE", "BLOCK"]
ACTIONS: tuple[Action, ...] = ("PASS", "ESCALATE", "BLOCK")
KAPPA_CLIP = (0.25, 20.0)
TIE = 1e-12
"""Costs and probabilities that differ by less are equal."""
UNFALSIFIABLE = "operating-point claim unfalsifiable"
"""What is to be printed where no candidate lies where the trust factor could change its action."""


def tau_d(rho: float) -> float:
    """The probability from which a passage is blocked, 1 / (1 + rho).

    Parameters
    ----------
    rho : float
        Cost of a miss over cost of a false block, above 0.

    Raises
    ------
    ValueError
        ``rho`` is not a positive finite number.

    Examples
    --------
    >>> tau_d(9)
    0.1
    """
    _positive("rho", rho)
    return 1 / (1 + rho)


def clip_kappa(kappa: float, clip: tuple[float, float] = KAPPA_CLIP) -> float:
    """Bring a trust factor into its range; above 1 is less trusted.

    Raises
    ------
    ValueError
        The factor or a bound is not a positive finite number, or the bounds are swapped.
    """
    for name, value in (("kappa", kappa), ("clip", clip[0]), ("clip", clip[1])):
        _positive(name, value)
    if clip[0] > clip[1]:
        raise ValueError(f"need clip[0] <= clip[1], got {clip}")
    return min(max(kappa, clip[0]), clip[1])


def tau_ds(rho: float, kappa: float, *, clip: tuple[float, float] = KAPPA_CLIP) -> float:
    """The threshold for a source with trust factor ``kappa``, 1 / (1 + rho kappa).

    Raises
    ------
    ValueError
        An argument is not a positive finite number.

    Examples
    --------
    >>> tau_ds(1, 0.01) == tau_ds(1, 0.25) == 0.8
    True
    """
    _positive("rho", rho)
    return 1 / (1 + rho * clip_kappa(kappa, clip))


@dataclass(frozen=True, slots=True)
class Costs:
    """What errors cost, in units of a false block.

    ``rho`` is a miss, ``c_a`` an adjudication. With ``c_a`` None nothing is escalated: the
    two-action rule, which is the paper's.
    """

    rho: float
    c_a: float | None = None

    def __post_init__(self) -> None:
        _positive("rho", self.rho)
        if self.c_a is not None and not (np.isfinite(self.c_a) and self.c_a >= 0):
            raise ValueError(f"need a finite c_a >= 0, got {self.c_a}")


def escalation_band(costs: Costs, kappa: float = 1.0) -> tuple[float, float] | None:
    """Between which probabilities escalating is cheapest; None where it never is.

    The band (c_A / (rho kappa), 1 - c_A) is open below ``1 - c_A``, where BLOCK wins the tie.

    Examples
    --------
    >>> escalation_band(Costs(9, 0.95)) is None
    True
    """
    if costs.c_a is None:
        return None
    weight = costs.rho * kappa
    low, high = costs.c_a / weight, 1 - costs.c_a
    return (low, high) if high - low > TIE else None


def actions(p: ArrayLike, costs: Costs, *, kappa: ArrayLike = 1.0) -> NDArray[np.str_]:
    """Choose the cheapest action for each probability of being poison.

    Parameters
    ----------
    p : array_like, shape (m,)
        Calibrated probabilities.
    costs : Costs
        Two or three actions, by whether ``c_a`` is there.
    kappa : array_like, shape () or (m,)
        Trust factor of each passage's source; clipped to [0.25, 20].

    Returns
    -------
    array of str, shape (m,)
        "PASS", "ESCALATE" or "BLOCK".

    Raises
    ------
    ValueError
        A probability is outside [0, 1] or NaN, or a factor is not positive.

    Examples
    --------
    >>> actions([0.02, 0.5, 0.8], Costs(9, 0.3)).tolist()
    ['PASS', 'ESCALATE', 'BLOCK']
    """
    prob = probabilities(p)
    trust = np.broadcast_to(np.asarray(kappa, dtype=np.float64), prob.shape)
    if not (np.isfinite(trust) & (trust > 0)).all():
        raise ValueError("need trust factors that are positive and finite")
    passing = costs.rho * np.clip(trust, *KAPPA_CLIP) * prob
    blocking = 1 - prob
    found = np.full(prob.shape, "PASS", dtype="<U8")
    if costs.c_a is not None:
        found[costs.c_a <= passing + TIE] = "ESCALATE"
        block = (blocking <= passing + TIE) & (blocking <= costs.c_a + TIE)
    else:
        block = blocking <= passing + TIE
    found[block] = "BLOCK"
    return found


def action(p: float, costs: Costs, *, kappa: float = 1.0) -> Action:
    """Choose the cheapest action for one probability; see :func:`actions`.

    Examples
    --------
    >>> action(0.1, Costs(9))
    'BLOCK'
    """
    found: Action = actions([p], costs, kappa=kappa)[0].item()
    return found


# -------------------------------------------------------------------------- what the rules change


def share_in_band(
    p: ArrayLike, rho: float, *, clip: tuple[float, float] = KAPPA_CLIP
) -> Proportion:
    """Share of candidates whose action some trust factor in its range can change.

    They lie from 1 / (1 + clip[1] rho) up to, but not at, 1 / (1 + clip[0] rho). Where none
    does, print :data:`UNFALSIFIABLE`. The interval counts candidates as independent.

    Examples
    --------
    >>> share_in_band([0.001, 0.1, 0.9], 9).count
    1
    """
    prob = probabilities(p)
    low, high = tau_ds(rho, clip[1], clip=clip), tau_ds(rho, clip[0], clip=clip)
    inside = (prob >= low - TIE) & (prob < high - TIE)
    return proportion(int(inside.sum()), len(prob))


@dataclass(frozen=True, slots=True)
class RuleComparison:
    """For how many of ``n`` candidates two rules differ.

    The rules are the threshold one half, ``tau_d``, and ``tau_ds`` with trust.
    """

    n: int
    half_and_tau_d: int
    half_and_tau_ds: int
    tau_d_and_tau_ds: int

    @property
    def identical(self) -> bool | None:
        """Whether all three rules take the same actions; None without a candidate."""
        if not self.n:
            return None
        return not (self.half_and_tau_d or self.half_and_tau_ds or self.tau_d_and_tau_ds)


def compare_rules(p: ArrayLike, rho: float, kappa: ArrayLike = 1.0) -> RuleComparison:
    """Count the candidates for which the three two-action rules differ.

    Parameters
    ----------
    p : array_like, shape (m,)
        Calibrated probabilities of being poison.
    rho : float
        Cost of a miss over cost of a false block.
    kappa : array_like, shape () or (m,)
        Trust factor of each candidate's source.

    References
    ----------
    "Ranking is not judgment": 12 of 26 cells have the same actions under all three.

    Examples
    --------
    >>> compare_rules([0.2, 0.9], 9).identical, compare_rules([0.001, 0.9], 9).identical
    (False, True)
    """
    half = actions(p, Costs(1.0))
    by_cost = actions(p, Costs(rho))
    by_trust = actions(p, Costs(rho), kappa=kappa)
    return RuleComparison(
        n=len(half),
        half_and_tau_d=int((half != by_cost).sum()),
        half_and_tau_ds=int((half != by_trust).sum()),
        tau_d_and_tau_ds=int((by_cost != by_trust).sum()),
    )


# --------------------------------------------------------------------------------------- harm


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispositions:
    """How many candidates of ``queries`` queries went where."""

    queries: int
    passed_poison: int
    blocked_clean: int
    escalated: int = 0


def harm_per_thousand(counts: Dispositions, costs: Costs) -> float | None:
    """Expected cost of the errors in a thousand queries, in units of a false block.

    Returns
    -------
    float or None
        None without a query.

    Raises
    ------
    ValueError
        A count is negative, or something was escalated at no stated cost.

    Examples
    --------
    >>> counts = Dispositions(queries=40, passed_poison=12, blocked_clean=8, escalated=20)
    >>> harm_per_thousand(counts, Costs(9, 0.3))
    3050.0
    """
    parts = (counts.queries, counts.passed_poison, counts.blocked_clean, counts.escalated)
    if min(parts) < 0:
        raise ValueError(f"need counts >= 0, got {counts}")
    if counts.escalated and costs.c_a is None:
        raise ValueError(f"{counts.escalated} candidates were escalated, but c_a is not given")
    if not counts.queries:
        return None
    total = costs.rho * counts.passed_poison + counts.blocked_clean
    total += (costs.c_a or 0.0) * counts.escalated
    return 1000 * total / counts.queries


def relative_change(before: float | None, after: float | None) -> float | None:
    """(after - before) / before; None where either is missing or before is 0.

    Examples
    --------
    >>> relative_change(1600, 900)
    -0.4375
    """
    if before is None or after is None or before == 0:
        return None
    return (after - before) / before


# ------------------------------------------------------------------- probabilities, kept small


@dataclass(frozen=True, slots=True)
class ProbabilityBin:
    """Candidates with (nearly) one probability: their mean ``p``, and how many of each kind."""

    p: float
    clean: int
    poison: int


def bin_probabilities(
    p: ArrayLike, poison: Sequence[bool] | NDArray[np.bool_], *, limit: int = 256
) -> tuple[ProbabilityBin, ...]:
    """Count clean and poison candidates by probability, so that thresholds can be recomputed.

    Parameters
    ----------
    p : array_like, shape (m,)
        Calibrated probabilities.
    poison : sequence of bool, length m
        Which candidates are poison.
    limit : int
        Largest number of bins. Up to as many distinct probabilities are kept exactly; beyond
        that they are put into ``limit`` bins of equal width, and a bin acts at its mean.

    Returns
    -------
    tuple of ProbabilityBin
        By ascending probability, without empty bins.

    Raises
    ------
    ValueError
        The lengths differ, a probability is outside [0, 1], or ``limit`` < 1.

    Examples
    --------
    >>> bin_probabilities([0.1, 0.1, 0.9], [False, True, True])
    (ProbabilityBin(p=0.1, clean=1, poison=1), ProbabilityBin(p=0.9, clean=0, poison=1))
    """
    prob, kind = probabilities(p), np.asarray(poison, dtype=np.bool_)
    if kind.shape != prob.shape or limit < 1:
        raise ValueError(f"need a kind for each of {len(prob)} candidates and limit >= 1")
    values, index = np.unique(prob, return_inverse=True)
    if len(values) > limit:
        index = np.minimum((prob * limit).astype(np.int64), limit - 1)
    sizes = np.bincount(index)
    sums, hits = np.bincount(index, weights=prob), np.bincount(index, weights=kind)
    return tuple(
        ProbabilityBin(
            p=float(values[i]) if len(values) <= limit else float(sums[i] / sizes[i]),
            clean=int(sizes[i] - hits[i]),
            poison=int(hits[i]),
        )
        for i in range(len(sizes))
        if sizes[i]
    )


def probabilities(p: ArrayLike) -> NDArray[np.float64]:
    """Return probabilities as an array of shape (m,).

    Raises
    ------
    ValueError
        They are not in one dimension, or one is outside [0, 1] or NaN.
    """
    prob = np.asarray(p, dtype=np.float64)
    if prob.ndim != 1 or not ((prob >= 0) & (prob <= 1)).all():
        raise ValueError("need probabilities in [0, 1], in one dimension")
    return prob


def _positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"need a positive finite {name}, got {value}")
