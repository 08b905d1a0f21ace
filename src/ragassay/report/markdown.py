"""report.md: the finding, every table for every rule, settings and versions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ragassay.report import (
    comparison,
    composition,
    grids,
    leaders,
    losses,
    onepage,
    overview,
    sections,
)
from ragassay.report.finding import finding, finding_detail
from ragassay.report.grids import Grid
from ragassay.report.parts import Part
from ragassay.report.prose import DEFINITIONS, NOTES, intervals_note, trials_line, what_was_run
from ragassay.report.text import visible


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
    parts = [f"# {escape(finding(summary))}", escape(finding_detail(summary))]
    parts.append(escape(what_was_run(summary, resolved)))
    summarized = onepage.section(resolved or {})
    parts.append(f"## {summarized.title}")
    for part in summarized.parts(summary, summary["headline"], False):
        parts += part_lines(part)
    parts += _warnings(summary)
    for scorer in _headline_first(summary):
        lead = " (headline)" if scorer == summary["headline"] else ""
        parts += [f"## Rule {escape(scorer)}{lead}", *_rule(summary, scorer)]
    parts += _label_comparison(summary)
    for section in sections.present(summary):
        parts.append(f"## {section.title}")
        for scorer in _headline_first(summary) if section.by_rule else [summary["headline"]]:
            if section.by_rule and len(summary["scorers"]) > 1:
                parts.append(f"### {section.title}, rule {escape(scorer)}")
            for part in section.parts(summary, scorer, False):
                parts += part_lines(part)
    parts += _contexts_and_costs(summary)
    terms = (*DEFINITIONS, *sections.definitions(summary))
    parts.append("## How to read the figures")
    parts.append("\n".join(f"- **{term}**: {text}." for term, text in terms))
    for title, tree in (("Settings", resolved), ("Versions", environment)):
        if tree:
            rows = tuple((visible(k, limit=200), visible(v, limit=400)) for k, v in flat(tree))
            parts += [
                f"## {title}",
                tabled(Grid(title="", columns=("Key", "Value"), rows=rows)),
            ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _rule(summary: Mapping[str, Any], scorer: str) -> list[str]:
    parts = []
    if overview.wanted(summary):
        parts += ["### The undefended system", escape(overview.NOTE)]
        for group in overview.groups(summary, scorer, charts=False):
            title = f"#### {escape(group.title)}" if grids.several(summary) else ""
            parts += [title, tabled(group.grid)]
    if not summary["defenses"]:
        return parts
    for block in grids.blocks(summary, scorer):
        parts += [f"### {escape(block.title)}", escape(grids.undefended_line(block))]
        parts += [tabled(grids.effects(block)), intervals_note(summary)]
        parts.append(tabled(grids.conditions(block)))
        found = grids.transitions(block)
        if found.rows:
            parts += ["Transitions of the label:", tabled(found)]
    return parts


def part_lines(part: Part) -> list[str]:
    """A part as blocks of Markdown, its charts left out."""
    parts = [f"#### {escape(part.heading)}" if part.heading else "", escape(part.claim),
             escape(part.note)]  # fmt: skip
    for grid in part.grids:
        title = f"{escape(grid.title)}:" if len(part.grids) > 1 and grid.rows else ""
        parts += [title, tabled(grid)]
    return parts


def _label_comparison(summary: Mapping[str, Any]) -> list[str]:
    found = summary["label_comparison"]
    if found is None:
        return []
    several, scorers = grids.several(summary), found["scorers"]
    parts = [f"## {comparison.TITLE}", escape(leaders.finding(found))]
    if summary["defenses"]:
        for at in found["cells"]:
            title = escape(leaders.at_title(at, several=several))
            parts += [f"### {title}, by label", escape(leaders.claim(at) + "."),
                      escape(leaders.contest(at)), tabled(comparison.levels(at, scorers, title)),
                      tabled(comparison.orders(at)), tabled(comparison.effects(at, scorers)),
                      tabled(comparison.differences(at, scorers))]  # fmt: skip
    else:
        parts.append(tabled(comparison.undefended(found, several=several)))
    parts += [
        "### Labels beside each other",
        tabled(comparison.coverage(found)),
        tabled(comparison.pairs(found)),
        escape(comparison.vanishing_text(found)),
        tabled(comparison.vanishing(found, several=several)),
    ]
    return parts


def _contexts_and_costs(summary: Mapping[str, Any]) -> list[str]:
    has_qrels = bool(summary["dataset"].get("has_qrels", True))
    found = grids.blocks(summary)
    parts = []
    for title, known, build in (
        (
            "Context composition", composition.contexts_known,
            lambda block: composition.composition(block, has_qrels=has_qrels),
        ),
        ("Cost", composition.cost_known, composition.cost),
    ):  # fmt: skip
        if not any(map(known, found)):
            continue
        parts.append(f"## {title}")
        if not summary["defenses"] and len(found) > 1:
            parts.append(tabled(composition.merged(found, build)))
        else:
            for block in found:
                parts += [f"### {escape(block.title)}", tabled(build(block))]
        parts.append(NOTES[title])
    return parts


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


def _warnings(summary: Mapping[str, Any]) -> list[str]:
    parts = ["## Warnings and dropped trials"]
    if summary["warnings"]:
        parts.append("\n".join(f"- {escape(visible(w, limit=400))}" for w in summary["warnings"]))
    else:
        parts.append("No warnings.")
    parts += [trials_line(summary), losses.absent(summary)]
    lost = losses.dropped(summary)
    parts.append(tabled(lost) if lost.rows else "No query was dropped from any figure.")
    if summary["errors"]:
        parts.append(tabled(losses.errors(summary)))
    return parts


def tabled(grid: Grid) -> str:
    """A table with its notes; empty where it has no rows."""
    if not grid.rows:
        return ""
    lines = [
        "| " + " | ".join(map(escape, grid.columns)) + " |",
        "|" + " --- |" * len(grid.columns),
        *("| " + " | ".join(map(escape, row)) + " |" for row in grid.rows),
    ]
    notes = [f"- {escape(note)}" for note in grid.notes if note]
    return "\n".join(lines) + ("\n\n" + "\n".join(notes) if notes else "")
