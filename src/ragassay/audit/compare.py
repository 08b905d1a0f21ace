"""One comparison of two sides of an audit, and what all comparisons draw on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragassay import canon
from ragassay.audit.adjudicate import Settled
from ragassay.audit.labels import Label
from ragassay.audit.packet import DECISIONS, NOT_APPLICABLE, Item, Key, Packet
from ragassay.stats.agreement import (
    Share,
    agreement,
    bootstrap_kappa,
    cohen_kappa,
    confusion,
)

CONSENSUS = "(consensus)"  # no annotator can be called so
Voice = Mapping[str, Mapping[str, str]]  # item -> field -> label
DECISIVE = DECISIONS[:2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """A packet with its key and labels, and how its figures are bounded."""

    packet: Packet
    key: Key
    books: Mapping[str, Mapping[str, Label]]
    settled: Mapping[str, Settled]
    confidence: float
    draws: int

    @property
    def people(self) -> dict[str, Voice]:
        """What every annotator says, by name and item."""
        return {
            name: {item: label.labels for item, label in book.items()}
            for name, book in self.books.items()
        }

    @property
    def voices(self) -> dict[str, Voice]:
        """Every annotator, and what is settled among them where there are several."""
        decided = any(each.adjudicator for each in self.settled.values())
        if len(self.people) < 2 and not decided:
            return self.people
        return {**self.people, CONSENSUS: {k: each.labels for k, each in self.settled.items()}}

    def rng(self, *parts: str) -> np.random.Generator:
        """Seed from what is drawn for."""
        return canon.rng_for(self.packet.digest, "audit agree", *parts)


def compare(
    audit: Audit,
    items: Sequence[Item],
    human: Sequence[str],
    other: Sequence[str | None],
    seed: tuple[str, ...],
) -> dict[str, Any]:
    """Compare two sides on the same items and field, with intervals.

    ``seed`` names the comparison, so that its draws depend on nothing else.
    """
    found = agreement(human, other, confidence=audit.confidence)
    triples = [
        (h, o, item.question)
        for item, h, o in zip(items, human, other, strict=True)
        if o is not None and NOT_APPLICABLE not in (h, o)
    ]
    sure = [each for each in triples if "uncertain" not in each[:2]]
    return {
        "n": found.n,
        "unscored": found.unscored,
        "both_not_applicable": found.both_na,
        "one_sided_not_applicable": found.one_sided_na,
        "uncertain": [found.uncertain_human, found.uncertain_other],
        "overall": _plain(found.overall),
        "decisive": _plain(found.decisive),
        "kappa": _kappa(audit, sure, DECISIVE, (*seed, "kappa")),
        "kappa3": _kappa(audit, triples, DECISIONS, (*seed, "kappa3")),
        "confusion": {"categories": found.categories, "table": found.confusion},
    }


def brief(audit: Audit, pairs: Sequence[tuple[str, str | None]]) -> dict[str, Any]:
    """Compare two sides on a stratum: counts and rates, kappa without an interval."""
    found = agreement([h for h, _ in pairs], [o for _, o in pairs], confidence=audit.confidence)
    return {
        "n": found.n,
        "overall": _plain(found.overall),
        "decisive": _plain(found.decisive),
        "kappa": found.kappa,
        "kappa3": found.kappa3,
    }


def _plain(share: Share) -> dict[str, Any]:
    bounds = share.interval
    return {
        "count": share.count,
        "n": share.n,
        "rate": share.rate,
        "low": None if bounds is None else bounds.low,
        "high": None if bounds is None else bounds.high,
    }


def _kappa(
    audit: Audit,
    triples: Sequence[tuple[str, str, str]],
    categories: tuple[str, ...],
    seed: tuple[str, ...],
) -> dict[str, Any]:
    a, b, groups = [t[0] for t in triples], [t[1] for t in triples], [t[2] for t in triples]
    value = cohen_kappa(confusion(a, b, categories))
    bounds = bootstrap_kappa(
        a, b, categories, groups=groups, draws=audit.draws, confidence=audit.confidence,
        rng=audit.rng(*seed),
    )  # fmt: skip
    reason = ""
    if value is None:
        reason = "both always give the same label" if triples else "no pair to compare"
    elif bounds is None:
        reason = "no interval: fewer than two questions, or kappa undefined in most resamples"
    return {
        "value": value,
        "n": len(triples),
        "low": None if bounds is None else bounds.low,
        "high": None if bounds is None else bounds.high,
        "undefined_draws": None if bounds is None else bounds.undefined,
        "reason": reason,
    }
