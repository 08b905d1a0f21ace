"""A run folder that lies elsewhere, brought here to be read: ``s3://``, ``memory://`` and others.

Its files are copied into a new temporary folder, which is removed at the end. Only the names that
a run folder has are taken, from the folder itself and from ``provenance/``; nothing else that a
server says becomes a path. All files together may have :data:`MAX_BYTES`.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragassay.errors import ConfigError, RagassayError, StoreError
from ragassay.store.folder import STREAMS

MAX_BYTES = 64 << 30
MAX_FILES = 10_000
_BLOCK = 1 << 20
_PROTOCOL = r"[A-Za-z][A-Za-z0-9+.\-]+"
_URL = re.compile(rf"(?:{_PROTOCOL}::)*{_PROTOCOL}://.*", re.DOTALL)
_NAME = re.compile(
    rf"(?:{'|'.join(STREAMS)})(?:\.[0-9]{{5,9}})?\.jsonl(?:\.gz|\.zst)?"
    r"|[a-z][a-z_]{0,39}\.json|ingested\.jsonl|experiment\.toml|report\.(?:html|md)"
)
_FOLDERS = ("", "provenance")


def is_url(place: str | os.PathLike[str]) -> bool:
    """Whether a place is a URL, also a chained one, and no path of this machine.

    Examples
    --------
    >>> is_url("s3://bucket/run"), is_url("simplecache::s3://bucket/run"), is_url("runs/mine")
    (True, True, False)
    """
    return _URL.fullmatch(os.fspath(place)) is not None


@contextmanager
def local(place: str | os.PathLike[str], only: Collection[str] = ()) -> Iterator[Path]:
    """A run folder as a path: itself, or for a URL a copy that goes away at the end.

    Parameters
    ----------
    place : str or path
        The run folder.
    only : collection of str
        Names of files and streams that suffice, such as ``"resolved.json"`` and ``"trials"``;
        nothing else is copied. Default: all of the run.

    Raises
    ------
    ConfigError
        The package fsspec is missing, or one that the protocol needs; no protocol has this name.
    StoreError
        There is no run folder, it cannot be read, or it is larger than :data:`MAX_BYTES`.
    """
    if not is_url(place):
        yield Path(place)
        return
    folder = Path(tempfile.mkdtemp(prefix="ragassay-"))
    try:
        fetch(os.fspath(place), folder, only)
        yield folder
    except RagassayError as error:  # the copy's name says nothing to who gave the URL
        error.args = tuple(
            each.replace(str(folder), os.fspath(place)) if isinstance(each, str) else each
            for each in error.args
        )
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fetch(url: str, folder: Path, only: Collection[str] = ()) -> None:
    """Copy the files of a run folder, or ``only`` some of them; see :func:`local`."""
    system, root = _opened(url)
    try:
        found = _listed(system, root)
    except FileNotFoundError as error:
        raise StoreError(f"{url}: there is no such folder") from error
    except Exception as error:  # each protocol has errors of its own
        raise StoreError(f"{url} cannot be read: {_line(error)}") from error
    if "resolved.json" not in found:
        raise StoreError(f"{url} is no run folder: it has no resolved.json")
    if len(found) > MAX_FILES:
        raise StoreError(f"{url} has more than {MAX_FILES:,} files of a run")
    if only:
        found = {name: at for name, at in found.items() if name in only or _stream(name) in only}
    left = MAX_BYTES
    for name, source in sorted(found.items()):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        try:
            left = _copy(system, source, path, left)
        except Exception as error:
            raise StoreError(f"{url} cannot be read: {_line(error)}") from error
        if left < 0:
            raise StoreError(f"{url} is larger than {MAX_BYTES:,} bytes; copy it by hand")


def _listed(system: Any, root: str) -> dict[str, str]:
    """The files of a run: name here, by safe parts alone, and name there."""
    found = {}
    for below in _FOLDERS:
        at = f"{root.rstrip('/')}/{below}" if below else root
        if below and not system.isdir(at):
            continue
        for each in system.ls(at, detail=True):
            name = str(each["name"]).rstrip("/").rpartition("/")[2]
            if each["type"] == "file" and _NAME.fullmatch(name):
                found[f"{below}/{name}".lstrip("/")] = str(each["name"])
    return found


def _stream(name: str) -> str:
    """The stream that a file belongs to; empty for other files."""
    stem, dot, rest = name.partition(".")
    return stem if stem in STREAMS and dot and "jsonl" in rest else ""


def _copy(system: Any, source: str, path: Path, left: int) -> int:
    with system.open(source, "rb") as remote, path.open("wb") as file:
        while block := remote.read(_BLOCK):
            left -= len(block)
            if left < 0:
                break
            file.write(block)
    return left


def _opened(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise ConfigError(
            f"{url} is a URL: reading it needs fsspec: pip install 'ragassay[remote]'"
        ) from error
    known = {*fsspec.available_protocols(), *fsspec.registry}
    *links, last = url.split("::")
    for protocol in [link.partition("://")[0] for link in (*links, *[last] * ("://" in last))]:
        if protocol in known:
            continue
        raise ConfigError(
            f"{url}: fsspec knows no protocol {protocol!r}; it knows file, s3, gs, az, memory "
            "and others"
        )
    try:
        system, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise ConfigError(f"{url}: {_line(error)}") from error
    except Exception as error:
        raise StoreError(f"{url} cannot be opened: {_line(error)}") from error
    return system, str(root)


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
