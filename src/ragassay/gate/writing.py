"""Where the gate's result goes: the terminal, files for CI, and the report of the run."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ragassay import canon
from ragassay.errors import StoreError
from ragassay.gate.evaluation import GateResult
from ragassay.gate.junit import junit as as_junit
from ragassay.gate.markdown import markdown as as_markdown
from ragassay.gate.sarif import sarif as as_sarif
from ragassay.report import gate as told
from ragassay.report.render import write_reports
from ragassay.store import RunFolder

_STYLES = {"pass": "green", "fail": "bold red", "undecided": "yellow"}


def write_results(
    result: GateResult,
    *,
    junit: Path | None = None,
    sarif: Path | None = None,
    markdown: Path | None = None,
) -> None:
    """Write the files that are asked for.

    Raises
    ------
    StoreError
        A file cannot be written.
    """
    for path, write in ((junit, as_junit), (sarif, as_sarif), (markdown, as_markdown)):
        if path is None:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(write(result), encoding="utf-8")
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error


def put_into_report(result: GateResult, folder: Path) -> None:
    """Write gate.json into the run folder, and the report with a section for it.

    The file holds a digest of the summary that it belongs to: once the run has other figures, the
    report says that the gate must be asked again.
    """
    store = RunFolder(folder)
    summary = store.read_json("summary.json")
    plain = {**result.plain(), "summary": canon.digest(summary)}
    with store.writer():
        store.write_text("gate.json", canon.dumps(plain) + "\n")
        write_reports(store)


def print_result(result: GateResult, console: Console) -> None:
    """Print the verdict and every check."""
    plain = result.plain()
    grid = told.checks(plain)
    table = Table(title=None)
    for column in grid.columns:
        table.add_column(column, overflow="fold")
    for check, row in zip(plain["checks"], grid.rows, strict=True):
        cells = [Text(cell) for cell in row]
        cells[2].stylize(_STYLES[check["verdict"]])
        table.add_row(*cells)
    console.print(table)
    changed = told.changes(plain)
    if changed.rows:
        table = Table(title="Against the baseline run", title_justify="left")
        for column in changed.columns:
            table.add_column(column, overflow="fold")
        for row in changed.rows:
            table.add_row(*map(Text, row))
        console.print(table)
    console.print(told.verdict_line(plain), markup=False, highlight=False, style="bold")
