"""The trigger of ContentPoison, searched by greedy coordinate gradients on a language model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ragassay.attacks.contentpoison_frame import Frame, Output, Sides, token_weights
from ragassay.attacks.search_tokens import best_tokens
from ragassay.plugins.access import Ids
from ragassay.types import Json

_GROWTH = "!"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How long and how widely to search; the options of the attack."""

    steps: int
    test_every: int
    batch: int
    top: int
    positions: int
    pool: int
    pool_step: int
    keyword_weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """What a search found. Losses are means over the keyword's tokens, in nats.

    ``text`` includes the space that parts it from the passage. ``start_loss`` and ``loss`` are
    those of the texts of the first and of this trigger, behind the first passage.
    """

    text: str
    start_loss: float
    loss: float
    iterations: int
    stop: str
    tests: tuple[dict[str, Json], ...]
    lost: int
    trace: tuple[tuple[int, float], ...]

    @property
    def success(self) -> bool:
        """Whether the last test succeeded at all places."""
        return self.stop == "success"


@dataclass(slots=True)
class TriggerSearch:
    """Searches one trigger for one prompt.

    Parameters
    ----------
    frame : Frame
        The prompt and its places.
    output : Output
        What the model should say.
    schedule : Schedule
    convinced : callable
        Takes a place and a text to insert there; whether the model then says what it should, and
        what it says.
    rng : numpy.random.Generator
        Draws places and tokens.
    """

    frame: Frame
    output: Output
    schedule: Schedule
    convinced: Callable[[int, str], tuple[bool, str]]
    rng: np.random.Generator
    lost: int = 0
    _allowed: NDArray[np.bool_] = field(init=False)
    _keyword: list[float] = field(init=False)
    _all: list[float] = field(init=False)

    def __post_init__(self) -> None:
        size = len(self.output.ids)
        self._allowed = self.frame.model.usable
        self._keyword = token_weights(size, self.output.keyword, 1.0)
        self._all = token_weights(size, self.output.keyword, self.schedule.keyword_weight)

    def run(self, first: str) -> Trigger:
        """Search, from a first trigger on; return the best one met, which may be the first."""
        plan = self.schedule
        text = spaced(first)
        start = best = self.loss(text)
        best_text, trace, tests, stop = text, [], [], "steps"
        pool, grown, done = plan.pool, 0, 0
        for step in range(1, plan.steps + 1):
            done = step
            text, found = self._step(text, pool)
            if found is not None and found < best:
                best, best_text = found, text
                trace.append((step, best))
            if step % plan.test_every and step < plan.steps:
                continue
            tests.append(self._test(step, best_text, pool))
            if tests[-1]["success"]:
                stop = "success"
                break
            if step < plan.steps:
                text, grown = grow(text, front=grown % 2 == 0), grown + 1
                pool = max(pool - plan.pool_step, 1)
        return Trigger(
            text=best_text,
            start_loss=start,
            loss=self.loss(best_text),
            iterations=done,
            stop=stop,
            tests=tuple(tests),
            lost=self.lost,
            trace=tuple(trace),
        )

    def loss(self, insert: str) -> float:
        """Loss on the keyword with a text inserted behind the first passage."""
        prompt = self.frame.tokens(self.frame.origin, insert)
        whole = (*prompt, *self.output.ids)
        return float(self.frame.model.losses([whole], self._target(prompt), self._keyword)[0])

    # ----------------------------------------------------------------------------- internals

    def _step(self, text: str, pool: int) -> tuple[str, float | None]:
        """Replace one token; the text stays where no candidate survives."""
        ids = self.frame.model.tokenize(text)
        if not ids:
            return text, None
        slopes = self._slopes(ids, text, pool)
        sides = self.frame.sides(self.frame.origin, ids, text)
        tried = self._surviving(self._candidates(ids, slopes), sides)
        if not tried:
            return text, None
        prompts = [(*sides.left, *candidate, *sides.right) for candidate, _ in tried]
        rows = [(*prompt, *self.output.ids) for prompt in prompts]
        losses = self.frame.model.losses(rows, self._target(prompts[0]), self._keyword)
        place = int(np.argmin(losses))
        return tried[place][1], float(losses[place])

    def _slopes(self, ids: Ids, text: str, pool: int) -> NDArray[np.float64]:
        """Sum over some places of the one-hot gradients, each token's of length 1."""
        total = np.zeros((len(ids), self.frame.model.vocabulary))
        for place in self._draw(pool, self.schedule.positions):
            left, right, _ = self.frame.sides(place, ids, text)
            prompt = (*left, *ids, *right)
            _, found = self.frame.model.loss_gradient(
                (*prompt, *self.output.ids),
                range(len(left), len(left) + len(ids)),
                self._target(prompt),
                self._all,
            )
            lengths = np.linalg.norm(found, axis=1, keepdims=True)
            total += found / np.where(lengths > 0, lengths, 1)
        return total

    def _candidates(self, ids: Ids, slopes: NDArray[np.float64]) -> list[Ids]:
        """One flip each: positions spread evenly, tokens drawn from the best of a position."""
        batch, size = self.schedule.batch, len(ids)
        positions = np.arange(batch) * size // batch
        ranked = {
            position: best_tokens(-slopes[position], self.schedule.top, allowed=self._allowed)
            for position in np.unique(positions).tolist()
        }
        found: dict[Ids, None] = {}
        for position in positions.tolist():
            choices = ranked[position]
            token = choices[int(self.rng.integers(len(choices)))]
            if token != ids[position]:
                found[(*ids[:position], token, *ids[position + 1 :])] = None
        return list(found)

    def _surviving(self, candidates: Sequence[Ids], sides: Sides) -> list[tuple[Ids, str]]:
        """Those whose text, by itself and in the prompt, has exactly their tokens."""
        model, origin = self.frame.model, self.frame.origin
        kept = []
        for ids in candidates:
            text = spaced(model.decode(ids))
            alone = model.tokenize(text) == ids
            if alone and (
                not sides.exact
                or self.frame.tokens(origin, text) == (*sides.left, *ids, *sides.right)
            ):
                kept.append((ids, text))
            else:
                self.lost += 1
        return kept

    def _test(self, step: int, text: str, pool: int) -> dict[str, Json]:
        """Ask the model with the trigger at its own place and at two drawn ones."""
        places = [self.frame.origin, *self._draw(pool, 2)]
        results: list[Json] = []
        answer = ""
        for place in places:
            fooled, said = self.convinced(place, text)
            answer = answer or said
            results.append(fooled)
            if not fooled:
                break
        return {
            "step": step,
            "places": list(places[: len(results)]),
            "fooled": results,
            "success": all(results),
            "answer": answer,
        }

    def _draw(self, pool: int, count: int) -> list[int]:
        places = self.frame.places(pool)
        drawn = self.rng.choice(len(places), size=min(count, len(places)), replace=False)
        return [places[i] for i in drawn]

    def _target(self, prompt: Ids) -> slice:
        return slice(len(prompt), len(prompt) + len(self.output.ids))


def spaced(text: str) -> str:
    """Put the one space in front that parts a trigger from the passage before it."""
    return text if text[:1].isspace() else f" {text}"


def grow(text: str, *, front: bool) -> str:
    """Lengthen a trigger by one exclamation mark.

    Examples
    --------
    >>> grow(" !Bern!", front=True), grow(" !Bern!", front=False)
    (' !!Bern!', ' !Bern!!')
    """
    return f" {_GROWTH}{text.lstrip()}" if front else text + _GROWTH
