"""AdvDecoding on toys (test_golden_attacks_lm has real models and the golden value)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from ragassay.attacks.advdecoding import (
    BANNED,
    AdvDecoding,
    AdvDecodingParaphrases,
    SuffixSearch,
    allowed_tokens,
    answer_tokens,
    combined_score,
    naturalness,
    propose,
)
from ragassay.canon import dumps
from ragassay.errors import ConfigError
from ragassay.plugins.access import Ids
from ragassay.testing.toys import WORDS, AttackScene, ToyEncoder, ToyLM
from ragassay.types import PoisonSet, Target

DRAFTS = ("Toronto bo fa it is", "The capital is Toronto now", "Toronto rules Canada")
QUESTION = "What is the capital of Canada?"
PARAPHRASES = ("capital of canada what", "which city governs canada", "seat of canada where")
TARGET = Target(query_id="q1", wanted=("Toronto",))
QUICK: dict[str, Any] = {"n": 1, "beams": 3, "steps": 3, "top_k": 4}


class SpellingLM(ToyLM):
    """A toy whose tokens are words with the space before them, and some marks."""

    def __init__(self, marks: dict[int, str] | None = None, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        spelled = [f" {word}" for word in WORDS]
        for number, mark in (marks or {}).items():
            spelled[number] = mark
        self.pieces = (*spelled, "<end>")

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.pieces[i] for i in ids if self.usable[i])


def scene(attack: Any, **settings: Any) -> AttackScene:
    settings.setdefault("encoder", ToyEncoder(similarity="cosine"))
    settings.setdefault("language_model", ToyLM())
    settings.setdefault("drafts", DRAFTS)
    settings.setdefault("paraphrases", PARAPHRASES)
    return AttackScene(attack.knowledge, question=QUESTION, **settings)


def craft(attack: Any, *, seed: int = 0, **settings: Any) -> PoisonSet:
    view = scene(attack, **settings)
    poison = attack.craft(TARGET, view, np.random.default_rng(seed))
    assert not view.refused
    assert isinstance(poison, PoisonSet)
    dumps(poison)  # plain JSON
    return poison


# ------------------------------------------------------------------------------------ scores


def test_naturalness_is_a_difference_of_two_probabilities() -> None:
    yes, no = np.array([0.0, 5.0, -5.0, 400.0]), np.array([0.0, 3.0, -3.0, -400.0])
    shares = np.exp(yes - np.maximum(yes, no)), np.exp(no - np.maximum(yes, no))
    expected = (shares[1] - shares[0]) / (shares[0] + shares[1])
    np.testing.assert_allclose(naturalness(yes, no), expected, atol=1e-12)


def test_the_released_ratio_turns_its_sign_with_negative_logits_and_survives_a_zero_sum() -> None:
    assert naturalness(18, 20, compat="released") == pytest.approx(2 / 38)
    assert naturalness(-18, -16, compat="released") < 0 < naturalness(-18, -16)
    assert naturalness(-3, 3, compat="released") == 0


def test_naturalness_is_a_floor_and_similarity_is_clipped_at_both_ends() -> None:
    assert combined_score(0.5, 0.06) == combined_score(0.5, 0.9) == pytest.approx(0.6)
    assert combined_score(0.5, -0.5) == pytest.approx(-0.5)
    assert combined_score(-3.0, 0.0) == 0
    assert combined_score(25.0, 0.0) == 10
    assert combined_score(1.0, 0.01, weights=(2.0, 5.0)) == pytest.approx(2.05)


@pytest.mark.parametrize("seed", range(5))
def test_proposals_are_the_top_k_that_are_needed_for_the_top_p(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits, allowed = rng.normal(size=40) * 2, rng.random(40) < 0.7
    shares = np.where(allowed, np.exp(logits), 0)
    shares /= shares.sum()
    order = sorted(np.flatnonzero(allowed).tolist(), key=lambda i: (-shares[i], i))
    for top_k, top_p in product((1, 5, 60), (0.2, 0.8, 1.0)):
        found = propose(logits, allowed, top_k=top_k, top_p=top_p)
        needed = next(n for n in range(1, 41) if shares[order[:n]].sum() >= min(top_p, 1 - 1e-9))
        assert found == order[: min(top_k, needed)]


def test_of_equally_likely_tokens_the_smaller_id_is_proposed_first() -> None:
    assert propose(np.zeros(5), np.array([False, True, True, False, True]), top_k=2, top_p=1) == [
        1,
        2,
    ]


def test_no_and_yes_are_told_apart_behind_what_they_share() -> None:
    class Prefixed(ToyLM):
        def tokenize(self, text: str) -> Ids:
            return {"Yes": (7, 8, 1), "No": (7, 8, 2)}.get(text, super().tokenize(text))

    assert answer_tokens(Prefixed()) == ((7, 8), 1, 2)

    class Same(ToyLM):
        def tokenize(self, text: str) -> Ids:
            return (7, 8) if text == "No" else (7,)

    with pytest.raises(ConfigError, match="tell Yes from No"):
        answer_tokens(Same())


# ------------------------------------------------------------------------------------ search


@pytest.mark.parametrize("seed", range(3))
def test_a_beam_that_keeps_everything_finds_the_best_of_all_suffixes(seed: int) -> None:
    attack = AdvDecoding(n=1, beams=50, steps=2, top_k=50, top_p=1.0)
    settings = {
        "encoder": ToyEncoder(similarity="cosine", seed=seed),
        "language_model": ToyLM(seed=seed),
    }
    poison = craft(attack, **settings)
    search = SuffixSearch(attack, scene(attack, **settings))
    model = settings["language_model"]
    every = [(ids, model.decode(ids)) for ids in product(range(50), repeat=2)]
    best = max(search.score(DRAFTS[0], every), key=lambda beam: beam.score)
    assert poison.details[0]["score"] == pytest.approx(best.score)
    assert poison.passages[0].text == f"{DRAFTS[0]} {best.text}"


@pytest.mark.parametrize("compat", ["paper", "released"])
@pytest.mark.parametrize("seed", range(4))
def test_the_score_of_the_text_is_the_one_that_is_reported(seed: int, compat: Any) -> None:
    attack = AdvDecoding(**QUICK | {"n": 3, "compat": compat, "weights": (1.0, 3.0)})
    model, encoder = ToyLM(seed=seed), ToyEncoder(seed=seed)
    poison = craft(attack, language_model=model, encoder=encoder)
    assert len(poison.passages) == 3
    question = encoder.embed([QUESTION], kind="query")[0]
    shared, yes, no = answer_tokens(model)
    for passage, draft, note in zip(poison.passages, DRAFTS, poison.details, strict=True):
        assert passage.text == draft + note["suffix"]
        similarity = float(encoder.embed([passage.text])[0] @ question)
        suffix = str(note["suffix"]).strip()
        asked = f'Is this text unintelligible? "{suffix}". Just answer Yes or No.'
        logits = model.next_logits([(model.begin, *model.tokenize(asked), *shared)])[0]
        readable = float(naturalness(logits[yes], logits[no], compat=compat))
        assert note["similarity"] == pytest.approx(similarity, abs=1e-6)
        assert note["naturalness"] == pytest.approx(readable, abs=1e-6)
        expected = min(max(similarity, 0), 10) + 3 * min(readable, 0.05)
        assert note["score"] == pytest.approx(expected, abs=1e-6)
        assert note["score"] == pytest.approx(note["trace"][-1][1], abs=1e-6)
        assert [step for step, _ in note["trace"]] == [1, 2, 3]
        assert note["stop"] == "steps"
        assert note["payload_intact"] is ("Toronto" in draft)


def test_wider_beams_find_better_suffixes_on_the_whole() -> None:
    scores = np.array(
        [
            [
                craft(AdvDecoding(n=1, beams=beams, steps=3, top_k=8), language_model=ToyLM(seed=i))
                .details[0]["score"]
                for beams in (1, 16)
            ]
            for i in range(6)
        ]
    )  # fmt: skip
    assert scores[:, 1].mean() > scores[:, 0].mean()


def test_no_suffix_holds_a_banned_character_or_an_unusable_token() -> None:
    marks = {3: ' "', 4: "@home", 5: " \u201cyes\u201d", 6: "'s", 7: "\n", 8: " ok"}
    model = SpellingLM(marks)
    model.usable = model.usable.copy()
    model.usable[7] = False
    allowed = allowed_tokens(model, BANNED)
    assert not allowed[[3, 4, 5, 6, 7, 50]].any()
    assert allowed[8]
    attack = AdvDecoding(n=2, beams=6, steps=6, top_k=45, top_p=1.0)
    for note in craft(attack, language_model=model).details:
        assert not set(str(note["suffix"])) & set(BANNED + "\n")
    with_e = str(craft(AdvDecoding(**QUICK)).details[0]["suffix"])
    assert "e" in with_e
    without = craft(AdvDecoding(**QUICK, banned="aeio")).details[0]["suffix"]
    assert set("aeiou") & set(str(without)) == {"u"}
    with pytest.raises(ConfigError, match="leaves no token"):
        craft(AdvDecoding(banned="aeiou"))


def test_a_suffix_that_ends_a_sentence_is_preferred_when_asked_for() -> None:
    model = SpellingLM({0: "."})
    free = AdvDecoding(n=1, beams=60, steps=3, top_k=50, top_p=1.0)
    whole = AdvDecoding(n=1, beams=60, steps=3, top_k=50, top_p=1.0, full_sentence=True)
    loose, ended = (craft(attack, language_model=model).details[0] for attack in (free, whole))
    assert loose["ends_sentence"] is False
    assert ended["ends_sentence"] is True
    assert str(ended["suffix"]).endswith(".")
    assert ended["score"] <= loose["score"]
    never = craft(whole, language_model=SpellingLM()).details[0]
    assert never["ends_sentence"] is False
    assert never["score"] == craft(free, language_model=SpellingLM()).details[0]["score"]


def test_the_last_word_of_the_text_stays_whole_unless_the_released_join_is_asked_for() -> None:
    model = ToyLM()  # its suffixes begin without a space
    paper = craft(AdvDecoding(**QUICK), language_model=model).passages[0].text
    released = craft(AdvDecoding(**QUICK, compat="released"), language_model=model)
    assert paper.startswith(f"{DRAFTS[0]} ")
    assert released.passages[0].text[len(DRAFTS[0])] != " "
    spaced = craft(AdvDecoding(**QUICK), language_model=SpellingLM()).passages[0].text
    assert spaced.startswith(f"{DRAFTS[0]} ")
    assert "  " not in spaced


# ------------------------------------------------------------------------- limits and knowledge


def test_equal_inputs_give_equal_poison_whatever_the_seed() -> None:
    attack = AdvDecoding(**QUICK)
    assert dumps(craft(attack)) == dumps(craft(attack)) == dumps(craft(attack, seed=9))


def test_the_word_limit_stops_a_suffix_and_leaves_out_texts_that_are_over_it() -> None:
    words = [len(draft.split()) for draft in DRAFTS]
    assert words == [5, 5, 3]
    poison = craft(AdvDecoding(**QUICK | {"n": 3}), max_words=4)
    (passage,), (note,) = poison.passages, poison.details
    assert passage.text.startswith(DRAFTS[2])
    assert len(passage.text.split()) == note["words"] == 4
    assert note["stop"] == "word limit"
    assert note["iterations"] == 1
    exact = craft(AdvDecoding(**QUICK | {"n": 3}), max_words=3)
    assert [p.text for p in exact.passages] == [DRAFTS[2]]
    assert exact.details[0]["suffix"] == ""
    assert craft(AdvDecoding(**QUICK), max_words=2).passages == ()


def test_no_more_passages_are_searched_than_are_asked_for() -> None:
    model, encoder = ToyLM(), ToyEncoder()
    one = AdvDecoding(**QUICK | {"n": 3})
    view = scene(one, language_model=model, encoder=encoder, budget=1)
    assert len(one.craft(TARGET, view, np.random.default_rng(0)).passages) == 1
    spent = view.cost
    assert spent.encoder_backwards == 0
    assert model.backwards == 0
    # Each step continues at most 3 suffixes by 4 tokens; the report scores one text more.
    assert spent.model_calls == 0
    assert 0 < spent.model_forwards <= 3 * (3 + 3 * 4) + 1
    assert 0 < spent.encoder_forwards <= 2 * (3 * 3 * 4 + 1 + 1) + 5


def test_candidates_of_a_step_are_scored_together() -> None:
    calls: list[int] = []

    class Counting(ToyLM):
        def next_logits(self, sequences: Sequence[Ids]) -> Any:
            calls.append(len(sequences))
            return super().next_logits(sequences)

    craft(AdvDecoding(**QUICK), language_model=Counting())
    assert calls == [1, 4, 3, 12, 3, 12, 1]


def test_with_paraphrases_only_the_question_is_never_read() -> None:
    attack = AdvDecodingParaphrases(**QUICK)
    encoder = ToyEncoder(similarity="cosine")
    poison = craft(attack, encoder=encoder)
    assert poison.attack == "advdecoding_paraphrases"
    assert poison.knowledge.query == "paraphrases"
    vectors = [
        v / np.linalg.norm(v) for v in encoder.embed([*PARAPHRASES, poison.passages[0].text])
    ]
    mean = np.mean([vector @ vectors[-1] for vector in vectors[:-1]])
    assert poison.details[0]["similarity"] == pytest.approx(mean, abs=1e-6)
    with pytest.raises(ConfigError, match=r"add \[paraphrases\]"):
        craft(attack, paraphrases=())


def test_texts_may_come_from_the_helper_model() -> None:
    attack = AdvDecoding(**QUICK, source="generated", trials=2, draft_words=12)
    poison = craft(attack, drafts=(), replies="Toronto is the capital.")
    assert poison.passages[0].text.startswith("Toronto is the capital. ")
    assert poison.details[0]["verified"] is True
    with pytest.raises(ConfigError, match="no poison texts"):
        craft(AdvDecoding(**QUICK), drafts=())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "need n >= 1"),
        ({"beams": 0}, "need beams >= 1"),
        ({"top_k": -1}, "need top_k >= 1"),
        ({"top_p": 0.0}, "need top_p above 0"),
        ({"top_p": float("nan")}, "need top_p above 0"),
        ({"weights": (1.0, -2.0)}, "need two weights"),
        ({"weights": (1.0,)}, "need two weights"),
        ({"compat": "old"}, "compat to be one of paper, released"),
        ({"source": "found"}, "source to be one of"),
    ],
)
def test_wrong_options_are_refused_by_name(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AdvDecoding(**options)
