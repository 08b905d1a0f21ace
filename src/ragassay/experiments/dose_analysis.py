"""Dose and response: what tampering with retrieved passages does, from the records alone.

Source: "In RAG We Trust?" (Fasolino, 2026), sections III to VII. A run is a tampered answer
beside the clean answer to the same question (and draw). Fooled is clean-correct and
tampered-incorrect, over the clean-correct runs; adopted is tested against the edits applied.
Doses are those applied; requested ones stand beside them. Intervals resample distinct question
texts.

The summary is a function of the run folder alone: the same records give the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ragassay.canon import to_plain
from ragassay.experiments.aligned import choose_scorers
from ragassay.experiments.conditions import UNDEFENDED
from ragassay.experiments.dose_figures import (
    Draws,
    Figure,
    deliveries,
    four,
    modeled,
    noise,
    overall,
    points,
    rated,
    rule_contrasts,
)
from ragassay.experiments.dose_rows import Answer, DoseRecords, Rows, System, delivered, runs_of
from ragassay.experiments.dose_warnings import warnings_of
from ragassay.stats.dose import Runs, rate
from ragassay.stats.effective_dose import ed50
from ragassay.stats.paired import mcnemar_exact
from ragassay.store import RunFolder

CONTROLS = ("clean", "zero_dose", "closed_book", "irrelevant")
ALL_RULES = ""
WITHDRAWN = (
    "Word overlap below 0.3 between answer and passages, over answers that commit. The paper "
    "withdrew this measure: it takes every abstention as supported, and is blind to adoption."
)


def analyze(store: RunFolder, scorers: Sequence[str] | None = None) -> dict[str, Any]:
    """Analyze a run folder; see :func:`ragassay.experiments.protocols.analyze`."""
    resolved = store.read_json("resolved.json")
    settings = resolved["experiment"]
    chosen = choose_scorers(resolved, {name for _, name in store.scores()}, scorers, store.path)
    headline = resolved["headline"] if resolved["headline"] in chosen else chosen[0]
    records = DoseRecords.read(store, [resolved["headline"], *chosen], _rules(resolved))
    draws = Draws(
        seed=settings["seed"],
        draws=settings["statistics"]["draws"],
        confidence=settings["statistics"]["confidence"],
    )
    systems = [
        (setting, defense) for setting in resolved["settings"] for defense in resolved["defenses"]
    ]
    every = [answer for each in records.answers.values() for answer in each.values()]
    status = Counter(answer.status for answer in every)
    parts = [_Analyst(records, draws, scorer, system) for scorer in chosen for system in systems]
    found: dict[str, list[Figure]] = {
        "delivery": _delivery(records, draws, resolved),
        "response": [row for part in parts for row in part.response()],
        "contrasts": [row for part in parts for row in part.contrasts()],
        "arms": [row for part in parts for row in part.arms()],
        "tests": [row for part in parts for row in part.tests()],
        "noise": [row for part in parts for row in part.noise()],
        "knowledge": [row for part in parts for row in part.knowledge()],
        "four": [row for part in parts for row in part.four()],
        "withdrawn": [row for part in parts for row in part.withdrawn()],
    }
    part = settings["dose"]
    summary: dict[str, Any] = {
        "v": 1,
        "protocol": resolved["protocol"],
        "name": settings["name"],
        "headline": headline,
        "scorers": chosen,
        "settings": list(resolved["settings"]),
        "defenses": [name for name in resolved["defenses"] if name != UNDEFENDED],
        "rules": list(records.rules),
        "dataset": resolved["dataset"],
        "k": sorted({about["k"] for about in resolved["settings"].values()}),
        "confidence": draws.confidence,
        "draws": draws.draws,
        "tampering": {key: part[key] for key in ("doses", "draws", "choose", "contexts")},
        "instructions": {arm: about["digest"] for arm, about in resolved["instructions"].items()},
        "adoption_by": records.adoption_by or None,
        "questions": len({answer.edits.query_id for answer in every}),
        "groups": len({answer.group for answer in every}),
        "trials": {"planned": len(every), "done": status["done"], "failed": status["failed"],
                   "missing": status["missing"]},
        "errors": _errors(store),
        "withdrawn_measure": WITHDRAWN,
        **found,
    }  # fmt: skip
    summary["warnings"] = warnings_of(summary, resolved)
    return summary


def _delivery(records: DoseRecords, draws: Draws, resolved: Any) -> list[Figure]:
    """Requested against applied for each setting and rule; defenses see the same passages."""
    return [
        {"setting": setting, "rule": rule, **row}
        for setting in resolved["settings"]
        for rule in records.rules
        for answers in [
            [a for a in records.arm((setting, UNDEFENDED), "tampered") if a.edits.rule == rule]
        ]
        for row in deliveries(delivered(answers), draws.of("delivery", setting, rule))
    ]


def _rules(resolved: Any) -> list[str]:
    """Titles of the rules in the order of the experiment file."""
    named = [
        rule["label"] or rule["plugin"].rpartition(":")[2]
        for rule in resolved["experiment"]["dose"]["rules"]
    ]
    return [rule for rule in named if rule in resolved["rules"]]


def _errors(store: RunFolder) -> list[Figure]:
    counts = Counter(t.error for t in store.trials().values() if t.status == "failed")
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"error": error, "trials": count} for error, count in ordered[:20]]


class _Analyst:
    """Makes the figures of one system (setting and defense) under one scorer."""

    def __init__(
        self,
        records: DoseRecords,
        draws: Draws,
        scorer: str,
        system: System,
    ) -> None:
        self.records, self.draws, self.scorer, self.system = records, draws, scorer, system
        self.rows: Rows = records.rows(system, scorer)
        self.rules = [answer.edits.rule for answer in self.rows.answers]
        self.adoption = bool(records.adoption_by)
        self.place: Figure = {"scorer": scorer, "setting": system[0], "defense": system[1]}

    def _label(self, answer: Answer | None, name: str) -> bool | None:
        return self.records.label(answer, self.scorer, name)

    def _how(self, *place: Any) -> Any:
        return self.draws.of(self.scorer, *self.system, *place)

    # ------------------------------------------------------------------ dose and response

    def response(self) -> list[Figure]:
        """By rule and over all rules: outcomes by applied dose, and the model."""
        found = []
        zero = self._zero_runs()
        for rule in (ALL_RULES, *self.records.rules):
            mask = self.rows.mask(rule in (ALL_RULES, one) for one in self.rules)
            runs = self.rows.runs.where(mask)
            how = self._how("response", rule)
            found.append(
                {
                    **self.place,
                    "rule": rule,
                    "n": len(runs),
                    "dropped": dict(self.rows.dropped) if rule == ALL_RULES else None,
                    "points": points(runs, how, adoption=self.adoption),
                    "tampered": overall(runs, how, adoption=self.adoption),
                    "model": modeled(
                        runs, zero, self.draws, (self.scorer, *self.system, "model", rule)
                    ),
                }
            )
        return found

    def _zero_runs(self) -> Runs:
        """The zero-dose arm as runs at dose 0."""
        kept, labels = [], []
        for answer in self.records.arm(self.system, "zero_dose"):
            clean = self.records.partner(self.system, answer, "clean")
            four = (
                self._label(clean, "correct"), self._label(answer, "correct"), False,
                self._label(answer, "abstained"),
            )  # fmt: skip
            if all(value is not None for value in four):
                kept.append(answer)
                labels.append(tuple(bool(value) for value in four))
        return runs_of(kept, labels)  # type: ignore[arg-type]

    def contrasts(self) -> list[Figure]:
        """Rules against one another."""
        place = (self.scorer, *self.system, "contrast")
        return [
            {**self.place, **row}
            for row in rule_contrasts(
                self.rules, self.rows.runs, self.draws, place, adoption=self.adoption
            )
        ]

    # --------------------------------------------------------------------------- controls

    def arms(self) -> list[Figure]:
        """Each control arm by itself: correct, abstained, wrong."""
        found = []
        for arm in CONTROLS:
            answers = self.records.arm(self.system, arm)
            if not answers:
                continue
            known = [
                (answer.group, correct, abstained)
                for answer in answers
                if (correct := self._label(answer, "correct")) is not None
                and (abstained := self._label(answer, "abstained")) is not None
            ]
            groups = [group for group, _, _ in known]
            right = self.rows.mask(correct for _, correct, _ in known)
            none = self.rows.mask(abstained for _, _, abstained in known)
            how = self._how("arm", arm)
            found.append(
                {
                    **self.place,
                    "arm": arm,
                    "planned": len(answers),
                    "n": len(known),
                    "instruction": answers[0].edits.instruction,
                    "correct": rated(rate(right & ~none, groups, how)),
                    "abstained": rated(rate(none, groups, how)),
                    "wrong": rated(rate(~right & ~none, groups, how)),
                }
            )
        return found

    def tests(self) -> list[Figure]:
        """Exact McNemar tests of correctness between arms, over runs."""
        found = []
        for arm in CONTROLS[1:]:
            pairs = [
                (self.records.partner(self.system, answer, "clean"), answer)
                for answer in self.records.arm(self.system, arm)
            ]
            found += self._test("clean", arm, "", 0, pairs)
        cells: dict[tuple[str, int], list[tuple[Answer | None, Answer]]] = {}
        for answer in self.rows.answers:
            place = answer.edits.rule, answer.edits.requested
            clean = self.records.partner(self.system, answer, "clean")
            cells.setdefault(place, []).append((clean, answer))
        for (rule, dose), pairs in sorted(cells.items()):
            found += self._test("clean", "tampered", rule, dose, pairs)
        return found

    def _test(
        self, first: str, second: str, rule: str, dose: int,
        pairs: Sequence[tuple[Answer | None, Answer]],
    ) -> list[Figure]:  # fmt: skip
        labels = [(self._label(a, "correct"), self._label(b, "correct")) for a, b in pairs]
        known = [(bool(a), bool(b)) for a, b in labels if a is not None and b is not None]
        if not known:
            return []
        before, after = (self.rows.mask(pair[i] for pair in known) for i in (0, 1))
        return [
            {
                **self.place, "first": first, "second": second, "rule": rule, "requested": dose,
                "n": len(known), "correct_first": int(before.sum()),
                "correct_second": int(after.sum()), **to_plain(mcnemar_exact(before, after)),
            }
        ]  # fmt: skip

    def noise(self) -> list[Figure]:
        """Two generations of the clean prompt."""
        pairs = []
        for answer in self.records.arm(self.system, "zero_dose"):
            clean = self.records.partner(self.system, answer, "clean")
            labels = self._label(clean, "correct"), self._label(answer, "correct")
            if clean is not None and None not in labels:
                pairs.append((clean, answer, *labels))
        if not pairs:
            return []
        correct, again = (self.rows.mask(bool(pair[i]) for pair in pairs) for i in (2, 3))
        first = self.rows.mask(a.edits.order < b.edits.order for a, b, _, _ in pairs)
        texts = [(_text(a), _text(b)) for a, b, _, _ in pairs]
        base = [i for i in range(len(pairs)) if correct[i]]
        fooled = rate(
            ~again[base], [pairs[i][1].group for i in base], self._how("zero-dose fooled")
        )
        told = noise(texts, correct, again, first, self.draws.confidence)
        return [{**self.place, **told, "fooled": rated(fooled)}]

    # ---------------------------------------------------------------- knowledge, defenses

    def knowledge(self) -> list[Figure]:
        """Questions that the victim answers without passages, and those that it does not."""
        found = []
        for known in (True, False):
            mask = self.rows.mask(value is known for value in self.rows.known)
            runs = self.rows.runs.where(mask)
            if not len(runs):
                continue
            base = runs.where(runs.clean_correct)
            place = ("knowledge", known)
            half = ed50(base.applied, base.fooled, base.groups, self._how(*place, "ed50"))
            found.append(
                {
                    **self.place,
                    "known": known,
                    "questions": len(set(runs.groups)),
                    "n": len(runs),
                    "points": points(runs, self._how(*place), adoption=self.adoption),
                    "tampered": overall(runs, self._how(*place, "all"), adoption=self.adoption),
                    "ed50": to_plain(half),
                }
            )
        return found

    def four(self) -> list[Figure]:
        """What a defense does by applied dose: four matched answers a run."""
        if self.system[1] == UNDEFENDED:
            return []
        bare = (self.system[0], UNDEFENDED)
        rows = [
            (answer, quadruple)
            for answer in self.rows.answers
            if (quadruple := self._quadruple(bare, answer)) is not None
        ]
        found = []
        for dose in [None, *sorted({a.edits.applied for a, _ in rows if a.edits.applied})]:
            here = [
                (a, q) for a, q in rows
                if (a.edits.applied > 0 if dose is None else a.edits.applied == dose)
            ]  # fmt: skip
            if not here:
                continue
            groups = [a.group for a, _ in here]
            for event, index in (("incorrect", 0), ("adopted", 1)):
                if event == "adopted" and not self.adoption:
                    continue
                labels = [self.rows.mask(q[index][i] for _, q in here) for i in range(4)]
                found.append(
                    {
                        **self.place, "dose": dose, "event": event, "n": len(here),
                        "groups": len(set(groups)),
                        **four(labels, groups, self._how("four", dose, event)),
                    }
                )  # fmt: skip
        return found

    def _quadruple(
        self, bare: System, answer: Answer
    ) -> tuple[tuple[bool, ...], tuple[bool, ...]] | None:
        """Whether c0, c1, p0 and p1 are incorrect, and whether they adopt an edit.

        A clean answer has no edit to adopt.
        """
        other = self.records.answers.get(bare, {}).get(answer.spot)
        if other is None:
            return None
        places = [
            self.records.partner(bare, answer, "clean"),
            self.records.partner(self.system, answer, "clean"),
            other,
            answer,
        ]
        correct = [self._label(each, "correct") for each in places]
        reads = [self.records.adoption(each) for each in places[2:]]
        if None in correct or (self.adoption and None in reads):
            return None
        adopted = [bool(each.target_positive) if each else False for each in reads]
        return tuple(not value for value in correct), (False, False, *adopted)

    def withdrawn(self) -> list[Figure]:
        """The paper's withdrawn measure, over answers that commit, by applied dose."""
        runs, found = self.rows.runs, []
        for dose in np.unique(runs.applied):
            told = [
                (low, group)
                for low, group, at, abstained in zip(
                    self.rows.low_overlap, runs.groups, runs.applied, runs.abstained, strict=True
                )
                if at == dose and not abstained and low is not None
            ]
            low = self.rows.mask(value for value, _ in told)
            figure = rate(low, [group for _, group in told], self._how("withdrawn", int(dose)))
            found.append({**self.place, "dose": int(dose), "low_overlap": rated(figure)})
        return found


def _text(answer: Answer) -> str:
    trial = answer.trial
    return "" if trial is None else trial.answer or ""
