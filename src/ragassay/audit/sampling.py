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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ragassay import canon
from ragassay.audit.packet import Design, Item, Key, KeyEntry, Packet, Part, Sample
from ragassay.errors import ConfigError, DataError
from ragassay.matching import has_content
from ragassay.stats.allocation import allocate
from ragassay.stats.survey import PartOfDesign, inclusion
from ragassay.store import RunFolder
from ragassay.store.columns import LABELS, NEGATIVE, POSITIVE, UNCERTAIN, Trial, Trials
from ragassay.types import Query, Target

HUMAN = "human"
RANDOM = "random"
STRATA = ("flips", "disagree", "uncertain")
SCORE_OF_FIELD = {
    "target_endorsed": "target_positive",
    "reference_correct": "correct",
    "abstains": "abstained",
}
_UNDEFENDED = "none"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """The distinct answers of a run, by number in the order of their ids, and who gave them.

    Texts stay in the files: ``items`` and ``trials``, by id, read a record when it is asked for.

    ``rows`` are the trials with an answer, those of answer n from ``start[n]`` to ``start[n + 1]``
    in the order of their keys, and ``number`` is the answer of each; ``shown[n]`` is a row that
    gave answer n.
    """

    columns: Trials
    queries: Mapping[str, tuple[Query, Target]]
    ids: NDArray[np.bytes_]
    rows: NDArray[np.int64]
    number: NDArray[np.int64]
    start: NDArray[np.int64]
    shown: NDArray[np.int64]
    declined: int
    unanswered: int

    @property
    def items(self) -> Mapping[str, Item]:
        """What annotators see, by id."""
        return _ById(self, lambda n: next(self.items_at([n])))

    @property
    def trials(self) -> Mapping[str, tuple[Trial, ...]]:
        """The trials that gave an answer, by its id, sorted."""
        return _ById(self, lambda n: tuple(Trial(self.columns, row) for row in self.given(n)))

    def given(self, number: int) -> list[int]:
        """The rows of the trials that gave an answer."""
        found: list[int] = self.rows[self.start[number] : self.start[number + 1]].tolist()
        return found

    def find(self, item_id: str) -> int:
        """The number of an answer, -1 where there is none of this id."""
        if not item_id.isascii():
            return -1
        at = int(np.searchsorted(self.ids, item_id.encode()))
        return at if at < len(self.ids) and self.ids[at] == item_id.encode() else -1

    def items_at(self, numbers: Sequence[int]) -> Iterator[Item]:
        """What annotators see of some answers, in their order."""
        for record in self.columns.records(self.shown[list(numbers)]):
            yield item_of(*self.queries[record.spec.query_id], record.answer or "")


class _ById(Mapping[str, _T]):
    """What is known of every answer, made when it is asked for."""

    def __init__(self, of: Population, make: Callable[[int], _T]) -> None:
        self._of, self._make = of, make

    def __getitem__(self, item_id: str) -> _T:
        number = self._of.find(item_id)
        if number < 0:
            raise KeyError(item_id)
        return self._make(number)

    def __iter__(self) -> Iterator[str]:
        return (each.decode() for each in self._of.ids)

    def __len__(self) -> int:
        return len(self._of.ids)


