"""Batched decoding with a local causal language model, made so that companions do not matter.

Matrix products may round differently when the number of rows changes, and at temperature 0 a
rounding decides between near ties. So the answer to a request is made a pure function of the
request, whatever else is asked with it, by pinning every shape that a row meets:

- A prompt is processed alone, at its exact length: no padding and no companions. On a CPU
  this costs nothing, because one prompt of some hundred tokens already fills the processor.
- Tokens are then decoded in a fixed number of *lanes* (the batch size), each with a fixed
  number of cache slots: prompt length plus ``max_tokens``, rounded up to a multiple of
  :data:`SLOT_STEP`. A lane attends over all its slots, the unused ones masked. An empty lane
  decodes a dummy token. A lane that finishes takes the next request at once.

Prompts that begin with the same messages share them: the messages before the last one, if
they have at least :data:`MIN_PREFIX` tokens, are processed once and their keys and values are
kept for the next prompt that starts so. Whether a prompt is split depends on it alone.
"""

from __future__ import annotations

import inspect
import itertools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from ragassay.canon import digest
from ragassay.errors import BackendError
from ragassay.generation.lanes import Lanes, Row
from ragassay.generation.packing import pack_linear_layers
from ragassay.types import Generation, Message, Request

ENGINE_VERSION = "1"
SLOT_STEP = 128
MIN_PREFIX = 48
PREFIX_CACHE_BYTES = 512 * 2**20

_CANCELED = "canceled before it was answered"


