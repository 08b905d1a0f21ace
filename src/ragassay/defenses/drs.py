"""Drop passages whose embeddings are outliers under the covariance of clean passages.

Poisoned embeddings move along directions in which clean passages hardly vary. The score is the
squared Mahalanobis distance from the clean mean, over all directions or over the ``low_dirs`` of
least variance.

Source: Xian et al. (2025), directional relative shifts (DRS), as the covariance outlier score of
"Ranking is not judgment" (Table V and its note): an early port that fitted 199 passages in 384
dimensions flagged 0.945 of the clean ones, so such a fit is refused or shrunk.

Deviations: the formula is our reading of the idea, as the paper's was not at hand. Clean
passages are those that the experiment retrieves for its calibration questions, not the corpus
nor those near protected questions. The threshold comes from passages of questions that the
covariance has not seen: questions are split by a digest of their text, and a text that both
parts retrieved counts for the fit alone. Distinct texts count once. Passages are embedded by the
experiment's own encoder.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragassay.canon import digest
from ragassay.defenses.abstention import calibrated
from ragassay.defenses.passage_filter import CalibratedPassageFilter, UncalibratedPassageFilter
from ragassay.errors import BackendUnavailable, ConfigError, NotEstimable
from ragassay.plugins import Tools
from ragassay.types import Hit, Json, Query, Verdict

Shrinkage = Literal["ledoit_wolf", "none"]
WANTED_PER_DIMENSION = 5  # fewer clean passages a dimension are warned of
_SINGULAR = 1e-10  # smallest eigenvalue, as a share of the largest

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Covariance:
    """The clean mean and the directions in which distances from it are taken.

    Parameters
    ----------
    mean : ndarray of float64, shape (d,)
        Mean of the clean embeddings.
    axes : ndarray of float64, shape (m, d)
        Eigenvectors of the covariance as rows, by ascending eigenvalue.
    variances : ndarray of float64, shape (m,)
        Their eigenvalues, above 0.
    n : int
        Number of passages fitted.
    shrinkage : float
        Weight of the multiple of the identity, in [0, 1].
    """

    mean: NDArray[np.float64]
    axes: NDArray[np.float64]
    variances: NDArray[np.float64]
    n: int
    shrinkage: float

    @property
    def warning(self) -> str:
        """What to say of a fit on few passages; empty where there are enough."""
        d = len(self.mean)
        if self.n >= WANTED_PER_DIMENSION * d:
            return ""
        return (
            f"the covariance in {d} dimensions is fitted on {self.n} clean passages, fewer than "
            f"{WANTED_PER_DIMENSION} a dimension ({WANTED_PER_DIMENSION * d})"
        )

    def distance(self, vector: ArrayLike) -> float:
        """Return the squared Mahalanobis distance of one vector, shape (d,), from the mean.

        Raises
        ------
        ConfigError
            The vector has another dimension, or is not finite.
        """
        x = np.asarray(vector, dtype=np.float64)
        if x.shape != self.mean.shape or not np.isfinite(x).all():
            raise ConfigError(
                f"need a finite vector of shape {self.mean.shape}, as clean passages have, "
                f"got shape {x.shape}"
            )
        along = self.axes @ (x - self.mean)
        return float((along * along / self.variances).sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibratedDRS(CalibratedPassageFilter):
    """Drop passages far from the clean mean.

    Parameters
    ----------
    covariance : Covariance
        Of the clean passages that the threshold does not come from.
    """

    version: ClassVar[str] = "1"
    covariance: Covariance

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Keep passages that are no outliers."""
        texts = list(dict.fromkeys(hit.passage.text for hit in hits))
        rows = _vectors(texts, tools) if texts else ()
        score = {t: self.covariance.distance(row) for t, row in zip(texts, rows, strict=True)}
        detail: dict[str, Json] = {
            "n_fit": self.covariance.n,
            "dimensions": len(self.covariance.mean),
            "shrinkage": self.covariance.shrinkage,
            "warning": self.covariance.warning,
        }
        return self.judge(hits, [score[hit.passage.text] for hit in hits], detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class DRS(UncalibratedPassageFilter):
    """Drop passages whose embeddings are outliers under the clean covariance (DRS).

    Parameters
    ----------
    fpr : float
        Nominal share of clean passages that are dropped, in (0, 1).
    shrinkage : {"ledoit_wolf", "none"}
        Ledoit-Wolf shrinkage to a multiple of the identity, or the sample covariance, which
        needs more passages than dimensions.
    low_dirs : int, optional
        Look only at this many directions of least clean variance; absent: at all.
    fit_share : float
        Share of the calibration questions whose passages are fitted, in (0, 1); the threshold
        comes from the others.
    """

    shrinkage: Shrinkage = "ledoit_wolf"
    low_dirs: int | None = None
    fit_share: float = 0.8

    def __post_init__(self) -> None:
        # Not super(): a slotted dataclass is built twice.
        UncalibratedPassageFilter.__post_init__(self)
        if not 0 < self.fit_share < 1:
            raise ConfigError(f"need 0 < fit_share < 1, got {self.fit_share}")
        if self.low_dirs is not None and self.low_dirs < 1:
            raise ConfigError(f"need low_dirs >= 1, got {self.low_dirs}")

    def fit(self, clean: Sequence[tuple[Query, tuple[Hit, ...]]], tools: Tools) -> CalibratedDRS:
        """Fit on the passages of some clean contexts, and take the threshold from the others.

        Raises
        ------
        NotEstimable
            The covariance is singular, or no passage is left for the threshold.
        """
        to_fit, to_hold_out = split_contexts(clean, self.fit_share)
        if not to_fit or not to_hold_out:
            raise NotEstimable(
                f"drs needs clean passages to fit and others for the threshold, got "
                f"{len(to_fit)} and {len(to_hold_out)} distinct ones from {len(clean)} contexts"
            )
        vectors = _vectors([*to_fit, *to_hold_out], tools)
        covariance = fit_covariance(
            vectors[: len(to_fit)], shrinkage=self.shrinkage, low_dirs=self.low_dirs
        )
        if covariance.warning:
            _LOG.warning("drs: %s", covariance.warning)
        found = calibrated(
            [covariance.distance(row) for row in vectors[len(to_fit) :]],
            self.fpr,
            detector="drs",
            needs="passages",
        )
        return CalibratedDRS(
            covariance=covariance,
            fpr=self.fpr,
            threshold=found.threshold,
            n_calibration=found.n_calibration,
            thresholds=found.thresholds,
        )


def fit_covariance(
    vectors: ArrayLike, *, shrinkage: Shrinkage = "ledoit_wolf", low_dirs: int | None = None
) -> Covariance:
    """Estimate mean and covariance of clean embeddings.

    Parameters
    ----------
    vectors : array-like of float, shape (n, d)
        Clean embeddings, n >= 2.
    shrinkage : {"ledoit_wolf", "none"}
        With Ledoit-Wolf, (1 - w) S + w tr(S)/d I; else S, the maximum-likelihood covariance.
    low_dirs : int, optional
        Keep only this many directions of least variance.

    Raises
    ------
    NotEstimable
        There are too few passages without shrinkage, or the covariance is singular all the same.
    BackendUnavailable
        scikit-learn is not installed.

    References
    ----------
    Ledoit and Wolf (2004), a well-conditioned estimator for large-dimensional covariance
    matrices.
    """
    x = np.asarray(vectors, dtype=np.float64)
    if x.ndim != 2 or len(x) < 2:
        raise NotEstimable(f"drs needs at least 2 clean passages to fit, got shape {x.shape}")
    n, d = x.shape
    if shrinkage == "none" and n <= d:
        raise NotEstimable(
            f"the covariance of {n} clean passages in {d} dimensions is singular: drs needs more "
            f"than {d} of them, or shrinkage = 'ledoit_wolf'"
        )
    matrix, weight = _shrunk(x) if shrinkage == "ledoit_wolf" else (np.cov(x.T, ddof=0), 0.0)
    return covariance_axes(x.mean(axis=0), matrix, n=n, shrinkage=weight, low_dirs=low_dirs)


def covariance_axes(
    mean: ArrayLike,
    covariance: ArrayLike,
    *,
    n: int,
    shrinkage: float = 0.0,
    low_dirs: int | None = None,
) -> Covariance:
    """Decompose a covariance once, so that each distance takes one product.

    Parameters
    ----------
    mean : array-like of float, shape (d,)
        Mean.
    covariance : array-like of float, shape (d, d)
        Symmetric and positive definite.
    n, shrinkage
        Kept for the record; see :class:`Covariance`.
    low_dirs : int, optional
        Keep only this many directions of least variance.

    Raises
    ------
    NotEstimable
        The matrix is singular.
    ConfigError
        ``low_dirs`` exceeds the dimension.
    """
    center = np.asarray(mean, dtype=np.float64)
    d = len(center)
    if low_dirs is not None and low_dirs > d:
        raise ConfigError(f"low_dirs = {low_dirs} exceeds the {d} dimensions of the embeddings")
    variances, vectors = np.linalg.eigh(np.asarray(covariance, dtype=np.float64).reshape(d, d))
    if not variances[0] > _SINGULAR * max(variances[-1], 0.0):
        raise NotEstimable(
            f"the covariance of {n} clean passages in {d} dimensions is singular: in some "
            "direction they do not vary at all; shrinkage = 'ledoit_wolf' helps if they vary in "
            "others"
        )
    m = d if low_dirs is None else low_dirs
    return Covariance(
        mean=center,
        axes=np.ascontiguousarray(vectors.T[:m]),
        variances=variances[:m],
        n=n,
        shrinkage=float(shrinkage),
    )


def split_contexts(
    clean: Sequence[tuple[Query, tuple[Hit, ...]]], fit_share: float
) -> tuple[list[str], list[str]]:
    """Split clean contexts by question, and return the distinct texts of both parts.

    The order of questions is that of digests of their texts, so that it depends on nothing else.
    Texts of the first part are not in the second.
    """
    questions = sorted({query.text for query, _ in clean}, key=lambda q: digest(["drs", q]))
    first = set(questions[: round(fit_share * len(questions))])
    fitted = {h.passage.text for query, hits in clean if query.text in first for h in hits}
    every = {hit.passage.text for _, hits in clean for hit in hits}
    return sorted(fitted), sorted(every - fitted)


def _shrunk(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    try:
        from sklearn.covariance import LedoitWolf
    except ImportError as error:
        raise BackendUnavailable("drs needs scikit-learn: pip install 'ragassay[local]'") from error
    model = LedoitWolf().fit(x)
    return model.covariance_, float(model.shrinkage_)


def _vectors(texts: Sequence[str], tools: Tools) -> NDArray[np.float64]:
    vectors = np.asarray(tools.encode(texts), dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise ConfigError(
            f"the encoder must return finite vectors of shape ({len(texts)}, d) for "
            f"{len(texts)} texts, got shape {vectors.shape}"
            + ("" if np.isfinite(vectors).all() else " with NaN or infinite values")
        )
    return vectors
