"""What tampering does by dose: fooled, adopted and abstained, delivery, contrasts, noise.

Source: "In RAG We Trust?" (Fasolino, 2026), sections III-C, IV and V: the fooled rate on the
clean-correct base, outcomes by the dose actually applied with an internal control at zero,
requested against applied, rule contrasts paired by question, decoding noise. Intervals
resample distinct question texts.

Deviations: the paper prints no clean-correct denominators; here each rate carries its own. A
rate's resamples draw from the questions that have a run in its base, so that no resample is
empty. Contrasts of several rules use one common set of questions, on which they add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import fisher_exact

from ragassay.stats.intervals import Interval, cluster_bootstrap
from ragassay.stats.paired import Labels, McNemar, mcnemar_exact
from ragassay.stats.proportions import Proportion, proportion

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Resampling:
    """How intervals are drawn: number of resamples, two-sided level, and the generator."""

    rng: np.random.Generator
    draws: int = 10_000
    confidence: float = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Tampered runs, one row each; row i pairs a clean answer with a corrupted one.

    Attributes
    ----------
    requested, applied : array of int, shape (n,)
        Passages that were to be tampered with, and that differ from before.
    clean_correct, correct : array of bool, shape (n,)
        Correctness of the clean and of the corrupted answer.
    adopted, abstained : array of bool, shape (n,)
        Whether the corrupted answer adopts an edit, and whether it abstains.
    groups : sequence, length n
        Distinct question text of row i, the unit of resampling.

    Raises
    ------
    ValueError
        The shapes or dtypes are wrong, or an applied dose is negative or above the requested.
    """

    requested: Counts
    applied: Counts
    clean_correct: Labels
    correct: Labels
    adopted: Labels
    abstained: Labels
    groups: Sequence[Any]

    def __post_init__(self) -> None:
        size = len(self.groups)
        for name in ("requested", "applied"):
            found = getattr(self, name)
            if found.shape != (size,) or found.dtype.kind not in "iu":
                raise ValueError(f"{name} must be an array of {size} integers")
        for name in ("clean_correct", "correct", "adopted", "abstained"):
            found = getattr(self, name)
            if found.shape != (size,) or found.dtype != np.bool_:
                raise ValueError(f"{name} must be an array of {size} bools: drop what is unscored")
        if size and not ((self.applied >= 0) & (self.applied <= self.requested)).all():
            raise ValueError("need 0 <= applied <= requested in every run")

    def __len__(self) -> int:
        return len(self.groups)

    def where(self, mask: Labels) -> Runs:
        """Return the rows where a mask holds."""
        kept = [group for group, keep in zip(self.groups, mask, strict=True) if keep]
        arrays = {f.name: getattr(self, f.name)[mask] for f in fields(self) if f.name != "groups"}
        return Runs(**arrays, groups=kept)

    @property
    def fooled(self) -> Labels:
        """Clean-correct and corrupted-incorrect; its base are the clean-correct rows."""
        return self.clean_correct & ~self.correct


@dataclass(frozen=True, slots=True)
class Rate:
    """``count`` of ``n`` runs on ``groups`` distinct questions, with a cluster interval.

    ``interval`` is None below two questions. ``value`` is None where n is 0.
    """

    count: int
    n: int
    groups: int
    interval: Interval | None

    @property
    def value(self) -> float | None:
        """The rate, a fraction."""
        return self.count / self.n if self.n else None


def rate(outcome: Labels, groups: Sequence[Any], how: Resampling) -> Rate:
    """Bound the rate of an outcome by resampling questions.

    Parameters
    ----------
    outcome : array of bool, shape (n,)
        One per run of the base.
    groups : sequence, length n
        Question text of each run.
    how : Resampling
        Draws, level and generator.

    Examples
    --------
    >>> how = Resampling(np.random.default_rng(1))
    >>> rate(np.array([True, False]), ["a", "a"], how)
    Rate(count=1, n=2, groups=1, interval=None)
    """
    interval = None
    if len(groups):
        (interval,) = cluster_bootstrap(
            outcome.astype(np.float64), groups, draws=how.draws, confidence=how.confidence,
            rng=how.rng,
        )  # fmt: skip
    return Rate(int(outcome.sum()), len(outcome), len(set(groups)), interval)


