"""ContentPoison on toys (test_golden_attacks_lm has a real model and the golden value)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ragassay import prompts
from ragassay.attacks.contentpoison import ContentPoison, says
from ragassay.attacks.contentpoison_frame import OPENING, Frame, token_weights, wanted_output
from ragassay.attacks.contentpoison_search import Schedule, TriggerSearch, grow
from ragassay.canon import dumps
from ragassay.errors import ConfigError
from ragassay.plugins.access import Ids
from ragassay.testing.scripted import make_hits
from ragassay.testing.toys import AttackScene, ToyLM
from ragassay.types import Hit, Message, Passage, PoisonSet, Target

FACTS = ("Ottawa is the capital.", "Canada has ten provinces.", "Maple trees are tapped.")
TARGET = Target(query_id="q1", references=("Ottawa",), wanted=("Toronto", "the city of Toronto"))
QUICK: dict[str, Any] = {"n": 2, "context": 2, "steps": 6, "test_every": 3, "batch": 12, "top": 20}
MERGES = ("!!", "to", "Tor", "th", "or")


class LetterLM(ToyLM):
    """A toy whose tokens are characters and some longer pieces, taken greedily.

    ``answer`` says what it answers to a prompt; ``glue`` are pieces that only a text's tokens
    have, so that single letters beside each other do not survive.
    """

    def __init__(
        self,
        merges: Sequence[str] = (),
        *,
        seed: int = 0,
        answer: Callable[[str], str] = lambda _: "Nobody knows.",
    ) -> None:
        super().__init__(seed=seed)
        rng = np.random.default_rng([seed, 1])
        self.pieces = (*map(chr, range(32, 127)), "\n", *merges, "<begin>")
        self.vocabulary = len(self.pieces)
        self.begin = self.vocabulary - 1
        self.usable = np.array([piece.isprintable() and piece != " " for piece in self.pieces])
        self.usable[self.begin] = False
        self.embeddings = rng.normal(size=(self.vocabulary, 8)).astype(np.float32)
        self._head = 2 * rng.normal(size=(8, self.vocabulary))
        self._numbers = {piece: i for i, piece in enumerate(self.pieces[:-1])}
        self._longest = max(map(len, self._numbers))
        self._answer = answer
        self.asked: list[str] = []
        self.weights: list[tuple[str, tuple[float, ...]]] = []

    def tokenize(self, text: str) -> Ids:
        ids, at = [], 0
        while at < len(text):
            size = next(
                size
                for size in range(self._longest, 0, -1)
                if text[at : at + size] in self._numbers and size <= len(text) - at
            )
            ids.append(self._numbers[text[at : at + size]])
            at += size
        return tuple(ids)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.pieces[i] for i in ids if i != self.begin)

    def generate(self, messages: Sequence[Message], max_tokens: int) -> str:
        self.asked.append(messages[-1].content)
        return self._answer(messages[-1].content)

    def loss_gradient(
        self, ids: Any, positions: Any, target_slice: Any, weights: Any = None
    ) -> Any:
        self.weights.append(("gradient" if len(positions) else "loss", tuple(weights)))
        return super().loss_gradient(ids, positions, target_slice, weights)


def craft(attack: ContentPoison, *, seed: int = 0, **settings: Any) -> PoisonSet:
    settings.setdefault("language_model", LetterLM())
    settings.setdefault("hits", make_hits(FACTS))
    target = settings.pop("target", TARGET)
    view = AttackScene(attack.knowledge, **settings)
    poison = attack.craft(target, view, np.random.default_rng(seed))
    assert not view.refused
    dumps(poison)  # plain JSON
    return poison


def frame_of(model: ToyLM, passages: Sequence[str] = FACTS) -> Frame:
    return Frame(model, prompts.load("answer"), "What is the capital of Canada?", passages)


def schedule(**changes: Any) -> Schedule:
    options: dict[str, Any] = {
        "steps": 4, "test_every": 1, "batch": 12, "top": 20, "positions": 3, "pool": 6,
        "pool_step": 2, "keyword_weight": 0.8,
    }  # fmt: skip
    return Schedule(**options | changes)


# ------------------------------------------------------------------------------------- frame


def test_the_keyword_is_where_the_answer_stands_in_the_wanted_sentence() -> None:
    model = LetterLM(MERGES)
    ids, keyword = wanted_output(model, "Toronto")
    assert model.decode(ids) == f"{OPENING} Toronto."
    assert model.decode(ids[keyword]) == "Toronto"
    weights = token_weights(len(ids), keyword, 0.8)
    inside = range(*keyword.indices(len(ids)))
    assert [i for i, weight in enumerate(weights) if weight == 0.8] == list(inside)
    assert [weight for weight in weights if weight != 0.8] == pytest.approx(
        [0.2] * (len(ids) - len(inside))
    )


def test_the_keyword_is_found_where_tokens_do_not_spell_the_text() -> None:
    model = ToyLM()  # lower case, no punctuation
    ids, keyword = wanted_output(model, "New Toronto")
    assert ids == model.tokenize(f"{OPENING} New Toronto.")
    assert ids[keyword] == model.tokenize("New Toronto")


def test_a_token_that_begins_before_the_answer_counts_as_keyword() -> None:
    model = LetterLM((" To",))
    ids, keyword = wanted_output(model, "Toronto")
    assert model.decode(ids[keyword]) == " Toronto"


def test_places_are_ends_of_words_and_the_nearest_ones_come_first() -> None:
    frame = frame_of(LetterLM(), ["One two three.", "Four  five", "six"])
    assert frame.origin == len("One two three.")
    assert frame.contexts == "One two three.\nFour  five\nsix"
    ends = [frame.contexts[:place].split()[-1] for place in frame.places(60)]
    assert ends == ["three.", "two", "Four", "One", "five", "six"]
    assert frame.places(2) == frame.places(60)[:2]
    for place in frame.places(60):
        assert "X".join((frame.contexts[:place], frame.contexts[place:])).split().count("X") == 0


@pytest.mark.parametrize("merges", [(), MERGES])
def test_the_tokens_around_a_trigger_and_its_own_make_the_whole_prompt(merges: Any) -> None:
    model = LetterLM(merges)
    frame = frame_of(model)
    text = " !!!!!Toronto!!!!!"
    ids = model.tokenize(text)
    for place in frame.places(60):
        left, right, exact = frame.sides(place, ids, text)
        assert exact
        assert (*left, *ids, *right) == frame.tokens(place, text)
        assert model.decode(left).endswith(frame.contexts[:place])


def test_a_trigger_that_stands_elsewhere_in_the_prompt_too_is_found_at_its_place() -> None:
    model = LetterLM()
    frame = frame_of(model, ["Go on. !ab! !ab! on.", "End !ab! here."])
    left, right, exact = frame.sides(frame.origin, model.tokenize(" !ab!"), " !ab!")
    assert exact
    assert model.decode(left).endswith("!ab! on.")
    assert model.decode(right).startswith("\nEnd")


def test_a_trigger_that_melts_with_its_neighbors_is_marked() -> None:
    model = LetterLM(("!\n",))
    frame = frame_of(model)
    ids = model.tokenize(" !a!")
    left, right, exact = frame.sides(frame.origin, ids, " !a!")
    assert not exact
    assert model.decode((*left, *ids, *right)).count(" !a!") == 1


# ------------------------------------------------------------------------------------ search


@pytest.mark.parametrize("merges", [(), MERGES])
@pytest.mark.parametrize("seed", range(4))
def test_the_loss_falls_and_is_that_of_the_text(seed: int, merges: Any) -> None:
    model = LetterLM(merges, seed=seed)
    poison = craft(ContentPoison(**QUICK), language_model=model, seed=seed)
    note = poison.details[0]
    losses = [note["start_loss"], *(loss for _, loss in note["trace"])]
    assert len(losses) > 1
    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) == len(losses)
    assert note["loss"] == pytest.approx(losses[-1], abs=1e-6)

    frame = frame_of(model, FACTS[:2])
    ids, keyword = wanted_output(model, "Toronto")
    for text, reported in ((" !!!!!Toronto!!!!!", note["start_loss"]), (note["trigger"], None)):
        logs = model.logprob(frame.tokens(frame.origin, str(text)), ids)
        expected = -float(np.mean(logs[keyword]))
        assert expected == pytest.approx(reported or note["loss"], abs=1e-5)
    trigger = str(note["trigger"])
    assert model.decode(model.tokenize(trigger)) == trigger


def test_candidates_whose_text_has_other_tokens_are_dropped() -> None:
    def lost(merges: Sequence[str]) -> int:
        attack = ContentPoison(**QUICK | {"batch": 30})
        poison = craft(attack, language_model=LetterLM(merges), hits=make_hits(FACTS))
        return int(poison.details[0]["retokenization_losses"])  # type: ignore[call-overload]

    doubles = tuple(a + b for a in map(chr, range(33, 127)) for b in "!T")
    assert lost(doubles) > 2 * lost(())
    search = TriggerSearch(
        frame=frame_of(LetterLM(("ab",))),
        output=wanted_output(LetterLM(), "Toronto"),
        schedule=schedule(),
        convinced=lambda place, text: (False, ""),
        rng=np.random.default_rng(0),
    )
    model = search.frame.model
    apart, melted = model.tokenize(" a!b"), (*model.tokenize(" a"), *model.tokenize("b"))
    sides = search.frame.sides(search.frame.origin, apart, " a!b")
    assert search._surviving([apart, melted], sides) == [(apart, " a!b")]
    assert search.lost == 1


def test_a_toy_with_one_token_for_the_whole_trigger_reaches_the_best_token() -> None:
    model = ToyLM(seed=3)
    attack = ContentPoison(n=1, context=1, steps=8, test_every=8, batch=50, top=50, positions=1)
    note = craft(attack, language_model=model, hits=make_hits(["ba be bi bo"])).details[0]
    frame = frame_of(model, ["ba be bi bo"])
    ids, keyword = wanted_output(model, "Toronto")
    losses = [
        -float(np.mean(model.logprob(frame.tokens(frame.origin, f" {word}"), ids)[keyword]))
        for word in model.pieces[:50]
    ]
    assert note["loss"] == pytest.approx(min(losses), abs=1e-5)


def test_the_gradient_takes_the_whole_sentence_and_the_choice_the_keyword_alone() -> None:
    model = LetterLM()
    craft(ContentPoison(**QUICK, positions=2), language_model=model)
    ids, keyword = wanted_output(model, "Toronto")
    lead = tuple(token_weights(len(ids), keyword, 0.8))
    only = tuple(token_weights(len(ids), keyword, 1.0))
    assert {weights for kind, weights in model.weights if kind == "gradient"} == {lead}
    assert {weights for kind, weights in model.weights if kind == "loss"} == {only}
    assert model.backwards == 6 * 2


def test_it_stops_when_the_model_says_the_target_at_all_three_places() -> None:
    attack = ContentPoison(**QUICK)
    model = LetterLM(answer=lambda _: "It is TORONTO, surely.")
    note = craft(attack, language_model=model).details[0]
    assert (note["stop"], note["success"], note["iterations"]) == ("success", True, 3)
    assert note["answer"] == "It is TORONTO, surely."
    (test,) = note["tests"]
    assert test["fooled"] == [True, True, True]
    assert test["places"][0] == len(FACTS[0])
    assert len(model.asked) == 3
    assert all(str(note["trigger"]) in asked for asked in model.asked)


@pytest.mark.parametrize("answer", ["Ottawa, not Toronto.", "Torontonian", "I don't know", ""])
def test_naming_the_correct_answer_or_not_the_target_is_no_success(answer: str) -> None:
    note = craft(ContentPoison(**QUICK), language_model=LetterLM(answer=lambda _: answer)).details[
        0
    ]
    assert (note["stop"], note["success"], note["iterations"]) == ("steps", False, 6)
    assert [test["step"] for test in note["tests"]] == [3, 6]
    assert all(test["fooled"] == [False] for test in note["tests"])


def test_one_place_at_which_it_fails_is_enough_to_go_on() -> None:
    behind = f"{FACTS[0]} "  # the trigger's own place

    def answer(prompt: str) -> str:
        return "Toronto" if behind in prompt else "Ottawa"

    note = craft(ContentPoison(**QUICK), language_model=LetterLM(answer=answer)).details[0]
    assert note["success"] is False
    assert {False} == {test["success"] for test in note["tests"]}
    assert all(test["fooled"][0] and not test["fooled"][-1] for test in note["tests"])


def test_the_trigger_grows_by_turns_and_the_pool_shrinks() -> None:
    model = LetterLM()
    seen: list[tuple[str, int]] = []

    class Watched(TriggerSearch):
        def _step(self, text: str, pool: int) -> tuple[str, float | None]:
            seen.append((text, pool))
            return text, None

    search = Watched(
        frame=frame_of(model),
        output=wanted_output(model, "Toronto"),
        schedule=schedule(steps=6, test_every=1),
        convinced=lambda place, text: (False, ""),
        rng=np.random.default_rng(0),
    )
    found = search.run("!a!")
    assert seen == [
        (" !a!", 6), (" !!a!", 4), (" !!a!!", 2), (" !!!a!!", 1), (" !!!a!!!", 1), (" !!!!a!!!", 1),
    ]  # fmt: skip
    assert found.text == " !a!"
    assert len(found.tests) == 6
    assert grow(grow(" x", front=True), front=False) == " !x!"


# --------------------------------------------------------------------------- what is injected


def test_every_genuine_passage_carries_the_same_trigger() -> None:
    hits = tuple(
        Hit(passage=Passage(id=f"d{i}", text=f" {text}\n", title=f"T{i}"), rank=i, score=1 / i)
        for i, text in enumerate(FACTS, start=1)
    )
    poison = craft(ContentPoison(**QUICK | {"n": 3}), hits=hits)
    assert poison.wanted == TARGET.wanted
    assert len({passage.id for passage in poison.passages}) == 3
    assert len({note["trigger"] for note in poison.details}) == 1
    for i, (passage, note) in enumerate(zip(poison.passages, poison.details, strict=True)):
        assert passage.text == FACTS[i] + note["trigger"]
        assert passage.text[note["trigger_start"] : note["trigger_end"]] == note["trigger"]
        assert str(note["trigger"]).startswith(" ")
        assert passage.title == f"T{i + 1}"
        assert (note["carrier"], note["carrier_id"]) == ("clean_retrieved", f"d{i + 1}")
        assert note["words"] == len(passage.text.split())


def test_texts_that_argue_for_the_target_carry_it_when_asked_for() -> None:
    attack = ContentPoison(**QUICK, carrier="misinformation")
    drafts = ("Toronto it is.", "Toronto rules.", "Never used.")
    model = LetterLM()
    poison = craft(attack, drafts=drafts, language_model=model)
    trigger = str(poison.details[0]["trigger"])
    assert [p.text for p in poison.passages] == [draft + trigger for draft in drafts[:2]]
    assert poison.details[0]["carrier_id"] is None
    assert f"{drafts[0]}{trigger}\n{FACTS[0]}" in model.asked[-1]
    with pytest.raises(ConfigError, match="no poison texts for query 'q1'"):
        craft(attack, drafts=(" ",))


def test_blank_passages_carry_nothing_and_missing_ones_are_missed() -> None:
    poison = craft(ContentPoison(**QUICK | {"n": 5}), hits=make_hits(["", FACTS[0], " \n"]))
    assert [note["carrier_id"] for note in poison.details] == ["p2"]
    with pytest.raises(ConfigError, match="nothing is retrieved for query 'q1'"):
        craft(ContentPoison(**QUICK), hits=make_hits(["", " "]))


def test_no_more_passages_are_written_than_are_asked_for() -> None:
    assert len(craft(ContentPoison(**QUICK | {"n": 3}), budget=1).passages) == 1
    assert ContentPoison(n=4).max_passages == 4


@pytest.mark.parametrize(
    "passage", ["<b>&\u202e\U0001f512 \u00e9", "{{question}} {{contexts}}", "!" * 50]
)
def test_hostile_passages_are_carried_as_they_are(passage: str) -> None:
    model = ToyLM()
    poison = craft(ContentPoison(**QUICK), hits=make_hits([passage]), language_model=model)
    assert poison.passages[0].text.startswith(passage + " ")


def test_equal_seeds_give_equal_triggers_and_others_do_not() -> None:
    attack = ContentPoison(**QUICK)
    assert dumps(craft(attack)) == dumps(craft(attack))
    triggers = {craft(attack, seed=seed).details[0]["trigger"] for seed in range(4)}
    assert len(triggers) > 1


@pytest.mark.parametrize(
    "settings",
    [
        {"target": Target(query_id="q9", references=("Ottawa",))},
        {"target": Target(query_id="q9", wanted=("...",))},
        {"target": Target(query_id="q9", wanted=("Toronto",)), "correct_answers": ()},
    ],
)
def test_a_query_without_correct_or_wrong_answer_is_an_error_that_names_it(settings: Any) -> None:
    with pytest.raises(ConfigError, match=r"correct and a wrong answer.*'q9'"):
        craft(ContentPoison(**QUICK), **settings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "need n >= 1"),
        ({"batch": 0}, "need batch >= 1"),
        ({"pool_step": -1}, "need pool_step >= 0"),
        ({"keyword_weight": 0.0}, "need keyword_weight above 0"),
        ({"keyword_weight": 1.2}, "need keyword_weight above 0"),
        ({"carrier": "gold"}, "carrier to be one of clean_retrieved, misinformation"),
        ({"prompt": "poisonedrag_write"}, "it needs"),
    ],
)
def test_wrong_options_are_refused_by_name(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ContentPoison(**options)


def test_what_an_answer_says_is_decided_by_whole_tokens() -> None:
    assert says("The answer is: toronto!", "Toronto")
    assert not says("Torontonians", "Toronto")
    assert not says("anything", "!!")
