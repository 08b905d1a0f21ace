"""Commands that recompute published figures from released data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ragassay.arena.reproduction import Reproduction

reproduce_app = typer.Typer(
    help="Recompute published figures from released data.", no_args_is_help=True
)


@reproduce_app.callback()
def _root() -> None:
    """Recompute published figures from released data."""


@reproduce_app.command("poisonarena")
def poisonarena(
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="The folder of the released files.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Print each PoisonArena figure that needs no model beside the recomputed one.

    Ends with 0 if everything agrees to 1e-4 that should, else with 1.
    """
    from ragassay.arena.reproduction import reproduce

    found = reproduce(data)
    if as_json:
        typer.echo(json.dumps(found.to_json(), ensure_ascii=False, indent=2, allow_nan=False))
    else:
        for line in _lines(found):
            typer.echo(line)
    if not found.ok:
        raise typer.Exit(1)


def _lines(found: Reproduction) -> list[str]:
    widths = "{:<6} {:<45} {:<12} {:>9} {:>10} {:>10} {:>6}  {}"
    lines = [
        found.source,
        "",
        widths.format(
            "table", "attacker", "figure", "published", "recomputed", "difference", "n", ""
        ),
    ]
    for row in found.comparisons:
        who = found.labels[row.attacker] + (
            f" against {found.labels[row.against]}" if row.against else ""
        )
        lines.append(
            widths.format(
                row.table, who, row.column, f"{row.published:.4f}",
                _number(row.recomputed, ".4f"), _number(row.difference, "+.5f"), row.n, row.status,
            )
        )  # fmt: skip
    lines += ["", *_summary(found)]
    lines += ["", "Prompts of the released loop, 4,000 rounds and 40,000 validations:"]
    for name, count in found.prompts.items():
        lines.append(
            f"  {name}: {count.plays:,} first prompts, {count.distinct:,} of them distinct; "
            f"up to {count.removals_at_most:,} second ones without GARAG's documents "
            f"({count.removals_in_context:,} where one is in the context), as the answers demand; "
            f"{count.distinct_with_removals:,} distinct at most"
        )
    return lines


def _number(value: float | None, form: str) -> str:
    return "none" if value is None else format(value, form)


def _summary(found: Reproduction) -> list[str]:
    rows = found.comparisons
    agree = sum(row.status == "agrees" for row in rows)
    lines = [f"{agree} of {len(rows)} figures agree to 1e-4."]
    lines += [
        f"Known exception: Table {row.table}, {found.labels[row.attacker]}: {row.note}."
        for row in rows
        if row.status == "known exception"
    ]
    differing = sum(row.status == "differs" for row in rows)
    if differing:
        lines.append(f"{differing} figures differ that should agree.")
    return lines
