"""Released attack formats, by their smallest files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ragassay.data.released import ReleasedTarget, RobustRAGRelease, read_targets
from ragassay.errors import ConfigError, DataError


def save(path: Path, content: Any) -> Path:
    if path.suffix == ".jsonl":
        text = "".join(json.dumps(row) + "\n" for row in content)
    else:
        text = json.dumps(content, indent=1)
    path.write_text(text, encoding="utf-8")
    return path


def plain(targets: tuple[ReleasedTarget, ...]) -> list[tuple[Any, ...]]:
    return [(t.query_id, t.question, t.references, t.wanted, t.texts) for t in targets]


CONVERTED = {
    "query_id": "q1",
    "query": "Who?",
    "correct_answers": ["Ann"],
    "incorrect_answers": ["Bob"],
    "poison_passages": ["Bob did.", "It was Bob."],
}
EXPECTED = [("q1", "Who?", ("Ann",), ("Bob",), ("Bob did.", "It was Bob."))]
TEXTS = CONVERTED["poison_passages"]
POISONEDRAG = {
    "id": "q1",
    "question": "Who?",
    "correct answer": "Ann",
    "incorrect answer": "Bob",
    "adv_texts": TEXTS,
}
ATTACK = {
    "query_id": "q1",
    "query": "Who?",
    "target_answer": "Bob",
    "correct_answers": ["Ann"],
    "method": "gaslite",
    "answer_position": 4,
    "docs": TEXTS,
    "scores": [1.5, 1],
    "llm": "m",
}
ARENA_ATTACK = {
    "id": "q1",
    "question": "Who?",
    "adv_texts": [{"context": "Bob did.", "score": 1.5}, {"context": "It was Bob.", "score": 1}],
    "incorrect_answer": "Bob",
    "answer": ["Ann"],
}
ROBUSTRAG = {
    "question": "Who?",
    "correct answer": ["Ann"],
    "expanded answer": ["Anna"],
    "incorrect answer": "Bob",
    "id": 0,
    "incorrect_context": TEXTS,
    "context": [
        {"title": "T", "text": "Ann did.", "link": "x"},
        {"title": "T", "text": "Ann did."},
        {"title": "no text", "link": "y"},
        {"title": "U", "text": ""},
    ],
}


def test_poisonedrag_json_equals_its_conversion(tmp_path: Path) -> None:
    keyed = read_targets(save(tmp_path / "a.json", {"q1": POISONEDRAG}))
    converted = read_targets(save(tmp_path / "a.jsonl", [CONVERTED]))
    assert plain(keyed) == plain(converted) == EXPECTED
    assert not keyed[0].complete
    assert not converted[0].complete


def test_the_key_is_the_id_where_an_entry_has_none(tmp_path: Path) -> None:
    row = {key: value for key, value in POISONEDRAG.items() if key != "id"}
    assert read_targets(save(tmp_path / "a.json", {"q1": row}))[0].query_id == "q1"


def test_attack_rows_hold_whole_passages_with_scores(tmp_path: Path) -> None:
    (target,) = read_targets(save(tmp_path / "a.jsonl", [ATTACK]))
    assert plain((target,)) == EXPECTED
    assert (target.method, target.variant, target.position) == ("gaslite", "m", 4)
    assert target.scores == (1.5, 1.0)
    assert target.complete


def test_upstream_attack_rows_are_read_alike(tmp_path: Path) -> None:
    (target,) = read_targets(save(tmp_path / "a.json", [ARENA_ATTACK]))
    assert plain((target,)) == EXPECTED
    assert target.scores == (1.5, 1.0)
    assert target.complete


def test_an_untargeted_row_wants_nothing(tmp_path: Path) -> None:
    row = ATTACK | {"target_answer": None, "answer_position": None, "scores": [None, None]}
    (target,) = read_targets(save(tmp_path / "a.jsonl", [row]))
    assert (target.wanted, target.position, target.scores) == ((), 1, ())


def test_an_arena_entry_gives_one_target_per_wrong_answer(tmp_path: Path) -> None:
    row = {
        "query_id": "q1",
        "query": "Who?",
        "correct_answers": ["Ann"],
        "incorrect_answers": ["Bob", "Cy"],
        "adv_docs": [TEXTS, []],
    }
    upstream = {
        "id": "q1",
        "question": "Who?",
        "correct answer": "Ann",
        "all_adv_docs": [
            {"incorrect_answer": "Bob", "adv_texts": TEXTS},
            {"incorrect_answer": "Cy", "adv_texts": []},
        ],
    }
    ours = read_targets(save(tmp_path / "a.jsonl", [row]))
    theirs = read_targets(save(tmp_path / "a.json", {"q1": upstream}))
    assert plain(ours) == plain(theirs)
    assert [(t.position, t.wanted, len(t.texts)) for t in ours] == [
        (1, ("Bob",), 2),
        (2, ("Cy",), 0),
    ]


def test_native_rows_may_mark_whole_passages(tmp_path: Path) -> None:
    row = {"query_id": 3, "target": 2, "wanted": ["Bob", "Bobby"], "texts": TEXTS, "complete": True}
    (target,) = read_targets(save(tmp_path / "a.jsonl", [row]))
    assert (target.query_id, target.position, target.wanted) == ("3", 2, ("Bob", "Bobby"))
    assert target.complete


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (
            [{"a": 1, "b": 2}],
            r":1: unknown layout of targets, keys found: 'a', 'b'\. Known: targets",
        ),
        ([{}], r"keys found: none"),
        ([CONVERTED, ATTACK], r":2: mixed layouts: .*'attack', the first of 'targets'"),
        ([ATTACK | {"scores": [1.0]}], r"2 docs but 1 scores"),
        ([ATTACK | {"scores": ["1", "2"]}], r"expected a number, found a string"),
        ([ATTACK | {"docs": "x"}], r"'docs' must be an array, found a string"),
        ([ATTACK | {"answer_position": 0}], r"'answer_position' must be a whole number from 1"),
        ([ATTACK | {"docs": ["a", None]}], r"'docs' 2 must be a string, found null"),
        ([CONVERTED | {"incorrect_answers": [{}]}], r"found an object"),
        ([CONVERTED | {"query_id": None}], r"'query_id' must be a string or a whole number"),
        (
            [{"query_id": "q", "incorrect_answers": ["a"], "adv_docs": []}],
            r"1 incorrect_answers but 0 lists of adv_docs",
        ),
        (
            [{"query_id": "q", "incorrect_answers": ["a"], "adv_docs": ["a"]}],
            r"'adv_docs' must hold arrays of strings, found a string",
        ),
        ([ARENA_ATTACK | {"adv_texts": [{"context": "a"}]}], r"expected a number, found null"),
        ([ARENA_ATTACK | {"adv_texts": [{"score": 1}]}], r"the key 'context' is missing"),
        (
            [{"query_id": "q", "wanted": "a", "texts": [], "complete": "no"}],
            r"must be true or false",
        ),
    ],
)
def test_malformed_targets_are_refused(tmp_path: Path, rows: list[Any], match: str) -> None:
    with pytest.raises(DataError, match=match) as caught:
        read_targets(save(tmp_path / "a.jsonl", rows))
    assert "\n" not in str(caught.value)


def test_a_json_entry_must_be_an_object(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    row = {key: POISONEDRAG[key] for key in ("question", "incorrect answer", "adv_texts")}
    path.write_text(f"[\n {json.dumps(row)},\n 7]", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.json:3: 'entry' 1 must be an object, found a number"):
        read_targets(path)


def test_robustrag_targets_accept_expanded_answers(tmp_path: Path) -> None:
    (target,) = read_targets(save(tmp_path / "a.json", [ROBUSTRAG]))
    assert plain((target,)) == [("0", "Who?", ("Ann", "Anna"), ("Bob",), tuple(TEXTS))]


def test_robustrag_json_is_a_whole_data_set(tmp_path: Path) -> None:
    clean = {key: ROBUSTRAG[key] for key in ("question", "correct answer", "context")}
    rows = [ROBUSTRAG, clean | {"question": "Why?", "id": 1}]
    data = RobustRAGRelease(path=str(save(tmp_path / "mini.json", rows))).load()
    assert data.name == "mini"
    assert [(p.id, p.title, p.text) for p in data.corpus] == [
        ("p0", "T", "Ann did."),
        ("p1", "U", ""),
    ]
    assert [(q.id, q.group) for q in data.queries] == [("0", "g01"), ("1", "h01")]
    assert data.targets["0"].wanted == ("Bob",)
    assert data.targets["1"].references == ("Ann",)
    assert data.drafts == {"0": tuple(TEXTS)}
    assert not data.has_qrels


def test_robustrag_json_lines_are_read_alike(tmp_path: Path) -> None:
    a = RobustRAGRelease(path=str(save(tmp_path / "a.json", [ROBUSTRAG]))).load()
    b = RobustRAGRelease(path=str(save(tmp_path / "a.jsonl", [ROBUSTRAG]))).load()
    assert a == b


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([ROBUSTRAG, ROBUSTRAG], r"id '0' was already used on line 2"),
        ([POISONEDRAG], r"not in RobustRAG's layout: \{context"),
        ([ROBUSTRAG | {"context": {}}], r"'context' must be an array"),
        ([ROBUSTRAG | {"context": ["x"]}], r"'context' 1 must be an object"),
        ([ROBUSTRAG | {"context": []}], r"all 0 passages are empty"),
        ([ROBUSTRAG | {"question": " "}], r"the question '0' is empty"),
    ],
)
def test_malformed_robustrag_files_are_refused(tmp_path: Path, rows: list[Any], match: str) -> None:
    with pytest.raises(DataError, match=match):
        RobustRAGRelease(path=str(save(tmp_path / "a.json", rows))).load()


def test_robustrag_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="path is empty"):
        RobustRAGRelease(path="")
    with pytest.raises(ConfigError, match="limit = -2"):
        RobustRAGRelease(path="x", limit=-2)
