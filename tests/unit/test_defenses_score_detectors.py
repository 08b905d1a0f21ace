from __future__ import annotations

import numpy as np
import pytest

from ragassay.defenses.score_detectors import (
    CalibratedScoreDetector,
    ScoreDispersion,
    ScoreGap,
    ScoreMinimum,
)
from ragassay.errors import ConfigError, NotEstimable
from ragassay.testing import ScriptedTools, check_defense, make_hits, make_query
from ragassay.types import Hit

TOOLS = ScriptedTools()


def context(*scores: float) -> tuple[Hit, ...]:
    return make_hits(["text"] * len(scores), scores=scores)


def clean(n: int = 100) -> list:
    return [(make_query(), context(1.0, 1.0 - i / n)) for i in range(1, n + 1)]


def test_gap_is_calibrated_to_the_order_statistic():
    ready = ScoreGap(fpr=0.05).fit(clean(), TOOLS)
    assert ready.threshold == pytest.approx(0.95)
    assert ready.n_calibration == 100


def test_dispersion_is_the_population_standard_deviation():
    ready = ScoreDispersion(fpr=0.05).fit(clean(), TOOLS)
    assert ready.threshold == pytest.approx(0.475)
    scores = (0.9, 0.5, 0.1)
    verdict = ready.apply(make_query(), context(*scores), TOOLS)
    assert verdict.suspicion["context"] == pytest.approx(float(np.std(scores)))


def test_minimum_counts_negatively_so_that_a_low_score_is_suspicious():
    ready = ScoreMinimum(fpr=0.05).fit(clean(), TOOLS)
    assert ready.threshold == pytest.approx(-0.05)  # the smallest scores are 0.00 to 0.99
    low = ready.apply(make_query(), context(0.9, -2.0), TOOLS)
    assert low.abstain
    assert low.suspicion == {"context": 2.0}
    high = ready.apply(make_query(), context(9.0, 8.0), TOOLS)
    assert not high.abstain
    assert high.suspicion == {"context": -8.0}


def test_minimum_of_zero_has_no_sign():
    ready = ScoreMinimum().fit(clean(), TOOLS)
    assert str(ready.apply(make_query(), context(1.0, 0.0), TOOLS).suspicion["context"]) == "0.0"


@pytest.mark.parametrize("fpr", [0.01, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("detector", [ScoreGap, ScoreDispersion, ScoreMinimum])
def test_every_score_detector_keeps_the_contract_and_the_nominal_rate(detector: type, fpr: float):
    check_defense(detector(fpr=fpr))
    ready = detector(fpr=fpr).fit(clean(), TOOLS)
    flagged = sum(ready.apply(query, hits, TOOLS).abstain for query, hits in clean())
    assert flagged == round(fpr * 100)


def test_a_flagged_context_is_abstained_on():
    ready = ScoreGap(fpr=0.05).fit(clean(), TOOLS)
    verdict = ready.apply(make_query(), context(3.0, 1.0), TOOLS)
    assert verdict.abstain
    assert verdict.kept == ()
    assert verdict.answer is None
    assert verdict.suspicion == {"context": 2.0}
    assert verdict.trace == {
        "score": 2.0,
        "threshold": ready.threshold,
        "n_calibration": 100,
        "fpr": 0.05,
        "thresholds": dict(ready.thresholds),
    }


def test_a_score_at_the_threshold_is_not_flagged():
    ready = CalibratedScoreDetector(statistic="gap", threshold=0.5, n_calibration=9, fpr=0.1)
    hits = context(1.0, 0.5)
    verdict = ready.apply(make_query(), hits, TOOLS)
    assert not verdict.abstain
    assert verdict.kept == hits
    assert verdict.suspicion == {"context": 0.5}


def test_uniformly_high_scores_are_not_flagged():
    ready = ScoreGap().fit(clean(), TOOLS)
    assert not ready.apply(make_query(), context(*[9.0] * 5), TOOLS).abstain


def test_an_empty_context_has_no_score():
    ready = ScoreGap().fit(clean(), TOOLS)
    verdict = ready.apply(make_query(), (), TOOLS)
    assert not verdict.abstain
    assert verdict.suspicion == {}
    assert verdict.trace["score"] is None


@pytest.mark.parametrize("detector", [ScoreGap(), ScoreDispersion(), ScoreMinimum()])
def test_without_calibration_it_refuses_to_judge(detector: ScoreGap):
    with pytest.raises(ConfigError, match="is not calibrated"):
        detector.apply(make_query(), context(1.0), TOOLS)


@pytest.mark.parametrize("contexts", [[], [(make_query(), ())]])
def test_nothing_to_calibrate_on_is_an_error(contexts: list):
    with pytest.raises(NotEstimable, match="clean contexts"):
        ScoreGap().fit(contexts, TOOLS)


@pytest.mark.parametrize("fpr", [0.0, 1.0, -0.1, float("nan")])
def test_a_false_positive_rate_out_of_range_is_refused(fpr: float):
    with pytest.raises(ConfigError, match="0 < fpr < 1"):
        ScoreGap(fpr=fpr)
