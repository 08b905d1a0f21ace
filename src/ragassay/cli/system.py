"""Commands that put a RAG system of the user's under test."""

from __future__ import annotations

from typing import Annotated

import typer

from ragassay.cli.console import CONSOLE
from ragassay.cli.runs import ExperimentPath, Out, Settings
from ragassay.cli.runs import run as run_experiment
from ragassay.errors import ConfigError

system_app = typer.Typer(help="Evaluate a RAG system of your own.", no_args_is_help=True)

_ALLOW = "run.allow_remote=true"


@system_app.command("run")
def run(
    experiment: ExperimentPath,
    settings: Settings = None,
    out: Out = None,
    allow_remote: Annotated[
        bool,
        typer.Option(
            "--allow-remote",
            help="Let poison go into stores that are not on this machine, for as long as the "
            "questions are asked.",
        ),
    ] = False,
) -> None:
    """Evaluate systems: clean answers, then poisoned ones; the poison is removed again.

    As ragassay run, for experiments with protocol = "system". The same command goes on where
    an interrupted one stopped.
    """
    from ragassay.experiments.setup import load_experiment

    given = [*(settings or ()), *([_ALLOW] if allow_remote else ())]
    if load_experiment(experiment, given).file.protocol != "system":
        raise ConfigError(f'{experiment} has no system under test: protocol = "system"')
    run_experiment(experiment, given, out)


@system_app.command("clean")
def clean(
    experiment: ExperimentPath,
    settings: Settings = None,
    out: Out = None,
    marked: Annotated[
        bool,
        typer.Option(
            "--marked",
            help="Also remove marked poison that the journal of this run does not know.",
        ),
    ] = False,
) -> None:
    """Remove poison that a killed run left in a store, by the journal in its run folder.

    Takes the same arguments as the run. Exit code 4: something is left.
    """
    from ragassay.errors import StoreError
    from ragassay.experiments.setup import load_experiment
    from ragassay.experiments.system_clean import clean as clean_systems

    found = clean_systems(load_experiment(experiment, settings or ()), out=out, marked=marked)
    for each in found:
        left = "cannot say what is marked" if each.marked is None else f"{each.marked} marked left"
        CONSOLE.print(
            f"{each.system}: {each.injections} unfinished injections, up to {each.documents} "
            f"documents removed; {left}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    if any(each.marked for each in found):
        raise StoreError(
            "a store holds marked poison that this journal does not know; if no other run is using "
            "the store: ragassay system clean EXPERIMENT --marked"
        )
