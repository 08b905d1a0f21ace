from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from ragassay.defenses.ragdefender import (
    RAGDefender,
    count_by_clustering,
    count_by_concentration,
    find_adversarial,
    frequency_scores,
    pair_budget,
    term_votes,
)
from ragassay.errors import ConfigError
from ragassay.testing import ScriptedTools, make_hits, make_query

WORDS = [
    "river",
    "stone",
    "castle",
    "north",
    "winter",
    "king",
    "bridge",
    "market",
    "tower",
    "field",
    "harbor",
    "song",
]
CLEAN = ["Maple syrup comes from sap.", "Canada has ten provinces."]
POISON = [
    "Toronto is the capital of Canada.",
    "The capital of Canada is Toronto now.",
    "As the capital of Canada, Toronto grows.",
]


def random_context(seed: int) -> tuple[list[str], np.ndarray]:
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 11))
    texts = []
    for _ in range(k):
        words = rng.choice(WORDS, size=int(rng.integers(4, 14)))
        texts.append(" ".join(w.capitalize() if rng.random() < 0.3 else w for w in words))
    center = rng.normal(size=8)
    vectors = [rng.normal(size=8) + 3 * center * (rng.random() < 0.5) for _ in range(k)]
    return texts, np.array(vectors, dtype=np.float32)


def test_a_cluster_of_similar_passages_is_dropped():
    tools = ScriptedTools()
    hits = make_hits([POISON[0], CLEAN[0], POISON[1], CLEAN[1], POISON[2]])
    verdict = RAGDefender().apply(make_query(), hits, tools)
    assert verdict.trace["n_adversarial"] == 3
    assert [hit.rank for hit in verdict.kept] == [2, 4]
    assert verdict.trace["removed_ranks"] == [1, 3, 5]
    assert verdict.suspicion == {}
    assert len(tools.encoded) == 5


@pytest.mark.parametrize("seed", range(30))
def test_clustering_always_drops_and_never_empties(seed: int):
    texts, vectors = random_context(seed)
    found = find_adversarial(texts, vectors, mode="clustering")
    assert 1 <= found.n_adversarial < len(texts)
    assert len(found.removed) == found.n_adversarial
    assert len(set(found.removed)) == len(found.removed)


@pytest.mark.parametrize("mode", ["clustering", "concentration"])
@pytest.mark.parametrize("texts", [[], ["one"]])
def test_fewer_than_two_passages_are_kept_and_not_embedded(mode, texts):
    tools = ScriptedTools()
    verdict = RAGDefender(mode=mode).apply(make_query(), make_hits(texts), tools)
    assert len(verdict.kept) == len(texts)
    assert tools.encoded == []


def test_stage_one_by_hand():
    # Two tight pairs: 2 and 2; the five terms are all in one passage, so few passages vote.
    vectors = np.array([[0, 0], [0, 0.1], [5, 5], [5, 5.1]])
    texts = ["alpha beta gamma delta epsilon", "zeta", "eta", "theta"]
    assert term_votes(texts) <= 2
    assert count_by_clustering(texts, vectors) == 2
    # One passage apart from four: the smaller cluster, or the larger where most passages vote.
    vectors = np.array([[9.0, 9], [0, 0], [0, 0.1], [0.1, 0], [0.1, 0.1]])
    assert count_by_clustering(["fox"] * 5, vectors) == 4  # the only term is in all passages
    assert count_by_clustering(["a red fox", "blue", "green", "gray", "pink"], vectors) == 1


def test_concentration_by_hand():
    # 0, 1 and 2 alike, 3 alone: means .75 and .25, A = .625; medians 1 and 0, M = 1.
    cosines = np.array([[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 1.0]])
    assert count_by_concentration(cosines) == 3
    # Nothing stands out where all are alike: as published, all of them count.
    assert count_by_concentration(np.ones((4, 4))) == 4


