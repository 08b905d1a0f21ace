"""Does the CI example work, and how long does it take, from a fresh checkout?

Clones the repository, runs the ``run:`` steps of examples/ci/github-actions.yml word by word with
bash, as a runner of GitHub does, and times each. Steps that use an action (checkout, Python,
caches, uploads) are passed over: nothing is cached, so that this is the slowest case. With
``--twice`` a pull request follows the first run, with its baseline and its cache of answers.

Run: python bench/ci_example.py [--cores 2] [--twice] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOW = "examples/ci/github-actions.yml"
MAIN, REQUEST = "refs/heads/main", "refs/pull/1/merge"


def holds(condition: str, checkout: Path, ref: str, failed: bool) -> bool:
    """Whether a step's ``if:`` holds; knows the few forms that the example uses."""
    parts = [part.strip() for part in condition.split("&&")] if condition else []
    answers = [not failed or "always()" in parts]
    for part in parts:
        if found := re.fullmatch(r"github\.ref == '([^']+)'", part):
            answers.append(ref == found[1])
        elif found := re.fullmatch(r"hashFiles\('([^']+)'\) != ''", part):
            answers.append(any(checkout.glob(found[1])))
        elif part != "always()":
            raise SystemExit(f"{WORKFLOW}: if: {condition}: {part!r} is not understood here")
    return all(answers)


def spent() -> float:
    """Processor seconds of the steps so far; on a busy machine they say more than the clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def play(steps: list[dict[str, Any]], checkout: Path, ref: str, cores: int) -> tuple[float, bool]:
    """Run the steps; the seconds they took together, and whether one failed."""
    total, failed = 0.0, False
    plain = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    plain |= {"GITHUB_STEP_SUMMARY": str(checkout / "step-summary.md"), "CI": "true"}
    for step in steps:
        name = step.get("name", step.get("uses", "?"))
        if "run" not in step or not holds(step.get("if", ""), checkout, ref, failed):
            print(f"  {'passed over':>12s}  {name}", flush=True)
            continue
        script = checkout.parent / "step.sh"
        script.write_text(step["run"], encoding="utf-8")
        pin = ["taskset", "--cpu-list", f"0-{cores - 1}"] if shutil.which("taskset") else []
        start, used = time.perf_counter(), spent()
        done = subprocess.run(
            [*pin, "bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=checkout, env={**plain, **step.get("env", {})}, check=False,
        )  # fmt: skip
        seconds, used = time.perf_counter() - start, spent() - used
        total += seconds
        failed = failed or done.returncode != 0
        told = "" if done.returncode == 0 else f"  exit code {done.returncode}"
        print(f"  {seconds:10.1f} s  {name} ({used:.1f} s of processors){told}", flush=True)
    return total, failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--twice", action="store_true", help="then as a pull request")
    parser.add_argument("--keep", type=Path, help="folder for the checkout; it must not exist")
    asked = parser.parse_args()
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="ci-example-"))
    folder.mkdir(parents=True, exist_ok=asked.keep is None)
    checkout = folder / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
    workflow = yaml.safe_load((checkout / WORKFLOW).read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    whole, failed = 0.0, False
    for ref in (MAIN, REQUEST)[: 2 if asked.twice else 1]:
        print(f"{ref}, {asked.cores} cores", flush=True)
        if ref == REQUEST:
            shutil.rmtree(checkout / "runs" / "demo")
        seconds, broken = play(job["steps"], checkout, ref, asked.cores)
        print(f"  {seconds:10.1f} s  together{'; FAILED' if broken else ''}", flush=True)
        whole, failed = max(whole, seconds), failed or broken
    if asked.keep is None:
        shutil.rmtree(folder)
    print(f"longest {whole / 60:.1f} minutes")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
