from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ragassay.attacks.jamming import RESPONSES, Jamming, declines
from ragassay.attacks.jamming_search import Climbed, JammingSearch, Limits, Scene, climb
from ragassay.attacks.jamming_words import Words, read_words
from ragassay.errors import ConfigError, DataError, KnowledgeError, PluginError
from ragassay.testing import check_attack
from ragassay.testing.scene import AttackScene
from ragassay.types import Knowledge, PoisonSet, Target

QUESTION = "who wrote Hamlet"
TARGET = Target(query_id="q7", wanted=("Bacon",))
IDK = "I don't know. The context does not provide enough information"
VOCABULARY = (
    "amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty",
)  # fmt: skip


# ----------------------------------------------------------------------------- declining


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("I don't know.", True),
        ("i DON\u2019T  know!", True),
        ("Well, I dont know that.", True),
        ("I do not know.", False),
        ("Hi dont know", False),
        ("I don't", False),
        ("", False),
    ],
)
def test_an_answer_declines_if_it_holds_the_phrase_as_words(answer: str, expected: bool) -> None:
    assert declines(answer) is expected


def test_phrases_without_a_word_are_never_found() -> None:
    assert not declines("...", ("...", ""))


# ------------------------------------------------------------------------ by instruction


def craft(attack: Jamming) -> PoisonSet:
    scene = AttackScene(attack.knowledge, question=QUESTION)
    poison = attack.craft(TARGET, scene, np.random.default_rng(0))
    assert scene.refused == []
    return poison


@pytest.mark.parametrize("response", sorted(RESPONSES))
def test_a_blocker_is_the_question_and_an_order_to_decline(response: Any) -> None:
    poison = craft(Jamming(response=response, n=3))
    assert len({p.text for p in poison.passages}) == 3
    for passage, detail in zip(poison.passages, poison.details, strict=True):
        assert passage.text == f"{QUESTION} {detail['payload']}"
        assert RESPONSES[response] in passage.text
        assert detail["payload_intact"] is True
        assert detail["response"] == RESPONSES[response]
        assert "Bacon" not in passage.text


def test_success_is_that_the_system_declines_not_a_string() -> None:
    poison = craft(Jamming())
    assert poison.wanted == ()
    assert [detail["success"] for detail in poison.details] == ["declines"]


def test_the_instruction_needs_the_question_alone() -> None:
    assert Jamming.knowledge == Knowledge(query="exact")
    assert Jamming().max_passages == 1
    check_attack(Jamming())


