"""The page of a control ladder: filters over rungs, profiles, costs, and what was edited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Any

from ragassay.report import decision, ladder_tables
from ragassay.report.ladder_tables import rung_label, rung_name
from ragassay.report.page import MAX_ENTRIES, Entry, Page, PageSection, Quote
from ragassay.report.parts import Chart, Part
from ragassay.report.rung_chart import rung_chart
from ragassay.report.text import percent, plural, share, visible
from ragassay.store import RunFolder

MAX_CHARTS = 60
_WORDS = {
    "prefix_removed": "Removing the question prefix",
    "length_matched": "Matching clean lengths",
    "both": "Removing the prefix and matching lengths",
    "mimicry": "Mimicking a clean passage",
    "template": "The unedited text",
}
_DEFINITIONS = (
    ("Missed poison (FNR)", "passed ones of the retrieved poison; a passage that is not retrieved "
     "is in no denominator, so read it beside retrieval survival"),
    ("Blocked clean (FPR)", "blocked ones of the retrieved clean passages of the same contexts"),
    ("Missed at a matched FPR", "at the smallest threshold that blocks at most so many of the "
     "evaluated clean passages: an oracle's point; N/A for filters without a score"),
    ("Retrieval survival", "crafted passages that are in the context of their question after the "
     "edited text was embedded and ranked again"),
    ("Attack success", "crafted passages that are retrieved, whose payload is intact, and that "
     "pass the filter"),
    ("Collapse", "of a filter whose miss rate rose by 10 points or more: of its signal (AUROC "
     "below 0.6, or an interval with 0.5), of its calibration (AUROC of 0.8 or more, and half of "
     "the misses or fewer at the matched rate), or mixed"),
    ("Closing the door", "missing nothing and blocking more than half of what is clean"),
    ("Harm per 1,000", "cost of misses and false blocks per thousand contexts, in false blocks, "
     "without escalation"),
)  # fmt: skip


def page(store: RunFolder, summary: Mapping[str, Any], resolved: Mapping[str, Any]) -> Page:
    """Make the page from a run folder and its summary."""
    title, detail = finding(summary), finding_detail(summary)
    trials = summary["trials"]
    entries = tuple(islice(_entries(store, resolved), MAX_ENTRIES))
    return Page(
        name=visible(summary["name"]),
        finding=title,
        detail=detail,
        what=_what(summary),
        warnings=tuple(summary["warnings"]),
        trials=f"{trials['done']} of {plural(trials['planned'], 'trial')} done, "
        f"{trials['failed']} failed, {trials['missing']} missing.",
        sections=tuple(_sections(summary)),
        entries=entries,
        total=sum(each["changed"] for each in summary["profiles"]),
        definitions=_DEFINITIONS,
    )


def finding(summary: Mapping[str, Any]) -> str:
    """The rung that opens the widest gap, where its interval is above zero."""
    row = _worst(summary)
    if row is not None:
        fnr = row["change"]["fnr"]
        return (
            f"{_edit(row)} raises {visible(row['defense'])}'s miss rate from "
            f"{percent(fnr['before'])} to {percent(fnr['after'])}"
        )
    if not any(row["change"] for row in summary["rows"]):
        return "What each filter misses, and how the poison was written"
    return "No rung raises any filter's miss rate beyond chance"


def finding_detail(summary: Mapping[str, Any]) -> str:
    """The figures behind the finding."""
    row = _worst(summary)
    if row is None:
        return ""
    change = row["change"]
    text = (
        f"{visible(row['attack'])}: {100 * change['fnr']['value']:+.1f} points "
        f"[{100 * change['fnr']['low']:.1f}, {100 * change['fnr']['high']:.1f}]"
    )
    if change["auroc"] is not None and change["auroc"]["value"] is not None:
        text += f", AUROC {change['auroc']['before']:.3f} -> {change['auroc']['after']:.3f}"
    return (
        f"{text}. Blocked clean: {share(row['fpr'], interval=True)}. Retrieval survival on this "
        f"rung: {share(row['retrieval'], interval=True)}; attack success: "
        f"{share(row['success'], interval=True)}."
    )


def tables(summary: Mapping[str, Any]) -> list[Any]:
    """What the terminal prints: a table for each attack, and the finding."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    printed: list[Any] = []
    for (setting, attack), rows in _by_attack(summary["rows"]).items():
        table = Table(title=Text(_place(setting, attack)), title_justify="left", box=box.SIMPLE)
        for number, column in enumerate(("filter", "rung", "missed", "blocked", "AUROC",
                                         "retrieved")):  # fmt: skip
            table.add_column(column, justify="left" if number < 2 else "right", overflow="fold")
        for row in rows:
            auroc = None if row["auroc"] is None else row["auroc"]["value"]
            table.add_row(
                Text(visible(row["defense"], limit=18)), Text(rung_name(row)),
                percent(row["fnr"]["value"]), percent(row["fpr"]["value"]),
                "N/A" if auroc is None else f"{auroc:.3f}", percent(row["retrieval"]["value"]),
            )  # fmt: skip
        printed.append(table)
    printed.append(Text(finding(summary), style="bold"))
    detail = finding_detail(summary)
    return [*printed, Text(detail)] if detail else printed


