from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ragassay.stats.detection import graph_statistics
from ragassay.stats.graphs import (
    GraphValue,
    conductance,
    connectivity,
    context_weights,
    graph_suspicion,
    modularity,
    similarity_weights,
)

STATISTICS = ("connectivity", "conductance", "modularity")
SEEDS = st.integers(0, 2**32 - 1)


def random_graph(seed: int, k: int) -> NDArray[np.float64]:
    """Positive weights of very different size, so that cuts differ."""
    generator = np.random.default_rng(seed)
    w = np.triu(generator.random((k, k)) ** 4 + 1e-6, 1)
    return w + w.T


def blocks(*sizes: int, inside: float = 1.0, between: float = 0.01) -> NDArray[np.float64]:
    label = np.repeat(np.arange(len(sizes)), sizes)
    w = np.where(label[:, None] == label[None, :], inside, between)
    np.fill_diagonal(w, 0.0)
    return w


def value(found: GraphValue | None) -> float:
    assert found is not None
    return found.value


def partitions(nodes: list[int]) -> Iterator[list[list[int]]]:
    if not nodes:
        yield []
        return
    head, *rest = nodes
    for partition in partitions(rest):
        yield [[head], *partition]
        for i, block in enumerate(partition):
            yield [*partition[:i], [head, *block], *partition[i + 1 :]]


# ---------------------------------------------------------------------------------- building


def test_weights_are_cosines_with_negative_ones_at_the_floor():
    w = context_weights([[3.0, 0.0], [1.0, 1.0], [-2.0, 0.0]])
    assert w == pytest.approx(
        np.array([[0, 0.5**0.5, 1e-6], [0.5**0.5, 0, 1e-6], [1e-6, 1e-6, 0]]), abs=1e-12
    )


def test_up_to_five_passages_the_graph_is_complete():
    w = context_weights(np.random.default_rng(0).random((5, 8)))
    assert ((w > 0) == ~np.eye(5, dtype=bool)).all()


@pytest.mark.parametrize("neighbors", [1, 2, 4])
def test_beyond_five_passages_a_pair_is_linked_if_one_is_near_the_other(neighbors: int):
    points = np.random.default_rng(1).random((12, 3))
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    cosine = unit @ unit.T
    near = [
        set(sorted(set(range(12)) - {i}, key=lambda j: -cosine[i, j])[:neighbors])
        for i in range(12)
    ]
    expected = [
        [cosine[i, j] if j in near[i] or i in near[j] else 0.0 for j in range(12)]
        for i in range(12)
    ]
    assert context_weights(points, neighbors=neighbors) == pytest.approx(np.array(expected))
    assert 0.0 in np.array(expected)[~np.eye(12, dtype=bool)]


def test_neighbors_that_tie_with_the_last_are_all_taken():
    similarity = np.full((7, 7), 0.5)
    w = similarity_weights(similarity, neighbors=2)
    assert (w + np.eye(7) > 0).all()


