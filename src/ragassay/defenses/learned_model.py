"""A trained scorer as numbers: coefficients and calibration points, in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ragassay import canon
from ragassay.defenses.learned_features import FEATURES
from ragassay.errors import DataError
from ragassay.types import Json

FORMAT = "ragassay.learned_scorer"
FORMAT_VERSION = 1
CalibrationKind = Literal["platt", "isotonic"]
_NUMBERS = ("means", "scales", "coefficients")
_KEYS = {"format", "version", "features", "skipped", "nli", *_NUMBERS, "intercept",
         "calibration", "x", "y", "provenance"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedScorer:
    """Standardize, add up, calibrate.

    Parameters
    ----------
    features : tuple of str, length m
        What is measured, in order.
    means, scales, coefficients : tuple of float, length m
        Each value is taken from its mean and divided by its scale (above 0) first.
    intercept : float
        Added to the sum.
    calibration : {"platt", "isotonic"}
        How a sum becomes a probability.
    x, y : tuple of float
        Platt: ``x`` is (slope,), ``y`` is (offset,), p = 1 / (1 + exp(-(slope f + offset))).
        Isotonic: points between which p is interpolated, and outside of which it is constant.
    skipped : tuple of str
        Features that were asked for when training and could not be had.
    nli : str
        What judges contradictions, where they are a feature.
    provenance : mapping
        Seed and sizes of the training.
    """

    features: tuple[str, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    coefficients: tuple[float, ...]
    intercept: float
    calibration: CalibrationKind
    x: tuple[float, ...]
    y: tuple[float, ...]
    skipped: tuple[str, ...] = ()
    nli: str = "llm"
    provenance: Mapping[str, Json] = field(default_factory=dict)

    def decision(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the uncalibrated sums of rows of shape (n, m); NaN counts as the mean."""
        scaled = (rows - np.array(self.means)) / np.array(self.scales)
        weighted = np.where(np.isnan(scaled), 0.0, scaled) * np.array(self.coefficients)
        total: NDArray[np.float64] = weighted.sum(axis=1) + self.intercept
        return total

    def probabilities(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return P(poison) for rows of shape (n, m), shape (n,)."""
        sums = self.decision(rows)
        if self.calibration == "platt":
            found: NDArray[np.float64] = expit(self.x[0] * sums + self.y[0])
            return found
        return np.interp(sums, self.x, self.y)

    def to_json(self) -> str:
        """Write as canonical JSON; equal scorers give equal bytes."""
        plain = canon.to_plain(self)
        return canon.dumps({"format": FORMAT, "version": FORMAT_VERSION, **plain}) + "\n"


def from_json(content: bytes, *, path: str = "") -> TrainedScorer:
    """Read a trained scorer.

    Raises
    ------
    DataError
        The content is not JSON of this format; the message names the key and the value.
    """
    where = path or None
    try:
        raw: Any = json.loads(content)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise DataError(f"is not JSON: {error}", path=where) from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise DataError(f'has no "format": "{FORMAT}"; train a scorer first', path=where)
    if raw.get("version") != FORMAT_VERSION:
        raise DataError(
            f"version is {raw.get('version')!r}, this ragassay reads {FORMAT_VERSION}", path=where
        )
    wrong = sorted(_KEYS ^ raw.keys())
    if wrong:
        fault = "is missing" if wrong[0] in _KEYS else "is unknown"
        raise DataError(f"the key {wrong[0]!r} {fault}", path=where)
    for name in ("features", "skipped"):
        value = raw[name]
        if not isinstance(value, list) or not all(each in FEATURES for each in value):
            raise DataError(f"{name} must be names of features, got {value!r:.80}", path=where)
    for name in (*_NUMBERS, "x", "y"):
        _check_numbers(name, raw[name], where)
    _check_numbers("intercept", [raw["intercept"]], where)
    _check_shape(raw, where)
    return TrainedScorer(
        features=tuple(raw["features"]),
        means=tuple(map(float, raw["means"])),
        scales=tuple(map(float, raw["scales"])),
        coefficients=tuple(map(float, raw["coefficients"])),
        intercept=float(raw["intercept"]),
        calibration=raw["calibration"],
        x=tuple(map(float, raw["x"])),
        y=tuple(map(float, raw["y"])),
        skipped=tuple(raw["skipped"]),
        nli=raw["nli"],
        provenance=raw["provenance"],
    )


def _check_numbers(name: str, values: Any, where: str | None) -> None:
    if not isinstance(values, list) or not all(
        isinstance(v, (int, float)) and not isinstance(v, bool) and abs(v) < 1e300 for v in values
    ):
        raise DataError(f"{name} must be finite numbers, got {values!r:.80}", path=where)


def _check_shape(raw: Mapping[str, Any], where: str | None) -> None:
    m = len(raw["features"])
    for name in _NUMBERS:
        if not m or len(raw[name]) != m:
            raise DataError(f"{name} has {len(raw[name])} values for {m} features", path=where)
    if min(raw["scales"]) <= 0:
        raise DataError(f"scales must be above 0, got {min(raw['scales'])}", path=where)
    if raw["calibration"] not in ("platt", "isotonic"):
        raise DataError(
            f"calibration must be 'platt' or 'isotonic', got {raw['calibration']!r:.40}", path=where
        )
    if not isinstance(raw["nli"], str) or not isinstance(raw["provenance"], dict):
        raise DataError("nli must be a text and provenance an object", path=where)
    x, y = raw["x"], raw["y"]
    if len(x) != len(y) or not x or (raw["calibration"] == "platt" and len(x) != 1):
        raise DataError(f"{len(x)} and {len(y)} calibration points do not fit", path=where)
    if raw["calibration"] == "isotonic":
        ordered = x == sorted(x) and y == sorted(y)
        if not ordered or not 0 <= y[0] <= y[-1] <= 1:
            raise DataError("isotonic points must rise, with y in [0, 1]", path=where)