class PromptCodec(Protocol):
    """Between messages and token ids."""

    stop: frozenset[int]
    """Tokens that end an answer."""

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Render a prompt up to the point where the answer starts.

        Raises
        ------
        BackendError
            The messages cannot be rendered for this model.
        """

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """Render messages that others will follow; empty where that cannot be done."""

    def text(self, ids: Sequence[int]) -> str:
        """Decode an answer; special tokens are left out, nothing else is changed."""


class Engine:
    """Answers requests with a transformers model.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A causal language model with ordinary (or sliding-window) attention, in evaluation
        mode, on its device. On a CPU its linear layers are repacked in place.
    codec : PromptCodec
        Its chat format.
    batch_size : int
        Number of lanes.
    threads : int, default 0
        Threads of PyTorch while this engine computes; 0 leaves the setting alone.
    share_prefixes : bool, default True
        Whether to keep the keys and values of leading messages.

    Raises
    ------
    BackendError
        The model has recurrent or linear-attention layers, or no known context length.
    """

    def __init__(
        self,
        model: Any,
        codec: PromptCodec,
        *,
        batch_size: int,
        threads: int = 0,
        share_prefixes: bool = True,
    ) -> None:
        self.window = _window(model.config)
        self.batch_size = batch_size
        self._model = model
        self._codec = codec
        self._threads = threads
        self._share_prefixes = share_prefixes
        accepted = inspect.signature(model.forward).parameters
        self._cache_word = "cache" if "cache" in accepted else "past_key_values"
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self._prefixes: OrderedDict[tuple[int, ...], Any] = OrderedDict()
        self._prefix_bytes = 0
        self._lock = threading.Lock()
        self._cancellations = 0
        pack_linear_layers(model)

    def generate(self, requests: Sequence[Request]) -> list[Generation | BackendError]:
        """Answer each request, in order. A failed one is returned, not raised."""
        answers: list[Generation | BackendError] = [BackendError(_CANCELED) for _ in requests]
        for index, answer in self.generate_iter(requests):
            answers[index] = answer
        return answers

    def generate_iter(
        self, requests: Sequence[Request]
    ) -> Iterator[tuple[int, Generation | BackendError]]:
        """Answer requests in the order in which they get done.

        Yields
        ------
        tuple of int and (Generation or BackendError)
            The position of the request and its answer. ``output_tokens`` counts the token
            that ended the answer; ``seconds`` is the time of the prompt and an equal share of
            each decoding step.
        """
        started = self._cancellations
        rows = []
        for index, request in enumerate(requests):
            try:
                rows.append(self._plan(index, request))
            except BackendError as error:
                yield index, error
        rows.sort(key=lambda row: (row.slots, row.ids[: row.prefix], row.key, row.index))
        for slots, group in itertools.groupby(rows, key=lambda row: row.slots):
            lanes = Lanes(self._model, self.batch_size, slots)
            waiting = deque(group)
            while waiting or lanes.rows:
                with self._computing():
                    if self._cancellations != started:
                        return
                    done = self._advance(lanes, waiting)
                yield from done

    def cancel(self) -> None:
        """Make the running calls end after their present step, with what they have."""
        self._cancellations += 1

    # -------------------------------------------------------------------------- internals

    def _plan(self, index: int, request: Request) -> Row:
        sampling = request.sampling
        if sampling.max_tokens < 1 or sampling.temperature < 0 or not 0 < sampling.top_p <= 1:
            raise BackendError(
                "need max_tokens >= 1, temperature >= 0 and 0 < top_p <= 1, got "
                f"{sampling.max_tokens}, {sampling.temperature:g} and {sampling.top_p:g}"
            )
        ids = self._codec.prompt(request.messages)
        if not ids:
            raise BackendError("the prompt has no tokens")
        if len(ids) + sampling.max_tokens > self.window:
            raise BackendError(
                f"a prompt of {len(ids)} tokens and {sampling.max_tokens} tokens of answer do "
                f"not fit into the model's window of {self.window} tokens"
            )
        prefix = 0
        if self._share_prefixes and len(request.messages) > 1:
            opening = self._codec.opening(request.messages[:-1])
            # A tokenizer may merge across the border; then the prompt is processed whole.
            if MIN_PREFIX <= len(opening) < len(ids) and ids[: len(opening)] == opening:
                prefix = len(opening)
        return Row(
            index=index,
            request=request,
            key=digest(request),
            ids=ids,
            prefix=prefix,
            slots=-(-(len(ids) + sampling.max_tokens) // SLOT_STEP) * SLOT_STEP,
        )

    @contextmanager
    def _computing(self) -> Iterator[None]:
        import torch

        with self._lock, torch.inference_mode():
            before = torch.get_num_threads()
            if self._threads:
                torch.set_num_threads(self._threads)
            try:
                yield
            finally:
                if self._threads:
                    torch.set_num_threads(before)

    def _advance(
        self, lanes: Lanes, waiting: deque[Row]
    ) -> list[tuple[int, Generation | BackendError]]:
        """Fill the free lanes, then decode one token in all of them."""
        done: list[tuple[int, Generation | BackendError]] = []
        while waiting and lanes.free:
            row = waiting.popleft()
            try:
                self._admit(row, lanes)
            # Whatever a model raises (out of memory, a shape it cannot do) ends this row only.
            except Exception as error:
                done.append((row.index, _failure(error)))
                continue
            if row.index not in lanes.rows:
                done.append((row.index, self._finish(row)))
        if not lanes.rows:
            return done
        try:
            finished = self._step(lanes)
        except Exception as error:
            done += [(row.index, _failure(error)) for row in lanes.clear()]
            return done
        return done + [(row.index, self._finish(row)) for row in finished]

    def _admit(self, row: Row, lanes: Lanes) -> None:
        """Process a prompt and choose its first token; give it a lane if it needs more."""
        start = time.perf_counter()
        cache, logits = self._read_prompt(row)
        self._choose([row], logits)
        if not self._is_finished(row):
            lanes.admit(row, cache)
        row.seconds += time.perf_counter() - start

    def _read_prompt(self, row: Row) -> tuple[Any, Any]:
        from transformers import DynamicCache

        cache = DynamicCache()
        if row.prefix:
            for layer, (keys, values) in enumerate(self._prefix(row.ids[: row.prefix])):
                cache.update(keys, values, layer)
        logits = self._forward(row.ids[row.prefix :], row.prefix, cache)
        return cache, logits

    def _prefix(self, ids: list[int]) -> list[tuple[Any, Any]]:
        from transformers import DynamicCache

        key = tuple(ids)
        if key in self._prefixes:
            self._prefixes.move_to_end(key)
            return self._prefixes[key]  # type: ignore[no-any-return]
        cache = DynamicCache()
        self._forward(ids, 0, cache)
        layers = [(layer.keys, layer.values) for layer in cache.layers]
        self._prefixes[key] = layers
        self._prefix_bytes += _size(layers)
        while self._prefix_bytes > PREFIX_CACHE_BYTES and len(self._prefixes) > 1:
            _, oldest = self._prefixes.popitem(last=False)
            self._prefix_bytes -= _size(oldest)
        return layers

    def _forward(self, ids: list[int], offset: int, cache: Any) -> Any:
        """Process tokens after ``offset`` cached ones; logits of the last, shape (1, vocab)."""
        import torch

        device = self._model.device
        output = self._model(
            input_ids=torch.tensor([ids], device=device),
            position_ids=torch.arange(offset, offset + len(ids), device=device)[None],
            use_cache=True,
            **{self._cache_word: cache},
            **self._last_only,
        )
        return output.logits[:, -1]

    def _step(self, lanes: Lanes) -> list[Row]:
        import torch

        start = time.perf_counter()
        tokens = [[0]] * self.batch_size
        for row, lane in lanes.active():
            tokens[lane] = [row.written[-1]]
        mask, positions = lanes.open_next_slot()
        output = self._model(
            input_ids=torch.tensor(tokens, device=self._model.device),
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            **{self._cache_word: lanes.cache},
        )
        rows = [row for row, _ in lanes.active()]
        self._choose(rows, output.logits[[lane for _, lane in lanes.active()], -1])
        share = (time.perf_counter() - start) / len(rows)
        for row in rows:
            row.seconds += share
        finished = [row for row in rows if self._is_finished(row)]
        for row in finished:
            lanes.release(row)
        return finished

    def _choose(self, rows: Sequence[Row], logits: Any) -> None:
        """Append the next token of each row; ``logits`` has shape (rows, vocab)."""
        # torch.max promises the first of equal maxima, torch.argmax does not.
        best = logits.max(dim=-1).indices.tolist()
        for row, token, scores in zip(rows, best, logits, strict=True):
            row.written.append(_draw(row, scores) if row.request.sampling.temperature else token)

    def _is_finished(self, row: Row) -> bool:
        full = len(row.written) >= row.request.sampling.max_tokens
        return full or row.written[-1] in self._codec.stop

    def _finish(self, row: Row) -> Generation:
        stopped = row.written[-1] in self._codec.stop
        return Generation(
            text=self._codec.text(row.written[:-1] if stopped else row.written),
            finish="stop" if stopped else "length",
            input_tokens=len(row.ids),
            output_tokens=len(row.written),
            seconds=row.seconds,
        )


def _draw(row: Row, scores: Any) -> int:
    """Draw a token from the nucleus, on the CPU, with random numbers of the row's own."""
    import torch

    sampling = row.request.sampling
    if row.random is None:
        row.random = torch.Generator().manual_seed(int(row.key[:16], 16))
    scaled = scores.to("cpu", torch.float64) / sampling.temperature
    probabilities, tokens = torch.softmax(scaled, -1).sort(descending=True, stable=True)
    mass = probabilities.cumsum(-1)
    kept = int((mass < sampling.top_p).sum()) + 1
    mass = mass[:kept]
    point = torch.rand(1, generator=row.random, dtype=torch.float64) * mass[-1]
    return int(tokens[min(int(torch.searchsorted(mass, point, right=True)), len(mass) - 1)])


def _size(layers: list[tuple[Any, Any]]) -> int:
    return sum(keys.nbytes + values.nbytes for keys, values in layers)


def _failure(error: Exception) -> BackendError:
    if isinstance(error, BackendError):
        return error
    return BackendError(f"the model failed: {type(error).__name__}: {error}".split("\n")[0][:500])


def _window(config: Any) -> int:
    """Longest sequence for which plain attention is what the model does."""
    config = config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    strange = kinds - {"full_attention", "sliding_attention"}
    if strange:
        raise BackendError(
            f"model type {config.model_type!r} has {sorted(strange)[0]} layers, which this engine "
            "cannot run; serve it with an OpenAI-compatible server and use the plug-in 'openai'"
        )
    window = getattr(config, "max_position_embeddings", None)
    if not window:
        raise BackendError(f"model type {config.model_type!r} does not say its context length")
    sliding = getattr(config, "sliding_window", None)
    if sliding and (not kinds or "sliding_attention" in kinds):
        window = min(window, sliding)
    return int(window)
