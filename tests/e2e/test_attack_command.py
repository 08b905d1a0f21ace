"""Poison as an artifact: crafted once by the command, played by runs, looked at by the check."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ragassay.attacks import poison_file

World = Any  # the fixture of conftest.py: a folder, and a way to run commands in it
PLAY = f"{poison_file.__file__}:PoisonFile"
CRAFT = ("attack", "poisonedrag", "--dataset", "world.toml", "--out", "poison.jsonl")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in rows:
        row["cost"] = {name: v for name, v in row["cost"].items() if "seconds" not in name}
    return rows


def played(path: str = "poison.jsonl") -> str:
    return f'attack=[{{plugin = "{PLAY}", path = "{path}", label = "poisonedrag"}}]'


def test_poison_is_crafted_once_marked_and_played_to_the_same_answers(world: World) -> None:
    done = world.run(*CRAFT)
    assert done.returncode == 0, done.stderr
    assert "15 questions crafted, 0 reused; 45 passages" in " ".join(done.stdout.split())
    rows = lines(world.folder / "poison.jsonl")
    assert [row["query_id"] for row in rows] == [f"q{n}" for n in range(15)]
    assert all(row["injected"] is True and row["delivered"] == 3 for row in rows)
    assert rows[0]["provenance"]["attack"] == "poisonedrag"
    assert rows[0]["provenance"]["seed"] == 12
    assert rows[0]["provenance"]["ragassay"]
    assert world.run("run", "world.toml", "--out", "within").returncode == 0
    from_file = world.run("run", "world.toml", "--out", "played", "--set", played())
    assert from_file.returncode == 0, from_file.stderr
    one, two = world.summary("within"), world.summary("played")
    assert one["cells"] == two["cells"]
    assert one["warnings"] == two["warnings"]


def test_the_same_command_goes_on_where_it_stopped_and_a_torn_line_is_cut(world: World) -> None:
    path = world.folder / "poison.jsonl"
    assert world.run(*CRAFT).returncode == 0
    whole = path.read_bytes()
    parts = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(parts[:6]) + parts[6][:40])
    again = world.run(*CRAFT)
    assert "9 questions crafted, 6 reused" in " ".join(again.stdout.split()), again.stderr
    assert path.read_bytes().startswith(b"".join(parts[:6]))
    assert timeless(lines(path)) == timeless([json.loads(part) for part in parts])
    once_more = path.read_bytes()
    assert "0 questions crafted, 15 reused" in " ".join(world.run(*CRAFT).stdout.split())
    assert path.read_bytes() == once_more


def test_a_command_that_is_killed_keeps_what_it_has_crafted(world: World, tmp_path: Path) -> None:
    # In sequence, for that goes one question after the other.
    options = ("--set", "attack.source=generated", "--set", "attack.n=1", "--set",
               "attack.trials=1", "--set", "attack.order=sequential")  # fmt: skip
    path = world.folder / "poison.jsonl"
    slow = world.start(*CRAFT, *options, RULE_READER_DELAY="0.1")
    limit = time.monotonic() + 60
    while time.monotonic() < limit and (not path.exists() or path.read_bytes().count(b"\n") < 3):
        time.sleep(0.05)
    slow.send_signal(signal.SIGKILL)
    slow.communicate(timeout=300)
    kept = path.read_bytes().count(b"\n")
    assert 3 <= kept < 15
    done = world.run(*CRAFT, *options)
    assert f"{15 - kept} questions crafted, {kept} reused" in " ".join(done.stdout.split())
    rows = lines(path)
    assert len({row["query_id"] for row in rows}) == len(rows) == 15
    assert all(row["details"][0]["verified"] is False for row in rows), "kept and marked"
    check = world.run("poison", "check", "poison.jsonl", "--json")
    assert json.loads(check.stdout)[0]["unverified"] == 15


def test_other_settings_are_refused_with_the_line_and_what_changed(world: World) -> None:
    assert world.run(*CRAFT).returncode == 0
    before = (world.folder / "poison.jsonl").read_bytes()
    other = world.run(*CRAFT, "--set", "attack.n=2")
    assert other.returncode == 3
    assert (
        "poison.jsonl:1: the poison of query 'q0' was crafted with other settings" in other.stderr
    )
    assert "options was {}, now is {'n': 2}" in other.stderr
    fewer = world.run(*CRAFT, "--set", "dataset.limit=4")
    assert fewer.returncode == 3
    assert "poison.jsonl:5: holds poison for query 'q4', which this experiment" in fewer.stderr
    assert (world.folder / "poison.jsonl").read_bytes() == before


def test_a_run_refuses_poison_that_was_made_for_another_target(world: World) -> None:
    assert world.run(*CRAFT).returncode == 0
    targets = world.folder / "data" / "targets.jsonl"
    targets.write_text(targets.read_text(encoding="utf-8").replace("rival7", "rival77"),
                       encoding="utf-8")  # fmt: skip
    refused = world.run("run", "world.toml", "--out", "run", "--set", played())
    assert refused.returncode == 3
    assert "poison.jsonl:8: the poison of query 'q7' was made for the target" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_what_is_not_delivered_stands_in_the_warnings_of_the_run(world: World) -> None:
    rows = lines(world.folder / "data" / "targets.jsonl")
    rows[2]["poison_passages"] = rows[2]["poison_passages"][:1]
    path = world.folder / "data" / "targets.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = world.run("run", "world.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    expected = (
        "Attack 'poisonedrag' delivered fewer than the 3 passages asked for on 1 of 15 "
        "questions: q2 1."
    )
    assert expected in world.summary()["warnings"]
    crafted = world.run(*CRAFT)
    assert expected in " ".join(crafted.stdout.split())
    assert world.run("run", "world.toml", "--out", "played", "--set", played()).returncode == 0
    assert expected in world.summary("played")["warnings"]


def test_a_limit_of_words_is_kept_and_what_it_costs_is_reported(world: World) -> None:
    done = world.run(
        "run", "world.toml", "--out", "run", "--set",
        'attack=["poisonedrag", {plugin = "corruptrag_as", max_words = 5}]',
    )  # fmt: skip
    assert done.returncode != 0, "every passage of it is longer, so no budget can be filled"
    assert "corruptrag_as" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_tax_of_a_run_has_raw_values_and_no_seconds_that_differ_between_runs(
    world: World,
) -> None:
    assert world.run(*CRAFT).returncode == 0
    both = (
        f'attack=["corruptrag_as", {{plugin = "{PLAY}", path = "poison.jsonl", label = "played"}}]'
    )
    assert world.run("run", "world.toml", "--out", "run", "--set", both).returncode == 0
    tax = world.summary()["tax"]
    assert tax["attacks"] == ["corruptrag_as", "played"]
    assert tax["measured"]["played"]["similarity"]["n"] == 15
    assert 0 < tax["measured"]["played"]["similarity"]["value"] < 1
    assert tax["measured"]["corruptrag_as"]["similarity"] == {"value": None, "n": 0}
    assert tax["measured"]["corruptrag_as"]["seconds"] == {"value": None, "n": 0}
    assert tax["measured"]["played"]["seconds"]["n"] == 15
    dimensions = {each["name"]: each for each in tax["dimensions"]}
    assert dimensions["llm"]["raw"] == [1.0, 1.0]
    assert dimensions["similarity"]["scores"] is None
    assert world.run("report", "run").returncode == 0
    assert world.summary()["tax"] == tax


def test_the_check_counts_and_its_exit_code_says_whether_the_poison_can_be_meant(
    world: World,
) -> None:
    assert world.run(*CRAFT).returncode == 0
    fine = world.run("poison", "check", "poison.jsonl", "--json")
    assert fine.returncode == 0, fine.stderr
    [report] = json.loads(fine.stdout)
    assert (report["set"], report["questions"], report["passages"]) == ("poisonedrag", 15, 45)
    assert (report["target"]["count"], report["question"]["count"]) == (45, 45)
    assert report["correct"]["count"] == 0
    shown = world.run("poison", "check", "poison.jsonl")
    assert "poisonedrag" in shown.stdout
    path = world.folder / "poison.jsonl"
    rows = lines(path)
    rows[3]["docs"][0] = "\x1b ?!"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    bad = world.run("poison", "check", "poison.jsonl")
    assert bad.returncode == 3
    assert "1 of 45 passages have no word" in bad.stdout
    assert "1 of 45 passages hold control characters" in bad.stdout
    assert "\x1b" not in bad.stdout
    path.write_text("{not json\n", encoding="utf-8")
    broken = world.run("poison", "check", "poison.jsonl")
    assert broken.returncode == 3
    assert "poison.jsonl:1: not JSON" in broken.stderr


def test_what_a_file_holds_is_shown_without_what_could_steer_a_terminal(world: World) -> None:
    assert world.run(*CRAFT).returncode == 0
    about = json.loads(world.run("poison", "show", "poison.jsonl").stdout)
    assert about["injected"] is True
    assert (about["questions"], about["passages"], about["asked"]) == (15, 45, 3)
    assert about["provenance"]["identity"].startswith("poisonedrag:")
    one = json.loads(world.run("poison", "show", "poison.jsonl", "--query", "q3").stdout)
    assert len(one["passages"]) == 3
    assert one["target"] == ["rival3"]
    missing = world.run("poison", "show", "poison.jsonl", "--query", "zz")
    assert missing.returncode == 2
    assert "has no poison for query 'zz'" in missing.stderr


def paraphrases(world: World, **changes: list[str]) -> None:
    path = world.folder / "paraphrases.jsonl"
    rows = [
        {"query_id": f"q{n}", "paraphrases": [
            f"By whom, in the words of {i}, was the harbor of town{n} built?" for i in range(10)]}
        for n in range(15)
    ]  # fmt: skip
    for row in rows:
        row["paraphrases"] = changes.get(str(row["query_id"]), row["paraphrases"])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


EVALUATED = ("--set", "paraphrases.path=paraphrases.jsonl", "--set", "paraphrases.evaluate=true")


def test_evaluated_paraphrases_are_questions_against_the_poison_of_their_question(
    world: World,
) -> None:
    paraphrases(world)
    done = world.run("run", "world.toml", "--out", "run", *EVALUATED)
    assert done.returncode == 0, done.stderr
    bodies = [row["body"] for row in lines(world.folder / "run" / "trials.jsonl")]
    asked = {body["spec"]["query_id"] for body in bodies}
    assert asked == {f"q{n}{p}" for n in range(15) for p in ("", *(f"#p{i}" for i in range(6, 11)))}
    own = [e["origin"] for body in bodies if body["spec"]["query_id"] == "q3#p6"
           and body["spec"]["budget"] == 3 and body["spec"]["defense_label"] == "none"
           for e in body["context"]]  # fmt: skip
    assert own.count("own") == 3
    queries = {row["key"]: row["body"] for row in lines(world.folder / "run" / "queries.jsonl")}
    assert queries["q3#p6"]["query"]["group"] == queries["q3"]["query"]["group"]
    assert queries["q3#p6"]["target"]["wanted"] == ["rival3"]
    poison = [row["body"]["query_id"] for row in lines(world.folder / "run" / "poison.jsonl")]
    assert poison == [f"q{n}" for n in range(15)], "nothing is crafted for a paraphrase"
    undefended = next(
        c for c in world.summary()["cells"]
        if (c["defense"], c["budget"], c["scorer"]) == ("none", 3, "tokens")
    )  # fmt: skip
    assert undefended["rates"]["p0"]["n"] == 90
    again = world.run("run", "world.toml", "--out", "run", *EVALUATED)
    assert "0 trials run" in " ".join(again.stdout.split()), again.stderr


def test_a_paraphrase_on_both_sides_stops_the_run_and_is_named(world: World) -> None:
    twice = [f"wording {i} for town2" for i in range(9)] + ["Wording 0 for town2!"]
    paraphrases(world, q2=twice)
    done = world.run("run", "world.toml", "--out", "run", *EVALUATED)
    assert done.returncode == 3
    assert "paraphrases.jsonl:3: query 'q2': the paraphrase 'Wording 0 for town2!'" in done.stderr
    assert "must be disjoint" in done.stderr


ASKING = '''
from dataclasses import dataclass
from typing import ClassVar
from ragassay.types import Knowledge, Passage, PoisonSet

@dataclass(frozen=True, kw_only=True)
class Asking:
    """Takes the first draft with which the system gives the target."""
    knowledge: ClassVar[Knowledge] = Knowledge(llm="query", corpus="contents", retriever="query")
    max_passages: ClassVar[int] = 1

    def craft(self, target, view, rng):
        tried = [f"{view.question} {draft}" for draft in view.drafts]
        answers = [view.ask_victim([text] * 2) for text in tried]
        scores = view.similarity(tried)
        above = view.retrieved(1)[0].score
        return PoisonSet(
            attack="asking", query_id=target.query_id, knowledge=self.knowledge,
            passages=(Passage(id="a-" + target.query_id, text=tried[0]),),
            details=({"answer": answers[0], "retrieved": list(answers[0].retrieved),
                      "beats": bool(scores[0] > above)},),
        )
'''


def test_an_attack_asks_the_real_system_while_it_crafts(world: World) -> None:
    (world.folder / "asking.py").write_text(ASKING, encoding="utf-8")
    attack = ("attack", "asking.py:Asking", "--dataset", "world.toml", "--out", "asked.jsonl")
    done = world.run(*attack)
    assert done.returncode == 0, done.stderr
    for number, row in enumerate(lines(world.folder / "asked.jsonl")):
        detail = row["details"][0]
        assert detail["retrieved"] == [True, True]
        assert detail["answer"] in (f"rival{number}", f"mason{number}")
        assert detail["beats"] is True
        assert row["cost"]["model_calls"] == 3
        assert row["cost"]["encoder_forwards"] == 3 * 2 + 3
    provenance = lines(world.folder / "asked.jsonl")[0]["provenance"]
    assert provenance["victim"] == "rule-reader"
    assert provenance["retriever"].startswith("dense:")
    cached = world.run(
        "run", "world.toml", "--out", "run", "--set", "budgets=[1]", "--set", "defense=[]",
        "--set", 'attack=["asking.py:Asking"]',
    )  # fmt: skip
    assert cached.returncode == 0, cached.stderr


def test_a_later_attacker_sees_what_an_earlier_file_has_planted(world: World) -> None:
    (world.folder / "asking.py").write_text(ASKING, encoding="utf-8")
    assert world.run(*CRAFT).returncode == 0
    with (world.folder / "world.toml").open("a", encoding="utf-8") as file:
        file.write(
            f'[[attack]]\nplugin = "{PLAY}"\npath = "poison.jsonl"\nlabel = "first"\n'
            '[[attack]]\nplugin = "asking.py:Asking"\nlabel = "second"\norder = "sequential"\n'
        )
    attack = ("attack", "second", "--dataset", "world.toml", "--out", "second.jsonl")
    done = world.run(*attack)
    assert done.returncode == 0, done.stderr
    rows = lines(world.folder / "second.jsonl")
    assert rows[0]["provenance"]["order"] == "sequential"
    assert not all(row["details"][0]["beats"] for row in rows), "the planted passages score high"
    shutil.rmtree(world.folder / "run", ignore_errors=True)
    assert world.run("run", "world.toml", "--out", "run").returncode == 0
    poison = [row["body"] for row in lines(world.folder / "run" / "poison.jsonl")]
    within = {p["query_id"]: p["details"] for p in poison if p["attack"] == "second"}
    assert within == {row["query_id"]: row["details"] for row in rows}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nothing",), 2, "unknown attack 'nothing'"),
        (("poisonedrag", "--set", "attack.m=3"), 2, "has no option 'm'"),
        (("poisonedrag", "--set", "attack.n=0"), 2, "need n >= 1"),
        (("poisonedrag", "--set", "nonsense=1"), 2, "unknown key 'nonsense'"),
    ],
)
def test_wrong_commands_say_what_would_be_right(
    world: World, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = world.run("attack", *arguments, "--dataset", "world.toml", "--out", "p.jsonl")
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (world.folder / "p.jsonl").exists()
