"""The slope chart: the same answers under each label, a line for every system.

A point is the rate of target-positive answers under attack, by the answers that the scorer
read; the bar through it its Wilson interval. The hollow box on top reaches to where the rate
would be if every uncertain answer were positive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report.grids import NO_DEFENSE, UNDEFENDED
from ragassay.report.sheet import FONT, INK, MUTED, PAPER, SERIES, Sheet, open_sheet
from ragassay.report.text import count, label_share, visible

WIDTH, HEIGHT = 600, 330
_LEFT, _RIGHT, _BOTTOM = 42, 178, 44
_GAP = 16.5  # pixels between two direct labels
_MAX_NAME = 22

Row = Mapping[str, Any]


def slope_chart(title: str, scorers: Sequence[str], rows: Sequence[Row]) -> str:
    """Draw the levels of all systems at one place under each scorer.

    Parameters
    ----------
    title : str
        What a reader who does not see it is told first; also what makes its ids its own.
    scorers : sequence of str
        From left to right.
    rows : sequence of mapping
        ``rows`` of an entry of ``summary["label_comparison"]["cells"]``.

    Returns
    -------
    str
        An ``<svg>`` element, or an empty string where no scorer read anything.
    """
    lines = _lines(scorers, rows)
    if not lines:
        return ""
    top = _top(rows)
    with open_sheet(HEIGHT, WIDTH) as sheet:
        axes = sheet.upright_axes(
            left=_LEFT, right=_RIGHT, bottom=_BOTTOM, xlim=(-0.4, len(scorers) - 0.6), top=top
        )
        for place, scorer in enumerate(scorers):
            axes.axvline(place, color=MUTED, linewidth=0.5, alpha=0.4, zorder=0)
            sheet.write(axes, (place, 0), visible(scorer, limit=14), shift=(0, -12), align="center")
            sheet.write(
                axes, (place, 0), _read(scorer, rows), shift=(0, -27), align="center",
                color=MUTED, small=True,
            )  # fmt: skip
        for i, (_, points) in enumerate(lines):
            _draw(axes, points, _style(lines, i), (i - (len(lines) - 1) / 2) * _step(len(lines)))
        _direct_labels(sheet, axes, lines, top, len(scorers))
        return sheet.svg(title, "; ".join(_told(name, points) for name, points in lines))


Points = list[tuple[int, str, Row]]  # place on the axis, scorer, row


def _lines(scorers: Sequence[str], rows: Sequence[Row]) -> list[tuple[str, Points]]:
    """The points of each system, the undefended one last; systems that nobody read are left out."""
    systems = list(dict.fromkeys(row["defense"] for row in rows))
    systems.sort(key=lambda name: name == UNDEFENDED)
    lines = []
    for system in systems:
        points = [
            (place, scorer, row)
            for place, scorer in enumerate(scorers)
            for row in rows
            if row["defense"] == system and row["scorer"] == scorer and row["p1"]["positive"]["n"]
        ]
        if points:
            lines.append((system, points))
    return lines


def _style(lines: Sequence[tuple[str, Points]], i: int) -> dict[str, Any]:
    if lines[i][0] == UNDEFENDED:
        return {"color": INK, "marker": "_", "linestyle": (0, (4, 3)), "markersize": 11}
    color, marker = SERIES[i % len(SERIES)]
    dashes: Any = "-" if i < len(SERIES) else (0, (1, 1.5))
    return {"color": color, "marker": marker, "linestyle": dashes, "markersize": 7}


def _step(count: int) -> float:
    """How far systems stand apart at one scorer, so that their bars do not cover each other."""
    return min(0.11, 0.55 / max(1, count))


def _draw(axes: Any, points: Points, style: Mapping[str, Any], shift: float) -> None:
    xs = [place + shift for place, _, _ in points]
    rates = [row["p1"]["positive"] for _, _, row in points]
    color = style["color"]
    axes.vlines(
        xs, [r["low"] for r in rates], [r["high"] for r in rates], color=color, linewidth=1.4,
        zorder=2,
    )  # fmt: skip
    for x, rate, (_, _, row) in zip(xs, rates, points, strict=True):
        uncertain = row["p1"]["uncertain"]["value"]
        if uncertain:
            axes.bar(
                [x], [uncertain], bottom=[rate["value"]], width=0.07, facecolor=PAPER,
                edgecolor=color, linewidth=1.1, zorder=3,
            )  # fmt: skip
    axes.plot(
        xs, [rate["value"] for rate in rates], linewidth=1.8, markeredgewidth=1.8, zorder=4,
        clip_on=False, **style,
    )  # fmt: skip


def _direct_labels(
    sheet: Sheet, axes: Any, lines: Sequence[tuple[str, Points]], top: float, scorers: int
) -> None:
    """Name every line right of its last point, moved apart so that no label covers another."""
    pixels = (HEIGHT - _BOTTOM - 10) / top
    ends = [points[-1][2]["p1"]["positive"]["value"] for _, points in lines]
    heights = apart([end * pixels for end in ends], _GAP, 0, pixels * top)
    edge = scorers - 0.6
    for i, ((system, points), end, height) in enumerate(zip(lines, ends, heights, strict=True)):
        style = _style(lines, i)
        x = points[-1][0] + (i - (len(lines) - 1) / 2) * _step(len(lines))
        axes.plot(
            [x + 0.06, edge], [end, height / pixels], color=MUTED, linewidth=0.7,
            linestyle=(0, (1, 2)), clip_on=False, zorder=1,
        )  # fmt: skip
        name = NO_DEFENSE if system == UNDEFENDED else visible(system, limit=_MAX_NAME)
        last = points[-1][0] == scorers - 1
        level = f" {count(points[-1][2]['p1']['positive'])}" if last else ""
        axes.plot(
            [edge], [height / pixels], marker=style["marker"], color=style["color"],
            markersize=6, linestyle="none", clip_on=False, zorder=5,
        )  # fmt: skip
        sheet.write(
            axes, (edge, height / pixels), name + level, shift=(FONT * 0.7, 0),
            small=len(name) > 14,
        )  # fmt: skip


def apart(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move heights as little as needed to stand ``gap`` apart between two bounds, in order.

    Examples
    --------
    >>> apart([10, 12, 50], 10, 0, 100)
    [6.0, 16.0, 50.0]
    """
    order = sorted(range(len(heights)), key=lambda i: (heights[i], i))
    groups: list[list[float]] = []  # [sum of wished centers, number]
    for i in order:
        groups.append([float(heights[i]), 1])
        while len(groups) > 1 and _bottom(groups[-1], gap) < _head(groups[-2], gap) + gap:
            last = groups.pop()
            groups[-1] = [
                (groups[-1][0] * groups[-1][1] + last[0] * last[1]) / (groups[-1][1] + last[1]),
                groups[-1][1] + last[1],
            ]
    placed = [_bottom(group, gap) + gap * step for group in groups for step in range(int(group[1]))]
    for k in range(len(placed)):  # inside the bounds, from both ends
        placed[k] = max(placed[k], low + gap * k)
    for k in range(len(placed) - 1, -1, -1):
        placed[k] = min(placed[k], high - gap * (len(placed) - 1 - k))
    result = [0.0] * len(heights)
    for i, height in zip(order, placed, strict=True):
        result[i] = height
    return result


