"""Files of JSON lines that only grow: append to the disk, read, cut a torn end."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragassay import canon
from ragassay.errors import StoreError
from ragassay.store.lines import append

VERSION = 1
_LOG = logging.getLogger(__name__)


def append_line(path: Path, value: Mapping[str, Any]) -> None:
    """Append one JSON line and wait until it is on the disk.

    Raises
    ------
    StoreError
        It could not be written whole; what was there before stays.
    """
    data = (canon.dumps(value) + "\n").encode("utf-8", "surrogatepass")
    append(path, data, durable=True, kept="all labels before are kept")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines; a torn last line is left out and logged.

    Raises
    ------
    StoreError
        A line is damaged or of another version.
    """
    if not path.exists():
        return []
    raw = path.read_bytes()
    whole, torn = raw[: raw.rfind(b"\n") + 1], raw[raw.rfind(b"\n") + 1 :]
    if torn:
        _LOG.warning("%s: a torn last line of %d bytes is left out", path, len(torn))
    found = []
    for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
        try:
            value = json.loads(line.decode("utf-8", "surrogatepass"))
            version = value["v"]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{path}:{number}: damaged line ({error!r}); restore the file or delete this line"
            ) from error
        if version != VERSION:
            raise StoreError(
                f"{path}:{number}: version {version}, this ragassay reads {VERSION}; update it"
            )
        found.append(value)
    return found


def cut_torn_line(path: Path) -> None:
    """Cut off a last line without a line end, which a killed process leaves; log it."""
    if not path.exists():
        return
    raw = path.read_bytes()
    keep = raw.rfind(b"\n") + 1
    if keep < len(raw):
        os.truncate(path, keep)
        _LOG.warning("%s: cut off a torn last line of %d bytes", path, len(raw) - keep)
