"""One long file: columns are found or named, values mean something or are asked about."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from ragassay.errors import ConfigError, DataError
from ragassay.exchange import Row, Table, open_file, read
from ragassay.exchange.rows import Problems

HEADER = ["query_id", "question", "answer", "target", "references", "condition"]


def as_csv(rows: list[list[str]], delimiter: str = ",") -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return text.getvalue()


def invented(n: int = 2) -> list[list[str]]:
    return [
        [f"q{i}", f"Who built harbor {i}?", f"{condition} {i}", f"rival{i}", f"mason{i}", condition]
        for i in range(n)
        for condition in (
            "clean_undefended", "poisoned_undefended", "clean_defended", "poisoned_defended",
        )
    ]  # fmt: skip


def table(folder: Path, text: str | bytes, name: str = "long.csv", **options: Any) -> Table:
    path = folder / name
    path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
    return Table(path=path, **options)


def rows(source: Table) -> list[Row]:
    problems = Problems()
    found = list(source.rows(problems))
    problems.raise_any()
    return found


def refused(source: Table) -> str:
    with pytest.raises(DataError) as caught:
        read(source)
    return str(caught.value)


def test_usual_column_names_are_found_without_being_told(tmp_path: Path) -> None:
    source = table(tmp_path, as_csv([HEADER, *invented()]), attack="flood", budget=2)
    answers = read(source)
    assert dict(answers.places) == {
        ("", attack, budget, defense): 2
        for attack, budget in (("", 0), ("flood", 2))
        for defense in ("none", "defense")
    }
    assert answers.notes == ()


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_separator_is_seen_from_the_header(tmp_path: Path, delimiter: str) -> None:
    assert read(table(tmp_path, as_csv([HEADER, *invented()], delimiter))).count == 8


def test_columns_and_values_can_be_named(tmp_path: Path) -> None:
    text = as_csv(
        [
            ["nr", "Frage", "Antwort", "bad", "arm", "guard", "extra"],
            ["1", "Who?", "mason", "rival", "dry", "-", "x"],
            ["1", "Who?", "rival", "rival", "wet", "-", "x"],
            ["1", "Who?", "mason", "rival", "dry", "Vote", "x"],
            ["1", "Who?", "mason", "rival", "wet", "Vote", "x"],
        ]
    )
    columns = {"query_id": "nr", "question": "Frage", "answer": "Antwort", "target": "bad",
               "retrieval": "arm", "defense": "guard"}  # fmt: skip
    values = {"dry": "clean", "wet": "poisoned", "-": "undefended"}
    answers = read(table(tmp_path, text, columns=columns, values=values))
    assert dict(answers.places) == {
        ("", attack, budget, defense): 1
        for attack, budget in (("", 0), ("attack", 1))
        for defense in ("none", "Vote")
    }
    assert any("not used: extra" in note for note in answers.notes)


def test_budget_and_attack_columns_tell_clean_from_poisoned(tmp_path: Path) -> None:
    lines = [
        {"id": 1, "query": "Who?", "response": "a", "attack": attack, "n_poison": budget,
         "model": "small", "dataset": "towns"}
        for attack, budget in (("none", 0), ("flood", 1), ("flood", 5), ("drip", 1))
    ]  # fmt: skip
    text = "".join(json.dumps(line) + "\n" for line in lines)
    answers = read(table(tmp_path, text, "long.jsonl"))
    assert sorted(answers.places) == [
        ("small/towns", "", 0, "none"),
        ("small/towns", "drip", 1, "none"),
        ("small/towns", "flood", 1, "none"),
        ("small/towns", "flood", 5, "none"),
    ]
    assert dict(answers.settings) == {"small/towns": ("small", "towns")}


def test_ids_are_prefixed_only_where_there_are_several_data_sets(tmp_path: Path) -> None:
    header = ["query_id", "question", "answer", "group", "condition", "dataset"]
    lines = [["q1", f"Who, in {data}?", "a", "g", "clean", data] for data in ("north", "south")]
    answers = read(table(tmp_path, as_csv([header, *lines])))
    assert [(q.id, q.group, q.dataset) for q, _ in answers.queries.values()] == [
        ("north/q1", "north/g", "north"),
        ("south/q1", "south/g", "south"),
    ]
    alone = read(table(tmp_path, as_csv([header, lines[0]])))
    assert [(q.id, q.group, q.dataset) for q, _ in alone.queries.values()] == [("q1", "g", "north")]


def test_lists_in_cells_are_json_or_separated(tmp_path: Path) -> None:
    header = ["query_id", "question", "answer", "target", "references", "condition"]
    line = ["q", "Who?", "a", "rival", '["mason", "m; jr"]', "clean"]
    [row] = rows(table(tmp_path, as_csv([header, line])))
    assert row.references == ("mason", "m; jr")
    line[4], line[3] = "mason; m", ""
    [row] = rows(table(tmp_path, as_csv([header, line]), separator=";"))
    assert (row.wanted, row.references) == ((), ("mason", "m"))
    line[4] = "[sic] mason"
    [row] = rows(table(tmp_path, as_csv([header, line])))
    assert row.references == ("[sic] mason",)


def test_hostile_texts_come_through_unchanged(tmp_path: Path) -> None:
    hostile = ['=cmd()\n"two" lines,\r\nand \u2028 more', "\x00<script>", " padded ", ""]
    lines = [[f"q{i}", "Who?", text, "", "", "clean"] for i, text in enumerate(hostile)]
    assert [row.answer for row in rows(table(tmp_path, as_csv([HEADER, *lines])))] == hostile


def test_a_byte_order_mark_and_a_very_long_cell_are_read(tmp_path: Path) -> None:
    long = "word " * 60_000
    text = "\ufeff" + as_csv([HEADER, ["q", "Who?", long, "", "", "clean"]])
    assert [row.answer for row in rows(table(tmp_path, text))] == [long]
    assert csv.field_size_limit() == 131_072


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ("long.csv:1", "empty")),
        (as_csv([HEADER]), ("holds no row",)),
        (as_csv([[*HEADER, "target"]]), ("'target' occurs twice",)),
        (as_csv([HEADER, *invented(), ["q9", "x"]]), ("long.csv:10", "2 cells, the header has 6")),
        (as_csv([HEADER, *invented()]).replace("clean_defended", "odd"),
         ("long.csv:4", "condition 'odd' mean", "--value")),
        (as_csv([[*HEADER[:5], "arm"], *invented()]), ("nothing tells clean from poisoned",)),
        (as_csv([["key", *HEADER[1:]], *invented()]), ("no column for 'query_id'", "found: key")),
        (as_csv([HEADER, *invented()]) + '"open', ("long.csv:10", "not CSV")),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_table_is_named_with_its_line(
    tmp_path: Path, text: str, parts: tuple[str, ...]
) -> None:
    message = refused(table(tmp_path, text))
    for part in parts:
        assert part in message, message


def test_the_line_of_a_row_counts_line_ends_in_cells(tmp_path: Path) -> None:
    lines = [["q0", "Who?", "a\nb\nc", "", "", "clean"], ["q1", "Who?", "a", "", "", "odd"]]
    assert "long.csv:5: what does condition 'odd' mean" in refused(
        table(tmp_path, as_csv([HEADER, *lines]))
    )


@pytest.mark.parametrize(
    ("raw", "part"),
    [
        (as_csv([HEADER, *invented()]).encode().replace(b"q1", b"q\xe9", 1), ":6: not UTF-8: byte"),
        (as_csv([HEADER, *invented()]).encode("utf-16"), ":1: not UTF-8 but UTF-16"),
    ],
)  # fmt: skip
def test_another_encoding_is_refused_with_its_line(tmp_path: Path, raw: bytes, part: str) -> None:
    assert part in refused(table(tmp_path, raw))


def test_a_condition_and_a_defense_that_contradict_are_refused(tmp_path: Path) -> None:
    header = ["query_id", "question", "answer", "condition", "defense"]
    text = as_csv([header, ["q", "Who?", "a", "clean_defended", "none"]])
    assert "long.csv:2: the condition says defended" in refused(table(tmp_path, text))


def test_a_clean_answer_for_each_defense_may_be_missing_only_when_allowed(tmp_path: Path) -> None:
    lines = [line for line in invented() if line[5] != "clean_defended"]
    source = table(tmp_path, as_csv([HEADER, *lines]))
    assert "no answer in clean retrieval, defense defense" in refused(source)
    assert read(source, allow_missing=True).missing == 2


@pytest.mark.parametrize("budget", ["1.5", "-1", "many", "true"])
def test_a_budget_is_a_whole_number(tmp_path: Path, budget: str) -> None:
    header = ["query_id", "question", "answer", "condition", "budget"]
    text = as_csv([header, ["q", "Who?", "a", "poisoned", budget]])
    assert "long.csv:2: 'budget' must be a whole number" in refused(table(tmp_path, text))


def test_a_wrong_mapping_is_refused_by_name(tmp_path: Path) -> None:
    text = as_csv([HEADER, *invented()])
    with pytest.raises(ConfigError, match=r"no field 'anser'; did you mean 'answer'"):
        table(tmp_path, text, columns={"anser": "x"})
    with pytest.raises(ConfigError, match="the meaning must be one of clean"):
        table(tmp_path, text, values={"x": "dirty"})
    assert "no column 'answr' (--map answer=answr); did you mean 'answer'?" in refused(
        table(tmp_path, text, columns={"answer": "answr"})
    )


def test_a_file_is_recognized_by_its_name_and_its_keys(tmp_path: Path) -> None:
    assert open_file(table(tmp_path, as_csv([HEADER, *invented()])).path).layout == "table"
    line = json.dumps(
        {"run": "a", "query_id": "q", "gold": "1", "prediction": "1", "retrieved": []}
    )
    assert open_file(table(tmp_path, line + "\n", "x.jsonl").path).layout == "finqa"
    (tmp_path / "answers.txt").write_text("?", encoding="utf-8")
    with pytest.raises(ConfigError, match="the name tells no format"):
        open_file(tmp_path / "answers.txt")
    with pytest.raises(ConfigError, match="does not take 'attack'"):
        open_file(tmp_path / "x.jsonl", attack="flood")
    with pytest.raises(ConfigError, match="unknown layout 'odd'"):
        open_file(tmp_path / "x.jsonl", layout="odd")
