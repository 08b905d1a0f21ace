"""Folders in the BEIR layout: validation, groups, selection, fingerprint."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ragassay import plugins
from ragassay.data.beir import Beir
from ragassay.errors import ConfigError, DataError

Rows = Iterable[dict[str, Any]]


def lines(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def folder(
    at: Path,
    *,
    corpus: Rows = ({"_id": "d1", "title": "T", "text": "Rome."}, {"_id": "d2", "text": "Oslo."}),
    queries: Rows = (
        {"_id": "q1", "text": "Where?", "metadata": {"correct_answers": ["Rome"]}},
        {"_id": "q2", "text": "Who?", "metadata": {"answers": "Ann"}},
    ),
    qrels: str | None = "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\n",
    targets: Rows | None = (
        {
            "query_id": "q1",
            "query": "Where?",
            "correct_answers": ["Rome", "Roma"],
            "incorrect_answers": ["Oslo"],
            "poison_passages": ["Oslo it is."],
        },
    ),
) -> str:
    lines(at / "corpus.jsonl", corpus)
    lines(at / "queries.jsonl", queries)
    if qrels is not None:
        (at / "qrels").mkdir(exist_ok=True)
        (at / "qrels" / "test.tsv").write_text(qrels, encoding="utf-8")
    if targets is not None:
        lines(at / "targets.jsonl", targets)
    return str(at)


def many(count: int, targeted: int, **metadata: Any) -> dict[str, Any]:
    return {
        "queries": [{"_id": f"q{n}", "text": f"Q{n}?", "metadata": metadata} for n in range(count)],
        "targets": [
            {"query_id": f"q{n}", "target": 1, "wanted": [f"w{n}"], "texts": [f"t{n}"]}
            for n in reversed(range(targeted))
        ],
        "qrels": None,
    }


def refused(path: str, match: str, **options: Any) -> None:
    with pytest.raises(DataError, match=match) as caught:
        Beir(path=path, **options).load()
    assert "\n" not in str(caught.value)


def test_a_folder_becomes_a_data_set(tmp_path: Path) -> None:
    data = Beir(path=folder(tmp_path / "tiny")).load()
    assert data.name == "tiny"
    assert [(p.id, p.title, p.text) for p in data.corpus] == [
        ("d1", "T", "Rome."),
        ("d2", "", "Oslo."),
    ]
    assert [(q.id, q.text, q.group) for q in data.queries] == [
        ("q1", "Where?", "g01"),
        ("q2", "Who?", "h01"),
    ]
    assert data.targets["q1"].references == ("Rome", "Roma")
    assert data.targets["q1"].wanted == ("Oslo",)
    assert data.targets["q1"].gold_ids == ("d1",)
    assert data.targets["q2"].references == ("Ann",)
    assert data.targets["q2"].wanted == ()
    assert data.drafts == {"q1": ("Oslo it is.",)}
    assert data.has_qrels
    assert data.metadata["q1"]["correct_answers"] == ["Rome"]
    assert data.metadata["q1"]["released_target"]["complete"] is False  # type: ignore[index,call-overload]


def test_the_entry_point_builds_it(tmp_path: Path) -> None:
    found = plugins.find("dataset", "beir")
    reader = plugins.build(found, {"path": folder(tmp_path), "groups": ["g01"]})
    assert reader.load().targets["q1"].wanted == ("Oslo",)
    assert plugins.summary(found.cls).endswith("any released format.")


def test_number_ids_become_strings(tmp_path: Path) -> None:
    path = folder(
        tmp_path,
        corpus=[{"_id": 7, "text": "a"}, {"_id": "8", "text": "b"}],
        queries=[{"_id": 1, "text": "Q?"}],
        qrels="1\t7\t1\n1\t8\t2\n",
        targets=[{"query_id": 1, "wanted": "x", "texts": ["x"]}],
    )
    data = Beir(path=path).load()
    assert [p.id for p in data.corpus] == ["7", "8"]
    assert data.targets["1"].gold_ids == ("7", "8")
    assert data.drafts == {"1": ("x",)}


def test_ids_that_are_equal_as_strings_collide(tmp_path: Path) -> None:
    path = folder(tmp_path, corpus=[{"_id": 7, "text": "a"}, {"_id": "7", "text": "b"}])
    refused(path, r"corpus\.jsonl:2: id '7' was already used on line 1")


@pytest.mark.parametrize(
    ("part", "rows", "match"),
    [
        (
            "corpus",
            [{"id": "d1", "text": "a"}],
            r":1: the key '_id' is missing, found 'id', 'text'",
        ),
        ("corpus", [{"_id": "d1", "body": "a"}], r"'text' is missing, found '_id', 'body'"),
        ("corpus", [{"_id": "d1", "text": None}], r"'text' must be a string, found null"),
        ("corpus", [{"_id": "d1", "text": ["a"]}], r"'text' must be a string, found an array"),
        ("corpus", [{"_id": "d1", "text": "a", "title": 3}], r"'title' must be a string"),
        ("corpus", [{"_id": True, "text": "a"}], r"'_id' must be a string or a whole number"),
        ("corpus", [{"_id": 1.5, "text": "a"}], r"'_id' must be .*found a number"),
        ("corpus", [{"_id": "", "text": "a"}], r"'_id' must be .*found an empty string"),
        ("corpus", [], r"the file is empty"),
        ("corpus", [{"_id": "a", "text": ""}, {"_id": "b", "text": " "}], r"all 2 passages are e"),
        ("queries", [{"_id": "q1", "text": " "}], r":1: the question 'q1' is empty"),
        ("queries", [{"_id": "q1", "text": "a"}] * 2, r":2: id 'q1' was already used on line 1"),
        ("queries", [{"_id": "q1", "text": "a", "metadata": []}], r"must be an object"),
        (
            "queries",
            [{"_id": "q1", "text": "a", "metadata": {"answers": [True]}}],
            r"'answers' must be a string or an array of strings, found true",
        ),
    ],
)
def test_malformed_rows_are_refused(tmp_path: Path, part: str, rows: Rows, match: str) -> None:
    refused(folder(tmp_path, **{part: rows}), match)  # type: ignore[arg-type]


def test_one_empty_passage_is_kept(tmp_path: Path) -> None:
    path = folder(tmp_path, corpus=[{"_id": "d1", "text": ""}, {"_id": "d2", "text": "a"}])
    assert [p.text for p in Beir(path=path).load().corpus] == ["", "a"]


def test_dangling_qrels_are_counted_and_the_first_shown_with_lines(tmp_path: Path) -> None:
    rows = "".join(f"q1\tx{n}\t1\n" for n in range(7)) + "q9\td1\t1\n"
    refused(
        folder(tmp_path, qrels="query-id\tcorpus-id\tscore\n" + rows),
        r"test\.tsv: 8 unknown ids: passage 'x0' \(line 2\).*passage 'x4' \(line 6\) and 3 more",
    )


@pytest.mark.parametrize(
    ("qrels", "match"),
    [
        ("q1\td1\n", r":1: expected 3 columns"),
        ("q1 0 d1 1\n", r":1: expected 3 columns .*, found 1"),
        ("query-id\tcorpus-id\tscore\nq1\td1\thigh\n", r":2: score 'high' is not a number"),
        ("q1\td1\tnan\nq1\td1\tnan\n", r":2: score 'nan' is not a number"),
        ("q1\td1\t1\nq1\td1\t0\n", r":2: query 'q1', passage 'd1' has both score 1 and 0"),
        ("", "the file is empty"),
    ],
)
def test_malformed_qrels_are_refused(tmp_path: Path, qrels: str, match: str) -> None:
    refused(folder(tmp_path, qrels=qrels), match)


def test_without_qrels_relevance_is_unknown(tmp_path: Path) -> None:
    data = Beir(path=folder(tmp_path, qrels=None)).load()
    assert not data.has_qrels
    assert data.targets["q1"].gold_ids == ()


def test_several_qrels_need_a_choice_unless_one_is_test(tmp_path: Path) -> None:
    path = folder(tmp_path, qrels=None)
    (tmp_path / "qrels").mkdir()
    for split in ("dev", "train"):
        (tmp_path / "qrels" / f"{split}.tsv").write_text("q1\td1\t1\n", encoding="utf-8")
    refused(path, r"qrels: holds dev\.tsv, train\.tsv: say which")
    assert Beir(path=path, qrels="qrels/dev.tsv").load().targets["q1"].gold_ids == ("d1",)
    (tmp_path / "qrels" / "test.tsv").write_text("q1\td2\t1\n", encoding="utf-8")
    assert Beir(path=path).load().targets["q1"].gold_ids == ("d2",)


def test_missing_parts_name_the_nearest_file(tmp_path: Path) -> None:
    path = folder(tmp_path / "data")
    (tmp_path / "data" / "corpus.jsonl").rename(tmp_path / "data" / "corpse.jsonl")
    refused(path, r"has no corpus\.jsonl or corpus\.jsonl\.gz; did you mean 'corpse\.jsonl'\?")
    refused(str(tmp_path / "dat"), r"no such folder; did you mean 'data'\?")
    refused(path, r"no such file; did you mean 'corpse", corpus="corpses.jsonl")


def test_gzip_files_are_found_and_two_versions_are_ambiguous(tmp_path: Path) -> None:
    path = folder(tmp_path)
    plain = tmp_path / "queries.jsonl"
    (tmp_path / "queries.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    refused(path, r"holds both queries\.jsonl and queries\.jsonl\.gz")
    before = Beir(path=path, queries="queries.jsonl").load()
    plain.unlink()
    assert Beir(path=path).load().fingerprint == before.fingerprint


def test_targets_may_lie_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path / "data", targets=None)
    assert Beir(path=path).load().drafts == {}
    row = {"query_id": "q2", "wanted": ["Bob"], "texts": ["Bob."]}
    lines(tmp_path / "mine.jsonl", [row])
    monkeypatch.chdir(tmp_path)
    for given in ("mine.jsonl", str(tmp_path / "mine.jsonl")):
        assert Beir(path=path, targets=given).load().drafts == {"q2": ("Bob.",)}
    refused(path, "no such file", targets="nine.jsonl")


def test_targets_of_unknown_questions_are_refused(tmp_path: Path) -> None:
    rows = [{"query_id": f"x{n}", "wanted": ["a"], "texts": ["a"]} for n in range(6)]
    refused(
        folder(tmp_path, targets=rows),
        r"targets\.jsonl: 6 targets are for unknown query ids: 'x0' \(line 1\).* and 1 more",
    )


def test_a_target_must_ask_the_same_question(tmp_path: Path) -> None:
    row = {"query_id": "q1", "query": " Where?\n", "wanted": ["a"], "texts": ["a"]}
    assert Beir(path=folder(tmp_path, targets=[row])).load().drafts
    refused(
        folder(tmp_path, targets=[row | {"query": "When?"}]),
        r"targets\.jsonl:1: the target of query 'q1' asks 'When\?', the query 'Where\?'",
    )


def test_the_same_target_twice_is_refused(tmp_path: Path) -> None:
    row = {"query_id": "q1", "wanted": ["a"], "texts": ["a"], "method": "m"}
    refused(
        folder(tmp_path, targets=[row, row]),
        r":2: target 1 of query 'q1' was already given on line 1 \(m, m\)",
    )


def test_groups_are_blocks_in_the_order_of_the_targets(tmp_path: Path) -> None:
    data = Beir(path=folder(tmp_path, **many(7, 5)), group_size=2).load()
    assert [(q.id, q.group) for q in data.queries] == [
        ("q4", "g01"),
        ("q3", "g01"),
        ("q2", "g02"),
        ("q1", "g02"),
        ("q0", "g03"),
        ("q5", "h01"),
        ("q6", "h01"),
    ]


def test_groups_of_the_metadata_are_kept_and_must_be_complete(tmp_path: Path) -> None:
    parts = many(2, 2, group=3)
    assert {q.group for q in Beir(path=folder(tmp_path, **parts)).load().queries} == {"3"}
    del parts["queries"][0]["metadata"]
    refused(folder(tmp_path, **parts), r"group is given for 1 of 2 .* not for 'q0'")


def test_limit_and_groups_take_targets_away_but_no_question(tmp_path: Path) -> None:
    path = folder(tmp_path, **many(7, 5))
    whole = Beir(path=path, group_size=2).load()
    part = Beir(path=path, group_size=2, limit=3).load()
    second = Beir(path=path, group_size=2, groups=("g02",)).load()
    assert list(part.drafts) == ["q4", "q3", "q2"]
    assert list(second.drafts) == ["q2", "q1"]
    for data in (part, second):
        assert {q.id: q.group for q in data.queries} == {q.id: q.group for q in whole.queries}
        assert set(data.targets) == set(whole.targets)
        assert {key for key, target in data.targets.items() if target.wanted} == set(data.drafts)
    assert [q.id for q in second.queries] == ["q2", "q1", "q4", "q3", "q0", "q5", "q6"]
    assert len({data.fingerprint for data in (whole, part, second)}) == 3


def test_one_of_several_targets_is_chosen(tmp_path: Path) -> None:
    rows = [
        {"query_id": "q1", "target": n, "wanted": [f"w{n}"], "texts": [f"t{n}"]} for n in (1, 2)
    ]
    path = folder(tmp_path, targets=rows)
    assert Beir(path=path).load().drafts == {"q1": ("t1",)}
    assert Beir(path=path, target=2).load().targets["q1"].wanted == ("w2",)
    with pytest.raises(ConfigError, match=r"target = 3, but .*targets\.jsonl offers 1, 2 for"):
        Beir(path=path, target=3).load()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"limit": -1}, "limit = -1"),
        ({"group_size": 0}, "group_size = 0"),
        ({"target": 0}, "target = 0"),
        ({"groups": ("a", "a")}, "different, non-empty"),
        ({"path": ""}, "path is empty"),
    ],
)
def test_wrong_options_are_refused_when_built(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Beir(**({"path": "x"} | options))


def test_an_unknown_group_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"in group 'g1'; did you mean 'g01'\? Groups: g01"):
        Beir(path=folder(tmp_path), groups=("g1",)).load()
    with pytest.raises(ConfigError, match="for want of targets"):
        Beir(path=folder(tmp_path / "b", targets=None), groups=("g1",)).load()


def test_the_fingerprint_follows_content_only(tmp_path: Path) -> None:
    prints = {
        "base": {},
        "text": {
            "corpus": [{"_id": "d1", "title": "T", "text": "Rome!"}, {"_id": "d2", "text": "Oslo."}]
        },
        "title": {
            "corpus": [{"_id": "d1", "title": "U", "text": "Rome."}, {"_id": "d2", "text": "Oslo."}]
        },
        "qrels": {"qrels": "q1\td1\t1\nq1\td2\t1\n"},
        "targets": {"targets": [{"query_id": "q1", "wanted": ["Oslo"], "texts": ["It is Oslo."]}]},
    }
    found = {
        name: Beir(path=folder(tmp_path / name, **parts)).load().fingerprint
        for name, parts in prints.items()
    }
    assert len(set(found.values())) == len(prints)
    assert all(len(value) == 64 for value in found.values())
    moved = Beir(path=folder(tmp_path / "elsewhere"), name="other").load()
    assert moved.fingerprint == found["base"]
