"""A run over a million passages, killed at random ten times: does it end with the same bytes?

    python bench/measure_kills.py [--passages 1000000] [--kills 10] [--folder FOLDER]

Synthetic text, the hashing encoder, the rule generator, few questions. Prints time, the peak
memory of the run that was let alone, and whether summary and vectors agree. Needs some 4 kB of
disk a passage for two runs; everything is removed at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SCALE = Path(__file__).resolve().parents[1] / "tests" / "e2e" / "test_scale.py"


def main() -> int:
    """Measure; 1 where bytes differ."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=None, help="where to work; default /tmp")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        found = measure(Path(name), options.passages, options.kills)
    print(json.dumps(found, indent=2))
    return 0 if found["same_summary"] and found["same_vectors"] else 1


def measure(folder: Path, passages: int, kills: int) -> dict[str, Any]:
    """Run once undisturbed and once killed; see the module."""
    scale = _scale(passages)
    scale.write_data(folder / "data")
    (folder / "scale.toml").write_text(scale.EXPERIMENT, encoding="utf-8")
    seconds, peak = _finish(folder, "whole")
    rng = np.random.default_rng(1)
    delays, killed = [], 0
    start = time.perf_counter()
    while killed < kills:
        # Short enough that ten kills find the run unfinished, whatever each of them leaves.
        delay = float(rng.uniform(0.02, 1.6)) * seconds / kills
        run = _start(folder, "killed")
        try:
            run.communicate(timeout=delay)
            break
        except subprocess.TimeoutExpired:
            run.kill()
            run.communicate()
            killed += 1
            delays.append(round(delay, 2))
    _finish(folder, "killed")
    both = ("whole", "killed")
    summaries = [(folder / run / "summary.json").read_bytes() for run in both]
    vectors = [_digests(folder / f"cache-{run}") for run in both]
    return {
        "passages": passages, "questions": scale.QUESTIONS, "killed": killed,
        "killed_after_seconds": delays, "whole_seconds": round(seconds, 1),
        "killed_seconds_in_all": round(time.perf_counter() - start, 1),
        "peak_mib": round(peak / 2**20), "same_summary": summaries[0] == summaries[1],
        "same_vectors": vectors[0] == vectors[1] != {},
    }  # fmt: skip


def _scale(passages: int) -> Any:
    """The world of the end-to-end test, with another number of passages."""
    os.environ["RAGASSAY_SCALE"] = str(passages)
    spec = importlib.util.spec_from_file_location("scale_world", SCALE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _start(folder: Path, out: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("ragassay")), "run", "scale.toml", "--out", out],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env={**os.environ, "RAGASSAY_CACHE": str(folder / f"cache-{out}")},
    )  # fmt: skip


def _finish(folder: Path, out: str) -> tuple[float, int]:
    """Run to the end; seconds and peak resident bytes of the process."""
    start = time.perf_counter()
    with (folder / f"{out}.err").open("wb") as errors:
        run = subprocess.Popen(
            [str(Path(sys.executable).with_name("ragassay")), "run", "scale.toml", "--out", out],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=errors,
            env={**os.environ, "RAGASSAY_CACHE": str(folder / f"cache-{out}")},
        )  # fmt: skip
        _, status, used = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    if run.returncode:
        raise SystemExit(f"the run {out!r} failed:\n{(folder / f'{out}.err').read_text('utf-8')}")
    peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return time.perf_counter() - start, peak


def _digests(cache: Path) -> dict[str, str]:
    found = {}
    for path in cache.rglob("*.npy"):
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


if __name__ == "__main__":
    sys.exit(main())
