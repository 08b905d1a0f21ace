"""The reader of the embedded data set, over a folder of its layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ragassay.data import atlas
from ragassay.data.atlas import Atlas
from ragassay.errors import ConfigError


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def write(name: str, rows: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / name).write_text(text, encoding="utf-8")

    numbers = range(6)
    write("corpus.jsonl", [{"_id": f"d{n}", "title": "", "text": f"Fact {n}."} for n in numbers])
    write(
        "queries.jsonl",
        [
            {
                "_id": f"q{n}",
                "text": f"Question {n}?",
                "metadata": {"group": f"g{n // 2 + 1}", "world": "w", "references": [f"r{n}"]},
            }
            for n in numbers
        ],
    )
    write(
        "targets.jsonl",
        [
            {"query_id": f"q{n}", "target": t, "wanted": [f"w{n}.{t}"], "texts": [f"t{n}.{t}"]}
            for n in range(5)
            for t in (1, 2, 3)
        ],
    )
    rows = "".join(f"q{n}\td{n}\t1\n" for n in numbers)
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows, encoding="utf-8")
    monkeypatch.setattr(atlas, "FOLDER", tmp_path)
    return tmp_path


def test_groups_come_from_the_file(small: Path) -> None:
    data = Atlas().load()
    assert data.name == "atlas"
    assert [q.group for q in data.queries] == ["g1", "g1", "g2", "g2", "g3", "g3"]
    assert data.targets["q2"].references == ("r2",)
    assert data.targets["q2"].wanted == ("w2.1",)
    assert data.targets["q2"].gold_ids == ("d2",)
    assert data.targets["q5"].wanted == ()


def test_another_target_changes_answers_texts_and_fingerprint(small: Path) -> None:
    first, third = Atlas().load(), Atlas(target=3).load()
    assert third.targets["q0"].wanted == ("w0.3",)
    assert third.drafts["q0"] == ("t0.3",)
    assert third.fingerprint != first.fingerprint


def test_groups_and_questions_per_group_can_be_limited(small: Path) -> None:
    data = Atlas(groups=("g2", "g3"), limit_per_group=1).load()
    assert list(data.drafts) == ["q2", "q4"]
    assert len(data.queries) == 6


def test_wrong_options_are_refused(small: Path) -> None:
    with pytest.raises(ConfigError, match="target = 0"):
        Atlas(target=0)
    with pytest.raises(ConfigError, match="limit_per_group = -1"):
        Atlas(limit_per_group=-1)
    with pytest.raises(ConfigError, match="offers 1, 2, 3"):
        Atlas(target=4).load()
    with pytest.raises(ConfigError, match="in group 'g9'"):
        Atlas(groups=("g9",)).load()


@pytest.mark.skipif(
    not (atlas.FOLDER / "corpus.jsonl").is_file(), reason="the embedded files are not built yet"
)
def test_the_embedded_files_load() -> None:
    data = Atlas().load()
    assert {q.group for q in data.queries if data.targets[q.id].wanted} == {"g1", "g2", "g3", "g4"}
    assert all(target.references for target in data.targets.values() if target.wanted)
    assert data.has_qrels
