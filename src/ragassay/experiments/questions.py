"""Which questions of a data set a run asks: attacked, only answered, or left for calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ragassay.canon import rng_for
from ragassay.config import ExperimentFile
from ragassay.errors import ConfigError
from ragassay.matching import has_content, normalize_question
from ragassay.types import Dataset, Query


def evaluated_questions(file: ExperimentFile, dataset: Dataset) -> tuple[Query, ...]:
    """The questions of a run: those with an attacker's target; for a dose those with an answer.

    Raises
    ------
    ConfigError
        There is none.
    """
    if file.dose is not None:
        return answerable(file, dataset)
    evaluated = tuple(
        query
        for query in dataset.queries
        if query.id in dataset.targets and dataset.targets[query.id].wanted
    )
    if not evaluated:
        raise ConfigError(
            f"no question of the data set {dataset.name!r} has an attacker's target; "
            "name a file of targets ([dataset] targets = ...)"
        )
    return evaluated


def answerable(file: ExperimentFile, dataset: Dataset) -> tuple[Query, ...]:
    """Draw the questions of a dose run: those with an accepted answer, in the data set's order.

    Raises
    ------
    ConfigError
        There is no such question, or ``contexts = "gold"`` meets one without a supporting
        passage and no other is left.
    """
    part = file.dose
    if part is None:
        raise ConfigError("the experiment has no [dose]")
    known = [
        query
        for query in dataset.queries
        if any(has_content(form) for form in dataset.targets[query.id].references)
        and (part.contexts == "retrieved" or dataset.targets[query.id].gold_ids)
    ]
    if not known:
        lacking = "an accepted answer"
        if part.contexts == "gold":
            lacking += " and a supporting passage (dose.contexts = 'gold')"
        raise ConfigError(f"no question of the data set {dataset.name!r} has {lacking}")
    if not part.queries:
        return tuple(known)
    rng = rng_for(file.seed, "dose questions", dataset.fingerprint)
    chosen = sorted(rng.permutation(len(known))[: part.queries].tolist())
    return tuple(known[i] for i in chosen)


def held_out(
    file: ExperimentFile, dataset: Dataset, evaluated: Sequence[Query]
) -> tuple[Query, ...]:
    """Draw the questions that measure clean utility: never attacked, with a known answer."""
    part = file.utility
    if part is None:
        return ()
    spare = [
        query for query in spare_queries(dataset, evaluated)
        if query.id in dataset.targets and dataset.targets[query.id].references
    ]  # fmt: skip
    if not spare:
        raise ConfigError(
            f"[utility] needs questions with a reference answer that are not attacked; the data "
            f"set {dataset.name!r} has none (a share of the attacked ones can be spared by "
            "leaving them out of its targets)"
        )
    rng = rng_for(file.seed, "utility", dataset.fingerprint)
    chosen = sorted(rng.permutation(len(spare))[: part.queries].tolist())
    return tuple(replace(spare[i], split="utility") for i in chosen)


def spare_queries(dataset: Dataset, evaluated: Sequence[Query]) -> list[Query]:
    """Questions that equal no evaluated one, by id and by normalized question."""
    tested = {query.id for query in evaluated}
    asked = {normalize_question(query.text) for query in evaluated}
    return [
        query
        for query in dataset.queries
        if query.id not in tested and normalize_question(query.text) not in asked
    ]
