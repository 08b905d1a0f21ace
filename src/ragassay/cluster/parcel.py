"""A plug-in by value: what another process needs to build the same one.

A plug-in is built there from its class and its option values. A class of a package is
imported, so the package must be installed there. A class from a file travels as the bytes of
the file. A file that an option names (``path``, ``prompt``, ``*_prompt``) travels as well;
folders and names of models do not, so they must be found there.

What was built must then have the identity that it has here. A worker with other weights, or
another version of a package, is refused.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ragassay import plugins
from ragassay.canon import digest, to_plain
from ragassay.errors import BackendUnavailable, ConfigError, PluginError

LARGEST_FILE = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A plug-in on its way.

    ``module`` and ``name`` say what class it is; ``source`` is the file of the module where it
    is no part of a package, ``file`` its name. ``files`` holds name and content of the files
    that options name, by option. ``key`` is a digest of everything in it.
    """

    kind: Literal["encoder", "generator"]
    module: str
    name: str
    identity: str
    options: dict[str, Any]
    file: str = ""
    source: bytes = b""
    files: dict[str, tuple[str, bytes]]
    key: str

    @property
    def writes(self) -> bool:
        """Whether unpacking writes files."""
        return bool(self.files or self.source)


def pack(kind: Literal["encoder", "generator"], instance: Any) -> Parcel:
    """Pack a built plug-in.

    Raises
    ------
    ConfigError
        Its class cannot be found again elsewhere, or a file that it names is too large.
    PluginError
        The file of its class was changed since it was read.
    """
    cls = type(instance)
    module, name = cls.__module__, cls.__qualname__
    if module == "__main__" or "<" in name:
        raise ConfigError(
            f"{kind} {name!r} is defined where no other process can import it; put it into a file "
            "of its own or into a package"
        )
    file, source = "", b""
    if module.startswith(plugins.FILE_MODULE):
        file, source = _source_of(kind, module, name)
    options = {}
    if dataclasses.is_dataclass(instance):
        options = {f.name: getattr(instance, f.name) for f in dataclasses.fields(cls) if f.init}
    files = {}
    for key, value in options.items():
        names_a_file = key in ("path", "prompt") or key.endswith("_prompt")
        if names_a_file and isinstance(value, str) and value and Path(value).is_file():
            files[key] = (Path(value).name, _read(kind, name, key, Path(value)))
    contents = {option: hashlib.sha256(data).hexdigest() for option, (_, data) in files.items()}
    identity = instance.identity
    return Parcel(
        key=digest([kind, module, name, identity, to_plain(options), contents])[:32],
        kind=kind,
        module=module,
        name=name,
        identity=identity,
        options=options,
        file=file,
        source=source,
        files=files,
    )


def unpack(parcel: Parcel, folder: Path) -> Any:
    """Build the plug-in of a parcel; what it needs on disk is written to ``folder``.

    Raises
    ------
    BackendUnavailable
        Its package is not here, or what was built is not the same.
    PluginError
        The class refuses the options.
    """
    options = dict(parcel.options)
    for option, (name, content) in parcel.files.items():
        place = folder / parcel.key / option / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        options[option] = str(place)
    instance = _class_of(parcel, folder)(**options)
    if instance.identity != parcel.identity:
        raise BackendUnavailable(
            f"{parcel.kind} {parcel.name!r} is {instance.identity} on the worker and "
            f"{parcel.identity} where the run was started; both need the same packages and weights"
        )
    return instance


def _class_of(parcel: Parcel, folder: Path) -> type:
    if parcel.source:
        place = folder / parcel.module / parcel.file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(parcel.source)
        return plugins.find(parcel.kind, f"{place}:{parcel.name}").cls
    try:
        found: Any = importlib.import_module(parcel.module)
    except ImportError as error:
        raise BackendUnavailable(
            f"{parcel.kind} {parcel.name!r}: the worker cannot import {parcel.module} ({error}); "
            "install on every node what is installed where the run was started"
        ) from error
    for part in parcel.name.split("."):
        found = getattr(found, part)
    cls: type = found
    return cls


def _source_of(kind: str, module: str, name: str) -> tuple[str, bytes]:
    path = Path(str(sys.modules[module].__file__))
    source = path.read_bytes()
    if not hashlib.sha256(source).hexdigest().startswith(module.removeprefix(plugins.FILE_MODULE)):
        raise PluginError(f"{kind} {name!r}: {path} was changed since it was read; start again")
    return path.name, source


def _read(kind: str, name: str, option: str, path: Path) -> bytes:
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise ConfigError(
            f"{kind} {name!r}: option {option} names {path} of {size:,} bytes; files of up to "
            f"{LARGEST_FILE:,} bytes are sent to workers"
        )
    return path.read_bytes()