# --------------------------------------------------------------------------------- sections


def _sections(summary: Mapping[str, Any]) -> Iterator[PageSection]:
    parts, left = [], MAX_CHARTS
    for (setting, attack), rows in _by_attack(summary["rows"]).items():
        charts = _charts(_place(setting, attack), rows)[:left]
        left -= len(charts)
        parts.append(
            Part(
                heading=_place(setting, attack),
                note="Missed: passed of the retrieved poison, at the deployment threshold. "
                "Retrieved: of all crafted passages. Bands are "
                f"{100 * summary['confidence']:g}% intervals over questions.",
                charts=charts,
                grids=ladder_tables.filter_grids(summary, rows),
            )
        )
    yield PageSection(
        anchor="h-ladder", short="Ladder", title="What each filter misses on each rung",
        parts=tuple(parts),
    )  # fmt: skip
    yield PageSection(
        anchor="h-profile", short="Profile", title="How the poison was written",
        parts=(Part(
            note="Read it beside the results: a saturated cue lets a filter that reads it alone "
            "catch nearly all of the set. It is no result itself.",
            grids=(ladder_tables.profile_grid(summary["profiles"]),),
        ),),
    )  # fmt: skip
    if summary["clean"]:
        yield PageSection(
            anchor="h-clean", short="Clean", title="What clean contexts lose",
            parts=(Part(grids=(ladder_tables.clean_grid(summary["clean"]),)),),
        )  # fmt: skip
    if summary["end_to_end"]:
        lead = [cell for cell in summary["end_to_end"] if cell["scorer"] == summary["headline"]]
        cells = [cell for cell in lead if cell["defense"] != "none"] or lead
        yield PageSection(
            anchor="h-answers", short="Answers", title="What becomes of the answers",
            parts=(Part(
                note=f"Target-positive answers under rule {visible(summary['headline'])}.",
                grids=(ladder_tables.end_to_end_grid(cells),),
            ),),
        )  # fmt: skip
    if summary["decision"]["cells"]:
        yield PageSection(
            anchor="h-actions", short="Actions", title="Pass, escalate or block",
            parts=(Part(grids=(ladder_tables.decision_grid(summary["decision"]["cells"]),)),),
        )  # fmt: skip
        yield decision.section(summary["decision"])
    if summary["ablation"]:
        yield PageSection(
            anchor="h-features", short="Features", title="Which feature carries the scorer",
            parts=(Part(grids=(ladder_tables.ablation_grid(summary["ablation"]),)),),
        )  # fmt: skip


def _charts(place: str, rows: Sequence[Mapping[str, Any]]) -> tuple[Chart, ...]:
    found = []
    for defense, members in _grouped(rows, "defense").items():
        points = [(rung_label(row), row["fnr"], row["retrieval"]) for row in members]
        svg = rung_chart(f"{visible(defense)}: missed and retrieved poison, {place}", points)
        if svg:
            found.append(Chart(title=visible(defense), svg=svg))
    return tuple(found)


# ----------------------------------------------------------------------------------- records


