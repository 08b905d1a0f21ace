"""Import a completed audit of the Aligned RAG Evaluation artifact as a packet.

Source: the artifact of "Prevented is not protected". One JSON object with ``kind``
(``headline_human_audit``, ``light_human_audit``, ``factorial_review`` or
``aligned_rag_eval_audit_packet``), ``judgments`` by id and, for the first two, ``sampling``; or
JSON lines with the fields of an input and ``human``. An id is the SHA-256 of the input's JSON
with sorted keys and without escapes; every id is checked.

Deviations: how the targeted part of those audits was drawn (by priority until full) gives no
inclusion probabilities, so that only the random part is weighted. The two kinds without
``sampling`` hold all answers. Reviewers whose name starts with ``model:`` are no people; their
labels are left out and counted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragassay import canon
from ragassay.audit.labels import Label, check_labels, label_line
from ragassay.audit.packet import (
    FIELDS,
    LABELS,
    NOT_APPLICABLE,
    Design,
    Item,
    Key,
    KeyEntry,
    Packet,
    Part,
    Sample,
    write_packet,
)
from ragassay.audit.sampling import RANDOM
from ragassay.errors import ConfigError, DataError, StoreError

SAMPLED = ("headline_human_audit", "light_human_audit")
COMPLETE = ("factorial_review", "aligned_rag_eval_audit_packet")
_SEPARATORS = ((", ", ": "), (",", ":"))
_EVIDENCE = {"target_endorsed": "target_evidence", "reference_correct": "reference_evidence"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedAudit:
    """What was imported: the packet, labels by annotator, and what was left out and why.

    ``reviewers`` maps annotator names to the reviewers of the file. ``evidence_missing`` counts
    quotes that do not occur in the answer; ``not_applicable`` counts correctness labels of
    answers without references, which have become "not applicable".
    """

    packet: Packet
    labels: Mapping[str, int]
    reviewers: Mapping[str, str]
    unlabeled: int
    by_models: int
    evidence_missing: int
    not_applicable: int


@dataclass(frozen=True, slots=True)
class _Row:
    """One judgment: where it stands, its id and input, and what was said."""

    where: str
    id: str
    input: Mapping[str, Any]
    said: Mapping[str, Any]


@dataclass
class _Left:
    """Counts of what could not be taken over as it is."""

    unlabeled: int = 0
    by_models: int = 0
    evidence_missing: int = 0
    not_applicable: int = 0


def import_completed(path: str | Path, out: str | Path) -> ImportedAudit:
    """Turn a completed audit file into a packet folder with labels.

    Parameters
    ----------
    path : str or Path
        The file, JSON or JSON lines.
    out : str or Path
        The packet folder to write; absent or empty.

    Returns
    -------
    ImportedAudit
        Counts of what was taken over and what was not.

    Raises
    ------
    DataError
        The file is not such an audit, an id does not match its input, or a label is
        impossible; nothing is written then.
    StoreError
        The folder is not empty or cannot be written.
    """
    path, out = Path(path), Path(out)
    header, rows = _read(path)
    left, items = _Left(), []
    labels: dict[str, list[Label]] = {}
    names = _annotator_names(rows)
    for row in rows:
        item = _item(path, row, check_id=header["kind"] != "lines")
        items.append(item)
        label = _label(path, row, item, names, left)
        if label is not None:
            labels.setdefault(label.annotator, []).append(label)
    sample = _sample(path, header, sorted(items, key=lambda item: item.id))
    packet = write_packet(sample, out)
    for name, given in sorted(labels.items()):
        _write_labels(packet.folder() / LABELS / f"{name}.jsonl", given)
    return ImportedAudit(
        packet=packet,
        labels={name: len(given) for name, given in sorted(labels.items())},
        reviewers={name: reviewer for reviewer, name in names.items() if name in labels},
        unlabeled=left.unlabeled,
        by_models=left.by_models,
        evidence_missing=left.evidence_missing,
        not_applicable=left.not_applicable,
    )


# ------------------------------------------------------------------------------ the file


def _read(path: Path) -> tuple[dict[str, Any], list[_Row]]:
    try:
        text = path.read_bytes().decode("utf-8-sig", "surrogatepass")
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=path) from error
    except ValueError as error:
        raise DataError(f"is not UTF-8: {error}", path=path) from error
    try:
        whole = json.loads(text)
    except ValueError:
        return {"kind": "lines"}, list(_from_lines(path, text))
    if isinstance(whole, dict) and "human" in whole:  # a file of a single line
        return {"kind": "lines"}, list(_from_lines(path, text))
    kind = whole.get("kind") if isinstance(whole, dict) else None
    if kind not in SAMPLED + COMPLETE:
        raise DataError(
            f"kind is {kind!r:.60}, expected one of {', '.join(SAMPLED + COMPLETE)}", path=path
        )
    judgments = whole.get("judgments")
    if not isinstance(judgments, dict) or not judgments:
        raise DataError("has no 'judgments'", path=path)
    rows = []
    for key, judgment in judgments.items():
        if not isinstance(judgment, dict) or not isinstance(judgment.get("input"), dict):
            raise DataError(f"judgment {key[:12]!r} has no 'input'", path=path)
        rows.append(_Row(f"judgment {key[:12]!r}", key, judgment["input"], judgment))
    return whole, rows


def _from_lines(path: Path, text: str) -> Iterator[_Row]:
    seen: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            key, human = row["id"], row["human"]
            said = {name: human[name] for name in FIELDS}
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"not a line of a completed audit ({error!r}); expected id, question, target, "
                "references, answer and human with the three labels",
                path=path,
                line=number,
            ) from error
        if not isinstance(key, str) or key in seen:
            raise DataError(
                f"id {key!r:.40} is not a text, or is on line {seen.get(str(key))} already",
                path=path,
                line=number,
            )
        seen[key] = number
        said |= {"reviewer": human.get("reviewer", ""), "rationale": human.get("rationale", "")}
        yield _Row(f"line {number}", key, row, said)
    if not seen:
        raise DataError("holds no judgments", path=path)


def input_id(value: Mapping[str, Any], separators: tuple[str, str] = _SEPARATORS[0]) -> str:
    """Digest an input as the artifact does."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=separators)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _item(path: Path, row: _Row, *, check_id: bool) -> Item:
    given = row.input
    target, references = given.get("target"), given.get("references", [])
    texts = [given.get("question"), given.get("answer"), "" if target is None else target]
    good = isinstance(references, list) and all(isinstance(t, str) for t in (*texts, *references))
    if not good:
        raise DataError(
            f"{row.where}: question, answer, target (or null) and the references must be texts",
            path=path,
        )
    if check_id and row.id not in {input_id(given, each) for each in _SEPARATORS}:
        raise DataError(
            f"{row.where}: the id is not the SHA-256 of its input, so the input was changed after "
            "the audit was drawn; get the file again",
            path=path,
        )
    return Item(
        id=row.id,
        question=given["question"],
        target=target,
        references=tuple(references),
        answer=given["answer"],
    )


