"""The data of the record browser: every query under every defense, attack and budget.

Texts stand once and are referred to by number. Labels, transition classes and matched spans
are made here, not in the browser, so that they are the analysis' own and can be tested.

A text is cut at 20,000 characters; where all texts of a kind together would make the page
too large, the longest are cut further, to a common length. Every cut is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ragassay import canon
from ragassay.report.grids import UNDEFENDED
from ragassay.store import RunFolder
from ragassay.types import ContextEntry, Query, ScoreRecord, Target, TrialRecord

MAX_TEXT = 20_000
MIN_TEXT = 200
PAGE_BUDGET = {"passages": 2_500_000, "answers": 1_500_000, "traces": 1_000_000}
_ORIGINS = {"corpus": "c", "own": "o", "foreign": "f"}
_SPANS = {"wanted": 0, "reference": 1, "abstention": 2}
_OTHER_SPAN = 3

Places = Mapping[tuple[str, str, int, str], TrialRecord]
Scores = Mapping[tuple[str, str], ScoreRecord]


def browser_data(folder: RunFolder, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Collect the records of a run for the browser in report.html.

    Parameters
    ----------
    folder : RunFolder
        The run.
    summary : mapping
        Its analysis.

    Returns
    -------
    dict
        Plain JSON values: ``rules``, ``defenses``, ``cells`` ([attack, budget]), ``queries``
        ([id, group, question, references, wanted]), ``passages`` ([id, title, text, query it
        was written for]), ``answers`` and ``traces`` (texts), ``contexts`` (lists of
        [passage, score, origin, gold]), ``trials``, ``at`` (for each query the trials of its
        clean and its poisoned places, by defense), ``classes`` and ``harmed`` (by rule, cell
        and defense a string with a letter for each query). A text is a string, or [start of
        the text, full length] where it was cut.
    """
    places = {
        (t.spec.query_id, t.spec.attack, t.spec.budget, t.spec.defense_label): t
        for t in folder.trials().values()
    }
    scores, queries = folder.scores(), folder.queries()
    rules = sorted(summary["scorers"], key=lambda rule: rule != summary["headline"])
    cells = sorted({(cell["attack"], cell["budget"]) for cell in summary["cells"]})
    defenses = [UNDEFENDED, *summary["defenses"]]
    table = _Tables(rules=rules, scores=scores)
    at = [
        {
            "c": [table.trial(places.get((query_id, "", 0, d))) for d in defenses],
            "p": [[table.trial(places.get((query_id, *cell, d))) for d in defenses]
                  for cell in cells],
        }
        for query_id in queries
    ]  # fmt: skip
    classes, harmed = _all_classes(rules, cells, defenses, queries, places, scores)
    return {
        "rules": rules,
        "defenses": defenses,
        "cells": [list(cell) for cell in cells],
        "queries": [
            [query.id, query.group, query.text, list(target.references), list(target.wanted)]
            for query, target in queries.values()
        ],
        "passages": _passages(folder, list(table.passages)),
        "answers": _bounded(list(table.answers), PAGE_BUDGET["answers"]),
        "traces": _bounded(list(table.traces), PAGE_BUDGET["traces"]),
        "contexts": [
            [[table.passages[e[0]], e[1], e[2], e[3]] for e in context]
            for context in table.contexts
        ],
        "trials": table.trials,
        "at": at,
        "classes": classes,
        "harmed": harmed,
    }


def transition_class(labels: Sequence[bool | None]) -> str:
    """Classify the labels of c0, c1, p0, p1.

    Returns
    -------
    str
        ``P`` prevented, ``J`` introduced, ``+`` stays positive, ``-`` stays negative, ``x``
        dropped: a label is missing, so that the query is in no figure of the cell.
    """
    if len(labels) != 4 or any(label is None for label in labels):
        return "x"
    before, after = labels[2], labels[3]
    return {(True, False): "P", (False, True): "J", (True, True): "+"}.get((before, after), "-")  # type: ignore[arg-type]


def fair_limit(lengths: Sequence[int], budget: int, *, most: int = MAX_TEXT) -> int:
    """Find the common length to cut texts at, so that together they fit a budget.

    Examples
    --------
    >>> fair_limit([10, 300, 5000], 1000), fair_limit([10, 300], 1000)
    (690, 20000)
    """
    short = sorted(min(length, most) for length in lengths)
    if sum(short) <= budget:
        return most
    left = budget
    for index, length in enumerate(short):
        share = left // (len(short) - index)
        if length > share:
            return max(MIN_TEXT, share)
        left -= length
    return most


# ---------------------------------------------------------------------------------- the tables