@given(SEEDS, st.integers(3, 9))
def test_the_order_and_the_length_of_the_vectors_do_not_matter(seed: int, k: int):
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(k, 6))
    vectors[-1] = vectors[0]  # a copy, so that neighbors tie
    order = generator.permutation(k)
    scaled = vectors * generator.uniform(0.1, 9.0, size=(k, 1))
    one, two = context_weights(vectors), context_weights(scaled[order])
    assert two == pytest.approx(one[np.ix_(order, order)], abs=1e-9)
    for statistic in STATISTICS:
        first, second = graph_suspicion(one, statistic), graph_suspicion(two, statistic)
        assert (first is None) == (second is None)
        if first is not None:
            assert value(second) == pytest.approx(first.value, abs=1e-7)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_vectors_of_extreme_length_keep_their_cosines(scale: float):
    vectors = np.array([[3.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    assert context_weights(vectors * scale) == pytest.approx(context_weights(vectors))


def test_a_zero_vector_is_similar_to_nothing():
    w = context_weights([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    assert w[2].tolist() == [1e-6, 1e-6, 0.0]


@pytest.mark.parametrize(
    "embeddings",
    [
        [1.0, 2.0],
        [[1.0], [float("nan")]],
        [[1.0], [float("inf")]],
    ],
)
def test_embeddings_of_another_form_are_refused(embeddings: list):
    with pytest.raises(ValueError, match="finite embeddings"):
        context_weights(embeddings)


@pytest.mark.parametrize(
    ("similarity", "neighbors", "message"),
    [
        (np.ones((2, 3)), 4, "shape"),
        (np.full((3, 3), np.nan), 4, "finite"),
        (np.array([[1.0, 0.2], [0.9, 1.0]]), 4, "symmetric"),
        (np.eye(3), 0, "neighbors >= 1"),
    ],
)
def test_similarities_of_another_form_are_refused(
    similarity: NDArray[np.float64], neighbors: int, message: str
):
    with pytest.raises(ValueError, match=message):
        similarity_weights(similarity, neighbors=neighbors)


# -------------------------------------------------------------------------------- statistics


@pytest.mark.parametrize("k", range(3, 11))
def test_all_three_agree_with_the_other_implementation_up_to_ten_nodes(k: int):
    w = random_graph(k, k)
    oracle = graph_statistics(w)
    assert value(connectivity(w)) == pytest.approx(oracle.lambda2, abs=1e-10)
    assert value(conductance(w)) == pytest.approx(oracle.conductance, abs=1e-10)
    assert value(modularity(w)) == pytest.approx(oracle.modularity, abs=1e-10)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(3, 7))
def test_exact_values_agree_with_networkx_over_all_cuts_and_partitions(seed: int, k: int):
    networkx = pytest.importorskip("networkx")
    w = random_graph(seed, k)
    graph = networkx.from_numpy_array(w)
    cuts = [
        networkx.conductance(graph, side, weight="weight")
        for size in range(1, k)
        for side in itertools.combinations(range(k), size)
    ]
    assert value(conductance(w)) == pytest.approx(min(cuts), abs=1e-9)
    quality = max(
        networkx.community.modularity(graph, partition, weight="weight")
        for partition in partitions(list(range(k)))
    )
    assert value(modularity(w)) == pytest.approx(quality, abs=1e-9)
    laplacian = networkx.normalized_laplacian_matrix(graph, weight="weight").toarray()
    assert value(connectivity(w)) == pytest.approx(np.linalg.eigvalsh(laplacian)[1], abs=1e-9)


@given(SEEDS, st.integers(3, 9))
def test_the_eigenvalue_bounds_the_conductance_as_cheeger_says(seed: int, k: int):
    w = random_graph(seed, k)
    second, phi = value(connectivity(w)), value(conductance(w))
    assert second / 2 <= phi + 1e-9
    assert phi <= (2 * second) ** 0.5 + 1e-9


@given(SEEDS, st.integers(3, 9), st.sampled_from([1e-9, 1e-3, 1e6]))
def test_the_scale_of_the_weights_does_not_matter(seed: int, k: int, scale: float):
    w = random_graph(seed, k)
    for statistic in STATISTICS:
        assert value(graph_suspicion(w * scale, statistic)) == pytest.approx(
            value(graph_suspicion(w, statistic)), abs=1e-9
        )


def test_the_best_partition_can_have_more_than_two_blocks():
    w = blocks(3, 3, 3, between=1e-9)
    assert value(modularity(w)) == pytest.approx(2 / 3, abs=1e-6)


def test_equal_weights_have_no_clusters_at_all():
    assert modularity(blocks(5)) == GraphValue(0.0, exact=True)
    assert value(conductance(blocks(5))) == pytest.approx(0.75)
    assert value(connectivity(blocks(5))) == pytest.approx(1.25)


def test_a_poisoned_cluster_beside_clean_passages_is_more_suspicious_in_all_three():
    for statistic in STATISTICS:
        mixed = value(graph_suspicion(blocks(2, 3), statistic))
        assert mixed > value(graph_suspicion(blocks(5), statistic))


def test_suspicions_have_the_fixed_orientation():
    w = random_graph(1, 6)
    assert value(graph_suspicion(w, "connectivity")) == pytest.approx(-value(connectivity(w)))
    assert value(graph_suspicion(w, "conductance")) == pytest.approx(-value(conductance(w)))
    assert value(graph_suspicion(w, "modularity")) == pytest.approx(value(modularity(w)))


def test_separate_parts_give_zero_without_a_sign():
    for statistic in ("connectivity", "conductance"):
        assert str(value(graph_suspicion(blocks(2, 2, between=0.0), statistic))) == "0.0"


# ----------------------------------------------------------------------------- approximation


@pytest.mark.parametrize("k", [11, 16, 40])
def test_beyond_ten_nodes_the_result_says_that_it_is_a_bound(k: int):
    w = random_graph(k, k)
    assert value(connectivity(w)) >= 0
    assert [f(w).exact for f in (connectivity, conductance, modularity)] == [True, False, False]


@given(SEEDS, st.integers(3, 9))
def test_approximations_stay_on_their_side_of_the_exact_value(seed: int, k: int):
    w = random_graph(seed, k)
    sweep, greedy = conductance(w, max_exact=2), modularity(w, max_exact=2)
    assert (sweep.exact, greedy.exact) == (False, False)
    assert sweep.value >= value(conductance(w)) - 1e-9
    assert sweep.value <= (2 * value(connectivity(w))) ** 0.5 + 1e-9
    assert 0 <= greedy.value <= value(modularity(w)) + 1e-9


def test_approximations_find_clear_clusters():
    w = blocks(8, 12)
    degree = w.sum(axis=1)
    cut = 8 * 12 * 0.01
    assert value(conductance(w)) == pytest.approx(cut / degree[:8].sum())
    share = np.array([degree[:8].sum(), degree[8:].sum()]) / degree.sum()
    expected = 1 - 2 * cut / degree.sum() - (share**2).sum()
    assert value(modularity(w)) == pytest.approx(expected)


# -------------------------------------------------------------------------------- degenerate


@pytest.mark.parametrize(
    "weights",
    [
        np.zeros((0, 0)),
        np.zeros((1, 1)),
        np.array([[0.0, 1.0], [1.0, 0.0]]),
        np.zeros((5, 5)),
        context_weights(np.zeros((4, 3))),
        context_weights([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]),
    ],
)
def test_too_few_nodes_or_no_edges_give_no_value(weights: NDArray[np.float64]):
    assert [f(weights) for f in (connectivity, conductance, modularity)] == [None] * 3
    assert [graph_suspicion(weights, s) for s in STATISTICS] == [None] * 3


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones((2, 3)), "shape"),
        (np.full((3, 3), np.nan), "finite"),
        (np.ones((3, 3)), "zero diagonal"),
        (np.array([[0.0, 1, 0], [2, 0, 1], [0, 1, 0]]), "symmetric"),
        (-blocks(3), ">= 0"),
        (np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 0]]), "node 2 has no edge"),
    ],
)
def test_other_matrices_are_refused(weights: NDArray[np.float64], message: str):
    for function in (connectivity, conductance, modularity):
        with pytest.raises(ValueError, match=message):
            function(weights)
