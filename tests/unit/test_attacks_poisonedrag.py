from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragassay import plugins, prompts
from ragassay.attacks.poisonedrag import PoisonedRAG, build_black_box
from ragassay.errors import ConfigError
from ragassay.types import Knowledge, Message, PoisonSet, Target

QUESTION = "who wrote Hamlet"
TARGET = Target(query_id="q7", wanted=("Bacon", "Francis Bacon"))
RNG = np.random.default_rng(0)


@dataclass
class ScriptedView:
    """What an attacker sees, with a helper that writes and a reader that answers as told.

    ``reader`` maps the number of the draft (counted from 1 over the whole attack) to the
    answer; every call is kept with its settings.
    """

    reader: Callable[[int], str] = lambda _: "I don't know"
    writer: Callable[[int], str] = "Bacon wrote it, draft {}.".format
    drafts: tuple[str, ...] = ()
    question: str = QUESTION
    budget: int = 5
    max_words: int | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    written: int = 0

    @property
    def correct_answers(self) -> tuple[str, ...]:
        raise AssertionError("PoisonedRAG does not declare the correct answer")

    def ask_helper(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        max_tokens: int = 96,
        temperature: float = 1.0,
        sample_index: int = 0,
    ) -> list[str]:
        answers = []
        for prompt in prompts:
            text = "\n".join(message.content for message in prompt)
            self.calls.append({"text": text, "max_tokens": max_tokens, "temperature": temperature,
                               "sample_index": sample_index})  # fmt: skip
            if temperature == 0:
                answers.append(self.reader(self.written))
            else:
                self.written += 1
                answers.append(self.writer(self.written))
        return answers

    @property
    def writes(self) -> list[dict[str, Any]]:
        return [call for call in self.calls if call["temperature"] != 0]

    @property
    def reads(self) -> list[dict[str, Any]]:
        return [call for call in self.calls if call["temperature"] == 0]


def craft(attack: PoisonedRAG, view: ScriptedView, target: Target = TARGET) -> PoisonSet:
    return attack.craft(target, view, RNG)


# -------------------------------------------------------------------------- released texts


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "who wrote Hamlet.Bacon did."),
        ({"order": "suffix"}, "Bacon did.who wrote Hamlet."),
        ({"order": "none"}, "Bacon did."),
        ({"separator": " "}, "who wrote Hamlet Bacon did."),
    ],
)
def test_the_question_is_joined_as_asked(options: dict[str, Any], text: str) -> None:
    poison = craft(PoisonedRAG(**options), ScriptedView(drafts=("Bacon did.",)))
    assert poison.passages[0].text == text
    assert poison.passages[0].title == ""


def test_released_texts_come_in_order_without_asking_the_helper() -> None:
    view = ScriptedView(drafts=tuple(f"Bacon {i}" for i in range(5)))
    poison = craft(PoisonedRAG(n=3), view)
    assert [p.text for p in poison.passages] == [f"{QUESTION}.Bacon {i}" for i in range(3)]
    assert poison.attack == "poisonedrag"
    assert poison.query_id == "q7"
    assert poison.wanted == TARGET.wanted
    assert poison.knowledge == Knowledge(llm="helper", query="exact")
    assert view.calls == []


def test_fewer_released_texts_than_n_are_used_as_they_are() -> None:
    assert len(craft(PoisonedRAG(), ScriptedView(drafts=("a", "b"))).passages) == 2


def test_no_released_text_is_an_error_that_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match=r"'q7'.*source = .generated."):
        craft(PoisonedRAG(), ScriptedView())


def test_no_wrong_answer_is_an_error() -> None:
    with pytest.raises(ConfigError, match="'q7' has no wrong answer"):
        craft(PoisonedRAG(), ScriptedView(drafts=("a",)), Target(query_id="q7"))


def test_the_details_say_what_was_injected() -> None:
    view = ScriptedView(drafts=("It was BACON who did.", "Somebody else."))
    first, second = craft(PoisonedRAG(), view).details
    assert first == {
        "words": 5, "verified": None, "trials": 0, "order": "prefix", "separator": ".",
        "over_limit": False, "payload": "It was BACON who did.", "payload_intact": True,
    }  # fmt: skip
    assert second["payload_intact"] is False


def test_ids_are_stable_distinct_and_say_nothing_of_the_attack() -> None:
    view = ScriptedView(drafts=("same", "same", "other"))
    ids = [p.id for p in craft(PoisonedRAG(), view).passages]
    assert ids == [p.id for p in craft(PoisonedRAG(), view).passages]
    other = craft(PoisonedRAG(), view, Target(query_id="q8", wanted=("Bacon",)))
    assert len({*ids, *(p.id for p in other.passages)}) == 6
    assert all(len(i) == len("poison-") + 16 and "q7" not in i for i in ids)


