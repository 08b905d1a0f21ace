"""Which trials a dose run consists of. Pure: no model is asked, nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ragassay.canon import digest, rng_for
from ragassay.experiments.conditions import UNDEFENDED
from ragassay.experiments.context import Context, Ready
from ragassay.experiments.dose_contexts import DoseContexts, doses_of, tampered_context
from ragassay.experiments.dose_parts import closed_book
from ragassay.experiments.estimate import Estimate
from ragassay.experiments.setup import Setting, Setup
from ragassay.experiments.trial import Job
from ragassay.prompts import Template
from ragassay.store import RunFolder
from ragassay.tampering.dose import Dosed
from ragassay.types import EditsRecord, Hit, PassageEdits, Query, TextEdit, TrialSpec

ArmName = Literal["clean", "zero_dose", "closed_book", "irrelevant", "tampered"]
VARIANTS: Mapping[ArmName, str] = {
    "clean": "",
    "zero_dose": "zero dose",
    "closed_book": "closed book",
    "irrelevant": "irrelevant context",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One answer of a question: its arm, and for a tampered one rule, draw and dose."""

    arm: ArmName
    rule: str = ""
    draw: int = 0
    dose: int = 0


def places_of(setup: Setup, setting: Setting, defense: str) -> list[Place]:
    """What is asked for each question under a defense; controls without a defense only.

    Greedy decoding repeats nothing, so that all draws share one clean answer. With sampling
    each draw has its own, and its own controls.
    """
    part = setup.experiment.file.dose
    if part is None:
        return []
    doses = doses_of(setup, setting.arm)
    repeats = range(part.draws if setting.victim.sampling.temperature > 0 else 1)
    arms: list[ArmName] = ["clean"]
    if defense == UNDEFENDED:
        arms += ["zero_dose"] if 0 in doses else []
        arms += [control for control in ("closed_book", "irrelevant") if control in part.controls]
    places = [Place(arm=arm, draw=draw) for arm in arms for draw in repeats]
    places += [
        Place(arm="tampered", rule=rule.title, draw=draw, dose=dose)
        for rule in setup.rules
        for draw in range(part.draws)
        for dose in doses
        if dose
    ]
    return places


