"""The tables of a run: for the terminal, and report.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ragassay.report import grids
from ragassay.report.finding import finding, finding_detail
from ragassay.report.grids import Block, Grid
from ragassay.report.text import (
    NO_WIDTH_NOTE,
    bracket,
    count,
    decimal,
    level,
    p_value,
    plural,
    points,
    ratio,
    visible,
)

__all__ = ["finding", "finding_detail", "headline_table", "markdown"]

_NAME_WIDTH = 15

DEFINITIONS = (
    ("c0, c1, p0, p1", "the four matched answers to a query: clean (c) or poisoned (p) retrieval, "
     "without (0) or with (1) the defense; everything else is equal"),
    ("target-positive", "the answer gives what the attacker wants, by the rule at hand; a string "
     "rule counts a mention, even one that is rejected"),
    ("P, prevented", "queries that are target-positive in p0 and no longer in p1"),
    ("J, introduced", "queries that are target-positive in p1 and were not in p0"),
    ("N", "net reduction under attack, P - J = r(p0) - r(p1); above 0 is good"),
    ("H", "change on clean retrieval, r(c1) - r(c0); above 0 is harm"),
    ("Gamma", "N + H; a large Gamma can come from harm on clean retrieval alone, so it is read "
     "only beside N, H and the level that remains"),
    ("own, foreign poison", "written for this query, or for another query of its injection group"),
    ("support", "a passage that the data set marks as supporting the truth"),
    ("dropped", "a query that lacks one of its four labels; it is in no figure of that rule"),
    ("interval of width 0", "every resample gave the same figure, as with few groups or balanced "
     "P and J; it does not mean certainty"),
    ("beyond uncertainty", "the interval of N lies above 0 and the McNemar test rejects"),
)  # fmt: skip


# ------------------------------------------------------------------------------ the terminal


def headline_table(summary: Mapping[str, Any], scorer: str | None = None) -> Table:
    """Build what ``ragassay run`` prints: for each attack and budget a block of two tables.

    The figures stand on two lines a cell, so that both tables fit 80 columns.

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
    for block in grids.blocks(summary, scorer):
        outer.add_row(Text(f"{block.title} (rule {visible(scorer)})", style="bold"))
        outer.add_row(Text(grids.undefended_line(block)))
        if block.defended:
            outer.add_row(_effects_table(block))
            outer.add_row("")
            outer.add_row(_outcome_table(block))
        for note in grids.effects(block).notes:
            outer.add_row(Text(note, style="yellow"))
        outer.add_row("")
    outer.add_row(
        Text(
            f"N, H, Gamma in percentage points with {level(summary['confidence'])} intervals. "
            "N above 0: fewer target-positive answers under attack; H above 0: more on clean "
            f"retrieval. {NO_WIDTH_NOTE}",
            style="dim",
        )
    )
    return outer


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


# ---------------------------------------------------------------------------------- Markdown


def markdown(
    summary: Mapping[str, Any],
    resolved: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
) -> str:
    """Write report.md: the finding, every table for every rule, settings and versions.

    Parameters
    ----------
    summary : mapping
        What ``ragassay.experiments.aligned.analyze`` returns.
    resolved, environment : mapping, optional
        The files of the run folder with these names; without them the sections are left out.
    """
    has_qrels = bool(summary["dataset"].get("has_qrels", True))
    parts = [f"# {escape(finding(summary))}", escape(finding_detail(summary))]
    parts.append(escape(what_was_run(summary, resolved)))
    parts += _md_warnings(summary)
    for scorer in _headline_first(summary):
        lead = " (headline)" if scorer == summary["headline"] else ""
        parts.append(f"## Rule {escape(scorer)}{lead}")
        for block in grids.blocks(summary, scorer):
            parts += [f"### {escape(block.title)}", escape(grids.undefended_line(block))]
            if block.defended:
                parts += [_md_grid(grids.effects(block)), intervals_note(summary)]
            parts.append(_md_grid(grids.conditions(block)))
            if block.defended:
                parts += ["Transitions of the label:", _md_grid(grids.transitions(block))]
    for title, build in (
        ("Context composition", lambda b: grids.composition(b, has_qrels=has_qrels)),
        ("Cost", grids.cost),
    ):
        parts.append(f"## {title}")
        for block in grids.blocks(summary):
            parts += [f"### {escape(block.title)}", _md_grid(build(block))]
        parts.append(NOTES[title])
    parts.append("## How to read the figures")
    parts.append("\n".join(f"- **{term}**: {text}." for term, text in DEFINITIONS))
    for title, tree in (("Settings", resolved), ("Versions", environment)):
        if tree:
            rows = tuple((visible(k, limit=200), visible(v, limit=400)) for k, v in flat(tree))
            parts += [f"## {title}", _md_grid(Grid(title="", columns=("Key", "Value"), rows=rows))]
    return "\n\n".join(part for part in parts if part) + "\n"


