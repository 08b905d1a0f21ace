"""The command that profiles how poison was written."""

from __future__ import annotations

import json
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ragassay.cli.console import CONSOLE

if TYPE_CHECKING:
    from ragassay.construction.profile import Profile
    from ragassay.stats.clustered_share import ClusteredShare

_LEGEND = (
    "contained: passages that hold their question word for word; in range: passages with a length "
    "in [l5, l95], the central 90% of clean lengths; both with 95% intervals over questions; "
    "short/long: passages outside of that range. saturated: a filter that reads this cue alone "
    "would catch nearly all of the set. A profile stands beside a result; it is none."
)


class JoinOrder(StrEnum):
    """How the question is put to a text that was released without it."""

    none = "none"
    prefix = "prefix"
    suffix = "suffix"


def profile(
    poison: Annotated[
        Path,
        typer.Argument(metavar="POISON", help="From ragassay attack, or as attacks are released."),
    ],
    corpus: Annotated[
        Path,
        typer.Option(
            "--corpus",
            metavar="CORPUS",
            help="An experiment file, a folder with corpus.jsonl, or JSON lines with a text.",
        ),
    ],
    join: Annotated[
        JoinOrder,
        typer.Option(
            "--join",
            help="Put the question before or after texts that were released without it.",
        ),
    ] = JoinOrder.none,
    sample: Annotated[
        int,
        typer.Option(
            "--sample",
            metavar="N",
            help="Count a random sample of clean passages, at least 2000; 0 counts all.",
        ),
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of sample and intervals.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead, with every passage.")
    ] = False,
) -> None:
    """Profile how poison was written: verbatim questions, and lengths against a clean corpus.

    Needs no model, runs no defense and reads no label.
    """
    from ragassay.attacks.poisonedrag import build_black_box
    from ragassay.construction.profile import SAMPLE, plain
    from ragassay.errors import ConfigError
    from ragassay.experiments.profiling import profile_file

    if sample and sample < SAMPLE:
        raise ConfigError(f"--sample is {sample}, expected 0 or at least {SAMPLE}")
    order = None
    if join is not JoinOrder.none:
        order = partial(build_black_box, order="prefix" if join is JoinOrder.prefix else "suffix")
    found = profile_file(poison, corpus, join=order, sample=sample, seed=seed)
    if as_json:
        typer.echo(json.dumps([plain(each) for each in found], indent=2, ensure_ascii=True))
        return
    CONSOLE.print(_table(found))
    clean = found[0].clean
    width = "not estimable" if clean.width is None else f"{clean.width:.2f}"
    CONSOLE.print(
        f"{clean.n:,} clean passages: l5 = {clean.l5:g}, l95 = {clean.l95:g} words, "
        f"l95/l5 = {width}",
        highlight=False,
    )
    CONSOLE.print(_LEGEND, markup=False, highlight=False)


def _table(found: tuple[Profile, ...]) -> Table:
    table = Table(title="Construction profile", title_justify="left", box=None)
    table.add_column("attack", overflow="fold", min_width=8)
    for column in ("n", "contained", "in range", "short/long"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("saturated", min_width=11)
    for each in found:
        table.add_row(
            escape(each.name or "-"),
            f"{each.passages:,}",
            _share(each.containment),
            _share(each.overlap),
            f"{each.below}/{each.above}",
            ", ".join(each.saturated) or _open(each),
        )
    return table


def _open(found: Profile) -> str:
    unknown = [cue for cue, verdict in found.verdicts.items() if verdict == "not estimable"]
    return f"not estimable: {', '.join(unknown)}" if unknown else "none"


def _share(share: ClusteredShare) -> str:
    if share.value is None:
        return "-"
    bounds = share.interval
    shown = "" if bounds is None else f" [{bounds.low:.2f}, {bounds.high:.2f}]"
    return f"{share.value:.2f}{shown}"
