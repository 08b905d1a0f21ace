"""Targets that are proposed for questions without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragassay.config import parse
from ragassay.errors import ConfigError, StoreError
from ragassay.experiments.setup import Experiment, set_up
from ragassay.experiments.targets import By, Proposal, propose, write_targets

ANSWERS = {
    "q1": ["yes"], "q2": ["42%"], "q3": ["Warsaw"], "q4": ["the green heron"],
    "q5": ["the red kite"], "q6": [], "q7": ["True"], "q8": ["word " * 30],
}  # fmt: skip


def made(folder: Path, reply: str = "Lodz", **dataset: object) -> Experiment:
    corpus = [{"_id": "p1", "title": "", "text": "A passage."}]
    queries = [
        {"_id": key, "text": f"Question {key}?", "metadata": {"answers": answers}}
        for key, answers in ANSWERS.items()
    ]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    file = parse(
        {
            "name": "toy",
            "dataset": {"plugin": "beir", "path": str(folder), **dataset},
            "generator": {"plugin": "scripted", "text": reply},
        }
    )
    return Experiment(file=file, raw=b"", base=folder)


def by_id(proposals: list[Proposal]) -> dict[str, Proposal]:
    return {each.query_id: each for each in proposals}


def test_a_substitute_is_of_the_kind_of_the_right_answer(tmp_path: Path) -> None:
    found = by_id(propose(made(tmp_path)))
    assert (found["q1"].wanted, found["q1"].by) == ("no", "opposite")
    assert (found["q7"].wanted, found["q7"].by) == ("False", "opposite")
    assert found["q2"].by == "number"
    assert found["q2"].wanted.endswith("%")
    assert found["q2"].wanted != "42%"
    assert (found["q4"].wanted, found["q4"].by) == ("the red kite", "pool")
    assert found["q8"].wanted == ""
    assert "q6" not in found


@pytest.mark.parametrize("by", ["substitution", "pool"])
def test_equal_seeds_propose_equally_whatever_is_left_out(tmp_path: Path, by: By) -> None:
    experiment = made(tmp_path)
    whole = by_id(propose(experiment, by))
    some = by_id(propose(experiment, by, limit=3))
    assert len(some) == 3
    assert all(whole[key] == value for key, value in some.items())


def test_no_proposal_repeats_a_right_answer(tmp_path: Path) -> None:
    found = by_id(propose(made(tmp_path, reply="It is YES."), "model"))
    assert found["q1"].wanted == ""  # holds the right answer
    assert found["q3"].wanted == "It is YES"


def test_the_file_is_read_as_targets_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "targets" / "toy.jsonl"
    assert write_targets(path, propose(made(tmp_path))) == 6
    setup = set_up(made(tmp_path, targets=str(path)))
    assert {query.id for query in setup.evaluated} == {"q1", "q2", "q3", "q4", "q5", "q7"}
    assert setup.dataset.targets["q1"].wanted == ("no",)
    with pytest.raises(StoreError, match="exists already"):
        write_targets(path, [])
    with pytest.raises(ConfigError, match="pool"):
        propose(made(tmp_path), "guess")  # type: ignore[arg-type]
