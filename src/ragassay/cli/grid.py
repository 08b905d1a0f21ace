"""The command that runs a control ladder for each of several corpora."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragassay.cli.console import CONSOLE


def grid(
    file: Annotated[Path, typer.Argument(metavar="GRID.toml", help="The file of the grid.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Where data, runs and board go.")
    ],
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="FOLDER",
            envvar="RAGASSAY_DATA",
            help="The folder that paths of data are below [default: that of the file].",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run the corpus of [quick] alone, with its settings.")
    ] = False,
    only_prepare: Annotated[
        bool, typer.Option("--prepare", help="Write data and experiment files, and run nothing.")
    ] = False,
) -> None:
    """Run a control ladder for each corpus of a file, and write a leaderboard over all of them.

    The same command goes on where an interrupted one stopped. A corpus that fails is named in
    the leaderboard and ends the command with its exit code, after the others have run.
    """
    from ragassay.config.grid import read_grid
    from ragassay.errors import RagassayError
    from ragassay.experiments.grid import grid_runs, prepare
    from ragassay.experiments.runner import run as run_experiment
    from ragassay.experiments.setup import load_experiment
    from ragassay.report.leaderboard import rows_of, write_leaderboard
    from ragassay.report.render import write_reports
    from ragassay.terminal import Board

    found = read_grid(file)
    base = file.resolve().parent
    root = data if data is not None else base / found.data
    rows, failures = [], {}
    first: RagassayError | None = None
    for each in grid_runs(found, base, out, quick=quick):
        CONSOLE.print(f"== {each.corpus}", markup=False, highlight=False)
        try:
            prepare(each, found, base, root, out)
            if only_prepare:
                CONSOLE.print(str(each.experiment), markup=False, highlight=False, soft_wrap=True)
                continue
            loaded = load_experiment(each.experiment, each.overrides)
            with Board(CONSOLE, "screening") as shown:
                result = run_experiment(loaded, out=each.folder, monitor=shown.monitor)
                write_reports(result.folder)
        except RagassayError as error:
            if error.exit_code == 130:  # the user stopped it
                raise
            failures[each.corpus], first = str(error), first or error
            CONSOLE.print(f"{each.corpus}: {error}", markup=False, highlight=False)
            continue
        rows += rows_of(each.corpus, result.summary)
        CONSOLE.print(
            f"{each.corpus}: {result.trials_run} trials run, {result.trials_reused} reused, "
            f"{result.seconds:.1f} s. Report: {result.folder / 'report.html'}",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
    if not only_prepare:
        out.mkdir(parents=True, exist_ok=True)
        board = write_leaderboard(out, found.name, rows, failures)["html"]
        CONSOLE.print(f"Leaderboard: {board}", markup=False, highlight=False, soft_wrap=True)
    if first is not None:
        raise first
