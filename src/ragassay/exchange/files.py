"""Which source a file is: by its name, then by the keys of its first row."""

from __future__ import annotations

from pathlib import Path

from ragassay.data.jsonl import is_json_lines, read_jsonl
from ragassay.errors import ConfigError
from ragassay.exchange.joined import Joined
from ragassay.exchange.rows import Source
from ragassay.exchange.saved import LAYOUTS, PAPER_BUDGET, SavedAnswers, layout_of
from ragassay.exchange.table import Table

NAMES = ("joined", "table", *(layout.name for layout in LAYOUTS))


def open_file(
    path: Path,
    *,
    layout: str = "",
    questions: Path | None = None,
    columns: dict[str, str] | None = None,
    values: dict[str, str] | None = None,
    **given: str | int,
) -> Source:
    """Choose how to read one file of answers.

    Parameters
    ----------
    path : Path
        ``.json`` (joined records), ``.jsonl``, ``.csv`` or ``.tsv``, plain or gzip.
    layout : str
        ``joined``, ``table``, ``repro``, ``repro-paper`` or ``finqa``; empty: recognized.
    questions : Path, optional
        Texts of the questions, for layouts without them.
    columns, values : dict, optional
        For a table: column of each field, meaning of each value.
    **given
        What the file does not say: ``attack``, ``budget``, ``defense``, ``victim``,
        ``dataset``; for a table also ``separator``. Empty values count as absent.

    Raises
    ------
    ConfigError
        The layout is not known or an option does not belong to it.
    DataError
        The first row cannot be read.
    """
    options = {name: value for name, value in given.items() if value not in ("", 0)}
    chosen = layout or _recognized(path, mapped=bool(columns or values))
    if chosen not in NAMES:
        raise ConfigError(f"unknown layout {layout!r}; known: {', '.join(NAMES)}")
    _check_options(chosen, options, questions, mapped=bool(columns or values))
    if chosen == "joined":
        return Joined(path=path, **options)  # type: ignore[arg-type]
    if chosen == "table":
        return Table(path=path, columns=columns or {}, values=values or {}, **options)  # type: ignore[arg-type]
    return SavedAnswers(
        path=path,
        name=chosen,
        questions=questions,
        budget=int(options.get("budget", PAPER_BUDGET)),
    )


def _check_options(
    chosen: str, options: dict[str, str | int], questions: Path | None, *, mapped: bool
) -> None:
    if questions is not None and chosen != "finqa":
        raise ConfigError(f"--questions belongs to the layout finqa, not to {chosen}")
    if chosen != "table" and mapped:
        raise ConfigError(f"--map and --value belong to the layout table, not to {chosen}")
    allowed = {
        "joined": {"attack", "budget", "victim", "dataset"},
        "table": {"attack", "budget", "defense", "victim", "dataset", "separator"},
        "repro-paper": {"budget"},
    }.get(chosen, set())
    wrong = sorted(options.keys() - allowed)
    if wrong:
        raise ConfigError(f"the layout {chosen} does not take {wrong[0]!r}: its rows say that")


def _recognized(path: Path, *, mapped: bool) -> str:
    name = path.name.casefold().removesuffix(".gz")
    if name.endswith((".csv", ".tsv")) or mapped:
        return "table"
    if is_json_lines(path):
        for _, row in read_jsonl(path):
            found = layout_of(row)
            return found.name if found else "table"
    if name.endswith(".json"):
        return "joined"
    raise ConfigError(
        f"{path}: the name tells no format; call it .json, .jsonl, .csv or .tsv, or name the "
        f"layout (--layout {'|'.join(NAMES)})"
    )
