"""CorpusPoison on a linear encoder (test_retrieval_whitebox has a real one)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ragassay.attacks.corpuspoison import (
    CorpusPoison,
    CorpusPoisonParaphrases,
    CorpusPoisonRanked,
)
from ragassay.attacks.hotflip import flip_search
from ragassay.attacks.search_passages import clusters, mean_similarity
from ragassay.attacks.search_tokens import Slot, TokenSearch
from ragassay.canon import dumps
from ragassay.errors import ConfigError, KnowledgeError
from ragassay.testing import make_hits
from ragassay.testing.toys import AttackScene, ToyEncoder
from ragassay.types import PoisonSet, Target

DRAFTS = ("Toronto bo fa it is", "The capital is Toronto now", "Toronto rules Canada")
PARAPHRASES = ("capital of canada what", "which city governs canada", "seat of canada where")
TARGET = Target(query_id="q1", wanted=("Toronto",))
QUICK = {"tokens": 5, "iterations": 12, "candidates": 10}


def craft(attack: Any, encoder: ToyEncoder, *, seed: int = 0, **scene: Any) -> PoisonSet:
    scene.setdefault("paraphrases", PARAPHRASES)
    scene.setdefault("drafts", DRAFTS)
    view = AttackScene(attack.knowledge, encoder=encoder, **scene)
    poison = attack.craft(TARGET, view, np.random.default_rng(seed))
    assert not view.refused
    return poison


def test_two_orthogonal_queries_are_met_halfway() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(50, 2)).astype(np.float32)
    table[17] = (5.0, 5.0)
    toy = ToyEncoder(embeddings=table, similarity="cosine")
    search = TokenSearch(toy, Slot(toy), np.eye(2))
    assert search.direction(slice(None)).tolist() == [0.5, 0.5]
    found = flip_search(search, toy, (3,), rng, iterations=2, candidates=50)
    assert found.ids == (17,)
    assert found.score == pytest.approx(1 / np.sqrt(2), abs=1e-6)
    best = int(np.argmax(table @ np.array([0.5, 0.5])))
    assert best == 17


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("kind", [CorpusPoison, CorpusPoisonParaphrases])
def test_the_text_stays_and_the_trigger_behind_it_raises_the_score(
    similarity: Any, kind: Any
) -> None:
    encoder = ToyEncoder(similarity=similarity, special=True)
    attack = kind(assign="all", **QUICK)
    poison = craft(attack, encoder, budget=2)
    known = ["What is the capital of Canada?"] if kind is CorpusPoison else list(PARAPHRASES)
    queries = encoder.embed(known, kind="query")
    recomputed = mean_similarity(encoder, queries, [p.text for p in poison.passages])
    assert len(poison.passages) == 2
    for draft, passage, note, score in zip(
        DRAFTS, poison.passages, poison.details, recomputed, strict=False
    ):
        assert passage.text.startswith(f"{draft} ")
        assert note["payload_unchanged"] is True
        assert note["score"] == pytest.approx(score, abs=1e-9)
        assert note["score_tokens"] == pytest.approx(score, abs=1e-6)
        assert note["score"] > note["start_score"]
        assert note["queries"] == list(range(len(known)))
        assert 1 <= note["trigger_tokens"] <= 5
        values = [value for _, value in note["trace"]]
        assert values == sorted(values)
    dumps(poison)


def test_with_several_passages_each_attacks_a_cluster_of_the_queries() -> None:
    encoder = ToyEncoder(similarity="cosine", special=True)
    poison = craft(CorpusPoisonParaphrases(n=3, **QUICK), encoder)
    parts = [tuple(note["queries"]) for note in poison.details]
    assert sorted(row for part in parts for row in part) == [0, 1, 2]
    two = craft(CorpusPoisonParaphrases(n=2, **QUICK), encoder)
    parts = [tuple(note["queries"]) for note in two.details]
    assert sorted(row for part in parts for row in part) == [0, 1, 2]
    assert len(parts[0]) == 2  # the larger cluster comes first


def test_clusters_stand_duplicates_and_few_queries() -> None:
    toy = ToyEncoder()
    rows = np.array([[1.0, 0.0]] * 4 + [[0.0, 1.0]])
    assert [part.tolist() for part in clusters(toy, rows, 3, "kmeans")] == [
        [0, 1, 2, 3],
        [4],
        [0, 1, 2, 3],
    ]
    assert [part.tolist() for part in clusters(toy, rows[:1], 2, "kmeans")] == [[0], [0]]
    assert [part.tolist() for part in clusters(toy, rows, 2, "all")] == [[0, 1, 2, 3, 4]] * 2
    spread = np.array([[1.0, 0.0], [0.99, 0.05], [0.0, 1.0], [0.05, 0.99], [0.04, 0.98]])
    assert [part.tolist() for part in clusters(toy, spread, 2, "kmeans")] == [[2, 3, 4], [0, 1]]


def test_flipping_everything_gives_the_text_up() -> None:
    encoder = ToyEncoder(similarity="cosine", special=True)
    attack = CorpusPoison(n=1, layout="flip_all", tokens=6, iterations=30, candidates=20)
    long = ("Toronto bo fa it is ba be bi",)
    poison = craft(attack, encoder, drafts=long)
    [note] = poison.details
    assert note["payload_unchanged"] is False
    assert len(encoder.tokenize(poison.passages[0].text)) <= 6
    queries = encoder.embed(["What is the capital of Canada?"], kind="query")
    [score] = mean_similarity(encoder, queries, [poison.passages[0].text])
    assert note["score"] == pytest.approx(score, abs=1e-9)


def test_what_nothing_improves_is_stored_all_the_same() -> None:
    table = np.ones((53, 8), dtype=np.float32)
    flat = ToyEncoder(embeddings=table, special=True)
    poison = craft(CorpusPoison(n=2, **QUICK), flat)
    assert [p.text for p in poison.passages] == list(DRAFTS[:2])
    for note in poison.details:
        assert note["trace"] == []
        assert note["trigger_tokens"] == 0
        assert note["score"] == note["start_score"]


def test_batches_of_queries_still_return_the_best_over_all_queries() -> None:
    toy = ToyEncoder(similarity="cosine")
    queries = np.random.default_rng(4).normal(size=(30, 8))
    search = TokenSearch(toy, Slot(toy), queries)
    found = flip_search(
        search,
        toy,
        (1, 2, 3),
        np.random.default_rng(1),
        iterations=25,
        candidates=8,
        batch=4,
    )
    unit = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    [vector] = toy.embed_ids([found.ids]).astype(np.float64)
    assert found.score == pytest.approx(float((unit @ vector).mean() / np.linalg.norm(vector)))
    assert found.score > found.start
    values = [value for _, value in found.trace]
    assert values == sorted(values)


def test_hits_lead_where_the_best_clean_score_is_known() -> None:
    encoder = ToyEncoder(similarity="cosine", special=True)
    poison = craft(CorpusPoisonRanked(n=1, **QUICK), encoder, hits=make_hits(["x"], scores=[0.4]))
    assert poison.details[0]["score"] > 0.4
    assert poison.knowledge.corpus == "partial"
    assert craft(CorpusPoisonRanked(n=1, **QUICK), encoder).passages


def test_who_knows_paraphrases_never_sees_the_question() -> None:
    attack = CorpusPoisonParaphrases(n=1, **QUICK)
    view = AttackScene(attack.knowledge, encoder=ToyEncoder(special=True), paraphrases=PARAPHRASES)
    with pytest.raises(KnowledgeError, match="question"):
        _ = view.question
    with pytest.raises(ConfigError, match="paraphrases"):
        craft(attack, ToyEncoder(special=True), paraphrases=())
    written = craft(
        CorpusPoisonParaphrases(n=1, source="generated", trials=1, **QUICK),
        ToyEncoder(special=True),
        replies=lambda messages: (
            "Toronto it is" if PARAPHRASES[0] in messages[-1].content else "nothing"
        ),
    )
    assert written.details[0]["payload"] == "Toronto it is"


def test_a_trigger_that_the_encoder_would_not_read_is_shortened_and_reported() -> None:
    encoder = ToyEncoder(special=True, max_tokens=9)
    poison = craft(CorpusPoison(n=1, tokens=50, iterations=30, candidates=50), encoder)
    assert len(encoder.tokenize(poison.passages[0].text)) <= 7
    assert poison.details[0]["trigger_tokens"] <= 2
    full = ToyEncoder(special=True, max_tokens=5)
    poison = craft(CorpusPoison(n=1, **QUICK), full)
    assert poison.passages[0].text == DRAFTS[0]
    assert poison.details[0]["iterations"] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch >= 1"),
        ({"tokens": 0}, "tokens >= 1"),
        ({"layout": "both"}, "layout to be one of answer_plus_trigger, flip_all"),
        ({"assign": "none"}, "assign to be one of kmeans, all"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CorpusPoison(**options)
