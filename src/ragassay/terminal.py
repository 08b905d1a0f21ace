"""What the terminal shows while a run works: stages, a bar with the time left, a table."""

from __future__ import annotations

from collections import Counter
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.progress import TimeRemainingColumn as TimeLeft
from rich.table import Table

from ragassay.experiments.monitor import Monitor
from ragassay.types import ScoreRecord, TrialRecord


class Board:
    """Follows a run. On a terminal it redraws in place, elsewhere it prints each stage."""

    def __init__(self, console: Console, headline: str) -> None:
        self._console = console
        self._headline = headline
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TextColumn("time left"), TimeLeft(compact=True), console=console, transient=True,
        )  # fmt: skip
        self._task: TaskID | None = None
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
        if not self._console.is_terminal:
            self._console.print(f"{text} ...")

    def _advance(self, done: int, total: int) -> None:
        if self._task is not None:
            self._progress.update(self._task, completed=done, total=total)
        step = max(1, total // 10)
        if not self._console.is_terminal and total > 20 and done and done % step == 0:
            self._console.print(f"  {done} of {total}")

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
