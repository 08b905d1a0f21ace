"""Kills runs on a system at random moments of a poisoned phase, and cleans up after each.

``python kill_runs.py EXPERIMENT.toml KILLS SEED``, as a process of its own that has imported
everything and forks, so that a kill costs no start of an interpreter. Prints a line of JSON:
how many kills there were, how many found the journal open, how many had left poison in the
store, and the first difference between the store before and after cleaning.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ragassay.experiments import aligned, system_play
from ragassay.experiments.runner import run
from ragassay.experiments.setup import load_experiment
from ragassay.experiments.system_clean import clean
from ragassay.experiments.system_journal import JOURNAL, Journal
from ragassay.experiments.system_setup import build_systems, set_up


def forked(work: Callable[[], Any], result: Path | None = None) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        value = work()
        if result is not None:
            result.write_text(json.dumps(value), encoding="utf-8")
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def waited(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit(f"a step failed: {status}")


def contents(experiment: Any) -> dict[str, str]:
    system = build_systems(experiment)[0].instance
    if hasattr(system, "contents"):  # of a store that is a folder
        return dict(system.contents())
    try:
        return dict(system.store.contents())
    finally:
        system.close()


def poisoned_seconds(pid: int, journal: Journal) -> float:
    """How long a whole run has poison in stores, from the first line of its journal on."""
    size, first, last = 0, 0.0, 0.0
    while os.waitpid(pid, os.WNOHANG)[0] != pid:
        now = journal.path.stat().st_size if journal.path.exists() else 0
        if now != size:
            size, last = now, time.monotonic()
            first = first or last
        time.sleep(0.002)
    return last - first


def main(path: str, kills: int, seed: int) -> None:
    experiment = load_experiment(path)
    assert aligned
    assert system_play
    systems = set_up(experiment).systems  # imports the plug-ins; nothing is opened
    forks = not hasattr(systems[0].instance, "contents")
    there = Path("contents.json")

    def step(work: Callable[[], Any]) -> None:
        """Do it in a process of its own where a store starts threads, else here."""
        if forks:
            waited(forked(work, there))
        else:
            there.write_text(json.dumps(work()), encoding="utf-8")

    def look() -> dict[str, str]:
        step(lambda: contents(experiment))
        return json.loads(there.read_text(encoding="utf-8"))

    rng = np.random.default_rng(seed)
    first = Path("runs") / "whole"
    length = poisoned_seconds(
        forked(lambda: run(experiment, out=first) and None), Journal(first / JOURNAL)
    )
    before = look()
    told = {"kills": 0, "open": 0, "left": 0, "difference": "", "documents": len(before)}
    attempt = 0
    while told["open"] < kills and not told["difference"] and attempt < 4 * kills:
        attempt += 1
        out = Path("runs") / f"killed{attempt}"
        journal = Journal(out / JOURNAL)
        pid = forked(lambda out=out: run(experiment, out=out) and None)
        ended = False
        while not ended and not journal.open_entries():
            time.sleep(0.001)
            ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        if ended:
            continue
        time.sleep(float(rng.uniform(0, length)))
        while not ended and not journal.open_entries():  # between two groups: in the next one
            time.sleep(float(rng.uniform(0, 0.02)))
            ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        if ended or os.waitpid(pid, os.WNOHANG)[0] == pid:
            continue
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        told["kills"] += 1
        if not journal.open_entries():  # between two groups
            continue
        told["open"] += 1
        told["left"] += look() != before
        step(lambda out=out: clean(experiment, out=out) and None)
        after = look()
        if after != before:
            names = sorted(before.keys() ^ after.keys())
            changed = [name for name in before.keys() & after.keys() if before[name] != after[name]]
            told["difference"] = f"kill {told['kills']}: {(names or sorted(changed))[0]}"
        assert not journal.open_entries()
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
