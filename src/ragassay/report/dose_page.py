"""What a dose run shows: the finding, dose-response, delivery, controls, knowledge, defenses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ragassay.report import dose_tables as tables_of
from ragassay.report.dose_charts import Stack, dose_chart, stacked_chart
from ragassay.report.dose_entries import entries
from ragassay.report.dose_tables import Row, Summary, rows_of, rule_name, short
from ragassay.report.grids import UNDEFENDED, Grid
from ragassay.report.page import Page, PageSection
from ragassay.report.parts import Chart, Part
from ragassay.report.text import count, decimal, level, listed, percent, plural, share, visible
from ragassay.store import RunFolder

AXIS = "passages tampered with (applied dose)"
DEFINITIONS = (
    ("Requested, applied", "passages that were to be tampered with, and those that differ"),
    ("Fooled", "correct on the clean context and not after tampering, of the clean-correct runs; "
     "an abstention counts"),
    ("Adopted", "the answer asserts a value that an applied edit put in, outside of a negation; "
     "for a negation, a sentence that denies what was negated (a lower bound)"),
    ("Abstained", "the answer declines; an answer may adopt an edit and abstain"),
    ("Dose 0 (control)", "a rule was asked and found nothing to edit; such passages are selected, "
     "so it controls for adoption and does not replace the clean arm"),
    ("Zero dose", "a second generation of the clean prompt, byte for byte the same"),
    ("ED50", "the applied dose at which half of the clean-correct answers fall; never "
     "extrapolated; three dots are an end beyond the doses observed"),
    ("Known", "the victim answers correctly without any passage"),
    ("P, J, N, H, Gamma", "prevented and introduced by a defense, N = P - J under tampering, H "
     "the change on clean contexts, Gamma = N + H; in points of the runs"),
    ("Intervals", "resample distinct question texts; those of agreement and exactness are "
     "Wilson's"),
)  # fmt: skip


def page(store: RunFolder, summary: Summary, resolved: Mapping[str, Any]) -> Page:
    """Fill the page of a dose run."""
    listed_ones, total = entries(store, summary)
    return Page(
        name=summary["name"],
        finding=finding(summary),
        detail=detail(summary),
        what=what(summary, resolved),
        warnings=tuple(summary["warnings"]),
        trials=_trials(summary),
        sections=tuple(section for section in _sections(summary) if section.parts),
        entries=listed_ones,
        total=total,
        definitions=DEFINITIONS,
    )


# -------------------------------------------------------------------------------- the finding


def _top(summary: Summary, setting: str) -> Row | None:
    """The pooled point of the largest applied dose with a clean-correct run."""
    pooled = _pooled(summary, setting)
    if pooled is None:
        return None
    with_base = [p for p in pooled["points"] if p["dose"] and p["fooled"]["n"]]
    return with_base[-1] if with_base else None


def _pooled(summary: Summary, setting: str, defense: str = UNDEFENDED) -> Row | None:
    rows = rows_of(summary, "response", setting=setting, defense=defense)
    return next((row for row in rows if row["rule"] == ""), None)


def finding(summary: Summary) -> str:
    """Say in one sentence what tampering does, and at which dose."""
    setting = summary["settings"][0]
    point = _top(summary, setting)
    pooled = _pooled(summary, setting)
    if point is None or pooled is None:
        if not summary["trials"]["done"]:
            return "Not estimable: no answer is there"
        return "Not estimable: no clean answer is correct, so none can fall to tampering"
    rate = point["fooled"]
    where = f"{visible(setting)}: " if setting else ""
    text = (
        f"{where}{percent(rate['value'])} of the clean-correct answers fall "
        f"({count(rate)}) when {plural(point['dose'], 'passage')} "
        f"{'is' if point['dose'] == 1 else 'are'} tampered with"
    )
    half = pooled["model"]["ed50"][0]
    if half["value"] is not None:
        text += f"; half fall at a dose of {decimal(half['value'], 1)}"
    return text


def detail(summary: Summary) -> str:
    """The figures behind the finding."""
    setting = summary["settings"][0]
    pooled = _pooled(summary, setting)
    if pooled is None or not pooled["tampered"]["n"]:
        return ""
    told = pooled["tampered"]
    parts = [f"At applied dose 1 and more: fooled {share(told['fooled'], interval=True)}"]
    if told["adopted"] is not None:
        parts.append(f"adopted {share(told['adopted'], interval=True)}")
    parts.append(f"abstained {share(told['abstained'], interval=True)}")
    text = ", ".join(parts) + "."
    for row in rows_of(summary, "noise", setting=setting):
        text += f" Decoding alone fools {share(row['fooled'], interval=True)}."
    others = [(s, _top(summary, s)) for s in summary["settings"][1:]]
    told_others = [
        f"{visible(s)} {share(p['fooled'])} at dose {p['dose']}" for s, p in others if p is not None
    ]
    return text + (f" Other settings: {listed(told_others)}." if told_others else "")


def what(summary: Summary, resolved: Mapping[str, Any]) -> str:
    """What was run."""
    part, data = summary["tampering"], summary["dataset"]
    doses = f"doses {', '.join(map(str, part['doses']))}" if part["doses"] else "every dose"
    chosen = "all passages" if part["choose"] == "all" else "the passages that a rule can edit"
    k = "/".join(map(str, summary["k"]))
    return (
        f"{plural(summary['questions'], 'question')} ({summary['groups']} distinct texts) of "
        f"{visible(data['name'])}, k = {k}, {plural(len(summary['rules']), 'rule')} "
        f"({listed([visible(rule) for rule in summary['rules']])}), {doses}, "
        f"{plural(part['draws'], 'draw')} among {chosen}. Rule {visible(summary['headline'])} "
        f"labels the answers; {level(summary['confidence'])} intervals resample questions, "
        f"{summary['draws']:,} times."
    )


def _trials(summary: Summary) -> str:
    trials = summary["trials"]
    return f"{trials['done']:,} of {trials['planned']:,} answers are there."


# ------------------------------------------------------------------------------- the sections


def _sections(summary: Summary) -> list[PageSection]:
    settings = summary["settings"]
    makers = (
        ("h-response", "Dose", "What a dose does", _response),
        ("h-outcomes", "Outcomes", "What becomes of clean-correct answers", _outcomes),
        ("h-delivery", "Delivery", "Requested and applied dose", _delivery),
        ("h-rules", "Rules", "Rules against one another", _rules),
        ("h-controls", "Controls", "Controls and decoding noise", _controls),
        ("h-knowledge", "Knowledge", "Known and unknown facts", _knowledge),
        ("h-defenses", "Defenses", "What defenses do at each dose", _defenses),
        ("h-withdrawn", "Withdrawn", "The withdrawn measure", _withdrawn),
    )
    return [
        PageSection(
            anchor=anchor,
            short=name,
            title=title,
            parts=tuple(part for setting in settings for part in maker(summary, setting)),
        )
        for anchor, name, title, maker in makers
    ]


def _part(
    summary: Summary, setting: str, grids: Sequence[Grid | None], *, heading: str = "",
    claim: str = "", note: str = "", charts: Sequence[Chart] = (), folded: bool = False,
) -> list[Part]:  # fmt: skip
    """A part, named after its setting where there are several; none without a table or chart."""
    kept = tuple(grid for grid in grids if grid is not None)
    if not kept and not charts:
        return []
    several = len(summary["settings"]) > 1
    head = ": ".join(text for text in ((visible(setting) if several else ""), heading) if text)
    return [
        Part(
            heading=head, claim=claim, note=note, charts=tuple(charts), grids=kept, folded=folded
        )
    ]  # fmt: skip


def _charts(drawn: Sequence[tuple[str, str, str]]) -> list[Chart]:
    return [Chart(title=title, svg=svg, told=told) for title, svg, told in drawn if svg]


def _response(summary: Summary, setting: str) -> list[Part]:
    rows = rows_of(summary, "response", setting=setting)
    by_rule = [row for row in rows if row["rule"] or len(summary["rules"]) == 1]
    drawn = []
    for what_, title in (
        ("fooled", "Fooled, of the clean-correct runs"),
        ("adopted", "Adopted an edit"),
        ("abstained", "Abstained"),
    ):
        lines = {
            rule_name(row["rule"]): {p["dose"]: p[what_] for p in row["points"] if p[what_]}
            for row in by_rule
        }
        drawn.append((title, dose_chart(f"{title} {setting}", lines, AXIS), ""))
    parts = _part(
        summary, setting, [tables_of.response(rows), tables_of.model(rows)],
        charts=_charts(drawn), claim=_response_claim(rows),
        note="Doses are applied ones. Bars and brackets are intervals over questions.",
    )  # fmt: skip
    for scorer in summary["scorers"]:
        if scorer != summary["headline"]:
            other = rows_of(summary, "response", setting=setting, scorer=scorer)
            title = f"Labeled by rule {visible(scorer)}"
            parts += _part(
                summary, setting, [tables_of.response(other)], heading=title, folded=True
            )
    return parts


def _response_claim(rows: Sequence[Row]) -> str:
    told = [
        f"{rule_name(row['rule'])} {share(row['tampered']['fooled'])}"
        for row in rows
        if row["rule"] and row["tampered"]["fooled"]["n"]
    ]
    return f"Fooled at applied dose 1 and more: {listed(told)}." if told else ""


def _outcomes(summary: Summary, setting: str) -> list[Part]:
    stacks = [
        Stack(name=f"{rule_name(row['rule'])}, dose {point['dose']}", **point["resolved"])
        for row in rows_of(summary, "response", setting=setting)
        if row["rule"] or len(summary["rules"]) == 1
        for point in row["points"]
    ]
    title = "Outcome of runs whose clean answer is correct"
    svg = stacked_chart(f"{title} {setting}", stacks, "share of the clean-correct runs")
    return _part(
        summary, setting, [], charts=_charts([(title, svg, "")]),
        note="Abstention is resolved first; the three parts add up to the clean-correct runs.",
    )  # fmt: skip


def _delivery(summary: Summary, setting: str) -> list[Part]:
    return _part(
        summary, setting, [tables_of.delivery(rows_of(summary, "delivery", setting=setting))],
        note="A rule finds nothing to edit in some passages. Rules can be compared at equal "
        "applied dose only.",
    )  # fmt: skip


def _rules(summary: Summary, setting: str) -> list[Part]:
    rows = rows_of(summary, "contrasts", setting=setting)
    return _part(
        summary, setting, [tables_of.contrasts(rows)],
        note="Each question counts with the mean over its runs under each rule, on the questions "
        "that all rules share; so differences add up.",
    )  # fmt: skip


def _controls(summary: Summary, setting: str) -> list[Part]:
    found = rows_of(summary, "arms", setting=setting)
    stacks = [
        Stack(
            name=tables_of.ARMS[row["arm"]],
            **{o: row[o]["count"] for o in ("correct", "abstained", "wrong")},
        )
        for row in found
    ]
    title = "Control arms"
    svg = stacked_chart(f"{title} {setting}", stacks, "share of the answers")
    return _part(
        summary, setting,
        [
            tables_of.arms(found),
            tables_of.noise(rows_of(summary, "noise", setting=setting)),
            tables_of.tests(rows_of(summary, "tests", setting=setting)),
        ],
        charts=_charts([(title, svg, "")]),
        note="McNemar's test takes runs as independent, and several runs are of one question: read "
        "it as exploratory.",
    )  # fmt: skip


def _knowledge(summary: Summary, setting: str) -> list[Part]:
    rows = rows_of(summary, "knowledge", setting=setting)
    lines = {
        "known facts" if row["known"] else "unknown facts": {
            point["dose"]: point["fooled"] for point in row["points"]
        }
        for row in rows
    }
    title = "Fooled, by what the victim knows without passages"
    drawn = [(title, dose_chart(f"{title} {setting}", lines, AXIS), "")]
    claim = "" if len(rows) == 2 else _one_kind(rows)
    return _part(summary, setting, [tables_of.knowledge(rows)], charts=_charts(drawn), claim=claim)


def _one_kind(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    return f"The victim knows {'all' if rows[0]['known'] else 'none'} of these facts."


def _defenses(summary: Summary, setting: str) -> list[Part]:
    parts: list[Part] = []
    for defense in summary["defenses"]:
        rows = rows_of(summary, "four", setting=setting, defense=defense)
        by_rule = rows_of(summary, "response", setting=setting, defense=defense)
        lines = {
            name: {p["dose"]: p["fooled"] for p in row["points"]}
            for name, row in (
                ("no defense", _pooled(summary, setting)),
                (visible(defense), _pooled(summary, setting, defense)),
            )
            if row is not None
        }
        title = f"Fooled, with and without {visible(defense)}"
        drawn = [(title, dose_chart(f"{title} {setting}", lines, AXIS), "")]
        parts += _part(
            summary, setting,
            [
                tables_of.defended(rows, "incorrect"),
                tables_of.defended(rows, "adopted"),
                tables_of.response(by_rule, f"By applied dose, with {visible(defense)}"),
            ],
            heading=visible(defense), charts=_charts(drawn),
        )  # fmt: skip
    return parts


def _withdrawn(summary: Summary, setting: str) -> list[Part]:
    rows = rows_of(summary, "withdrawn", setting=setting)
    return _part(
        summary, setting, [tables_of.withdrawn(rows)], heading="Unsupported generation, withdrawn",
        note=summary["withdrawn_measure"], folded=True,
    )  # fmt: skip


# ------------------------------------------------------------------------------- the terminal


def tables(summary: Summary) -> list[Any]:
    """What the terminal prints: outcomes by rule and applied dose, and the finding."""
    found: list[Any] = []
    for setting in summary["settings"]:
        for defense in (UNDEFENDED, *summary["defenses"]):
            rows = rows_of(summary, "response", setting=setting, defense=defense)
            title = f"rule {visible(summary['headline'])}"
            title += f", {visible(setting)}" if setting else ""
            title += "" if defense == UNDEFENDED else f", {visible(defense)}"
            table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD)
            for column in ("tampering", "dose", "runs", "fooled", "adopted", "abstained"):
                table.add_column(column, justify="left" if column == "tampering" else "right")
            for row in rows:
                for point in row["points"]:
                    figures = (short(point[w]) for w in ("fooled", "adopted", "abstained"))
                    table.add_row(
                        Text(rule_name(row["rule"])), str(point["dose"]), str(point["n"]),
                        *map(Text, figures),
                    )  # fmt: skip
            found.append(table)
    return [*found, Text(f"{finding(summary)}.", style="bold")]
