"""Analyzes a control ladder from its run folder: what each filter misses on each rung, and why.

Source: "Ranking is not judgment", sections V and VI: the reporting protocol.

Deviations: a filter that is not trained is judged on all questions, a trained scorer on the
evaluation part of each seed, pooled over seeds. Clusters are questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ragassay.config.ladder import LadderPart, variant_name
from ragassay.construction.profile import CleanLengths, clean_lengths, plain, profile
from ragassay.errors import ConfigError
from ragassay.experiments.aligned import choose_scorers, judge_of, settings_of
from ragassay.experiments.conditions import UNDEFENDED, Cell, Scores
from ragassay.experiments.ladder_figures import Figures
from ragassay.experiments.ladder_records import (
    Edited,
    Judged,
    Variant,
    edited_sets,
    judged_learned,
    judged_trials,
)
from ragassay.experiments.poison import delivery_warnings
from ragassay.experiments.tax import read_facts
from ragassay.stats.decision import UNFALSIFIABLE, tau_d
from ragassay.stats.filter_rates import FilterReport
from ragassay.stats.intervals import COARSE_GROUPS
from ragassay.store import RunFolder
from ragassay.types import Query, TrialRecord

LEARNED = "learned scorer"
REFERENCES = ("length_only", "containment_only")  # floors that read one feature
LENGTHS = "clean_lengths.json"
Place = tuple[str, str, str, str]  # setting, attack, variant, defense


def analyze(store: RunFolder, scorers: Sequence[str] | None = None) -> dict[str, Any]:
    """Analyze a run folder; see :func:`ragassay.experiments.protocols.analyze`."""
    return _Analysis(store, scorers).summary()


class _Analysis:
    def __init__(self, store: RunFolder, scorers: Sequence[str] | None) -> None:
        self.store = store
        self.resolved = store.read_json("resolved.json")
        self.settings: Mapping[str, Any] = self.resolved["experiment"]
        self.ladder: Mapping[str, Any] = self.settings["ladder"]
        self.variants: tuple[Variant, ...] = LadderPart.model_validate(
            dict(self.ladder), strict=False
        ).variants
        self.queries = store.queries()
        self.members = settings_of(self.resolved, self.queries)
        self.records = store.trials()
        self.scores: Scores = store.scores()
        self.edited = edited_sets(body for _, body in store.read("rungs"))
        self.learned = [body for _, body in store.read("learned")]
        self.figures = Figures(self.settings)
        self.trials = _by_place(self.records.values())
        self.asked = scorers
        self.warnings: list[str] = []

    def summary(self) -> dict[str, Any]:
        resolved = self.resolved
        planned = self._planned()
        done = sum(trial.status == "done" for trial in self.records.values())
        failed = sum(trial.status == "failed" for trial in self.records.values())
        scorers = self._scorers()
        profiles = self._profiles()
        rows, decisions, ablation = self._rows(profiles)
        self._warn(rows, decisions)
        return {
            "v": 1,
            "protocol": resolved["protocol"],
            "name": self.settings["name"],
            "headline": resolved["headline"] if resolved["headline"] in scorers else scorers[0],
            "scorers": scorers,
            "settings": list(self.members),
            "attacks": list(resolved["attacks"]),
            "defenses": [name for name in resolved["defenses"] if name != UNDEFENDED],
            "references": [
                part["label"] or part["plugin"] for part in self.settings["defense"]
                if part["plugin"] in REFERENCES
            ],
            "dataset": resolved["dataset"],
            "k": {label: about["k"] for label, about in resolved["settings"].items()},
            "confidence": self.settings["statistics"]["confidence"],
            "draws": self.settings["statistics"]["draws"],
            "trials": {"planned": planned, "done": done, "failed": failed,
                       "missing": planned - done - failed},
            "errors": _errors(self.records.values()),
            "rungs": [
                {"rung": rung, "filler": filler, "variant": variant_name(rung, filler)}
                for rung, filler in self.variants
            ],
            "end_to_end": self._end_to_end(scorers),
            "matched_fpr": self.ladder["matched_fpr"],
            "profiles": profiles,
            "rows": rows,
            "clean": self._clean(),
            "decision": {
                "rho": self.ladder["rho"], "c_a": self.ladder["c_a"],
                "kappa": self.ladder["kappa"], "cells": decisions,
            },
            "ablation": ablation,
            "warnings": [*self.warnings, *delivery_warnings(read_facts(self.store))],
        }  # fmt: skip

    def _planned(self) -> int:
        contexts = sum(map(len, self.members.values()))
        contexts *= 1 + len(self.resolved["attacks"]) * len(self.variants)
        return contexts * len(self.resolved["defenses"])

    def _scorers(self) -> list[str]:
        if not self.ladder["end_to_end"]:
            if self.asked is not None:
                raise ConfigError("no answer was given in this run, so there is nothing to score")
            return list(self.resolved["scorers"])
        return choose_scorers(
            self.resolved, {name for _, name in self.scores}, self.asked, self.store.path
        )

    # -------------------------------------------------------------------------- profiles

    def _profiles(self) -> list[dict[str, Any]]:
        if not (self.store.path / LENGTHS).exists():
            return []
        clean = _read_lengths(self.store)
        questions = {query_id: query.text for query_id, (query, _) in self.queries.items()}
        found = []
        for setting, attack, variant, edited in self._places():
            texts = edited.texts(questions)
            records = [passage["edit"] for _, passage in edited.all()]
            place = {
                "setting": setting, "attack": attack, "rung": variant[0], "filler": variant[1],
                "variant": variant_name(*variant), "crafted": len(records),
                "not_possible": len(records) - len(texts),
                "changed": sum(record["changed"] for record in records),
                "payload_intact": sum(record["payload_intact"] for record in records),
                "reasons": dict(Counter(r["reason"] for r in records if r["reason"])),
            }  # fmt: skip
            if not texts:
                found.append({**place, "profile": None, "saturated": []})
                continue
            made = profile(
                f"{attack}, {place['variant']}", texts, clean, seed=self.settings["seed"],
                confidence=self.settings["statistics"]["confidence"],
            )  # fmt: skip
            shown = plain(made, documents=False)
            found.append({**place, "profile": shown, "saturated": shown["saturated"]})
        return found

    def _places(self) -> list[tuple[str, str, Variant, Edited]]:
        return [
            (setting, attack, variant, edited)
            for setting in self.members
            for attack in self.resolved["attacks"]
            for variant in self.variants
            if (edited := self.edited.get((self._arm(setting), attack, variant))) is not None
        ]

    def _arm(self, setting: str) -> str:
        about = self.resolved["settings"][setting]
        return f"{about['retriever']}:k{about['k']}"

    # ------------------------------------------------------------------------------ rows

    def _rows(
        self, profiles: Sequence[Mapping[str, Any]]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
        cues = {(p["setting"], p["attack"], p["variant"]): p["saturated"] for p in profiles}
        first: dict[tuple[str, str, str], tuple[Judged, FilterReport]] = {}
        rows: list[dict[str, Any]] = []
        decisions: list[dict[str, Any]] = []
        ablation: list[dict[str, Any]] = []
        for setting, attack, variant, edited in self._places():
            named = variant_name(*variant)
            for defense in self._judges():
                judged = self._judged(setting, attack, variant, defense)
                if not judged.contexts:
                    continue
                what = (setting, attack, named, defense)
                place = {
                    "setting": setting, "attack": attack, "rung": variant[0],
                    "filler": variant[1], "variant": named, "defense": defense,
                    "learned": defense == LEARNED,
                    "saturated": list(cues.get((setting, attack, named), ())),
                }  # fmt: skip
                report = self.figures.report(judged.candidates(), *what)
                row = {**place, **self.figures.cell(judged, report, edited, *what)}
                base = first.setdefault((setting, attack, defense), (judged, report))
                row["change"] = (
                    None
                    if base[0] is judged
                    else self.figures.changes(base, (judged, report), *what)
                )
                rows.append(row)
                if defense == LEARNED:
                    decisions.append({
                        **place, "queries": len(judged.contexts), **self.figures.decision(judged)
                    })  # fmt: skip
            ablation += self._ablation(setting, attack, variant)
        return rows, decisions, ablation

    def _judges(self) -> list[str]:
        names = [name for name in self.resolved["defenses"] if name != UNDEFENDED]
        return [*names, LEARNED] if self.learned else names

    def _judged(self, setting: str, attack: str, variant: Variant, defense: str) -> Judged:
        if defense == LEARNED:
            bodies = self._learned(setting, attack, variant, "")
            return judged_learned(bodies, tau_d(self.ladder["rho"]))
        place = setting, attack, variant_name(*variant), defense
        return judged_trials(self.trials.get(place, ()), self.resolved["settings"][setting]["k"])

    def _learned(
        self, setting: str, attack: str, variant: Variant, drop: str
    ) -> list[Mapping[str, Any]]:
        return [
            body for body in self.learned
            if (body["setting"], body["attack"], (body["rung"], body["filler"]), body["drop"])
            == (setting, attack, variant, drop)
        ]  # fmt: skip

    def _ablation(self, setting: str, attack: str, variant: Variant) -> list[dict[str, Any]]:
        drops = dict.fromkeys(body["drop"] for body in self.learned if body["drop"] != "*")
        found = []
        for drop in drops if len(drops) > 1 else ():
            bodies = self._learned(setting, attack, variant, drop)
            judged = judged_learned(bodies, tau_d(self.ladder["rho"]))
            if judged.contexts:
                named = variant_name(*variant)
                found.append({
                    "setting": setting, "attack": attack, "variant": named, "drop": drop,
                    **self.figures.ablated(judged, setting, attack, named, "without", drop),
                })  # fmt: skip
        return found

    # -------------------------------------------------------------- clean, and end to end

    def _clean(self) -> list[dict[str, Any]]:
        found = []
        for setting in self.members:
            for defense in self._judges():
                trials = self.trials.get((setting, "", "", defense), ())
                if not trials:
                    continue
                judged = judged_trials(trials, self.resolved["settings"][setting]["k"])
                what = (setting, "clean", defense)
                emptied = [not any(entry.kept for entry in t.context) or t.declined for t in trials]
                found.append({
                    "setting": setting, "defense": defense, "contexts": len(trials),
                    "fpr": self.figures.share(judged.blocked, judged.queries, *what, "fpr"),
                    "emptied": self.figures.share(
                        emptied, [trial.spec.query_id for trial in trials], *what, "emptied"
                    ),
                })  # fmt: skip
        return found

    def _end_to_end(self, scorers: Sequence[str]) -> list[dict[str, Any]]:
        """The four conditions on every rung; the clean ones are shared by all of them."""
        if not self.ladder["end_to_end"]:
            return []
        found = []
        for variant in self.variants:
            named = variant_name(*variant)
            chosen = [t for t in self.records.values() if t.spec.variant in ("", named)]
            judge = judge_of(self.settings, self.members, chosen, self.scores)
            budgets = {
                (t.spec.setting, t.spec.attack): t.spec.budget for t in chosen if t.spec.budget
            }
            found += [
                {"rung": variant[0], "filler": variant[1], "variant": named,
                 **judge.cell(
                     Cell(setting=setting, attack=attack, budget=budget, defense=defense), scorer
                 )}
                for scorer in scorers
                for (setting, attack), budget in sorted(budgets.items())
                for defense in self.resolved["defenses"]
            ]  # fmt: skip
        return found

    # -------------------------------------------------------------------------- warnings

    def _warn(
        self, rows: Sequence[Mapping[str, Any]], decisions: Sequence[Mapping[str, Any]]
    ) -> None:
        asked: dict[str, Query] = {q.id: q for each in self.members.values() for q in each}
        if len(asked) < COARSE_GROUPS:
            self.warnings.append(
                f"Only {len(asked)} questions: the cluster-bootstrap intervals are coarse."
            )
        for reason in dict.fromkeys(body["reason"] for body in self.learned if body["reason"]):
            self.warnings.append(f"No learned scorer: {reason}.")
        told = Counter(
            (trial.spec.defense_label, str(trial.trace["warning"]))
            for trial in self.records.values() if trial.trace.get("warning")
        )  # fmt: skip
        self.warnings += [f"Defense {name!r}: {text}." for name, text in told]
        for row in rows:
            if row["closes_door"]:
                self.warnings.append(
                    f"{row['defense']!r} closes the door on {row['attack']!r}, {row['variant']}: "
                    f"it misses nothing and blocks {row['fpr']['value']:.0%} of what is clean."
                )
        self.warnings += [
            f"{each['attack']}, {each['variant']}: {UNFALSIFIABLE} (no candidate lies where a "
            "trust factor could change its action)."
            for each in decisions if each["in_band"]["n"] and not each["in_band"]["count"]
        ]  # fmt: skip


def _by_place(records: Any) -> dict[Place, list[TrialRecord]]:
    found: dict[Place, list[TrialRecord]] = {}
    for record in sorted(records, key=lambda each: each.spec.query_id):
        spec = record.spec
        if record.status == "done":
            place = spec.setting, spec.attack, spec.variant, spec.defense_label
            found.setdefault(place, []).append(record)
    return found


def _errors(records: Any) -> list[dict[str, Any]]:
    counts = Counter(record.error for record in records if record.status == "failed")
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"error": error, "trials": count} for error, count in ordered[:20]]


def _read_lengths(store: RunFolder) -> CleanLengths:
    pairs = np.array(store.read_json(LENGTHS)["words_and_passages"], dtype=np.int64)
    return clean_lengths(np.repeat(pairs[:, 0], pairs[:, 1]))