def _entries(store: RunFolder, resolved: Mapping[str, Any]) -> Iterator[Entry]:
    """What was edited, a record a passage."""
    crafted = {p.id: p.text for one in store.poison().values() for p in one.passages}
    questions = {query_id: query.text for query_id, (query, _) in store.queries().items()}
    for _, body in store.read("rungs"):
        for passage in body["passages"]:
            edit = passage["edit"]
            if edit["possible"] and not edit["changed"]:
                continue
            before, after = crafted.get(passage["source"], ""), passage["text"]
            removed, added = _difference(before, after) if edit["possible"] else ((), ())
            quotes = [Quote(label="as crafted", text=before, marks=removed)]
            if edit["possible"]:
                quotes.append(Quote(label="after the edit", text=after, marks=added))
            yield Entry(
                title=f"{questions.get(body['query_id'], body['query_id'])} "
                f"({passage['number'] + 1})",
                tags={
                    "attack": body["attack"], "rung": body["rung"], "filler": body["filler"],
                    "payload": "intact" if edit["payload_intact"] else "not intact",
                },
                lines=(
                    ("question", body["query_id"]),
                    ("words", f"{edit['words_before']} -> {edit['words']}"),
                    ("occurrences of the question removed", str(edit["removed"])),
                    *((("why not", edit["reason"]),) if edit["reason"] else ()),
                    *((("from", ", ".join(edit["sources"])),) if edit["sources"] else ()),
                ),
                quotes=tuple(quotes),
            )  # fmt: skip


def _difference(
    before: str, after: str
) -> tuple[tuple[tuple[int, int, str], ...], tuple[tuple[int, int, str], ...]]:
    """Which spans of words went, and which came."""
    old, new = _words(before), _words(after)
    matcher = SequenceMatcher(
        None, [before[a:b] for a, b in old], [after[a:b] for a, b in new], autojunk=False
    )
    removed, added = [], []
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            continue
        if b > a:
            removed.append((old[a][0], old[b - 1][1], "removed"))
        if d > c:
            added.append((new[c][0], new[d - 1][1], "added"))
    return tuple(removed), tuple(added)


def _words(text: str) -> list[tuple[int, int]]:
    """Spans of the words; a full stop within one (a prefix joined without a space) cuts it."""
    spans, start = [], -1
    for place, char in enumerate(text):
        if char.isspace():
            if start >= 0:
                spans.append((start, place))
            start = -1
            continue
        if start < 0:
            start = place
        if char in ".?!":
            spans.append((start, place + 1))
            start = -1
    if start >= 0:
        spans.append((start, len(text)))
    return spans


# --------------------------------------------------------------------------------- internals


def _worst(summary: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The row whose rise of the miss rate has the highest lower bound, if that is above zero.

    Only where the poison still is an attack: an edit that destroys most payloads leads nowhere.
    Filters that read one feature are references, and mimicry is other poison: both lead only
    where nothing else rises.
    """
    rising = [
        row for row in summary["rows"]
        if row["change"] and row["change"]["fnr"]["low"] is not None
        and row["change"]["fnr"]["low"] > 0
        and 2 * row["payload"]["count"] >= row["payload"]["n"]
    ]  # fmt: skip
    floors = set(summary["references"])
    return max(
        rising,
        key=lambda row: (
            row["defense"] not in floors, row["rung"] != "mimicry", row["change"]["fnr"]["low"]
        ),
        default=None,
    )  # fmt: skip


def _edit(row: Mapping[str, Any]) -> str:
    words = _WORDS.get(row["rung"], row["rung"])
    return words if row["filler"] in ("", "clean") else f"{words} with {row['filler']} words"


def _what(summary: Mapping[str, Any]) -> str:
    data = summary["dataset"]
    rungs = ", ".join(", ".join(filter(None, rung_label(rung))) for rung in summary["rungs"])
    ks = sorted(set(summary["k"].values()))
    return (
        f"{visible(data['name'])}: {data['evaluated']} questions, {data['passages']:,} passages, "
        f"k = {', '.join(map(str, ks))}. Attacks: "
        f"{', '.join(map(visible, summary['attacks']))}. Rungs: {rungs}."
    )


def _by_attack(
    rows: Sequence[Mapping[str, Any]],
) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """Rows by setting and attack, those of a filter together."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["setting"], row["attack"]), []).append(row)
    for members in found.values():
        order = list(dict.fromkeys(row["defense"] for row in members))
        members.sort(key=lambda row: order.index(row["defense"]))
    return found


def _grouped(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row[name], []).append(row)
    return found


def _place(setting: str, attack: str) -> str:
    return f"{visible(setting)}: {visible(attack)}" if setting else visible(attack)
