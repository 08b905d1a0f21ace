from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ragassay.defenses.graph_detectors import (
    CalibratedGraphDetector,
    GraphConductance,
    GraphConnectivity,
    GraphModularity,
    context_suspicions,
)
from ragassay.errors import ConfigError, NotEstimable
from ragassay.plugins import Defense, Fitted
from ragassay.testing import ScriptedTools, check_defense, make_hits, make_query

DETECTORS = [GraphConnectivity, GraphConductance, GraphModularity]
CLUSTERS = {"a": (1.0, 0.05, 0.0), "b": (0.05, 1.0, 0.0), "c": (0.6, 0.6, 0.5)}


def encode(texts):
    """The first letter decides the direction, the rest turns it a little."""
    rows = []
    for text in texts:
        direction = np.array(CLUSTERS[text[0]])
        rows.append(direction + 0.01 * len(text) * np.array([0.3, 0.2, 0.9]))
    return np.array(rows, dtype=np.float32)


def clean(n: int = 40) -> list:
    return [
        (make_query(f"Question {i}?"), make_hits(["c" + "x" * ((i + j * j) % 7) for j in range(5)]))
        for i in range(n)
    ]


@pytest.mark.parametrize("detector", DETECTORS)
def test_it_keeps_the_contract(detector: type):
    assert isinstance(detector(), Fitted)
    assert isinstance(detector().fit(clean(), ScriptedTools(encode=encode)), Defense)
    check_defense(detector())
    check_defense(detector(fpr=0.2))


@pytest.mark.parametrize("detector", DETECTORS)
def test_a_context_in_two_clusters_is_abstained_on(detector: type):
    tools = ScriptedTools(encode=encode)
    ready = detector(fpr=0.05).fit(clean(), tools)
    assert ready.n_calibration == 40
    verdict = ready.apply(make_query(), make_hits(["a", "ax", "b", "bx", "bxx"]), tools)
    assert verdict.abstain
    assert verdict.kept == ()
    assert verdict.suspicion["context"] > ready.threshold
    assert verdict.trace == {
        "score": verdict.suspicion["context"],
        "threshold": ready.threshold,
        "n_calibration": 40,
        "fpr": 0.05,
        "thresholds": dict(ready.thresholds),
        "exact": True,
    }


@pytest.mark.parametrize("detector", DETECTORS)
def test_a_context_that_is_poisoned_throughout_passes(detector: type):
    tools = ScriptedTools(encode=encode)
    ready = detector(fpr=0.2).fit(clean(), tools)
    hits = make_hits(["a"] * 5)
    verdict = ready.apply(make_query(), hits, tools)
    assert not verdict.abstain
    assert verdict.kept == hits


@pytest.mark.parametrize("detector", DETECTORS)
@pytest.mark.parametrize("fpr", [0.01, 0.05, 0.1, 0.2])
def test_no_more_clean_contexts_are_flagged_than_the_nominal_rate(detector: type, fpr: float):
    tools = ScriptedTools()
    rng = np.random.default_rng(3)
    words = [f"word{i}" for i in range(12)]
    contexts = [
        (make_query(), make_hits([" ".join(rng.choice(words, size=6)) for _ in range(5)]))
        for _ in range(100)
    ]
    ready = detector(fpr=fpr).fit(contexts, tools)
    flagged = sum(ready.apply(query, hits, tools).abstain for query, hits in contexts)
    assert flagged <= fpr * 100
    assert flagged > 0 or fpr == 0.01


@pytest.mark.parametrize("texts", [[], ["a"], ["a", "b"]])
@pytest.mark.parametrize("detector", DETECTORS)
def test_a_context_too_small_has_no_score_and_is_not_encoded(detector: type, texts: list[str]):
    ready = detector().fit(clean(), ScriptedTools(encode=encode))
    tools = ScriptedTools(encode=encode)
    hits = make_hits(texts)
    verdict = ready.apply(make_query(), hits, tools)
    assert not verdict.abstain
    assert verdict.kept == hits
    assert verdict.suspicion == {}
    assert verdict.trace["score"] is None
    assert tools.encoded == []


