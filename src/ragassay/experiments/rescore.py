"""Labels the answers of any run folder with further scorers, without a victim, and resumably."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ragassay.config import Part
from ragassay.errors import ConfigError
from ragassay.experiments.clients import cache_folder
from ragassay.experiments.labeling import Labeled, Labels, insist, label
from ragassay.experiments.monitor import Monitor
from ragassay.experiments.setup import Named, build_scorer
from ragassay.experiments.spending import Estimate, Prices, estimate_labels, note, remote_host
from ragassay.plugins import ModelScorer
from ragassay.store import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class RescoreResult:
    """What scoring again did: one entry for each scorer, in the order given."""

    folder: Path
    scorers: tuple[Labeled, ...]
    seconds: float


def score_folder(
    folder: str | Path,
    scorers: Sequence[Part | str],
    *,
    base: Path = Path(),
    headline: str = "",
    workers: int = 0,
    prices: Prices | None = None,
    monitor: Monitor | None = None,
) -> RescoreResult:
    """Label every answer of a run folder that lacks a label of these scorers.

    An answer that has a label of the same scorer with the same identity is left alone, so that
    the same call finishes what an interrupted one left. Equal answers are scored once. The
    reports are not written: see :func:`ragassay.analyze`.

    Parameters
    ----------
    folder : str or Path
        A run folder, of a run or imported, finished or not.
    scorers : sequence of Part or str
        Names of scorers, ``"file.py:Class"``, or parts with a label and options.
    base : Path
        Where relative files are looked for first.
    headline : str
        The scorer that leads the report from now on; empty: as it is.
    workers : int
        Threads that ask a model; 0 chooses by the model.
    prices : Prices, optional
        For the note on what it cost, in ``provenance/scoring.json``.
    monitor : Monitor, optional
        Hears of stages and progress.

    Returns
    -------
    RescoreResult
        Counts of labels, calls and tokens for each scorer.

    Raises
    ------
    ConfigError
        A scorer is unknown, cannot be built, or two have one title; the headline names none.
    StoreError
        It is no run folder, is in use, or cannot be written.
    TooManyFailures
        A model failed, and answers wait for it; all labels that came are kept, and the same
        call goes on from there.
    Interrupted
        The user stopped; the same.
    """
    start = time.perf_counter()
    monitor = monitor or Monitor()
    built = _built(scorers, base)
    store = _opened(folder)
    _check_headline(store, built, headline)
    monitor.stage("labeling answers")
    with store.writer():
        labeled = label(
            store,
            built,
            cache=cache_folder(),
            headline=headline,
            workers=workers,
            progress=monitor.progress,
        )
        note(store, labeled, prices)
    insist(labeled, store.path)
    return RescoreResult(
        folder=store.path,
        scorers=tuple(labeled),
        seconds=round(time.perf_counter() - start, 3),
    )


def plan_scoring(
    folder: str | Path,
    scorers: Sequence[Part | str],
    *,
    base: Path = Path(),
    remote_only: bool = False,
) -> list[Estimate]:
    """Estimate what :func:`score_folder` would do and ask, without doing or asking anything.

    With ``remote_only`` the scorers that would send nothing to another machine are left out.

    Raises
    ------
    ConfigError, StoreError
        As for :func:`score_folder`.
    """
    built = [each for each in _built(scorers, base) if not remote_only or _is_remote(each)]
    store = _opened(folder)
    if not built:
        return []
    labels = Labels(store)
    return [estimate_labels(labels, scorer, cache_folder()) for scorer in built]


def _built(scorers: Sequence[Part | str], base: Path) -> list[Named]:
    if not scorers:
        raise ConfigError("name at least one scorer; see: ragassay list scorer")
    parts = [Part(plugin=each) if isinstance(each, str) else each for each in scorers]
    titles = [part.title for part in parts]
    twice = sorted({title for title in titles if titles.count(title) > 1})
    if twice:
        raise ConfigError(f"two scorers are called {twice[0]!r}; give one a label of its own")
    return [build_scorer(part, base) for part in parts]


def _is_remote(scorer: Named) -> bool:
    return isinstance(scorer.instance, ModelScorer) and bool(remote_host(scorer.instance.backend))


def _opened(folder: str | Path) -> RunFolder:
    store = RunFolder(Path(folder))
    store.read_json("resolved.json")  # before the folder is held: holding makes it where absent
    return store


def _check_headline(store: RunFolder, built: Sequence[Named], headline: str) -> None:
    known = {*store.read_json("resolved.json").get("scorers", {}), *(each.title for each in built)}
    if headline and headline not in known:
        raise ConfigError(
            f"headline {headline!r} is no scorer of this folder; it has: {', '.join(sorted(known))}"
        )
