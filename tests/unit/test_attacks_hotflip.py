"""HotFlip and PoisonedRAG white-box on a linear encoder (test_retrieval_whitebox: a real one)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ragassay.attacks.hotflip import flip_search
from ragassay.attacks.poisonedrag_whitebox import PoisonedRAGWhiteBox, PoisonedRAGWhiteBoxStop
from ragassay.attacks.search_passages import mean_similarity
from ragassay.attacks.search_tokens import (
    RawSlot,
    Slot,
    TokenSearch,
    best_tokens,
    replaced,
    top_candidates,
)
from ragassay.canon import dumps
from ragassay.errors import ConfigError, KnowledgeError
from ragassay.testing import make_hits
from ragassay.testing.toys import WORDS, AttackScene, ToyEncoder
from ragassay.types import Knowledge, PoisonSet, Target

DRAFTS = ("Toronto bo fa it is", "The capital is Toronto now", "Toronto rules Canada")
TARGET = Target(query_id="q1", wanted=("Toronto",))
QUESTION = "What is the capital of Canada?"
NEIGHBORS = {(i, j): (i + j) % 50 for i in range(50) for j in range(50) if (i * j) % 3 == 1}


def craft(attack: Any, encoder: ToyEncoder, *, seed: int = 0, **scene: Any) -> PoisonSet:
    view = AttackScene(attack.knowledge, encoder=encoder, drafts=DRAFTS, **scene)
    poison = attack.craft(TARGET, view, np.random.default_rng(seed))
    assert not view.refused
    return poison


def scores_of_texts(
    encoder: ToyEncoder, poison: PoisonSet, question: str = QUESTION
) -> list[float]:
    queries = encoder.embed([question], kind="query")
    return mean_similarity(encoder, queries, [p.text for p in poison.passages])


# -------------------------------------------------------------------------------- candidates


def test_candidates_are_ranked_by_gain_and_ties_by_id() -> None:
    table = np.array([[0.0], [2.0], [1.0], [2.0], [1.0], [1.0]])
    assert top_candidates(table, [1.0], 4) == [1, 3, 2, 4]
    assert top_candidates(table, [1.0], 99) == [1, 3, 2, 4, 5, 0]
    assert top_candidates(table, [1.0], 0) == []
    assert top_candidates(table, [1.0], 2, increase=False) == [0, 2]
    allowed = np.array([True, False, True, False, True, True])
    assert top_candidates(table, [1.0], 2, allowed=allowed) == [2, 4]


@pytest.mark.parametrize("seed", range(20))
def test_the_best_tokens_are_those_of_a_full_sort(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gains = rng.integers(0, 6, size=40).astype(np.float64)  # many ties
    expected = sorted(range(40), key=lambda i: (-gains[i], i))
    for k in (1, 7, 39, 40):
        assert best_tokens(gains, k) == expected[:k]


def test_on_a_linear_encoder_the_first_order_gain_is_the_exact_gain() -> None:
    toy = ToyEncoder()
    query = toy.embed([QUESTION], kind="query")[0]
    ids, position = toy.tokenize("ba be bi bo bu"), 2
    score, slopes = toy.gradient(ids, query)
    for token in range(50):
        gain = float((toy.embeddings[token] - toy.embeddings[ids[position]]) @ slopes[position])
        exact = float(toy.embed_ids([replaced(ids, position, token)])[0] @ query)
        assert exact - score == pytest.approx(gain, abs=1e-5)


def test_the_toys_gradient_is_that_of_finite_differences() -> None:
    query = np.random.default_rng(1).normal(size=8).astype(np.float32)
    for similarity in ("dot", "cosine"):
        plain = ToyEncoder(similarity=similarity, special=True)
        _, slopes = plain.gradient((3, 7), query)
        for axis in range(8):
            moved = plain.embeddings.copy()
            moved[3, axis] += 1e-3
            up = ToyEncoder(similarity=similarity, special=True, embeddings=moved)
            change = up.gradient((3, 7), query)[0] - plain.gradient((3, 7), query)[0]
            assert change / 1e-3 == pytest.approx(slopes[0, axis], abs=2e-3)


# ------------------------------------------------------------------------------------- slots


def test_a_slot_keeps_the_texts_around_it_as_they_are() -> None:
    toy = ToyEncoder()
    slot = Slot(toy, before="Toronto,  IS it!", after="Bo?")
    ids = slot.start_of("ba be")
    assert slot.text(ids) == "Toronto,  IS it! ba be Bo?"
    assert slot.sequence(ids) == toy.tokenize(slot.text(ids))
    assert slot.survives(ids)
    assert slot.text(()) == "Toronto,  IS it! Bo?"


def test_tokens_that_melt_together_in_the_text_do_not_survive() -> None:
    toy = ToyEncoder(merges={(0, 1): 2})
    slot = Slot(toy)
    assert not slot.survives((0, 1))
    assert not slot.survives_by_count((0, 1))
    assert slot.survives((1, 0))
    search = TokenSearch(toy, slot, toy.embed(["ba"]))
    assert search.surviving([(0, 1), (1, 0), (1, 0), (0, 1)]) == [(1, 0)]
    assert search.losses == 1


def test_a_slot_that_starts_with_melting_words_is_settled() -> None:
    toy = ToyEncoder(merges={(0, 1): 2, (2, 3): 4})
    slot = Slot(toy, before="go")
    ids = slot.start_of("ba be bi bo")
    assert slot.survives(ids)


def test_masks_stand_for_nothing_in_the_text_and_in_the_score() -> None:
    toy = ToyEncoder(special=True)
    slot = Slot(toy, before="bo")
    ids = (toy.mask, 3, toy.mask)
    assert slot.text(ids) == "bo bo"
    assert slot.sequence(ids) == (*toy.tokenize("bo"), 3)
    assert slot.survives(ids)
    assert slot.differentiable(ids) == ((*toy.tokenize("bo"), *ids), 1)


def test_a_passage_of_too_many_words_does_not_count() -> None:
    slot = Slot(ToyEncoder(), before="bo bu", max_words=3)
    assert slot.word_room == 1
    assert slot.survives((4,))
    assert not slot.survives((4, 5))


def test_a_slot_knows_what_the_encoder_reads() -> None:
    toy = ToyEncoder(special=True, max_tokens=10)
    assert Slot(toy, before="ba be bi").room == 5
    assert Slot(toy, before=" ".join(WORDS)).room == 0
    assert Slot(ToyEncoder()).room is None


def test_equal_sequences_are_scored_once_a_step() -> None:
    toy = ToyEncoder()
    search = TokenSearch(toy, Slot(toy), toy.embed(["ba"]))
    before = toy.forwards
    rows = search.similarities([(1, 2), (3, 4), (1, 2)])
    assert toy.forwards == before + 2
    assert rows[0] == rows[2]
    search.similarities([(3, 4), (5, 6)])
    assert (toy.forwards, search.evaluations) == (before + 3, 3)
    search.new_step()
    search.similarities([(3, 4)])
    assert search.evaluations == 4
    assert search.similarities([]).shape == (0, 1)


# ------------------------------------------------------------------------------------ search


def search_of(toy: ToyEncoder, slot: Slot | RawSlot | None = None) -> TokenSearch:
    return TokenSearch(toy, slot or Slot(toy), toy.embed([QUESTION], kind="query"))


@pytest.mark.parametrize("seed", range(5))
def test_the_accepted_score_is_the_predicted_one(seed: int) -> None:
    toy = ToyEncoder(seed=seed)
    direction = toy.embed([QUESTION], kind="query")[0]
    start = toy.tokenize("ba be bi bo")
    found = flip_search(
        search_of(toy), toy, start, np.random.default_rng(seed), iterations=1, candidates=5
    )
    [position] = [i for i in range(4) if found.ids[i] != start[i]] or [None]
    assert position is not None
    score, slopes = toy.gradient(start, direction)
    gains = (toy.embeddings - toy.embeddings[start[position]]) @ slopes[position]
    assert found.ids[position] == int(np.argmax(gains))
    assert found.score == pytest.approx(score + gains.max(), abs=1e-5)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_enough_flips_reach_the_optimum_of_brute_force(similarity: Any) -> None:
    toy = ToyEncoder(similarity=similarity, seed=3)
    direction = search_of(toy).direction(slice(None))
    best, _ = toy.best(direction, 2)
    found = flip_search(
        search_of(toy), toy, (0, 1), np.random.default_rng(0), iterations=40, candidates=50
    )
    if similarity == "dot":  # separable, so that flips one by one get there
        assert found.score == pytest.approx(best, abs=1e-6)
    assert found.start < found.score <= best + 1e-6


@pytest.mark.parametrize("seed", range(12))
def test_the_score_never_falls_and_tokens_always_survive(seed: int) -> None:
    rng = np.random.default_rng([seed, 5])
    toy = ToyEncoder(similarity=("dot", "cosine")[seed % 2], seed=seed, merges=NEIGHBORS)
    slot = Slot(toy, before="Toronto bo", after="fa it is")
    search = search_of(toy, slot)
    start = slot.start_of(" ".join(WORDS[i] for i in rng.integers(50, size=6)))
    found = flip_search(search, toy, start, rng, iterations=15, candidates=20)
    values = [found.start, *(value for _, value in found.trace)]
    assert values == sorted(values)
    assert found.score == values[-1]
    assert slot.survives(found.ids)
    assert toy.tokenize(slot.text(found.ids)) == slot.sequence(found.ids)
    assert search.losses == found.losses > 0


def test_a_search_without_tokens_or_candidates_ends_at_its_start() -> None:
    toy = ToyEncoder()
    rng = np.random.default_rng(0)
    slot = Slot(toy, before="bo")
    found = flip_search(search_of(toy, slot), toy, (), rng, iterations=9, candidates=9)
    assert (found.ids, found.iterations, found.trace) == ((), 0, ())
    every = {(i, j): 0 for i in range(50) for j in range(50)}
    stuck = ToyEncoder(merges=every)
    found = flip_search(search_of(stuck), stuck, (1, 2), rng, iterations=3, candidates=9)
    assert (found.ids, found.iterations, found.evaluations) == ((1, 2), 3, 1)
    assert 24 <= found.losses <= 27


def test_hits_come_before_scores() -> None:
    # Token 1 has the larger mean, token 2 alone beats both bars.
    table = np.zeros((50, 2), dtype=np.float32)
    table[1], table[2] = (9.0, 0.1), (1.0, 1.0)
    toy = ToyEncoder(embeddings=table)
    search = TokenSearch(toy, Slot(toy), np.eye(2))
    bars = np.array([0.5, 0.5])
    rng = np.random.default_rng(0)
    with_bars = flip_search(search, toy, (0,), rng, iterations=3, candidates=5, bars=bars)
    without = flip_search(search, toy, (0,), rng, iterations=3, candidates=5)
    assert (with_bars.ids, without.ids) == ((2,), (1,))


def test_the_search_stops_above_the_ceiling() -> None:
    toy = ToyEncoder()
    found = flip_search(
        search_of(toy),
        toy,
        (0, 1, 2, 3),
        np.random.default_rng(0),
        iterations=50,
        candidates=50,
        stop_above=-99.0,
    )
    assert found.iterations == 0


# ---------------------------------------------------------------------------------- the attack


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("options", [{}, {"init": "mask"}, {"order": "suffix"}])
def test_passages_score_better_keep_their_text_and_say_so(
    similarity: Any, options: dict[str, Any]
) -> None:
    encoder = ToyEncoder(similarity=similarity, special=True)
    attack = PoisonedRAGWhiteBox(iterations=8, candidates=10, init_tokens=4, **options)
    poison = craft(attack, encoder, budget=2)
    assert len(poison.passages) == 2
    recomputed = scores_of_texts(encoder, poison)
    for draft, passage, note, score in zip(
        DRAFTS, poison.passages, poison.details, recomputed, strict=False
    ):
        assert note["score"] == pytest.approx(score, abs=1e-9)
        assert note["score_tokens"] == pytest.approx(score, abs=1e-6)
        assert note["score"] > note["start_score"]
        assert note["same_tokens"] is True
        assert note["payload"] == draft
        assert note["payload_unchanged"] is True
        inside = passage.text.endswith if attack.order == "prefix" else passage.text.startswith
        assert inside(draft)
        assert note["evaluations"] <= 8 * 10 + 1
        assert note["iterations"] == 8
    dumps(poison)


def test_the_cost_is_what_the_encoder_did() -> None:
    encoder = ToyEncoder()
    poison = craft(PoisonedRAGWhiteBox(n=1, iterations=4, candidates=6), encoder)
    assert poison.cost.encoder_backwards == encoder.backwards == 4
    assert poison.cost.encoder_forwards == encoder.forwards
    assert poison.details[0]["evaluations"] < encoder.forwards


def test_equal_seeds_give_equal_poison_and_others_do_not() -> None:
    attack = PoisonedRAGWhiteBox(iterations=3, candidates=6)
    texts = [[p.text for p in craft(attack, ToyEncoder(), seed=s).passages] for s in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_a_passage_that_nothing_improves_is_stored_as_it_was() -> None:
    flat = ToyEncoder(embeddings=np.ones((50, 8), dtype=np.float32))
    poison = craft(PoisonedRAGWhiteBox(n=1, iterations=3, candidates=6), flat)
    assert poison.passages[0].text == f"{QUESTION} {DRAFTS[0]}"
    assert poison.details[0]["trace"] == []


def test_the_released_code_encodes_two_framed_parts_and_the_text_differs() -> None:
    encoder = ToyEncoder(similarity="cosine", special=True)
    attack = PoisonedRAGWhiteBox(n=1, iterations=12, candidates=20, compat="released")
    gaps = []
    for seed in range(4):
        poison = craft(attack, encoder, seed=seed)
        [note] = poison.details
        assert note["score"] == pytest.approx(scores_of_texts(encoder, poison)[0], abs=1e-9)
        assert note["retokenization_losses"] == 0
        assert "[" not in poison.passages[0].text
        gaps.append(abs(note["score_tokens"] - note["score"]))
    assert max(gaps) > 0.001


def test_the_stopping_variant_needs_no_more_than_it_takes() -> None:
    encoder = ToyEncoder(similarity="cosine")
    low = make_hits(["x"], scores=[-0.9])
    stopped = craft(PoisonedRAGWhiteBoxStop(n=1, iterations=20), encoder, hits=low)
    assert stopped.details[0]["iterations"] == 0
    unreachable = make_hits(["x"], scores=[2.0])
    going = craft(PoisonedRAGWhiteBoxStop(n=1, iterations=20), encoder, hits=unreachable)
    assert going.details[0]["iterations"] == 20
    assert going.knowledge.corpus == "partial"
    assert craft(PoisonedRAGWhiteBoxStop(n=1, iterations=2), encoder).details[0]["iterations"] == 2


def test_the_attack_cannot_see_scores_of_the_corpus_unless_declared() -> None:
    view = AttackScene(PoisonedRAGWhiteBox.knowledge, encoder=ToyEncoder())
    with pytest.raises(KnowledgeError, match="retrieved"):
        view.retrieved()
    with pytest.raises(KnowledgeError, match="correct_answers"):
        _ = view.correct_answers
    assert PoisonedRAGWhiteBox.knowledge == Knowledge(
        llm="helper", retriever="gradients", query="exact"
    )


def test_word_limits_are_kept() -> None:
    attack = PoisonedRAGWhiteBox(n=1, init="mask", init_tokens=30, iterations=20, candidates=9)
    poison = craft(attack, ToyEncoder(special=True), max_words=8)
    assert len(poison.passages[0].text.split()) <= 8
    assert poison.details[0]["trigger_tokens"] <= 3


def test_generated_texts_carry_their_verification() -> None:
    attack = PoisonedRAGWhiteBox(n=1, source="generated", trials=2, iterations=2, candidates=4)
    poison = craft(attack, ToyEncoder(), replies="Toronto is it")
    assert poison.details[0]["verified"] is True
    assert poison.details[0]["payload"] == "Toronto is it"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": 0}, "iterations >= 1"),
        ({"candidates": -1}, "candidates >= 1"),
        ({"init": "silver"}, "init to be one of gold, mask"),
        ({"order": "none"}, "order to be one of prefix, suffix"),
        ({"compat": "old"}, "compat to be one of paper, released"),
        ({"source": "web"}, "source to be one of"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PoisonedRAGWhiteBox(**options)


def test_a_start_of_masks_needs_a_mask_token() -> None:
    with pytest.raises(ConfigError, match="no mask token"):
        craft(PoisonedRAGWhiteBox(init="mask"), ToyEncoder())


def test_no_released_texts_is_an_error_that_says_what_to_do() -> None:
    view = AttackScene(PoisonedRAGWhiteBox.knowledge, encoder=ToyEncoder())
    with pytest.raises(ConfigError, match='source = "generated"'):
        PoisonedRAGWhiteBox().craft(TARGET, view, np.random.default_rng(0))
