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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragassay import canon
from ragassay.report.controls import Controls
from ragassay.report.grids import UNDEFENDED
from ragassay.report.marks import letters, spans
from ragassay.store import RunFolder
from ragassay.types import ContextEntry, ScoreRecord, TrialRecord

MAX_TEXT = 20_000
MIN_TEXT = 80
MAX_TRIALS = 8_000
PAGE_BUDGET = {"passages": 2_500_000, "answers": 1_500_000, "traces": 1_000_000}
COMPARED = (
    ("P", "prevented"), ("J", "introduced"), ("+", "stays positive"), ("-", "stays negative"),
    ("h", "harmed on clean"), ("d", "rules disagree"), ("x", "dropped (a label is missing)"),
)  # fmt: skip
ATTACKED = (
    ("I", "induced by the attack"), ("R", "positive on clean only"), ("+", "positive"),
    ("-", "negative"), ("d", "rules disagree"), ("x", "a label is missing"),
)  # fmt: skip
_ORIGINS = {"corpus": "c", "own": "o", "foreign": "f"}

Place = tuple[str, str, str, int, str]  # query, setting, attack, budget, defense
Places = Mapping[Place, TrialRecord]
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
    trials = folder.trials()
    places = {
        (
            t.spec.query_id, t.spec.setting, t.spec.attack, t.spec.budget, t.spec.defense_label,
        ): t
        for t in trials.values() if not t.spec.control
    }  # fmt: skip
    scores, queries = folder.scores(), folder.queries()
    attacked = [query_id for query_id, (query, _) in queries.items() if not query.split]
    settings = list(summary["settings"])
    spots = list(dict.fromkeys((c["setting"], c["attack"], c["budget"]) for c in summary["cells"]))
    pairs = list(dict.fromkeys((attack, budget) for _, attack, budget in spots))
    clean_absent = {
        (c["setting"], c["attack"], c["budget"]) for c in summary["cells"] if "c0" in c["absent"]
    }
    finder = _Finder(rules, defenses, places, scores, clean_absent)
    found = list(finder.records(attacked, spots))
    listed = _bounded_records(found)
    controls = Controls.of(trials.values(), scores, rules)
    table = _Tables(rules=rules, scores=scores, controls=controls)
    number: dict[str, int] = {}
    records = [
        [
            number.setdefault(one.query_id, len(number)),
            one.cell,
            one.defense,
            *(table.trial(trial) for trial in one.trials),
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
        "total": len(found),
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
        "controls": list(controls.names),
    }  # fmt: skip


# --------------------------------------------------------------------------------- the records


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """One query of one comparison; ``urgent`` is 0 for flips and disagreements, then 1, 2."""

    query_id: str
    cell: int
    defense: int
    trials: tuple[TrialRecord | None, ...]
    classes: str
    harmed: str
    disagree: bool
    urgent: int


@dataclass(frozen=True, slots=True)
class _Finder:
    rules: Sequence[str]
    defenses: Sequence[str]
    places: Places
    scores: Scores
    clean_absent: set[tuple[str, str, int]]

    def records(
        self, queries: Sequence[str], spots: Sequence[tuple[str, str, int]]
    ) -> Iterator[_Record]:
        """All records that have a trial, by cell, defense and query."""
        start = 1 if len(self.defenses) > 1 else 0
        for cell, spot in enumerate(spots):
            for defense in range(start, len(self.defenses)):
                for query_id in queries:
                    record = self._record(query_id, cell, spot, defense)
                    if record is not None:
                        yield record

    def _record(
        self, query_id: str, cell: int, spot: tuple[str, str, int], defense: int
    ) -> _Record | None:
        setting, attack, budget = spot
        systems = (UNDEFENDED, self.defenses[defense])
        clean = [self.places.get((query_id, setting, "", 0, who)) for who in systems]
        poisoned = [
            self.places.get((query_id, setting, attack, budget, who)) if budget else None
            for who in systems
        ]
        trials = (*clean, *poisoned)
        if all(trial is None for trial in trials):
            return None
        labels = [
            [self._label(trial, rule) for trial in trials] for rule in self.rules
        ]  # fmt: skip
        if defense:
            classes = "".join(map(transition_class, labels))
            harmed = "".join(map(_harm, labels))
        else:
            bare = spot in self.clean_absent
            classes = "".join(attack_class(four[0], four[2], clean_absent=bare) for four in labels)
            harmed = "0" * len(labels)
        disagree = any(len({True, False} & set(column)) > 1 for column in zip(*labels, strict=True))
        flips = disagree or "1" in harmed or bool(set(classes) & set("PJIR"))
        return _Record(
            query_id=query_id, cell=cell, defense=defense, trials=trials, classes=classes,
            harmed=harmed, disagree=disagree,
            urgent=0 if flips else 1 if any(None in four for four in labels) else 2,
        )  # fmt: skip

    def _label(self, trial: TrialRecord | None, rule: str) -> bool | None:
        score = None if trial is None else self.scores.get((trial.key, rule))
        return None if score is None else score.target_positive


def _bounded_records(found: Sequence[_Record]) -> list[_Record]:
    """As many records as a page holds, urgent ones first and evenly over the comparisons."""
    seen: dict[tuple[int, int, int], int] = {}
    turns = []
    for one in found:
        comparison = (one.urgent, one.cell, one.defense)
        turns.append(seen.get(comparison, 0))
        seen[comparison] = turns[-1] + 1
    order = sorted(range(len(found)), key=lambda i: (found[i].urgent, turns[i], i))
    trials: set[str] = set()
    kept = []
    for i in order:
        keys = {trial.key for trial in found[i].trials if trial is not None}
        if len(trials) + len(keys - trials) > MAX_TRIALS:
            break
        trials |= keys
        kept.append(i)
    return [found[i] for i in sorted(kept)]


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


def attack_class(clean: bool | None, poisoned: bool | None, *, clean_absent: bool = False) -> str:
    """Classify the undefended labels of a query, clean and under attack.

    Returns
    -------
    str
        ``I`` induced, ``R`` positive on clean retrieval only, ``+`` positive (in both, where
        the run has clean answers), ``-`` negative, ``x`` a label is missing.
    """
    if poisoned is None or (clean is None and not clean_absent):
        return "x"
    if clean_absent or clean == poisoned:
        return "+" if poisoned else "-"
    return "I" if poisoned else "R"


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
    controls: Controls
    passages: dict[str, int] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    traces: dict[str, int] = field(default_factory=dict)
    contexts: dict[tuple[tuple[Any, ...], ...], int] = field(default_factory=dict)
    trials: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def trial(self, record: TrialRecord | None) -> int | None:
        """Number a trial; ``None`` where it was not run."""
        if record is None:
            return None
        if record.key not in self.numbers:
            self.numbers[record.key] = len(self.trials)
            self.trials.append(self._item(record))
        return self.numbers[record.key]

    def _item(self, record: TrialRecord) -> dict[str, Any]:
        if record.status == "failed":
            return {"e": record.error[:MAX_TEXT]}
        answer = record.answer or ""
        item: dict[str, Any] = {
            "x": self._context(record.context),
            "k": "".join("1" if entry.kept else "0" for entry in record.context),
            "a": self.answers.setdefault(answer, len(self.answers)),
            "l": [letters(self.scores.get((record.key, rule))) for rule in self.rules],
            "s": [spans(self.scores.get((record.key, rule)), answer) for rule in self.rules],
            "n": record.usage.model_calls,
        }
        stances = [self._stance(record, rule) for rule in self.rules]
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

    def _stance(self, record: TrialRecord, rule: str) -> str:
        score = self.scores.get((record.key, rule))
        return "" if score is None else score.stance

    def _context(self, entries: Sequence[ContextEntry]) -> int:
        for entry in entries:
            self.passages.setdefault(entry.id, len(self.passages))
        key = tuple((e.id, _short(e.score), _ORIGINS[e.origin], int(e.gold)) for e in entries)
        return self.contexts.setdefault(key, len(self.contexts))


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


def _harm(labels: Sequence[bool | None]) -> str:
    return "1" if transition_class(labels) != "x" and not labels[0] and labels[1] else "0"
