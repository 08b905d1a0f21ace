"""Charts as inline SVG: transitions, effects with intervals, and rates in the four conditions.

Every chart is one panel for one (rule, setting, attack, budget); the panels of a report share their
axes. Colors are from the Okabe-Ito palette, and form or hatching says the same again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragassay.report import grids
from ragassay.report.grids import Block, Cell
from ragassay.report.sheet import (
    ABSTAINED,
    CONTRAST,
    CORRECT,
    FONT,
    FOOT,
    HARM,
    INK,
    INTRODUCED,
    LINE,
    MUTED,
    NET,
    PAPER,
    PREVENTED,
    TARGET,
    open_sheet,
)
from ragassay.report.text import bracket, count, points, share, visible

_MAX_NAME = 30
MAX_PANELS = 24  # of all rules together; further blocks have their tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The three charts of one block; an empty string where there is nothing to draw."""

    anchor: tuple[str, str, int]  # setting, attack, budget
    title: str
    subtitle: str
    transitions: str
    effects: str
    rates: str


def panels(summary: Mapping[str, Any], scorer: str) -> list[Panel]:
    """Draw the charts of one rule, on axes shared by all rules, settings, attacks and budgets.

    Parameters
    ----------
    summary : mapping
        What ``ragassay.experiments.aligned.analyze`` returns.
    scorer : str
        One of ``summary["scorers"]``.

    Returns
    -------
    list of Panel
        In the order of the summary; one for each block with a defense, at most :func:`room`.
        Where there are more, those at the largest budgets.
    """
    every = [b for name in summary["scorers"] for b in grids.blocks(summary, name)]
    top, span = _top_level(every), _effect_span(every)
    return [
        Panel(
            anchor=(block.setting, block.attack, block.budget),
            title=block.title,
            subtitle=(
                f"undefended: {share(block.rate('p0'))} poisoned, {share(block.rate('c0'))} clean"
            ),
            transitions=transition_chart(block, top),
            effects=effect_chart(block, span),
            rates=rates_chart(block),
        )
        for block in drawn(summary, scorer)
    ]


