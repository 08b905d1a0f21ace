"""The leaderboard of a grid: attacks over corpora and rungs, each row with its profile.

Written as JSON, as CSV whose cells are no formulas, as Markdown and as an HTML page.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragassay.canon import dumps
from ragassay.report.grids import Grid
from ragassay.report.ladder_tables import FLAG_NOTE, NA_NOTE, rung_name, value_text
from ragassay.report.page import Page, PageSection, page_html, page_markdown
from ragassay.report.parts import Part
from ragassay.report.text import NOT_ESTIMABLE, percent, plural, share, visible
from ragassay.stats.filter_rates import CLOSED_DOOR_FPR

FILES = ("leaderboard.json", "leaderboard.csv", "leaderboard.md", "leaderboard.html")
_NOTE = (
    "The strongest filter is the one with the fewest successful attacks among those that block "
    "at most half of the clean passages; ties go to the lower false-positive rate. It is chosen "
    "on the figures that it is shown with, so it flatters the defender. Rows are ordered by what "
    "gets past it. In brackets: how many filters were tried, the references left out."
)
_SHARES = ("fnr", "fpr", "retrieval", "payload", "success", "contamination", "retention")


def rows_of(corpus: str, summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each setting, attack, rung and filter of a ladder, with its profile."""
    profiles = {(p["setting"], p["attack"], p["variant"]): p for p in summary["profiles"]}
    found = []
    for row in summary["rows"]:
        about = profiles.get((row["setting"], row["attack"], row["variant"]), {})
        made = about.get("profile") or {}
        found.append({
            "corpus": corpus, "setting": row["setting"], "attack": row["attack"],
            "rung": row["rung"], "filler": row["filler"], "filter": row["defense"],
            "reference": row["defense"] in summary["references"],
            "containment": made.get("containment"),
            "length_overlap": made.get("length_overlap"),
            "saturated": list(row["saturated"]), "contexts": row["contexts"],
            **{name: row[name] for name in _SHARES},
            "fnr_matched": None if row["matched"] is None else row["matched"]["fnr"],
            "auroc": row["auroc"], "ece": row["ece"], "harm": row["harm"],
            "collapse": None if row["change"] is None else row["change"]["mode"],
            "closes_door": row["closes_door"],
        })  # fmt: skip
    return found


