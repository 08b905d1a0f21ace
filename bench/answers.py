"""Time and memory of importing, labeling and rendering many saved answers.

    python bench/answers.py [--answers 100000]

Invented answers of 1 to 60 words in four conditions; prints seconds and peak memory of the whole
command. The target: 100,000 answers, both string rules and endorsement, report written, in under
3 minutes and 2 GB.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CONDITIONS = ("clean-undefended", "poisoned-undefended", "clean-defended", "poisoned-defended")
FRAMES = (
    "{x}.",
    "The answer is {x}.",
    "According to the context, {x} is named, but this contradicts what is known, so {y}.",
    "I don't know. The passages mention {x}.",
    "Based on the passages, it was {x}, although one of them says {y}. {filler}",
    "No, {x} is not right. {filler} Therefore, my answer is: {y}.",
)
WORDS = ("the", "a", "of", "river", "town", "mill", "bridge", "old", "stone", "built", "north")


def write(folder: Path, answers: int) -> list[Path]:
    """Write four files of answers, one per condition."""
    rng = np.random.default_rng(7)
    files = [folder / f"{name}.jsonl" for name in CONDITIONS]
    for number, path in enumerate(files):
        with path.open("w", encoding="utf-8") as file:
            for i in range(answers // 4):
                x, y = (f"Mason {i}", f"Rival {i}")[:: 1 if rng.random() < 0.5 else -1]
                filler = " ".join(rng.choice(WORDS, size=int(rng.integers(0, 50)))).capitalize()
                frame = FRAMES[int(rng.integers(len(FRAMES)))]
                file.write(json.dumps({
                    "query_id": f"q{i}", "group_id": f"g{i // 10}",
                    "question": f"Who built the bridge number {i}?",
                    "answer": frame.format(x=x, y=y, filler=filler) + " " * (number % 2),
                    "target": f"Rival {i}", "references": [f"Mason {i}"],
                }) + "\n")  # fmt: skip
    return files


def main() -> None:
    """Run the command and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=100_000)
    answers = parser.parse_args().answers
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = write(folder, answers)
        command = [str(Path(sys.executable).with_name("ragassay")), "import"]
        for name, path in zip(CONDITIONS, files, strict=True):
            command += [f"--{name}", str(path)]
        start = time.perf_counter()
        subprocess.run(
            [*command, "--out", str(folder / "run")], check=True, stdout=subprocess.DEVNULL
        )
        seconds = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        size = (folder / "run" / "report.html").stat().st_size
        scores = sum(1 for _ in (folder / "run" / "scores.jsonl").open(encoding="utf-8"))
    print(
        f"{answers:,} answers, {scores:,} labels: {seconds:.1f} s wall, "
        f"{used.ru_utime + used.ru_stime:.1f} s CPU, peak {used.ru_maxrss / 2**20:.2f} GiB, "
        f"report.html {size / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    main()
