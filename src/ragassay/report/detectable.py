"""What effect a run could have seen: with as many questions and groups, and no more."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ragassay.report.finding import best
from ragassay.report.grids import UNDEFENDED
from ragassay.report.text import NOT_ESTIMABLE, level, plural
from ragassay.stats.clusters import ASSUMED_ICC
from ragassay.stats.power import Sampling, detectable_difference, detectable_rate

POWER = 0.8
ALPHA = 0.05
_EXACT_TO = 400  # questions; above, a normal approximation keeps reports quick


def detectable(summary: Mapping[str, Any]) -> str:
    """Say what effects the comparison that the finding is about could have shown.

    Parameters
    ----------
    summary : mapping
        What ``ragassay.experiments.aligned.analyze`` returns.

    Returns
    -------
    str
        The smallest net reduction and harm that would have been told from none, and the smallest
        rate of introduced answers of which one would have been seen, each with a chance of 80 %.
    """
    cell = best(summary)
    if cell is None:
        return _undefended(summary)
    n, groups = cell["n"], cell["groups"]
    against = cell["effects"]["J"]["value"]
    head = f"With {plural(n, 'query')} in {plural(groups, 'injection group')}"
    return (
        f"{head}, this run could have shown, with a chance of {level(POWER)} and an error of "
        f"{level(ALPHA)}: a net reduction of {_points(difference(n, groups, against))} or more "
        f"(with {100 * against:.1f}% introduced), harm on clean retrieval of "
        f"{_points(difference(n, groups, 0.0))} or more, and at least one case of what the defense "
        f"introduces in {_percent(rate(n, groups))} of all queries. Smaller effects can exist "
        f"unseen. {_assumed(n, groups)}"
    )


@functools.lru_cache(maxsize=256)
def difference(n: int, groups: int, against: float) -> float | None:
    """The smallest paired difference that would be told from 0; a fraction, None where none."""
    sampling, size = _sampling(n, groups)
    return detectable_difference(
        size, round(min(against, 0.45), 6), power=POWER, alpha=ALPHA, sampling=sampling,
        exact_to=_EXACT_TO,
    )  # fmt: skip


@functools.lru_cache(maxsize=256)
def rate(n: int, groups: int) -> float | None:
    """The smallest rate of which at least one case would be seen; a fraction, None where none."""
    sampling, size = _sampling(n, groups)
    return detectable_rate(size, power=POWER, alpha=ALPHA, sampling=sampling)


def _undefended(summary: Mapping[str, Any]) -> str:
    cells = [
        cell for cell in summary["cells"]
        if cell["scorer"] == summary["headline"] and cell["defense"] == UNDEFENDED
        and cell["estimable"]
    ]  # fmt: skip
    if not cells:
        return "Nothing is estimable, so that no effect could have been seen."
    cell = min(cells, key=lambda one: one["n"])
    n, groups = cell["n"], cell["groups"]
    return (
        f"With {plural(n, 'query')} in {plural(groups, 'injection group')}, this run could have "
        f"shown, with a chance of {level(POWER)} and an error of {level(ALPHA)}, an attack that "
        f"raises the attacker's answers by {_points(difference(n, groups, 0.0))} or more. "
        f"Smaller effects can exist unseen. {_assumed(n, groups)}"
    )


def _sampling(n: int, groups: int) -> tuple[Sampling, int]:
    size = max(1, n // groups)
    icc = ASSUMED_ICC if size > 1 else 0.0
    return Sampling(cluster_size=size, icc=icc), max(size, groups * size)


def _assumed(n: int, groups: int) -> str:
    if n // groups < 2:
        return "Queries count as independent."
    return f"A correlation of {ASSUMED_ICC:g} within injection groups is assumed."


def _points(value: float | None) -> str:
    return NOT_ESTIMABLE if value is None else f"{100 * value:.1f}pp"


def _percent(value: float | None) -> str:
    return NOT_ESTIMABLE if value is None else f"{100 * value:.1f}%"
