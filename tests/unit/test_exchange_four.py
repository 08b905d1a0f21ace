"""Four files: what is read, and what does not match up, each with its place."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragassay.errors import ConfigError, DataError
from ragassay.exchange import Answers, FourFiles, read

Edit = Callable[[dict[str, list[dict[str, Any]]]], Any]
NAMES = ("cu", "pu", "cd", "pd")


def invented(n: int = 3) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [
            {
                "query_id": f"q{i}",
                "question": f"Who built harbor {i}?",
                "target": f"rival{i}",
                "references": [f"mason{i}"],
                "answer": f"rival{i}." if name[0] == "p" else f"mason{i}.",
            }
            for i in range(n)
        ]
        for name in NAMES
    }


def source(folder: Path, rows: dict[str, list[dict[str, Any]]], **options: Any) -> FourFiles:
    for name, lines in rows.items():
        text = "".join(json.dumps(row) + "\n" for row in lines)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    paths = {name: folder / f"{name}.jsonl" for name in NAMES}
    return FourFiles(
        clean_undefended=paths["cu"],
        poisoned_undefended=paths["pu"],
        defended=options.pop("defended", {"": (paths["cd"], paths["pd"])}),
        **options,
    )


def refused(folder: Path, edit: Edit, **options: Any) -> str:
    rows = invented()
    edit(rows)
    with pytest.raises(DataError) as caught:
        read(source(folder, rows, **options))
    return str(caught.value)


def places(answers: Answers) -> dict[tuple[str, str, int, str], int]:
    return dict(answers.places)


def test_four_files_give_four_conditions_of_every_query(tmp_path: Path) -> None:
    answers = read(source(tmp_path, invented(), attack="flood", budget=3))
    assert places(answers) == {
        ("", "", 0, "none"): 3,
        ("", "flood", 3, "none"): 3,
        ("", "", 0, "defense"): 3,
        ("", "flood", 3, "defense"): 3,
    }
    assert (answers.count, answers.missing, answers.k) == (12, 0, None)
    assert answers.defenses == ("none", "defense")
    query, target = answers.queries["", "q1"]
    assert (query.id, query.text, query.group) == ("q1", "Who built harbor 1?", "q1")
    assert (target.wanted, target.references) == (("rival1",), ("mason1",))


def test_a_target_is_a_text_a_list_of_aliases_or_nothing(tmp_path: Path) -> None:
    rows = invented(4)
    for name in NAMES:
        rows[name][0]["target"] = ["rival0", "the rival"]
        rows[name][1]["target"] = None
        del rows[name][2]["target"]
        rows[name][3]["references"] = "mason3"
    answers = read(source(tmp_path, rows))
    wanted = [target.wanted for _, target in answers.queries.values()]
    assert wanted == [("rival0", "the rival"), (), (), ("rival3",)]
    assert answers.queries["", "q3"][1].references == ("mason3",)
    assert any("2 of 4 queries have no target" in note for note in answers.notes)


def test_the_defense_is_named_by_the_rows_or_by_the_caller(tmp_path: Path) -> None:
    rows = invented()
    for name in ("cd", "pd"):
        for row in rows[name]:
            row["method"] = "Vote"
    assert read(source(tmp_path, rows)).defenses == ("none", "Vote")
    pair = (tmp_path / "cd.jsonl", tmp_path / "pd.jsonl")
    assert read(source(tmp_path, rows, defended={"mine": pair})).defenses == ("none", "mine")


def test_several_defenses_stand_in_one_pair_of_files_by_method(tmp_path: Path) -> None:
    rows = invented()
    for name in ("cd", "pd"):
        rows[name] = [
            {**row, "method": method} for method in ("Vote", "Trim") for row in rows[name]
        ]
    answers = read(source(tmp_path, rows))
    assert answers.defenses == ("none", "Trim", "Vote")
    assert answers.count == 18


def test_without_defended_files_there_is_no_defense(tmp_path: Path) -> None:
    answers = read(source(tmp_path, invented(), defended={}))
    assert answers.defenses == ("none",)
    assert any("no defense is compared" in note for note in answers.notes)


def test_gzip_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    four = source(tmp_path, invented())
    text = four.clean_undefended.read_bytes()
    four.clean_undefended.write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))
    four.poisoned_undefended.write_bytes(gzip.compress(four.poisoned_undefended.read_bytes()))
    assert read(four).count == 12


@pytest.mark.parametrize(
    ("edit", "parts"),
    [
        (lambda r: r["pd"].pop(1), ("cu.jsonl:2", "'q1'", "no answer in pd.jsonl", "attack p=1")),
        (lambda r: r["cu"].pop(0), ("pu.jsonl:1", "'q0'", "no answer in cu.jsonl")),
        (
            lambda r: r["pu"][2].update(question="Who?"),
            ("pu.jsonl:3", "question of query 'q2' is 'Who?'", "cu.jsonl:3"),
        ),
        (
            lambda r: r["cd"][0].update(target="other"),
            ("cd.jsonl:1", "target of query 'q0' is 'other'", "'rival0' in cu.jsonl:1"),
        ),
        (
            lambda r: r["cd"][0].pop("target"),
            ("cd.jsonl:1", "target of query 'q0' is not given"),
        ),
        (
            lambda r: r["pd"][1].update(references=["mason1", "m."]),
            ("pd.jsonl:2", "references of query 'q1'"),
        ),
        (
            lambda r: r["pd"][1].update(group_id="g7"),
            ("pd.jsonl:2", "group_id of query 'q1' is 'g7'", "'q1' in cu.jsonl:2"),
        ),
        (
            lambda r: r["pu"].append(dict(r["pu"][0])),
            ("pu.jsonl:4", "'q0' has another answer", "before on line 1"),
        ),
        (lambda r: r["cd"].clear(), ("cd.jsonl", "empty")),
        (
            lambda r: r["cu"][1].update(referencs=["m"]),
            ("cu.jsonl:2", "unknown field 'referencs'", "did you mean 'references'?"),
        ),
        (lambda r: r["cu"][0].pop("answer"), ("cu.jsonl:1", "'answer' is missing")),
        (lambda r: r["cu"][0].update(answer=None), ("cu.jsonl:1", "'answer' must be a string")),
        (lambda r: r["cu"][0].update(query_id=""), ("cu.jsonl:1", "'query_id'")),
        (lambda r: r["cu"][0].update(target={"a": 1}), ("cu.jsonl:1", "'target'")),
        (lambda r: r["cu"][0].update(metadata=[1]), ("cu.jsonl:1", "'metadata' must be an object")),
        (
            lambda r: r["pd"][0].update(method="none"),
            ("pd.jsonl:1", "'method' is 'none' in a file of defended answers"),
        ),
    ],
)
def test_what_does_not_match_up_is_named_with_file_and_line(
    tmp_path: Path, edit: Edit, parts: tuple[str, ...]
) -> None:
    message = refused(tmp_path, edit)
    for part in parts:
        assert part in message, message
    assert "nothing was imported" in message


def test_the_first_twenty_problems_are_listed_and_all_are_counted(tmp_path: Path) -> None:
    rows = invented(50)
    for row in rows["pu"]:
        row["question"] = "Another?"
    with pytest.raises(DataError) as caught:
        read(source(tmp_path, rows))
    lines = str(caught.value).splitlines()
    assert lines[0] == "50 problems, nothing was imported; the first 20:"
    assert len(lines) == 21
    assert all(f"pu.jsonl:{n}:" in line for n, line in enumerate(lines[1:], start=1))


def test_problems_of_several_files_come_together(tmp_path: Path) -> None:
    message = refused(tmp_path, lambda r: (r["cu"][0].pop("answer"), r["pd"][2].update(answer=7)))
    assert "2 problems" in message
    assert "cu.jsonl:1:" in message
    assert "pd.jsonl:3:" in message


def test_fields_to_pass_over_are_no_problem(tmp_path: Path) -> None:
    rows = invented()
    for row in rows["cu"]:
        row["latency"] = 3
    assert read(source(tmp_path, rows, ignore=("latency",))).count == 12
    message = refused(tmp_path, lambda r: [row.update(latency=3) for row in r["cu"]])
    assert "problems" not in message  # one field, reported once


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        (lambda raw: raw[:-20], "pu.jsonl:3: the last line is cut off"),
        (lambda raw: raw.replace(b"rival1", b"riv\xe4l1"), "pu.jsonl:2: not UTF-8: byte 0xE4"),
        (lambda raw: raw.replace(b"\n", b"\n\n", 1), "pu.jsonl:2: a blank line"),
        (lambda raw: raw.decode().encode("utf-16"), "pu.jsonl:1: not UTF-8 but UTF-16"),
        (lambda raw: b"[]\n" + raw, "pu.jsonl:1: expected a JSON object"),
        (lambda raw: raw.replace(b'"rival0"', b"NaN"), "pu.jsonl:1: not JSON: NaN"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(
    tmp_path: Path, damage: Callable[[bytes], bytes], part: str
) -> None:
    four = source(tmp_path, invented())
    four.poisoned_undefended.write_bytes(damage(four.poisoned_undefended.read_bytes()))
    with pytest.raises(DataError) as caught:
        read(four)
    assert part in str(caught.value)


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    four = source(tmp_path, invented())
    four.poisoned_undefended.rename(tmp_path / "pu.json")
    with pytest.raises(DataError, match=r"pu\.jsonl: no such file; did you mean 'pu\.json'"):
        read(four)


def test_incomplete_queries_are_imported_only_when_that_is_allowed(tmp_path: Path) -> None:
    rows = invented()
    rows["pd"].pop(1)
    answers = read(source(tmp_path, rows), allow_missing=True)
    assert (answers.count, answers.missing) == (11, 1)
    assert any("1 answers are missing" in note for note in answers.notes)
    rows["pu"][0]["question"] = "Another?"
    with pytest.raises(DataError, match="question of query 'q0'"):
        read(source(tmp_path, rows), allow_missing=True)


def test_names_that_would_pass_for_something_else_are_refused(tmp_path: Path) -> None:
    pair = (tmp_path / "cd.jsonl", tmp_path / "pd.jsonl")
    with pytest.raises(ConfigError, match="budget must be a whole number from 1, got 0"):
        source(tmp_path, invented(), budget=0)
    with pytest.raises(ConfigError, match="attack needs a name"):
        source(tmp_path, invented(), attack=" ")
    with pytest.raises(ConfigError, match="cannot be called 'No_Defense'"):
        source(tmp_path, invented(), defended={"No_Defense": pair})
    with pytest.raises(ConfigError, match=r"cd\.jsonl is given for two conditions"):
        source(tmp_path, invented(), defended={"a": (pair[0], pair[0])})
