"""Commands that decide in CI and plan a study: ``gate`` and ``power``."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ragassay.cli.console import CONSOLE
from ragassay.errors import ConfigError, GateUsage


def gate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or its URL.")],
    rule: Annotated[
        list[str] | None,
        typer.Option(
            "--rule",
            metavar="RULE",
            help="What is required, such as 'introduced <= 2%' or "
            "'[attack=hijack budget=5] net_reduction >= 20pp'. May be repeated.",
        ),
    ] = None,
    rules_file: Annotated[
        Path | None,
        typer.Option("--rules-file", metavar="FILE", help="A file of rules, one a line."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="OLD_RUN",
            help="An older run, or its URL: a figure that got worse on the same questions fails "
            "too.",
        ),
    ] = None,
    level: Annotated[
        float, typer.Option("--level", help="Largest chance of a false pass or failure.")
    ] = 0.05,
    icc: Annotated[
        float | None,
        typer.Option(
            "--icc",
            help="Correlation within injection groups to assume; 0 takes questions as independent "
            "[default: estimated, at least 0.05].",
        ),
    ] = None,
    max_dropped: Annotated[
        float,
        typer.Option("--max-dropped", help="Share without a label above which nothing is decided."),
    ] = 0.1,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")
    ] = None,
    sarif: Annotated[
        Path | None, typer.Option("--sarif", metavar="FILE", help="Write SARIF 2.1.0.")
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Write Markdown for a pull request."),
    ] = None,
    in_report: Annotated[
        bool, typer.Option("--report", help="Put the result into the run's report too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Hold a run against rules: pass (exit code 0), fail (1) or undecided (2).

    A mistake in a rule or an option has exit code 64, a run folder that cannot be read 4. Needs no
    model: only the records in the folder are read.
    """
    from ragassay.gate.evaluation import evaluate
    from ragassay.gate.rules import parse_rules, read_rules
    from ragassay.gate.writing import print_result, put_into_report, write_results
    from ragassay.store.remote import is_url, local

    if in_report and is_url(run):
        raise GateUsage(f"{run} is only read: leave out --report, or copy it here first")
    try:
        rules = [*parse_rules(rule or ()), *(read_rules(rules_file) if rules_file else ())]
        with local(run) as now, nullcontext() if baseline is None else local(baseline) as before:
            result = evaluate(
                now, rules, baseline=before, level=level, icc=icc, max_dropped=max_dropped
            )
    except ConfigError as error:
        raise GateUsage(str(error)) from error
    if is_url(run):
        result = replace(result, run=run)
    if baseline is not None and is_url(baseline):
        result = replace(result, baseline=baseline)
    write_results(result, junit=junit, sarif=sarif, markdown=markdown)
    if in_report:
        put_into_report(result, Path(run))
    if as_json:
        typer.echo(json.dumps(result.plain(), indent=2, ensure_ascii=False))
    else:
        print_result(result, CONSOLE)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def power(
    metric: Annotated[
        str, typer.Argument(help="J, N, H, or any rate (poisoned_rate, clean_accuracy, ...).")
    ],
    value: Annotated[
        str | None,
        typer.Option("--value", help="What is expected of it, such as 1% or 25pp."),
    ] = None,
    against: Annotated[str, typer.Option("--against", help="The limit to be told from it.")] = "0%",
    width: Annotated[
        str | None, typer.Option("--width", help="Plan for an interval of this width instead.")
    ] = None,
    opposite: Annotated[
        str,
        typer.Option(
            "--opposite",
            help="For N and H: share of questions that change the other way (for N: introduced).",
        ),
    ] = "2%",
    n: Annotated[
        int | None,
        typer.Option("--n", help="Questions there are: say what they reach, and could have seen."),
    ] = None,
    wanted: Annotated[float, typer.Option("--power", help="The chance to decide.")] = 0.8,
    level: Annotated[float, typer.Option("--level", help="One-sided error of the test.")] = 0.05,
    cluster_size: Annotated[
        int, typer.Option("--cluster-size", help="Questions in an injection group.")
    ] = 1,
    icc: Annotated[
        float, typer.Option("--icc", help="Correlation of outcomes within a group.")
    ] = 0.05,
    known: Annotated[
        bool,
        typer.Option(
            "--known",
            help="The gate is told that correlation (gate --icc). Default: it estimates it.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Say how many questions a study needs, or what a number of them can show.

    The chance is summed over every possible outcome, with questions in correlated groups. Where
    the gate estimates the correlation, it is simulated.
    """
    from ragassay.gate.planning import Study, plan

    study = Study(
        metric=metric, value=value, against=against, width=width, opposite=opposite, n=n,
        power=wanted, level=level, cluster_size=cluster_size, icc=icc, known=known,
    )  # fmt: skip
    found = plan(study)
    if as_json:
        typer.echo(json.dumps(found.figures, indent=2))
        return
    for line in found.lines:
        CONSOLE.print(line, markup=False, highlight=False, soft_wrap=True)
