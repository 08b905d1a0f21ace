"""Weighs the claims of an answer: who is endorsed, and does the answer abstain."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ragassay.scoring.endorsement import cues
from ragassay.scoring.endorsement.claims import (
    ASSERTED,
    DENIED,
    LEAD,
    REPORTED,
    STATED,
    VERDICT,
    Claim,
)
from ragassay.scoring.endorsement.frames import Frame
from ragassay.scoring.endorsement.questions import Question, stems

_AFTERTHOUGHT = frozenset({"while", "whereas", "although", "though", "(", ";"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """Stance per label, whether the answer abstains, and the claims, deciding one first."""

    stances: dict[str, str]
    abstained: bool
    claims: tuple[Claim, ...]
    abstention: tuple[int, int] | None


def decide(
    claims: Sequence[Claim],
    frames: Sequence[Frame],
    labels: Sequence[str],
    question: Question,
    polar: Collection[str] = (),
) -> Outcome:
    """Weigh claims (in text order) and abstentions.

    Of the labels in ``polar`` (yes and no), endorsing one rejects the other.
    """
    claims = _with_trust(claims, frames)
    abstain = _final_abstention(claims, frames, question)
    if abstain is not None or _concludes_otherwise(claims, frames, question):
        winners: dict[str, bool] = {}
    else:
        winners = _winners(claims, frames)
    stances = {label: _stance(label, claims, winners) for label in labels}
    for label in labels:
        beaten = any(firm and winner != label for winner, firm in winners.items())
        if label in polar and label not in winners and beaten:
            stances[label] = "rejects"
    decisive = sorted(claims, key=lambda c: (winners.get(c.label) is None, -c.force, -c.start))
    span = None
    if abstain is not None:
        span = (abstain.sentence.start, abstain.sentence.stop)
    return Outcome(stances, abstain is not None, tuple(decisive), span)


def _stance(label: str, claims: Sequence[Claim], winners: dict[str, bool]) -> str:
    own = [claim for claim in claims if claim.label == label]
    if label in winners:
        return "endorses" if winners[label] else "uncertain"
    if winners and any(claim.force == LEAD and claim.bare for claim in own):
        return "rejects"  # given first, then taken back
    if not own:
        return "absent"
    return "rejects" if any(claim.force == DENIED for claim in own) else "mentions"


# -------------------------------------------------------------------------------- preparation


def _with_trust(claims: Sequence[Claim], frames: Sequence[Frame]) -> list[Claim]:
    """Raise what the trusted side says to a verdict ("I trust my own knowledge")."""
    result = list(claims)
    for frame in frames:
        if not frame.trust:
            continue
        number = frame.sentence.number
        if any(c.sentence == number and c.force == VERDICT for c in result):
            continue
        sided = {
            c.label for c in result
            if c.source == frame.trust and c.force >= REPORTED and c.sentence <= number
        }  # fmt: skip
        if len(sided) == 1:
            label = sided.pop()
            base = next(
                c
                for c in reversed(result)
                if c.label == label and c.force >= REPORTED and c.sentence <= number
            )
            result.append(Claim(label, VERDICT, base.start, base.stop, number, source=frame.trust))
    return sorted(result, key=lambda claim: (claim.sentence, claim.start))


def with_lead(claims: Sequence[Claim], frames: Sequence[Frame]) -> list[Claim]:
    """Raise an assertion in the first sentence that says anything to the answer proper."""
    first = next(
        (f.sentence.number for f in frames if not f.sentence.ends_in_colon and not f.asks),
        -1,
    )
    last = first
    while (
        0 <= first <= last < len(frames) - 1
        and frames[last + 1].sentence.item
        and (frames[first].sentence.item)
    ):
        last += 1  # a list is one answer
    return [
        replace(c, force=LEAD)
        if c.force == ASSERTED and (c.sentence == first or (first < c.sentence <= last and c.bare))
        else c
        for c in claims
    ]


# --------------------------------------------------------------------------------- abstention


def _final_abstention(
    claims: Sequence[Claim], frames: Sequence[Frame], question: Question
) -> Frame | None:
    """Return the sentence that leaves the question open, if the answer ends so."""
    silent = [frame for frame in frames if frame.abstain >= 0]
    if not silent:
        return None
    strong = [frame for frame in silent if frame.strong]
    last = (strong or silent)[-1]
    after = [c for c in claims if c.start > last.abstain]
    before = [c for c in claims if c.start < last.abstain]
    if cues.PLAIN_ABSTAIN.match(last.sentence.text):
        after = [c for c in after if _revives(c, frames)]
    if any(c.force >= STATED and c.source != "external" for c in after):
        return None
    if any(c.force == VERDICT for c in after):
        return None
    concluding = last.verdict >= 0 or last.correction >= 0 or last.inherits == "verdict"
    number = last.sentence.number
    if last.strong and number == len(frames) - 1:
        concluding = (
            concluding
            or last.doubts
            or any(cues.OPENS_IN_CONTRAST.match(f.sentence.text) for f in frames[:number])
        )
    if any(c.force >= LEAD for c in before) and not (last.strong and concluding):
        return None
    if not last.strong and any(c.force >= STATED for c in before):
        return None
    if last.strong and any(c.force >= ASSERTED for c in before) and not concluding:
        return None if number != len(frames) - 1 else last
    if _other_answer(frames, last, question, strong=last.strong):
        return None
    return last


def _revives(claim: Claim, frames: Sequence[Frame]) -> bool:
    """Tell whether a claim after a plain "I don't know" is meant as an answer all the same."""
    text = frames[claim.sentence].sentence.text
    return (
        claim.force == VERDICT
        or claim.bare
        or claim.source == "self"
        or (claim.force == ASSERTED and cues.OPENS_IN_CONTRAST.match(text) is not None)
    )


def _other_answer(
    frames: Sequence[Frame], last: Frame, question: Question, *, strong: bool
) -> bool:
    """Tell whether an answer that is no candidate is given beside the abstention."""
    for frame in frames:
        sentence = frame.sentence
        if frame is last or frame.abstain >= 0 or sentence.ends_in_colon or frame.asks:
            continue
        after = sentence.number > last.sentence.number
        related = len(question.predicate & stems(sentence.words)) >= 1
        told = cues.EXTERNAL.search(sentence.text) or cues.ACCORDING.search(sentence.text)
        own = cues.SELF.search(sentence.text)
        if after and related and not told and (own or frame.verdict >= 0):
            return True
        if not after and not strong and related and not told and sentence.number == 0:
            return True
    return False


def _concludes_otherwise(
    claims: Sequence[Claim], frames: Sequence[Frame], question: Question
) -> bool:
    """Tell whether the last conclusion is an answer that is no candidate."""
    if question.polar:
        return False
    named = {claim.sentence for claim in claims}
    top = max((claim.sentence for claim in claims if claim.force >= LEAD), default=-1)
    for frame in frames[top + 1 :]:
        sentence = frame.sentence
        if frame.verdict < 0 or frame.abstain >= 0 or sentence.ends_in_colon or frame.trust:
            continue
        if sentence.number in named or (
            not cues.FINAL.search(sentence.text) and (frame.inherits != "verdict")
        ):
            continue
        tentative = cues.HEDGE.search(sentence.text) or "possible" in sentence.words
        if tentative or cues.ABOUT_SOURCES.search(sentence.text):
            continue
        if question.predicate & stems(sentence.words):
            return True
    return False


# ------------------------------------------------------------------------------------ winners


def _winners(claims: Sequence[Claim], frames: Sequence[Frame]) -> dict[str, bool]:
    """Return the endorsed labels; ``False`` where the text contradicts itself."""
    positive = [c for c in claims if c.force >= REPORTED]
    if not positive:
        return {}
    verdicts = [c for c in positive if c.force == VERDICT]
    leads = [c for c in positive if c.force == LEAD]
    if verdicts:
        final = max(c.sentence for c in verdicts)
        chosen = [c for c in verdicts if c.sentence == final]
        rival = [c for c in leads if c.bare and c.label not in {v.label for v in chosen}]
        corrected = any(f.correction >= 0 for f in frames)
        if rival and not corrected:
            return {c.label: False for c in [*chosen, *rival]}
        return _choose(chosen, frames, final)
    if leads:
        return _from_lead(leads, positive, claims, frames)
    return _from_rest(positive, frames)


def _from_lead(
    leads: Sequence[Claim],
    positive: Sequence[Claim],
    claims: Sequence[Claim],
    frames: Sequence[Frame],
) -> dict[str, bool]:
    chosen = {c.label for c in leads}
    final = max(c.sentence for c in leads)
    denied = {c.label for c in claims if c.force == DENIED and c.sentence > final}
    rivals = [
        c for c in positive
        if c.label not in chosen and c.force >= ASSERTED and c.sentence > final and not c.source
    ]  # fmt: skip
    for rival in rivals:
        text = frames[rival.sentence].sentence.text
        if all(c.bare for c in leads):
            contested = rival.bare or cues.OPENS_IN_CONTRAST.match(text) is not None
        else:
            contested = cues.CONTRAST.search(text) is not None or not chosen & denied
        if contested:
            return dict.fromkeys({*chosen, rival.label}, False)
    if rivals and chosen & denied:
        return {rival.label: True for rival in rivals}
    if chosen & denied and not rivals:
        return dict.fromkeys(chosen, False)
    return _choose(leads, frames, final)


def _choose(chosen: Sequence[Claim], frames: Sequence[Frame], final: int) -> dict[str, bool]:
    """Settle between candidates of one sentence, and heed a later disclaimer."""
    labels = list(dict.fromkeys(c.label for c in chosen))
    firm = True
    if len(labels) > 1 and len({(c.start, c.stop) for c in chosen}) > 1:
        parts = _separate(chosen, frames)
        if parts:
            labels = [parts]
        else:
            firm = False
    for frame in frames[final + 1 :]:
        if frame.abstain < 0 and frame.verdict < 0 and frame.disclaims:
            firm = False
    return dict.fromkeys(labels, firm)


def _separate(chosen: Sequence[Claim], frames: Sequence[Frame]) -> str:
    """Return the label in the main clause where two stand in clauses of different rank."""
    if len({(c.sentence, c.clause) for c in chosen}) < 2:
        return ""
    first, last = chosen[0], chosen[-1]
    opener = frames[last.sentence].sentence.clauses()[last.clause].opener
    if opener in {"but", "however"}:
        return last.label
    return first.label if opener in _AFTERTHOUGHT else ""


def _from_rest(positive: Sequence[Claim], frames: Sequence[Frame]) -> dict[str, bool]:
    """Settle where nothing is concluded and nothing leads."""
    top: dict[str, int] = {}
    for claim in positive:
        top[claim.label] = max(top.get(claim.label, 0), claim.force)
    best = max(top.values())
    labels = [label for label, force in top.items() if force == best]
    if best >= STATED:
        chosen = [c for c in positive if c.force == best and c.label in labels]
        return _choose(chosen, frames, max(c.sentence for c in chosen))
    if all(c.hedged for c in positive):
        return dict.fromkeys(labels, False)
    if any(frame.doubts for frame in frames):
        return {}
    return {label: len(labels) == 1 for label in labels}
