"""The undefended system at a glance: every setting and attack, clean and poisoned.

Rates are those of each condition by itself, out of the answers that the rule read: an uncertain
answer counts in the denominator and is named beside the rate. They need neither a defense nor
the other conditions, so that every run has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragassay.report import grids
from ragassay.report.grids import Block, Grid
from ragassay.report.sheet import CORRECT, FOOT, LINE, MUTED, PAPER, TARGET, open_sheet
from ragassay.report.text import count, label_share, percent, place, plural, visible

FEW = 3  # blocks that need no overview
FEW_ROWS = 2  # attacks of a setting that need no table of their own
MAX_COLUMNS = 12
MAX_CHARTS = 18  # of all rules together
MAX_ROWS = 40  # of a chart
NOT_RUN = "not run"
NO_TARGET = "no target"
NOTE = (
    "The undefended system; target-positive out of the answers that the rule read, each condition "
    "by itself, with Wilson intervals. An uncertain answer counts as read and not as positive."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The blocks of one setting: a chart (empty beyond the bound) and a table."""

    title: str
    chart: str
    told: str
    span: str
    grid: Grid


def wanted(summary: Mapping[str, Any]) -> bool:
    """Whether an overview says more than the blocks themselves do."""
    many = len(grids.blocks(summary)) > FEW
    return many or grids.several(summary) or not summary["defenses"]


def matrix(summary: Mapping[str, Any], scorer: str) -> Grid:
    """Attacks in rows, settings in columns, the undefended level in each cell.

    The first row is clean retrieval. Without several settings, or with too many to stand beside
    each other, the grid is empty: the groups hold the same figures.
    """
    found = grids.blocks(summary, scorer)
    settings = list(dict.fromkeys(block.setting for block in found))
    if not 1 < len(settings) <= MAX_COLUMNS or not _any_rate(found):
        return Grid(title="", columns=(), rows=())
    levels = {
        (b.setting, b.attack, b.budget): NO_TARGET if b.aim else _level(b, "p0")
        for b in found
        if b.budget
    }
    clean = {block.setting: _level(block, "c0") for block in found}
    pairs = dict.fromkeys((block.attack, block.budget) for block in found if block.budget)
    rows = [
        (place(*pair), *(levels.get((setting, *pair), NOT_RUN) for setting in settings))
        for pair in pairs
    ]
    if set(clean.values()) != {NOT_RUN}:
        rows.insert(0, ("clean retrieval", *(clean[setting] for setting in settings)))
    read = {rate["n"] for b in found for c in ("c0", "p0") if (rate := _rate(b, c))}
    size = f"{min(read)} to {max(read)}" if len(read) > 1 else "".join(map(str, read))
    return Grid(
        title="Target-positive answers of the undefended system",
        columns=("Attack", *(visible(setting) for setting in settings)),
        rows=tuple(rows),
        notes=(
            f"Percent of the answers that the rule read ({size} in each cell), with Wilson "
            "intervals; ? uncertain answers.",
        ),
    )


def _any_rate(found: Sequence[Block]) -> bool:
    return any(_rate(block, condition) for block in found for condition in ("c0", "p0"))


