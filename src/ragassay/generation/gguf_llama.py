"""Reads a llama-architecture GGUF file into PyTorch: the model, its tokenizer, its template.

Everything comes from the one file, without network. The header is parsed here because the
gguf package takes seconds for the 98,000 strings of a tokenizer; its dequantization is used
as it is. Measured for SmolLM2-135M (98 MB, Q4_1): 1.7 s, against 0.4 s for a converted copy
of 538 MB on disk, which is not worth its space and its integrity checks.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.errors import BackendUnavailable

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?",
    10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_CONTROL_TOKEN = 3  # tokenizer.ggml.token_type of tokens such as <|im_end|>
_PRE_TOKENIZERS = ("smollm",)
_BLOCK = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """Where one weight lies in the file. ``shape`` is in row-major (PyTorch) order."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gguf:
    """A GGUF file: its metadata, its table of tensors, and its bytes (mapped, not read)."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    data: NDArray[np.uint8]


def read_gguf(path: Path) -> Gguf:
    """Parse the header of a little-endian GGUF file.

    Raises
    ------
    BackendUnavailable
        The file cannot be read, is not GGUF version 2 or 3, or is cut short.
    """
    try:
        data = np.memmap(path, mode="r", dtype=np.uint8)
        return _parse(path, data)
    except (OSError, ValueError, struct.error, KeyError, UnicodeDecodeError) as error:
        raise BackendUnavailable(
            f"{path} is not a readable GGUF file of version 2 or 3: {error}"
        ) from error


def load_llama(path: Path, dtype: str) -> tuple[Any, Any]:
    """Load a llama model with byte-level BPE tokenizer and chat template.

    Parameters
    ----------
    path : Path
        The GGUF file.
    dtype : str
        ``"float32"`` or ``"bfloat16"``: the number type of weights and arithmetic.

    Returns
    -------
    tuple
        A ``LlamaForCausalLM`` in evaluation mode on the CPU, and a ``PreTrainedTokenizerFast``.

    Raises
    ------
    BackendUnavailable
        The file is damaged or holds another kind of model.
    """
    file = read_gguf(path)
    try:
        return _model(file, dtype), _tokenizer(file)
    except (KeyError, ValueError, IndexError) as error:
        raise BackendUnavailable(f"{path} does not hold a usable llama model: {error}") from error


# ------------------------------------------------------------------------------------ header


class _Cursor:
    """Reads values one after another; a value that ends behind the file raises."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._bytes = data.data
        self.at = 0

    def scalar(self, form: str) -> Any:
        (found,) = struct.unpack_from(form, self._bytes, self.at)
        self.at += struct.calcsize(form)
        return found

    def string(self) -> str:
        length = self.scalar("<Q")
        raw = bytes(self._bytes[self.at : self.at + length])
        if len(raw) != length:
            raise ValueError(f"a string of {length} bytes ends behind the file")
        self.at += length
        return raw.decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.scalar(_SCALARS[kind])
        inner, count = self.scalar("<I"), self.scalar("<Q")
        if inner not in _SCALARS:
            return [self.value(inner) for _ in range(count)]
        numbers = np.frombuffer(self._bytes, dtype=_SCALARS[inner], count=count, offset=self.at)
        self.at += numbers.nbytes
        return numbers.tolist()


