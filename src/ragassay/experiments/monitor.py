"""What a run tells while it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ragassay.types import ScoreRecord, TrialRecord


@dataclass(slots=True)
class Monitor:
    """What a run tells while it works. Replace the functions that you want to hear."""

    stage: Callable[[str], None] = lambda text: None
    progress: Callable[[int, int], None] = lambda done, total: None
    trial: Callable[[TrialRecord, list[ScoreRecord]], None] = lambda record, scores: None
