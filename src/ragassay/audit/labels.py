"""What one annotator said: appended line by line, on the disk before the next answer is shown.

Every line of ``labels/<annotator>.jsonl`` is one decision. The last line of an item wins; a line
with ``"undo": true`` takes the item's label back. Nothing is ever rewritten, so that the history
of a changed mind stays.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout

from ragassay.audit.lines import VERSION, append_line, cut_torn_line, read_lines
from ragassay.audit.packet import FIELDS, LABELS, Item, Packet, read_packet
from ragassay.errors import ConfigError, StoreError

__all__ = [
    "Label",
    "LabelBook",
    "annotators",
    "check_annotator",
    "check_labels",
    "label_line",
    "read_labels",
    "read_packet",
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}")
_MAX_COMMENT = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One annotator's decision on one item."""

    item: str
    annotator: str
    labels: Mapping[str, str]
    at: str = ""
    comment: str = ""
    seconds: float | None = None
    evidence: Mapping[str, str] = field(default_factory=dict)


class LabelBook:
    """One annotator's labels, open for writing; close it, or use it in a ``with``.

    Parameters
    ----------
    packet : Packet
        A packet that lies in a folder (:func:`read_packet`).
    annotator : str
        A letter or digit, then at most 40 letters, digits, dots, underscores or hyphens.

    Raises
    ------
    ConfigError
        The name cannot be used, or differs from an annotator's only by upper and lower case.
    StoreError
        Another process labels as this annotator, or the folder cannot be written.
    """

    def __init__(self, packet: Packet, annotator: str) -> None:
        self.packet, self.annotator = packet, check_annotator(annotator)
        self._items = {item.id: item for item in packet.items}
        self._guard = threading.Lock()
        folder = packet.folder() / LABELS
        for other in annotators(packet.folder()):
            if other != annotator and other.lower() == annotator.lower():
                raise ConfigError(
                    f"annotator {annotator!r}: there is {other!r} already, and names may not "
                    "differ by case alone"
                )
        self._file = folder / f"{annotator}.jsonl"
        # Not per thread: a server may open the book in one thread and close it in another.
        self._lock = FileLock(folder / f".{annotator}.lock", timeout=0, thread_local=False)
        try:
            folder.mkdir(exist_ok=True)
            self._lock.acquire()
        except Timeout as error:
            raise StoreError(
                f"somebody is labeling as {annotator!r} in {packet.folder()} already; close that "
                "page, or choose another name (--annotator)"
            ) from error
        except OSError as error:
            raise StoreError(f"{folder} cannot be written: {error.strerror or error}") from error
        try:
            cut_torn_line(self._file)
            self._current = read_labels(packet, annotator)
        except BaseException:
            self.close()
            raise

    def append(
        self,
        item_id: str,
        labels: Mapping[str, str],
        comment: str = "",
        seconds: float | None = None,
        *,
        evidence: Mapping[str, str] | None = None,
    ) -> Label:
        """Record a decision; it is on the disk when this returns.

        Parameters
        ----------
        item_id : str
            An item of the packet; an earlier label of it is superseded.
        labels : mapping
            A value for each of ``target_endorsed``, ``reference_correct`` and ``abstains``.
        comment : str
            Free text, at most 20,000 characters.
        seconds : float, optional
            Time spent on the item.
        evidence : mapping, optional
            The span of the answer behind a label, by field.

        Raises
        ------
        ConfigError
            The item is unknown or a value is not one that the item may take.
        StoreError
            The line could not be written, or the book is closed.
        """
        item = self._item(item_id)
        checked = check_labels(item, labels)
        if not isinstance(comment, str) or len(comment) > _MAX_COMMENT:
            raise ConfigError(f"a comment is a text of at most {_MAX_COMMENT:,} characters")
        label = Label(
            item=item_id,
            annotator=self.annotator,
            labels=checked,
            at=_now(),
            comment=comment,
            seconds=_checked_seconds(seconds),
            evidence=dict(evidence or {}),
        )
        with self._guard:
            self._write(label, undo=False)
            self._current[item_id] = label
        return label

    def undo(self, item_id: str) -> bool:
        """Take back the label of an item; False where it has none, and nothing is written.

        Raises
        ------
        ConfigError
            The item is unknown.
        StoreError
            The line could not be written, or the book is closed.
        """
        self._item(item_id)
        with self._guard:
            if item_id not in self._current:
                return False
            last = self._current[item_id]
            self._write(
                Label(item=item_id, annotator=self.annotator, labels=last.labels, at=_now()),
                undo=True,
            )
        return True

    def current(self) -> dict[str, Label]:
        """Return the labels that hold, by item id, in the order in which they were given."""
        with self._guard:
            return dict(self._current)

    def close(self) -> None:
        """Let another process label as this annotator."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _item(self, item_id: str) -> Item:
        if item_id not in self._items:
            raise ConfigError(f"item {item_id!r:.80} is not in the packet {self.packet.name!r}")
        return self._items[item_id]

    def _write(self, label: Label, *, undo: bool) -> None:
        if not self._lock.is_locked:
            raise StoreError(f"the labels of {self.annotator!r} are closed; open them again")
        append_line(self._file, label_line(label, undo=undo))
        # A superseded label moves to the end, as it does when the file is read again.
        self._current.pop(label.item, None)


def check_annotator(name: str) -> str:
    """Return the name, or raise ConfigError where it cannot be a file name everywhere."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"annotator {name!r:.60}: use a letter or digit, then at most 40 letters, digits, "
            "dots, underscores or hyphens (no spaces, no accents), such as 'ann' or 'r.2'"
        )
    return name


