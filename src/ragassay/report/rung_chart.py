"""A filter over the rungs of a control ladder: what it misses, beside what is retrieved at all.

Both lines differ in color, marker and dash, and are named where they end. Bands are the intervals
of the shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report.sheet import CORRECT, MUTED, TARGET, open_sheet
from ragassay.report.slopes import apart
from ragassay.report.text import share, visible

HEIGHT, WIDTH = 236, 560
_LEFT, _RIGHT, _BOTTOM = 42, 118, 48
_RUNG = 74  # the least width of a rung: the longest filler's name, and a gap
_GAP = 15.5
_LINES = (
    ("fnr", "missed", TARGET, "s", "-"),
    ("retrieval", "retrieved", CORRECT, "o", (0, (4, 2))),
)

Rate = Mapping[str, Any]


def rung_chart(title: str, points: Sequence[tuple[tuple[str, str], Rate, Rate]]) -> str:
    """Draw the miss rate and retrieval survival over the rungs.

    Parameters
    ----------
    title : str
        What a reader who does not see it is told first; also what makes its ids its own.
    points : sequence of ((str, str), rate, rate)
        For each rung its label on two lines, the miss rate, and the share of crafted passages
        that are retrieved.

    Returns
    -------
    str
        An ``<svg>`` element, or an empty string where no miss rate has a denominator.
    """
    if not any(missed["n"] for _, missed, _ in points):
        return ""
    width = max(WIDTH, _LEFT + _RIGHT + _RUNG * len(points))
    with open_sheet(HEIGHT, width) as sheet:
        axes = sheet.upright_axes(
            left=_LEFT, right=_RIGHT, bottom=_BOTTOM, xlim=(-0.3, len(points) - 0.6), top=1.0
        )
        for place, (label, _, _) in enumerate(points):
            axes.axvline(place, color=MUTED, linewidth=0.5, alpha=0.4, zorder=0)
            for line, text in enumerate(label):
                sheet.write(
                    axes, (place, 0), visible(text, limit=12), shift=(0, -13 - 14 * line),
                    align="center", color=MUTED, small=True,
                )  # fmt: skip
        ends = []
        for number, (_, name, color, marker, dash) in enumerate(_LINES):
            shown = [(x, rates[number]) for x, (_, *rates) in enumerate(points)]
            shown = [(x, rate) for x, rate in shown if rate["n"]]
            if not shown:
                continue
            xs = [x for x, _ in shown]
            low = [_or(rate["low"], rate["value"]) for _, rate in shown]
            high = [_or(rate["high"], rate["value"]) for _, rate in shown]
            axes.fill_between(xs, low, high, color=color, alpha=0.13, linewidth=0, zorder=1)
            axes.plot(
                xs, [rate["value"] for _, rate in shown], color=color, marker=marker,
                markersize=6.5, linewidth=1.7, linestyle=dash, zorder=4 - number, clip_on=False,
            )  # fmt: skip
            ends.append((name, color, marker, shown[-1][0], shown[-1][1]["value"]))
        _names(sheet, axes, len(points), ends)
        return sheet.svg(title, "; ".join(_told(label, m, r) for label, m, r in points))


def _names(sheet: Any, axes: Any, rungs: int, ends: Sequence[tuple[Any, ...]]) -> None:
    pixels, edge = HEIGHT - _BOTTOM - 10, rungs - 0.6
    heights = apart([end[-1] * pixels for end in ends], _GAP, 0, pixels)
    for (name, color, marker, x, value), height in zip(ends, heights, strict=True):
        axes.plot(
            [x, edge], [value, height / pixels], color=MUTED, linewidth=0.7,
            linestyle=(0, (1, 2)), clip_on=False, zorder=1,
        )  # fmt: skip
        axes.plot(
            [edge], [height / pixels], marker=marker, color=color, markersize=6,
            linestyle="none", clip_on=False, zorder=5,
        )  # fmt: skip
        text = f"{name} {100 * value:.0f}%"
        sheet.write(axes, (edge, height / pixels), text, shift=(9, 0), small=True)


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def _told(label: tuple[str, str], missed: Rate, retrieved: Rate) -> str:
    name = " ".join(filter(None, label))
    return (
        f"{visible(name)}: missed {share(missed, interval=True)}, "
        f"retrieved {share(retrieved, interval=True)}"
    )
