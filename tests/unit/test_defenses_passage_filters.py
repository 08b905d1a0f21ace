from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from ragassay import plugins
from ragassay.defenses.drs import DRS, covariance_axes, fit_covariance, split_contexts
from ragassay.defenses.duplicates import DuplicatesExact, DuplicatesNormalized
from ragassay.defenses.reference_detectors import ContainmentOnly, LengthOnly
from ragassay.defenses.surface import contained_share
from ragassay.errors import ConfigError, NotEstimable
from ragassay.matching import holds_verbatim, profile_text
from ragassay.testing import ScriptedTools, check_defense, make_hits, make_query
from ragassay.types import Query

TOOLS = ScriptedTools()


def ranks(verdict) -> list[int]:
    return [hit.rank for hit in verdict.kept]


def contexts(texts: list[list[str]]) -> list:
    return [
        (Query(id=f"c{i}", text=f"Question number {i}?", group="g"), make_hits(each))
        for i, each in enumerate(texts)
    ]


# ------------------------------------------------------------------------------------ surface


def test_punctuation_becomes_a_space_so_that_the_released_join_is_found():
    assert holds_verbatim("who wrote Hamlet?", "who wrote Hamlet?.The play was by Bacon.")
    assert not holds_verbatim("who wrote Hamlet?", "The play was written by Bacon.")
    assert profile_text("  A.\tB—c’s  ") == "a b c s"


def test_a_question_without_words_is_in_nothing():
    assert not holds_verbatim("?!", "anything")
    assert contained_share("?!", "anything") == 0.0


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_contained_question_of_whole_words_has_share_one(question: str, more: str):
    if profile_text(question):
        assert contained_share(question, f"{more} {question} {more}") == 1.0
        assert holds_verbatim(question, f"{more} {question} {more}")
    assert 0.0 <= contained_share(question, more) <= 1.0
    assert profile_text(profile_text(question)) == profile_text(question)


def test_the_containment_of_long_texts_uses_no_heuristics():
    question = "the " * 30 + "end"
    assert contained_share(question, "the " * 400) == pytest.approx(30 / 31)


# --------------------------------------------------------------------------------- duplicates


def test_exact_copies_go_but_the_first_stays():
    verdict = DuplicatesExact().apply(make_query(), make_hits(["a", "b", "a", "A.", "a"]), TOOLS)
    assert ranks(verdict) == [1, 2, 4]
    assert list(verdict.suspicion.values()) == [0.0, 0.0, 1.0, 0.0, 2.0]


def test_drop_all_leaves_no_copy_and_may_empty_the_context():
    hits = make_hits(["a", "b", "a"])
    assert ranks(DuplicatesExact(drop_all=True).apply(make_query(), hits, TOOLS)) == [2]
    verdict = DuplicatesExact(drop_all=True).apply(make_query(), make_hits(["a", "a"]), TOOLS)
    assert verdict.kept == ()
    assert verdict.trace["emptied"] is True
    assert not verdict.abstain


def test_only_the_normalized_filter_sees_through_case_and_punctuation():
    hits = make_hits(["A.", "a"])
    assert ranks(DuplicatesExact().apply(make_query(), hits, TOOLS)) == [1, 2]
    assert ranks(DuplicatesNormalized().apply(make_query(), hits, TOOLS)) == [1]


def test_texts_without_words_are_compared_as_they_stand():
    hits = make_hits(["", "   ", "!!", "!!"])
    assert ranks(DuplicatesNormalized().apply(make_query(), hits, TOOLS)) == [1, 2, 3]


@given(st.lists(st.sampled_from(["a", "A", "b", "", "."]), max_size=7), st.booleans())
def test_kept_texts_are_distinct_and_every_text_stays_unless_all_copies_go(texts, drop_all):
    verdict = DuplicatesExact(drop_all=drop_all).apply(make_query(), make_hits(texts), TOOLS)
    kept = [hit.passage.text for hit in verdict.kept]
    assert len(set(kept)) == len(kept)
    expected = {t for t in texts if texts.count(t) == 1} if drop_all else set(texts)
    assert set(kept) == expected
    flagged = {hit.passage.id for hit in make_hits(texts)} - {h.passage.id for h in verdict.kept}
    assert flagged == {i for i, score in verdict.suspicion.items() if score > 0}


# ------------------------------------------------------------------------ reference detectors

LENGTHS = contexts([["w " * n] for n in range(1, 101)])


