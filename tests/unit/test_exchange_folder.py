"""Run folders of imported answers are whole or absent, and go out as they came in."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragassay import canon
from ragassay.config import StatisticsPart
from ragassay.data.delimited import safe_cell
from ragassay.errors import ConfigError, DataError, StoreError
from ragassay.exchange import FourFiles, Joined, Selection, Table, export, read, write_folder
from ragassay.exchange.folder import STATISTICS
from ragassay.store import RunFolder
from ragassay.types import ScoreRecord

NAMES = ("cu", "pu", "cd", "pd")
HOSTILE = (
    "=cmd()|' /C calc'!A0",
    'two\nlines, "quotes" \\ and \u2028 a separator \x00\x7f',
    "\u202eright to left, <script>alert(1)</script>, 🦑",
    "",
    "  kept as it is.  ",
)


def files(folder: Path, answers: tuple[str, ...] = HOSTILE, *, methods: int = 1) -> FourFiles:
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        lines = [
            {
                "query_id": f"q{i}",
                "group_id": f"g{i // 2}",
                "question": f"Who built {answer[:9]!a} {i}?",
                "target": [f"rival{i}", f"r. {i}"] if i == 1 else f"rival{i}" if i else None,
                "references": [f"mason{i}"],
                "reference_source": "invented",
                "answer": f"{name if i else ''}{answer}",
                "metadata": {"seconds": 0.5, "of": name} if i % 2 else {},
                **({"method": f"guard {m}"} if name[1] == "d" else {}),
            }
            for m in range(methods if name[1] == "d" else 1)
            for i, answer in enumerate(answers)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return FourFiles(
        clean_undefended=folder / "cu.jsonl",
        poisoned_undefended=folder / "pu.jsonl",
        defended={"": (folder / "cd.jsonl", folder / "pd.jsonl")},
        attack="flood",
        budget=2,
        victim="small",
        dataset="towns",
    )


def content(folder: Path) -> dict[str, Any]:
    """Everything of a run folder that may count, without the times of writing."""
    store = RunFolder(folder)
    return {stream: list(store.read(stream)) for stream in ("queries", "trials", "passages")}


def same(mine: Path, other: Path) -> None:
    """Two folders hold the same, in whatever order the trials were written."""
    first, second = content(mine), content(other)
    for stream in first:
        assert sorted(first[stream], key=str) == sorted(second[stream], key=str)
    assert first["trials"]


def test_an_imported_folder_holds_raw_answers_and_what_is_known(tmp_path: Path) -> None:
    answers = read(files(tmp_path / "in"))
    write_folder(answers, tmp_path / "run", scorers={"tokens": "tokens:1"})
    store = RunFolder(tmp_path / "run")
    trials = list(store.trials().values())
    assert len(trials) == 20
    assert {t.answer for t in trials if t.spec.query_id == "q1"} == {n + HOSTILE[1] for n in NAMES}
    spec = trials[-1].spec
    assert (spec.protocol, spec.generator, spec.setting) == ("imported/1", "small", "small/towns")
    assert (spec.retriever, spec.prompt, spec.defense, spec.poison) == ("", "", "", "")
    assert not trials[-1].declined
    resolved = store.read_json("resolved.json")
    assert resolved["planned"] == 20
    assert resolved["settings"] == {"small/towns": {"dataset": "towns", "generator": "small"}}
    assert set(resolved["defenses"]) == {"none", "guard 0"}
    assert set(resolved["attacks"]) == {"flood"}
    assert resolved["experiment"]["retriever"]["k"] is None
    assert (resolved["scorers"], resolved["headline"]) == ({"tokens": "tokens:1"}, "tokens")
    given = {each["name"]: each["sha256"] for each in resolved["import"]["files"]}
    raw = (tmp_path / "in" / "pd.jsonl").read_bytes()
    assert given["pd.jsonl"] == hashlib.sha256(raw).hexdigest()
    assert str(tmp_path) not in canon.dumps(resolved)


def test_equal_imports_give_equal_records(tmp_path: Path) -> None:
    source = files(tmp_path / "in")
    for name in ("one/run", "two/run"):
        write_folder(read(source), tmp_path / name)
    assert content(tmp_path / "one/run") == content(tmp_path / "two/run")
    assert RunFolder(tmp_path / "one/run").read_json("resolved.json") == RunFolder(
        tmp_path / "two/run"
    ).read_json("resolved.json")


def test_an_answer_that_differs_gets_another_key(tmp_path: Path) -> None:
    write_folder(read(files(tmp_path / "in")), tmp_path / "one")
    write_folder(read(files(tmp_path / "in", ("other", *HOSTILE[1:]))), tmp_path / "two")
    one, two = (RunFolder(tmp_path / name).keys("trials") for name in ("one", "two"))
    assert not one & two  # the data set is another


def test_the_statistics_are_those_of_an_experiment() -> None:
    defaults = StatisticsPart()
    assert {"draws": defaults.draws, "confidence": defaults.confidence} == STATISTICS


def test_a_folder_that_holds_something_is_refused_and_left_alone(tmp_path: Path) -> None:
    answers = read(files(tmp_path / "in"))
    with pytest.raises(StoreError, match="is not empty"):
        write_folder(answers, tmp_path / "in")
    assert sorted(p.name for p in (tmp_path / "in").iterdir()) == [
        f"{n}.jsonl" for n in sorted(NAMES)
    ]
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(StoreError, match="is a file"):
        write_folder(answers, tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert len(RunFolder(write_folder(answers, tmp_path / "empty")).trials()) == 20


def test_an_import_that_fails_half_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = read(files(tmp_path / "in"))
    monkeypatch.setattr("ragassay.exchange.folder._BATCH", 3)
    true_rows = type(answers).rows

    def failing(self: Any) -> Iterator[Any]:
        for number, row in enumerate(true_rows(self)):
            if number == 7:
                raise KeyboardInterrupt
            yield row

    monkeypatch.setattr(type(answers), "rows", failing)
    with pytest.raises(KeyboardInterrupt):
        write_folder(answers, tmp_path / "run")
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("line", ["{}", '{"query_id": "q9", "question": "?", "answer": "x"}'])
def test_a_file_that_changes_between_check_and_import_is_refused(tmp_path: Path, line: str) -> None:
    source = files(tmp_path / "in")
    answers = read(source)
    with source.poisoned_undefended.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match="changed since it was checked"):
        write_folder(answers, tmp_path / "run")
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


# ---------------------------------------------------------------------------------- export


@pytest.mark.parametrize("methods", [1, 3])
def test_four_files_come_back_as_they_went_in(tmp_path: Path, methods: int) -> None:
    source = files(tmp_path / "in", methods=methods)
    write_folder(read(source), tmp_path / "run")
    result = export(tmp_path / "run", tmp_path / "out")
    assert (result.answers, result.left_out) == (10 + 10 * methods, 0)
    pairs = {
        f"guard {m}": (
            result.files[f"clean_defended guard {m}"],
            result.files[f"poisoned_defended guard {m}"],
        )
        for m in range(methods)
    }
    back = replace(
        source,
        clean_undefended=result.files["clean_undefended"],
        poisoned_undefended=result.files["poisoned_undefended"],
        defended={"": pairs["guard 0"]} if methods == 1 else pairs,
    )
    write_folder(read(back), tmp_path / "again")
    same(tmp_path / "run", tmp_path / "again")
    assert all(path.parent == tmp_path / "out" for path in result.files.values())
    assert all(path.name.isascii() for path in result.files.values())


def test_joined_records_come_back_as_they_went_in(tmp_path: Path) -> None:
    write_folder(read(files(tmp_path / "in", methods=2)), tmp_path / "run")
    result = export(tmp_path / "run", tmp_path / "records.json", format="joined")
    assert result.answers == 40
    document = json.loads(result.files["records"].read_text(encoding="utf-8"))
    assert document["kind"] == "external_four_condition_records"
    bare = {key: value for key, value in document.items() if key != "sha256"}
    for key, item in [*document["outputs"].items(), (document["sha256"], bare)]:
        text = json.dumps(item, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert hashlib.sha256(text.encode()).hexdigest() == key
    write_folder(read(Joined(path=result.files["records"])), tmp_path / "again")
    same(tmp_path / "run", tmp_path / "again")
    export(tmp_path / "again", tmp_path / "twice.json", format="joined")
    assert (tmp_path / "twice.json").read_bytes() == (tmp_path / "records.json").read_bytes()


def test_lone_surrogates_come_back_in_four_files_and_are_refused_in_joined_ones(
    tmp_path: Path,
) -> None:
    source = files(tmp_path / "in", ("broken \ud83d text", "whole 🦑"))
    write_folder(read(source), tmp_path / "run")
    result = export(tmp_path / "run", tmp_path / "out")
    for path in result.files.values():
        path.read_bytes().decode("utf-8")
    back = replace(
        source,
        clean_undefended=result.files["clean_undefended"],
        poisoned_undefended=result.files["poisoned_undefended"],
        defended={
            "": (
                result.files["clean_defended guard 0"],
                result.files["poisoned_defended guard 0"],
            )
        },
    )
    write_folder(read(back), tmp_path / "again")
    same(tmp_path / "run", tmp_path / "again")
    with pytest.raises(DataError, match=r"query 'q0', clean_undefended: .*lone surrogate"):
        export(tmp_path / "run", tmp_path / "records.json", format="joined")
    assert not (tmp_path / "records.json").exists()


def test_queries_without_an_answer_are_left_out_and_counted(tmp_path: Path) -> None:
    source = files(tmp_path / "in")
    lines = (tmp_path / "in" / "pd.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "in" / "pd.jsonl").write_text("".join(lines[1:]), encoding="utf-8")
    write_folder(read(source, allow_missing=True), tmp_path / "run")
    result = export(tmp_path / "run", tmp_path / "records.json", format="joined")
    assert (result.answers, result.left_out) == (16, 1)
    result = export(tmp_path / "run", tmp_path / "out")
    assert (result.answers, result.left_out) == (19, 1)


def test_an_ambiguous_or_empty_selection_is_refused(tmp_path: Path) -> None:
    write_folder(read(files(tmp_path / "in")), tmp_path / "run")
    run, out = tmp_path / "run", tmp_path / "out"
    for selection, message in (
        (Selection(attack="drip"), "no answers with --attack 'drip'; there are: 'flood'"),
        (Selection(budget=7), "no answers with --budget '7'; there are: '2'"),
        (Selection(setting=""), "no answers with --setting ''; there are: 'small/towns'"),
        (Selection(defenses=("odd",)), "no answers of the defense 'odd'; there are: 'guard 0'"),
        (Selection(scores=("judge",)), "no scores of 'judge'; there are: none"),
    ):
        with pytest.raises(ConfigError, match=message):
            export(run, out, selection=selection)
    with pytest.raises(ConfigError, match="unknown format 'xml'; known: jsonl, joined"):
        export(run, out, format="xml")
    assert not out.exists()


def test_a_place_that_is_taken_is_refused(tmp_path: Path) -> None:
    write_folder(read(files(tmp_path / "in")), tmp_path / "run")
    with pytest.raises(StoreError, match="is not empty"):
        export(tmp_path / "run", tmp_path / "in")
    with pytest.raises(StoreError, match="is there already"):
        export(tmp_path / "run", tmp_path / "in" / "cu.jsonl", format="joined")


def test_several_attacks_must_be_told_apart(tmp_path: Path) -> None:
    lines = [
        {"query_id": "q", "question": "Who?", "answer": "a", "attack": attack, "budget": budget}
        for attack, budget in (("", 0), ("flood", 1), ("flood", 5), ("drip", 1))
    ]
    path = tmp_path / "long.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_folder(read(Table(path=path)), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"several attacks, choose one .*: 'drip', 'flood'"):
        export(tmp_path / "run", tmp_path / "out")
    with pytest.raises(ConfigError, match=r"several budgets, choose one .*: '1', '5'"):
        export(tmp_path / "run", tmp_path / "out", selection=Selection(attack="flood"))
    with pytest.raises(ConfigError, match="joined records need a defense"):
        export(
            tmp_path / "run",
            tmp_path / "out",
            format="joined",
            selection=Selection(attack="drip"),
        )
    result = export(
        tmp_path / "run", tmp_path / "out", selection=Selection(attack="flood", budget=5)
    )
    assert (result.answers, result.attack, result.budget) == (2, "flood", 5)
    assert set(result.files) == {"clean_undefended", "poisoned_undefended"}


# ---------------------------------------------------------------------------------- scores


def test_scores_go_out_as_csv_without_formulas(tmp_path: Path) -> None:
    answers = ("=cmd()", " @SUM(A1)", "\t+1", "-2", "plain = text", "\n=x", "\ud800")
    source = files(tmp_path / "in", answers)
    write_folder(read(source), tmp_path / "run")
    store = RunFolder(tmp_path / "run")
    with store.writer():
        for key, trial in store.trials().items():
            record = ScoreRecord(
                trial_key=key,
                scorer="endorse",
                version="1",
                target_positive=None if trial.spec.query_id == "q1" else trial.spec.budget > 0,
                correct=None,
                abstained=False,
                uncertain=("target_positive",) if trial.spec.query_id == "q1" else (),
                stance="mentions",
            )
            store.append("scores", key, record)
    result = export(tmp_path / "run", tmp_path / "out", selection=Selection(scores=("endorse",)))
    with result.files["scores"].open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == 28
    assert not any(
        cell.lstrip().startswith(("=", "+", "-", "@")) for row in table for cell in row.values()
    )
    first = [row for row in table if row["query_id"] == "q0"]
    assert {row["answer"] for row in first} == {"'=cmd()"}
    assert [(row["retrieval"], row["defense"], row["target_positive"]) for row in first] == [
        ("clean", "none", "no"),
        ("poisoned", "none", "yes"),
        ("clean", "guard 0", "no"),
        ("poisoned", "guard 0", "yes"),
    ]
    assert {row["target_positive"] for row in table if row["query_id"] == "q1"} == {"uncertain"}
    assert {(row["correct"], row["abstained"], row["stance"]) for row in table} == {
        ("", "no", "mentions")
    }


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", "  =1"])
def test_a_cell_that_could_be_a_formula_starts_with_a_quote(text: str) -> None:
    assert safe_cell(text) == "'" + text


def test_an_export_reads_no_stream_whole_and_leaves_controls_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(read(files(tmp_path / "in")), tmp_path / "run")
    store = RunFolder(tmp_path / "run")
    trials = list(store.trials().values())
    poisoned = [trial for trial in trials if trial.spec.budget]
    with store.writer():
        for trial in trials:
            score = ScoreRecord(trial_key=trial.key, scorer="mine", version="1", abstained=False,
                                target_positive=bool(trial.spec.budget), correct=None)  # fmt: skip
            store.append("scores", trial.key, score)
        for trial in poisoned:
            spec = replace(trial.spec, control="keep none")
            control = replace(trial, key=canon.digest(spec), spec=spec, answer="a control")
            store.append("trials", control.key, control)
    monkeypatch.setattr("ragassay.store.columns._BATCH", 3)
    for name in ("trials", "scores"):
        monkeypatch.setattr(RunFolder, name, None)
    selection = Selection(scores=("mine",))
    result = export(store.path, tmp_path / "out", selection=selection)
    export(store.path, tmp_path / "records.json", format="joined", selection=selection)
    assert result.answers == len(trials) == 20
    with result.files["scores"].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["query_id"] for row in rows] == [f"q{n // 4}" for n in range(20)]
    assert {(row["budget"], row["target_positive"]) for row in rows} == {("0", "no"), ("2", "yes")}
    for file in (*result.files.values(), tmp_path / "records.json"):
        assert "a control" not in file.read_text(encoding="utf-8")