def test_passages_without_any_similarity_have_no_score():
    tools = ScriptedTools(encode=lambda texts: np.eye(len(texts), dtype=np.float32))
    assert context_suspicions([make_hits("abc")], "modularity", tools) == [None]


def test_calibration_encodes_each_text_once_in_one_call():
    calls: list[list[str]] = []

    def counting(texts):
        calls.append(list(texts))
        return encode(texts)

    contexts = [*clean(), (make_query(), make_hits(["a", "b"]))]  # the last is too small
    ready = GraphConductance().fit(contexts, ScriptedTools(encode=counting))
    assert ready.n_calibration == 40
    [texts] = calls
    assert len(texts) == len(set(texts))
    assert set(texts) == {hit.passage.text for _, hits in clean() for hit in hits}


def test_copies_score_alike_although_the_encoder_returns_noise():
    noise = np.random.default_rng(0)

    def noisy(texts):
        return encode(texts) + noise.normal(scale=1e-3, size=(len(texts), 3)).astype(np.float32)

    copies = make_hits(["a"] * 5)
    found = context_suspicions([copies, copies], "connectivity", ScriptedTools(encode=noisy))
    assert [score.value for score in found] == [-1.25, -1.25]


def test_titles_scores_and_order_of_equal_passages_do_not_matter():
    tools = ScriptedTools(encode=encode)
    hits = make_hits(["a", "ax", "b", "bx", "c"])
    turned = make_hits(["c", "bx", "b", "ax", "a"], scores=[9.0, 5.0, 2.0, 1.0, 0.5])
    titled = tuple(
        dataclasses.replace(h, passage=dataclasses.replace(h.passage, title="Title")) for h in hits
    )
    for statistic in ("connectivity", "conductance", "modularity"):
        one, two, three = context_suspicions([hits, turned, titled], statistic, tools)
        assert one is not None
        assert two.value == pytest.approx(one.value, abs=1e-9)
        assert three == one


def test_a_large_context_is_scored_by_approximation_and_says_so():
    tools = ScriptedTools(encode=encode)
    ready = CalibratedGraphDetector(
        statistic="conductance", threshold=0.0, n_calibration=9, fpr=0.1
    )
    hits = make_hits(["a" + "x" * i for i in range(12)])
    verdict = ready.apply(make_query(), hits, tools)
    assert verdict.trace["exact"] is False
    assert -1 <= verdict.suspicion["context"] <= 0


def test_a_score_at_the_threshold_is_not_flagged():
    tools = ScriptedTools(encode=encode)
    ready = CalibratedGraphDetector(
        statistic="connectivity", threshold=-1.25, n_calibration=9, fpr=0.1
    )
    assert not ready.apply(make_query(), make_hits(["a"] * 5), tools).abstain


@pytest.mark.parametrize("detector", DETECTORS)
def test_without_calibration_it_refuses_to_judge(detector: type):
    with pytest.raises(ConfigError, match="is not calibrated"):
        detector().apply(make_query(), make_hits(["a"] * 5), ScriptedTools())


@pytest.mark.parametrize("contexts", [[], [(make_query(), make_hits(["a", "b"]))]])
def test_nothing_to_calibrate_on_is_an_error(contexts: list):
    with pytest.raises(NotEstimable, match="at least 3 passages"):
        GraphModularity().fit(contexts, ScriptedTools(encode=encode))


@pytest.mark.parametrize("fpr", [0.0, 1.0, -0.1, float("nan")])
def test_a_false_positive_rate_out_of_range_is_refused(fpr: float):
    with pytest.raises(ConfigError, match="0 < fpr < 1"):
        GraphConductance(fpr=fpr)


@pytest.mark.parametrize(
    "vectors", [np.full((5, 2), np.nan), np.ones((4, 2)), np.ones(5), np.full((5, 2), np.inf)]
)
def test_an_encoder_that_returns_something_else_is_refused(vectors: np.ndarray):
    tools = ScriptedTools(encode=lambda texts: vectors)
    with pytest.raises(ConfigError, match="encoder must return finite vectors"):
        context_suspicions([make_hits("abcde")], "modularity", tools)
