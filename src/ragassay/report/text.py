"""How reports write figures and foreign texts: one place, so that all reports agree.

Figures are ASCII strings ("60/100 -> 32/100", "-12.0 [-21.0, -4.0]"): the terminal, Markdown
and HTML show the same ones. Texts of passages, answers, labels and errors are hostile: what
cannot be seen is made visible, and what is long is cut with a note.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

NO_WIDTH = "\u2020"
NO_WIDTH_NOTE = (
    f"{NO_WIDTH} equal in every injection group, so resampling shows no spread: that is not "
    "certainty."
)
NOT_ESTIMABLE = "not estimable"
MAX_LABEL = 120


def visible(text: str, *, limit: int = MAX_LABEL) -> str:
    r"""Show controls, bidirectional marks and lone surrogates as code points, on one line.

    Examples
    --------
    >>> visible("abc\u202edef")
    'abc⟨U+202E⟩def'
    """
    shown = "".join(
        f"⟨U+{ord(char):04X}⟩" if _unseen(char) else char
        for char in text[: limit + 1].replace("\r\n", " ").replace("\n", " ").replace("\t", " ")
    )
    return shown if len(text) <= limit else shown[:limit].rstrip() + " ..."


def _unseen(char: str) -> bool:
    return unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def place(attack: str, budget: int, setting: str = "") -> str:
    """Name an attack at a budget, and its setting where there are several.

    Examples
    --------
    >>> place("poisonedrag", 5), place("poisonedrag", 5, "llama/nq")
    ('poisonedrag, p = 5', 'llama/nq: poisonedrag, p = 5')
    """
    text = f"{visible(attack)}, p = {budget}" if budget else "clean retrieval only"
    return f"{visible(setting)}: {text}" if setting else text


def listed(words: Sequence[str]) -> str:
    """Join words as a sentence does: ``a``, ``a and b``, ``a, b and c``."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def percent(value: float | None) -> str:
    """A share in percent with one decimal."""
    return NOT_ESTIMABLE if value is None else f"{_zero(100 * value):.1f}%"


def decimal(value: float | None, digits: int = 1) -> str:
    """A plain number."""
    return NOT_ESTIMABLE if value is None else f"{_zero(value, digits):,.{digits}f}"


def count(rate: Mapping[str, Any] | None) -> str:
    """A rate as count and denominator.

    Examples
    --------
    >>> count({"count": 3, "n": 12}), count({"count": 0, "n": 0})
    ('3/12', 'not estimable')
    """
    return f"{rate['count']}/{rate['n']}" if rate and rate["n"] else NOT_ESTIMABLE


def share(rate: Mapping[str, Any] | None, *, interval: bool = False) -> str:
    """A rate as count, denominator and percent, optionally with its interval."""
    if not rate or not rate["n"]:
        return NOT_ESTIMABLE
    text = f"{count(rate)} ({percent(rate['value'])})"
    return f"{text} {bracket(rate)}" if interval else text


def known(rate: Mapping[str, Any], *, empty: str = NOT_ESTIMABLE) -> str:
    """A rate with its interval, and how many cases are undefined and in no denominator.

    Examples
    --------
    >>> known({"count": 1, "n": 4, "value": 0.25, "low": 0.05, "high": 0.7, "undefined": 2})
    '1/4 [5.0, 70.0], 2 undefined'
    >>> known({"count": 0, "n": 0, "undefined": 0}, empty="no positives")
    'no positives'
    """
    undefined = rate.get("undefined", 0)
    if not rate["n"]:
        return f"{NOT_ESTIMABLE}, {undefined} undefined" if undefined else empty
    return f"{count(rate)} {bracket(rate)}" + (f", {undefined} undefined" if undefined else "")


def label_share(label: Mapping[str, Any], *, interval: bool = True) -> str:
    """The positive rate of a condition by itself, with what is undecided and not scored.

    Examples
    --------
    >>> rate = {"count": 1, "n": 4, "value": 0.25, "low": 0.05, "high": 0.7}
    >>> label_share({"positive": rate, "uncertain": {"count": 2}, "not_scored": 3})
    '1/4 (25.0%) [5.0, 70.0], 2 uncertain, 3 not scored'
    """
    rate, unscored = label["positive"], label["not_scored"]
    if not rate["n"]:
        return unread(label)
    uncertain = label["uncertain"]["count"]
    text = share(rate, interval=interval)
    text += f", {uncertain} uncertain" if uncertain else ""
    return text + (f", {unscored} not scored" if unscored else "")


def unread(label: Mapping[str, Any]) -> str:
    """Why a condition has no rate: nobody read it, its answers have no target, or none is there."""
    if label["not_scored"]:
        return f"not scored ({label['not_scored']})"
    return "no target" if label["not_applicable"] else NOT_ESTIMABLE


def points(effect: Mapping[str, Any]) -> str:
    """An effect in percentage points, signed, without its interval."""
    value = _zero(100 * effect["value"])
    return f"{value:+.1f}" if value else "0.0"


def bracket(effect: Mapping[str, Any]) -> str:
    """The interval of a rate or effect, in percent; one without width is marked."""
    if effect["low"] is None or effect["high"] is None:
        return f"[{NOT_ESTIMABLE}]"
    mark = NO_WIDTH if effect["low"] == effect["high"] else ""
    return f"[{_zero(100 * effect['low']):.1f}, {_zero(100 * effect['high']):.1f}]{mark}"


def p_value(value: float) -> str:
    """A p-value with three decimals."""
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def p_equals(value: float) -> str:
    """A p-value in running text: ``p = 0.029``, ``p < 0.001``."""
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def level(confidence: float) -> str:
    """A confidence level or a nominal rate: ``95%``."""
    return f"{100 * confidence:g}%"


def ratio(value: float | None, reference: float | None) -> str:
    """How many times the reference, or that it cannot be said."""
    if value is None or not reference:
        return NOT_ESTIMABLE
    return f"{value / reference:.1f}x"


def plural(number: int, noun: str) -> str:
    """A number and its noun: ``1 query``, ``2 queries``."""
    many = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else many}"


def _zero(value: float, digits: int = 1) -> float:
    """Round, so that no figure reads ``-0.0``."""
    return round(value, digits) + 0.0
