"""Labels the answers of a run folder: what is missing, each distinct answer once, in batches.

A label is kept with the identity of the scorer that gave it (``provenance.identity``). A trial
is labeled again where it has no label of that title and identity. When the identity behind a
title changes, the old labels are first withdrawn by records that say "not scored yet", so that
at no moment, also not after a kill, labels of two scorers stand under one title.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ragassay import canon
from ragassay.cluster.pool import Pool
from ragassay.errors import StoreError, TooManyFailures
from ragassay.experiments.asking import Asker, asking
from ragassay.experiments.setup import Named
from ragassay.experiments.trial import score_key
from ragassay.plugins import Answered, ModelScorer, Scorer
from ragassay.store import RunFolder
from ragassay.types import Query, ScoreRecord, Target

BATCH = 4000  # records of one write
MODEL_BATCH = 512  # distinct answers between two writes, where a model is asked
BEFORE = "before_scoring"  # what resolved.json said of scorers when the run was made
_PENDING = "not scored yet"

Progress = Callable[[int, int], None]


@dataclass(slots=True, kw_only=True)
class Labeled:
    """What one scorer did to a folder.

    ``answers`` are the trials that got a label now, ``kept`` those that had one, ``distinct``
    the different answers behind ``answers``. ``not_scored`` of them have no label at all (no
    usable reply), ``unanswered`` trials wait because the model failed; ``error`` is its last
    failure. ``calls`` were sent, ``cached`` answered by the cache; tokens are of ``calls``.
    """

    title: str
    identity: str
    asks_a_model: bool
    answers: int = 0
    kept: int = 0
    distinct: int = 0
    not_scored: int = 0
    unanswered: int = 0
    calls: int = 0
    cached: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Trials whose answers agree in everything that a label may depend on."""

    answered: Answered
    trials: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Known:
    """A label that is there: whose it is, and whether it was withdrawn."""

    identity: str | None
    pending: bool


@dataclass(frozen=True, slots=True)
class _Task:
    """What one scorer has to do, and what it has done."""

    scorer: Named
    missing: list[Answered]
    result: Labeled


class Labels:
    """The answers of a folder and the labels they have; read once, kept up while labeling."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.resolved = folder.read_json("resolved.json")
        self.answers = _answers(folder)
        self._known = _known(folder)

    def missing(self, scorer: Named) -> list[Answered]:
        """The answers without a label of this scorer."""
        named = self.resolved.get("scorers", {}).get(scorer.title)
        return [
            answered
            for answered in self.answers
            if not self._is_current(answered.trial_key, scorer, named)
        ]

    def _is_current(self, key: str, scorer: Named, named: str | None) -> bool:
        known = self._known.get(scorer.title, {}).get(key)
        if known is None or known.pending:
            return False
        return (known.identity or named) == scorer.identity

    def withdraw(self, scorer: Named, missing: Sequence[Answered]) -> None:
        """Replace what another scorer left under this title by "not scored yet"."""
        title = scorer.title
        stale = [
            answered.trial_key
            for answered in missing
            if (known := self._known.get(title, {}).get(answered.trial_key)) is not None
            and not known.pending
        ]
        record = _withdrawn(scorer)
        for start in range(0, len(stale), BATCH):
            self.folder.append_many(
                "scores",
                [(key, replace(record, trial_key=key)) for key in stale[start : start + BATCH]],
            )

    def register(self, scorers: Sequence[Named], headline: str = "") -> None:
        """Write the scorers' identities, and the headline if given, into resolved.json."""
        resolved = dict(self.resolved)
        there = {name: resolved.get(name) for name in ("scorers", "headline")}
        named = {**(there["scorers"] or {}), **{each.title: each.identity for each in scorers}}
        headline = headline or there["headline"] or scorers[0].title
        if there == {"scorers": named, "headline": headline}:
            return
        resolved.setdefault(BEFORE, there)
        resolved.update(scorers=named, headline=headline)
        self.folder.write_text("resolved.json", canon.dumps(resolved) + "\n")
        self.resolved = resolved


