"""Takes poison out of stores that a run was killed over: ``ragassay system clean``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ragassay.errors import ConfigError, StoreError
from ragassay.experiments.setup import Experiment
from ragassay.experiments.system_access import Access
from ragassay.experiments.system_injection import withdraw
from ragassay.experiments.system_journal import JOURNAL, Journal
from ragassay.experiments.system_setup import build_systems, set_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What cleaning did to one system.

    ``injections`` are those that the journal still held open, ``documents`` the ids that they
    name, ``marked`` what bears the mark in the store afterwards (None: it cannot say).
    """

    system: str
    injections: int
    documents: int
    reset: bool
    marked: int | None


def clean(
    experiment: Experiment, *, out: Path | None = None, marked: bool = False
) -> list[Cleaned]:
    """Remove what the journal of a run says is left, and with ``marked`` all that is marked.

    Parameters
    ----------
    experiment : Experiment
        With the settings of the run.
    out : Path, optional
        The run folder, where it was named.
    marked : bool
        Also remove marked documents that no journal of this run knows, such as those of a run
        whose folder is lost. Another run that is using the store would lose its poison.

    Raises
    ------
    ConfigError
        The experiment has no system, or the journal names one that it does not have.
    StoreError
        Something could not be removed; the journal keeps it. Or another process is using it.
    BackendError
        A system cannot be reached.
    """
    systems = build_systems(experiment)
    folder = out or _folder(experiment)
    journal = Journal(folder / JOURNAL)
    if not folder.is_dir():
        return [_one(Access(system), None, marked) for system in systems]
    with journal.held():
        known = {system.title for system in systems}
        for entry in journal.open_entries():
            if entry.system not in known:
                raise ConfigError(
                    f"{journal.path} names poison in a system {entry.system!r}, which the "
                    f"experiment does not have (it has {', '.join(sorted(known))}); clean with the "
                    "settings of the run"
                )
        return [_one(Access(system), journal, marked) for system in systems]


def _folder(experiment: Experiment) -> Path:
    named = experiment.file.run.folder
    return Path(named) if named else set_up(experiment).run_folder()


def _one(access: Access, journal: Journal | None, marked: bool) -> Cleaned:
    entries = [] if journal is None else [
        entry for entry in journal.open_entries() if entry.system == access.title
    ]  # fmt: skip
    try:
        if journal is not None:
            for entry in entries:
                withdraw(access, journal, entry.namespace, entry.ids, late=True)
        if marked:
            access.reset()
            if not access.until(lambda found: not found):
                raise StoreError(
                    f"the store of system {access.title!r} holds marked documents after reset()"
                )
        found = access.marked()
    finally:
        access.close()
    return Cleaned(
        system=access.title,
        injections=len(entries),
        documents=sum(len(entry.ids) for entry in entries),
        reset=marked,
        marked=None if found is None else len(found),
    )
