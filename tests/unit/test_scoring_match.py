from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragassay.errors import ConfigError
from ragassay.matching import clean_str, find_spans, has_content, phrase, tokenize
from ragassay.scoring.match import PublishedMatch, TokenMatch, trustrag_attack_success
from ragassay.types import Query, ScoreRecord, Target

QUERY = Query(id="q", text="?", group="g")
RULES = [TokenMatch(), PublishedMatch()]


def score(
    answer: str,
    wanted: str | tuple[str, ...] = (),
    references: str | tuple[str, ...] = (),
    *,
    rule: TokenMatch | PublishedMatch = TokenMatch(),  # noqa: B008 - frozen
    declined: bool = False,
) -> ScoreRecord:
    target = Target(
        query_id="q",
        wanted=(wanted,) if isinstance(wanted, str) else wanted,
        references=(references,) if isinstance(references, str) else references,
    )
    return rule.score(trial_key="k", query=QUERY, target=target, answer=answer, declined=declined)


def words(text: str) -> list[str]:
    return [token.text for token in tokenize(text)]


# ------------------------------------------------------------------------------ whole tokens


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        ("Bacon", "It was BACON."),
        ("the Beatles", "Beatles"),
        ("Beatles", "The Beatles, of course"),
        ("An apple", "apple"),
        ("A", "vitamin A"),
        ("New York", "He lives in new\n york."),
        ("O'Brien", "It was O’Brien."),
        ("O’Brien", "It was O'Brien's idea."),
        ("Paris", "Paris's mayor"),
        ("Paris", "PARIS’S MAYOR"),
        ("McDonald's", "a McDonald’s restaurant"),
        ("Jean-Paul", "Jean Paul Sartre"),
        ("Jean Paul", "Jean‐Paul"),
        ("1,000", "exactly 1000 men"),
        ("1000", "exactly 1,000 men"),
        ("1234567.5", "1,234,567.5"),
        ("1990", "1990-1995"),
        ("1995", "from 1990-1995."),
        ("1995", "1990–1995"),
        ("5", "10-5"),
        ("-5", "about −5 degrees"),
        ("-5", 'It is "-5".'),
        ("5", "+5"),
        ("3.5%", "some 3.5 % of all"),
        ("3.5", "3.5%"),
        ("3.14", "It is 3.14."),
        ("0.5", "It is .5"),
        ("$5", "It cost $5."),
        ("10", "10²"),
        ("1½", "1 1/2"),
        ("H2O", "H₂O"),
        ("Google", "Google™"),
        ("café", "cafe\u0301"),
        ("STRASSE", "straße"),
        ("fish", "ﬁsh"),
        ("2024", "２０２４"),
        ("42", "٤٢"),
        ("北京", "我在北京住"),
        ("東京", "東京です"),
        ("กรุงเทพ", "ฉันอยู่กรุงเทพครับ"),
        ("서울", "서울에서"),
        ("हिन्दी", "वह हिन्दी बोलता है।"),
        ("Москва", "москва"),
        ("cooperate", "coop\u00aderate"),
        ("1990", "1990s, or 1990"),
        ("5", "5."),
        ("12", "12.05.1990"),
    ],
)
def test_tokens_match(target: str, answer: str) -> None:
    record = score(answer, target, target)
    assert record.target_positive is True
    assert record.correct is True


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        ("no", "I know."),
        ("no", "I don't know."),
        ("no", "nothing"),
        ("males", "females"),
        ("Rome", "Romeo"),
        ("314", "3.14"),
        ("3.14", "314"),
        ("3", "3.14"),
        ("14", "It is 3.14."),
        ("1.0", "1"),
        ("1", "1.0"),
        ("-5", "5"),
        ("5", "-5"),
        ("-5", "10-5"),
        ("5", "55"),
        ("5", "5th"),
        ("9", "1990s"),
        ("15", "15th"),
        ("5kg", "3.5kg"),
        ("5", "is .5"),
        ("1.2", "version 1.2.3"),
        ("102", "10²"),
        ("11", "1½"),
        ("$5", "-$5"),
        ("1000", "1,0000"),
        ("cafe", "café"),
        ("हन्द", "हिन्दी"),
        ("की", "कि"),
        ("New York", "York, New"),
        ("New York", "New and York"),
        ("Don", "don't"),
        ("don", "I don’t"),
        ("北京", "北方的京"),
        ("snow", "no"),
    ],
)
def test_tokens_do_not_match(target: str, answer: str) -> None:
    record = score(answer, target, target)
    assert record.target_positive is False
    assert record.correct is False


