"""Measure the speed of the parts, side by side with what they are compared with.

    python bench/run.py [--only NAME ...] [--quick] [--out bench/results.json] [--page PAGE]

Each row compares two ways within one run, so that the machine's other work falls on both; the
ratio is the median over rounds. ``--quick`` takes sizes that only show that a measurement
works; it writes no page.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import measure_arena
import measure_defenses
import measure_encoding
import measure_intervals
import measure_models
import measure_report
import measure_search
from side_by_side import Row

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "speed.md"
RESULTS = ROOT / "bench" / "results.json"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

MEASUREMENTS: dict[str, tuple[Callable[..., Iterator[Row]], tuple[Row, ...]]] = {
    "search": (measure_search.measure, measure_search.ROWS),
    "encoding": (measure_encoding.measure, measure_encoding.ROWS),
    "intervals": (measure_intervals.measure, measure_intervals.ROWS),
    "defenses": (measure_defenses.measure, measure_defenses.ROWS),
    "report": (measure_report.measure, measure_report.ROWS),
    "arena": (measure_arena.measure, measure_arena.ROWS),
    "attacks": (measure_models.measure_attacks, measure_models.ROWS[:2]),
    "tokens": (measure_models.measure_tokens, measure_models.ROWS[2:]),
}


def main() -> int:
    """Run what was asked for; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(MEASUREMENTS), default=None)
    parser.add_argument("--quick", action="store_true", help="small sizes, no page")
    parser.add_argument("--out", type=Path, default=None, help=f"default {RESULTS}")
    parser.add_argument("--page", type=Path, default=None, help=f"default {PAGE}")
    options = parser.parse_args()
    results: Path | None = options.out or (None if options.quick else RESULTS)
    page: Path | None = options.page or (None if options.quick else PAGE)
    if page is not None and not _marked(page):
        parser.error(f"--page {page}: needs a file with the lines {BEGIN} and {END}, in this order")
    rows = []
    for name in options.only or MEASUREMENTS:
        for row in _measured(name, quick=options.quick):
            rows.append(row)
            print(line(row), flush=True)
            if results is not None:  # after each row, so that nothing measured is lost
                _keep(results, page, row, quick=options.quick)
    missed = [row.name for row in rows if row.met is False]
    if missed and not options.quick:
        print(f"below target: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed and not options.quick else 0


def _keep(results: Path, page: Path | None, row: Row, *, quick: bool) -> None:
    whole = {
        "machine": machine(), "quick": quick,
        "rows": {**_earlier(results, quick=quick), row.name: plain(row)},
    }  # fmt: skip
    fresh = results.with_name(results.name + ".new")
    fresh.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    fresh.replace(results)
    if page is not None:
        write_page(page, whole)


def _measured(name: str, *, quick: bool) -> Iterable[Row]:
    measure, rows = MEASUREMENTS[name]
    started = time.perf_counter()
    came: set[str] = set()
    try:
        for row in measure(quick=quick):
            came.add(row.name)
            yield row
    except Exception as error:
        if quick:
            raise
        note = (
            f"failed after {time.perf_counter() - started:.0f} s: {type(error).__name__}: {error}"
        )
        yield from (replace(row, note=note) for row in rows if row.name not in came)


def plain(row: Row) -> dict[str, Any]:
    """A row for the file of results."""
    return {**asdict(row), "met": row.met, "measured": time.strftime("%Y-%m-%d")}


def line(row: Row) -> str:
    """A row for the terminal."""
    if row.value is None:
        return f"{row.name:20s} not measured: {row.note}"
    verdict = "pass" if row.met else "FAIL"
    return (
        f"{row.name:20s} {row.value:10.3f} {row.unit} ({row.kind} {row.target:g}) {verdict}   "
        f"{row.what}, against {row.against}"
    )


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    import numpy

    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        name = models[0].split(":")[1].strip() if models else name
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "processor": name, "cores": os.cpu_count(), "system": platform.system(),
        "python": platform.python_version(), "numpy": numpy.__version__, "load": load,
    }  # fmt: skip


def _earlier(path: Path, *, quick: bool) -> dict[str, Any]:
    """Rows of an earlier run of the same kind, which a run of some measurements keeps."""
    known = {row.name for _, rows in MEASUREMENTS.values() for row in rows}
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        rows = dict(said["rows"]) if said["quick"] is quick else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {name: row for name, row in rows.items() if name in known}


def _marked(page: Path) -> bool:
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    return text.count(BEGIN) == text.count(END) == 1 and text.index(BEGIN) < text.index(END)


def write_page(path: Path, results: dict[str, Any]) -> None:
    """Put the table between the two marks of the page."""
    text = path.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    path.write_text(f"{head}{BEGIN}\n\n{table(results)}\n{END}{tail}", encoding="utf-8")


def table(results: dict[str, Any]) -> str:
    """The measured rows as a Markdown table, in the order of the measurements."""
    order = [row.name for _, rows in MEASUREMENTS.values() for row in rows]
    facts = results["machine"]
    lines = [
        f"Measured on {facts['processor']}, {facts['cores']} cores, {facts['system']}, Python "
        f"{facts['python']}, NumPy {facts['numpy']}.",
        "",
        "| measurement | against | measured | target | reached | on | remark |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in sorted(results["rows"], key=order.index):
        row = results["rows"][name]
        value = "not measured" if row["value"] is None else f"{row['value']:.3g} {row['unit']}"
        reached = {True: "yes", False: "no", None: "not known"}[row["met"]]
        lines.append(
            f"| {row['what']} | {row['against']} | {value} | {row['kind']} {row['target']:g} | "
            f"{reached} | {row['measured']} | {row['note']} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
