"""What was put into stores, in a file of the run folder: written before, settled after.

Each line is ``{"v": 1, "event": "ingest" | "removed", ...}``. An ``ingest`` is on the disk
before the first document goes out; the ``removed`` of its namespace follows when the store has
given everything back. So whatever moment a process ends at, the open lines name at least all
that it left behind.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from filelock import FileLock, Timeout

from ragassay import canon
from ragassay.errors import StoreError

JOURNAL = "ingested.jsonl"
VERSION = 1
_EVENTS = ("ingest", "removed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """Documents that went, or were about to go, into a system's store."""

    system: str
    namespace: str
    ids: tuple[str, ...]


class Journal:
    """The journal of one run folder. One process at a time: see :meth:`held`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def held(self) -> Iterator[Journal]:
        """Hold the journal alone.

        Raises
        ------
        StoreError
            Another process holds it, or its folder cannot be written.
        """
        lock = FileLock(self.path.with_name(f".{self.path.name}.lock"), timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            raise StoreError(
                f"{self.path} is in use by another ragassay process, which removes its own poison "
                "when it ends; wait for it"
            ) from error
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror or error}") from error
        try:
            yield self
        finally:
            lock.release()

    def begin(self, entry: Ingested) -> None:
        """Note what is about to be ingested; on the disk when this returns.

        Raises
        ------
        StoreError
            It could not be written; nothing may be ingested then.
        """
        self._append({"event": "ingest", "system": entry.system, "namespace": entry.namespace,
                      "ids": list(entry.ids)})  # fmt: skip

    def end(self, namespace: str) -> None:
        """Note that everything of a namespace has been removed."""
        self._append({"event": "removed", "namespace": namespace})

    def open_entries(self) -> list[Ingested]:
        """What was begun and not ended, oldest first.

        A last line without its end was never acted upon, and is passed over.

        Raises
        ------
        StoreError
            A line is damaged.
        """
        found: dict[str, Ingested] = {}
        for number, line in enumerate(self._whole_lines(), start=1):
            event = self._parsed(line, number)
            if event["event"] == "removed":
                found.pop(event["namespace"], None)
                continue
            found[event["namespace"]] = Ingested(
                system=event["system"], namespace=event["namespace"], ids=tuple(event["ids"])
            )
        return list(found.values())

    def _whole_lines(self) -> list[bytes]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror or error}") from error
        return data.split(b"\n")[:-1]

    def _parsed(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            event = json.loads(line.decode("utf-8"))
            problem = _problem(event)
        except (ValueError, KeyError, TypeError) as error:
            problem = str(error)
        if problem:
            raise StoreError(
                f"{self.path}:{number}: damaged line ({problem}); it may name poison that is still "
                "in a store: restore the file, or look for marked documents with "
                "ragassay system clean --marked"
            )
        return cast(dict[str, Any], event)

    def _append(self, event: dict[str, Any]) -> None:
        line = (canon.dumps({"v": VERSION, **event}) + "\n").encode("utf-8")
        try:
            new = not self.path.exists()
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                self._end_torn_line(descriptor)
                view = memoryview(line)
                while view:
                    view = view[os.write(descriptor, view) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if new:
                _sync_folder(self.path.parent)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def _end_torn_line(self, descriptor: int) -> None:
        """Cut off what a killed process left of a line."""
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.ftruncate(descriptor, whole)


def _problem(event: Any) -> str:
    """What is wrong with a line; empty where nothing is."""
    if event["v"] != VERSION or event["event"] not in _EVENTS:
        return f"version {event['v']!r}, event {event['event']!r:.40}"
    texts = [event["namespace"]]
    if event["event"] == "ingest":
        texts += [event["system"], *event["ids"]]
    wrong = [each for each in texts if not isinstance(each, str)]
    return f"{wrong[0]!r:.40} is no string" if wrong else ""


def _sync_folder(folder: Path) -> None:
    """Make a new file's name last as well, where folders can be synced."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)