# ------------------------------------------------------------------------------ the labels


def _annotator_names(rows: Sequence[_Row]) -> dict[str, str]:
    """A file name for every reviewer, different also where case does not count."""
    names: dict[str, str] = {}
    for reviewer in sorted({_reviewer(row) for row in rows}):
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", reviewer).strip("._-")[:32] or "reviewer"
        name, count, taken = plain, 1, {each.lower() for each in names.values()}
        while name.lower() in taken:
            count += 1
            name = f"{plain}-{count}"
        names[reviewer] = name
    return names


def _reviewer(row: _Row) -> str:
    reviewer = row.said.get("reviewer", "")
    return reviewer.strip() if isinstance(reviewer, str) else ""


def _label(
    path: Path, row: _Row, item: Item, names: Mapping[str, str], left: _Left
) -> Label | None:
    values = {name: row.said.get(name) for name in FIELDS}
    if any(value in (None, "") for value in values.values()):
        left.unlabeled += 1
        return None
    reviewer = _reviewer(row)
    if reviewer.lower().startswith("model:"):
        left.by_models += 1
        return None
    if not item.references and values["reference_correct"] != NOT_APPLICABLE:
        left.not_applicable += 1
        values["reference_correct"] = NOT_APPLICABLE
    try:
        checked = check_labels(item, values)
    except ConfigError as error:
        raise DataError(f"{row.where}: {error}", path=path) from error
    quotes = {name: row.said.get(key) for name, key in _EVIDENCE.items()}
    evidence = {name: quote for name, quote in quotes.items() if isinstance(quote, str) and quote}
    left.evidence_missing += sum(quote not in item.answer for quote in evidence.values())
    rationale = row.said.get("rationale")
    return Label(
        item=item.id,
        annotator=names[reviewer],
        labels=checked,
        comment=rationale if isinstance(rationale, str) else "",
        evidence=evidence,
    )


