"""The tables of a control ladder as plain strings, for page, Markdown and terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ragassay.report.grids import Grid
from ragassay.report.text import (
    NOT_ESTIMABLE,
    bracket,
    decimal,
    level,
    share,
    visible,
)
from ragassay.stats.decision import UNFALSIFIABLE

FLAG = "\u2021"
FLAG_NOTE = f"{FLAG} a cue of how this poison was written saturates; see the profile."
NOT_APPLICABLE = "N/A"
NA_NOTE = (
    f"{NOT_APPLICABLE}: the filter judges a context as a whole and gives its passages no score "
    "to rank them by (AUROC, matched rate), or no probability (ECE); a ratio needs an AUROC that "
    "falls."
)
RUNGS = {
    "template": ("template", ""),
    "prefix_removed": ("no prefix", ""),
    "length_matched": ("length", ""),
    "both": ("both", ""),
    "mimicry": ("mimicry", ""),
}
MODES = {
    None: "undecided", "none": "no", "signal": "signal", "calibration": "calibration",
    "mixed": "mixed",
}  # fmt: skip

Row = Mapping[str, Any]
Figures = Callable[[Row], Sequence[str]]


def rung_label(row: Row) -> tuple[str, str]:
    """The name of a rung on two lines, its filler below."""
    return RUNGS.get(row["rung"], (row["rung"], ""))[0], row["filler"]


def rung_name(row: Row) -> str:
    """The name of a rung on one line, flagged where its profile saturates."""
    name = ", ".join(filter(None, rung_label(row)))
    return visible(name) + (f" {FLAG}" if row.get("saturated") else "")


def filter_grids(summary: Mapping[str, Any], rows: Sequence[Row]) -> tuple[Grid, ...]:
    """Three tables of the filters of one setting and attack."""
    matched = f"Missed at {level(summary['matched_fpr'])} FPR"
    flagged = (FLAG_NOTE,) if any(row["saturated"] for row in rows) else ()
    return (
        _grid(
            "At the deployment threshold", rows,
            ("Missed poison (FNR)", "Blocked clean (FPR)", "Retrieval survival",
             "Payload intact", "Attack success"),
            lambda row: [
                share(row[name], interval=True) + _door(row, name)
                for name in ("fnr", "fpr", "retrieval", "payload", "success")
            ],
            flagged,
        ),
        _grid(
            "Ranking, calibration, collapse", rows,
            (matched, "AUROC", "ECE", "Change of FNR", "Change of AUROC", "Collapse", "Ratio"),
            lambda row: [
                _matched(row), value_text(row["auroc"]), value_text(row["ece"]),
                *_changes(row["change"]),
            ],
            (*flagged, NA_NOTE),
        ),
        _grid(
            "Contexts and harm", rows,
            ("Contexts with poison", "Clean kept", "Harm per 1,000"),
            lambda row: [
                share(row["contamination"], interval=True), share(row["retention"], interval=True),
                value_text(row["harm"], digits=0),
            ],
            flagged,
        ),
    )  # fmt: skip


def profile_grid(profiles: Sequence[Row]) -> Grid:
    """How the poison of each rung was written."""
    return Grid(
        title="",
        columns=("Attack", "Rung", "Question contained", "Length in range", "Saturated",
                 "Edited", "Not possible", "Payload intact"),
        rows=tuple(
            (
                visible(each["attack"]), rung_name(each),
                _profiled(each, "containment"), _profiled(each, "length_overlap"),
                ", ".join(each["saturated"]) or "none",
                f"{each['changed']}/{each['crafted']}",
                f"{each['not_possible']}/{each['crafted']}",
                f"{each['payload_intact']}/{each['crafted'] - each['not_possible']}",
            )
            for each in profiles
        ),
    )  # fmt: skip


def clean_grid(rows: Sequence[Row]) -> Grid:
    """What the filters do to contexts without poison."""
    return Grid(
        title="",
        columns=("Filter", "Blocked clean (FPR)", "Contexts left empty"),
        rows=tuple(
            (visible(row["defense"]), share(row["fpr"], interval=True),
             share(row["emptied"], interval=True))
            for row in rows
        ),
    )  # fmt: skip


def decision_grid(cells: Sequence[Row]) -> Grid:
    """Actions at the configured costs, and what trust could change."""

    def figures(cell: Row) -> list[str]:
        taken, rules = cell["actions"], cell["rules"]
        shares = [
            f"{taken['poison'][name]} / {taken['clean'][name]}"
            for name in ("PASS", "ESCALATE", "BLOCK")
        ]
        band = cell["in_band"]
        told = share(band, interval=True)
        differ = (
            "no" if rules["identical"] else
            f"{rules['half_and_tau_d']} / {rules['half_and_tau_ds']} / {rules['tau_d_and_tau_ds']}"
        )  # fmt: skip
        return [*shares, told if band["count"] else f"{told}: {UNFALSIFIABLE}", differ]

    return _grid(
        "Poison / clean candidates of the evaluation parts, all seeds together", cells,
        ("PASS", "ESCALATE", "BLOCK", "In the band",
         "Actions that differ: 1/2 and cost / 1/2 and trust / cost and trust"),
        figures, (),
    )  # fmt: skip


def ablation_grid(rows: Sequence[Row]) -> Grid:
    """The learned scorer without each feature."""
    return Grid(
        title="The learned scorer without one feature",
        columns=("Attack", "Rung", "Without", "FNR", "FPR", "AUROC", "ECE"),
        rows=tuple(
            (visible(row["attack"]), visible(row["variant"]), visible(row["drop"] or "(nothing)"),
             share(row["fnr"], interval=True), share(row["fpr"], interval=True),
             value_text(row["auroc"]), value_text(row["ece"]))
            for row in rows
        ),
    )  # fmt: skip


def end_to_end_grid(cells: Sequence[Row]) -> Grid:
    """Target-positive answers in the four conditions, by rung."""

    def figures(cell: Row) -> list[str]:
        if not cell["estimable"]:
            return [NOT_ESTIMABLE] * 4
        return [share(cell["rates"][name], interval=True) for name in ("c0", "c1", "p0", "p1")]

    return Grid(
        title="",
        columns=("Attack", "Filter", "Rung", "Clean, none (c0)", "Clean, filtered (c1)",
                 "Poisoned, none (p0)", "Poisoned, filtered (p1)"),
        rows=tuple(
            (visible(cell["attack"]), visible(cell["defense"]), rung_name(cell), *figures(cell))
            for cell in cells
        ),
    )  # fmt: skip


def value_text(found: Row | None, digits: int = 3) -> str:
    """A figure with its interval; N/A where a filter cannot have it."""
    if found is None or found["value"] is None:
        return NOT_APPLICABLE if found is None else NOT_ESTIMABLE
    text = decimal(found["value"], digits)
    if found["low"] is None:
        return text
    return f"{text} [{decimal(found['low'], digits)}, {decimal(found['high'], digits)}]"


def _grid(
    title: str, rows: Iterable[Row], columns: Sequence[str], figures: Figures,
    notes: tuple[str, ...],
) -> Grid:  # fmt: skip
    found = list(rows)
    return Grid(
        title=title,
        columns=("Filter", "Rung", *columns),
        rows=tuple((visible(row["defense"]), rung_name(row), *figures(row)) for row in found),
        notes=notes,
    )


def _door(row: Row, name: str) -> str:
    return " (closing the door)" if name == "fnr" and row["closes_door"] else ""


def _matched(row: Row) -> str:
    found = row["matched"]
    return NOT_APPLICABLE if found is None else share(found["fnr"], interval=True)


def _changes(change: Row | None) -> list[str]:
    if change is None:
        return ["", "", "", ""]
    fnr, auroc = change["fnr"], change["auroc"]
    rate = NOT_ESTIMABLE
    if fnr["value"] is not None:
        rate = f"{100 * fnr['value']:+.1f} points {bracket(fnr)}"
    return [
        rate, NOT_APPLICABLE if auroc is None else value_text(auroc), MODES[change["mode"]],
        NOT_APPLICABLE if change["ratio"] is None else decimal(change["ratio"], 2),
    ]  # fmt: skip


def _profiled(each: Row, cue: str) -> str:
    found = each["profile"]
    return NOT_ESTIMABLE if found is None else share(found[cue], interval=True)
