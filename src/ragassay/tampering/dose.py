"""The dose: how many passages of a prompt are tampered with, requested and applied.

Source: "In RAG We Trust?" (Fasolino, 2026), sections III-B and V-C. A dose is a count of
passages, zero included; the paper's first version turned a ratio into max(1, floor(k p)),
which is never zero. What is requested is not what is delivered, because a rule finds nothing
to edit in some passages; both are recorded.

Deviations: ``mode = "editable"`` chooses among the passages that the rule can edit, so that
rules are compared at equal applied dose, which the paper could not do. Within one draw doses
are nested (the passages of dose 1 are among those of dose 2) and a passage's edits are the
same at each dose, so that a step in the dose adds a passage and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from ragassay.canon import rng_for
from ragassay.errors import ConfigError
from ragassay.tampering.edits import Rule, Scene, Tampered

Mode = Literal["all", "editable"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One passage under a dose: was it chosen to be tampered with, and what came of it."""

    requested: bool
    tampered: Tampered

    @property
    def applied(self) -> bool:
        """Whether the text differs from the passage's."""
        return self.tampered.applied


@dataclass(frozen=True, slots=True)
class Dosed:
    """The passages of a prompt under a dose, in their order.

    ``requested`` is the dose asked for. In the mode "editable" with too few passages that the
    rule can edit, those are all tampered with and ``applied`` is below ``requested``.
    """

    rule: str
    mode: Mode
    requested: int
    choices: tuple[Choice, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The passages as the victim sees them."""
        return tuple(choice.tampered.text for choice in self.choices)

    @property
    def applied(self) -> int:
        """The applied dose: how many passages differ from before."""
        return sum(choice.applied for choice in self.choices)


def choose(
    passages: Sequence[str],
    m: int,
    rng: np.random.Generator,
    mode: Mode = "all",
    *,
    editable: Callable[[int], bool] | None = None,
) -> tuple[int, ...]:
    """Choose which m of the passages are tampered with, uniformly.

    Parameters
    ----------
    passages : sequence of str
        The passages of the prompt.
    m : int
        The dose requested, ``0 <= m <= len(passages)``.
    rng : numpy.random.Generator
        Draws one order of the passages, whatever m; so doses are nested for equal
        generators.
    mode : "all" or "editable"
        Choose among all passages, or among those of which ``editable`` holds.
    editable : callable, optional
        Tells of a passage's position whether the rule can edit it; asked only as often as
        needed.

    Returns
    -------
    tuple of int
        Positions, ascending; fewer than m only where fewer are editable.

    Raises
    ------
    ConfigError
        m is out of range, the mode is unknown, or ``editable`` is missing.

    Examples
    --------
    >>> choose(["a", "b", "c"], 0, np.random.default_rng(1))
    ()
    >>> choose(["a", "b", "c"], 2, np.random.default_rng(1), "editable", editable=lambda i: i < 1)
    (0,)
    """
    if isinstance(m, bool) or not isinstance(m, int) or not 0 <= m <= len(passages):
        raise ConfigError(f"need a dose from 0 to {len(passages)} passages, a count, got {m!r}")
    if mode not in get_args(Mode):
        raise ConfigError(f"need mode to be one of {', '.join(get_args(Mode))}, got {mode!r}")
    order = [int(at) for at in rng.permutation(len(passages))]
    if mode == "all":
        return tuple(sorted(order[:m]))
    if editable is None:
        raise ConfigError('mode "editable" needs to know which passages the rule can edit')
    chosen: list[int] = []
    for at in order:
        if len(chosen) == m:
            break
        if editable(at):
            chosen.append(at)
    return tuple(sorted(chosen))


def tamper(
    rule: Rule,
    passages: Sequence[str],
    m: int,
    *,
    question: str,
    rng: np.random.Generator,
    mode: Mode = "all",
    scene: Scene = Scene(),  # noqa: B008 - frozen
) -> Dosed:
    """Tamper with m of the passages of a prompt.

    Parameters
    ----------
    rule : Rule
        What is done to a passage.
    passages : sequence of str
        The texts of the passages, in prompt order.
    m : int
        The dose requested. At 0 no passage is touched and no model asked.
    question : str
        The question of the prompt.
    rng : numpy.random.Generator
        Give equal generators for all rules and doses of one draw: then the rules meet the
        same passages, and doses are nested.
    mode : "all" or "editable"
        See :func:`choose`.
    scene : Scene
        The target and the model, where the rule needs them; ``context`` is set here.

    Returns
    -------
    Dosed
        At m = 0, and wherever a passage is not chosen, the text is the given one.

    Raises
    ------
    ConfigError
        As for :func:`choose`, or the rule misses something in the scene.
    RuntimeError
        A rule said that it changed a text that it did not change, or the other way round.

    Examples
    --------
    >>> from ragassay.tampering.number_swap import NumberSwap
    >>> texts = ("It has 3 doors.", "It is red.")
    >>> dosed = tamper(NumberSwap(), texts, 2, question="", rng=np.random.default_rng(1))
    >>> dosed.requested, dosed.applied, dosed.texts[1]
    (2, 1, 'It is red.')
    """
    key = [int(part) for part in rng.integers(0, 2**32, size=4)]
    scene = replace(scene, context=tuple(passages))
    done: dict[int, Tampered] = {}

    def attempt(at: int) -> bool:
        if at not in done:
            place = "all passages" if rule.shared else at
            own = rng_for("tampering", *key, rule.name, place)
            done[at] = _checked(rule, passages[at], rule.apply(
                passages[at], question, own, scene=scene))  # fmt: skip
        return done[at].applied

    order = rng_for("tampering", *key, "order")
    chosen = choose(passages, m, order, mode, editable=attempt)
    for at in chosen:
        attempt(at)
    kept = [Choice(False, Tampered(text)) for text in passages]
    for at in chosen:
        kept[at] = Choice(True, done[at])
    return Dosed(rule.name, mode, m, tuple(kept))


def _checked(rule: Rule, before: str, tampered: Tampered) -> Tampered:
    if tampered.applied != (tampered.text != before):
        raise RuntimeError(
            f"rule {rule.name!r} says applied = {tampered.applied} of a text that did "
            f"{'' if tampered.text != before else 'not '}change"
        )
    return tampered
