"""The study of triggers and contents: documents of all attackers, with one or both replaced.

Source: PoisonArena, appendix C.6. How documents are taken apart: :mod:`ragassay.arena.variants`.

Every attacker of a play has the same variant. A document that cannot be taken apart stays as it
is in all of them and is counted. The best document of an attacker is the one with the best score
as it was injected; its variants are those of this document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ragassay import canon
from ragassay.arena.variants import VARIANTS, Parted, Variant, common_texts, take_apart
from ragassay.experiments.arena_answers import data_drafts
from ragassay.experiments.arena_pools import Competitors, SetKey, poison_passage
from ragassay.experiments.session import Session
from ragassay.types import Cost, Passage, PoisonSet

FILE = "variants.json"
WAYS = ("retrieved", "content")


def context_of(way: str, variant: Variant, released: bool) -> str:
    """What the scene of a variant calls its context.

    Documents as they are make the same contexts as without the study, except where released
    scores are not those of the retriever of the run: variants have none.
    """
    if variant == VARIANTS[0] and not (released and way == "retrieved"):
        return way
    return f"{way}:{variant[0]}+{variant[1]}"


class Variants:
    """Makes the competitors of each variant, and writes what it knows of them.

    Parameters
    ----------
    session : Session
        Of the run; poison of the variants goes into its folder.
    rivals : Competitors
        The attackers with their documents as they are.
    """

    def __init__(self, session: Session, rivals: Competitors) -> None:
        self._session, self._rivals = session, rivals
        self._budget = max(session.setup.experiment.file.budgets)
        drafts = data_drafts(session.setup, rivals.answers)
        self._questions = {query.id: query.text for query in session.setup.attacked}
        self._published: Mapping[SetKey, tuple[str, ...]] = {
            key: () if key[2] is None else drafts.get((key[1], key[2]), ()) for key in rivals.sets
        }
        self._parts = {key: self._parted(key, each) for key, each in rivals.sets.items()}

    def of(self, variant: Variant) -> Competitors:
        """The competitors with a variant of their documents; without released scores."""
        sets = {key: self._varied(key, each, variant) for key, each in self._rivals.sets.items()}
        folder = self._session.folder
        known = folder.keys("poison")
        new = {}
        for (attacker, query_id, position), each in sets.items():
            name = canon.digest(["variant", *variant, attacker, query_id, position, each])
            own = self._rivals.sets[attacker, query_id, position]
            if name not in known and each is not own:
                new[name] = replace(each, attacker=attacker)
        folder.append_many("poison", list(new.items()))
        return replace(self._rivals, sets=sets, released={})

    def note(self) -> None:
        """Write how many documents of each attacker could be taken apart, and how."""
        told: dict[str, dict[str, Any]] = {}
        for name in self._rivals.attackers:
            parts = [
                part for (attacker, _, position), some in self._parts.items()
                for part in some if attacker == name and position is not None
            ]  # fmt: skip
            how = Counter(part.by for part in parts if part is not None)
            told[name] = {
                "documents": len(parts),
                "apart": sum(how.values()),
                "by": {by: how[by] for by in ("declared", "published", "question")},
                "bare": sum(
                    part is not None and not (part.before + part.after).strip() for part in parts
                ),
            }
        self._session.folder.write_text(FILE, canon.dumps({"v": 1, "attackers": told}) + "\n")

    # ------------------------------------------------------------------------- internals

    def _parted(self, key: SetKey, poison: PoisonSet) -> list[Parted | None]:
        if key[2] is None:  # an untargeted attacker has no content for an answer
            return [None] * len(poison.passages[: self._budget])
        return [
            take_apart(
                passage.text,
                question=self._questions[key[1]],
                published=self._published[key],
                details=poison.details[i] if i < len(poison.details) else {},
            )
            for i, passage in enumerate(poison.passages[: self._budget])
        ]

    def _varied(self, key: SetKey, poison: PoisonSet, variant: Variant) -> PoisonSet:
        parts = self._parts[key]
        if variant == VARIANTS[0] or all(part is None for part in parts):
            return poison
        trigger, content = variant
        passages = list(poison.passages[: self._budget])
        common = self._common(key, len(passages)) if content == "common" else ()
        for i, part in enumerate(parts):
            if part is not None:
                text = part.text(trigger, common[i] if common else part.content)
                passages[i] = poison_passage(key[1], Passage(id="", text=text))
        return replace(
            poison, attack=f"{poison.attack}, {trigger} trigger, {content} content",
            passages=tuple(passages), details=(), cost=Cost(),
        )  # fmt: skip

    def _common(self, key: SetKey, count: int) -> tuple[str, ...]:
        position = key[2] or 0
        answer = self._rivals.answers.targets[key[1]][position].wanted[0]
        return common_texts(answer, self._published[key], count)
