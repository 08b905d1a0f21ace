"""Exposure strata: target-positive answers where all, some or none of the support is left.

Source: "Prevented is not protected" (Aligned RAG Evaluation), appendix H.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragassay.canon import to_plain
from ragassay.experiments.evidence import Answers, Where
from ragassay.stats.exposure import by_stratum, support_stratum
from ragassay.types import Query, Target


def exposure_rows(
    answers: Answers,
    where: Where,
    scorer: str,
    members: Sequence[tuple[Query, Target]],
    *,
    confidence: float,
) -> list[dict[str, Any]]:
    """Split a poisoned cell by how much annotated support its contexts still hold.

    Parameters
    ----------
    answers : Answers
        All trials and scores.
    where, scorer
        The cell and the label.
    members : sequence of (Query, Target)
        The queries of the setting; those without annotated support are in no stratum.
    confidence : float
        Level of the Wilson intervals.

    Returns
    -------
    list of dict
        One per stratum that the data can fill: ``stratum`` (``None``: nothing annotated),
        ``contexts``, and ``target`` with its denominator. Empty where nothing is annotated.
    """
    if not any(target.gold_ids for _, target in members):
        return []
    strata, labels = [], []
    for query, target in members:
        trial = answers.trials.get(
            (query.id, where.setting, where.attack, where.budget, where.defense, "")
        )
        if trial is None or trial.status != "done":
            continue
        strata.append(support_stratum(target.gold_ids, trial.context_ids))
        labels.append(answers.positive(trial, scorer))
    rows = []
    for row in by_stratum(strata, labels, confidence=confidence):
        interval = to_plain(row.target.interval) or {"low": None, "high": None}
        rows.append(
            {
                "stratum": row.stratum,
                "contexts": row.contexts,
                "target": {
                    "count": row.target.count,
                    "n": row.target.n,
                    "value": row.target.value,
                    **interval,
                },
            }
        )
    return rows
