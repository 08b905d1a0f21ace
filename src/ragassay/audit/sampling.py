"""Draw an audit packet from a run: a random part, and strata where the labels are in doubt.

Source: "Prevented is not protected", appendix D: oversampled are label flips, chosen defenses
and answers of which a scorer is uncertain; each distinct answer is one unit.

Deviations: every part is a simple random sample drawn independently of the others, so that the
probability of every answer to be in the packet is known (:mod:`ragassay.stats.survey`); the
paper fills a fixed size by priority, which leaves it unknown. The number of items therefore
varies by a few around the size asked for. Trials in which a defense declined have no answer to
read and are counted apart.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ragassay import canon
from ragassay.audit.packet import Design, Item, Key, KeyEntry, Packet, Part, Sample
from ragassay.errors import ConfigError, DataError
from ragassay.matching import has_content
from ragassay.stats.allocation import allocate
from ragassay.stats.survey import PartOfDesign, inclusion
from ragassay.store import RunFolder
from ragassay.types import Query, ScoreRecord, Target, TrialRecord

HUMAN = "human"
RANDOM = "random"
STRATA = ("flips", "disagree", "uncertain")
SCORE_OF_FIELD = {
    "target_endorsed": "target_positive",
    "reference_correct": "correct",
    "abstains": "abstained",
}
_UNDEFENDED = "none"


@dataclass(frozen=True, slots=True)
class Population:
    """The distinct answers of a run: items and the trials that gave them, by id, sorted."""

    items: Mapping[str, Item]
    trials: Mapping[str, tuple[TrialRecord, ...]]
    declined: int
    unanswered: int


@dataclass(frozen=True, slots=True)
class _Labels:
    """The scorers' labels of a run, and which scorer leads its report."""

    scores: Mapping[tuple[str, str], ScoreRecord]
    scorers: tuple[str, ...]
    headline: str
    versions: Mapping[str, str] = field(default_factory=dict)


def sample(
    folder: RunFolder,
    *,
    size: int = 100,
    random_share: float = 0.3,
    strata: Sequence[str] = STRATA,
    scorers: Sequence[str] | None = None,
    seed: int = 1,
    name: str = "",
) -> Sample:
    """Draw a packet.

    Parameters
    ----------
    folder : RunFolder
        A run with answers and scores; it is only read.
    size : int
        Number of items wanted.
    random_share : float
        Share of ``size`` that is drawn from all answers alike, in (0, 1]. Without a random
        part an answer outside of the strata could never be in the packet, and no population
        rate could be estimated.
    strata : sequence of str
        ``flips`` (the headline label differs between clean and poisoned retrieval, or without
        and with the defense), ``disagree`` (two scorers decide differently on the target),
        ``uncertain`` (some scorer could not decide some label), ``method:<defense>``,
        ``setting:<setting>``.
    scorers : sequence of str, optional
        Whose labels count and are kept in the key [default: all of the run but ``human``].
    seed : int
        Equal seeds and runs give equal packets.
    name : str
        Name of the packet [default: that of the folder].

    Returns
    -------
    Sample
        For :func:`ragassay.audit.packet.write_packet`.

    Raises
    ------
    ConfigError
        The size, the share, a stratum or a scorer is not one that can be used.
    DataError
        The run has no answers.
    """
    if size < 1:
        raise ConfigError(f"size: need at least 1, got {size}")
    if not 0 < random_share <= 1:
        raise ConfigError(
            f"random: need a share above 0, at most 1, got {random_share}; without a random part "
            "no rate of the whole run can be estimated"
        )
    found = population(folder)
    if not found.items:
        raise DataError(f"{folder.path} has no answers to label", path=None)
    labels = _read_labels(folder, scorers)
    members = _memberships(found, labels, strata)
    ids = list(found.items)
    table = np.array([[i in members[s] for s in strata] for i in ids], dtype=bool)
    table = table.reshape(len(ids), len(strata))
    draws = allocate(size, random_share, table)
    drawn = _draw(ids, table, draws, strata, seed)
    parts = [PartOfDesign(len(ids), draws[0])]
    parts += [PartOfDesign(len(members[s]), n) for s, n in zip(strata, draws[1:], strict=True)]
    everything = np.column_stack([np.ones(len(ids), dtype=bool), table])
    chances = dict(zip(ids, inclusion(parts, everything), strict=True))
    entries = {
        each: KeyEntry(
            strata=tuple(s for s in strata if each in members[s]),
            drawn_by=tuple(part for part, units in drawn.items() if each in units),
            inclusion=float(chances[each]),
            trials=tuple(trial.key for trial in found.trials[each]),
            labels=_labels_of(found.items[each], found.trials[each], labels),
        )
        for each in sorted(set().union(*drawn.values()))
    }
    order = canon.rng_for(seed, "audit order").permutation(len(entries))
    chosen = [list(entries)[i] for i in order]
    packet = Packet(
        name=name or folder.path.resolve().name,
        seed=seed,
        answers=len(ids),
        trials=sum(len(trials) for trials in found.trials.values()),
        design=Design(
            random=draws[0],
            strata=tuple(
                Part(name=s, size=len(members[s]), drawn=n)
                for s, n in zip(strata, draws[1:], strict=True)
            ),
        ),
        items=tuple(found.items[each] for each in chosen),
        notes={"declined": found.declined, "failed": found.unanswered},
    )
    run = {"name": packet.name, "headline": labels.headline, "fingerprint": fingerprint(found)}
    return Sample(packet=packet, key=Key(run=run, scorers=labels.versions, items=entries))


