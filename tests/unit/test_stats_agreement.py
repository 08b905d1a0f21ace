"""Agreement: against definitions written out, scikit-learn, and published worked examples."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragassay.stats.agreement import (
    agreement,
    bootstrap_alpha,
    bootstrap_kappa,
    cohen_kappa,
    confusion,
    krippendorff_alpha,
)

YES, NO, UN, NA = "yes", "no", "uncertain", "not_applicable"
LABELS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1)
RATINGS = st.integers(2, 5).flatmap(
    lambda m: st.lists(
        st.lists(st.sampled_from([None, "x", "y", "z"]), min_size=m, max_size=m), min_size=1
    )
)


def kappa_by_definition(pairs: list[tuple[str, str]]) -> float | None:
    n = len(pairs)
    observed = sum(a == b for a, b in pairs) / n
    chance = sum(a == b for (a, _), (_, b) in itertools.product(pairs, pairs)) / n**2
    return None if chance == 1 else (observed - chance) / (1 - chance)


def alpha_by_definition(items: list[list[Any]]) -> float | None:
    """Observed and expected disagreement over pairs of labels, one pair at a time."""
    units = [[x for x in item if x is not None] for item in items]
    units = [unit for unit in units if len(unit) > 1]
    pool = [x for unit in units for x in unit]
    n = len(pool)
    different = sum(pool[i] != pool[j] for i, j in itertools.permutations(range(n), 2))
    if not different:
        return None
    observed = sum(
        sum(u[i] != u[j] for i, j in itertools.permutations(range(len(u)), 2)) / (len(u) - 1)
        for u in units
    )
    return 1 - (observed / n) / (different / (n * (n - 1)))


# ------------------------------------------------------------------------------------ kappa


@given(LABELS)
def test_kappa_is_its_definition(pairs: list[tuple[str, str]]) -> None:
    found = cohen_kappa(confusion([a for a, _ in pairs], [b for _, b in pairs], "abc"))
    expected = kappa_by_definition(pairs)
    assert (found is None) == (expected is None)
    assert found is None or found == pytest.approx(expected, abs=1e-12)


@settings(deadline=None, max_examples=50)
@given(LABELS)
def test_kappa_equals_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    found = cohen_kappa(confusion(a, b, "abc"))
    if found is not None:
        assert found == pytest.approx(metrics.cohen_kappa_score(a, b), abs=1e-12)


@given(LABELS)
def test_kappa_does_not_depend_on_which_side_is_first(pairs: list[tuple[str, str]]) -> None:
    table = confusion([a for a, _ in pairs], [b for _, b in pairs], "abc")
    first, second = cohen_kappa(table), cohen_kappa(table.T)
    assert first == second or first == pytest.approx(second, abs=1e-12)


@pytest.mark.parametrize("matrix", [[[10, 0], [0, 0]], [[0, 0], [0, 0]], [[0.3, 0], [0, 0]]])
def test_kappa_is_not_defined_where_chance_alone_agrees_or_nothing_was_counted(
    matrix: list[list[float]],
) -> None:
    assert cohen_kappa(matrix) is None


def test_kappa_is_one_when_all_agree_and_minus_one_when_all_swap() -> None:
    assert cohen_kappa([[3, 0], [0, 3]]) == 1
    assert cohen_kappa([[0, 3], [3, 0]]) == -1


@pytest.mark.parametrize("matrix", [[], [[1, 2]], [[1, -1], [0, 1]], [[math.nan, 1], [1, 1]]])
def test_kappa_refuses_what_is_no_table(matrix: Any) -> None:
    with pytest.raises(ValueError, match=r"need a square|counts must"):
        cohen_kappa(matrix)


@pytest.mark.parametrize(
    ("a", "b", "categories", "said"),
    [
        (["x"], [], "xy", "same units"),
        (["z"], ["x"], "xy", "'z' is not among"),
        (["x"], ["x"], "xx", "given twice"),
    ],
)
def test_confusion_refuses_what_does_not_match(a: Any, b: Any, categories: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        confusion(a, b, categories)


# ---------------------------------------------------------------------------------- agreement


def test_uncertain_is_disagreement_and_both_not_applicable_is_agreement() -> None:
    found = agreement([YES, NO, NO, YES, NA, NA, YES], [YES, NO, UN, NO, NA, NO, None])
    assert (found.n, found.unscored, found.both_na, found.one_sided_na) == (6, 1, 1, 1)
    assert (found.overall.count, found.overall.n) == (3, 6)
    assert (found.decisive.count, found.decisive.n) == (2, 3)
    assert (found.uncertain_human, found.uncertain_other) == (0, 1)
    assert found.confusion == ((1, 1, 0), (0, 1, 1), (0, 0, 0))
    assert found.kappa == pytest.approx(kappa_by_definition([(YES, YES), (NO, NO), (YES, NO)]))


def test_two_uncertain_labels_do_not_agree() -> None:
    found = agreement([UN, UN], [UN, UN])
    assert (found.overall.count, found.overall.n, found.decisive.n) == (0, 2, 0)
    assert found.decisive.rate is None
    assert found.decisive.interval is None
    assert found.kappa is None


def test_nothing_compared_is_not_estimable() -> None:
    found = agreement([], [])
    assert (found.n, found.overall.rate, found.kappa, found.kappa3) == (0, None, None, None)


def test_an_unknown_label_is_refused() -> None:
    with pytest.raises(ValueError, match="'maybe' is not among"):
        agreement([YES], ["maybe"])


@given(st.lists(st.tuples(*[st.sampled_from([YES, NO, UN, NA, None])] * 2)))
def test_every_pair_is_counted_once(pairs: list[tuple[Any, Any]]) -> None:
    found = agreement([a for a, _ in pairs], [b for _, b in pairs])
    applicable = sum(map(sum, found.confusion))
    assert found.unscored + found.both_na + found.one_sided_na + applicable == len(pairs)
    assert found.overall.n == found.n == len(pairs) - found.unscored
    assert found.decisive.count + found.both_na == found.overall.count
    assert found.decisive.n <= applicable


# ---------------------------------------------------------------------------------- bootstrap


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def test_the_kappa_bootstrap_has_the_quantiles_of_all_resamples() -> None:
    a, b = list("yynn"), list("ynnn")
    values = []
    for picks in itertools.product(range(4), repeat=4):
        value = kappa_by_definition([(a[i], b[i]) for i in picks])
        if value is not None:
            values.append(value)
    found = bootstrap_kappa(a, b, "yn", draws=200_000, confidence=0.8, rng=rng())
    assert found is not None
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(values, [0.1, 0.9])))
    share = 1 - len(values) / 4**4
    assert found.undefined / found.draws == pytest.approx(share, abs=0.01)


def test_answers_of_a_group_are_drawn_together() -> None:
    a, b = ["y", "n"] * 30, ["y", "n"] * 15 + ["n", "y"] * 15
    alone = bootstrap_kappa(a, b, "yn", rng=rng())
    whole = bootstrap_kappa(a, b, "yn", groups=[i // 15 for i in range(60)], rng=rng())
    assert alone is not None
    assert whole is not None
    assert whole.high - whole.low > 1.5 * (alone.high - alone.low)


def test_groups_of_one_unit_are_no_groups() -> None:
    a, b = list("yynnyn"), list("ynnnyy")
    alone = bootstrap_kappa(a, b, "yn", rng=rng())
    assert alone == bootstrap_kappa(a, b, "yn", groups=range(6), rng=rng())


def test_the_order_of_units_does_not_change_the_interval() -> None:
    a, b = list("yynnynnn"), list("ynnnyyny")
    assert bootstrap_kappa(a, b, "yn", rng=rng()) == bootstrap_kappa(
        a[::-1], b[::-1], "yn", rng=rng()
    )


@pytest.mark.parametrize(
    ("a", "b", "groups"),
    [
        ([], [], None),
        (["y"], ["n"], None),
        (["y", "y"], ["y", "y"], None),
        (["y", "n"], ["y", "n"], ["g", "g"]),
        # Defined, but only where the single "n" is drawn: in 63 % of the resamples.
        (["y"] * 50 + ["n"], ["y"] * 51, None),
    ],
)
def test_too_few_data_give_no_kappa_interval(a: Any, b: Any, groups: Any) -> None:
    assert bootstrap_kappa(a, b, "yn", groups=groups, draws=500, rng=rng()) is None


@pytest.mark.parametrize(("draws", "confidence"), [(0, 0.95), (10, 0.0), (10, 1.0)])
def test_the_bootstrap_refuses_impossible_settings(draws: int, confidence: float) -> None:
    options: dict[str, Any] = {"draws": draws, "confidence": confidence, "rng": rng()}
    with pytest.raises(ValueError, match="need"):
        bootstrap_kappa(["y", "n"], ["y", "n"], "yn", **options)
    with pytest.raises(ValueError, match="need"):
        bootstrap_alpha([["y", "n"], ["y", "n"]], **options)


# -------------------------------------------------------------------------------------- alpha

# Krippendorff (2011), the worked examples B (binary), C (nominal) and, after it, one that
# reference works print with three annotators and 15 items.
BINARY = ["0100000010", "1110010000"]
FOUR = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]
THREE = [".....34121133.3", "1.213343.......", "..21344.21133.4"]


def rows(texts: list[str]) -> list[list[Any]]:
    return [[None if c == "." else int(c) for c in text] for text in texts]


@pytest.mark.parametrize(("texts", "expected"), [(BINARY, 0.095), (FOUR, 0.743), (THREE, 0.691)])
def test_alpha_of_published_examples(texts: list[str], expected: float) -> None:
    found = krippendorff_alpha(rows(texts))
    assert found == pytest.approx(expected, abs=0.0005)


@given(RATINGS)
def test_alpha_is_its_definition(items: list[list[Any]]) -> None:
    found, expected = krippendorff_alpha(list(zip(*items, strict=True))), alpha_by_definition(items)
    assert (found is None) == (expected is None)
    assert found is None or found == pytest.approx(expected, abs=1e-12)


def test_missing_labels_may_be_none_minus_one_or_nan() -> None:
    with_none = krippendorff_alpha(rows(FOUR))
    numbers = np.array([[-1 if x is None else x for x in row] for row in rows(FOUR)])
    assert krippendorff_alpha(numbers) == with_none
    assert krippendorff_alpha(np.where(numbers < 0, np.nan, numbers)) == with_none


@pytest.mark.parametrize(
    "ratings", [[], [[]], [["y", None], [None, "n"]], [["y", "y"], ["y", "y"]]]
)
def test_alpha_without_pairs_or_variation_is_not_defined(ratings: list[list[Any]]) -> None:
    assert krippendorff_alpha(ratings) is None
    assert bootstrap_alpha(ratings, draws=50, rng=rng()) is None


def test_rows_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="need as many"):
        krippendorff_alpha([["y"], ["y", "n"]])


def test_the_alpha_bootstrap_has_the_quantiles_of_all_resamples() -> None:
    items = [["a", "a"], ["a", "b"], ["b", "b"], ["b", "a"]]
    values = []
    for picks in itertools.product(range(4), repeat=4):
        value = alpha_by_definition([items[i] for i in picks])
        if value is not None:
            values.append(value)
    found = bootstrap_alpha(
        list(zip(*items, strict=True)), draws=200_000, confidence=0.8, rng=rng()
    )
    assert found is not None
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(values, [0.1, 0.9])))
