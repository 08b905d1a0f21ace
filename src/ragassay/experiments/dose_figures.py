"""The figures of a dose run as plain values, each with its denominator and its interval.

Source: "In RAG We Trust?" (Fasolino, 2026), sections III to V. Deviations: the dose-response
model, its ED50 and the tests of monotonicity are ours; see :mod:`ragassay.stats.dose`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ragassay.canon import rng_for, to_plain
from ragassay.experiments.conditions import bounds
from ragassay.stats.dose import (
    DosePoint,
    Rate,
    Resampling,
    Runs,
    contrasts,
    decoding_noise,
    delivery,
    dose_response,
    rate,
)
from ragassay.stats.effective_dose import Model, ed50
from ragassay.stats.intervals import cluster_bootstrap
from ragassay.stats.paired import Labels, contributions, four_conditions
from ragassay.stats.proportions import Proportion
from ragassay.stats.trend import monotonicity, trend

Figure = dict[str, Any]
EFFECTS = ("P", "J", "N", "H", "Gamma")
_MODELS: tuple[Model, ...] = ("logistic", "isotonic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """How intervals are drawn; each figure gets a generator of its own."""

    seed: int
    draws: int
    confidence: float

    def of(self, *place: Any) -> Resampling:
        """Resampling for one figure; equal places give equal intervals."""
        rng = rng_for(self.seed, "dose bootstrap", *place)
        return Resampling(rng, draws=self.draws, confidence=self.confidence)


def rated(found: Rate | Proportion) -> Figure:
    """A rate as plain values."""
    plain: Figure = {"count": found.count, "n": found.n, "value": found.value}
    if isinstance(found, Rate):
        plain["groups"] = found.groups
    return {**plain, **bounds(found.interval)}


def points(runs: Runs, how: Resampling, *, adoption: bool) -> list[Figure]:
    """The outcomes at each applied dose; dose 0 is the internal control."""
    return [_point(point, adoption) for point in dose_response(runs, how)]


def _point(point: DosePoint, adoption: bool) -> Figure:
    return {
        "dose": point.dose,
        "n": point.n,
        "fooled": rated(point.fooled),
        "adopted": rated(point.adopted) if adoption else None,
        "abstained": rated(point.abstained),
        "adopted_and_abstained": point.adopted_and_abstained if adoption else None,
        "resolved": to_plain(point.resolved),
    }


def overall(runs: Runs, how: Resampling, *, adoption: bool) -> Figure:
    """The outcomes of all runs in which at least one passage differs."""
    here = runs.where(runs.applied > 0)
    base = here.where(here.clean_correct)
    return {
        "n": len(here),
        "fooled": rated(rate(base.fooled, base.groups, how)),
        "adopted": rated(rate(here.adopted, here.groups, how)) if adoption else None,
        "abstained": rated(rate(here.abstained, here.groups, how)),
    }


def modeled(runs: Runs, zero: Runs, draws: Draws, place: Sequence[Any]) -> Figure:
    """The dose at which half of the clean-correct answers fall, and whether rates rise.

    ``zero`` are runs of the zero-dose arm, which stand at dose 0.
    """
    every = joined(runs, zero)
    base = every.where(every.clean_correct)
    return {
        "ed50": [
            to_plain(
                ed50(base.applied, base.fooled, base.groups, draws.of(*place, m), model=m)
            )
            for m in _MODELS
        ],
        "fooled": _shape(base.applied, base.fooled, base.groups, draws, (*place, "fooled")),
        "adopted": _shape(every.applied, every.adopted, every.groups, draws, (*place, "adopted")),
        "abstained": _shape(
            every.applied, every.abstained, every.groups, draws, (*place, "abstained")
        ),
    }  # fmt: skip


def _shape(
    doses: Any, outcome: Labels, groups: Sequence[Any], draws: Draws, place: Sequence[Any]
) -> Figure:
    """Whether an outcome rises: a trend, and the test for a fall anywhere."""
    found = trend(doses, outcome, groups, draws.of(*place, "trend"))
    tested = monotonicity(doses, outcome, groups, draws.of(*place, "monotone"))
    shape: Figure = {"trend": to_plain(found), "monotone": None}
    if tested is not None:
        shape["monotone"] = {
            "rates": list(tested.rates),
            "rises": tested.rises,
            "distance": tested.distance,
            "p_value": tested.p_value,
            "steps": [
                {"lower": s.lower, "upper": s.upper, "value": s.value, **bounds(s.interval)}
                for s in tested.steps
            ],
        }
    return shape


def joined(one: Runs, other: Runs) -> Runs:
    """Rows of both."""
    names = ("requested", "applied", "clean_correct", "correct", "adopted", "abstained")
    arrays = {n: np.concatenate([getattr(one, n), getattr(other, n)]) for n in names}
    return Runs(**arrays, groups=[*one.groups, *other.groups])


def deliveries(runs: Runs, how: Resampling) -> list[Figure]:
    """Requested against applied dose."""
    return [
        {
            "requested": d.requested,
            "n": d.n,
            "mean": d.mean,
            **bounds(d.interval),
            "exact": rated(d.exact),
        }
        for d in delivery(runs, how)
    ]


def rule_contrasts(
    rules: Sequence[str], runs: Runs, draws: Draws, place: Sequence[Any], *, adoption: bool
) -> list[Figure]:
    """Differences of rules, paired by question: over all tampered runs and at each dose."""
    found: list[Figure] = []
    events = {"fooled": runs}
    if adoption:  # the rate of adoption over all runs, by the same pairing
        yes = np.ones(len(runs), dtype=np.bool_)
        events["adopted"] = replace(runs, clean_correct=yes, correct=~runs.adopted)
    doses = [None, *(int(dose) for dose in np.unique(runs.applied) if dose)]
    for event, of in events.items():
        for dose in doses:
            mask = of.applied > 0 if dose is None else of.applied == dose
            here = of.where(mask)
            named = [rule for rule, keep in zip(rules, mask, strict=True) if keep]
            how = draws.of(*place, event, dose)
            found += [
                {
                    "event": event,
                    "dose": dose,
                    "first": d.first,
                    "second": d.second,
                    "questions": d.questions,
                    "value": d.value,
                    **bounds(d.interval),
                }
                for d in contrasts(named, here, how)
            ]
    return found


def noise(
    texts: Sequence[tuple[str, str]], correct: Labels, again: Labels, clean_first: Labels,
    confidence: float,
) -> Figure:  # fmt: skip
    """What differs between two generations of the clean prompt.

    Equal answers with unequal labels (of people) are left out and counted.
    """
    equal = np.array([one == two for one, two in texts], dtype=np.bool_)
    usable = ~(equal & (correct != again))
    found = decoding_noise(
        equal[usable], correct[usable], again[usable], clean_first[usable], confidence=confidence
    )
    return {
        "n": found.n,
        "agree": rated(found.agree),
        "agree_clean_first": rated(found.agree_first),
        "agree_zero_first": rated(found.agree_second),
        "symmetry": to_plain(found.symmetry),
        "order_p": found.order_p,
        "left_out": int((~usable).sum()),
    }


def four(labels: Sequence[Labels], groups: Sequence[str], how: Resampling) -> Figure:
    """Prevented, introduced, net and harm of a defense, from four matched labels a run.

    Parameters
    ----------
    labels : four arrays of bool, shape (n,)
        Whether the event happens: clean and tampered, without and with the defense, in the
        order c0, c1, p0, p1.
    groups : sequence, length n
        Question text, the unit of resampling.
    how : Resampling
        Draws, level and generator.
    """
    found = four_conditions(*labels)
    spans = cluster_bootstrap(
        contributions(*labels), groups, draws=how.draws, confidence=how.confidence, rng=how.rng
    )
    net, harm = found.p0 - found.p1, found.c1 - found.c0
    counts: Mapping[str, int] = {
        "P": found.prevented, "J": found.introduced, "N": net, "H": harm, "Gamma": net + harm,
    }  # fmt: skip
    return {
        "rates": {"c0": found.c0, "c1": found.c1, "p0": found.p0, "p1": found.p1},
        "effects": {
            name: {"count": counts[name], "value": counts[name] / found.n, **bounds(span)}
            for name, span in zip(EFFECTS, spans, strict=True)
        },
    }
