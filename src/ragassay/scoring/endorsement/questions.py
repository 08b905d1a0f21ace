"""What a question asks for: yes or no, one of the things it names, or anything else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from ragassay.matching import tokenize
from ragassay.scoring.endorsement.words import word_set

_STOP = word_set(
    """
    a an the of in on at to for from by with as is are was were be been being am do does did
    has have had having can could will would shall should may might must what which who whom
    whose when where why how many much and or not no it its he she they them his her their
    this that these those there than then so if into about also both either neither same one
    two first you your i me my we our us tell s name called known kind type sort
    """
)
_AUXILIARY = word_set(
    """
    is are was were am do does did has have had can could will would shall should may might
    must isn't aren't wasn't weren't don't doesn't didn't hasn't haven't can't couldn't
    won't
    """
)
_WH = word_set("what which who whom whose when where why how")
# Direction of a comparison: time -1 is earlier; size 1 is more.
DIRECTION: dict[str, tuple[str, int]] = {
    word: way
    for way, words in (
        (("time", -1), "earlier first before older elder oldest earliest prior preceded"),
        (("time", 1), "later last after younger newer latest youngest newest recent followed"),
        (("time", 1), "recently"),
        (("size", 1), "longer higher taller larger bigger greater more faster farther further"),
        (("size", 1), "heavier wider deeper longest highest tallest largest biggest most"),
        (("size", -1), "shorter lower smaller less fewer slower closer nearer lighter narrower"),
        (("size", -1), "shallower shortest lowest smallest least fewest"),
    )
    for word in words.split()
}
_STRANDED = word_set("about after against for with from")
# Words of one stem that no ending tells: the first of a line is the stem.
_FAMILIES = """
    write wrote writes written writer writing author authored writers
    win won wins winner winning winners
    sing sang sings sung singer song songs
    die died dies death dead deceased passed
    born birth birthplace birthday native
    lead led leads leader leading
    hold held holds holder holding
    make made makes maker making
    run ran runs runner running
    come came comes coming
    start began begin begins begun started starts beginning
    mean stand stands stood short refer refers referred means
    found founded founds founder founding founders
    locat located location lies lie lying situated
    fly flew flies flown flying
    jail jailed imprisoned incarcerated prison incarceration
    border borders bordered bordering
"""
_IRREGULAR = {
    word: family.split()[0] for family in _FAMILIES.strip().splitlines() for word in family.split()
}
_SUFFIX = re.compile(r"(?:ingly|ing|edly|ed|ers|er|ors|or|ies|es|s|ly|ion|ions)\Z")


@dataclass(frozen=True, slots=True)
class Question:
    """A question as the reading of an answer needs it.

    ``predicate`` are the stems of its content words without proper names (all content words,
    where the question has no capitals); ``compares`` is the direction it asks for, ``stranded`` the
    preposition it ends in, behind which the answer stands ("who is the song about"), and
    ``kind`` the noun after "which" or "what".
    """

    words: tuple[str, ...]
    polar: bool
    content: frozenset[str]
    predicate: frozenset[str]
    names: frozenset[str]
    both: bool
    same: bool
    compares: tuple[str, int] | None
    stranded: str
    kind: frozenset[str]


@lru_cache(maxsize=32_768)
def stem(word: str) -> str:
    """Reduce a word to a stem that its inflections and close derivations share.

    Examples
    --------
    >>> {stem(word) for word in ("designer", "designed", "designs")}
    {'desig'}
    """
    known = _IRREGULAR.get(word)
    if known:
        return known
    if len(word) > 4:
        word = _SUFFIX.sub("", word) if len(_SUFFIX.sub("", word)) > 2 else word
    return (word[:-1] if word.endswith("e") and len(word) > 3 else word)[:5]


def stems(words: Sequence[str]) -> set[str]:
    """Return the stems of the content words."""
    return {stem(word) for word in words if word not in _STOP}


@lru_cache(maxsize=4096)
def read_question(text: str) -> Question:
    """Read a question; any text is one."""
    tokens = tokenize(text)
    words = tuple(token.text for token in tokens)
    cased = [text[token.start] for token in tokens]
    capitals = sum(character.isupper() for character in cased[1:])
    names: set[str] = set()
    if capitals:
        names = {
            stem(word)
            for place, word in enumerate(words)
            if place and cased[place].isupper() and word not in _STOP
        }
    content = frozenset(stems(words))
    comparatives = [DIRECTION[word] for word in words if word in DIRECTION]
    has_or = "or" in words or "which" in words[:3]
    return Question(
        words=words,
        polar=_is_polar(words),
        content=content,
        predicate=frozenset(content - names) or content,
        names=frozenset(names),
        both="both" in words,
        same="same" in words,
        compares=comparatives[0] if comparatives and has_or else None,
        kind=frozenset(stem(after) for word, after in pairwise(words) if word in {"which", "what"}),
        stranded=words[-1] if words and words[-1] in _STRANDED else "",
    )


def _is_polar(words: Sequence[str]) -> bool:
    """Tell whether yes or no would answer."""
    if not words:
        return False
    head = words[0]
    if head in {"is", "are"} and len(words) > 2 and words[1] in _WH:
        return False
    return (
        head in _AUXILIARY
        or "whether" in words
        or ("true" in words and (head == "it" or "false" in words))
    )
