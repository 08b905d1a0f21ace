"""What a run lost: queries dropped from the figures, conditions that are absent, errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report.grids import REASONS, Cell, Grid, dropped_text, name, several
from ragassay.report.text import listed, place, plural, visible

MAX_DROPPED = 40


def dropped(summary: Mapping[str, Any]) -> Grid:
    """Queries left out of the figures, by cell and reason; only cells that lost some.

    Cells without any answer for a condition are not listed: :func:`absent` says so at once.
    """
    lossy = [c for c in summary["cells"] if not c["absent"] and sum(c["dropped"].values())]
    if len(lossy) > MAX_DROPPED:
        return _dropped_by_rule(summary, lossy)
    rows = []
    for cell in lossy:
        lost = cell["dropped"]
        setting = cell["setting"] if several(summary) else ""
        rows.append(
            (
                visible(cell["scorer"]),
                place(cell["attack"], cell["budget"], setting),
                name(cell),
                f"{sum(lost.values())}/{cell['n'] + sum(lost.values())}",
                *(str(lost[reason]) for reason in REASONS),
            )
        )
    return Grid(
        title="Dropped queries",
        columns=(
            "Rule", "Attack", "Defense", "Dropped",
            *(reason.capitalize() for reason in REASONS.values()),
        ),
        rows=tuple(rows),
    )  # fmt: skip


def _dropped_by_rule(summary: Mapping[str, Any], lossy: Sequence[Cell]) -> Grid:
    rows = []
    for scorer in summary["scorers"]:
        cells = [cell for cell in lossy if cell["scorer"] == scorer]
        every = [cell for cell in summary["cells"] if cell["scorer"] == scorer]
        if not cells:
            continue
        most = max(cells, key=lambda cell: sum(cell["dropped"].values()))
        setting = most["setting"] if several(summary) else ""
        rows.append(
            (
                visible(scorer),
                f"{len(cells)} of {len(every)}",
                *(f"{sum(cell['dropped'][reason] for cell in cells)}" for reason in REASONS),
                f"{dropped_text(most)}: {name(most)}, "
                f"{place(most['attack'], most['budget'], setting)}",
            )
        )
    return Grid(
        title="Dropped queries",
        columns=(
            "Rule", "Comparisons that lost queries",
            *(reason.capitalize() for reason in REASONS.values()), "The one that lost most",
        ),
        rows=tuple(rows),
        notes=("Sums over comparisons. Each comparison is listed in summary.json.",),
    )  # fmt: skip


def absent(summary: Mapping[str, Any]) -> str:
    """Say how many comparisons lack a condition altogether; empty where none does."""
    cells = [cell for cell in summary["cells"] if cell["scorer"] == summary["headline"]]
    lacking = [cell for cell in cells if cell["absent"]]
    if not lacking:
        return ""
    names = listed(
        [
            "on clean retrieval" if condition == "c" else "under attack"
            for condition in "cp"
            if any(name[0] == condition for cell in lacking for name in cell["absent"])
        ]
    )
    return (
        f"{len(lacking)} of {plural(len(cells), 'comparison')} lack answers {names} altogether: "
        "there the rates of each condition are given, and no effect."
    )


def errors(summary: Mapping[str, Any]) -> Grid:
    """The distinct errors of failed trials."""
    return Grid(
        title="Errors of failed trials",
        columns=("Trials", "Error"),
        rows=tuple(
            (str(item["trials"]), visible(item["error"], limit=400)) for item in summary["errors"]
        ),
    )
