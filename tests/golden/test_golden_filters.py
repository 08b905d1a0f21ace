"""Golden values of the passage filters, through the functions that the filters use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ragassay.defenses.drs import covariance_axes
from ragassay.defenses.independent_set import max_independent_set
from ragassay.defenses.ragdefender import frequency_scores, pair_budget
from ragassay.defenses.reference_detectors import LengthOnly
from ragassay.matching import holds_verbatim, profile_text
from ragassay.stats.detection import auroc, fnr_at_fpr
from ragassay.testing import ScriptedTools, make_hits, make_query


def mahalanobis_sq(mu: list[float], cov_diag: list[float], x: list[float]) -> float:
    return covariance_axes(mu, np.diag(cov_diag), n=2).distance(x)


def score_by_index(pairs: list[list[float]]) -> dict[str, float]:
    triples = [(int(i), int(j), s) for i, j, s in pairs]
    return {str(i): score for i, score in enumerate(frequency_scores(4, triples))}


def matched(pos: list[float], neg: str, fpr: float) -> dict[str, float]:
    assert neg == "i/20 for i=0..19"
    found = fnr_at_fpr(pos, [i / 20 for i in range(20)], fpr)
    assert found is not None
    return {"threshold": found.threshold, "fnr": found.fnr}


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "mahalanobis_sq": mahalanobis_sq,
    "pair_budget": pair_budget,
    "frequency_score": score_by_index,
    "max_independent_set": max_independent_set,
    "auroc": lambda pos, neg: auroc(pos, neg),
    "fnr_at_fpr": matched,
}


@pytest.mark.parametrize(
    ("category", "count"), [("drs", 1), ("ragdefender", 2), ("reliabilityrag", 3), ("detector", 3)]
)
def test_golden_values(golden: dict[str, list[dict[str, Any]]], category: str, count: int):
    entries = [entry for entry in golden[category] if entry["function"] in FUNCTIONS]
    assert len(entries) >= count
    if category != "detector":  # the rest of them is in test_golden_detectors.py
        assert len(entries) == len(golden[category])
    for entry in entries:
        found, expected = FUNCTIONS[entry["function"]](**entry["inputs"]), entry["expected"]
        if isinstance(expected, (float, dict)):
            expected = pytest.approx(expected, abs=entry["tolerance"], rel=0)
        assert found == expected, entry["id"]


def test_golden_containment_and_length(golden: dict[str, list[dict[str, Any]]]):
    entries = {entry["id"]: entry for entry in golden["profile"]}
    join = entries["containment_join"]
    question, doc = join["inputs"]["question"], join["inputs"]["doc"]
    assert holds_verbatim(question, doc) is join["expected"]["token_level_punct_to_space"]
    assert set(profile_text(question).split()) <= set(profile_text(doc).split())
    for name in ("length_overlap", "length_overlap_constant"):
        inputs, expected = entries[name]["inputs"], entries[name]["expected"]
        clean = make_hits([f"{'w ' * (n - 1)}w{i}" for i, n in enumerate(inputs["clean_lengths"])])
        ready = LengthOnly().fit([(make_query(), clean)], ScriptedTools())
        assert (ready.low, ready.high) == pytest.approx((expected["l5"], expected["l95"]))
        inside = [ready.score("w " * n) == 0 for n in inputs["poison_lengths"]]
        assert sum(inside) / len(inside) == expected["overlap"]
