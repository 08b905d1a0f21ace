"""A pipeline of the user's own, made by a function in a file: ``file.py:make``."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ragassay.canon import digest
from ragassay.errors import PluginError


def load_factory(named: str) -> Callable[..., Any]:
    """Find the function.

    Raises
    ------
    PluginError
        There is no such file or function, or the file fails to import.
    """
    path, name = _split(named)
    source = _source(path)
    module_name = f"ragassay_factory_{hashlib.sha256(source).hexdigest()[:12]}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, path)
        if spec is None or spec.loader is None:
            raise PluginError(f"factory {named!r}: {path} cannot be imported as Python")
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[module_name]
            raise PluginError(
                f"factory {named!r}: {path} fails to import: {type(error).__name__}: {error}"
            ) from error
    function = getattr(sys.modules[module_name], name, None)
    if not callable(function):
        raise PluginError(f"factory {named!r}: {path} has no function {name!r}")
    return function  # type: ignore[no-any-return]


def factory_identity(kind: str, named: str, options: Mapping[str, Any]) -> str:
    """Digest what a factory can make: its file's content, its name and its options."""
    path, name = _split(named)
    content = hashlib.sha256(_source(path)).hexdigest()
    return f"{kind}:{digest([kind, content, name, dict(options)])[:16]}"


def _split(named: str) -> tuple[Path, str]:
    file, colon, name = named.rpartition(":")
    if not colon or not file.endswith(".py") or not name:
        raise PluginError(f"factory must be 'path/to/file.py:function', got {named!r}")
    return Path(file), name


def _source(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PluginError(f"factory: {path} cannot be read: {error.strerror or error}") from error
