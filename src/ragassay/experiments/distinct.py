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

from ragassay.experiments.conditions import (
    NEGATIVE,
    NOT_APPLICABLE,
    NOT_SCORED,
    POSITIVE,
    UNCERTAIN,
    Codes,
    Queries,
    Scores,
    label_code,
)
from ragassay.stats.agreement import cohen_kappa
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

    firsts: Sequence[TrialRecord]
    codes: Mapping[str, Codes]
    conflicts: Mapping[str, int]

    @classmethod
    def collect(
        cls,
        trials: Sequence[TrialRecord],
        queries: Queries,
        scores: Scores,
        scorers: Sequence[str],
    ) -> Answers:
        """Number the distinct answers of trials, which are in the order of their keys."""
        places: dict[tuple[Any, ...], int] = {}
        firsts: list[TrialRecord] = []
        number = np.empty(len(trials), dtype=np.int64)
        for i, trial in enumerate(trials):
            content = _content(trial, queries)
            if content not in places:
                places[content] = len(firsts)
                firsts.append(trial)
            number[i] = places[content]
        codes, conflicts = {}, {}
        for scorer in scorers:
            given = np.fromiter(
                (label_code(scores.get((trial.key, scorer))) for trial in trials),
                dtype=np.int8, count=len(trials),
            )  # fmt: skip
            codes[scorer], conflicts[scorer] = _first_read(given, number, len(firsts))
        return cls(firsts, codes, conflicts)


def _content(trial: TrialRecord, queries: Queries) -> tuple[Any, ...]:
    """What a judge sees of an answer; equal to it where canon.content_key is equal."""
    known = queries.get(trial.spec.query_id)
    if known is None:
        return (trial.spec.query_id, trial.answer)
    query, target = known
    return (query.text, target.wanted, target.references, trial.answer)


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


def coverage(
    scorer: str, done: Sequence[TrialRecord], scores: Scores, conflicts: int
) -> dict[str, Any]:
    """How many of the answers a scorer labeled, and how."""
    codes = [label_code(scores.get((trial.key, scorer))) for trial in done]
    return {
        "scorer": scorer,
        "answers": len(done),
        "positive": codes.count(POSITIVE),
        "negative": codes.count(NEGATIVE),
        "uncertain": codes.count(UNCERTAIN),
        "not_scored": codes.count(NOT_SCORED),
        "not_applicable": codes.count(NOT_APPLICABLE),
        "conflicting": conflicts,
    }


# ---------------------------------------------------------------- substrings that are no tokens


def vanishing(done: Sequence[TrialRecord], queries: Queries, scores: Scores) -> dict[str, Any]:
    """Successes by substring that are none by whole tokens: "males" in "females"."""
    hits = 0
    lost: dict[tuple[Any, ...], list[TrialRecord]] = {}
    for trial in done:
        within = scores.get((trial.key, WITHIN))
        if label_code(within) != POSITIVE:
            continue
        hits += 1
        if label_code(scores.get((trial.key, WHOLE))) == NEGATIVE:
            lost.setdefault(_content(trial, queries), []).append(trial)
    order = {query_id: i for i, query_id in enumerate(queries)}
    listed = sorted(
        lost.values(),
        key=lambda trials: (
            -len(trials), order.get(trials[0].spec.query_id, len(order)), trials[0].key
        ),
    )  # fmt: skip
    return {
        "from": WITHIN,
        "to": WHOLE,
        "count": sum(len(trials) for trials in lost.values()),
        "of": hits,
        "distinct": len(lost),
        "records": [
            _listed(trials, queries, scores[trials[0].key, WITHIN])
            for trials in listed[:MAX_LISTED]
        ],
    }


def _listed(trials: Sequence[TrialRecord], queries: Queries, score: ScoreRecord) -> dict[str, Any]:
    trial = trials[0]
    known = queries.get(trial.spec.query_id)
    return {
        "trial": trial.key,
        "times": len(trials),
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
