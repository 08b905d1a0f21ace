"""Reads answers to yes/no questions: a leading yes or no, or a sentence that affirms or denies.

A sentence counts as an answer when it repeats enough of the question's content words, or says
of "they" or "both" what the question asks; its polarity is the parity of its negations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ragassay.scoring.endorsement import cues
from ragassay.scoring.endorsement.claims import (
    ASSERTED,
    LEAD,
    MENTIONED,
    REPORTED,
    STATED,
    VERDICT,
    Claim,
)
from ragassay.scoring.endorsement.frames import Frame
from ragassay.scoring.endorsement.prose import Clause
from ragassay.scoring.endorsement.questions import DIRECTION, Question, stems
from ragassay.scoring.endorsement.words import word_set

_PREFIX = (
    r"\W*(?:(?:final |my |the |short )?answer(?: is)?\W+|therefore\W+|thus\W+|so\W+|hence\W+)?"
)
_LEAD = re.compile(
    _PREFIX + r"(?P<word>yes|no|yeah|yep|nope|true|false)\b(?:(?=\W*\Z)|(?=\s*[,.;:!()\"'—–-])"
    r"|(?=\s+(?:they|it|he|she|this|that|these|those|there|we|i|not|both|neither|the|you|but"
    r"|and)\b))"
)
_INNER = re.compile(
    r"(?:answer(?:s|ed)?|say(?:s|ing)?|said|conclude|respond|reply|is|be|with|an?|that|states?"
    r"|claims?"
    r"|confidently|indeed|:)[\s:,\"']{1,4}(?P<word>yes|no)\b(?=[\"']*\s*(?:\Z|[.,;:!)(—–-]"
    r"|without|but))"
)
_BOTH_WAYS = re.compile(
    r"\W*yes and no\b|\bmay or may not\b|\bit depends\b|\bpartly\b"
    r"|\bopinions (?:vary|differ)|\bconflicting (?:answers?|statements?|information|evidence"
    r"|claims)\b"
)
_WORD = re.compile(r"[\w'-]+")
_BUT_NOT = re.compile(r"\bbut not\b")
_SPLIT = re.compile(r"\b(?:while|whereas|but)\b")
_TEMPORAL = word_set("before after first last most more")
_PRONOUNS = word_set("they both neither it he she these that this two")


def read(
    folded: str, question: Question, frame: Frame, labels: Mapping[str, Sequence[str]]
) -> list[Claim]:
    """Return the claims a sentence makes for "yes" or "no"."""
    sentence = frame.sentence
    text = sentence.text
    if _BOTH_WAYS.search(text):
        return [
            Claim(label, REPORTED, sentence.start, sentence.stop, sentence.number, hedged=True)
            for word in ("yes", "no")
            for label in labels[word]
        ]
    lead = _LEAD.match(text)
    if lead:
        word = "no" if lead["word"][0] in "nf" else "yes"
        force = VERDICT if frame.verdict >= 0 else LEAD if sentence.number == 0 else ASSERTED
        told = sentence.number > 0 and cues.EXTERNAL.search(text) is not None
        source = "external" if told else ""
        return _claims(labels[word], force, frame, lead.span("word"), source=source, bare=True)
    inner = next(reversed(list(_INNER.finditer(text))), None)
    if inner and not (0 <= frame.abstain - sentence.start <= inner.start()):
        position = sentence.start + inner.start("word")
        source = _source(text[: inner.start("word")])
        force = _force(frame, position, source, ASSERTED)
        return _claims(labels[inner["word"]], force, frame, inner.span("word"), source=source)
    return _declarative(question, frame, labels)


def _claims(
    labels: Sequence[str],
    force: int,
    frame: Frame,
    span: tuple[int, int],
    *,
    source: str = "",
    bare: bool = False,
) -> list[Claim]:
    sentence = frame.sentence
    start, stop = sentence.start + span[0], sentence.start + span[1]
    return [
        Claim(label, force, start, stop, sentence.number, source=source, bare=bare)
        for label in labels
    ]


def _source(before: str) -> str:
    """Return who says it, by the last mark before it that no contrast cancels."""
    marks = [(m.end(), "external") for m in cues.EXTERNAL.finditer(before)]
    marks += [(m.end(), "self") for m in cues.SELF.finditer(before)]
    marks += [(m.end(), "") for m in cues.TURN.finditer(before)]
    return max(marks)[1] if marks else ""


def _force(frame: Frame, position: int, source: str, plain: int) -> int:
    if 0 <= frame.verdict <= position or 0 <= frame.correction <= position:
        return VERDICT
    return REPORTED if source == "external" else plain


def _declarative(
    question: Question, frame: Frame, labels: Mapping[str, Sequence[str]]
) -> list[Claim]:
    """Read a sentence that says, or denies, what the question asks."""
    sentence = frame.sentence
    text = sentence.text
    if text.rstrip().endswith("?") or not _answers(question, sentence.words):
        return []
    position = sentence.start
    clauses = sentence.clauses()
    relevant = [
        c for c in clauses if _relevant(question, text[c.start - position : c.stop - position])
    ]
    if not relevant:
        return []
    clause = relevant[-1]
    if 0 <= frame.abstain < clause.stop and not cues.TURN.search(
        text[frame.abstain - position : clause.start - position + 1]
    ):
        return []
    last = clause.stop - position
    span = (clause.start - position, last)
    said = _said(question, text, relevant, position)
    word = "no" if _negative(question, said, text) else "yes"
    source = _source(text[:last])
    plain = LEAD if sentence.number == 0 and len(relevant) else ASSERTED
    if clause.opener in cues.HYPOTHETICAL_OPENERS or clause.opener == "whether":
        return _claims(labels[word], MENTIONED, frame, span)
    if _BUT_NOT.search(text, last - 1):
        return _claims([*labels["yes"], *labels["no"]], ASSERTED, frame, span, source=source)
    if clause.concessive or cues.HEDGE.search(text[span[0] : last]):
        claims = _claims(labels[word], REPORTED, frame, span, source=source)
        return [replace(claim, hedged=not clause.concessive) for claim in claims]
    if cues.ACCORDING.search(text):
        plain = STATED
    force = _force(frame, clause.start, source, plain)
    return _claims(labels[word], force, frame, span, source=source)


def _said(question: Question, text: str, relevant: Sequence[Clause], position: int) -> str:
    """Return the relevant clauses that belong to the last one: all, if "both" are asked for."""
    first = len(relevant) - 1
    while first and (question.both or relevant[first].opener not in cues.HARD):
        first -= 1
    return " ".join(text[c.start - position : c.stop - position] for c in relevant[first:])


def _answers(question: Question, words: Sequence[str]) -> bool:
    found = stems(words)
    shared = question.content & found
    if not question.content:
        return False
    if len(shared) >= 0.6 * len(question.content):
        return True
    predicate = question.predicate & found
    compared = question.compares or any(
        word in DIRECTION and word not in _TEMPORAL for word in question.words
    )
    if compared and not any(word in DIRECTION for word in words):
        return False
    if predicate and (_PRONOUNS & set(words[:6]) or len(shared) * 2 >= len(question.content)):
        return True
    return question.both and bool(predicate) and bool(question.names & found)


def _relevant(question: Question, text: str) -> bool:
    words = _WORD.findall(text)
    found = stems(words)
    if question.predicate & found:
        return True
    return any(word in DIRECTION for word in words) or (
        question.both and bool({"both", "neither", "only", "not"} & set(words))
    )


def _negative(question: Question, said: str, text: str) -> bool:
    """Tell whether the relevant clauses ``said`` of a sentence deny what the question asks."""
    count = cues.denials(said)
    negative = (count + cues.denials(" ".join(question.words))) % 2 == 1
    words = set(_WORD.findall(said))
    if question.both and ("only" in words or "neither" in words):
        return True
    if question.both and cues.denials(text) and _SPLIT.search(text):
        return True
    if question.same and "different" in words:
        return not negative
    wanted = {DIRECTION[w] for w in question.words if w in DIRECTION}
    stated = {DIRECTION[w] for w in words if w in DIRECTION}
    opposite = {(dimension, -sign) for dimension, sign in wanted}
    if opposite & stated and not wanted & stated:
        return not negative
    return negative
