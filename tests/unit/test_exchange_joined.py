"""Joined records: hashes are verified, cells become attack and budget, nothing is guessed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragassay.errors import DataError
from ragassay.exchange import Joined, Row, read
from ragassay.exchange.joined import fingerprint, split_cell
from ragassay.exchange.rows import Problems

CONDITIONS = ("clean_undefended", "poisoned_undefended", "clean_defended", "poisoned_defended")


def seal(document: dict[str, Any]) -> dict[str, Any]:
    bare = {key: value for key, value in document.items() if key != "sha256"}
    return {**bare, "sha256": fingerprint(bare)}


def output(document: dict[str, Any], i: int, answer: str, **more: Any) -> str:
    item = {
        "question": f"Who built harbor {i}?",
        "target": f"rival{i}",
        "references": [f"mason{i}"],
        "reference_source": "invented",
        "answer": answer,
        **more,
    }
    key = fingerprint(item)
    document["outputs"][key] = item
    return key


def external(n: int = 2) -> dict[str, Any]:
    document: dict[str, Any] = {
        "kind": "external_four_condition_records", "version": "v1", "setting_id": "external_jsonl",
        "method": "Vote", "outputs": {}, "records": [],
    }  # fmt: skip
    for i in range(n):
        document["records"].append({
            "id": f"q{i}", "query": f"Who built harbor {i}?", "group_id": f"g{i}", "method": "Vote",
            "conditions": {name: output(document, i, f"{name} says mason{i}.")
                           for name in CONDITIONS},
            "metadata": {name: {"note": name} for name in CONDITIONS},
        })  # fmt: skip
    return seal(document)


def factorial() -> dict[str, Any]:
    """Two cells, the undefended system and one defense, two queries; controls and utility."""
    document: dict[str, Any] = {
        "kind": "factorial_records", "version": "v1", "setting_id": "town-small",
        "axes": {"dataset": "towns", "victim": {"model": "small"}}, "outputs": {}, "records": [],
    }  # fmt: skip
    for cell in ("flood_p1", "flood_p5"):
        for i in range(2):
            clean = output(document, i, f"mason{i}.")
            poisoned = output(document, i, f"{cell}: rival{i}.")
            control = output(document, i, f"mason{i}, without it.")
            for method in ("no_defense", "Vote"):
                kept = method == "no_defense"
                document["records"].append({
                    "id": f"q{i}", "query": f"Who built harbor {i}?", "group_id": "g", "cell": cell,
                    "method": method, "occupancy": 0.2, "support_presence": "all",
                    "co_retrieved": None, "controls": {"no_poison": control},
                    "conditions": {
                        "clean_undefended": clean, "poisoned_undefended": poisoned,
                        "clean_defended": clean if kept else output(document, i, "c1"),
                        "poisoned_defended": poisoned if kept else output(document, i, cell),
                    },
                })  # fmt: skip
    before = output(document, 9, "mason9.", target=None)
    document["utility"] = [
        {"id": "u9", "query": "Who built harbor 9?", "method": method, "before": before,
         "after": before} for method in ("no_defense", "Vote")
    ]  # fmt: skip
    return seal(document)


def written(folder: Path, document: dict[str, Any], **options: Any) -> Joined:
    path = folder / "records.json"
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False), encoding="utf-8")
    return Joined(path=path, **options)


def rows(source: Joined) -> list[Row]:
    problems = Problems()
    found = list(source.rows(problems))
    problems.raise_any()
    return found


def test_external_records_give_four_answers_each(tmp_path: Path) -> None:
    source = written(tmp_path, external(), attack="flood", budget=3)
    answers = read(source)
    assert dict(answers.places) == {
        ("", "", 0, "none"): 2,
        ("", "flood", 3, "none"): 2,
        ("", "", 0, "Vote"): 2,
        ("", "flood", 3, "Vote"): 2,
    }
    found = {(row.query_id, row.budget, row.defense): row for row in rows(source)}
    assert found["q1", 3, "Vote"].answer == "poisoned_defended says mason1."
    assert found["q1", 3, "Vote"].trace == {
        "reference_source": "invented",
        "metadata": {"note": "poisoned_defended"},
    }
    assert answers.queries["", "q1"][0].group == "g1"


def test_cells_of_a_factorial_evaluation_become_attacks_and_budgets(tmp_path: Path) -> None:
    answers = read(written(tmp_path, factorial()))
    assert dict(answers.places) == {
        ("town-small", attack, budget, defense): 2
        for attack, budget in (("", 0), ("flood", 1), ("flood", 5))
        for defense in ("none", "Vote")
    }
    assert dict(answers.settings) == {"town-small": ("small", "towns")}


def test_controls_stay_with_the_undefended_answer_and_utility_is_counted(tmp_path: Path) -> None:
    source = written(tmp_path, factorial())
    answers = read(source)
    traces = [row.trace for row in rows(source) if row.budget and row.defense == "none"]
    assert len(traces) == 4
    assert traces[0]["controls"] == {"no_poison": "mason0, without it."}
    assert (traces[0]["occupancy"], traces[0]["support_presence"]) == (0.2, "all")
    assert not any("controls" in row.trace for row in rows(source) if row.defense == "Vote")
    assert any("not analyzed: no_poison 8" in note for note in answers.notes)
    assert any("2 held-out utility pairs are not imported" in note for note in answers.notes)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("poisonedrag_p1", ("poisonedrag", 1)),
        ("hotpot-5", ("hotpot", 5)),
        ("gaslite2_p3", ("gaslite2", 3)),
        ("x_p1_p3", ("x_p1", 3)),
        ("strong", ("strong", 1)),
        ("never0", ("never0", 1)),
        ("7", ("7", 1)),
        ("authority 5%_p5", ("authority 5%", 5)),
    ],
)
def test_a_cell_that_ends_in_a_number_names_a_budget(cell: str, expected: tuple[str, int]) -> None:
    assert split_cell(cell) == expected


def _swap_answer(d: dict[str, Any]) -> None:
    key = d["records"][1]["conditions"]["poisoned_defended"]
    d["outputs"][key] = {**d["outputs"][key], "answer": "Another answer."}


@pytest.mark.parametrize(
    ("edit", "parts"),
    [
        (_swap_answer, ("record 2 (id 'q1')", "poisoned_defended", "hash that it stands under")),
        (
            lambda d: d["records"][0]["conditions"].update(clean_defended="0" * 64),
            ("record 1 (id 'q0')", "clean_defended", "not there"),
        ),
        (
            lambda d: d["records"][0]["conditions"].pop("clean_defended"),
            ("record 1 (id 'q0')", "'q0' has no answer in clean retrieval, defense Vote"),
        ),
        (
            lambda d: d["records"][0].update(query="Another question?"),
            ("record 1", "'query' and the question of its answer"),
        ),
        (
            lambda d: d["records"].append(d["records"][0]),
            ("record 3 (id 'q0')", "has another answer"),
        ),
        (lambda d: d["records"].clear(), ("'records' is empty",)),
        (lambda d: d.update(kind="other"), ("'kind' is 'other'",)),
        (lambda d: d.pop("outputs"), ("'outputs' must be an object",)),
        (lambda d: d["records"].append(5), ("record 3", "must be an object, found a number")),
        (
            lambda d: d["records"][0]["conditions"].update(clean="x"),
            ("record 1", "unknown condition 'clean'"),
        ),
        (lambda d: d["records"][1].pop("id"), ("record 2", "'id' is missing")),
    ],
)
def test_a_record_that_is_wrong_is_named(
    tmp_path: Path, edit: Callable[[dict[str, Any]], Any], parts: tuple[str, ...]
) -> None:
    document = external()
    edit(document)
    with pytest.raises(DataError) as caught:
        read(written(tmp_path, seal(document)))
    for part in ("records.json: ", *parts):
        assert part in str(caught.value)
    assert ":0:" not in str(caught.value)


def test_a_file_that_was_changed_after_sealing_is_refused(tmp_path: Path) -> None:
    document = external()
    document["records"][0]["group_id"] = "other"
    with pytest.raises(DataError, match="changed after it was sealed"):
        read(written(tmp_path, document))
    del document["sha256"]
    assert read(written(tmp_path, document)).count == 8


def test_a_lone_surrogate_has_no_hash_and_is_refused(tmp_path: Path) -> None:
    document = external()
    del document["sha256"]
    item = {**next(iter(document["outputs"].values())), "answer": "\ud800"}
    document["outputs"]["f" * 64] = item
    document["records"][0]["conditions"]["clean_defended"] = "f" * 64
    path = tmp_path / "records.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(DataError, match=r"record 1 \(id 'q0'\): clean_defended.*lone surrogate"):
        read(Joined(path=path))


def test_undefended_answers_that_differ_between_methods_are_refused(tmp_path: Path) -> None:
    document = factorial()
    document["records"][1]["conditions"]["clean_undefended"] = output(document, 0, "mason0!")
    with pytest.raises(DataError, match=r"record 2 .*not the answer that another record"):
        read(written(tmp_path, seal(document)))


def test_a_file_that_is_cut_off_is_refused_with_its_line(tmp_path: Path) -> None:
    source = written(tmp_path, external())
    source.path.write_text(source.path.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    with pytest.raises(DataError, match=r"records\.json:\d+: not JSON"):
        read(source)