def label(
    folder: RunFolder,
    scorers: Sequence[Named],
    *,
    cache: Path,
    headline: str = "",
    workers: int = 0,
    progress: Progress = lambda done, total: None,
    pool: Pool | None = None,
) -> list[Labeled]:
    """Label every answer of a folder that lacks a label; the folder must be held for writing.

    Parameters
    ----------
    folder : RunFolder
        Held by :meth:`RunFolder.writer`.
    scorers : sequence of Named
        Built scorers; their titles are distinct.
    cache : Path
        The folder of the generation cache.
    headline : str
        The scorer that leads the report from now on; empty: as it is.
    workers : int
        Threads that ask a model; 0 chooses by the model.
    pool : Pool, optional
        Workers that models run on, where they run in a process.

    Returns
    -------
    list of Labeled
        One for each scorer, in order. A model that fails ends its scorer early: see
        :func:`insist`.
    """
    labels = Labels(folder)
    tasks = []
    for scorer in scorers:
        missing = labels.missing(scorer)
        labels.withdraw(scorer, missing)
        result = Labeled(
            title=scorer.title,
            identity=scorer.identity,
            asks_a_model=isinstance(scorer.instance, ModelScorer),
            kept=len(labels.answers) - len(missing),
        )
        tasks.append(_Task(scorer, missing, result))
    labels.register(scorers, headline)
    _read_all(folder, [task for task in tasks if not task.result.asks_a_model], progress)
    for task in tasks:
        if task.result.asks_a_model and task.missing:
            start = time.perf_counter()
            _ask_about(folder, task, asking(task.scorer, cache, workers, pool), progress)
            task.result.seconds = round(time.perf_counter() - start, 3)
    return [task.result for task in tasks]


def insist(results: Iterable[Labeled], folder: Path) -> None:
    """Raise where answers wait because a model failed.

    Raises
    ------
    TooManyFailures
        With the number of answers that wait; all labels that came are kept.
    """
    for result in results:
        if result.unanswered:
            raise TooManyFailures(
                f"{result.title}: {result.unanswered} answers are not labeled, because the model "
                f"failed: {result.error}. {result.answers} were labeled and are kept; the same "
                "command goes on from there",
                folder=folder,
            )


def distinct_contents(answers: Iterable[Answered]) -> list[Group]:
    """Group answers by what a judge sees, across queries and conditions, in a random order.

    The order derives from the contents alone; it tells nothing of methods or conditions.
    """
    groups: dict[str, Group] = {}
    for each in answers:
        key = canon.content_key(
            question=each.query.text,
            wanted=each.target.wanted,
            references=each.target.references,
            answer=each.answer,
        ) + ("-" if each.declined else "")
        groups.setdefault(key, Group(each)).trials.append(each.trial_key)
    keys = sorted(groups)
    order = canon.rng_for("labeling order", len(keys), keys[:1]).permutation(len(keys))
    return [groups[keys[i]] for i in order]


# --------------------------------------------------------------------------------- labeling


def _read_all(folder: RunFolder, tasks: Sequence[_Task], tell: Progress) -> None:
    """Label with scorers that read answers themselves, each answer by all of them at once."""
    wanted = [({each.trial_key for each in task.missing}, task) for task in tasks]
    groups: dict[tuple[str, tuple[str, ...], str, bool], Group] = {}
    for each in {each.trial_key: each for task in tasks for each in task.missing}.values():
        place = each.query.id, each.target.wanted, each.answer, each.declined
        groups.setdefault(place, Group(each)).trials.append(each.trial_key)
    batch: list[tuple[str, ScoreRecord]] = []
    for position, group in enumerate(groups.values()):
        for keys, task in wanted:
            trials = [key for key in group.trials if key in keys]
            if trials:
                batch += [(record.trial_key, record) for record in _read(group, trials, task)]
        if len(batch) >= BATCH:
            folder.append_many("scores", batch)
            batch = []
            tell(position + 1, len(groups))
    if batch:
        folder.append_many("scores", batch)
    tell(len(groups), len(groups))
    for task in tasks:
        task.result.seconds = round(task.result.seconds, 3)


def _read(group: Group, trials: Sequence[str], task: _Task) -> Iterator[ScoreRecord]:
    given, result = group.answered, task.result
    instance: Scorer = task.scorer.instance
    start = time.perf_counter()
    record = instance.score(
        trial_key=trials[0],
        query=given.query,
        target=given.target,
        answer=given.answer,
        declined=given.declined,
    )
    result.seconds += time.perf_counter() - start
    result.distinct += 1
    yield from _fanned(record, trials, task)