def population(folder: RunFolder) -> Population:
    """Collect the distinct answers of a run.

    Raises
    ------
    StoreError
        Its records are damaged.
    DataError
        A trial belongs to a question that the run does not list.
    """
    queries = folder.queries()
    items: dict[str, Item] = {}
    trials: defaultdict[str, list[TrialRecord]] = defaultdict(list)
    declined = unanswered = 0
    for key, trial in sorted(folder.trials().items()):
        if trial.status != "done" or (trial.answer is None and not trial.declined):
            unanswered += 1
        elif trial.declined:
            declined += 1
        else:
            if trial.spec.query_id not in queries:
                raise DataError(
                    f"trial {key[:12]} is of question {trial.spec.query_id!r:.60}, which "
                    "queries.jsonl does not list",
                    path=folder.path,
                )
            item = item_of(*queries[trial.spec.query_id], trial.answer or "")
            items[item.id] = item
            trials[item.id].append(trial)
    return Population(
        items=dict(sorted(items.items())),
        trials={key: tuple(found) for key, found in sorted(trials.items())},
        declined=declined,
        unanswered=unanswered,
    )


def item_of(query: Query, target: Target, answer: str) -> Item:
    """Build what an annotator sees; a form without a letter or digit cannot be judged."""
    wanted = [form for form in target.wanted if has_content(form)]
    return Item(
        id=canon.content_key(
            question=query.text,
            wanted=target.wanted,
            references=target.references,
            answer=answer,
        ),
        question=query.text,
        target=wanted[0] if wanted else None,
        target_aliases=tuple(wanted[1:]),
        references=tuple(form for form in target.references if has_content(form)),
        answer=answer,
    )


def fingerprint(found: Population) -> str:
    """Digest which trials gave which answers: equal for equal runs."""
    return canon.digest({key: [t.key for t in trials] for key, trials in found.trials.items()})


def trials_of(item: Item, found: Population) -> tuple[TrialRecord, ...]:
    """Trials of a run that gave an item's answer; imported items have ids of their own."""
    if item.id in found.trials:
        return found.trials[item.id]
    wanted = (item.target, *item.target_aliases) if item.target is not None else ()
    key = canon.content_key(
        question=item.question, wanted=wanted, references=item.references, answer=item.answer
    )
    return found.trials.get(key, ())


def labels_of_run(
    packet: Packet, folder: RunFolder
) -> tuple[
    Mapping[str, str], dict[str, dict[str, dict[str, str | None]]], dict[str, tuple[str, ...]]
]:
    """Look up what a run's scorers say of the items of a packet.

    Returns
    -------
    tuple
        Version by scorer; by item id the labels by scorer and field; by item id the trials.

    Raises
    ------
    DataError
        The run has none of the packet's answers.
    """
    found, labels = population(folder), _read_labels(folder, None)
    trials = {item.id: trials_of(item, found) for item in packet.items}
    if not any(trials.values()):
        raise DataError(
            f"none of the {len(packet.items)} answers of the packet {packet.name!r} is an answer "
            "of this run; give the run that the packet was drawn from",
            path=folder.path,
        )
    return (
        labels.versions,
        {item.id: _labels_of(item, trials[item.id], labels) for item in packet.items},
        {key: tuple(trial.key for trial in each) for key, each in trials.items()},
    )


def decision(item: Item, score: ScoreRecord | None, name: str) -> str | None:
    """Turn a scorer's label into an annotator's word; None where it is not scored."""
    allowed = item.allowed(name)
    if len(allowed) == 1:
        return allowed[0]
    attribute = SCORE_OF_FIELD[name]
    if score is None:
        return None
    value = getattr(score, attribute)
    if value is None:
        return "uncertain" if attribute in score.uncertain else None
    return "yes" if value else "no"


# ------------------------------------------------------------------------------- the strata


