"""Does a back end repeat itself at temperature 0, alone and in a batch?

Greedy decoding is not exact in practice: the shape of a batch changes the order of floating
point sums, and a server may batch as it pleases. The cache makes the conditions of an
experiment matched all the same; this measures how far a run without the cache would agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ragassay.errors import BackendError, ConfigError, NotEstimable
from ragassay.plugins import Generator
from ragassay.types import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatReport:
    """How many of ``n`` prompts got the same text verbatim.

    ``alone``: each time they were asked one by one; ``together``: each time they were asked
    in one call; ``identical``: every time, in both ways. ``times`` is how often each way.
    """

    n: int
    times: int
    alone: int
    together: int
    identical: int

    @property
    def repeats(self) -> bool:
        """Whether every prompt got one text only."""
        return self.identical == self.n

    def describe(self) -> str:
        """Say it in one line."""
        if self.repeats:
            return f"{self.n} of {self.n} texts identical, alone and in a batch"
        return (
            f"{self.identical} of {self.n} texts identical alone and in a batch "
            f"({self.alone} of {self.n} when asked alone again, "
            f"{self.together} of {self.n} in the same batch again)"
        )


def repeats_itself(
    generator: Generator, requests: Sequence[Request], *, times: int = 2
) -> RepeatReport:
    """Ask the same prompts several times at temperature 0, one by one and in one batch.

    The cache is not involved.

    Parameters
    ----------
    generator : Generator
        The back end.
    requests : sequence of Request
        The prompts; their temperature is set to 0.
    times : int, default 2
        How often each prompt is asked in each way; at least 1.

    Raises
    ------
    NotEstimable
        There are no prompts.
    ConfigError
        ``times`` is less than 1.
    BackendError
        A request failed.
    """
    if not requests:
        raise NotEstimable("no prompts to repeat: give at least one")
    if times < 1:
        raise ConfigError(f"times must be at least 1, got {times}")
    greedy = [
        replace(request, sampling=replace(request.sampling, temperature=0.0))
        for request in requests
    ]
    alone = [[_texts(generator, [request])[0] for request in greedy] for _ in range(times)]
    together = [_texts(generator, greedy) for _ in range(times)]
    return RepeatReport(
        n=len(greedy),
        times=times,
        alone=_agreeing(alone),
        together=_agreeing(together),
        identical=_agreeing([*alone, *together]),
    )


def _texts(generator: Generator, requests: Sequence[Request]) -> list[str]:
    answers = generator.generate(requests)
    if len(answers) != len(requests):
        raise BackendError(
            f"generator {generator.identity} returned {len(answers)} results for "
            f"{len(requests)} requests"
        )
    texts = []
    for answer in answers:
        if isinstance(answer, BackendError):
            raise answer
        texts.append(answer.text)
    return texts


def _agreeing(rounds: Sequence[Sequence[str]]) -> int:
    return sum(len(set(texts)) == 1 for texts in zip(*rounds, strict=True))
