"""The protocols by name: how each plays, analyzes and estimates.

A protocol is three functions in modules of their own: ``play`` on a
:class:`~ragassay.experiments.session.Session`, ``analyze``, which makes the summary from a run
folder alone, and ``estimate`` for ``ragassay plan``. They are imported when asked for, so that
a report needs nothing that a run needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragassay.errors import ConfigError
from ragassay.store import RunFolder

if TYPE_CHECKING:
    from ragassay.experiments.estimate import Estimate
    from ragassay.experiments.session import Session
    from ragassay.experiments.setup import Experiment, Setup


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A protocol. ``version`` grows when equal settings no longer give equal trials."""

    name: str
    version: int
    player: str
    analyst: str
    planner: str
    builder: str = "setup"

    @property
    def label(self) -> str:
        """What records and summaries call it, such as ``aligned/1``."""
        return f"{self.name}/{self.version}"

    @property
    def set_up(self) -> Callable[[Experiment], Setup]:
        """Reads the data set and builds the parts."""
        return import_module(f"ragassay.experiments.{self.builder}").set_up  # type: ignore[no-any-return]

    @property
    def play(self) -> Callable[[Session], None]:
        """Runs what is missing of the protocol."""
        return import_module(f"ragassay.experiments.{self.player}").play  # type: ignore[no-any-return]

    @property
    def estimate(self) -> Callable[[Setup, Path | None], Estimate]:
        """Counts what a run would do, before it runs."""
        return import_module(f"ragassay.experiments.{self.planner}").estimate  # type: ignore[no-any-return]

    @property
    def analyze(self) -> Callable[[RunFolder, Sequence[str] | None], dict[str, Any]]:
        """Makes the summary from a run folder."""
        return import_module(f"ragassay.experiments.{self.analyst}").analyze  # type: ignore[no-any-return]


PROTOCOLS = {
    each.name: each
    for each in (
        Protocol(
            name="aligned", version=1, player="aligned_play", analyst="aligned",
            planner="aligned_plan",
        ),
        Protocol(
            name="system", version=1, player="system_play", analyst="aligned",
            planner="system_plan", builder="system_setup",
        ),
        Protocol(
            name="ladder", version=1, player="ladder_play", analyst="ladder_analysis",
            planner="ladder_plan",
        ),
        Protocol(
            name="dose", version=1, player="dose_play", analyst="dose_analysis",
            planner="dose_plan",
        ),
        Protocol(
            name="arena", version=1, player="arena_play", analyst="arena_analysis",
            planner="arena_plan",
        ),
    )
}  # fmt: skip
_IMPORTED = "imported"  # answers from elsewhere stand in the four conditions


def protocol(name: str) -> Protocol:
    """Find a protocol by its name, or by its label.

    Raises
    ------
    ConfigError
        There is none of that name.
    """
    plain = name.partition("/")[0]
    found = PROTOCOLS.get("aligned" if plain == _IMPORTED else plain)
    if found is None:
        raise ConfigError(f"unknown protocol {plain!r}; known: {', '.join(PROTOCOLS)}")
    return found


def analyze(folder: str | Path | RunFolder, scorers: Sequence[str] | None = None) -> dict[str, Any]:
    """Analyze a run folder by its protocol.

    Parameters
    ----------
    folder : str, Path or RunFolder
        A run folder, finished or not; trials that are missing count as dropped.
    scorers : sequence of str, optional
        Which scorers to analyze, in this order. Default: those of the run and all others that
        have records, from string rules over judges to people. The first one leads where the
        run's headline is left out.

    Returns
    -------
    dict
        The summary, plain JSON values only (see the reference of ``summary.json``).

    Raises
    ------
    StoreError
        It is no run folder, or its records are damaged.
    ConfigError
        A scorer is named twice, or has no record in this run; or the protocol is unknown.
    """
    store = folder if isinstance(folder, RunFolder) else RunFolder(Path(folder))
    name = store.read_json("resolved.json").get("protocol", "aligned")
    return protocol(str(name)).analyze(store, scorers)
