"""How many trials the aligned protocol consists of, and how many model calls at most."""

from __future__ import annotations

from pathlib import Path

from ragassay.config import EvidencePart
from ragassay.data.paraphrase_file import HALF
from ragassay.experiments.estimate import Estimate
from ragassay.experiments.plan import UNDEFENDED, calls_a_context, expected_calls, scorer_calls
from ragassay.experiments.setup import Setup
from ragassay.plugins import ModelScorer
from ragassay.store import RunFolder

REMOVAL = "removal of evidence"


def estimate(setup: Setup, out: Path | None = None) -> Estimate:
    """Count the trials of a run and what its folder already holds.

    Nothing is crafted, encoded or asked. How many passages an attack will deliver is not
    known before it has crafted, so every budget counts, except those above the number that
    an attack declares (``max_passages``). Nor is it known which answers are positive and what
    stands in a context: every poisoned trial counts with the most controls that a context of
    its size can have. Evaluated paraphrases count as questions, and a scorer that asks a model
    is asked about every answer, with all its retries.
    """
    folder = setup.run_folder(out)
    cells = [
        (attack.title, budget)
        for attack in setup.attacks
        for budget in sorted(setup.experiment.file.budgets)
        if budget <= getattr(attack.instance, "max_passages", budget)
    ]
    done = 0
    if folder.is_dir():
        done = _done(RunFolder(folder), controls=setup.experiment.file.evidence is not None)
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
            more = queries * len(cells) * _controls(setup, defense.title, setting.arm.k)
            controls += more
            if more:
                extra = more * calls_a_context(defense, setting.arm.k)
                calls[REMOVAL] = calls.get(REMOVAL, 0) + extra
    for scorer in setup.scorers:
        if isinstance(scorer.instance, ModelScorer):
            attempts = 1 + int(getattr(scorer.instance, "retries", 0))
            calls[scorer_calls(scorer)] = (trials + controls) * attempts
    named = ", ".join(f"{attack} p={budget}" for attack, budget in cells)
    more_trials = f", and at most {controls:,} with evidence removed" if controls else ""
    return Estimate(
        folder=folder,
        trials=trials,
        done=done,
        calls=calls,
        controls=controls,
        made_of=f"{queries} questions x {len(setup.defenses)} defenses (with none) "
        f"x (clean, {named}){more_trials}",
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


def _done(folder: RunFolder, *, controls: bool) -> int:
    """How many trials are done, without those with evidence removed, of which an index knows not.

    A folder has none of those where its experiment has no ``[evidence]``: it takes no other.
    """
    if not controls:
        return folder.index("trials").newest_done()
    trials = folder.columns()
    return int((trials.done & trials.control.equal("")).sum())


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
