"""Exact match and token F1 of answers, by the conventions of SQuAD and HotpotQA.

Source: Rajpurkar et al. (2016), EMNLP, and (2018), ACL (normalization, exact match, token F1,
answers without tokens); Yang et al. (2018), EMNLP (HotpotQA: yes, no and noanswer must agree);
"Prevented is not protected", appendix J (a leading "answer is" or "answer:" is removed whatever
the reference says; figures stand beside the median length).

Deviations: none known. Both figures are near 0 for pipelines that answer at length, whatever
they say: they are not to be read without the median length and a judge of correctness.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ragassay.stats.intervals import Interval, cluster_bootstrap
from ragassay.stats.proportions import Proportion, proportion, share_true

Convention = Literal["squad", "hotpotqa"]

_LEAD = re.compile(r"\s*(?:the\s+)?answer(?:\s+is\b\s*:?|\s*:)\s*", re.IGNORECASE)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = frozenset({"yes", "no", "noanswer"})


def normalize_answer(text: str) -> str:
    """Lower-case, delete ASCII punctuation, drop a, an and the, squeeze white space.

    Examples
    --------
    >>> normalize_answer("  The U.S. Army's  band ")
    'us armys band'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def strip_lead(text: str) -> str:
    """Remove one leading "(the) answer is", "(the) answer is:" or "(the) answer:".

    Examples
    --------
    >>> strip_lead("The answer is: Ottawa."), strip_lead("Answering machines")
    ('Ottawa.', 'Answering machines')
    """
    found = _LEAD.match(text)
    return text[found.end() :] if found else text


def exact_match(answer: str, references: Sequence[str]) -> bool | None:
    """Tell whether the normalized answer equals some normalized reference.

    Parameters
    ----------
    answer : str
        The whole answer; :func:`strip_lead` is applied.
    references : sequence of str
        Accepted answers.

    Returns
    -------
    bool or None
        None where there is no reference.

    Examples
    --------
    >>> exact_match("Answer: the Nile", ["Nile River", "Nile"])
    True
    """
    if not references:
        return None
    said = normalize_answer(strip_lead(answer))
    return any(said == normalize_answer(reference) for reference in references)


def token_f1(
    answer: str, references: Sequence[str], *, convention: Convention = "squad"
) -> float | None:
    """Harmonic mean of token precision and recall, the largest over the references.

    Parameters
    ----------
    answer : str
        The whole answer; :func:`strip_lead` is applied.
    references : sequence of str
        Accepted answers.
    convention : {"squad", "hotpotqa"}
        "squad": where one side has no tokens the value is 1 if the other has none either, else
        0. "hotpotqa": 0 there; and 0 where one side is yes, no or noanswer and the other is not
        the same.

    Returns
    -------
    float or None
        In [0, 1]; None where there is no reference.

    Raises
    ------
    ValueError
        The convention is unknown.

    Examples
    --------
    >>> round(token_f1("the river Nile in Egypt", ["Nile River", "Nile"]), 4)
    0.6667
    >>> token_f1("yes, it is", ["yes"], convention="hotpotqa")
    0.0
    """
    if convention not in ("squad", "hotpotqa"):
        raise ValueError(f"unknown convention {convention!r}; known: squad, hotpotqa")
    if not references:
        return None
    said = normalize_answer(strip_lead(answer))
    return max(_f1(said, normalize_answer(wanted), convention) for wanted in references)


@dataclass(frozen=True, slots=True)
class UtilityScores:
    """Scores of n answers; NaN where an answer was not scored.

    ``exact`` (0 or 1), ``f1`` and ``words`` (white-space words of the whole answer) have shape
    (n,).
    """

    exact: NDArray[np.float64]
    f1: NDArray[np.float64]
    words: NDArray[np.float64]


def utility_scores(
    answers: Sequence[str | None],
    references: Sequence[Sequence[str]],
    *,
    convention: Convention = "squad",
) -> UtilityScores:
    """Score many answers.

    Parameters
    ----------
    answers : sequence of str or None, length n
        None where the trial failed. An abstention is an answer, and a wrong one.
    references : sequence of sequence of str, length n
        Accepted answers to each query; none: exact match and F1 are not scored.
    convention : {"squad", "hotpotqa"}
        As for :func:`token_f1`.

    Raises
    ------
    ValueError
        The lengths differ, or the convention is unknown.
    """
    if len(answers) != len(references):
        raise ValueError(f"need references for {len(answers)} answers, got {len(references)}")
    table = np.full((3, len(answers)), np.nan)
    for i, (answer, wanted) in enumerate(zip(answers, references, strict=True)):
        if answer is None:
            continue
        table[2, i] = len(answer.split())
        exact, f1 = exact_match(answer, wanted), token_f1(answer, wanted, convention=convention)
        if exact is not None and f1 is not None:
            table[:2, i] = exact, f1
    return UtilityScores(*table)


@dataclass(frozen=True, slots=True)
class UtilitySummary:
    """Clean utility of one condition.

    ``exact`` has a Wilson interval, ``f1`` (a mean over ``n``) one from the cluster bootstrap;
    ``median_words`` is over all answers, ``abstained`` over those with a known label;
    ``unscored`` queries have no answer or no reference.
    """

    n: int
    unscored: int
    exact: Proportion
    f1: float | None
    f1_interval: Interval | None
    median_words: float | None
    abstained: Proportion


def summarize_utility(
    scores: UtilityScores,
    abstained: Sequence[bool | None],
    groups: Sequence[Any],
    *,
    rng: np.random.Generator,
    draws: int = 10_000,
    confidence: float = 0.95,
) -> UtilitySummary:
    """Summarize the clean utility of one condition.

    Parameters
    ----------
    scores : UtilityScores
        Of n answers.
    abstained : sequence of bool or None, length n
        Whether each answer declines.
    groups : sequence, length n
        Cluster of each query, for the interval of the mean F1.
    rng : numpy.random.Generator
        The only source of randomness.
    draws : int
        Number of resamples.
    confidence : float
        Two-sided level in (0, 1).

    Raises
    ------
    ValueError
        The lengths differ, or ``draws`` or ``confidence`` is out of range.
    """
    if not len(scores.f1) == len(abstained) == len(groups):
        raise ValueError(
            f"need one label and one group an answer, got {len(scores.f1)} answers, "
            f"{len(abstained)} labels and {len(groups)} groups"
        )
    known = ~np.isnan(scores.f1)
    n = int(known.sum())
    words = scores.words[~np.isnan(scores.words)]
    interval = None
    if n:
        kept = [group for group, scored in zip(groups, known, strict=True) if scored]
        [interval] = cluster_bootstrap(
            scores.f1[known], kept, draws=draws, confidence=confidence, rng=rng
        )
    return UtilitySummary(
        n=n,
        unscored=len(known) - n,
        exact=proportion(int(scores.exact[known].sum()), n, confidence=confidence),
        f1=float(scores.f1[known].mean()) if n else None,
        f1_interval=interval,
        median_words=float(np.median(words)) if len(words) else None,
        abstained=share_true(abstained, confidence=confidence),
    )


def _f1(said: str, wanted: str, convention: Convention) -> float:
    if convention == "hotpotqa" and said != wanted and (said in _CLOSED or wanted in _CLOSED):
        return 0.0
    left, right = said.split(), wanted.split()
    if convention == "squad" and not (left and right):
        return float(left == right)
    shared = sum((Counter(left) & Counter(right)).values())
    return 2 * shared / (len(left) + len(right)) if shared else 0.0
