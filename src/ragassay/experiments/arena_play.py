"""Plays the arena: each distinct context is answered once, whatever rounds ask for it.

Draws depend on the seed and the number of the round alone, so that an interrupted run goes on
with the same ones. Contexts follow from documents and scores; only answers cost a model call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ragassay import canon
from ragassay.arena.outcomes import needs_counterfactual
from ragassay.arena.pool import Assignment
from ragassay.arena.variants import VARIANTS
from ragassay.canon import digest
from ragassay.config import ArenaPart
from ragassay.experiments.arena_contexts import Contexts
from ragassay.experiments.arena_exact import FILE as EXACT
from ragassay.experiments.arena_exact import exact_figures
from ragassay.experiments.arena_outcomes import Outcomes, enough
from ragassay.experiments.arena_pools import (
    Competitors,
    Pools,
    arena_part,
    competitors,
    position_setup,
    scored,
)
from ragassay.experiments.arena_rounds import (
    Drawn,
    Played,
    Scene,
    body_of,
    draw,
    is_variant,
    orders,
    singles,
)
from ragassay.experiments.arena_variants import WAYS, Variants, context_of
from ragassay.experiments.context import Context, Ready
from ragassay.experiments.jobs import readers
from ragassay.experiments.labeling import label
from ragassay.experiments.perplexity import perplexity_of
from ragassay.experiments.plan import UNDEFENDED
from ragassay.experiments.poison import Crafter
from ragassay.experiments.session import Session
from ragassay.experiments.setup import Arm, NamedAttack, Setting, Setup
from ragassay.experiments.tax import FACTS, measure
from ragassay.experiments.trial import Job
from ragassay.types import PoisonSet, Query, TrialSpec

ATTACK = "arena"  # what trials of the arena are called beside the clean ones


def play(session: Session) -> None:
    """Run every trial of the protocol; what the run folder holds is not run again."""
    part = arena_part(session.setup)
    rivals = competitors(session)
    _note_facts(session, rivals)
    arena = Arena(session=session, part=part, rivals=rivals)
    session.monitor.stage("retrieving")
    arena.open_scenes()
    session.folder.write_text(
        EXACT, canon.dumps(exact_figures(arena.pools(), part, _seed(session.setup))) + "\n"
    )
    first = arena.first_pools()
    fixed = list(singles(first, part, _seed(session.setup)))
    if "order" in part.studies:
        fixed += list(orders(first, rivals.untargeted))
    arena.play_all(fixed, "single attackers")
    for batch in _batches(part, first, _seed(session.setup)):
        arena.play_all(batch, "rounds")
        if part.stopping == "sure" and _enough(session, part, rivals, batch[-1].index + 1):
            break
    arena.defend()


def _enough(session: Session, part: ArenaPart, rivals: Competitors, rounds: int) -> bool:
    rules = [each.title for each in readers(session.setup)]
    label(session.folder, readers(session.setup), cache=session.cache)
    return enough(session.folder, part, rivals.untargeted, rules, rounds)


def _seed(setup: Setup) -> int:
    return setup.experiment.file.seed


def _batches(part: ArenaPart, pools: Sequence[Any], seed: int) -> Iterator[list[Drawn]]:
    step = part.every if part.stopping == "sure" else part.rounds
    for start in range(0, part.rounds, step):
        stop = min(start + step, part.rounds)
        yield [draw(index, pools, part, seed) for index in range(start, stop)]


@dataclass(slots=True, kw_only=True)
class Arena:
    """The scenes of a run, and what has been played on them."""

    session: Session
    part: ArenaPart
    rivals: Competitors
    scenes: list[tuple[Setting, Contexts]] = field(default_factory=list)
    drawn: list[Drawn] = field(default_factory=list)
    _pools: dict[tuple[str, int], Pools] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)
    _memory: dict[tuple[str, str], list[Played]] = field(default_factory=dict)
    _poison: dict[str, PoisonSet] = field(default_factory=dict)
    _crafters: dict[int, Crafter] = field(default_factory=dict)
    _ready: dict[str, dict[tuple[str, str], Ready]] = field(default_factory=dict)

    def open_scenes(self) -> None:
        """Score the poison for every arm and budget."""
        setup = self.session.setup
        bare = {"content", "trigger"} & {*self.part.studies}
        kinds = ["retrieved", *(["content"] if bare else [])]
        for setting in setup.settings:
            for budget in sorted(setup.experiment.file.budgets):
                place = (setting.arm.title, budget)
                if place not in self._pools:
                    self._pools[place] = scored(self.session, setting.arm, self.rivals, budget)
                for kind in kinds:
                    scene = Scene(setting=setting.label, budget=budget, context=kind)
                    made = Contexts(scene=scene, pools=self._pools[place], k=setting.arm.k)
                    self.scenes.append((setting, made))
        if "trigger" in self.part.studies:
            self._open_variants(max(setup.experiment.file.budgets))

    def _open_variants(self, budget: int) -> None:
        """Score documents without their trigger, and with content that all have alike."""
        setup, varied = self.session.setup, Variants(self.session, self.rivals)
        varied.note()
        released = bool(self.rivals.released)
        for variant in VARIANTS:
            rivals, pools = varied.of(variant), dict[str, Pools]()
            for setting in setup.settings:
                arm = setting.arm
                for way in WAYS:
                    context = context_of(way, variant, released)
                    scene = Scene(setting=setting.label, budget=budget, context=context)
                    if not is_variant(scene.label):
                        continue  # the documents as they are have been opened
                    if arm.title not in pools:
                        pools[arm.title] = scored(self.session, arm, rivals, budget)
                    made = Contexts(
                        scene=scene, pools=pools[arm.title], k=arm.k,
                        chosen=self._pools[arm.title, budget],
                    )  # fmt: skip
                    self.scenes.append((setting, made))

    def pools(self) -> dict[str, tuple[Pools, int]]:
        """Pools and size of the context of every scene with retrieval, by its label."""
        return {
            made.scene.label: (made.pools, made.k)
            for _, made in self.scenes
            if made.scene.context == "retrieved"
        }

    def first_pools(self) -> list[Any]:
        """The pools that draws are made from; who takes part is the same in all scenes."""
        return list(self.scenes[0][1].pools.by_query.values())

    def play_all(self, drawn: Sequence[Drawn], what: str) -> None:
        """Retrieve for draws, record them, and answer their contexts without a defense."""
        folder, known = self.session.folder, self.session.folder.keys("rounds")
        items = []
        for each in drawn:
            played = {
                made.scene.label: self._again(made, each)
                for _, made in self.scenes
                if _is_played(each, made)
            }
            if each.key not in known:
                cluster = self.scenes[0][1].pools.by_query[each.query_id].cluster
                items.append((each.key, body_of(each, cluster, played)))
        folder.append_many("rounds", items)
        self.drawn += drawn
        self._answer(UNDEFENDED, what)
        if self.rivals.untargeted:
            self._remove(UNDEFENDED)

    def defend(self) -> None:
        """Answer everything that was played under each defense."""
        for defense in self.session.setup.defenses:
            if defense.title != UNDEFENDED:
                self._answer(defense.title, f"rounds under {defense.title}")
                if self.rivals.untargeted:
                    self._remove(defense.title)

    # ------------------------------------------------------------------------- internals

    def _played(self, made: Contexts, drawn: Drawn) -> list[Played]:
        if not drawn.second:
            return made.play(drawn)
        return [
            made.play(replace(drawn, assignments=(assignment,)), self._after(made, drawn, one))[0]
            for one, assignment in enumerate(drawn.assignments)
        ]

    def _after(self, made: Contexts, drawn: Drawn, one: int) -> Pools:
        """The pools in which the second attacker has seen the first one's poison."""
        assignment = drawn.assignments[one]
        poison = self._crafted_after(drawn, assignment)
        parent = poison.query_id
        sets = {
            key: each
            for key, each in self.rivals.sets.items()
            if key[1] == parent and assignment.get(key[0], -1) == key[2]
        }
        sets[drawn.second, parent, assignment[drawn.second]] = poison
        setting = next(s for s, other in self.scenes if other is made)
        rivals = replace(self.rivals, sets=sets)
        query = next(q for q in self.session.setup.evaluated if q.id == drawn.query_id)
        return scored(
            self.session, setting.arm, rivals, made.scene.budget, [query], made.pools.clean
        )

    def _crafted_after(self, drawn: Drawn, assignment: Assignment) -> PoisonSet:
        """What the second attacker injects once the first one's poison is in the corpus."""
        session, setup, second = self.session, self.session.setup, drawn.second
        parent = setup.parents.get(drawn.query_id, drawn.query_id)
        first = next(name for name in assignment if name != second)
        standing = self.rivals.sets[first, parent, assignment[first]].passages
        query = next(query for query in setup.attacked if query.id == parent)
        attack: NamedAttack = next(each for each in setup.attacks if each.title == second)
        position = assignment[second] or 0  # untargeted attackers are in no such pair
        if position not in self._crafters:
            made = position_setup(setup, self.rivals.answers, position)
            self._crafters[position] = replace(session.crafter(), setup=made)
        crafter = self._crafters[position]
        key = crafter.key(attack, query, standing)
        if not self._poison:
            self._poison = session.folder.poison()
        if key not in self._poison:
            self._poison[key] = crafter.craft(attack, query, standing).poison
            session.folder.append("poison", key, self._poison[key])
        return self._poison[key]

    def _answer(self, defense: str, what: str) -> None:
        for setting in self.session.setup.settings:
            named = f" ({setting.label})" if setting.label else ""
            self.session.monitor.stage(f"running trials: {what}{named}")
            self._run(self._jobs(setting, defense), setting)

    def _remove(self, defense: str) -> None:
        """Ask again without the passages of untargeted attackers, where the answer is wrong."""
        session = self.session
        label(session.folder, readers(session.setup), cache=session.cache)
        outcomes = Outcomes.of(session.folder)
        rules = [each.title for each in readers(session.setup)]
        for setting in session.setup.settings:
            jobs: dict[str, Job] = {}
            for made, query, played in self._plays(setting, defense):
                place = (query.id, setting.label, defense, played.context)
                wrong = any(
                    needs_counterfactual(present=True, correct_with=outcomes.correct(*place, rule))
                    for rule in rules
                )
                for name in played.without.values() if wrong else ():
                    job = self._job(setting, query, defense, name, made.known[query.id, name])
                    jobs[job.key] = job
            session.monitor.stage("removing passages of untargeted attackers")
            self._run(jobs, setting)

    def _run(self, jobs: dict[str, Job], setting: Setting) -> None:
        """Run what this session has not run yet."""
        new = [job for key, job in jobs.items() if key not in self._asked]
        self._asked.update(jobs)
        self.session.run(new, setting)

    def _plays(self, setting: Setting, defense: str) -> Iterator[tuple[Contexts, Query, Played]]:
        """Plays that a defense answers; the study of triggers and contents is played without."""
        queries = {query.id: query for query in self.session.setup.evaluated}
        for other, made in self.scenes:
            if defense != UNDEFENDED and is_variant(made.scene.label):
                continue
            if other is setting or other.label == setting.label:
                for each in self.drawn:
                    if _is_played(each, made):
                        for played in self._again(made, each):
                            yield made, queries[each.query_id], played

    def _again(self, made: Contexts, drawn: Drawn) -> list[Played]:
        key = (made.scene.label, drawn.key)
        if key not in self._memory:
            self._memory[key] = self._played(made, drawn)
        return self._memory[key]

    def _jobs(self, setting: Setting, defense: str) -> dict[str, Job]:
        """The clean context of every question and each distinct one that was played."""
        jobs: dict[str, Job] = {}
        made = next(made for other, made in self.scenes if other.label == setting.label)
        for query in self.session.setup.evaluated:
            job = self._job(setting, query, defense, "", made.clean(query.id))
            jobs[job.key] = job
        for made, query, played in self._plays(setting, defense):
            context = made.known[query.id, played.context]
            job = self._job(setting, query, defense, played.context, context)
            jobs[job.key] = job
        return jobs

    def _job(
        self, setting: Setting, query: Query, defense: str, name: str, context: Context
    ) -> Job:
        setup = self.session.setup
        armed = self._armed(setting)[defense, query.group]
        poison = [hit.passage.id for hit in context if hit.passage.id.startswith("poison-")]
        spec = TrialSpec(
            protocol=setup.protocol,
            dataset=setup.dataset.fingerprint,
            query_id=query.id,
            question=query.text,
            attack=ATTACK if name else "",
            budget=len(poison),
            poison=name,
            retriever=self._retriever(setting.arm),
            defense=armed.identity,
            defense_label=defense,
            prompt=setup.prompt_identity,
            generator=setting.victim.generator.identity,
            sampling=setting.victim.sampling,
            seed=setup.experiment.file.seed,
            setting=setting.label,
        )
        parent = setup.parents.get(query.id, query.id)
        pool = self.rivals.answers.targets[parent]
        return Job(
            key=digest(spec),
            spec=spec,
            query=query,
            context=context,
            owner=dict.fromkeys(poison, query.id),
            gold=frozenset(setup.dataset.targets[query.id].gold_ids),
            defense=armed.instance,
            targets={
                f"a{i + 1}": replace(target, query_id=query.id) for i, target in enumerate(pool)
            },
        )

    def _retriever(self, arm: Arm) -> str:
        scores = "released" if self.rivals.released else arm.retriever.identity
        return f"{scores}:k{arm.k}"

    def _armed(self, setting: Setting) -> dict[tuple[str, str], Ready]:
        if setting.label not in self._ready:
            made = next(made for other, made in self.scenes if other.label == setting.label)
            clean = {query.id: made.clean(query.id) for query in self.session.setup.evaluated}
            self._ready[setting.label] = self.session.calibrated(setting, clean)
        return self._ready[setting.label]


