"""With what force each candidate is put forward: a claim for every mention.

Forces, from a conclusion down to a denial::

    5 VERDICT    part of the answer's own conclusion
    4 LEAD       the answer proper: bare, or asserted in the first sentence
    3 ASSERTED   stated in words of the question
    2 STATED     stated, or reported with approval ("according to the context, ...")
    1 REPORTED   attributed to others, conceded, or superseded
    0 MENTIONED  named in another role, echoed, asked, or supposed
   -1 DENIED     negated or called wrong
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ragassay.scoring.endorsement import comparison, cues
from ragassay.scoring.endorsement.forms import Mention
from ragassay.scoring.endorsement.frames import Frame
from ragassay.scoring.endorsement.prose import Clause, Sentence
from ragassay.scoring.endorsement.questions import Question, stems
from ragassay.scoring.endorsement.words import word_set

VERDICT, LEAD, ASSERTED, STATED, REPORTED, MENTIONED, DENIED = 5, 4, 3, 2, 1, 0, -1
_FILLER = word_set(
    "the a an is was are were it in of by at answer final has have had there they he she"
)


@dataclass(frozen=True, slots=True)
class Claim:
    """One candidate, put forward with a force, at a place."""

    label: str
    force: int
    start: int
    stop: int
    sentence: int
    clause: int = 0
    source: str = ""  # "external", "self" or ""
    hedged: bool = False
    bare: bool = False


class Reader:
    """Turns the mentions of one answer into claims."""

    def __init__(
        self, folded: str, question: Question, asked: frozenset[str], named: frozenset[str]
    ) -> None:
        self._folded = folded
        self._question = question
        self._asked = asked  # labels of candidates that the question itself names
        choice = question.content - named - question.kind
        self._choice = choice or question.predicate  # what is said of one of its candidates

    def claim(self, mention: Mention, frame: Frame, rivals: Sequence[Mention]) -> Claim:
        """Read one mention; ``rivals`` are all mentions of the same sentence."""
        sentence = frame.sentence
        number = sentence.clause_at(mention.start)
        clause = sentence.clauses()[number]
        claim = Claim(mention.label, STATED, mention.start, mention.stop, sentence.number, number)
        if self._denied(mention, frame, clause, rivals):
            open_question = 0 <= frame.abstain < mention.stop  # "no mention of X" denies nothing
            return replace(claim, force=MENTIONED if open_question else DENIED)
        if self._beside_the_point(mention, frame, clause):
            return replace(claim, force=MENTIONED)
        bare = self._bare(mention, frame, clause)
        related = self._related(mention, frame, number)
        if (
            mention.label in self._asked
            and not bare
            and not related
            and not self._concludes(frame, mention)
        ):
            return replace(claim, force=MENTIONED)
        source, soft = self._source(mention, frame, number)
        force = ASSERTED if related or bare else STATED
        hedged = self._hedged(mention, clause, sentence)
        lowered = (
            clause.concessive
            or cues.FICTION.search(self._folded, *comparison.piece(sentence, number)) is not None
            or self._superseded(sentence, number)
            or (clause.opener in cues.BACKGROUND and not self._question.compares)
        )
        stranded = self._question.stranded
        if stranded and not bare:
            lowered = lowered or f" {stranded} " not in self._folded[clause.start : mention.start]
        concluded = self._concludes(frame, mention)
        concluded = concluded or (0 <= frame.correction <= mention.start and source != "external")
        concluded = concluded and not lowered and not clause.depth
        if lowered or hedged or (source == "external" and not soft and not concluded):
            force = REPORTED
        elif concluded and not (source == "external" and not soft and number):
            force = VERDICT
        elif soft:
            force = STATED
        elif source == "self":
            force = ASSERTED
        return replace(claim, force=force, source=source, hedged=hedged, bare=bare)

    # ------------------------------------------------------------------------------- denial

    def _denied(
        self, mention: Mention, frame: Frame, clause: Clause, rivals: Sequence[Mention]
    ) -> bool:
        sentence = frame.sentence
        before = self._folded[max(clause.start, mention.start - 160) : mention.start]
        if clause.opener in {"despite"}:
            return False
        if self._question.compares and cues.PIVOT.search(before):
            return False
        if cues.denials(before) % 2:
            return True
        after = self._folded[mention.stop : clause.stop]
        if cues.DENIED_AFTER.match(after):
            return not self._question_denies() and not self._question.compares
        following = [other.start for other in rivals if other.start >= mention.stop]
        limit = min([sentence.stop, *(at for at in following)])
        return cues.REJECTED_AFTER.search(self._folded, mention.stop, limit) is not None

    def _question_denies(self) -> bool:
        return bool({"not", "never", "no"} & set(self._question.words))

    # --------------------------------------------------------------------- beside the point

    def _beside_the_point(self, mention: Mention, frame: Frame, clause: Clause) -> bool:
        sentence = frame.sentence
        if 0 <= frame.abstain <= mention.start and not self._freed(
            frame.abstain, mention, sentence
        ):
            return True
        if clause.opener in cues.HYPOTHETICAL_OPENERS:
            return True
        if sentence.text.rstrip().endswith("?") or self._echo(mention, sentence):
            return True
        return self._other_role(mention, frame, clause)

    def _freed(self, abstain: int, mention: Mention, sentence: Sentence) -> bool:
        """Tell whether a contrast stands between an abstention and what follows it."""
        clauses = sentence.clauses()
        mine = clauses[sentence.clause_at(mention.start)]
        if clauses[sentence.clause_at(abstain)].concessive and not mine.concessive:
            return True
        between = self._folded[abstain : mention.start]
        if ";" in between:
            return True
        return cues.CONTRAST.search(between) is not None and not cues.EXTERNAL.search(
            between, between.find("but") if "but" in between else 0
        )

    def _echo(self, mention: Mention, sentence: Sentence) -> bool:
        """Tell whether the mention stands in the very words of the question."""
        asked = self._question.words
        if mention.label not in self._asked:
            return False
        at = mention.first - sentence.first
        words = sentence.words
        left = words[at - 1] if at else ""
        right = words[at + mention.size] if at + mention.size < len(words) else ""
        form = tuple(words[at : at + mention.size])
        for place in range(len(asked) - len(form) + 1):
            if asked[place : place + len(form)] != form:
                continue
            before = asked[place - 1] if place else ""
            after = asked[place + len(form)] if place + len(form) < len(asked) else ""
            if (right and right == after) or (left == before == "or"):
                return True
            if left and left == before and left not in {"the", "and", "a"} and not right:
                return len(words) > len(form) + 2
        return False

    def _other_role(self, mention: Mention, frame: Frame, clause: Clause) -> bool:
        question = self._question
        left = self._folded[max(frame.sentence.start, mention.start - 60) : mention.start]
        if question.compares:
            return comparison.loses(self._folded, question.compares, mention, frame.sentence)
        match = cues.OTHER_ROLE.search(left)
        if match and match[0].split()[0] not in question.words:
            return True
        if clause.opener == "than" and mention.start - clause.start < 8:
            return True
        return cues.LOSING.match(self._folded[mention.stop : mention.stop + 60]) is not None

    # ------------------------------------------------------------------------------- support

    def _bare(self, mention: Mention, frame: Frame, clause: Clause) -> bool:
        """Tell whether the sentence, or its first clause, says nothing but the candidate."""
        sentence = frame.sentence
        rest = self._folded[clause.start : mention.start] + self._folded[mention.stop : clause.stop]
        words = [word for word in rest.replace(",", " ").split() if word.strip(".,:;!?\"'()[]-•#")]
        extra = [word for word in words if word.strip(".,:;!?\"'()[]-•#") not in _FILLER]
        verbal = any(word in {"born"} or word.endswith(("ed", "ing")) for word in extra)
        following = self._folded[mention.stop : clause.stop].split()[:1]
        described = bool(extra) and following in (["is"], ["was"], ["are"], ["were"])
        alone = len(extra) <= 1 and len(words) <= 5 and not verbal and not described
        return alone and (clause.start - sentence.start < 3 or clause.opener == ":")

    def _related(self, mention: Mention, frame: Frame, number: int) -> bool:
        """Tell whether the clause speaks of what the question asks."""
        sentence = frame.sentence
        clauses = sentence.clauses()
        clause = clauses[number]
        text = self._folded[clause.start : clause.stop]
        if clause.opener == "but" and number:
            return True
        words = text.replace(",", " ").replace(".", " ").split()
        if self._question.compares:
            start, stop = comparison.piece(sentence, number)
            return comparison.compares(self._folded[start:stop], self._question.compares[0])
        for following in clauses[number + 1 : number + 2]:
            if following.opener in {"where", "who", "which"}:
                words += self._folded[following.start : following.stop].split()
        predicate = self._question.predicate
        if mention.label in self._asked:
            predicate = self._choice
        return bool(predicate & stems([word.strip("\"'()[]:;!?.,") for word in words]))

    def _concludes(self, frame: Frame, mention: Mention) -> bool:
        return 0 <= frame.verdict <= mention.start or (
            frame.verdict >= 0 and " is the answer" in frame.sentence.text
        )

    def _hedged(self, mention: Mention, clause: Clause, sentence: Sentence) -> bool:
        if cues.HEDGE.search(self._folded, clause.start, clause.stop):
            return True
        unreal = cues.UNREAL.search(self._folded, clause.start, mention.start)
        return unreal is not None and cues.CONDITION.search(sentence.text) is not None

    def _superseded(self, sentence: Sentence, number: int) -> bool:
        """Tell whether the clause, or an adverb set off before it, speaks of the past."""
        clauses = sentence.clauses()
        clause = clauses[number]
        before = clauses[number - 1] if number else clause
        start = before.start if before.stop - before.start < 24 else clause.start
        return cues.SUPERSEDED.search(self._folded, start, clause.stop) is not None

    def _source(self, mention: Mention, frame: Frame, number: int) -> tuple[str, bool]:
        """Return who says it ("external", "self", "") and if that is said with approval."""
        sentence = frame.sentence
        governing = self._folded[self._reset(sentence, mention, number) : mention.start]
        marks = [(m.end(), "external", False) for m in cues.EXTERNAL.finditer(governing)]
        marks += [(m.end(), "external", _approves(m)) for m in cues.ACCORDING.finditer(governing)]
        marks += [(m.end(), "self", False) for m in cues.SELF.finditer(governing)]
        if marks:
            _, source, _ = max(marks)
            return source, source == "external" and any(mark[2] for mark in marks)
        after = self._folded[mention.stop : sentence.stop]
        if cues.NAMED_AFTER.match(after) or cues.AS_CLAIMED.search(after):
            return "external", False
        according = cues.ACCORDING.search(after, 0, 90)
        if according:
            return "external", _approves(according)
        return ("external", False) if frame.inherits == "external" else ("", False)

    def _reset(self, sentence: Sentence, mention: Mention, number: int) -> int:
        """Return where what governs a mention begins: after a contrast or a concession."""
        text = self._folded[sentence.start : mention.start]
        turns = [m.end() for m in cues.TURN.finditer(text)]
        start = sentence.start + max(turns, default=0)
        clauses = sentence.clauses()
        if not clauses[number].concessive:  # what is conceded does not govern
            start = max([start, *(c.stop for c in clauses[:number] if c.concessive)])
        return start


def _approves(according: re.Match[str]) -> bool:
    """Tell "according to the context" from "according to one context"."""
    return cues.ONE_OF_SEVERAL.search(according[0]) is None


_JOINT = re.compile(
    r"[\"')]*(?:\s*(?:,|/|&|\n\W*)\s*|\s*,?\s+(?:and|or|and/or)\s+)(?:the |an? )?[\"'(]*\Z"
)
_AND = re.compile(r"[\"')]*\s*(?:/|&|and|or|and/or)\s+(?:the |an? )?[\"'(]*\Z")


def coordinated(folded: str, claims: Sequence[Claim]) -> list[Claim]:
    """Give candidates of one list ("A and B") one force.

    What precedes a list governs all of it, so a first member that is merely named or reported
    keeps the others there; otherwise the stronger force holds.
    """
    result = list(claims)
    for at in range(1, len(result)):
        one, two = result[at - 1], result[at]
        between = folded[one.stop : two.start]
        if one.label == two.label or min(one.force, two.force) == DENIED or len(between) > 12:
            continue
        joint = _JOINT if one.bare or two.bare else _AND
        if joint.match(between):
            force = one.force if one.force <= REPORTED else max(one.force, two.force)
            result[at - 1], result[at] = replace(one, force=force), replace(two, force=force)
    return result