def room(summary: Mapping[str, Any]) -> int:
    """How many blocks of one rule are drawn: all rules together share :data:`MAX_PANELS`."""
    return max(2, MAX_PANELS // len(summary["scorers"]))


def drawn(summary: Mapping[str, Any], scorer: str) -> list[Block]:
    """The blocks of a rule that get charts: those with a defense, the largest budgets first."""
    found = [b for b in grids.blocks(summary, scorer) if b.defended or b.rate("p0")]
    if not summary["defenses"] and len(found) > 1:
        return []  # the overview draws them all
    first = sorted(range(len(found)), key=lambda i: (-found[i].budget, i))[: room(summary)]
    return [found[i] for i in sorted(first)]


# ---------------------------------------------------------------------------------- the charts


def transition_chart(block: Block, top: float = 1.0) -> str:
    """Draw what each defense prevents and introduces, sorted by the level that remains.

    From the undefended level (dashed) the green bar leads back by what is prevented, the
    hatched orange bar forward by what is introduced, to the level after defense (diamond).

    Parameters
    ----------
    block : Block
        One rule, attack and budget.
    top : float
        End of the horizontal axis, as a fraction of the queries.

    Returns
    -------
    str
        An ``<svg>`` element, or an empty string where no cell is estimable.
    """
    cells = sorted(_drawable(block), key=lambda c: (c["rates"]["p1"]["value"], c["defense"]))
    if not cells:
        return ""
    with open_sheet(len(cells) * 58 + FOOT + 8) as sheet:
        axes = sheet.axes(len(cells), left=12, right=50, xlim=(0, top))
        _transition_marks(axes, cells)
        for row, cell in enumerate(cells):
            before, after = cell["rates"]["p0"], cell["rates"]["p1"]
            sheet.left(axes, row - 0.29, visible(cell["defense"], limit=_MAX_NAME), bold=True)
            levels = f"{before['count']} -> {after['count']} of {after['n']}"
            sheet.right(axes, row - 0.29, levels, x=1, shift=46)
            lost, won = cell["effects"]["P"]["count"], cell["effects"]["J"]["count"]
            _after(axes, before["value"], row + 0.03, f"\u2212{lost}", 5)
            _after(axes, after["value"], row + 0.27, f"+{won}", 10)
        sheet.percent_axis(axes, top, "share of queries whose answer is target-positive")
        told = "; ".join(_transition_text(cell) for cell in cells)
        return sheet.svg(_title("Transitions", block), told)


def effect_chart(block: Block, span: tuple[float, float] = (-1.0, 1.0)) -> str:
    """Draw N, H and Gamma of each defense with their intervals.

    Parameters
    ----------
    block : Block
        One rule, attack and budget.
    span : tuple of float
        Ends of the horizontal axis, in fractions of the queries.
    """
    cells = sorted(_drawable(block), key=lambda c: (-c["effects"]["N"]["value"], c["defense"]))
    if not cells:
        return ""
    with open_sheet(len(cells) * 74 + FOOT + 8) as sheet:
        axes = sheet.axes(len(cells), left=14, right=166, xlim=span)
        rows = range(len(cells))
        axes.vlines([0] * len(cells), [r - 0.22 for r in rows], [r + 0.46 for r in rows],
                    color=INK, linewidth=1)  # fmt: skip
        for step, (name, marker, color) in enumerate(
            (("N", "o", NET), ("H", "s", HARM), ("Gamma", "^", CONTRAST))
        ):
            ys = [row - 0.10 + 0.215 * step for row in rows]
            _estimates(axes, ys, [cell["effects"][name] for cell in cells], marker, color)
            for y, cell in zip(ys, cells, strict=True):
                effect = cell["effects"][name]
                symbol = "\u0393" if name == "Gamma" else name
                text = f"{symbol} {points(effect)} {_interval(effect)}"
                sheet.right(axes, y, text, x=1.03, color=INK)
        for row, cell in enumerate(cells):
            sheet.left(axes, row - 0.36, visible(cell["defense"], limit=_MAX_NAME), bold=True)
        sheet.points_axis(axes, span, "percentage points, with interval")
        told = "; ".join(_effect_text(cell) for cell in cells)
        return sheet.svg(_title("N, H and Gamma", block), told)


def rates_chart(block: Block) -> str:
    """Draw target-positive, correct and abstained rates on clean and poisoned retrieval."""
    cells = [cell for cell in block.cells if cell["estimable"]]
    if not cells:
        return ""
    with open_sheet(len(cells) * 62 + FOOT + 8) as sheet:
        axes = sheet.axes(len(cells), left=80, right=20, xlim=(0, 1))
        lines = []
        for row, cell in enumerate(cells):
            bare = cell["defense"] == grids.UNDEFENDED
            name = grids.NO_DEFENSE if bare else visible(cell["defense"], limit=_MAX_NAME)
            sheet.left(axes, row - 0.34, name, bold=True, x=-74)
            for step, word in enumerate(("clean", "poisoned")):
                y = row - 0.04 + 0.29 * step
                sheet.left(axes, y, word, x=-74, color=MUTED)
                lines.append((y, cell, f"{word[0]}{0 if bare else 1}"))
        _rate_marks(axes, lines)
        sheet.percent_axis(axes, 1.0, "share of queries")
        told = "; ".join(_rates_text(cell, condition) for _, cell, condition in lines)
        return sheet.svg(_title("Rates", block), told)


def _transition_marks(axes: Any, cells: Sequence[Cell]) -> None:
    rows = range(len(cells))
    before, after, clean = (
        [cell["rates"][c]["value"] for cell in cells] for c in ("p0", "p1", "c0")
    )
    prevented, introduced = ([cell["effects"][e]["value"] for cell in cells] for e in ("P", "J"))
    held = [b - p for b, p in zip(before, prevented, strict=True)]
    axes.barh([r + 0.03 for r in rows], prevented, left=held, height=0.2, color=PREVENTED)
    axes.barh(
        [r + 0.27 for r in rows], introduced, left=held, height=0.2, facecolor=INTRODUCED,
        hatch="////", edgecolor=INK, linewidth=0,
    )  # fmt: skip
    for x, dashes in ((before, (0, (4, 2))), (clean, (0, (1, 2)))):
        axes.vlines(
            x, [r - 0.14 for r in rows], [r + 0.44 for r in rows], color=INK, linestyle=dashes,
            linewidth=1.4, clip_on=False, zorder=3,
        )  # fmt: skip
    axes.plot(
        after, [r + 0.27 for r in rows], marker="D", markersize=8, markerfacecolor=PAPER,
        markeredgecolor=INK, markeredgewidth=1.6, linestyle="none", zorder=5, clip_on=False,
    )  # fmt: skip


def _after(axes: Any, x: float, y: float, text: str, pixels: float) -> None:
    """Write a count right of what it counts, on paper so that no line crosses it."""
    axes.annotate(
        text, (x, y), xytext=(pixels, 0), textcoords="offset points", ha="left", va="center",
        fontsize=FONT - 0.5, color=INK, annotation_clip=False, zorder=4,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.5},
    )  # fmt: skip


