"""Completed audits of the Aligned RAG Evaluation artifact become packets with labels."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ragassay.audit.agree import agree
from ragassay.audit.labels import annotators, read_labels
from ragassay.audit.packet import read_key, read_packet
from ragassay.audit.released import import_completed, input_id
from ragassay.cli.audit import audit_app
from ragassay.errors import DataError, StoreError

YES, NO, NA = "yes", "no", "not_applicable"


def judgment(n: int, **changes: Any) -> dict[str, Any]:
    target = None if n == 4 else f"rival {n}"
    given = {
        "question": f"Who built harbor {n}?", "target": target, "references": [f"mason {n}"],
        "reference_source": "invented", "answer": f"It was rival {n}, café “{n}”.",
    }  # fmt: skip
    return {
        "input": given, "target_endorsed": NA if target is None else YES, "reference_correct": NO,
        "abstains": NO, "target_evidence": "" if target is None else f"rival {n}",
        "reference_evidence": "", "reviewer": "A. Person", "rationale": f"Says so ({n}).",
        **changes,
    }  # fmt: skip


def key_of(given: dict[str, Any], **options: Any) -> str:
    text = json.dumps(given, sort_keys=True, ensure_ascii=False, **options)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def completed(judgments: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    by_id = {key_of(each["input"]): each for each in judgments}
    ids = list(by_id)
    return {
        "kind": "headline_human_audit", "judge_sha256": "0" * 64, "sources": {"s": "1" * 64},
        "sampling": {
            "seed": 42, "population": 50, "selected_ids": ids, "random_ids": ids[:3],
            "targeted_reasons": {each: ["flip_before"] if i % 2 else [] for i, each in
                                 enumerate(ids)},
        },
        "judgments": by_id, "input_signature": "2" * 64, **changes,
    }  # fmt: skip


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")
    return path


def test_a_completed_audit_becomes_a_packet_with_its_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "done.json", completed([judgment(n) for n in range(6)]))
    found = import_completed(path, tmp_path / "p")
    assert found.labels == {"A.-Person": 6}
    assert found.reviewers == {"A.-Person": "A. Person"}
    assert (found.unlabeled, found.by_models, found.evidence_missing) == (0, 0, 0)
    packet = read_packet(tmp_path / "p")
    assert (packet.answers, packet.seed, len(packet.items)) == (50, 42, 6)
    assert [item.id for item in packet.items] == sorted(item.id for item in packet.items)
    labels = read_labels(packet, "A.-Person")
    for item in packet.items:
        label = labels[item.id]
        expected = NA if item.target is None else YES
        assert label.labels["target_endorsed"] == expected
        assert label.comment.startswith("Says so")
        assert label.evidence == ({} if item.target is None else {"target_endorsed": item.target})


def test_inclusion_is_known_for_the_random_part_alone(tmp_path: Path) -> None:
    value = completed([judgment(n) for n in range(6)])
    import_completed(write(tmp_path / "done.json", value), tmp_path / "p")
    key, packet = read_key(tmp_path / "p"), read_packet(tmp_path / "p")
    assert (packet.design.random, packet.design.known) == (3, False)
    random = set(value["sampling"]["random_ids"])
    for item, entry in key.items.items():
        assert entry.inclusion == (3 / 50 if item in random else None)
        assert entry.drawn_by == (("random",) if item in random else ("targeted",))
    [target, *_] = agree(tmp_path / "p", draws=50)["population"]
    assert target["answers"][YES]["n"] == 3
    assert "random part alone" in target["reason"]


@pytest.mark.parametrize("kind", ["factorial_review", "aligned_rag_eval_audit_packet"])
def test_packets_of_all_answers_are_a_census(tmp_path: Path, kind: str) -> None:
    value = completed([judgment(n) for n in range(5)], kind=kind)
    del value["sampling"]
    import_completed(write(tmp_path / "done.json", value), tmp_path / "p")
    [target, *_] = agree(tmp_path / "p", draws=50)["population"]
    assert target["reason"] == ""
    assert (target["answers"][YES]["low"], target["answers"][YES]["high"]) == (1.0, 1.0)


def test_ids_may_be_digests_of_compact_json(tmp_path: Path) -> None:
    each = judgment(1)
    value = completed([each])
    compact = key_of(each["input"], separators=(",", ":"))
    value["judgments"] = {compact: each}
    value["sampling"] |= {"selected_ids": [compact], "random_ids": []}
    assert import_completed(write(tmp_path / "a.json", value), tmp_path / "p").labels
    assert input_id(each["input"]) == key_of(each["input"])


def test_an_input_that_was_changed_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    value = completed([judgment(n) for n in range(3)])
    next(iter(value["judgments"].values()))["input"]["answer"] += "!"
    with pytest.raises(DataError, match="not the SHA-256 of its input"):
        import_completed(write(tmp_path / "done.json", value), tmp_path / "p")
    assert not (tmp_path / "p").exists()


def test_what_cannot_be_taken_over_is_counted(tmp_path: Path) -> None:
    bare = judgment(7)
    bare["input"]["references"] = []
    rows = [
        judgment(0, reviewer="model:judge"),
        judgment(1, abstains=None),
        judgment(2, target_evidence="words of nobody"),
        bare,
    ]
    found = import_completed(write(tmp_path / "done.json", completed(rows)), tmp_path / "p")
    assert found.labels == {"A.-Person": 2}
    assert (found.by_models, found.unlabeled) == (1, 1)
    assert (found.evidence_missing, found.not_applicable) == (1, 1)
    packet = read_packet(tmp_path / "p")
    assert annotators(tmp_path / "p") == ["A.-Person"]
    [item] = [each for each in packet.items if not each.references]
    assert read_labels(packet, "A.-Person")[item.id].labels["reference_correct"] == NA


def test_reviewers_get_different_names_that_are_safe(tmp_path: Path) -> None:
    reviewers = ["../../etc/passwd", "ÄÖ", "", "Ann", "ann", "x" * 90, "a/b", "a b"]
    rows = [judgment(n + 10, reviewer=name) for n, name in enumerate(reviewers)]
    found = import_completed(write(tmp_path / "done.json", completed(rows)), tmp_path / "p")
    assert len({name.lower() for name in found.labels}) == len(reviewers)
    assert set(found.reviewers.values()) == set(reviewers)
    files = {path.name for path in (tmp_path / "p" / "labels").iterdir()}
    assert files == {f"{name}.jsonl" for name in found.labels}
    assert sorted(tmp_path.iterdir()) == [tmp_path / "done.json", tmp_path / "p"]
    assert len(agree(tmp_path / "p", draws=20)["annotators"]) == len(reviewers)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: v | {"kind": "factorial_records"}, "kind is 'factorial_records'"),
        (lambda v: v | {"judgments": {}}, "has no 'judgments'"),
        (lambda v: v | {"judgments": {"a": {}}}, "judgment 'a' has no 'input'"),
        (lambda v: {k: x for k, x in v.items() if k != "sampling"}, "'sampling' is incomplete"),
        (lambda v: v | {"sampling": v["sampling"] | {"selected_ids": []}}, "different items"),
        (lambda v: v | {"sampling": v["sampling"] | {"random_ids": ["x"]}}, "different items"),
        (lambda v: v | {"sampling": v["sampling"] | {"population": 1}}, "a population of 1"),
        (lambda v: [v], "kind is None"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    value = change(completed([judgment(n) for n in range(3)]))
    with pytest.raises(DataError, match=said):
        import_completed(write(tmp_path / "done.json", value), tmp_path / "p")
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target_endorsed": "maybe"}, "got 'maybe'"),
        ({"target_endorsed": NA}, "this item has a target"),
        ({"abstains": ["no"]}, "abstains"),
    ],
)
def test_an_impossible_label_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    value = completed([judgment(0), judgment(1, **changes)])
    with pytest.raises(DataError, match=said):
        import_completed(write(tmp_path / "done.json", value), tmp_path / "p")
    assert not (tmp_path / "p").exists()


def test_a_folder_that_holds_something_is_not_written_into(tmp_path: Path) -> None:
    path = write(tmp_path / "done.json", completed([judgment(0)]))
    import_completed(path, tmp_path / "p")
    with pytest.raises(StoreError, match="is not empty"):
        import_completed(path, tmp_path / "p")


# ------------------------------------------------------------------------------- JSON lines


def line(n: int, **changes: Any) -> str:
    each = judgment(n)
    human = {name: each[name] for name in ("target_endorsed", "reference_correct", "abstains")}
    row = {"id": key_of(each["input"]), **each["input"], "human": human, **changes}
    return json.dumps(row, ensure_ascii=False)


def test_lines_with_human_labels_import_without_a_design(tmp_path: Path) -> None:
    path = tmp_path / "dev.jsonl"
    path.write_text("\n".join(line(n) for n in range(4)) + "\n", encoding="utf-8")
    found = import_completed(path, tmp_path / "p")
    assert found.labels == {"reviewer": 4}
    [target, *_] = agree(tmp_path / "p", draws=50)["population"]
    assert target["answers"] is None
    assert "no random part" in target["reason"]


def test_a_single_line_is_not_taken_for_another_kind_of_file(tmp_path: Path) -> None:
    path = tmp_path / "dev.jsonl"
    path.write_text(line(0), encoding="utf-8")
    assert import_completed(path, tmp_path / "p").labels == {"reviewer": 1}


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ("{}", r":2: not a line"),
        ("nonsense", r":2: not a line"),
        (line(0), r":2: .* is on line 1 already"),
        (line(1, references="mason"), "line 2: question, answer, target"),
        (line(1, answer=None), "line 2: question, answer, target"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, second: str, said: str) -> None:
    path = tmp_path / "dev.jsonl"
    path.write_text(f"{line(0)}\n{second}\n", encoding="utf-8")
    with pytest.raises(DataError, match=said):
        import_completed(path, tmp_path / "p")


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xff\xfe\x00", b"{"])
def test_a_file_that_holds_nothing_readable_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "dev.jsonl"
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"dev\.jsonl"):
        import_completed(path, tmp_path / "p")


def test_the_command_says_what_was_imported(tmp_path: Path) -> None:
    rows = [judgment(0), judgment(1, reviewer="model:x")]
    path = write(tmp_path / "done.json", completed(rows))
    arguments = ["import", str(path), "--out", str(tmp_path / "p")]
    result = CliRunner().invoke(audit_app, arguments, catch_exceptions=False)
    assert "2 answers" in result.output
    assert "A.-Person: 1" in result.output
    assert "1 labels by models left out" in result.output
    assert "random part alone (2 answers)" in result.output


# --------------------------------------------------------------------------------- real data


def test_the_visible_half_of_the_released_audit_imports(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "human-audit" / "audit-dev.jsonl"
    if not path.is_file():
        pytest.skip(f"the human audit is not at {path}")
    rows = [json.loads(each) for each in path.read_text(encoding="utf-8").split("\n") if each]
    names = ("question", "target", "references", "reference_source", "answer")
    assert all(row["id"] == input_id({name: row[name] for name in names}) for row in rows)
    found = import_completed(path, tmp_path / "p")
    assert found.labels == {"reviewer": 50}
    labels = read_labels(read_packet(tmp_path / "p"), "reviewer").values()
    counts = Counter(each.labels["target_endorsed"] for each in labels)
    assert counts == {YES: 7, NO: 41, NA: 2}
