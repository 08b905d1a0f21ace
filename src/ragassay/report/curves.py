"""The interception curve: what detectors catch of the target-positive answers, by poison budget.

One threshold serves all budgets of a line. The band around a line is the Wilson interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report.sheet import FONT, MUTED, SERIES, Sheet, open_sheet
from ragassay.report.slopes import apart
from ragassay.report.text import count, share, visible

HEIGHT, WIDTH = 300, 420
_LEFT, _RIGHT, _BOTTOM = 40, 156, 62
_GAP = 15.5  # pixels between two direct labels
_MAX_NAME = 19

Rate = Mapping[str, Any]
Line = Mapping[int, Rate]  # by budget


def interception_chart(title: str, lines: Mapping[str, Line]) -> str:
    """Draw a line for each detector over the budgets.

    Parameters
    ----------
    title : str
        What a reader who does not see it is told first; also what makes its ids its own.
    lines : mapping of str to mapping of int to rate
        For each detector and budget the rate of flagged ones among the target-positive answers.

    Returns
    -------
    str
        An ``<svg>`` element, or an empty string where no rate has a denominator.
    """
    drawn = {
        name: {budget: rate for budget, rate in line.items() if rate["n"]}
        for name, line in lines.items()
    }
    drawn = {name: line for name, line in drawn.items() if line}
    if not drawn:
        return ""
    budgets = sorted({budget for line in drawn.values() for budget in line})
    with open_sheet(HEIGHT, WIDTH) as sheet:
        axes = sheet.upright_axes(
            left=_LEFT, right=_RIGHT, bottom=_BOTTOM, xlim=(-0.25, len(budgets) - 0.75), top=1.0
        )
        for place, budget in enumerate(budgets):
            axes.axvline(place, color=MUTED, linewidth=0.5, alpha=0.4, zorder=0)
            sheet.write(axes, (place, 0), str(budget), shift=(0, -13), align="center")
            sheet.write(
                axes, (place, 0), _denominator(drawn, budget), shift=(0, -28), align="center",
                color=MUTED, small=True,
            )  # fmt: skip
        sheet.write(
            axes, ((len(budgets) - 1) / 2, 0), "poison budget, target-positive answers",
            shift=(0, -47), align="center", color=MUTED, small=True,
        )  # fmt: skip
        for number, line in enumerate(drawn.values()):
            _draw(axes, budgets, line, number, len(drawn))
        _direct_labels(sheet, axes, budgets, drawn)
        return sheet.svg(title, "; ".join(_told(name, line) for name, line in drawn.items()))


def _shift(number: int, lines: int) -> float:
    """Lines stand a little apart, so that those of equal height do not cover each other."""
    return (number - (lines - 1) / 2) * min(0.03, 0.2 / max(1, lines))


def _draw(axes: Any, budgets: Sequence[int], line: Line, number: int, lines: int) -> None:
    color, marker = SERIES[number % len(SERIES)]
    shift = _shift(number, lines)
    xs = [budgets.index(budget) + shift for budget in sorted(line)]
    rates = [line[budget] for budget in sorted(line)]
    low, high = [rate["low"] for rate in rates], [rate["high"] for rate in rates]
    if len(xs) > 1:
        axes.fill_between(xs, low, high, color=color, alpha=0.13, linewidth=0, zorder=1)
    else:
        axes.vlines(xs, low, high, color=color, linewidth=1.4, zorder=2)
    axes.plot(
        xs, [rate["value"] for rate in rates], color=color, marker=marker, markersize=6.5,
        linewidth=1.7, linestyle="-" if number < len(SERIES) else (0, (1, 1.5)), zorder=4,
        clip_on=False,
    )  # fmt: skip


def _direct_labels(
    sheet: Sheet, axes: Any, budgets: Sequence[int], drawn: Mapping[str, Line]
) -> None:
    """Name every line right of its last point, moved apart so that no label covers another."""
    pixels = HEIGHT - _BOTTOM - 10
    last = [line[max(line)]["value"] for line in drawn.values()]
    heights = apart([end * pixels for end in last], _GAP, 0, pixels)
    edge = len(budgets) - 0.75
    for number, ((name, line), end, height) in enumerate(
        zip(drawn.items(), last, heights, strict=True)
    ):
        color, marker = SERIES[number % len(SERIES)]
        x = budgets.index(max(line)) + _shift(number, len(drawn))
        axes.plot(
            [x, edge], [end, height / pixels], color=MUTED, linewidth=0.7, linestyle=(0, (1, 2)),
            clip_on=False, zorder=1,
        )  # fmt: skip
        axes.plot(
            [edge], [height / pixels], marker=marker, color=color, markersize=6, linestyle="none",
            clip_on=False, zorder=5,
        )  # fmt: skip
        text = f"{visible(name, limit=_MAX_NAME)} {count(line[max(line)])}"
        sheet.write(axes, (edge, height / pixels), text, shift=(FONT * 0.7, 0), small=True)


def _denominator(drawn: Mapping[str, Line], budget: int) -> str:
    """How many answers a share at a budget is of; a span where detectors differ."""
    numbers = sorted({line[budget]["n"] for line in drawn.values() if budget in line})
    return "of " + "-".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))


def _told(name: str, line: Line) -> str:
    told = ", ".join(f"p = {b} {share(line[b], interval=True)}" for b in sorted(line))
    return f"{visible(name)}: {told}"
