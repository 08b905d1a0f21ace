"""Charts as inline SVG: transitions, effects with intervals, and rates in the four conditions.

Every chart is one panel for one (rule, attack, budget); the panels of a report share their
axes. Colors are from the Okabe-Ito palette, and form or hatching says the same again. The
drawing is object-oriented (no pyplot, no global state) and gives equal bytes for equal data.

Labels that come from data never reach matplotlib: a placeholder of equal length is drawn and
replaced, escaped, afterwards. A label can therefore hold any script, mathematics or markup.
"""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ragassay.report import grids
from ragassay.report.grids import Block, Cell
from ragassay.report.text import bracket, count, points, share, visible

WIDTH = 480
_FONT = 12.5
_FOOT = 40
_MAX_NAME = 34
_TARGET, _CORRECT, _ABSTAINED = "#d55e00", "#0072b2", "#7a7a7a"
_PREVENTED, _INTRODUCED = "#009e73", "#e69f00"
_NET, _HARM, _CONTRAST = "#0072b2", "#d55e00", "#5a5a5a"
_INK, _MUTED, _LINE, _PAPER = "#1b1b1b", "#6b6b6b", "#dcdcdc", "#fefefe"
# Colors that follow the page's light or dark scheme; the hex value is the fallback.
_VARIABLES = {
    _INK: "ink", _MUTED: "muted", _LINE: "line", _PAPER: "paper", _CONTRAST: "contrast",
    _TARGET: "target", _CORRECT: "correct", _ABSTAINED: "abstained",
    _PREVENTED: "prevented", _INTRODUCED: "introduced",
}  # fmt: skip
_STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "ragassay", "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"], "font.size": _FONT, "text.parse_math": False,
    "axes.linewidth": 0.8, "hatch.linewidth": 1.2, "hatch.color": _INK, "path.simplify": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The three charts of one block; an empty string where there is nothing to draw."""

    title: str
    subtitle: str
    transitions: str
    effects: str
    rates: str


def panels(summary: Mapping[str, Any], scorer: str) -> list[Panel]:
    """Draw the charts of one rule, on axes shared by all rules, attacks and budgets.

    Parameters
    ----------
    summary : mapping
        What ``ragassay.experiments.aligned.analyze`` returns.
    scorer : str
        One of ``summary["scorers"]``.

    Returns
    -------
    list of Panel
        One for each attack and budget, in the order of the summary.
    """
    every = [b for name in summary["scorers"] for b in grids.blocks(summary, name)]
    top, span = _top_level(every), _effect_span(every)
    return [
        Panel(
            title=block.title,
            subtitle=(
                f"undefended: {share(block.rate('p0'))} poisoned, {share(block.rate('c0'))} clean"
            ),
            transitions=transition_chart(block, top),
            effects=effect_chart(block, span),
            rates=rates_chart(block),
        )
        for block in grids.blocks(summary, scorer)
    ]


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
    clean = block.rate("c0")
    with _sheet(len(cells) * 46 + _FOOT + 8) as sheet:
        axes = sheet.axes(len(cells), left=14, right=14, xlim=(0, top))
        for row, cell in enumerate(cells):
            _transition_row(sheet, axes, row, cell)
        if clean:
            axes.axvline(clean["value"], color=_MUTED, linestyle=(0, (1, 2)), linewidth=1.2)
        sheet.percent_axis(axes, top, "share of queries whose answer is target-positive")
        told = "; ".join(_transition_text(cell) for cell in cells)
        return sheet.svg(f"Transitions under {block.title}", told)


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
    with _sheet(len(cells) * 74 + _FOOT + 8) as sheet:
        axes = sheet.axes(len(cells), left=14, right=158, xlim=span)
        axes.axvline(0, color=_INK, linewidth=1)
        for row, cell in enumerate(cells):
            sheet.left(axes, row - 0.36, visible(cell["defense"], limit=_MAX_NAME), bold=True)
            for step, (name, marker, color) in enumerate(
                (("N", "o", _NET), ("H", "s", _HARM), ("Gamma", "^", _CONTRAST))
            ):
                _estimate(axes, row - 0.10 + 0.215 * step, cell["effects"][name], marker, color)
                text = f"{name} {points(cell['effects'][name])} {_interval(cell['effects'][name])}"
                sheet.right(axes, row - 0.10 + 0.215 * step, text, x=1.03, color=_INK)
        sheet.points_axis(axes, span, "percentage points, with interval")
        told = "; ".join(_effect_text(cell) for cell in cells)
        return sheet.svg(f"N, H and Gamma under {block.title}", told)


def rates_chart(block: Block) -> str:
    """Draw target-positive, correct and abstained rates on clean and poisoned retrieval."""
    cells = [cell for cell in block.cells if cell["estimable"]]
    if not cells:
        return ""
    with _sheet(len(cells) * 62 + _FOOT + 8) as sheet:
        axes = sheet.axes(len(cells), left=76, right=14, xlim=(0, 1))
        told = []
        for row, cell in enumerate(cells):
            bare = cell["defense"] == grids.UNDEFENDED
            name = grids.NO_DEFENSE if bare else visible(cell["defense"], limit=_MAX_NAME)
            sheet.left(axes, row - 0.34, name, bold=True, x=-62)
            for step, (word, condition) in enumerate(
                (("clean", "c0"), ("poisoned", "p0")) if bare else (("clean", "c1"), ("poisoned", "p1"))
            ):
                y = row - 0.04 + 0.29 * step
                sheet.left(axes, y, word, x=-62, color=_MUTED)
                told.append(_rates_row(axes, y, cell, condition, f"{name} {word}"))
        sheet.percent_axis(axes, 1.0, "share of queries")
        return sheet.svg(f"Rates under {block.title}", "; ".join(told))


def _transition_row(sheet: _Sheet, axes: Any, row: int, cell: Cell) -> None:
    before, after = cell["rates"]["p0"], cell["rates"]["p1"]
    prevented, introduced = (cell["effects"][e] for e in ("P", "J"))
    held = before["value"] - prevented["value"]
    sheet.left(axes, row - 0.30, visible(cell["defense"], limit=_MAX_NAME), bold=True)
    sheet.right(axes, row - 0.30, f"{before['count']} -> {after['count']} of {after['n']}")
    axes.barh(row + 0.05, prevented["value"], left=held, height=0.2, color=_PREVENTED)
    axes.barh(
        row + 0.25, introduced["value"], left=held, height=0.2, facecolor=_INTRODUCED,
        hatch="////", edgecolor=_INK, linewidth=0,
    )  # fmt: skip
    x = before["value"]
    axes.plot([x, x], [row - 0.14, row + 0.44], color=_INK, linestyle=(0, (4, 2)), linewidth=1.3)
    axes.plot(
        [after["value"]], [row + 0.15], marker="D", markersize=8, markerfacecolor=_PAPER,
        markeredgecolor=_INK, markeredgewidth=1.6, linestyle="none", zorder=5, clip_on=False,
    )  # fmt: skip
    limit = axes.get_xlim()[1]
    _beside(axes, held, row + 0.05, f"\u2212{prevented['count']}", limit, before_first=True)
    _beside(axes, held + introduced["value"], row + 0.25, f"+{introduced['count']}", limit)


def _beside(
    axes: Any, x: float, y: float, text: str, limit: float, *, before_first: bool = False
) -> None:
    """Put a count left or right of a bar, on the other side where the axis ends."""
    left = x > 0.1 * limit if before_first else x > 0.9 * limit
    axes.annotate(
        text, (x, y), xytext=(-9 if left else 9, 0), textcoords="offset points",
        ha="right" if left else "left", va="center", fontsize=_FONT - 0.5, color=_INK,
    )  # fmt: skip


def _estimate(axes: Any, y: float, effect: Mapping[str, Any], marker: str, color: str) -> None:
    if effect["low"] is not None:
        axes.plot([effect["low"], effect["high"]], [y, y], color=color, linewidth=2)
    axes.plot(
        [effect["value"]], [y], marker=marker, markersize=7, color=color, linestyle="none",
        markerfacecolor=color if effect["low"] is not None else _PAPER, zorder=4, clip_on=False,
    )  # fmt: skip


def _rates_row(axes: Any, y: float, cell: Cell, condition: str, name: str) -> str:
    axes.plot([0, 1], [y, y], color=_LINE, linewidth=0.8, zorder=1)
    told = []
    for what, word, marker, size, color in (
        ("abstained", "abstained", "x", 8, _ABSTAINED),
        ("correct", "correct", "o", 9, _CORRECT),
        ("rates", "target-positive", "D", 7, _TARGET),
    ):
        rate = cell[what][condition]
        told.append(f"{word} {count(rate)}")
        if rate["n"]:
            axes.plot(
                [rate["value"]], [y], marker=marker, markersize=size, color=color,
                markerfacecolor=_PAPER if what == "correct" else color, markeredgewidth=2,
                linestyle="none", zorder=3, clip_on=False,
            )  # fmt: skip
    return f"{name}: {', '.join(reversed(told))}"


def _transition_text(cell: Cell) -> str:
    rates, effect = cell["rates"], cell["effects"]
    return (
        f"{visible(cell['defense'])}: {count(rates['p0'])} before, {effect['P']['count']} "
        f"prevented, {effect['J']['count']} introduced, {count(rates['p1'])} after"
    )


def _effect_text(cell: Cell) -> str:
    effect = cell["effects"]
    figures = ", ".join(f"{e} {points(effect[e])} {bracket(effect[e])}" for e in ("N", "H", "Gamma"))
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


# --------------------------------------------------------------------------------- the drawing


@dataclass(slots=True)
class _Sheet:
    """A figure whose units are pixels, and the foreign labels that are put in afterwards."""

    figure: Any
    height: int
    labels: list[str] = field(default_factory=list)

    def axes(self, rows: int, *, left: int, right: int, xlim: tuple[float, float]) -> Any:
        bottom, top = _FOOT / self.height, 1 - 8 / self.height
        axes = self.figure.add_axes(
            (left / WIDTH, bottom, (WIDTH - left - right) / WIDTH, top - bottom)
        )
        axes.set_xlim(*xlim)
        axes.set_ylim(rows - 0.5, -0.5)
        axes.set_yticks([])
        axes.set_facecolor("none")
        for side in ("left", "right", "top"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(_MUTED)
        for row in range(1, rows):
            axes.axhline(row - 0.5, color=_LINE, linewidth=0.6, zorder=0)
        return axes

    def percent_axis(self, axes: Any, top: float, label: str) -> None:
        step = 0.2 if top > 0.5 else 0.1 if top > 0.2 else 0.05
        ticks = [i * step for i in range(round(top / step) + 1) if i * step <= top + 1e-9]
        self._axis(axes, ticks, [f"{100 * t:.0f}%" for t in ticks], label)

    def points_axis(self, axes: Any, span: tuple[float, float], label: str) -> None:
        width = span[1] - span[0]
        step = 0.5 if width > 1.3 else 0.25 if width > 0.6 else 0.1
        first, last = math.ceil(span[0] / step - 1e-9), math.floor(span[1] / step + 1e-9)
        ticks = [i * step for i in range(first, last + 1)]
        names = [f"{100 * t:+.0f}".replace("-", "\u2212") if t else "0" for t in ticks]
        self._axis(axes, ticks, names, label)

    def _axis(self, axes: Any, ticks: Sequence[float], names: Sequence[str], label: str) -> None:
        axes.set_xticks(ticks, names)
        axes.tick_params(axis="x", colors=_MUTED, labelsize=_FONT - 1.5, length=3)
        axes.grid(axis="x", color=_LINE, linewidth=0.6, zorder=0)
        axes.set_axisbelow(True)
        axes.set_xlabel(label, color=_MUTED, fontsize=_FONT - 1)

    def left(
        self, axes: Any, y: float, text: str, *, x: float = 0, bold: bool = False,
        color: str = _INK,
    ) -> None:  # fmt: skip
        """Write a label ``x`` pixels right of the left end of the axis."""
        axes.annotate(
            self._token(text), (0, y), xycoords=("axes fraction", "data"), xytext=(x, 0),
            textcoords="offset points", ha="left", va="center", color=color,
            fontweight="bold" if bold else "normal", annotation_clip=False,
        )  # fmt: skip

    def right(self, axes: Any, y: float, text: str, *, x: float = 1, color: str = _MUTED) -> None:
        """Write a label that ends (or, right of the axis, starts) at a fraction of the axis."""
        axes.annotate(
            self._token(text.replace("->", "\u2192").replace("-", "\u2212")), (x, y),
            xycoords=("axes fraction", "data"), ha="right" if x <= 1 else "left", va="center",
            color=color, fontsize=_FONT - 1.5, annotation_clip=False,
        )  # fmt: skip

    def _token(self, text: str) -> str:
        self.labels.append(text)
        token = f"@{len(self.labels) - 1}@"
        return token + "@" * max(0, len(text) - len(token))

    def svg(self, title: str, description: str) -> str:
        raw = io.StringIO()
        self.figure.savefig(raw, format="svg", transparent=True, metadata={"Date": None})
        return _inline(raw.getvalue(), self.labels, title, description)


@contextmanager
def _sheet(height: int) -> Iterator[_Sheet]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        yield _Sheet(Figure(figsize=(WIDTH / 72, height / 72)), height)


def _inline(raw: str, labels: Sequence[str], title: str, description: str) -> str:
    """Turn a stand-alone SVG file into an element that can stand in an HTML page."""
    body = raw[raw.index("<svg") :]
    body = body[body.index(">") + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r' id="(?![hmp][0-9a-f]{8})[^"]*"', "", body)  # names of groups, used nowhere
    body = body.replace("xlink:href", "href")
    body = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--sans, sans-serif)", body)
    for color, name in _VARIABLES.items():
        body = body.replace(color, f"var(--{name}, {color})")
    for index, label in enumerate(labels):
        body = re.sub(rf"(?<=>)@{index}@+(?=<)", lambda _, t=label: html.escape(t), body)
    body = re.sub(r"\s*\n\s*", " ", body)
    height = re.search(r'height="([\d.]+)pt"', raw)
    box = f"0 0 {WIDTH} {height[1] if height else WIDTH}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img" '
        f'aria-label="{html.escape(title)}"><title>{html.escape(title)}</title>'
        f"<desc>{html.escape(description)}</desc>{body.strip()}"
    )