def test_length_only_drops_what_is_outside_of_the_clean_percentiles():
    ready = LengthOnly().fit(LENGTHS, TOOLS)
    assert (ready.low, ready.high) == pytest.approx((5.95, 95.05))
    hits = make_hits(["w " * n for n in (3, 6, 50, 95, 96, 200)])
    verdict = ready.apply(make_query(), hits, TOOLS)
    assert ranks(verdict) == [2, 3, 4]
    assert list(verdict.suspicion.values()) == [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]


def test_graded_length_is_the_distance_of_logarithms_at_the_nominal_rate():
    ready = LengthOnly(graded=True, fpr=0.1).fit(LENGTHS, TOOLS)
    assert ready.score("w " * 100) == pytest.approx(np.log(100) - ready.median_log)
    dropped = sum(not ready.apply(q, hits, TOOLS).kept for q, hits in LENGTHS)
    assert dropped == 10
    assert ready.thresholds["0.05"] >= ready.threshold


def test_a_constant_length_passes_itself_alone():
    ready = LengthOnly().fit(contexts([["w " * 150], ["v " * 150]]), TOOLS)
    hits = make_hits(["w " * 150, "w " * 30, ""])
    assert ranks(ready.apply(make_query(), hits, TOOLS)) == [1]


def test_containment_only_drops_the_question_and_its_graded_form_ranks():
    clean = contexts([["Clean text."], ["Another one."]] * 20)
    hits = make_hits([
        "What is the capital of Canada?.Toronto.",
        "Ottawa is the capital of Canada.",
        "Maple syrup.",
    ])  # fmt: skip
    verdict = ContainmentOnly().fit(clean, TOOLS).apply(make_query(), hits, TOOLS)
    assert ranks(verdict) == [2, 3]
    graded = ContainmentOnly(graded=True).fit(clean, TOOLS).apply(make_query(), hits, TOOLS)
    assert list(graded.suspicion.values()) == pytest.approx([1.0, 5 / 6, 0.0])


def test_containment_drops_nothing_where_clean_passages_repeat_their_question():
    clean = contexts([[f"Question number {i}? Yes."] for i in range(20)])
    ready = ContainmentOnly().fit(clean, TOOLS)
    assert ready.threshold == 1.0
    hits = make_hits([f"{make_query().text} Toronto."])
    assert ready.apply(make_query(), hits, TOOLS).kept == hits


@pytest.mark.parametrize("detector", [LengthOnly(), ContainmentOnly(), DRS()])
def test_without_clean_passages_or_calibration_there_is_no_verdict(detector):
    with pytest.raises(NotEstimable, match="clean"):
        detector.fit([(make_query(), ())], TOOLS)
    with pytest.raises(ConfigError, match="is not calibrated"):
        detector.apply(make_query(), (), TOOLS)


# ---------------------------------------------------------------------------------------- DRS

D = 6


def gaussian_tools(seed: int = 0) -> ScriptedTools:
    """Clean texts vary little in the last directions; texts with 'poison' are moved there."""

    def encode(texts):
        rows = []
        for text in texts:
            rng = np.random.default_rng(sum(map(ord, text)) * 1000 + len(text) + seed)
            row = rng.normal(size=D) * np.array([3, 2, 1, 1, 0.1, 0.01])
            row[-1] += 0.5 * ("poison" in text)
            rows.append(row)
        return np.array(rows, dtype=np.float32).reshape(len(texts), D)

    return ScriptedTools(encode=encode)


def clean_drs(n: int) -> list:
    return contexts([[f"clean {i} {j} {'x' * (i % 37)}" for j in range(5)] for i in range(n)])


def test_distances_are_those_of_scipy():
    from scipy.spatial.distance import mahalanobis

    rng = np.random.default_rng(3)
    x = rng.normal(size=(50, D)) @ rng.normal(size=(D, D))
    fitted = fit_covariance(x, shrinkage="none")
    inverse = np.linalg.inv(np.cov(x.T, ddof=0))
    for row in x[:5]:
        assert fitted.distance(row) == pytest.approx(mahalanobis(row, x.mean(axis=0), inverse) ** 2)


def test_few_directions_are_those_of_least_variance():
    axes = covariance_axes([0, 0, 0], np.diag([4, 1, 0.01]), n=9, low_dirs=1)
    assert axes.distance([7, 7, 0.5]) == pytest.approx(25)
    with pytest.raises(ConfigError, match="low_dirs = 4 exceeds the 3"):
        covariance_axes([0, 0, 0], np.eye(3), n=9, low_dirs=4)


