"""The section on triggers and contents of an arena: what decides who wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report import arena_tables as tables_of
from ragassay.report.arena_charts import effect_chart
from ragassay.report.arena_finding import leading
from ragassay.report.grids import UNDEFENDED, Grid
from ragassay.report.page import PageSection
from ragassay.report.parts import Chart, Part
from ragassay.report.text import NOT_ESTIMABLE, bracket, level, listed, points, visible

Row = Mapping[str, Any]
_WAYS = {
    "retrieved": "Retrieved: documents have to get into the context",
    "content": "Guaranteed: the best document of each attacker is the context",
}
_VARIANTS = {
    "own+own": "as injected", "none+own": "no trigger", "own+common": "common content",
    "none+common": "neither",
}  # fmt: skip
_DECIDES = {"trigger": "trigger", "content": "content", "": "not told apart"}


def section(summary: Mapping[str, Any]) -> PageSection | None:
    """The section; None for a run without the study."""
    told = summary.get("trigger")
    if not told:
        return None
    rows = [row for row in told["rows"] if row["scorer"] == summary["headline"]]
    several = len(summary["settings"]) > 1
    parts: list[Part] = []
    for setting in summary["settings"]:
        for way, heading in _WAYS.items():
            here = [r for r in rows if (r["setting"], r["way"]) == (setting, way)]
            grids = [_rates(here)]
            if way == "retrieved":
                grids.append(_retrieval(summary, here))
            title = f"{visible(setting)}: {heading}" if several else heading
            svg = effect_chart(f"Trigger and content, {way} {setting}".strip(), here)
            parts.append(
                Part(
                    heading=title,
                    claim=_claim(summary, here, way),
                    note=_note(summary) if not parts else "",
                    charts=(Chart(title="Effects on success (pp)", svg=svg),) if svg else (),
                    grids=tuple(grids),
                )
            )
    parts.append(Part(heading="Documents taken apart", grids=(_documents(told["documents"]),),
                      folded=True))  # fmt: skip
    return PageSection(
        anchor="h-trigger", short="Trigger or content", title="Trigger or content",
        parts=tuple(parts),
    )  # fmt: skip


def _note(summary: Mapping[str, Any]) -> str:
    return (
        "The same plays four times: documents as injected, without their triggers, with content "
        "that all attackers have alike, and with neither own. An effect is the difference that "
        "having one's own makes, in percentage points of the plays won; below 0 the rivals' is "
        "better. The larger effect decides where the interval of the comparison leaves no doubt. "
        f"Intervals ({level(summary['confidence'])}) resample whole questions."
    )


def _claim(summary: Mapping[str, Any], rows: Sequence[Row], way: str) -> str:
    """What decides for the attacker that leads the arena, and for how many of the others."""
    known = [row for row in rows if row["estimable"]]
    if not known:
        return "Not estimable: " + visible(rows[0]["why"], limit=200) + "." if rows else ""
    order = {
        row["attacker"]: row["rank"]["value"] or len(summary["attacks"])
        for row in leading(summary)["attackers"]
    }
    first = min(known, key=lambda row: (order.get(row["attacker"], 0), row["attacker"]))
    name, decided = visible(first["attacker"]), first["decides"]
    trigger, content = (
        f"{points(first['effects'][what])} {bracket(first['effects'][what])}"
        for what in ("trigger", "content")
    )
    says = {
        "trigger": f"its trigger decides more than its content for {name}",
        "content": f"its content decides more than its trigger for {name}",
        "": f"trigger and content are not told apart for {name}",
    }[decided]
    where = "Where documents are retrieved" if way == "retrieved" else "With one document each"
    text = f"{where}, {says}: {trigger} pp by the trigger, {content} pp by the content."
    others = [
        f"{what} for {sum(row['decides'] == key for row in known if row is not first)}"
        for key, what in _DECIDES.items()
    ]
    if len(known) > 1:
        text += f" Of the other {len(known) - 1}: {listed(others)}."
    return text


def _rates(rows: Sequence[Row]) -> Grid:
    return Grid(
        title="Success among others",
        columns=("Attacker", *_VARIANTS.values(), "by the trigger (pp)", "by the content (pp)",
                 "decides", "dropped"),
        rows=tuple(
            (
                visible(row["attacker"]),
                *(tables_of.share(row["rates"][each]) if row["estimable"] else NOT_ESTIMABLE
                  for each in _VARIANTS),
                *(f"{points(row['effects'][what])} {bracket(row['effects'][what])}"
                  if row["estimable"] else NOT_ESTIMABLE for what in ("trigger", "content")),
                _DECIDES[row["decides"]] if row["estimable"] else NOT_ESTIMABLE,
                str(row["dropped"]),
            )
            for row in rows
        ),
        notes=("Plays that could not be judged in all four variants are dropped.",),
    )  # fmt: skip


def _retrieval(summary: Mapping[str, Any], rows: Sequence[Row]) -> Grid:
    """Mean F1 of each attacker's documents in the four variants, among others and alone."""
    found = {
        (result["scene"], row["attacker"]): row
        for result in summary["results"]
        if (result["scorer"], result["defense"]) == (summary["headline"], UNDEFENDED)
        for row in result["attackers"]
    }
    return Grid(
        title="F1 of all documents",
        columns=("Attacker", *(f"{name}, {who}" for who in ("among others", "alone")
                               for name in _VARIANTS.values())),
        rows=tuple(
            (
                visible(row["attacker"]),
                *(tables_of.figure(found[scene, row["attacker"]][kind]["f1"])
                  for kind in ("among", "alone") for scene in row["scenes"]),
            )
            for row in rows
        ),
        notes=("Means of the plays, with intervals over questions.",),
    )  # fmt: skip


def _documents(told: Mapping[str, Row]) -> Grid:
    return Grid(
        title="Documents",
        columns=("Attacker", "taken apart", "without a trigger", "declared by the attack",
                 "a published text in it", "the question in it"),
        rows=tuple(
            (
                visible(name),
                f"{row['apart']:,} of {row['documents']:,}",
                f"{row['bare']:,}",
                *(f"{row['by'][how]:,}" for how in ("declared", "published", "question")),
            )
            for name, row in told.items()
        ),
        notes=("Documents that cannot be taken apart stay as they are in all variants, so that "
               "effects of their attacker are too small.",),
    )  # fmt: skip