def fooled_rate(runs: Runs, how: Resampling) -> Rate:
    """Return the share of clean-correct runs whose corrupted answer is not correct.

    Examples
    --------
    >>> yes, no = np.ones(4, bool), np.zeros(4, bool)
    >>> dose = np.array([1, 1, 2, 2])
    >>> runs = Runs(dose, dose, np.array([True, True, True, False]), no, no, yes, list("abcd"))
    >>> found = fooled_rate(runs, Resampling(np.random.default_rng(1)))
    >>> found.count, found.n
    (3, 3)
    """
    base = runs.where(runs.clean_correct)
    return rate(base.fooled, base.groups, how)


# ---------------------------------------------------------------------------------- by dose


@dataclass(frozen=True, slots=True)
class Resolved:
    """The outcomes of clean-correct runs, each in one place; they add up to the base."""

    correct: int
    abstained: int
    wrong: int


@dataclass(frozen=True, slots=True)
class DosePoint:
    """Everything at one applied dose. At dose 0 it is the internal control.

    ``fooled`` is over the clean-correct runs, ``adopted`` and ``abstained`` over all n.
    ``adopted_and_abstained`` counts answers that quote an edit and decline all the same.
    """

    dose: int
    n: int
    fooled: Rate
    adopted: Rate
    abstained: Rate
    adopted_and_abstained: int
    resolved: Resolved


def dose_response(runs: Runs, how: Resampling) -> tuple[DosePoint, ...]:
    """Return the outcomes at each applied dose, ascending.

    The rows at dose 0 of a grid that requested more are selected: their passages had nothing
    to edit. They control for adoption, and do not replace the clean arm.

    References
    ----------
    "In RAG We Trust?", table II.
    """
    points = []
    for dose in np.unique(runs.applied):
        here = runs.where(runs.applied == dose)
        base = here.where(here.clean_correct)
        points.append(
            DosePoint(
                dose=int(dose),
                n=len(here),
                fooled=rate(base.fooled, base.groups, how),
                adopted=rate(here.adopted, here.groups, how),
                abstained=rate(here.abstained, here.groups, how),
                adopted_and_abstained=int((here.adopted & here.abstained).sum()),
                resolved=Resolved(
                    correct=int((base.correct & ~base.abstained).sum()),
                    abstained=int(base.abstained.sum()),
                    wrong=int((~base.correct & ~base.abstained).sum()),
                ),
            )
        )
    return tuple(points)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The applied dose for one requested dose: its mean, and how often it is exact."""

    requested: int
    n: int
    mean: float
    interval: Interval | None
    exact: Proportion


def delivery(runs: Runs, how: Resampling) -> tuple[Delivery, ...]:
    """Compare the requested with the applied dose, per requested dose, ascending.

    References
    ----------
    "In RAG We Trust?", table I.

    Examples
    --------
    >>> no = np.zeros(4, bool)
    >>> runs = Runs(np.full(4, 2), np.array([2, 2, 1, 0]), no, no, no, no, list("aabb"))
    >>> [found] = delivery(runs, Resampling(np.random.default_rng(1)))
    >>> found.mean, found.exact.count, found.exact.n
    (1.25, 2, 4)
    """
    found = []
    for dose in np.unique(runs.requested):
        here = runs.where(runs.requested == dose)
        (interval,) = cluster_bootstrap(
            here.applied.astype(np.float64), here.groups, draws=how.draws,
            confidence=how.confidence, rng=how.rng,
        )  # fmt: skip
        exact = proportion(int((here.applied == dose).sum()), len(here), confidence=how.confidence)
        mean = float(here.applied.mean())
        found.append(Delivery(int(dose), len(here), mean, interval, exact))
    return tuple(found)


# --------------------------------------------------------------------------------- contrasts


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean over common questions of the rate of ``first`` minus that of ``second``.

    A fraction; None where the rules share no question. ``interval`` is None below two.
    """

    first: str
    second: str
    questions: int
    value: float | None
    interval: Interval | None


