"""How far people and scorers agree, per field, per stratum, and for the whole population.

Source: "Prevented is not protected", section 4.2 and appendix F: overall agreement (uncertain
is disagreement) beside decisive agreement, with Cohen's kappa.

Deviations: kappa has a bootstrap interval (answers to one question are drawn together), rates
have Wilson intervals (which treat answers as independent), kappa is also given with uncertain
as a third category, and figures of the whole population are estimated from the inclusion
probabilities of the packet. Unlabeled items are taken for a random part of it: their order is
random.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ragassay.audit.adjudicate import read_books, settle
from ragassay.audit.compare import CONSENSUS, DECISIVE, Audit, Voice, brief, compare
from ragassay.audit.packet import (
    DECISIONS,
    FIELDS,
    NOT_APPLICABLE,
    Item,
    Key,
    Packet,
    read_key,
    read_packet,
)
from ragassay.audit.sampling import RANDOM, labels_of_run
from ragassay.audit.weights import Weights, weigh
from ragassay.errors import ConfigError, NotEstimable
from ragassay.stats.agreement import (
    bootstrap_alpha,
    krippendorff_alpha,
)
from ragassay.store import RunFolder


def agree(
    packet_path: str | Path,
    *,
    confidence: float = 0.95,
    draws: int = 10_000,
    folder: RunFolder | None = None,
) -> dict[str, Any]:
    """Measure the agreement of a labeled packet; opens its key.

    Parameters
    ----------
    packet_path : str or Path
        The packet folder; it may be labeled in part.
    confidence : float
        Two-sided level of all intervals, in (0, 1).
    draws : int
        Resamples of the bootstrap.
    folder : RunFolder, optional
        Take the scorers' labels from this run [default: from the key, as they were when the
        packet was drawn].

    Returns
    -------
    dict
        Plain JSON: ``annotators`` (coverage), ``scorers`` (each voice against each scorer and
        field), ``between`` (annotators against each other), ``population`` (rates of the whole
        run), ``disagreements``. What cannot be estimated is None, with a ``reason``.

    Raises
    ------
    NotEstimable
        Nobody has labeled anything.
    ConfigError
        The level or the number of draws is out of range.
    StoreError
        The packet, its key or a label file is damaged.
    """
    if not 0 < confidence < 1 or draws < 1:
        raise ConfigError(
            f"need 0 < confidence < 1 and at least one draw, got {confidence} and {draws}"
        )
    packet = read_packet(packet_path)
    books = {name: book for name, book in read_books(packet).items() if book}
    if not books:
        raise NotEstimable(
            f"nobody has labeled {packet.folder()} yet; label it first "
            f"(ragassay audit serve {packet.folder()})"
        )
    audit = Audit(
        packet=packet,
        key=_scored(packet, read_key(packet_path), folder),
        books=books,
        settled=settle(packet, books),
        confidence=confidence,
        draws=draws,
    )
    return {
        "v": 1,
        "kind": "audit_agreement",
        "packet": {"name": packet.name, "digest": packet.digest, "items": len(packet.items)},
        "run": dict(audit.key.run),
        "population_size": {"answers": packet.answers, "trials": packet.trials},
        "confidence": confidence,
        "draws": draws,
        "annotators": {
            name: {
                "labeled": len(book),
                "of": len(packet.items),
                "comments": sum(bool(label.comment) for label in book.values()),
            }
            for name, book in books.items()
        },
        "settled": {
            "items": sum(not each.open for each in audit.settled.values()),
            "open": sum(bool(each.open) for each in audit.settled.values()),
            "adjudicated": sum(bool(each.adjudicator) for each in audit.settled.values()),
        },
        "scorers": [
            _against(audit, voice, scorer, name)
            for voice in audit.voices
            for scorer in audit.key.scorers
            for name in FIELDS
        ],
        "between": _between(audit),
        "population": [_rates(audit, voice, name) for voice in audit.voices for name in FIELDS],
        "disagreements": _disagreements(audit),
    }


def _scored(packet: Packet, key: Key, folder: RunFolder | None) -> Key:
    """Put the labels of a run's scorers, as they are now, into the key."""
    if folder is None:
        return key
    versions, labels, trials = labels_of_run(packet, folder)
    entries = {
        item: replace(entry, labels=labels[item], trials=entry.trials or trials[item])
        for item, entry in key.items.items()
    }
    return replace(key, scorers=versions, items=entries)


# ---------------------------------------------------------------------- a voice and a scorer


def _against(audit: Audit, voice: str, scorer: str, name: str) -> dict[str, Any]:
    said = audit.voices[voice]
    items = [item for item in audit.packet.items if name in said.get(item.id, {})]
    entries = audit.key.items
    human = [said[item.id][name] for item in items]
    other = [entries[item.id].labels.get(scorer, {}).get(name) for item in items]
    strata: dict[str, list[tuple[str, str | None]]] = {}
    for item, pair in zip(items, zip(human, other, strict=True), strict=True):
        for stratum in _strata(audit, item):
            strata.setdefault(stratum, []).append(pair)
    return {
        "human": voice,
        "scorer": scorer,
        "field": name,
        **compare(audit, items, human, other, (voice, scorer, name)),
        "strata": {stratum: brief(audit, pairs) for stratum, pairs in sorted(strata.items())},
        "population": _weighted_agreement(audit, voice, name, items, human, other),
    }


def _strata(audit: Audit, item: Item) -> tuple[str, ...]:
    entry = audit.key.items[item.id]
    return ((RANDOM,) if RANDOM in entry.drawn_by else ()) + entry.strata


# ------------------------------------------------------------------------------ population