def _read_labels(folder: RunFolder, scorers: Sequence[str] | None) -> _Labels:
    resolved = folder.read_json("resolved.json")
    scores = folder.scores()
    versions = {scorer: record.version for (_, scorer), record in sorted(scores.items())}
    known = [scorer for scorer in versions if scorer != HUMAN]
    for scorer in scorers or ():
        if scorer not in known:
            raise ConfigError(f"scorer {scorer!r}: {_known(scorer, known)}")
    chosen = tuple(dict.fromkeys(scorers)) if scorers else tuple(known)
    headline = str(resolved.get("headline", ""))
    if headline not in versions:
        headline = chosen[0] if chosen else ""
    return _Labels(scores, chosen, headline, {s: versions[s] for s in chosen})


def _memberships(
    found: Population, labels: _Labels, strata: Sequence[str]
) -> dict[str, frozenset[str]]:
    if len(set(strata)) != len(strata):
        raise ConfigError(f"a stratum is named twice: {', '.join(strata)}")
    return {stratum: frozenset(_stratum(found, labels, stratum)) for stratum in strata}


def _stratum(found: Population, labels: _Labels, stratum: str) -> Iterable[str]:
    kind, colon, value = stratum.partition(":")
    if stratum == "flips":
        return _flips(found, labels)
    if stratum in ("disagree", "uncertain"):
        test = _disagree if stratum == "disagree" else _uncertain
        return [
            key
            for key, trials in found.trials.items()
            if any(test([labels.scores.get((t.key, s)) for s in labels.scorers]) for t in trials)
        ]
    if colon and kind in ("method", "setting"):
        by: defaultdict[str, set[str]] = defaultdict(set)
        for key, trials in found.trials.items():
            for trial in trials:
                spec = trial.spec
                by[spec.defense_label if kind == "method" else spec.setting].add(key)
        if value not in by:
            raise ConfigError(f"stratum {stratum!r}: {_known(value, sorted(by))}")
        return by[value]
    every = [*STRATA, "method:<defense>", "setting:<setting>"]
    raise ConfigError(f"stratum {stratum!r}: {_known(stratum, every)}")


def _disagree(records: Sequence[ScoreRecord | None]) -> bool:
    decided = {record.target_positive for record in records if record is not None}
    return {True, False} <= decided


def _uncertain(records: Sequence[ScoreRecord | None]) -> bool:
    return any(record is not None and record.uncertain for record in records)


def _flips(found: Population, labels: _Labels) -> set[str]:
    """Answers of two matched conditions whose headline labels differ, both of them."""
    place: dict[tuple[str, str, str, int, str], tuple[str, bool]] = {}
    for key, trials in found.trials.items():
        for trial in trials:
            score = labels.scores.get((trial.key, labels.headline))
            if score is not None and score.target_positive is not None:
                s = trial.spec
                at = (s.setting, s.query_id, s.attack, s.budget, s.defense_label)
                place[at] = (key, score.target_positive)
    flipped: set[str] = set()
    for (setting, query, attack, budget, defense), (key, label) in place.items():
        partners = []
        if defense != _UNDEFENDED:
            partners.append((setting, query, attack, budget, _UNDEFENDED))
        if budget:
            partners.append((setting, query, "", 0, defense))
        for partner in partners:
            other = place.get(partner)
            if other is not None and other[1] != label:
                flipped |= {key, other[0]}
    return flipped


def _labels_of(
    item: Item, trials: Sequence[TrialRecord], labels: _Labels
) -> dict[str, dict[str, str | None]]:
    """Labels by scorer and field; a scorer that contradicts itself on equal answers has none."""
    result: dict[str, dict[str, str | None]] = {}
    for scorer in labels.scorers:
        result[scorer] = {}
        for name in SCORE_OF_FIELD:
            said = {decision(item, labels.scores.get((t.key, scorer)), name) for t in trials}
            said.discard(None)
            result[scorer][name] = said.pop() if len(said) == 1 else None
    return result


def _draw(
    ids: Sequence[str],
    table: NDArray[np.bool_],
    draws: Sequence[int],
    strata: Sequence[str],
    seed: int,
) -> dict[str, frozenset[str]]:
    """Draw every part on its own; each has its own seed, so that parts do not depend."""
    columns = [np.ones(len(ids), dtype=bool), *table.T]
    drawn = {}
    for part, column, count in zip((RANDOM, *strata), columns, draws, strict=True):
        rng = canon.rng_for(seed, "audit part", part)
        picked = rng.choice(np.flatnonzero(column), size=count, replace=False)
        drawn[part] = frozenset(ids[i] for i in picked)
    return drawn


def _known(value: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(value, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is none of that name{hint} (there are: {', '.join(known) or 'none'})"
