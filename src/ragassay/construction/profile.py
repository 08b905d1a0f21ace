"""The construction profile: what the way in which poison was written gives away.

Source: "Ranking is not judgment" (S1), section V-A: verbatim containment of the question, and
overlap of the lengths with the central 90% of clean passages, [l5, l95]. No defense is run, no
score and no label is read.

Deviations: containment turns punctuation into spaces and compares characters (see
:func:`ragassay.matching.holds_verbatim`). S1 says that a cell saturates without a cut; ours is a
cue that the interval puts beyond 0.9 (containment) or below 0.1 (overlap). S1 found that the
profile predicts the wrong direction in 40 of 90 points: it belongs beside results, it is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragassay.canon import rng_for
from ragassay.construction.texts import PoisonText
from ragassay.errors import NotEstimable
from ragassay.matching import profile_text
from ragassay.stats.clustered_share import ClusteredShare, clustered_share
from ragassay.stats.dose import Resampling

Where = Literal["below", "inside", "above"]
Verdict = Literal["saturated", "partial", "absent", "not estimable"]
SATURATED = 0.9
CLEAN_SHARE = 0.9  # of clean lengths that lie in [l5, l95] by construction
SAMPLE = 2_000
"""The least size of a random sample of clean passages, where not all are counted."""
DRAWS = 2_000


@dataclass(frozen=True, slots=True, eq=False)
class CleanLengths:
    """Word counts of clean passages: 5% and 95% quantiles, and the sorted counts themselves."""

    l5: float
    l95: float
    counts: NDArray[np.int64]

    @property
    def n(self) -> int:
        """Number of passages."""
        return len(self.counts)

    @property
    def width(self) -> float | None:
        """l95 / l5; None where l5 is 0."""
        return self.l95 / self.l5 if self.l5 else None

    @property
    def inside(self) -> NDArray[np.int64]:
        """The counts within [l5, l95], sorted; from them padded lengths are drawn."""
        return self.counts[(self.counts >= self.l5) & (self.counts <= self.l95)]

    def where(self, words: int) -> Where:
        """Tell whether a length lies in [l5, l95], both ends included."""
        return "below" if words < self.l5 else "above" if words > self.l95 else "inside"


def count_words(text: str) -> int:
    """Number of words, split at white space."""
    return len(text.split())


def clean_lengths(lengths: ArrayLike, *, sample: int = 0, seed: int = 0) -> CleanLengths:
    """Find the central 90% of clean lengths, by linear quantiles.

    Parameters
    ----------
    lengths : array_like of int, shape (n,)
        Word counts of clean passages.
    sample : int
        Count a random sample of this size only, at least 2,000; 0 counts all.
    seed : int
        Seed of the sample.

    Raises
    ------
    NotEstimable
        There is no clean passage with a word.
    ValueError
        A length is negative, or the sample is too small.

    Examples
    --------
    >>> found = clean_lengths(range(1, 101))
    >>> round(found.l5, 2), round(found.l95, 2)
    (5.95, 95.05)
    """
    counts = np.asarray(lengths, dtype=np.int64)
    if sample and sample < SAMPLE:
        raise ValueError(f"need a sample of at least {SAMPLE} clean passages, or 0, got {sample}")
    if counts.ndim != 1 or (counts < 0).any():
        raise ValueError("need lengths >= 0 in one dimension")
    if not counts.any():
        raise NotEstimable(f"none of {len(counts)} clean passages has a word")
    if sample and sample < len(counts):
        picks = rng_for(seed, "clean lengths", sample).choice(len(counts), sample, replace=False)
        counts = counts[picks]
    low, high = np.quantile(counts, [0.05, 0.95])
    return CleanLengths(float(low), float(high), np.sort(counts))


def lengths_of(texts: Iterable[str], *, sample: int = 0, seed: int = 0) -> CleanLengths:
    """Find the central 90% of the lengths of clean texts; see :func:`clean_lengths`."""
    return clean_lengths([count_words(text) for text in texts], sample=sample, seed=seed)


def length_overlap(lengths: Sequence[int], clean: CleanLengths) -> float | None:
    """Share of poison lengths in [l5, l95]; None without a passage.

    Examples
    --------
    >>> length_overlap([3, 6, 50, 95, 96, 200], clean_lengths(range(1, 101)))
    0.5
    """
    inside = [clean.where(words) == "inside" for words in lengths]
    return sum(inside) / len(inside) if inside else None


@dataclass(frozen=True, slots=True)
class DocumentProfile:
    """One passage: its words, and where they lie among clean lengths.

    ``contains`` says whether it holds its question verbatim; None where no question is known.
    """

    query_id: str
    number: int
    contains: bool | None
    words: int
    length: Where


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of a set of poison.

    Attributes
    ----------
    name : str
        Of the attack.
    passages, queries : int
        How many there are.
    containment : ClusteredShare
        Passages that hold their question verbatim, of those whose question is known.
    no_question : int
        Passages without a known question; they are in no denominator of containment.
    overlap : ClusteredShare
        Passages with a length in [l5, l95], of all.
    below, above : int
        Passages that are shorter or longer.
    clean : CleanLengths
        The clean lengths.
    verdicts : dict of str to str
        For the cues ``containment`` and ``length``: saturated (a filter that reads this cue
        alone would catch nearly all), absent, partial, or not estimable.
    documents : tuple of DocumentProfile
        Every passage, in order.
    """

    name: str
    passages: int
    queries: int
    containment: ClusteredShare
    no_question: int
    overlap: ClusteredShare
    below: int
    above: int
    clean: CleanLengths
    verdicts: dict[str, Verdict]
    documents: tuple[DocumentProfile, ...]

    @property
    def saturated(self) -> tuple[str, ...]:
        """The cues that saturate."""
        return tuple(cue for cue, verdict in self.verdicts.items() if verdict == "saturated")


