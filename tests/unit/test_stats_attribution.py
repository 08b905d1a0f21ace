from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragassay.stats.attribution import (
    Attribution,
    Bounded,
    Monotonicity,
    SmallestSubsets,
    attribute,
    shapley_values,
    together_table,
)


@st.composite
def games(draw: st.DrawFn, *, unknown: bool = False, min_k: int = 0) -> tuple[dict, int]:
    k = draw(st.integers(min_k, 5))
    label = st.sampled_from([True, False, None] if unknown else [True, False])
    table = draw(st.lists(label, min_size=2**k, max_size=2**k))
    return dict(enumerate(table)), k


def rule(k: int, *sufficient: tuple[int, ...]) -> dict[int, bool]:
    """The monotone game in which these sets, and all that contain them, give the target."""
    masks = [sum(1 << i for i in s) for s in sufficient]
    return {mask: any(mask & m == m for m in masks) for mask in range(2**k)}


def by_permutations(labels: dict, k: int) -> list[Fraction]:
    """The Shapley value from its definition: mean marginal over all orders of arrival."""
    total = [Fraction(0)] * k
    orders = list(itertools.permutations(range(k)))
    for order in orders:
        mask = 0
        for player in order:
            total[player] += int(labels[mask | 1 << player]) - int(labels[mask])
            mask |= 1 << player
    return [value / len(orders) for value in total]


def fillings(labels: dict) -> list[dict]:
    open_ = [mask for mask, label in labels.items() if label is None]
    return [
        {**labels, **dict(zip(open_, choice, strict=True))}
        for choice in itertools.product([False, True], repeat=len(open_))
    ]


# ------------------------------------------------------------------------------------ values


@given(games())
def test_shapley_values_are_the_mean_over_all_orders(game: tuple[dict, int]):
    labels, k = game
    assert [share.value for share in shapley_values(labels, k)] == by_permutations(labels, k)


@given(games(min_k=1))
def test_shapley_values_add_up_to_what_all_poison_changed(game: tuple[dict, int]):
    labels, k = game
    total = sum(share.value for share in shapley_values(labels, k))
    assert total == int(labels[2**k - 1]) - int(labels[0])


@given(games(min_k=2), st.data())
def test_renaming_passages_renames_their_values(game: tuple[dict, int], data: st.DataObject):
    labels, k = game
    order = data.draw(st.permutations(range(k)))
    renamed = {
        sum(1 << order[i] for i in range(k) if mask >> i & 1): label
        for mask, label in labels.items()
    }
    before, after = attribute(labels, k), attribute(renamed, k)
    assert all(after.shapley[order[i]] == before.shapley[i] for i in range(k))
    assert all(after.banzhaf[order[i]] == before.banzhaf[i] for i in range(k))
    assert after.needs_together == before.needs_together
    assert after.monotonicity == before.monotonicity
    moved = {tuple(sorted(order[i] for i in s)) for s in before.sufficient.subsets}
    assert set(after.sufficient.subsets) == moved


@given(games(min_k=0).filter(lambda game: game[1] < 5), st.integers(0, 4))
def test_a_passage_that_changes_nothing_gets_nothing(game: tuple[dict, int], place: int):
    labels, k = game
    place = min(place, k)
    below = (1 << place) - 1
    wider = {
        mask: labels[(mask & below) | (mask >> place + 1 << place)] for mask in range(2 ** (k + 1))
    }
    found = attribute(wider, k + 1)
    assert found.shapley[place] == found.banzhaf[place] == Bounded(Fraction(0), Fraction(0))
    assert all(place not in subset for subset in found.sufficient.subsets)
    others = [share for i, share in enumerate(found.shapley) if i != place]
    assert others == list(shapley_values(labels, k))


@given(games(min_k=1))
def test_banzhaf_values_are_the_mean_marginal_over_all_coalitions(game: tuple[dict, int]):
    labels, k = game
    for player, share in enumerate(attribute(labels, k).banzhaf):
        without = [mask for mask in range(2**k) if not mask >> player & 1]
        marginal = [int(labels[mask | 1 << player]) - int(labels[mask]) for mask in without]
        assert share.value == Fraction(sum(marginal), len(without))


def test_two_that_are_needed_together_share_and_a_third_that_is_enough_takes_most():
    labels = rule(3, (0, 1), (2,))
    assert [share.value for share in shapley_values(labels, 3)] == [
        Fraction(1, 6), Fraction(1, 6), Fraction(2, 3),
    ]  # fmt: skip


# --------------------------------------------------------------------------- smallest subsets


