"""The pieces that a section of a report is made of, the same for HTML, Markdown and terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragassay.report.grids import UNDEFENDED, Grid, name, several
from ragassay.report.text import place

Row = Mapping[str, Any]
Spot = tuple[str, str, int]  # setting, attack, budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawing with its title, and the figures that it is about in words."""

    title: str
    svg: str
    told: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A heading, what was found, how to read it, charts and tables; each may be empty.

    A page folds a ``folded`` part under its heading.
    """

    heading: str = ""
    claim: str = ""
    note: str = ""
    charts: tuple[Chart, ...] = ()
    grids: tuple[Grid, ...] = ()
    folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of a report.

    ``wanted`` tells from a summary whether the run has anything of the kind; ``parts`` makes
    its parts for a summary and a scorer, with or without charts. Where the scorer makes no
    difference, ``by_rule`` is false.
    """

    anchor: str
    short: str
    title: str
    wanted: Callable[[Mapping[str, Any]], bool]
    parts: Callable[[Mapping[str, Any], str, bool], Sequence[Part]]
    by_rule: bool = True


def of_scorer(rows: Iterable[Row], scorer: str) -> list[Row]:
    """The rows of one scorer, in their order."""
    return [row for row in rows if row["scorer"] == scorer]


def at_spot(row: Row) -> Spot:
    """Where a row belongs: setting, attack, budget."""
    return row["setting"], row["attack"], row["budget"]


def by_spot(rows: Iterable[Row]) -> dict[Spot, list[Row]]:
    """Rows by setting, attack and budget, the undefended system first."""
    found: dict[Spot, list[Row]] = {}
    for row in rows:
        found.setdefault(at_spot(row), []).append(row)
    for members in found.values():
        members.sort(key=lambda row: row["defense"] != UNDEFENDED)
    return found


def spot_name(spot: Spot, summary: Mapping[str, Any]) -> str:
    """Name attack and budget, and the setting where there are several."""
    setting, attack, budget = spot
    return place(attack, budget, setting if several(summary) else "")


def leading(rows: Sequence[Row]) -> list[Row]:
    """The rows that a finding is about: undefended where there are such, at the largest budget."""
    bare = [row for row in rows if row["defense"] == UNDEFENDED] or list(rows)
    largest = max((row["budget"] for row in bare), default=0)
    return [row for row in bare if row["budget"] == largest]


def system_tables(
    summary: Mapping[str, Any],
    rows: Sequence[Row],
    columns: Sequence[str],
    figures: Callable[[Row], Sequence[str]],
    *,
    title: str,
) -> tuple[Grid | None, list[Grid]]:
    """The undefended system over all places in one table, and a table of all systems per place.

    Parameters
    ----------
    summary : mapping
        The summary.
    rows : sequence of mapping
        One for each system and place.
    columns : sequence of str
        Titles of the figures.
    figures : callable
        Makes the figures of a row.
    title : str
        What the first table is called.
    """
    spots = by_spot(rows)
    bare = {
        spot: row for spot, members in spots.items() for row in members
        if row["defense"] == UNDEFENDED
    }  # fmt: skip
    first = Grid(
        title=title,
        columns=("Without a defense", *columns),
        rows=tuple((spot_name(spot, summary), *figures(row)) for spot, row in bare.items()),
    )
    tables = [
        Grid(
            title=spot_name(spot, summary),
            columns=("Defense", *columns),
            rows=tuple((name(row), *figures(row)) for row in members),
            keys=tuple(row["defense"] for row in members),
        )
        for spot, members in spots.items()
        if any(row["defense"] != UNDEFENDED for row in members)
    ]
    return (first if first.rows else None), tables
