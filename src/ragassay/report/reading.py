"""A run folder whose records are read once, for a command that analyzes and then reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragassay.store import RunFolder
from ragassay.store.columns import Trials
from ragassay.types import Query, ScoreRecord, Target, TrialRecord


class ReadOnce(RunFolder):
    """Keeps trials, scores and queries after the first reading.

    What is appended afterwards is not seen, so that it serves reading only.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._kept: dict[str, Any] = {}

    def trials(self) -> dict[str, TrialRecord]:
        """As of the first reading; see :meth:`RunFolder.trials`."""
        return self._once("trials")  # type: ignore[no-any-return]

    def columns(self) -> Trials:
        """As of the first reading; see :meth:`RunFolder.columns`."""
        return self._once("columns")  # type: ignore[no-any-return]

    def scores(self) -> dict[tuple[str, str], ScoreRecord]:
        """As of the first reading; see :meth:`RunFolder.scores`."""
        return self._once("scores")  # type: ignore[no-any-return]

    def queries(self) -> dict[str, tuple[Query, Target]]:
        """As of the first reading; see :meth:`RunFolder.queries`."""
        return self._once("queries")  # type: ignore[no-any-return]

    def _once(self, stream: str) -> Any:
        if stream not in self._kept:
            self._kept[stream] = getattr(RunFolder, stream)(self)
        return self._kept[stream]