def test_a_pair_that_acts_only_together_is_found():
    found = attribute(rule(3, (0, 2)), 3)
    assert found.needs_together == 2
    assert found.sufficient.subsets == ((0, 2),)
    assert found.necessary is not None
    assert found.necessary.subsets == ((0,), (2,))
    assert found.blocking == found.necessary
    assert found.monotonicity == Monotonicity(violations=0, compared=12, unknown=0)


def test_each_alone_is_enough_so_that_all_must_go():
    found = attribute(rule(3, (0,), (1,), (2,)), 3)
    assert found.needs_together == 1
    assert found.sufficient.subsets == ((0,), (1,), (2,))
    assert found.necessary is not None
    assert (found.necessary.size, found.necessary.subsets) == (3, ((0, 1, 2),))


def test_a_target_that_is_there_without_poison_needs_none_and_cannot_be_removed():
    found = attribute(dict.fromkeys(range(4), True), 2)
    assert (found.positive, found.without_poison, found.needs_together) == (True, True, 0)
    assert found.sufficient.subsets == ((),)
    assert found.necessary == found.blocking == SmallestSubsets(False, None, None, (), True)
    assert [share.value for share in found.shapley] == [0, 0]


def test_a_negative_context_has_nothing_to_remove():
    found = attribute({0: False, 1: False}, 1)
    assert found.necessary is None
    assert found.blocking is None
    assert found.needs_together is None
    assert found.sufficient.exists is False


def test_poison_that_loses_the_target_again_is_counted():
    found = attribute({0: False, 1: True, 2: False, 3: False}, 2)
    assert found.monotonicity == Monotonicity(violations=1, compared=4, unknown=0)
    assert (found.positive, found.needs_together) == (False, 1)
    assert [str(share.value) for share in found.shapley] == ["1/2", "-1/2"]


def test_removal_and_blocking_differ_where_poison_hides_poison():
    # 0 alone is enough, 1 alone is enough, and with both it takes 2 as well.
    labels = {0: 0, 1: 1, 2: 1, 3: 0, 4: 0, 5: 1, 6: 1, 7: 1}
    found = attribute({mask: bool(label) for mask, label in labels.items()}, 3)
    assert found.necessary is not None
    assert found.blocking is not None
    assert found.necessary.subsets == ((2,),)
    assert found.blocking.subsets == ((0, 1),)


def subsets_by_hand(k: int, has) -> tuple[int | None, set[tuple[int, ...]]]:
    for size in range(k + 1):
        found = {s for s in itertools.combinations(range(k), size) if has(s)}
        if found:
            return size, found
    return None, set()


@given(games())
def test_smallest_subsets_are_those_of_an_exhaustive_search(game: tuple[dict, int]):
    labels, k = game
    everything = 2**k - 1

    def mask(subset: tuple[int, ...]) -> int:
        return sum(1 << i for i in subset)

    found = attribute(labels, k)
    size, sets = subsets_by_hand(k, lambda s: labels[mask(s)])
    assert (found.sufficient.size, set(found.sufficient.subsets)) == (size, sets)
    assert found.sufficient.complete
    assert found.sufficient.exists is (size is not None)
    if not labels[everything]:
        assert found.necessary is None
        return
    assert found.necessary is not None
    assert found.blocking is not None
    size, sets = subsets_by_hand(k, lambda s: not labels[everything ^ mask(s)])
    assert (found.necessary.size, set(found.necessary.subsets)) == (size, sets)
    enough = [m for m, label in labels.items() if label]
    size, sets = subsets_by_hand(k, lambda s: all(m & mask(s) for m in enough))
    assert (found.blocking.size, set(found.blocking.subsets)) == (size, sets)
    if found.monotonicity.violations == 0:
        assert found.blocking == found.necessary


# ------------------------------------------------------------------------------ unknown labels


@given(games(unknown=True).filter(lambda g: sum(v is None for v in g[0].values()) <= 6))
def test_bounds_are_exactly_the_range_over_all_ways_to_fill_in(game: tuple[dict, int]):
    labels, k = game
    found = attribute(labels, k)
    full = [attribute(filled, k) for filled in fillings(labels)]
    for player in range(k):
        values = [other.shapley[player].value for other in full]
        assert found.shapley[player] == Bounded(min(values), max(values))
        values = [other.banzhaf[player].value for other in full]
        assert found.banzhaf[player] == Bounded(min(values), max(values))