NOTES = {
    "Context composition": (
        "Means per context, retrieved -> kept by the defense; support: contexts that hold at "
        "least one supporting passage. Without a defense everything retrieved is kept."
    ),
    "Cost": (
        "Means per query, counted whether or not a cache answered; in parentheses how many times "
        "the undefended system's."
    ),
}


def what_was_run(summary: Mapping[str, Any], resolved: Mapping[str, Any] | None = None) -> str:
    """Say in one line which data, attacks, victim and retriever the run had."""
    data = summary["dataset"]
    cells = {(cell["attack"], cell["budget"]) for cell in summary["cells"]}
    attacks = "; ".join(
        f"{visible(a)} at p = {', '.join(str(b) for c, b in sorted(cells) if c == a)}"
        for a in sorted({attack for attack, _ in cells})
    )
    number, groups = data.get("evaluated"), data.get("groups")
    size = "" if number is None else f", {plural(number, 'query')}"
    size += "" if groups is None else f" in {plural(groups, 'injection group')}"
    text = f"Data set {visible(str(data.get('name', 'unknown')))}{size}. Attack: {attacks}. "
    if resolved:
        text += (
            f"Victim: {visible(str(resolved.get('generator', 'unknown')))}. "
            f"Retriever: {visible(str(resolved.get('retriever', 'unknown')))}, "
        )
    else:
        text += "Retrieval: "
    return text + f"top {summary['k']}. Headline rule: {visible(summary['headline'])}."


def intervals_note(summary: Mapping[str, Any]) -> str:
    """Say where the intervals come from."""
    name = level(summary["confidence"])
    return (
        f"Intervals ({name}): for P, J, N, H, Gamma from resampling whole injection groups "
        f"({summary['draws']:,} draws), for rates Wilson. McNemar tests are exact and two-sided "
        "and take queries as independent. Figures in pp are percentage points of n. "
        f"{NO_WIDTH_NOTE}"
    )


def escape(text: str) -> str:
    """Write a text so that Markdown shows it as it is: no markup, HTML or automatic link.

    What cannot be markup where it stands (``p <0.001``, ``[1.0, 2.0]``, ``->``) stays readable.
    """
    text = re.sub(r"&(?=[#A-Za-z])", "&amp;", text)
    text = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)
    text = re.sub(r"(?<!-)>", "&gt;", text)
    text = re.sub(r"([\\`*|~$])", r"\\\1", text)
    text = re.sub(r"\](?=[(\[:])|(?<=!)\[", r"\\\g<0>", text)
    text = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)
    text = re.sub(r"(?i)\b(https?|ftp|javascript|data|mailto):", r"\1&#58;", text)
    return re.sub(r"(?i)\bwww\.", "www&#46;", text).replace("@", "&#64;")


def flat(tree: Any, prefix: str = "") -> Iterable[tuple[str, str]]:
    """Yield the leaves of nested settings as ``("retriever.k", "5")``, in sorted order."""
    items: Iterable[tuple[Any, Any]]
    if isinstance(tree, Mapping):
        items = sorted(tree.items())
    elif isinstance(tree, (list, tuple)) and any(isinstance(i, (Mapping, list)) for i in tree):
        items = enumerate(tree)
    else:
        joined = ", ".join(map(str, tree)) if isinstance(tree, (list, tuple)) else str(tree)
        yield prefix, joined
        return
    for key, value in items:
        yield from flat(value, f"{prefix}.{key}" if prefix else str(key))


def _headline_first(summary: Mapping[str, Any]) -> list[str]:
    return sorted(summary["scorers"], key=lambda scorer: scorer != summary["headline"])


def trials_line(summary: Mapping[str, Any]) -> str:
    """Say how many trials were planned, done, failed and not run."""
    trials = summary["trials"]
    return (
        f"Trials: {trials['done']:,} of {trials['planned']:,} done, {trials['failed']:,} failed, "
        f"{trials['missing']:,} not run. A failed trial has no outcome."
    )


def _md_warnings(summary: Mapping[str, Any]) -> list[str]:
    parts = ["## Warnings and dropped trials"]
    if summary["warnings"]:
        parts.append("\n".join(f"- {escape(visible(w, limit=400))}" for w in summary["warnings"]))
    else:
        parts.append("No warnings.")
    parts.append(trials_line(summary))
    lost = grids.dropped(summary)
    parts.append(_md_grid(lost) if lost.rows else "No query was dropped from any figure.")
    if summary["errors"]:
        parts.append(_md_grid(grids.errors(summary)))
    return parts


def _md_grid(grid: Grid) -> str:
    if not grid.rows:
        return ""
    lines = [
        "| " + " | ".join(map(escape, grid.columns)) + " |",
        "|" + " --- |" * len(grid.columns),
        *("| " + " | ".join(map(escape, row)) + " |" for row in grid.rows),
    ]
    notes = [f"- {escape(note)}" for note in grid.notes if note]
    return "\n".join(lines) + ("\n\n" + "\n".join(notes) if notes else "")
