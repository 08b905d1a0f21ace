"""What a measurement is: two ways of doing the same, taking turns in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

RatioKind = str  # "at least" or "at most"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table: what was measured, against what, and what should come out.

    ``value`` is None where it was not measured; ``note`` then says why.
    """

    name: str
    what: str
    against: str
    kind: RatioKind
    target: float
    unit: str = "times"
    value: float | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None where nothing was measured."""
        if self.value is None:
            return None
        return self.value >= self.target if self.kind == "at least" else self.value <= self.target


def take_turns(
    ways: Mapping[str, Callable[[], object]], rounds: int, *, warm: int = 1
) -> dict[str, list[float]]:
    """Seconds of each way in each round, after some rounds that do not count.

    The ways alternate, so that whatever else the machine does falls on all of them alike.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-warm, rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            if number >= 0:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(seconds: Mapping[str, list[float]], slow: str, fast: str) -> float:
    """Median over the rounds of how many times as long one way takes as another."""
    return statistics.median(a / b for a, b in zip(seconds[slow], seconds[fast], strict=True))


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """Median seconds of each way."""
    return {f"{name}_seconds": round(statistics.median(all_), 6) for name, all_ in seconds.items()}
