"""Writing a run folder of imported answers: whole, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragassay import canon
from ragassay.errors import StoreError
from ragassay.exchange.check import Answers
from ragassay.exchange.rows import Row
from ragassay.store import RunFolder
from ragassay.types import Query, Sampling, Target, TrialRecord, TrialSpec

PROTOCOL = "imported/1"
STATISTICS = {"draws": 10_000, "confidence": 0.95}
UNKNOWN_SAMPLING = Sampling(max_tokens=0)  # zero tokens: the decoding is not known
_BATCH = 2_000


def write_folder(
    answers: Answers,
    out: Path,
    *,
    scorers: Mapping[str, str] | None = None,
    environment: Mapping[str, Any] | None = None,
    statistics: Mapping[str, Any] | None = None,
) -> Path:
    """Write checked answers as a run folder, which appears when everything is in it.

    Equal answers give equal records but for the time at which they were written.

    Parameters
    ----------
    answers : Answers
        What :func:`~ragassay.exchange.check.read` returned.
    out : Path
        The run folder; it must be new or empty.
    scorers : mapping of str to str, optional
        Label rules that the folder will be scored with: title to identity, headline first.
    environment : mapping, optional
        What ``environment.json`` shall hold.
    statistics : mapping, optional
        ``draws``, ``confidence`` and ``seed`` of the analysis.

    Raises
    ------
    StoreError
        The folder exists and is not empty, or cannot be written.
    DataError
        A file has changed since it was checked.
    """
    out = Path(out)
    check_free(out)
    temporary = out.parent / f".{out.name}.{os.getpid()}.importing"
    shutil.rmtree(temporary, ignore_errors=True)
    folder = RunFolder(temporary)
    try:
        with folder.writer():
            resolved = _resolved(answers, out.name, scorers or {}, statistics or {})
            folder.write_text("resolved.json", canon.dumps(resolved) + "\n")
            if environment:
                folder.write_text("environment.json", canon.dumps(environment) + "\n")
            _write_streams(folder, answers)
        (temporary / ".lock").unlink(missing_ok=True)
        move_folder(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return out


def check_free(out: Path) -> None:
    """Refuse a place that holds something already.

    Raises
    ------
    StoreError
        It does.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        what = "is not empty" if out.is_dir() else "is a file"
        raise StoreError(f"{out} {what}; give the import a folder of its own (--out)")


def move_folder(temporary: Path, out: Path) -> None:
    """Give a finished folder its name, which may be that of an empty one.

    Raises
    ------
    StoreError
        It cannot be moved there.
    """
    try:
        if out.exists():
            out.rmdir()
        temporary.rename(out)
    except OSError as error:
        raise StoreError(f"{out} cannot be written: {error.strerror or error}") from error


def _write_streams(folder: RunFolder, answers: Answers) -> None:
    queries: list[tuple[str, Any]] = [
        (query.id, {"query": query, "target": target}) for query, target in answers.queries.values()
    ]
    for start in range(0, len(queries), _BATCH):
        folder.append_many("queries", queries[start : start + _BATCH])
    fingerprint = answers.fingerprint
    trials: list[tuple[str, Any]] = []
    passages: list[tuple[str, Any]] = []
    written: set[str] = set()
    for query, target, row in answers.rows():
        record = _trial(query, target, row, fingerprint)
        trials.append((record.key, record))
        for passage in row.passages:
            if passage.id not in written:
                written.add(passage.id)
                passages.append((passage.id, passage))
        if len(trials) >= _BATCH:
            _append(folder, trials, passages)
            trials, passages = [], []
    _append(folder, trials, passages)


def _append(folder: RunFolder, trials: list[Any], passages: list[Any]) -> None:
    for stream, items in (("passages", passages), ("trials", trials)):
        if items:
            folder.append_many(stream, items)


def _trial(query: Query, target: Target, row: Row, fingerprint: str) -> TrialRecord:
    spec = TrialSpec(
        protocol=PROTOCOL,
        dataset=fingerprint,
        query_id=query.id,
        question=query.text,
        attack=row.attack,
        budget=row.budget,
        poison="",
        retriever="",
        defense="",
        defense_label=row.defense,
        prompt="",
        generator=row.victim,
        sampling=UNKNOWN_SAMPLING,
        seed=0,
        setting=row.label,
    )
    content = canon.content_key(
        question=query.text,
        wanted=target.wanted,
        references=target.references,
        answer=row.answer,
    )
    return TrialRecord(
        key=canon.digest({"content": content, "spec": spec}),
        spec=spec,
        status="done",
        context=row.context,
        answer=row.answer,
        trace=row.trace,
    )


def _resolved(
    answers: Answers, name: str, scorers: Mapping[str, str], statistics: Mapping[str, Any]
) -> dict[str, Any]:
    statistics = {**STATISTICS, "seed": 0, **statistics}
    groups = {query.group for query, _ in answers.queries.values()}
    victims = sorted({victim for victim, _ in answers.settings.values() if victim})
    result: dict[str, Any] = {
        "v": 1,
        "protocol": PROTOCOL,
        "experiment": {
            "name": name,
            "seed": statistics["seed"],
            "statistics": {key: statistics[key] for key in STATISTICS},
            "retriever": {"k": answers.k},
        },
        "dataset": {
            "name": ", ".join(answers.datasets) or "not stated",
            "fingerprint": answers.fingerprint,
            "passages": None,
            "questions": len(answers.queries),
            "evaluated": len(answers.queries),
            "groups": len(groups),
            "has_qrels": False,
        },
        "retriever": "not stated",
        "generator": ", ".join(victims) or "not stated",
        "attacks": dict.fromkeys(answers.attacks, "imported"),
        "defenses": dict.fromkeys(answers.defenses, "imported"),
        "scorers": dict(scorers),
        "headline": next(iter(scorers), ""),
        "planned": answers.count + answers.missing,
        "import": {
            "layout": answers.source.layout,
            "files": [{"name": file, "sha256": sha} for file, sha in answers.files],
            "details": answers.source.details,
        },
    }
    if set(answers.settings) != {""}:
        result["settings"] = {
            label: {"dataset": dataset, "generator": victim}
            for label, (victim, dataset) in sorted(answers.settings.items())
        }
    return result
