"""Lines of a stream: the envelope of a record, its key without decoding, appending, cutting."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from ragassay.errors import StoreError

VERSION = 1
_LOG = logging.getLogger(__name__)
_KEY, _DONE = b',"key":"', b'"done"'
_STATUS = b',"status":'


def decode(raw: bytes, stream: str, path: Path, number: int = 0) -> tuple[str, dict[str, Any]]:
    """Give key and body of a record.

    Raises
    ------
    StoreError
        The line is damaged, of a newer version, or of another kind. File and line are named, or
        the file alone for line 0.
    """
    try:
        line = json.loads(raw.decode("utf-8", "surrogatepass"))
        version, kind, key, body = line["v"], line["kind"], line["key"], line["body"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{_at(path, number)}: damaged record ({error}); restore the file, or delete this line "
            "and run again: only that record is repeated"
        ) from error
    if version != VERSION:
        raise StoreError(
            f"{_at(path, number)}: record version {version}, this ragassay reads {VERSION}; "
            "update it"
        )
    if kind != stream:
        raise StoreError(f"{_at(path, number)}: a record of kind {kind!r} in the stream {stream!r}")
    return key, body


def _at(path: Path, number: int) -> str:
    return f"{path}:{number}" if number else str(path)


def ending(stream: str) -> bytes:
    """What a canonical line of a stream ends with, its line end included."""
    return b'","kind":"%s","v":%d}\n' % (stream.encode(), VERSION)


def key_of(raw: bytes, stream: str, end: bytes, path: Path, number: int = 0) -> bytes:
    """The key of a record as UTF-8.

    In a canonical line the envelope's key stands last of all that is called so, and no string
    can hold ``,"key":"``, because its quotation marks would be escaped. Other lines are decoded.
    """
    start = raw.rfind(_KEY, 0, len(raw) - len(end)) if raw.endswith(end) else -1
    if start >= 0:
        key = raw[start + len(_KEY) : -len(end)]
        if b"\\" not in key and b'"' not in key:
            return key
    return decode(raw, stream, path, number)[0].encode("utf-8", "surrogatepass")


def is_done(raw: bytes) -> bool:
    """Whether a canonical trial record says ``done``; its first ``status`` is its own."""
    start = raw.find(_STATUS)
    return start >= 0 and raw.startswith(_DONE, start + len(_STATUS))


def append(
    path: Path,
    data: bytes,
    *,
    durable: bool = False,
    kept: str = "everything written before is kept, run the same command again once there is room",
) -> int:
    """Write at the end of a file, whole or not at all; returns the size of the file.

    With ``durable`` it is on the disk on return. ``kept`` says in the message of a failure what
    is not lost.

    Raises
    ------
    StoreError
        It cannot be written; what was there before stays.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
    try:
        before = os.fstat(descriptor).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if durable:
                os.fsync(descriptor)
        except BaseException as error:  # an interrupt too: the next line would be glued on
            os.ftruncate(descriptor, before)
            if not isinstance(error, OSError):
                raise
            raise StoreError(
                f"{path} cannot be written: {error.strerror or error}; {kept}"
            ) from error
    finally:
        os.close(descriptor)
    return before + len(data)


def cut_torn_line(path: Path) -> None:
    """Cut off what stands behind the last line end, and log it."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return
    if size == 0:
        return
    with path.open("rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) == b"\n":
            return
        keep, step = 0, 1 << 16
        position = size
        while position > 0:
            start = max(0, position - step)
            file.seek(start)
            found = file.read(position - start).rfind(b"\n")
            if found >= 0:
                keep = start + found + 1
                break
            position = start
        file.truncate(keep)
    _LOG.warning("%s: cut off a torn last line of %d bytes", path, size - keep)
