from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragassay import prompts
from ragassay.defenses import rouge, trustrag
from ragassay.defenses.rouge import any_overlap, rouge_l
from ragassay.defenses.trustrag import (
    TrustRAG,
    TrustRAGConflict,
    TrustRAGFilter,
    filter_kmeans,
)
from ragassay.defenses.two_means import Undecided, two_means, unit_rows
from ragassay.errors import BackendUnavailable, ConfigError
from ragassay.testing import ScriptedTools, hashing_vectors, make_hits, make_query

COPIES = [
    "The capital of Canada is Toronto as the law says.",
    "The capital of Canada is Toronto as the map says.",
    "The capital of Canada is Toronto as the king says.",
]
OTHERS = ["Maple syrup boils in early spring.", "Hockey players skate on frozen lakes."]
TIGHT = np.array([[10.0, 0.1, 0], [10.0, 0, 0.1], [10.0, 0.1, 0.1], [0, 3, 1], [-2, 1, 4]])


def vectors(texts: list[str]) -> Any:
    table = dict(zip(COPIES + OTHERS, TIGHT, strict=True))
    return np.array([table[text] for text in texts], dtype=np.float32)


def test_a_tight_cluster_of_overlapping_passages_is_dropped():
    assert filter_kmeans(COPIES + OTHERS, TIGHT) == [3, 4]


def test_survivors_are_in_rank_order_whatever_the_cluster_order():
    texts = [OTHERS[0], COPIES[0], OTHERS[1], COPIES[1], COPIES[2]]
    assert filter_kmeans(texts, vectors(texts)) == [0, 2]


def test_without_overlap_nothing_changes_and_nothing_is_encoded():
    tools = ScriptedTools()
    hits = make_hits(OTHERS)
    verdict = TrustRAGFilter().apply(make_query(), hits, tools)
    assert verdict.kept == hits
    assert tools.encoded == []
    assert verdict.trace == {"filter": {"overlap": False, "kept_ranks": [1, 2], "emptied": False}}


@pytest.mark.parametrize(("k", "kept"), [(0, []), (1, [0]), (2, []), (3, []), (5, [])])
def test_identical_passages_have_a_defined_result(k: int, kept: list[int]):
    assert filter_kmeans(["the same text"] * k, np.ones((k, 8))) == kept


def test_of_two_overlapping_passages_exactly_one_survives():
    assert len(filter_kmeans(COPIES[:2], TIGHT[:2])) == 1


def test_copies_of_a_text_share_one_embedding():
    noise = np.random.default_rng(0).normal(scale=1e-6, size=(5, 8))
    assert filter_kmeans(["the same text"] * 5, np.ones((5, 8)) + noise) == []


def test_near_copies_empty_the_context_like_copies_do():
    noise = np.random.default_rng(0).normal(scale=1e-3, size=(3, 8))
    assert filter_kmeans(COPIES, np.ones((3, 8)) + noise) == []


def test_texts_without_words_do_not_overlap():
    assert filter_kmeans(["", " ", "?!"], np.zeros((3, 4))) == [0, 1, 2]


def test_a_constant_coordinate_and_a_zero_vector_are_legal():
    embeddings = TIGHT.copy()
    embeddings[:, 2] = 5.0
    embeddings[4] = 0.0
    assert set(filter_kmeans(COPIES + OTHERS, embeddings)) <= set(range(5))


@pytest.mark.parametrize(
    "embeddings", [np.ones((2, 3)), np.ones(3), np.full((3, 2), np.nan), np.full((3, 2), np.inf)]
)
def test_wrong_embeddings_are_refused(embeddings: Any):
    with pytest.raises(ConfigError, match=r"shape \(3, d\)"):
        filter_kmeans(COPIES, embeddings)


def test_a_removed_pair_leaves_no_representative():
    assert trustrag._thin([4, 7, 9], lambda i, j: {i, j} == {4, 9}) == [7]


def test_the_first_remembered_text_also_removes_later_ones():
    pairs = [{0, 2}, {0, 3}]
    assert trustrag._thin([0, 1, 2, 3], lambda i, j: {i, j} in pairs) == [1]


def survivors(clusters: list[list[int]], cosines: Any) -> list[int]:
    return trustrag._survivors(clusters, np.array(cosines), 0.88, lambda group: group)


