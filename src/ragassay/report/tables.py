"""The tables of a run for the terminal, each within 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ragassay.report import brief, comparison, grids, leaders
from ragassay.report.finding import finding, finding_detail
from ragassay.report.grids import Block
from ragassay.report.text import (
    NO_WIDTH_NOTE,
    bracket,
    count,
    decimal,
    level,
    p_value,
    points,
    ratio,
    unread,
    visible,
)

__all__ = ["finding", "finding_detail", "headline_table", "label_table"]

MAX_BLOCKS = 6
MAX_LINES = 24
_NAME_WIDTH = 15


def headline_table(summary: Mapping[str, Any], scorer: str | None = None) -> Table:
    """Build what ``ragassay run`` prints: for each attack and budget a block of two tables.

    The figures stand on two lines a cell, so that both tables fit 80 columns. Where there are
    more blocks than anyone reads in a terminal, those at the largest budgets stand there; where
    no defense is compared, a line for each block.

    Parameters
    ----------
    summary : mapping
        What ``ragassay.experiments.aligned.analyze`` returns.
    scorer : str, optional
        The rule; default the headline rule.
    """
    outer = Table.grid(padding=0)
    outer.add_column()
    scorer = scorer or summary["headline"]
    found = grids.blocks(summary, scorer)
    if not summary["defenses"] and len(found) > 1:
        _levels(outer, found, scorer)
    else:
        _blocks(outer, found, summary, scorer)
    for line in brief.sections(summary, scorer):
        outer.add_row(line)
    return outer


def label_table(summary: Mapping[str, Any]) -> Table | None:
    """Build what the label does to the conclusion: the finding, and one place as a table.

    Returns
    -------
    rich.table.Table or None
        None where fewer than two scorers have records.
    """
    found = summary["label_comparison"]
    if found is None:
        return None
    outer = Table.grid(padding=0)
    outer.add_column()
    outer.add_row(Text(comparison.TITLE, style="bold"))
    outer.add_row(Text(leaders.finding(found)))
    places = sorted(found["cells"], key=lambda at: (not leaders.changes(at), -at["budget"]))
    for at in places[:1] if summary["defenses"] else []:
        title = leaders.at_title(at, several=grids.several(summary))
        outer.add_row(Text(f"{title}: target-positive under attack; ? uncertain", style="dim"))
        outer.add_row(_by_label(at, found["scorers"]))
        _say_left(outer, len(places) - 1)
    told = comparison.vanishing_text(found)
    if told:
        outer.add_row(Text(told))
    return outer


def _blocks(outer: Table, found: Sequence[Block], summary: Mapping[str, Any], scorer: str) -> None:
    """Effects and outcomes of the defenses, at the largest budgets where there are many blocks."""
    first = sorted(range(len(found)), key=lambda i: (-found[i].budget, i))[:MAX_BLOCKS]
    for block in (found[i] for i in sorted(first)):
        outer.add_row(Text(f"{block.title} (rule {visible(scorer)})", style="bold"))
        outer.add_row(Text(grids.undefended_line(block)))
        if block.defended:
            outer.add_row(_effects_table(block))
            outer.add_row("")
            outer.add_row(_outcome_table(block))
        for note in grids.effects(block).notes:
            outer.add_row(Text(note, style="yellow"))
        outer.add_row("")
    _say_left(outer, len(found) - len(first))
    if summary["defenses"]:
        outer.add_row(
            Text(
                f"N, H, Gamma in percentage points with {level(summary['confidence'])} intervals. "
                "N above 0: fewer target-positive answers under attack; H above 0: more on clean "
                f"retrieval. {NO_WIDTH_NOTE}",
                style="dim",
            )
        )


def _by_label(at: Mapping[str, Any], scorers: Sequence[str]) -> Table:
    table = _small_table("defense", *(visible(scorer, limit=12) for scorer in scorers))
    for system in leaders.systems(at):
        row = [leaders.row_of(at, scorer, system) for scorer in scorers]
        name = grids.NO_DEFENSE if system == grids.UNDEFENDED else system
        table.add_row(_two_lines(name), *(Text(_short_label(each)) for each in row))
    return table


def _short_label(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "not run"
    label = row["p1"]
    if not label["positive"]["n"]:
        return unread(label).replace(" (", "\n(")
    rank = f"{row['rank_p1']}. " if row["rank_p1"] else ""
    uncertain = label["uncertain"]["count"]
    return f"{rank}{count(label['positive'])}" + (f"\n?{uncertain}" if uncertain else "")


def _levels(outer: Table, found: Sequence[Block], scorer: str) -> None:
    """A line for each setting, or each attack of one setting, as many as fit a screen."""
    outer.add_row(Text(f"Undefended, target-positive (rule {visible(scorer)})", style="bold"))
    many = any(block.shown for block in found)
    lines = _setting_lines(found) if many else _attack_lines(found)
    columns = ("attacks", "lowest", "highest") if many else ("poisoned", "interval", "uncertain")
    table = _small_table("setting" if many else "attack", "clean", *columns, "correct,\nclean")
    for line in lines[:MAX_LINES]:
        table.add_row(*map(Text, line))
    outer.add_row(table)
    _say_left(outer, len(lines) - MAX_LINES)
    outer.add_row("")


def _setting_lines(found: Sequence[Block]) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    for setting in dict.fromkeys(block.setting for block in found):
        own = [block for block in found if block.setting == setting]
        rates = [
            label["positive"] for block in own
            if (label := block.label("p0")) is not None and label["positive"]["n"]
        ]  # fmt: skip
        rates.sort(key=lambda rate: rate["value"])
        ends = [count(rates[0]), count(rates[-1])] if rates else ["-", "-"]
        clean = _short_rate(own[0].label("c0"))
        lines.append((visible(setting), clean, str(len(rates)), *ends, _correct(own[0])))
    return lines


def _correct(block: Block) -> str:
    rate = block.cells[0]["correct"]["c0"]
    return count(rate) if rate["n"] else "-"


def _attack_lines(found: Sequence[Block]) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    for block in found:
        clean, poisoned = block.label("c0"), block.label("p0")
        rate = poisoned["positive"] if poisoned else None
        uncertain = ", ".join(
            "-" if label is None else str(label["uncertain"]["count"])
            for label in (clean, poisoned)
        )
        interval = bracket(rate) if rate and rate["n"] else "-"
        lines.append(
            (
                block.title,
                _short_rate(clean),
                _short_rate(poisoned),
                interval,
                uncertain,
                _correct(block),
            )
        )
    return lines


def _short_rate(label: Mapping[str, Any] | None) -> str:
    if label is None:
        return "not run"
    return count(label["positive"]) if label["positive"]["n"] else unread(label)


def _say_left(outer: Table, left: int) -> None:
    if left > 0:
        outer.add_row(Text(f"{left} more in the report.", style="dim"))


def _effects_table(block: Block) -> Table:
    table = _small_table("defense", "target-\npositive", "P\nprev.", "J\nintr.", "N", "H", "Gamma")
    for cell in block.defended:
        if not cell["estimable"]:
            table.add_row(_two_lines(cell["defense"]), *[Text("not\nestimable"), *[Text("-")] * 5])
            continue
        effect, rates = cell["effects"], cell["rates"]
        table.add_row(
            _two_lines(cell["defense"]),
            Text(f"{count(rates['p0'])}\n-> {count(rates['p1'])}"),
            *(Text(f"{effect[e]['count']}\n/{cell['n']}") for e in ("P", "J")),
            *(
                Text(f"{points(effect[e])}\n{_short_bracket(effect[e])}")
                for e in ("N", "H", "Gamma")
            ),
        )
    return table


def _outcome_table(block: Block) -> Table:
    table = _small_table(
        "defense", "McNemar p\npoisoned", "correct\np0 -> p1", "correct\nc0 -> c1",
        "abstained\np0 -> p1", "abstained\nc0 -> c1", "calls\na query",
    )  # fmt: skip
    for cell in block.defended:
        calls = cell["cost"]["p1"]["model_calls"]
        test = cell.get("mcnemar", {}).get("poisoned")
        base = (block.undefended or cell)["cost"]["p0"]["model_calls"]
        spent = "not\nestimable" if calls is None else f"{decimal(calls)}\n({ratio(calls, base)})"
        table.add_row(
            _two_lines(cell["defense"]),
            Text(p_value(test["p_value"]) if test else "not\nestimable"),
            *(
                Text(_before_after(cell[what], pair))
                for what in ("correct", "abstained")
                for pair in (("p0", "p1"), ("c0", "c1"))
            ),
            Text(spent),
        )
    return table


def _two_lines(name: str) -> Text:
    """Break a long name where a reader would, since every row has two lines anyway."""
    shown = visible(name)
    if len(shown) <= _NAME_WIDTH:
        return Text(shown)
    at = max(shown.rfind(mark, 0, _NAME_WIDTH) for mark in "_- /.:") + 1 or _NAME_WIDTH
    return Text(f"{shown[:at]}\n{shown[at:]}")


def _small_table(first: str, *columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column(first, overflow="fold", min_width=8)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _short_bracket(effect: Mapping[str, Any]) -> str:
    return bracket(effect) if effect["low"] is not None else "[no interval]"


def _before_after(rates: Mapping[str, Any], pair: tuple[str, str]) -> str:
    before, after = (rates[condition] for condition in pair)
    if not before["n"] and not after["n"]:
        return "not\nestimable"
    return f"{count(before) if before['n'] else '?'}\n-> {count(after) if after['n'] else '?'}"
