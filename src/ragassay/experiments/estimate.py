"""What a run would cost, before it runs: trials, those already done, calls at most."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Counts for ``ragassay plan``.

    ``calls`` bounds the model calls from above, by what makes them (each defense, the removal of
    evidence, a judge). ``made_of`` says in words what the trials are the product of; ``controls``
    bounds the trials with evidence removed, which are not among ``trials``.
    """

    folder: Path
    trials: int
    done: int
    calls: dict[str, int]
    made_of: str
    controls: int = 0
