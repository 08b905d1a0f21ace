"""Dose and response as its users run it: known outcomes, equal prompts, faults injected."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ragassay.errors import ConfigError, PluginError
from ragassay.experiments.protocols import analyze
from ragassay.experiments.rescore import score_folder
from ragassay.experiments.runner import RunResult
from ragassay.experiments.runner import run as play
from ragassay.experiments.setup import load_experiment
from ragassay.report.dose_page import finding
from ragassay.report.render import write_reports
from ragassay.store import RunFolder

World = Any  # the fixture of conftest.py: a folder, and a way to run commands in it
QUESTIONS = 15
CONTROLS = 4  # clean, zero dose, closed book, irrelevant context
GRID = 2 * 2 * 2  # rules x draws x doses
EXPERIMENT = """
name = "world"
protocol = "dose"
[dataset]
plugin = "beir"
path = "data"
group_size = 5
[retriever]
encoder = "hashing"
encoder_options = { dimensions = 4096 }
k = 2
[generator]
plugin = "rule_reader.py:RuleReader"
[statistics]
draws = 300
[dose]
rules = ["rename_rule.py:Rename", "number_swap"]
draws = 2
contexts = "gold"
"""


@pytest.fixture
def dosed(world: World) -> World:
    shutil.copy(Path(__file__).parent / "rename_rule.py", world.folder)
    world.experiment.write_text(EXPERIMENT, encoding="utf-8")
    return world


def run(world: World, out: str = "run", *overrides: str) -> RunResult:
    """Run in this process, and write the reports as the command does."""
    experiment = load_experiment(world.experiment, overrides)
    result = play(experiment, out=world.folder / out)
    write_reports(result.folder)
    return result


def row(summary: dict[str, Any], section: str, **wanted: Any) -> dict[str, Any]:
    wanted.setdefault("scorer", "polarity")
    found = [r for r in summary[section] if all(r.get(k, v) == v for k, v in wanted.items())]
    assert len(found) == 1, (section, wanted, len(found))
    return found[0]


def counts(rate: dict[str, Any]) -> tuple[int, int]:
    return rate["count"], rate["n"]


def test_every_figure_comes_out_as_constructed(dosed: World) -> None:
    """Two passages name the mason, so a dose of two renames all there is, and one leaves a tie."""
    run(dosed)
    summary = dosed.summary()
    assert summary["trials"] == {
        "planned": QUESTIONS * (CONTROLS + GRID), "done": QUESTIONS * (CONTROLS + GRID),
        "failed": 0, "missing": 0,
    }  # fmt: skip
    renamed = row(summary, "response", rule="Rename", defense="none")
    at = {point["dose"]: point for point in renamed["points"]}
    assert set(at) == {1, 2}
    assert counts(at[2]["fooled"]) == counts(at[2]["adopted"]) == (30, 30)
    assert at[2]["resolved"] == {"correct": 0, "abstained": 0, "wrong": 30}
    assert at[1]["fooled"]["n"] == 30
    assert at[1]["adopted"]["count"] == at[1]["fooled"]["count"] < 30
    swapped = row(summary, "response", rule="number_swap", defense="none")
    assert [point["dose"] for point in swapped["points"]] == [0]  # nothing to edit
    assert counts(swapped["points"][0]["fooled"]) == (0, 60)
    assert counts(swapped["points"][0]["adopted"]) == (0, 60)
    [one, two] = [d for d in summary["delivery"] if d["rule"] == "Rename"]
    assert (one["mean"], two["mean"], counts(two["exact"])) == (1, 2, (30, 30))
    assert counts(row(summary, "arms", arm="clean")["correct"]) == (15, 15)
    assert counts(row(summary, "arms", arm="closed_book")["abstained"]) == (15, 15)
    assert row(summary, "arms", arm="irrelevant")["correct"]["count"] == 0
    known = row(summary, "knowledge")
    assert (known["known"], known["questions"]) == (False, 15)
    noise = row(summary, "noise")
    assert counts(noise["agree"]) == (15, 15)
    assert counts(noise["fooled"]) == (0, 15)
    test = row(summary, "tests", rule="Rename", requested=2)
    assert (test["lost"], test["gained"]) == (30, 0)
    half = row(summary, "response", rule="Rename")["model"]["ed50"][0]
    assert 0 < half["value"] < 2
    swap = {**summary, "response": [r for r in summary["response"] if r["rule"] != "number_swap"]}
    assert finding(swap).startswith("100.0% of the clean-correct answers fall (30/30) when 2 pass")


def test_the_prompt_at_dose_zero_is_the_clean_one_and_is_asked_twice(
    dosed: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "prompts"
    monkeypatch.setenv("RULE_READER_LOG", str(log))
    run(dosed, "run", "run.workers=1")
    asked = Counter(log.read_text(encoding="utf-8").split("\x00")[:-1])
    folder = RunFolder(dosed.folder / "run")
    edits, trials = folder.edits(), folder.trials()
    twice = [prompt for prompt, times in asked.items() if times == 2]
    assert max(asked.values()) == 2
    assert len(twice) == QUESTIONS  # the clean prompt, byte for byte, and its second generation
    assert not any("rival" in prompt for prompt in twice)
    by_arm: dict[tuple[str, str], list[str]] = {}
    for key, record in edits.items():
        by_arm.setdefault((record.query_id, record.arm), []).append(trials[key].generation)
        if record.arm == "tampered" and not record.applied:  # the same prompt: one generation
            assert trials[key].generation in by_arm.setdefault((record.query_id, "equal"), [
                trials[k].generation for k, r in edits.items()
                if r.arm == "clean" and r.query_id == record.query_id
            ])  # fmt: skip
    for n in range(QUESTIONS):
        [clean], [zero] = by_arm[f"q{n}", "clean"], by_arm[f"q{n}", "zero_dose"]
        assert clean != zero  # another sample of the same prompt
    clean_specs = {t.spec.query_id: t for t in trials.values() if not t.spec.variant}
    for trial in trials.values():
        if trial.spec.variant == "zero dose":
            assert trial.context == clean_specs[trial.spec.query_id].context
            assert trial.spec.prompt == clean_specs[trial.spec.query_id].spec.prompt


def test_edits_say_what_was_done_and_nested_doses_agree(dosed: World) -> None:
    run(dosed)
    folder = RunFolder(dosed.folder / "run")
    passages, trials = folder.passages(), folder.trials()
    assert not any("rival" in passage.text for passage in passages.values())
    tampered = [e for e in folder.edits().values() if e.arm == "tampered" and e.rule == "Rename"]
    assert len(tampered) == QUESTIONS * 4
    chosen: dict[tuple[str, int, int], set[int]] = {}
    for record in tampered:
        assert record.applied == record.requested == len(record.passages)
        chosen[record.query_id, record.draw, record.requested] = {
            each.position for each in record.passages
        }
        for each in record.passages:
            [edit] = each.edits
            text = passages[each.passage].text
            assert text[edit.start : edit.stop] == edit.before
            entry = trials[record.trial_key].context[each.position]
            assert (entry.id, entry.origin) == (each.replaced_by, "own")
    for (query, draw, dose), places in chosen.items():
        if dose == 2:
            assert chosen[query, draw, 1] < places


def test_the_order_of_arms_is_drawn(dosed: World) -> None:
    run(dosed)
    orders: dict[str, dict[str, int]] = {}
    for record in RunFolder(dosed.folder / "run").edits().values():
        orders.setdefault(record.query_id, {})[record.arm] = record.order
    firsts = {each["clean"] < each["zero_dose"] for each in orders.values()}
    assert firsts == {True, False}


@pytest.mark.parametrize("gathers", ["true", "false"])
def test_the_number_of_workers_changes_no_byte(
    dosed: World, gathers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for workers in (1, 16):
        monkeypatch.setenv("RAGASSAY_CACHE", str(tmp_path / f"cache{workers}"))
        run(dosed, f"run{workers}", f"run.workers={workers}", f"generator.gathers={gathers}")
        folder = dosed.folder / f"run{workers}"
        found.append([(folder / name).read_bytes() for name in ("summary.json", "report.html")])
    assert found[0] == found[1]


def test_killed_then_finished_equals_an_uninterrupted_run(dosed: World) -> None:
    run(dosed, "whole")
    trials = dosed.folder / "run" / "trials.jsonl"
    for wanted in (10, 60):
        process = dosed.start(
            "run", "world.toml", "--out", "run", "--set", "run.workers=2",
            RULE_READER_DELAY="0.03",
        )  # fmt: skip
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and process.poll() is None:
            if trials.exists() and trials.read_bytes().count(b"\n") >= wanted:
                break
            time.sleep(0.01)
        assert process.poll() is None, "the run ended before it could be killed"
        process.send_signal(signal.SIGKILL)
        process.communicate()
    done = dosed.run("run", "world.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert "of the clean-correct answers fall" in " ".join(done.stdout.split())
    lines = trials.read_text(encoding="utf-8").splitlines()
    keys = [json.loads(line)["key"] for line in lines]
    assert len(keys) == len(set(keys)) == QUESTIONS * (CONTROLS + GRID)
    for name in ("summary.json", "report.html", "report.md"):
        one, other = (dosed.folder / folder / name for folder in ("run", "whole"))
        assert one.read_bytes() == other.read_bytes(), name
    again = run(dosed)
    assert (again.trials_run, again.trials_reused, again.model_calls) == (0, 180, 0)


def test_an_unfinished_run_counts_what_is_missing(dosed: World, tmp_path: Path) -> None:
    died = dosed.run(
        "run", "world.toml", "--out", "run", "--set", "run.max_failures=5", "--set",
        "run.workers=1", RULE_READER_LOG=str(tmp_path / "log"), RULE_READER_DIES_AFTER="40",
    )  # fmt: skip
    assert died.returncode == 5
    summary = analyze(dosed.folder / "run")
    trials = summary["trials"]
    assert trials["planned"] == QUESTIONS * (CONTROLS + GRID)
    assert trials["failed"] >= 5
    assert trials["missing"] > 100
    assert any("answers are missing" in warning for warning in summary["warnings"])
    dropped = row(summary, "response", rule="")["dropped"]
    assert dropped["missing"] > 50


def test_a_defense_has_four_answers_at_each_dose(dosed: World) -> None:
    run(
        dosed, "run", 'defense=[{plugin="keywordagg",extractor="simple"},'
        '{plugin="score_gap",fpr=0.1}]',
    )  # fmt: skip
    summary = dosed.summary()
    assert summary["defenses"] == ["keywordagg", "score_gap"]
    for defense in summary["defenses"]:
        rows = [r for r in summary["four"] if r["defense"] == defense]
        assert {(r["dose"], r["event"]) for r in rows if r["scorer"] == "polarity"} == {
            (dose, event) for dose in (None, 1, 2) for event in ("incorrect", "adopted")
        }
        for each in rows:
            effects = {name: e["count"] for name, e in each["effects"].items()}
            rates = each["rates"]
            assert effects["N"] == effects["P"] - effects["J"] == rates["p0"] - rates["p1"]
            assert effects["H"] == rates["c1"] - rates["c0"]
            assert effects["Gamma"] == effects["N"] + effects["H"]
    at_two = row(summary, "four", defense="keywordagg", dose=2, event="adopted")
    assert at_two["rates"]["p0"] == at_two["n"] == 30
    assert not [r for r in summary["noise"] if r["defense"] != "none"]


def test_several_victims_face_the_same_edits(dosed: World) -> None:
    text = EXPERIMENT.replace("[generator]", "[[generator]]\nlabel = 'one'")
    text += "[[generator]]\nplugin = 'rule_reader.py:RuleReader'\nlabel = 'two'\nmax_tokens = 9\n"
    dosed.experiment.write_text(text, encoding="utf-8")
    run(dosed)
    by_victim: dict[str, set[Any]] = {"one": set(), "two": set()}
    for record in RunFolder(dosed.folder / "run").edits().values():
        told = tuple((each.position, each.replaced_by) for each in record.passages)
        by_victim[record.setting].add((record.query_id, record.rule, record.draw, told))
    assert by_victim["one"] == by_victim["two"]
    assert dosed.summary()["settings"] == ["one", "two"]


def test_sampling_gives_each_draw_a_clean_answer_of_its_own(dosed: World) -> None:
    run(dosed, "run", "generator.temperature=0.1")
    edits = RunFolder(dosed.folder / "run").edits().values()
    count = Counter(record.arm for record in edits)
    assert count["clean"] == count["zero_dose"] == count["closed_book"] == 2 * QUESTIONS
    assert dosed.summary()["trials"]["planned"] == QUESTIONS * (2 * CONTROLS + GRID)


def test_without_a_right_clean_answer_nothing_is_estimable_and_nothing_breaks(
    dosed: World,
) -> None:
    run(
        dosed, "run", 'generator={plugin="scripted",script="fixed",text="Nobody."}',
        "dose.controls=[]",
    )  # fmt: skip
    summary = dosed.summary()
    pooled = row(summary, "response", rule="")
    assert pooled["tampered"]["fooled"] == {
        "count": 0, "n": 0, "value": None, "groups": 0, "low": None, "high": None,
    }  # fmt: skip
    assert pooled["model"]["ed50"][0]["value"] is None
    assert any("no clean answer is correct" in warning for warning in summary["warnings"])
    page = (dosed.folder / "run" / "report.html").read_text(encoding="utf-8")
    assert "Not estimable: no clean answer is correct" in page


def test_another_scorer_can_lead_and_no_reader_of_edits_is_said(dosed: World) -> None:
    run(dosed, "run", 'scoring.rules=["tokens"]')
    summary = dosed.summary()
    assert summary["adoption_by"] is None
    point = row(summary, "response", scorer="tokens", rule="Rename")["points"][-1]
    assert point["adopted"] is None
    assert point["fooled"]["count"] == 30
    assert any("adoption is not measured" in warning for warning in summary["warnings"])
    score_folder(dosed.folder / "run", ["polarity"])
    again = analyze(dosed.folder / "run", ["polarity", "tokens"])
    assert again["scorers"] == ["polarity", "tokens"]
    assert row(again, "response", rule="Rename")["points"][-1]["fooled"]["count"] == 30


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["dose.doses=[0, 5]"], "dose.doses holds 5"),
        (['dose.rules=["negatoin"]'], "did you mean 'negation'"),
        (['dose.rules=["llm_rewrite"]', "dataset.limit=1"],
         "writes for the attacker's answer, and 14 of 15 questions have none"),
        (['dose.rules=["number_swap", "number_swap"]'], "'number_swap' twice"),
        (['dose.closed_book_prompt="answer"'], "and no other"),
        (['attack=["poisonedrag"]'], "protocol = 'dose' has no 'attack'"),
        (["protocol=aligned"], "[dose] belongs to protocol = 'dose'"),
        (['dataset.reference_fields=["none"]', "dataset.targets=empty.jsonl"],
         "has an accepted answer"),
        (["dose.queries=1", "dataset.corpus=small.jsonl", "dataset.qrels=small.tsv"],
         "take 'irrelevant' out of dose.controls"),
    ],
)  # fmt: skip
def test_a_wrong_experiment_is_told_in_one_line(
    dosed: World, change: list[str], message: str
) -> None:
    data = dosed.folder / "data"
    (data / "empty.jsonl").write_text(
        '{"query_id": "q0", "wanted": ["rival0"], "references": [], "texts": []}\n',
        encoding="utf-8",
    )
    (data / "small.jsonl").write_text(
        "".join(f'{{"_id": "d{n}", "text": "Mason {n} built."}}\n' for n in range(3)),
        encoding="utf-8",
    )
    (data / "small.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\td0\t1\n" for n in range(15)),
        encoding="utf-8",
    )
    with pytest.raises((ConfigError, PluginError)) as told:
        run(dosed, "run", *change)
    assert message in str(told.value)
    assert "\n" not in str(told.value)


def test_plan_counts_what_the_run_does(dosed: World) -> None:
    planned = dosed.run("plan", "world.toml", "--out", "run")
    assert planned.returncode == 0, planned.stderr
    assert "180 trials: 15 questions" in " ".join(planned.stdout.split())
    assert not (dosed.folder / "run").exists()


def test_gold_passages_come_first(dosed: World) -> None:
    run(dosed, "run", "retriever.k=3", "dose.queries=6", "dose.doses=[1]", "dose.draws=1")
    folder = RunFolder(dosed.folder / "run")
    clean = [t for t in folder.trials().values() if not t.spec.variant]
    assert len(clean) == 6
    for trial in clean:
        n = trial.spec.query_id.removeprefix("q")
        assert [entry.id for entry in trial.context][:2] == [f"d{n}-0", f"d{n}-1"]
        assert [entry.gold for entry in trial.context] == [True, True, False]


def test_the_page_shows_edits_as_a_diff_and_escapes_what_they_hold(dosed: World) -> None:
    rule = (dosed.folder / "rename_rule.py").read_text(encoding="utf-8")
    hostile = '"</script><img src=x onerror=alert(1)>rival"'
    (dosed.folder / "rename_rule.py").write_text(
        rule.replace('"rival")', f"{hostile})"), encoding="utf-8"
    )
    run(dosed)
    page = (dosed.folder / "run" / "report.html").read_text(encoding="utf-8")
    assert "<img" not in page
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    entry = next(e for e in data if e["tags"].get("Rule") == "Rename")
    passage = next(q for q in entry["quotes"] if "tampered with" in q["label"])
    shown = {kind: passage["text"][start:stop] for start, stop, kind in passage["marks"]}
    assert shown["removed"].startswith("mason")
    assert shown["added"].startswith("</script>")
