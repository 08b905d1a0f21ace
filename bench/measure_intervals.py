"""Resampling: strengths against a refit per draw, N, H and Gamma against SciPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from side_by_side import Row, medians, ratio, take_turns

STRENGTHS = Row(
    name="bradley_terry",
    what="Bradley-Terry with cluster bootstrap, 7 attackers, 100 queries, B = 1,000",
    against="choix.ilsr_pairwise, refit for each draw", kind="at least", target=100,
)  # fmt: skip
CONTRASTS = Row(
    name="contrasts",
    what="N, H, Gamma of 10 defenses x 2 budgets, paired cluster bootstrap, B = 10,000",
    against="scipy.stats.bootstrap on the same statistic, a plain function",
    kind="at least", target=25,
)  # fmt: skip
VECTORIZED = Row(
    name="contrasts_vectorized", what="the same",
    against="scipy.stats.bootstrap, vectorized by hand over sums of groups",
    kind="at least", target=1,
)  # fmt: skip
ROWS = (STRENGTHS, CONTRASTS, VECTORIZED)


def measure(*, quick: bool) -> Iterator[Row]:
    """All rows."""
    yield _strengths(
        draws=50 if quick else 1_000, rounds=1 if quick else 5, plays=2 if quick else 40
    )
    yield from _contrasts(draws=200 if quick else 10_000, rounds=1 if quick else 3)


def _strengths(draws: int, rounds: int, plays: int) -> Row:
    try:
        import choix
    except ImportError:
        return replace(STRENGTHS, note="choix is not installed (requirements/test.txt)")
    from ragassay.stats.ranking import PRIOR_SD, fit
    from ragassay.stats.ranking_certainty import rank
    from ranking import listed, simulated

    wins = simulated(queries=100, rounds=plays, seed=0)
    data, n = listed(wins.sum(axis=0)), wins.shape[1]
    alpha = 1 / (2 * PRIOR_SD**2)
    table = wins.sum(axis=0)
    refits = {  # with the defaults of choix, except for the penalty, without which it has none
        "ilsr_pairwise": lambda: choix.ilsr_pairwise(n, data),
        "lsr_pairwise": lambda: choix.lsr_pairwise(n, data),
        "mm_pairwise": lambda: choix.mm_pairwise(n, data),
        "opt_pairwise": lambda: choix.opt_pairwise(n, data, alpha=alpha),
        "ilsr_pairwise_dense": lambda: choix.ilsr_pairwise_dense(table),
        "lsr_pairwise_dense": lambda: choix.lsr_pairwise_dense(table),
    }
    ours = {"ours": lambda: rank(wins, rng=np.random.default_rng(1), draws=draws)}
    seconds = take_turns({**ours, **refits}, rounds, warm=0)
    precise = choix.opt_pairwise(n, data, alpha=alpha, tol=1e-10)
    difference = float(np.abs(precise - fit(table)).max())
    against = {f"against_{name}": draws * ratio(seconds, name, "ours") for name in refits}
    told = ", ".join(f"{name} {against[f'against_{name}']:.3g}" for name in refits)
    return replace(
        STRENGTHS,
        value=against["against_ilsr_pairwise"],
        figures={
            **against, **medians(seconds), "draws": draws, "largest_difference": difference,
            "comparisons": len(data),
        },
        note="one refit, times the draws; the target is for ilsr_pairwise, the fitter of choix "
        f"for lists of comparisons. All fitters: {told} times. The dense ones take a table that "
        "is already summed up; lsr is one step of ilsr and no maximum of the likelihood; only "
        "opt has our penalty",
    )  # fmt: skip


def _contrasts(draws: int, rounds: int) -> Iterator[Row]:
    from scipy.stats import bootstrap

    from ragassay.stats.intervals import cluster_bootstrap
    from ragassay.stats.paired import contributions

    rng = np.random.default_rng(3)
    groups = [f"g{i // 10}" for i in range(100)]
    cells = [rng.random((4, 100)) < 0.3 for _ in range(20)]
    found: dict[str, list[tuple[float, float]]] = {}

    def ours() -> None:
        columns = np.hstack([contributions(*cell)[:, 2:] for cell in cells])
        intervals = cluster_bootstrap(columns, groups, draws=draws, rng=np.random.default_rng(1))
        found["ours"] = [(i.low, i.high) for i in intervals if i is not None]

    members = [np.flatnonzero(np.array(groups) == f"g{g}") for g in range(10)]
    places = (np.arange(10.0),)

    def scipy_with(statistic_of: Callable[[Any], Callable[..., Any]], vectorized: bool) -> Any:
        made: list[tuple[float, float]] = []
        for cell in cells:
            interval = bootstrap(
                places, statistic_of(cell), n_resamples=draws, vectorized=vectorized,
                method="percentile", rng=np.random.default_rng(1),
            ).confidence_interval  # fmt: skip
            made += zip(interval.low.tolist(), interval.high.tolist(), strict=True)
        return made

    def plain_of(cell: Any) -> Callable[..., Any]:
        def statistic(picks: np.ndarray) -> np.ndarray:
            rows = np.concatenate([members[int(g)] for g in picks])
            c0, c1, p0, p1 = (labels[rows].mean() for labels in cell)
            return np.array([p0 - p1, c1 - c0, p0 - p1 + c1 - c0])

        return statistic

    def vectorized_of(cell: Any) -> Callable[..., Any]:
        c0, c1, p0, p1 = (labels.astype(float) for labels in cell)
        values = (p0 - p1, c1 - c0, p0 - p1 + c1 - c0)
        sums = [np.array([value[some].sum() for some in members]) for value in values]
        sizes = np.array([len(some) for some in members], dtype=float)

        def statistic(picks: np.ndarray, axis: int = -1) -> np.ndarray:
            drawn = picks.astype(int)
            total = sizes[drawn].sum(axis=axis)
            return np.stack([each[drawn].sum(axis=axis) / total for each in sums])

        return statistic

    ways = {
        "ours": ours,
        "scipy": lambda: found.update(scipy=scipy_with(plain_of, False)),
        "scipy_vectorized": lambda: scipy_with(vectorized_of, True),
    }
    seconds = take_turns(ways, rounds, warm=0)
    pairs = itertools.chain.from_iterable(
        zip(*both, strict=True) for both in zip(found["ours"], found["scipy"], strict=True)
    )
    figures = {**medians(seconds), "draws": draws}
    yield replace(
        CONTRASTS, value=ratio(seconds, "scipy", "ours"),
        figures={**figures, "largest_difference": max(abs(a - b) for a, b in pairs)},
        note="the statistic takes the groups drawn and means over their questions, a draw at a "
        "time",
    )  # fmt: skip
    yield replace(
        VECTORIZED, value=ratio(seconds, "scipy_vectorized", "ours"), figures=figures,
        note="the sums of groups are made beforehand, all draws are one array",
    )  # fmt: skip
