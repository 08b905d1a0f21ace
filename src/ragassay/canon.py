"""Canonical JSON, digests, and seeds that derive from keys.

Equal values give equal bytes: keys are sorted, no white space, UTF-8 as it is, floats in the
shortest form that reads back equal, and no NaN. Digests are SHA-256 in hexadecimal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

_LEAVES = frozenset({str, int, float, bool, type(None)})
_NAMES: dict[type, tuple[str, ...]] = {}  # field names by dataclass: asking costs more than reading


def to_plain(value: Any) -> Any:
    """Turn dataclasses, tuples and mappings into what JSON knows, recursively.

    Raises
    ------
    TypeError
        The value (or a part of it) has no canonical form.
    """
    kind = type(value)
    if kind in _LEAVES:
        return value
    names = _NAMES.get(kind)
    if names is not None:
        return {name: to_plain(getattr(value, name)) for name in names}
    if kind is tuple or kind is list:
        return [to_plain(item) for item in value]
    return _uncommon(value)


def _uncommon(value: Any) -> Any:
    if isinstance(value, (str, bool, int, float)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        _NAMES[type(value)] = tuple(f.name for f in fields(value))
        return to_plain(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"mapping keys must be strings, got {list(value)[:3]!r}")
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"no canonical form for {type(value).__name__}: {value!r:.80}")


def dumps(value: Any) -> str:
    """Serialize to canonical JSON.

    Examples
    --------
    >>> dumps({"b": (1, 2.0), "a": None})
    '{"a":null,"b":[1,2.0]}'
    """
    return json.dumps(
        to_plain(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    )


def digest(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON of a value, as 64 hexadecimal digits.

    Lone surrogates, which JSON files can smuggle in, are encoded rather than refused.

    Examples
    --------
    >>> digest({"a": 1}) == digest({"a": 1})
    True
    """
    return hashlib.sha256(dumps(value).encode("utf-8", "surrogatepass")).hexdigest()


def digest_of_stream(value: Any) -> str:
    """Return :func:`digest` of a value in which iterators stand for arrays, and consume them.

    An array of any length is digested item by item, so that it is never in memory.

    Examples
    --------
    >>> digest_of_stream({"b": iter([1, 2]), "a": 0}) == digest({"b": [1, 2], "a": 0})
    True
    """
    state = hashlib.sha256()
    for piece in _pieces(value):
        state.update(piece.encode("utf-8", "surrogatepass"))
    return state.hexdigest()


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        before = "{"
        for key in sorted(value):
            yield f"{before}{dumps(key)}:"
            yield from _pieces(value[key])
            before = ","
        yield "}" if value else "{}"
    elif isinstance(value, Iterator):
        before = "["
        for item in value:
            yield before + dumps(item)
            before = ","
        yield "]" if before == "," else "[]"
    else:
        yield dumps(value)


def rng_for(*parts: Any) -> np.random.Generator:
    """Build a random generator whose seed derives from the parts (never from global state)."""
    return np.random.default_rng(int(digest(list(parts))[:32], 16))


def content_key(
    *, question: str, wanted: Sequence[str], references: Sequence[str], answer: str
) -> str:
    """Digest what a judge or an annotator sees of an answer; equal ones are judged once.

    Source: "Prevented is not protected", appendix D: each distinct answer is scored once.
    """
    return digest(
        {
            "answer": answer,
            "question": question,
            "references": list(references),
            "wanted": list(wanted),
        }
    )
