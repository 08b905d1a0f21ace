"""GARAG on toys (test_golden_attacks_lm has real models and the golden values)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from ragassay import attacks
from ragassay.attacks.garag import Garag
from ragassay.attacks.garag_pareto import crowding, dominates, fronts, survivors, tournament
from ragassay.attacks.garag_search import Breeding, Evolution, edit_count, objectives, penalized
from ragassay.attacks.garag_words import (
    STOP_WORDS,
    Typos,
    Words,
    answer_words,
    keyboard_neighbors,
    own_misspellings,
    split_words,
    with_misspellings,
)
from ragassay.canon import dumps
from ragassay.errors import ConfigError
from ragassay.testing.scripted import make_hits
from ragassay.testing.toys import AttackScene, ToyEncoder, ToyLM
from ragassay.types import Hit, Message, Passage, PoisonSet, Target

FACTS = (
    "Ottawa has been the capital of Canada for years, beside a wide river valley.",
    "Canada has ten provinces and three territories; its parliament meets in Ottawa.",
    "The government of Canada sits near the river, in the capital.",
)
QUESTION = "What is the capital of Canada?"
TARGET = Target(query_id="q1", references=("Ottawa",), wanted=("Toronto",))
SIX = [[1, 5], [2, 3], [4, 1], [3, 4], [5, 2], [5, 5]]
QUICK: dict[str, Any] = {"n": 1, "population": 8, "generations": 4, "pairs": 3}


class Answering(ToyLM):
    """A toy that answers as told."""

    def __init__(self, *answers: str, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.answers = list(answers or ("Ottawa",))
        self.asked: list[str] = []

    def generate(self, messages: Sequence[Message], max_tokens: int) -> str:
        self.asked.append(messages[-1].content)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def craft(attack: Garag, *, seed: int = 0, **settings: Any) -> PoisonSet:
    settings.setdefault("encoder", ToyEncoder(similarity="cosine", seed=seed))
    settings.setdefault("language_model", Answering(seed=seed))
    settings.setdefault("hits", make_hits(FACTS))
    view = AttackScene(attack.knowledge, question=QUESTION, **settings)
    poison = attack.craft(TARGET, view, np.random.default_rng(seed))
    assert not view.refused
    dumps(poison)  # plain JSON
    return poison


def words_of(text: str, *answers: str) -> tuple[Words, Typos]:
    protected = answer_words(answers)
    typos = Typos(own_misspellings(), protected)
    return split_words(text, protected, typos), typos


# ------------------------------------------------------------------------------------- NSGA-II


def test_six_points_fall_into_the_fronts_found_by_hand() -> None:
    assert fronts(SIX) == [[0, 1, 2], [3, 4], [5]]
    assert dominates(SIX[1], SIX[3])
    assert not dominates(SIX[0], SIX[2])


def test_the_room_around_six_points_is_the_one_found_by_hand() -> None:
    # x in order 1 2 3 4 5 5, y in order 1 2 3 4 5 5 (points 2 4 1 3 0 5); both ranges are 4.
    assert crowding(SIX).tolist() == [
        np.inf,
        (3 - 1) / 4 + (4 - 2) / 4,
        np.inf,
        (4 - 2) / 4 + (5 - 3) / 4,
        (5 - 4) / 4 + (3 - 1) / 4,
        np.inf,
    ]
    assert crowding([SIX[i] for i in (0, 1, 2)]).tolist() == [np.inf, 2.0, np.inf]


def test_whole_fronts_survive_and_of_the_cut_one_the_least_crowded() -> None:
    assert survivors(SIX, 6) == [0, 1, 2, 3, 4, 5]
    assert survivors(SIX, 5) == [0, 1, 2, 3, 4]
    assert survivors(SIX, 3) == [0, 1, 2]
    assert survivors(SIX, 2) == [0, 2]  # the ends of the first front
    assert survivors([[1, 1]] * 3, 2) == [0, 1]
    assert survivors([], 2) == []


@pytest.mark.parametrize("seed", range(6))
def test_fronts_follow_their_definition(seed: int) -> None:
    points = np.random.default_rng(seed).integers(0, 6, size=(25, 2 + seed % 2))
    found = fronts(points)
    assert sorted(i for front in found for i in front) == list(range(25))
    for number, front in enumerate(found):
        later = [i for other in found[number:] for i in other]
        for i in front:
            assert not any(dominates(points[j], points[i]) for j in later)
            if number:
                assert any(dominates(points[j], points[i]) for j in found[number - 1])


def test_a_tournament_prefers_the_better_front_and_then_more_room() -> None:
    points, ranks, room = [[1, 1], [2, 2]], [0, 1], [0.0, np.inf]
    rng = np.random.default_rng(0)
    assert {tournament(points, ranks, room, rng) for _ in range(20)} == {0}
    assert {tournament(points, [0, 0], [0.5, 0.7], rng) for _ in range(20)} == {1}
    assert {tournament(points, [0, 0], [0.5, 0.5], rng) for _ in range(40)} == {0, 1}
    assert tournament([[1, 1]], [0], [np.inf], rng) == 0


def test_objectives_survive_any_similarity_and_probability() -> None:
    f_ret, f_read = objectives([0.0, 900.0, -900.0], [0.0, -900.0, 900.0], -5.0, [-5, -9e9, 9e9])
    assert f_ret[0] == f_read[0] == 1
    assert np.isfinite(f_ret).all()
    assert np.isfinite(f_read).all()
    assert f_ret[1] > 1e300 > f_read[1]
    assert f_ret[2] < 1e-300 < f_read[2]


def test_penalties_hit_only_what_is_above_one() -> None:
    points = np.array([[0.5, 2.0], [1.5, 1.0], [1.0, 0.2]])
    expected = [[0.5, 2.0], [1.8, 1.0], [1.0, 0.2]]
    np.testing.assert_allclose(penalized(points, (1.2, 1.0)), expected)


def test_at_least_one_word_is_edited_and_shares_are_cut_not_rounded() -> None:
    assert [edit_count(size, 0.2) for size in (0, 1, 9, 10, 35, 39)] == [0, 1, 1, 2, 7, 7]
    assert edit_count(100, 0.29) == 29  # 0.29 * 100 is just below 29


# --------------------------------------------------------------------------------------- typos


def test_neighbors_are_mutual_and_touch() -> None:
    keys = keyboard_neighbors()
    assert sorted(keys) == list("abcdefghijklmnopqrstuvwxyz")
    assert all(letter in keys[other] for letter, others in keys.items() for other in others)
    assert keys["q"] == "aw"
    assert keys["g"] == "bfhtvy"
    assert keys["m"] == "jkn"


def test_the_list_of_misspellings_is_in_order() -> None:
    name = files(attacks) / "garag_misspellings.txt"
    lines = [line for line in name.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    entries = [line.split(" ") for line in lines]
    heads = [word for word, *_ in entries]
    assert len(heads) > 300
    assert heads == sorted(set(heads))
    for word, *wrong in entries:
        assert wrong
        assert len(set(wrong)) == len(wrong)
        assert word not in wrong
        assert word not in STOP_WORDS
        assert all(each.isalpha() and each.islower() for each in (word, *wrong))


def test_a_word_has_typos_of_four_kinds() -> None:
    slips, wrong, cuts, swaps = Typos({"river": ("rivre",)}, ()).of("River")
    assert all(len(typo) == 5 and sum(a != b for a, b in zip(typo, "River", strict=True)) == 1
               for typo in slips)  # fmt: skip
    assert "Eiver" in slips  # case is kept
    assert wrong == ("Rivre",)
    assert set(cuts) == {"iver", "ver", "Rive", "Riv"}
    assert set(swaps) == {"Rvier", "Rievr"}
    assert Typos({"river": ("rivre",)}, ()).of("RIVER")[1] == ("RIVRE",)
    assert Typos({}, ()).of("abcdefghij")[1] == (
        "bcdefghij", "abcdefghi", "cdefghij", "abcdefgh", "defghij", "abcdefg",
    )  # fmt: skip


def test_no_typo_makes_a_word_of_an_answer_or_leaves_the_word_as_it_is() -> None:
    typos = Typos({"boon": ("boon", "moon", "bono")}, answer_words(["Moon", "boo"]))
    every = {typo for kind in typos.of("boon") for typo in kind}
    assert "bono" in every
    assert not {"moon", "boo", "boon"} & every
    plain = {typo for kind in Typos({"boon": ("moon",)}, ()).of("boon") for typo in kind}
    assert {"moon", "boo"} <= plain


def test_words_of_answers_stop_words_and_short_words_stay_closed() -> None:
    text = (
        '"Ottawa\u2019s" river, the St-John (in Ottawa) IS_IT wide?! \u2014 co2 with its OX '
        f"and Ottawas {'a' * 41}"
    )
    words, _ = words_of(text, "Ottawa (the wide one)", "St John")
    assert words.text({}) == text
    assert words.count == len(text.split())
    assert [words.word(i) for i in words.open] == ["river", "Ottawas"]


@pytest.mark.parametrize(
    "text",
    ["", " \n", "\u202eabcde\u202c  fghij\t", "\U0001f512 <script>alert</script>",
     "caf\u00e9 na\u00efve",
     "\u9996\u90fd\u662f\u6e25\u592a\u534e \u4e2d\u6587\u5b57", "a" * 500_000],
)  # fmt: skip
def test_any_text_comes_back_as_it_was(text: str) -> None:
    words, typos = words_of(text, "\u6e25\u592a\u534e")
    assert words.text({}) == text
    for number in words.open:
        assert "\u6e25" not in words.word(number)
        edited = words.text({number: typos.draw(words.word(number), np.random.default_rng(0))})
        assert edited != text
        assert len(edited.split()) == len(text.split())


def test_misspellings_can_be_added_and_wrong_ones_are_refused() -> None:
    assert with_misspellings([("receive", "receve", "recieve")])["receive"] == ("recieve", "receve")
    for wrong in (("word",), (), ("word", "two words"), ("word", "")):
        with pytest.raises(ConfigError, match="need a word and its misspellings"):
            Garag(misspellings=(wrong,))
    assert Garag(misspellings=(("Vienna", "Viena"),)) != Garag()


# -------------------------------------------------------------------------------------- search


def evolution(text: str, seed: int, **changes: Any) -> Evolution:
    words, typos = words_of(text, "Ottawa", "Canada")
    options: dict[str, Any] = {
        "level": 0.3, "population": 12, "generations": 6, "pairs": 5, "crossover": 0.2,
        "mutation": 0.4, "penalties": (1.2, 1.0),
    }  # fmt: skip

    def measure(texts: Sequence[str]) -> Any:
        return np.array(
            [[1 + (len(t) - len(text)) / 50, (sum(map(ord, t)) % 97) / 97] for t in texts]
        )

    return Evolution(
        words=words,
        typos=typos,
        measure=measure,
        done=lambda _: False,
        breeding=Breeding(**options | changes),
        rng=np.random.default_rng(seed),
    )


@pytest.mark.parametrize("level", [0.01, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_children_change_just_as_many_words_as_they_may(seed: int, level: float) -> None:
    search = evolution(FACTS[0], seed, level=level)
    size = edit_count(len(search.words.open), level)
    rng = np.random.default_rng(seed)
    pool = [search._mutated({}) for _ in range(6)]
    for _ in range(30):
        one, other = (dict(pool[int(rng.integers(len(pool)))]) for _ in range(2))
        crossed = search._crossed(one, other)
        assert all(len(child) <= size for child in crossed)
        for child in crossed:
            assert set(child.items()) <= set(one.items()) | set(other.items())
            mutated = search._mutated(child)
            assert len(mutated) == size
            assert {number for number, _ in mutated} <= set(search.words.open)
            pool.append(mutated)
    for edits in pool:
        changed = search.words.text(dict(edits)).split()
        different = sum(a != b for a, b in zip(changed, FACTS[0].split(), strict=True))
        assert different == size
        assert different / search.words.count <= level + 1 / search.words.count


@pytest.mark.parametrize("seed", range(5))
def test_mutation_keeps_the_stated_share_of_edits(seed: int) -> None:
    search = evolution(FACTS[0], seed, level=1.0)
    parent = dict(search._mutated({}))
    size = len(parent)
    kept = len(set(parent.items()) & set(search._mutated(parent)))
    assert size - round(0.4 * size) <= kept < size
    still = evolution(FACTS[0], seed, level=1.0, mutation=0.0)
    assert dict(still._mutated(parent)) == parent


@pytest.mark.parametrize("seed", range(6))
def test_the_best_individual_never_gets_worse(seed: int) -> None:
    found = evolution(FACTS[1], seed).run()
    keys = [(f_ret >= 1, f_read) for _, f_ret, f_read in found.trace]
    assert keys == sorted(keys, reverse=True)
    assert [number for number, _, _ in found.trace] == list(range(7))
    assert (found.stop, found.generations) == ("generations", 6)
    assert found.trace[-1][1:] == (found.f_ret, found.f_read)
    assert found.evaluations <= 12 + 6 * 10


def test_no_text_is_measured_twice_and_a_generation_is_measured_at_once() -> None:
    search = evolution(FACTS[0], 1)
    batches: list[list[str]] = []
    inner = search.measure

    def measure(texts: Sequence[str]) -> Any:
        batches.append(list(texts))
        return inner(texts)

    search.measure = measure
    found = search.run()
    every = [text for batch in batches for text in batch]
    assert len(every) == len(set(every)) == found.evaluations
    assert len(batches) <= 7


def test_it_stops_once_a_better_retrieved_copy_breaks_the_answer() -> None:
    search = evolution(FACTS[0], 0)
    asked: list[str] = []

    def done(text: str) -> bool:
        asked.append(text)
        return len(asked) == 2

    search.done = done
    found = search.run()
    assert found.stop == "broken"
    assert found.f_ret < 1
    assert found.text == asked[-1]
    assert len(found.trace) == found.generations + 1
    never = evolution(FACTS[0], 0)
    never.measure = lambda texts: np.array([[1.0, 0.1]] * len(texts))
    never.done = lambda text: pytest.fail("asked without being retrieved better")
    assert never.run().stop == "generations"


# -------------------------------------------------------------------------------- the attack


@pytest.mark.parametrize("seed", range(4))
def test_copies_differ_in_a_few_open_words_and_are_reported_as_they_are(seed: int) -> None:
    model, encoder = Answering("Ottawa by the river", seed=seed), ToyEncoder(seed=seed)
    poison = craft(Garag(**QUICK | {"n": 3}), language_model=model, encoder=encoder, seed=seed)
    assert poison.wanted == ()  # untargeted
    assert len(poison.passages) == 3
    question = encoder.embed([QUESTION], kind="query")[0]
    answer = model.tokenize("Ottawa by the river")
    for fact, passage, note in zip(FACTS, poison.passages, poison.details, strict=True):
        before, after = fact.split(), passage.text.split()
        changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        assert 0 < len(changed) == note["words_edited"]
        assert len(changed) / len(before) <= 0.2 + 1 / len(before)
        assert [number for number, _, _ in note["edits"]] == changed
        for place, (_, old, new) in zip(changed, note["edits"], strict=True):
            assert before[place].replace(old, new) == after[place]
            assert old.lower() not in {"ottawa", "river", "by"} | STOP_WORDS
        scores = []
        for text in (fact, passage.text):
            prompt = next(p for p in model.asked if f"\n{text}\n" in p)
            ids = (model.begin, *model.tokenize(prompt))
            scores.append(
                (encoder.embed([text])[0] @ question, model.logprob(ids, answer).sum(dtype=float))
            )
        assert note["f_ret"] == pytest.approx(np.exp(scores[0][0] - scores[1][0]), rel=1e-4)
        assert note["f_read"] == pytest.approx(np.exp(scores[1][1] - scores[0][1]), rel=1e-4)


def test_details_name_the_passage_that_was_copied_and_its_title_goes_with_it() -> None:
    hits = tuple(
        Hit(passage=Passage(id=f"d{i}", text=text, title=f"T{i}"), rank=i, score=1 / i)
        for i, text in enumerate(FACTS, start=1)
    )
    poison = craft(Garag(**QUICK | {"n": 2}), hits=hits)
    assert [note["carrier_id"] for note in poison.details] == ["d1", "d2"]
    assert [note["carrier_rank"] for note in poison.details] == [1, 2]
    assert [passage.title for passage in poison.passages] == ["T1", "T2"]
    assert not {passage.id for passage in poison.passages} & {"d1", "d2"}
    assert Garag.untargeted


def test_success_needs_an_answer_that_was_right_and_is_not_any_more() -> None:
    lost = craft(Garag(**QUICK), language_model=Answering("Ottawa.", "Toronto")).details[0]
    assert (lost["stop"], lost["success"]) == ("broken", True)
    assert (lost["correct_before"], lost["correct_after"]) == (True, False)
    assert (lost["answer_before"], lost["answer_after"]) == ("Ottawa.", "Toronto")
    kept = craft(Garag(**QUICK), language_model=Answering("the Ottawa")).details[0]
    assert (kept["stop"], kept["success"], kept["iterations"]) == ("generations", False, 4)


def test_what_was_never_answered_correctly_is_not_called_a_success() -> None:
    long = Answering("The capital of Canada is Ottawa.", "I cannot tell.")
    note = craft(Garag(**QUICK), language_model=long).details[0]
    assert note["success"] is None
    assert note["correct_before"] is False
    long = Answering("The capital of Canada is Ottawa.", "I cannot tell.")
    held = craft(Garag(**QUICK, match="contains"), language_model=long).details[0]
    assert (held["correct_before"], held["success"]) == (True, True)
    still = Answering("The capital of Canada is Ottawa.", "It is Ottawa.")
    held = craft(Garag(**QUICK, match="contains"), language_model=still).details[0]
    assert (held["correct_after"], held["success"]) == (True, False)


def test_an_empty_answer_is_replaced_by_the_first_correct_one() -> None:
    scores = [
        craft(
            Garag(**QUICK), language_model=Answering(said), correct_answers=("--", "Ottawa")
        ).details[0]["f_read"]
        for said in (" \n", "Ottawa")
    ]
    assert scores[0] == scores[1] != 1


def test_passages_without_an_open_word_or_over_the_word_limit_are_left_out() -> None:
    hits = make_hits(["Ottawa is it.", "", FACTS[0], FACTS[2]])
    poison = craft(Garag(**QUICK | {"n": 4}), hits=hits, max_words=12)
    assert [note["carrier_id"] for note in poison.details] == ["p4"]
    assert craft(Garag(**QUICK), hits=()).passages == ()


def test_no_more_passages_are_changed_than_are_asked_for() -> None:
    model, encoder = Answering(), ToyEncoder()
    attack = Garag(**QUICK | {"n": 3})
    view = AttackScene(
        attack.knowledge, question=QUESTION, budget=1, hits=make_hits(FACTS),
        encoder=encoder, language_model=model,
    )  # fmt: skip
    poison = attack.craft(TARGET, view, np.random.default_rng(0))
    assert len(poison.passages) == 1
    assert view.cost.encoder_backwards == view.cost.model_backwards == model.backwards == 0
    assert 0 < view.cost.model_forwards <= 1 + 8 + 4 * 6


def test_each_passage_is_changed_alike_whatever_stands_below_it() -> None:
    attack = Garag(**QUICK | {"n": 3})
    assert dumps(craft(attack)) == dumps(craft(attack))
    one = craft(attack, hits=make_hits(FACTS[:1]))
    assert one.passages[0] == craft(attack).passages[0]
    words = [note["edits"] for note in craft(attack, hits=make_hits(FACTS[:1] * 2)).details]
    assert words[0] != words[1]  # a copy of a passage gets typos of its own


def test_a_query_without_correct_answer_is_an_error_that_names_it() -> None:
    for none in ((), ("...",)):
        with pytest.raises(ConfigError, match=r"correct answer.*'q1'"):
            craft(Garag(**QUICK), correct_answers=none)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "need n >= 1"),
        ({"population": 0}, "need population >= 1"),
        ({"level": 0.0}, "need level above 0"),
        ({"level": 1.5}, "need level above 0"),
        ({"mutation": -0.1}, "need mutation from 0 to 1"),
        ({"crossover": float("nan")}, "need crossover from 0 to 1"),
        ({"penalties": (0.5, 1.0)}, "need two penalties"),
        ({"match": "f1"}, "match to be one of exact, contains"),
        ({"prompt": "poisonedrag_write"}, "it needs"),
    ],
)
def test_wrong_options_are_refused_by_name(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Garag(**options)
