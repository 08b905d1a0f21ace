"""What can be read off the surface of a text: how much of the question it repeats, its words.

Source: "Ranking is not judgment", section V-A (the two construction cues: the question verbatim
in the passage, and the length in words).

Deviations: the share of a question that is repeated is ours.
"""

from __future__ import annotations

from difflib import SequenceMatcher

from ragassay.matching import profile_text


def contained_share(question: str, passage: str) -> float:
    """Return the longest run of words of the question that the passage holds, as a share of it.

    Parameters
    ----------
    question, passage : str
        Compared word by word in profile form.

    Returns
    -------
    float
        Words of the longest common run divided by words of the question, in [0, 1]; 0 for a
        question without words.

    Examples
    --------
    >>> contained_share("who wrote the play Hamlet?", "Bacon wrote the play.")
    0.6
    """
    wanted, words = profile_text(question).split(), profile_text(passage).split()
    if not wanted:
        return 0.0
    matcher = SequenceMatcher(None, words, wanted, autojunk=False)
    return matcher.find_longest_match().size / len(wanted)


def word_count(text: str) -> int:
    """Count the words of a text: runs without white space."""
    return len(text.split())
