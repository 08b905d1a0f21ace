from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragassay.attacks.poison_file import PoisonFile
from ragassay.data.assembly import ReleasedTarget
from ragassay.data.paraphrase_file import Paraphrases, check_split, read_paraphrases
from ragassay.data.poison_check import Texts, check_poison, read_texts
from ragassay.data.poison_file import (
    PoisonLine,
    append_poison,
    is_poison_file,
    open_for_append,
    read_poison,
)
from ragassay.data.released import read_targets
from ragassay.errors import ConfigError, DataError, StoreError
from ragassay.types import Cost, Knowledge, Passage, PoisonSet, Target


def line(query_id: str = "q1", *texts: str, **changes: Any) -> PoisonLine:
    texts = texts or (
        "Bacon wrote it.",
        "It was \ud83d\ude00 Bacon".encode("utf-16", "surrogatepass").decode("utf-16"),
    )
    base = PoisonLine(
        key=f"key-{query_id}", question=f"who wrote {query_id}?", asked=len(texts),
        references=("Shakespeare",), provenance={"seed": 12, "options": {"n": 2}},
        poison=PoisonSet(
            attack="mine", attacker="mine", query_id=query_id, wanted=("Bacon", "F. Bacon"),
            passages=tuple(Passage(id=f"{query_id}-{i}", text=t) for i, t in enumerate(texts)),
            knowledge=Knowledge(llm="helper", correct_answer=True),
            cost=Cost(model_calls=3, seconds=0.25, encoder_forwards=4),
            details=tuple({"verified": i == 0, "trials": 3} for i, _ in enumerate(texts)),
        ),
    )  # fmt: skip
    return replace(base, **changes)


def written(path: Path, *lines: PoisonLine) -> Path:
    for each in lines:
        append_poison(path, each)
    return path


