"""What all commands print with."""

from __future__ import annotations

from typing import Any

from rich.console import Console

CONSOLE = Console()
ERRORS = Console(stderr=True)


def print_tables(summary: dict[str, Any]) -> None:
    """Print the headline table and the finding of a summary."""
    from ragassay.report.protocols import paged
    from ragassay.report.tables import finding, headline_table

    shown = paged(summary)
    if shown is not None:
        for each in shown.tables(summary):
            CONSOLE.print(each)
        return
    CONSOLE.print(headline_table(summary))
    CONSOLE.print(finding(summary), markup=False, highlight=False, style="bold")
