"""A control ladder as users run it, on the small world and on the embedded data set."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

World = Any
HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
LADDER = """
protocol = "ladder"
name = "ladder"
budgets = [3]
[dataset]
plugin = "beir"
path = "data"
group_size = 1
[retriever]
encoder = "hashing"
encoder_options = { dimensions = 4096 }
k = 5
[generator]
plugin = "rule_reader.py:RuleReader"
[statistics]
draws = 100
[calibration]
source = "crossfit"
[ladder]
fillers = ["clean", "pseudowords"]
seeds = [11, 22]
[[attack]]
plugin = "poisonedrag"
[[defense]]
plugin = "containment_only"
fpr = 0.1
[[defense]]
plugin = "length_only"
fpr = 0.1
[[defense]]
plugin = "trustrag_filter"
"""
GRID = """
name = "toy"
[[corpus]]
name = "towns"
folders = ["data", "more"]
targets = "data/targets.jsonl"
[[corpus]]
name = "proposed"
folders = ["more"]
propose = "substitution"
[[corpus]]
name = "gone"
folders = ["nowhere"]
[quick]
corpus = "towns"
set = ["ladder.evaluation=6"]
[experiment]
budgets = [2]
retriever = { encoder = "hashing", encoder_options = { dimensions = 512 }, k = 4 }
generator = { plugin = "rule_reader.py:RuleReader" }
statistics = { draws = 100 }
calibration = { source = "crossfit" }
ladder = { evaluation = 12, fillers = ["clean"], learned = false }
[[experiment.attack]]
plugin = "hijack"
label = "=HYPERLINK(1)"
[[experiment.defense]]
plugin = "dup_norm"
"""


@pytest.fixture
def ladder(world: World) -> World:
    world.experiment.write_text(LADDER, encoding="utf-8")
    return world


def records(world: World, run: str, stream: str = "trials") -> dict[str, dict[str, Any]]:
    lines = (world.folder / run / f"{stream}.jsonl").read_text(encoding="utf-8").splitlines()
    found = {(line := json.loads(each))["key"]: line["body"] for each in lines}
    for body in found.values():
        body.pop("seconds", None)
    return found


def rows(summary: dict[str, Any], defense: str) -> dict[str, dict[str, Any]]:
    return {row["variant"]: row for row in summary["rows"] if row["defense"] == defense}


def test_a_ladder_shows_what_each_edit_takes_away(ladder: World) -> None:
    done = ladder.run("run", "world.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert "miss rate" in done.stdout
    summary = ladder.summary()
    variants = [each["variant"] for each in summary["rungs"]]
    assert variants == ["template", "prefix_removed", "length_matched/clean",
                        "length_matched/pseudowords", "both/clean", "mimicry/clean"]  # fmt: skip
    assert summary["trials"] == {"planned": 15 * 7 * 4, "done": 15 * 7 * 4, "failed": 0,
                                 "missing": 0}  # fmt: skip
    trials = records(ladder, "run")
    assert all(record["answer"] is None for record in trials.values())  # nobody was asked
    assert not (ladder.folder / "run" / "scores.jsonl").exists()

    contained = rows(summary, "containment_only")
    assert contained["template"]["change"] is None
    assert contained["prefix_removed"]["change"]["fnr"]["value"] > 0
    assert contained["prefix_removed"]["fnr"]["value"] == 1.0  # the cue is gone
    assert contained["mimicry/clean"]["matched"] is not None
    assert rows(summary, "trustrag_filter")["template"]["matched"] is None  # set-level: N/A
    profiles = {each["variant"]: each for each in summary["profiles"]}
    assert profiles["template"]["profile"]["containment"]["value"] == 1.0
    assert profiles["prefix_removed"]["profile"]["containment"]["value"] == 0.0
    assert profiles["both/clean"]["profile"]["length_overlap"]["value"] == 1.0
    assert all(each["payload_intact"] == each["crafted"] - each["not_possible"]
               for each in profiles.values())  # fmt: skip
    # Two of four passages of a town give its mason: the third mimicry has no source.
    assert profiles["mimicry/clean"]["not_possible"] == 15

    learned = rows(summary, "learned scorer")
    assert learned["template"]["contexts"] == 2 * 6  # 40% of 15 questions, two seeds
    assert learned["template"]["ece"]["n"] == learned["template"]["candidates"]
    cells = summary["decision"]["cells"]
    assert len(cells) == len(variants)
    total = sum(sum(kind.values()) for kind in cells[0]["actions"].values())
    assert total == cells[0]["rules"]["n"] == cells[0]["in_band"]["n"]

    page = (ladder.folder / "run" / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 4
    assert "Retrieval survival" in page
    assert "as crafted" in page


def test_a_context_is_retrieved_again_for_every_rung(ladder: World) -> None:
    assert ladder.run("run", "world.toml", "--out", "run").returncode == 0
    edited = records(ladder, "run", "rungs")
    texts = {
        (body["query_id"], body["rung"], body["filler"]): [p["text"] for p in body["passages"]]
        for body in edited.values()
    }
    ids = {p["id"]: body for body in edited.values() for p in body["passages"] if p["id"]}
    question = "Who built the harbor of town3?"
    assert all(text.startswith(question) for text in texts["q3", "template", ""])
    assert all(question not in text for text in texts["q3", "prefix_removed", ""])
    scores: dict[str, list[float]] = {}
    for record in records(ladder, "run").values():
        if record["spec"]["defense_label"] != "none":
            continue
        for entry in record["context"]:
            if entry["origin"] != "corpus":
                assert ids[entry["id"]]["rung"] == record["spec"]["variant"].split("/")[0]
                if entry["origin"] == "own":
                    scores.setdefault(record["spec"]["variant"], []).append(entry["score"])
    mean = {variant: sum(each) / len(each) for variant, each in scores.items()}
    assert mean["prefix_removed"] < mean["template"]  # embedded and ranked again


def test_a_killed_ladder_goes_on_and_workers_do_not_matter(ladder: World) -> None:
    one = ladder.run("run", "world.toml", "--out", "one", "--set", "run.workers=1")
    assert one.returncode == 0, one.stderr
    process = ladder.start("run", "world.toml", "--out", "two", "--set", "run.workers=8")
    file = ladder.folder / "two" / "trials.jsonl"
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and process.poll() is None:
        if file.exists() and file.stat().st_size > 20_000:
            os.kill(process.pid, signal.SIGKILL)
            break
        time.sleep(0.01)
    process.communicate()
    again = ladder.run("run", "world.toml", "--out", "two", "--set", "run.workers=8")
    assert again.returncode == 0, again.stderr
    for stream in ("trials", "rungs", "learned"):
        assert records(ladder, "one", stream) == records(ladder, "two", stream)
    for name in ("summary.json", "clean_lengths.json"):
        first, second = ((ladder.folder / run / name).read_bytes() for run in ("one", "two"))
        assert first == second
    third = ladder.run("run", "world.toml", "--out", "two")
    assert "0 trials run, 420 reused" in third.stdout


def test_end_to_end_follows_a_rung_to_the_answer(ladder: World) -> None:
    done = ladder.run(
        "run", "world.toml", "--out", "run", "--set", "ladder.end_to_end=true",
        "--set", "ladder.learned=false", "--set", 'ladder.rungs=["template","prefix_removed"]',
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = ladder.summary()
    cells = [
        cell
        for cell in summary["end_to_end"]
        if cell["scorer"] == summary["headline"] and cell["defense"] == "containment_only"
    ]
    rates = {cell["variant"]: cell["rates"] for cell in cells}
    assert rates["template"]["p0"]["value"] > rates["template"]["p1"]["value"]
    assert rates["prefix_removed"]["p1"]["value"] > rates["template"]["p1"]["value"]
    assert rates["template"]["c0"] == rates["prefix_removed"]["c0"]  # clean answers are shared
    assert "What becomes of the answers" in (ladder.folder / "run" / "report.html").read_text()


def test_raguard_blocks_what_it_removes_and_not_what_does_not_fit(ladder: World) -> None:
    shutil.copy(HERE / "open_reader.py", ladder.folder)
    text = LADDER.split("[[defense]]")[0] + (
        '[language_model]\nplugin = "open_reader.py:OpenReader"\nseed = 5\n'
        '[[defense]]\nplugin = "raguard"\nfpr = 0.05\nexpand = 3\nmin_tokens = 6\n'
    )
    ladder.experiment.write_text(text, encoding="utf-8")
    done = ladder.run("run", "world.toml", "--out", "run", "--set", "ladder.learned=false")
    assert done.returncode == 0, done.stderr
    row = rows(ladder.summary(), "raguard")["template"]
    trials = [
        record
        for record in records(ladder, "run").values()
        if (record["spec"]["defense_label"], record["spec"]["variant"]) == ("raguard", "template")
    ]
    assert {len(trial["context"]) for trial in trials} == {15}
    blocked = surplus = 0
    for trial in trials:
        for place, entry in enumerate(trial["context"]):
            clean = entry["origin"] == "corpus" and not entry["copy"]
            removed = place + 1 in trial["trace"]["removed_ranks"]
            blocked += clean and removed and place < 5
            surplus += clean and not entry["kept"] and not removed
    assert row["candidates"] == 75
    assert row["fpr"]["count"] == blocked
    assert surplus > 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("protocol=aligned", "[ladder] belongs to protocol = 'ladder'"),
        ("utility.queries=5", "[utility] is not for protocol = 'ladder'"),
        ('ladder.rungs=["top"]', "ladder.rungs"),
        ("ladder.ablations=true", "unknown key 'ladder.ablations'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(ladder: World, setting: str, message: str) -> None:
    done = ladder.run("run", "world.toml", "--out", "run", "--set", setting)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_plan_counts_the_trials_of_a_ladder(ladder: World) -> None:
    done = ladder.run("plan", "world.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert "420 trials" in done.stdout


# ------------------------------------------------------------------------------- the grid


def test_a_grid_writes_a_board_and_names_what_failed(world: World) -> None:
    shutil.copytree(world.folder / "data", world.folder / "more")
    (world.folder / "more" / "targets.jsonl").unlink()
    (world.folder / "grid.toml").write_text(GRID, encoding="utf-8")
    done = world.run("grid", "grid.toml", "--out", "out")
    assert done.returncode == 3, done.stdout  # the data of one corpus are wrong
    assert "nowhere" in done.stderr
    board = json.loads((world.folder / "out" / "leaderboard.json").read_text(encoding="utf-8"))
    assert set(board["failed"]) == {"gone"}
    assert {row["corpus"] for row in board["rows"]} == {"towns", "proposed"}
    for row in board["rows"]:
        assert row["containment"]["n"] or row["rung"] == "mimicry"
        assert row["retrieval"]["n"] == row["success"]["n"]
    # Equal passages of both folders stand in the corpus once.
    lines = (world.folder / "out/data/towns/corpus.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 60
    table = list(
        csv.reader((world.folder / "out" / "leaderboard.csv").read_text("utf-8").splitlines())
    )
    assert {len(line) for line in table} == {len(table[0])}
    assert {line[2] for line in table[1:]} == {"'=HYPERLINK(1)"}  # no formula
    assert "=HYPERLINK(1)" in (world.folder / "out" / "leaderboard.html").read_text()
    assert (world.folder / "out" / "leaderboard.md").exists()

    prepared = world.run("grid", "grid.toml", "--out", "fresh", "--prepare")
    assert prepared.returncode == 3, prepared.stdout
    assert sorted(p.name for p in (world.folder / "fresh").iterdir()) == ["data", "experiments"]
    for name in ("corpus", "queries", "targets"):
        file = Path("data") / "towns" / f"{name}.jsonl"
        assert (world.folder / "fresh" / file).read_bytes() == (
            world.folder / "out" / file
        ).read_bytes()

    again = world.run("grid", "grid.toml", "--out", "out")
    assert "towns: 0 trials run" in again.stdout
    quick = world.run("grid", "grid.toml", "--out", "out", "--quick")
    assert quick.returncode == 0, quick.stderr
    board = json.loads((world.folder / "out" / "leaderboard.json").read_text(encoding="utf-8"))
    assert {row["corpus"] for row in board["rows"]} == {"towns"}
    assert board["rows"][0]["contexts"] == 6


@pytest.mark.slow
def test_the_example_of_a_grid_runs_with_its_real_models(world: World) -> None:
    """``examples/grid.toml --quick``, but for one attack, two rungs and short contexts."""
    text = (EXAMPLES / "grid.toml").read_text(encoding="utf-8")
    smaller = """
  'attack=[{ plugin = "poisonedrag", label = "PoisonedRAG" }]',
  'ladder.rungs=["template", "prefix_removed"]',
  "ladder.learned=false",
  "retriever.k=5",
  "statistics.draws=200",
  "defense.0.passages=40",
  "defense.1.passages=40",
]
"""
    head, quick, rest = text.partition("[quick]")
    settings, _, rest = rest.partition("[experiment]")
    assert quick
    kept = "\n".join(line for line in settings.splitlines() if "attack." not in line)
    short = kept.rstrip().removesuffix("]").rstrip() + smaller
    (world.folder / "grid.toml").write_text(
        head + quick + short + "\n[experiment]" + rest, encoding="utf-8"
    )
    done = world.run("grid", "grid.toml", "--out", "out", "--quick")
    assert done.returncode == 0, done.stderr
    board = json.loads((world.folder / "out" / "leaderboard.json").read_text(encoding="utf-8"))
    found = {(row["filter"], row["rung"]): row for row in board["rows"]}
    assert len(found) == len(board["rows"]) == 2 * 9  # every filter of the example, both rungs
    for rung, contained in (("template", 1.0), ("prefix_removed", 0.0)):
        row = found["containment alone", rung]
        assert row["containment"]["value"] == contained
    reads = [found["containment alone", rung] for rung in ("template", "prefix_removed")]
    assert reads[0]["fnr"]["value"] < reads[1]["fnr"]["value"]
    for name in ("perplexity", "RAGuard"):  # read by the real language model
        assert 0 < found[name, "template"]["auroc"]["value"] < 1
    for name in ("TrustRAG filter", "RAGDefender"):
        assert found[name, "template"]["auroc"] is None
    again = world.run("grid", "grid.toml", "--out", "out", "--quick")
    assert "atlas: 0 trials run" in again.stdout