def groups(summary: Mapping[str, Any], scorer: str, *, charts: bool = True) -> list[Group]:
    """One group for each setting, with charts as far as the bound of the page goes."""
    found: dict[str, list[Block]] = {}
    for block in grids.blocks(summary, scorer):
        found.setdefault(block.setting, []).append(block)
    if len(found) > 1 and all(len(blocks) <= FEW_ROWS for blocks in found.values()):
        return [_together([block for blocks in found.values() for block in blocks])]
    room = max(1, MAX_CHARTS // len(summary["scorers"])) if charts else 0
    result = []
    for number, (setting, blocks) in enumerate(found.items()):
        name = visible(setting) if grids.several(summary) else "All attacks"
        drawable = [b for b in grids.targeted(blocks) if b.budget and _rate(b, "p0")]
        drawn = number < room and 1 < len(drawable) <= MAX_ROWS
        result.append(
            Group(
                title=name,
                chart=level_chart(name, drawable) if drawn else "",
                told=_told(blocks, named=True),
                span=_told(blocks, named=False),
                grid=detail(blocks),
            )
        )
    return result


def _together(blocks: Sequence[Block]) -> Group:
    """Settings of so few attacks each that one table holds them all."""
    return Group(
        title="All settings",
        chart="",
        told="",
        span=plural(len({block.setting for block in blocks}), "setting"),
        grid=detail(blocks),
    )


def detail(blocks: Sequence[Block]) -> Grid:
    """The attacks of settings: target-positive, correct and abstained, clean and poisoned."""
    shown = len({block.setting for block in blocks}) > 1
    rows = []
    for block in blocks:
        cell = block.cells[0]
        rows.append(
            (
                _named(block, shown),
                *(_full(block, condition) for condition in ("c0", "p0")),
                *(
                    NOT_RUN
                    if condition in cell["absent"]
                    else grids.rate_and_uncertain(cell[what][condition])
                    for what in ("correct", "abstained")
                    for condition in ("c0", "p0")
                ),
            )
        )
    return Grid(
        title="Rates of the undefended system",
        columns=(
            "Attack", "Target-positive, clean", "Target-positive, poisoned", "Correct, clean",
            "Correct, poisoned", "Abstained, clean", "Abstained, poisoned",
        ),
        rows=tuple(rows),
    )  # fmt: skip


def _named(block: Block, shown: bool) -> str:
    title = block.title if shown or not block.budget else place(block.attack, block.budget)
    return f"{title}; succeeds where {block.aim}" if block.aim else title


def level_chart(title: str, blocks: Sequence[Block]) -> str:
    """Draw clean (hollow) and poisoned (filled) levels of the undefended system by attack."""
    with open_sheet(len(blocks) * 38 + FOOT + 8) as sheet:
        axes = sheet.axes(len(blocks), left=10, right=86, xlim=(0, 1))
        for row, block in enumerate(blocks):
            sheet.left(axes, row - 0.22, place(block.attack, block.budget), color=MUTED)
            sheet.right(axes, row + 0.18, _counts(block), x=1.04)
            _dumbbell(axes, row + 0.18, block)
        sheet.percent_axis(axes, 1.0, "share of answers that are target-positive")
        told = "; ".join(f"{block.title}: {_counts(block)}" for block in blocks)
        rule = visible(blocks[0].scorer)
        return sheet.svg(f"Levels without a defense, {title}, rule {rule}", told)


def _dumbbell(axes: Any, y: float, block: Block) -> None:
    clean, poisoned = _rate(block, "c0"), _rate(block, "p0")
    axes.hlines([y], [0], [1], color=LINE, linewidth=0.8, zorder=1)
    for rate, condition, marker, color, fill in (
        (clean, "c0", "o", CORRECT, PAPER),
        (poisoned, "p0", "D", TARGET, TARGET),
    ):
        if rate is None:
            continue
        axes.hlines([y], [rate["low"]], [rate["high"]], color=color, linewidth=1.8, zorder=2)
        label = block.label(condition)
        uncertain = label["uncertain"]["value"] if label else 0
        if uncertain:
            axes.barh(
                [y], [uncertain], left=[rate["value"]], height=0.24, facecolor=PAPER,
                edgecolor=color, linewidth=1, zorder=3,
            )  # fmt: skip
        axes.plot(
            [rate["value"]], [y], marker=marker, markersize=7, color=color, markerfacecolor=fill,
            markeredgewidth=1.8, linestyle="none", zorder=4, clip_on=False,
        )  # fmt: skip


def _counts(block: Block) -> str:
    """``2 -> 48 of 50``, or with both denominators where they differ."""
    clean, poisoned = _rate(block, "c0"), _rate(block, "p0")
    if clean and poisoned and clean["n"] == poisoned["n"]:
        return f"{clean['count']} -> {poisoned['count']}/{poisoned['n']}"
    return count(poisoned)


def _rate(block: Block, condition: str) -> Mapping[str, Any] | None:
    label = block.label(condition)
    if label is None or not label["positive"]["n"]:
        return None
    rate: Mapping[str, Any] = label["positive"]
    return rate


def _full(block: Block, condition: str) -> str:
    label = block.label(condition)
    return NOT_RUN if label is None else label_share(label)


def _level(block: Block, condition: str) -> str:
    """Percent, interval and what is undecided; a text before the interval stands large."""
    label = block.label(condition)
    if label is None:
        return NOT_RUN
    rate = label["positive"]
    if not rate["n"]:
        return label_share(label)
    text = f"{percent(rate['value'])} [{100 * rate['low']:.0f}, {100 * rate['high']:.0f}]"
    uncertain, unscored = label["uncertain"]["count"], label["not_scored"]
    text += f" ?{uncertain}" if uncertain else ""
    return text + (f", {unscored} not scored" if unscored else "")


def _told(blocks: Sequence[Block], *, named: bool) -> str:
    """The finding of a group: the weakest and the strongest attack, named or not."""
    rates = [(block, rate) for block in grids.targeted(blocks) if (rate := _rate(block, "p0"))]
    if not rates and any(block.aim for block in blocks):
        return "no attack with a target"
    if not rates:
        rate = blocks[0].cells[0]["correct"]["c0"] if blocks else {"n": 0}
        return f"no attack; correct {count(rate)}" if rate["n"] else "nothing labeled"
    low, high = (pick(rates, key=lambda one: one[1]["value"]) for pick in (min, max))
    if len(rates) == 1:
        return f"{place(high[0].attack, high[0].budget)}: {count(high[1])}"
    clean = next((rate for block in blocks if (rate := _rate(block, "c0"))), None)
    before = f"clean {count(clean)}; " if clean else ""
    if not named:
        return f"{before}{plural(len(rates), 'attack')}: {count(low[1])} to {count(high[1])}"
    return (
        f"{before}{plural(len(rates), 'attack')}: from {count(low[1])} "
        f"({place(low[0].attack, low[0].budget)}) to {count(high[1])} "
        f"({place(high[0].attack, high[0].budget)})"
    )