# -------------------------------------------------------------------------- generated texts


def test_a_text_accepted_at_the_first_trial_costs_two_calls() -> None:
    view = ScriptedView(reader=lambda _: "It was BACON.")
    poison = craft(PoisonedRAG(source="generated", n=2), view)
    assert [d["verified"] for d in poison.details] == [True, True]
    assert [d["trials"] for d in poison.details] == [1, 1]
    assert [p.text for p in poison.passages] == [
        f"{QUESTION}.Bacon wrote it, draft 1.",
        f"{QUESTION}.Bacon wrote it, draft 2.",
    ]
    assert len(view.calls) == 4


def test_a_text_accepted_at_the_third_trial_is_the_third_draft() -> None:
    view = ScriptedView(reader=lambda draft: "Bacon" if draft == 3 else "Shakespeare")
    poison = craft(PoisonedRAG(source="generated", n=1), view)
    [detail] = poison.details
    assert (detail["verified"], detail["trials"]) == (True, 3)
    assert detail["payload"] == "Bacon wrote it, draft 3."
    assert len(view.writes) == len(view.reads) == 3


def test_a_text_that_is_never_verified_is_kept_and_marked() -> None:
    view = ScriptedView(reader=lambda _: "I don't know")
    poison = craft(PoisonedRAG(source="generated", n=2, trials=4), view)
    assert [d["verified"] for d in poison.details] == [False, False]
    assert [d["trials"] for d in poison.details] == [4, 4]
    assert [d["payload"] for d in poison.details] == [
        "Bacon wrote it, draft 4.",
        "Bacon wrote it, draft 8.",
    ]


def test_every_draw_has_its_own_sample_index_and_the_reader_is_greedy() -> None:
    view = ScriptedView()
    craft(PoisonedRAG(source="generated", n=3, trials=4), view)
    assert len({call["sample_index"] for call in view.writes}) == 12
    assert {call["temperature"] for call in view.writes} == {1.0}
    assert {(call["temperature"], call["sample_index"]) for call in view.reads} == {(0.0, 0)}


def test_the_reader_sees_the_text_alone_and_not_the_wanted_answer() -> None:
    view = ScriptedView(writer="It was F. B., draft {}.".format, reader=lambda _: "Bacon")
    craft(PoisonedRAG(source="generated", n=1), view)
    [read] = view.reads
    assert "It was F. B., draft 1." in read["text"]
    assert QUESTION in read["text"]
    assert "Bacon" not in read["text"]
    assert f"{QUESTION}.It was" not in read["text"]
    [write] = view.writes
    for part in (QUESTION, "Bacon", "30 words"):
        assert part in write["text"]


def test_empty_drafts_are_not_tried_and_do_not_replace_an_earlier_text() -> None:
    view = ScriptedView(writer=lambda i: "Bacon\n\n wrote  it." if i == 1 else "...")
    [detail] = craft(PoisonedRAG(source="generated", n=1, trials=3), view).details
    assert detail["payload"] == "Bacon wrote it."
    assert (detail["verified"], detail["trials"], len(view.reads)) == (False, 3, 1)


def test_a_helper_that_writes_nothing_leaves_an_honest_record() -> None:
    [detail] = craft(
        PoisonedRAG(source="generated", n=1, trials=2), ScriptedView(writer=lambda _: " ")
    ).details
    assert (detail["words"], detail["verified"], detail["payload_intact"]) == (0, False, False)


def test_a_long_text_gets_room_to_be_written() -> None:
    for words, tokens in ((30, 96), (100, 200)):
        view = ScriptedView(reader=lambda _: "Bacon")
        craft(PoisonedRAG(source="generated", n=1, max_words=words), view)
        assert view.writes[0]["max_tokens"] == tokens
        assert f"{words} words" in view.writes[0]["text"]


def test_hostile_texts_do_not_fill_slots() -> None:
    view = ScriptedView(writer=lambda _: "{{question}} {{answer}} Bacon", reader=lambda _: "Bacon")
    poison = craft(PoisonedRAG(source="generated", n=1), view)
    assert poison.passages[0].text == f"{QUESTION}.{{{{question}}}} {{{{answer}}}} Bacon"
    assert "{{question}} {{answer}} Bacon" in view.reads[0]["text"]


