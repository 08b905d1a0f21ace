"""A large corpus on disk, end to end, killed at random: the run ends as one that was let alone.

``RAGASSAY_SCALE=1000000`` takes a million passages (minutes); the default takes fewer.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PASSAGES = int(os.environ.get("RAGASSAY_SCALE", "20000"))
QUESTIONS, KILLS = 12, 10
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
def test_a_run_killed_ten_times_at_random_ends_with_the_same_bytes(tmp_path: Path) -> None:
    write_data(tmp_path / "data")
    (tmp_path / "scale.toml").write_text(EXPERIMENT, encoding="utf-8")

    def start(out: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("ragassay")), "run", "scale.toml", "--out", out],
            cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env={**os.environ, "RAGASSAY_CACHE": str(tmp_path / f"cache-{out}")},
        )  # fmt: skip

    began = os.times().elapsed
    whole = start("whole")
    assert whole.communicate()[1] == b""
    seconds = os.times().elapsed - began
    rng = np.random.default_rng(1)
    killed = 0
    for _ in range(KILLS):
        run = start("killed")
        try:
            run.communicate(timeout=float(rng.uniform(0.3, 0.9)) * seconds)
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGKILL)
            run.communicate()
            killed += 1
        if (tmp_path / "killed" / "summary.json").exists():
            break
    assert killed >= 1
    last = start("killed")
    assert last.communicate()[1] == b""
    summaries = [(tmp_path / run / "summary.json").read_bytes() for run in ("whole", "killed")]
    assert summaries[0] == summaries[1]
    matrices = [
        {path.name: path.read_bytes() for path in (tmp_path / f"cache-{run}").rglob("*.npy")}
        for run in ("whole", "killed")
    ]
    assert matrices[0] == matrices[1]
