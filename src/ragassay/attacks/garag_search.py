"""The genetic search of GARAG: typos in one passage, two objectives, NSGA-II."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragassay.attacks.garag_pareto import crowding, fronts, survivors, tournament
from ragassay.attacks.garag_words import Typos, Words

Edits = tuple[tuple[int, str], ...]
"""Numbers of words and what stands in their place, ascending."""
Measure = Callable[[Sequence[str]], NDArray[np.float64]]
"""Texts to their objectives, shape (n, 2)."""

_LARGEST = 700.0  # exp() of more overflows


def objectives(
    sim_orig: ArrayLike, sim_pert: ArrayLike, log_p_orig: ArrayLike, log_p_pert: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both objectives, to be minimized: f_ret and f_read.

    ``f_ret = exp(sim_orig - sim_pert)`` is below 1 where the passage with typos is the more
    similar one, ``f_read = p_pert / p_orig`` where the answer has become less likely.

    Parameters
    ----------
    sim_orig, sim_pert : array_like
        Similarity of question and passage, without and with typos.
    log_p_orig, log_p_pert : array_like
        Natural-log probability of the answer, given question and passage.

    Examples
    --------
    >>> f_ret, f_read = objectives(1.5, 1.7, -0.25, -0.25 - np.log(4))
    >>> round(float(f_ret), 4), round(float(f_read), 4)
    (0.8187, 0.25)
    """
    better = np.subtract(sim_orig, sim_pert, dtype=np.float64)
    likelier = np.subtract(log_p_pert, log_p_orig, dtype=np.float64)
    f_ret, f_read = (np.exp(np.clip(gap, -_LARGEST, _LARGEST)) for gap in (better, likelier))
    return np.asarray(f_ret), np.asarray(f_read)


def edit_count(modifiable: int, level: float) -> int:
    """How many words are edited: the share ``level`` of the modifiable ones, at least 1.

    Examples
    --------
    >>> edit_count(37, 0.2), edit_count(3, 0.2), edit_count(0, 0.2)
    (7, 1, 0)
    """
    if modifiable == 0:
        return 0
    return max(int(level * modifiable + 1e-9), 1)  # 0.2 * 35 may fall short of 7


def penalized(points: NDArray[np.float64], penalties: Sequence[float]) -> NDArray[np.float64]:
    """Multiply each objective that is above 1 by its penalty."""
    result: NDArray[np.float64] = np.where(points > 1, points * np.asarray(penalties), points)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Breeding:
    """Sizes and rates of the search; the options of the attack."""

    level: float
    population: int
    generations: int
    pairs: int
    crossover: float
    mutation: float
    penalties: tuple[float, float]


class Evolved(NamedTuple):
    """The best edits found, their objectives, and how the search went."""

    edits: Edits
    text: str
    f_ret: float
    f_read: float
    generations: int
    stop: str
    evaluations: int
    trace: tuple[tuple[int, float, float], ...]


