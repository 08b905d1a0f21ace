"""The draws of the released PoisonArena loop, to count the prompts that it asks for.

Source: the released arena of "Uncovering Competing Poisoning Attacks in Retrieval-Augmented
Generation": 4,000 rounds on four fifths of the questions, and after every 100 of them 1,000
validations on the rest. Nothing that it draws depends on what the model answers, so its seed
gives every round. If nobody wins and GARAG takes part, a second prompt is asked.

Deviations: none in the draws, which repeat those of Python's generator from the same seed. In the
prompts, passages are told apart by their texts alone; the released ones also show score and
source. A missing document set is passed over there and here. Questions of ContentPoison are split
apart from the rest, so that its validations are about questions of other rounds: kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ragassay.arena.pool import Assignment, Position, QueryPool
from ragassay.arena.released import ATTACKERS, UNTARGETED
from ragassay.errors import DataError

ROUNDS = 4_000
VALIDATE_EVERY = 100
VALIDATIONS = 1_000
SEED = 42
FIXED_ATTACKERS = 4  # in the released file; the text says 2 to n
MOST_ATTACKERS = 6
_WORDS = 624  # of the generator's state
_AT_ONCE = 4_096
_T = TypeVar("_T")
_PARTIAL = "content_poison"  # its questions are the only ones drawn when it takes part


@dataclass(frozen=True, slots=True)
class ReleasedLoop:
    """Settings of the loop; the defaults are the released ones."""

    attackers: int | None = FIXED_ATTACKERS
    rounds: int = ROUNDS
    validate_every: int = VALIDATE_EVERY
    validations: int = VALIDATIONS
    seed: int = SEED

    @property
    def prompts(self) -> int:
        """First prompts that it asks for: rounds and validations."""
        return self.rounds + self.rounds // self.validate_every * self.validations


def replay(pools: Sequence[QueryPool], loop: ReleasedLoop) -> Iterator[tuple[str, Assignment]]:
    """Yield query and assignment of each round and validation, in the order they are played.

    Parameters
    ----------
    pools : sequence of QueryPool
        The questions in released order.
    loop : ReleasedLoop
        Its settings.

    Raises
    ------
    DataError
        There are too few questions to split, or too few answers of one.
    """
    draw = _PythonDraws(loop.seed)
    every = [pool.query_id for pool in pools]
    partial = [pool.query_id for pool in pools if pool.positions(_PARTIAL)]
    tables = {pool.query_id: _Answers.of(pool) for pool in pools}
    draw.shuffle(every)
    draw.shuffle(partial)
    (train, check), (train_partial, check_partial) = _split(every), _split(partial)
    if not (train and check and train_partial and check_partial):
        raise DataError(
            f"the released loop needs questions on both sides of its split, found {len(every)} "
            f"and {len(partial)} with documents of {_PARTIAL}"
        )
    most = MOST_ATTACKERS if loop.attackers is None else loop.attackers
    for query_id, table in tables.items():
        if len(table.every) < most:
            raise DataError(
                f"the released loop deals {most} answers, but there are documents for "
                f"{len(table.every)} of {query_id!r}"
            )
    for number in range(1, loop.rounds + 1):
        yield _play(draw, tables, train, train_partial, loop)
        if number % loop.validate_every == 0:
            for _ in range(loop.validations):
                yield _play(draw, tables, check, check_partial, loop)


@dataclass(frozen=True, slots=True)
class _Answers:
    """Answers that any attacker has documents for, and each attacker's."""

    every: tuple[int, ...]
    having: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, pool: QueryPool) -> _Answers:
        having = {name: pool.positions(name) for name in pool.documents}
        return cls(tuple(sorted({p for some in having.values() for p in some})), having)


def _play(
    draw: _PythonDraws,
    tables: dict[str, _Answers],
    every: Sequence[str],
    partial: Sequence[str],
    loop: ReleasedLoop,
) -> tuple[str, Assignment]:
    size = loop.attackers
    if size is None:
        size = 2 + draw.below(min(MOST_ATTACKERS, len(ATTACKERS)) - 1)
    names = draw.sample(ATTACKERS, size)
    query_id = draw.choice(partial if _PARTIAL in names else every)
    table = tables[query_id]
    free = list(table.every)
    dealt: dict[str, int] = {}
    if _PARTIAL in names:
        dealt[_PARTIAL] = draw.choice(table.having[_PARTIAL])
        free.remove(dealt[_PARTIAL])
    for name in names:
        if name not in dealt:
            dealt[name] = draw.choice(free)
            free.remove(dealt[name])
    # GARAG is dealt an answer that its documents never promote.
    assignment: dict[str, Position] = {
        name: None if name in UNTARGETED else position
        for name, position in dealt.items()
        if name in UNTARGETED or position in table.having.get(name, ())
    }
    return query_id, assignment


def _split(ids: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    at = int(len(ids) * 0.8)
    return ids[:at], ids[at:]


class _PythonDraws:
    """The draws of Python's own generator, made from NumPy's Mersenne Twister.

    Source: Matsumoto and Nishimura (1998), ACM TOMACS 8(1), with their initialization by an
    array (2002), here of one number; whole numbers below n by rejection of the leading bits.
    """

    def __init__(self, seed: int) -> None:
        self._source = np.random.RandomState()  # its state is replaced at once
        self._source.set_state(("MT19937", _state_of(seed), _WORDS, 0, 0.0))
        self._words = self._stream()

    def _stream(self) -> Iterator[int]:
        while True:
            yield from self._source.randint(0, 2**32, size=_AT_ONCE, dtype=np.uint32).tolist()

    def below(self, n: int) -> int:
        """Draw from 0 to n - 1."""
        if n < 1:
            raise ValueError(f"nothing to draw from: need n >= 1, got {n}")
        shift = 32 - n.bit_length()
        return next(value for word in self._words if (value := word >> shift) < n)

    def choice(self, items: Sequence[_T]) -> _T:
        return items[self.below(len(items))]

    def shuffle(self, items: list[_T]) -> None:
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]

    def sample(self, items: Sequence[_T], size: int) -> list[_T]:
        """Draw without replacement, as Python does for up to 21 items."""
        rest, drawn = list(items), []
        for taken in range(size):
            last = len(rest) - taken - 1
            j = self.below(last + 1)
            drawn.append(rest[j])
            rest[j] = rest[last]
        return drawn


def _state_of(seed: int) -> NDArray[np.uint32]:
    """Initialize the 624 words of the generator by the array that holds the seed alone."""
    mask = 2**32 - 1
    state = [19650218]
    for i in range(1, _WORDS):
        state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + i) & mask)
    i = 1
    for factor, add in ((1664525, seed), (1566083941, None)):
        for _ in range(_WORDS if add is not None else _WORDS - 1):
            mixed = state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * factor)
            state[i] = (mixed + add if add is not None else mixed - i) & mask
            i += 1
            if i == _WORDS:
                state[0] = state[-1]
                i = 1
    state[0] = 2**31
    return np.array(state, dtype=np.uint32)
