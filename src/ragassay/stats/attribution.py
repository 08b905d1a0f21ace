"""Which poison passages made an answer change: exact values over all their subsets.

The game of one context: its players are the k poison passages it holds, and a coalition is worth
1 if the answer is target-positive with exactly these of them in the context (the other passages
as they were, or none, as the caller chose), else 0. The empty coalition is the context without
any poison.

Source: Shapley (1953), Contributions to the Theory of Games II, 307-317; Banzhaf (1965), Rutgers
Law Review 19, 317-343; removal controls as in "Prevented is not protected", section 2.2.

Deviations: not part of that publication, which removes all poison or keeps one passage. Labels
that are not known are never guessed: a value that depends on them is None, beside its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ragassay.stats.proportions import Proportion, proportion

MAX_PASSAGES = 5
Labels = Mapping[int, bool | None]
"""Target label by coalition: bit i of the key says whether poison passage i is in the context.
A missing key is a coalition that was not asked, as is None."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """An exact value between exact bounds; ``value`` is None where they differ."""

    low: Fraction
    high: Fraction

    @property
    def value(self) -> Fraction | None:
        """The value, where every label that it depends on is known."""
        return self.low if self.low == self.high else None


@dataclass(frozen=True, slots=True)
class SmallestSubsets:
    """The smallest sets of passages that have a property.

    Parameters
    ----------
    exists : bool or None
        Whether any set has it; None where unknown labels leave that open.
    at_least, at_most : int or None
        Bounds on the smallest size. ``at_least`` is None where no set can have the property,
        ``at_most`` where none is known to have it.
    subsets : tuple of tuple of int
        The known sets of the smallest size, each as passage numbers from 0; empty where the size
        is open.
    complete : bool
        Whether these are certainly all of that size.
    """

    exists: bool | None
    at_least: int | None
    at_most: int | None
    subsets: tuple[tuple[int, ...], ...]
    complete: bool

    @property
    def size(self) -> int | None:
        """The smallest size; None where no set has the property, or unknown labels hide it."""
        return self.at_most if self.at_most == self.at_least else None


@dataclass(frozen=True, slots=True)
class Monotonicity:
    """Pairs of coalitions that differ by one passage, and what adding it did.

    ``violations`` of the ``compared`` pairs lost the target by adding poison; ``unknown`` pairs
    lack a label.
    """

    violations: int
    compared: int
    unknown: int


@dataclass(frozen=True, slots=True)
class Attribution:
    """What the poison passages of one context did, alone and together.

    Parameters
    ----------
    k : int
        Number of poison passages.
    positive, without_poison : bool or None
        Target label with all of them and with none of them.
    shapley, banzhaf : tuple of Bounded, length k
        Share of each passage. The Shapley values add up to ``positive - without_poison``.
    sufficient : SmallestSubsets
        Smallest sets that give the target when they are all the poison there is. Size 0: it is
        there without poison.
    necessary : SmallestSubsets or None
        Smallest sets whose removal from the full context takes the target away; None unless the
        full context is known to be positive.
    blocking : SmallestSubsets or None
        Smallest sets that meet every sufficient set: without them no choice of the remaining
        poison gives the target. Equal to ``necessary`` if adding poison never loses the target;
        None as there.
    monotonicity : Monotonicity
        Whether it does.
    unknown : int
        Number of the 2^k labels that are not known.
    """

    k: int
    positive: bool | None
    without_poison: bool | None
    shapley: tuple[Bounded, ...]
    banzhaf: tuple[Bounded, ...]
    sufficient: SmallestSubsets
    necessary: SmallestSubsets | None
    blocking: SmallestSubsets | None
    monotonicity: Monotonicity
    unknown: int

    @property
    def needs_together(self) -> int | None:
        """How many passages the target needs at once; None where not estimable or never."""
        return self.sufficient.size


def attribute(labels: Labels, k: int) -> Attribution:
    """Attribute the target label of one context to its poison passages.

    Parameters
    ----------
    labels : mapping of int to bool or None
        See :data:`Labels`; up to 2^k entries.
    k : int
        Number of poison passages, 0 to 5.

    Raises
    ------
    ValueError
        k is out of range, or a key or a label is not of that form.

    Examples
    --------
    A target that two passages give only together:

    >>> found = attribute({0: False, 1: False, 2: False, 3: True}, k=2)
    >>> found.needs_together, [str(share.value) for share in found.shapley]
    (2, ['1/2', '1/2'])
    """
    table = _table(labels, k)
    positive = table[-1]
    everything = len(table) - 1
    taken_away = [_not(table[everything ^ mask]) for mask in range(len(table))]
    return Attribution(
        k=k,
        positive=positive,
        without_poison=table[0],
        shapley=_values(table, k, lambda size: _shapley_weight(size, k)),
        banzhaf=_values(table, k, lambda size: Fraction(1, 2 ** (k - 1))),
        sufficient=_smallest(table),
        necessary=_smallest(taken_away) if positive else None,
        blocking=_smallest(_blocks(table)) if positive else None,
        monotonicity=_monotonicity(table, k),
        unknown=sum(label is None for label in table),
    )


def shapley_values(labels: Labels, k: int) -> tuple[Bounded, ...]:
    """Return the exact Shapley value of each poison passage.

    Parameters
    ----------
    labels, k
        As for :func:`attribute`.

    Returns
    -------
    tuple of Bounded, length k
        Rational numbers from -1 to 1. Bounds are over all ways to fill in unknown labels, for
        each passage by itself.

    Raises
    ------
    ValueError
        As for :func:`attribute`.

    References
    ----------
    Shapley (1953), Contributions to the Theory of Games II, 307-317.

    Examples
    --------
    >>> shapley_values({0: False, 1: True}, k=1)[0].value
    Fraction(1, 1)
    """
    return _values(_table(labels, k), k, lambda size: _shapley_weight(size, k))


@dataclass(frozen=True, slots=True)
class TogetherRow:
    """How many contexts need ``size`` poison passages at once, of those where that is known."""

    size: int
    contexts: Proportion


@dataclass(frozen=True, slots=True)
class TogetherTable:
    """How many poison passages the positive contexts need at once.

    ``rows`` runs from size 0 (target-positive without poison) to the largest k; ``several``
    counts sizes of two and more. Denominator of all: positive contexts of known size, ``n``.
    ``open`` positive contexts lack a label that decides it; ``not_positive`` and ``unlabeled``
    contexts are not asked about.
    """

    rows: tuple[TogetherRow, ...]
    several: Proportion
    n: int
    open: int
    not_positive: int
    unlabeled: int


def together_table(contexts: Sequence[Attribution], *, confidence: float = 0.95) -> TogetherTable:
    """Count how many poison passages are needed at once, over target-positive contexts.

    Parameters
    ----------
    contexts : sequence of Attribution
        One per poisoned context.
    confidence : float
        Level of the Wilson intervals.

    Examples
    --------
    >>> pair = attribute({0: False, 1: False, 2: False, 3: True}, k=2)
    >>> table = together_table([pair])
    >>> [(row.size, row.contexts.count) for row in table.rows], table.several.value
    ([(0, 0), (1, 0), (2, 1)], 1.0)
    """
    positive = [context for context in contexts if context.positive]
    sizes = [context.needs_together for context in positive]
    known = [size for size in sizes if size is not None]
    n = len(known)
    largest = max((context.k for context in contexts), default=0)
    return TogetherTable(
        rows=tuple(
            TogetherRow(size, proportion(known.count(size), n, confidence=confidence))
            for size in range(largest + 1)
        ),
        several=proportion(sum(size >= 2 for size in known), n, confidence=confidence),
        n=n,
        open=len(sizes) - n,
        not_positive=sum(context.positive is False for context in contexts),
        unlabeled=sum(context.positive is None for context in contexts),
    )


# --------------------------------------------------------------------------------- internals

Table = Sequence[bool | None]


def _table(labels: Labels, k: int) -> list[bool | None]:
    if not 0 <= k <= MAX_PASSAGES:
        raise ValueError(f"need 0 <= k <= {MAX_PASSAGES} poison passages, got {k}")
    for mask, label in labels.items():
        if mask not in range(2**k):
            raise ValueError(f"coalition {mask!r} does not exist among {k} poison passages")
        if label is not None and not isinstance(label, (bool, np.bool_)):
            raise ValueError(f"the label of coalition {mask} must be bool or None, got {label!r}")
    found = (labels.get(mask) for mask in range(2**k))
    return [None if label is None else bool(label) for label in found]


def _not(label: bool | None) -> bool | None:
    return None if label is None else not label


def _shapley_weight(size: int, k: int) -> Fraction:
    """Weight of joining a coalition of that size: its share of the k! orders of arrival."""
    return Fraction(math.factorial(size) * math.factorial(k - size - 1), math.factorial(k))


def _values(table: Table, k: int, weight: Callable[[int], Fraction]) -> tuple[Bounded, ...]:
    found = []
    for player in range(k):
        low = high = Fraction(0)
        for mask, label in enumerate(table):
            joined = mask >> player & 1
            share = weight(mask.bit_count() - joined) * (1 if joined else -1)
            if label is None:
                low, high = (low, high + share) if joined else (low + share, high)
            elif label:
                low, high = low + share, high + share
        found.append(Bounded(low, high))
    return tuple(found)


def _smallest(has: Table) -> SmallestSubsets:
    """Find the smallest of the sets ``mask`` for which ``has[mask]`` is true."""
    sizes = {
        wanted: [mask.bit_count() for mask, label in enumerate(has) if label is wanted]
        for wanted in (True, None)
    }
    at_most = min(sizes[True], default=None)
    at_least = min(sizes[True] + sizes[None], default=None)
    exists = True if sizes[True] else None if sizes[None] else False
    settled = at_most is not None and at_most == at_least
    subsets = [
        _numbers(mask)
        for mask, label in enumerate(has)
        if settled and label and mask.bit_count() == at_most
    ]
    complete = at_least is None or (settled and at_most not in sizes[None])
    return SmallestSubsets(exists, at_least, at_most, tuple(sorted(subsets)), complete)


def _numbers(mask: int) -> tuple[int, ...]:
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def _blocks(table: Table) -> list[bool | None]:
    """For each set: is the target absent whatever of the remaining poison is kept?"""
    everything = len(table) - 1
    found: list[bool | None] = []
    for removed in range(len(table)):
        left = [label for mask, label in enumerate(table) if mask & ~(everything ^ removed) == 0]
        found.append(False if True in left else None if None in left else True)
    return found


def _monotonicity(table: Table, k: int) -> Monotonicity:
    violations = compared = unknown = 0
    for mask, before in enumerate(table):
        for player in range(k):
            if mask >> player & 1:
                continue
            after = table[mask | 1 << player]
            if before is None or after is None:
                unknown += 1
                continue
            compared += 1
            violations += before and not after
    return Monotonicity(violations, compared, unknown)
