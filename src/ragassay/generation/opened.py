"""Loads a language model to be opened, by the plug-in that answers with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragassay.errors import BackendUnavailable
from ragassay.generation.gguf_llama import load_llama
from ragassay.generation.hf import (
    ChatCodec,
    EmbeddedSmolLM2,
    HuggingFaceLM,
    _need,
    _one_line,
    _stop_tokens,
    _weights_file,
)


def load_opened(generator: EmbeddedSmolLM2 | HuggingFaceLM) -> tuple[Any, ChatCodec, Any]:
    """Load a model with its weights as they are: what answers keeps them in another order.

    Returns
    -------
    tuple
        The model, the codec of its prompts, and its tokenizer.

    Raises
    ------
    BackendUnavailable
        A package, the weights or the chat template is missing.
    """
    _need("torch", "transformers")
    if isinstance(generator, EmbeddedSmolLM2):
        _need("gguf")
        model, tokenizer = load_llama(_weights_file(), generator.dtype)
        return model, ChatCodec(tokenizer, stop=_stop_tokens(model, tokenizer)), tokenizer
    from transformers import AutoModelForCausalLM, AutoTokenizer

    name = generator.model
    source = generator._source.get(generator._resolve)
    where = {} if Path(name).is_dir() else {"revision": source}
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False, **where)
        model = AutoModelForCausalLM.from_pretrained(
            name,
            dtype=generator.dtype,
            attn_implementation="sdpa",
            trust_remote_code=False,
            **where,
        )
        model = model.to(generator._device()).eval().requires_grad_(False)
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        raise BackendUnavailable(_one_line(name, error)) from error
    if generator.chat_template and not tokenizer.chat_template:
        raise BackendUnavailable(f"model {name!r} has no chat template; set chat_template = false")
    stop = _stop_tokens(model, tokenizer)
    return model, ChatCodec(tokenizer, stop=stop, template=generator.chat_template), tokenizer