def check_labels(item: Item, labels: Mapping[str, Any]) -> dict[str, str]:
    """Check that a label says something about every field of an item, and nothing impossible.

    Raises
    ------
    ConfigError
        A field is missing or unknown, or a value is not one that the item may take.
    """
    if not isinstance(labels, Mapping) or set(labels) != set(FIELDS):
        raise ConfigError(f"a label needs exactly the fields {', '.join(FIELDS)}")
    for name in FIELDS:
        if labels[name] not in item.allowed(name):
            why = {"target_endorsed": "target", "reference_correct": "references"}.get(name, "")
            has = f"; this item has {'no' if len(item.allowed(name)) == 1 else 'a'} {why}"
            raise ConfigError(
                f"{name}: got {labels[name]!r:.40}, need {' or '.join(item.allowed(name))}"
                + (has if why else "")
            )
    return {name: str(labels[name]) for name in FIELDS}


def annotators(path: str | Path) -> list[str]:
    """Names of all who labeled in a packet, sorted."""
    return sorted(
        file.stem
        for file in (Path(path) / LABELS).glob("*.jsonl")
        if _NAME.fullmatch(file.stem) and file.is_file()
    )


def read_labels(packet: Packet, annotator: str) -> dict[str, Label]:
    """Read the labels that hold, by item id; empty where the annotator has none.

    Raises
    ------
    StoreError
        A line is damaged, names an item that is not in the packet, or has an impossible value.
    """
    path = packet.folder() / LABELS / f"{check_annotator(annotator)}.jsonl"
    items = {item.id: item for item in packet.items}
    current: dict[str, Label] = {}
    for number, line in enumerate(read_lines(path), start=1):
        try:
            item_id = line["item"]
            current.pop(item_id, None)
            if not line["undo"]:
                current[item_id] = Label(
                    item=item_id,
                    annotator=annotator,
                    labels=check_labels(items[item_id], line["labels"]),
                    at=line["at"],
                    comment=line["comment"],
                    seconds=_checked_seconds(line["seconds"]),
                    evidence=dict(line.get("evidence", {})),
                )
        except (KeyError, TypeError, ConfigError) as error:
            raise StoreError(
                f"{path}:{number}: not a label of this packet ({error}); restore the file or "
                "delete this line"
            ) from error
    return current


def label_line(label: Label, *, undo: bool = False) -> dict[str, Any]:
    """Return a label as a line of its file holds it."""
    line: dict[str, Any] = {
        "v": VERSION,
        "item": label.item,
        "annotator": label.annotator,
        "at": label.at,
        "labels": label.labels,
        "comment": label.comment,
        "seconds": label.seconds,
        "undo": undo,
    }
    return line | ({"evidence": label.evidence} if label.evidence else {})


def _checked_seconds(seconds: Any) -> float | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ConfigError(f"seconds must be a number, got {seconds!r:.40}")
    if not math.isfinite(seconds) or seconds < 0:
        raise ConfigError(f"seconds must be finite and not negative, got {seconds}")
    return float(seconds)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