def leaders(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """For each corpus, setting, attack and rung its strongest filter, weakest cells first."""
    cells: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        cells.setdefault(_cell_of(row), []).append(row)
    best = [min(members, key=_strength) for members in cells.values()]
    return sorted(best, key=lambda row: (-(_rate(row, "success", -1.0)), row["corpus"]))


def write_leaderboard(
    out: Path, name: str, rows: Sequence[Mapping[str, Any]], failures: Mapping[str, str]
) -> dict[str, Path]:
    """Write the four files of a leaderboard.

    Parameters
    ----------
    out : Path
        The folder of the grid.
    name : str
        Of the grid.
    rows : sequence of mapping
        From :func:`rows_of`, of all corpora.
    failures : mapping of str to str
        Corpora whose run failed, with the error.

    Returns
    -------
    dict of str to Path
        The files by their endings.
    """
    page = board(name, rows, failures)
    texts = (
        dumps({"v": 1, "name": name, "failed": dict(failures), "rows": list(rows)}) + "\n",
        csv_text(rows),
        page_markdown(page, {}, {}),
        page_html(page, {}, {}),
    )
    paths = {}
    for file, text in zip(FILES, texts, strict=True):
        path = out / file
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        paths[path.suffix[1:]] = path
    return paths


def board(name: str, rows: Sequence[Mapping[str, Any]], failures: Mapping[str, str]) -> Page:
    """The page of a leaderboard."""
    best = leaders(rows)
    filters = Counter(_cell_of(row) for row in rows if not row["reference"])
    grid = Grid(
        title="",
        columns=("Corpus", "Attack", "Rung", "Attack success", "Strongest filter", "Missed",
                 "Blocked clean", "Retrieval survival", "Question contained", "Length in range"),
        rows=tuple(
            (
                visible(row["corpus"]), visible(row["attack"]), rung_name(row),
                share(row["success"], interval=True),
                f"{visible(row['filter'])} (of {filters[_cell_of(row)]})",
                *(share(row[each], interval=True) for each in ("fnr", "fpr", "retrieval")),
                _share(row["containment"]), _share(row["length_overlap"]),
            )
            for row in best
        ),
        notes=(FLAG_NOTE,) if any(row["saturated"] for row in best) else (),
    )  # fmt: skip
    corpora = dict.fromkeys(row["corpus"] for row in rows)
    # Where fewer filters were tried, more gets past the strongest of them.
    most = max(filters.values(), default=0)
    top = next((row for row in best if filters[_cell_of(row)] == most), None)
    finding = "No run of the grid has figures" if top is None else (
        f"{visible(top['attack'])} ({rung_name(top)}) on {visible(top['corpus'])} gets furthest: "
        f"{percent(top['success']['value'])} succeed against the strongest filter, "
        f"{visible(top['filter'])}"
    )  # fmt: skip
    return Page(
        name=visible(name),
        finding=finding,
        what=f"{plural(len(corpora), 'corpus').replace('corpuss', 'corpora')}, "
        f"{plural(len(rows), 'cell')} of attack, rung and filter.",
        warnings=tuple(f"{corpus}: {error}" for corpus, error in failures.items()),
        sections=(
            PageSection(
                anchor="h-board", short="Board", title="What gets past the strongest filter",
                parts=(Part(note=_NOTE, grids=(grid,)),),
            ),
            PageSection(
                anchor="h-cells", short="Cells", title="Every filter on every rung",
                parts=tuple(_cells(rows)),
            ),
        ),
    )  # fmt: skip


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """All rows as CSV; a text that a spreadsheet would read as a formula gets an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = ("corpus", "setting", "attack", "rung", "filler", "filter", "reference", "saturated")
    shares = ("containment", "length_overlap", *_SHARES, "fnr_matched")
    values = ("auroc", "ece", "harm")
    head = [*names, *(f"{s}_{end}" for s in shares for end in ("count", "n", "low", "high"))]
    head += [f"{v}{end}" for v in values for end in ("", "_low", "_high")]
    writer.writerow([*head, "collapse", "closes_door"])
    for row in rows:
        cells: list[Any] = [
            " ".join(row[name]) if name == "saturated" else row[name] for name in names
        ]
        for name in shares:
            found = row[name] or {}
            cells += [found.get(end) for end in ("count", "n", "low", "high")]
        for name in values:
            found = row[name] or {}
            cells += [found.get(end) for end in ("value", "low", "high")]
        writer.writerow([_cell(c) for c in [*cells, row["collapse"], row["closes_door"]]])
    return out.getvalue()


# --------------------------------------------------------------------------------- internals


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if not isinstance(value, str):
        return value
    text = visible(value, limit=200)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "'") else text


def _cell_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    return row["corpus"], row["setting"], row["attack"], row["rung"], row["filler"]


def _strength(row: Mapping[str, Any]) -> tuple[bool, bool, float, float, str]:
    blocked = _rate(row, "fpr", 1.0)
    return (
        row["reference"], blocked > CLOSED_DOOR_FPR, _rate(row, "success", 1.0), blocked,
        row["filter"],
    )  # fmt: skip


def _rate(row: Mapping[str, Any], name: str, missing: float) -> float:
    value = row[name]["value"]
    return missing if value is None else float(value)


def _share(rate: Mapping[str, Any] | None) -> str:
    return NOT_ESTIMABLE if rate is None else share(rate, interval=True)


def _cells(rows: Sequence[Mapping[str, Any]]) -> list[Part]:
    found: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["corpus"], row["setting"], row["attack"]), []).append(row)
    return [
        Part(
            heading=", ".join(visible(each) for each in place if each),
            folded=True,
            grids=(Grid(
                title="",
                columns=("Rung", "Filter", "Question contained", "Length in range", "Retrieved",
                         "Missed", "Blocked clean", "Attack success", "AUROC"),
                rows=tuple(
                    (rung_name(row), visible(row["filter"]), _share(row["containment"]),
                     _share(row["length_overlap"]),
                     *(share(row[n], interval=True)
                       for n in ("retrieval", "fnr", "fpr", "success")),
                     value_text(row["auroc"]))
                    for row in members
                ),
                notes=(*((FLAG_NOTE,) if any(r["saturated"] for r in members) else ()), NA_NOTE),
            ),),
        )
        for place, members in found.items()
    ]  # fmt: skip
