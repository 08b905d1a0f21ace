"""Commands that label answers again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ragassay.cli.console import CONSOLE, print_tables
from ragassay.errors import ConfigError, TooManyFailures

if TYPE_CHECKING:
    from ragassay.experiments.labeling import Labeled
    from ragassay.experiments.spending import Estimate, Prices


def score(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    scorers: Annotated[
        list[str],
        typer.Option(
            "--scorer",
            metavar="NAME",
            help="A label rule, file.py:Class, or TITLE=NAME to call it otherwise. "
            "May be repeated.",
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME.OPTION=VALUE",
            help="Set an option of a scorer: --set judge.model=small. May be repeated.",
        ),
    ] = None,
    headline: Annotated[
        str, typer.Option(help="The scorer that leads the report from now on [default: as it is].")
    ] = "",
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what it would ask and cost, and do nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Send answers to another machine without asking first.")
    ] = False,
    price_in: Annotated[
        float | None, typer.Option(help="Money per million input tokens, for the costs.")
    ] = None,
    price_out: Annotated[
        float | None, typer.Option(help="Money per million output tokens, for the costs.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=0, help="Threads that ask a model [default: 0, by the model].")
    ] = 0,
) -> None:
    """Label the answers of a run folder with further scorers, and write its report again.

    Answers that have such a label are left alone; the same command goes on where an
    interrupted one stopped. No victim is asked. Exit code 5: a model failed, what came is kept.
    """
    from ragassay.config import scorer_parts
    from ragassay.experiments.rescore import plan_scoring, score_folder
    from ragassay.terminal import Board

    parts = scorer_parts(scorers, settings or ())
    prices = _prices(price_in, price_out)
    if plan or not yes:
        estimates = plan_scoring(folder, parts, remote_only=not plan)
        for each in estimates:
            _print_estimate(each, prices)
        if plan:
            return
        _confirm([each for each in estimates if each.calls])
    with Board(CONSOLE, headline or parts[0].title) as board:
        try:
            result = score_folder(
                folder,
                parts,
                headline=headline,
                workers=workers,
                prices=prices,
                monitor=board.monitor,
            )
        except TooManyFailures:
            _report(folder)
            raise
    print_tables(_report(folder))
    for labeled in result.scorers:
        _print_spent(labeled, prices)
    CONSOLE.print(f"Report: {folder / 'report.html'}", highlight=False, soft_wrap=True)


def _prices(price_in: float | None, price_out: float | None) -> Prices | None:
    from ragassay.experiments.spending import Prices

    if price_in is None and price_out is None:
        return None
    if price_in is None or price_out is None:
        raise ConfigError("give both --price-in and --price-out, or neither")
    return Prices(input=price_in, output=price_out)


def _confirm(remote: Sequence[Estimate]) -> None:
    if not remote:
        return
    hosts = ", ".join(sorted({each.remote for each in remote}))
    if not sys.stdin.isatty():
        raise ConfigError(
            f"this would send questions and answers to {hosts}; add --yes to do so, "
            "or look at --plan first"
        )
    if not typer.confirm(f"Send questions and answers to {hosts}?"):
        raise ConfigError("not confirmed; nothing was sent")


def _report(folder: Path) -> dict[str, object]:
    from ragassay import canon
    from ragassay.experiments.protocols import analyze
    from ragassay.report.render import write_reports
    from ragassay.store import RunFolder

    summary = analyze(folder)
    with RunFolder(folder).writer() as store:
        store.write_text("summary.json", canon.dumps(summary) + "\n")
        write_reports(folder)
    return summary


def _print_estimate(estimate: Estimate, prices: Prices | None) -> None:
    lines = [
        f"{estimate.title}: {estimate.answers:,} answers without its label, "
        f"{estimate.distinct:,} distinct"
    ]
    if estimate.calls or estimate.cached:
        how = "" if estimate.counted else " (estimated: one for 4 characters)"
        place = f" to {estimate.remote}" if estimate.remote else ""
        lines += [
            f"  calls{place}: {estimate.calls:,}, and {estimate.cached:,} answered by the cache",
            f"  input tokens: {estimate.input_tokens:,}{how}",
            f"  output tokens: at most {estimate.output_tokens:,}",
        ]
        if prices is not None:
            least = prices.cost(estimate.input_tokens, 0)
            most = prices.cost(estimate.input_tokens, estimate.output_tokens)
            lines.append(f"  cost: {least:.2f} for the input, at most {most:.2f} in all")
        lines.append("  Unusable replies are asked for again, and are not counted here.")
    CONSOLE.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def _print_spent(labeled: Labeled, prices: Prices | None) -> None:
    text = (
        f"{labeled.title}: {labeled.answers:,} answers labeled ({labeled.distinct:,} distinct), "
        f"{labeled.kept:,} had its label; {labeled.seconds:.1f} s."
    )
    if labeled.not_scored:
        text += f" {labeled.not_scored:,} could not be scored."
    if labeled.asks_a_model:
        text += (
            f" {labeled.calls:,} calls, {labeled.cached:,} from the cache; "
            f"{labeled.input_tokens:,} input and {labeled.output_tokens:,} output tokens."
        )
        if prices is not None:
            cost = prices.cost(labeled.input_tokens, labeled.output_tokens)
            text += f" Cost: {cost:.2f}."
    CONSOLE.print(text, highlight=False, markup=False, soft_wrap=True)