def test_a_tight_cluster_leaves_the_singleton_unless_it_is_near():
    far = [[1, 0.95, 0.1], [0.95, 1, 0.1], [0.1, 0.1, 1]]
    near = [[1, 0.95, 0.9], [0.95, 1, 0.1], [0.9, 0.1, 1]]
    assert survivors([[0, 1], [2]], far) == [2]
    assert survivors([[2], [0, 1]], far) == [2]
    assert survivors([[0, 1], [2]], near) == []


def test_a_loose_cluster_beside_a_singleton_survives():
    loose = [[1, 0.5, 0.1], [0.5, 1, 0.1], [0.1, 0.1, 1]]
    assert survivors([[0, 1], [2]], loose) == [0, 1]
    assert survivors([[2], [0, 1]], loose) == [0, 1]


@pytest.mark.parametrize(
    ("zero", "one", "kept"),
    [
        (0.95, 0.4, [2, 3]),
        (0.4, 0.95, [0, 1]),
        (0.9, 0.95, []),
        (0.5, 0.6, [2, 3, 0, 1]),
        (0.88, 0.4, [2, 3]),
        (0.88, 0.88, [2, 3]),
    ],
)
def test_two_clusters_are_judged_by_their_mean_cosine(zero: float, one: float, kept: list[int]):
    cosines = np.eye(4)
    cosines[0, 1] = cosines[1, 0] = zero
    cosines[2, 3] = cosines[3, 2] = one
    assert survivors([[0, 1], [2, 3]], cosines) == kept


WORDS = st.lists(
    st.sampled_from(["cat", "cats", "sat", "sitting", "the", "a", "7", "x-y", "Ü"]), max_size=70
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(WORDS, WORDS)
def test_rouge_l_equals_rouge_score(first: list[str], second: list[str]):
    scorer = _scorer()
    a, b = " ".join(first), " ".join(second)
    assert rouge_l(a, b) == pytest.approx(scorer.score(a, b)["rougeL"].fmeasure, abs=1e-15)


def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=True)


def test_long_hostile_passages_are_compared_quickly():
    rng = np.random.default_rng(0)
    first, second = (" ".join(map(str, rng.integers(500, size=20_000))) for _ in range(2))
    rouge_l(first, "warm up")
    rouge_l(second, "warm up")
    start = time.perf_counter()
    rouge_l(first, second)
    assert time.perf_counter() - start < 2


def test_the_gate_is_strict():
    assert not any_overlap(["alpha beta gamma delta", "delta epsilon zeta eta"], 0.25)
    assert any_overlap(["alpha beta gamma delta", "delta epsilon zeta eta"], 0.2499)


def test_missing_packages_say_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    equal = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])  # corners of a square
    with pytest.raises(BackendUnavailable, match=r"ragassay\[local\]"):
        filter_kmeans([*COPIES, OTHERS[0]], equal)
    rouge.forget()
    monkeypatch.setitem(sys.modules, "rouge_score.tokenize", None)
    with pytest.raises(BackendUnavailable, match=r"rouge-score"):
        filter_kmeans(COPIES, TIGHT[:3])


def hard_vectors(rng: np.random.Generator) -> Any:
    """Few or many points in few or many dimensions, loose or tight, with copies and steps."""
    n = int(rng.integers(2, 9)) if rng.random() < 0.7 else int(rng.integers(9, 30))
    centers = rng.normal(size=(int(rng.integers(1, 4)), int(rng.choice([2, 8, 64, 384]))))
    noise = rng.choice([0.01, 0.1, 0.3, 1.0]) * rng.normal(size=(n, centers.shape[1]))
    made = centers[rng.integers(0, len(centers), n)] + noise
    if rng.random() < 0.3:
        made[rng.integers(n)] = made[rng.integers(n)]
    if rng.random() < 0.1:
        made[:, 0] = 3.0
    if rng.random() < 0.1:
        made = np.round(made, 1)
    return made.astype(np.float32).astype(np.float64)


def test_two_clusters_are_numbered_as_scikit_learn_does():
    rng = np.random.default_rng(0)
    cases = [hard_vectors(rng) for _ in range(150)]
    cases = [each for each in cases if (each != each[0]).any()]
    decided = 0
    for vectors_ in cases:
        try:
            found = two_means(unit_rows(vectors_))
        except Undecided:
            continue
        decided += 1
        assert found == trustrag._by_scikit_learn(vectors_)
    assert decided >= 0.98 * len(cases)