def _estimates(
    axes: Any, ys: Sequence[float], effects: Sequence[Mapping[str, Any]], marker: str, color: str
) -> None:
    """Draw estimates with their intervals; one without an interval is hollow."""
    bounded = [(y, e) for y, e in zip(ys, effects, strict=True) if e["low"] is not None]
    axes.hlines(
        [y for y, _ in bounded], [e["low"] for _, e in bounded], [e["high"] for _, e in bounded],
        color=color, linewidth=2,
    )  # fmt: skip
    bare = [(y, e) for y, e in zip(ys, effects, strict=True) if e["low"] is None]
    for some, fill in ((bounded, color), (bare, PAPER)):
        axes.plot(
            [e["value"] for _, e in some], [y for y, _ in some], marker=marker, markersize=7,
            color=color, linestyle="none", markerfacecolor=fill, zorder=4, clip_on=False,
        )  # fmt: skip


def _rate_marks(axes: Any, lines: Sequence[tuple[float, Cell, str]]) -> None:
    ys = [y for y, _, _ in lines]
    axes.hlines(ys, [0] * len(ys), [1] * len(ys), color=LINE, linewidth=0.8, zorder=1)
    for what, marker, size, color, fill in (
        ("abstained", "x", 8, ABSTAINED, ABSTAINED),
        ("correct", "o", 9, CORRECT, PAPER),
        ("rates", "D", 7, TARGET, TARGET),
    ):
        known = [(cell[what][c]["value"], y) for y, cell, c in lines if cell[what][c]["n"]]
        axes.plot(
            [x for x, _ in known], [y for _, y in known], marker=marker, markersize=size,
            color=color, markerfacecolor=fill, markeredgewidth=2, linestyle="none", zorder=3,
            clip_on=False,
        )  # fmt: skip


def _rates_text(cell: Cell, condition: str) -> str:
    bare = cell["defense"] == grids.UNDEFENDED
    name = grids.NO_DEFENSE if bare else visible(cell["defense"])
    return (
        f"{name} {'clean' if condition[0] == 'c' else 'poisoned'}: target-positive "
        f"{count(cell['rates'][condition])}, correct {count(cell['correct'][condition])}, "
        f"abstained {count(cell['abstained'][condition])}"
    )


def _title(kind: str, block: Block) -> str:
    return f"{kind} under {block.title}, rule {visible(block.scorer)}"


def _transition_text(cell: Cell) -> str:
    rates, effect = cell["rates"], cell["effects"]
    return (
        f"{visible(cell['defense'])}: {count(rates['p0'])} before, {effect['P']['count']} "
        f"prevented, {effect['J']['count']} introduced, {count(rates['p1'])} after"
    )


def _effect_text(cell: Cell) -> str:
    effect = cell["effects"]
    figures = ", ".join(
        f"{e} {points(effect[e])} {bracket(effect[e])}" for e in ("N", "H", "Gamma")
    )
    return f"{visible(cell['defense'])}: {figures}"


def _interval(effect: Mapping[str, Any]) -> str:
    return bracket(effect) if effect["low"] is not None else "[no interval]"


# ------------------------------------------------------------------------------------ the axes


def _drawable(block: Block) -> list[Cell]:
    return [cell for cell in block.defended if cell["estimable"]]


def _top_level(every: Sequence[Block]) -> float:
    """End of the transition axis: the largest level or bar, rounded up to a tenth."""
    values = [0.1]
    for block in every:
        for cell in _drawable(block):
            rates, effect = cell["rates"], cell["effects"]
            held = rates["p0"]["value"] - effect["P"]["value"]
            values += [rates["p0"]["value"], held + effect["J"]["value"], rates["c0"]["value"]]
    return min(1.0, math.ceil(max(values) * 10 - 1e-9) / 10)


def _effect_span(every: Sequence[Block]) -> tuple[float, float]:
    """Ends of the effect axis: what the intervals need, rounded outwards to a tenth."""
    values = [-0.05, 0.05]
    for block in every:
        for cell in _drawable(block):
            for name in ("N", "H", "Gamma"):
                effect = cell["effects"][name]
                values += [v for k in ("low", "value", "high") if (v := effect[k]) is not None]
    low, high = math.floor(min(values) * 10 + 1e-9) / 10, math.ceil(max(values) * 10 - 1e-9) / 10
    return low, high