def broken(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    row = json.loads(written(path, line()).read_text(encoding="utf-8"))
    change(row)
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    return path


def test_what_is_written_is_read_back_whole(tmp_path: Path) -> None:
    one = line("q1", left_out=(41, 50), asked=4)
    titled = line("q2", "x")
    titled = replace(titled, poison=replace(
        titled.poison, passages=(Passage(id="p", text="x", title="T"),)))  # fmt: skip
    path = written(tmp_path / "deep" / "poison.jsonl", one, titled)
    assert read_poison(path) == (replace(one, line=1), replace(titled, line=2))
    assert is_poison_file(path)


def test_every_line_is_marked_as_injected_and_says_what_was_asked_and_delivered(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "p.jsonl", line("q1", "only one", asked=5))
    row = json.loads(path.read_text(encoding="utf-8"))
    assert row["injected"] is True
    assert (row["asked"], row["delivered"]) == (5, 1)
    assert row["provenance"]["seed"] == 12


def test_readers_of_released_documents_read_it_too(tmp_path: Path) -> None:
    path = written(tmp_path / "p.jsonl", line("q1", "a", "b"))
    [target] = read_targets(path)
    assert (target.query_id, target.question, target.method) == ("q1", "who wrote q1?", "mine")
    assert (target.wanted, target.references) == (("Bacon", "F. Bacon"), ("Shakespeare",))
    assert (target.texts, target.complete) == (("a", "b"), True)


@pytest.mark.parametrize("torn", [b'{"v":1,"kind":"poi', b"\xff\xfe", b"{}"])
def test_a_torn_last_line_is_cut_off_and_what_was_before_is_kept(
    tmp_path: Path, torn: bytes
) -> None:
    path = written(tmp_path / "p.jsonl", line("q1"), line("q2"))
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert [each.poison.query_id for each in open_for_append(path)] == ["q1", "q2"]
    assert path.read_bytes() == whole
    append_poison(path, line("q3"))
    assert [each.poison.query_id for each in read_poison(path)] == ["q1", "q2", "q3"]


def test_a_file_with_nothing_but_a_torn_line_starts_over(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    assert open_for_append(path) == ()
    path.write_bytes(b'{"v":')
    assert open_for_append(path) == ()
    assert path.read_bytes() == b""


def test_a_damaged_line_in_the_middle_is_no_torn_line(tmp_path: Path) -> None:
    path = written(tmp_path / "p.jsonl", line("q1"))
    path.write_bytes(b"{broken\n" + path.read_bytes())
    with pytest.raises(DataError, match=r"p\.jsonl:1: not JSON"):
        open_for_append(path)


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(StoreError, match="cannot be written"):
        append_poison(tmp_path / "file" / "p.jsonl", line())


def test_two_lines_for_one_question_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "p.jsonl", line("q1"), line("q1"))
    with pytest.raises(DataError, match=r"p\.jsonl:2: query 'q1' already has poison on line 1"):
        read_poison(path)


def _set(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda row: row.__setitem__(key, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("injected", False), "not marked"),
        (_set("kind", "trial"), "not a poison set"),
        (_set("v", 2), "version 2"),
        (_set("ids", ["a"]), "2 docs but 1 ids"),
        (_set("ids", ["a", "a"]), "share an id"),
        (_set("details", [{}]), "2 docs but 1 details"),
        (_set("delivered", 7), "delivered is 7"),
        (_set("asked", 0), "'asked' must be a whole number"),
        (_set("docs", "text"), "'docs' must be an array"),
        (_set("knowledge", {}), "knowledge.llm is null"),
        (lambda row: row["knowledge"].update(llm="all"), 'knowledge.llm is "all"'),
        (lambda row: row["knowledge"].update(correct_answer=1), "knowledge.correct_answer is 1"),
        (lambda row: row["cost"].update(seconds=-1), "cost.seconds is -1"),
        (lambda row: row["cost"].update(model_calls="many"), "expected a number"),
        (lambda row: row.pop("key"), "key 'key' is missing"),
    ],
)
def test_every_fault_of_a_line_is_named_with_its_place(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    path = broken(tmp_path / "p.jsonl", change)
    with pytest.raises(DataError, match=r"p\.jsonl:1: ") as error:
        read_poison(path)
    assert message in str(error.value)


# ------------------------------------------------------------------------------ the attack file


TARGET = Target(query_id="q1", wanted=("Bacon", "F. Bacon"))


def test_a_file_is_played_with_the_knowledge_and_cost_of_what_crafted_it(tmp_path: Path) -> None:
    attack = PoisonFile(path=str(written(tmp_path / "p.jsonl", line("q1"), line("q2", "x"))))
    assert attack.play("who wrote q1?", TARGET) == line("q1").poison
    assert attack.knowledge == Knowledge(llm="helper", correct_answer=True)
    assert attack.max_passages == 2


def test_where_a_file_lies_does_not_change_what_it_is(tmp_path: Path) -> None:
    one = PoisonFile(path=str(written(tmp_path / "a.jsonl", line("q1"))))
    two = PoisonFile(path=str(written(tmp_path / "b.jsonl", line("q1"))))
    other = PoisonFile(path=str(written(tmp_path / "c.jsonl", line("q1", "else"))))
    assert one.identity == two.identity != other.identity


@pytest.mark.parametrize(
    ("question", "target", "message"),
    [
        ("who wrote Hamlet?", TARGET, r"p\.jsonl:2: .*made for the question 'who wrote q1\?'"),
        ("who wrote q1?", replace(TARGET, wanted=("Marlowe",)), r"p\.jsonl:2: .*for the target"),
        ("who wrote q9?", replace(TARGET, query_id="q9"), "no poison for query 'q9'; the file"),
    ],
)
def test_a_file_made_for_others_is_refused_with_the_line(
    tmp_path: Path, question: str, target: Target, message: str
) -> None:
    attack = PoisonFile(path=str(written(tmp_path / "p.jsonl", line("q0"), line("q1"))))
    with pytest.raises(DataError, match=message):
        attack.play(question, target)


def test_a_file_of_several_attacks_is_refused(tmp_path: Path) -> None:
    two = line("q2")
    two = replace(two, poison=replace(two.poison, knowledge=Knowledge()))
    path = written(tmp_path / "p.jsonl", line("q1"), two)
    with pytest.raises(DataError, match="different knowledge"):
        PoisonFile(path=str(path))
    with pytest.raises(ConfigError, match="path is empty"):
        PoisonFile(path="")


def test_it_plays_the_same_through_a_view(tmp_path: Path) -> None:
    attack = PoisonFile(path=str(written(tmp_path / "p.jsonl", line("q1"))))

    class Asked:
        question = "who wrote q1?"

    rng = np.random.default_rng(0)
    assert attack.craft(TARGET, Asked(), rng) == line("q1").poison  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------- the check


def texts(*passages: str, **changes: Any) -> Texts:
    target = ReleasedTarget(query_id="q", question="Who wrote Hamlet?", references=("Shakespeare",),
                            wanted=("Bacon",), texts=passages)  # fmt: skip
    return Texts(target=replace(target, **changes))


def test_answers_and_questions_are_found_by_whole_tokens_not_inside_words() -> None:
    report = check_poison("a", [texts(
        "It was bacon.", "Baconian theory", "who wrote hamlet  BACON!", "Shakespeare's play",
    )])  # fmt: skip
    assert (report["target"]["count"], report["target"]["n"]) == (2, 4)
    assert report["correct"]["count"] == 1
    assert report["question"]["count"] == 1
    assert report["target"]["low"] < 0.5 < report["target"]["high"]


def test_untargeted_sets_have_no_share_of_targets_and_answers_of_signs_match_nothing() -> None:
    assert check_poison("a", [texts("x", wanted=())])["target"] is None
    assert check_poison("a", [texts("a - b", wanted=("-",))])["target"] is None


def test_copies_are_counted_as_they_are_and_but_for_spelling() -> None:
    report = check_poison("a", [texts("Bacon.", "Bacon.", "bacon"), texts("Bacon.")])
    assert report["duplicates"] == {"exact": 2, "normalized": 3}


def test_lengths_are_quantiles_of_words() -> None:
    words = check_poison("a", [texts("a", "a b", "a b c", "a b c d", "a b c d e")])["words"]
    assert (words["min"], words["median"], words["max"]) == (1, 3, 5)
    assert words["p25"] == 2
    assert check_poison("a", [texts()])["words"] is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("the womenâ€™s cafÃ©", "mojibake"),
        ("broken \ufffd sign", "replacement"),
        ("bell \x07", "control"),
        ("lone \ud800 half", "control"),
        ("turned \u202e around", "bidi"),
    ],
)
def test_faults_of_encoding_are_counted_by_kind(text: str, fault: str) -> None:
    report = check_poison("a", [texts(text, "the women’s café\n\ttoo")])
    assert report["encoding"] == {
        **dict.fromkeys(("mojibake", "replacement", "control", "bidi"), 0), fault: 1
    }  # fmt: skip


