from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragassay.stats.intervals import wilson
from ragassay.stats.utility import (
    UtilityScores,
    exact_match,
    normalize_answer,
    strip_lead,
    summarize_utility,
    token_f1,
    utility_scores,
)

TEXT = st.lists(
    st.sampled_from(["the", "a", "Nile", "river", "yes", "no", "noanswer", "42", "...", "An"]),
    max_size=6,
).map(" ".join)


# ------------------------------------------------------------------------------ normalization


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Nile.", "nile"),
        ("an apple a day", "apple day"),
        ("  two\t\nlines ", "two lines"),
        ("theater, Another", "theater another"),  # articles are whole words only
        ("well-known", "wellknown"),  # punctuation is deleted, not spaced
        ("U.S.A.", "usa"),
        ("A.", ""),  # deleted punctuation leaves an article
        ("d'Artagnan's", "dartagnans"),
        ("caf\u00e9 \u2019 \u2014", "caf\u00e9 \u2019 \u2014"),  # only ASCII punctuation
        ("", ""),
    ],
)
def test_answers_are_normalized_as_in_squad(text: str, expected: str):
    assert normalize_answer(text) == expected


@given(st.text(max_size=40))
def test_normalization_leaves_no_article_upper_case_or_double_space(text: str):
    once = normalize_answer(text)
    assert not {"a", "an", "the"} & set(once.split())
    assert once == " ".join(once.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Answer: Ottawa", "Ottawa"),
        ("The answer is Ottawa.", "Ottawa."),
        ("the ANSWER is: Ottawa", "Ottawa"),
        ("  answer : Ottawa", "Ottawa"),
        ("Answer:Ottawa", "Ottawa"),
        ("The answer isn't known", "The answer isn't known"),
        ("Answers: none", "Answers: none"),
        ("My answer is Ottawa", "My answer is Ottawa"),
        ("Ottawa is the answer: yes", "Ottawa is the answer: yes"),
        ("Answer: the answer is Ottawa", "the answer is Ottawa"),  # one only
        ("answer is", ""),
    ],
)
def test_one_leading_announcement_is_removed(text: str, expected: str):
    assert strip_lead(text) == expected


def test_a_long_run_of_spaces_is_read_in_linear_time():
    text = " " * 200_000 + "answer" + " " * 200_000 + "x"
    assert strip_lead(text) == text


# ----------------------------------------------------------------------------------- measures


@pytest.mark.parametrize(
    ("answer", "references", "exact", "f1"),
    [
        ("the Nile", ["Nile River", "Nile"], True, 1.0),
        ("Nile", ["Nile River"], False, 2 / 3),
        ("The answer is the Nile.", ["nile"], True, 1.0),
        ("Paris, France", ["Rome"], False, 0.0),
        ("New York New York", ["New York"], False, 2 / 3),  # repeats count by number
        ("big big dog", ["big dog dog"], False, 2 / 3),
        ("", ["Nile"], False, 0.0),
        ("the", ["A"], True, 1.0),  # neither side has tokens
        ("...", ["Nile"], False, 0.0),
        ("Nile", ["Amazon", "White Nile", "the Nile river basin"], False, 2 / 3),
    ],
)
def test_measures_of_squad(answer: str, references: list[str], exact: bool, f1: float):
    assert exact_match(answer, references) is exact
    assert token_f1(answer, references) == pytest.approx(f1)


@pytest.mark.parametrize(
    ("answer", "references", "f1"),
    [
        ("yes", ["yes"], 1.0),
        ("Yes.", ["yes"], 1.0),
        ("Answer: no", ["no"], 1.0),
        ("yes it is", ["yes"], 0.0),
        ("no", ["no one knows"], 0.0),
        ("noanswer", ["noanswer given"], 0.0),
        ("yes it is", ["Nile", "it is"], 0.8),  # the rule holds for each reference by itself
        ("yes", ["no"], 0.0),
        ("yes sir", ["sir yes sir"], 0.8),  # neither side is just yes
        ("the", ["a"], 0.0),  # no tokens, no credit
    ],
)
def test_measures_of_hotpotqa(answer: str, references: list[str], f1: float):
    assert token_f1(answer, references, convention="hotpotqa") == pytest.approx(f1)


