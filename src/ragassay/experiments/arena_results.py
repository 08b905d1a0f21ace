"""The figures of one system in the arena: a rule, a scene, a defense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.arena.figures import (
    AttackerFigures,
    Play,
    Share,
    Strengths,
    attacker_figures,
    pairwise_success,
    strengths,
)
from ragassay.arena.retrieval import poison_figures
from ragassay.canon import rng_for
from ragassay.errors import NotEstimable
from ragassay.experiments.arena_outcomes import (
    ORDER,
    ROUNDS,
    SINGLES,
    Outcomes,
    decision,
    path_of,
    places_of,
    rule_of,
)
from ragassay.experiments.arena_prediction import prediction
from ragassay.experiments.arena_rounds import guaranteed
from ragassay.experiments.conditions import bounds
from ragassay.stats.intervals import Interval, cluster_bootstrap
from ragassay.stats.ranking import Floats
from ragassay.stats.ranking_online import online_path, slope

TREND_POINTS = 60
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Analyst:
    """Makes results from the records of an arena."""

    outcomes: Outcomes
    resolved: Mapping[str, Any]
    untargeted: tuple[str, ...]
    exact: Mapping[str, Any]

    @property
    def _seed(self) -> int:
        return int(self.resolved["experiment"]["seed"])

    @property
    def _statistics(self) -> Mapping[str, Any]:
        told: Mapping[str, Any] = self.resolved["experiment"]["statistics"]
        return told

    def result(self, scorer: str, scene: str, defense: str) -> Row:
        """All figures of one rule, scene and defense."""
        label, _, context = scene.rpartition("|")
        setting, _, budget = label.rpartition("|")
        k = self.resolved["settings"][setting]["k"]
        plays = self.outcomes.plays(ROUNDS, scene, defense, scorer, k)
        alone = self.outcomes.plays(SINGLES, scene, defense, scorer, k)
        if guaranteed(context):  # nothing was retrieved
            plays, alone = [_unretrieved(p) for p in plays], [_unretrieved(p) for p in alone]
        found = self._strengths(plays)
        return {
            "scorer": scorer,
            "scene": scene,
            "setting": setting,
            "budget": int(budget),
            "context": context,
            "defense": defense,
            "outcomes": _outcomes(plays),
            "attackers": self._attackers(plays, alone, scene, found),
            "strengths": self._told(plays, found),
            "sizes": self._sizes(plays, alone),
            "pairs": self._pairs(plays, alone, scene),
            "trend": self._trend(plays),
            "stopping": self._stopping(plays, found),
            "prediction": prediction(plays, alone, self.untargeted, self._seed, self._statistics),
            "orders": self._orders(scene, defense, scorer, k),
            "exact_missing": self.exact.get(scene, {}).get("why", ""),
        }

    # --------------------------------------------------------------------------- figures

    def _figures(self, plays: Sequence[Play]) -> dict[str, AttackerFigures]:
        told = self._statistics
        return attacker_figures(
            plays, seed=self._seed, draws=told["draws"], confidence=told["confidence"]
        )

    def _strengths(self, plays: Sequence[Play]) -> Strengths | str:
        try:
            return strengths(
                plays, leave_out=self.untargeted, seed=self._seed,
                draws=min(self._statistics["draws"], 2_000),
                confidence=self._statistics["confidence"],
            )  # fmt: skip
        except NotEstimable as error:
            return str(error)

    def _attackers(
        self, plays: Sequence[Play], alone: Sequence[Play], scene: str, found: Strengths | str
    ) -> list[Row]:
        among, single = self._figures(plays), self._figures(alone)
        exact = self.exact.get(scene, {})
        rows = []
        for name in sorted({*among, *single}):
            rows.append(
                {
                    "attacker": name,
                    "untargeted": name in self.untargeted,
                    "alone": _told(single.get(name)),
                    "among": _told(among.get(name)),
                    "exact": {
                        kind: exact.get(kind, {}).get(name, {}) for kind in ("single", "rounds")
                    },
                    **_place(found, name),
                }
            )
        return rows

    def _told(self, plays: Sequence[Play], found: Strengths | str) -> Row:
        if isinstance(found, str):
            return {"estimable": False, "why": found}
        ranking, names = found.ranking, list(found.names)
        superiority, probabilities = ranking.superiority, ranking.rank_probabilities
        rounds = places_of(plays, names)
        return {
            "estimable": True,
            "why": "",
            "names": names,
            "decided": found.decided,
            "groups": ranking.groups,
            "resamples": len(ranking.draws),
            "unusable": ranking.unusable,
            "same_order": ranking.same_order,
            "superiority": None if superiority is None else superiority.tolist(),
            "rank_probabilities": None if probabilities is None else probabilities.tolist(),
            "win_probabilities": [
                [{"value": float(value), **bounds(interval)}
                 for value, interval in zip(values, intervals, strict=True)]
                for values, intervals in zip(
                    ranking.win_probabilities, ranking.win_probability_intervals, strict=True
                )
            ],
            "undecided": [[names[a], names[b]] for a, b in ranking.undecided(0.95)],
            "online": {
                rule: online_path(len(names), rounds, rule=rule)[-1].tolist()
                for rule in ("batch", "sequential", "printed")
            },
        }  # fmt: skip

    def _sizes(self, plays: Sequence[Play], alone: Sequence[Play]) -> list[Row]:
        """Success by the number of attackers that compete, alone included."""
        rows = []
        by_size: dict[int, list[Play]] = {1: list(alone)} if alone else {}
        for play in plays:
            by_size.setdefault(len(play.attackers), []).append(play)
        for size, some in sorted(by_size.items()):
            for name, figures in self._figures(some).items():
                rows.append({"size": size, "attacker": name, "success": _share(figures.success),
                             "f1": _share(figures.f1)})  # fmt: skip
        return rows

    def _pairs(self, plays: Sequence[Play], alone: Sequence[Play], scene: str) -> list[Row]:
        """For each ordered pair, success and F1 of the first in plays against the second."""
        retrieved: dict[tuple[str, str], list[float]] = {}
        for play in plays:
            for first in play.hits:
                figures = poison_figures(play.hits[first], play.injected[first], play.k)
                for second in play.attackers:
                    if second != first:
                        retrieved.setdefault((first, second), []).append(figures.f1)
        exact = {
            (row["attacker"], row["against"]): row["f1"]
            for row in self.exact.get(scene, {}).get("pairs", [])
        }
        wins = pairwise_success(plays)
        ends = self._pair_intervals(plays)
        f1 = {pair: float(np.mean(values)) for pair, values in retrieved.items()}
        return [
            {
                "attacker": first,
                "against": second,
                "won": won,
                "n": n,
                "success": won / n if n else None,
                **ends.get((first, second), {"low": None, "high": None}),
                "f1": f1.get((first, second)),
                "exact_f1": exact.get((first, second)),
            }
            for (first, second), (won, n) in wins.items()
        ]

    def _pair_intervals(self, plays: Sequence[Play]) -> dict[tuple[str, str], Row]:
        """Intervals of the success of the first in plays against the second, over questions."""
        won: dict[tuple[str, str], tuple[list[bool], list[str]]] = {}
        for play in plays:
            for first in (*play.judgment.winners, *play.judgment.losers):
                for second in play.attackers:
                    if second != first:
                        values, groups = won.setdefault((first, second), ([], []))
                        values.append(first in play.judgment.winners)
                        groups.append(play.group)
        found = {}
        for pair, (values, groups) in won.items():
            told = share_of(values, groups, self._statistics, self._seed, "pair", *pair)
            found[pair] = {"low": told["low"], "high": told["high"]}
        return found

    def _trend(self, plays: Sequence[Play]) -> Row:
        """Win rates and online strengths after some of the rounds."""
        names = sorted({n for play in plays for n in play.attackers} - set(self.untargeted))
        path = path_of(plays, names)
        wins, taken = np.zeros(len(names)), np.zeros(len(names))
        rates: list[NDArray[np.float64]] = []
        for i, (play, (won, lost)) in enumerate(zip(plays, places_of(plays, names), strict=True)):
            if won and lost:
                wins[won] += 1
                taken[[*won, *lost]] += 1
            if i + 1 == len(plays) or plays[i + 1].round != play.round:
                rates.append(np.where(taken > 0, wins / np.maximum(taken, 1), np.nan))
        at = sorted({round(x) for x in np.linspace(1, len(path), min(TREND_POINTS, len(path)))})
        return {
            "rounds": at,
            "names": names,
            "theta": [[float(path[r - 1][i]) for r in at] for i in range(len(names))],
            "win_rate": [
                [None if np.isnan(v := rates[r - 1][i]) else float(v) for r in at]
                for i in range(len(names))
            ],
            "slope": _listed(slope(path)) if len(path) > 1 else None,
        }

    def _stopping(self, plays: Sequence[Play], found: Strengths | str) -> Row:
        part = self.resolved["experiment"]["arena"]
        rounds = len({play.round for play in plays})
        if isinstance(found, str):
            return {"rounds": rounds, "stop": False, "reason": found, "stable": 0, "undecided": []}
        told, stable = decision(plays, found, rule_of(part), rounds)
        return {
            "rounds": rounds,
            "asked": part["stopping"] == "sure",
            "stop": told.stop,
            "reason": told.reason,
            "stable": stable,
            "undecided": [[found.names[a], found.names[b]] for a, b in told.undecided],
            "same_order": told.same_order,
        }

    def _orders(self, scene: str, defense: str, scorer: str, k: int) -> list[Row]:
        """Success of both attackers of a pair: together, as the first, as the second."""
        seconds = [each.body["second"] for each in self.outcomes.asked(ORDER, scene)]
        groups: dict[tuple[str, str, str], list[Play]] = {}
        plays = self.outcomes.plays(ORDER, scene, defense, scorer, k)
        for play, second in zip(plays, seconds, strict=True):
            for name in play.attackers:
                other = next(n for n in play.attackers if n != name)
                when = "together" if not second else "second" if name == second else "first"
                groups.setdefault((name, other, when), []).append(play)
        rows = []
        for (name, other, when), some in sorted(groups.items()):
            figures = self._figures(some)[name]
            rows.append({"attacker": name, "against": other, "when": when,
                         "success": _share(figures.success), "f1": _share(figures.f1)})  # fmt: skip
        return rows


# ---------------------------------------------------------------------------------- pieces


def share_of(
    values: Sequence[bool], groups: Sequence[str], statistics: Mapping[str, Any], *seed: Any
) -> Row:
    """A share of plays with an interval that resamples whole questions."""
    n = len(values)
    if not n:
        return {"count": 0, "n": 0, "queries": 0, "value": None, "low": None, "high": None}
    interval = cluster_bootstrap(
        np.asarray(values, dtype=np.float64), groups, draws=statistics["draws"],
        confidence=statistics["confidence"], rng=rng_for("arena-share", *seed),
    )[0]  # fmt: skip
    return {
        "count": int(sum(values)), "n": n, "queries": len(set(groups)), "value": sum(values) / n,
        **bounds(interval),
    }  # fmt: skip


def _unretrieved(play: Play) -> Play:
    return Play(
        round=play.round, query_id=play.query_id, judgment=play.judgment, k=play.k,
        cluster=play.cluster,
    )  # fmt: skip


def _share(share: Share) -> Row:
    return {
        "count": share.total, "n": share.n, "queries": share.queries, "value": share.value,
        **bounds(share.interval),
    }  # fmt: skip


_NOTHING: Row = {"count": 0, "n": 0, "queries": 0, "value": None, "low": None, "high": None}


def _told(figures: AttackerFigures | None) -> Row:
    names = ("success", "wins", "precision", "recall", "f1")
    if figures is None:
        return {**{name: dict(_NOTHING) for name in names}, "unjudged": 0}
    return {
        **{name: _share(getattr(figures, name)) for name in names},
        "unjudged": figures.unjudged,
    }


def _place(found: Strengths | str, name: str) -> Row:
    empty = {"value": None, "low": None, "high": None}
    if isinstance(found, str) or name not in found.names:
        return {"theta": empty, "rank": empty, "plays": 0}
    i, ranking = found.names.index(name), found.ranking
    return {
        "theta": {"value": float(ranking.theta[i]), **_ends(ranking.theta_intervals[i])},
        "rank": {"value": int(ranking.ranks[i]), **_ends(ranking.rank_intervals[i])},
        "plays": found.participations[i],
    }


def _ends(interval: Interval | None) -> Row:
    return bounds(interval)


def _listed(values: Floats | None) -> list[float] | None:
    return None if values is None else [float(value) for value in values]


def _outcomes(plays: Sequence[Play]) -> Row:
    """How many plays had which outcome."""
    judged = [play for play in plays if play.judgment.winners or play.judgment.losers]
    return {
        "plays": len(plays),
        "judged": len(judged),
        "decided": sum(play.judgment.decided for play in judged),
        "no_winner": sum(not play.judgment.winners for play in judged),
        "several_winners": sum(len(play.judgment.winners) > 1 for play in judged),
        "only_winners": sum(not play.judgment.losers for play in judged),
        "with_unjudged": sum(bool(play.judgment.unjudged) for play in plays),
    }
