"""Edits, the indefinite article, and what a rule has to report."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragassay.tampering import RULES, Edit, Rule, Tampered, apply_edits
from ragassay.tampering.articles import indefinite, with_article
from ragassay.tampering.edits import edited


def test_edits_are_carried_out_in_any_order() -> None:
    text = "Red and blue."
    edits = [Edit(8, 12, "blue", "green", "x"), Edit(0, 3, "Red", "Pale gray", "x")]
    assert apply_edits(text, edits) == apply_edits(text, edits[::-1]) == "Pale gray and green."


def test_edits_that_overlap_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap at 2"):
        apply_edits("abcdef", [Edit(0, 3, "abc", "x", "k"), Edit(2, 4, "cd", "y", "k")])


def test_an_edit_made_for_another_text_is_refused() -> None:
    with pytest.raises(ValueError, match="need 'abc' at 0, the text has 'xyz'"):
        apply_edits("xyz", [Edit(0, 3, "abc", "q", "k")])


def test_an_edit_that_changes_nothing_is_not_reported() -> None:
    found = edited("It is red.", [Edit(6, 9, "red", "red", "k")], otherwise="nothing")
    assert found == Tampered("It is red.", (), False, "nothing")


def test_edits_that_cancel_each_other_leave_the_passage_unapplied() -> None:
    found = edited("aab", [Edit(0, 1, "a", "", "k"), Edit(2, 2, "", "", "k")], otherwise="none")
    assert found.text == "ab"
    same = edited("aa", [Edit(0, 1, "a", "", "k"), Edit(2, 2, "", "a", "k")], otherwise="none")
    assert same == Tampered("aa", (), False, "none")


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=40), st.lists(st.tuples(st.integers(0, 40), st.text(max_size=5))))
def test_a_text_with_edits_keeps_everything_outside_of_them(
    text: str, places: list[tuple[int, str]]
) -> None:
    edits, last = [], 0
    for start, after in sorted(places):
        if last <= start < len(text):
            edits.append(Edit(start, start + 1, text[start], after, "k"))
            last = start + 1
    found = edited(text, edits, otherwise="none")
    assert found.applied == (found.text != text) == bool(found.edits)
    assert apply_edits(text, found.edits) == found.text
    kept = [text[i] for i in range(len(text)) if not any(e.start <= i < e.stop for e in edits)]
    rest = found.text
    for character in kept:
        assert character in rest
        rest = rest[rest.index(character) + 1 :]


@pytest.mark.parametrize(
    ("word", "article"),
    [
        ("American", "an"), ("French", "a"), ("European", "a"), ("Ukrainian", "a"),
        ("honest", "an"), ("hour", "an"), ("Italian", "an"), ("Uruguayan", "a"),
        ("university", "a"), ("FBI agent", "an"),
        ("NATO ally", "a"), ("U.S. state", "a"), ("8-year-old", "an"), ("18-year-old", "an"),
        ("11 km walk", "an"), ("1850 novel", "an"), ("1950 novel", "a"), ("110-page", "a"),
        ("80,000 crowd", "an"), ("18,000 crowd", "an"), ("1,100 crowd", "a"), ("", "a"),
        ("unimportant", "an"), ("one-off", "a"), ("UK band", "a"),
    ],
)  # fmt: skip
def test_the_article_follows_the_sound(word: str, article: str) -> None:
    assert indefinite(word) == article


def test_an_article_in_front_is_replaced_with_the_word_and_keeps_its_case() -> None:
    assert with_article("An American came", 3, "French") == (0, "A French")
    assert with_article("A French man", 2, "Irish") == (0, "An Irish")


def test_a_letter_that_is_no_article_is_left_alone() -> None:
    assert with_article("Vitamin-a American", 11, "French") == (11, "French")
    assert with_article("the American", 4, "French") == (4, "French")


def test_every_rule_is_found_by_its_name_and_keeps_the_protocol() -> None:
    assert set(RULES) == {
        "entity_swap", "number_swap", "negation", "llm_rewrite", "coordinated"
    }  # fmt: skip
    for name, cls in RULES.items():
        assert isinstance(cls(), Rule)
        assert cls.name == name
        assert cls.version