def test_where_rounding_could_decide_nothing_is_said():
    square = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [-1.0, 1.0]])
    with pytest.raises(Undecided):
        two_means(square)
    with pytest.raises(Undecided):
        two_means(np.eye(70))
    with pytest.raises(Undecided):  # a spread of rounding errors alone
        unit_rows(np.array([[1.0], [1.0 + 1e-9], [1.0]]))


def test_filter_reports_an_emptied_context():
    hits = make_hits(["The same text."] * 5)
    verdict = TrustRAGFilter().apply(make_query(), hits, ScriptedTools())
    assert verdict.kept == ()
    assert verdict.answer is None
    assert not verdict.abstain
    assert verdict.suspicion == {}
    assert verdict.trace["filter"] == {"overlap": True, "kept_ranks": [], "emptied": True}


SCRIPT = {"Memory:": " from memory ", "Consolidated": " consolidated facts ", "Answer:": " final "}


def test_conflict_resolution_hands_each_output_on():
    tools = ScriptedTools(SCRIPT, order="reverse")
    hits = make_hits(["one text", "two text"])
    verdict = TrustRAGConflict(max_tokens=99).apply(make_query(), hits, tools)
    internal, consolidate, final = tools.calls
    assert not any(hit.passage.text in internal.text for hit in hits)
    assert "Memorized Documents: from memory\n" in consolidate.text
    assert (
        "Externally Retrieved Document1: two text\nExternally Retrieved Document2: one text"
        in consolidate.text
    )
    assert "consolidated facts\n" in final.text
    assert "from memory\n" in final.text
    assert [call.max_tokens for call in tools.calls] == [99, 99, None]
    assert verdict.answer == " final "
    assert verdict.kept == hits
    assert verdict.trace == {
        "conflict": {
            "internal": " from memory ",
            "consolidated": " consolidated facts ",
            "final": " final ",
        }
    }


def test_own_knowledge_is_asked_the_same_whatever_was_retrieved():
    first, second = ScriptedTools(SCRIPT), ScriptedTools(SCRIPT)
    TrustRAG().apply(make_query(), make_hits(OTHERS), first)
    TrustRAG().apply(make_query(), make_hits(["quite different"]), second)
    assert first.calls[0] == second.calls[0]


def test_both_stages_use_only_what_survives():
    tools = ScriptedTools(SCRIPT, encode=vectors)
    hits = make_hits(COPIES + OTHERS)
    verdict = TrustRAG().apply(make_query(), hits, tools)
    assert verdict.kept == hits[3:]
    assert set(verdict.trace) == {"filter", "conflict"}
    assert not any(copy in call.text for copy in COPIES for call in tools.calls)
    assert all(other in tools.calls[1].text for other in OTHERS)


def test_an_emptied_context_is_answered_from_memory():
    tools = ScriptedTools(SCRIPT)
    verdict = TrustRAG().apply(make_query(), make_hits(["The same text."] * 5), tools)
    assert verdict.kept == ()
    assert verdict.answer == " final "
    assert "Externally Retrieved Document" not in tools.calls[1].text


def test_released_order_is_kept_on_request():
    texts = [OTHERS[0], COPIES[0], OTHERS[1], COPIES[1]]
    released = filter_kmeans(texts, np.eye(4), compat=True, rouge_threshold=0.9)
    assert released == [0, 1, 2, 3]  # no overlap: unchanged
    released = filter_kmeans(texts, hashing_vectors(texts), compat=True)
    assert sorted(released) == filter_kmeans(texts, hashing_vectors(texts))


def test_the_prompts_hold_no_attack_text():
    names = ("trustrag_internal", "trustrag_consolidate", "trustrag_final")
    text = " ".join(part for name in names for _, part in prompts.load(name).turns).lower()
    assert "pia" not in text.split()
    assert "please output" not in text
    assert "when you are asked" not in text


@pytest.mark.parametrize(
    "options", [{"tau": 0.0}, {"tau": 1.1}, {"rouge_threshold": 1.0}, {"rouge_threshold": -0.1}]
)
def test_thresholds_out_of_range_are_refused(options: dict[str, float]):
    with pytest.raises(ConfigError, match="got tau"):
        TrustRAGFilter(**options)
    with pytest.raises(ConfigError, match="got tau"):
        TrustRAG(**options)


def test_wrong_prompts_are_refused():
    with pytest.raises(ConfigError, match="needs exactly"):
        TrustRAGConflict(final_prompt="answer")
    with pytest.raises(ConfigError, match="max_tokens"):
        TrustRAG(max_tokens=0)
