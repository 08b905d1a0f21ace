"""Plays the aligned evaluation on systems that are only asked, one system after the other.

For each system: all clean answers, then for each attack, budget and injection group the group's
poison goes into the store, the group's questions are asked, and the poison is removed. Systems
may share a store, since none holds poison while another is asked. The answers of a group are
written together, after a look that the store held what it should: all of the poison, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import cast

from ragassay import canon
from ragassay.canon import digest
from ragassay.errors import BackendError, StoreError
from ragassay.experiments.context import cells_of
from ragassay.experiments.poison import Crafter, craft_all, group_poison
from ragassay.experiments.session import Session
from ragassay.experiments.system_access import Access
from ragassay.experiments.system_injection import Injection, Lost, injected, injection
from ragassay.experiments.system_journal import JOURNAL, Journal
from ragassay.experiments.system_setup import SystemSetup
from ragassay.experiments.system_trial import Ledger, Question, asked, failed, question
from ragassay.experiments.tax import FACTS, attack_facts
from ragassay.types import Passage, PoisonSet, Query, TrialRecord

CLEAN = ("", 0)
_ATTEMPTS = 3  # of a group whose poison got lost

Cell = tuple[str, int]
Members = Sequence[tuple[str, PoisonSet]]


def play(session: Session) -> None:
    """Run what is missing of the protocol.

    Raises
    ------
    ConfigError
        A system is not local, and that is not allowed.
    StoreError
        A store holds marked poison, an earlier run left some, or some could not be removed.
    BackendError
        Too many questions failed in a row; finished groups are kept.
    Interrupted
        The user stopped; no poison is left.
    """
    setup = cast(SystemSetup, session.setup)
    allowed = setup.experiment.file.run.allow_remote
    accesses = [Access(system) for system in setup.systems]
    for access in accesses:
        access.check_local(allowed=allowed)
    sets = _craft(session)
    groups = {
        cell: group_poison(sets, setup, *cell) for cell in cells_of(setup, sets)
    }  # fmt: skip
    journal = Journal(session.folder.path / JOURNAL)
    with journal.held():
        _check_settled(journal)
        done = {k for k, trial in session.folder.trials().items() if trial.status == "done"}
        for number, access in enumerate(accesses):
            session.monitor.stage(f"asking {access.title}")
            player = _Player(
                session=session, setup=setup, number=number, access=access, journal=journal,
                groups=groups, done=done,
            )  # fmt: skip
            try:
                player.play()
            finally:
                access.close()


def _craft(session: Session) -> dict[tuple[str, str], PoisonSet]:
    """Craft what outsiders can craft, or read it back."""
    session.monitor.stage("crafting the poison")
    crafter = Crafter(setup=session.setup, helper=session.clients.helper)
    sets = craft_all(crafter, session.folder, session.monitor.progress)
    session.folder.write_text(FACTS, canon.dumps(attack_facts(crafter, sets)) + "\n")
    return sets


def _check_settled(journal: Journal) -> None:
    left = journal.open_entries()
    if left:
        count = sum(len(entry.ids) for entry in left)
        raise StoreError(
            f"an earlier run left up to {count} poison documents in the store of system "
            f"{left[0].system!r} ({journal.path}); remove them with ragassay system clean "
            "EXPERIMENT, with the settings of this run"
        )


@dataclass(slots=True, kw_only=True)
class _Player:
    """One system, from its clean answers to its last poisoned group."""

    session: Session
    setup: SystemSetup
    number: int
    access: Access
    journal: Journal
    groups: dict[Cell, dict[str, list[tuple[str, PoisonSet]]]]
    done: set[str]
    total: int = 0
    _seen: int = field(default=0)

    def play(self) -> None:
        by_group: dict[str, list[Query]] = {}
        for query in self.setup.evaluated:
            by_group.setdefault(query.group, []).append(query)
        work: list[tuple[list[Question], Members]] = []
        for cell in (CLEAN, *self.groups):
            for group, queries in by_group.items():
                members: Members = () if cell == CLEAN else self.groups[cell][group]
                content = "" if cell == CLEAN else _content(members)
                work.append(([self._question(q, cell, content) for q in queries], members))
        self.total = sum(len(questions) for questions, _ in work)
        self.session.spent.trials_reused += sum(
            each.key in self.done for questions, _ in work for each in questions
        )
        if not any(self._missing(questions) for questions, _ in work):
            return
        self.access.check_unmarked("the run cannot start")
        self.access.prepare(self.setup.dataset.corpus)
        for questions, members in work:
            missing = self._missing(questions)
            if missing:
                self._ask_group(missing, members)
            self._seen += len(questions)
            self.session.monitor.progress(self._seen, self.total)
        self.access.check_unmarked("poison arrived after it had been removed")

    def _question(self, query: Query, cell: Cell, content: str) -> Question:
        return question(self.setup, self.number, query, cell, content)

    def _missing(self, questions: Sequence[Question]) -> list[Question]:
        return [each for each in questions if each.key not in self.done]

    def _ask_group(self, questions: Sequence[Question], members: Members) -> None:
        """Ask the questions of a group; write the answers if the store was what it should be."""
        answers: list[tuple[TrialRecord, tuple[Passage, ...]]] = []
        for attempt in range(_ATTEMPTS):
            poison = injection(members) if members else None
            try:
                answers = self._with(poison, questions)
                break
            except Lost as error:
                if attempt == _ATTEMPTS - 1:
                    answers = [(failed(each, str(error)), ()) for each in questions]
            except BackendError as error:  # ingestion failed
                answers = [(failed(each, str(error)), ()) for each in questions]
                break
        self._keep(answers)

    def _with(
        self, poison: Injection | None, questions: Sequence[Question]
    ) -> list[tuple[TrialRecord, tuple[Passage, ...]]]:
        if poison is None or not poison.documents:
            answers = self._ask(questions, Ledger())
            self.access.check_unmarked("the clean answers are not clean")
            return answers
        with injected(self.access, self.journal, poison):
            return self._ask(questions, Ledger.of(poison.owner))

    def _ask(
        self, questions: Sequence[Question], ledger: Ledger
    ) -> list[tuple[TrialRecord, tuple[Passage, ...]]]:
        if self.access.concurrency == 1:
            return [asked(self.access, each, ledger) for each in questions]
        pool = ThreadPoolExecutor(self.access.concurrency, thread_name_prefix="ask")
        try:
            waiting = [pool.submit(asked, self.access, each, ledger) for each in questions]
            return [future.result() for future in waiting]
        finally:  # a question in flight does not keep the poison in
            pool.shutdown(wait=False, cancel_futures=True)

    def _keep(self, answers: Sequence[tuple[TrialRecord, tuple[Passage, ...]]]) -> None:
        folder, spent = self.session.folder, self.session.spent
        new: dict[str, Passage] = {}
        for _, passages in answers:
            new.update({p.id: p for p in passages if p.id not in spent.passages})
        if new:
            folder.append_many("passages", list(new.items()))
            spent.passages.update(new)
        folder.append_many("trials", [(record.key, record) for record, _ in answers])
        limit = self.setup.experiment.file.run.max_failures
        for record, _ in answers:
            spent.trials_run += 1
            self.session.monitor.trial(record, [])
            spent.failures_in_a_row = spent.failures_in_a_row + 1 if record.error else 0
            spent.last_error = record.error or spent.last_error
        if spent.failures_in_a_row >= limit:
            raise BackendError(
                f"{spent.failures_in_a_row} questions failed in a row, the last one with: "
                f"{spent.last_error}. Finished ones are kept in {folder.path}; the same command "
                "goes on from there"
            )


def _content(members: Members) -> str:
    """Digest of what is injected, as in the protocol with a pipeline of its own."""
    passages = [passage for _, poison in members for passage in poison.passages]
    return digest(sorted([p.id, p.title, p.text] for p in passages))
