from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ragassay.attacks.released import Released
from ragassay.errors import ConfigError
from ragassay.testing import StrictView, check_attack
from ragassay.types import Knowledge, PoisonSet, Target

TARGET = Target(query_id="q7", wanted=("Bacon", "Francis Bacon"))
HOSTILE = (
    "  Bacon, with white space kept \n",
    "{{question}} @@ user",
    "=cmd|' /C calc'!A0",
    "<script>alert(1)</script>",
    "\u202etxet desrever \ud800",
)


def craft(attack: Released, *drafts: str, target: Target = TARGET) -> PoisonSet:
    view = StrictView(attack.knowledge, drafts=drafts)
    poison = attack.craft(target, view, np.random.default_rng(0))
    assert view.refused == []
    assert view.asked == 0
    return poison


def test_the_contract_of_attacks_is_kept() -> None:
    check_attack(Released())
    check_attack(Released(limit=2))


def test_the_texts_are_played_exactly_as_they_stand_and_in_order() -> None:
    poison = craft(Released(), *HOSTILE)
    assert tuple(passage.text for passage in poison.passages) == HOSTILE
    assert {passage.title for passage in poison.passages} == {""}
    assert poison.query_id == "q7"
    assert poison.wanted == TARGET.wanted


def test_neither_question_nor_model_nor_corpus_is_needed() -> None:
    assert Released().knowledge == Knowledge(
        llm="none", retriever="none", corpus="none", query="none", correct_answer=False
    )


def test_a_limit_takes_the_first_texts_and_bounds_the_budget() -> None:
    poison = craft(Released(limit=2), "Bacon one.", "Bacon two.", "Bacon three.")
    assert [passage.text for passage in poison.passages] == ["Bacon one.", "Bacon two."]
    assert Released(limit=2).max_passages == 2
    assert Released().max_passages > 10**6


def test_equal_texts_and_texts_of_other_questions_have_ids_of_their_own() -> None:
    one = craft(Released(), "Bacon.", "Bacon.")
    other = craft(Released(), "Bacon.", target=Target(query_id="q8", wanted=("Bacon",)))
    ids = [passage.id for poison in (one, other) for passage in poison.passages]
    assert len(set(ids)) == 3


def test_the_details_say_whether_the_answer_stands_in_the_text() -> None:
    poison = craft(Released(), "It was BACON who did.", "Somebody else.")
    assert poison.details == (
        {"words": 5, "payload_intact": True},
        {"words": 2, "payload_intact": False},
    )
    untargeted = craft(Released(), "It was Bacon.", target=Target(query_id="q7"))
    assert untargeted.details == ({"words": 3, "payload_intact": None},)


def test_no_text_is_an_error_that_names_the_question() -> None:
    with pytest.raises(ConfigError, match="no poison texts for query 'q7'"):
        craft(Released())


@pytest.mark.parametrize("blank", ["", " \n\t"])
def test_an_empty_text_is_an_error_that_says_which(blank: str) -> None:
    with pytest.raises(ConfigError, match="poison text 2 of query 'q7' is empty"):
        craft(Released(), "Bacon.", blank)


@pytest.mark.parametrize("options", [{"limit": -1}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="limit >= 0"):
        Released(**options)
