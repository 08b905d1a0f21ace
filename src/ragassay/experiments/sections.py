"""The parts of a summary beyond the four conditions: evidence, detectors, utility, exposure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ragassay.experiments.detectors import detector_table
from ragassay.experiments.evidence import Answers, Where, evidence_table
from ragassay.experiments.exposure import exposure_rows
from ragassay.experiments.utility import utility_row
from ragassay.store.columns import Trials
from ragassay.types import Query, Target

Members = Mapping[str, Sequence[tuple[Query, Target]]]


def sections(
    resolved: Mapping[str, Any],
    records: Trials,
    queries: Mapping[str, tuple[Query, Target]],
    members: Members,
) -> dict[str, Any]:
    """Analyze what a run recorded beyond its matched answers.

    Parameters
    ----------
    resolved : mapping
        The run's resolved.json.
    records, queries
        The run's trials with their labels, and its questions.
    members : mapping
        The attacked queries of each setting.

    Returns
    -------
    dict
        ``evidence`` (null where no evidence was removed), ``detectors``, ``utility`` and
        ``exposure``; lists are empty where the run has nothing of the kind.
    """
    answers = Answers.of(records)
    settings = resolved["experiment"]
    statistics = {**settings["statistics"], "seed": settings["seed"]}
    confidence = statistics["confidence"]
    scorers, defenses = list(resolved["scorers"]), list(resolved["defenses"])
    attacked: dict[str, set[tuple[str, int]]] = {}
    table = np.column_stack([records.setting.codes, records.attack.codes, records.budget])
    for setting, attack, budget in np.unique(table[table[:, 2] > 0], axis=0).tolist():
        cell = (records.attack.values[attack], budget)
        attacked.setdefault(records.setting.values[setting], set()).add(cell)
    places = [
        Where(setting=setting, attack=attack, budget=budget, defense=defense)
        for setting in members
        for attack, budget in sorted(attacked.get(setting, ()))
        for defense in defenses
    ]
    held_out = [pair for pair in queries.values() if pair[0].split == "utility"]
    return {
        "evidence": _evidence(answers, places, scorers, members, confidence)
        if any(records.control.values) or settings.get("evidence")
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
    controls = answers.trials.controls()
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