def test_every_alias_is_tried() -> None:
    assert score("It was Francis B.", ("Bacon", "Francis B")).target_positive is True
    assert score("Big Apple", (), ("New York", "the Big Apple")).correct is True


def test_a_target_and_a_reference_can_both_occur() -> None:
    record = score("Some say Berlin, others say Paris.", "Berlin", "Paris")
    assert (record.target_positive, record.correct) == (True, True)


def test_a_mention_counts_even_if_it_is_denied() -> None:
    assert score("It was not Bacon.", "Bacon").target_positive is True


# --------------------------------------------------------------------------------- evidence


@pytest.mark.parametrize(
    ("answer", "wanted", "span"),
    [
        ("It was O’Brien’s idea", "o'brien", "O’Brien"),
        ("die STRASSE und Straße.", "strasse", "STRASSE"),
        ("nur Straße.", "strasse", "Straße"),
        ("Viva E\u0301mile!", "émile", "E\u0301mile"),
        ("x … ﬁsh!", "fish", "ﬁsh"),
        ("我在北京住", "北京", "北京"),
        ("cost 1,000.50 now", "1000.50", "1,000.50"),
        ("a 3.5 %", "3.5%", "3.5 %"),
        ("İstanbul, Ankara", "Ankara", "Ankara"),
    ],
)
def test_evidence_spans_the_original_answer(answer: str, wanted: str, span: str) -> None:
    first = score(answer, wanted).evidence[0]
    assert first.label == "wanted"
    assert answer[first.start : first.stop] == span


def test_evidence_names_all_places_of_the_target_up_to_eight_once_each() -> None:
    answer = "Rome and Rome"
    spans = [(e.start, e.stop) for e in score(answer, ("Rome", "ROME", "the Rome")).evidence]
    assert spans == [(0, 4), (9, 13)]
    assert len(score("Rome " * 30, "Rome").evidence) == 8


@pytest.mark.parametrize("rule", RULES)
def test_evidence_is_labeled(rule: TokenMatch | PublishedMatch) -> None:
    answer = "I don't know: Rome or Paris?"
    record = score(answer, "Rome", "Paris", rule=rule)
    found = {e.label: answer[e.start : e.stop] for e in record.evidence}
    assert found == {"wanted": "Rome", "reference": "Paris", "abstention": "don't know"}


def test_published_evidence_covers_the_answer_where_lower_case_changes_its_length() -> None:
    answer = "İİ rome"
    [found] = score(answer, "Rome", rule=PublishedMatch()).evidence
    assert (found.start, found.stop) == (0, len(answer))


# -------------------------------------------------------------------- the published substring


@pytest.mark.parametrize(
    ("target", "answer", "hit"),
    [
        ("no", "I don't know.", True),
        ("males", "females", True),
        ("Bacon.", "bacon", True),
        ("St. Louis", "in ST. LOUIS.", True),
        ("Bacon..", "bacon..", True),  # one full stop is dropped from each
        ("Bacon..", "bacon.", False),
        ("Bacon..", "bacon", False),
        ("O’Brien", "O'Brien", False),
        ("1,000", "1000", False),
        ("14", "3.14", True),
    ],
)
def test_the_published_rule_looks_for_a_substring(target: str, answer: str, hit: bool) -> None:
    record = score(answer, target, target, rule=PublishedMatch())
    assert record.target_positive is hit
    assert record.correct is hit


