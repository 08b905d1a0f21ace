"""Charts of a dose run: outcomes over the applied dose, and what became of correct answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragassay.report.sheet import (
    ABSTAINED,
    CORRECT,
    FONT,
    FOOT,
    INK,
    MUTED,
    PAPER,
    SERIES,
    TARGET,
    Sheet,
    open_sheet,
)
from ragassay.report.slopes import apart
from ragassay.report.text import count, share, visible

HEIGHT, WIDTH = 300, 440
_LEFT, _RIGHT, _BOTTOM = 40, 168, 46
_GAP = 15.5  # pixels between two direct labels
_MAX_NAME = 20
OUTCOMES = (("correct", CORRECT), ("abstained", ABSTAINED), ("wrong", TARGET))

Rate = Mapping[str, Any]
Line = Mapping[int, Rate]  # by applied dose


def dose_chart(title: str, lines: Mapping[str, Line], axis: str) -> str:
    """Draw a line for each rule over the applied dose, with its interval as a band.

    Parameters
    ----------
    title : str
        What a reader who does not see it is told first; also what makes its ids its own.
    lines : mapping of str to mapping of int to rate
        For each rule and dose a rate; those without a denominator are left out.
    axis : str
        What the horizontal axis shows.

    Returns
    -------
    str
        An ``<svg>`` element, or an empty string where no rate has a denominator.
    """
    drawn = {
        name: {dose: rate for dose, rate in line.items() if rate["n"]}
        for name, line in lines.items()
    }
    drawn = {name: line for name, line in drawn.items() if line}
    if not drawn:
        return ""
    last = max(dose for line in drawn.values() for dose in line)
    with open_sheet(HEIGHT, WIDTH) as sheet:
        axes = sheet.upright_axes(
            left=_LEFT, right=_RIGHT, bottom=_BOTTOM, xlim=(-0.25, last + 0.25), top=1.0
        )
        for dose in range(last + 1):
            axes.axvline(dose, color=MUTED, linewidth=0.5, alpha=0.4, zorder=0)
            sheet.write(axes, (dose, 0), str(dose), shift=(0, -13), align="center")
        sheet.write(
            axes, (last / 2, 0), axis, shift=(0, -32), align="center", color=MUTED, small=True
        )
        for number, line in enumerate(drawn.values()):
            _draw(axes, line, number, len(drawn))
        _direct_labels(sheet, axes, last, drawn)
        return sheet.svg(title, "; ".join(_told(name, line) for name, line in drawn.items()))


def _shift(number: int, lines: int) -> float:
    """Lines stand a little apart, so that those of equal height do not cover each other."""
    return (number - (lines - 1) / 2) * min(0.04, 0.25 / max(1, lines))


def _draw(axes: Any, line: Line, number: int, lines: int) -> None:
    color, marker = SERIES[number % len(SERIES)]
    shift = _shift(number, lines)
    bounded = [(d + shift, r) for d, r in sorted(line.items()) if r["low"] is not None]
    axes.vlines(
        [x for x, _ in bounded], [r["low"] for _, r in bounded], [r["high"] for _, r in bounded],
        color=color, linewidth=1.2, alpha=0.75, zorder=2,
    )  # fmt: skip
    if len(bounded) > 1:
        axes.fill_between(
            [x for x, _ in bounded], [r["low"] for _, r in bounded],
            [r["high"] for _, r in bounded], color=color, alpha=0.08, linewidth=0, zorder=1,
        )  # fmt: skip
    axes.plot(
        [dose + shift for dose in sorted(line)], [line[dose]["value"] for dose in sorted(line)],
        color=color, marker=marker, markersize=6.5, linewidth=1.7, zorder=4, clip_on=False,
        linestyle="-" if number < len(SERIES) else (0, (1, 1.5)),
    )  # fmt: skip


def _direct_labels(sheet: Sheet, axes: Any, last: int, drawn: Mapping[str, Line]) -> None:
    """Name every line right of its last point, moved apart so that no label covers another."""
    pixels = HEIGHT - _BOTTOM - 10
    ends = [line[max(line)]["value"] for line in drawn.values()]
    heights = apart([end * pixels for end in ends], _GAP, 0, pixels)
    edge = last + 0.25
    for number, ((name, line), end, height) in enumerate(
        zip(drawn.items(), ends, heights, strict=True)
    ):
        color, marker = SERIES[number % len(SERIES)]
        axes.plot(
            [max(line) + _shift(number, len(drawn)), edge], [end, height / pixels], color=MUTED,
            linewidth=0.7, linestyle=(0, (1, 2)), clip_on=False, zorder=1,
        )  # fmt: skip
        axes.plot(
            [edge], [height / pixels], marker=marker, color=color, markersize=6, linestyle="none",
            clip_on=False, zorder=5,
        )  # fmt: skip
        text = f"{visible(name, limit=_MAX_NAME)} {count(line[max(line)])}"
        sheet.write(axes, (edge, height / pixels), text, shift=(FONT * 0.7, 0), small=True)


def _told(name: str, line: Line) -> str:
    told = ", ".join(f"dose {d} {share(line[d], interval=True)}" for d in sorted(line))
    return f"{visible(name)}: {told}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A named bar of three outcomes that add up."""

    name: str
    correct: int
    abstained: int
    wrong: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.correct + self.abstained + self.wrong


def stacked_chart(title: str, stacks: Sequence[Stack], axis: str) -> str:
    """Draw a bar for each stack: correct, abstained and wrong as shares of its total.

    Returns
    -------
    str
        An ``<svg>`` element, or an empty string where every stack is empty.
    """
    drawn = [stack for stack in stacks if stack.total]
    if not drawn:
        return ""
    with open_sheet(len(drawn) * 42 + FOOT + 30, WIDTH) as sheet:
        axes = sheet.axes(len(drawn) + 1, left=16, right=64, xlim=(0, 1))
        for place, (name, color) in enumerate(OUTCOMES):
            x = place * 0.32
            axes.barh([0], [0.035], left=[x], height=0.26, color=color, zorder=3)
            sheet.write(axes, (x + 0.05, 0), name, small=True)
        for row, stack in enumerate(drawn, start=1):
            sheet.left(axes, row - 0.28, visible(stack.name, limit=60))
            at = 0.0
            for name, color in OUTCOMES:
                number = getattr(stack, name)
                width = number / stack.total
                axes.barh([row + 0.14], [width], left=[at], height=0.36, color=color, zorder=2)
                if width > 0.07:
                    axes.annotate(
                        str(number), (at + width / 2, row + 0.14), ha="center", va="center",
                        color=PAPER, fontsize=FONT - 2, zorder=4,
                    )  # fmt: skip
                at += width
            sheet.right(axes, row + 0.14, f"of {stack.total}", x=1.02, color=INK)
        sheet.percent_axis(axes, 1.0, axis)
        told = "; ".join(
            f"{visible(s.name)}: {s.correct} correct, {s.abstained} abstained, {s.wrong} wrong "
            f"of {s.total}"
            for s in drawn
        )
        return sheet.svg(title, told)
