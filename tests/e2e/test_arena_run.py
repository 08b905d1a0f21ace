"""An arena as its users run it: known attackers, interruptions, workers, prompts."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

World = Any  # the fixture of conftest.py: a folder, and a way to run commands in it
SLOWLY = ("run", "arena.toml", "--out", "run", "--set", "run.workers=2")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, new_arena: Callable[[Path], World]) -> Path:
    """The run folder of the arena as it stands, for tests that only read; run once."""
    arena = new_arena(tmp_path_factory.mktemp("arena"))
    prompts = str(arena.folder / "prompts")
    done = arena.run("run", "arena.toml", "--out", "run", RULE_READER_LOG=prompts)
    assert done.returncode == 0, done.stderr
    return arena.folder / "run"


def summary_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text(encoding="utf-8"))


def leading(summary: dict[str, Any], defense: str = "none", scorer: str = "tokens") -> dict:
    return next(r for r in summary["results"] if (r["defense"], r["scorer"]) == (defense, scorer))


def test_known_attackers_are_ranked_as_constructed(ran: Path) -> None:
    summary = summary_of(ran)
    result = leading(summary)
    rows = {row["attacker"]: row for row in result["attackers"]}
    assert {name: row["rank"]["value"] for name, row in rows.items()} == {
        "loud": 1, "middle": 2, "silent": 3
    }  # fmt: skip
    assert sum(row["theta"]["value"] for row in rows.values()) == pytest.approx(0, abs=1e-9)
    # Alone, loud and middle fill two of three places, and silent is not retrieved.
    alone = {name: row["alone"] for name, row in rows.items()}
    assert {n: (a["success"]["count"], a["success"]["n"]) for n, a in alone.items()} == {
        "loud": (36, 36), "middle": (36, 36), "silent": (0, 36)
    }  # fmt: skip
    assert {n: round(a["f1"]["value"], 6) for n, a in alone.items()} == {
        "loud": 0.8, "middle": 0.8, "silent": 0.0
    }  # fmt: skip
    # Among others, loud always wins, middle where loud is not, silent never.
    rounds = [r["body"] for r in lines(ran / "rounds.jsonl")
              if r["body"]["kind"] == "round"]  # fmt: skip
    plays = [dealt for body in rounds for dealt in body["assignments"]]
    with_middle = [dealt for dealt in plays if "middle" in dealt]
    free = sum("loud" not in dealt for dealt in with_middle)
    assert rows["loud"]["among"]["success"]["value"] == 1.0
    assert rows["silent"]["among"]["success"]["value"] == 0.0
    middle = rows["middle"]["among"]["success"]
    assert (middle["count"], middle["n"]) == (free, len(with_middle))
    # Exact means over plays: two or three attackers, which two of them, and a play for each.
    exact = {name: row["exact"]["rounds"]["f1"] for name, row in rows.items()}
    weights = {"loud": 2 / 6, "silent": 2 / 6, "all": 3 / 2}  # of middle's plays, by company
    total = sum(weights.values())
    assert exact["loud"] == pytest.approx(0.8)
    assert exact["silent"] == 0
    assert exact["middle"] == pytest.approx(
        (0.4 * (weights["loud"] + weights["all"]) + 0.8 * weights["silent"]) / total
    )
    assert result["prediction"]["theta"]["value"] == 1.0
    assert result["prediction"]["s_asr"]["value"] == 1.0  # of equals the first by name
    assert (ran / "report.html").exists()
    assert "loud" in (ran / "report.md").read_text(encoding="utf-8")


def test_every_answer_is_labeled_for_every_target(arena: World, ran: Path) -> None:
    shutil.copytree(ran, arena.folder / "run")
    trials = lines(arena.folder / "run" / "trials.jsonl")
    scores = Counter(r["body"]["scorer"] for r in lines(arena.folder / "run" / "scores.jsonl"))
    assert set(scores.values()) == {3 * len(trials)}
    again = arena.run("score", "run", "--scorer", "polarity")
    assert again.returncode == 0, again.stderr
    scores = Counter(r["body"]["scorer"] for r in lines(arena.folder / "run" / "scores.jsonl"))
    assert scores["polarity"] == 3 * len(trials)
    assert leading(arena.summary(), scorer="polarity")["outcomes"]["judged"] > 0


def test_a_defense_has_an_aligned_record_in_the_arena(ran: Path) -> None:
    rows = [r for r in summary_of(ran)["aligned"] if r["scorer"] == "tokens"]
    assert {r["attacker"] for r in rows} == {"", "loud", "middle", "silent"}
    for row in rows:
        effects = {name: e["count"] for name, e in row["effects"].items()}
        assert effects["N"] == effects["P"] - effects["J"]
        assert effects["Gamma"] == effects["N"] + effects["H"]
    anyone = next(r for r in rows if not r["attacker"])
    plays = leading(summary_of(ran))["outcomes"]
    assert anyone["rates"]["p0"]["count"] == plays["judged"] - plays["no_winner"]


def test_no_prompt_is_played_twice(ran: Path) -> None:
    log = ran.with_name("prompts").read_text(encoding="utf-8")
    assert max(Counter(log.split("\x00")[:-1]).values()) == 1
    summary = summary_of(ran)
    told = summary["prompts"]
    undefended = [
        r["body"] for r in lines(ran / "trials.jsonl")
        if r["body"]["spec"]["defense_label"] == "none"
    ]  # fmt: skip
    texts = Counter(
        (t["spec"]["query_id"], tuple(e["id"] for e in t["context"])) for t in undefended
    )
    assert max(texts.values()) == 1
    assert len(undefended) == told["distinct"] + told["clean"] < told["plays"]
    assert told["released_loop"]["prompts"] == 40  # no validation before round 100
    report = (ran / "report.md").read_text(encoding="utf-8")
    assert f"{told['plays']:,} prompts" in report


def test_the_number_of_workers_changes_no_byte_of_the_summary(arena: World, tmp_path: Path) -> None:
    summaries = []
    for workers in (1, 16):
        done = arena.run(
            "run", "arena.toml", "--out", f"run{workers}", "--set", f"run.workers={workers}",
            RAGASSAY_CACHE=str(tmp_path / f"cache{workers}"),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        summaries.append((arena.folder / f"run{workers}" / "summary.json").read_bytes())
    assert summaries[0] == summaries[1]


def test_killed_then_finished_equals_an_uninterrupted_run(arena: World, tmp_path: Path) -> None:
    whole = arena.run("run", "arena.toml", "--out", "whole", RAGASSAY_CACHE=str(tmp_path / "o"))
    assert whole.returncode == 0, whole.stderr
    for wanted in (10, 60):
        arena.kill(*SLOWLY, after=wanted)
    assert not (arena.folder / "run" / "summary.json").exists()
    done = arena.run("run", "arena.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    keys = [line["key"] for line in lines(arena.folder / "run" / "trials.jsonl")]
    assert len(keys) == len(set(keys))
    for name in ("summary.json", "rounds.jsonl"):
        ours, theirs = (
            [{**r, "at": ""} for r in lines(arena.folder / run / name)] for run in ("run", "whole")
        )
        assert ours == theirs
    assert (arena.folder / "run" / "summary.json").read_bytes() == (
        arena.folder / "whole" / "summary.json"
    ).read_bytes()


def test_a_stopping_rule_ends_the_rounds_when_the_order_is_sure(arena: World) -> None:
    command = (
        "run", "arena.toml", "--out", "run", "--set", "arena.rounds=200",
        "--set", "arena.stopping=sure", "--set", "arena.every=20", "--set", "arena.min_rounds=40",
        "--set", "arena.stable_rounds=20", "--set", "arena.min_participations=10",
    )  # fmt: skip
    done = arena.run(*command)
    assert done.returncode == 0, done.stderr
    summary = arena.summary()
    stopping = leading(summary, scorer=summary["headline"])["stopping"]
    assert 40 <= summary["design"]["rounds"] < 200
    assert stopping["stop"]
    assert not stopping["undecided"]
    # Killed among the defended plays: the same rounds are drawn again, and defended.
    trials, whole = arena.folder / "run" / "trials.jsonl", arena.folder / "run" / "summary.json"
    before = whole.read_bytes()
    every = trials.read_bytes().splitlines(keepends=True)
    defended = [n for n, line in enumerate(every) if json.loads(line)["body"]["spec"]["defense"]]
    assert len(defended) > 20
    trials.write_bytes(b"".join(every[: defended[10]]))
    whole.unlink()
    assert arena.run(*command).returncode == 0
    assert whole.read_bytes() == before


def test_order_and_content_are_studied_on_request(arena: World) -> None:
    done = arena.run(
        "run", "arena.toml", "--out", "run", "--set", 'arena.studies=["content", "order"]',
        "--set", "arena.rounds=20",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = arena.summary()
    result = leading(summary)
    when = {(r["attacker"], r["against"], r["when"]) for r in result["orders"]}
    assert len(when) == 3 * 2 * 3
    together = {
        (r["attacker"], r["against"]): r["success"]["value"]
        for r in result["orders"] if r["when"] == "together"
    }  # fmt: skip
    assert together["loud", "middle"] == 1.0
    assert together["middle", "loud"] == 0.0
    content = next(r for r in summary["results"] if r["context"] == "content")
    contexts = [
        t["context"] for t in (r["body"] for r in lines(arena.folder / "run" / "trials.jsonl"))
        if t["spec"]["attack"] and all(e["origin"] != "corpus" for e in t["context"])
    ]  # fmt: skip
    assert contexts
    assert content["outcomes"]["no_winner"] == 0  # nobody contradicts the attackers


def test_plan_counts_before_anything_runs(arena: World) -> None:
    done = arena.run("plan", "arena.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert "40 rounds" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("arena.attackers=[5]", "no query has 5 attackers"),
        ("protocol=aligned", "[arena] belongs to protocol = 'arena'"),
        ('arena.only=["gaslite"]', "set 'released'"),
        ("arena.released=nowhere", "arena.released brings its own attackers"),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_line(
    arena: World, setting: str, message: str
) -> None:
    done = arena.run("run", "arena.toml", "--out", "run", "--set", setting)
    assert done.returncode == 2, done.stdout
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
