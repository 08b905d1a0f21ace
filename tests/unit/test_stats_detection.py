from __future__ import annotations

import itertools
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from ragassay.stats.detection import (
    OperatingPoint,
    auroc,
    calibrate_threshold,
    fnr_at_fpr,
    graph_statistics,
    score_statistics,
    threshold_index,
)

SCORES = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=40)  # many ties


# ------------------------------------------------------------------------------- calibration


@given(SCORES, st.decimals("0.01", "0.99", places=2))
def test_a_threshold_never_exceeds_the_nominal_rate_and_is_the_smallest(
    scores: list[float], fpr: Decimal
) -> None:
    threshold = calibrate_threshold(scores, float(fpr))
    allowed = fpr * len(scores)
    assert sum(score > threshold for score in scores) <= allowed
    assert threshold in scores
    assert all(
        sum(score > lower for score in scores) > allowed for lower in scores if lower < threshold
    )


@pytest.mark.parametrize(
    ("n", "fpr", "index"),
    [
        (150, 0.18, 122),
        (100, 0.41, 58),
        (500, 0.01, 494),
        (100, 0.01, 98),
        (1000, 0.1, 899),
        (3, 0.01, 2),
        (1, 0.5, 0),
        (10, 0.3, 6),
    ],
)
def test_the_index_is_exact_on_the_decimal_form(n: int, fpr: float, index: int) -> None:
    assert threshold_index(n, fpr) == index
    assert threshold_index(n, np.float64(fpr)) == index


@pytest.mark.parametrize("fpr", [0.0, 1.0, -0.1, 5, float("nan")])
def test_rates_outside_0_to_1_are_refused(fpr: float) -> None:
    with pytest.raises(ValueError, match="fpr"):
        calibrate_threshold([1.0], fpr)


@pytest.mark.parametrize("scores", [[], [1.0, float("nan")], [float("inf")]])
def test_thresholds_need_finite_scores(scores: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        calibrate_threshold(scores, 0.05)
    with pytest.raises(ValueError, match="clean score"):
        threshold_index(0, 0.05)


# --------------------------------------------------------------------------- score statistics


def test_one_passage_has_no_gap_and_no_dispersion() -> None:
    found = score_statistics([0.0])
    assert (found.negative_min, found.gap, found.dispersion) == (0.0, 0.0, 0.0)
    assert str(found.negative_min) == "0.0"


def test_score_statistics_need_a_score() -> None:
    with pytest.raises(ValueError, match="finite"):
        score_statistics([])


# --------------------------------------------------------------------------- graph statistics


def partitions(nodes: list[int]) -> Iterator[list[list[int]]]:
    """All partitions, by putting the first node in every block of those of the others."""
    if not nodes:
        yield []
        return
    head, *rest = nodes
    for partition in partitions(rest):
        yield [[head], *partition]
        for i, block in enumerate(partition):
            yield [*partition[:i], [head, *block], *partition[i + 1 :]]


def by_hand(w: NDArray[np.float64]) -> tuple[float, float, float]:
    """Second eigenvalue, conductance and modularity straight from the definitions."""
    k = len(w)
    degree = w.sum(axis=1)
    scaled = np.array([[w[i, j] / (degree[i] * degree[j]) ** 0.5 for j in range(k)]
                       for i in range(k)])  # fmt: skip
    lambda2 = sorted(np.linalg.eigvals(np.eye(k) - scaled).real)[1]
    cuts = []
    for size in range(1, k):
        for side in itertools.combinations(range(k), size):
            other = [i for i in range(k) if i not in side]
            crossing = sum(w[i, j] for i in side for j in other)
            cuts.append(crossing / min(degree[list(side)].sum(), degree[other].sum()))
    total = degree.sum()
    quality = [
        sum(
            sum(w[i, j] for i in block for j in block) / total
            - (sum(degree[i] for i in block) / total) ** 2
            for block in partition
        )
        for partition in partitions(list(range(k)))
    ]
    return lambda2, min(cuts), max(quality)


@pytest.mark.parametrize("seed", range(6))
def test_graph_statistics_agree_with_the_definitions(seed: int) -> None:
    generator = np.random.default_rng(seed)
    k = 2 + seed
    w = generator.random((k, k)) ** 3
    w = np.maximum(w + w.T, 1e-6)
    np.fill_diagonal(w, 0)
    found = graph_statistics(w)
    assert (found.lambda2, found.conductance, found.modularity) == pytest.approx(by_hand(w))


def test_graph_statistics_do_not_depend_on_the_order_of_the_passages() -> None:
    generator = np.random.default_rng(3)
    w = generator.random((8, 8))
    w = w + w.T
    np.fill_diagonal(w, 0)
    order = generator.permutation(8)
    one, two = graph_statistics(w), graph_statistics(w[np.ix_(order, order)])
    assert one.lambda2 == pytest.approx(two.lambda2)
    assert one.conductance == pytest.approx(two.conductance)
    assert one.modularity == pytest.approx(two.modularity)


def test_two_separate_parts_have_no_connection() -> None:
    w = np.zeros((4, 4))
    w[0, 1] = w[1, 0] = w[2, 3] = w[3, 2] = 1
    found = graph_statistics(w)
    assert found.lambda2 == pytest.approx(0, abs=1e-12)
    assert (found.conductance, found.modularity) == (0.0, 0.5)


def test_the_best_partition_can_have_many_blocks() -> None:
    pairs = np.kron(np.eye(5), np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert graph_statistics(pairs).modularity == pytest.approx(1 - 5 / 25)


@pytest.mark.parametrize(
    "w",
    [
        np.zeros((1, 1)),
        np.ones((11, 11)) - np.eye(11),
        np.ones((2, 3)),
        np.ones((3, 3)),  # not zero on the diagonal
        np.array([[0.0, 1.0], [2.0, 0.0]]),  # not symmetric
        np.array([[0.0, -1.0], [-1.0, 0.0]]),
        np.zeros((3, 3)),  # a node without a neighbor
    ],
)
def test_graph_statistics_refuse_other_matrices(w: NDArray[np.float64]) -> None:
    with pytest.raises(ValueError, match=r"need a square|weights must"):
        graph_statistics(w)


# --------------------------------------------------------------------------- operating points


@given(SCORES, SCORES)
def test_auroc_agrees_with_scikit_learn(positive: list[float], negative: list[float]) -> None:
    labels = [1] * len(positive) + [0] * len(negative)
    oracle = roc_auc_score(labels, positive + negative)
    assert auroc(positive, negative) == pytest.approx(oracle, abs=1e-12)


@given(hnp.arrays(float, 7, elements=st.floats(-1e6, 1e6)))
def test_a_score_that_does_not_tell_apart_has_auroc_one_half(
    scores: NDArray[np.float64],
) -> None:
    assert auroc(scores, scores) == pytest.approx(0.5)


def test_an_empty_class_has_no_operating_point() -> None:
    assert auroc([], [1.0]) is None
    assert auroc([1.0], []) is None
    assert fnr_at_fpr([], [1.0], 0.05) is None
    assert fnr_at_fpr([1.0], [], 0.05) is None


def test_a_positive_at_the_threshold_is_missed() -> None:
    assert fnr_at_fpr([1.0, 2.0], [0.0, 1.0], 0.05) == OperatingPoint(1.0, 0.5)
