"""What a sentence does apart from the candidates it names: conclude, abstain, correct, doubt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragassay.scoring.endorsement import cues
from ragassay.scoring.endorsement.prose import Sentence


@dataclass(slots=True)
class Frame:
    """The cues of a sentence; positions in the answer, or -1.

    ``strong`` tells an abstention of the speaker ("I don't know") from the silence of a source
    ("the text does not say"). ``trust`` is the side that is declared trustworthy, ``inherits``
    what the line before, ending in a colon, announces ("verdict" or "external").
    """

    sentence: Sentence
    verdict: int = -1
    abstain: int = -1
    strong: bool = False
    correction: int = -1
    trust: str = ""
    inherits: str = ""

    @property
    def doubts(self) -> bool:
        """Tell whether the sentence calls something unreliable, contradictory or unverified."""
        return cues.DOUBT.search(cues.NEUTRAL.sub("", self.sentence.text)) is not None

    @property
    def disclaims(self) -> bool:
        """Tell whether the sentence takes back what was said before ("this is incorrect")."""
        return cues.DISCLAIM.search(cues.NEUTRAL.sub("", self.sentence.text)) is not None

    @property
    def asks(self) -> bool:
        """Tell whether the sentence is a question."""
        return self.sentence.text.rstrip().endswith("?")


def frames(found: Sequence[Sentence]) -> list[Frame]:
    """Read the cues of every sentence, and hand on what a colon or a correction announces."""
    result: list[Frame] = []
    announced = ""
    pending = False
    for sentence in found:
        frame = _frame(sentence)
        if pending and frame.correction < 0:
            frame.correction = sentence.start
        pending = frame.correction >= 0 and cues.PENDING.search(sentence.text) is not None
        frame.inherits = announced
        if announced == "verdict" and frame.verdict < 0 and frame.abstain < 0:
            frame.verdict = sentence.start
        announced = _announced(frame, announced)
        result.append(frame)
    return result


def _announced(frame: Frame, before: str) -> str:
    sentence = frame.sentence
    if sentence.ends_in_colon and frame.abstain < 0:
        if frame.verdict >= 0 and not cues.HEDGE.search(sentence.text):
            return "verdict"
        return "external" if cues.EXTERNAL.search(sentence.text) else ""
    return before if sentence.item and before == "external" else ""


def _frame(sentence: Sentence) -> Frame:
    """Read one sentence; its words decide which of the slower patterns are worth a search."""
    text, start = sentence.text, sentence.start
    words = frozenset(sentence.words)
    frame = Frame(sentence)
    if not words.isdisjoint(cues.VERDICT_WORDS):
        match = cues.VERDICT.search(text)
        if match:
            frame.verdict = start + match.start()
    if "n't" in text or not words.isdisjoint(cues.ABSTAIN_WORDS):
        strong = cues.ABSTAIN.search(text)
        match = strong or cues.SILENT.search(text) or cues.SILENT_WHOLE.match(text)
        if match:
            frame.abstain, frame.strong = start + match.start(), strong is not None
    if not words.isdisjoint(cues.CORRECTION_WORDS):
        match = cues.CORRECTION.search(text)
        if match:
            frame.correction = start + match.start()
    if frame.correction < 0 and sentence.number and cues.OPENS_IN_NO.match(text):
        frame.correction = start
    if not words.isdisjoint(cues.TRUST_WORDS):
        match = cues.TRUST.search(text)
        if match and not cues.NEGATION.search(text[: match.start()]):
            frame.trust = "self" if match["self"] else "external"
    return frame
