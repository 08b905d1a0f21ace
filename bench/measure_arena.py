"""Model calls of the arena of seven attackers, counted from released documents without a model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from side_by_side import Row

CALLS = Row(
    name="arena_calls",
    what="model calls of the arena of 7 attackers, 4,000 rounds with validation",
    against="the released loop, of whose 45,542 calls 18,355 are said to be distinct",
    kind="at most", target=18_355, unit="calls",
)  # fmt: skip
ROWS = (CALLS,)
VARIABLE = "RAGASSAY_SHARED"
K = 5


def measure(*, quick: bool) -> Iterator[Row]:
    """Replay the released loop, and count what a cache by prompt asks a model for."""
    from ragassay.arena.prompts import count_prompts
    from ragassay.arena.released import read_questions
    from ragassay.arena.released_loop import ReleasedLoop, replay

    folder = Path(os.environ.get(VARIABLE, "shared")) / "data" / "poisonarena"
    if not folder.is_dir():
        yield replace(
            CALLS, note=f"the released PoisonArena files are not installed: set {VARIABLE} to the "
            "folder that holds data/poisonarena",
        )  # fmt: skip
        return
    questions = read_questions(folder)
    pools = {pool.query_id: pool for pool in questions}
    fewer = {"rounds": 200, "validations": 20} if quick else {}
    counts = {
        str(attackers or "2 to 6"): count_prompts(
            replay(questions, ReleasedLoop(attackers=attackers, **fewer)), pools, K
        )
        for attackers in (4, None)
    }
    # What the answers decide is counted as if it were always asked.
    calls = {name: each.distinct_with_removals + len(pools) for name, each in counts.items()}
    first = counts["4"]
    yield replace(
        CALLS, value=max(calls.values()),
        figures={
            "calls_at_most": calls, "clean_contexts": len(pools),
            "first_prompts": {name: each.plays for name, each in counts.items()},
            "distinct_first_prompts": {name: each.distinct for name, each in counts.items()},
        },
        note="the same plays, replayed from the seed of the released loop: "
        + "; ".join(f"{name} attackers a round: {some:,} calls" for name, some in calls.items())
        + f" with {len(pools)} clean contexts and every second prompt, for {first.plays:,} first "
        "prompts. Prompts are told apart by question and texts; the released ones also show score "
        "and source",
    )  # fmt: skip
