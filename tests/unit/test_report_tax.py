"""Attack tax in reports: radar charts that never show what is missing as 0, and tables."""

from __future__ import annotations

import itertools
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragassay.experiments.tax import tax_section
from ragassay.report import sections, taxes
from ragassay.report.radar import MAX_CHARTS, Spokes, open_runs, radar_charts

LABELS = tuple(taxes.NAMES.values())
HOSTILE = "<script>alert(1)</script>$x^2$\u202e"
SVG = "{http://www.w3.org/2000/svg}"


def facts(llm: str = "none", seconds: float | None = 1.0, **other: Any) -> dict[str, Any]:
    def mean(name: str, n: int) -> dict[str, Any]:
        value = other.get(name)
        return {"value": value, "n": 0 if value is None else n}

    return {
        "knowledge": {"llm": llm, "retriever": "gradients", "corpus": "none"},
        "seconds": {"value": seconds, "n": 4}, "similarity": mean("similarity", 4),
        "perplexity": mean("perplexity", 20),
    }  # fmt: skip


def summary(measured: dict[str, Any], performance: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"tax": tax_section(measured, performance=performance)}


def drawing(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def markers(svg: str) -> int:
    """How many points are drawn: every marker is used by reference."""
    return len(re.findall(r"<use ", svg))


def words(svg: str) -> list[str]:
    return ["".join(each.itertext()).strip() for each in drawing(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("number", range(1, MAX_CHARTS + 1))
def test_each_attack_has_a_chart_of_its_own(number: int) -> None:
    members = [Spokes(name=f"attack {i}", scores=(0.5,) * 7) for i in range(number)]
    svg = radar_charts("tax", LABELS, members)
    found = words(svg)
    assert [word for word in found if word.startswith("attack")] == [m.name for m in members]
    assert found.count("Perplexity") == number
    assert markers(svg) == 7 * number
    assert radar_charts("tax", LABELS, members) == svg


def test_more_attacks_than_fit_are_left_to_the_table() -> None:
    members = [Spokes(name=f"attack {i}", scores=(0.5,) * 7) for i in range(MAX_CHARTS + 3)]
    svg = radar_charts("tax", LABELS, members)
    assert f"attack {MAX_CHARTS}" not in svg
    names = {f"a{i}": facts() for i in range(MAX_CHARTS + 3)}
    [part] = taxes.tax(summary(names), "", True)
    assert f"first {MAX_CHARTS} attacks" in part.charts[0].told
    assert len(part.grids[0].rows) == MAX_CHARTS + 3


def test_a_missing_score_is_named_missing_and_no_point_is_drawn_for_it() -> None:
    whole = Spokes(name="a", scores=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 0.0))
    gap = Spokes(name="a", scores=(0.0, 0.2, None, 0.6, 0.8, None, 0.0))
    svg = radar_charts("tax", LABELS, [gap])
    assert markers(svg) == 5
    assert markers(radar_charts("tax", LABELS, [whole])) == 7
    assert list(words(svg)).count("n/a") == 2
    told = next(drawing(svg).iter(f"{SVG}desc")).text or ""
    assert "Retriever not known" in told
    assert "Success 0.00" in told


def test_without_any_score_there_is_no_chart() -> None:
    assert radar_charts("tax", LABELS, [Spokes(name="a", scores=(None,) * 7)]) == ""
    assert radar_charts("tax", LABELS, []) == ""


def test_names_of_attacks_are_text() -> None:
    svg = radar_charts("tax", LABELS, [Spokes(name=HOSTILE, scores=(1.0,) * 7)])
    assert "<script" not in svg
    assert any(word.startswith("<script>alert") for word in words(svg))


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=3, max_size=9))
def test_runs_hold_every_known_spoke_once_and_join_neighbors_alone(
    scores: list[float | None],
) -> None:
    n = len(scores)
    runs = open_runs(scores)
    closed = None not in scores
    members = [i for run in runs for i in (run[:-1] if closed else run)]
    assert sorted(members) == [i for i, score in enumerate(scores) if score is not None]
    joined = {pair for run in runs for pair in itertools.pairwise(run)}
    expected = {
        (i, (i + 1) % n)
        for i in range(n)
        if scores[i] is not None and scores[(i + 1) % n] is not None
    }
    assert joined == expected


def test_tables_give_scores_raw_values_and_how_they_were_made() -> None:
    found = summary(
        {
            "cheap": facts(seconds=2.0, similarity=0.5, perplexity=30.0),
            "dear": facts("internals", 10.0, similarity=None, perplexity=90.0),
        },
        {"cheap": {"s_asr": 0.25, "s_f1": 0.5}, "dear": {"s_asr": 0.75, "s_f1": 0.4}},
    )
    [part] = taxes.tax(found, "", True)
    scores, raw = part.grids
    assert scores.columns[1:] == LABELS
    assert scores.rows[0] == ("cheap", "n/a", "1.00", "0.00", "1.00", "1.00", "n/a", "1.00")
    assert scores.rows[1] == ("dear", "n/a", "0.00", "0.00", "1.00", "0.00", "n/a", "0.00")
    notes = " ".join(scores.notes)
    assert "Similarity: 1 - min-max; dropped: 1 of 2 attackers have a value" in notes
    assert "Success: min-max of the sum of min-maxes (s-F1 and s-ASR)" in notes
    assert raw.rows[0] == (
        "cheap", "s-ASR 0.250, s-F1 0.500", "none", "gradients", "none", "2.00 (4 questions)",
        "0.500 (4 questions)", "30.0 (20 passages)",
    )  # fmt: skip
    assert raw.rows[1][6] == "n/a"
    assert part.claim == (
        "2 attacks, 5 of 7 dimensions can be compared; not success and similarity."
    )
    assert words(part.charts[0].svg).count("n/a") >= 2


def test_one_attack_alone_keeps_its_raw_values_and_the_scores_of_access() -> None:
    [part] = taxes.tax(summary({"only": facts(similarity=0.5)}), "", True)
    assert part.grids[0].rows == (("only", "n/a", "1.00", "0.00", "1.00", "n/a", "n/a", "n/a"),)
    assert markers(part.charts[0].svg) == 3


def test_released_documents_do_not_say_what_they_cost() -> None:
    made = summary({"one": facts(similarity=0.5), "other": facts(similarity=0.7)})
    made["tax"]["measured"]["one"] |= {"recorded": False, "seconds": {"value": None, "n": 0}}
    raw = taxes.tax(made, "", False)[0].grids[1]
    assert raw.rows[0][5] == "not recorded"
    assert raw.rows[1][5] != "not recorded"


def test_without_charts_for_text_and_without_a_tax_no_section() -> None:
    assert taxes.tax(summary({"only": facts()}), "", False)[0].charts == ()
    bare = {"tax": None, "outcomes": {"attacks": {}, "rows": []}, "settings": [""], "cells": [],
            "evidence": None, "detectors": [], "utility": [], "exposure": []}  # fmt: skip
    assert not taxes.wanted(bare)
    assert "h-tax" in {section.anchor for section in sections.SECTIONS}
