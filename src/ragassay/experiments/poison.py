"""Crafting the poison, once: every attack sees only what it declares, and its cost is kept.

Budgets are enforced here, whatever an attack returns: at most the passages asked for, and none
longer than ``max_words``. What is missing is recorded and reported, never made up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ragassay.canon import digest, rng_for
from ragassay.errors import ConfigError
from ragassay.experiments.craft_together import SharedClock, in_order, only_asks
from ragassay.experiments.setup import NamedAttack, Setup
from ragassay.experiments.view import Asks, Reach, System, View
from ragassay.store import RunFolder
from ragassay.types import Json, Knowledge, Passage, PoisonSet, Query, Target

__all__ = [
    "Asks",
    "Crafted",
    "Crafter",
    "View",
    "craft_all",
    "delivery",
    "delivery_warnings",
    "group_poison",
    "standing_poison",
    "visible_target",
]

_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Crafted:
    """A poison set within its budget; ``left_out`` are the words of passages that were longer."""

    poison: PoisonSet
    asked: int
    left_out: tuple[int, ...] = ()


def visible_target(target: Target, knowledge: Knowledge) -> Target:
    """Blank what an attack did not declare: correct answers and supporting passages."""
    return replace(
        target,
        references=target.references if knowledge.correct_answer else (),
        gold_ids=target.gold_ids if knowledge.corpus == "contents" else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Crafter:
    """Crafts for a question, with a view of what the attack may reach.

    ``system`` is absent where only attacks that reach for no system are crafted. Questions that
    are crafted for at the same time share the wall time of their costs.
    """

    setup: Setup
    helper: Asks
    system: System | None = None
    clock: SharedClock = field(default_factory=SharedClock)

    def key(self, attack: NamedAttack, query: Query, standing: Sequence[Passage]) -> str:
        """Digest everything that the texts can depend on."""
        return digest([self.facts(attack), self._place(query, standing)])

    def facts(self, attack: NamedAttack) -> dict[str, Json]:
        """What the texts of every question depend on, for keys and for provenance."""
        setup, knowledge = self.setup, attack.instance.knowledge
        observed = knowledge.llm in ("query", "internals")
        searched = observed or knowledge.retriever != "none" or knowledge.corpus != "none"
        setting = setup.settings[0]
        paraphrases = setup.experiment.file.paraphrases
        return {
            "attack": attack.plugin,
            "label": attack.title,
            "identity": attack.identity,
            "options": attack.options,
            "seed": setup.experiment.file.seed,
            "asked": self.asked(attack),
            "max_words": attack.max_words,
            "order": "sequential" if attack.sequential else "simultaneous",
            "helper": setup.helper.identity if knowledge.llm != "none" else None,
            "victim": setting.victim.generator.identity if observed else None,
            "prompt": setup.prompt_identity if observed else None,
            "defense": self._defense(attack),
            "retriever": setting.arm.retriever.identity if searched else None,
            "k": setting.arm.k if searched else None,
            "corpus": setup.corpus_fingerprint if searched else None,
            "paraphrases": None if paraphrases is None else sorted(setup.paraphrases.items()),
        }

    def asked(self, attack: NamedAttack) -> int:
        """How many passages are asked for: the largest budget that the attack can fill."""
        most = max(self.setup.experiment.file.budgets)
        return min(most, getattr(attack.instance, "max_passages", most))

    def craft(self, attack: NamedAttack, query: Query, standing: Sequence[Passage] = ()) -> Crafted:
        """Craft for one question.

        Raises
        ------
        ConfigError
            The attack lacks something it needs, or returned what it was not asked for.
        KnowledgeError
            It reached for something that it did not declare.
        """
        target = self.setup.dataset.targets[query.id]
        play: Callable[[str, Target], PoisonSet] | None = getattr(attack.instance, "play", None)
        if play is not None:  # crafted before, at a cost that was measured then
            return self._within_budget(attack, query, play(query.text, target))
        knowledge = attack.instance.knowledge
        view = View(
            knowledge=knowledge,
            question=query.text,
            target=target,
            drafts=self.setup.dataset.drafts.get(query.id, ()),
            helper=self.helper,
            reach=Reach(
                system=self.system,
                group=query.group,
                paraphrases=self.setup.paraphrases.get(query.id, ()),
                budget=self.asked(attack),
                max_words=attack.max_words,
                standing=tuple(standing),
                against=getattr(attack.instance, "against", ""),
            ),
        )
        rng = rng_for(self.setup.experiment.file.seed, "craft", attack.identity, query.id)
        started = self.clock.start()
        try:
            poison = attack.instance.craft(visible_target(target, knowledge), view, rng)
        finally:
            seconds = self.clock.stop(started)
        cost = replace(view.cost, seconds=round(seconds, 6))
        untargeted = getattr(attack.instance, "untargeted", False)
        poison = replace(poison, cost=cost, wanted=() if untargeted else target.wanted)
        return self._within_budget(attack, query, poison)

    def each(
        self,
        attack: NamedAttack,
        queries: Sequence[Query],
        standing: Mapping[str, Sequence[Passage]],
    ) -> Iterator[Crafted]:
        """Craft for questions, in their order; at the same time where none can tell.

        ``standing`` holds by question what other attackers have put into its corpus.

        Raises
        ------
        ConfigError, KnowledgeError
            As :meth:`craft`.
        """
        if not only_asks(attack):
            yield from (self.craft(attack, query, standing[query.id]) for query in queries)
            return
        yield from in_order(queries, lambda query: self.craft(attack, query), self.helper)

    def _defense(self, attack: NamedAttack) -> str | None:
        """Identity of the defense that the attack is tuned against."""
        title = getattr(attack.instance, "against", "")
        return next((d.identity for d in self.setup.defenses if d.title == title), None)

    def _within_budget(self, attack: NamedAttack, query: Query, poison: PoisonSet) -> Crafted:
        if poison.query_id != query.id:
            raise ConfigError(
                f"attack {attack.title!r} returned poison for {poison.query_id!r}, asked for "
                f"{query.id!r}"
            )
        asked, limit = self.asked(attack), attack.max_words
        details: tuple[Any, ...] = poison.details or ({},) * len(poison.passages)
        lengths = [len(passage.text.split()) for passage in poison.passages]
        kept = [i for i, words in enumerate(lengths) if limit is None or words <= limit][:asked]
        return Crafted(
            poison=replace(
                poison,
                attack=attack.title,
                attacker=attack.title,
                passages=tuple(poison.passages[i] for i in kept),
                details=tuple(details[i] for i in kept) if poison.details else (),
            ),
            asked=asked,
            left_out=tuple(words for words in lengths if limit is not None and words > limit),
        )

    def _place(self, query: Query, standing: Sequence[Passage]) -> list[Any]:
        target = self.setup.dataset.targets[query.id]
        drafts = list(self.setup.dataset.drafts.get(query.id, ()))
        return [query.id, query.text, target, drafts, [[p.id, p.title, p.text] for p in standing]]


def craft_all(
    crafter: Crafter,
    folder: RunFolder,
    progress: Callable[[int, int], None] | None = None,
) -> dict[tuple[str, str], PoisonSet]:
    """Craft the poison of every attack for every attacked question, or read it from the run.

    Returns
    -------
    dict
        ``(attack title, query id)`` to poison set. Sets that the run folder already holds
        under the same key are not crafted again. An evaluated paraphrase has the set of its
        question.
    """
    setup = crafter.setup
    known = folder.poison()
    sets: dict[tuple[str, str], PoisonSet] = {}
    total = len(setup.attacks) * len(setup.attacked)
    for number, attack in enumerate(setup.attacks):
        before = [other.title for other in setup.attacks[:number]] if attack.sequential else []
        standing = {q.id: standing_poison(setup, sets, before, q) for q in setup.attacked}
        keys = {q.id: crafter.key(attack, q, standing[q.id]) for q in setup.attacked}
        missing = [q for q in setup.attacked if keys[q.id] not in known]
        made = crafter.each(attack, missing, standing)
        for query in setup.attacked:
            key = keys[query.id]
            if key not in known:
                known[key] = next(made).poison
                folder.append("poison", key, known[key])
            sets[attack.title, query.id] = known[key]
            if progress is not None:
                progress(len(sets), total)
    for child, parent in setup.parents.items():
        for attack in setup.attacks:
            sets[attack.title, child] = sets[attack.title, parent]
    return sets


def standing_poison(
    setup: Setup,
    sets: Mapping[tuple[str, str], PoisonSet],
    attacks: Iterable[str],
    query: Query,
) -> tuple[Passage, ...]:
    """Collect what earlier attacks have injected into a question's group."""
    return tuple(
        passage
        for attack in attacks
        for other in setup.attacked
        if other.group == query.group
        for passage in sets[attack, other.id].passages
    )


