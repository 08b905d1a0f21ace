"""Finds the numbers of a text and tells what each counts; writes a number the same way.

A number is classed by its form and its neighbors: a year, a decade, a day of the month, a
time, a percentage, an ordinal, an age, or an amount. What only looks like a number (a part of
a name, a label, a version) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ragassay.tampering.words import word_list, word_set

Kind = Literal["year", "decade", "century", "day", "time", "percent", "ordinal", "age", "amount"]
MONTHS = (
    "January|February|March|April|May|June|July|August|September|October|November|December"
    "|Jan\\.?|Feb\\.?|Mar\\.?|Apr\\.?|Jun\\.?|Jul\\.?|Aug\\.?|Sept?\\.?|Oct\\.?|Nov\\.?|Dec\\.?"
)
UNITS = word_list(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
TENS = word_list("zero ten twenty thirty forty fifty sixty seventy eighty ninety")
_ORDINALS = [
    "zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
    "tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth",
    "seventeenth", "eighteenth", "nineteenth", "twentieth", "twenty-first",
]  # fmt: skip
_CARDINAL = {word: n for n, word in enumerate(UNITS) if n > 1} | {
    word: 10 * n for n, word in enumerate(TENS) if n > 1
}
_SCALES = "hundred|thousand|million|billion|trillion"
_WORD = "|".join(sorted(_CARDINAL, key=len, reverse=True))
_ORDINAL_WORD = "|".join(sorted(_ORDINALS[1:], key=len, reverse=True))
_DIGITS = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_NUMBER = re.compile(
    rf"""
    (?<![\w.,/:#$-])(?P<clock>[0-2]?\d:[0-5]\d)(?![\d:])
  | (?<![\w.'’-])(?P<decade>(?:1[0-9]|20)\d0)s\b
  | (?<![\w.,/:#-])(?P<ordinal>\d{{1,3}})(?:st|nd|rd|th)\b
  | (?<![\w.,/:#-])(?P<digits>{_DIGITS})(?![\w/]|[.,:]\d)
  | (?<=\d[-–])(?P<second>{_DIGITS})(?![\w/]|[.,:]\d)
  | (?<![\w-])(?P<words>(?:{"|".join(TENS[2:])})-(?:{"|".join(UNITS[1:10])})|{_WORD})(?![\w])
  | (?<![\w-])(?P<ordinal_word>{_ORDINAL_WORD})(?![\w-])
    """,
    re.VERBOSE | re.ASCII,
)
_YEAR = re.compile(r"(?:1[0-9]\d\d|20[0-4]\d)\Z")
_MONTH_BEFORE = re.compile(rf"\b(?:{MONTHS}) (?:the )?\Z")
_MONTH_AFTER = re.compile(rf" (?:of )?(?:{MONTHS})(?!\w)")
_CURRENCY_BEFORE = re.compile(r"[$€£¥₹]\s?\Z")
_PERCENT_AFTER = re.compile(r"\s?(?:%|percent\b|per cent\b|percentage)")
_AGE_AFTER = re.compile(r"[ -]years?[ -](?:old|of age)\b")
_AGE_BEFORE = re.compile(r"\b(?:aged|age|age of|at age) \Z", re.I)
_TIME_AFTER = re.compile(r"\s?(?:[ap]\.?m\b\.?|o'clock)", re.I)
_UNIT_AFTER = re.compile(
    rf"[ -](?:{_SCALES}|miles?|mi|km|kilomet|met(?:er|re)s?|feet|foot|ft|inch|people|inhabitants"
    r"|residents|points?|units?|copies|dollars?|pounds?|euros?|tons?|tonnes?|kg|acres?|hectares?"
    r"|square|times|seats?|votes?|students?|employees?|soldiers?|books?|songs?|games?|goals?)\b"
)
_DECADE_AFTER = re.compile(r"\s?['’]s\b")
_CENTURY_AFTER = re.compile(r"[ -](?:century|centuries)\b", re.I)
_NO_AMOUNT_AFTER = re.compile(
    r"(?:-|\s)(?:thirds?|quarters?|fifths?|sixths?|eighths?|tenths?|half|halves|bit)\b|\s?[/*^=+]"
    r"|\)?\.?\d|[%‰°]?\)?[A-Za-z]"
)
_NAME_BEFORE = re.compile(r"(?<![\w-])(?P<word>[A-Z][\w.'’&-]*) \Z")
_NOT_A_NAME = word_set(
    """
    the a an in on at by of to for from with and or but after before between about over under
    around nearly almost some all only these those his her its their our my since until during
    there it he she they we i when while where as if born approximately roughly exactly more less
    """
)
_LABEL_BEFORE = re.compile(
    r"(?:\b(?:no|nos|number|numbers|chapter|section|page|pages|volume|vol|part|episode|season"
    r"|series|route|highway|interstate|channel|type|grade|class|room|step|figure|table|article"
    r"|line|version|apartment|unit|district|ward|world war|act)\.?|#|№|\[|\() ?\Z",
    re.I,
)
_CAPITAL_AFTER = re.compile(r" (?:[A-Z][a-z])")
_COUNTED_CAPITAL = re.compile(
    r" (?:Grammy|Academy|Emmy|Golden|Oscar|Tony|BAFTA|Olympic|Grand|Super|World|American|British"
    r"|French|German|Italian|Spanish|Canadian|Indian|Japanese|Chinese|Russian)"
)


@dataclass(frozen=True, slots=True)
class Number:
    """A number at ``[start, stop)``: its value, what it counts and how it is written.

    ``style`` is "digits", "words", "suffix" (5th), "plural" (1980s) or "clock" (the
    hour of 10:30).
    ``decimals`` and ``commas`` are how digits are written; a clock's hour has ``decimals``
    places.
    """

    start: int
    stop: int
    value: float
    kind: Kind
    style: Literal["digits", "words", "suffix", "clock", "plural"]
    decimals: int = 0
    commas: bool = False


def find_numbers(text: str) -> Iterator[Number]:
    """Yield the numbers that can be swapped, in text order."""
    for match in _NUMBER.finditer(text):
        group = str(match.lastgroup)
        start, stop = match.span(group)
        before, after = text[max(0, start - 40) : start], text[stop : stop + 40]
        if group == "second" and not _first_of_range(text, start):
            continue
        number = _read(group, match[group], start, stop, before, after)
        if number is not None:
            yield number


def _read(group: str, given: str, start: int, stop: int, before: str, after: str) -> Number | None:
    if group == "clock":
        hour = given.split(":")[0]
        if int(hour) > 23:
            return None
        places = len(hour) if hour[0] == "0" else 1
        return Number(start, start + len(hour), int(hour), "time", "clock", places)
    if group == "decade":
        return Number(start, stop + 1, int(given), "decade", "plural")
    if group in {"ordinal", "ordinal_word"}:
        return _ordinal(group, given, start, stop, before, after)
    if group == "words":
        named = _CAPITAL_AFTER.match(after) and not _COUNTED_CAPITAL.match(after)
        if named or _NO_AMOUNT_AFTER.match(after):
            return None
        aged = _AGE_AFTER.match(after) or _AGE_BEFORE.search(before)
        kind: Kind = "age" if aged else "amount"
        return Number(start, stop, float(_value(given)), kind, "words")
    return _digits(given, start, stop, before, after)


def _ordinal(
    group: str, given: str, start: int, stop: int, before: str, after: str
) -> Number | None:
    value = _ORDINALS.index(given) if group == "ordinal_word" else int(given)
    written = stop if group == "ordinal_word" else stop + 2
    rest = after if group == "ordinal_word" else after[2:]
    style: Literal["words", "suffix"] = "words" if group == "ordinal_word" else "suffix"
    if value < 1 or (style == "words" and not _is_rank(given, before, rest)):
        return None
    if _CENTURY_AFTER.match(rest):
        kind: Kind = "century"
    elif _MONTH_BEFORE.search(before) or _MONTH_AFTER.match(rest):
        kind = "day"
    else:
        kind = "ordinal"
    return Number(start, written, float(value), kind, style)


def _is_rank(word: str, before: str, after: str) -> bool:
    """Tell an ordinal from an adverb ("at first"), a unit ("per second") and a fraction."""
    if not re.match(r" [a-z]", after) or re.search(r"\d ?\Z|\bper \Z|\bat \Z|-\Z", before):
        return False
    if re.match(
        r" (?:of all|and foremost|and only|name|person|hand|lady|world|thing|half)\b", after
    ):
        return False
    if re.search(r"\b(?:one|two|three|a|an)[ -]\Z", before):
        return word in {"second", "third"} and re.search(r"\ba \Z", before) is not None
    return re.search(r"\b(?:the|his|her|its|their|my|our|a) \Z", before) is not None


def _digits(given: str, start: int, stop: int, before: str, after: str) -> Number | None:
    plain = given.replace(",", "")
    decimals = len(plain.split(".")[1]) if "." in plain else 0
    value = float(plain)
    if value == 0 or len(plain) > 15 or (plain[0] == "0" and not decimals):
        return None
    kind = _digit_kind(plain, given, value, before, after)
    if kind is None:
        return None
    return Number(start, stop, value, kind, "digits", decimals, "," in given)


def _digit_kind(plain: str, given: str, value: float, before: str, after: str) -> Kind | None:
    currency = _CURRENCY_BEFORE.search(before)
    if _PERCENT_AFTER.match(after):
        return "percent"
    whole = "." not in plain
    if whole and value <= 31 and (_MONTH_BEFORE.search(before) or _MONTH_AFTER.match(after)):
        return "day"
    if whole and value <= 12 and _TIME_AFTER.match(after):
        return "time"
    if currency:
        return "amount"
    if _LABEL_BEFORE.search(before) and not (before.endswith("(") and _YEAR.match(given)):
        return None
    if _NO_AMOUNT_AFTER.match(after):
        return None
    unit = _UNIT_AFTER.match(after)
    year = whole and "," not in given and _YEAR.match(plain) and not unit
    if _names(before) and not (year and _MONTH_BEFORE.search(before)) and not unit:
        return None
    if year:
        return "decade" if value % 10 == 0 and _DECADE_AFTER.match(after) else "year"
    if whole and value <= 120 and (_AGE_AFTER.match(after) or _AGE_BEFORE.search(before)):
        return "age"
    if before.endswith("the ") and not re.match(r"[ -]\w", after):
        return None  # "On the 6"
    if _CAPITAL_AFTER.match(after) and not unit and not _COUNTED_CAPITAL.match(after):
        return None
    return "amount"


def _names(before: str) -> bool:
    """Tell whether the word in front is a name that the number belongs to ("Apollo 11")."""
    match = _NAME_BEFORE.search(before)
    if match is None:
        return False
    word = match["word"].lower().rstrip(".")
    return word not in _NOT_A_NAME


def _first_of_range(text: str, start: int) -> bool:
    """Tell whether a number behind a dash ends a range ("1914-1918"), not a code ("B-52-3")."""
    first = re.search(r"(?<![\w.,/:#-])[$€£]?\d[\d,.]*[-–]\Z", text[max(0, start - 24) : start])
    return first is not None


def _value(word: str) -> int:
    parts = word.split("-")
    return sum(_CARDINAL.get(part, 1 if part == "one" else 0) for part in parts)


# ------------------------------------------------------------------------------------- writing


def write(number: Number, value: float) -> str | None:
    """Write a value in the style of a number; None where that style cannot hold it.

    Examples
    --------
    >>> write(Number(0, 6, 13_000, "amount", "digits", 0, True), 3000)
    '3,000'
    >>> write(Number(0, 4, 44, "ordinal", "suffix"), 22)
    '22nd'
    """
    if number.style == "digits":
        return f"{value:{',' if number.commas else ''}.{number.decimals}f}"
    whole = int(value)
    if number.style == "plural":
        return f"{whole}s"
    if number.style == "clock":
        return f"{whole:0{number.decimals}d}"
    if number.style == "suffix":
        return f"{whole}{suffix(whole)}"
    if number.kind in {"ordinal", "century", "day"}:
        return _ORDINALS[whole] if 0 < whole < len(_ORDINALS) else None
    return cardinal(whole) if 1 < whole < 100 else None


def suffix(value: int) -> str:
    """Return the ending of an ordinal in digits.

    Examples
    --------
    >>> [suffix(n) for n in (1, 2, 3, 4, 11, 112, 21)]
    ['st', 'nd', 'rd', 'th', 'th', 'th', 'st']
    """
    if value % 100 in {11, 12, 13}:
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")


def cardinal(value: int) -> str:
    """Write a number below 100 in words.

    Examples
    --------
    >>> cardinal(42)
    'forty-two'
    """
    if value < 20:
        return UNITS[value]
    ones = value % 10
    return TENS[value // 10] + (f"-{UNITS[ones]}" if ones else "")
