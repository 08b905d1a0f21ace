"""A large corpus on disk, end to end, killed at random: the run ends as one that was let alone.

``RAGASSAY_SCALE=1000000`` takes a million passages (minutes); the default takes fewer.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

PASSAGES = int(os.environ.get("RAGASSAY_SCALE", "20000"))
QUESTIONS, KILLS = 12, 5
EXPERIMENT = """
name = "scale"
budgets = [1, 3]
[dataset]
plugin = "beir"
path = "data"
reading = "disk"
[retriever]
plugin = "dense"
encoder = "hashing"
[generator]
plugin = "scripted"
script = "extract"
[[defense]]
plugin = "prompt_control_cautious"
[[defense]]
plugin = "trustrag_filter"
"""


def write_data(folder: Path) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for n in range(PASSAGES):
            words = " ".join(f"w{word}" for word in rng.integers(0, 5_000, size=8))
            town = f"The harbor of town{n} was built by builder{n}. " if n < QUESTIONS else ""
            file.write(json.dumps({"_id": f"d{n}", "text": town + words}) + "\n")
    with (folder / "queries.jsonl").open("w", encoding="utf-8") as file:
        for n in range(QUESTIONS):
            row = {"_id": f"q{n}", "text": f"Who built the harbor of town{n}?",
                   "metadata": {"correct_answers": [f"builder{n}"]}}  # fmt: skip
            file.write(json.dumps(row) + "\n")
    with (folder / "targets.jsonl").open("w", encoding="utf-8") as file:
        for n in range(QUESTIONS):
            file.write(json.dumps({
                "query_id": f"q{n}", "query": f"Who built the harbor of town{n}?",
                "correct_answers": [f"builder{n}"], "incorrect_answers": [f"rival{n}"],
                "poison_passages": [f"Record {i}: rival{n} built the harbor of town{n}."
                                    for i in range(3)],
            }) + "\n")  # fmt: skip


@pytest.mark.slow
def test_a_run_killed_five_times_at_random_ends_with_the_same_bytes(tmp_path: Path) -> None:
    write_data(tmp_path / "data")
    (tmp_path / "scale.toml").write_text(EXPERIMENT, encoding="utf-8")

    def start(out: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("ragassay")), "run", "scale.toml", "--out", out],
            cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env={**os.environ, "RAGASSAY_CACHE": str(tmp_path / f"cache-{out}")},
        )  # fmt: skip

    began = time.monotonic()
    whole = start("whole")
    while whole.poll() is None and not (tmp_path / "cache-whole").exists():
        time.sleep(0.01)
    ready = time.monotonic() - began  # before that it imports
    assert whole.communicate()[1] == b""
    seconds = time.monotonic() - began
    rng = np.random.default_rng(1)
    killed, reach = 0, 0.2
    while killed < KILLS:
        # A run that goes on has the index, vectors and trials of those before it, so that it is
        # at its end long before the first was.
        run = start("killed")
        with suppress(subprocess.TimeoutExpired):
            run.communicate(timeout=ready + float(rng.uniform(0.0, reach)) * (seconds - ready))
        run.send_signal(signal.SIGKILL)
        run.communicate()
        killed += 1
        if (tmp_path / "killed" / "summary.json").exists():  # too late: that proves nothing
            assert reach > 0.01
            killed, reach, ready = 0, reach / 2, ready / 2
            for name in ("killed", "cache-killed"):
                shutil.rmtree(tmp_path / name)
    assert (tmp_path / "killed").exists()  # the kills found it at work
    last = start("killed")
    assert last.communicate()[1] == b""
    summaries = [(tmp_path / run / "summary.json").read_bytes() for run in ("whole", "killed")]
    assert summaries[0] == summaries[1]
    matrices = [
        {path.name: path.read_bytes() for path in (tmp_path / f"cache-{run}").rglob("*.npy")}
        for run in ("whole", "killed")
    ]
    assert matrices[0] == matrices[1]
