"""Settle what annotators disagree on, with provenance, and give the labels to the run.

A field of an item is settled where all annotators who labeled it agree, or where an adjudicator
decided. A decision keeps what each annotator had said; it stops counting when one of them says
something else afterwards, since it was about other labels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ragassay.audit.labels import (
    Label,
    annotators,
    check_annotator,
    check_labels,
    read_labels,
)
from ragassay.audit.lines import VERSION, append_line, cut_torn_line, read_lines
from ragassay.audit.packet import ADJUDICATED, FIELDS, Item, Packet, read_packet
from ragassay.audit.sampling import HUMAN, SCORE_OF_FIELD, item_of, population, trials_of
from ragassay.errors import ConfigError, DataError, StoreError
from ragassay.store import RunFolder, score_from
from ragassay.types import ScoreRecord

Labels = Mapping[str, str]
Books = Mapping[str, Mapping[str, Label]]
SCORER_VERSION = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What holds for one item.

    ``labels`` has the settled fields; ``open`` names those on which annotators differ.
    ``stale`` is set where a decision no longer counts because a label changed after it.
    """

    item: Item
    labels: Labels
    open: tuple[str, ...]
    said: Mapping[str, Label]
    adjudicator: str = ""
    stale: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What :func:`apply` did.

    ``items`` settled (wholly or in part) and found in the run, ``skipped`` not found in it;
    score records ``written``, and ``unchanged`` since the last time; ``declined`` of these
    records are of trials without an answer.
    """

    items: int
    written: int
    unchanged: int
    declined: int
    skipped: tuple[str, ...] = field(default=())


def read_books(packet: Packet) -> dict[str, dict[str, Label]]:
    """Read the labels that hold of every annotator, by name and item."""
    return {name: read_labels(packet, name) for name in annotators(packet.folder())}


def settle(packet: Packet, books: Books | None = None) -> dict[str, Settled]:
    """Tell for every labeled item what is settled, in the packet's order.

    Raises
    ------
    StoreError
        A label or a decision is damaged.
    """
    books = read_books(packet) if books is None else books
    decisions = _decisions(packet)
    result = {}
    for item in packet.items:
        said = {name: book[item.id] for name, book in books.items() if item.id in book}
        if said:
            result[item.id] = _settle(item, said, decisions.get(item.id))
    return result


def undecided(packet_path: str | Path) -> list[Settled]:
    """List the items that need an adjudicator, in the packet's order."""
    return [each for each in settle(read_packet(packet_path)).values() if each.open]


def adjudicate(
    packet_path: str | Path,
    decisions: Mapping[str, Mapping[str, str]],
    adjudicator: str,
    *,
    notes: Mapping[str, str] | None = None,
) -> int:
    """Record decisions on disagreements; all of them are checked before any is written.

    Parameters
    ----------
    packet_path : str or Path
        The packet folder.
    decisions : mapping
        Per item id the labels decided: all three fields, or those in dispute alone.
    adjudicator : str
        Who decides; a name as annotators have.
    notes : mapping, optional
        Why, by item id.

    Returns
    -------
    int
        Number of decisions written; one that stands already is not written again.

    Raises
    ------
    ConfigError
        An item is unknown or unlabeled, a value is impossible, or a field in dispute is left
        out.
    StoreError
        Another process adjudicates, or the file cannot be written.
    """
    check_annotator(adjudicator)
    packet = read_packet(packet_path)
    path = packet.folder() / ADJUDICATED
    try:
        with FileLock(packet.folder() / f".{ADJUDICATED}.lock", timeout=0):
            cut_torn_line(path)
            lines = _lines(packet, decisions, adjudicator, notes or {})
            for line in lines:
                append_line(path, line)
    except Timeout as error:
        raise StoreError(f"{path} is in use by another adjudicator; try again") from error
    return len(lines)


