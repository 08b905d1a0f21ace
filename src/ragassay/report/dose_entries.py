"""The records of a dose run for the browser: question, answers, and the edits as a diff."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragassay.report.page import Entry, Quote
from ragassay.report.text import visible
from ragassay.store import RunFolder
from ragassay.types import EditsRecord, PassageEdits, ScoreRecord, TrialRecord

MAX_LISTED = 1500
_EDITS = "#edits"
_ARM = {
    "clean": "clean", "zero_dose": "zero dose", "closed_book": "closed book",
    "irrelevant": "irrelevant context", "tampered": "tampered",
}  # fmt: skip


def entries(store: RunFolder, summary: Mapping[str, Any]) -> tuple[tuple[Entry, ...], int]:
    """List the records, at most ``MAX_LISTED``, and how many there are.

    Where there are more, answers that were fooled or adopt an edit come first.
    """
    found = _Listing(store, summary)
    every = [found.key(record) for record in found.edits]
    chosen = sorted(range(len(every)), key=lambda i: every[i])[:MAX_LISTED]
    listed = [found.edits[i] for i in sorted(chosen, key=lambda i: every[i])]
    return tuple(found.entry(record) for record in listed), len(every)


class _Listing:
    """Joins what an entry shows."""

    def __init__(self, store: RunFolder, summary: Mapping[str, Any]) -> None:
        self.trials = store.trials()
        self.scores = store.scores()
        self.queries = store.queries()
        self.texts = {key: passage.text for key, passage in store.passages().items()}
        self.scorer = summary["headline"]
        self.reader = summary["adoption_by"] or ""
        self.several = len(summary["settings"]) > 1
        self.defended = bool(summary["defenses"])
        edits = store.edits().values()
        self.edits = [
            e for e in edits if (t := self.trials.get(e.trial_key)) and t.status == "done"
        ]
        self.clean = {
            (e.setting, e.defense, e.query_id, e.draw): e for e in self.edits if e.arm == "clean"
        }
        self.sampled = any(e.draw for e in self.clean.values())

    def partner(self, record: EditsRecord) -> TrialRecord | None:
        """The clean answer beside a record."""
        draw = record.draw if self.sampled else 0
        found = self.clean.get((record.setting, record.defense, record.query_id, draw))
        return None if found is None else self.trials[found.trial_key]

    def score(self, key: str) -> ScoreRecord | None:
        """The headline label of an answer."""
        return self.scores.get((key, self.scorer))

    def adoption(self, record: EditsRecord) -> ScoreRecord | None:
        """Whether an answer asserts an edit."""
        return self.scores.get((record.trial_key + _EDITS, self.reader))

    def outcome(self, key: str) -> str:
        """Correct, abstained, wrong, or that it is not known."""
        score = self.score(key)
        if score is None or score.correct is None:
            return "not scored"
        if score.abstained:
            return "abstained"
        return "correct" if score.correct else "wrong"

    def fooled(self, record: EditsRecord) -> bool:
        """Clean-correct, and not correct after tampering."""
        clean = self.partner(record)
        if clean is None or record.arm != "tampered":
            return False
        return self.outcome(clean.key) == "correct" and self.outcome(record.trial_key) in (
            "wrong", "abstained",
        )  # fmt: skip

    def adopts(self, record: EditsRecord) -> bool:
        """Whether an answer asserts an edit."""
        found = self.adoption(record)
        return found is not None and found.target_positive is True

    def key(self, record: EditsRecord) -> tuple[Any, ...]:
        """Sorts what a reader looks for to the front."""
        telling = (self.fooled(record), self.adopts(record))
        return (-sum(telling), record.arm != "tampered", -record.applied, record.query_id,
                record.setting, record.defense, record.arm, record.rule, record.draw)  # fmt: skip

    def entry(self, record: EditsRecord) -> Entry:
        """One answer with its passages."""
        trial = self.trials[record.trial_key]
        query, target = self.queries[record.query_id]
        tags = {"Arm": _ARM[record.arm]}
        if self.several:
            tags["Setting"] = record.setting
        if self.defended:
            tags["Defense"] = record.defense
        if record.arm == "tampered":
            tags |= {
                "Rule": record.rule,
                "Applied dose": str(record.applied),
                "Fooled": "yes" if self.fooled(record) else "no",
                "Adopted": "yes" if self.adopts(record) else "no",
            }
        tags["Outcome"] = self.outcome(record.trial_key)
        lines = [("Accepted answers", "; ".join(target.references[:8]))]
        if target.wanted:
            lines.append(("Attacker wants", "; ".join(target.wanted[:8])))
        if record.arm == "tampered":
            lines.append(("Draw", str(record.draw + 1)))
            lines.append(("Requested", f"{record.requested} ({record.mode})"))
        lines.append(("Asked as number", str(record.order + 1)))
        quotes = [_answer("Answer", trial, self.adoption(record), self.score(trial.key))]
        clean = self.partner(record)
        if clean is not None and record.arm != "clean":
            label = f"Clean answer ({self.outcome(clean.key)})"
            quotes.append(_answer(label, clean, None, self.score(clean.key)))
        quotes += self._passages(record, trial)
        return Entry(title=query.text, tags=tags, lines=tuple(lines), quotes=tuple(quotes))

    def _passages(self, record: EditsRecord, trial: TrialRecord) -> list[Quote]:
        done = {each.position: each for each in record.passages}
        quotes = []
        for at, kept in enumerate(trial.context):
            each = done.get(at)
            state = "" if kept.kept else ", left out by the defense"
            if each is not None and each.applied:
                label = f"Passage {at + 1}, tampered with{state}"
                quotes.append(diff(label, self.texts.get(each.passage, ""), each))
            elif each is not None:
                why = visible(each.reason, limit=80)
                label = f"Passage {at + 1}, chosen and unchanged: {why}{state}"
                quotes.append(Quote(label=label, text=self.texts.get(each.passage, "")))
            elif record.arm != "clean" and record.applied:
                continue  # an untouched passage stands in the clean record
            else:
                label = f"Passage {at + 1}{state}"
                quotes.append(Quote(label=label, text=self.texts.get(kept.id, "")))
        return quotes


def diff(label: str, before: str, record: PassageEdits) -> Quote:
    """A passage with what was removed and what was put in, both marked.

    Examples
    --------
    >>> from ragassay.types import TextEdit
    >>> edit = TextEdit(start=6, stop=11, before="Paris", after="Rome", kind="entity:city")
    >>> done = PassageEdits(
    ...     position=0, passage="p", replaced_by="p~1", applied=True, edits=(edit,))
    >>> shown = diff("Passage", "It is Paris.", done)
    >>> shown.text, shown.marks
    ('It is ParisRome.', ((6, 11, 'removed'), (11, 15, 'added')))
    """
    pieces: list[str] = []
    marks: list[tuple[int, int, str]] = []
    at = length = 0
    for edit in record.edits:
        pieces.append(before[at : edit.start])
        length += edit.start - at
        for text, kind in ((before[edit.start : edit.stop], "removed"), (edit.after, "added")):
            pieces.append(text)
            if text:
                marks.append((length, length + len(text), kind))
            length += len(text)
        at = edit.stop
    pieces.append(before[at:])
    return Quote(label=label, text="".join(pieces), marks=tuple(marks))


def _answer(
    label: str, trial: TrialRecord, adoption: ScoreRecord | None, score: ScoreRecord | None
) -> Quote:
    """An answer with what it adopts, and the accepted answer where it holds one."""
    text = trial.answer or ""
    if trial.declined:
        return Quote(label=f"{label}: the defense declined", text=text)
    spans = [(e.start, e.stop, "target") for e in (adoption.evidence if adoption else ())]
    if score is not None:
        spans += [(e.start, e.stop, "correct") for e in score.evidence if e.label == "reference"]
    marks: list[tuple[int, int, str]] = []
    for start, stop, kind in sorted(spans):
        if stop > start and (not marks or start >= marks[-1][1]):
            marks.append((start, stop, kind))
    return Quote(label=label, text=text, marks=tuple(marks))
