"""Words of a closed class, written as text."""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text that are set apart by spaces.

    Examples
    --------
    >>> sorted(word_set("but yet"))
    ['but', 'yet']
    """
    return frozenset(word_list(text))


def word_list(text: str) -> list[str]:
    """Return the words of a text that are set apart by spaces, in order."""
    return text.split()
