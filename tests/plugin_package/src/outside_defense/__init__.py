"""A defense that lives outside of ragassay and is found through its entry point.

Source: made for the tests of ragassay.

Deviations: none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragassay.plugins import Tools
from ragassay.types import Hit, Query, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortest:
    """Keep the few shortest passages."""

    keep: int = 2

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Keep the ``keep`` shortest passages, in rank order."""
        shortest = sorted(hits, key=lambda hit: (len(hit.passage.text), hit.rank))[: self.keep]
        return Verdict(kept=tuple(sorted(shortest, key=lambda hit: hit.rank)))
