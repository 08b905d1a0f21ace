"""Writes report.md and report.html from a run folder; no model and no network is needed.

The HTML page holds everything in one file: style, charts, data and a small script, whose hash
is the only one that the page's content security policy lets run. Passages and answers come
from attackers: the template escapes everything, data are JSON without any markup character,
and the script builds text nodes only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from ragassay import canon
from ragassay.report import (
    comparison,
    composition,
    grids,
    leaders,
    losses,
    markup,
    onepage,
    overview,
    plots,
    protocols,
)
from ragassay.report import sections as more
from ragassay.report.finding import best, finding, finding_detail
from ragassay.report.grids import Block, Grid
from ragassay.report.markdown import markdown
from ragassay.report.page import page_html, page_markdown
from ragassay.report.parts import Section
from ragassay.report.prose import DEFINITIONS, NOTES, intervals_note, trials_line, what_was_run
from ragassay.report.records import browser_data
from ragassay.report.slopes import slope_chart
from ragassay.report.text import visible
from ragassay.store import RunFolder
from ragassay.types import Knowledge, PoisonSet

MAX_OPEN = 6  # blocks; more of them are folded
MAX_SLOPES = 6


def write_reports(folder: Path | RunFolder, *, out: Path | None = None) -> dict[str, Path]:
    """Write report.md and report.html into a run folder.

    Parameters
    ----------
    folder : Path or RunFolder
        A run folder that holds summary.json and resolved.json.
    out : Path, optional
        Another folder to write to, which holds the summary.json that is meant.

    Returns
    -------
    dict of str to Path
        The files written, by ``"md"`` and ``"html"``.

    Raises
    ------
    StoreError
        A file of the run is missing or damaged, or a report cannot be written.
    """
    store = folder if isinstance(folder, RunFolder) else RunFolder(Path(folder))
    written = store if out is None else RunFolder(out)
    summary, resolved = written.read_json("summary.json"), store.read_json("resolved.json")
    environment = _optional(store, "environment.json")
    gate = _optional(store, "gate.json")
    if gate:
        summary["gate"] = {**gate, "stale": gate.get("summary") != canon.digest(summary)}
    paged = protocols.paged(summary)
    if paged is None:
        texts = (
            markdown(summary, resolved, environment),
            html(store, summary, resolved, environment),
        )
    else:
        made = paged.page(store, summary, resolved)
        texts = page_markdown(made, resolved, environment), page_html(made, resolved, environment)
    written.write_text("report.md", texts[0])
    written.write_text("report.html", texts[1])
    return {"md": written.path / "report.md", "html": written.path / "report.html"}


def html(
    store: RunFolder,
    summary: Mapping[str, Any],
    resolved: Mapping[str, Any],
    environment: Mapping[str, Any],
) -> str:
    """Render the page. Equal records give equal text."""
    script = markup.template_text("report.js")
    names = sorted(summary["scorers"], key=lambda rule: rule != summary["headline"])
    lead = best(summary)
    data = browser_data(store, summary)
    data["lead"] = (
        [lead["defense"], lead["attack"], lead["budget"], lead["setting"]]
        if lead else ["", "", 0, ""]
    )  # fmt: skip
    trials = summary["trials"]
    # What is Markup here is ours (script, style, hash) or has no markup character (data).
    return (
        markup.environment()
        .get_template("report.html")
        .render(
            script_hash=Markup(markup.script_hash(script)),  # noqa: S704
            css=Markup(markup.template_text("report.css")),  # noqa: S704
            script=Markup(script),  # noqa: S704
            data=Markup(markup.embed(data)),  # noqa: S704
            name=visible(summary["name"]),
            finding=finding(summary),
            detail=finding_detail(summary),
            what=what_was_run(summary, resolved),
            warnings=[visible(warning, limit=600) for warning in summary["warnings"]],
            trials=trials_line(summary),
            compared=bool(summary["defenses"]),
            complete=trials["done"] == trials["planned"],
            dropped=losses.dropped(summary),
            absent=losses.absent(summary),
            errors=losses.errors(summary),
            rules=[_rule(summary, name) for name in names],
            overview=overview.wanted(summary),
            overview_note=overview.NOTE,
            max_open=MAX_OPEN,
            merged=_merged(summary),
            blocks=len(grids.blocks(summary)),
            context=any(map(composition.contexts_known, grids.blocks(summary))),
            cost=any(map(composition.cost_known, grids.blocks(summary))),
            labels=_labels(summary),
            one_page=_section(onepage.section(resolved), summary, names),
            sections=[_section(one, summary, names) for one in more.present(summary)],
            listed=len(data["records"]),
            total=data["total"],
            intervals=intervals_note(summary),
            notes=NOTES,
            attacks=attack_costs(store.each_poison()),
            definitions=(*DEFINITIONS, *more.definitions(summary)),
            settings=markup.key_values("Settings", resolved),
            versions=markup.key_values("Versions", environment),
        )
    )


def _section(one: Section, summary: Mapping[str, Any], scorers: Sequence[str]) -> dict[str, Any]:
    """A section with its parts for each rule, or once where rules make no difference."""
    wanted = scorers if one.by_rule else scorers[:1]
    return {
        "anchor": one.anchor,
        "short": one.short,
        "title": one.title,
        "by_rule": one.by_rule,
        "parts": [one.parts(summary, scorer, True) for scorer in wanted],
    }


def attack_costs(poison: Iterable[PoisonSet]) -> Grid:
    """What each attack declares to know, and what it spent per query."""
    spent: dict[str, _Spent] = {}
    for one in poison:
        spent.setdefault(one.attack, _Spent(one.knowledge)).add(one)
    rows = []
    for attack, all_ in sorted(spent.items()):
        knowledge, n = all_.knowledge, all_.queries
        rows.append(
            (
                visible(attack), visible(knowledge.llm), visible(knowledge.retriever),
                visible(knowledge.corpus), visible(knowledge.query),
                "yes" if knowledge.correct_answer else "no",
                f"{all_.passages / n:.1f}",
                f"{all_.counts['model_calls'] / n:.1f}",
                f"{all_.counts['output_tokens'] / n:.1f}",
                _passes(all_, "encoder"), _passes(all_, "model"),
                f"{n}",
            )
        )  # fmt: skip
    return Grid(
        title="What the attacks know and spend",
        columns=(
            "Attack", "LLM", "Retriever", "Corpus", "Query", "Correct answer",
            "Passages per query", "Model calls per query", "Output tokens per query",
            "Encoder passes per query", "Passes of an opened model per query", "Queries",
        ),
        rows=tuple(rows),
        notes=("Passes: forward, and backward where there were any.",),
    )  # fmt: skip


@dataclass(slots=True)
class _Spent:
    """What the poison of one attack cost so far."""

    knowledge: Knowledge
    queries: int = 0
    passages: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, one: PoisonSet) -> None:
        self.queries += 1
        self.passages += len(one.passages)
        for name in (
            "model_calls", "output_tokens", "encoder_forwards", "encoder_backwards",
            "model_forwards", "model_backwards",
        ):  # fmt: skip
            self.counts[name] += getattr(one.cost, name)


def _passes(spent: _Spent, model: str) -> str:
    forward, backward = (
        spent.counts[f"{model}_{way}"] / spent.queries for way in ("forwards", "backwards")
    )
    return f"{forward:.1f}" + (f", {backward:.1f} backward" if backward else "")


def _rule(summary: Mapping[str, Any], name: str) -> dict[str, Any]:
    has_qrels = bool(summary["dataset"].get("has_qrels", True))
    found = grids.blocks(summary, name)
    panels = plots.panels(summary, name)
    return {
        "name": visible(name),
        "matrix": overview.matrix(summary, name),
        "groups": overview.groups(summary, name) if overview.wanted(summary) else [],
        "panels": panels,
        "undrawn": len(found) - len(panels),
        "blocks": [_block(name, block, has_qrels, grids.several(summary)) for block in found],
    }


def _merged(summary: Mapping[str, Any]) -> dict[str, Grid] | None:
    """Contexts and costs of a run without a defense in one table each, where it has many blocks."""
    found = grids.blocks(summary)
    if summary["defenses"] or len(found) < 2:
        return None
    has_qrels = bool(summary["dataset"].get("has_qrels", True))
    return {
        "composition": composition.merged(
            found, lambda b: composition.composition(b, has_qrels=has_qrels)
        ),
        "cost": composition.merged(found, composition.cost),
    }


def _block(rule: str, block: Block, has_qrels: bool, several: bool) -> dict[str, Any]:
    return {
        "title": block.title,
        "undefended": grids.undefended_line(block),
        "effects": grids.effects(block),
        "transitions": grids.transitions(block),
        "conditions": grids.conditions(block),
        "composition": composition.composition(block, has_qrels=has_qrels),
        "cost": composition.cost(block),
        "link": _link(rule, block, several),
    }


def _link(rule: str, block: Block, several: bool) -> Callable[[str, str], str]:
    """Make the filter that leads from a count to its records."""

    def link(defense: str, letter: str) -> str:
        place = {"rule": rule, "defense": defense}
        if several:
            place["setting"] = block.setting
        at = {"attack": block.attack, "p": str(block.budget), "class": letter}
        return urlencode({**place, **at}, errors="replace")

    return link


def _labels(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the section on labels shows; None where no two labels can be compared."""
    found = summary["label_comparison"]
    if found is None:
        return None
    several, scorers = grids.several(summary), found["scorers"]
    compared = bool(summary["defenses"]) or len(found["cells"]) == 1
    charted = _charted(found["cells"]) if compared else set()
    return {
        "title": comparison.TITLE,
        "finding": leaders.finding(found),
        "places": [
            _at(number, at, scorers, several=several, chart=number in charted)
            for number, at in enumerate(found["cells"])
        ] if compared else [],
        "charts": len(charted),
        "undefended": (
            comparison.undefended(found, several=several) if not summary["defenses"] else None
        ),
        "coverage": comparison.coverage(found),
        "pairs": comparison.pairs(found),
        "vanishing_text": comparison.vanishing_text(found),
        "vanishing": comparison.vanishing(found, several=several),
        "records": [_quoted(one) for one in (found["vanishing"] or {"records": []})["records"]],
    }  # fmt: skip