def _is_played(drawn: Drawn, made: Contexts) -> bool:
    """The order of attack is not studied on variants of documents."""
    return drawn.kind != "order" or not is_variant(made.scene.label)


def _note_facts(session: Session, rivals: Competitors) -> None:
    """Write what attackers cost and need, from their poison for the first answer."""
    setup, folder = session.setup, session.folder
    first: dict[tuple[str, str], PoisonSet] = {}
    for (attacker, query_id, position), poison in rivals.sets.items():
        if not position:
            first[attacker, query_id] = poison
    if not rivals.released:
        session.note_facts(first)
        return
    embed = getattr(session.index(setup.arms[0]), "embed", None)
    perplexity = perplexity_of(setup, session.clients.opened)
    attacks: dict[str, Any] = {}
    for name in rivals.attackers:
        mine: Iterable[PoisonSet] = [p for (a, _), p in first.items() if a == name]
        told = measure(mine, embed=embed, perplexity=perplexity)
        attacks[name] = {
            "played": False, "asked": max(setup.experiment.file.budgets), "max_words": None,
            "short": {}, **told,
            "cost": dict.fromkeys(told["cost"]),  # the released files do not say
            "seconds": {"value": None, "n": 0}, "recorded": False,
        }  # fmt: skip
    model = getattr(perplexity, "identity", None)
    facts = {"v": 1, "language_model": model, "attacks": attacks}
    folder.write_text(FACTS, canon.dumps(facts) + "\n")
