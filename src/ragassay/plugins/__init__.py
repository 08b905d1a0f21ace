"""Plug-ins: how one is found by name, how it is built, and what each kind must offer.

A plug-in is a class, usually a frozen dataclass whose fields are its options. Built-ins and
a user's own are found the same way: by an entry point of the group ``ragassay.<kind>``, or
by ``"path/to/file.py:ClassName"`` with nothing installed. Loading is lazy; a name that two
distributions claim, or an import that fails, is an error that says who is to blame.

What ``ragassay show NAME`` prints comes from the class docstring (the options) and from the
module docstring, whose paragraphs starting with ``Source:`` and ``Deviations:`` are the
method's citation and its departures from it.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
import importlib.util
import inspect
import sys
import typing
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from ragassay import prompts
from ragassay.canon import digest, to_plain
from ragassay.errors import PluginError
from ragassay.plugins.protocols import (
    Answered,
    Ask,
    Attack,
    AttackerView,
    DatasetReader,
    Defense,
    EditScorer,
    Encoder,
    Fitted,
    Generator,
    Index,
    ModelScorer,
    Retriever,
    Scorer,
    Tools,
)
from ragassay.plugins.systems import Document, System, SystemAnswer, UsedPassage
from ragassay.taxonomy import Threat, threats_of

__all__ = [
    "FILE_MODULE",
    "KINDS",
    "Answered",
    "Ask",
    "Attack",
    "AttackerView",
    "DatasetReader",
    "Defense",
    "Document",
    "EditScorer",
    "Encoder",
    "Fitted",
    "Found",
    "Generator",
    "Index",
    "Kind",
    "ModelScorer",
    "Retriever",
    "Scorer",
    "System",
    "SystemAnswer",
    "Tools",
    "UsedPassage",
    "build",
    "describe",
    "find",
    "identity",
    "names",
    "summary",
]

Kind = Literal[
    "attack",
    "dataset",
    "defense",
    "encoder",
    "generator",
    "retriever",
    "scorer",
    "system",
    "tamper",
]
KINDS: tuple[Kind, ...] = typing.get_args(Kind)
FILE_MODULE = "ragassay_user_"
"""How the modules of single files are named; the start of the file's SHA-256 follows."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A plug-in class and where it came from. ``origin`` is part of every key."""

    kind: Kind
    name: str
    cls: type
    origin: str


def names(kind: Kind) -> list[str]:
    """List the registered names of a kind, sorted."""
    return sorted(_registered(kind))


