"""The labeled items of a packet with the weights that make them stand for the whole run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.audit.packet import Key, Packet
from ragassay.audit.sampling import RANDOM
from ragassay.stats.survey import Estimate, PartOfDesign, Weighted, kappa, rate, weighted

NO_RANDOM = "the packet has no random part of two items or more, so nothing is known of the rest"
ONLY_RANDOM = "how the targeted part was drawn is not known: estimated from the random part alone"
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Items that count, in order; ``trials`` is how many trials gave each (None: not known)."""

    ids: tuple[str, ...] = ()
    sample: Weighted | None = None
    trials: NDArray[np.float64] | None = None
    reason: str = ""
    caution: str = ""

    def rate(self, positive: Bools, *, domain: Bools, **options: Any) -> dict[str, Any] | None:
        """Estimate a share of the population; None where the domain is empty."""
        if self.sample is None:
            return None
        return _plain(rate(positive, self.sample, domain=domain, **options))

    def kappa(
        self, codes: NDArray[np.int64], *, domain: Bools, **options: Any
    ) -> dict[str, Any] | None:
        """Estimate kappa of the population from codes of shape (n, 2); None if undefined."""
        if self.sample is None:
            return None
        return _plain(kappa(codes[:, 0], codes[:, 1], 2, self.sample, domain=domain, **options))


def weigh(packet: Packet, key: Key, labeled: Collection[str]) -> Weights:
    """Give the labeled items their weights.

    Parameters
    ----------
    packet, key
        The packet and its key.
    labeled : collection of str
        Ids of the items that are labeled, taken for a random part of the packet.
    """
    design = packet.design
    if design.random < 2:
        return Weights(reason=NO_RANDOM)
    ids = [item.id for item in packet.items]
    parts, names = [PartOfDesign(packet.answers, design.random)], []
    if design.known:
        for part in design.strata:
            parts.append(PartOfDesign(part.size or 0, part.drawn or 0))
            names.append(part.name)
    else:
        ids = [each for each in ids if RANDOM in key.items[each].drawn_by]
    chosen = np.array([each in labeled for each in ids], dtype=bool)
    if chosen.sum() < 2:
        return Weights(reason="fewer than two items of the random design are labeled")
    member = np.array([[True, *(n in key.items[i].strata for n in names)] for i in ids], dtype=bool)
    kept = tuple(each for each, use in zip(ids, chosen, strict=True) if use)
    trials = np.array([len(key.items[each].trials) for each in kept], dtype=np.float64)
    return Weights(
        ids=kept,
        sample=weighted(parts, member).labeled(chosen),
        trials=trials if (trials > 0).all() else None,
        caution="" if design.known else ONLY_RANDOM,
    )


def _plain(found: Estimate | None) -> dict[str, Any] | None:
    if found is None:
        return None
    bounds = found.interval
    return {
        "value": found.value,
        "n": found.n,
        "low": None if bounds is None else bounds.low,
        "high": None if bounds is None else bounds.high,
    }
