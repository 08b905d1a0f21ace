"""Number swap: every number becomes another one of its magnitude and kind.

Source: "In RAG We Trust?" (Fasolino, 2026), section III-B: a numeric value is perturbed
("over 13,000 miles" becomes "over 3,000 miles").

Deviations: the paper's perturbation is not printed. Ours keeps kinds apart: a year stays a
year (shifted by 5 to 30, never into the future), a percentage stays at or below 100, a day
fits every month, an ordinal stays one; an amount loses its leading digit or is scaled by
0.1, 0.5, 2 or 10, or, up to twenty, moves by a few. One mapping serves the whole passage, so
that two mentions of a number agree and an order in time stays. Numbers of the question are
kept (``keep_asked``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragassay.matching import tokenize
from ragassay.tampering.articles import with_article
from ragassay.tampering.edits import Edit, Scene, Tampered, edited
from ragassay.tampering.numerals import Number, find_numbers, write

LATEST_YEAR = 2024  # no year is moved past it, or past the latest year of the passages
_FACTORS = (0.0, 0.1, 0.5, 2.0, 10.0)  # 0: drop the leading digit
_RANGE = re.compile(r"\s?(?:-{1,2}|–|—|\bto\b|\band\b|\bor\b)\s?\Z")
_DASH = re.compile(r"\s?(?:-{1,2}|–)\s?\Z")


@dataclass(frozen=True, slots=True)
class _Plan:
    """How each kind of number moves, for all passages that agree."""

    years: int
    ages: int
    small: int
    ordinals: int
    centuries: int
    days: int
    hours: int
    factors: tuple[float, ...]
    doubled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberSwap:
    """Swaps years, dates, times, percentages, ordinals, ages, currency and other amounts.

    ``keep_asked`` keeps the numbers that the question holds.
    """

    name: ClassVar[str] = "number_swap"
    version: ClassVar[str] = "1"
    shared: ClassVar[bool] = False

    keep_asked: bool = True

    def apply(
        self,
        passage_text: str,
        question: str,
        rng: np.random.Generator,
        *,
        scene: Scene = Scene(),  # noqa: B008 - frozen
    ) -> Tampered:
        """Swap the numbers of a passage by a mapping drawn for this passage alone.

        Parameters
        ----------
        passage_text, question : str
            The passage, and the question that it is retrieved for.
        rng : numpy.random.Generator
            The only source of randomness.
        scene : Scene
            Not used.

        Examples
        --------
        >>> rng = np.random.default_rng(3)
        >>> NumberSwap().apply("It opened in 1931 on 40 acres.", "", rng).text
        'It opened in 1954 on 400 acres.'
        """
        return self.apply_together(passage_text, question, rng, (passage_text,))

    def apply_together(
        self,
        passage_text: str,
        question: str,
        rng: np.random.Generator,
        texts: tuple[str, ...],
    ) -> Tampered:
        """Swap the numbers of one passage of several that are to agree.

        Equal ``texts`` and equal generators give the same mapping, whichever the passage.
        """
        asked = frozenset(t.text for t in tokenize(question)) if self.keep_asked else frozenset()
        plan = _plan(
            [n for text in texts for n in find_numbers(text) if not _is_asked(text, n, asked)], rng
        )
        numbers = list(find_numbers(passage_text))
        kept = [_is_asked(passage_text, number, asked) for number in numbers]
        values = _moved(passage_text, numbers, kept, plan)
        edits = []
        for number, after in zip(numbers, values, strict=True):
            if after is not None:
                start, written = with_article(passage_text, number.start, after)
                before = passage_text[start : number.stop]
                edits.append(Edit(start, number.stop, before, written, f"number:{number.kind}"))
        return edited(passage_text, edits, otherwise="no number to swap")


def _is_asked(text: str, number: Number, asked: frozenset[str]) -> bool:
    return asked.issuperset(t.text for t in tokenize(text[number.start : number.stop]))


# ------------------------------------------------------------------------------------ the plan


def _plan(numbers: Sequence[Number], rng: np.random.Generator) -> _Plan:
    def of(kind: str) -> list[float]:
        return [number.value for number in numbers if number.kind == kind]

    latest = max([LATEST_YEAR, *of("year")])
    small = [n.value for n in numbers if n.kind == "amount" and _is_small(n)]
    return _Plan(
        years=_shift(of("year"), range(5, 31), 1000, latest, rng),
        ages=_shift(of("age"), range(3, 16), 1, 110, rng),
        small=_shift(small, range(1, 6), 2, 10**9, rng),
        ordinals=_shift(of("ordinal"), range(1, 5), 1, 10**9, rng),
        centuries=_shift(of("century"), range(1, 4), 1, 21, rng),
        days=int(rng.integers(3, 25)),
        hours=int(rng.integers(1, 11)),
        factors=tuple(_FACTORS[i] for i in rng.permutation(len(_FACTORS))),
        doubled=bool(rng.integers(2)),
    )


def _shift(
    values: Sequence[float], sizes: range, low: float, high: float, rng: np.random.Generator
) -> int:
    """Draw one shift that keeps all values within bounds; 0 where there is none."""
    steps = [sign * size for size in sizes for sign in (-1, 1)]
    order = rng.permutation(len(steps))
    if not values:
        return 0
    lowest, highest = min(values), max(values)
    for at in map(int, order):
        if lowest + steps[at] >= low and highest + steps[at] <= high:
            return steps[at]
    return 0


def _is_small(number: Number) -> bool:
    return number.value <= 20 and number.decimals == 0


# ------------------------------------------------------------------------------------- moving


def _moved(
    text: str, numbers: Sequence[Number], kept: Sequence[bool], plan: _Plan
) -> list[str | None]:
    """Return what is written for each number; None leaves it."""
    written: list[str | None] = []
    values: list[float] = []
    for at, number in enumerate(numbers):
        value = None if kept[at] else _value(number, plan)
        after = None if value is None else write(number, value)
        if at and after is not None and value is not None:
            previous, moved = numbers[at - 1], values[-1]
            between = text[previous.stop : number.start]
            if _is_short_year(previous, number, between):
                value, after = number.value, _short_year(previous, number, moved)
            elif _RANGE.match(between) and number.value > previous.value >= 0 and value <= moved:
                # A range keeps its order, also where its first number stays.
                same = moved == previous.value
                value = number.value + abs(number.value - value) if same else (
                    moved + number.value - previous.value)  # fmt: skip
                after = write(number, value)
        changed = after is not None and after != text[number.start : number.stop]
        values.append(value if changed and value is not None else number.value)
        written.append(after if changed else None)
    return written


def _is_short_year(previous: Number, number: Number, between: str) -> bool:
    """Tell whether a number ends a range of years in two digits ("1939-45")."""
    return (
        previous.kind == "year"
        and _DASH.match(between) is not None
        and number.stop - number.start == 2
        and number.style == "digits"
    )


def _short_year(previous: Number, number: Number, moved: float) -> str:
    length = (number.value - previous.value) % 100
    last = int(moved + length)
    return f"{last % 100:02d}" if last // 100 == int(moved) // 100 else str(last)


def _value(number: Number, plan: _Plan) -> float | None:
    """Return the new value, or None where the number cannot move."""
    value = number.value
    shifts = {
        "year": plan.years, "age": plan.ages, "ordinal": plan.ordinals,
        "century": plan.centuries,
    }  # fmt: skip
    if number.kind in shifts:
        return value + shifts[number.kind] if shifts[number.kind] else None
    if number.kind == "decade":
        step = 10 * max(1, abs(plan.years) // 10)
        earlier = plan.years < 0 or value + step > LATEST_YEAR
        return value - step if earlier else value + step
    if number.kind == "day":
        return (value - 1 + plan.days) % 28 + 1
    if number.kind == "time":
        on_twelve = 1 <= value <= 12
        return (value - 1 + plan.hours) % 12 + 1 if on_twelve else (value + plan.hours) % 24
    if number.kind == "percent":
        return _percent(number, plan.doubled)
    if _is_small(number):
        return value + plan.small if value >= 2 and plan.small else None
    return _scaled(number, plan.factors)


def _percent(number: Number, doubled: bool) -> float | None:
    value = number.value
    ways = [2 * value, value / 2] if doubled else [value / 2, 2 * value]
    for way in ways:
        fits = way <= 100 or value > 100
        rounded = round(way, number.decimals)
        if fits and 0 < rounded != value:
            return rounded
    return 100 - value if 0 < value < 100 and value != 50 else None


def _scaled(number: Number, factors: Sequence[float]) -> float | None:
    """Scale an amount by the first factor that gives another number, written the same way."""
    value = number.value
    for factor in factors:
        if factor:
            new = _rounded(value * factor, number.decimals)
        else:
            digits = str(int(value))[1:]
            if number.decimals or not digits or digits[0] == "0":
                continue
            new = float(digits)
        if number.decimals == 0 and new < 2:
            continue
        if new > 0 and new != value and write(number, new) is not None:
            return new
    return None


def _rounded(value: float, decimals: int) -> float:
    return float(np.floor(value * 10**decimals + 0.5) / 10**decimals)