@dataclass(frozen=True, slots=True)
class _Labels:
    """The scorers' labels of a run, and which scorer leads its report."""

    columns: Trials
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
    if not len(found.ids):
        raise DataError(f"{folder.path} has no answers to label", path=None)
    labels = _read_labels(folder, found.columns, scorers)
    members = _memberships(found, labels, strata)
    table = np.zeros((len(found.ids), len(strata)), dtype=bool)
    for i, stratum in enumerate(strata):
        table[:, i] = members[stratum]
    draws = allocate(size, random_share, table)
    drawn = _draw(table, draws, strata, seed)
    parts = [PartOfDesign(len(table), draws[0])]
    parts += [
        PartOfDesign(int(members[s].sum()), n) for s, n in zip(strata, draws[1:], strict=True)
    ]
    everything = np.column_stack([np.ones(len(table), dtype=bool), table])
    chances = inclusion(parts, everything)
    numbers = sorted(set().union(*drawn.values()))
    items = {item.id: item for item in found.items_at(numbers)}
    entries = {
        item.id: KeyEntry(
            strata=tuple(s for s in strata if members[s][n]),
            drawn_by=tuple(part for part, units in drawn.items() if n in units),
            inclusion=float(chances[n]),
            trials=tuple(found.columns.key(row) for row in found.given(n)),
            labels=_labels_of(item, found.given(n), labels),
        )
        for n, item in zip(numbers, items.values(), strict=True)
    }
    order = canon.rng_for(seed, "audit order").permutation(len(entries))
    chosen = [list(entries)[i] for i in order]
    packet = Packet(
        name=name or folder.path.resolve().name,
        seed=seed,
        answers=len(table),
        trials=len(found.rows),
        design=Design(
            random=draws[0],
            strata=tuple(
                Part(name=s, size=int(members[s].sum()), drawn=n)
                for s, n in zip(strata, draws[1:], strict=True)
            ),
        ),
        items=tuple(items[each] for each in chosen),
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
    queries, columns = folder.queries(), folder.columns()
    declined = columns.done & columns.declined
    answered = columns.done & ~declined & columns.answers.any(axis=1)
    rows = columns.by_key[answered[columns.by_key]]
    listed = np.array([name in queries for name in columns.query.values], dtype=bool)
    unknown = rows[~listed[columns.query.codes[rows]]]
    if len(unknown):
        named = columns.query.values[columns.query.codes[unknown[0]]]
        raise DataError(
            f"trial {columns.key(unknown[0])[:12]} is of question {named!r:.60}, which "
            "queries.jsonl does not list",
            path=folder.path,
        )
    # Equal answers to one question are read once, those to questions of equal texts meet by id.
    asked = columns.query.codes[rows].astype(np.uint64)
    _, first, pair = np.unique(
        np.column_stack([asked, columns.answers[rows]]), axis=0, return_index=True,
        return_inverse=True,
    )  # fmt: skip
    as_they_lie = np.argsort(rows[first])
    ids = np.zeros(len(first), dtype="S64")
    for at, record in zip(as_they_lie, columns.records(rows[first][as_they_lie]), strict=True):
        item = item_of(*queries[record.spec.query_id], record.answer or "")
        ids[at] = item.id.encode()
    ids, of_pair = np.unique(ids, return_inverse=True)
    shown = np.zeros(len(ids), dtype=np.int64)
    shown[of_pair] = rows[first]
    number = of_pair[pair.reshape(-1)]
    order = np.argsort(number, kind="stable")
    return Population(
        columns=columns,
        queries=queries,
        ids=ids,
        rows=rows[order],
        number=number[order],
        start=np.searchsorted(number[order], np.arange(len(ids) + 1)),
        shown=shown,
        declined=int(declined.sum()),
        unanswered=len(columns) - int(declined.sum()) - len(rows),
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
    key = found.columns.key
    return canon.digest_of_stream(_ById(found, lambda n: (key(row) for row in found.given(n))))


def trials_of(item: Item, found: Population) -> list[int]:
    """Rows of the trials that gave an item's answer; imported items have ids of their own."""
    number = found.find(item.id)
    if number >= 0:
        return found.given(number)
    wanted = (item.target, *item.target_aliases) if item.target is not None else ()
    key = canon.content_key(
        question=item.question, wanted=wanted, references=item.references, answer=item.answer
    )
    number = found.find(key)
    return found.given(number) if number >= 0 else []


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
    found = population(folder)
    labels = _read_labels(folder, found.columns, None)
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
        {key: tuple(found.columns.key(row) for row in each) for key, each in trials.items()},
    )


def decision(item: Item, code: int, name: str) -> str | None:
    """Turn a scorer's label, a code, into an annotator's word; None where it is not scored."""
    allowed = item.allowed(name)
    if len(allowed) == 1:
        return allowed[0]
    return {POSITIVE: "yes", NEGATIVE: "no", UNCERTAIN: "uncertain"}.get(code)


# ------------------------------------------------------------------------------- the strata


def _read_labels(folder: RunFolder, columns: Trials, scorers: Sequence[str] | None) -> _Labels:
    resolved = folder.read_json("resolved.json")
    versions = _versions(columns)
    known = [scorer for scorer in versions if scorer != HUMAN]
    for scorer in scorers or ():
        if scorer not in known:
            raise ConfigError(f"scorer {scorer!r}: {_known(scorer, known)}")
    chosen = tuple(dict.fromkeys(scorers)) if scorers else tuple(known)
    headline = str(resolved.get("headline", ""))
    if headline not in versions:
        headline = chosen[0] if chosen else ""
    return _Labels(columns, chosen, headline, {s: versions[s] for s in chosen})


def _versions(columns: Trials) -> dict[str, str]:
    """The version of every scorer at the last key, those first that label the first keys."""
    rank = np.empty(len(columns), dtype=np.int64)
    rank[columns.by_key] = np.arange(len(columns))
    found = []
    for scorer, column in columns.scores.items():
        ranks = rank[column.places["length"] > 0]
        if len(ranks):
            record = columns.score(int(columns.by_key[ranks.max()]), scorer)
            found.append((int(ranks.min()), scorer, record.version if record else ""))
    return {scorer: version for _, scorer, version in sorted(found)}


def _memberships(
    found: Population, labels: _Labels, strata: Sequence[str]
) -> dict[str, NDArray[np.bool_]]:
    if len(set(strata)) != len(strata):
        raise ConfigError(f"a stratum is named twice: {', '.join(strata)}")
    return {stratum: _stratum(found, labels, stratum) for stratum in strata}


def _stratum(found: Population, labels: _Labels, stratum: str) -> NDArray[np.bool_]:
    """Which answers belong to a stratum, shape (answers,)."""
    kind, colon, value = stratum.partition(":")
    if stratum == "flips":
        return _flips(found, labels)
    if stratum in ("disagree", "uncertain"):
        return _of_answers(found, (_disagree if stratum == "disagree" else _uncertain)(labels))
    if colon and kind in ("method", "setting"):
        column = found.columns.defense if kind == "method" else found.columns.setting
        there = {column.values[code] for code in np.unique(column.codes[found.rows]).tolist()}
        if value not in there:
            raise ConfigError(f"stratum {stratum!r}: {_known(value, sorted(there))}")
        return _of_answers(found, column.equal(value))
    every = [*STRATA, "method:<defense>", "setting:<setting>"]
    raise ConfigError(f"stratum {stratum!r}: {_known(stratum, every)}")


def _of_answers(found: Population, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which answers some of the marked trials gave; marks of shape (trials,)."""
    marked = np.zeros(len(found.ids), dtype=bool)
    marked[found.number[rows[found.rows]]] = True
    return marked


def _disagree(labels: _Labels) -> NDArray[np.bool_]:
    yes, no = np.zeros((2, len(labels.columns)), dtype=bool)
    for scorer in labels.scorers:
        codes = labels.columns.labels(scorer)
        yes |= codes == POSITIVE
        no |= codes == NEGATIVE
    both: NDArray[np.bool_] = yes & no
    return both


def _uncertain(labels: _Labels) -> NDArray[np.bool_]:
    said = np.zeros(len(labels.columns), dtype=bool)
    for scorer in labels.scorers:
        for label in LABELS:
            said |= labels.columns.labels(scorer, label) == UNCERTAIN
    return said


def _flips(found: Population, labels: _Labels) -> NDArray[np.bool_]:
    """Answers of two matched conditions whose headline labels differ, both of them."""
    columns = found.columns
    codes = columns.labels(labels.headline)[found.rows]
    decided = ((codes == POSITIVE) | (codes == NEGATIVE)).nonzero()[0][::-1]
    rows = found.rows[decided]
    budget = columns.budget[rows].astype(np.int64)
    setting, query, attack, defense = (
        column.codes[rows].astype(np.int64)
        for column in (columns.setting, columns.query, columns.attack, columns.defense)
    )

    def places(attack: Any, budget: Any, defense: Any) -> NDArray[np.int64]:
        place = setting * len(columns.query.values) + query
        place = place * len(columns.attack.values) + attack
        place = place * (1 + int(columns.budget.max(initial=0))) + budget
        return np.asarray(place * len(columns.defense.values) + defense)

    # Of several trials at one place the last answer counts, which is the first of the reversed.
    known, chosen = np.unique(places(attack, budget, defense), return_index=True)
    answer, label = found.number[decided][chosen], codes[decided][chosen]
    flipped = np.zeros(len(found.ids), dtype=bool)
    undefended, clean = columns.defense.number(_UNDEFENDED), columns.attack.number("")
    for partner, has in (
        (places(attack, budget, undefended), (defense != undefended) & (undefended >= 0)),
        (places(clean, 0, defense), (budget > 0) & (clean >= 0)),
    ):
        asked = partner[chosen]
        at = np.minimum(np.searchsorted(known, asked), max(len(known) - 1, 0))
        differ = has[chosen] & (known[at] == asked) & (label[at] != label)
        flipped[answer[differ]] = True
        flipped[answer[at[differ]]] = True
    return flipped


def _labels_of(
    item: Item, rows: Sequence[int], labels: _Labels
) -> dict[str, dict[str, str | None]]:
    """Labels by scorer and field; a scorer that contradicts itself on equal answers has none."""
    result: dict[str, dict[str, str | None]] = {}
    for scorer in labels.scorers:
        result[scorer] = {}
        for name in SCORE_OF_FIELD:
            codes = labels.columns.labels(scorer, SCORE_OF_FIELD[name])
            said = {decision(item, int(codes[row]), name) for row in rows}
            said.discard(None)
            result[scorer][name] = said.pop() if len(said) == 1 else None
    return result


def _draw(
    table: NDArray[np.bool_],
    draws: Sequence[int],
    strata: Sequence[str],
    seed: int,
) -> dict[str, frozenset[int]]:
    """Draw every part on its own; each has its own seed, so that parts do not depend."""
    columns = [np.ones(len(table), dtype=bool), *table.T]
    drawn = {}
    for part, column, count in zip((RANDOM, *strata), columns, draws, strict=True):
        rng = canon.rng_for(seed, "audit part", part)
        picked = rng.choice(np.flatnonzero(column), size=count, replace=False)
        drawn[part] = frozenset(picked.tolist())
    return drawn


def _known(value: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(value, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is none of that name{hint} (there are: {', '.join(known) or 'none'})"