@given(games(unknown=True).filter(lambda g: sum(v is None for v in g[0].values()) <= 6))
def test_what_is_said_of_subsets_holds_however_unknown_labels_turn_out(game: tuple[dict, int]):
    labels, k = game
    found = attribute(labels, k)
    full = [attribute(filled, k) for filled in fillings(labels)]
    for name in ("sufficient", "necessary", "blocking"):
        said = getattr(found, name)
        if said is None:
            assert found.positive is not True
            continue
        truth = [getattr(other, name) for other in full]
        assert all(t is not None for t in truth)
        if said.exists is not None:
            assert {t.exists for t in truth} == {said.exists}
        else:
            assert {t.exists for t in truth} == {True, False}
        sizes = [t.size for t in truth if t.size is not None]
        assert said.at_least == min(sizes, default=None)
        if said.at_most is not None:
            assert said.at_most == max(sizes)
        if said.size is not None:
            assert set(sizes) == {said.size}
            assert all(set(said.subsets) <= set(t.subsets) for t in truth)
            if said.complete:
                assert all(said.subsets == t.subsets for t in truth)


def test_one_unknown_label_leaves_every_value_open_but_bounded():
    found = attribute({0: False, 1: True, 2: None, 3: True}, 2)
    assert [share.value for share in found.shapley] == [None, None]
    assert found.shapley[0] == Bounded(Fraction(1, 2), Fraction(1))
    assert found.shapley[1] == Bounded(Fraction(0), Fraction(1, 2))
    assert found.needs_together == 1  # known all the same
    assert found.sufficient.subsets == ((0,),)
    assert not found.sufficient.complete
    assert found.monotonicity == Monotonicity(violations=0, compared=2, unknown=2)
    assert found.unknown == 1


def test_a_missing_coalition_is_unknown():
    assert attribute({0: False, 3: True}, 2) == attribute({0: False, 1: None, 2: None, 3: True}, 2)
    found = attribute({0: False, 3: True}, 2)
    assert found.needs_together is None
    assert (found.sufficient.at_least, found.sufficient.at_most) == (1, 2)
    assert found.sufficient.subsets == ()


def test_an_unknown_full_context_is_not_called_positive_or_negative():
    found = attribute({0: False, 1: None}, 1)
    assert found.positive is None
    assert found.necessary is None
    assert found.sufficient.exists is None


def test_a_context_without_poison_has_no_players():
    found = attribute({0: True}, 0)
    assert (found.k, found.shapley, found.needs_together) == (0, (), 0)


@pytest.mark.parametrize(
    ("labels", "k", "message"),
    [
        ({}, 6, "0 <= k <= 5"),
        ({}, -1, "0 <= k <= 5"),
        ({4: True}, 2, "coalition 4 does not exist"),
        ({-1: True}, 2, "coalition -1 does not exist"),
        ({"1": True}, 2, "coalition '1' does not exist"),
        ({1: 1}, 2, "must be bool or None, got 1"),
        ({1: "yes"}, 2, "must be bool or None"),
        ({1: float("nan")}, 2, "must be bool or None"),
    ],
)
def test_other_tables_are_refused(labels: dict, k: int, message: str):
    with pytest.raises(ValueError, match=message):
        attribute(labels, k)


def test_labels_of_numpy_are_labels():
    found = attribute({0: np.bool_(False), 1: np.bool_(True)}, 1)
    assert found.positive is True
    assert found.shapley[0].value == 1


# ------------------------------------------------------------------------------- many contexts


def contexts() -> list[Attribution]:
    return [
        attribute(rule(3, (0, 1)), 3),
        attribute(rule(2, (0,)), 2),
        attribute(rule(2, (0,)), 2),
        attribute(dict.fromkeys(range(2), True), 1),
        attribute({0: False, 3: True}, 2),  # positive, size open
        attribute({0: False, 1: False}, 1),  # not positive
        attribute({0: False, 1: None}, 1),  # no label
    ]


def test_contexts_are_counted_by_how_many_passages_they_need():
    table = together_table(contexts())
    assert [(row.size, row.contexts.count, row.contexts.n) for row in table.rows] == [
        (0, 1, 4), (1, 2, 4), (2, 1, 4), (3, 0, 4),
    ]  # fmt: skip
    assert (table.several.count, table.several.n) == (1, 4)
    assert table.several.interval is not None
    assert (table.n, table.open, table.not_positive, table.unlabeled) == (4, 1, 1, 1)


def test_no_context_gives_no_share():
    table = together_table([])
    assert table.several.value is None
    assert table.several.interval is None
    assert [(row.size, row.contexts.n) for row in table.rows] == [(0, 0)]