@dataclass(slots=True)
class Evolution:
    """Evolves the typos of one passage.

    Parameters
    ----------
    words : Words
        The passage; it needs words that may be changed.
    typos : Typos
    measure : callable
        Texts to objectives.
    done : callable
        Whether a text with ``f_ret < 1`` breaks the answer.
    breeding : Breeding
    rng : numpy.random.Generator
    """

    words: Words
    typos: Typos
    measure: Measure
    done: Callable[[str], bool]
    breeding: Breeding
    rng: np.random.Generator
    _scores: dict[str, NDArray[np.float64]] = field(default_factory=dict, init=False)

    @property
    def edited(self) -> int:
        """How many words each individual changes."""
        return edit_count(len(self.words.open), self.breeding.level)

    def run(self) -> Evolved:
        """Evolve until the best individual breaks the answer, or to the last generation."""
        plan = self.breeding
        pool = [self._mutated({}) for _ in range(plan.population)]
        pool = list(dict.fromkeys(pool))
        points = self._points(pool)
        trace, stop, number = [], "generations", 0
        for number in range(plan.generations + 1):
            if number:
                pool, points = self._next(pool, points)
            best, text = self._best(pool, points)
            trace.append((number, *self._scores[text].tolist()))
            if self._scores[text][0] < 1 and self.done(text):
                stop = "broken"
                break
        f_ret, f_read = self._scores[text].tolist()
        return Evolved(best, text, f_ret, f_read, number, stop, len(self._scores), tuple(trace))

    # ----------------------------------------------------------------------------- internals

    def _next(
        self, pool: list[Edits], points: NDArray[np.float64]
    ) -> tuple[list[Edits], NDArray[np.float64]]:
        plan = self.breeding
        ranks, room = _standing(points)
        children: list[Edits] = []
        for _ in range(plan.pairs):
            one, other = (dict(pool[tournament(points, ranks, room, self.rng)]) for _ in range(2))
            children += [self._mutated(child) for child in self._crossed(one, other)]
        both = list(dict.fromkeys((*pool, *children)))
        points = self._points(both)
        kept = survivors(points, plan.population)
        return [both[i] for i in kept], points[kept]

    def _crossed(
        self, one: dict[int, str], other: dict[int, str]
    ) -> tuple[dict[int, str], dict[int, str]]:
        """Let two parents exchange some of their edits; children may have fewer words edited."""
        size = max(round(self.breeding.crossover * self.edited), 1)
        given = [self._some(parent, min(size, len(parent))) for parent in (one, other)]
        first = {i: word for i, word in one.items() if i not in given[0]} | given[1]
        second = {i: word for i, word in other.items() if i not in given[1]} | given[0]
        return first, second

    def _mutated(self, edits: Mapping[int, str]) -> Edits:
        """Keep most edits and draw the rest anew, so that just enough words are edited."""
        renewed = max(round(self.breeding.mutation * self.edited), 1 if self._renews else 0)
        kept = self._some(edits, min(len(edits), self.edited - renewed))
        free = [i for i in self.words.open if i not in kept]
        drawn = self.rng.choice(len(free), size=self.edited - len(kept), replace=False)
        new = {free[i]: self.typos.draw(self.words.word(free[i]), self.rng) for i in drawn}
        return tuple(sorted((kept | new).items()))

    @property
    def _renews(self) -> bool:
        return self.breeding.mutation > 0

    def _some(self, edits: Mapping[int, str], count: int) -> dict[int, str]:
        places = sorted(edits)
        if not places:
            return {}
        chosen = self.rng.choice(len(places), size=count, replace=False)
        return {places[i]: edits[places[i]] for i in sorted(chosen.tolist())}

    def _points(self, pool: Sequence[Edits]) -> NDArray[np.float64]:
        """Penalized objectives; what was not measured yet is measured all at once."""
        texts = [self.words.text(dict(edits)) for edits in pool]
        new = list(dict.fromkeys(text for text in texts if text not in self._scores))
        if new:
            self._scores |= dict(zip(new, self.measure(new), strict=True))
        return penalized(np.array([self._scores[t] for t in texts]), self.breeding.penalties)

    def _best(self, pool: Sequence[Edits], points: NDArray[np.float64]) -> tuple[Edits, str]:
        """Of the first front: first retrieved better, then making the answer unlikelier."""
        front = fronts(points)[0]
        place = min(front, key=lambda i: (points[i, 0] >= 1, points[i, 1], points[i, 0], i))
        return pool[place], self.words.text(dict(pool[place]))


def _standing(points: NDArray[np.float64]) -> tuple[list[int], list[float]]:
    """The number of its front and its crowding distance, for each point."""
    ranks, room = [0] * len(points), [0.0] * len(points)
    for rank, front in enumerate(fronts(points)):
        for i, distance in zip(front, crowding(points[front]), strict=True):
            ranks[i], room[i] = rank, float(distance)
    return ranks, room
