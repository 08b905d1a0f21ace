"""GASLITE on a linear encoder (test_retrieval_whitebox has a real one)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ragassay.attacks.gaslite import Gaslite, GasliteParaphrases, readable_tokens
from ragassay.attacks.search_passages import mean_similarity
from ragassay.attacks.search_tokens import Slot, TokenSearch, best_tokens
from ragassay.canon import dumps
from ragassay.errors import ConfigError
from ragassay.testing.toys import WORDS, AttackScene, ToyEncoder
from ragassay.types import PoisonSet, Target

DRAFTS = ("Toronto bo fa it is", "The capital is Toronto now!", "Toronto rules Canada")
PARAPHRASES = ("capital of canada what", "which city governs canada", "seat of canada where")
QUESTION = "What is the capital of Canada?"
TARGET = Target(query_id="q1", wanted=("Toronto",))
QUICK = {"tokens": 6, "iterations": 5, "gradient_copies": 4, "flips": 3, "candidates": 8, "top": 20}
NEIGHBORS = {(i, j): (i + j) % 50 for i in range(50) for j in range(50) if (i * j) % 5 == 1}


def craft(attack: Any, encoder: ToyEncoder, *, seed: int = 0, **scene: Any) -> PoisonSet:
    scene.setdefault("paraphrases", PARAPHRASES)
    scene.setdefault("drafts", DRAFTS)
    view = AttackScene(attack.knowledge, encoder=encoder, **scene)
    poison = attack.craft(TARGET, view, np.random.default_rng(seed))
    assert not view.refused
    return poison


def search_of(toy: ToyEncoder, before: str = "") -> TokenSearch:
    return TokenSearch(toy, Slot(toy, before=before), toy.embed([QUESTION], kind="query"))


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("seed", range(4))
def test_a_trigger_of_two_tokens_equals_brute_force(similarity: Any, seed: int) -> None:
    toy = ToyEncoder(similarity=similarity, seed=seed)
    search = search_of(toy, "Toronto bo.")
    best, slot = toy.best(
        search.direction(slice(None)), 2, before=toy.tokenize("Toronto bo."), after=()
    )
    attack = Gaslite(
        tokens=2, flips=2, iterations=6, candidates=50, top=50, beams=8, random_share=0
    )
    found = attack.optimize(search, toy, (0, 1), np.random.default_rng(seed), readable_tokens(toy))
    assert found.score == pytest.approx(best, abs=1e-6)
    assert sorted(found.ids) == sorted(slot)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("compat", ["paper", "released"])
def test_the_best_so_far_never_falls(seed: int, compat: Any) -> None:
    rng = np.random.default_rng([seed, 9])
    toy = ToyEncoder(similarity=("dot", "cosine")[seed % 2], seed=seed, merges=NEIGHBORS)
    search = search_of(toy, "Toronto bo.")
    start = search.slot.start_of(" ".join(WORDS[i] for i in rng.integers(50, size=5)))
    attack = Gaslite(compat=compat, beams=1 + seed % 3, **QUICK)
    found = attack.optimize(search, toy, start, rng, readable_tokens(toy))
    values = [found.start, *(value for _, value in found.trace)]
    assert values == sorted(values)
    assert found.score == values[-1]
    assert len(found.ids) == len(start)
    text = search.slot.text(found.ids)
    assert len(toy.tokenize(text)) == len(search.slot.sequence(found.ids))
    if compat == "paper":
        assert toy.tokenize(text) == search.slot.sequence(found.ids)


@pytest.mark.parametrize("seed", range(6))
def test_within_an_iteration_the_score_never_falls_and_released_code_lets_it(seed: int) -> None:
    toy = ToyEncoder(similarity="cosine", seed=seed)
    search = search_of(toy)
    _, best = toy.best(search.direction(slice(None)), 2)
    rng = np.random.default_rng(seed)
    slopes = np.zeros((2, 8))
    args = (search, toy, best, slopes, rng, readable_tokens(toy))
    optimum = float(search.similarities([best]).mean())
    ids, kept = Gaslite(tokens=2, flips=1, candidates=4, top=9)._greedy(*args)
    assert (ids, kept) == (best, optimum)
    released = Gaslite(tokens=2, flips=1, candidates=4, top=9, compat="released")
    ids, forced = released._greedy(*args)
    assert ids != best
    assert forced < optimum


def test_the_averaged_gradient_is_that_of_unit_one_hot_gradients() -> None:
    toy = ToyEncoder(similarity="cosine")
    search = search_of(toy)
    current = (1, 2, 3)
    gram = toy.embeddings.T.astype(np.float64) @ toy.embeddings
    allowed = readable_tokens(toy)
    attack = Gaslite(gradient_copies=5)
    found = attack._average_slopes(search, current, np.random.default_rng(3), allowed, gram)
    # The same copies again, with the one-hot gradients written out.
    rng, copies = np.random.default_rng(3), [current]
    for _ in range(4):
        position = int(rng.integers(3))
        token = int(rng.choice(np.flatnonzero(allowed)))
        copies.append((*current[:position], token, *current[position + 1 :]))
    total = np.zeros((3, 50))
    for copy in copies:
        _, slope = toy.gradient(copy, search.direction(slice(None)))
        one_hot = slope.astype(np.float64) @ toy.embeddings.T
        total += one_hot / np.linalg.norm(one_hot, axis=1, keepdims=True)
    assert found @ toy.embeddings.T == pytest.approx(total / 5, abs=1e-6)


def test_candidates_are_half_the_best_and_half_drawn_from_the_others() -> None:
    attack = Gaslite(candidates=128, random_share=0.5, top=256)
    ranked = list(range(256))
    picked = attack._pick(ranked, np.random.default_rng(0))
    assert picked[:64] == ranked[:64]
    assert len(picked) == 128
    assert all(64 <= token < 256 for token in picked[64:])
    assert len(set(picked[64:])) < 64  # with replacement
    assert Gaslite(random_share=0.0)._pick(ranked, np.random.default_rng(0)) == ranked[:128]
    assert attack._pick(ranked[:10], np.random.default_rng(0)) == ranked[:10]


def test_more_flips_than_tokens_become_two_thirds_of_them() -> None:
    toy = ToyEncoder()
    for tokens, visited in ((6, 4), (1, 1)):
        calls: list[int] = []
        search = search_of(toy)
        surviving = search.surviving

        def count(candidates: Any, **options: Any) -> Any:
            calls.append(1)  # noqa: B023
            return surviving(candidates, **options)  # noqa: B023

        search.surviving = count  # type: ignore[method-assign]
        attack = Gaslite(flips=20, candidates=4, top=9)
        rng = np.random.default_rng(0)
        slopes = np.zeros((tokens, 8))
        attack._greedy(search, toy, (5,) * tokens, slopes, rng, readable_tokens(toy))
        assert len(calls) == visited


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("init", ["helper", "filler"])
@pytest.mark.parametrize("kind", [Gaslite, GasliteParaphrases])
def test_passages_keep_their_text_and_length_and_score_better(
    similarity: Any, init: Any, kind: Any
) -> None:
    encoder = ToyEncoder(similarity=similarity, special=True)
    poison = craft(kind(init=init, assign="all", **QUICK), encoder, budget=2)
    known = [QUESTION] if kind is Gaslite else list(PARAPHRASES)
    queries = encoder.embed(known, kind="query")
    recomputed = mean_similarity(encoder, queries, [p.text for p in poison.passages])
    fronts = ("Toronto bo fa it is. ", "The capital is Toronto now! ")
    assert len(poison.passages) == 2
    for front, passage, note, score in zip(
        fronts, poison.passages, poison.details, recomputed, strict=True
    ):
        assert passage.text.startswith(front)
        assert note["payload_unchanged"] is True
        trigger = encoder.tokenize(passage.text)[len(encoder.tokenize(front)) :]
        assert len(trigger) == note["trigger_tokens"] == 6
        assert note["score"] == pytest.approx(score, abs=1e-9)
        assert note["score_tokens"] == pytest.approx(score, abs=1e-6)
        assert note["score"] > note["start_score"]
    dumps(poison)


def test_the_trigger_starts_as_the_helpers_longest_continuation() -> None:
    replies = iter(["ba", "be bi bo", "bu", "", "da de"] * 2)
    encoder = ToyEncoder()
    attack = Gaslite(n=1, tokens=7, iterations=1, gradient_copies=1, flips=1, candidates=1)
    view = AttackScene(
        attack.knowledge,
        encoder=encoder,
        drafts=DRAFTS,
        replies=lambda messages: next(replies),
    )
    slot = Slot(encoder, before="Toronto bo fa it is.")
    start = attack._start("Toronto bo fa it is.", slot, view, readable_tokens(encoder), 0)
    assert encoder.decode(start) == "be bi bo be bi bo be"
    assert view.asked == 5


def test_a_start_whose_words_melt_is_padded_with_filler() -> None:
    encoder = ToyEncoder(merges={(1, 2): 3, (0, 0): 4})
    attack = Gaslite(tokens=4)
    view = AttackScene(attack.knowledge, encoder=encoder, replies="be")
    slot = Slot(encoder, before="bo.")
    start = attack._start("bo.", slot, view, readable_tokens(encoder), 0)
    assert len(start) == 4
    assert slot.survives(start)
    melting = ToyEncoder(merges={(i, j): 0 for i in range(50) for j in range(50)})
    slot, allowed = Slot(melting, before="bo."), readable_tokens(melting)
    with pytest.raises(ConfigError, match="can fill a trigger"):
        attack._start("bo.", slot, view, allowed, 0)


def test_word_and_token_limits_shorten_the_trigger() -> None:
    encoder = ToyEncoder(special=True, max_tokens=11)
    poison = craft(Gaslite(n=1, init="filler", **QUICK), encoder)
    assert poison.details[0]["trigger_tokens"] == 4
    short = craft(Gaslite(n=1, init="filler", **QUICK), ToyEncoder(), max_words=7)
    assert len(short.passages[0].text.split()) == 7
    none = craft(Gaslite(n=1, **QUICK), ToyEncoder(), max_words=5)
    assert none.passages[0].text == "Toronto bo fa it is."
    assert none.details[0]["iterations"] == 0


def test_equal_seeds_give_equal_poison_and_the_cost_is_counted() -> None:
    attack = Gaslite(init="filler", **QUICK)
    encoders = [ToyEncoder(similarity="cosine") for _ in range(3)]
    sets = [craft(attack, e, seed=s) for e, s in zip(encoders, (1, 1, 2), strict=True)]
    texts = [[p.text for p in poison.passages] for poison in sets]
    assert texts[0] == texts[1] != texts[2]
    assert sets[0].cost.encoder_forwards == encoders[0].forwards
    assert sets[0].cost.encoder_backwards == 3 * 5 * 4


def test_only_readable_tokens_enter_a_trigger() -> None:
    toy = ToyEncoder(special=True)
    toy.pieces = ("é", *toy.pieces[1:])
    allowed = readable_tokens(toy)
    assert not allowed[0]
    assert not allowed[50:].any()
    assert allowed[1:50].all()
    assert 0 not in best_tokens(np.arange(53, 0, -1).astype(float), 5, allowed=allowed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"random_share": 1.5}, "random_share from 0 to 1"),
        ({"beams": 0}, "beams >= 1"),
        ({"gradient_copies": 0}, "gradient_copies >= 1"),
        ({"init": "gpt2"}, "init to be one of helper, filler"),
        ({"compat": "x"}, "compat to be one of"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Gaslite(**options)
