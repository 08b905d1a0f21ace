"""The data of the record browser: queries under every setting, attack, budget and defense.

A record is one comparison of one query: its answers, clean and poisoned, without and with a
defense. Texts stand once and are referred to by number. Labels, transition classes and matched
spans are made here, not in the browser, so that they are the analysis' own and can be tested.

A page holds so many trials: where there are more, records in which a label flips or in which
the rules disagree come first, then uncertain ones, evenly over all comparisons. A text is cut
at 20,000 characters; where all texts of a kind together would make the page too large, the
longest are cut further, to a common length. All that is left out is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragassay import canon
from ragassay.report.controls import Controls
from ragassay.report.grids import UNDEFENDED
from ragassay.report.marks import letters, spans
from ragassay.report.transitions import ATTACKED, COMPARED, Found
from ragassay.store import RunFolder
from ragassay.store.columns import Trials
from ragassay.types import ContextEntry, ScoreRecord, TrialRecord

MAX_TEXT = 20_000
MIN_TEXT = 80
PAGE_BUDGET = {"passages": 2_500_000, "answers": 1_500_000, "traces": 1_000_000}
_ORIGINS = {"corpus": "c", "own": "o", "foreign": "f"}


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
        Plain JSON values: ``rules``, ``defenses``, ``settings``, ``pairs`` ([attack, budget]),
        ``cells`` ([setting, pair] by number), ``names`` ([letter, name] of the classes),
        ``records`` ([query, cell, defense, trials of c0, c1, p0 and p1, classes, harmed,
        disagree], the last three strings with a letter for each rule, but one for all in
        ``disagree``), ``total`` (records before the bound), ``queries`` ([id, group, question,
        references, wanted]), ``passages`` ([id, title, text, query it was written for]),
        ``answers`` and ``traces`` (texts), ``contexts`` (lists of [passage, score, origin,
        gold]), ``trials``, and ``controls`` (names of contexts with passages removed; a poisoned
        trial lists them as [name, letter for each rule]). A text is a string, or [start of the
        text, full length] where it was cut.
    """
    rules = sorted(summary["scorers"], key=lambda rule: rule != summary["headline"])
    defenses = [UNDEFENDED, *summary["defenses"]]
    trials, queries = folder.columns(), folder.queries()
    attacked = [query_id for query_id, (query, _) in queries.items() if not query.split]
    settings = list(summary["settings"])
    spots = list(dict.fromkeys((c["setting"], c["attack"], c["budget"]) for c in summary["cells"]))
    pairs = list(dict.fromkeys((attack, budget) for _, attack, budget in spots))
    clean_absent = {
        (c["setting"], c["attack"], c["budget"]) for c in summary["cells"] if "c0" in c["absent"]
    }
    found = Found(trials, rules, defenses, attacked, spots, clean_absent)
    listed = found.bounded()
    table = _Tables.of(trials, rules, [one.trials for one in listed])
    number: dict[str, int] = {}
    records = [
        [
            number.setdefault(one.query_id, len(number)),
            one.cell,
            one.defense,
            *(table.trial(row) for row in one.trials),
            one.classes,
            one.harmed,
            int(one.disagree),
        ]
        for one in listed
    ]
    return {
        "rules": rules,
        "defenses": defenses,
        "settings": settings,
        "pairs": [list(pair) for pair in pairs],
        "cells": [[settings.index(s), pairs.index((a, b))] for s, a, b in spots],
        "names": [list(name) for name in (COMPARED if len(defenses) > 1 else ATTACKED)],
        "records": records,
        "total": found.total,
        "queries": [
            [query.id, query.group, query.text[:MAX_TEXT], list(target.references),
             list(target.wanted)]
            for query, target in (queries[query_id] for query_id in number)
        ],
        "passages": _passages(folder, list(table.passages)),
        "answers": _bounded(list(table.answers), PAGE_BUDGET["answers"]),
        "traces": _bounded(list(table.traces), PAGE_BUDGET["traces"]),
        "contexts": [
            [[table.passages[e[0]], e[1], e[2], e[3]] for e in context]
            for context in table.contexts
        ],
        "trials": table.trials,
        "controls": list(table.controls.names),
    }  # fmt: skip


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
    records: Mapping[int, TrialRecord]
    scores: Mapping[str, Mapping[int, ScoreRecord | None]]
    controls: Controls
    passages: dict[str, int] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    traces: dict[str, int] = field(default_factory=dict)
    contexts: dict[tuple[tuple[Any, ...], ...], int] = field(default_factory=dict)
    trials: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, trials: Trials, rules: Sequence[str], listed: Sequence[Sequence[int]]) -> _Tables:
        """Read the records of the rows that are listed."""
        rows = list(dict.fromkeys(row for each in listed for row in each if row >= 0))
        return cls(
            rules=rules,
            records=dict(zip(rows, trials.source.trials(rows), strict=True)),
            scores={
                rule: dict(zip(rows, trials.source.scores(rule, rows), strict=True))
                for rule in rules if rule in trials.scores
            },
            controls=Controls.of(trials, rules),
        )  # fmt: skip

    def trial(self, row: int) -> int | None:
        """Number a trial; ``None`` where it was not run."""
        if row < 0:
            return None
        if row not in self.numbers:
            self.numbers[row] = len(self.trials)
            self.trials.append(self._item(row, self.records[row]))
        return self.numbers[row]

    def _score(self, row: int, rule: str) -> ScoreRecord | None:
        return self.scores.get(rule, {}).get(row)

    def _item(self, row: int, record: TrialRecord) -> dict[str, Any]:
        if record.status == "failed":
            return {"e": record.error[:MAX_TEXT]}
        answer = record.answer or ""
        item: dict[str, Any] = {
            "x": self._context(record.context),
            "k": "".join("1" if entry.kept else "0" for entry in record.context),
            "a": self.answers.setdefault(answer, len(self.answers)),
            "l": [letters(self._score(row, rule)) for rule in self.rules],
            "s": [spans(self._score(row, rule), answer) for rule in self.rules],
            "n": record.usage.model_calls,
        }
        stances = [score.stance if (score := self._score(row, rule)) else "" for rule in self.rules]
        if any(stances):
            item["st"] = stances
        if record.declined:
            item["d"] = 1
        if record.suspicion:
            item["u"] = [_short(record.suspicion.get(entry.id)) for entry in record.context]
            if "context" in record.suspicion:
                item["uc"] = _short(record.suspicion["context"])
        removed, left = self.controls.listed(record)
        if removed:
            item["c"] = removed
        if left:
            item["cm"] = left
        if record.trace:
            item["t"] = self.traces.setdefault(canon.dumps(record.trace), len(self.traces))
        return item

    def _context(self, entries: Sequence[ContextEntry]) -> int:
        for entry in entries:
            self.passages.setdefault(entry.id, len(self.passages))
        key = tuple((e.id, _short(e.score), _ORIGINS[e.origin], int(e.gold)) for e in entries)
        return self.contexts.setdefault(key, len(self.contexts))


def _short(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.5g}")


def _passages(folder: RunFolder, ids: Sequence[str]) -> list[list[Any]]:
    wanted = set(ids)
    known: dict[str, tuple[str, str, str]] = {}
    for _, body in folder.read("passages"):
        if body["id"] in wanted:
            known[body["id"]] = (body["title"], body["text"], "")
    for _, body in folder.read("poison"):
        known.update({
            p["id"]: (p["title"], p["text"], body["query_id"])
            for p in body["passages"] if p["id"] in wanted
        })  # fmt: skip
    found = [known.get(passage_id, ("", None, "")) for passage_id in ids]
    texts = iter(_bounded([t for _, t, _ in found if t is not None], PAGE_BUDGET["passages"]))
    return [
        [passage_id, title, None if text is None else next(texts), owner]
        for passage_id, (title, text, owner) in zip(ids, found, strict=True)
    ]


def _bounded(texts: Sequence[str], budget: int) -> list[Any]:
    limit = fair_limit([len(text) for text in texts], budget)
    return [text if len(text) <= limit else [text[:limit], len(text)] for text in texts]
