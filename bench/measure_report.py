"""A run folder of a million trials: labeling it, reporting it, finding one record in it.

:func:`write_run` makes the folder: aligned trials of questions under clean and poisoned retrieval,
without and with defenses, written by the store's own writer. Everything in it follows from a seed:
who is fooled, how long answers are, what stands in the contexts. Its texts mean nothing.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from side_by_side import Row

MIB = 1 << 20
SHAPE = "20,000 questions x 10 contexts x 5 systems, 2 label rules"
SECONDS = Row(
    name="report_seconds", what="ragassay report, wall time of 1,000,000 trials",
    against=SHAPE, kind="at most", target=120, unit="s",
)  # fmt: skip
MEMORY = Row(
    name="report_memory", what="ragassay report, peak memory with 1,000,000 trials",
    against=SHAPE, kind="at most", target=2_000, unit="MB",
)  # fmt: skip
FIND = Row(
    name="report_find", what="one record of 1,000,000 by its key, the index being there",
    against="reading the stream up to it", kind="at most", target=0.05, unit="times",
)  # fmt: skip
ROWS = (SECONDS, MEMORY, FIND)
ATTACKS, BUDGETS = ("attack_a", "attack_b", "attack_c"), (1, 3, 5)
DEFENSES = ("none", "defense_a", "defense_b", "defense_c", "defense_d")
K, QUESTIONS_PER_GROUP, BATCH = 5, 20, 2_000


def measure(*, quick: bool) -> Iterator[Row]:
    """All rows, over one folder; labels are given by ``ragassay score`` in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        trials = write_run(run, questions=40 if quick else 20_000)
        size = sum(file.stat().st_size for file in run.glob("*.jsonl")) / MIB
        score = _spent("score", str(run), "--scorer", "published", "--scorer", "tokens", "--yes")
        report = _spent("report", str(run))
        figures = {
            "trials": trials, "megabytes": round(size), "report_cpu_seconds": report.cpu,
            "report_megabytes": report.megabytes, "score_seconds": score.wall,
            "score_cpu_seconds": score.cpu, "score_megabytes": score.megabytes,
            "html_bytes": (run / "report.html").stat().st_size,
        }  # fmt: skip
        note = (
            f"{size:,.0f} MiB of records; {report.cpu:.0f} s of processor time; before it "
            f"`ragassay score` of both rules: {score.wall:.0f} s, {score.megabytes:,.0f} MB"
        )
        yield replace(SECONDS, value=report.wall, figures=figures, note=note)
        yield replace(MEMORY, value=report.megabytes, figures=figures)
        yield _found(run)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a command took: wall and processor seconds, peak resident memory in MB (10^6)."""

    wall: float
    cpu: float
    megabytes: float


def _spent(*arguments: str) -> Spent:
    command = [sys.executable, "-c", "from ragassay.cli import main; main()", *arguments]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    told = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(
            f"ragassay {arguments[0]} ended with {process.returncode}: {told[-300:]}"
        )
    return Spent(wall, usage.ru_utime + usage.ru_stime, _megabytes(usage))


def _megabytes(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def _found(run: Path) -> Row:
    """Find the record in the middle, by the index and by reading up to it."""
    from ragassay.store import RunFolder

    folder = RunFolder(run)
    folder.index("trials")  # made where it is not there yet
    keys = [key for key, _ in folder.read("trials")]
    wanted = keys[len(keys) // 2]
    start = time.perf_counter()
    [by_index] = folder.index("trials").find(wanted)
    indexed = time.perf_counter() - start
    start = time.perf_counter()
    by_reading = next(body for key, body in folder.read("trials") if key == wanted)
    read = time.perf_counter() - start
    if by_index != by_reading:
        raise RuntimeError("the index gave another record")
    figures = {"index_seconds": indexed, "reading_seconds": read}
    return replace(FIND, value=indexed / read, figures=figures)


# ------------------------------------------------------------------------------ the folder


def write_run(path: Path, *, questions: int, seed: int = 0) -> int:
    """Write a run folder without labels, through the store; returns the number of trials.

    Parameters
    ----------
    path : Path
        A new folder.
    questions : int
        There are 50 trials to each: clean retrieval and three attacks with three budgets, without
        a defense and with four. Every 200th trial failed.
    seed : int
        Of everything that is drawn.
    """
    from ragassay import canon
    from ragassay.store import RunFolder
    from ragassay.types import Cost, Knowledge, Passage, PoisonSet, Query, Target

    rng = np.random.default_rng(seed)
    folder = RunFolder(path)
    with folder.writer():
        folder.write_text("resolved.json", canon.dumps(_resolved(questions)) + "\n")
        for start in range(0, questions, BATCH):
            numbers = range(start, min(start + BATCH, questions))
            folder.append_many("queries", [
                (f"q{n}", {
                    "query": Query(id=f"q{n}", text=f"Who built the harbor of town{n}?",
                                   group=f"g{n // QUESTIONS_PER_GROUP}"),
                    "target": Target(query_id=f"q{n}", references=(f"builder{n}",),
                                     wanted=(f"rival{n}",), gold_ids=(f"d{n}-0",)),
                })
                for n in numbers
            ])  # fmt: skip
            folder.append_many("passages", [
                (f"d{n}-{i}", Passage(id=f"d{n}-{i}", text=_text(f"builder{n}", i)))
                for n in numbers for i in range(K)
            ])  # fmt: skip
            folder.append_many("poison", [
                (f"{attack}-q{n}", PoisonSet(
                    attack=attack, query_id=f"q{n}", wanted=(f"rival{n}",),
                    passages=tuple(
                        Passage(id=f"{attack}-q{n}-{i}", text=_text(f"rival{n}", i))
                        for i in range(max(BUDGETS))
                    ),
                    knowledge=Knowledge(), cost=Cost(model_calls=1, output_tokens=100),
                ))
                for attack in ATTACKS for n in numbers
            ])  # fmt: skip
        written = 0
        for n in range(questions):
            trials = list(_trials(n, rng, written))
            folder.append_many("trials", trials)
            written += len(trials)
    return written


def _text(name: str, number: int) -> str:
    return f"The harbor was built by {name}, says record {number}. " + "It has a long quay. " * 10


def _resolved(questions: int) -> dict[str, Any]:
    return {
        "v": 1, "protocol": "aligned/1",
        "experiment": {
            "name": "a million trials", "seed": 1, "retriever": {"k": K},
            "statistics": {"draws": 10_000, "confidence": 0.95},
        },
        "dataset": {
            "name": "synthetic", "fingerprint": "synthetic", "passages": questions * K,
            "questions": questions, "evaluated": questions,
            "groups": -(-questions // QUESTIONS_PER_GROUP), "has_qrels": True,
        },
        "attacks": dict.fromkeys(ATTACKS, "synthetic"),
        "defenses": dict.fromkeys(DEFENSES, "synthetic"),
        "scorers": {}, "headline": "",
        "planned": questions * len(DEFENSES) * (1 + len(ATTACKS) * len(BUDGETS)),
    }  # fmt: skip


def _trials(n: int, rng: np.random.Generator, written: int) -> Iterator[tuple[str, Any]]:
    """The 50 trials of a question: the more poison, the more often the wrong answer."""
    from ragassay import canon

    contexts = [("", 0), *((attack, p) for attack in ATTACKS for p in BUDGETS)]
    for attack, budget in contexts:
        ids = [f"{attack}-q{n}-{i}" for i in range(budget)] + [f"d{n}-{i}" for i in range(K)]
        for strength, defense in enumerate(DEFENSES):
            spec = {
                "protocol": "aligned/1", "dataset": "synthetic", "query_id": f"q{n}",
                "question": f"Who built the harbor of town{n}?", "attack": attack,
                "budget": budget, "poison": f"{attack}{budget}", "retriever": "synthetic",
                "defense": defense, "defense_label": defense, "prompt": "synthetic",
                "generator": "synthetic", "seed": 1, "setting": "", "control": "",
                "variant": "", "sample": 0,
                "sampling": {"temperature": 0.0, "top_p": 1.0, "max_tokens": 64},
            }  # fmt: skip
            key = canon.digest(spec)
            kept = rng.random(K) > (0.15 * strength if budget else 0.02 * strength)
            fooled = rng.random() < 0.04 + 0.12 * budget - 0.1 * strength
            failed = (written + strength) % 200 == 0
            name = f"rival{n}" if fooled else f"builder{n}"
            tail = " as the records say" * int(rng.integers(0, 8))
            yield key, {
                "key": key, "spec": spec, "status": "failed" if failed else "done",
                "context": [
                    {"id": each, "score": round(0.9 - 0.01 * i, 4),
                     "origin": "own" if i < budget else "corpus", "gold": each == f"d{n}-0",
                     "kept": bool(kept[i]), "copy": ""}
                    for i, each in enumerate(ids[:K])
                ],
                "answer": None if failed else f"It was built by {name}{tail}.", "declined": False,
                "suspicion": {}, "trace": {"kept": int(kept.sum())},
                "usage": {"model_calls": 1 + strength, "input_tokens": 300, "output_tokens": 20,
                          "encoded_texts": 0, "scored_texts": 0},
                "generation": key, "error": "no answer came" if failed else "", "seconds": 0.5,
            }  # fmt: skip
        written += len(DEFENSES)


if __name__ == "__main__":
    print(json.dumps({"trials": write_run(Path(sys.argv[1]), questions=int(sys.argv[2]))}))
