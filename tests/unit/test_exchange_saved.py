"""The layouts of public reproductions: every condition stays apart, every passage is placed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ragassay.errors import ConfigError, DataError
from ragassay.exchange import Row, SavedAnswers, read
from ragassay.exchange.rows import Problems

CONDITIONS = (
    ("clean", "clean", 0.0, 0),
    ("loud_5.00%", "loud", 0.05, 2),
    ("loud_10.00%", "loud", 0.1, 2),
    ("loud_corpus_0.0001%", "loud", 1e-06, 3),
)


def repro() -> list[dict[str, Any]]:
    return [
        {
            "model": model, "dataset": "towns", "condition": condition, "variant": variant,
            "requested_poison_rate": rate, "n_poison": n, "query_id": f"q{i}",
            "query": f"Who built harbor {i}?", "correct_answers": [f"mason{i}"],
            "target_answer": f"rival{i}", "response": f"{condition}: mason{i}",
            "attack_success": False, "correct_answer_present": True, "poison_in_topk": min(n, 1),
            "labels": (["poison"] if n else ["benign"]) + ["benign"],
            "doc_ids": ["poison_0" if n else "d9", "d1"], "scores": [1.5, 0.5],
        }
        for model in ("small", "large")
        for i in range(2)
        for condition, variant, rate, n in CONDITIONS
    ]  # fmt: skip


def paper(prompt: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "model": "small", "dataset": "towns", "iteration": "iter_0", "query_id": "q0",
        "query": "Who built harbor 0?", "correct_answers": ["mason0"], "target_answer": "rival0",
        "injected_in_topk": ["Who built it? rival0 did.\nSo it is."], "response": "rival0",
    }  # fmt: skip
    return row if prompt is None else {**row, "prompt": prompt}


def saved(folder: Path, rows: list[dict[str, Any]], **options: Any) -> SavedAnswers:
    path = folder / "saved.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return SavedAnswers(path=path, **options)


def rows(source: SavedAnswers) -> list[Row]:
    problems = Problems()
    found = list(source.rows(problems))
    problems.raise_any()
    return found


def test_every_condition_of_a_record_table_stays_apart(tmp_path: Path) -> None:
    answers = read(saved(tmp_path, repro()))
    assert dict(answers.places) == {
        (f"{model}/towns", attack, budget, "none"): 2
        for model in ("small", "large")
        for attack, budget in (("", 0), ("loud 5%", 2), ("loud 10%", 2), ("loud 0.0001%", 3))
    }
    assert dict(answers.settings) == {
        "small/towns": ("small", "towns"),
        "large/towns": ("large", "towns"),
    }
    assert answers.k == 2


def test_contexts_keep_ids_scores_and_origin(tmp_path: Path) -> None:
    clean, poisoned = rows(saved(tmp_path, repro()))[:2]
    assert [(e.id, e.score, e.origin, e.kept) for e in clean.context] == [
        ("d9", 1.5, "corpus", True),
        ("d1", 0.5, "corpus", True),
    ]
    assert [(e.id, e.origin) for e in poisoned.context] == [
        ("q0/poison_0", "own"),
        ("d1", "corpus"),
    ]
    assert poisoned.trace["released"] == {
        "condition": "loud_5.00%", "requested_poison_rate": 0.05, "poison_in_topk": 1,
        "attack_success": False, "correct_answer_present": True,
    }  # fmt: skip


def test_the_passages_of_a_log_are_taken_from_its_prompt(tmp_path: Path) -> None:
    injected = "Who built it? rival0 did.\nSo it is."
    prompt = f"Answer. \n\nContexts: Before it.\n{injected}\nAfter it. \n\nQuery: Who? \n\nAnswer:"
    [row] = rows(saved(tmp_path, [paper(prompt)]))
    assert [passage.text for passage in row.passages] == ["Before it.", injected, "After it."]
    assert [entry.origin for entry in row.context] == ["corpus", "own", "corpus"]
    assert (row.attack, row.budget, row.group) == ("poisonedrag", 5, "iter_0")


@pytest.mark.parametrize("prompt", [None, "Contexts: Something else. \n\nQuery: Who?"])
def test_without_a_prompt_that_fits_only_the_injected_passages_are_known(
    tmp_path: Path, prompt: str | None
) -> None:
    [row] = rows(saved(tmp_path, [paper(prompt)]))
    assert [entry.origin for entry in row.context] == ["own"]


def test_answers_without_a_clean_condition_are_imported_and_that_is_said(tmp_path: Path) -> None:
    answers = read(saved(tmp_path, [paper(None)], budget=3))
    assert dict(answers.places) == {("small/towns", "poisonedrag", 3, "none"): 1}
    assert any("P, J, N, H are not estimable" in note for note in answers.notes)


def test_predictions_without_targets_take_their_questions_from_a_file(tmp_path: Path) -> None:
    lines = [
        {"run": run, "query_id": "p/1", "gold": "5%", "prediction": "5%", "retrieved": found}
        for run, found in (("closed", []), ("open", ["p/1_2"]))
    ]
    answers = read(saved(tmp_path, lines))
    assert any("--questions" in note for note in answers.notes)
    questions = tmp_path / "queries.jsonl"
    questions.write_text('{"_id": "p/1", "text": "How much?"}\n', encoding="utf-8")
    answers = read(saved(tmp_path, lines, questions=questions))
    [(query, target)] = answers.queries.values()
    assert (query.text, target.wanted, target.references) == ("How much?", (), ("5%",))
    assert sorted(answers.places) == [("closed", "", 0, "none"), ("open", "", 0, "none")]
    questions.write_text('{"_id": "p/2", "text": "How much?"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"saved\.jsonl:1: .*has no question 'p/1'"):
        read(saved(tmp_path, lines, questions=questions))


@pytest.mark.parametrize(
    ("edit", "part"),
    [
        (lambda r: r.update(labels=["benign"]), "2 doc_ids, 1 labels and 2 scores"),
        (lambda r: r.update(n_poison=-1), "'n_poison' must be a whole number from 0"),
        (lambda r: r.update(latency=2), "the layout repro has no field 'latency'"),
        (lambda r: r.update(response=None), "'response' must be a string"),
        (lambda r: r.update(query="Another?"), "question of query 'q0' is 'Another?'"),
        (lambda r: r.update(condition="x", requested_poison_rate=0.1), "has another answer"),
    ],
)
def test_a_wrong_record_is_named_with_its_line(tmp_path: Path, edit: Any, part: str) -> None:
    lines = repro()
    edit(lines[1])
    with pytest.raises(DataError) as caught:
        read(saved(tmp_path, lines))
    assert part in str(caught.value)
    assert any(f"saved.jsonl:{n}: " in str(caught.value) for n in (2, 3))


def test_a_query_that_lacks_a_condition_others_have_is_named(tmp_path: Path) -> None:
    lines = repro()
    del lines[5]
    with pytest.raises(DataError, match=r"'q1' has no answer in small/towns: loud 5% p=2"):
        read(saved(tmp_path, lines))


def test_an_unknown_layout_names_the_nearest(tmp_path: Path) -> None:
    line = repro()[0]
    line["respnse"] = line.pop("response")
    with pytest.raises(DataError, match=r"nearest is repro, .*'response' \(is it 'respnse'"):
        read(saved(tmp_path, [line]))
    with pytest.raises(ConfigError, match="unknown layout 'odd'"):
        saved(tmp_path, [line], name="odd")
