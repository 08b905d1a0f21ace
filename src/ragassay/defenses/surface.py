"""What can be read off the surface of a text: its profile form, containment, words, cues.

Source: "Ranking is not judgment", section V-A (the two construction cues: the question verbatim
in the passage, and the length in words).

Deviations: punctuation becomes a space before white space is squeezed. Deleting it would merge
the last word of a question with the first word of the text that follows it in the released join
of PoisonedRAG. Punctuation means the Unicode classes P and S.
"""

from __future__ import annotations

import unicodedata
from difflib import SequenceMatcher


class _Spaced(dict[int, int | str]):
    """Maps punctuation and symbols to a space, looked up once for each character."""

    def __missing__(self, code: int) -> int | str:
        value: int | str = " " if unicodedata.category(chr(code))[0] in "PS" else code
        self[code] = value
        return value


_SPACED = _Spaced()


def profile_form(text: str) -> str:
    """Lower the case, turn punctuation into spaces, squeeze white space.

    Examples
    --------
    >>> profile_form("Who wrote Hamlet?.The play was ...")
    'who wrote hamlet the play was'
    """
    return " ".join(text.lower().translate(_SPACED).split())


def contains_question(question: str, passage: str) -> bool:
    """Tell whether a passage holds the question verbatim, character by character in profile form.

    A question without any letter or digit is in no passage.

    Examples
    --------
    >>> contains_question("who wrote Hamlet?", "who wrote Hamlet?.The play was written by Bacon.")
    True
    """
    wanted = profile_form(question)
    return bool(wanted) and wanted in profile_form(passage)


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
    wanted, words = profile_form(question).split(), profile_form(passage).split()
    if not wanted:
        return 0.0
    matcher = SequenceMatcher(None, words, wanted, autojunk=False)
    return matcher.find_longest_match().size / len(wanted)


def word_count(text: str) -> int:
    """Count the words of a text: runs without white space."""
    return len(text.split())
