from __future__ import annotations

import pytest

from ragassay.stats.exposure import by_stratum, support_stratum
from ragassay.stats.intervals import wilson
from ragassay.stats.proportions import proportion, share_true


@pytest.mark.parametrize(
    ("support", "context", "expected"),
    [
        (["a", "b"], ["x", "b", "a"], "all"),
        (["a", "b"], ["b", "b", "x"], "some"),
        (["a", "b"], ["x"], "none"),
        (["a"], [], "none"),
        (["a", "a"], ["a"], "all"),
        ([], ["a"], None),
        ([], [], None),
    ],
)
def test_strata_follow_how_much_support_is_left(support: list, context: list, expected: str | None):
    assert support_stratum(support, context) == expected


def test_the_published_strata_add_up():
    strata = ["all"] * 21 + ["some"] * 57 + ["none"] * 22
    target = [i < 10 for i in range(21)] + [i < 31 for i in range(57)] + [i < 19 for i in range(22)]
    rows = by_stratum(strata, target)
    assert [(row.stratum, row.contexts, row.target.count) for row in rows] == [
        ("all", 21, 10), ("some", 57, 31), ("none", 22, 19),
    ]  # fmt: skip
    assert sum(row.contexts for row in rows) == 100
    assert sum(row.target.count for row in rows) == 60
    assert rows[2].target.interval == wilson(19, 22)


def test_unlabeled_and_unannotated_contexts_are_counted_apart():
    rows = by_stratum(["all", None, "all", None], [None, True, False, None])
    assert [(row.stratum, row.contexts, row.target.count, row.target.n) for row in rows] == [
        ("all", 2, 0, 1), ("some", 0, 0, 0), ("none", 0, 0, 0), (None, 2, 1, 1),
    ]  # fmt: skip
    assert rows[1].target.value is None
    assert rows[1].target.interval is None


def test_other_strata_and_lengths_are_refused():
    with pytest.raises(ValueError, match="unknown stratum 'most'"):
        by_stratum(["most"], [True])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="one label a context"):
        by_stratum(["all"], [])


def test_a_proportion_keeps_its_denominator():
    found = share_true([True, None, False])
    assert (found.count, found.n, found.value) == (1, 2, 0.5)
    assert share_true([None]).value is None
    with pytest.raises(ValueError, match="0 <= successes <= n"):
        proportion(3, 2)