def test_errors_are_what_no_attack_can_mean() -> None:
    def errors(*given: Texts) -> list[str]:
        found = check_poison("a", given)["findings"]
        return [f["message"] for f in found if f["severity"] == "error"]

    assert errors(texts("Bacon")) == []
    assert errors(texts("Bacon", " ?!")) == ["1 of 2 passages have no word"]
    assert errors(texts("Bacon \x07")) == []  # a search over tokens may well find such a one
    assert errors(texts("Bacon"), texts(query_id="q7")) == ["1 questions have no passage: q7"]
    assert errors() == ["1 set without a passage"]


def test_passages_beyond_the_encoders_limit_are_counted() -> None:
    report = check_poison(
        "a", [texts("a b c", "a b c d", "a")], tokens=lambda text: 2 + len(text.split()), limit=5
    )
    assert (report["over_limit"]["count"], report["over_limit"]["n"]) == (1, 3)
    assert report["over_limit"]["limit"] == 5
    assert check_poison("a", [texts("a")])["over_limit"] is None


def test_our_files_say_what_is_unverified_and_short(tmp_path: Path) -> None:
    path = written(
        tmp_path / "p.jsonl", line("q1", "Bacon", "Bacon too"), line("q2", "Bacon", asked=3)
    )
    [(name, found)] = read_texts(path).items()
    report = check_poison(name, found)
    assert (name, report["unverified"], report["asked"]) == ("mine", 1, 5)
    assert report["short"] == ["q2"]
    assert any("fewer passages than asked for: q2" in f["message"] for f in report["findings"])


# --------------------------------------------------------- the released sets, and their table


def table(shared_data: Path) -> dict[str, list[str]]:
    text = (shared_data / "README.md").read_text(encoding="utf-8")
    part = text.split("## Checks of the poison sets")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")]
            for row in part.splitlines() if row.startswith("|")][2:]  # fmt: skip
    return {row[0]: row[1:] for row in rows}


def file_of(name: str, root: Path) -> tuple[Path, str]:
    """The file of a row of the table, and the method within it (empty: the whole file)."""
    first = name.split()[0]
    if first in ("realtimeqa", "simpleqa"):
        return root / first / "targets.jsonl", ""
    folder, _, rest = first.partition("/")
    if folder == "poisonedrag":
        return root / folder / f"targets-{rest}.jsonl", ""
    if name.startswith("poisonarena/base docs"):
        return root / folder / f"arena-{name.split()[-1]}.jsonl", ""
    if folder == "authchain":
        return root / folder / f"poison-{rest}.jsonl", ""
    if folder == "ragdefender":
        dataset, _, method = rest.partition("-")
        return root / folder / f"poison-{dataset}.jsonl.gz", method
    return root / folder / f"{rest.removesuffix('.jsonl')}.jsonl.gz", ""


