"""The command that builds the split-knowledge probe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ragassay.cli.console import CONSOLE
from ragassay.cli.runs import ExperimentPath, Settings
from ragassay.errors import NotEstimable

if TYPE_CHECKING:
    from ragassay.experiments.probe import Probe


def probe(
    experiment: ExperimentPath,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE.jsonl", help="The file of targets to write.")
    ],
    settings: Settings = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file if it is there already.")
    ] = False,
    all_candidates: Annotated[
        bool, typer.Option("--all", help="Write rejected candidates too, with the reason.")
    ] = False,
) -> None:
    """Build a split-knowledge probe: passages that mislead only together with the corpus.

    The reader that tries the candidates is [helper]; it must be another model than every
    generator. The file goes into the experiment as [dataset] targets, with attack "released".
    """
    from ragassay.experiments.probe import build_probe
    from ragassay.experiments.setup import load_experiment

    result = build_probe(
        load_experiment(experiment, settings or ()),
        out,
        force=force,
        all_candidates=all_candidates,
        stage=lambda text: CONSOLE.print(text, markup=False, highlight=False),
    )
    CONSOLE.print(_table(result))
    if not result.written:
        raise NotEstimable(
            f"no candidate was accepted, so {out} was not written; the table says why"
            + ("" if all_candidates else ", and --all writes what was rejected")
        )
    CONSOLE.print(
        f"{result.written} written to {out}. In the experiment: [dataset] targets names the "
        "file, group_size = 1; [[attack]] plugin = released.",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _table(result: Probe) -> Table:
    screening = result.screening
    table = Table(title="Split-knowledge probe", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("questions", str(screening.questions))
    table.add_row("with two supporting passages", str(screening.two_hop))
    for reason, count in screening.reasons.items():
        table.add_row(f"  {escape(reason)}", str(count), style="dim")
    table.add_row("usable", str(len(screening.candidates)))
    for reason, count in result.reasons.items():
        table.add_row(f"  {escape(reason)}", str(count), style="dim")
    table.add_row("accepted", str(result.accepted), style="bold")
    return table
