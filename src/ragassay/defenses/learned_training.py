"""Training of the learned scorer: split by question, fit, calibrate, evaluate.

Source: "Ranking is not judgment": 40/20/40 split, five seeds, drop-one-feature ablation. Platt
(1999), probabilistic outputs for support vector machines, for the smoothed targets.

Deviations: see :mod:`ragassay.defenses.learned_scorer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.canon import rng_for
from ragassay.defenses.learned_features import FeatureTable
from ragassay.defenses.learned_model import CalibrationKind, TrainedScorer
from ragassay.errors import BackendUnavailable, ConfigError, NotEstimable

SEEDS = (11, 22, 33, 44, 55)
FIT_SHARE, CALIBRATION_SHARE = 0.4, 0.2
_UNPENALIZED = 1e10  # C of a regression that is as good as without a penalty


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """A scorer of one seed, and what it says of the candidates that it has not seen.

    Parameters
    ----------
    seed : int
        Of the split.
    scorer : TrainedScorer
        The scorer.
    evaluated : ndarray of int, shape (e,)
        Rows of the table in the evaluation part, ascending.
    probabilities : ndarray of float64, shape (e,)
        P(poison) of these rows.
    """

    seed: int
    scorer: TrainedScorer
    evaluated: NDArray[np.int64]
    probabilities: NDArray[np.float64]


def split_questions(questions: Sequence[str], seed: int) -> tuple[set[str], set[str], set[str]]:
    """Split distinct questions 40/20/40 into fit, calibration and evaluation, by the seed.

    Raises
    ------
    NotEstimable
        There are fewer than 5 questions.
    """
    distinct = sorted(set(questions))
    n = len(distinct)
    if n < 5:
        raise NotEstimable(f"a learned scorer needs at least 5 different questions, got {n}")
    order = rng_for(seed, "learned scorer", distinct).permutation(n)
    shuffled = [distinct[i] for i in order]
    first = round(FIT_SHARE * n)
    second = first + max(1, round(CALIBRATION_SHARE * n))
    return set(shuffled[:first]), set(shuffled[first:second]), set(shuffled[second:])


def train(
    table: FeatureTable,
    *,
    seed: int,
    calibration: CalibrationKind = "platt",
    drop: Sequence[str] = (),
) -> Trained:
    """Fit on 40 % of the questions, calibrate on 20 %, score the rest.

    Parameters
    ----------
    table : FeatureTable
        Measured candidates.
    seed : int
        Of the split.
    calibration : {"platt", "isotonic"}
        How sums become probabilities.
    drop : sequence of str
        Features of the table to leave out.

    Raises
    ------
    ConfigError
        A feature to drop is not in the table, or none is left.
    NotEstimable
        The fit or the calibration part has no poison or no clean candidate.
    BackendUnavailable
        scikit-learn is not installed.
    """
    unknown = [name for name in drop if name not in table.names]
    columns = [i for i, name in enumerate(table.names) if name not in drop]
    if unknown or not columns:
        raise ConfigError(f"cannot drop {list(drop)} of the features {list(table.names)}")
    values = table.values[:, columns]
    parts = split_questions(table.questions, seed)
    rows = [
        np.array([i for i, q in enumerate(table.questions) if q in part], dtype=np.int64)
        for part in parts
    ]
    fit, held, evaluated = rows
    for name, part in (("fit", fit), ("calibration", held)):
        poison = int(table.poison[part].sum())
        if not 0 < poison < len(part):
            raise NotEstimable(
                f"the {name} part of seed {seed} has {poison} poisoned of {len(part)} candidates; "
                "both kinds are needed"
            )
    scorer = replace(
        _regression([table.names[i] for i in columns], values[fit], table.poison[fit]),
        skipped=table.skipped,
        nli=table.nli,
        provenance={
            "seed": seed,
            "dropped": list(drop),
            "questions": [len(part) for part in parts],
            "candidates": [len(part) for part in rows],
            "poisoned": [int(table.poison[part].sum()) for part in rows],
        },
    )
    calibrate = _platt if calibration == "platt" else _isotonic
    x, y = calibrate(scorer.decision(values[held]), table.poison[held])
    scorer = replace(scorer, calibration=calibration, x=x, y=y)
    return Trained(
        seed=seed,
        scorer=scorer,
        evaluated=evaluated,
        probabilities=scorer.probabilities(values[evaluated]),
    )


def drop_one(
    table: FeatureTable,
    *,
    seeds: Sequence[int] = SEEDS,
    calibration: CalibrationKind = "platt",
) -> dict[str, tuple[Trained, ...]]:
    """Train with all features (``""``) and without each one, on the same splits.

    Raises
    ------
    ConfigError
        The table has fewer than two features.
    """
    if len(table.names) < 2:
        raise ConfigError(f"nothing is left to train on without {list(table.names)}")
    return {
        name: tuple(
            train(table, seed=s, calibration=calibration, drop=(name,) if name else ())
            for s in seeds
        )
        for name in ("", *table.names)
    }


def _regression(
    names: Sequence[str], values: NDArray[np.float64], poison: NDArray[np.bool_]
) -> TrainedScorer:
    known = ~np.isnan(values)
    counts = np.maximum(known.sum(axis=0), 1)
    filled = np.where(known, values, 0.0)
    means = filled.sum(axis=0) / counts
    spread = np.sqrt((np.where(known, values - means, 0.0) ** 2).sum(axis=0) / counts)
    scales = np.where(spread > 1e-12, spread, 1.0)
    scaled = np.where(known, (values - means) / scales, 0.0)
    model = _logistic(c=1.0).fit(scaled, poison)
    return TrainedScorer(
        features=tuple(names),
        means=tuple(means.tolist()),
        scales=tuple(scales.tolist()),
        coefficients=tuple(model.coef_[0].tolist()),
        intercept=float(model.intercept_[0]),
        calibration="platt",
        x=(1.0,),
        y=(0.0,),
    )


def _platt(
    sums: NDArray[np.float64], poison: NDArray[np.bool_]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Fit slope and offset to smoothed targets: each candidate counts for both labels."""
    n, bad = len(poison), int(poison.sum())
    target = np.where(poison, (bad + 1) / (bad + 2), 1 / (n - bad + 2))
    # Standardized first, so that the solver stops at the same accuracy whatever the scale.
    center, scale = float(sums.mean()), float(sums.std()) or 1.0
    column = ((sums - center) / scale)[:, None]
    model = _logistic(c=_UNPENALIZED).fit(
        np.concatenate([column, column]),
        np.repeat([True, False], n),
        sample_weight=np.concatenate([target, 1 - target]),
    )
    slope = float(model.coef_[0, 0]) / scale
    return (slope,), (float(model.intercept_[0]) - slope * center,)


def _isotonic(
    sums: NDArray[np.float64], poison: NDArray[np.bool_]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    try:
        from sklearn.isotonic import IsotonicRegression
    except ImportError as error:
        raise _unavailable() from error
    model = IsotonicRegression(y_min=0.0, y_max=1.0).fit(sums, poison.astype(np.float64))
    return tuple(model.X_thresholds_.tolist()), tuple(model.y_thresholds_.tolist())


def _logistic(*, c: float) -> Any:
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise _unavailable() from error
    return LogisticRegression(C=c, tol=1e-8, max_iter=10_000)


def _unavailable() -> BackendUnavailable:
    return BackendUnavailable(
        "training a learned scorer needs scikit-learn: pip install 'ragassay[local]'"
    )