def _parse(path: Path, data: NDArray[np.uint8]) -> Gguf:
    cursor = _Cursor(data)
    magic, version = bytes(data[:4]), struct.unpack_from("<I", data.data, 4)[0]
    if magic != _MAGIC or version not in _VERSIONS:
        raise ValueError(f"it starts with {magic!r}, version {version}")
    cursor.at = 8
    tensor_count, entry_count = cursor.scalar("<Q"), cursor.scalar("<Q")
    metadata: dict[str, Any] = {}
    for _ in range(entry_count):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.scalar("<I"))
    table = []
    for _ in range(tensor_count):
        name = cursor.string()
        sizes = [cursor.scalar("<Q") for _ in range(cursor.scalar("<I"))]
        table.append((name, tuple(reversed(sizes)), cursor.scalar("<I"), cursor.scalar("<Q")))
    alignment = int(metadata.get("general.alignment", 32))
    start = -(-cursor.at // alignment) * alignment
    tensors = tuple(Tensor(name=n, shape=s, kind=k, offset=start + o) for n, s, k, o in table)
    return Gguf(path=path, metadata=metadata, tensors=tensors, data=data)


# ------------------------------------------------------------------------------------- model


def _model(file: Gguf, dtype: str) -> Any:
    import torch
    from transformers import LlamaForCausalLM

    if file.metadata.get("general.architecture") != "llama":
        raise ValueError(f"architecture {file.metadata.get('general.architecture')!r}, not 'llama'")
    config = _config(file)
    weights = {
        name: torch.from_numpy(weight).to(getattr(torch, dtype))
        for name, weight in ((_name(t.name), _weight(file, t, config)) for t in file.tensors)
    }
    config.tie_word_embeddings = "lm_head.weight" not in weights
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    if config.tie_word_embeddings:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    try:
        model.load_state_dict(weights, assign=True, strict=True)
    except RuntimeError as error:
        raise ValueError(" ".join(str(error).split())[:300]) from error
    model.tie_weights()
    # The rotary frequencies are a buffer that no file holds; made anew, they stay float32
    # also in a bfloat16 model, as after from_pretrained.
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model.eval().requires_grad_(False)


def _config(file: Gguf) -> Any:
    from transformers import LlamaConfig

    meta = file.metadata
    return LlamaConfig(
        vocab_size=meta["llama.vocab_size"],
        hidden_size=meta["llama.embedding_length"],
        intermediate_size=meta["llama.feed_forward_length"],
        num_hidden_layers=meta["llama.block_count"],
        num_attention_heads=meta["llama.attention.head_count"],
        num_key_value_heads=meta["llama.attention.head_count_kv"],
        max_position_embeddings=meta["llama.context_length"],
        rms_norm_eps=meta["llama.attention.layer_norm_rms_epsilon"],
        rope_theta=meta["llama.rope.freq_base"],
        bos_token_id=meta["tokenizer.ggml.bos_token_id"],
        eos_token_id=meta["tokenizer.ggml.eos_token_id"],
        pad_token_id=meta["tokenizer.ggml.padding_token_id"],
        attn_implementation="sdpa",
    )


def _name(name: str) -> str:
    if name in _OUTER:
        return _OUTER[name]
    block, number, part, suffix = name.split(".")
    if block != "blk" or suffix != "weight":
        raise ValueError(f"unknown tensor {name!r}")
    return f"model.layers.{int(number)}.{_BLOCK[part]}.weight"


def _weight(file: Gguf, tensor: Tensor, config: Any) -> NDArray[np.float32]:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

    kind = GGMLQuantizationType(tensor.kind)
    block, size = GGML_QUANT_SIZES[kind]
    length = math.prod(tensor.shape) // block * size
    raw = file.data[tensor.offset : tensor.offset + length]
    if len(raw) != length:
        raise ValueError(f"tensor {tensor.name!r} ends behind the file")
    weight = dequantize(raw.reshape(*tensor.shape[:-1], -1), kind)
    for part, heads in (
        ("attn_q", config.num_attention_heads),
        ("attn_k", config.num_key_value_heads),
    ):
        if tensor.name.endswith(f".{part}.weight"):
            weight = _half_rotated(weight, heads)
    return np.array(weight, dtype=np.float32, order="C")


def _half_rotated(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Reorder query or key rows from neighboring rotary pairs to transformers' two halves."""
    rows = weight.shape[0]
    pairs = weight.reshape(heads, rows // heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(rows, -1)


# --------------------------------------------------------------------------------- tokenizer


def _tokenizer(file: Gguf) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    meta = file.metadata
    kind = meta["tokenizer.ggml.model"], meta["tokenizer.ggml.pre"]
    if kind[0] != "gpt2" or kind[1] not in _PRE_TOKENIZERS:
        raise ValueError(f"tokenizer {kind}, known is ('gpt2', {_PRE_TOKENIZERS[0]!r})")
    tokens = meta["tokenizer.ggml.tokens"]
    inner = Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=[tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]],
        )
    )
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    inner.decoder = decoders.ByteLevel()
    control = [
        AddedToken(token, special=True, normalized=False)
        for token, type_ in zip(tokens, meta["tokenizer.ggml.token_type"], strict=True)
        if type_ == _CONTROL_TOKEN
    ]
    inner.add_special_tokens(control)
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token=tokens[meta["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[meta["tokenizer.ggml.eos_token_id"]],
        unk_token=tokens[meta["tokenizer.ggml.unknown_token_id"]],
        pad_token=tokens[meta["tokenizer.ggml.padding_token_id"]],
        chat_template=meta["tokenizer.chat_template"],
        model_max_length=meta["llama.context_length"],
        clean_up_tokenization_spaces=False,
    )
