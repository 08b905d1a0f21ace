"""Radar charts of scores from 0 to 1: one small chart for each attack, on equal axes.

Small charts beside each other stay readable where polygons over each other do not, and need no
color to be told apart. A score that is missing has a dashed spoke and says "n/a"; the polygon is
open there, because 0 would say something else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragassay.report.sheet import CORRECT, FONT, INK, LINE, MUTED, PAPER, WIDTH, Sheet, open_sheet
from ragassay.report.text import decimal, visible

MAX_CHARTS = 8
_COLUMNS = 2
_CELL = WIDTH // _COLUMNS
_HEIGHT = 176
_RADIUS = 46
_RINGS = (0.25, 0.5, 0.75, 1.0)
_MAX_NAME = 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Spokes:
    """One attack: its name, and a score for each spoke, None where it is missing."""

    name: str
    scores: tuple[float | None, ...]


def radar_charts(title: str, labels: Sequence[str], members: Sequence[Spokes]) -> str:
    """Draw one small radar chart for each member, at most :data:`MAX_CHARTS`.

    Parameters
    ----------
    title : str
        What a reader who does not see it is told first; also what makes its ids its own.
    labels : sequence of str, length d
        Names of the spokes, clockwise from the top; three or more.
    members : sequence of Spokes
        With d scores each.

    Returns
    -------
    str
        An ``<svg>`` element, or an empty string without any score.
    """
    drawn = members[:MAX_CHARTS]
    if len(labels) < 3 or all(score is None for one in drawn for score in one.scores):
        return ""
    rows = -(-len(drawn) // _COLUMNS)
    with open_sheet(rows * _HEIGHT) as sheet:
        axes = sheet.figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, WIDTH)
        axes.set_ylim(rows * _HEIGHT, 0)
        axes.set_axis_off()
        for number, one in enumerate(drawn):
            row, column = divmod(number, _COLUMNS)
            center = (_CELL * (column + 0.5), _HEIGHT * row + 104.0)
            name = visible(one.name, limit=_MAX_NAME)
            sheet.write(axes, (center[0], center[1] - 92), name, align="center", bold=True)
            _draw(sheet, axes, center, labels, one.scores)
        return sheet.svg(title, "; ".join(_told(labels, one) for one in drawn))


def open_runs(scores: Sequence[float | None]) -> list[list[int]]:
    """Neighboring spokes that have a score, around the circle.

    A closed circle of scores is one run that ends where it began.

    Examples
    --------
    >>> open_runs([0.1, None, 0.5, 1.0])
    [[2, 3, 0]]
    >>> open_runs([0.0, 0.5, 1.0])
    [[0, 1, 2, 0]]
    >>> open_runs([None, 0.2, None, 0.4])
    [[1], [3]]
    """
    known = [score is not None for score in scores]
    n = len(known)
    if all(known):
        return [[*range(n), 0]]
    runs = []
    for start in range(n):
        if not known[start] or known[start - 1]:
            continue
        stop = start
        while known[(stop + 1) % n]:
            stop += 1
        runs.append([i % n for i in range(start, stop + 1)])
    return sorted(runs)


def _draw(
    sheet: Sheet, axes: Any, center: tuple[float, float], labels: Sequence[str],
    scores: Sequence[float | None],
) -> None:  # fmt: skip
    n = len(labels)

    def at(spoke: int, share: float) -> tuple[float, float]:
        angle = 2 * math.pi * spoke / n
        reach = _RADIUS * share
        return center[0] + reach * math.sin(angle), center[1] - reach * math.cos(angle)

    for ring in _RINGS:
        axes.plot(*zip(*(at(i % n, ring) for i in range(n + 1)), strict=True),
                  color=LINE, linewidth=1.2 if ring == 1 else 0.6, zorder=1)  # fmt: skip
    for i, (label, score) in enumerate(zip(labels, scores, strict=True)):
        missing = score is None
        axes.plot(*zip(center, at(i, 1), strict=True), color=MUTED if missing else LINE,
                  linewidth=0.9, linestyle=(0, (2, 3)) if missing else "-", zorder=1)  # fmt: skip
        _label(axes, at(i, 1), center, f"{label}\nn/a" if missing else label, faint=missing)
    known = {i: at(i, score) for i, score in enumerate(scores) if score is not None}
    for run in open_runs(scores):
        points = [known[i] for i in run]
        if len(points) > 1:
            axes.fill(*zip(center, *points, strict=True), color=CORRECT, alpha=0.18, linewidth=0,
                      zorder=2)  # fmt: skip
            axes.plot(*zip(*points, strict=True), color=CORRECT, linewidth=2, zorder=3)
    axes.plot(
        [x for x, _ in known.values()], [y for _, y in known.values()], marker="o", markersize=5.5,
        color=CORRECT, markerfacecolor=PAPER, markeredgewidth=1.8, linestyle="none", zorder=4,
    )  # fmt: skip


def _label(
    axes: Any, tip: tuple[float, float], center: tuple[float, float], text: str, *, faint: bool
) -> None:
    """Write the name of a spoke outside of its tip; the names are ours, not foreign."""
    across, up = tip[0] - center[0], center[1] - tip[1]
    align = "center" if abs(across) < 1 else "left" if across > 0 else "right"
    axes.annotate(
        text, tip, xytext=(5 * across / _RADIUS, 9 * up / _RADIUS), textcoords="offset points",
        ha=align, va="center", fontsize=FONT - 3, color=MUTED if faint else INK,
        fontstyle="italic" if faint else "normal", annotation_clip=False,
    )  # fmt: skip


def _told(labels: Sequence[str], one: Spokes) -> str:
    figures = ", ".join(
        f"{label} {'not known' if score is None else decimal(score, 2)}"
        for label, score in zip(labels, one.scores, strict=True)
    )
    return f"{visible(one.name)}: {figures}"
