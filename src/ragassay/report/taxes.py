"""The attack tax in a report: what attacks need and cost, as radar charts and as tables.

Source: PoisonArena, appendix D; how scores are made: :mod:`ragassay.stats.tax`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragassay.report.grids import Grid
from ragassay.report.parts import Chart, Part
from ragassay.report.radar import MAX_CHARTS, Spokes, radar_charts
from ragassay.report.text import decimal, listed, plural, visible

NAMES = {
    "performance": "Success",
    "llm": "LLM",
    "retriever": "Retriever",
    "corpus": "Corpus",
    "cost": "Cost",
    "similarity": "Similarity",
    "perplexity": "Perplexity",
}
NOTE = (
    "Every dimension runs from 0 to 1, and more is better for a realistic attacker: success; "
    "little access to the language model, the retriever and the corpus; low cost; passages that "
    "differ from each other; text that reads naturally. Scores other than those of access compare "
    "these attacks with each other, so that they change with the attacks of the run."
)
METRICS = {
    "s_asr": "s-ASR", "m_asr": "m-ASR", "s_f1": "s-F1", "m_f1": "m-F1", "theta": "theta",
}  # fmt: skip
MISSING = "n/a"
NOT_RECORDED = "not recorded"


def wanted(summary: Mapping[str, Any]) -> bool:
    """Whether a run measured its attacks."""
    return bool(summary.get("tax"))


def tax(summary: Mapping[str, Any], scorer: str, charts: bool) -> list[Part]:
    """Scores of every attack, as charts and in a table, and the raw values behind them."""
    found = summary["tax"]
    return [
        Part(
            claim=finding(found),
            note=NOTE,
            charts=_charts(found) if charts else (),
            grids=(scores(found), raw(found)),
        )
    ]


def finding(found: Mapping[str, Any]) -> str:
    """Say which dimensions tell the attacks apart, and which cannot be compared."""
    dimensions = found["dimensions"]
    lost = [NAMES[one["name"]].lower() for one in dimensions if one["scores"] is None]
    text = f"{plural(len(found['attacks']), 'attack')}, {len(dimensions) - len(lost)} of "
    text += f"{len(dimensions)} dimensions can be compared"
    return f"{text}; not {listed(lost)}." if lost else f"{text}."


def scores(found: Mapping[str, Any]) -> Grid:
    """A row for each attack; dropped dimensions and how each is scored stand in the notes."""
    columns = [each["scores"] for each in found["dimensions"]]
    return Grid(
        title="Attack tax, scores from 0 to 1",
        columns=("Attack", *(NAMES[each["name"]] for each in found["dimensions"])),
        rows=tuple(
            (visible(name), *(_score(None if c is None else c[i]) for c in columns))
            for i, name in enumerate(found["attacks"])
        ),
        notes=tuple(_how(each) for each in found["dimensions"]),
    )


def raw(found: Mapping[str, Any]) -> Grid:
    """What was measured of each attack, with what it was measured on."""
    rows = []
    for name in found["attacks"]:
        about, knowledge = found["measured"][name], found["measured"][name]["knowledge"]
        rows.append(
            (
                visible(name),
                _performance(found["performance"][name]),
                *(visible(knowledge[each]) for each in ("llm", "retriever", "corpus")),
                _mean(about["seconds"], 2, "question")
                if about.get("recorded", True)
                else NOT_RECORDED,
                _mean(about["similarity"], 3, "question"),
                _mean(about["perplexity"], 1, "passage"),
            )
        )
    return Grid(
        title="Attack tax, raw values",
        columns=(
            "Attack", "Success, metrics", "LLM access", "Retriever access", "Corpus access",
            "Seconds per question", "Mean pairwise cosine", "Mean perplexity",
        ),
        rows=tuple(rows),
        notes=(
            "Seconds count for poison played from a file alone, which recorded them; released "
            "documents do not say what they cost. The cosine needs two passages for a question; "
            "perplexity is measured where [tax] perplexity is set.",
        ),
    )  # fmt: skip


def _charts(found: Mapping[str, Any]) -> tuple[Chart, ...]:
    columns = [each["scores"] for each in found["dimensions"]]
    members = [
        Spokes(name=name, scores=tuple(None if c is None else c[i] for c in columns))
        for i, name in enumerate(found["attacks"])
    ]
    title = "Attack tax"
    svg = radar_charts(title, [NAMES[each["name"]] for each in found["dimensions"]], members)
    if not svg:
        return ()
    more = len(members) - MAX_CHARTS
    told = f"The first {MAX_CHARTS} attacks; the tables hold all." if more > 0 else ""
    return (Chart(title=title, svg=svg, told=told),)


def _how(dimension: Mapping[str, Any]) -> str:
    name, how = NAMES[dimension["name"]], visible(dimension["normalization"])
    if dimension["metrics"]:
        how += f" ({listed([METRICS.get(one, visible(one)) for one in dimension['metrics']])})"
    return f"{name}: {how}" + (f"; dropped: {visible(dimension['reason'])}." if
                               dimension["scores"] is None else ".")  # fmt: skip


def _performance(metrics: Mapping[str, float | None]) -> str:
    known = [
        f"{told} {decimal(metrics[name], 3)}" for name, told in METRICS.items()
        if metrics.get(name) is not None
    ]  # fmt: skip
    return ", ".join(known) or MISSING


def _mean(about: Mapping[str, Any], digits: int, noun: str) -> str:
    if about["value"] is None:
        return MISSING
    return f"{decimal(about['value'], digits)} ({plural(about['n'], noun)})"


def _score(value: float | None) -> str:
    return MISSING if value is None else decimal(value, 2)