def counted(name: str, root: Path) -> list[str]:
    path, method = file_of(name, root)
    found = [
        each
        for key, group in read_texts(path).items()
        if not method or key in (method, f"ragdefender_{method}")
        for each in group
    ]
    if "S+I" in name:
        found = [
            replace(each, target=replace(each.target, texts=tuple(
                f"{each.target.question}.{text}" for text in each.target.texts)))
            for each in found
        ]  # fmt: skip
    report = check_poison(name, found)
    shares = [report[key] for key in ("target", "correct", "question")]
    return [
        str(report["passages"]), str(report["duplicates"]["normalized"]),
        *("no target" if share is None else f"{share['value']:.3f}" for share in shares),
    ]  # fmt: skip


def test_the_released_sets_have_the_counts_of_their_table(shared_data: Path) -> None:
    rows = table(shared_data)
    assert len(rows) > 50
    light = {name: row for name, row in rows.items() if int(row[0]) <= 9000}
    wrong = {name: (row, found) for name, row in light.items()
             if (found := counted(name, shared_data)) != row}  # fmt: skip
    assert not wrong


def test_lines_that_serve_several_paraphrases_count_for_each(shared_data: Path) -> None:
    name = "poisonarena/serials-nq-content_poison"
    assert counted(name, shared_data) == table(shared_data)[name]
    with gzip.open(shared_data / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        first = json.loads(file.readline())
    assert len(first["queries"]) > 1


@pytest.mark.parametrize(
    ("name", "noted", "mojibake"),
    [("nq-content_poison", 42, 60), ("nq-garag", 59, 64), ("msmarco-garag", 7, 112),
     ("nq-gaslite", 0, 0)],
)  # fmt: skip
def test_damaged_encoding_in_released_sets_is_found(
    shared_data: Path, name: str, noted: int, mojibake: int
) -> None:
    """The notes of the data count fewer forms; what they count is damaged, and so is more."""
    [(method, found)] = read_texts(shared_data / f"poisonarena/attack-{name}.jsonl.gz").items()
    report = check_poison(method, found)
    assert report["encoding"]["mojibake"] == mojibake >= noted
    assert not [f for f in report["findings"] if f["severity"] == "error"]


# ------------------------------------------------------------------------------- paraphrases


def paraphrase_file(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    path = tmp_path / "paraphrases.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


TEN = [f"wording {n}?" for n in range(10)]


def test_the_first_five_are_to_optimize_on_and_the_others_to_evaluate_on(tmp_path: Path) -> None:
    found = read_paraphrases(paraphrase_file(tmp_path, {"query_id": "q", "paraphrases": TEN}))["q"]
    assert found.optimize == tuple(TEN[:5])
    assert found.evaluate == tuple(TEN[5:])
    assert (found.ids[0], found.ids[9]) == ("q#p1", "q#p10")


def given(*paraphrases: object) -> dict[str, Any]:
    return {"query_id": "q", "paraphrases": list(paraphrases)}


def with_ids(query: str, ids: list[str]) -> dict[str, Any]:
    return {"query_id": query, "paraphrases": [
        {"id": i, "question": f"{query} wording {n}?"} for n, i in enumerate(ids)]}  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([given(*TEN[:9])], ":1: query 'q' has 9 paraphrases, expected 10"),
        ([given(*TEN[:9], "Wording 0")], "'Wording 0'.*must be disjoint"),
        ([given(*TEN[:9], "?!")], "paraphrase 10 of query 'q' has no word"),
        ([given(*TEN[:9], 3)], "must be a string or an object"),
        ([with_ids("q", [*"abcdefghi", "b"])], "'b' names one to optimize on and one to evaluate"),
        ([with_ids("q", [*"abcdefghh", "i"])], "'h' names two paraphrases"),
        ([with_ids("q", [*"abcdefghij"]), with_ids("r", [*"klmno", *"pqrsa"])],
         r":2: paraphrase 'a' is one to evaluate query 'r' on and also one to optimize query 'q'"),
        ([given(*TEN)] * 2, ":2: query 'q' already has paraphrases"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_paraphrases_is_named(
    tmp_path: Path, rows: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_paraphrases(paraphrase_file(tmp_path, *rows))


def test_a_split_that_mixes_the_sides_is_refused_wherever_it_comes_from() -> None:
    mixed = Paraphrases(query_id="q", ids=tuple("abcdefghij"), texts=(*TEN[:9], TEN[0]))
    with pytest.raises(DataError, match="must be disjoint"):
        check_split([mixed])


def test_the_released_paraphrases_read(shared_data: Path) -> None:
    path = shared_data / "poisonarena/paraphrases-nq.jsonl"
    found = read_paraphrases(path)
    assert len(found) == 100
    assert sum(len(each.evaluate) for each in found.values()) == 500
