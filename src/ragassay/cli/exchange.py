"""Commands that bring answers in from elsewhere, and out again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ragassay.cli.console import CONSOLE, print_tables
from ragassay.errors import ConfigError

if TYPE_CHECKING:
    from ragassay.exchange import Answers, Source

_File = Annotated[Path | None, typer.Option(metavar="FILE")]


def import_answers(
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="The new run folder.")],
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="One file of all answers: .json, .jsonl, .csv or .tsv."
        ),
    ] = None,
    clean_undefended: _File = None,
    poisoned_undefended: _File = None,
    clean_defended: _File = None,
    poisoned_defended: _File = None,
    defended: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=CLEAN,POISONED",
            help="The two files of one of several defenses. May be repeated.",
        ),
    ] = None,
    layout: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="joined, table, repro, repro-paper or finqa [default: recognized].",
        ),
    ] = "",
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD=COLUMN", help="Column of a field of a table."),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--value", metavar="VALUE=MEANING", help="What a value of a table's condition means."
        ),
    ] = None,
    separator: Annotated[
        str, typer.Option(metavar="TEXT", help="Separates list items in a table's cells.")
    ] = "",
    questions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Texts of the questions (layout finqa).")
    ] = None,
    method: Annotated[str, typer.Option(metavar="NAME", help="The defense's name.")] = "",
    attack: Annotated[str, typer.Option(metavar="NAME", help="The attack's name.")] = "",
    budget: Annotated[int, typer.Option(metavar="P", help="Passages injected a query.")] = 0,
    victim: Annotated[str, typer.Option(metavar="NAME", help="The model that answered.")] = "",
    dataset: Annotated[str, typer.Option(metavar="NAME", help="The data set.")] = "",
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="Pass over a field of the four files."),
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Import queries that lack an answer.")
    ] = False,
) -> None:
    """Import answers from anywhere into a run folder, label them and write the report.

    Everything is checked first; where files do not match up, nothing is written.
    """
    from ragassay.exchange import FourFiles, open_file, read

    four = {
        "--clean-undefended": clean_undefended,
        "--poisoned-undefended": poisoned_undefended,
        "--clean-defended": clean_defended,
        "--poisoned-defended": poisoned_defended,
    }
    given: dict[str, str | int] = {
        "attack": attack, "budget": budget, "victim": victim, "dataset": dataset,
    }  # fmt: skip
    source: Source
    if file is not None:
        if any(four.values()) or defended or ignore:
            raise ConfigError("give one file of all answers, or a file for each condition")
        source = open_file(
            file,
            layout=layout,
            questions=questions,
            columns=_pairs("--map", columns),
            values=_pairs("--value", values),
            defense=method,
            separator=separator,
            **given,
        )
    else:
        if layout or columns or values or separator or questions:
            raise ConfigError("--layout, --map and the like belong to one file of all answers")
        if clean_undefended is None or poisoned_undefended is None:
            raise ConfigError(
                "name the file of all answers, or --clean-undefended and --poisoned-undefended"
            )
        source = FourFiles(
            clean_undefended=clean_undefended,
            poisoned_undefended=poisoned_undefended,
            defended=_defended(clean_defended, poisoned_defended, method, defended or ()),
            ignore=tuple(ignore or ()),
            **{name: value for name, value in given.items() if value},  # type: ignore[arg-type]
        )
    _import(read(source, allow_missing=allow_missing), out)


def export_answers(
    folder: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or its URL.")],
    out: Annotated[
        Path,
        typer.Option("--out", metavar="PLACE", help="New folder (jsonl) or new file (joined)."),
    ],
    format: Annotated[
        str,
        typer.Option(metavar="NAME", help="jsonl (a file for each condition) or joined."),
    ] = "jsonl",
    setting: Annotated[str | None, typer.Option(metavar="NAME", help="Which setting.")] = None,
    attack: Annotated[str | None, typer.Option(metavar="NAME", help="Which attack.")] = None,
    budget: Annotated[int | None, typer.Option(metavar="P", help="Which budget.")] = None,
    defense: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Which defense; all if absent. May be repeated."),
    ] = None,
    scores: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCORER", help="Write these labels too, as scores.csv. May be repeated."
        ),
    ] = None,
) -> None:
    """Export the answers of a run folder, in a format that import reads back."""
    from ragassay.exchange import Selection, export
    from ragassay.store.remote import local

    with local(folder, ["resolved.json", "queries", "trials", "scores"]) as path:
        result = export(
            path,
            out,
            format=format,
            selection=Selection(
                setting=setting,
                attack=attack,
                budget=budget,
                defenses=tuple(defense or ()),
                scores=tuple(scores or ()),
            ),
        )
    for what, path in result.files.items():
        CONSOLE.print(f"{what}: {path}", markup=False, highlight=False, soft_wrap=True)
    left_out = f"; {result.left_out:,} left out for want of an answer" if result.left_out else ""
    CONSOLE.print(
        f"{result.answers:,} answers: {result.attack or 'no attack'}, p={result.budget}{left_out}.",
        markup=False,
        highlight=False,
    )


def _import(answers: Answers, out: Path) -> None:
    """Write the folder, label it with the default rules, and report."""
    from ragassay import canon
    from ragassay.config import ScoringPart
    from ragassay.exchange import write_folder
    from ragassay.experiments.claim import environment
    from ragassay.experiments.protocols import analyze
    from ragassay.experiments.rescore import score_folder
    from ragassay.experiments.setup import build_scorer
    from ragassay.report.render import write_reports
    from ragassay.store import RunFolder

    rules = ScoringPart().rules
    built = [build_scorer(rule, Path()) for rule in rules]
    write_folder(
        answers,
        out,
        scorers={each.title: each.identity for each in built},
        environment=environment(),
    )
    score_folder(out, rules)
    summary = analyze(out)
    with RunFolder(out).writer() as store:
        store.write_text("summary.json", canon.dumps(summary) + "\n")
        paths = write_reports(out)
    print_tables(summary)
    CONSOLE.print(
        f"{answers.count:,} answers to {len(answers.queries):,} queries; "
        f"settings: {len(answers.settings)}, attacks: {len(answers.attacks)}, "
        f"defenses: {len(answers.defenses) - 1}.",
        markup=False,
        highlight=False,
    )
    for note in answers.notes:
        CONSOLE.print(f"Note: {note}", markup=False, highlight=False, soft_wrap=True)
    CONSOLE.print(f"Report: {paths['html']}", markup=False, highlight=False, soft_wrap=True)


def _pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.rpartition("=") if option == "--value" else text.partition("=")
        if not equals or not name or not value:
            raise ConfigError(f"{option} {text!r}: expected NAME=VALUE")
        if name in pairs:
            raise ConfigError(f"{option}: {name!r} is given twice")
        pairs[name] = value
    return pairs


def _defended(
    clean: Path | None, poisoned: Path | None, method: str, several: Sequence[str]
) -> dict[str, tuple[Path, Path]]:
    """The two files of each defense; an empty name is that of the rows."""
    pairs: dict[str, tuple[Path, Path]] = {}
    if clean is not None and poisoned is not None:
        pairs[method] = (clean, poisoned)
    elif clean is not None or poisoned is not None:
        raise ConfigError("--clean-defended and --poisoned-defended belong together")
    elif method:
        raise ConfigError("--method names the defense of --clean-defended and --poisoned-defended")
    for text in several:
        name, _, files = text.partition("=")
        first, _, second = files.partition(",")
        if not name or not first or not second or "," in second:
            raise ConfigError(f"--defended {text!r}: expected NAME=CLEAN.jsonl,POISONED.jsonl")
        if name in pairs:
            raise ConfigError(f"--defended: {name!r} is given twice")
        pairs[name] = (Path(first), Path(second))
    return pairs
