"""ReliabilityRAG: keep the largest set of passages whose answers do not contradict each other.

Each passage is answered alone; answers are compared pair by pair; of the graph of contradictions
the maximum independent set is kept, ties going to better ranks. It fails by design where the
poison is the consistent majority.

Source: ReliabilityRAG (2025), contradiction graph and maximum independent set, and its variant
that samples contexts; released code at revision 81adf36 (``MISBasedRRAG``) and, for sampling,
e6dfc09.

Deviations: answers come from the victim's own prompt over one passage. The published judge is
DeBERTa-v3-large (MNLI, FEVER, ANLI, LING, WANLI); any cross-encoder with a class for
contradiction can be named, and ``nli = "llm"`` asks the victim's model under our own wording,
which gives 0 or 1; a reply without a relation is no edge. Equal answers are not compared, a
blank one says nothing. The released switch that flips edges at random is left out. Contexts are
sampled without replacement (released: with), their size and weights have no published default
that we know of. A passage's suspicion, the share of the other answers that contradict its own,
is ours; an answer that says nothing, a lone answer and sampled contexts have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragassay.defenses.contradiction import LLM, NLI_SLOTS, Contradictions, contradictions
from ragassay.defenses.independent_set import max_independent_set
from ragassay.defenses.prompt_control import check_max_tokens, check_slots
from ragassay.errors import ConfigError
from ragassay.plugins import Tools
from ragassay.types import Hit, Json, Query, Verdict

MOST_ANSWERS = 40  # for which the largest consistent set is found exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityRAG:
    """Keep the largest set of passages whose single answers agree (ReliabilityRAG).

    With k passages, k calls for the answers, and with ``nli = "llm"`` up to k(k-1)/2 short ones
    (twice that where ``symmetric``).

    Parameters
    ----------
    nli : str
        ``"llm"``, or the name or folder of an NLI cross-encoder.
    threshold : float
        Probability of contradiction from which two answers are joined by an edge, in (0, 1].
    symmetric : bool
        Compare in both directions and take the larger probability; published: the better rank is
        the premise.
    max_tokens : int, optional
        Longest single answer in tokens; by default the experiment's setting.
    exact_limit : int
        Most passages that are answered one by one, up to 40; larger contexts are sampled.
    rounds : int
        Number of sampled contexts, up to 40.
    sample_size : int
        Passages of a sampled context.
    gamma : float
        A passage of rank r is drawn with weight gamma^(r-1), in (0, 1].
    prompt : str
        Template of the comparison, with the slots ``premise`` and ``hypothesis``.
    """

    version: ClassVar[str] = "1"
    nli: str = LLM
    threshold: float = 0.5
    symmetric: bool = False
    max_tokens: int | None = None
    exact_limit: int = 20
    rounds: int = 10
    sample_size: int = 3
    gamma: float = 0.9
    prompt: str = "nli_contradiction"

    def __post_init__(self) -> None:
        check_max_tokens(self.max_tokens)
        check_slots(self.prompt, NLI_SLOTS)
        if not self.nli:
            raise ConfigError("nli is empty: give 'llm' or the name of a cross-encoder")
        if not 0 < self.threshold <= 1 or not 0 < self.gamma <= 1:
            raise ConfigError(
                "need 0 < threshold <= 1 and 0 < gamma <= 1, "
                f"got threshold={self.threshold}, gamma={self.gamma}"
            )
        if not 1 <= self.exact_limit <= MOST_ANSWERS or not 1 <= self.rounds <= MOST_ANSWERS:
            raise ConfigError(
                f"need exact_limit and rounds from 1 to {MOST_ANSWERS}, got "
                f"exact_limit={self.exact_limit}, rounds={self.rounds}"
            )
        if self.sample_size < 1:
            raise ConfigError(f"need sample_size >= 1, got {self.sample_size}")

    def model_calls(self, k: int) -> int:
        """Calls for k passages: an answer each, comparisons by the victim's model, the last."""
        n = k if k <= self.exact_limit else self.rounds
        pairs = n * (n - 1) // 2 * (2 if self.symmetric else 1)
        return n + (pairs if self.nli == LLM else 0) + 1

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Keep passages whose answers agree; the victim answers from them.

        Where no answer says anything, all passages are kept.
        """
        sampled = len(hits) > self.exact_limit
        groups = self._sample(len(hits), tools) if sampled else [(i,) for i in range(len(hits))]
        asked = [tools.answer_prompt(query, [hits[i] for i in group]) for group in groups]
        answers = tools.ask(asked, max_tokens=self.max_tokens) if asked else []
        graph = contradictions(
            query.text,
            answers,
            tools,
            nli=self.nli,
            threshold=self.threshold,
            symmetric=self.symmetric,
            prompt=self.prompt,
        )
        chosen = consistent(graph)
        kept = {i for place in chosen for i in groups[place]} or set(range(len(hits)))
        trace: dict[str, Json] = {
            "answers": answers,
            "groups": [[hits[i].rank for i in group] for group in groups],
            "vertices": graph.vertices,
            "edges": graph.edges,
            "probabilities": graph.probabilities,
            "unread": sum(p is None for _, _, p in graph.probabilities),
            "chosen": chosen,
            "fallback": bool(hits) and not chosen,
        }
        degrees = [] if sampled else [graph.degree_share(i) for i in range(len(hits))]
        return Verdict(
            kept=tuple(hit for i, hit in enumerate(hits) if i in kept),
            suspicion={
                hit.passage.id: degree
                for hit, degree in zip(hits, degrees, strict=False)
                if degree is not None
            },
            trace=trace,
        )

    def _sample(self, k: int, tools: Tools) -> list[tuple[int, ...]]:
        """Draw contexts, as ascending positions; in lexicographic order, for the ties."""
        weights = np.maximum(self.gamma ** np.arange(k), np.finfo(np.float64).tiny)
        size = min(self.sample_size, k)
        drawn = [
            tools.rng.choice(k, size=size, replace=False, p=weights / weights.sum())
            for _ in range(self.rounds)
        ]
        return sorted(tuple(sorted(each.tolist())) for each in drawn)


def consistent(graph: Contradictions) -> list[int]:
    """Return the positions of the largest set of answers without a contradiction."""
    place = {vertex: i for i, vertex in enumerate(graph.vertices)}
    edges = [(place[i], place[j]) for i, j in graph.edges]
    return [graph.vertices[i] for i in max_independent_set(len(place), edges)]