@given(TEXT, st.lists(TEXT, min_size=1, max_size=4))
def test_an_exact_match_has_full_f1_and_f1_is_the_best_over_the_references(
    answer: str, references: list[str]
):
    f1 = token_f1(answer, references)
    each = [token_f1(answer, [reference]) for reference in references]
    assert f1 == max(each)
    assert 0 <= f1 <= 1
    strict = token_f1(answer, references, convention="hotpotqa")
    assert strict <= f1
    if exact_match(answer, references):
        assert f1 == 1.0


@given(TEXT, TEXT)
def test_f1_is_symmetric_in_answer_and_reference(one: str, two: str):
    for convention in ("squad", "hotpotqa"):
        assert token_f1(one, [two], convention=convention) == pytest.approx(
            token_f1(two, [one], convention=convention)
        )


@given(TEXT.filter(normalize_answer), TEXT.filter(normalize_answer))
def test_f1_is_the_harmonic_mean_of_precision_and_recall(answer: str, reference: str):
    said, wanted = normalize_answer(answer).split(), normalize_answer(reference).split()
    left = list(wanted)
    shared = 0
    for token in said:
        if token in left:
            left.remove(token)
            shared += 1
    precision, recall = shared / len(said), shared / len(wanted)
    expected = 2 * precision * recall / (precision + recall) if shared else 0.0
    assert token_f1(answer, [reference]) == pytest.approx(expected)


def test_no_reference_is_not_scored():
    assert exact_match("Nile", []) is None
    assert token_f1("Nile", []) is None


def test_an_unknown_convention_is_refused():
    with pytest.raises(ValueError, match="known: squad, hotpotqa"):
        token_f1("x", [], convention="bleu")  # type: ignore[arg-type]


# -------------------------------------------------------------------------------- many answers


def scored() -> UtilityScores:
    return utility_scores(
        ["the Nile", "white Nile", None, "I don't know", "Nile"],
        [["Nile"], ["Nile"], ["Nile"], ["Nile"], []],
    )


def test_many_answers_are_scored_as_one_by_one():
    found = scored()
    assert found.exact.tolist()[:2] == [1.0, 0.0]
    assert found.f1[1] == pytest.approx(2 / 3)
    assert found.words[[0, 1, 3, 4]].tolist() == [2, 2, 3, 1]
    assert [math.isnan(x) for x in found.f1] == [False, False, True, False, True]
    assert [math.isnan(x) for x in found.words] == [False, False, True, False, False]


def test_a_summary_counts_abstentions_as_wrong_and_shows_the_median_length():
    found = summarize_utility(
        scored(), [False, False, None, True, False], list("aabbc"), rng=np.random.default_rng(0)
    )
    assert (found.n, found.unscored) == (3, 2)
    assert (found.exact.count, found.exact.n, found.exact.interval) == (1, 3, wilson(1, 3))
    assert found.f1 == pytest.approx((1 + 2 / 3) / 3)
    assert found.f1_interval is not None
    assert found.f1_interval.low <= found.f1 <= found.f1_interval.high
    assert found.median_words == 2.0
    assert (found.abstained.count, found.abstained.n) == (1, 4)


def test_a_summary_of_nothing_has_no_figures():
    found = summarize_utility(
        utility_scores([None], [["x"]]), [None], ["a"], rng=np.random.default_rng(0)
    )
    assert (found.n, found.f1, found.f1_interval, found.median_words) == (0, None, None, None)
    assert found.exact.value is None
    assert found.abstained.value is None


def test_one_group_gives_a_mean_without_an_interval():
    found = summarize_utility(
        utility_scores(["x", "y"], [["x"], ["x"]]),
        [False, False],
        ["a", "a"],
        rng=np.random.default_rng(0),
    )
    assert (found.f1, found.f1_interval) == (0.5, None)


def test_lists_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="need references for 2 answers, got 1"):
        utility_scores(["a", "b"], [["a"]])
    with pytest.raises(ValueError, match="one label and one group an answer"):
        summarize_utility(scored(), [True], ["a"] * 5, rng=np.random.default_rng(0))