def contrasts(
    rules: Sequence[str], runs: Runs, how: Resampling, *, common: bool = True
) -> tuple[Difference, ...]:
    """Compare the fooled rates of rules, paired by question.

    A question counts with the mean over its clean-correct runs under each rule.

    Parameters
    ----------
    rules : sequence of str, length n
        The rule of each run.
    runs : Runs
        Give the runs at one applied dose to compare rules at equal delivered corruption.
    how : Resampling
        Draws, level and generator.
    common : bool
        Compare all pairs on the questions that every rule has, so that differences add up
        (a - b plus b - c is a - c); otherwise each pair on its own common questions.

    Returns
    -------
    tuple of Difference
        One per pair, in order of first appearance of the rules.

    References
    ----------
    "In RAG We Trust?", table III.
    """
    if len(rules) != len(runs):
        raise ValueError(f"need one rule per run, got {len(rules)} for {len(runs)} runs")
    means = _means(rules, runs)
    shared = _shared(list(means.values()))
    found = []
    for first, second in combinations(means, 2):
        asked = shared if common else _shared([means[first], means[second]])
        values = np.array([means[first][q] - means[second][q] for q in asked])
        interval = None
        if asked:
            (interval,) = cluster_bootstrap(
                values, asked, draws=how.draws, confidence=how.confidence, rng=how.rng
            )
        value = float(values.mean()) if asked else None
        found.append(Difference(first, second, len(asked), value, interval))
    return tuple(found)


def _means(rules: Sequence[str], runs: Runs) -> dict[str, dict[Any, float]]:
    """Return the fooled rate by rule and question, of the clean-correct runs."""
    counts: dict[str, dict[Any, list[int]]] = {rule: {} for rule in rules}
    for rule, group, base, fooled in zip(
        rules, runs.groups, runs.clean_correct, runs.fooled, strict=True
    ):
        if base:
            cell = counts[rule].setdefault(group, [0, 0])
            cell[0] += int(fooled)
            cell[1] += 1
    return {
        rule: {group: hits / size for group, (hits, size) in of.items()}
        for rule, of in counts.items()
    }


def _shared(each: Sequence[dict[Any, float]]) -> list[Any]:
    if not each:
        return []
    return sorted(set.intersection(*(set(of) for of in each)))


# -------------------------------------------------------------------------------------- noise


@dataclass(frozen=True, slots=True)
class DecodingNoise:
    """Two generations of one prompt: how often they agree, and whether they differ one way.

    ``agree`` counts equal texts; ``agree_first`` and ``agree_second`` the same where the
    first, and where the second arm was generated first. ``symmetry`` tests correctness for a
    direction (gained: correct in the second only); ``order_p`` whether the order matters for
    agreement (None where all runs have one order).
    """

    n: int
    agree: Proportion
    agree_first: Proportion
    agree_second: Proportion
    symmetry: McNemar
    order_p: float | None


def decoding_noise(
    equal: Labels, correct: Labels, again: Labels, first_came_first: Labels,
    *, confidence: float = 0.95,
) -> DecodingNoise:  # fmt: skip
    """Measure what differs between two generations of byte-identical prompts.

    Parameters
    ----------
    equal : array of bool, shape (n,)
        Whether the two answers are equal, character by character.
    correct, again : array of bool, shape (n,)
        Correctness of the first and of the second arm.
    first_came_first : array of bool, shape (n,)
        Whether the first arm was generated first.
    confidence : float
        Of the Wilson intervals.

    Raises
    ------
    ValueError
        The shapes differ, or equal answers have unequal labels.

    References
    ----------
    "In RAG We Trust?", section V-B.
    """
    if not equal.shape == correct.shape == again.shape == first_came_first.shape:
        raise ValueError("need four arrays of one shape (n,)")
    if (equal & (correct != again)).any():
        raise ValueError("equal answers have unequal labels: score them by one rule")

    def agreement(mask: Labels) -> Proportion:
        return proportion(int((equal & mask).sum()), int(mask.sum()), confidence=confidence)

    one, two = agreement(first_came_first), agreement(~first_came_first)
    order_p = None
    if one.n and two.n:
        table = [[one.count, one.n - one.count], [two.count, two.n - two.count]]
        order_p = float(fisher_exact(table).pvalue)
    every = agreement(np.ones(equal.shape, dtype=np.bool_))
    return DecodingNoise(len(equal), every, one, two, mcnemar_exact(correct, again), order_p)