def _charted(cells: Sequence[Mapping[str, Any]]) -> set[int]:
    """Which places get a chart: where the leader changes first, then the largest budgets."""
    order = sorted(
        range(len(cells)), key=lambda i: (not leaders.changes(cells[i]), -cells[i]["budget"], i)
    )
    return set(order[:MAX_SLOPES])


def _at(
    number: int, at: Mapping[str, Any], scorers: Sequence[str], *, several: bool, chart: bool
) -> dict[str, Any]:
    title, told = leaders.at_title(at, several=several), leaders.claim(at)
    return {
        "title": title,
        "claim": told,
        "contest": leaders.contest(at),
        "chart": slope_chart(f"{title}: {told} ({number})", scorers, at["rows"]) if chart else "",
        "levels": comparison.levels(at, scorers, title),
        "orders": comparison.orders(at),
        "effects": comparison.effects(at, scorers),
        "differences": comparison.differences(at, scorers),
    }


def _quoted(record: Mapping[str, Any]) -> tuple[str, str, str]:
    """An answer before, in and after its match, each made visible."""
    text, match = record["answer"], record["match"]
    if match is None:
        return comparison.excerpt(record), "", ""
    cut = record["cut"]
    parts = [visible(part, limit=len(part)) for part in
             (text[: match[0]], text[match[0] : match[1]], text[match[1] :])]  # fmt: skip
    return (
        f"{'... ' if cut[0] else ''}{parts[0]}",
        parts[1],
        f"{parts[2]}{' ...' if cut[1] else ''}",
    )


def _optional(store: RunFolder, name: str) -> dict[str, Any]:
    return store.read_json(name) if (store.path / name).exists() else {}