def find(kind: Kind, name: str, *, folder: Path | None = None) -> Found:
    """Find a plug-in by registered name or by ``file.py:Class``.

    Parameters
    ----------
    folder : Path, optional
        Where relative files are looked for first; the current folder comes second.

    Raises
    ------
    PluginError
        The name is unknown (with a suggestion), claimed twice, or fails to load.
    """
    if ".py:" in name:
        return _from_file(kind, name, folder)
    points = _registered(kind)
    if name not in points:
        close = difflib.get_close_matches(name, points, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise PluginError(
            f"unknown {kind} {name!r}{hint} Known: {', '.join(sorted(points)) or 'none'}. "
            "A class of your own: 'path/to/file.py:ClassName'"
        )
    point = points[name]
    owner = f"{point.dist.name} {point.dist.version}" if point.dist else "unknown distribution"
    try:
        cls = point.load()
    except Exception as error:  # whatever a foreign import raises becomes one clear line
        raise PluginError(
            f"{kind} {name!r} of {owner} cannot be loaded ({point.value}): {error}"
        ) from error
    if not isinstance(cls, type):
        raise PluginError(f"{kind} {name!r} of {owner} is not a class: {point.value}")
    version = str(getattr(cls, "version", "1"))
    builtin = point.dist is not None and point.dist.name == "ragassay"
    return Found(kind=kind, name=name, cls=cls, origin=version if builtin else owner)


def build(found: Found, options: Mapping[str, Any], *, folder: Path | None = None) -> Any:
    """Build a plug-in from options, checked against the types of its dataclass fields.

    An option called ``path``, ``prompt`` or ``*_prompt`` that names an existing file below
    ``folder`` (where the experiment file lies) is resolved to it; of a system also any
    ``file.py:name``.

    Raises
    ------
    PluginError
        An option is unknown, missing or of the wrong type, or the class refuses it.
    """
    label = f"{found.kind} {found.name!r}"
    if not dataclasses.is_dataclass(found.cls):
        if options:
            raise PluginError(f"{label} takes no options, got {sorted(options)}")
        return _call(found.cls, {}, label)
    schema = _schema(found.cls)
    fields = {f.name: f for f in dataclasses.fields(found.cls) if f.init}
    checked = {}
    for key, value in options.items():
        if key not in fields:
            close = difflib.get_close_matches(key, fields, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            raise PluginError(f"{label} has no option {key!r}{hint} It has: {', '.join(fields)}")
        try:
            checked[key] = TypeAdapter(schema[key]).validate_python(_tuples(value), strict=True)
            if folder is not None and _names_a_file(key) and isinstance(value, str):
                path = folder / value
                checked[key] = str(path) if value and path.exists() else value
            elif folder is not None and found.kind == "system" and isinstance(value, str):
                checked[key] = _python_below(folder, value)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise PluginError(f"{label}: option {key} = {value!r}: {reason}") from error
    missing = [
        name
        for name, f in fields.items()
        if name not in checked
        and f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise PluginError(f"{label} needs the option {missing[0]!r}")
    return _call(found.cls, checked, label)


def identity(found: Found, instance: Any) -> str:
    """Digest a built plug-in: its name, its origin and all its option values.

    A prompt counts by its text, not by its name; a field with metadata ``identity=False``
    cannot change a result and does not count.
    """
    options = {}
    if dataclasses.is_dataclass(instance):
        options = {
            f.name: _option_identity(f.name, getattr(instance, f.name))
            for f in dataclasses.fields(instance)
            if f.init and f.metadata.get("identity", True)
        }
    return f"{found.name}:{digest([found.kind, found.name, found.origin, options])[:16]}"


def summary(cls: type) -> str:
    """Return the first line of a plug-in's docstring."""
    return (inspect.getdoc(cls) or "").split("\n", 1)[0]


def describe(found: Found) -> dict[str, Any]:
    """Collect what ``ragassay show`` prints: options, documentation, source, deviations."""
    module = inspect.getdoc(inspect.getmodule(found.cls)) or ""
    paragraphs = {
        head: " ".join(part.split()[1:])
        for part in module.split("\n\n")
        for head in ("Source", "Deviations")
        if part.startswith(head + ":")
    }
    options = []
    if dataclasses.is_dataclass(found.cls):
        for f in dataclasses.fields(found.cls):
            if f.init:
                required = (
                    f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
                )
                default = (
                    None
                    if required
                    else f.default_factory()
                    if f.default_factory is not dataclasses.MISSING
                    else f.default
                )
                options.append(
                    {
                        "name": f.name,
                        "type": _type_name(_schema(found.cls)[f.name]),
                        "default": default,
                        "required": required,
                    }
                )
    return {
        "kind": found.kind,
        "name": found.name,
        "summary": summary(found.cls),
        "doc": inspect.getdoc(found.cls) or "",
        "options": options,
        "source": paragraphs.get("Source", ""),
        "deviations": paragraphs.get("Deviations", ""),
        "knowledge": _declared(found.cls),
        "threats": _threats(found),
    }


# --------------------------------------------------------------------------------- internals


def _declared(cls: type) -> Any:
    """The knowledge that a class declares; None where it depends on the options."""
    knowledge = getattr(cls, "knowledge", None)
    return None if isinstance(knowledge, property) else knowledge


def _threats(found: Found) -> tuple[Threat, ...]:
    """What an attack is called in OWASP's list and in ATLAS; nothing for other kinds."""
    if found.kind != "attack":
        return ()
    return threats_of(found.name, tuple(getattr(found.cls, "threats", ())))


@functools.lru_cache(maxsize=1)
def _all_points() -> dict[str, list[EntryPoint]]:
    return {kind: list(entry_points(group=f"ragassay.{kind}")) for kind in KINDS}


def _registered(kind: Kind) -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for point in _all_points()[kind]:
        other = found.get(point.name)
        if other is not None and other.value != point.value:
            owners = [p.dist.name if p.dist else "?" for p in (other, point)]
            raise PluginError(
                f"{kind} {point.name!r} is registered twice: by {owners[0]} ({other.value}) and "
                f"by {owners[1]} ({point.value}); uninstall one or rename it"
            )
        found[point.name] = point
    return found


def _from_file(kind: Kind, name: str, folder: Path | None) -> Found:
    file, _, class_name = name.rpartition(":")
    tried = [base / file for base in (folder, Path.cwd()) if base is not None]
    path = next((p for p in tried if p.is_file()), None)
    if path is None:
        raise PluginError(f"{kind} {name!r}: no such file, tried {', '.join(map(str, tried))}")
    source = path.read_bytes()
    module_name = f"{FILE_MODULE}{hashlib.sha256(source).hexdigest()[:12]}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, path)
        if spec is None or spec.loader is None:
            raise PluginError(f"{kind} {name!r}: {path} cannot be imported as Python")
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[module_name]
            raise PluginError(f"{kind} {name!r}: {path} fails to import: {error}") from error
    cls = getattr(sys.modules[module_name], class_name, None)
    if not isinstance(cls, type):
        raise PluginError(f"{kind} {name!r}: {path} has no class {class_name!r}")
    return Found(
        kind=kind, name=class_name, cls=cls, origin=hashlib.sha256(source).hexdigest()[:16]
    )


def _python_below(folder: Path, value: str) -> str:
    file, colon, _ = value.partition(".py:")
    return str(folder / value) if colon and (folder / f"{file}.py").is_file() else value


def _names_a_file(key: str) -> bool:
    return key == "path" or key == "prompt" or key.endswith("_prompt")


def _option_identity(name: str, value: Any) -> Any:
    is_prompt = name == "prompt" or name.endswith("_prompt")
    return prompts.load(value).digest if is_prompt and isinstance(value, str) else to_plain(value)


def _schema(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    return value


def _call(cls: type, options: Mapping[str, Any], label: str) -> Any:
    try:
        return cls(**options)
    except PluginError:
        raise
    except (TypeError, ValueError) as error:
        raise PluginError(f"{label}: {error}") from error
