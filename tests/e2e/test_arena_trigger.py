"""Trigger or content: worlds in which one of the two decides, and both ways into the context."""

from __future__ import annotations

import json
from typing import Any

World = Any  # the fixture of conftest.py: a folder, and a way to run commands in it
EXPERIMENT = """
protocol = "arena"
name = "claims"
budgets = [1]
[dataset]
plugin = "beir"
path = "data"
group_size = 4
[retriever]
encoder = "hashing"
encoder_options = {{ dimensions = 4096 }}
k = 3
[generator]
plugin = "rule_reader.py:RuleReader"
[statistics]
draws = 300
[arena]
rounds = 30
answers = 2
studies = ["trigger"]
[[attack]]
plugin = "arena_world.py:Claim"
label = "ann"
{first}
[[attack]]
plugin = "arena_world.py:Claim"
label = "bob"
{second}
{more}
"""


def play(world: World, first: str, second: str, published: str, more: str = "") -> dict[str, Any]:
    """Run an arena of two attackers on texts published for every answer; give the summary."""
    path = world.folder / "data" / "targets.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        town = f"town{row['query_id'][1:]}"
        row["texts"] = [published.format(answer=row["wanted"][0], town=town)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (world.folder / "arena.toml").write_text(
        EXPERIMENT.format(first=first, second=second, more=more), encoding="utf-8"
    )
    done = world.run("run", "arena.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    return world.summary()


def row(summary: dict[str, Any], way: str, attacker: str) -> dict[str, Any]:
    return next(
        r for r in summary["trigger"]["rows"]
        if (r["scorer"], r["way"], r["attacker"]) == ("tokens", way, attacker)
    )  # fmt: skip


def rates(row: dict[str, Any]) -> dict[str, float]:
    return {name: each["value"] for name, each in row["rates"].items()}


def test_a_trigger_decides_where_contents_are_alike(arena: World) -> None:
    summary = play(arena, "near = true", "near = false", "All people say that {answer} did.")
    ann, bob = (row(summary, "retrieved", name) for name in ("ann", "bob"))
    # ann is retrieved by her trigger alone, and then says no more than bob would have.
    assert rates(ann) == {"own+own": 1, "none+own": 0, "own+common": 1, "none+common": 0}
    assert {name: e["value"] for name, e in ann["effects"].items()} == {
        "trigger": 1, "content": 0, "both": 1
    }  # fmt: skip
    assert ann["decides"] == "trigger"
    assert set(rates(bob).values()) == {0}
    assert bob["decides"] == ""
    # Put into the context without retrieval, a trigger changes nothing for this reader.
    for name in ("ann", "bob"):
        assert row(summary, "content", name)["effects"]["trigger"]["value"] == 0
    assert summary["trigger"]["documents"]["bob"]["bare"] == 12 * 2
    assert summary["trigger"]["documents"]["ann"]["by"] == {
        "declared": 24, "published": 0, "question": 0
    }  # fmt: skip


def test_a_content_decides_where_everybody_is_retrieved(arena: World) -> None:
    summary = play(
        arena, "local = true\ntimes = 3", "local = true",
        "Who built the harbor of {town}? All people say {answer} did.",
    )  # fmt: skip
    for way in ("retrieved", "content"):
        ann, bob = (row(summary, way, name) for name in ("ann", "bob"))
        # Both are always in the context; ann says it three times, the common text not at all.
        assert rates(ann) == {"own+own": 1, "none+own": 1, "own+common": 0, "none+common": 0}
        assert {name: e["value"] for name, e in ann["effects"].items()} == {
            "trigger": 0, "content": 1, "both": 1
        }  # fmt: skip
        assert (ann["decides"], ann["dropped"]) == ("content", 0)
        assert set(rates(bob).values()) == {0}


def test_the_report_shows_what_decides_with_denominators(arena: World) -> None:
    summary = play(
        arena, "near = true", "near = false", "All people say that {answer} did.",
        '[[defense]]\nplugin = "keywordagg"\nextractor = "simple"',
    )  # fmt: skip
    folder = arena.folder / "run"
    told = row(summary, "retrieved", "ann")
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert "its trigger decides more than its content for ann" in report
    assert f"{told['n']}/{told['n']} (100.0%)" in report
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Trigger or content" in page
    assert "no trigger, common content" in page
    # The study is played without defenses, and counted apart.
    scenes = {(r["scene"].rpartition("|")[2], r["defense"]) for r in summary["results"]}
    assert ("retrieved:none+common", "none") in scenes
    assert not any(":" in scene and defense != "none" for scene, defense in scenes)
    assert summary["trials"]["missing"] == 0
    assert summary["prompts"]["variants"] > 0
    assert summary["prompts"]["removals"] == 0
    trials = (folder / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    undefended = sum('"defense_label":"none"' in line for line in trials)
    assert undefended == sum(summary["prompts"][n] for n in ("distinct", "clean", "variants"))
    # A second run finds everything played, and says the same.
    before = (folder / "summary.json").read_bytes()
    again = arena.run("run", "arena.toml", "--out", "run")
    assert "0 trials run" in " ".join(again.stdout.split())
    assert (folder / "summary.json").read_bytes() == before


def test_plan_counts_the_study(arena: World) -> None:
    text = EXPERIMENT.format(first="near = true", second="near = false", more="")
    (arena.folder / "arena.toml").write_text(text, encoding="utf-8")
    done = arena.run("plan", "arena.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    plays = 12 * 2 + 30 * 2  # alone, and rounds of two
    assert f"{6 * plays} at most for triggers and contents" in " ".join(done.stdout.split())
    assert not (arena.folder / "run" / "trials.jsonl").exists()