def test_an_own_wording_without_the_response_has_no_payload_to_check(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("@@ user\nNo reply is due to {{question}}.\n", encoding="utf-8")
    poison = craft(Jamming(prompt=str(file)))
    assert poison.passages[0].text == f"{QUESTION} No reply is due to {QUESTION}."
    assert poison.details[0]["payload_intact"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "1 <= n <= 3.* got 0"),
        ({"n": 4}, "1 <= n <= 3.* got 4"),
        ({"response": "silence"}, "response.*misleading.*got 'silence'"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Jamming(**options)


# ------------------------------------------------------------------------------ the climb


def uniform(words: Sequence[str] = VOCABULARY) -> Words:
    return Words(tuple(words), np.full(len(words), 1 / len(words)))


class Toy:
    """A system whose answer says how far a document is from a password, word by word.

    ``retrieves`` decides which documents it finds. Every document is kept.
    """

    def __init__(
        self, password: Sequence[str], retrieves: Callable[[str], bool] = lambda _: True
    ) -> None:
        self.password = password
        self.retrieves = retrieves
        self.seen: list[str] = []
        self.scored: list[str] = []

    def ask(self, text: str) -> tuple[str, bool]:
        self.seen.append(text)
        if not self.retrieves(text):
            return "I don't know.", False  # as if something else had made it decline
        words = text.removeprefix("q. ").split()
        right = sum(a == b for a, b in zip(words, self.password, strict=True))
        return ("I don't know" if right == len(self.password) else f"{right} right"), True

    def similarity(self, answers: Sequence[str]) -> NDArray[np.float64]:
        self.scored.extend(answers)
        return np.array(
            [1.0 if declines(a) else int(a.split()[0]) / len(self.password) for a in answers]
        )

    def climb(self, seed: int = 0, limits: Limits | None = None) -> Climbed:
        return climb(
            Scene(ask=self.ask, similarity=self.similarity, head="q. "),
            uniform(),
            ("[MASK]",) * len(self.password),
            np.random.default_rng(seed),
            limits or Limits(batch=4),
        )


def losses(found: Climbed) -> list[float]:
    values = [loss for _, loss in found.trace if loss is not None]
    assert len(values) == len(found.trace)
    return values


def test_it_climbs_word_by_word_to_a_document_that_one_change_could_not_reach() -> None:
    found = Toy(("cedar", "amber", "jetty")).climb()
    assert found.words == ("cedar", "amber", "jetty")
    assert (found.stop, found.loss, found.retrieved) == ("declined", -1.0, True)
    assert declines(found.answer)


@pytest.mark.parametrize("seed", range(8))
def test_the_loss_never_increases_and_starts_at_the_first_document(seed: int) -> None:
    toy = Toy(("cedar", "amber", "jetty", "cedar"))
    found = toy.climb(seed, Limits(batch=3, iterations=60))
    values = losses(found)
    assert values[0] == 0.0
    assert len(values) > 2
    assert all(after < before for before, after in pairwise(values))
    assert found.loss == values[-1]
    right = sum(a == b for a, b in zip(found.words, toy.password, strict=True))
    assert found.loss == -right / 4


def test_documents_that_are_not_retrieved_are_never_scored_nor_taken() -> None:
    # The forbidden word makes the document vanish and the system decline: a trap.
    toy = Toy(("cedar", "amber"), retrieves=lambda text: "birch" not in text)
    found = toy.climb(3, Limits(batch=10))
    assert any("birch" in text for text in toy.seen)
    assert "birch" not in found.words
    assert found.words == ("cedar", "amber")
    asked_and_found = [text for text in toy.seen if "birch" not in text]
    assert len(toy.scored) == len(asked_and_found)


def test_a_first_document_that_is_not_retrieved_has_no_loss_and_any_retrieved_one_beats_it() -> (
    None
):
    toy = Toy(("cedar", "amber"), retrieves=lambda text: "[MASK]" not in text)
    one = Toy(("cedar",), retrieves=lambda text: "[MASK]" not in text).climb()
    assert one.trace[0] == (0, None)
    assert one.words == ("cedar",)
    never = toy.climb(limits=Limits(batch=4, patience=5))  # both words would have to change
    assert (never.loss, never.retrieved, never.stop) == (None, False, "patience")
    assert never.words == ("[MASK]", "[MASK]")
    assert toy.scored == []


def test_it_stops_after_iterations_without_a_gain_and_a_gain_resets_the_count() -> None:
    toy = Toy(("nowhere", "amber"))  # the first word is not in the vocabulary
    found = toy.climb(0, Limits(batch=2, patience=6, iterations=500))
    gains = [iteration for iteration, _ in found.trace[1:]]
    assert found.stop == "patience"
    assert gains
    assert found.iterations == gains[-1] + 6


def test_it_stops_at_the_iteration_and_at_the_query_limit() -> None:
    toy = Toy(("nowhere",) * 5)
    found = toy.climb(0, Limits(batch=4, iterations=3))
    assert (found.stop, found.iterations, found.queries) == ("iterations", 3, 13)
    toy = Toy(("nowhere",) * 5)
    found = toy.climb(0, Limits(batch=4, queries=6))
    assert (found.stop, found.queries, len(toy.seen)) == ("queries", 6, 6)


def test_no_document_is_asked_about_twice() -> None:
    toy = Toy(("nowhere", "amber"))
    toy.climb(0, Limits(batch=8, patience=40))
    assert len(toy.seen) == len(set(toy.seen))


def test_a_first_document_that_jams_is_kept_without_a_search() -> None:
    found = Toy(("[MASK]", "[MASK]")).climb()
    assert (found.stop, found.iterations, found.queries) == ("declined", 0, 1)


def test_equal_seeds_give_equal_searches_and_others_differ() -> None:
    runs = []
    for seed in (1, 1, 2):
        toy = Toy(("cedar", "amber", "jetty"))
        toy.climb(seed)
        runs.append(toy.seen)
    assert runs[0] == runs[1] != runs[2]


# ----------------------------------------------------------------------------- the attack


def victim(passages: Sequence[str]) -> str:
    """Answer, unless a passage holds a certain word; near it, grow vague."""
    text = " ".join(passages)
    if "unable" in text:
        return IDK
    return "The context does not say enough." if "report" in text else "Shakespeare wrote it."


def scene_for(attack: JammingSearch, **options: Any) -> AttackScene:
    options = {"victim": victim, **options}
    return AttackScene(attack.knowledge, question=QUESTION, budget=1, **options)


def search(attack: JammingSearch, seed: int = 0, **options: Any) -> tuple[PoisonSet, AttackScene]:
    scene = scene_for(attack, **options)
    poison = attack.craft(TARGET, scene, np.random.default_rng(seed))
    assert scene.refused == []
    return poison, scene


def test_the_search_finds_the_word_that_makes_a_victim_decline() -> None:
    poison, scene = search(JammingSearch(oracle="hashing", words=6))
    [passage], [detail] = poison.passages, poison.details
    assert passage.text.startswith(f"{QUESTION}. ")
    assert "unable" in passage.text.split()
    assert len(passage.text.split()) == 3 + 6
    assert poison.wanted == ()
    assert (detail["success"], detail["verified"], detail["stop"]) == (
        "declines",
        True,
        "declined",
    )
    assert detail["victim_queries"] == scene.victim_asked
    assert detail["loss"] < detail["loss_start"]
    values = [loss for _, loss in detail["trace"]]
    assert values == sorted(values, reverse=True)
    assert detail["payload_intact"] is True
    assert detail["oracle_texts"] > 0


def test_a_search_that_fails_keeps_its_best_document_and_marks_it_unverified() -> None:
    attack = JammingSearch(oracle="hashing", words=4, iterations=5, batch=3)
    poison, _ = search(attack, victim=lambda _: "Shakespeare wrote it.")
    [detail] = poison.details
    assert len(poison.passages) == 1
    assert (detail["verified"], detail["stop"]) == (False, "iterations")
    assert detail["loss"] == detail["loss_start"]


def test_a_question_that_is_declined_without_poison_is_not_searched() -> None:
    poison, scene = search(JammingSearch(oracle="hashing"), victim=lambda _: "I don't know.")
    [detail] = poison.details
    assert scene.victim_asked == detail["victim_queries"] == 1
    assert (detail["stop"], detail["verified"]) == ("declines without poison", False)
    assert (detail["loss"], detail["loss_start"]) == (None, None)


def test_the_word_budget_counts_the_question_and_nothing_is_asked_where_there_is_no_room() -> None:
    attack = JammingSearch(oracle="hashing", words=50, iterations=1)
    poison, _ = search(attack, max_words=8)
    assert len(poison.passages[0].text.split()) == 8
    poison, scene = search(attack, max_words=3)
    assert (poison.passages, poison.details, scene.victim_asked) == ((), (), 0)


def test_equal_seeds_give_equal_poison() -> None:
    attack = JammingSearch(oracle="hashing", words=6)
    one, again, other = (search(attack, seed)[0] for seed in (1, 1, 2))
    assert one == again
    assert one.passages != other.passages


def test_the_search_declares_queries_to_the_victim_and_no_less_will_do() -> None:
    attack = JammingSearch(oracle="hashing")
    assert attack.knowledge == Knowledge(llm="query", query="exact")
    assert attack.max_passages == 1
    less = AttackScene(Knowledge(llm="helper"), question=QUESTION, victim=victim)
    with pytest.raises(KnowledgeError, match="ask_victim"):
        attack.craft(TARGET, less, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"words": 0}, "words >= 1, got 0"),
        ({"batch": 0}, "batch >= 1, got 0"),
        ({"queries": 0}, "queries >= 1, got 0"),
        ({"drop": -1}, "drop >= 0, got -1"),
        ({"mask": "two words"}, "mask to be one word, got 'two words'"),
        ({"mask": ""}, "mask to be one word"),
        ({"response": "x"}, "response"),
    ],
)
def test_impossible_search_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        JammingSearch(**{"oracle": "hashing", **options})


