"""Charts of an arena: strengths and effects with intervals, lines over rounds or sizes, matrices.

A matrix has one hue whose strength is the value, and the value is written into each cell, so that
no color has to be told from another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragassay.report.sheet import (
    CORRECT,
    FONT,
    FOOT,
    INK,
    LINE,
    MUTED,
    PAPER,
    SERIES,
    TARGET,
    Sheet,
    open_sheet,
)
from ragassay.report.slopes import apart
from ragassay.report.text import percent, points, visible

HEIGHT, WIDTH = 300, 460
_LEFT, _RIGHT, _BOTTOM = 44, 166, 48
_GAP = 15.5
_NAME = 21
_CELL, _HEAD, _SIDE = 46, 96, 140
_EFFECTS = {"trigger": (CORRECT, "o"), "content": (TARGET, "s")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line by name: values at x, None where not known, with bounds where there are any."""

    name: str
    values: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()


def strength_chart(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Draw theta of every attacker with its interval, the strongest first.

    Parameters
    ----------
    title : str
        What a reader who does not see it is told first; also what makes its ids its own.
    rows : sequence of mapping
        ``attacker``, ``theta`` and ``rank``, each with ``value``, ``low``, ``high``.
    """
    known = sorted(
        (row for row in rows if row["theta"]["value"] is not None),
        key=lambda row: row["rank"]["value"],
    )
    if not known:
        return ""
    ends = [
        end for row in known for end in row["theta"].values() if end is not None
    ]  # fmt: skip
    reach = max(0.5, 1.08 * max(map(abs, ends)))
    with open_sheet(len(known) * 44 + FOOT + 8, WIDTH) as sheet:
        axes = sheet.axes(len(known), left=14, right=150, xlim=(-reach, reach))
        axes.axvline(0, color=INK, linewidth=1, zorder=1)
        for place, row in enumerate(known):
            theta, rank = row["theta"], row["rank"]
            sheet.left(axes, place - 0.27, visible(row["attacker"], limit=30), bold=True)
            fill = CORRECT
            if theta["low"] is None:
                fill = PAPER
            else:
                axes.hlines([place + 0.14], [theta["low"]], [theta["high"]], color=CORRECT,
                            linewidth=2)  # fmt: skip
            axes.plot([theta["value"]], [place + 0.14], marker="o", markersize=7, color=CORRECT,
                      markerfacecolor=fill, linestyle="none", zorder=4, clip_on=False)  # fmt: skip
            sheet.right(axes, place + 0.14, f"{theta['value']:+.2f}, rank {_span(rank)}", x=1.03,
                        color=INK)  # fmt: skip
        step = 1.0 if reach > 2 else 0.5
        ticks = [i * step for i in range(math.ceil(-reach / step), math.floor(reach / step) + 1)]
        every = max(1, math.ceil(len(ticks) / 9))
        shown = [tick for tick in ticks if round(tick / step) % every == 0]
        axes.set_xticks(shown, [f"{tick:+g}".replace("-", "\u2212") if tick else "0"
                                for tick in shown])  # fmt: skip
        axes.tick_params(axis="x", colors=MUTED, labelsize=FONT - 1.5, length=3)
        axes.grid(axis="x", color=LINE, linewidth=0.6, zorder=0)
        axes.set_axisbelow(True)
        axes.set_xlabel("strength (log odds), with interval", color=MUTED, fontsize=FONT - 1)
        told = "; ".join(
            f"{visible(r['attacker'])} {r['theta']['value']:+.2f}, rank {_span(r['rank'])}"
            for r in known
        )
        return sheet.svg(title, told)


def line_chart(
    title: str, xs: Sequence[int], curves: Sequence[Curve], *, axis: str, shares: bool
) -> str:
    """Draw a line for each attacker.

    Parameters
    ----------
    title : str
        What a reader who does not see it is told first; also what makes its ids its own.
    xs : sequence of int
        Where the values stand: rounds, or numbers of attackers.
    curves : sequence of Curve
        One value for each x.
    axis : str
        What x is.
    shares : bool
        Whether values are shares, drawn from 0 to 100%, instead of log odds.
    """
    known = [curve for curve in curves if any(v is not None for v in curve.values)]
    if not known or not xs:
        return ""
    low, high = _limits(known, shares)
    with open_sheet(HEIGHT, WIDTH) as sheet:
        axes = _upright(sheet, xs, low, high, shares=shares)
        for number, curve in enumerate(known):
            _draw(axes, xs, curve, number)
        _labels(sheet, axes, xs, known, (low, high))
        _ticks(sheet, axes, xs, low, axis)
        told = "; ".join(f"{visible(c.name)}: {_last(c, shares)}" for c in known)
        return sheet.svg(title, f"Last values: {told}")


def matrix_chart(
    title: str, names: Sequence[str], cells: Mapping[tuple[str, str], float | None], axis: str
) -> str:
    """Draw a matrix of shares: the row's attacker against the column's.

    Parameters
    ----------
    title : str
        What a reader who does not see it is told first; also what makes its ids its own.
    names : sequence of str
        Attackers, in the order of rows and columns.
    cells : mapping
        (row, column) to share; absent or None where they never met.
    axis : str
        What the shares are of.
    """
    if len(names) < 2 or not any(value is not None for value in cells.values()):
        return ""
    n = len(names)
    width, height = max(WIDTH, _SIDE + n * _CELL + 60), _HEAD + n * _CELL + 30
    with open_sheet(height, width) as sheet:
        axes = sheet.figure.add_axes(
            (_SIDE / width, 30 / height, n * _CELL / width, n * _CELL / height)
        )
        axes.set_xlim(0, n)
        axes.set_ylim(n, 0)
        axes.axis("off")
        for i, row in enumerate(names):
            sheet.write(axes, (0, i + 0.5), visible(row, limit=_NAME), shift=(-6, 0),
                        align="right", small=True)  # fmt: skip
            for j, column in enumerate(names):
                _cell(sheet, axes, (i, j), cells.get((row, column)), diagonal=i == j)
        for j, column in enumerate(names):
            level = j % 4  # names of neighbors stand on different lines
            axes.vlines([j + 0.5], [-0.06 - 0.42 * level], [0], color=LINE, linewidth=0.8,
                        clip_on=False)  # fmt: skip
            sheet.write(axes, (j + 0.5, 0), visible(column, limit=_NAME),
                        shift=(0, 12 + 19.5 * level), align="center", small=True)  # fmt: skip
        sheet.write(axes, (0, n), axis, shift=(0, -15), color=MUTED, small=True)
        told = "; ".join(
            f"{visible(a)} against {visible(b)} {percent(v)}"
            for (a, b), v in sorted(cells.items()) if v is not None
        )  # fmt: skip
        return sheet.svg(title, told)


def effect_chart(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Draw what trigger and content do for each attacker, with intervals, in percentage points.

    Parameters
    ----------
    title : str
        What a reader who does not see it is told first; also what makes its ids its own.
    rows : sequence of mapping
        ``attacker``, ``estimable``, and ``effects`` of ``trigger`` and ``content``, each with
        ``value``, ``low``, ``high``.

    Returns
    -------
    str
        An ``<svg>`` element, or an empty string where nothing is estimable.
    """
    known = [row for row in rows if row["estimable"]]
    if not known:
        return ""
    ends = [
        end for row in known for what in _EFFECTS for end in row["effects"][what].values()
        if end is not None
    ]  # fmt: skip
    reach = max(0.1, 1.08 * max(map(abs, ends)))
    with open_sheet(len(known) * 58 + FOOT + 12, WIDTH) as sheet:
        axes = sheet.axes(len(known), left=14, right=170, xlim=(-reach, reach))
        axes.axvline(0, color=INK, linewidth=1, zorder=1)
        for place, row in enumerate(known):
            sheet.left(axes, place - 0.34, visible(row["attacker"], limit=30), bold=True)
            for (what, (color, marker)), y in zip(
                _EFFECTS.items(), (place - 0.06, place + 0.24), strict=True
            ):
                effect = row["effects"][what]
                if effect["low"] is not None:
                    axes.hlines([y], [effect["low"]], [effect["high"]], color=color, linewidth=2)
                axes.plot([effect["value"]], [y], marker=marker, markersize=6.5, color=color,
                          linestyle="none", zorder=4, clip_on=False)  # fmt: skip
                sheet.right(axes, y, f"{what} {points(effect)}", x=1.03, color=INK)
        sheet.points_axis(axes, (-reach, reach), "effect on success, percentage points")
        told = "; ".join(
            f"{visible(row['attacker'])}: "
            + ", ".join(f"{what} {points(row['effects'][what])}" for what in _EFFECTS)
            for row in known
        )
        return sheet.svg(title, told)


# --------------------------------------------------------------------------------- internals


def _span(rank: Mapping[str, Any]) -> str:
    if rank["low"] is None:
        return f"{rank['value']}"
    if rank["low"] == rank["high"]:
        return f"{rank['value']} [{rank['low']:.0f}]"
    return f"{rank['value']} [{rank['low']:.0f}-{rank['high']:.0f}]"


def _limits(curves: Sequence[Curve], shares: bool) -> tuple[float, float]:
    if shares:
        return 0.0, 1.0
    values = [v for curve in curves for v in curve.values if v is not None]
    reach = max(0.1, max(map(abs, values)) * 1.1)
    return -reach, reach


def _upright(sheet: Sheet, xs: Sequence[int], low: float, high: float, *, shares: bool) -> Any:
    axes = sheet.figure.add_axes(
        (
            _LEFT / sheet.width, _BOTTOM / sheet.height,
            (sheet.width - _LEFT - _RIGHT) / sheet.width, 1 - (_BOTTOM + 10) / sheet.height,
        )
    )  # fmt: skip
    room = 0.04 * max(1, xs[-1] - xs[0])
    axes.set_xlim(xs[0] - room, xs[-1] + room)
    axes.set_ylim(low, high)
    axes.set_facecolor("none")
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.set_xticks([])
    if shares:
        ticks = [i / 5 for i in range(6)]
        names = [f"{100 * tick:.0f}%" for tick in ticks]
    else:
        step = _step(high)
        ticks = [i * step for i in range(-math.floor(high / step), math.floor(high / step) + 1)]
        names = [f"{t:+.3g}".replace("-", "\u2212") if t else "0" for t in ticks]
    axes.set_yticks(ticks, names)
    axes.tick_params(axis="y", colors=MUTED, labelsize=FONT - 1.5, length=0)
    axes.grid(axis="y", color=LINE, linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    return axes


def _step(reach: float) -> float:
    """A round step that gives two to five lines on each side of 0."""
    power = math.pow(10.0, math.floor(math.log10(reach)))
    return next(power * f for f in (0.2, 0.5, 1.0, 2.0) if reach / (power * f) < 5.01)


def _draw(axes: Any, xs: Sequence[int], curve: Curve, number: int) -> None:
    color, marker = SERIES[number % len(SERIES)]
    at = [i for i, value in enumerate(curve.values) if value is not None]
    line = [xs[i] for i in at]
    if curve.low:
        banded = [i for i in at if curve.low[i] is not None]
        if len(banded) > 1:
            axes.fill_between(
                [xs[i] for i in banded], [curve.low[i] for i in banded],
                [curve.high[i] for i in banded], color=color, alpha=0.12, linewidth=0, zorder=1,
            )  # fmt: skip
    axes.plot(
        line, [curve.values[i] for i in at], color=color, linewidth=1.7, zorder=4, clip_on=False,
        marker=marker, markersize=6, markevery=max(1, round(len(at) / 8)),
        linestyle="-" if number < len(SERIES) else (0, (1, 1.5)),
    )  # fmt: skip


def _labels(
    sheet: Sheet, axes: Any, xs: Sequence[int], curves: Sequence[Curve], ends: tuple[float, float]
) -> None:
    """Name every line right of its last point, moved apart so that no label covers another."""
    low, high = ends
    pixels = HEIGHT - _BOTTOM - 10
    last = [next(v for v in reversed(c.values) if v is not None) for c in curves]
    where = [max(i for i, v in enumerate(c.values) if v is not None) for c in curves]
    heights = apart([(v - low) / (high - low) * pixels for v in last], _GAP, 0, pixels)
    edge = xs[-1] + 0.07 * max(1, xs[-1] - xs[0])
    for number, (curve, value, height) in enumerate(zip(curves, last, heights, strict=True)):
        color, marker = SERIES[number % len(SERIES)]
        y = low + height / pixels * (high - low)
        axes.plot([xs[where[number]], edge], [value, y], color=MUTED, linewidth=0.7,
                  linestyle=(0, (1, 2)), clip_on=False, zorder=1)  # fmt: skip
        axes.plot([edge], [y], marker=marker, color=color, markersize=6, linestyle="none",
                  clip_on=False, zorder=5)  # fmt: skip
        sheet.write(axes, (edge, y), visible(curve.name, limit=_NAME), shift=(9, 0), small=True)


def _ticks(sheet: Sheet, axes: Any, xs: Sequence[int], low: float, axis: str) -> None:
    few = xs if len(xs) <= 8 else [xs[round(i * (len(xs) - 1) / 5)] for i in range(6)]
    for x in few:
        sheet.write(axes, (x, low), f"{x:,}", shift=(0, -13), align="center", small=True)
    sheet.write(axes, ((xs[0] + xs[-1]) / 2, low), axis, shift=(0, -32), align="center",
                color=MUTED, small=True)  # fmt: skip


def _last(curve: Curve, shares: bool) -> str:
    value = next(v for v in reversed(curve.values) if v is not None)
    return percent(value) if shares else f"{value:+.2f}"


def _cell(
    sheet: Sheet, axes: Any, at: tuple[int, int], value: float | None, *, diagonal: bool
) -> None:
    i, j = at
    axes.fill([j + 0.03, j + 0.97, j + 0.97, j + 0.03], [i + 0.03, i + 0.03, i + 0.97, i + 0.97],
              color=CORRECT, alpha=0.0 if value is None else 0.06 + 0.5 * value,
              linewidth=0)  # fmt: skip
    if diagonal:
        return
    text = "-" if value is None else f"{100 * value:.0f}"
    sheet.write(axes, (j + 0.5, i + 0.5), text, align="center", small=value is None)
