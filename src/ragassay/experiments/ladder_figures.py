"""The figures of one filter on one rung of a control ladder, as plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ragassay.canon import rng_for
from ragassay.experiments.conditions import bounds
from ragassay.experiments.ladder_records import Edited, Judged
from ragassay.stats.calibration_error import calibration_error
from ragassay.stats.clustered_share import ClusteredShare, clustered_share
from ragassay.stats.collapse import collapse, figures_of
from ragassay.stats.decision import (
    ACTIONS,
    Costs,
    actions,
    bin_probabilities,
    compare_rules,
    share_in_band,
)
from ragassay.stats.dose import Resampling
from ragassay.stats.filter_rates import Candidates, FilterReport, filter_report, harm
from ragassay.stats.ladder_success import attack_success
from ragassay.stats.paired_clusters import Change, Scored, auroc_change, rate_change
from ragassay.stats.roc import GroupedScores, score_array


class Figures:
    """Makes figures with the run's draws and level, each from a generator of its own.

    Parameters
    ----------
    settings : mapping
        The experiment as resolved.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._seed = settings["seed"]
        self._statistics = settings["statistics"]
        self._ladder = settings["ladder"]

    @property
    def costs(self) -> Costs:
        """Costs of the rule with two actions, which is the deployed one."""
        return Costs(self._ladder["rho"])

    def how(self, *what: Any) -> Resampling:
        """Draws for one figure."""
        return Resampling(
            rng_for(self._seed, "ladder", *what),
            self._statistics["draws"],
            self._statistics["confidence"],
        )

    def share(self, events: Sequence[bool], clusters: Sequence[str], *what: Any) -> dict[str, Any]:
        """A share of things that belong to questions."""
        return plain_share(clustered_share(events, clusters, self.how(*what)))

    def report(self, candidates: Candidates, *what: Any) -> FilterReport:
        """Rates of a filter at its threshold and at the matched rate."""
        return filter_report(
            candidates, self.how(*what, "report"), matched_fpr=self._ladder["matched_fpr"]
        )

    def cell(
        self, judged: Judged, report: FilterReport, edited: Edited, *what: Any
    ) -> dict[str, Any]:
        """The figures of a filter on a rung, without what compares rungs."""
        candidates = judged.candidates()
        cost = harm(candidates, self.costs, self.how(*what, "harm"))
        outcome = attack_success(*edited.outcomes(judged), self.how(*what, "success"))
        matched = report.matched
        return {
            "contexts": len(judged.contexts),
            "candidates": len(judged.queries),
            "fnr": plain_share(report.fnr),
            "fpr": plain_share(report.fpr),
            "matched": None
            if matched is None
            else {
                "threshold": matched.threshold, "fnr": plain_share(matched.fnr),
                "fpr": plain_share(matched.fpr), "unscored": matched.unscored,
            },
            "auroc": None
            if not len(candidates.scores)
            else {
                "value": report.auroc.value, **bounds(report.auroc.interval),
                "poison": report.auroc.n_positive, "clean": report.auroc.n_negative,
                "unscored": report.auroc.unscored,
            },
            "ece": self._ece(judged, *what),
            "harm": {"value": cost.value, **bounds(cost.interval), "contexts": cost.contexts},
            "contamination": self.share(
                judged.contaminated, [query for _, query in judged.contexts], *what, "reached"
            ),
            "retention": plain_share(report.retention),
            "closes_door": report.closes_door,
            "retrieval": plain_share(outcome.retrieval_survival),
            "payload": plain_share(outcome.payload_survival),
            "success": plain_share(outcome.rate),
            "not_possible": outcome.unknown,
        }  # fmt: skip

    def changes(
        self,
        before: tuple[Judged, FilterReport],
        after: tuple[Judged, FilterReport],
        *what: Any,
    ) -> dict[str, Any]:
        """What a rung changed, on the same questions, and how the filter failed if it did."""
        (first, old), (then, new) = before, after
        found = collapse(figures_of(old), figures_of(new))
        one, two = first.candidates(), then.candidates()
        rates = rate_change(one.misses, two.misses, self.how(*what, "fnr"))
        areas = None
        if len(one.scores) and len(two.scores):
            areas = auroc_change(_scored(one), _scored(two), self.how(*what, "auroc"))
        return {
            "mode": found.mode,
            "ratio": found.ratio,
            "fnr": _change(rates),
            "auroc": None if areas is None else _change(areas),
        }

    def decision(self, judged: Judged) -> dict[str, Any]:
        """Shares of the three actions, and whether trust could change any of them."""
        rho, c_a, kappa = (self._ladder[name] for name in ("rho", "c_a", "kappa"))
        p, poison = judged.probabilities, np.array(judged.poison, dtype=np.bool_)
        taken = actions(p, Costs(rho, c_a))
        band = share_in_band(p, rho)
        rules = compare_rules(p, rho, kappa)
        return {
            "actions": {
                kind: {**dict.fromkeys(ACTIONS, 0), **Counter(taken[poison == wanted].tolist())}
                for kind, wanted in (("poison", True), ("clean", False))
            },
            "in_band": {
                "count": band.count, "n": band.n,
                "value": band.count / band.n if band.n else None, **bounds(band.interval),
            },
            "rules": {
                "n": rules.n, "half_and_tau_d": rules.half_and_tau_d,
                "half_and_tau_ds": rules.half_and_tau_ds,
                "tau_d_and_tau_ds": rules.tau_d_and_tau_ds, "identical": rules.identical,
            },
            "bins": [[each.p, each.clean, each.poison] for each in bin_probabilities(p, poison)],
        }  # fmt: skip

    def ablated(self, judged: Judged, *what: Any) -> dict[str, Any]:
        """The figures that an ablation compares."""
        report = self.report(judged.candidates(), *what)
        return {
            "fnr": plain_share(report.fnr),
            "fpr": plain_share(report.fpr),
            "auroc": {"value": report.auroc.value, **bounds(report.auroc.interval)},
            "ece": self._ece(judged, *what),
        }

    def _ece(self, judged: Judged, *what: Any) -> dict[str, Any] | None:
        if not judged.probabilities:
            return None
        found = calibration_error(
            judged.probabilities, judged.poison, judged.queries, self.how(*what, "ece")
        )
        return {
            "value": found.value, **bounds(found.interval), "n": found.n, "poison": found.positive,
        }  # fmt: skip


def plain_share(share: ClusteredShare) -> dict[str, Any]:
    """A share with count, denominator, interval and how that was made."""
    return {
        "count": share.count, "n": share.n, "value": share.value, **bounds(share.interval),
        "clusters": share.clusters, "method": share.method,
    }  # fmt: skip


def _change(found: Change) -> dict[str, Any]:
    return {
        "before": found.before, "after": found.after, "value": found.value,
        **bounds(found.interval), "clusters": found.clusters, "fewest": found.fewest,
    }  # fmt: skip


def _scored(candidates: Candidates) -> Scored:
    scores, poison = score_array(candidates.scores), candidates.poison
    sides = [
        GroupedScores(
            scores[mask], [q for q, keep in zip(candidates.queries, mask, strict=True) if keep]
        )
        for mask in (poison, ~poison)
    ]
    return Scored(*sides)