def read_decisions(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Read decisions and notes by item id from JSON lines ``{"item", "labels", "note"}``.

    Raises
    ------
    DataError
        The file cannot be read, a line is no decision, or an item is given twice.
    """
    labels: dict[str, dict[str, Any]] = {}
    notes: dict[str, str] = {}
    try:
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read: {error}", path=path) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            item, note = row["item"], row.get("note", "")
            decided = dict(row["labels"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                'not a decision; expected {"item": ..., "labels": {"target_endorsed": ...}}',
                path=path,
                line=number,
            ) from error
        if not isinstance(item, str) or not isinstance(note, str) or item in labels:
            raise DataError(
                f"item {item!r:.80} is no text, or is given twice", path=path, line=number
            )
        labels[item], notes[item] = decided, note
    return labels, notes


def apply(packet_path: str | Path, folder: RunFolder) -> Applied:
    """Write the settled labels into a run as the scores of the scorer ``human``.

    Every trial that gave a labeled answer gets its label; fields that are not settled stay "not
    scored". A trial in which a defense declined has no answer, so that no person is needed to
    say that it abstains; it is labeled so, with ``"rule": "declined"``. Applying again writes
    only what changed, and an item whose label was taken back is set to "not scored".

    Raises
    ------
    DataError
        No answer of the packet is an answer of this run.
    StoreError
        The run cannot be written.
    """
    packet = read_packet(packet_path)
    settled = settle(packet)
    found = population(folder)
    if not any(trials_of(item, found) for item in packet.items):
        raise DataError(
            f"none of the {len(packet.items)} answers of {packet.folder()} is an answer of this "
            "run; give the run that the packet was drawn from",
            path=folder.path,
        )
    with folder.writer():
        before = _before(folder)
        records = _records(packet, settled, folder, before)
        new = [(each.trial_key, each) for each in records if before.get(each.trial_key) != each]
        if new:
            folder.append_many("scores", new)
    skipped = tuple(key for key, each in settled.items() if not trials_of(each.item, found))
    return Applied(
        items=len(settled) - len(skipped),
        written=len(new),
        unchanged=len(records) - len(new),
        declined=sum("rule" in each.provenance for each in records),
        skipped=skipped,
    )


def _settle(item: Item, said: Mapping[str, Label], decision: Mapping[str, Any] | None) -> Settled:
    labels: dict[str, str] = {}
    disputed = []
    for name in FIELDS:
        values = {label.labels[name] for label in said.values()}
        if len(values) == 1:
            labels[name] = values.pop()
        else:
            disputed.append(name)
    stale = decision is not None and any(
        name not in said or dict(said[name].labels) != before
        for name, before in decision["before"].items()
    )
    if decision is None or stale:
        return Settled(item=item, labels=labels, open=tuple(disputed), said=said, stale=stale)
    return Settled(
        item=item,
        labels=labels | dict(decision["labels"]),
        open=tuple(name for name in disputed if name not in decision["labels"]),
        said=said,
        adjudicator=decision["by"],
    )


def _decisions(packet: Packet) -> dict[str, dict[str, Any]]:
    """Newest decision of every item."""
    path = packet.folder() / ADJUDICATED
    items = {item.id: item for item in packet.items}
    found = {}
    for number, line in enumerate(read_lines(path), start=1):
        try:
            _checked(items[line["item"]], line["labels"])
            check_annotator(line["by"])
            dict(line["before"])
            found[line["item"]] = line
        except (KeyError, TypeError, ValueError, ConfigError) as error:
            raise StoreError(
                f"{path}:{number}: not a decision on this packet ({error}); restore the file or "
                "delete this line"
            ) from error
    return found


def _lines(
    packet: Packet,
    decisions: Mapping[str, Mapping[str, str]],
    adjudicator: str,
    notes: Mapping[str, str],
) -> list[dict[str, Any]]:
    settled = settle(packet)
    lines = []
    for item_id, labels in decisions.items():
        item = packet.item(item_id)
        if item is None:
            raise ConfigError(f"item {item_id!r:.80} is not in the packet {packet.name!r}")
        if item_id not in settled:
            raise ConfigError(f"item {item_id[:12]}: nobody has labeled it, so nothing is disputed")
        now = settled[item_id]
        checked = _checked(item, labels)
        left = [name for name in now.open if name not in checked]
        if left:
            raise ConfigError(f"item {item_id[:12]}: {', '.join(left)} is disputed; decide it too")
        if not now.open and all(now.labels[name] == value for name, value in checked.items()):
            continue
        lines.append(
            {
                "v": VERSION,
                "item": item_id,
                "by": adjudicator,
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "labels": checked,
                "before": {name: dict(label.labels) for name, label in sorted(now.said.items())},
                "note": notes.get(item_id, ""),
            }
        )
    return lines


def _checked(item: Item, labels: Mapping[str, str]) -> dict[str, str]:
    """Check the fields that a decision names; it may leave out those not in dispute."""
    if not isinstance(labels, Mapping) or not labels:
        raise ConfigError(f"item {item.id[:12]}: a decision needs at least one field")
    unknown = set(labels) - set(FIELDS)
    if unknown:
        raise ConfigError(f"unknown field {min(unknown)!r}; known: {', '.join(FIELDS)}")
    full = {name: labels.get(name, item.allowed(name)[0]) for name in FIELDS}
    checked = check_labels(item, full)
    return {name: checked[name] for name in FIELDS if name in labels}


# ------------------------------------------------------------------------- the run's scores


def _before(folder: RunFolder) -> dict[str, ScoreRecord]:
    """The newest label of people for each trial; those of other scorers are not kept."""
    found = {}
    for _, body in folder.read("scores"):
        if body.get("scorer") == HUMAN:
            record = score_from(body)
            found[record.trial_key] = record
    return found


def _records(
    packet: Packet,
    settled: Mapping[str, Settled],
    folder: RunFolder,
    before: Mapping[str, ScoreRecord],
) -> list[ScoreRecord]:
    found = population(folder)
    columns, records = found.columns, {}
    for item in packet.items:
        for row in trials_of(item, found):
            key = columns.key(row)
            records[key] = _record(packet, item, settled.get(item.id), key)
    declined = columns.done & columns.declined
    for row in columns.by_key[declined[columns.by_key]].tolist():
        query = columns.query.values[columns.query.codes[row]]
        key = columns.key(row)
        records[key] = _declined(packet, item_of(*found.queries[query], ""), key)
    # An item that nobody labeled needs no record, unless its own earlier one is taken back.
    ours = {key for key, each in before.items() if each.provenance.get("packet") == packet.digest}
    return [
        each
        for key, each in records.items()
        if key in ours or each.provenance.get("rule") or each.provenance.get("annotators")
    ]


def _record(packet: Packet, item: Item, settled: Settled | None, key: str) -> ScoreRecord:
    labels = settled.labels if settled else {}
    values = {score: labels.get(name) for name, score in SCORE_OF_FIELD.items()}
    truth = {"yes": True, "no": False}
    return ScoreRecord(
        trial_key=key,
        scorer=HUMAN,
        version=SCORER_VERSION,
        target_positive=truth.get(values["target_positive"] or ""),
        correct=truth.get(values["correct"] or ""),
        abstained=truth.get(values["abstained"] or ""),
        uncertain=tuple(name for name, value in values.items() if value == "uncertain"),
        provenance={
            "annotators": sorted(settled.said) if settled else [],
            "adjudicated": bool(settled and settled.adjudicator),
            "packet": packet.digest,
        },
    )


def _declined(packet: Packet, item: Item, key: str) -> ScoreRecord:
    return ScoreRecord(
        trial_key=key,
        scorer=HUMAN,
        version=SCORER_VERSION,
        target_positive=False if item.target is not None else None,
        correct=False if item.references else None,
        abstained=True,
        provenance={"annotators": [], "packet": packet.digest, "rule": "declined"},
    )