def test_the_published_rule_knows_only_the_first_form_of_the_target_but_all_references() -> None:
    record = score("Lord B", ("Bacon", "Lord B"), ("X", "Lord B"), rule=PublishedMatch())
    assert (record.target_positive, record.correct) == (False, True)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [(" Bacon. ", "bacon"), (".", "."), ("..", "."), ("", ""), ("a. ", "a"), ("A .", "a ")],
)
def test_clean_str(text: str, cleaned: str) -> None:
    assert clean_str(text) == cleaned


def test_trustrag_success_needs_the_target_without_the_correct_answer() -> None:
    assert trustrag_attack_success("It was Bacon.", "Bacon", "Shakespeare")
    assert not trustrag_attack_success("Bacon or Shakespeare", "Bacon", "Shakespeare")
    assert not trustrag_attack_success("Nobody", "Bacon", "Shakespeare")


def test_trustrag_success_finds_no_empty_text() -> None:
    assert not trustrag_attack_success("anything.", ".", "x")
    assert not trustrag_attack_success("anything", "", "x")
    assert trustrag_attack_success("It was Bacon", "Bacon", "")


# ------------------------------------------------------------- not applicable, declined, abstained


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("nothing", ["", ".", "...", "%", "- -", "😀", " \n"])
def test_a_form_without_letter_or_digit_is_not_applicable(
    rule: TokenMatch | PublishedMatch, nothing: str
) -> None:
    record = score("Well... 5% - - 😀.", nothing, nothing, rule=rule)
    assert record.target_positive is None
    assert record.correct is None
    assert not record.evidence


@pytest.mark.parametrize("rule", RULES)
def test_no_form_at_all_is_not_applicable(rule: TokenMatch | PublishedMatch) -> None:
    record = score("Rome", rule=rule)
    assert (record.target_positive, record.correct, record.abstained) == (None, None, False)


def test_an_empty_alias_beside_a_good_one_is_never_a_hit() -> None:
    assert score("5%", ("Rome", "%")).target_positive is False


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("answer", ["", "Rome and Paris"])
def test_a_system_that_declines_is_neither_hit_nor_correct(
    rule: TokenMatch | PublishedMatch, answer: str
) -> None:
    record = score(answer, "Rome", "Paris", rule=rule, declined=True)
    assert (record.target_positive, record.correct) == (False, False)
    assert record.abstained is True
    assert not record.evidence
    assert score(answer, rule=rule, declined=True).target_positive is None


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "answer",
    [
        "I don't know.",
        "I DON’T KNOW",
        "Sorry, I do not know that.",
        "There is not enough information.",
        "It cannot be determined.",
        "The context is unclear",
        "I can’t answer this.",
    ],
)
def test_abstentions_are_recognized(rule: TokenMatch | PublishedMatch, answer: str) -> None:
    assert score(answer, "Rome", rule=rule).abstained is True


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("answer", ["", "Rome", "The nuclear plant", "I know.", "We don't go"])
def test_other_answers_do_not_abstain(rule: TokenMatch | PublishedMatch, answer: str) -> None:
    assert score(answer, "Rome", rule=rule).abstained is False


def test_a_refusal_counts_as_a_hit_under_the_published_rule_only() -> None:
    published = score("I don't know.", "no", rule=PublishedMatch())
    tokens = score("I don't know.", "no")
    assert (published.target_positive, published.abstained) == (True, True)
    assert (tokens.target_positive, tokens.abstained) == (False, True)


def test_own_abstention_phrases_replace_the_list_and_change_the_identity() -> None:
    own = TokenMatch(abstention_phrases=("no idea",))
    assert score("No idea!", "x", rule=own).abstained is True
    assert score("I don't know", "x", rule=own).abstained is False
    other = TokenMatch(abstention_phrases=("no clue",))
    assert len({TokenMatch().identity, own.identity, other.identity}) == 3
    assert TokenMatch().identity == "tokens:1"
    assert PublishedMatch().identity == "published:1"


@pytest.mark.parametrize("bad", ["", "..."])
def test_an_abstention_phrase_needs_a_letter_or_digit(bad: str) -> None:
    with pytest.raises(ConfigError, match="letter or digit"):
        TokenMatch(abstention_phrases=("fine", bad))


# ---------------------------------------------------------------------- hostile and large texts


