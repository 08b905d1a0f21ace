"""Which attacker gets which answer.

Source: "Uncovering Competing Poisoning Attacks in Retrieval-Augmented Generation"
(PoisonArena), section 3.3, step 2: all permutations of answers over attackers.

Deviations: over all m! permutations each attacker gets each answer (m - 1)! times, not once as
the paper says. A cyclic Latin square of m assignments does it once; with a random order of the
attackers each of its rows is a uniformly drawn permutation, so that means over the square and
over all permutations are equal in expectation. The released arena draws one assignment a round.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

AssignmentMode = Literal["latin", "full", "random"]
MAX_FULL = 8


@dataclass(frozen=True, slots=True)
class AssignmentCount:
    """How many assignments a design has, and how often each attacker gets each answer."""

    assignments: int
    each_pair: int


def count_assignments(m: int, mode: AssignmentMode) -> AssignmentCount:
    """Count the assignments of m answers to m attackers.

    Examples
    --------
    >>> count_assignments(4, "full"), count_assignments(4, "latin")
    (AssignmentCount(assignments=24, each_pair=6), AssignmentCount(assignments=4, each_pair=1))

    Raises
    ------
    ValueError
        ``m`` is below 1, or the design is random and has no fixed counts.
    """
    if m < 1:
        raise ValueError(f"need at least one attacker, got {m}")
    if mode == "full":
        return AssignmentCount(math.factorial(m), math.factorial(m - 1))
    if mode == "latin":
        return AssignmentCount(m, 1)
    raise ValueError("random assignments have no fixed counts")


def full(m: int) -> list[tuple[int, ...]]:
    """All assignments: entry i of each is the answer of attacker i.

    Raises
    ------
    ValueError
        There are more than 8 attackers (40,320 assignments).
    """
    if not 1 <= m <= MAX_FULL:
        raise ValueError(
            f"full permutations need 1 to {MAX_FULL} attackers, got {m}; use a Latin square"
        )
    return list(itertools.permutations(range(m)))


def latin(m: int, order: Sequence[int] | None = None) -> list[tuple[int, ...]]:
    """A cyclic Latin square: m assignments in which each attacker gets each answer once.

    Parameters
    ----------
    m : int
        Attackers and answers.
    order : sequence of int, optional
        Which row of the square each attacker takes, a permutation of 0 to m - 1.

    Examples
    --------
    >>> latin(3)
    [(0, 1, 2), (1, 2, 0), (2, 0, 1)]

    Raises
    ------
    ValueError
        ``m`` is below 1, or ``order`` is not a permutation.
    """
    rows = list(range(m)) if order is None else list(order)
    if m < 1 or sorted(rows) != list(range(m)):
        raise ValueError(f"need a permutation of 0 to {m - 1}, got {rows}")
    return [tuple((row + shift) % m for row in rows) for shift in range(m)]


def assignments(
    m: int, mode: AssignmentMode, *, rng: np.random.Generator, random_draws: int = 1
) -> list[tuple[int, ...]]:
    """Deal m answers out to m attackers.

    Parameters
    ----------
    m : int
        Attackers and answers.
    mode : {"latin", "full", "random"}
        A Latin square in random order, all permutations, or independent uniform draws.
    rng : numpy.random.Generator
        The only source of randomness.
    random_draws : int
        Number of assignments of the mode "random".

    Returns
    -------
    list of tuple of int
        Entry i of each is the answer of attacker i.
    """
    if mode == "full":
        return full(m)
    if mode == "latin":
        return latin(m, [int(i) for i in rng.permutation(m)])
    if random_draws < 1:
        raise ValueError(f"need at least one random assignment, got {random_draws}")
    return [tuple(int(i) for i in rng.permutation(m)) for _ in range(random_draws)]
