"""What the record browser is told of a label: letters, and the spans that decided it."""

from __future__ import annotations

from itertools import pairwise

from ragassay.types import ScoreRecord

_SPANS = {"wanted": 0, "reference": 1, "abstention": 2}
_OTHER_SPAN = 3


def letters(score: ScoreRecord | None) -> str:
    """Three letters: target-positive, correct, abstained; ``?`` uncertain, ``x`` not scored."""
    if score is None:
        return "xxx"
    return "".join(
        ("?" if name in score.uncertain else "x") if value is None else "1" if value else "0"
        for name, value in (
            ("target_positive", score.target_positive),
            ("correct", score.correct),
            ("abstained", score.abstained),
        )
    )


def spans(score: ScoreRecord | None, answer: str) -> list[int]:
    """Flat [start, stop, kind, ...] in UTF-16 units, in order and without overlap.

    Where spans overlap ("males" in "females"), the attacker's answer is what is shown.
    """
    if score is None or not score.evidence:
        return []
    found = [
        (max(0, s.start), min(len(answer), s.stop), _SPANS.get(s.label, _OTHER_SPAN))
        for s in score.evidence
    ]
    edges = sorted({edge for start, stop, _ in found if start < stop for edge in (start, stop)})
    flat: list[int] = []
    for start, stop in pairwise(edges):
        kinds = [kind for first, last, kind in found if first <= start and stop <= last]
        if not kinds:
            continue
        first, last, kind = _utf16(answer, start), _utf16(answer, stop), min(kinds)
        if flat[-2:] == [first, kind]:  # the same span goes on
            flat[-2] = last
        else:
            flat += [first, last, kind]
    return flat


def _utf16(text: str, position: int) -> int:
    """Convert an offset in characters to one in UTF-16 units, which browsers count."""
    if text.isascii():
        return position
    return position + sum(ord(char) > 0xFFFF for char in text[:position])
