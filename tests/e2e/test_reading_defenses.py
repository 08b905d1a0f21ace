"""Defenses that read probabilities, in a run as users start it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

World = Any
HERE = Path(__file__).parent
DEFENSES = """
[language_model]
plugin = "open_reader.py:OpenReader"
seed = 5
[[defense]]
plugin = "perplexity"
fpr = 0.1
[[defense]]
plugin = "raguard"
fpr = 0.3
expand = 3
min_tokens = 6
[[defense]]
plugin = "robustrag_decoding"
max_tokens = 3
[[defense]]
plugin = "instructrag"
"""


@pytest.fixture
def open_world(world: World) -> World:
    shutil.copy(HERE / "open_reader.py", world.folder)
    text = world.experiment.read_text(encoding="utf-8")
    kept = text.replace("rule_reader.py:RuleReader", "open_reader.py:OpenReader")
    world.experiment.write_text(kept.split("[[defense]]")[0] + DEFENSES, encoding="utf-8")
    world.env["SCORED_LOG"] = str(world.folder / "scored.log")
    return world


def trials(world: World, run: str) -> dict[str, dict[str, Any]]:
    lines = (world.folder / run / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    records = {(line := json.loads(each))["key"]: line["body"] for each in lines}
    for record in records.values():
        record.pop("seconds")
    return records


def test_passages_are_scored_once_whatever_the_number_of_workers(open_world: World) -> None:
    one = open_world.run("run", "world.toml", "--out", "one", "--set", "run.workers=1")
    assert one.returncode == 0, one.stderr
    log = open_world.folder / "scored.log"
    scored = log.read_text(encoding="utf-8").splitlines()

    again = open_world.run("run", "world.toml", "--out", "two", "--set", "run.workers=8")
    assert again.returncode == 0, again.stderr
    assert log.read_text(encoding="utf-8").splitlines() == scored
    first, second = trials(open_world, "one"), trials(open_world, "two")
    assert first == second
    seen = {
        entry["id"] for record in first.values() for entry in record["context"]
        if record["spec"]["defense_label"] in ("perplexity", "raguard")
    }  # fmt: skip
    assert len(scored) == len(seen) >= 60  # every passage of a context, once

    other = open_world.run(
        "run", "world.toml", "--out", "three", "--set", "run.workers=8",
        RAGASSAY_CACHE=str(open_world.folder / "empty-cache"),
    )  # fmt: skip
    assert other.returncode == 0, other.stderr
    assert trials(open_world, "three") == first
    summaries = {(open_world.folder / run / "summary.json").read_bytes()
                 for run in ("one", "two", "three")}  # fmt: skip
    assert len(summaries) == 1

    by_defense: dict[str, list[dict[str, Any]]] = {}
    for record in first.values():
        by_defense.setdefault(record["spec"]["defense_label"], []).append(record)
    assert set(by_defense) == {
        "none", "perplexity", "raguard", "robustrag_decoding", "instructrag"
    }  # fmt: skip
    for record in by_defense["perplexity"]:
        assert len(record["context"]) == 4
        assert record["usage"]["scored_texts"] == 4
        assert set(record["suspicion"]) == {entry["id"] for entry in record["context"]}
    for record in by_defense["raguard"]:
        assert len(record["context"]) == 12
        assert sum(entry["kept"] for entry in record["context"]) <= 4
    for record in by_defense["robustrag_decoding"]:
        assert record["usage"]["model_calls"] == 5  # four passages, and none
        assert record["answer"] is not None
    for record in by_defense["instructrag"]:
        assert record["trace"]["parse"] == "failed"
        assert record["answer"] == record["trace"]["raw"]


def test_another_language_model_is_another_experiment(open_world: World) -> None:
    keys = []
    for seed in (5, 6):
        done = open_world.run(
            "run", "world.toml", "--out", f"run{seed}",
            "--set", f"language_model.seed={seed}",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        keys.append({
            key: record["spec"]["defense_label"] for key, record in
            trials(open_world, f"run{seed}").items()
        })  # fmt: skip
    shared = keys[0].keys() & keys[1].keys()
    assert {keys[0][key] for key in shared} == {"none", "robustrag_decoding", "instructrag"}
    assert {keys[0][key] for key in keys[0].keys() - shared} == {"perplexity", "raguard"}
    resolved = json.loads((open_world.folder / "run5" / "resolved.json").read_text("utf-8"))
    assert resolved["experiment"]["language_model"]["identity"] == "open-reader:5"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("language_model.plugin=rule_reader.py:RuleReader", "gives no probabilities of tokens"),
        ("generator.plugin=rule_reader.py:RuleReader", "decodes with the victim's probabilities"),
    ],
)
def test_a_closed_model_is_refused_in_one_line(
    open_world: World, setting: str, message: str
) -> None:
    text = open_world.experiment.read_text(encoding="utf-8")
    open_world.experiment.write_text(text.replace("seed = 5\n", ""), encoding="utf-8")
    done = open_world.run("run", "world.toml", "--out", "run", "--set", setting)
    assert done.returncode == 2, done.stdout
    last = [line for line in done.stderr.splitlines() if line.strip()]
    assert message in " ".join(last)
    assert "Traceback" not in done.stderr
