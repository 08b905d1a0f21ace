"""How many poison passages an answer needs at once, and the share of each rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report import evidence, parts
from ragassay.report.bars import Bar, bar_chart
from ragassay.report.grids import UNDEFENDED, Grid, name
from ragassay.report.parts import Chart, Part, Row
from ragassay.report.text import bracket, count, known, percent, visible

MAX_CHARTS = 18  # of all rules together
MOST = 0.9  # share of known sizes below which a defended system is not listed
NOTE = (
    "Every subset of the poison passages of a context is answered, the other passages staying. "
    "The size is that of the smallest subset that gives the target; 0: the target is there "
    "without poison. Open: a label that decides the size is missing, the context holds no poison, "
    "or more passages of it than were tried."
)


def attribution(summary: Mapping[str, Any], scorer: str, charts: bool) -> list[Part]:
    """The histogram of sizes, and the mean Shapley value by rank; empty where nothing is known."""
    every = evidence.rows(summary, scorer)
    found = [row for row in every if _told(row)]
    if not found:
        return []
    few = [row for row in every if row["attribution"]["n"] and not _told(row)]
    left = (
        f"Not listed: {len(few)} systems and places where more than a tenth of the sizes is open, "
        "as where subsets were answered for the undefended system alone."
        if few else ""
    )  # fmt: skip
    largest = max(row["size"] for each in found for row in each["attribution"]["sufficient"])
    return [
        Part(
            heading="How many poison passages an answer needs",
            claim=finding(found, summary),
            note=NOTE,
            charts=_charts(summary, found, scorer) if charts else (),
            grids=(_sizes(summary, found, largest, left), _shares(summary, found)),
        )
    ]


def finding(found: Sequence[Row], summary: Mapping[str, Any]) -> str:
    """Say how many answers need two or more poison passages, and how many are open."""
    row = max(parts.leading(found), key=lambda one: one["attribution"]["several"]["count"])
    about = row["attribution"]
    share = about["several"]
    where = parts.spot_name(parts.at_spot(row), summary)
    system = "" if row["defense"] == UNDEFENDED else f" with {name(row)}"
    verb = "needs" if share["count"] == 1 else "need"
    return (
        f"Under {where}{system}, {share['count']} of {share['n']} target-positive answers {verb} "
        f"two or more poison passages together ({percent(share['value'])} {bracket(share)}); "
        f"{open_ones(row)} open."
    )


def open_ones(row: Row) -> int:
    """How many target-positive answers have no known size."""
    unknown: int = row["positives"] - row["attribution"]["n"]
    return unknown


def _told(row: Row) -> bool:
    n = row["attribution"]["n"]
    asked = row["defense"] == UNDEFENDED or n >= MOST * row["positives"]
    return bool(n) and asked


def _system(row: Row, summary: Mapping[str, Any]) -> str:
    where = parts.spot_name(parts.at_spot(row), summary)
    return where if row["defense"] == UNDEFENDED else f"{where}, {name(row)}"


def _sizes(summary: Mapping[str, Any], found: Sequence[Row], largest: int, note: str) -> Grid:
    rows = []
    for row in found:
        about = row["attribution"]
        sizes = {each["size"]: each for each in about["sufficient"]}
        rows.append(
            (
                _system(row, summary),
                *(known(sizes[s]) if s in sizes else "-" for s in range(largest + 1)),
                known(about["several"]),
                f"{open_ones(row)}/{row['positives']}",
                f"{about['not_monotone']}/{about['n']}",
            )
        )
    return Grid(
        title="Poison passages needed at once, of the target-positive answers",
        columns=(
            "Attack", *(str(size) for size in range(largest + 1)), "Two or more", "Open",
            "Not monotone",
        ),
        rows=tuple(rows),
        notes=(
            note, "Not monotone: adding some poison passage takes the target away.",
        ),
    )  # fmt: skip


def _shares(summary: Mapping[str, Any], found: Sequence[Row]) -> Grid:
    ranks = max(
        (each["rank"] for row in found for each in row["attribution"]["shapley_by_rank"]), default=0
    )
    rows = []
    for row in found:
        shares = {each["rank"]: each for each in row["attribution"]["shapley_by_rank"]}
        rows.append(
            (
                _system(row, summary),
                *(
                    f"{shares[r]['mean']:.2f} [{shares[r]['n']} contexts]" if r in shares else "-"
                    for r in range(1, ranks + 1)
                ),
            )
        )
    return Grid(
        title="Mean Shapley value of the poison passages, by their rank in the context",
        columns=("Attack", *(_ordinal(r) for r in range(1, ranks + 1))),
        rows=tuple(rows) if ranks else (),
        notes=("Over target-positive contexts whose value is known.",),
    )


def _ordinal(number: int) -> str:
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number, 'th') }"


def _charts(summary: Mapping[str, Any], found: Sequence[Row], scorer: str) -> tuple[Chart, ...]:
    """Histograms of the undefended system, the largest budgets where there are too many."""
    bare = [row for row in found if row["defense"] == UNDEFENDED] or list(found)
    room = max(2, MAX_CHARTS // len(summary["scorers"]))
    first = sorted(range(len(bare)), key=lambda i: (-bare[i]["budget"], i))[:room]
    return tuple(_histogram(summary, bare[i], scorer) for i in sorted(first))


def _histogram(summary: Mapping[str, Any], row: Row, scorer: str) -> Chart:
    about = row["attribution"]
    sizes = [each for each in about["sufficient"] if each["count"]]
    last = max([2, *(each["size"] for each in sizes)])
    bars = [
        Bar(name=_needs(each["size"]), rate=each)
        for each in about["sufficient"] if each["size"] <= last
    ]  # fmt: skip
    title = _system(row, summary)
    open_text = f", {open_ones(row)} open" if open_ones(row) else ""
    return Chart(
        title=title,
        told=f"{count(about['several'])} need two or more {bracket(about['several'])}{open_text}",
        svg=bar_chart(
            f"Poison passages needed, {title}, rule {visible(scorer)}", bars,
            "share of the target-positive answers",
        ),
    )  # fmt: skip


def _needs(size: int) -> str:
    return {0: "none: there without poison", 1: "one is enough"}.get(size, f"{size} together")
