"""Tables written as text: words set apart by white space, names by commas."""

from __future__ import annotations


def entries(text: str) -> list[str]:
    """Return the entries of a text that are set apart by commas, white space squeezed.

    Examples
    --------
    >>> entries("New York,  Boston")
    ['New York', 'Boston']
    """
    squeezed = (" ".join(part.split()) for part in text.split(","))
    return [entry for entry in squeezed if entry]


def word_list(text: str) -> list[str]:
    """Return the words of a text that are set apart by white space.

    Examples
    --------
    >>> word_list("but  yet")
    ['but', 'yet']
    """
    return text.split()


def word_set(text: str) -> frozenset[str]:
    """Return the distinct words of a text that are set apart by white space."""
    return frozenset(word_list(text))