def test_an_unknown_oracle_is_an_error_before_anything_is_asked() -> None:
    with pytest.raises(PluginError, match="unknown encoder 'nosuch'"):
        JammingSearch(oracle="nosuch")


# -------------------------------------------------------------------------- words to draw


def test_words_of_a_file_are_weighted_by_count_without_the_most_frequent(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("The the THE fox, fox! jumps 12 the", encoding="utf-8")
    words = read_words(str(file), drop=1)
    assert words.words == ("fox", "jumps")
    assert words.weights.tolist() == [2 / 3, 1 / 3]


def test_drawn_words_differ_and_are_as_many_as_there_are() -> None:
    words = read_words()
    rng = np.random.default_rng(0)
    assert len(set(words.draw(32, rng))) == 32
    assert sorted(uniform().draw(99, rng)) == sorted(VOCABULARY)
    assert len(words.words) == len(set(words.words)) > 400


def test_frequent_words_are_drawn_more_often() -> None:
    words = Words(("often", "seldom"), np.array([0.9, 0.1]))
    rng = np.random.default_rng(0)
    first = [words.draw(1, rng)[0] for _ in range(400)]
    assert 330 < first.count("often") < 390


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"", "holds 0 different words, and the 100"),
        (b"one two", "holds 2 different words"),
    ],
)
def test_a_file_that_gives_no_words_is_an_error_that_names_it(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        JammingSearch(oracle="hashing", path=str(file))
    assert str(file) in str(caught.value)
    with pytest.raises(DataError, match="No such file"):
        JammingSearch(oracle="hashing", path=str(tmp_path / "absent.txt"))


def test_the_identity_follows_the_words_and_options_not_the_place(tmp_path: Path) -> None:
    for name, text in (("a", "fox jumps"), ("b", "fox jumps"), ("c", "fox sleeps")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    a, b, c = (
        JammingSearch(oracle="hashing", path=str(tmp_path / name), drop=0).identity
        for name in "abc"
    )
    assert a == b != c
    assert (
        JammingSearch(oracle="hashing").identity
        != JammingSearch(oracle="hashing", words=49).identity
    )
