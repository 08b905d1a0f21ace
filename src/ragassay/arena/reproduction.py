"""Published PoisonArena figures beside what follows from its released data without a model.

Source: "Uncovering Competing Poisoning Attacks in Retrieval-Augmented Generation": F1 of Table 1,
s-F1 of Tables 4 and 11, averages of Table 18, precision, recall and F1 of Table 19. The printed
numbers stand in ``published.json``.

Deviations: none known. Tables 1 and 19 follow with five of the six released answers, Tables 4 and
11 with all. Where figures differ by 1e-4, the printed one is a document of 10,000 away from the
released scores, or was cut instead of rounded; which of both is not known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from ragassay.arena.pool import QueryPool, restricted
from ragassay.arena.prompts import PromptCount, count_prompts
from ragassay.arena.released import (
    data_folder,
    evaluation_half,
    read_paraphrases,
    read_questions,
)
from ragassay.arena.released_loop import ReleasedLoop, replay
from ragassay.arena.retrieval import ExpectedFigures, competition_figures

Status = Literal["agrees", "differs", "known exception"]

TOLERANCE = 1e-4
_ROUNDING = 1e-9  # a difference of exactly one printed unit is within the tolerance
_ANSWERS = frozenset(range(5))  # of six, in Tables 1 and 19
_COLUMNS = {"F1": "f1", "s-F1": "f1", "Precision": "precision", "Recall": "recall"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One published figure, the recomputed one, and what to make of their difference.

    ``n`` counts what the recomputed mean is over: assignments of answers to queries, or printed
    figures (Table 18). ``recomputed`` is None where the data hold no such competitors. ``note``
    explains a known exception.
    """

    table: str
    attacker: str
    against: str
    column: str
    published: float
    recomputed: float | None
    n: int
    status: Status
    note: str = ""

    @property
    def difference(self) -> float | None:
        """Recomputed minus published."""
        return None if self.recomputed is None else self.recomputed - self.published


@dataclass(frozen=True, slots=True)
class Reproduction:
    """All comparisons, and the prompts that the released loop asks for."""

    source: str
    data: str
    labels: dict[str, str]
    comparisons: tuple[Comparison, ...]
    prompts: dict[str, PromptCount]

    @property
    def ok(self) -> bool:
        """Whether everything agrees that should."""
        return all(comparison.status != "differs" for comparison in self.comparisons)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain JSON."""
        return {
            "source": self.source,
            "data": self.data,
            "tolerance": TOLERANCE,
            "ok": self.ok,
            "figures": [
                {**asdict(comparison), "difference": comparison.difference}
                for comparison in self.comparisons
            ],
            "prompts": {name: asdict(count) for name, count in self.prompts.items()},
        }


def reproduce(data: str | Path, *, prompts: bool = True) -> Reproduction:
    """Recompute what follows from the released data, and compare it with the printed figures.

    Parameters
    ----------
    data : str or Path
        The folder of the released files, or the folder that holds it as ``poisonarena``.
    prompts : bool
        Whether to count the prompts of the released loop, which takes most of the time.

    Raises
    ------
    DataError
        The folder or a file is missing, damaged or something else; names file and line.
    """
    folder = data_folder(data)
    questions = read_questions(folder)
    paraphrases = evaluation_half(read_paraphrases(folder))
    published = _published()
    means = _Means(
        {
            "1": [restricted(pool, _ANSWERS) for pool in questions],
            "19": [restricted(pool, _ANSWERS) for pool in questions],
            "4": paraphrases,
            "11": paraphrases,
        }
    )
    return Reproduction(
        source=published["source"],
        data=str(folder),
        labels=published["attackers"],
        comparisons=tuple(_compare(figure, means) for figure in published["figures"]),
        prompts=_prompts(questions) if prompts else {},
    )


class _Means:
    """Exact mean figures of the tables; each set of competitors is enumerated once."""

    def __init__(self, pools: dict[str, list[QueryPool]]) -> None:
        self._pools = pools
        self._known: dict[tuple[str, tuple[str, ...]], dict[str, ExpectedFigures]] = {}

    def of(self, table: str, attackers: Sequence[str]) -> dict[str, ExpectedFigures]:
        place = table, tuple(sorted(attackers))
        if place not in self._known:
            k = 10 if table == "11" else 5
            self._known[place] = competition_figures(self._pools[table], place[1], k)
        return self._known[place]


def _compare(figure: dict[str, Any], means: _Means) -> Comparison:
    table, attacker, against = figure["table"], figure["attacker"], figure.get("against", "")
    recomputed: float | None = None
    n = 0
    if table == "18":
        recomputed, n = math.fsum(figure["of"]) / len(figure["of"]), len(figure["of"])
    else:
        found = means.of(table, [attacker, *([against] if against else [])]).get(attacker)
        if found is not None:
            recomputed, n = getattr(found.figures, _COLUMNS[figure["column"]]), found.assignments
    exception = figure.get("exception")
    expected = figure["value"] if exception is None else exception["recomputed"]
    status: Status = "differs"
    if recomputed is not None and abs(recomputed - expected) <= TOLERANCE + _ROUNDING:
        status = "agrees" if exception is None else "known exception"
    return Comparison(
        table, attacker, against, figure["column"], figure["value"], recomputed, n, status,
        "" if exception is None else exception["reason"],
    )  # fmt: skip


def _prompts(questions: list[QueryPool]) -> dict[str, PromptCount]:
    pools = {pool.query_id: pool for pool in questions}
    return {
        name: count_prompts(replay(questions, ReleasedLoop(attackers=attackers)), pools, 5)
        for name, attackers in (("4 attackers", 4), ("2 to 6 attackers", None))
    }


@lru_cache(maxsize=1)
def _published() -> dict[str, Any]:
    text = resources.files("ragassay.arena").joinpath("published.json").read_text("utf-8")
    published: dict[str, Any] = json.loads(text)
    return published