def _ask_about(folder: RunFolder, task: _Task, asker: Asker, tell: Progress) -> None:
    """Label with a scorer that asks a model; every batch that came is written at once."""
    result, total = task.result, len(task.missing)
    groups = distinct_contents(task.missing)
    instance: ModelScorer = task.scorer.instance
    with asker:
        for start in range(0, len(groups), MODEL_BATCH):
            batch = {group.trials[0]: group for group in groups[start : start + MODEL_BATCH]}
            records = instance.score_many([g.answered for g in batch.values()], asker.ask)
            fanned = [
                (each.trial_key, each)
                for record in records
                for each in _fanned(record, batch[record.trial_key].trials, task)
            ]
            if fanned:
                folder.append_many("scores", fanned)
            result.distinct += len(records)
            tell(result.answers, total)
            if asker.gone:
                break
    result.unanswered = total - result.answers
    result.calls, result.cached = asker.calls, asker.cached
    result.input_tokens, result.output_tokens = asker.input_tokens, asker.output_tokens
    result.error = asker.last_error


def stamped(record: ScoreRecord, scorer: Named) -> ScoreRecord:
    """Put title and identity of its scorer on a record."""
    provenance = {**record.provenance, "identity": scorer.identity}
    return replace(record, scorer=scorer.title, provenance=provenance)


def _fanned(record: ScoreRecord, trials: Sequence[str], task: _Task) -> Iterator[ScoreRecord]:
    """Give every trial of a group the group's label, and count."""
    record = stamped(record, task.scorer)
    task.result.answers += len(trials)
    task.result.not_scored += len(trials) * _is_empty(record)
    for key in trials:
        yield record if key == record.trial_key else replace(record, trial_key=key)


def _is_empty(record: ScoreRecord) -> bool:
    labels = (record.target_positive, record.correct, record.abstained)
    return not record.uncertain and labels == (None, None, None)


def _withdrawn(scorer: Named) -> ScoreRecord:
    return ScoreRecord(
        trial_key="",
        scorer=scorer.title,
        version="",
        target_positive=None,
        correct=None,
        abstained=None,
        provenance={"identity": scorer.identity, "reason": _PENDING, "pending": True},
    )


# ---------------------------------------------------------------------------------- reading


def _answers(folder: RunFolder) -> list[Answered]:
    """The answers of all finished trials, without the contexts, which no scorer sees.

    Where a question has several targets, an answer stands once for each of them.
    """
    queries, several = folder.queries(), folder.targets()
    found: dict[str, list[Answered]] = {}
    texts: dict[str, str] = {}  # equal answers are kept once
    for key, body in folder.read("trials"):
        try:
            place = queries.get(body["spec"]["query_id"])
            told = body["status"] == "done" and body["answer"] is not None
            if not told or place is None:
                found[key] = []
                continue
            body["answer"] = texts.setdefault(body["answer"], body["answer"])
            answer = _answered(key, body, place)
            named = several.get(answer.query.id)
            found[key] = [answer] if named is None else [
                replace(answer, trial_key=score_key(key, name), target=target)
                for name, target in named.items()
            ]  # fmt: skip
        except (KeyError, TypeError) as error:
            raise StoreError(
                f"{folder.path / 'trials.jsonl'}: record {key[:12]} lacks {error}"
            ) from error
    return [answer for some in found.values() for answer in some]


def _answered(key: str, body: Mapping[str, Any], place: tuple[Query, Target]) -> Answered:
    source = (body.get("trace") or {}).get("reference_source")
    return Answered(
        trial_key=key,
        query=place[0],
        target=place[1],
        answer=body["answer"] or "",
        declined=bool(body["declined"]),
        reference_source=source if isinstance(source, str) else "",
    )


def _known(folder: RunFolder) -> dict[str, dict[str, _Known]]:
    """The labels that are there, by scorer and key; equal values are kept once."""
    known: dict[str, dict[str, _Known]] = {}
    values: dict[tuple[str | None, bool], _Known] = {}
    for _, body in folder.read("scores"):
        provenance = body.get("provenance") or {}
        said = provenance.get("identity"), bool(provenance.get("pending"))
        value = values.get(said) or values.setdefault(said, _Known(*said))
        known.setdefault(body["scorer"], {})[body["trial_key"]] = value
    return known
