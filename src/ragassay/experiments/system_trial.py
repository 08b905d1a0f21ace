"""One question to a system: what can change its outcome, and the record of its answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ragassay.canon import digest
from ragassay.errors import BackendError
from ragassay.experiments.system_access import Access
from ragassay.experiments.system_setup import SystemSetup
from ragassay.matching import normalize_text
from ragassay.plugins import SystemAnswer, UsedPassage
from ragassay.types import ContextEntry, Passage, Query, Sampling, ToolUsage, TrialRecord, TrialSpec

NOT_TOLD = Sampling(max_tokens=0)  # zero tokens: the decoding is not known
_MAX_USED = 200
Origin = Literal["corpus", "own", "foreign"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question to ask under one condition, with its key."""

    key: str
    spec: TrialSpec
    query: Query
    gold: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Whose poison is in the store: by document id, and by normalized text.

    Systems that cut or rename what they take in tell no ids that are known here; a passage
    that is, or is a part of, an injected text counts by its text.
    """

    by_id: Mapping[str, tuple[Passage, str]] = field(default_factory=dict)
    by_text: tuple[tuple[str, str, str], ...] = ()  # normalized text, passage id, query id

    @classmethod
    def of(cls, owner: Mapping[str, tuple[Passage, str]]) -> Ledger:
        """Make one from what an injection says."""
        texts = [(normalize_text(p.text), p.id, query_id) for p, query_id in owner.values()]
        return cls(by_id=owner, by_text=tuple(texts))

    def find(self, used: UsedPassage, query_id: str) -> tuple[str, Origin]:
        """Name a used passage and say where it comes from."""
        known = self.by_id.get(used.id)
        if known is not None:
            return known[0].id, "own" if known[1] == query_id else "foreign"
        text = normalize_text(used.text)
        if text:
            matches = [(owner != query_id, passage) for each, passage, owner in self.by_text
                       if text == each or (len(text) >= _PART and text in each)]  # fmt: skip
            if matches:
                foreign, passage = min(matches)
                return passage, "foreign" if foreign else "own"
        return used.id or f"text-{digest(used.text)[:16]}", "corpus"


_PART = 24  # characters that a part of an injected text must have to be taken for one


def question(
    setup: SystemSetup, number: int, query: Query, cell: tuple[str, int], poison: str
) -> Question:
    """Say what one question to the system of this number depends on.

    ``poison`` is the digest of everything that is injected into the query's group.
    """
    attack, budget = cell
    spec = TrialSpec(
        protocol=setup.protocol,
        dataset=setup.dataset.fingerprint,
        query_id=query.id,
        question=query.text,
        attack=attack,
        budget=budget,
        poison=poison,
        retriever="",
        defense=setup.systems[number].identity,
        defense_label=setup.labels[number],
        prompt="",
        generator="",
        sampling=NOT_TOLD,
        seed=setup.experiment.file.seed,
    )
    gold = frozenset(setup.dataset.targets[query.id].gold_ids)
    return Question(key=digest(spec), spec=spec, query=query, gold=gold)


def asked(
    access: Access, each: Question, ledger: Ledger
) -> tuple[TrialRecord, tuple[Passage, ...]]:
    """Ask, and record the answer with the passages of the corpus that it was made from.

    A system that fails gives a failed record, never an outcome.
    """
    start = time.perf_counter()
    try:
        answer = access.ask(each.query.text)
        entries, passages = _context(answer, each, ledger)
    except BackendError as error:
        return failed(each, str(error), time.perf_counter() - start), ()
    record = TrialRecord(
        key=each.key,
        spec=each.spec,
        status="done",
        context=entries,
        answer=answer.text,
        declined=answer.declined,
        usage=ToolUsage(model_calls=1),  # the question; what the system spends is its own affair
        seconds=round(time.perf_counter() - start, 6),
    )
    return record, passages


def failed(each: Question, error: str, seconds: float = 0.0) -> TrialRecord:
    """The record of a question that has no outcome."""
    return TrialRecord(
        key=each.key, spec=each.spec, status="failed", error=error, seconds=round(seconds, 6)
    )


def _context(
    answer: SystemAnswer, each: Question, ledger: Ledger
) -> tuple[tuple[ContextEntry, ...], tuple[Passage, ...]]:
    entries: dict[str, ContextEntry] = {}
    passages = []
    for used in answer.used[:_MAX_USED]:
        name, origin = ledger.find(used, each.query.id)
        if name in entries:  # chunks of one passage
            continue
        entries[name] = ContextEntry(
            id=name,
            score=used.score,
            origin=origin,
            gold=origin == "corpus" and name in each.gold,
            kept=used.kept,
        )
        if origin == "corpus" and used.text:
            passages.append(Passage(id=name, text=used.text))
    return tuple(entries.values()), tuple(passages)
