"""What a run would cost, before it runs: trials, those already done, calls at most."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ragassay.config import EvidencePart
from ragassay.data.paraphrase_file import HALF
from ragassay.experiments.plan import UNDEFENDED, calls_a_context, expected_calls
from ragassay.experiments.setup import Setup
from ragassay.plugins import ModelScorer
from ragassay.store import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Counts for ``ragassay plan``.

    ``calls`` bounds each defense's model calls from above, trials with evidence removed
    included; ``controls`` bounds the number of those trials, and ``judging`` the calls of each
    scorer that asks a model. ``queries`` counts evaluated paraphrases.
    """

    folder: Path
    queries: int
    cells: tuple[tuple[str, int], ...]
    trials: int
    done: int
    calls: dict[str, int]
    controls: int = 0
    judging: dict[str, int] = field(default_factory=dict)


def estimate(setup: Setup, out: Path | None = None) -> Estimate:
    """Count the trials of a run and what its folder already holds.

    Nothing is crafted, encoded or asked. How many passages an attack will deliver is not
    known before it has crafted, so every budget counts, except those above the number that
    an attack declares (``max_passages``). Nor is it known which answers are positive and what
    stands in a context: every poisoned trial counts with the most controls that a context of
    its size can have.
    """
    folder = setup.run_folder(out)
    cells = tuple(
        (attack.title, budget)
        for attack in setup.attacks
        for budget in sorted(setup.experiment.file.budgets)
        if budget <= getattr(attack.instance, "max_passages", budget)
    )
    done = 0
    if folder.is_dir():
        done = sum(
            record.status == "done" and not record.spec.control
            for record in RunFolder(folder).trials().values()
        )
    queries = _queries(setup)
    trials = (
        len(setup.settings)
        * len(setup.defenses)
        * (queries * (1 + len(cells)) + len(setup.held_out))
    )
    calls = expected_calls(setup, len(cells), queries)
    controls = 0
    for defense in setup.defenses:
        for setting in setup.settings:
            k = setting.arm.k
            more = queries * len(cells) * _controls(setup, defense.title, k)
            controls += more
            calls[defense.title] += more * calls_a_context(defense, k)
    return Estimate(
        folder=folder,
        queries=queries,
        cells=cells,
        trials=trials,
        done=done,
        calls=calls,
        controls=controls,
        judging={
            scorer.title: (trials + controls) * (1 + int(getattr(scorer.instance, "retries", 0)))
            for scorer in setup.scorers
            if isinstance(scorer.instance, ModelScorer)
        },
    )


def most_controls(k: int, part: EvidencePart, *, attributed: bool) -> int:
    """The most distinct contexts that removing evidence can leave of a poisoned one.

    With s poison passages these are: without all, without own and without supporting ones,
    background or poison alone, each alone, all but each; with attribution every proper subset
    of the poison beside the background, among them all but each, without all, without own.

    Examples
    --------
    >>> most_controls(1, EvidencePart(), attributed=False)
    7
    >>> most_controls(5, EvidencePart(), attributed=True)
    39
    """
    plain = 5 + 2 * k
    if not attributed:
        return plain
    s = min(k, part.max_poison)
    subsets: int = 2**s + s + 2
    return max(subsets, plain)


# --------------------------------------------------------------------------------- internals


def _queries(setup: Setup) -> int:
    part = setup.experiment.file.paraphrases
    if part is None or not part.evaluate:
        return len(setup.evaluated)
    return len(setup.attacked) * (1 + HALF)


def _controls(setup: Setup, defense: str, k: int) -> int:
    part = setup.experiment.file.evidence
    undefended = defense == UNDEFENDED
    if part is None or (part.defenses == "undefended" and not undefended):
        return 0
    attributed = part.attribution == "all" or (part.attribution == "undefended" and undefended)
    return most_controls(k, part, attributed=attributed)
