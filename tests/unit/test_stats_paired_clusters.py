"""Changes on few questions get no interval: resampling hardly spreads there."""

from __future__ import annotations

import numpy as np
import pytest

from ragassay.stats.dose import Resampling
from ragassay.stats.paired_clusters import (
    MIN_SIDE,
    Events,
    Scored,
    auroc_change,
    rate_change,
)
from ragassay.stats.roc import GroupedScores

MANY = [f"q{i}" for i in range(20)]


def _how() -> Resampling:
    return Resampling(np.random.default_rng(7))


@pytest.mark.parametrize(("questions", "known"), [(MIN_SIDE - 1, False), (MIN_SIDE, True)])
def test_a_rate_needs_questions_on_both_sides(questions: int, known: bool) -> None:
    few = Events([True] * questions, MANY[:questions])
    many = Events([False] * len(MANY), MANY)
    for before, after in ((few, many), (many, few)):
        found = rate_change(before, after, _how())
        assert found.value in (-1.0, 1.0)
        assert (found.clusters, found.fewest) == (len(MANY), questions)
        assert (found.interval is not None) == known


def test_an_auroc_needs_questions_with_poison() -> None:
    scores = np.linspace(0.0, 1.0, len(MANY))
    full = Scored(GroupedScores(scores + 0.1, MANY), GroupedScores(scores, MANY))
    thin = Scored(
        GroupedScores(scores[:3] + 0.1, MANY[:3]), GroupedScores(scores, MANY)
    )  # fmt: skip
    found = auroc_change(full, thin, _how())
    assert found.value is not None
    assert found.fewest == 3
    assert found.interval is None
    assert auroc_change(full, full, _how()).interval is not None