def _weigh(audit: Audit, voice: str, name: str, labels: Collection[str]) -> Weights:
    """Weights of labeled items; open disagreements are no random part, so they must be settled."""
    unsettled = sum(name in each.open for each in audit.settled.values())
    if voice == CONSENSUS and unsettled:
        return Weights(reason=f"{unsettled} disagreements are open; adjudicate them first")
    return weigh(audit.packet, audit.key, labels)


def _weighted_agreement(
    audit: Audit,
    voice: str,
    name: str,
    items: Sequence[Item],
    human: Sequence[str],
    other: Sequence[str | None],
) -> dict[str, Any]:
    labels = {item.id: (h, o) for item, h, o in zip(items, human, other, strict=True)}
    weights = _weigh(audit, voice, name, labels)
    pairs = [labels[key] for key in weights.ids]
    scored = np.array([o is not None for _, o in pairs], dtype=bool)
    same = np.array([h == o and h != "uncertain" for h, o in pairs], dtype=bool)
    sure = np.array([h in DECISIVE and o in DECISIVE for h, o in pairs], dtype=bool)

    def figures(sizes: Any) -> dict[str, Any]:
        code = np.array([[DECISIVE.index(x) if x in DECISIVE else 0 for x in p] for p in pairs])
        code = code.reshape(len(pairs), 2)
        level = audit.confidence
        return {
            "overall": weights.rate(same, domain=scored, sizes=sizes, confidence=level),
            "decisive": weights.rate(same, domain=sure, sizes=sizes, confidence=level),
            "kappa": weights.kappa(code, domain=sure, sizes=sizes, confidence=level),
        }

    return _both(weights, figures)


def _rates(audit: Audit, voice: str, name: str) -> dict[str, Any]:
    said = audit.voices[voice]
    labels = {key: fields[name] for key, fields in said.items() if name in fields}
    weights = _weigh(audit, voice, name, labels)
    values = [labels[key] for key in weights.ids]
    applies = np.array([value != NOT_APPLICABLE for value in values], dtype=bool)

    def figures(sizes: Any) -> dict[str, Any]:
        return {
            decision: weights.rate(
                np.array([value == decision for value in values], dtype=bool),
                domain=applies, sizes=sizes, confidence=audit.confidence,
            )
            for decision in DECISIONS
        }  # fmt: skip

    counts = {d: sum(value == d for value in labels.values()) for d in (*DECISIONS, NOT_APPLICABLE)}
    return {"human": voice, "field": name, "sample": counts, **_both(weights, figures)}


def _both(weights: Weights, figures: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Count every distinct answer once, and every trial once."""
    if weights.reason:
        return {"answers": None, "trials": None, "reason": weights.reason}
    return {
        "answers": figures(None),
        "trials": None if weights.trials is None else figures(weights.trials),
        "reason": weights.caution,
    }


# ------------------------------------------------------------------------ between annotators


def _between(audit: Audit) -> dict[str, Any]:
    names = list(audit.people)
    pairs = []
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            one, two = audit.people[first], audit.people[second]
            items = [item for item in audit.packet.items if item.id in one and item.id in two]
            for name in FIELDS:
                a = [one[item.id][name] for item in items]
                b = [two[item.id][name] for item in items]
                found = compare(audit, items, a, b, (first, second, name))
                pairs.append({"annotators": [first, second], "field": name, **found})
    return {"pairs": pairs, "alpha": [_alpha(audit, name) for name in FIELDS]}


def _alpha(audit: Audit, name: str) -> dict[str, Any]:
    ratings = [
        [_rating(voice, item, name) for item in audit.packet.items]
        for voice in audit.people.values()
    ]
    value = krippendorff_alpha(ratings)
    bounds = bootstrap_alpha(
        ratings, draws=audit.draws, confidence=audit.confidence, rng=audit.rng("alpha", name)
    )
    shared = sum(sum(r is not None for r in column) > 1 for column in zip(*ratings, strict=True))
    reason = ""
    if value is None:
        reason = "only one label was ever given" if shared else "no item has two labels"
    elif bounds is None:
        reason = "no interval: too few items, or alpha undefined in most resamples"
    return {
        "field": name,
        "value": value,
        "annotators": len(ratings),
        "n": shared,
        "low": None if bounds is None else bounds.low,
        "high": None if bounds is None else bounds.high,
        "undefined_draws": None if bounds is None else bounds.undefined,
        "reason": reason,
    }


def _rating(voice: Voice, item: Item, name: str) -> str | None:
    label = voice.get(item.id, {}).get(name)
    return None if label == NOT_APPLICABLE else label


# ---------------------------------------------------------------------------- disagreements


def _disagreements(audit: Audit) -> list[dict[str, Any]]:
    """Fields on which people differ from each other, or a scorer from what is settled."""
    found = []
    voices = audit.people
    for item in audit.packet.items:
        settled = audit.settled.get(item.id)
        if settled is None:
            continue
        for name in FIELDS:
            people = {who: v[item.id][name] for who, v in voices.items() if item.id in v}
            scorers = {s: each.get(name) for s, each in audit.key.items[item.id].labels.items()}
            holds = settled.labels.get(name)
            wrong = [s for s, label in scorers.items() if label is not None and label != holds]
            if len(set(people.values())) < 2 and not wrong:
                continue
            found.append(
                {
                    "item": item.id,
                    "field": name,
                    "question": item.question,
                    "target": item.target,
                    "references": list(item.references),
                    "answer": item.answer,
                    "annotators": people,
                    "settled": holds,
                    "adjudicator": settled.adjudicator,
                    "scorers": scorers,
                    "differ": wrong,
                    "strata": list(_strata(audit, item)),
                    "comments": {
                        who: book[item.id].comment
                        for who, book in audit.books.items()
                        if item.id in book and book[item.id].comment
                    },
                }
            )
    return found
