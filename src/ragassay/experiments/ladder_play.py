"""Plays the control ladder: poison edited for each rung, retrieved again, and given to all filters.

Every edit is checked, embedded and ranked again, and every defense sees the new context. The
victim is asked only where the experiment wants the effect on answers (``end_to_end``).

Source: "Ranking is not judgment", sections III-C and V.

Deviations: the unedited texts are a rung like all others, with ids of their own. An attack enters
with the largest of the budgets, or with what it delivers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ragassay import canon
from ragassay.config.ladder import LadderPart, variant_name
from ragassay.construction.filler import FillerPool, filler_pool
from ragassay.construction.ladder import Edit, Ladder, edit_set
from ragassay.construction.profile import CleanLengths, lengths_of
from ragassay.construction.texts import CleanText
from ragassay.errors import ConfigError
from ragassay.experiments.context import Context, Contexts, Ready, retrieve
from ragassay.experiments.ladder_learned import learn
from ragassay.experiments.plan import Stage
from ragassay.experiments.session import Session
from ragassay.experiments.setup import Setting, Setup
from ragassay.experiments.trial import Job
from ragassay.types import PoisonSet, Query

LENGTHS = "clean_lengths.json"
Sets = Mapping[tuple[str, str], PoisonSet]
Variant = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """The edited poison and the contexts of one arm, by rung and filler."""

    part: LadderPart
    cells: tuple[tuple[str, int], ...]
    contexts: Mapping[Variant, Contexts]


def play(session: Session) -> None:
    """Run every trial of the protocol; what the run folder holds is not run again."""
    setup, monitor = session.setup, session.monitor
    part = ladder_part(setup)
    crafted = session.craft()
    cells = ladder_cells(setup, crafted)
    cut = {
        (attack, query): _cut(poison, dict(cells)[attack])
        for (attack, query), poison in crafted.items()
    }
    lengths = lengths_of(passage.text for passage in setup.dataset.corpus)
    _write_lengths(session, lengths)
    pool = filler_pool(CleanText(each.id, each.text) for each in setup.dataset.corpus)
    climbs: dict[str, Climb] = {}
    for setting in setup.settings:
        arm = setting.arm
        if arm.title not in climbs:
            climbs[arm.title] = _climb(session, setting, cut, cells, lengths, pool)
        climb = climbs[arm.title]
        named = f" ({setting.label})" if setting.label else ""
        first = climb.contexts[part.variants[0]]
        monitor.stage(f"calibrating{named}")
        ready = session.calibrated(setting, first.clean)
        monitor.stage(f"screening rungs{named}")
        session.run(list(_jobs(session.setup, setting, climb, ready)), setting)
        if part.learned:
            monitor.stage(f"training scorers{named}")
            learn(session, setting, part, cells, climb.contexts)


def ladder_part(setup: Setup) -> LadderPart:
    """The settings of the ladder.

    Raises
    ------
    ConfigError
        There are none.
    """
    part = setup.experiment.file.ladder
    if part is None:
        raise ConfigError("protocol = 'ladder' needs the table [ladder]")
    return part


def ladder_cells(setup: Setup, sets: Sets) -> tuple[tuple[str, int], ...]:
    """Every attack with the largest budget, or with the most that it delivers for a question.

    Raises
    ------
    ConfigError
        An attack delivers nothing.
    """
    largest = max(setup.experiment.file.budgets)
    cells = []
    for attack in setup.attacks:
        most = max(len(sets[attack.title, query.id].passages) for query in setup.evaluated)
        if not most:
            raise ConfigError(f"attack {attack.title!r} delivers no passage for any question")
        cells.append((attack.title, min(largest, most)))
    return tuple(cells)


# ------------------------------------------------------------------------------ the edits


def _climb(
    session: Session,
    setting: Setting,
    sets: Sets,
    cells: tuple[tuple[str, int], ...],
    lengths: CleanLengths,
    pool: FillerPool,
) -> Climb:
    setup, arm, monitor = session.setup, setting.arm, session.monitor
    part, index = ladder_part(setup), session.index(arm)
    monitor.stage("editing the poison")
    found = dict(
        zip([q.id for q in setup.evaluated], index.search(setup.evaluated, arm.k), strict=True)
    )
    contexts = {}
    for number, (rung, filler) in enumerate(part.variants):
        ladder = Ladder(
            lengths=lengths, pool=pool, seed=setup.experiment.file.seed,
            filler=filler or part.fillers[0],  # type: ignore[arg-type]
        )  # fmt: skip
        edited, records = _edited(
            setup, f"{arm.retriever.identity}:k{arm.k}", ladder, (rung, filler), sets, found
        )
        _keep(session, records)
        contexts[rung, filler] = retrieve(setup, arm, index, edited, cells)
        monitor.progress(number + 1, len(part.variants))
    return Climb(part=part, cells=cells, contexts=contexts)


def _edited(
    setup: Setup,
    arm: str,
    ladder: Ladder,
    variant: Variant,
    sets: Sets,
    found: Mapping[str, Context],
) -> tuple[dict[tuple[str, str], PoisonSet], list[tuple[str, dict[str, Any]]]]:
    """Edit every set for a rung; the sets with what could be edited, and a record of each."""
    questions: dict[str, Query] = {query.id: query for query in setup.evaluated}
    rung, filler = variant
    edited: dict[tuple[str, str], PoisonSet] = {}
    records = []
    for (attack, query_id), poison in sets.items():
        made, edits = edit_set(
            ladder, poison, rung,  # type: ignore[arg-type]
            question=questions[query_id].text,
            references=setup.dataset.targets[query_id].references,
            retrieved=[CleanText(hit.passage.id, hit.passage.text) for hit in found[query_id]],
        )  # fmt: skip
        edited[attack, query_id] = made
        body = {
            "arm": arm, "attack": attack, "query_id": query_id, "rung": rung, "filler": filler,
            "passages": list(_passages(poison, made, edits)),
        }  # fmt: skip
        records.append((canon.digest(body), body))
    return edited, records


def _passages(
    before: PoisonSet, after: PoisonSet, edits: Sequence[Edit]
) -> Iterator[dict[str, Any]]:
    made = iter(after.passages)
    for number, (source, edit) in enumerate(zip(before.passages, edits, strict=True)):
        yield {
            "number": number,
            "source": source.id,
            "id": next(made).id if edit.possible else "",
            "text": edit.text if edit.text is not None else "",
            "edit": edit.record(),
        }


def _keep(session: Session, records: Sequence[tuple[str, dict[str, Any]]]) -> None:
    known = session.folder.keys("rungs")
    session.folder.append_many("rungs", [(k, body) for k, body in records if k not in known])


def _cut(poison: PoisonSet, budget: int) -> PoisonSet:
    return replace(poison, passages=poison.passages[:budget], details=poison.details[:budget])


def _write_lengths(session: Session, lengths: CleanLengths) -> None:
    words, counts = np.unique(lengths.counts, return_counts=True)
    pairs = [[int(w), int(n)] for w, n in zip(words, counts, strict=True)]
    session.folder.write_text(LENGTHS, canon.dumps({"words_and_passages": pairs}) + "\n")


# ------------------------------------------------------------------------------ the trials


def _jobs(
    setup: Setup, setting: Setting, climb: Climb, ready: Mapping[tuple[str, str], Ready]
) -> Iterator[Job]:
    """Clean contexts once, and those of every attack on every rung, for every defense."""
    for number, ((rung, filler), contexts) in enumerate(climb.contexts.items()):
        stage = Stage(setup=setup, setting=setting, contexts=contexts, ready=ready)
        for job in stage.jobs():
            if job.spec.budget:
                yield _marked(job, climb.part, variant_name(rung, filler))
            elif not number:
                yield _marked(job, climb.part, "")


def _marked(job: Job, part: LadderPart, variant: str) -> Job:
    spec = replace(job.spec, variant=variant)
    return replace(job, key=canon.digest(spec), spec=spec, screen=not part.end_to_end)
