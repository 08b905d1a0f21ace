"""The parts of a summary beyond the four conditions: evidence, detectors, utility, exposure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.experiments.detectors import detector_table
from ragassay.experiments.evidence import Answers, Where, evidence_table
from ragassay.experiments.exposure import exposure_rows
from ragassay.experiments.utility import utility_row
from ragassay.types import Query, ScoreRecord, Target, TrialRecord

Members = Mapping[str, Sequence[tuple[Query, Target]]]


def sections(
    resolved: Mapping[str, Any],
    records: Sequence[TrialRecord],
    scores: Mapping[tuple[str, str], ScoreRecord],
    queries: Mapping[str, tuple[Query, Target]],
    members: Members,
) -> dict[str, Any]:
    """Analyze what a run recorded beyond its matched answers.

    Parameters
    ----------
    resolved : mapping
        The run's resolved.json.
    records, scores, queries
        The run's streams.
    members : mapping
        The attacked queries of each setting.

    Returns
    -------
    dict
        ``evidence`` (null where no evidence was removed), ``detectors``, ``utility`` and
        ``exposure``; lists are empty where the run has nothing of the kind.
    """
    answers = Answers.of(records, scores)
    settings = resolved["experiment"]
    statistics = {**settings["statistics"], "seed": settings["seed"]}
    confidence = statistics["confidence"]
    scorers, defenses = list(resolved["scorers"]), list(resolved["defenses"])
    attacked: dict[str, set[tuple[str, int]]] = {}
    for record in records:
        if record.spec.budget:
            cell = (record.spec.attack, record.spec.budget)
            attacked.setdefault(record.spec.setting, set()).add(cell)
    places = [
        Where(setting=setting, attack=attack, budget=budget, defense=defense)
        for setting in members
        for attack, budget in sorted(attacked.get(setting, ()))
        for defense in defenses
    ]
    held_out = [pair for pair in queries.values() if pair[0].split == "utility"]
    return {
        "evidence": _evidence(answers, places, scorers, members, confidence)
        if any(record.spec.control for record in records) or settings.get("evidence")
        else None,
        "detectors": [
            row
            for scorer in scorers
            for setting in members
            for defense in defenses
            for row in detector_table(
                answers,
                (setting, defense, scorer),
                sorted(attacked.get(setting, ())),
                [query for query, _ in members[setting]],
                [query for query, _ in held_out],
                confidence=confidence,
            )
        ],
        "utility": [
            utility_row(answers, (setting, defense), held_out, scorers, statistics)
            for setting in members
            for defense in defenses
        ]
        if held_out
        else [],
        "exposure": [
            {"scorer": scorer, "setting": where.setting, "attack": where.attack,
             "budget": where.budget, "defense": where.defense, "strata": strata}
            for scorer in scorers
            for where in places
            if (strata := exposure_rows(
                answers, where, scorer, members[where.setting], confidence=confidence))
        ],
    }  # fmt: skip


def _evidence(
    answers: Answers,
    places: Sequence[Where],
    scorers: Sequence[str],
    members: Members,
    confidence: float,
) -> dict[str, Any]:
    controls = [trial for place, trial in answers.trials.items() if place[-1]]
    return {
        "trials": {
            "controls": len(controls),
            "failed": sum(trial.status == "failed" for trial in controls),
        },
        "cells": evidence_table(
            answers,
            [(where, scorer) for scorer in scorers for where in places],
            members.__getitem__,
            confidence=confidence,
        ),
    }