def test_another_prompt_can_be_loaded_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "write.txt"
    file.write_text("@@ user\nArgue that {{question}} is {{answer}}.", encoding="utf-8")
    view = ScriptedView(reader=lambda _: "Bacon")
    craft(PoisonedRAG(source="generated", n=1, prompt=str(file)), view)
    assert view.writes[0]["text"] == f"Argue that {QUESTION} is Bacon."


def test_a_draft_that_equals_an_earlier_text_is_drawn_again() -> None:
    replies = {1: "Bacon did.", 2: "Bacon did.", 3: "Bacon, no doubt."}
    view = ScriptedView(writer=replies.__getitem__, reader=lambda _: "Bacon")
    poison = craft(PoisonedRAG(source="generated", n=2), view)
    assert [d["payload"] for d in poison.details] == ["Bacon did.", "Bacon, no doubt."]
    assert [d["trials"] for d in poison.details] == [1, 2]
    assert len(view.reads) == 2
    assert all("duplicate" not in d for d in poison.details)


def test_a_helper_that_knows_one_text_only_leaves_duplicates_that_are_marked() -> None:
    view = ScriptedView(writer=lambda _: "Bacon did.", reader=lambda _: "Bacon")
    first, second = craft(PoisonedRAG(source="generated", n=2, trials=3), view).details
    assert (first["verified"], first.get("duplicate")) == (True, None)
    assert (second["verified"], second["trials"], second["duplicate"]) == (False, 3, True)
    assert second["payload"] == "Bacon did."


@pytest.mark.parametrize(("slack", "trials"), [(None, 1), (3, 1), (2, 2)])
def test_words_beyond_the_limit_are_recorded_and_with_slack_also_refused(
    slack: int | None, trials: int
) -> None:
    view = ScriptedView(
        writer=lambda i: "Bacon wrote it for sure, yes." if i == 1 else "Bacon did.",
        reader=lambda _: "Bacon",
    )
    attack = PoisonedRAG(source="generated", n=1, max_words=3, slack=slack)
    [detail] = craft(attack, view).details
    assert (detail["verified"], detail["trials"]) == (True, trials)
    assert detail["over_limit"] is (trials == 1)
    assert detail["words"] == (6 if trials == 1 else 2)


def test_a_text_that_is_always_too_long_is_kept_unverified_and_never_read() -> None:
    view = ScriptedView(writer="Bacon wrote all of it, number {}.".format)
    attack = PoisonedRAG(source="generated", n=1, max_words=3, slack=0, trials=2)
    [detail] = craft(attack, view).details
    assert (detail["verified"], detail["over_limit"], view.reads) == (False, True, [])
    assert detail["payload"] == "Bacon wrote all of it, number 2."


def test_no_more_texts_are_written_than_are_asked_for() -> None:
    view = ScriptedView(reader=lambda _: "Bacon", budget=2)
    assert len(craft(PoisonedRAG(source="generated"), view).passages) == 2
    assert view.written == 2


def test_an_answer_without_letters_is_never_verified_nor_intact() -> None:
    target = Target(query_id="q7", wanted=("...",))
    view = ScriptedView(reader=lambda _: "...")
    [detail] = craft(PoisonedRAG(source="generated", n=1, trials=2), view, target).details
    assert (detail["verified"], detail["payload_intact"]) == (False, False)


# --------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    "options",
    [{"n": 0}, {"max_words": 0}, {"trials": -1}, {"order": "middle"}, {"source": "copied"},
     {"slack": -1}],
)  # fmt: skip
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    [(name, value)] = options.items()
    with pytest.raises(ConfigError, match=f"{name}.*{value}"):
        PoisonedRAG(**options)


def test_prompts_need_their_slots() -> None:
    with pytest.raises(ConfigError, match=r"needs.*'answer'.*may have.*'words'"):
        PoisonedRAG(prompt="poisonedrag_verify")
    with pytest.raises(ConfigError, match=r"needs.*'context'"):
        PoisonedRAG(verify_prompt="poisonedrag_write")
    assert prompts.load("poisonedrag_write").slots == {"question", "answer", "words"}


def test_it_is_found_by_name_and_states_source_and_deviations() -> None:
    found = plugins.find("attack", "poisonedrag")
    assert found.cls is PoisonedRAG
    about = plugins.describe(found)
    assert "Zou" in about["source"]
    assert about["deviations"]
    assert isinstance(plugins.build(found, {"n": 2}), plugins.Attack)
    assert PoisonedRAG(n=2).max_passages == 2


def test_joining_keeps_the_question_mark() -> None:
    assert build_black_box("who?", "Bacon.") == "who?.Bacon."
