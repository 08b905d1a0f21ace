"""Bars of shares with their intervals, each with its own name and count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragassay.report.sheet import CORRECT, FOOT, INK, LINE, open_sheet
from ragassay.report.text import share


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A named rate: ``count``, ``n``, ``value``, ``low``, ``high``."""

    name: str
    rate: Mapping[str, Any]


def bar_chart(title: str, bars: Sequence[Bar], axis: str) -> str:
    """Draw a horizontal bar for each rate, from the top, on an axis from 0 to 100%.

    Parameters
    ----------
    title : str
        What a reader who does not see it is told first; also what makes its ids its own.
    bars : sequence of Bar
        Those without a denominator have no bar and say so.
    axis : str
        What the axis shows.

    Returns
    -------
    str
        An ``<svg>`` element, or an empty string without any bar.
    """
    if not bars:
        return ""
    with open_sheet(len(bars) * 40 + FOOT + 8) as sheet:
        axes = sheet.axes(len(bars), left=16, right=56, xlim=(0, 1))
        for y, bar in enumerate(bars):
            sheet.left(axes, y - 0.26, bar.name)
            axes.hlines([y + 0.14], [0], [1], color=LINE, linewidth=0.8, zorder=1)
            rate = bar.rate
            sheet.right(axes, y + 0.14, f"{rate['count']}/{rate['n']}", x=1.02, color=INK)
            if not rate["n"]:
                continue
            axes.barh([y + 0.14], [rate["value"]], height=0.34, color=CORRECT, zorder=2)
            axes.hlines([y + 0.14], [rate["low"]], [rate["high"]], color=INK, linewidth=1.4,
                        zorder=3)  # fmt: skip
        sheet.percent_axis(axes, 1.0, axis)
        told = "; ".join(f"{bar.name}: {share(bar.rate, interval=True)}" for bar in bars)
        return sheet.svg(title, told)
