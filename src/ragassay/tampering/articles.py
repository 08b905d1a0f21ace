"""The indefinite article before a word that has been replaced: "an American", "a French"."""

from __future__ import annotations

import re

# Written with a vowel and spoken with a consonant, and the other way round.
_SPOKEN_CONSONANT = re.compile(
    r"(?:eu|ewe|one\b|once\b|uni(?!n|m|d)|use|usu|ura[nl]|uru|uga|ukr|uk\b|u\.|us\b|usa|uta|uto|ubi)"
)
_SPOKEN_VOWEL = re.compile(r"(?:hono|hour|heir|honest)")
_LETTERS = re.compile(r"[A-Z]{2,}\b|[A-Z]\.|[A-Z]-")
_VOWEL_LETTERS = frozenset("AEFHILMNORSX")
_WORDS = frozenset({"NATO", "NASA", "UNESCO", "UNICEF", "FIFA", "UEFA", "BAFTA", "OPEC"})
_BEFORE = re.compile(r"(?<![\w'-])(?P<article>[Aa]n?)(?P<gap> )\Z")
_DIGITS = re.compile(r"[$€£¥]?(?P<whole>\d{1,3}(?:,\d{3})+|\d+)")


def indefinite(following: str) -> str:
    """Return "a" or "an", whichever goes before a text.

    Examples
    --------
    >>> [indefinite(word) for word in ("French", "American", "European", "18-year-old", "HBO")]
    ['a', 'an', 'a', 'an', 'an']
    """
    digits = _DIGITS.match(following)
    if digits:
        return "an" if _number_opens_with_vowel(digits["whole"]) else "a"
    letters = _LETTERS.match(following)
    if letters and letters[0] not in _WORDS:
        return "an" if following[0] in _VOWEL_LETTERS else "a"
    lower = following.lower()
    if _SPOKEN_CONSONANT.match(lower):
        return "a"
    return "an" if lower[:1] in set("aeiou") or _SPOKEN_VOWEL.match(lower) else "a"


def _number_opens_with_vowel(digits: str) -> bool:
    """Tell whether a number is spoken with a vowel first: eight, eleven, eighteen."""
    if digits.startswith("8"):
        return True
    head = digits.split(",")[0]
    if "," in digits:
        return head in {"11", "18"}
    if len(digits) in {2, 4, 5}:  # 11, 1850 (eighteen fifty), 18000
        return digits.startswith(("11", "18")) and not (len(digits) == 4 and digits[1:] == "000")
    return False


def with_article(text: str, start: int, after: str) -> tuple[int, str]:
    """Extend a replacement over an indefinite article in front that must change with it.

    Parameters
    ----------
    text : str
        The text before the edit.
    start : int
        Where the replaced part begins.
    after : str
        What replaces it.

    Returns
    -------
    tuple of int and str
        Where the edit begins, and what is written there.

    Examples
    --------
    >>> with_article("She is an American singer", 10, "French")
    (7, 'a French')
    >>> with_article("She is an American singer", 10, "Italian")
    (10, 'Italian')
    """
    found = _BEFORE.search(text, max(0, start - 4), start)
    if found is None:
        return start, after
    article = found["article"]
    right = indefinite(after)
    if article.lower() == right:
        return start, after
    right = right.capitalize() if article[0] == "A" else right
    return found.start(), f"{right}{found['gap']}{after}"
