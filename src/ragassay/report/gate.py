"""What the gate said of a run: the section of the report, and the tables of its Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report.grids import Grid
from ragassay.report.parts import Part
from ragassay.report.text import (
    NOT_ESTIMABLE,
    bracket,
    level,
    listed,
    p_value,
    percent,
    place,
    plural,
    points,
    visible,
)

Gate = Mapping[str, Any]
WORDS = {"pass": "pass", "fail": "FAIL", "undecided": "undecided"}
_MAX_TEXT = 160


def wanted(summary: Mapping[str, Any]) -> bool:
    """Whether the run was held against rules."""
    return bool(summary.get("gate"))


def section(summary: Mapping[str, Any], scorer: str, charts: bool) -> Sequence[Part]:
    """The verdict, every check, and what changed against the baseline."""
    gate = summary["gate"]
    if gate.get("stale"):
        claim = "The run has changed since the gate was asked; ask it again (ragassay gate)."
        return [Part(claim=claim)]
    found = [Part(claim=verdict_line(gate), note=method(gate), grids=(checks(gate),))]
    changed = changes(gate)
    if changed.rows:
        found.append(Part(heading="Against the baseline run", grids=(changed,)))
    return found


def verdict_line(gate: Gate) -> str:
    """The verdict of the gate in a sentence."""
    each = gate["checks"]
    counts = {v: sum(check["verdict"] == v for check in each) for v in WORDS}
    word = {"pass": "passes", "fail": "fails", "undecided": "is undecided"}[gate["verdict"]]
    told = listed([f"{n} {WORDS[v].lower()}" for v, n in counts.items() if n])
    return f"The gate {word}: of {plural(len(each), 'check')}, {told}."


def checks(gate: Gate) -> Grid:
    """One row for each rule and place."""
    return Grid(
        title="Rules",
        columns=("Rule", "Where", "Verdict", f"Estimate [{span(gate)}]", "Queries", "What decides"),
        rows=tuple(
            (
                visible(check["rule"]["text"], limit=_MAX_TEXT), where(check),
                WORDS[check["verdict"]], estimate(check), sample(check), why(check),
            )
            for check in gate["checks"]
        ),
    )  # fmt: skip


def changes(gate: Gate) -> Grid:
    """One row for each figure that the baseline run has too."""
    rows = [check for check in gate["checks"] if check["change"] is not None]
    return Grid(
        title="Against the baseline run",
        columns=(
            "Rule", "Where", "Before", "Now", "Change, pp", "Worse, better", "p (McNemar)",
            "p (Holm)",
        ),
        rows=tuple(_change(check) for check in rows),
        notes=(
            "On the questions that both runs have. Intervals by the cluster bootstrap; p by exact "
            "tests for a change for the worse, the larger of McNemar's and of the sign-flip test "
            "over injection groups, adjusted over all tests of the gate.",
        ) if rows else (),
    )  # fmt: skip


def where(check: Mapping[str, Any]) -> str:
    """Attack, budget, setting, defense and scorer of a check."""
    at = check["place"]
    text = place(at["attack"], at["budget"], at["setting"]) if at["attack"] else "clean retrieval"
    if not at["attack"] and at["setting"]:
        text = f"{visible(at['setting'])}: {text}"
    return f"{text}; {visible(at['defense'])}; {visible(at['scorer'])}"


def estimate(check: Mapping[str, Any]) -> str:
    """The figure with its interval, in percent."""
    if check["estimate"] is None:
        return NOT_ESTIMABLE
    signed = check["rule"]["metric"]["kind"] == "difference" or check["rule"]["relative"]
    value = {"value": check["estimate"]}
    text = f"{points(value)}pp" if signed else percent(check["estimate"])
    interval = check["interval"]
    return f"{text} {bracket(interval or {'low': None, 'high': None})}"


def sample(check: Mapping[str, Any]) -> str:
    """How many questions in how many groups, and what was dropped."""
    text = f"{plural(check['n'], 'query')}, {plural(check['groups'], 'group')}"
    lost = sum(check["dropped"].values())
    return f"{text}, {lost} dropped" if lost else text


def why(check: Mapping[str, Any]) -> str:
    """The reason of a verdict, and what would decide."""
    text = str(check["reason"])
    if check["verdict"] != "undecided":
        return text
    if check["more"] is not None:
        return f"{text}; about {check['more']:,} more queries would decide, going on like this"
    if check["p_met"] is not None:
        return f"{text}; the estimate is too close to the limit for any number to decide"
    return text


def span(gate: Gate) -> str:
    """What the interval of a check is."""
    return f"{level(round(1 - 2 * gate['level'], 10))} interval"


def method(gate: Gate) -> str:
    """How the gate decides, in two sentences."""
    alpha = level(gate["level"])
    correlated = (
        "estimated from the run, at least 0.05"
        if gate["icc"] is None
        else f"taken to be {gate['icc']:g}"
    )
    return (
        f"A rule passes where its interval lies within the limit and fails where it lies beyond, "
        f"each wrongly with a chance of at most {alpha}; failures are adjusted over all checks "
        f"(Holm). The correlation within injection groups is {correlated}."
    )


def _change(check: Mapping[str, Any]) -> tuple[str, ...]:
    change = check["change"]
    value = {"value": change["now"] - change["before"]}
    interval = change["interval"] or {"low": None, "high": None}
    return (
        visible(check["rule"]["text"], limit=_MAX_TEXT), where(check),
        percent(change["before"]), percent(change["now"]), f"{points(value)} {bracket(interval)}",
        f"{change['worse']}, {change['better']} of {change['n']}", p_value(change["p_mcnemar"]),
        "-" if check["rule"]["relative"] else p_value(change["p_holm"]),
    )  # fmt: skip
