"""The undefended system, so that the baseline needs no special case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ragassay.plugins import Tools
from ragassay.types import Hit, Query, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class NoDefense:
    """Let every passage through; the victim answers as it would without a defense."""

    version: ClassVar[str] = "1"

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Keep all hits."""
        return Verdict(kept=tuple(hits))
