"""The command line: parses, calls the API, prints. No logic of its own lives here.

One module per group of commands; each defines functions that :data:`app` is given here.
"""

from __future__ import annotations

import logging
import signal
import sys
from typing import Annotated

import typer

from ragassay import __version__
from ragassay.cli import (
    audit,
    exchange,
    gate,
    grid,
    labels,
    poison,
    probe,
    profile,
    reproduce,
    runs,
    system,
)
from ragassay.cli.console import ERRORS
from ragassay.errors import ConfigError, GateUsage, Interrupted, RagassayError

app = typer.Typer(
    name="ragassay",
    help="Tells whether a RAG system, and a defense put into it, withstands poisoned evidence. "
    "Start with: ragassay run examples/demo.toml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (runs.run, runs.plan, runs.report, runs.trial):
    app.command()(command)
app.command("import")(exchange.import_answers)
app.command("export")(exchange.export_answers)
app.command()(labels.score)
app.command()(gate.gate)
app.command()(gate.power)
app.command()(probe.probe)
app.command()(poison.attack)
app.command()(profile.profile)
app.command()(grid.grid)
app.add_typer(poison.poison_app, name="poison")
app.add_typer(audit.audit_app, name="audit")
app.add_typer(reproduce.reproduce_app, name="reproduce")
app.add_typer(system.system_app, name="system")
app.command("list")(runs.list_plugins)
app.command()(runs.show)
app.command()(runs.doctor)
app.add_typer(runs.data_app, name="data")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Log everything, with the trace of every error.")
    ] = False,
) -> None:
    if debug:
        logging.getLogger("ragassay").setLevel(logging.DEBUG)
    if version:
        typer.echo(f"ragassay {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; deliberate errors print one line and end with their exit code."""
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGTERM, _stop)
    try:
        code = app(standalone_mode=False)  # an exit code, where a command ended with one
    except RagassayError as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        _fail("stopped", Interrupted.exit_code)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except Exception as error:
        show_usage = getattr(error, "format_message", None)
        if show_usage is None:
            raise
        command = getattr(getattr(error, "ctx", None), "info_name", "")
        _fail(show_usage(), (GateUsage if command == "gate" else ConfigError).exit_code)
    else:
        if code == Interrupted.exit_code:
            _fail("stopped", Interrupted.exit_code)
        if isinstance(code, int) and code:
            sys.exit(code)


def _stop(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def _fail(message: str, code: int) -> None:
    ERRORS.print(f"error: {message}", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)
