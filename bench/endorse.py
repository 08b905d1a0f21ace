"""How long the endorsement scorer takes, and how it agrees with the visible half of the audit.

Scores every saved answer of shared/data/saved-answers once with each offline rule, and prints
milliseconds an answer, how the labels compare, and the confusion tables of the audit.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "golden"))

from test_audit_dev import RULES, measure, read_audit, said, table  # noqa: E402

from ragassay.scoring.endorse import compiled  # noqa: E402
from ragassay.types import Query, Target  # noqa: E402

FILES = ("repro-cp", "repro-corpus", "repro-paper")


def saved(folder: Path) -> Iterator[dict[str, Any]]:
    for name in FILES:
        with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
            yield from map(json.loads, file)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    default = os.environ.get("RAGASSAY_SHARED", str(ROOT.parent / "shared"))
    parser.add_argument("--shared", type=Path, default=Path(default))
    data = parser.parse_args().shared / "data"
    if not (data / "saved-answers").is_dir():
        print(f"no saved answers at {data} (set RAGASSAY_SHARED)", file=sys.stderr)
        return 1
    rows = list(saved(data / "saved-answers"))
    labels: dict[str, list[str]] = {}
    for rule, scorer in RULES.items():
        start = time.perf_counter()
        records = [
            scorer.score(
                trial_key="",
                query=Query(id=row["query_id"], text=row["query"], group=""),
                target=Target(
                    query_id=row["query_id"],
                    wanted=(row["target_answer"],),
                    references=tuple(row["correct_answers"]),
                ),
                answer=row["response"],
                declined=False,
            )
            for row in rows
        ]
        seconds = time.perf_counter() - start
        labels[rule] = [said(record, "target_positive") for record in records]
        print(f"{rule:10} {1000 * seconds / len(rows):.3f} ms an answer, {len(rows)} answers")
    pairs = Counter(zip(labels["tokens"], labels["endorse"], strict=True))
    for (tokens, endorse), count in sorted(pairs.items()):
        print(f"target-positive: tokens {tokens:4} endorse {endorse:10} {count:6}")
    audit = read_audit(data)
    tasks = [(row["question"], (row["target"] or "",), row["references"]) for row in audit]
    start = time.perf_counter()
    for _ in range(10):
        for row, task in zip(audit, tasks, strict=True):
            compiled(*task).read(row["answer"])
    seconds = time.perf_counter() - start
    length = sum(len(row["answer"]) for row in audit) / len(audit)
    print(f"endorse    {100 * seconds / len(audit):.3f} ms an answer of {length:.0f} characters")
    print(table(measure(audit)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
