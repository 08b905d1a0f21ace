"""The gate's result as Markdown for a pull request: the finding first, then every check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.gate.evaluation import GateResult
from ragassay.report import gate as told
from ragassay.report.markdown import escape, tabled
from ragassay.report.text import plural, visible
from ragassay.taxonomy import FRAMEWORKS, THREATS

MARKS = {"fail": "\u274c", "undecided": "\u2754", "pass": "\u2705"}  # beside the word, never alone
_OPEN = 12  # rows; longer tables are folded


def markdown(result: GateResult) -> str:
    """Write the result as Markdown.

    Parameters
    ----------
    result : GateResult
        What :func:`ragassay.gate.evaluation.evaluate` returns.

    Returns
    -------
    str
        The finding is the title. Foreign texts are escaped. What passes is folded where there
        are many checks.
    """
    plain = result.plain()
    parts = [f"## {MARKS[result.verdict]} {escape(told.headline(plain))}", _summary(result)]
    by_verdict = [c for v in MARKS for c in plain["checks"] if c["verdict"] == v]
    if len(by_verdict) <= _OPEN:
        parts.append(_checks(plain, by_verdict))
    else:
        passed = [c for c in by_verdict if c["verdict"] == "pass"]
        parts.append(_checks(plain, by_verdict[: len(by_verdict) - len(passed)]))
        parts.append(_folded(f"{len(passed)} that pass", _checks(plain, passed)))
    changed = told.changes(plain)
    if changed.rows:
        worse = [c for c in plain["checks"] if c["reason"] == told.WORSE]
        head = f"{len(worse)} of {plural(len(changed.rows), 'figure')} got worse beyond chance"
        parts.append(_folded(f"Against the baseline run: {head}", tabled(changed)))
    parts.append(_folded("What the rules measure, and how the gate decides", _explained(result)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(result: GateResult) -> str:
    """One line: which run, how many of what, where the report is."""
    counts = [f"{n} {'undecided' if v == 'undecided' else v}" for v, n in result.counts().items()]
    text = f"Run **{escape(visible(result.name))}**: {', '.join(counts)}."
    if result.verdict == "undecided" and any(check.p_met is not None for check in result.checks):
        text += " Undecided is neither a pass nor a failure: the run is too small to tell."
    return f"{text} Full report: {escape(visible(result.run))}/report.html"


def _checks(plain: told.Gate, checks: Sequence[Mapping[str, Any]]) -> str:
    """A row for each check; what is in code is ours, everything else is escaped."""
    if not checks:
        return ""
    columns = ("Verdict", "Required", f"Measured, {told.span(plain)}", "Counted", "Where", "Why")
    rows = [
        (
            f"{MARKS[check['verdict']]} {check['verdict']}", f"`{told.requirement(check)}`",
            f"**{escape(told.estimate(check))}**", escape(told.counted(check)),
            escape(told.where(check)), _why(check),
        )
        for check in checks
    ]  # fmt: skip
    lines = [f"| {' | '.join(row)} |" for row in (columns, *rows)]
    return "\n".join([lines[0], "|" + " --- |" * len(columns), *lines[1:]])


def _why(check: Mapping[str, Any]) -> str:
    if check["verdict"] == "undecided" and check["more"] is not None:
        return f"**about {check['more']:,} more queries** would decide, going on like this"
    return escape(told.why(check))


def _folded(title: str, text: str) -> str:
    if not text:
        return ""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def _explained(result: GateResult) -> str:
    metrics = {check.rule.metric.name: check.rule.metric for check in result.checks}
    lines = [
        f"- `{name}` ({escape(metric.symbol)}): {metric.text}" for name, metric in metrics.items()
    ]
    return "\n".join([*lines, *_threats(result), "", escape(told.method(result.plain()))])


def _threats(result: GateResult) -> list[str]:
    """The attacks in the words of OWASP and ATLAS, with links; all of it ours."""
    ids = sorted({each for check in result.checks for each in check.threats})
    return [
        f"- {FRAMEWORKS[THREATS[each].framework][0]}: [{each}]({THREATS[each].url}) "
        f"{THREATS[each].name}"
        for each in ids
        if each in THREATS
    ]
