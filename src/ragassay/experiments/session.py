"""What a protocol plays with: the parts of an experiment, opened when they are first asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ragassay import canon
from ragassay.experiments.clients import Clients, open_index
from ragassay.experiments.context import Context, Ready, make_ready
from ragassay.experiments.jobs import Spent, Work, run_jobs
from ragassay.experiments.monitor import Monitor
from ragassay.experiments.perplexity import perplexity_of
from ragassay.experiments.poison import Crafter, craft_all
from ragassay.experiments.setup import Arm, Setting, Setup
from ragassay.experiments.tax import FACTS, attack_facts
from ragassay.experiments.trial import Bench, Job
from ragassay.experiments.victim import AttackedSystem, embedder
from ragassay.plugins import Index
from ragassay.store import RunFolder
from ragassay.types import PoisonSet


@dataclass(slots=True, kw_only=True)
class Session:
    """One run in progress. The folder is held for writing as long as it lasts.

    ``stack`` closes what was opened. A protocol may write streams and files of its own to
    ``folder``; trials, scores and passages are written by :meth:`run`.
    """

    setup: Setup
    folder: RunFolder
    cache: Path
    clients: Clients
    monitor: Monitor
    spent: Spent
    stack: ExitStack
    indexes: dict[str, Index] = field(default_factory=dict)

    def index(self, arm: Arm) -> Index:
        """The corpus of an arm, encoded or loaded once."""
        index = self.indexes.get(arm.title)
        if index is None:
            self.monitor.stage("encoding the corpus")
            opened = open_index(self.setup, arm, self.cache, self.monitor, self.clients.pool)
            index = self.indexes[arm.title] = self.stack.enter_context(opened)
        return index

    def crafter(self) -> Crafter:
        """What crafts poison against this system."""
        return Crafter(
            setup=self.setup,
            helper=self.clients.helper,
            system=AttackedSystem(
                self.setup,
                lambda: self.index(self.setup.arms[0]),
                lambda: self.clients.of(self.setup.victims[0]),
                self.clients.opened,
            ),
        )

    def craft(self) -> dict[tuple[str, str], PoisonSet]:
        """Craft, or read back, the poison of every attack for every attacked question.

        Returns
        -------
        dict
            Poison by attack title and question id. What it cost is written beside it.
        """
        self.monitor.stage("crafting the poison")
        crafter = self.crafter()
        sets = craft_all(crafter, self.folder, self.monitor.progress)
        self.note_facts(sets)
        return sets

    def note_facts(self, sets: Mapping[tuple[str, str], PoisonSet]) -> None:
        """Write what the attacks cost and need, measured on their poison."""
        perplexity = perplexity_of(self.setup, self.clients.opened)
        facts = attack_facts(self.crafter(), sets, self.index(self.setup.arms[0]), perplexity)
        self.folder.write_text(FACTS, canon.dumps(facts) + "\n")

    def bench(self, setting: Setting) -> Bench:
        """What all trials of a setting share."""
        return Bench(
            model=self.clients.of(setting.victim),
            embed=embedder(self.index(setting.arm)),
            template=self.setup.template,
            prompt=self.setup.experiment.file.prompt,
            sampling=setting.victim.sampling,
            seed=self.setup.experiment.file.seed,
            k=setting.arm.k,
            victim=setting.victim.generator,
            models=self.clients.opened,
        )

    def calibrated(
        self, setting: Setting, clean: Mapping[str, Context]
    ) -> dict[tuple[str, str], Ready]:
        """The defenses of a setting, detectors calibrated: by title and injection group."""
        bench, index = self.bench(setting), self.index(setting.arm)
        return make_ready(
            self.setup, setting.arm, index, clean, lambda query: bench.tools(query, "calibration")
        )

    def run(self, jobs: Sequence[Job], setting: Setting) -> None:
        """Run the trials that are not done yet; labels of rules that read come with them."""
        work = Work(
            setup=self.setup,
            victim=setting.victim,
            folder=self.folder,
            bench=self.bench(setting),
            model=self.clients.of(setting.victim),
            monitor=self.monitor,
            pool=self.clients.pool,
        )
        run_jobs(jobs, work, self.spent)
