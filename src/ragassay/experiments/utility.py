"""Clean utility: what a defense does to questions that nobody attacks.

Source: "Prevented is not protected" (Aligned RAG Evaluation), section 4.3 and appendix C: clean
correctness under every scorer with its uncertain counts, and exact match beside the length of
the answers, since long answers make it meaningless; SQuAD and HotpotQA conventions as in
:mod:`ragassay.stats.utility`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.canon import rng_for, to_plain
from ragassay.experiments.evidence import Answers
from ragassay.stats.proportions import Proportion, proportion
from ragassay.stats.utility import summarize_utility, utility_scores
from ragassay.store.columns import NOT_SCORED, POSITIVE, UNCERTAIN, Trial
from ragassay.types import Query, Target


def utility_row(
    answers: Answers,
    place: tuple[str, str],
    members: Sequence[tuple[Query, Target]],
    scorers: Sequence[str],
    statistics: Mapping[str, Any],
) -> dict[str, Any]:
    """Summarize the clean answers of one defense in one setting.

    Parameters
    ----------
    answers : Answers
        All trials and scores.
    place : tuple of str
        Setting and defense.
    members : sequence of (Query, Target)
        The held-out questions.
    scorers : sequence of str
        Each gives its own correctness and abstention.
    statistics : mapping
        ``draws``, ``confidence`` and ``seed``.
    """
    setting, defense = place
    confidence = statistics["confidence"]
    trials = [answers.trials.get((q.id, setting, "", 0, defense, "")) for q, _ in members]
    done = [t if t is not None and t.status == "done" else None for t in trials]
    texts = answers.texts(done)
    references = [target.references for _, target in members]
    row: dict[str, Any] = {
        "setting": setting,
        "defense": defense,
        "n": sum(t is not None for t in done),
        "missing": sum(t is None for t in done),
        "by_scorer": {scorer: _labels(answers, done, scorer, confidence) for scorer in scorers},
    }
    for convention in ("squad", "hotpotqa"):
        found = summarize_utility(
            utility_scores(texts, references, convention=convention),
            [None if t is None else t.declined for t in done],
            [query.group for query, _ in members],
            rng=rng_for(statistics["seed"], "utility", list(place), convention),
            draws=statistics["draws"],
            confidence=confidence,
        )
        row[convention] = {
            "n": found.n,
            "exact_match": _share(found.exact),
            "f1": found.f1,
            "f1_interval": to_plain(found.f1_interval),
        }
        row["median_words"] = found.median_words
    return row


def _labels(
    answers: Answers, trials: Sequence[Trial | None], scorer: str, confidence: float
) -> dict[str, Any]:
    done = [trial for trial in trials if trial is not None]
    correct, abstained = (
        [each.label(scorer, label) for each in done] for label in ("correct", "abstained")
    )
    n = sum(code != NOT_SCORED for code in correct)
    return {
        "correct": _share(proportion(correct.count(POSITIVE), n, confidence=confidence)),
        "correct_uncertain": correct.count(UNCERTAIN),
        "abstained": _share(proportion(abstained.count(POSITIVE), n, confidence=confidence)),
        "not_scored": len(done) - n,
    }


def _share(share: Proportion) -> dict[str, Any]:
    interval = to_plain(share.interval) or {"low": None, "high": None}
    return {"count": share.count, "n": share.n, "value": share.value, **interval}
