"""Drop passages whose text occurs more than once in the context.

Source: Zou et al., "PoisonedRAG" (USENIX Security 2025), duplicate text filtering by hash
values; "Ranking is not judgment", duplicate filter of the unified candidate set.

Deviations: copies are looked for among the retrieved passages, not in the whole corpus, where
the published filter works. The first copy stays by default; the paper drops what is duplicated
(``drop_all = true``). ``dup_norm`` compares texts in profile form (lower case, punctuation as
spaces, white space squeezed), which is ours; texts of which nothing is left in that form are
compared as they stand. A passage's score is the number of its copies that stand before it, with
``drop_all`` of all its other copies.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ragassay.defenses.passage_filter import filtered
from ragassay.matching import profile_text
from ragassay.plugins import Tools
from ragassay.types import Hit, Query, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicatesExact:
    """Drop passages with exactly the same text as another one, by SHA-256.

    Parameters
    ----------
    drop_all : bool
        Drop every copy, instead of all but the one with the best rank.
    """

    version: ClassVar[str] = "1"
    drop_all: bool = False

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Keep the first copy of each text, or only texts without a copy."""
        return _without_copies([hit.passage.text for hit in hits], hits, self.drop_all)


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicatesNormalized:
    """Drop passages with the same text as another one, up to case, punctuation and spacing.

    Parameters
    ----------
    drop_all : bool
        Drop every copy, instead of all but the one with the best rank.
    """

    version: ClassVar[str] = "1"
    drop_all: bool = False

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Keep the first copy of each text, or only texts without a copy."""
        texts = [hit.passage.text for hit in hits]
        return _without_copies([profile_text(text) or text for text in texts], hits, self.drop_all)


def copy_counts(texts: Sequence[str], *, all_copies: bool = False) -> list[int]:
    """Count, for each text, its copies that stand before it, or all its other copies.

    Examples
    --------
    >>> copy_counts(["a", "b", "a", "a"])
    [0, 0, 1, 2]
    >>> copy_counts(["a", "b", "a", "a"], all_copies=True)
    [2, 0, 2, 2]
    """
    hashes = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
    total = Counter(hashes)
    seen: Counter[bytes] = Counter()
    counts = []
    for each in hashes:
        counts.append(total[each] - 1 if all_copies else seen[each])
        seen[each] += 1
    return counts


def _without_copies(texts: Sequence[str], hits: Sequence[Hit], drop_all: bool) -> Verdict:
    counts = copy_counts(texts, all_copies=drop_all)
    return filtered(hits, [float(count) for count in counts], [count > 0 for count in counts])
