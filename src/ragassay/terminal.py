"""What the terminal shows while a run works: stages, a bar with the time left, a table."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.progress import TimeRemainingColumn as TimeLeft
from rich.table import Table
from rich.text import Text

from ragassay.experiments.monitor import Monitor
from ragassay.types import ScoreRecord, TrialRecord


def pace(done: int, left: int, seconds: float) -> str:
    """How fast it goes and how long it will take; nothing where that cannot be told yet.

    Examples
    --------
    >>> pace(3_000, 60_000, 10.0)
    ', 300 a second, 3:20 left'
    >>> pace(0, 60_000, 10.0)
    ''
    """
    if done <= 0 or seconds < 1:
        return ""
    rate = done / seconds
    minutes, rest = divmod(round(left / rate), 60)
    hours, minutes = divmod(minutes, 60)
    time_left = f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
    shown = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
    return f", {shown} a second, {time_left} left" if left else f", {shown} a second"


class Throughput(ProgressColumn):
    """How many are done in a second, of late."""

    def render(self, task: Task) -> Text:
        """Show the rate, or nothing where it is not known yet."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s")


class Board:
    """Follows a run. On a terminal it redraws in place, elsewhere it prints each stage."""

    def __init__(self, console: Console, headline: str) -> None:
        self._console = console
        self._headline = headline
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            Throughput(), TextColumn("time left"), TimeLeft(compact=True), console=console,
            transient=True,
        )  # fmt: skip
        self._task: TaskID | None = None
        self._since: tuple[float, int] | None = None  # when a stage first counted, and what
        self._told = 0
        self._positive: Counter[tuple[str, str]] = Counter()
        self._scored: Counter[tuple[str, str]] = Counter()
        self._failed = 0
        self._live = Live(
            get_renderable=self._render, console=console, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> Board:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    @property
    def monitor(self) -> Monitor:
        """The monitor to hand to :func:`ragassay.run`."""
        return Monitor(stage=self._stage, progress=self._advance, trial=self._trial)

    def _stage(self, text: str) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(text, total=None)
        self._since, self._told = None, 0
        if not self._console.is_terminal:
            self._console.print(f"{text} ...")

    def _advance(self, done: int, total: int) -> None:
        if self._task is not None:
            self._progress.update(self._task, completed=done, total=total)
        if self._since is None:
            self._since = time.monotonic(), done
        tenths = 10 * done // total if total > 20 else 0
        if not self._console.is_terminal and tenths > self._told:
            self._told = tenths
            seconds, before = time.monotonic() - self._since[0], self._since[1]
            self._console.print(f"  {done} of {total}{pace(done - before, total - done, seconds)}")

    def _trial(self, record: TrialRecord, scores: list[ScoreRecord]) -> None:
        if record.status == "failed":
            self._failed += 1
            return
        spec = record.spec
        if spec.control:
            return  # not an answer of the system as it is
        cell = f"{spec.attack} p={spec.budget}" if spec.budget else "clean"
        for score in scores:
            if score.scorer == self._headline and score.target_positive is not None:
                self._scored[spec.defense_label, cell] += 1
                self._positive[spec.defense_label, cell] += score.target_positive

    def _render(self) -> Group:
        cells = sorted({cell for _, cell in self._scored}, key=lambda c: (c != "clean", c))
        defenses = list(dict.fromkeys(defense for defense, _ in self._scored))
        table = Table(
            title=f"target-positive so far, rule '{self._headline}'", title_justify="left"
        )
        table.add_column("defense")
        for cell in cells:
            table.add_column(cell, justify="right")
        for defense in defenses:
            row = [
                f"{self._positive[defense, cell]}/{self._scored[defense, cell]}" for cell in cells
            ]
            table.add_row(defense, *row)
        parts: list[object] = [table] if cells else []
        if self._failed:
            parts.append(f"{self._failed} trials failed (no outcome)")
        return Group(*parts, self._progress)  # type: ignore[arg-type]
