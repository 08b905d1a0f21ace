"""The audit packet: a folder with what annotators see, what they said, and a sealed key.

::

    packet.json             name, rubric version, seed, sampling design, order of the items
    items.jsonl             one item a line: all that a page may show
    key.json                sealed: strata, inclusion probabilities, trials, scorers' labels
    labels/<annotator>.jsonl   one line a decision, appended
    adjudicated.jsonl       one line a settled disagreement, appended

Blinding is in the files, not in the page: ``items.jsonl`` holds neither method nor condition,
scorer nor stratum, and :func:`read_packet` never opens ``key.json``.

Source: "Prevented is not protected", appendix D (annotators see neither the method nor the
condition nor the sampling reason; each distinct answer is labeled once).

Deviations: the inclusion probability of every item is kept, so that an oversampled packet
still estimates population rates; the paper's audit does not.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragassay import canon
from ragassay.errors import DataError, StoreError

VERSION = 1
RUBRIC_VERSION = "1"
FIELDS = ("target_endorsed", "reference_correct", "abstains")
DECISIONS = ("yes", "no", "uncertain")
NOT_APPLICABLE = "not_applicable"
PACKET, ITEMS, KEY = "packet.json", "items.jsonl", "key.json"
LABELS, ADJUDICATED = "labels", "adjudicated.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One answer as an annotator sees it; ``target`` is None where there is no target."""

    id: str
    question: str
    target: str | None
    target_aliases: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    answer: str

    def allowed(self, name: str) -> tuple[str, ...]:
        """Values that a field of this item may take, in the order of the rubric.

        Without a target (or without references) the field is not applicable and nothing else.
        """
        open_question = {
            "target_endorsed": self.target is not None,
            "reference_correct": bool(self.references),
            "abstains": True,
        }[name]
        return DECISIONS if open_question else (NOT_APPLICABLE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A simple random sample of ``drawn`` out of ``size`` units; None where it is not known."""

    name: str
    size: int | None
    drawn: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """How the items were drawn.

    ``random`` units are a simple random sample of the whole population; each stratum adds one
    of its own, drawn independently of all others. ``known`` is False where the strata were
    drawn in a way that gives no inclusion probabilities (imported audits): then only the random
    part may be weighted.
    """

    random: int
    strata: tuple[Part, ...] = ()
    known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """What is open to annotators. ``digest`` identifies the items, whatever their labels."""

    name: str
    seed: int
    answers: int
    trials: int
    design: Design
    items: tuple[Item, ...]
    rubric_version: str = RUBRIC_VERSION
    notes: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None
    digest: str = ""

    def item(self, item_id: str) -> Item | None:
        """Find an item by id."""
        return next((item for item in self.items if item.id == item_id), None)

    def folder(self) -> Path:
        """Return where the packet lies.

        Raises
        ------
        StoreError
            It was never written.
        """
        if self.path is None:
            raise StoreError("this packet is not in a folder yet; write it first (write_packet)")
        return self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntry:
    """The sealed part of an item.

    ``strata`` are the parts it belongs to, ``drawn_by`` those that drew it, ``inclusion`` its
    probability to be in the packet (None: not known), ``labels`` the scorers' labels by scorer
    and field (None: not scored).
    """

    strata: tuple[str, ...] = ()
    drawn_by: tuple[str, ...] = ()
    inclusion: float | None = None
    trials: tuple[str, ...] = ()
    labels: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The sealed part of a packet: ``run`` identifies where the answers come from."""

    run: Mapping[str, Any] = field(default_factory=dict)
    scorers: Mapping[str, str] = field(default_factory=dict)
    items: Mapping[str, KeyEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A drawn packet with its key, before it is written."""

    packet: Packet
    key: Key


def write_packet(sample: Sample, path: Path) -> Packet:
    """Write a packet folder; equal samples give equal bytes.

    Parameters
    ----------
    sample : Sample
        What to write; the order of ``packet.items`` is the order of labeling.
    path : Path
        The folder, which must be absent or empty.

    Returns
    -------
    Packet
        As :func:`read_packet` reads it.

    Raises
    ------
    StoreError
        The folder holds something already, or cannot be written.
    DataError
        An id occurs twice, or the key does not match the items.
    """
    packet = sample.packet
    ids = [item.id for item in packet.items]
    if len(set(ids)) != len(ids) or set(ids) != set(sample.key.items):
        raise DataError("the items of a packet need distinct ids, each with a key entry")
    items = "".join(canon.dumps(item) + "\n" for item in packet.items)
    digest = _sha256(items)
    header = {
        "v": VERSION,
        "kind": "audit_packet",
        "name": packet.name,
        "rubric_version": packet.rubric_version,
        "seed": packet.seed,
        "population": {"answers": packet.answers, "trials": packet.trials},
        "design": packet.design,
        "notes": packet.notes,
        "items_sha256": digest,
        "items": [{"id": each, "order": n} for n, each in enumerate(ids, start=1)],
    }
    key = {
        "v": VERSION,
        "kind": "audit_key",
        "items_sha256": digest,
        "run": sample.key.run,
        "scorers": sample.key.scorers,
        "items": sample.key.items,
    }
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise StoreError(f"{path} is not empty; give the packet a new folder (--out)")
        (path / LABELS).mkdir()
        _write(path / ITEMS, items)
        _write(path / KEY, canon.dumps(key) + "\n")
        _write(path / PACKET, canon.dumps(header) + "\n")  # last: a folder with it is whole
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
    return read_packet(path)


def read_packet(path: str | Path) -> Packet:
    """Read what annotators may see; the key stays closed.

    Raises
    ------
    StoreError
        It is no packet folder, is of a newer version, or its items were changed after it was
        drawn.
    """
    path = Path(path)
    header = _object(path / PACKET, "audit_packet")
    text = _read(path / ITEMS)
    if _sha256(text) != header.get("items_sha256"):
        raise StoreError(
            f"{path / ITEMS} is not the file that {PACKET} was written with (its SHA-256 differs); "
            "restore it: labels belong to exactly these items"
        )
    lines = [line for line in text.split("\n") if line]  # never splitlines: texts may hold U+2028
    try:
        items = tuple(_item(json.loads(line)) for line in lines)
        return _packet(path, header, items)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path}: damaged packet ({error!r}); draw or restore it") from error


def read_key(path: str | Path) -> Key:
    """Open the sealed part of a packet, for the analysis only.

    Raises
    ------
    StoreError
        It is absent, damaged, or belongs to another packet.
    """
    path = Path(path)
    header, key = _object(path / PACKET, "audit_packet"), _object(path / KEY, "audit_key")
    if key.get("items_sha256") != header.get("items_sha256"):
        raise StoreError(f"{path / KEY} belongs to another packet; restore the one drawn with it")
    try:
        entries = {
            item: KeyEntry(
                strata=tuple(entry["strata"]),
                drawn_by=tuple(entry["drawn_by"]),
                inclusion=entry["inclusion"],
                trials=tuple(entry["trials"]),
                labels=entry["labels"],
            )
            for item, entry in key["items"].items()
        }
        return Key(run=key["run"], scorers=key["scorers"], items=entries)
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path / KEY}: damaged key ({error!r}); restore it") from error


def _packet(path: Path, header: Mapping[str, Any], items: tuple[Item, ...]) -> Packet:
    if [item.id for item in items] != [entry["id"] for entry in header["items"]]:
        raise ValueError(f"{PACKET} and {ITEMS} list different items")
    design = header["design"]
    return Packet(
        name=header["name"],
        seed=header["seed"],
        answers=header["population"]["answers"],
        trials=header["population"]["trials"],
        design=Design(
            random=design["random"],
            strata=tuple(
                Part(name=each["name"], size=each["size"], drawn=each["drawn"])
                for each in design["strata"]
            ),
            known=design["known"],
        ),
        items=items,
        rubric_version=header["rubric_version"],
        notes=header["notes"],
        path=path,
        digest=header["items_sha256"],
    )


def _item(body: Mapping[str, Any]) -> Item:
    return Item(
        id=_text(body["id"]),
        question=_text(body["question"]),
        target=None if body["target"] is None else _text(body["target"]),
        target_aliases=_texts(body["target_aliases"]),
        references=_texts(body["references"]),
        answer=_text(body["answer"]),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, got {value!r:.60}")
    return value


def _texts(values: Sequence[Any]) -> tuple[str, ...]:
    return tuple(_text(value) for value in values)


def _object(path: Path, kind: str) -> dict[str, Any]:
    try:
        value = json.loads(_read(path))
    except ValueError as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict) or value.get("kind") != kind:
        raise StoreError(f"{path} must hold a JSON object of kind {kind!r}")
    if value.get("v") != VERSION:
        raise StoreError(
            f"{path}: version {value.get('v')}, this ragassay reads {VERSION}; update it"
        )
    return value


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "surrogatepass")
    except FileNotFoundError as error:
        raise StoreError(
            f"{path.parent} has no {path.name}: is it an audit packet (ragassay audit sample)?"
        ) from error
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


def _write(path: Path, text: str) -> None:
    with path.open("wb") as file:
        file.write(text.encode("utf-8", "surrogatepass"))
        file.flush()
        os.fsync(file.fileno())


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