@dataclass(slots=True)
class _Tables:
    """Numbers texts, contexts and trials in the order in which they are met."""

    rules: Sequence[str]
    scores: Scores
    passages: dict[str, int] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    traces: dict[str, int] = field(default_factory=dict)
    contexts: dict[tuple[tuple[Any, ...], ...], int] = field(default_factory=dict)
    trials: list[dict[str, Any]] = field(default_factory=list)

    def trial(self, record: TrialRecord | None) -> int | None:
        """Add a trial; ``None`` where it was not run."""
        if record is None:
            return None
        if record.status == "failed":
            self.trials.append({"e": record.error[:MAX_TEXT]})
            return len(self.trials) - 1
        answer = record.answer or ""
        item: dict[str, Any] = {
            "x": self._context(record.context),
            "k": "".join("1" if entry.kept else "0" for entry in record.context),
            "a": self.answers.setdefault(answer, len(self.answers)),
            "l": [_labels(self.scores.get((record.key, rule))) for rule in self.rules],
            "s": [_spans(self.scores.get((record.key, rule)), answer) for rule in self.rules],
            "n": record.usage.model_calls,
        }
        if record.declined:
            item["d"] = 1
        if record.suspicion:
            item["u"] = [_short(record.suspicion.get(entry.id)) for entry in record.context]
            if "context" in record.suspicion:
                item["uc"] = _short(record.suspicion["context"])
        if record.trace:
            item["t"] = self.traces.setdefault(canon.dumps(record.trace), len(self.traces))
        self.trials.append(item)
        return len(self.trials) - 1

    def _context(self, entries: Sequence[ContextEntry]) -> int:
        for entry in entries:
            self.passages.setdefault(entry.id, len(self.passages))
        key = tuple((e.id, _short(e.score), _ORIGINS[e.origin], int(e.gold)) for e in entries)
        return self.contexts.setdefault(key, len(self.contexts))


def _labels(score: ScoreRecord | None) -> str:
    """Three letters: target-positive, correct, abstained; ``?`` uncertain, ``x`` not scored."""
    if score is None:
        return "xxx"
    return "".join(
        ("?" if name in score.uncertain else "x") if value is None else "1" if value else "0"
        for name, value in (
            ("target_positive", score.target_positive),
            ("correct", score.correct),
            ("abstained", score.abstained),
        )
    )


def _spans(score: ScoreRecord | None, answer: str) -> list[int]:
    """Flat [start, stop, kind, ...] in UTF-16 units, in order and without overlap.

    Where spans overlap ("males" in "females"), the attacker's answer is what is shown.
    """
    if score is None or not score.evidence:
        return []
    spans = [
        (max(0, s.start), min(len(answer), s.stop), _SPANS.get(s.label, _OTHER_SPAN))
        for s in score.evidence
    ]
    edges = sorted({edge for start, stop, _ in spans if start < stop for edge in (start, stop)})
    flat: list[int] = []
    for start, stop in pairwise(edges):
        kinds = [kind for first, last, kind in spans if first <= start and stop <= last]
        if not kinds:
            continue
        first, last, kind = _utf16(answer, start), _utf16(answer, stop), min(kinds)
        if flat[-2:] == [first, kind]:  # the same span goes on
            flat[-2] = last
        else:
            flat += [first, last, kind]
    return flat


def _utf16(text: str, position: int) -> int:
    """Convert an offset in characters to one in UTF-16 units, which browsers count."""
    if text.isascii():
        return position
    return position + sum(ord(char) > 0xFFFF for char in text[:position])


def _short(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.5g}")


def _passages(folder: RunFolder, ids: Sequence[str]) -> list[list[Any]]:
    known: dict[str, tuple[str, str, str]] = {
        p.id: (p.title, p.text, "") for p in folder.passages().values()
    }
    for poison in folder.poison().values():
        known.update({p.id: (p.title, p.text, poison.query_id) for p in poison.passages})
    found = [known.get(passage_id, ("", None, "")) for passage_id in ids]
    texts = iter(_bounded([t for _, t, _ in found if t is not None], PAGE_BUDGET["passages"]))
    return [
        [passage_id, title, None if text is None else next(texts), owner]
        for passage_id, (title, text, owner) in zip(ids, found, strict=True)
    ]


def _bounded(texts: Sequence[str], budget: int) -> list[Any]:
    limit = fair_limit([len(text) for text in texts], budget)
    return [text if len(text) <= limit else [text[:limit], len(text)] for text in texts]


# --------------------------------------------------------------------------------- the classes


def _all_classes(
    rules: Sequence[str],
    cells: Sequence[tuple[str, int]],
    defenses: Sequence[str],
    queries: Mapping[str, tuple[Query, Target]],
    places: Places,
    scores: Scores,
) -> tuple[list[list[list[str]]], list[list[list[str]]]]:
    """Letters for each rule, cell and defense: the class, and whether clean was harmed."""
    classes: list[list[list[str]]] = []
    harmed: list[list[list[str]]] = []
    for rule in rules:
        labels = {
            place: score.target_positive
            for place, trial in places.items()
            if (score := scores.get((trial.key, rule))) is not None
        }
        classes.append([])
        harmed.append([])
        for cell in cells:
            four = [
                [_four(labels, query_id, cell, defense) for query_id in queries]
                for defense in defenses
            ]
            classes[-1].append(["".join(map(transition_class, row)) for row in four])
            harmed[-1].append(["".join(map(_harm, row)) for row in four])
    return classes, harmed


def _four(
    labels: Mapping[tuple[str, str, int, str], bool | None],
    query_id: str,
    cell: tuple[str, int],
    defense: str,
) -> list[bool | None]:
    return [
        labels.get((query_id, *where, system))
        for where in (("", 0), cell)
        for system in (UNDEFENDED, defense)
    ]


def _harm(labels: Sequence[bool | None]) -> str:
    return "1" if transition_class(labels) != "x" and not labels[0] and labels[1] else "0"