def _bottom(group: Sequence[float], gap: float) -> float:
    return group[0] - gap * (group[1] - 1) / 2


def _head(group: Sequence[float], gap: float) -> float:
    return group[0] + gap * (group[1] - 1) / 2


def _top(rows: Sequence[Row]) -> float:
    """End of the axis: what intervals and uncertain answers need, rounded up to a tenth."""
    values = [0.1]
    for row in rows:
        rate = row["p1"]["positive"]
        if rate["n"]:
            values += [rate["high"], rate["value"] + row["p1"]["uncertain"]["value"]]
    return min(1.0, math.ceil(max(values) * 10 - 1e-9) / 10)


def _read(scorer: str, rows: Sequence[Row]) -> str:
    """How many answers of each system a scorer read, where it did not read all."""
    labels = [row["p1"] for row in rows if row["scorer"] == scorer]
    if not any(label["not_scored"] for label in labels):
        return ""
    read = sorted({label["positive"]["n"] for label in labels})
    every = max(label["positive"]["n"] + label["not_scored"] for label in labels)
    span = f"{read[0]}" if len(read) == 1 else f"{read[0]} to {read[-1]}"
    return f"read {span} of {every}"


def _told(system: str, points: Points) -> str:
    name = NO_DEFENSE if system == UNDEFENDED else visible(system)
    told = ", ".join(f"{visible(scorer)} {label_share(row['p1'])}" for _, scorer, row in points)
    return f"{name}: {told}"
