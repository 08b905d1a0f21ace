"""Golden values of the six detectors, through the functions that the detectors use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ragassay.defenses.graph_detectors import context_suspicions
from ragassay.defenses.score_detectors import ScoreDispersion, ScoreGap, ScoreMinimum, context_score
from ragassay.stats.exposure import by_stratum
from ragassay.stats.graphs import conductance, connectivity, graph_suspicion, modularity
from ragassay.stats.operating import nominal_thresholds
from ragassay.stats.roc import auroc_interval
from ragassay.testing import ScriptedTools, make_hits, make_query

TOOLS = ScriptedTools()


def thresholds(scores: str, fpr: float, rule: str) -> dict[str, float]:
    assert (scores, rule) == ("99 x 1.0 + 1 x 2.0", "flag if score > t")
    # As retrieval scores of a context: a gap of 1.0 or of 2.0.
    clean = [(make_query(), make_hits(["a", "b"], scores=[gap, 0.0])) for gap in [1.0] * 99 + [2.0]]
    ready = ScoreGap(fpr=fpr).fit(clean, TOOLS)
    flagged = sum(ready.apply(query, hits, TOOLS).abstain for query, hits in clean)
    return {"t": ready.threshold, "flagged": flagged}


def threshold_place(n: int, fpr: float) -> dict[str, int]:
    [found] = nominal_thresholds(np.arange(n, dtype=float), [fpr])
    assert found.value is not None
    return {"zero_based_index": int(found.value), "max_flagged": int(n - 1 - found.value)}


def score_statistics(scores: list[float]) -> dict[str, float]:
    hits = make_hits(["text"] * len(scores), scores=scores)
    return {
        "neg_min": context_score(hits, ScoreMinimum.statistic),
        "gap": context_score(hits, ScoreGap.statistic),
        "pstd": context_score(hits, ScoreDispersion.statistic),
    }


def graph_statistics(W: list[list[float]]) -> dict[str, float]:
    found = [function(W) for function in (connectivity, conductance, modularity)]
    assert all(value is not None and value.exact for value in found)
    lambda2, phi, quality = (value.value for value in found if value is not None)
    signs = {"connectivity": -lambda2, "conductance": -phi, "modularity": quality}
    for statistic, expected in signs.items():
        suspicion = graph_suspicion(W, statistic)  # type: ignore[arg-type]
        assert suspicion is not None
        assert suspicion.value == pytest.approx(expected, abs=1e-12)
    return {"lambda2": lambda2, "conductance": phi, "modularity": quality}


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "calibrate_threshold": thresholds,
    "calibrate_threshold_index": threshold_place,
    "retrieval_score_statistics": score_statistics,
    "graph_statistics": graph_statistics,
    "auroc": lambda pos, neg: auroc_interval(pos, neg).value,
}


def test_golden_values_of_detectors(golden: dict[str, list[dict[str, Any]]]):
    entries = [entry for entry in golden["detector"] if entry["function"] in FUNCTIONS]
    assert len(entries) >= 9
    for entry in entries:
        found, expected = FUNCTIONS[entry["function"]](**entry["inputs"]), entry["expected"]
        if expected is None:
            assert found is None, entry["id"]
        else:
            assert found == pytest.approx(expected, abs=entry["tolerance"], rel=0), entry["id"]


def test_golden_graphs_come_out_of_embeddings_too(golden: dict[str, list[dict[str, Any]]]):
    graphs = [entry for entry in golden["detector"] if entry["function"] == "graph_statistics"]
    assert len(graphs) >= 2
    for entry in graphs:
        similarity = np.array(entry["inputs"]["W"]) + np.eye(5)
        values, vectors = np.linalg.eigh(similarity)  # vectors whose cosines are these
        assert values.min() > 0
        rows = vectors * np.sqrt(values)
        tools = ScriptedTools(encode=lambda texts, rows=rows: rows[: len(texts)])
        for statistic, name, sign in (
            ("connectivity", "lambda2", -1),
            ("conductance", "conductance", -1),
            ("modularity", "modularity", 1),
        ):
            [found] = context_suspicions([make_hits("abcde")], statistic, tools)  # type: ignore[arg-type]
            assert found is not None
            expected = sign * entry["expected"][name]
            assert found.value == pytest.approx(expected, abs=entry["tolerance"]), entry["id"]


def test_golden_exposure_strata(golden: dict[str, list[dict[str, Any]]]):
    [entry] = [entry for entry in golden["identity"] if entry["id"] == "exposure_strata"]
    contexts, targets = entry["inputs"]["contexts"], entry["inputs"]["targets"]
    strata = [s for s, n in zip(("all", "some", "none"), contexts, strict=True) for _ in range(n)]
    labels = [i < t for n, t in zip(contexts, targets, strict=True) for i in range(n)]
    rows = by_stratum(strata, labels)
    assert [row.contexts for row in rows] == contexts
    found = [sum(row.contexts for row in rows), sum(row.target.count for row in rows)]
    assert found == entry["expected"]
