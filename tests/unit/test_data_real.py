"""The real, converted data sets: what is in them, and that released forms agree."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest

from ragassay.data.beir import Beir
from ragassay.data.check import check, has_mojibake
from ragassay.data.released import ReleasedTarget, RobustRAGRelease, read_targets
from ragassay.errors import DataError


def rows(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def plain(targets: tuple[ReleasedTarget, ...]) -> list[tuple[Any, ...]]:
    return [(t.query_id, t.question, t.references, t.wanted, t.texts, t.complete) for t in targets]


def test_realtimeqa_has_ten_groups_of_ten_with_five_texts_each(shared_data: Path) -> None:
    data = Beir(path=str(shared_data / "realtimeqa")).load()
    assert len(data.corpus) == 4621
    assert len(data.queries) == 100
    groups = [query.group for query in data.queries]
    assert {group: groups.count(group) for group in groups} == {
        f"g{n:02d}": 10 for n in range(1, 11)
    }
    assert all(len(texts) == 5 for texts in data.drafts.values())
    assert all(target.wanted and target.references for target in data.targets.values())
    assert sum(len(target.gold_ids) for target in data.targets.values()) == 1226
    assert data.targets["rtqaq0"].references == ("15%", "0.15", "Fifteen percent")
    assert data.fingerprint == Beir(path=str(shared_data / "realtimeqa")).load().fingerprint


def test_realtimeqa_check_gives_the_share_of_texts_without_their_answer(shared_data: Path) -> None:
    findings = check(Beir(path=str(shared_data / "realtimeqa")).load())
    assert not [finding for finding in findings if finding.severity == "error"]
    assert any("64 of 500 texts (12.8%) do not contain" in finding.message for finding in findings)


def test_ten_thousand_passages_load_quickly(shared_data: Path) -> None:
    start = time.process_time()
    data = Beir(path=str(shared_data / "simpleqa")).load()
    seconds = time.process_time() - start
    assert (len(data.corpus), len(data.drafts)) == (8592, 500)
    assert seconds < 1.5  # 0.2 s on an idle machine


def test_a_compressed_set_without_targets_loads(shared_data: Path) -> None:
    data = Beir(path=str(shared_data / "nq-gold")).load()
    assert (len(data.corpus), len(data.queries), len(data.drafts)) == (2600, 2655, 0)
    assert all(target.gold_ids and not target.wanted for target in data.targets.values())
    assert data.queries[0].group == "h01"


def test_fever_keeps_the_claims_without_a_target(shared_data: Path) -> None:
    data = Beir(path=str(shared_data / "fever")).load()
    assert len(data.queries) == 706
    assert sum(bool(target.wanted) for target in data.targets.values()) == 237
    assert data.targets["fvq0"].wanted == ("SUPPORTS",)


@pytest.mark.parametrize("name", ["hotpotqa", "nq-garag", "cuad", "finqa", "pubmedqa", "tatqa"])
def test_the_other_sets_load(shared_data: Path, name: str) -> None:
    data = Beir(path=str(shared_data / name)).load()
    assert data.has_qrels == (name != "nq-garag")
    assert not [finding for finding in check(data) if finding.severity == "error"]


@pytest.mark.parametrize("name", ["nq", "hotpotqa", "msmarco"])
def test_poisonedrag_release_and_conversion_agree(
    shared_data: Path, tmp_path: Path, name: str
) -> None:
    path = shared_data / "poisonedrag" / f"targets-{name}.jsonl"
    upstream = {
        row["query_id"]: {
            "id": row["query_id"],
            "question": row["query"],
            "correct answer": row["correct_answers"][0],
            "incorrect answer": row["incorrect_answers"][0],
            "adv_texts": row["poison_passages"],
        }
        for row in rows(path)
    }
    (tmp_path / "up.json").write_text(json.dumps(upstream, indent=4), encoding="utf-8")
    targets = read_targets(path)
    assert len(targets) == 100
    assert all(len(target.texts) == 5 and not target.complete for target in targets)
    assert plain(read_targets(tmp_path / "up.json")) == plain(targets)


def test_poisonarena_attacks_have_six_targets_and_choose_by_number(shared_data: Path) -> None:
    folder = shared_data / "poisonarena"
    for path in sorted(folder.glob("attack-*.jsonl.gz")):
        targets = read_targets(path)
        assert all(target.complete and len(target.texts) == 5 for target in targets)
        assert all(len(target.scores) == len(target.texts) for target in targets)
        positions = {target.position for target in targets}
        assert positions == ({1} if "garag" in path.name else set(range(1, 7)))
    garag = read_targets(folder / "attack-nq-garag.jsonl.gz")
    assert all(target.wanted == () for target in garag)
    assert sum(has_mojibake(text) for target in garag for text in target.texts) == 64


def test_several_variants_of_one_target_are_refused(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "poisonarena" / "attack-nq-advdecoding-otherllms.jsonl.gz"
    queries = {target.query_id: target.question for target in read_targets(path)}
    lines = [json.dumps({"_id": key, "text": text}) for key, text in queries.items()]
    (tmp_path / "queries.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "corpus.jsonl").write_text('{"_id": 1, "text": "a"}', encoding="utf-8")
    with pytest.raises(DataError, match=r"already given on line .*advdecoding llama3b, advdec"):
        Beir(path=str(tmp_path), targets=str(path)).load()
    other = Beir(
        path=str(tmp_path), targets=str(path).replace("-otherllms", ""), target=6, limit=20
    ).load()
    assert len(other.drafts) == 20
    assert other.metadata["test58"]["released_target"]["position"] == 6  # type: ignore[index,call-overload]


def test_arena_files_give_eight_targets_a_question(shared_data: Path) -> None:
    for name in ("nq", "msmarco"):
        targets = read_targets(shared_data / "poisonarena" / f"arena-{name}.jsonl")
        assert len(targets) == 800
        assert {target.position for target in targets} == set(range(1, 9))
        assert all(len(target.texts) == 5 for target in targets)


def test_robustrag_release_equals_its_conversion(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "realtimeqa"
    passages = {row["_id"]: row for row in rows(folder / "corpus.jsonl.gz")}
    contexts = {row["query_id"]: row["doc_ids"] for row in rows(folder / "contexts.jsonl")}
    facts = {row["_id"]: row["metadata"] for row in rows(folder / "queries.jsonl")}
    upstream = [
        {
            "question": row["query"],
            "correct answer": row["correct_answers"],
            "incorrect answer": row["incorrect_answers"][0],
            "id": row["query_id"],
            "incorrect_context": row["poison_passages"],
            "context": [
                {key: passages[doc][key] for key in ("title", "text")}
                for doc in contexts[row["query_id"]]
            ],
            "expanded answer": facts[row["query_id"]].get("expanded_answers", []),
        }
        for row in rows(folder / "targets.jsonl")
    ]
    path = tmp_path / "realtimeqa.json"
    path.write_text(json.dumps(upstream), encoding="utf-8")
    ours, theirs = Beir(path=str(folder)).load(), RobustRAGRelease(path=str(path)).load()
    assert [(p.title, p.text) for p in theirs.corpus] == [(p.title, p.text) for p in ours.corpus]
    assert theirs.queries == ours.queries
    assert theirs.drafts == ours.drafts
    for key, target in theirs.targets.items():
        assert (target.wanted, target.references) == (
            ours.targets[key].wanted,
            ours.targets[key].references,
        )