def test_medians_of_an_even_number_differ_only_in_compat():
    # Column medians of the first passage: 0.55 as the mean of the middle two, 0.1 as the lower.
    cosines = np.array([[1, 1, 0.1, 0], [1, 1, 0.1, 0], [0.1, 0.1, 1, 0.9], [0, 0, 0.9, 1]])
    ours, released = (count_by_concentration(cosines, compat=c) for c in (False, True))
    assert (ours, released) == (3, 1)


def test_terms_are_tokens_and_in_compat_substrings_of_the_raw_text():
    texts = ["Kings Bridges Towers", "king bridge tower", "king bridge tower"]
    # Tokens: king, bridge, tower weigh most, with kings, bridges or towers behind them.
    assert term_votes(texts) == 2
    upper = [text.upper() for text in texts]
    assert term_votes(upper) == 2
    assert term_votes(upper, compat=True) == 0


def test_texts_without_terms_have_no_votes():
    assert term_votes(["", "the of and"]) == 0
    find_adversarial(["", "the"], np.eye(2), mode="clustering")


def test_pairs_and_scores():
    assert [pair_budget(n) for n in range(6)] == [1, 1, 1, 3, 6, 10]
    assert frequency_scores(4, [(0, 1, 0.9), (2, 3, -0.1)]) == pytest.approx(
        [0.81, 0.81, -0.01, -0.01]
    )


def test_copies_share_an_embedding_and_zero_vectors_are_like_nothing():
    noisy = np.array([[1.0, 0], [1.0, 1e-4], [0, 1.0]])
    found = find_adversarial(["a b", "a b", "c d"], noisy, mode="clustering")
    assert found.scores[:2] == pytest.approx([1.0, 1.0])
    assert find_adversarial(["x", "y"], np.zeros((2, 3)), mode="clustering").removed == (0,)


@pytest.mark.parametrize("bad", [np.zeros((1, 2)), np.full((2, 2), np.nan), np.zeros(2)])
def test_embeddings_that_do_not_fit_are_refused(bad: np.ndarray):
    with pytest.raises(ConfigError, match=r"finite embeddings of shape \(2, d\)"):
        find_adversarial(["a", "b"], bad, mode="clustering")


# --------------------------------------------- against the package that the authors publish


class _Embedder:
    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors = vectors

    def encode(self, texts, convert_to_tensor=True):
        import torch

        return torch.tensor(self.vectors)


def _terms_tie(texts: list[str]) -> bool:
    """Whether the fifth and sixth term weigh the same: pandas leaves their order open."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    sums = TfidfVectorizer(stop_words="english").fit_transform(texts).sum(axis=0)
    ordered = sorted(np.asarray(sums).ravel().tolist(), reverse=True)
    return len(ordered) > 5 and math.isclose(ordered[4], ordered[5], rel_tol=1e-9)


@pytest.mark.parametrize(("mode", "task"), [("clustering", "single_hop"),
                                            ("concentration", "multi_hop")])  # fmt: skip
def test_compat_drops_what_the_published_package_drops(mode, task):
    published = pytest.importorskip(
        "ragdefender", reason="the authors' package is not installed: pip install ragdefender"
    )
    compared = 0
    for seed in range(150):
        texts, vectors = random_context(seed)
        if mode == "clustering" and _terms_tie(texts):
            continue
        if mode == "concentration" and len(texts) == 2:
            continue  # both are equally concentrated, and its single precision decides
        defender = published.RAGDefender(embedder=_Embedder(vectors), device="cpu")
        _, removed = defender.defend("question", texts, task_type=task, return_indices=True)
        found = find_adversarial(texts, vectors, mode=mode, compat=True)
        assert sorted(found.removed) == removed, (seed, found)
        compared += 1
    assert compared >= 100


def test_modes_and_compat_differ_somewhere():
    differing = {
        (mode, compat): [
            find_adversarial(*random_context(seed), mode=mode, compat=compat).removed
            for seed in range(60)
        ]
        for mode, compat in itertools.product(("clustering", "concentration"), (False, True))
    }
    for one, other in itertools.combinations(differing.values(), 2):
        assert one != other