def delivery(
    crafter: Crafter, sets: Mapping[tuple[str, str], PoisonSet]
) -> dict[str, dict[str, Any]]:
    """Say for each attack what was asked for, and for which questions less was delivered."""
    report: dict[str, Any] = {}
    for attack in crafter.setup.attacks:
        asked = crafter.asked(attack)
        counts = {
            query.id: len(sets[attack.title, query.id].passages) for query in crafter.setup.attacked
        }
        report[attack.title] = {
            "asked": asked,
            "max_words": attack.max_words,
            "questions": len(counts),
            "short": {query_id: count for query_id, count in counts.items() if count < asked},
        }
    return report


def delivery_warnings(report: Mapping[str, Any]) -> list[str]:
    """Word what attacks could not deliver, a warning for each that fell short."""
    warnings = []
    for title, facts in report.items():
        short: Mapping[str, int] = facts["short"]
        if not short:
            continue
        shown = ", ".join(f"{query_id} {count}" for query_id, count in list(short.items())[:_SHOWN])
        more = f" and {len(short) - _SHOWN} more" if len(short) > _SHOWN else ""
        limit = f" of at most {facts['max_words']} words" if facts["max_words"] else ""
        warnings.append(
            f"Attack {title!r} delivered fewer than the {facts['asked']} passages{limit} asked for "
            f"on {len(short)} of {facts['questions']} questions: {shown}{more}."
        )
    return warnings


def group_poison(
    sets: Mapping[tuple[str, str], PoisonSet], setup: Setup, attack: str, budget: int
) -> dict[str, list[tuple[str, PoisonSet]]]:
    """Collect, for each injection group, the sets whose first ``budget`` passages go in.

    An evaluated paraphrase is asked against the poison of its group and adds none.
    """
    groups: dict[str, list[tuple[str, PoisonSet]]] = {}
    for query in setup.evaluated:
        poison = sets[attack, query.id]
        most = 0 if query.id in setup.parents else budget
        cut = replace(poison, passages=poison.passages[:most])
        groups.setdefault(query.group, []).append((query.id, cut))
    return groups
