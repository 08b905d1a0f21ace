"""Temporary files that killed processes left in a run folder."""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress
from pathlib import Path

OLD = 3600.0  # seconds after which a file that needs no lock has no writer on another machine
_SEGMENT = re.compile(r"\.[a-z]+(?:\.[0-9]{5,9})?\.jsonl(?:\.gz|\.zst)?\.([0-9]{1,10})\.tmp")
_WHOLE = re.compile(r"\.[a-z][a-z_]*\.(?:json|toml|html|md)\.([0-9]{1,10})\.tmp")
_INDEX = re.compile(r"[a-z]+\.idx\.([0-9]{1,10})\.tmp")


def sweep(folder: Path) -> None:
    """Remove temporary files of dead writers from a run folder that is held for writing.

    Segments are written under the lock alone, so that whoever holds it may remove those of any
    other. Reports and indexes are written without it, perhaps on another machine: they go when
    their process is not alive here and they are older than :data:`OLD`. What cannot be removed
    stays.
    """
    for below, pattern, locked in (
        ("", _SEGMENT, True), ("", _WHOLE, False), ("provenance", _WHOLE, False),
        (".index", _INDEX, False),
    ):  # fmt: skip
        try:
            names = os.listdir(folder / below)
        except OSError:
            continue
        for name in names:
            match = pattern.fullmatch(name)
            if match is None:
                continue
            path = folder / below / name
            with suppress(OSError):
                if locked or (_old(path) and not _alive(int(match[1]))):
                    path.unlink()


def _old(path: Path) -> bool:
    return time.time() - path.lstat().st_mtime > OLD


def _alive(pid: int) -> bool:
    """Whether a process of this number runs here, as far as can be told."""
    if sys.platform == "win32":  # where signal 0 is no question
        return pid == os.getpid()
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