def _write_labels(path: Path, labels: Sequence[Label]) -> None:
    text = "".join(canon.dumps(label_line(label)) + "\n" for label in labels)
    try:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error


# ----------------------------------------------------------------------------- the sampling


def _sample(path: Path, header: Mapping[str, Any], items: Sequence[Item]) -> Sample:
    kind = header["kind"]
    if kind in SAMPLED:
        design, population, entries = _sampled(path, header.get("sampling"), items)
    elif kind in COMPLETE:
        design, population = Design(random=len(items)), len(items)
        entries = {each.id: KeyEntry(drawn_by=(RANDOM,), inclusion=1.0) for each in items}
    else:
        design, population = Design(random=0, known=False), len(items)
        entries = {each.id: KeyEntry() for each in items}
    sampling = header.get("sampling")
    seed = sampling.get("seed") if isinstance(sampling, dict) else None
    packet = Packet(
        name=path.stem,
        seed=seed if isinstance(seed, int) else 0,
        answers=population,
        trials=0,
        design=design,
        items=tuple(items),
        notes={"imported": kind},
    )
    signature = header.get("input_signature")
    sources = header.get("sources")
    run = {
        "name": path.stem,
        "fingerprint": signature if isinstance(signature, str) else "",
        "sources": sources if isinstance(sources, dict) else {},
    }
    return Sample(packet=packet, key=Key(run=run, items=entries))


def _sampled(
    path: Path, sampling: Any, items: Sequence[Item]
) -> tuple[Design, int, dict[str, KeyEntry]]:
    ids = {item.id for item in items}
    try:
        population, random = sampling["population"], set(sampling["random_ids"])
        selected, reasons = set(sampling["selected_ids"]), sampling["targeted_reasons"]
        strata = {each: tuple(sorted(set(reasons.get(each, ())))) for each in ids}
        if not isinstance(population, int) or population < len(items):
            raise ValueError(f"a population of {population!r:.20} for {len(items)} items")  # noqa: TRY301
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(f"'sampling' is incomplete: {error!r}", path=path) from error
    if selected != ids or not random <= ids:
        raise DataError("'sampling' and 'judgments' name different items", path=path)
    entries = {
        each: KeyEntry(
            strata=strata[each],
            drawn_by=(RANDOM,) if each in random else ("targeted",),
            # The chance of the random part alone; that of the targeted part is not known.
            inclusion=len(random) / population if each in random else None,
        )
        for each in ids
    }
    parts = sorted({name for names in strata.values() for name in names})
    return (
        Design(
            random=len(random),
            strata=tuple(Part(name=name, size=None, drawn=None) for name in parts),
            known=False,
        ),
        population,
        entries,
    )