@dataclass(frozen=True, slots=True, kw_only=True)
class DoseStage:
    """A setting with its contexts and calibrated defenses: what trials are made from."""

    setup: Setup
    setting: Setting
    contexts: DoseContexts
    ready: Mapping[tuple[str, str], Ready]

    def jobs(self) -> tuple[list[Job], list[EditsRecord]]:
        """List every trial of the setting, and for each its arm and edits.

        The arms of a question come in an order drawn for it.
        """
        jobs, edits = [], []
        for defense in self.setup.defenses:
            for query in self.setup.evaluated:
                for order, place in self._ordered(query, defense.title):
                    job = self._job(query, place, defense.title)
                    jobs.append(job)
                    edits.append(self._edits(job, place, order))
        return jobs, edits

    def clean_job(self, query: Query) -> Job:
        """The clean trial of a question without a defense."""
        return self._job(query, Place(arm="clean"), UNDEFENDED)

    def _ordered(self, query: Query, defense: str) -> Iterator[tuple[int, Place]]:
        places = places_of(self.setup, self.setting, defense)
        seed = self.setup.experiment.file.seed
        rng = rng_for(seed, "arm order", self.setting.label, query.id, defense)
        for order, at in enumerate(rng.permutation(len(places))):
            yield order, places[int(at)]

    def _dosed(self, query: Query, place: Place) -> Dosed | None:
        return self.contexts.dosed.get((query.id, place.rule, place.draw, place.dose))

    def context(self, query: Query, place: Place) -> Context:
        """The passages of an answer; none for the closed book."""
        if place.arm == "closed_book":
            return ()
        if place.arm == "irrelevant":
            return self.contexts.irrelevant[query.id]
        dosed = self._dosed(query, place)
        return self.contexts.clean[query.id] if dosed is None else self.tampered(query, dosed)

    def tampered(self, query: Query, dosed: Dosed) -> Context:
        """The clean passages of a question under a dose."""
        return tampered_context(self.contexts.clean[query.id], dosed)

    def _template(self, place: Place) -> Template:
        if place.arm != "closed_book":
            return self.setup.template
        experiment = self.setup.experiment
        return closed_book(experiment.file, experiment.base)

    def _job(self, query: Query, place: Place, defense: str) -> Job:
        setup, victim = self.setup, self.setting.victim
        armed = self.ready[defense, query.group]
        clean, context = self.contexts.clean[query.id], self.context(query, place)
        edited = {
            hit.passage.id: before.passage.id
            for hit, before in zip(context, clean, strict=False)
            if place.arm == "tampered" and hit.passage.id != before.passage.id
        }
        gold = set(setup.dataset.targets[query.id].gold_ids)
        closed = place.arm == "closed_book"
        template = self._template(place)
        draw = f"draw {place.draw + 1}" if place.arm == "tampered" else VARIANTS[place.arm]
        spec = TrialSpec(
            protocol=setup.protocol,
            dataset=setup.dataset.fingerprint,
            query_id=query.id,
            question=query.text,
            attack=place.rule,
            budget=place.dose,
            poison=_content(context) if place.arm in ("tampered", "irrelevant") else "",
            retriever=f"{self.setting.arm.retriever.identity}:k{self.setting.arm.k}",
            defense=armed.identity,
            defense_label=defense,
            prompt=f"{template.digest}:closed book" if closed else setup.prompt_identity,
            generator=victim.generator.identity,
            sampling=victim.sampling,
            seed=setup.experiment.file.seed,
            setting=self.setting.label,
            variant=draw,
            sample=self._sample(place),
        )
        return Job(
            key=digest(spec),
            spec=spec,
            query=query,
            context=context,
            owner=dict.fromkeys(edited, query.id),
            gold=frozenset(gold | {new for new, old in edited.items() if old in gold}),
            defense=armed.instance,
            template=template if closed else None,
        )

    def _sample(self, place: Place) -> int:
        """Number the generations of one prompt: even ones for all arms, odd ones to repeat."""
        repeated = self.setting.victim.sampling.temperature > 0
        return 2 * (place.draw if repeated else 0) + (place.arm == "zero_dose")

    def _edits(self, job: Job, place: Place, order: int) -> EditsRecord:
        record = EditsRecord(
            trial_key=job.key,
            query_id=job.query.id,
            setting=self.setting.label,
            defense=job.spec.defense_label,
            arm=place.arm,
            instruction=self._template(place).digest,
            order=order,
            rule=place.rule,
            draw=place.draw,
            requested=place.dose,
        )
        dosed = self._dosed(job.query, place)
        if dosed is None:
            return record
        clean = self.contexts.clean[job.query.id]
        return replace(
            record,
            mode=dosed.mode,
            applied=dosed.applied,
            passages=_passages(clean, job.context, dosed),
        )


def _passages(clean: Context, context: Context, dosed: Dosed) -> tuple[PassageEdits, ...]:
    return tuple(
        PassageEdits(
            position=at,
            passage=before.passage.id,
            replaced_by=after.passage.id,
            applied=choice.applied,
            edits=tuple(
                TextEdit(
                    start=e.start, stop=e.stop, before=e.before, after=e.after, kind=e.kind
                )
                for e in choice.tampered.edits
            ),
            reason=choice.tampered.reason,
        )
        for at, (before, after, choice) in enumerate(
            zip(clean, context, dosed.choices, strict=True)
        )
        if choice.requested
    )  # fmt: skip


def _content(context: tuple[Hit, ...]) -> str:
    return digest([[hit.passage.id, hit.passage.text] for hit in context])


def estimate(setup: Setup, out: Path | None = None) -> Estimate:
    """Count the trials of a dose run; nothing is retrieved, edited or asked."""
    folder = setup.run_folder(out)
    part = setup.experiment.file.dose
    questions = len(setup.evaluated)
    trials, calls = 0, {}
    for defense in setup.defenses:
        instance: Any = defense.instance
        calls[defense.title] = 0
        for setting in setup.settings:
            places = len(places_of(setup, setting, defense.title))
            k = setting.arm.k
            each = instance.model_calls(k) if hasattr(instance, "model_calls") else 1
            trials += questions * places
            calls[defense.title] += questions * places * each
    done = 0
    if folder.is_dir():
        done = RunFolder(folder).index("trials").newest_done()
    doses = [len([d for d in doses_of(setup, arm) if d]) for arm in setup.arms]
    return Estimate(
        folder=folder,
        trials=trials,
        done=done,
        calls=calls,
        made_of=(
            f"{questions} questions x {len(setup.defenses)} defenses (with none) x (clean, "
            f"{len(setup.rules)} rules x {part.draws if part else 0} draws x "
            f"{'/'.join(map(str, doses))} doses), and controls without a defense"
        ),
    )
