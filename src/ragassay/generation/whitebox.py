"""White-box access to a causal language model: tokens, logits, losses and gradients.

The model is loaded a second time, beside the one that answers: that one keeps its weights in
an order that has no gradient. Sequences of one length share a forward pass and are never
padded, so that companions change at most the last bits of a result.

Source: gradients with respect to one-hot tokens as in Zou et al. 2023, "Universal and
Transferable Adversarial Attacks on Aligned Language Models"; perplexity as the exponential of
the mean negative log-likelihood of all tokens but the first.

Deviations: perplexity takes texts longer than 1,024 tokens in windows that move on by 512.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.errors import BackendError, ConfigError
from ragassay.generation.branches import open_branches
from ragassay.generation.hf import (
    ChatCodec,
    EmbeddedSmolLM2,
    HuggingFaceLM,
    _encodable,
    _one_line,
)
from ragassay.generation.opened import load_opened
from ragassay.generation.target_loss import target_loss, target_span
from ragassay.plugins.accelerator import AcceleratorClock
from ragassay.plugins.access import Branches, Ids, usable_tokens
from ragassay.types import Message

_WINDOW = 1024  # tokens; the next window starts half a window later
_SHARED = 16  # tokens: a shorter common beginning is not worth a forward pass of its own


class LanguageModelAccess:
    """A transformers language model, opened for attacks that use its internals.

    Parameters
    ----------
    generator : EmbeddedSmolLM2 or HuggingFaceLM
        The model, by the plug-in that answers with it.
    batch_size : int
        Most sequences per forward pass.
    """

    def __init__(self, generator: EmbeddedSmolLM2 | HuggingFaceLM, *, batch_size: int = 16) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {batch_size}")
        self._generator = generator
        self._batch_size = batch_size
        self._lock = threading.RLock()
        self._forwards = 0
        self._backwards = 0
        self._clock = AcceleratorClock()

    @property
    def identity(self) -> str:
        """The generator's identity."""
        return self._generator.identity

    @property
    def stop(self) -> frozenset[int]:
        """Tokens that end an answer."""
        return self._codec.stop

    @property
    def device(self) -> Any:
        """Where inputs must lie."""
        return self._layer.weight.device

    def forward(self, sequences: int, **inputs: Any) -> Any:
        """Run the model on inputs of some sequences, and count them."""
        with self._lock:
            self._forwards += sequences
            return self._run(**inputs)

    @property
    def vocabulary(self) -> int:
        """Number V of token ids."""
        return int(self._layer.weight.shape[0])

    @property
    def forwards(self) -> int:
        """Sequences processed so far (a generated token counts as one)."""
        return self._forwards

    @property
    def backwards(self) -> int:
        """Sequences differentiated so far."""
        return self._backwards

    @property
    def accelerator_seconds(self) -> float:
        """Seconds of a CUDA device in this model so far; 0 on a CPU."""
        return self._clock.seconds

    @cached_property
    def embeddings(self) -> NDArray[np.float32]:
        """Input embeddings as the first layer gives them, shape (V, d)."""
        import torch

        with torch.inference_mode():
            table: NDArray[np.float32] = self._table().float().cpu().numpy().copy()
        table.flags.writeable = False
        return table

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """The text of each token by itself, length V."""
        known = len(self._tokenizer)
        return tuple(
            str(self._tokenizer.decode([number], clean_up_tokenization_spaces=False))
            if number < known
            else ""
            for number in range(self.vocabulary)
        )

    @cached_property
    def usable(self) -> NDArray[np.bool_]:
        """Which tokens a text may hold, shape (V,)."""
        special = {*self._tokenizer.all_special_ids, *self._tokenizer.added_tokens_decoder}
        return usable_tokens(self.pieces, special)

    def tokenize(self, text: str) -> Ids:
        """Token ids of a text, without special tokens."""
        found = self._tokenizer(_encodable(text), add_special_tokens=False, verbose=False)
        return tuple(found["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some tokens; special tokens are left out."""
        return self._codec.text(ids)

    def chat_ids(self, messages: Sequence[Message]) -> Ids:
        """Render a prompt up to where the answer starts, with exactly one begin-of-text token.

        Raises
        ------
        BackendError
            The template refuses the messages.
        """
        return tuple(self._codec.prompt(messages))

    def next_logits(self, sequences: Sequence[Ids]) -> NDArray[np.float32]:
        """Logits of the token that follows each sequence, shape (n, V)."""
        logits = np.empty((len(sequences), self.vocabulary), dtype=np.float32)
        for i, found in self._last_logits([(ids, 1) for ids in sequences]):
            logits[i] = found[0].float().cpu().numpy()
        return logits

    @contextmanager
    def branches(self, prefixes: Sequence[Ids]) -> Iterator[Branches]:
        """Grow sequences by the same tokens; the model is held until the context is left.

        Raises
        ------
        ValueError
            There is no prefix, or one is empty.
        """
        with self._lock:
            yield open_branches(self, prefixes)

    def logprob(self, prefix_ids: Ids, continuation_ids: Ids) -> NDArray[np.float32]:
        """Natural-log probability of each continuation token, given all before it."""
        return self.logprobs([(prefix_ids, continuation_ids)])[0]

    def logprobs(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[NDArray[np.float32]]:
        """:meth:`logprob` of several (prefix, continuation) pairs at once.

        Raises
        ------
        ValueError
            A prefix is empty: there is nothing to predict its first token from.
        """
        import torch

        if any(not prefix for prefix, _ in pairs):
            raise ValueError("a prefix is empty; give at least the begin-of-text token")
        results = [np.zeros(0, dtype=np.float32) for _ in pairs]
        asked = [i for i, (_, continuation) in enumerate(pairs) if continuation]
        rows = [((*pairs[i][0], *pairs[i][1])[:-1], len(pairs[i][1])) for i in asked]
        for number, logits in self._last_logits(rows):
            i = asked[number]
            wanted = torch.tensor(pairs[i][1], device=logits.device)[:, None]
            found = torch.log_softmax(logits.float(), dim=-1).gather(1, wanted)[:, 0]
            results[i] = found.cpu().numpy()
        return results

    def loss_gradient(
        self,
        ids: Ids,
        positions: Sequence[int],
        target_slice: slice,
        weights: Sequence[float] | None = None,
    ) -> tuple[float, NDArray[np.float32]]:
        """Loss of ``ids[target_slice]``, and its gradient for the one-hot tokens at positions.

        Returns
        -------
        tuple of float and ndarray of float32, shape (len(positions), V)
            The weighted mean cross-entropy in nats, and its gradient.

        Raises
        ------
        ValueError
            The target is empty, starts at the first token or ends behind the last, a position
            is not in the sequence, or the weights do not fit the target.
        """
        import torch

        start, stop = target_span(ids, target_slice)
        if any(not 0 <= position < len(ids) for position in positions):
            raise ValueError(f"need positions from 0 to {len(ids) - 1}, got {list(positions)}")
        device = self._layer.weight.device
        tokens = torch.tensor([list(ids)], device=device)
        with self._lock, torch.enable_grad(), self._clock.running(device):
            inputs = self._layer(tokens).detach().requires_grad_(True)
            output = self._run(inputs_embeds=inputs)
            loss = target_loss(
                output.logits[0, start - 1 : stop - 1], tokens[0, start:stop], weights
            )
            (slopes,) = torch.autograd.grad(loss, inputs)
        with torch.inference_mode():
            found = slopes[0, list(positions)].to(self._layer.weight.dtype) @ self._table().T
            gradient: NDArray[np.float32] = found.float().cpu().numpy()
        self._forwards += 1
        self._backwards += 1
        return float(loss.detach()), gradient

    def losses(
        self,
        sequences: Sequence[Ids],
        target_slice: slice,
        weights: Sequence[float] | None = None,
    ) -> NDArray[np.float32]:
        """The loss of :meth:`loss_gradient` for sequences of equal length, shape (n,).

        Raises
        ------
        ValueError
            As :meth:`loss_gradient`, and where lengths differ.
        """
        import torch

        if len({len(ids) for ids in sequences}) > 1:
            raise ValueError("need sequences of equal length")
        results = np.zeros(len(sequences), dtype=np.float32)
        if not sequences:
            return results
        start, stop = target_span(sequences[0], target_slice)
        rows = [(tuple(ids)[: stop - 1], stop - start) for ids in sequences]
        for i, logits in self._last_logits(rows):
            wanted = torch.tensor(sequences[i][start:stop], device=logits.device)
            results[i] = float(target_loss(logits, wanted, weights))
        return results

    def generate(self, messages: Sequence[Message], max_tokens: int) -> str:
        """Answer greedily with at most ``max_tokens`` tokens.

        Raises
        ------
        ValueError
            ``max_tokens`` is below 1.
        """
        import torch
        from transformers import DynamicCache

        if max_tokens < 1:
            raise ValueError(f"need max_tokens >= 1, got {max_tokens}")
        device = self._layer.weight.device
        written: list[int] = []
        fed, cache = list(self.chat_ids(messages)), DynamicCache()
        with self._lock, torch.inference_mode():
            while len(written) < max_tokens:
                output = self._run(
                    input_ids=torch.tensor([fed], device=device),
                    cache=cache,
                    logits_to_keep=1,
                )
                self._forwards += 1
                token = int(output.logits[0, -1].max(dim=-1).indices)
                if token in self._codec.stop:
                    break
                written.append(token)
                fed = [token]
        return self.decode(written)

    def perplexity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Perplexity of each text, shape (n,); NaN for a text of fewer than two tokens.

        No begin-of-text token is added, and the first token is not predicted.
        """
        import torch

        results = np.full(len(texts), np.nan)
        for i, text in enumerate(texts):
            ids = self.tokenize(text)
            total, done = 0.0, 1
            for begin in range(0, max(len(ids) - 1, 0), self.window // 2):
                end = min(begin + self.window, len(ids))
                part = ids[begin:end]
                ((_, logits),) = self._last_logits([(part[:-1], end - done)])
                wanted = torch.tensor(part[done - begin :], device=logits.device)
                total += float(
                    torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="sum")
                )
                done = end
                if end == len(ids):
                    break
            if len(ids) > 1:
                results[i] = np.exp(total / (len(ids) - 1))
        return results

    # ----------------------------------------------------------------------------- internals

    @cached_property
    def _loaded(self) -> tuple[Any, ChatCodec, Any]:
        with self._lock:
            return load_opened(self._generator)

    @property
    def _model(self) -> Any:
        return self._loaded[0]

    @property
    def _codec(self) -> ChatCodec:
        return self._loaded[1]

    @property
    def _tokenizer(self) -> Any:
        return self._loaded[2]

    @property
    def _layer(self) -> Any:
        return self._model.get_input_embeddings()

    def _table(self) -> Any:
        import torch

        # Through the layer, not its weight: some models scale what they look up.
        weight = self._layer.weight
        return self._layer(torch.arange(weight.shape[0], device=weight.device))

    @cached_property
    def window(self) -> int:
        """Most tokens that are read at once: 1,024, or what the model takes."""
        config = self._model.config.get_text_config()
        return min(_WINDOW, int(getattr(config, "max_position_embeddings", None) or _WINDOW))

    @cached_property
    def _accepted(self) -> frozenset[str]:
        return frozenset(inspect.signature(self._model.forward).parameters)

    def _run(self, **inputs: Any) -> Any:
        accepted = self._accepted
        for optional in ("logits_to_keep", "position_ids"):
            if optional not in accepted:
                inputs.pop(optional, None)
        cache = inputs.pop("cache", None)
        inputs["use_cache"] = cache is not None
        if cache is not None:  # newer versions of transformers have the shorter word
            inputs["cache" if "cache" in accepted else "past_key_values"] = cache
        try:
            with self._clock.running(self.device):
                return self._model(**inputs)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise BackendError(_one_line("the opened language model failed", error)) from error

    def _last_logits(self, rows: Sequence[tuple[Ids, int]]) -> Iterator[tuple[int, Any]]:
        """Yield for each (sequence, keep) its number and its last logits, shape (keep, V)."""
        import torch

        if any(not ids for ids, _ in rows):
            raise ValueError("a sequence is empty; give at least the begin-of-text token")
        groups: dict[tuple[int, int], list[int]] = {}
        for i, (ids, keep) in enumerate(rows):
            groups.setdefault((len(ids), keep), []).append(i)
        with self._lock, torch.inference_mode():
            shared = _shared(rows)
            layers = self._keep(rows[0][0][:shared]) if shared else None
            for (_, keep), members in sorted(groups.items()):
                for start in range(0, len(members), self._batch_size):
                    batch = members[start : start + self._batch_size]
                    logits = self._after(layers, [rows[i][0][shared:] for i in batch], keep)
                    self._forwards += len(batch)
                    yield from zip(batch, logits, strict=True)

    def _keep(self, ids: Ids) -> Any:
        import torch
        from transformers import DynamicCache

        tokens, cache = torch.tensor([list(ids)], device=self._layer.weight.device), DynamicCache()
        self._run(input_ids=tokens, cache=cache, logits_to_keep=1)
        self._forwards += 1
        return [(layer.keys, layer.values) for layer in cache.layers]

    def _after(self, layers: Any, rows: Sequence[Ids], keep: int) -> Any:
        import torch
        from transformers import DynamicCache

        cache = None
        if layers is not None:
            cache = DynamicCache()
            for number, (keys, values) in enumerate(layers):
                many = (len(rows), -1, -1, -1)
                cache.update(keys.expand(many), values.expand(many), number)
        tokens = torch.tensor([list(row) for row in rows], device=self._layer.weight.device)
        output = self._run(
            input_ids=tokens,
            cache=cache,
            logits_to_keep=keep,
        )
        return output.logits[:, -keep:]


def _shared(rows: Sequence[tuple[Ids, int]]) -> int:
    """Length of the beginning that all sequences have in common and no logits are asked of."""
    if len(rows) < 2:
        return 0
    most = min(len(ids) - keep for ids, keep in rows)
    first = rows[0][0]
    count = next(
        (i for i in range(max(most, 0)) if any(ids[i] != first[i] for ids, _ in rows)),
        max(most, 0),
    )
    return count if count >= _SHARED else 0
