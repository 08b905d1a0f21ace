"""Questions that compare ("who was born earlier, A or B?"): which side a sentence puts first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ragassay.scoring.endorsement import cues
from ragassay.scoring.endorsement.forms import Mention
from ragassay.scoring.endorsement.prose import Sentence
from ragassay.scoring.endorsement.questions import DIRECTION

_YEAR = re.compile(r"(?<![\d.,])(1[0-9]{3}|20[0-9]{2})(?![\d,]?\d)")
_NUMBER = re.compile(r"(?<![\d.,\w])(\d{1,3}(?:,\d{3})+|\d{1,9})(?:\.(\d{1,6}))?(?![\d\w])")


def piece(sentence: Sentence, number: int) -> tuple[int, int]:
    """Return the span of the clauses around a clause that belong to one statement."""
    clauses = sentence.clauses()
    first = last = number
    while first and clauses[first].opener not in cues.HARD:
        first -= 1
    while last + 1 < len(clauses) and clauses[last + 1].opener not in cues.HARD:
        last += 1
    return clauses[first].start, clauses[last].stop


def directions(text: str, dimension: str) -> list[int]:
    """Return the directions of the comparatives of a stretch of folded text, in its order."""
    words = cues.INCIDENTAL_FIRST.sub("", text).replace(",", " ").replace(".", " ").split()
    return [DIRECTION[w][1] for w in words if w in DIRECTION and DIRECTION[w][0] == dimension]


def compares(text: str, dimension: str) -> bool:
    """Tell whether a stretch of folded text compares in a dimension ("time", "size")."""
    return bool(directions(text, dimension) or cues.EQUAL.search(text) or " as " in text)


def loses(folded: str, asked: tuple[str, int], mention: Mention, sentence: Sentence) -> bool:
    """Tell whether the sentence gives the place that is asked for to the other side."""
    start, stop = piece(sentence, sentence.clause_at(mention.start))
    text = folded[start:stop]
    at = max(0, mention.start - start)
    if cues.EQUAL.search(text):
        return False
    if cues.APART.search(text[:at]):
        return True
    pivot = cues.PIVOT.search(text)
    if pivot is None:
        ahead = directions(text[mention.stop - start :], asked[0])
        behind = directions(text[:at], asked[0])
        near = ahead[:1] or behind[-1:]
        return bool(near) and near[0] != asked[1]
    way = {"before": -1, "after": 1}.get(pivot[0]) if asked[0] == "time" else None
    if way is None:
        stated = directions(text[: pivot.start()], asked[0]) or [asked[1]]
        way = stated[-1]
    if cues.denials(text[: pivot.start()]) % 2:
        way = -way
    return (way == asked[1]) == (at > pivot.start())


def larger(
    folded: str,
    asked: tuple[str, int],
    mentions: Sequence[Mention],
    sentences: Sequence[Sentence],
) -> Mention | None:
    """Return the side that wins by the one figure given for each ("A had 5, B had 4").

    In time, figures are years. ``None`` where a side has no figure, or where they are equal.
    """
    figures: dict[str, tuple[float, Mention]] = {}
    for place, mention in enumerate(mentions):
        if mention.label in figures:
            continue
        sentence = next(s for s in sentences if s.start <= mention.start < s.stop)
        limit = min([sentence.stop, *(m.start for m in mentions[place + 1 : place + 2])])
        pattern = _YEAR if asked[0] == "time" else _NUMBER
        found = pattern.search(folded, mention.stop, limit)
        if found:
            value = float(found[0].replace(",", ""))
            figures[mention.label] = (value, mention)
    if len(figures) != 2:
        return None
    (one, first), (two, second) = figures.values()
    if one == two:
        return None
    bigger_wins = (asked[1] == 1) if asked[0] in {"time", "size"} else True
    return first if (one > two) == bigger_wins else second
