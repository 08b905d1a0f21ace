"""The paper that charts are drawn on: axes in pixels, foreign labels, inline SVG.

The drawing is object-oriented (no pyplot, no global state) and gives equal bytes for equal
data. Labels that come from data never reach matplotlib: a stand-in of equal length is
drawn and replaced, escaped, afterwards. A label can therefore hold any script, mathematics or
markup. Colors become variables of the page, so that charts follow its light or dark scheme.
"""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ragassay.canon import digest

WIDTH = 420
FONT = 12.5
FOOT = 40
TARGET, CORRECT, ABSTAINED = "#d55e00", "#0072b2", "#7a7a7a"
PREVENTED, INTRODUCED = "#009e73", "#e69f00"
NET, HARM, CONTRAST = "#0072b2", "#d55e00", "#5a5a5a"
INK, MUTED, LINE, PAPER = "#1b1b1b", "#6b6b6b", "#dcdcdc", "#fefefe"
VIOLET, SKY = "#cc79a7", "#56b4e9"
# One line of many: color, marker. Neighbors differ in both, so that neither alone must do.
SERIES = (
    (CORRECT, "o"), (TARGET, "s"), (PREVENTED, "^"), (VIOLET, "D"), (INTRODUCED, "v"),
    (SKY, "P"), (CONTRAST, "X"),
)  # fmt: skip
# Colors that follow the page's light or dark scheme; the hex value is the fallback.
_VARIABLES = {
    INK: "ink", MUTED: "muted", LINE: "line", PAPER: "paper", CONTRAST: "contrast",
    TARGET: "target", CORRECT: "correct", ABSTAINED: "abstained",
    PREVENTED: "prevented", INTRODUCED: "introduced", VIOLET: "violet", SKY: "sky",
}  # fmt: skip
_STYLE: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "ragassay", "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"], "font.size": FONT, "text.parse_math": False,
    "axes.linewidth": 0.8, "hatch.linewidth": 1.2, "hatch.color": INK, "path.simplify": False,
}  # fmt: skip


