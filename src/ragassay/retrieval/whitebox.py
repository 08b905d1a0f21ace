"""White-box access to any sentence-transformers encoder: tokens, embeddings, gradients.

Sequences of one length share a forward pass and are not padded at all, and linear layers are
packed meanwhile (:mod:`ragassay.retrieval.packed`): about a quarter faster than the padding by
which texts are made independent of their companions when they are indexed
(:mod:`ragassay.retrieval.encoders`). So the vector of some tokens and that of their text agree
up to rounding in float32 (some 1e-7), and scores that are reported are those of texts.

Source: the gradient with respect to input embeddings, as HotFlip uses it: Ebrahimi et al.,
HotFlip: White-Box Adversarial Examples for Text Classification, ACL 2018.

Deviations: none; gradients are those of the whole pipeline (pooling, dense layers and
normalization included), not of the transformer alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ragassay.errors import BackendError, ConfigError
from ragassay.plugins.accelerator import AcceleratorClock
from ragassay.plugins.access import Ids, Similarity, usable_tokens
from ragassay.retrieval.encoders import (
    EmbeddedMiniLM,
    SentenceTransformersEncoder,
    _limit,
)
from ragassay.retrieval.packed import PackedLayers
from ragassay.retrieval.weights import one_line


class EncoderAccess:
    """A sentence-transformers encoder, opened for attacks that use gradients.

    Loaded on first use, and shared with the encoder itself: while a gradient is taken, the
    encoder waits.

    Parameters
    ----------
    encoder : EmbeddedMiniLM or SentenceTransformersEncoder
        The encoder of the retriever.
    similarity : {"dot", "cosine"}
        How the retriever ranks passages.
    query_tokens, passage_tokens : int, optional
        Where the retriever cuts queries and injected passages, special tokens included;
        None: the encoder's own limit.
    batch_size : int
        Most sequences per forward pass.
    """

    def __init__(
        self,
        encoder: EmbeddedMiniLM | SentenceTransformersEncoder,
        *,
        similarity: Similarity = "cosine",
        query_tokens: int | None = None,
        passage_tokens: int | None = None,
        batch_size: int = 32,
    ) -> None:
        if similarity not in ("dot", "cosine"):
            raise ConfigError(f"need similarity to be dot or cosine, got {similarity!r}")
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {batch_size}")
        self._encoder = encoder
        self._source = encoder._model
        self._similarity: Similarity = similarity
        self._limits = {"query": query_tokens, "passage": passage_tokens}
        self._batch_size = batch_size
        self._forwards = 0
        self._backwards = 0
        self._clock = AcceleratorClock()

    @property
    def identity(self) -> str:
        """The encoder's identity, the similarity and the limits."""
        query, passage = self._limits.values()
        return f"{self._encoder.identity}:{self._similarity}:{query}:{passage}"

    @property
    def similarity(self) -> Similarity:
        """How passages are ranked."""
        return self._similarity

    @property
    def vocabulary(self) -> int:
        """Number V of token ids."""
        return len(self.embeddings)

    @property
    def max_tokens(self) -> int | None:
        """Most tokens of a passage, special tokens included."""
        return _limit(self._model, self._limits["passage"])

    @property
    def forwards(self) -> int:
        """Sequences encoded so far."""
        return self._forwards

    @property
    def backwards(self) -> int:
        """Sequences differentiated so far."""
        return self._backwards

    @property
    def accelerator_seconds(self) -> float:
        """Seconds of a CUDA device in this encoder so far; 0 on a CPU."""
        return self._clock.seconds

    @property
    def opening(self) -> Ids:
        """What stands in front of a text's tokens: special tokens, and a default prompt."""
        return self._frame[0]

    @property
    def closing(self) -> Ids:
        """What stands behind a text's tokens."""
        return self._frame[1]

    @property
    def mask(self) -> int | None:
        """The mask token, if there is one."""
        number = self._tokenizer.mask_token_id
        return None if number is None else int(number)

    @cached_property
    def embeddings(self) -> NDArray[np.float32]:
        """Input embeddings as the first layer gives them, shape (V, d)."""
        import torch

        layer = self._layer
        with self._source._lock, torch.inference_mode():
            everything = torch.arange(layer.weight.shape[0], device=layer.weight.device)
            table: NDArray[np.float32] = layer(everything).float().cpu().numpy().copy()
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
        """Token ids of a passage, without special tokens and default prompt, not cut.

        Raises
        ------
        BackendError
            The encoder puts a prompt in front that melts into the text.
        """
        ids = self._ids(f"{self._prompt}{text}")
        front = self._ids(self._prompt) if self._prompt else ()
        if ids[: len(front)] != front:
            raise BackendError(
                f"the encoder's prompt {self._prompt!r} melts into the text {text[:40]!r}"
            )
        return ids[len(front) :]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some tokens; special tokens are left out."""
        return str(
            self._tokenizer.decode(
                list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )

    def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        """Embed texts as the retriever does, shape (n, D), unnormalized."""
        self._forwards += len(texts)
        with self._clock.running(self._device):
            return self._encoder.encode(texts, max_tokens=self._limits[kind])

    def embed_ids(
        self, sequences: Sequence[Ids], *, max_tokens: int | None = None, wrapped: bool = False
    ) -> NDArray[np.float32]:
        """Embed passages by their token ids, shape (n, D), unnormalized.

        Parameters
        ----------
        sequences : sequence of tuple of int, length n
        max_tokens : int, optional
            Where they are cut, special tokens included; the passage limit if absent.
        wrapped : bool
            Whether the special tokens are there already.

        Raises
        ------
        BackendError
            The model fails.
        """
        import torch

        whole = self._wrap(sequences, max_tokens, wrapped)
        vectors: NDArray[np.float32] | None = None
        with (
            self._source._lock,
            torch.inference_mode(),
            self._packed.active(),
            self._clock.running(self._device),
        ):
            for batch in self._batches(whole):
                found = self._run([whole[i] for i in batch])
                if vectors is None:
                    vectors = np.empty((len(whole), found.shape[1]), dtype=np.float32)
                vectors[batch] = found.float().cpu().numpy()
        self._forwards += len(whole)
        return np.empty((0, 0), dtype=np.float32) if vectors is None else vectors

    def gradient(
        self, ids: Ids, direction: NDArray[np.float32], *, wrapped: bool = False
    ) -> tuple[float, NDArray[np.float32]]:
        """Similarity to a direction (D,), and its gradient, shape (len(ids), d)."""
        scores, found = self.gradients([ids], direction, wrapped=wrapped)
        return float(scores[0]), found[0]

    def gradients(
        self, sequences: Sequence[Ids], direction: NDArray[np.float32], *, wrapped: bool = False
    ) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
        """Similarity of several sequences to a direction, and the gradient of each.

        Tokens beyond the passage limit have the gradient 0.

        Raises
        ------
        BackendError
            The model fails.
        """
        import torch

        whole = self._wrap(sequences, None, wrapped)
        scores = np.zeros(len(whole), dtype=np.float32)
        gradients = [
            np.zeros((len(ids), self.embeddings.shape[1]), dtype=np.float32) for ids in sequences
        ]
        skip, behind = (0, 0) if wrapped else (len(self.opening), len(self.closing))
        toward = torch.from_numpy(np.asarray(direction, dtype=np.float32))
        with (
            self._source._lock,
            torch.enable_grad(),
            self._clock.running(self._device),
            self._watched() as seen,
        ):
            for batch in self._batches(whole):
                seen.clear()
                vectors = self._run([whole[i] for i in batch]).float()
                if self._similarity == "cosine":
                    vectors = torch.nn.functional.normalize(vectors, dim=-1)
                found = vectors @ toward.to(vectors.device)
                slopes = self._slopes(found.sum(), seen)
                scores[batch] = found.detach().cpu().numpy()
                for row, i in enumerate(batch):
                    kept = min(len(sequences[i]), len(whole[i]) - skip - behind)
                    part = slopes[row, skip : skip + kept]
                    gradients[i][:kept] = part.float().cpu().numpy()
        self._forwards += len(whole)
        self._backwards += len(whole)
        return scores, gradients

    # ----------------------------------------------------------------------------- internals

    @property
    def _model(self) -> Any:
        with self._source._lock:
            return self._source._load()

    @property
    def _device(self) -> Any:
        return self._model.device

    @property
    def _tokenizer(self) -> Any:
        return self._model.tokenizer

    @cached_property
    def _layer(self) -> Any:
        transformer = getattr(self._model[0], "auto_model", None)
        layer = None if transformer is None else transformer.get_input_embeddings()
        if layer is None or getattr(layer, "weight", None) is None:
            raise BackendError(
                f"the encoder in {self._source.folder} has no table of input embeddings, and "
                "gradient attacks need one"
            )
        self._model.requires_grad_(False)  # only the inputs are ever differentiated
        return layer

    @cached_property
    def _packed(self) -> PackedLayers:
        return PackedLayers(self._model)

    @cached_property
    def _prompt(self) -> str:
        model = self._model
        return str(model.prompts.get(model.default_prompt_name) or "")

    @cached_property
    def _frame(self) -> tuple[Ids, Ids]:
        with self._source._lock:
            found = self._tokenizer(f"{self._prompt}a", add_special_tokens=True)["input_ids"]
        inner = self.tokenize("a")
        for start in range(len(found) - len(inner), -1, -1):
            if tuple(found[start : start + len(inner)]) == inner:
                return tuple(found[:start]), tuple(found[start + len(inner) :])
        raise BackendError(
            f"the tokenizer in {self._source.folder} changes a text when it adds special tokens"
        )

    def _ids(self, text: str) -> Ids:
        clean = text.encode("utf-8", "replace").decode("utf-8")
        if getattr(self._model[0], "do_lower_case", False):
            clean = clean.lower()
        with self._source._lock:
            found = self._tokenizer(
                clean, add_special_tokens=False, truncation=False, padding=False, verbose=False
            )
        return tuple(found["input_ids"])

    def _wrap(self, sequences: Sequence[Ids], max_tokens: int | None, wrapped: bool) -> list[Ids]:
        asked = self._limits["passage"] if max_tokens is None else max_tokens
        limit = _limit(self._model, asked)
        if wrapped:
            return [tuple(ids)[:limit] for ids in sequences]
        room = None if limit is None else max(limit - len(self.opening) - len(self.closing), 0)
        return [(*self.opening, *ids[:room], *self.closing) for ids in sequences]

    def _batches(self, whole: Sequence[Ids]) -> Iterator[list[int]]:
        """Yield the numbers of sequences of one length, short ones first."""
        groups: dict[int, list[int]] = {}
        for i, ids in enumerate(whole):
            groups.setdefault(len(ids), []).append(i)
        for _, members in sorted(groups.items()):
            for start in range(0, len(members), self._batch_size):
                yield members[start : start + self._batch_size]

    def _run(self, rows: Sequence[Ids]) -> Any:
        import torch

        ids = torch.tensor(rows, dtype=torch.long, device=self._layer.weight.device)
        features = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if "token_type_ids" in self._tokenizer.model_input_names:
            features["token_type_ids"] = torch.zeros_like(ids)
        try:
            return self._model(features)["sentence_embedding"]
        except (RuntimeError, ValueError, IndexError) as error:
            raise BackendError(
                f"the encoder in {self._source.folder} failed: {one_line(error)}"
            ) from error

    def _slopes(self, score: Any, seen: list[Any]) -> Any:
        import torch

        try:
            return torch.autograd.grad(score, seen[0])[0]
        except (RuntimeError, IndexError) as error:
            raise BackendError(
                f"the encoder in {self._source.folder} gives no gradient: {one_line(error)}"
            ) from error

    @contextmanager
    def _watched(self) -> Iterator[list[Any]]:
        """Make the output of the embedding layer what gradients are taken of."""
        seen: list[Any] = []

        def keep(_layer: Any, _inputs: Any, output: Any) -> Any:
            leaf = output.detach().requires_grad_(True)
            seen.append(leaf)
            return leaf

        handle = self._layer.register_forward_hook(keep)
        try:
            yield seen
        finally:
            handle.remove()
