"""Records of a run folder, rebuilt from their JSON bodies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any, TypeVar

from ragassay.errors import StoreError
from ragassay.types import (
    ContextEntry,
    Cost,
    EditsRecord,
    Evidence,
    Knowledge,
    Passage,
    PassageEdits,
    PoisonSet,
    Sampling,
    ScoreRecord,
    TextEdit,
    ToolUsage,
    TrialRecord,
    TrialSpec,
)

_T = TypeVar("_T")


def trial_from(body: Mapping[str, Any]) -> TrialRecord:
    """Rebuild a trial record from its JSON body."""
    record = make(TrialRecord, body)
    spec = make(TrialSpec, body["spec"])
    return replace(
        record,
        spec=replace(spec, sampling=make(Sampling, body["spec"]["sampling"])),
        context=tuple(make(ContextEntry, entry) for entry in body["context"]),
        usage=make(ToolUsage, body["usage"]),
    )


def score_from(body: Mapping[str, Any]) -> ScoreRecord:
    """Rebuild a score record from its JSON body."""
    record = make(ScoreRecord, body)
    return replace(record, evidence=tuple(make(Evidence, item) for item in body["evidence"]))


def poison_from(body: Mapping[str, Any]) -> PoisonSet:
    """Rebuild a poison set from its JSON body."""
    return replace(
        make(PoisonSet, body),
        passages=tuple(make(Passage, item) for item in body["passages"]),
        knowledge=make(Knowledge, body["knowledge"]),
        cost=make(Cost, body["cost"]),
    )


def edits_from(body: Mapping[str, Any]) -> EditsRecord:
    """Rebuild a record of edits from its JSON body."""
    passages = [make(PassageEdits, item) for item in body["passages"]]
    return replace(
        make(EditsRecord, body),
        passages=tuple(
            replace(each, edits=tuple(make(TextEdit, edit) for edit in each.edits))  # type: ignore[arg-type]
            for each in passages
        ),
    )


def make(cls: type[_T], body: Mapping[str, Any]) -> _T:
    """Build a flat value.

    Raises
    ------
    StoreError
        A key is unknown or missing.
    """
    unknown = body.keys() - names_of(cls)  # type: ignore[arg-type]
    if unknown:
        raise StoreError(
            f"a {cls.__name__} record holds the unknown key {sorted(unknown)[0]!r}; "
            "it was written by another version of ragassay"
        )
    try:
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in body.items()})
    except TypeError as error:
        raise StoreError(f"a {cls.__name__} record is incomplete: {error}") from error


@cache
def names_of(cls: type) -> frozenset[str]:
    """The names of a dataclass's fields."""
    return frozenset(f.name for f in fields(cls))