@pytest.mark.parametrize("rule", RULES)
def test_lone_surrogates_are_text_like_any_other(rule: TokenMatch | PublishedMatch) -> None:
    assert score("\ud800 Rome \udfff", "Rome", rule=rule).target_positive is True
    assert score("Rome", "\ud800", rule=rule).target_positive is None


HOSTILE = {
    "words": "a word 12 " * 10_000,
    "accents": "é wörd’s " * 11_000,
    "one word": "a" * 100_000,
    "one number": "1" * 100_000,
    "thousands": "1" + ",000" * 100_000 + "0",
    "points": "1." * 50_000,
    "apostrophes": "a'" * 50_000,
    "signs": "-+" * 50_000,
    "marks": "a" + "\u0316\u0301" * 50_000,
    "chinese": "我在北京住" * 20_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_time_does_not_grow_with_the_square_of_the_length(kind: str) -> None:
    start = time.process_time()
    tokenize(HOSTILE[kind])
    assert time.process_time() - start < 3  # some 0.1 s; with the square, tens of seconds


def test_a_large_answer_is_scored() -> None:
    answer = "Filler without end. " * 50_000 + "Rome"
    record = score(answer, "Rome", "Paris")
    assert record.target_positive is True
    assert record.evidence[0].start == len(answer) - 4


# ------------------------------------------------------------------------------- properties

# Of letters, marks, digits, signs, spaces and punctuation of several scripts.
ALPHABET = "abzÀéßİσςΣ019०²½,.'’-−%$ \n\u0301\u0316北京กา서한ﬁ…\u00ad\u200d™(\U0001f600"
TEXTS = st.text(ALPHABET, max_size=24) | st.text(max_size=12)


def letters(text: str) -> str:
    """The letters and digits of a text, folded, without anything between them."""
    folded = unicodedata.normalize("NFKC", text.replace("\u00b4", "'")).casefold()
    folded = unicodedata.normalize("NFKC", folded)
    return "".join(
        str(unicodedata.decimal(c)) if c.isdecimal() else c for c in folded if c.isalnum()
    )


@given(TEXTS, TEXTS, TEXTS)
def test_a_token_hit_implies_normalized_containment(target: str, before: str, after: str) -> None:
    for answer in (f"{before} {target} {after}", before + target + after, before):
        record = score(answer, target)
        if record.target_positive and "'" not in target and "’" not in target:
            wanted = "".join(c for c in "".join(phrase(target)) if c.isalnum())
            # ".5" is looked for as 0.5: the zero need not be in the answer.
            assert wanted.replace("0", "") in letters(answer).replace("0", "")


@given(TEXTS, TEXTS, TEXTS)
def test_a_phrase_between_spaces_is_found(target: str, before: str, after: str) -> None:
    record = score(f"{before} {target} {after}", target)
    # A possessive ending, a sign or a mark at the border may belong to the neighbor.
    if has_content(target) and phrase(target) and target[0].isalnum() and target[-1].isalnum():
        assert record.target_positive is True


@given(TEXTS, TEXTS)
def test_evidence_stays_inside_the_answer_and_reads_as_the_target(target: str, answer: str) -> None:
    answer = f"{answer} {target}."
    for rule in RULES:
        for found in score(answer, target, rule=rule).evidence:
            assert 0 <= found.start < found.stop <= len(answer)
    spans = list(find_spans(tokenize(answer), phrase(target)))
    assert spans == sorted(spans)


@given(st.text(ALPHABET, max_size=40))
def test_canonically_equivalent_texts_have_equal_tokens(text: str) -> None:
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert words(composed) == words(decomposed)


WORDS = st.sampled_from(["ab", "b", "cd", "1", "2.5"])


@given(st.lists(WORDS, max_size=12), st.lists(WORDS, min_size=1, max_size=3))
def test_matching_is_finding_a_contiguous_run_of_words(
    answer: list[str], target: list[str]
) -> None:
    expected = any(answer[i : i + len(target)] == target for i in range(len(answer)))
    assert score(", ".join(answer), " ".join(target)).target_positive is expected
