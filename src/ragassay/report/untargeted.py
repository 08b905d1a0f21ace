"""Attacks without a target in a report: where the system declines or loses its correct answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report.grids import UNDEFENDED, Grid, aim_of
from ragassay.report.parts import Part, Row, leading, of_scorer, spot_name, system_tables
from ragassay.report.text import count, plural, share, visible

NOTE = (
    "Success out of the questions that the same system, with the same defense, handled on clean "
    "retrieval: answered, for an attack that makes it decline; answered correctly, for one that "
    "takes the correct answer away. A target-positive rate is no success of these attacks."
)
_COLUMNS = ("Succeeds where", "Success", "Handled on clean retrieval", "Undecided")


def wanted(summary: Mapping[str, Any]) -> bool:
    """Whether the run has an attack without a target."""
    return bool(rows(summary))


def rows(summary: Mapping[str, Any]) -> list[Row]:
    """The rows of all scorers."""
    return list((summary.get("outcomes") or {"rows": []})["rows"])


def untargeted(summary: Mapping[str, Any], scorer: str, charts: bool) -> list[Part]:
    """Success of every attack without a target, without a defense and under each."""
    found = of_scorer(rows(summary), scorer)

    def figures(row: Row) -> Sequence[str]:
        return (
            aim_of(summary, row["attack"]),
            share(row["success"], interval=True),
            share(row["handled"], interval=True),
            str(row["undecided"]),
        )

    bare, tables = system_tables(
        summary, found, _COLUMNS, figures, title="Success of attacks without a target"
    )
    grids: tuple[Grid, ...] = (*([] if bare is None else [bare]), *tables)
    return [Part(claim=finding(summary, scorer), note=NOTE, grids=grids)]


def finding(summary: Mapping[str, Any], scorer: str) -> str:
    """Name the attack that succeeds most often without a defense, at the largest budget."""
    found = [row for row in leading(of_scorer(rows(summary), scorer)) if row["success"]["n"]]
    if not found:
        return (
            f"Under the rule {visible(scorer)} no question that was handled on clean retrieval is "
            "decided under an attack without a target."
        )
    row = max(found, key=lambda one: one["success"]["value"])
    spot = (row["setting"], row["attack"], row["budget"])
    system = "no defense" if row["defense"] == UNDEFENDED else visible(row["defense"])
    text = (
        f"Under the rule {visible(scorer)} and {spot_name(spot, summary)}, with {system}, for "
        f"{count(row['success'])} questions {aim_of(summary, row['attack'])}"
    )
    return text + (f", the most of {plural(len(found), 'attack')}." if len(found) > 1 else ".")
