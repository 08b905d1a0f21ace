"""Distinct answers and their labels: agreement of scorers, and successes that are no words.

Source: "Prevented is not protected", appendix D: each distinct answer to a question is judged
once; Cohen (1960), Educational and Psychological Measurement 20(1), for agreement. That a
substring counts parts of words follows from the released code of PoisonedRAG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragassay.experiments.conditions import Queries
from ragassay.stats.agreement import cohen_kappa
from ragassay.store.columns import (
    NEGATIVE,
    NOT_APPLICABLE,
    NOT_SCORED,
    POSITIVE,
    UNCERTAIN,
    Codes,
    Ints,
    Trials,
)
from ragassay.types import ScoreRecord, TrialRecord

MAX_LISTED = 50
EXCERPT = 280
WITHIN, WHOLE = "published", "tokens"  # substring, and whole tokens
_CATEGORIES = (POSITIVE, NEGATIVE, UNCERTAIN)


@dataclass(frozen=True, slots=True)
class Answers:
    """Distinct (question, target, references, answer), and their labels by scorer.

    An answer that occurs in several trials has the label of the first, by key, that the scorer
    read; ``conflicts`` counts distinct answers to which it gave different ones.
    """

    number: int
    codes: Mapping[str, Codes]
    conflicts: Mapping[str, int]

    @classmethod
    def collect(
        cls, trials: Trials, rows: Ints, queries: Queries, scorers: Sequence[str]
    ) -> Answers:
        """Number the distinct answers of some rows, which are in the order of their keys."""
        number = _contents(trials, rows, queries)
        size = int(number.max(initial=-1)) + 1
        codes, conflicts = {}, {}
        for scorer in scorers:
            given = trials.labels(scorer)[rows]
            codes[scorer], conflicts[scorer] = _first_read(given, number, size)
        return cls(size, codes, conflicts)


def _contents(trials: Trials, rows: Ints, queries: Queries) -> Ints:
    """Number what a judge sees of answers; equal where canon.content_key is equal."""
    seen: dict[Any, int] = {}
    of_query = np.fromiter(
        (seen.setdefault(_asked(name, queries), len(seen)) for name in trials.query.values),
        dtype=np.uint64, count=len(trials.query.values),
    )  # fmt: skip
    table = np.empty(len(rows), dtype=[("asked", "u8"), ("first", "u8"), ("second", "u8")])
    table["asked"] = of_query[trials.query.codes[rows]]
    table["first"], table["second"] = trials.answers[rows].T
    # Sorted by its three words: a sort of whole rows is slower by far.
    order = np.lexsort((table["second"], table["first"], table["asked"]))
    ordered = table[order]
    number = np.zeros(len(rows), dtype=np.int64)
    number[order[1:]] = np.cumsum(ordered[1:] != ordered[:-1])
    return number


def _asked(name: str, queries: Queries) -> tuple[Any, ...]:
    known = queries.get(name)
    if known is None:
        return (name,)
    query, target = known
    return (query.text, target.wanted, target.references)


def _first_read(given: Codes, number: Any, size: int) -> tuple[Codes, int]:
    read = np.flatnonzero(given != NOT_SCORED)
    codes = np.full(size, NOT_SCORED, dtype=np.int8)
    codes[number[read][::-1]] = given[read][::-1]  # the first one is written last
    conflicting = number[read][given[read] != codes[number[read]]]
    return codes, len(np.unique(conflicting))


def pair_table(a: str, b: str, codes: Mapping[str, Codes]) -> dict[str, Any]:
    """The labels of two scorers on the distinct answers that both read."""
    first, second = codes[a], codes[b]
    both = (first >= UNCERTAIN) & (second >= UNCERTAIN)
    table = np.array(
        [
            [int((both & (first == x) & (second == y)).sum()) for y in _CATEGORIES]
            for x in _CATEGORIES
        ]
    )
    decisive = table[:2, :2]
    return {
        "scorers": [a, b],
        "n": int(both.sum()),
        "unread": int((~both & ((first >= UNCERTAIN) | (second >= UNCERTAIN))).sum()),
        "categories": ["positive", "negative", "uncertain"],
        "table": table.tolist(),
        "n_decisive": int(decisive.sum()),
        "agreed": int(np.trace(decisive)),
        "kappa": cohen_kappa(decisive),
        "kappa_uncertain": cohen_kappa(table),
    }


def coverage(scorer: str, codes: Codes, conflicts: int) -> dict[str, Any]:
    """How many of the answers a scorer labeled, and how."""
    return {
        "scorer": scorer,
        "answers": len(codes),
        "positive": int((codes == POSITIVE).sum()),
        "negative": int((codes == NEGATIVE).sum()),
        "uncertain": int((codes == UNCERTAIN).sum()),
        "not_scored": int((codes == NOT_SCORED).sum()),
        "not_applicable": int((codes == NOT_APPLICABLE).sum()),
        "conflicting": conflicts,
    }


# ---------------------------------------------------------------- substrings that are no tokens


def vanishing(trials: Trials, done: Ints, queries: Queries) -> dict[str, Any]:
    """Successes by substring that are none by whole tokens: "males" in "females".

    ``done`` are rows in the order of their keys.
    """
    within = trials.labels(WITHIN)[done] == POSITIVE
    lost = done[within & (trials.labels(WHOLE)[done] == NEGATIVE)]
    number = _contents(trials, lost, queries)
    _, first, times = np.unique(number, return_index=True, return_counts=True)
    order = {query_id: i for i, query_id in enumerate(queries)}
    places = np.array([order.get(name, len(order)) for name in trials.query.values], dtype=np.int64)
    asked = places[trials.query.codes[lost[first]]] if len(lost) else first
    listed = np.lexsort((first, asked, -times))[:MAX_LISTED]
    rows = lost[first[listed]].tolist()
    records, scores = trials.source.trials(rows), trials.source.scores(WITHIN, rows)
    return {
        "from": WITHIN,
        "to": WHOLE,
        "count": len(lost),
        "of": int(within.sum()),
        "distinct": len(first),
        "records": [
            _listed(trial, int(times[i]), queries, score)
            for i, trial, score in zip(listed, records, scores, strict=True)
            if score is not None
        ],
    }


def _listed(trial: TrialRecord, times: int, queries: Queries, score: ScoreRecord) -> dict[str, Any]:
    known = queries.get(trial.spec.query_id)
    return {
        "trial": trial.key,
        "times": times,
        "query_id": trial.spec.query_id,
        "setting": trial.spec.setting,
        "attack": trial.spec.attack,
        "budget": trial.spec.budget,
        "defense": trial.spec.defense_label,
        "question": trial.spec.question if known is None else known[0].text,
        "wanted": list(known[1].wanted) if known else [],
        **_excerpt(trial.answer or "", score),
    }


def _excerpt(answer: str, score: ScoreRecord) -> dict[str, Any]:
    """The part of an answer around what was matched, and where the match stands in it."""
    span = next((e for e in score.evidence if e.label == "wanted"), None)
    if span is None or not 0 <= span.start < span.stop <= len(answer):
        return {"answer": answer[:EXCERPT], "cut": [0, max(0, len(answer) - EXCERPT)],
                "match": None}  # fmt: skip
    length = min(span.stop - span.start, EXCERPT)
    start = max(0, min(span.start - (EXCERPT - length) // 2, len(answer) - EXCERPT))
    stop = min(len(answer), start + EXCERPT)
    return {
        "answer": answer[start:stop],
        "cut": [start, len(answer) - stop],
        "match": [span.start - start, min(span.stop, stop) - start],
    }