def profile_documents(
    texts: Sequence[PoisonText], clean: CleanLengths
) -> tuple[DocumentProfile, ...]:
    """Profile every passage; linear in the texts."""
    questions: dict[str, str] = {}
    found = []
    for each in texts:
        question = questions.get(each.question)
        if question is None:
            question = questions[each.question] = profile_text(each.question)
        words = count_words(each.text)
        found.append(
            DocumentProfile(
                each.query_id,
                each.number,
                question in profile_text(each.text) if question else None,
                words,
                clean.where(words),
            )
        )
    return tuple(found)


def profile(
    name: str, texts: Sequence[PoisonText], clean: CleanLengths, *, seed: int = 0,
    confidence: float = 0.95,
) -> Profile:  # fmt: skip
    """Profile a set of poison against clean lengths.

    Parameters
    ----------
    name : str
        Of the attack; also part of the seed.
    texts : sequence of PoisonText
        Its passages.
    clean : CleanLengths
        Of the corpus that it is injected into.
    seed : int
        Seed of the bootstrap, which resamples questions.
    confidence : float
        Level of the intervals.

    Raises
    ------
    NotEstimable
        There is no passage.

    References
    ----------
    "Ranking is not judgment", section V-A.
    """
    if not texts:
        raise NotEstimable(f"the poison set {name!r} has no passage to profile")
    documents = profile_documents(texts, clean)
    groups = [each.group for each in texts]
    known = [(bool(doc.contains), group) for doc, group in zip(documents, groups, strict=True)
             if doc.contains is not None]  # fmt: skip

    def share(cue: str, events: list[bool], clusters: list[str]) -> ClusteredShare:
        rng = rng_for(seed, "profile", name, cue)
        return clustered_share(events, clusters, Resampling(rng, DRAWS, confidence))

    containment = share("containment", [flag for flag, _ in known], [group for _, group in known])
    overlap = share("length", [doc.length == "inside" for doc in documents], groups)
    places = [doc.length for doc in documents]
    return Profile(
        name=name,
        passages=len(texts),
        queries=len({each.query_id for each in texts}),
        containment=containment,
        no_question=len(documents) - len(known),
        overlap=overlap,
        below=places.count("below"),
        above=places.count("above"),
        clean=clean,
        verdicts={
            "containment": _verdict(containment, rises=True),
            "length": _verdict(overlap, rises=False),
        },
        documents=documents,
    )


def plain(found: Profile, *, documents: bool = True) -> dict[str, Any]:
    """Turn a profile into what JSON knows, every share with count, denominator and interval."""
    clean = found.clean
    report: dict[str, Any] = {
        "set": found.name,
        "passages": found.passages,
        "queries": found.queries,
        "clean": {"passages": clean.n, "l5": clean.l5, "l95": clean.l95, "width": clean.width},
        "containment": {**_plain_share(found.containment), "no_question": found.no_question},
        "length_overlap": {
            **_plain_share(found.overlap), "below": found.below, "above": found.above,
        },
        "verdicts": dict(found.verdicts),
        "saturated": list(found.saturated),
    }  # fmt: skip
    if documents:
        report["documents"] = [
            {"query_id": doc.query_id, "number": doc.number, "contains_question": doc.contains,
             "words": doc.words, "length": doc.length}
            for doc in found.documents
        ]  # fmt: skip
    return report


# --------------------------------------------------------------------------------- internals


def _verdict(share: ClusteredShare, *, rises: bool) -> Verdict:
    """Saturated and absent need the whole interval beyond the cut.

    Containment saturates near 1 and is absent near 0. Overlap saturates near 0; it is absent
    near the 0.9 that clean passages have.
    """
    if share.interval is None:
        return "not estimable"
    low, high = share.interval.low, share.interval.high
    rest = 1 - SATURATED
    if (low >= SATURATED) if rises else (high <= rest):
        return "saturated"
    if (high <= rest) if rises else (low >= CLEAN_SHARE - rest):
        return "absent"
    return "partial"


def _plain_share(share: ClusteredShare) -> dict[str, Any]:
    interval = share.interval
    return {
        "count": share.count,
        "n": share.n,
        "value": share.value,
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
        "clusters": share.clusters,
        "method": share.method,
    }
