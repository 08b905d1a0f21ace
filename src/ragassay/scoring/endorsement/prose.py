"""Cuts an answer into sentences, and a sentence into clauses.

Works on a folded copy of the text (ASCII lower case, straight quotes), of the same length, so
that every position is a position in the answer. All patterns are linear in time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ragassay.matching import Token

_FOLD = str.maketrans(
    {chr(c): chr(c + 32) for c in range(65, 91)}
    | dict.fromkeys("\u2019\u2018\u02bc\u00b4`", "'")
    | dict.fromkeys("\u201c\u201d\u00ab\u00bb\u201e", '"')
    | dict.fromkeys("\u00a0\u202f\u2009\t\r\v\f", " ")
    | dict.fromkeys("*_", " ")  # emphasis
)
_BREAK = re.compile(r"[.!?]+[\"')\]]*(?=\s|\Z)|[。！？]|\n")
_ABBREVIATION = re.compile(
    r"(?:\b(?:mr|mrs|ms|dr|st|jr|sr|vs|v|etc|prof|gen|col|rev|no|vol|approx|ca|c|inc|ltd|corp|co"
    r"|e\.g|i\.e|cf|al)|(?:^|\n)[ #>-]*\d{1,2})\Z"
)
_INITIAL = re.compile(r"(?:^|[ .(])[a-z]\Z")
_LIST_ITEM = re.compile(r"[ >]*(?:[-•+–]\s|\d{1,2}[.)]\s|[a-h][.)]\s)")
_CLAUSE = re.compile(
    r"[;:()\[\]—]|\s[-–]\s|,(?=[\s\"])(?! ?\d{4}\b)|(?<![a-z])(?:"
    r"but|however|whereas|although|even though|though|while|despite|because|since(?! \d)"
    r"|if|unless|so that|which|whom|whose|who|where|after|before|(?<=, )so(?= (?!that))|making(?= )"
    r"|and(?= (?:is|was|are|were|has|had|did|died|became|it|he|she|they|that|not|so|therefore|thus"
    r"|another|others?|some|in reality|[a-z]{2,14}ed)\b)"
    r"|(?<!rather )(?<!other )than"
    r")(?![a-z'-])"
)
_SUBORDINATE = frozenset({"although", "even though", "though", "while", "despite", "whereas"})
_MAX_SENTENCE = 1_200


@dataclass(frozen=True, slots=True)
class Clause:
    """A stretch of a sentence. ``opener`` is the word or sign that opens it ("" at first)."""

    start: int
    stop: int
    opener: str
    depth: int = 0
    concessive: bool = False


@dataclass(slots=True)
class Sentence:
    """A sentence or line: ``answer[start:stop]``, its folded text, tokens and place."""

    number: int
    start: int
    stop: int
    text: str
    words: Sequence[str]
    first: int
    opens_line: bool
    item: bool
    _clauses: list[Clause] = field(default_factory=list)

    @property
    def ends_in_colon(self) -> bool:
        """Tell whether the sentence announces the next one."""
        return self.text.rstrip(" \n\"'").endswith(":")

    def clauses(self) -> list[Clause]:
        """Return the clauses, at least one, positions in the answer."""
        if not self._clauses:
            self._clauses = list(_cut(self.text, self.start))
        return self._clauses

    def clause_at(self, position: int) -> int:
        """Return the number of the clause that holds a position of the answer."""
        clauses = self.clauses()
        for number, clause in enumerate(clauses):
            if position < clause.stop:
                return number
        return len(clauses) - 1


def fold(answer: str) -> str:
    """Return the answer in ASCII lower case with plain quotes, of the same length."""
    return answer.translate(_FOLD)


def sentences(answer: str, folded: str, tokens: Sequence[Token]) -> list[Sentence]:
    """Cut a folded text; sentences without a token are left out."""
    found: list[Sentence] = []
    at = 0
    for start, stop in _spans(answer, folded):
        first = at
        while at < len(tokens) and tokens[at].start < stop:
            at += 1
        if at == first:
            continue
        text = folded[start:stop]
        line = folded.rfind("\n", 0, start + 1) + 1
        opens = not folded[line:start].strip(" #>")
        found.append(
            Sentence(
                number=len(found),
                start=start,
                stop=stop,
                text=text,
                words=[token.text for token in tokens[first:at]],
                first=first,
                opens_line=opens,
                item=opens and _LIST_ITEM.match(text) is not None,
            )
        )
    return found


def _spans(answer: str, folded: str) -> Iterator[tuple[int, int]]:
    """Yield the sentences; one that is too long is cut at a space."""
    for start, stop in _stretches(answer, folded):
        while stop - start > _MAX_SENTENCE:
            cut = folded.rfind(" ", start + 1, start + _MAX_SENTENCE)
            cut = cut if cut > start else start + _MAX_SENTENCE
            yield start, cut
            start = cut
        yield start, stop


def _stretches(answer: str, folded: str) -> Iterator[tuple[int, int]]:
    start = 0
    for match in _BREAK.finditer(folded):
        sign = match[0]
        if sign[0] == "." and len(sign) == 1:
            before = folded[max(start, match.start() - 12) : match.start()]
            if _ABBREVIATION.search(before) or (
                _INITIAL.search(before)
                and (answer[match.start() - 1].isupper() and not before.endswith(" i"))
            ):
                continue
        quoted = len(sign) > 1 and sign[-1] in "\"')"
        if quoted and folded[match.end() : match.end() + 3].lstrip()[:1].islower():
            continue  # a quoted question goes on: '"... ?" is ...'
        yield start, match.end()
        start = match.end()
    if start < len(folded):
        yield start, len(folded)


def _cut(text: str, offset: int) -> Iterator[Clause]:
    """Cut at signs and conjunctions. A concession ("although A, B") ends where B begins."""
    start, opener, depth = 0, "", 0
    concessive = fronted = main_seen = False
    for match in _CLAUSE.finditer(text):
        mark = match[0].strip()
        if text[start : match.start()].strip(" \"'"):
            yield Clause(offset + start, offset + match.start(), opener, depth, concessive)
            if not concessive:
                main_seen = True
            elif mark == "," and fronted:
                concessive = False
        if mark in "([":
            depth += 1
        elif mark in ")]":
            depth = max(0, depth - 1)
        elif mark in _SUBORDINATE:
            concessive, fronted = True, not main_seen
        elif mark in {"but", "however", "yet", ";", "so", "making"}:
            concessive = False
        opener, start = mark, match.end()
    if start < len(text) or start == 0:
        yield Clause(offset + start, offset + len(text), opener, depth, concessive)
