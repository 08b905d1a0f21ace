"""The report of an arena: who wins, how sure that is, trends, matrices, defenses, records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ragassay.report import arena_tables as tables_of
from ragassay.report import arena_trigger, taxes
from ragassay.report.arena_charts import Curve, line_chart, matrix_chart, strength_chart
from ragassay.report.arena_finding import (
    detail,
    finding,
    leading,
    pairs_claim,
    sizes_claim,
    what,
)
from ragassay.report.arena_records import entries
from ragassay.report.grids import UNDEFENDED
from ragassay.report.page import Page, PageSection
from ragassay.report.parts import Chart, Part
from ragassay.report.prose import trials_line
from ragassay.report.text import (
    bracket,
    level,
    percent,
    plural,
    points,
    visible,
)
from ragassay.store import RunFolder

Result = Mapping[str, Any]
DEFINITIONS = (
    ("play", "one answer to one question, with the documents of its attackers injected; each "
     "attacker wants another wrong answer. A round is one draw of a question, attackers and "
     "answers, with a play for each assignment of answers"),
    ("winner", "an attacker whose wanted answer the system gives, by the rule at hand; several "
     "may win a play, or none"),
    ("s-ASR, m-ASR", "plays won of plays taken part in: alone (s), and among others (m)"),
    ("F1", "2h / (n + k), where h of an attacker's n documents stand in a context of k; exact "
     "means are over every assignment of answers that could be dealt, not over those drawn"),
    ("win rate", "plays won of decided plays, in which somebody won and somebody lost"),
    ("theta", "strength: the log odds that an attacker beats another one are the difference of "
     "their thetas; thetas sum to 0. Penalized maximum likelihood over all decided plays"),
    ("rank", "1 is the strongest; the interval holds the middle ranks of the resamples"),
    ("untargeted", "an attacker that wants any wrong answer: it wins where the answer is wrong "
     "and becomes correct once its passages are removed. It has no theta"),
    ("N, H, Gamma", "what a defense changes: N plays fewer won under attack, H plays more won on "
     "clean retrieval, Gamma their sum, in percentage points"),
    ("interval", "from resampling whole questions, because plays of one share its documents"),
)  # fmt: skip


def page(store: RunFolder, summary: Mapping[str, Any], resolved: Mapping[str, Any]) -> Page:
    """Make the page of an arena."""
    lead = leading(summary)
    shown, total = entries(store, summary)
    return Page(
        name=summary["name"],
        finding=finding(summary),
        detail=detail(summary),
        what=what(summary, resolved),
        warnings=tuple(summary["warnings"]),
        trials=trials_line(summary),
        sections=tuple(
            one
            for one in (
                _ranking(summary, lead),
                _trends(summary, lead),
                _pairs(summary, lead),
                _sizes(summary, lead),
                _prediction(lead),
                _defenses(summary),
                arena_trigger.section(summary),
                _settings(summary, lead),
                _tax(summary),
                _prompts(summary),
            )
            if one is not None
        ),
        entries=shown,
        total=total,
        definitions=DEFINITIONS,
    )


def tables(summary: Mapping[str, Any]) -> list[Any]:
    """What the terminal prints: the ranking, and the finding."""
    grid = tables_of.brief(leading(summary))
    table = Table(title=grid.title, title_justify="left")
    for number, column in enumerate(grid.columns):
        table.add_column(column, justify="right" if number else "left")
    for row in grid.rows:
        table.add_row(*(Text(cell) for cell in row))
    told = summary["prompts"]
    asked = (
        f"{told['plays']:,} plays for {plural(told['systems'], 'system')} need "
        f"{told['distinct']:,} distinct prompts each; the released loop would ask "
        f"{told['released_loop']['prompts']:,}."
    )
    return [table, Text(asked), Text(finding(summary), style="bold")]


def _ranking(summary: Mapping[str, Any], lead: Result) -> PageSection:
    names = level(summary["confidence"])
    parts = [
        Part(
            claim=finding(summary),
            note=f"Intervals ({names}) resample whole questions. m-F1 and s-F1 are exact means "
            "over all assignments where documents allow it, else means of the plays.",
            charts=_charts(
                Chart(
                    title="Strength",
                    svg=strength_chart(f"Strength {lead['scene']}", lead["attackers"]),
                )
            ),
            grids=(tables_of.main(lead), tables_of.retrieval(lead)),
        ),
        Part(
            heading="How sure the order is",
            note="Share of resamples in which the attacker of the row is stronger than that of the "
            "column; then how often each has which rank.",
            grids=tables_of.certainty(lead),
            folded=True,
        ),
        Part(
            heading="Online strengths for comparison",
            note="The paper's updates, round by round from 0 at learning rate 0.01: with the "
            "correct gradient, as its code does (pair by pair), and with its equation 5 as "
            "printed, whose strengths do not sum to 0. They depend on the rate and on where they "
            "stop; the headline does not.",
            grids=tuple(g for g in (tables_of.online(lead),) if g is not None),
            folded=True,
        ),
    ]
    for scorer in summary["scorers"]:
        if scorer == summary["headline"]:
            continue
        other = next(
            r for r in summary["results"]
            if (r["scorer"], r["scene"], r["defense"]) == (scorer, lead["scene"], UNDEFENDED)
        )  # fmt: skip
        parts.append(
            Part(heading=f"By the rule {visible(scorer)}", grids=(tables_of.main(other),),
                 folded=True)
        )  # fmt: skip
    return PageSection(anchor="h-ranking", short="Ranking", title="Who wins", parts=tuple(parts))


def _trends(summary: Mapping[str, Any], lead: Result) -> PageSection | None:
    trend, stopping = lead["trend"], lead["stopping"]
    if not trend["rounds"]:
        return None
    said = (
        f"After {plural(stopping['rounds'], 'round')} the order of the online strengths has been "
        f"stable for {plural(stopping['stable'], 'round')}. "
        + ("The play may stop: " if stopping["stop"] else "The play would go on: ")
        + visible(stopping["reason"], limit=300)
        + "."
    )
    if stopping.get("same_order") is not None:
        said += (
            f" The complete order is the same in {percent(stopping['same_order'])} of the "
            f"resamples; {plural(len(stopping['undecided']), 'pair')} of neighbors "
            f"{'is' if len(stopping['undecided']) == 1 else 'are'} not decided."
        )
    names = [n for n in _names(lead) if n in trend["names"]]
    slope = trend["slope"]
    note = "A stable order does not mean stable strengths."
    if slope:
        fastest = max(range(len(slope)), key=lambda i: abs(slope[i]))
        note += (
            f" Over the last {min(100, stopping['rounds'])} rounds the strength of "
            f"{visible(trend['names'][fastest])} moved "
            f"most, by {slope[fastest]:+.4f} a round."
        )
    curves = [
        [Curve(name=name, values=trend[what][trend["names"].index(name)]) for name in names]
        for what in ("win_rate", "theta")
    ]
    return PageSection(
        anchor="h-trends",
        short="Trends",
        title="Win rates and strengths over rounds",
        parts=(
            Part(
                claim=said,
                note=note,
                charts=_charts(
                    Chart(title="Win rate", svg=line_chart(
                        "Win rate over rounds", trend["rounds"], curves[0], axis="rounds",
                        shares=True)),
                    Chart(title="Online strength", svg=line_chart(
                        "Online strength over rounds", trend["rounds"], curves[1], axis="rounds",
                        shares=False)),
                ),
                grids=(tables_of.trend(trend, names),),
            ),
        ),
    )  # fmt: skip


def _pairs(summary: Mapping[str, Any], lead: Result) -> PageSection | None:
    if not lead["pairs"]:
        return None
    names = _names(lead)
    success = {(r["attacker"], r["against"]): r["success"] for r in lead["pairs"]}
    f1 = {(r["attacker"], r["against"]): tables_of.pair_f1(r) for r in lead["pairs"]}
    return PageSection(
        anchor="h-pairs",
        short="Pairs",
        title="One against another",
        parts=(
            Part(
                claim=pairs_claim(lead),
                note="The row's attacker in plays against the column's. Success counts all plays "
                "in which both took part, with others or without. F1 is the exact mean where only "
                "the two compete, else the mean of the plays.",
                charts=_charts(
                    Chart(title="Success (%)", svg=matrix_chart(
                        "Success by pairs", names, success, "success of the row's attacker, %")),
                    Chart(title="F1 (%)", svg=matrix_chart(
                        "F1 by pairs", names, f1, "F1 of the row's attacker, %")),
                ),
                grids=tables_of.matrices(lead, names),
            ),
        ),
    )  # fmt: skip


def _sizes(summary: Mapping[str, Any], lead: Result) -> PageSection | None:
    sizes = sorted({row["size"] for row in lead["sizes"]})
    if len(sizes) < 2:
        return None
    table = {(r["attacker"], r["size"]): r["success"] for r in lead["sizes"]}
    empty = {"value": None, "low": None, "high": None}
    curves = [
        Curve(
            name=name,
            values=[table.get((name, size), empty)["value"] for size in sizes],
            low=[table.get((name, size), empty)["low"] for size in sizes],
            high=[table.get((name, size), empty)["high"] for size in sizes],
        )
        for name in _names(lead)
    ]
    return PageSection(
        anchor="h-sizes",
        short="Number of attackers",
        title="Success by the number of attackers",
        parts=(
            Part(
                claim=sizes_claim(lead),
                note="One attacker is the single setting. Bands are intervals over questions.",
                charts=_charts(
                    Chart(title="Success", svg=line_chart(
                        "Success by attackers", sizes, curves, axis="attackers in a play",
                        shares=True)),
                ),
                grids=(tables_of.sizes(lead, sizes),),
            ),
        ),
    )  # fmt: skip


def _prediction(lead: Result) -> PageSection | None:
    told = lead["prediction"]
    if not told["n"]:
        return None
    gap = told["difference"]
    if gap["low"] is not None and gap["low"] > 0:
        claim = "Strength predicts the winner better than success alone does."
    elif gap["high"] is not None and gap["high"] < 0:
        claim = "Success alone predicts the winner better than strength does."
    else:
        claim = "Success alone and strength predict the winner about as well."
    over = told["over_chance"]
    if over["low"] is not None and over["low"] <= 0:
        claim += " Success alone is not shown to be better than chance."
    return PageSection(
        anchor="h-prediction",
        short="Prediction",
        title="Does success alone predict the winner?",
        parts=(
            Part(
                claim=claim,
                note=f"{told['n']:,} decided plays of targeted attackers on "
                f"{plural(told['queries'], 'question')}; scores come from other questions than "
                "the plays they predict. Chance picks an attacker of the play at random.",
                grids=(tables_of.prediction(told),),
            ),
        ),
    )


def _defenses(summary: Mapping[str, Any]) -> PageSection | None:
    if not summary["defenses"]:
        return None
    parts = []
    rows = [r for r in summary["aligned"] if r["scorer"] == summary["headline"]]
    scenes = list(dict.fromkeys(r["scene"] for r in rows))
    for scene in scenes:
        here = [r for r in rows if r["scene"] == scene]
        anyone = [r for r in here if not r["attacker"] and r["estimable"]]
        claims = [
            f"{visible(r['defense'])}: N {points(r['effects']['N'])} "
            f"{bracket(r['effects']['N'])}, H {points(r['effects']['H'])} "
            f"{bracket(r['effects']['H'])}"
            for r in anyone
        ]
        parts.append(
            Part(
                heading=tables_of.scene_name(scene) if len(scenes) > 1 else "",
                claim="; ".join(claims) + "." if claims else "",
                note="A play counts as won where the answer holds the wanted answer of any of its "
                "attackers (first table), or of the one named. Clean answers are labeled for the "
                "same targets.",
                grids=(tables_of.aligned(here),),
            )
        )
        for defense in summary["defenses"]:
            result = next(
                r for r in summary["results"]
                if (r["scorer"], r["scene"], r["defense"])
                == (summary["headline"], scene, defense)
            )  # fmt: skip
            parts.append(
                Part(heading=f"Ranking under {visible(defense)}", grids=(tables_of.main(result),),
                     folded=True)
            )  # fmt: skip
    return PageSection(
        anchor="h-defenses", short="Defenses", title="Defenses in the arena", parts=tuple(parts)
    )


def _settings(summary: Mapping[str, Any], lead: Result) -> PageSection | None:
    """Other victims, sizes of context and numbers of documents, content alone, order of attack."""
    others = [
        r for r in summary["results"]
        if r["scorer"] == summary["headline"] and r["defense"] == UNDEFENDED
        and r["scene"] != lead["scene"] and ":" not in r["context"]
    ]  # fmt: skip
    parts = [
        Part(heading=tables_of.scene_name(r["scene"]), grids=(tables_of.main(r),)) for r in others
    ]
    if lead["orders"]:
        parts.append(
            Part(
                heading="Order of attack",
                note="Two attackers: both against the clean corpus, or one after the other, which "
                "then sees the first one's poison. Only attacks that read the corpus or search it "
                "can change.",
                grids=(tables_of.orders(lead),),
            )
        )
    if not parts:
        return None
    return PageSection(
        anchor="h-settings-other", short="Other settings", title="Other settings",
        parts=tuple(parts),
    )  # fmt: skip


def _tax(summary: Mapping[str, Any]) -> PageSection | None:
    if not taxes.wanted(summary):
        return None
    return PageSection(
        anchor="h-tax", short="Attack tax", title="What the attacks need and cost",
        parts=tuple(taxes.tax(summary, summary["headline"], charts=True)),
    )  # fmt: skip


def _prompts(summary: Mapping[str, Any]) -> PageSection:
    told = summary["prompts"]
    loop = told["released_loop"]
    claim = (
        f"The plays ask for {told['plays']:,} prompts, of which {told['distinct']:,} are distinct "
        f"and were played once for each system; the released loop would have made "
        f"{loop['prompts']:,} calls for {plural(loop['rounds'], 'round')}, with one assignment of "
        "answers each."
    )
    return PageSection(
        anchor="h-prompts",
        short="Prompts",
        title="Prompts",
        parts=(
            Part(
                claim=claim,
                note=f"Of the calls of the released loop {loop['validations']:,} are its "
                "validations, 1,000 after every 100 rounds. Retrieval figures are enumerated and "
                "need no prompt.",
                grids=(tables_of.prompts(told),),
            ),
        ),
    )


def _names(lead: Result) -> list[str]:
    """All attackers, the strongest first."""
    return [row["attacker"] for row in tables_of.by_rank(lead)]


def _charts(*charts: Chart) -> tuple[Chart, ...]:
    return tuple(chart for chart in charts if chart.svg)


__all__: Sequence[str] = ["detail", "finding", "leading", "page", "tables"]
