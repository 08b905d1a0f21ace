"""Calibrated detectors of the context: what they flag, intercept, and let through.

Source: "Prevented is not protected" (Aligned RAG Evaluation), section 3.1 and appendices D and
H: thresholds from clean contexts at nominal false-positive rates, shared across poison budgets,
refitted per data set and encoding arm; flagged contexts are hard-abstained.

A detector is a defense whose verdicts carry a suspicion of the whole context and the thresholds
of its calibration. Where detectors are calibrated crosswise, each context is compared with the
threshold of its own fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ragassay.canon import to_plain
from ragassay.experiments.evidence import Answers, both, negation
from ragassay.stats.operating import (
    AttackedContexts,
    operating_report,
    scores_by_budget,
)
from ragassay.stats.roc import auroc_interval
from ragassay.store.columns import Trial
from ragassay.types import Query

UNDEFENDED = "none"


def detector_table(
    answers: Answers,
    place: tuple[str, str, str],
    cells: Sequence[tuple[str, int]],
    queries: Sequence[Query],
    held_out: Sequence[Query],
    *,
    confidence: float,
) -> list[dict[str, Any]]:
    """Evaluate one detector of one setting under one scorer, a row per attack and budget.

    Parameters
    ----------
    answers : Answers
        All trials and scores.
    place : tuple of str
        Setting, defense and scorer.
    cells : sequence of (attack, budget)
        The attacked cells.
    queries : sequence of Query
        The attacked queries of the setting.
    held_out : sequence of Query
        Clean test questions for the realized false-positive rate; where there are none, the
        clean contexts of the attacked queries serve, which no detector was calibrated on for
        its own fold.
    confidence : float
        Level of the intervals.

    Returns
    -------
    list of dict
        Empty where the defense is no detector.
    """
    setting, defense, scorer = place
    clean_test = list(held_out) or list(queries)
    clean = [answers.trials.get((q.id, setting, "", 0, defense, "")) for q in clean_test]
    rates = sorted({rate for trial in clean for rate in _thresholds(trial)}, key=float)
    if not rates:
        return []
    rows = []
    for attack, budget in cells:
        trials = [answers.trials.get((q.id, setting, attack, budget, defense, "")) for q in queries]
        before = [
            answers.positive(answers.trials.get((q.id, setting, "", 0, UNDEFENDED, "")), scorer)
            for q in queries
        ]
        target = [
            answers.positive(
                answers.trials.get((q.id, setting, attack, budget, UNDEFENDED, "")), scorer
            )
            for q in queries
        ]
        new = [both(t, negation(b)) for t, b in zip(target, before, strict=True)]
        attacked, at_rest = [_score(t) for t in trials], [_score(t) for t in clean]
        rows.append(
            {
                "scorer": scorer,
                "setting": setting,
                "attack": attack,
                "budget": budget,
                "defense": defense,
                "clean_contexts": "held out" if held_out else "attacked queries, cross-fitted",
                "auroc": to_plain(auroc_interval(attacked, at_rest, confidence=confidence)),
                "scores": to_plain(scores_by_budget(
                    [*at_rest, *attacked], [0] * len(at_rest) + [budget] * len(attacked)
                )),
                "rates": [
                    {
                        "fpr": float(rate),
                        **_report(
                            rate, (trials, clean), (target, new), confidence=confidence
                        ),
                    }
                    for rate in rates
                ],
            }
        )  # fmt: skip
    return rows


def _report(
    rate: str,
    trials: tuple[Iterable[Trial | None], Iterable[Trial | None]],
    labels: tuple[Sequence[bool | None], Sequence[bool | None]],
    *,
    confidence: float,
) -> dict[str, Any]:
    # Against the threshold of its own fold, so that 0 is the threshold of all.
    attacked, clean = ([_margin(t, rate) for t in some] for some in trials)
    report = operating_report(
        0.0, AttackedContexts(attacked, *labels), clean, confidence=confidence
    )
    plain: dict[str, Any] = to_plain(report)
    del plain["threshold"]
    for name in ("flagged", "intercepted", "intercepted_new", "target_before", "target_after",
                 "clean_fpr"):  # fmt: skip
        interval = plain[name].pop("interval") or {"low": None, "high": None}
        plain[name] = {**plain[name], "value": getattr(report, name).value, **interval}
    return plain


def _thresholds(trial: Trial | None) -> Mapping[str, float]:
    return {} if trial is None else trial.thresholds


def _score(trial: Trial | None) -> float | None:
    return None if trial is None else trial.detected


def _margin(trial: Trial | None, rate: str) -> float | None:
    score, threshold = _score(trial), _thresholds(trial).get(rate)
    return None if score is None or threshold is None else score - threshold
