from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragassay.errors import NotEstimable
from ragassay.stats.tax import DIMENSIONS, RawTax, attack_tax, minmax

VALUES = st.floats(min_value=1e-3, max_value=1e6)
CHEAP = RawTax(llm="helper", retriever="none", corpus="none", seconds=1.0, similarity=0.8,
               perplexity=20.0, performance={"s_asr": 0.4, "s_f1": 0.9})  # fmt: skip
DEAR = RawTax(
    llm="internals", retriever="gradients", corpus="contents", seconds=5000.0,
    similarity=0.5, perplexity=900.0, performance={"s_asr": 0.6, "s_f1": 0.5},
)  # fmt: skip
MIDDLE = RawTax(llm="query", retriever="query", corpus="partial", seconds=10.0, similarity=None,
                perplexity=30.0, performance={"s_asr": 0.5, "s_f1": 0.6})  # fmt: skip


def by_name(attackers: dict[str, RawTax], **options: object) -> dict[str, object]:
    return {each.name: each for each in attack_tax(attackers, **options)}  # type: ignore[arg-type]


@given(st.lists(VALUES, min_size=2, max_size=8, unique=True), st.booleans(), st.booleans())
def test_scores_span_zero_to_one_and_keep_the_order(
    values: list[float], invert: bool, log: bool
) -> None:
    scores = minmax(values, invert=invert, log=log)
    if scores is None:  # logarithms can meet where the values differ in the last bit
        assert math.log(max(values)) == math.log(min(values))
        return
    known = [score for score in scores if score is not None]
    assert (min(known), max(known)) == (0.0, 1.0)
    order = sorted(range(len(values)), key=values.__getitem__, reverse=invert)
    assert [known[i] for i in order] == sorted(known)


@given(st.lists(VALUES, min_size=2, max_size=6, unique=True), st.floats(0.5, 100), VALUES)
def test_scale_and_shift_change_no_score(values: list[float], scale: float, shift: float) -> None:
    one, two = minmax(values), minmax([scale * value + shift for value in values])
    if one is not None and two is not None:
        assert two == pytest.approx(one, abs=1e-4)


def test_what_is_not_known_stays_unknown_and_one_value_gives_no_scale() -> None:
    assert minmax([1.0, None, 3.0]) == [0.0, None, 1.0]
    assert minmax([None, 2.0]) is None
    assert minmax([]) is None
    assert minmax([2.0, 2.0, None]) is None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_no_numbers_are_refused(bad: float) -> None:
    with pytest.raises(NotEstimable, match="finite"):
        minmax([1.0, bad])


def test_a_logarithm_of_zero_is_refused_and_drops_the_dimension_with_its_reason() -> None:
    with pytest.raises(NotEstimable, match="positive"):
        minmax([0.0, 1.0], log=True)
    free = RawTax(llm="none", retriever="none", corpus="none", seconds=0.0)
    cost = by_name({"a": free, "b": DEAR}, log=("cost",))["cost"]
    assert cost.scores is None
    assert "not positive" in cost.reason


def test_seven_dimensions_in_order_with_access_as_declared() -> None:
    tax = attack_tax({"cheap": CHEAP, "dear": DEAR, "middle": MIDDLE})
    assert tuple(each.name for each in tax) == DIMENSIONS
    found = {each.name: each.scores for each in tax}
    assert found["llm"] == (1.0, 0.0, 0.5)
    assert found["retriever"] == (1.0, 0.0, 1.0)
    assert found["corpus"] == (1.0, 0.0, 0.5)
    assert found["cost"] == pytest.approx((1.0, 0.0, 1 - 9 / 4999))
    assert found["similarity"] == (0.0, 1.0, None)
    assert found["perplexity"] == pytest.approx((1.0, 0.0, 1 - 10 / 880))


def test_the_logarithm_spreads_what_the_largest_value_hides() -> None:
    cost = by_name({"a": CHEAP, "b": DEAR, "c": MIDDLE}, log=("cost",))["cost"]
    assert cost.scores == pytest.approx((1.0, 0.0, 1 - math.log(10) / math.log(5000)))
    assert cost.raw == (1.0, 5000.0, 10.0)
    assert "logarithm" in cost.normalization


def test_performance_sums_each_metric_on_its_own_scale_and_scales_again() -> None:
    performance = by_name({"a": CHEAP, "b": DEAR, "c": MIDDLE})["performance"]
    assert performance.metrics == ("s_asr", "s_f1")
    assert performance.raw == pytest.approx((0.0 + 1.0, 1.0 + 0.0, 0.5 + 0.25))
    assert performance.scores == pytest.approx((1.0, 1.0, 0.0))


def test_a_metric_that_one_attacker_lacks_is_dropped_for_all() -> None:
    lacking = RawTax(llm="none", retriever="none", corpus="none",
                     performance={"s_asr": 0.1, "s_f1": None})  # fmt: skip
    performance = by_name({"a": CHEAP, "b": lacking})["performance"]
    assert performance.metrics == ("s_asr",)
    assert performance.scores == (1.0, 0.0)


def test_one_attacker_alone_has_access_scores_only() -> None:
    tax = by_name({"a": CHEAP})
    assert tax["llm"].scores == (1.0,)
    for name in ("performance", "cost", "similarity", "perplexity"):
        assert tax[name].scores is None
        assert tax[name].reason


def test_equal_attackers_are_told_apart_from_unknown_ones() -> None:
    tax = by_name({"a": CHEAP, "b": CHEAP})
    assert tax["cost"].reason == "all attackers have the same value"
    nothing = RawTax(llm="none", retriever="none", corpus="none")
    assert by_name({"a": CHEAP, "b": nothing})["cost"].reason.startswith("1 of 2 attackers")


def test_wrong_access_and_wrong_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match="llm access must be one of"):
        attack_tax({"a": RawTax(llm="all", retriever="none", corpus="none")})
    with pytest.raises(ValueError, match="log is for cost and perplexity"):
        attack_tax({"a": CHEAP}, log=("similarity",))
