"""Commands that craft poison into a file, and that look at such files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ragassay.cli.console import CONSOLE

_COLUMNS = ("n", "twice", "target", "correct", "question", "words", "faults", "long", "unver.")
_LEGEND = (
    "n: passages; twice: passages that repeat an earlier one, but for spelling; target, correct, "
    "question: share that holds it; words: median; faults: of encoding; long: cut by the encoder; "
    "unver.: failed verification"
)
poison_app = typer.Typer(help="Inspect poison before it is played.", no_args_is_help=True)

PoisonPath = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="From ragassay attack, or as published attacks release."),
]


def attack(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="An attack of the experiment, or a plug-in's name."),
    ],
    dataset: Annotated[
        Path,
        typer.Option(
            "--dataset",
            metavar="EXPERIMENT.toml",
            help="The experiment that is attacked, or the folder of a data set.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Where the poison goes: JSON lines.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting (--set generator.plugin=openai) or an option of the attack "
            "(--set attack.n=3). May be repeated.",
        ),
    ] = None,
) -> None:
    """Craft an attack's poison for every question of a data set, into a file that runs play.

    The same command goes on where an interrupted one stopped. Play the file with
    [[attack]] plugin = "file", path = "FILE".
    """
    from ragassay.experiments.crafting import attack_experiment, craft_file
    from ragassay.terminal import Board

    experiment, title = attack_experiment(dataset, name, settings or ())
    with Board(CONSOLE, title) as board:
        result = craft_file(experiment, out, board.monitor)
    for warning in result.warnings:
        CONSOLE.print(f"WARN  {warning}", markup=False, highlight=False, soft_wrap=True)
    passages = sum(len(line.poison.passages) for line in result.lines)
    CONSOLE.print(
        f"{result.crafted} questions crafted, {result.reused} reused; {passages} passages in "
        f"{result.path}.",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


@poison_app.command("check")
def check(
    file: PoisonPath,
    encoder: Annotated[
        str,
        typer.Option(
            "--encoder",
            metavar="NAME",
            help="Count passages that this encoder would cut, such as minilm.",
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Check poison: duplicates, answers, question, lengths, encoding. Exit code 3 on errors."""
    from ragassay.data.poison_check import check_poison, read_texts

    tokens, limit = _counter(encoder) if encoder else (None, None)
    reports = [
        check_poison(name, texts, tokens=tokens, limit=limit)
        for name, texts in read_texts(file).items()
    ]
    if as_json:
        typer.echo(json.dumps(reports, indent=2, ensure_ascii=True))
    else:
        CONSOLE.print(_table(reports))
        CONSOLE.print(_LEGEND, highlight=False)
        for report in reports:
            for finding in report["findings"]:
                CONSOLE.print(
                    f"{finding['severity']:8s}{finding['where']}: {finding['message']}",
                    markup=False,
                    highlight=False,
                    soft_wrap=True,
                )
    if any(f["severity"] == "error" for report in reports for f in report["findings"]):
        raise typer.Exit(3)


@poison_app.command("show")
def show(
    file: PoisonPath,
    query: Annotated[
        str, typer.Option("--query", metavar="ID", help="Show the passages of one question.")
    ] = "",
) -> None:
    """Show how a poison file came about, or what it holds for one question."""
    from ragassay.data.poison_file import read_poison
    from ragassay.errors import ConfigError

    lines = read_poison(file)
    if not query:
        typer.echo(json.dumps(_about(lines), indent=2, ensure_ascii=True))
        return
    chosen = next((line for line in lines if line.poison.query_id == query), None)
    if chosen is None:
        raise ConfigError(f"{file} has no poison for query {query!r}")
    typer.echo(
        json.dumps(
            {
                "injected": True,
                "query": chosen.question,
                "target": list(chosen.poison.wanted),
                "passages": [passage.text for passage in chosen.poison.passages],
                "details": list(chosen.poison.details),
            },
            indent=2,
            ensure_ascii=True,  # what a passage holds must not steer a terminal
        )
    )


def _counter(name: str) -> tuple[Callable[[str], int], int | None]:
    from ragassay.experiments.victim import token_counter

    return token_counter(name)


def _about(lines: Any) -> dict[str, Any]:
    from dataclasses import asdict

    first = lines[0]
    costs = [asdict(line.poison.cost) for line in lines]
    return {
        "injected": True,
        "questions": len(lines),
        "passages": sum(len(line.poison.passages) for line in lines),
        "asked": first.asked,
        "short": [line.poison.query_id for line in lines
                  if len(line.poison.passages) < line.asked],
        "knowledge": asdict(first.poison.knowledge),
        "cost": {name: sum(cost[name] for cost in costs) for name in costs[0]},
        "provenance": dict(first.provenance),
    }  # fmt: skip


def _table(reports: list[dict[str, Any]]) -> Table:
    table = Table(title="Poison", title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("attack", overflow="fold")
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for report in reports:
        words = report["words"]
        over = report["over_limit"]
        table.add_row(
            escape(report["set"] or "-"),
            f"{report['passages']:,}",
            f"{report['duplicates']['normalized']:,}",
            *(_share(report[name]) for name in ("target", "correct", "question")),
            f"{words['median']:g}" if words else "-",
            str(sum(report["encoding"].values())),
            "-" if over is None else str(over["count"]),
            "-" if report["unverified"] is None else str(report["unverified"]),
        )
    return table


def _share(share: dict[str, Any] | None) -> str:
    return "-" if share is None or share["value"] is None else f"{share['value']:.3f}"
