"""The gate's result as Markdown for a pull request: the verdict first, then every check."""

from __future__ import annotations

from ragassay.gate.evaluation import GateResult
from ragassay.report import gate as told
from ragassay.report.grids import Grid
from ragassay.report.markdown import escape, tabled
from ragassay.report.text import visible
from ragassay.taxonomy import FRAMEWORKS, THREATS

MARKS = {"pass": "\u2705 pass", "fail": "\u274c fail", "undecided": "\u2754 undecided"}
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
        Foreign texts are escaped. What passes is folded where there are many checks.
    """
    plain = result.plain()
    head = f"## {MARKS[result.verdict]}: ragassay gate, {escape(visible(result.name))}"
    parts = [head, escape(told.verdict_line(plain))]
    rest = {**plain, "checks": [c for c in plain["checks"] if c["verdict"] == "pass"]}
    open_ = {**plain, "checks": [c for c in plain["checks"] if c["verdict"] != "pass"]}
    if len(result.checks) <= _OPEN:
        parts.append(_checks(plain))
    else:
        parts += [_checks(open_), _folded(f"{len(rest['checks'])} that pass", _checks(rest))]
    changed = told.changes(plain)
    if changed.rows:
        shown = tabled(changed)
        head = "### Against the baseline run"
        parts += [head, shown if len(changed.rows) <= _OPEN else _folded("All figures", shown)]
    named = _threats(result)
    parts += [_folded("What this is about", named) if named else "", escape(told.method(plain))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _checks(plain: told.Gate) -> str:
    grid = told.checks(plain)
    rows = tuple(
        (MARKS[check["verdict"]], *row[:2], *row[3:])
        for check, row in zip(plain["checks"], grid.rows, strict=True)
    )
    columns = ("Verdict", *grid.columns[:2], *grid.columns[3:])
    return tabled(Grid(title=grid.title, columns=columns, rows=rows, notes=grid.notes))


def _folded(title: str, text: str) -> str:
    if not text:
        return ""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def _threats(result: GateResult) -> str:
    """The attacks in the words of OWASP and ATLAS, with links; all of it ours."""
    ids = sorted({each for check in result.checks for each in check.threats})
    lines = [
        f"- {FRAMEWORKS[THREATS[each].framework][0]}: [{each}]({THREATS[each].url}) "
        f"{THREATS[each].name}"
        for each in ids
        if each in THREATS
    ]
    return "\n".join(lines)