def test_ledoit_wolf_is_that_of_the_formula():
    x = np.random.default_rng(1).normal(size=(8, D))
    fitted = fit_covariance(x)
    s = np.cov(x.T, ddof=0)
    w = fitted.shrinkage
    assert 0 < w < 1
    shrunk = (1 - w) * s + w * np.trace(s) / D * np.eye(D)
    assert fitted.axes.T @ np.diag(fitted.variances) @ fitted.axes == pytest.approx(shrunk)


@pytest.mark.parametrize("n", [3, D - 1, D])
def test_no_more_passages_than_dimensions_are_refused_without_shrinkage(n: int):
    x = np.random.default_rng(0).normal(size=(n, D))
    with pytest.raises(NotEstimable, match=f"of {n} clean passages in {D} dimensions is singular"):
        fit_covariance(x, shrinkage="none")
    assert fit_covariance(x).n == n


def test_passages_that_do_not_vary_are_refused_even_with_shrinkage():
    with pytest.raises(NotEstimable, match="do not vary at all"):
        fit_covariance(np.ones((20, D)))
    flat = np.random.default_rng(0).normal(size=(50, D))
    flat[:, 2] = 1.0
    with pytest.raises(NotEstimable, match="do not vary at all"):
        fit_covariance(flat, shrinkage="none")


def test_drs_finds_what_moves_where_clean_passages_do_not_vary():
    tools = gaussian_tools()
    ready = DRS(low_dirs=2).fit(clean_drs(60), tools)
    hits = make_hits(["clean and new", "poison one", "poison two", "poison one"])
    verdict = ready.apply(make_query(), hits, tools)
    assert ranks(verdict) == [1]
    scores = list(verdict.suspicion.values())
    assert scores[1] == scores[3] > ready.threshold > scores[0]
    assert verdict.trace["warning"] == ""


def test_the_threshold_comes_from_texts_that_were_not_fitted():
    clean = clean_drs(30)
    clean[3] = (clean[3][0], clean[4][1])  # two questions that retrieve the same passages
    fitted, held = split_contexts(clean, 0.8)
    assert not set(fitted) & set(held)
    assert len(fitted) + len(held) == 29 * 5
    assert split_contexts(clean[::-1], 0.8) == (fitted, held)
    ready = DRS().fit(clean, gaussian_tools())
    assert (ready.covariance.n, ready.n_calibration) == (len(fitted), len(held))


def test_held_out_clean_passages_are_flagged_at_the_nominal_rate_where_the_fitting_sample_lies():
    # 30 passages in 24 dimensions: distances of fitted passages are bounded, those of others not.
    rng = np.random.default_rng(5)
    x = rng.normal(size=(30, 24))
    fitted = fit_covariance(x, shrinkage="none")
    own = np.quantile([fitted.distance(row) for row in x], 0.95)
    fresh = rng.normal(size=(2000, 24))
    distances = np.array([fitted.distance(row) for row in fresh])
    assert (distances > own).mean() > 0.9
    honest = np.quantile(distances[:1000], 0.95)
    assert (distances[1000:] > honest).mean() == pytest.approx(0.05, abs=0.03)


def test_a_fit_on_few_passages_is_warned_of(caplog):
    tools = gaussian_tools()
    ready = DRS().fit(clean_drs(6), tools)
    assert "fewer than 5 a dimension (30)" in ready.covariance.warning
    assert ready.covariance.warning in caplog.text
    verdict = ready.apply(make_query(), make_hits(["clean"]), tools)
    assert verdict.trace["warning"] == ready.covariance.warning


@pytest.mark.parametrize(
    ("options", "message"),
    [({"fit_share": 1.0}, "fit_share"), ({"low_dirs": 0}, "low_dirs"), ({"fpr": 0.0}, "fpr")],
)
def test_drs_options_out_of_range_are_refused(options: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        DRS(**options)


def test_an_encoder_of_another_dimension_is_refused():
    ready = DRS().fit(clean_drs(20), gaussian_tools())
    with pytest.raises(ConfigError, match=r"of shape \(6,\)"):
        ready.apply(make_query(), make_hits(["a"]), TOOLS)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("drs", {"low_dirs": 8}),
        ("dup_exact", {"drop_all": True}),
        ("dup_norm", {"drop_all": True}),
        ("length_only", {"graded": True}),
        ("containment_only", {"graded": True}),
        ("ragdefender", {"mode": "concentration"}),
        ("ragdefender", {"compat": True}),
        ("reliabilityrag", {"symmetric": True}),
        ("reliabilityrag", {"exact_limit": 2}),
    ],
)
@pytest.mark.parametrize("replies", ["Toronto", "contradiction"])
def test_every_variant_keeps_the_contract(name: str, options: dict, replies: str):
    check_defense(plugins.build(plugins.find("defense", name), options), replies=replies)
