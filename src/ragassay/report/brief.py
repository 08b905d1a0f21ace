"""The sections beyond the four conditions in the terminal, each within 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ragassay.report import attribution, clean, detectors, evidence, parts
from ragassay.report.grids import UNDEFENDED
from ragassay.report.parts import Row
from ragassay.report.text import bracket, count, level

MAX_LINES = 12
_NAME = 26
_MAX_COLUMNS = 6

Line = Table | Text


def sections(summary: Mapping[str, Any], scorer: str) -> Iterator[Line]:
    """What the run found out about evidence, detectors and clean utility, under one rule."""
    if evidence.wanted(summary):
        yield from _evidence(summary, scorer)
    if detectors.wanted(summary):
        yield from _detectors(summary, scorer)
    if clean.wanted(summary):
        yield Text("Clean utility", style="bold")
        yield Text(clean.utility(summary, scorer, False)[0].claim)
        yield Text("")


def _evidence(summary: Mapping[str, Any], scorer: str) -> Iterator[Line]:
    yield Text("What the answers depend on", style="bold")
    for part in (
        *evidence.removal(summary, scorer)[:1],
        *attribution.attribution(summary, scorer, False),
        *evidence.composition(summary, scorer)[:1],
    ):
        yield Text(part.claim)
    rows = [row for row in evidence.rows(summary, scorer) if row["defense"] == UNDEFENDED]
    if rows:
        table = _table("no defense", "new", "dependent", "one alone", "two or more")
        for row in rows[-MAX_LINES:]:
            about = row["attribution"]
            table.add_row(
                Text(parts.spot_name(parts.at_spot(row), summary).replace(": ", ":\n")),
                *(
                    _short(row[label]) for label in
                    ("newly_induced", "injection_dependent_new", "single_passage_sufficient")
                ),
                _short(about["several"]) if about["n"] else Text("-"),
            )  # fmt: skip
        yield table
        yield from _left(len(rows) - MAX_LINES)
    yield Text("")


def _detectors(summary: Mapping[str, Any], scorer: str) -> Iterator[Line]:
    yield Text("Detectors under attack", style="bold")
    found = detectors.by_attack(summary, scorer)
    yield Text(detectors.finding(found, summary))
    for tables in list(found.values())[:1]:
        rate = detectors.lead_rate(tables)
        grid = detectors.intercepted(tables, rate)
        kept = _ends(len(grid.columns) - 1)
        table = _table(
            f"at {level(rate)}", *(grid.columns[i] for i in kept), "flagged,\nclean"
        )  # fmt: skip
        clean_rates = {row[0]: row[1] for row in detectors.realized(tables).rows}
        for row in grid.rows:
            cells = [row[i] for i in kept] + [clean_rates[row[0]]]
            table.add_row(Text(row[0]), *(Text(cell.split(" [")[0]) for cell in cells))
        yield table
    yield from _left(len(found) - 1)
    yield Text("")


def _ends(columns: int) -> list[int]:
    """Which columns fit: the first ones and the last."""
    numbers = list(range(1, columns + 1))
    return numbers if columns <= _MAX_COLUMNS else [*numbers[: _MAX_COLUMNS - 1], columns]


def _short(rate: Row) -> Text:
    """A count, and below it the interval and what is undefined."""
    undefined = rate.get("undefined", 0)
    more = f"\n?{undefined}" if undefined else ""
    return Text(f"{count(rate)}\n{bracket(rate)}{more}" if rate["n"] else f"-{more}")


def _table(first: str, *columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column(first, overflow="fold", min_width=8, max_width=_NAME)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _left(number: int) -> Sequence[Line]:
    return [Text(f"{number} more in the report.", style="dim")] if number > 0 else []
