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
WORSE = "worse than the baseline run"  # the reason of a check that only the baseline fails
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


def headline(gate: Gate) -> str:
    """The finding in a line: what is broken, what it takes to decide, or that all rules hold."""
    each = gate["checks"]
    failed = [check for check in each if check["verdict"] == "fail"]
    if failed:
        first, others = failed[0], len(failed) - 1
        more = f" and {plural(others, 'more rule')} {'is' if others == 1 else 'are'} broken"
        return f"Gate fails: {_broken(first)}{more if others else ''}"
    open_ = [check for check in each if check["verdict"] == "undecided"]
    if not open_:
        return f"Gate passes: {_all(len(each))}"
    head = f"Gate undecided: {len(open_)} of {plural(len(each), 'rule')}"
    needed = [check["more"] for check in open_ if check["more"] is not None]
    if not needed:
        return f"{head} cannot be decided by this run"
    if len(needed) == len(open_):
        return f"{head} {'needs' if len(open_) == 1 else 'need'} about {max(needed):,} more queries"
    return f"{head}; about {max(needed):,} more queries would decide {len(needed)} of them"


def requirement(check: Mapping[str, Any]) -> str:
    """Metric, direction and limit of a check, all of them our own words."""
    rule = check["rule"]
    sign = ">=" if rule["at_least"] else "<="
    return f"{rule['metric']['name']} {sign} {_limit(rule)}"


def counted(check: Mapping[str, Any]) -> str:
    """The questions behind a figure, with the denominator."""
    if check["estimate"] is None:
        return sample(check)
    net = "net " if check["rule"]["metric"]["kind"] == "difference" else ""
    whole = round(check["estimate"] * check["n"])
    change = check["rule"]["relative"]
    head = "" if change else f"{net}{whole} of "
    return f"{head}{sample(check)}"


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


def _all(number: int) -> str:
    return "the one rule holds" if number == 1 else f"all {number} rules hold"


def _limit(rule: Mapping[str, Any]) -> str:
    unit = "pp" if rule["metric"]["kind"] == "difference" or rule["relative"] else "%"
    size = f"{100 * rule['threshold']:g}{unit}"
    if not rule["relative"]:
        return size
    if not rule["threshold"]:
        return "baseline"
    return f"baseline {'-' if rule['threshold'] < 0 else '+'} {size.lstrip('-')}"


def _broken(check: Mapping[str, Any]) -> str:
    """A check that fails, in words."""
    rule, change = check["rule"], check["change"]
    name, at = rule["metric"]["name"], check["place"]
    under = place(at["attack"], at["budget"], at["setting"]) if at["attack"] else "clean retrieval"
    shown = f"({visible(at['defense'])}, {under})"
    if rule["relative"]:
        moved = points({"value": check["estimate"]})
        return f"{name} changed by {moved}pp, required {requirement(check)} {shown}"
    if change is not None and check["reason"] == WORSE:
        return (
            f"{name} went from {percent(change['before'])} to {percent(change['now'])} since the "
            f"baseline run {shown}"
        )
    signed = rule["metric"]["kind"] == "difference"
    value = {"value": check["estimate"]}
    told = f"{points(value)}pp" if signed else percent(check["estimate"])
    bound = "at least" if rule["at_least"] else "at most"
    return f"{name} is {told}, must be {bound} {_limit(rule)} {shown}"


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
