"""The main job as its users run it: the command line, real files, faults injected."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

World = Any  # the fixture of conftest.py: a folder, and a way to run commands in it
SLOWLY = ("run", "world.toml", "--out", "run", "--set", "run.workers=2")
TRIALS = 15 * 3 * 3  # questions x (none, keywordagg, score_gap) x (clean, p=1, p=3)


def cell(world: World, defense: str, budget: int, scorer: str = "tokens") -> dict:
    return next(
        c
        for c in world.summary()["cells"]
        if (c["defense"], c["budget"], c["scorer"]) == (defense, budget, scorer)
    )


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_figure_comes_out_as_constructed(world: World) -> None:
    done = world.run("run", "world.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    undefended = cell(world, "none", 3)
    assert undefended["rates"]["c0"]["count"] == 0
    assert undefended["rates"]["p0"] == pytest.approx(
        {"count": 15, "n": 15, "value": 1.0, "low": 0.7961, "high": 1.0}, abs=1e-4
    )
    assert {name: e["count"] for name, e in undefended["effects"].items()} == dict.fromkeys(
        ("P", "J", "N", "H", "Gamma"), 0
    )
    assert undefended["correct"]["c0"]["count"] == 15
    assert undefended["context"]["p0"]["retrieved"]["own"] == 3
    assert undefended["cost"]["p0"]["model_calls"] == 1
    assert cell(world, "keywordagg", 3)["cost"]["p1"]["model_calls"] == 5
    gap = cell(world, "score_gap", 1)
    assert gap["abstained"]["p1"]["count"] == gap["effects"]["P"]["count"]
    for each in world.summary()["cells"]:
        effects = {name: e["count"] for name, e in each["effects"].items()}
        assert effects["N"] == effects["P"] - effects["J"]
        assert effects["Gamma"] == effects["N"] + effects["H"]
        assert each["dropped"] == {
            "missing": 0, "failed": 0, "not_scored": 0, "uncertain": 0, "not_applicable": 0
        }  # fmt: skip
    assert (world.folder / "run" / "report.html").exists()
    assert (world.folder / "run" / "report.md").exists()


def test_the_second_run_asks_and_encodes_nothing_and_gives_the_same_bytes(world: World) -> None:
    world.run("run", "world.toml", "--out", "run")
    before = (world.folder / "run" / "summary.json").read_bytes()
    again = world.run("run", "world.toml", "--out", "run")
    assert "0 trials run, 135 reused; 0 model calls, 0 texts encoded" in " ".join(
        again.stdout.split()
    )
    assert (world.folder / "run" / "summary.json").read_bytes() == before


@pytest.mark.parametrize("gathers", ["true", "false"])
def test_the_number_of_workers_changes_no_byte_of_the_summary(
    world: World, gathers: str, tmp_path: Path
) -> None:
    summaries = []
    for workers in (1, 16):
        done = world.run(
            "run", "world.toml", "--out", f"run{workers}", "--set", f"run.workers={workers}",
            "--set", f"generator.gathers={gathers}",
            RAGASSAY_CACHE=str(tmp_path / f"cache{workers}"),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        summaries.append((world.folder / f"run{workers}" / "summary.json").read_bytes())
    assert summaries[0] == summaries[1]


def test_killed_twice_then_finished_equals_an_uninterrupted_run(
    world: World, tmp_path: Path
) -> None:
    world.run("run", "world.toml", "--out", "whole", RAGASSAY_CACHE=str(tmp_path / "other"))
    trials = world.folder / "run" / "trials.jsonl"
    for wanted in (10, 50):
        world.kill(*SLOWLY, after=wanted)
    assert not (world.folder / "run" / "summary.json").exists()
    done = world.run("run", "world.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    keys = [line["key"] for line in lines(trials)]
    assert len(keys) == len(set(keys)) == TRIALS
    for name in ("summary.json",):
        assert (world.folder / "run" / name).read_bytes() == (
            world.folder / "whole" / name
        ).read_bytes()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_says_so_and_keeps_finished_trials(
    world: World, stop: signal.Signals
) -> None:
    trials = world.folder / "run" / "trials.jsonl"
    process = world.start(*SLOWLY, RULE_READER_DELAY="0.05")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (trials.exists() and trials.stat().st_size):
        time.sleep(0.01)
    process.send_signal(stop)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 130, output
    assert "finished trials are kept" in output
    assert "Traceback" not in output
    assert 0 < len(lines(trials)) < TRIALS


def test_a_server_that_dies_half_way_stops_the_run_and_loses_nothing(
    world: World, tmp_path: Path
) -> None:
    log = str(tmp_path / "prompts")
    died = world.run(
        "run", "world.toml", "--out", "run", "--set", "run.max_failures=5",
        "--set", "run.workers=1", RULE_READER_LOG=log, RULE_READER_DIES_AFTER="20",
    )  # fmt: skip
    assert died.returncode == 5
    assert "5 trials failed in a row" in died.stderr
    assert "the server has gone away" in died.stderr
    assert "Traceback" not in died.stderr
    finished = [r for r in lines(world.folder / "run" / "trials.jsonl")
                if r["body"]["status"] == "done"]  # fmt: skip
    assert finished
    done = world.run("run", "world.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert world.summary()["trials"] == {
        "planned": TRIALS, "done": TRIALS, "failed": 0, "missing": 0
    }  # fmt: skip


def test_when_every_call_fails_nothing_is_estimable_and_the_exit_code_says_so(
    world: World, tmp_path: Path
) -> None:
    failed = world.run(
        "run", "world.toml", "--out", "run", "--set", "run.max_failures=100000",
        "--set", "defense=[]",
        RULE_READER_LOG=str(tmp_path / "p"), RULE_READER_DIES_AFTER="0",
    )  # fmt: skip
    assert failed.returncode == 5
    assert "not estimable: 45 of 45 trials failed" in failed.stderr
    assert "not estimable" in (world.folder / "run" / "report.md").read_text(encoding="utf-8")
    first = world.summary()["cells"][0]
    assert first["estimable"] is False
    assert first["dropped"]["failed"] == 15
    assert "effects" not in first


def test_a_second_process_is_refused(world: World) -> None:
    process = world.start(*SLOWLY, RULE_READER_DELAY="0.05")
    trials = world.folder / "run" / "trials.jsonl"
    while not trials.exists():
        time.sleep(0.01)
    second = world.run("run", "world.toml", "--out", "run")
    process.kill()
    process.communicate()
    assert second.returncode == 4
    assert "in use by another ragassay process" in second.stderr


def test_a_folder_of_another_experiment_is_refused_with_what_differs(world: World) -> None:
    world.run("run", "world.toml", "--out", "run")
    other = world.run("run", "world.toml", "--out", "run", "--set", "retriever.k=3")
    assert other.returncode == 4
    assert "experiment.retriever.k was 4, now is 3" in other.stderr


def test_a_full_disk_is_a_clear_error_and_the_run_goes_on_later(world: World) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    full = subprocess.run(
        world.command("run", "world.toml", "--out", "run"), cwd=world.folder,
        env={**os.environ, **world.env}, capture_output=True, text=True,
        check=False, preexec_fn=limit, timeout=600,
    )  # fmt: skip
    assert full.returncode == 4, full.stderr
    assert "Traceback" not in full.stderr
    assert len([line for line in full.stderr.splitlines() if line.startswith("error:")]) == 1
    done = world.run("run", "world.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    keys = [line["key"] for line in lines(world.folder / "run" / "trials.jsonl")]
    assert len(keys) == len(set(keys)) == TRIALS


def test_no_prompt_tells_the_model_who_wrote_what(world: World, tmp_path: Path) -> None:
    log = tmp_path / "prompts"
    done = world.run("run", "world.toml", "--out", "run", RULE_READER_LOG=str(log))
    assert done.returncode == 0, done.stderr
    prompts = log.read_text(encoding="utf-8").split("\x00")
    assert len(prompts) > 50
    scores = {
        f"{entry['score']:.4f}"
        for line in lines(world.folder / "run" / "trials.jsonl")
        for entry in line["body"]["context"]
    }
    for prompt in prompts:
        assert not re.search(r"poison|attack|inject|score|d\d+-\d", prompt, re.IGNORECASE)
        assert not any(score in prompt for score in scores)


def test_a_users_own_defense_of_ten_lines_runs_by_set(world: World) -> None:
    (world.folder / "keep_short.py").write_text(
        '''"""My own defense."""
from dataclasses import dataclass
from ragassay import Verdict

@dataclass(frozen=True)
class KeepShort:
    """Keep passages of at most so many words."""
    words: int = 12
    def apply(self, query, hits, tools):
        return Verdict(kept=tuple(h for h in hits if len(h.passage.text.split()) <= self.words))
''',
        encoding="utf-8",
    )
    done = world.run(
        "run", "world.toml", "--out", "run", "--set", "defense+=keep_short.py:KeepShort"
    )
    assert done.returncode == 0, done.stderr
    assert cell(world, "KeepShort", 1)["n"] == 15


def test_a_faulty_defense_is_named_and_is_no_outcome(world: World) -> None:
    (world.folder / "faulty.py").write_text(
        "class Faulty:\n    'Raise.'\n    def apply(self, query, hits, tools):\n        1 / 0\n",
        encoding="utf-8",
    )
    done = world.run("run", "world.toml", "--out", "run", "--set", "defense=['faulty.py:Faulty']")
    assert done.returncode == 2
    assert "defense 'Faulty' raised ZeroDivisionError on question" in done.stderr


def test_the_report_renders_again_from_the_folder_alone(world: World) -> None:
    world.run("run", "world.toml", "--out", "run")
    before = (world.folder / "run" / "report.html").read_bytes()
    (world.folder / "run" / "report.html").unlink()
    (world.folder / "run" / "summary.json").unlink()
    for name in ("data/corpus.jsonl", "rule_reader.py"):
        (world.folder / name).unlink()
    again = world.run("report", "run")
    assert again.returncode == 0, again.stderr
    assert (world.folder / "run" / "report.html").read_bytes() == before


def test_plan_says_what_would_run_and_what_is_done(world: World) -> None:
    before = world.run("plan", "world.toml", "--out", "run")
    assert before.returncode == 0, before.stderr
    assert "135 trials" in before.stdout
    assert "0 are done" in " ".join(before.stdout.split())
    world.run("run", "world.toml", "--out", "run")
    after = world.run("plan", "world.toml", "--out", "run")
    assert "135 are done" in " ".join(after.stdout.split())


def test_passage_order_is_a_setting_that_reaches_the_prompt(world: World, tmp_path: Path) -> None:
    seen = {}
    for order in ("rank", "reverse"):
        log = tmp_path / order
        done = world.run(
            "run", "world.toml", "--out", f"run-{order}", "--set", f"prompt.order={order}",
            "--set", "defense=[]", RULE_READER_LOG=str(log),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        seen[order] = {
            match[2]: match[1].split("\n")
            for prompt in log.read_text(encoding="utf-8").split("\x00")
            if (match := re.search(r"Contexts:\n(.*)\n\nQuery: (.*)\n", prompt, re.DOTALL))
            and "Sources" not in match[1]
        }
    assert len(seen["rank"]) == 15  # the clean prompt of every question
    assert seen["rank"] == {question: lines[::-1] for question, lines in seen["reverse"].items()}