@dataclass(slots=True)
class Sheet:
    """A figure whose units are pixels, and the foreign labels that are put in afterwards."""

    figure: Any
    height: int
    width: int = WIDTH
    labels: list[str] = field(default_factory=list)

    def axes(self, rows: int, *, left: int, right: int, xlim: tuple[float, float]) -> Any:
        """Make axes with one unit of height for each row, the first on top."""
        bottom, top = FOOT / self.height, 1 - 8 / self.height
        axes = self.figure.add_axes(
            (left / self.width, bottom, (self.width - left - right) / self.width, top - bottom)
        )
        axes.set_xlim(*xlim)
        axes.set_ylim(rows - 0.5, -0.5)
        axes.set_yticks([])
        _bare(axes)
        for row in range(1, rows):
            axes.axhline(row - 0.5, color=LINE, linewidth=0.6, zorder=0)
        return axes

    def upright_axes(
        self, *, left: int, right: int, bottom: int, xlim: tuple[float, float], top: float
    ) -> Any:
        """Make axes whose height is a share of the answers, from 0 to ``top``."""
        low, width = bottom / self.height, (self.width - left - right) / self.width
        axes = self.figure.add_axes((left / self.width, low, width, 1 - 10 / self.height - low))
        axes.set_xlim(*xlim)
        axes.set_ylim(0, top)
        axes.set_xticks([])
        _bare(axes)
        ticks = _share_ticks(top)
        axes.set_yticks(ticks, [f"{100 * tick:.0f}%" for tick in ticks])
        axes.tick_params(axis="y", colors=MUTED, labelsize=FONT - 1.5, length=0)
        axes.grid(axis="y", color=LINE, linewidth=0.6, zorder=0)
        axes.set_axisbelow(True)
        return axes

    def percent_axis(self, axes: Any, top: float, label: str) -> None:
        """Label an axis of shares that ends at ``top``."""
        ticks = _share_ticks(top)
        self._axis(axes, ticks, [f"{100 * t:.0f}%" for t in ticks], label)

    def points_axis(self, axes: Any, span: tuple[float, float], label: str) -> None:
        """Label an axis of signed percentage points."""
        width = span[1] - span[0]
        step = 0.5 if width > 1.3 else 0.25 if width > 0.6 else 0.1
        first, last = math.ceil(span[0] / step - 1e-9), math.floor(span[1] / step + 1e-9)
        ticks = [i * step for i in range(first, last + 1)]
        names = [f"{100 * t:+.0f}".replace("-", "\u2212") if t else "0" for t in ticks]
        self._axis(axes, ticks, names, label)

    def _axis(self, axes: Any, ticks: Sequence[float], names: Sequence[str], label: str) -> None:
        axes.set_xticks(ticks, names)
        axes.tick_params(axis="x", colors=MUTED, labelsize=FONT - 1.5, length=3)
        axes.grid(axis="x", color=LINE, linewidth=0.6, zorder=0)
        axes.set_axisbelow(True)
        axes.set_xlabel(label, color=MUTED, fontsize=FONT - 1)

    def left(
        self, axes: Any, y: float, text: str, *, x: float = 0, bold: bool = False,
        color: str = INK,
    ) -> None:  # fmt: skip
        """Write a label ``x`` pixels right of the left end of the axis."""
        axes.annotate(
            self._token(text), (0, y), xycoords=("axes fraction", "data"), xytext=(x, 0),
            textcoords="offset points", ha="left", va="center", color=color,
            fontweight="bold" if bold else "normal", annotation_clip=False,
        )  # fmt: skip

    def right(
        self, axes: Any, y: float, text: str, *, x: float, shift: float = 0, color: str = MUTED
    ) -> None:
        """Write a label that ends (or, right of the axis, starts) at a fraction of the axis."""
        axes.annotate(
            self._token(text.replace("->", "\u2192").replace("-", "\u2212")), (x, y),
            xycoords=("axes fraction", "data"), xytext=(shift, 0), textcoords="offset points",
            ha="right" if x <= 1 else "left", va="center", color=color, fontsize=FONT - 1.5,
            annotation_clip=False,
        )  # fmt: skip

    def write(
        self, axes: Any, at: tuple[float, float], text: str, *, shift: tuple[float, float] = (0, 0),
        align: str = "left", bold: bool = False, color: str = INK, small: bool = False,
    ) -> None:  # fmt: skip
        """Write a label at a point in data units, moved by ``shift`` pixels."""
        axes.annotate(
            self._token(text.replace("->", "\u2192")), at, xytext=shift,
            textcoords="offset points", ha=align, va="center", color=color,
            fontsize=FONT - 1.5 if small else FONT, fontweight="bold" if bold else "normal",
            annotation_clip=False, zorder=6,
        )  # fmt: skip

    def _token(self, text: str) -> str:
        self.labels.append(text)
        token = f"@{len(self.labels) - 1}@"
        return token + "@" * max(0, len(text) - len(token))

    def svg(self, title: str, description: str) -> str:
        """Write the figure as an element; both texts are for those who do not see it."""
        raw = io.StringIO()
        self.figure.savefig(raw, format="svg", transparent=True, metadata={"Date": None})
        return _inline(raw.getvalue(), self, title, description)


@contextmanager
def open_sheet(height: int, width: int = WIDTH) -> Iterator[Sheet]:
    """Open a figure of a height and width in pixels, with the style of reports."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        yield Sheet(Figure(figsize=(width / 72, height / 72)), height, width)


def _bare(axes: Any) -> None:
    axes.set_facecolor("none")
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)


def _share_ticks(top: float) -> list[float]:
    step = 0.2 if top > 0.5 else 0.1 if top > 0.2 else 0.05
    return [i * step for i in range(round(top / step) + 1) if i * step <= top + 1e-9]


def _inline(raw: str, sheet: Sheet, title: str, description: str) -> str:
    """Turn a stand-alone SVG file into an element that can stand in an HTML page.

    Every id gets a part of its own: charts that share a page must not share their patterns,
    because a browser paints none of a pattern that stands in a hidden chart.
    """
    own = digest(title)[:8]
    body = raw[raw.index("<svg") :]
    body = body[body.index(">") + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r' id="(?![hmp][0-9a-f]{8})[^"]*"', "", body)  # names of groups, used nowhere
    body = body.replace("xlink:href", "href")
    body = re.sub(r'( id="|href="#|url\(#)([hmp][0-9a-f]{8})', rf"\1c{own}\2", body)
    body = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--sans, sans-serif)", body)
    for color, name in _VARIABLES.items():
        body = body.replace(color, f"var(--{name}, {color})")
    body = re.sub(r"(?<=>)@(\d+)@+(?=<)", lambda m: html.escape(sheet.labels[int(m[1])]), body)
    body = re.sub(r"\s*\n\s*", " ", body)
    height = re.search(r'height="([\d.]+)pt"', raw)
    box = f"0 0 {sheet.width} {height[1] if height else sheet.height}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img" '
        f'aria-label="{html.escape(title)}"><title>{html.escape(title)}</title>'
        f"<desc>{html.escape(description)}</desc>{body.strip()}"
    )
