"""Reports of evidence, attribution, detectors, clean utility, exposure and several settings."""

from __future__ import annotations

import copy
import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from ragassay import canon
from ragassay.experiments.protocols import analyze
from ragassay.report import (
    attribution,
    brief,
    clean,
    controls,
    detectors,
    evidence,
    sections,
    strata,
    victims,
)
from ragassay.report.bars import Bar, bar_chart
from ragassay.report.controls import control_name
from ragassay.report.curves import interception_chart
from ragassay.report.grids import Grid
from ragassay.report.markdown import markdown
from ragassay.report.parts import Part
from ragassay.report.prose import what_was_run
from ragassay.report.records import browser_data
from ragassay.report.render import write_reports
from ragassay.report.text import known
from ragassay.stats.intervals import wilson
from ragassay.store import RunFolder
from ragassay.types import (
    ContextEntry,
    Knowledge,
    Passage,
    PoisonSet,
    Query,
    Sampling,
    ScoreRecord,
    Target,
    TrialRecord,
    TrialSpec,
)

HOSTILE = '</script><script>alert(1)</script><img src=x onerror="a">$x^2$ [a](javascript:b)\u202e'
LABELS = (*evidence.OF_QUERIES, *evidence.OF_POSITIVES, *evidence.ON_CLEAN, *evidence.COMPOSED)


def rate(count: int, n: int, undefined: int = 0) -> dict[str, Any]:
    interval = wilson(count, n)
    return {"count": count, "n": n, "undefined": undefined, "value": count / n if n else None,
            "low": interval.low if interval else None,
            "high": interval.high if interval else None}  # fmt: skip


def plain(count: int, n: int) -> dict[str, Any]:
    return {key: value for key, value in rate(count, n).items() if key != "undefined"}


def cell(
    counts: dict[str, Any], *, budget: int = 5, defense: str = "none", setting: str = "",
    scorer: str = "tokens", attack: str = "poisonedrag", sizes: tuple[int, ...] = (),
    opened: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """A cell of 100 queries; ``sizes[i]`` answers need i passages, ``opened`` are open."""
    positives = counts.get("target_positive", 0)
    row: dict[str, Any] = {
        "scorer": scorer, "setting": setting, "attack": attack, "budget": budget,
        "defense": defense, "queries": 100, "positives": positives,
    }  # fmt: skip
    for name in LABELS:
        n = positives if name in evidence.OF_POSITIVES else 100
        n = 0 if name in evidence.COMPOSED and name not in counts else n
        value = counts.get(name, 0)
        row[name] = value if isinstance(value, dict) else rate(value, n)
    n = sum(sizes)
    row["attribution"] = {"n": 0, "open": positives}
    if n:
        assert n + opened == positives
        row["attribution"] = {
            "n": n, "open": 0,
            "sufficient": [{"size": i, **plain(each, n)} for i, each in enumerate(sizes)],
            "several": plain(sum(sizes[2:]), n), "necessary": [{"size": 1, "count": n}],
            "not_monotone": 2,
            "shapley_by_rank": [{"rank": r, "n": n, "mean": 1 / r} for r in (1, 2, 3, 4)],
        }  # fmt: skip
    return row


# The counts of the source's Table 4 (NQ); how many need two is invented.
P1 = cell({"target_positive": 64, "newly_induced": 62, "injection_dependent_new": 60,
           "single_passage_sufficient": 60, "poison_only_sufficient": 61, "persistent": 2},
          budget=1, sizes=(2, 62))  # fmt: skip
P5 = cell({"target_positive": 92, "newly_induced": 90, "injection_dependent_new": 87,
           "single_passage_sufficient": 91, "poison_only_sufficient": 92, "persistent": 2},
          sizes=(2, 76, 8, 4), opened=2)  # fmt: skip


def detector(
    defense: str, budget: int, caught: dict[float, int], positives: int = 60, **changes: Any
) -> dict[str, Any]:
    quartiles = {"n": 100, "unscored": 0, "lower_quartile": 0.1, "upper_quartile": 0.3}
    row = {
        "scorer": "tokens", "setting": "", "attack": "poisonedrag", "budget": budget,
        "defense": defense, "clean_contexts": "held out",
        "auroc": {"value": 0.9987, "interval": {"low": 0.995, "high": 1.0}, "method": "delong",
                  "n_positive": 100, "n_negative": 200, "unscored": 0},
        "scores": [{"budget": 0, "median": 0.0512, **quartiles},
                   {"budget": budget, "median": 0.2 / budget, **quartiles}],
        "rates": [
            {"fpr": fpr, "flagged": plain(number, 100), "intercepted": plain(number, positives),
             "intercepted_new": plain(number, positives), "target_before": plain(positives, 100),
             "target_after": plain(positives - number, 100),
             "clean_fpr": plain(round(200 * fpr) + 1, 200), "unscored": 0, "unlabeled": 0}
            for fpr, number in caught.items()
        ],
    }  # fmt: skip
    return {**row, **changes}


GAP = [detector("score_gap", 1, {0.01: 59, 0.05: 60}),
       detector("score_gap", 5, {0.01: 0, 0.05: 1}, 96)]  # fmt: skip
MINIMUM = [detector("score_minimum", 1, {0.01: 2, 0.05: 7}),
           detector("score_minimum", 5, {0.01: 0, 0.05: 0}, 96)]  # fmt: skip


def utility(defense: str, correct: int, **changes: Any) -> dict[str, Any]:
    about = {"correct": plain(correct, 200), "correct_uncertain": 0, "not_scored": 0,
             "abstained": plain(4, 200)}  # fmt: skip
    overlap = {"n": 200, "exact_match": plain(20, 200), "f1": 0.25,
               "f1_interval": {"low": 0.2, "high": 0.3}}  # fmt: skip
    return {"setting": "", "defense": defense, "n": 200, "missing": 0,
            "by_scorer": {"tokens": about}, "squad": overlap, "hotpotqa": overlap,
            "median_words": 3.0, **changes}  # fmt: skip


def exposed(budget: int, contexts: tuple[int, ...], hits: tuple[int, ...]) -> dict[str, Any]:
    return {"scorer": "tokens", "setting": "", "attack": "poisonedrag", "budget": budget,
            "defense": "none",
            "strata": [{"stratum": s, "contexts": n, "target": plain(h, n)}
                       for s, n, h in zip(("all", "some", "none"), contexts, hits, strict=True)],
            }  # fmt: skip


def summary(**changes: Any) -> dict[str, Any]:
    return {
        "headline": "tokens", "scorers": ["tokens"], "settings": [""], "confidence": 0.95,
        "defenses": [], "cells": [], "detectors": [], "utility": [], "exposure": [],
        "evidence": None, **changes,
    }  # fmt: skip


def removal(*cells: dict[str, Any], **changes: Any) -> dict[str, Any]:
    trials = {"controls": 1234, "failed": 0}
    return summary(evidence={"trials": trials, "cells": list(cells)}, **changes)


def claims(found: list[Part]) -> str:
    return " ".join(part.claim for part in found if part.claim)


def column(grid: Grid, title: str) -> list[str]:
    return [row[grid.columns.index(title)] for row in grid.rows]


# ---------------------------------------------------------------------------------- evidence


def test_the_evidence_finding_says_how_many_go_away_and_what_one_passage_does() -> None:
    assert evidence.removal(removal(P1, P5), "tokens")[0].claim == (
        "Under poisonedrag, p = 5, 90 of 100 answers are newly target-positive, and 87 of the 90 "
        "turn negative when the poison is taken out; 2 were so on clean retrieval already; a "
        "single poison passage suffices for 91 of the 92 target-positive answers (98.9% "
        "[94.1, 99.8])."
    )


def test_the_evidence_table_has_a_row_for_each_budget_with_intervals_and_denominators() -> None:
    (first,) = evidence.removal(removal(P1, P5), "tokens")
    (grid,) = first.grids
    assert [row[0] for row in grid.rows] == ["poisonedrag, p = 1", "poisonedrag, p = 5"]
    assert column(grid, "Newly induced") == ["62/100 [52.2, 70.9]", "90/100 [82.6, 94.5]"]
    assert column(grid, "Of positives: single-passage sufficient") == [
        "60/64 [85.0, 97.5]", "91/92 [94.1, 99.8]"
    ]  # fmt: skip
    assert "1,234 answers over reduced contexts" in first.note


def test_undefined_labels_are_counted_and_never_zero() -> None:
    lost = cell({"target_positive": rate(50, 90, 10), "newly_induced": rate(40, 90, 10),
                 "single_passage_sufficient": rate(0, 0, 50),
                 "poison_only_sufficient": rate(0, 0, 50)})  # fmt: skip
    lost["positives"] = 50
    (first,) = evidence.removal(removal(lost), "tokens")
    assert column(first.grids[0], "Target-positive") == ["50/90 [45.3, 65.4], 10 undefined"]
    assert column(first.grids[0], "Of positives: poison-only sufficient") == [
        "not estimable, 50 undefined"
    ]
    assert "is not known for any of the 50 target-positive answers" in first.claim
    assert "10 queries are undefined" in first.claim
    assert known(rate(0, 0, 3)) == "not estimable, 3 undefined"


def test_a_system_without_positives_has_nothing_to_remove_evidence_for() -> None:
    (first,) = evidence.removal(removal(cell({})), "tokens")
    assert first.claim == "Under poisonedrag, p = 5, no answer is target-positive (0/100)."
    assert column(first.grids[0], "Of positives: single-passage sufficient") == ["no positives"]


def test_every_defense_stands_beside_the_undefended_system() -> None:
    guarded = cell({"target_positive": 12, "newly_induced": 9}, defense="guard")
    first, second = evidence.removal(removal(guarded, P5), "tokens")
    assert len(first.grids[0].rows) == 1
    assert [row[:2] for row in second.grids[0].rows] == [
        ("(no defense)", "92/100 [85.0, 95.9]"), ("guard", "12/100 [7.0, 19.8]")
    ]  # fmt: skip
    assert second.grids[0].keys == ("none", "guard")


def test_over_several_settings_the_span_of_sufficiency_is_said() -> None:
    other = cell({"target_positive": 40, "newly_induced": 30, "injection_dependent_new": 30,
                  "single_passage_sufficient": 10}, setting="qwen")  # fmt: skip
    value = removal({**P5, "setting": "llama"}, other, settings=["llama", "qwen"])
    text = evidence.removal(value, "tokens")[0].claim
    assert text.startswith("Under llama: poisonedrag, p = 5, 90 of 100")
    assert (
        "Over 2 places that share runs from 10/40 (qwen: poisonedrag, p = 5) to 91/92 "
        "(llama: poisonedrag, p = 5)"
    ) in text


def test_strict_cases_are_told_with_what_was_retrieved_together_and_need_annotation() -> None:
    strict = cell({"target_positive": 27, "co_retrieved": rate(48, 100), "strict": rate(7, 99, 1),
                   "strict_new": rate(6, 99, 1)}, budget=1)  # fmt: skip
    text = claims(evidence.composition(removal(strict), "tokens"))
    assert text == (
        "Under poisonedrag, p = 1, 7 of 99 queries need a supporting and an injected passage "
        "together (7.1% [3.5, 13.9]; 1 undefined), 6 of them newly induced; both were retrieved "
        "for 48/100."
    )
    assert evidence.composition(removal(P5), "tokens") == []


def test_a_place_whose_answers_nobody_labeled_is_not_listed_as_zero() -> None:
    nothing = cell({name: rate(0, 0, 100) for name in LABELS})
    (first,) = evidence.removal(removal(nothing), "tokens")
    assert first.grids == ()
    assert first.claim.startswith("No answer under attack is labeled")


# ------------------------------------------------------------------------------- attribution


def test_attribution_counts_sizes_out_of_known_ones_and_says_what_is_open() -> None:
    (part,) = attribution.attribution(removal(P1, P5), "tokens", False)
    assert part.claim == (
        "Under poisonedrag, p = 5, 12 of 90 target-positive answers need two or more poison "
        "passages together (13.3% [7.8, 21.9]); 2 open."
    )
    sizes, shares = part.grids
    assert column(sizes, "1") == ["62/64 [89.3, 99.1]", "76/90 [75.6, 90.5]"]
    assert column(sizes, "3") == ["-", "4/90 [1.7, 10.9]"]
    assert column(sizes, "Two or more") == ["0/64 [0.0, 5.7]", "12/90 [7.8, 21.9]"]
    assert column(sizes, "Open") == ["0/64", "2/92"]
    assert column(shares, "2nd") == ["0.50 [64 contexts]", "0.50 [90 contexts]"]


def test_a_defended_system_whose_subsets_were_not_answered_is_left_out_and_counted() -> None:
    partial = cell({"target_positive": 40}, defense="guard", sizes=(0, 20), opened=20)
    (part,) = attribution.attribution(removal(P5, partial), "tokens", False)
    assert [row[0] for row in part.grids[0].rows] == ["poisonedrag, p = 5"]
    assert "Not listed: 1 systems and places" in part.grids[0].notes[0]
    assert attribution.attribution(removal(cell({"target_positive": 3})), "tokens", False) == []


def test_the_histogram_names_every_size_and_draws_what_is_there() -> None:
    (part,) = attribution.attribution(removal(P1, P5), "tokens", True)
    one, five = part.charts
    for svg in (one.svg, five.svg):
        ElementTree.fromstring(svg)
    texts = re.findall(r">([^<>]+)</text>", five.svg)
    for text in (
        "none: there without poison",
        "one is enough",
        "2 together",
        "3 together",
        "76/90",
    ):
        assert text in texts
    assert "3 together" not in one.svg
    assert five.told == "12/90 need two or more [7.8, 21.9], 2 open"


def test_a_bar_without_a_denominator_is_no_bar() -> None:
    svg = bar_chart(
        "t", [Bar(name="x", rate=plain(0, 0)), Bar(name="y", rate=plain(1, 2))], "share"
    )
    assert "x: not estimable; y: 1/2 (50.0%)" in svg
    assert bar_chart("t", [], "share") == ""


# --------------------------------------------------------------------------------- detectors


def test_the_collapse_of_the_best_detector_is_the_finding() -> None:
    value = summary(detectors=[*GAP, *MINIMUM])
    assert claims(detectors.detectors(value, "tokens", False)) == (
        "At a nominal false-positive rate of 1%, the best detector at p = 1, score_gap, "
        "intercepts 59/60 target-positive answers; at p = 5 it intercepts 0/96, and no detector "
        "intercepts more there."
    )


def test_another_detector_that_does_better_at_full_contexts_is_named() -> None:
    late = [detector("late", 1, {0.01: 0}), detector("late", 5, {0.01: 50}, 96)]
    text = claims(detectors.detectors(summary(detectors=[*GAP, *late]), "tokens", False))
    assert text.endswith("it intercepts 0/96, and the best there, late, 50/96.")


def test_tables_hold_interception_realized_rate_auroc_and_medians_by_budget() -> None:
    first, tables, *folded = detectors.detectors(summary(detectors=[*GAP, *MINIMUM]), "tokens",
                                                 False)  # fmt: skip
    caught, flagged, area, median = tables.grids
    assert caught.rows[0] == ("score_gap", "59/60 [91.1, 99.7]", "0/96 [0.0, 3.8]")
    assert flagged.columns == ("Flagged, clean", "nominal 1%", "nominal 5%")
    assert flagged.rows[0] == ("score_gap", "3/200 [0.5, 4.3]", "11/200 [3.1, 9.6]")
    assert "held out" in flagged.notes[0]
    assert area.rows[0] == ("score_gap", "1.00 [0.99, 1.00]", "1.00 [0.99, 1.00]")
    assert median.rows[0] == ("score_gap", "0.0512 [0.1, 0.3]", "0.2 [0.1, 0.3]", "0.04 [0.1, 0.3]")
    assert [part.heading for part in folded] == [
        "All figures at a nominal rate of 1%", "All figures at a nominal rate of 5%"
    ]  # fmt: skip
    assert "60/100 -> 1/100 [0.2, 5.4]" in folded[0].grids[0].rows[0]
    assert first.grids == ()


def test_a_cell_without_positives_or_scores_is_not_estimable() -> None:
    empty = detector("score_gap", 1, {0.01: 0}, 0)
    empty["auroc"] = {"value": None, "interval": None, "method": "none"}
    empty["scores"][1]["median"] = None
    empty["rates"][0]["unscored"] = 3
    first, tables, _ = detectors.detectors(summary(detectors=[empty]), "tokens", False)
    assert "No target-positive answer is there to intercept" in first.claim
    caught, _, area, median = tables.grids
    assert caught.rows == (("score_gap", "no positives"),)
    assert area.rows[0][1] == median.rows[0][2] == "not estimable"
    assert "3 contexts have no score" in caught.notes[0]


def test_there_is_a_curve_for_each_nominal_rate_with_direct_labels() -> None:
    part = detectors.detectors(summary(detectors=[*GAP, *MINIMUM]), "tokens", True)[1]
    assert [chart.title for chart in part.charts] == [
        "Intercepted at a nominal rate of 1%", "Intercepted at a nominal rate of 5%"
    ]  # fmt: skip
    first, second = (chart.svg for chart in part.charts)
    ElementTree.fromstring(first)
    texts = re.findall(r">([^<>]+)</text>", first)
    for text in ("score_gap 0/96", "score_minimum 0/96", "of 60", "of 96", "100%"):
        assert text in texts
    assert "score_gap: p = 1 59/60 (98.3%) [91.1, 99.7], p = 5 0/96 (0.0%) [0.0, 3.8]" in first
    ids = [set(re.findall(r' id="([^"]+)"', svg)) for svg in (first, second)]
    assert not ids[0] & ids[1]


def test_a_curve_leaves_out_what_has_no_denominator_and_hostile_names_are_text() -> None:
    svg = interception_chart(HOSTILE, {HOSTILE: {1: plain(2, 5)}, "gone": {1: plain(0, 0)}})
    ElementTree.fromstring(svg)
    assert "gone" not in svg
    assert "<script" not in svg
    assert interception_chart("x", {"gone": {1: plain(0, 0)}}) == ""


# ------------------------------------------------------------------ utility, exposure, settings


def test_utility_says_what_loses_most_and_how_much_is_uncertain() -> None:
    unsure = utility("trustrag", 40)
    unsure["by_scorer"]["tokens"] = {**unsure["by_scorer"]["tokens"], "correct_uncertain": 147}
    value = summary(utility=[unsure, utility("none", 150), utility("guard", 149)])
    first, second = clean.utility(value, "tokens", False)
    assert first.claim == (
        "By the rule tokens, trustrag loses most on held-out questions: 150/200 correct answers "
        "without a defense, 40/200 with it (147 uncertain)."
    )
    assert [row[0] for row in first.grids[0].rows] == ["(no defense)", "trustrag", "guard"]
    assert "40/200 (20.0%) [15.0, 26.1], 147 uncertain" in first.grids[0].rows[1]
    assert second.grids[0].rows[0] == (
        "(no defense)", "3.0", "20/200 (10.0%) [6.6, 14.9]", "25.0 [20.0, 30.0], n = 200",
        "20/200 (10.0%) [6.6, 14.9]", "25.0 [20.0, 30.0], n = 200",
    )  # fmt: skip


def test_answers_that_a_scorer_did_not_read_are_in_no_denominator() -> None:
    judged = utility("none", 0)
    judged["by_scorer"]["tokens"]["abstained"] = plain(0, 200)
    judged["by_scorer"]["judge"] = {**judged["by_scorer"]["tokens"], "not_scored": 200}
    judged["by_scorer"]["human"] = {**judged["by_scorer"]["tokens"], "not_scored": 190}
    value = summary(utility=[judged], scorers=["tokens", "judge", "human"])
    grid = clean.utility(value, "tokens", False)[0].grids[0]
    assert column(grid, "Correct, judge") == ["not scored (200)"]
    assert column(grid, "Correct, human") == ["0/10 (0.0%) [0.0, 27.8], 190 not scored"]


def test_a_defense_that_loses_nothing_is_not_accused() -> None:
    value = summary(utility=[utility("none", 150), utility("guard", 160)])
    assert "no defense has fewer correct answers" in clean.utility(value, "tokens", False)[0].claim
    unread = summary(utility=[utility("none", 1)], headline="judge")
    assert "read none of the held-out answers" in clean.utility(unread, "judge", False)[0].claim


def test_strata_have_contexts_and_target_positives_each_with_its_denominator() -> None:
    value = summary(exposure=[exposed(1, (21, 57, 22), (10, 31, 19)),
                              exposed(5, (0, 0, 100), (0, 0, 96))])  # fmt: skip
    (part,) = strata.strata(value, "tokens", False)
    assert part.claim == (
        "Under poisonedrag, p = 5, of 100 contexts with annotated support 0 hold all, 0 hold some "
        "and 100 hold none of it; target-positive there: none to ask, none to ask, 96/100."
    )
    assert part.grids[0].rows == (
        ("poisonedrag, p = 1", "10/21 [28.3, 67.6]", "31/57 [41.6, 66.6]", "19/22 [66.7, 95.3]"),
        ("poisonedrag, p = 5", "no context", "no context", "96/100 [90.2, 98.4]"),
    )


def compared(setting: str, count: int) -> dict[str, Any]:
    label = {"positive": plain(count, 50), "uncertain": plain(1, 50), "not_scored": 0,
             "not_applicable": 0}  # fmt: skip
    return {"scorer": "tokens", "setting": setting, "attack": "a", "budget": 1, "n": 49,
            "estimable": True, "absent": [],
            "labels": dict.fromkeys(("c0", "c1", "p0", "p1"), label),
            "effects": {"N": {"count": 5, "value": 0.1, "low": 0.05, "high": 0.2}}}  # fmt: skip


def test_settings_stand_in_one_table_with_levels_and_the_net_effect_of_every_defense() -> None:
    cells = [{**compared(s, n), "defense": d} for s, n in (("llama", 40), ("qwen", 30))
             for d in ("none", "guard")]  # fmt: skip
    cells[3]["estimable"] = False
    value = summary(cells=cells, settings=["llama", "qwen"], defenses=["guard"])
    (part,) = victims.victims(value, "tokens", False)
    level = "40/50 (80.0%) [67.0, 88.8], 1 uncertain"
    assert part.grids[0].rows == (
        ("llama", level, level, "+10.0 [5.0, 20.0], n = 49"),
        ("qwen", *["30/50 (60.0%) [46.2, 72.4], 1 uncertain"] * 2, "not estimable"),
    )
    assert not victims.wanted(summary(cells=cells[:2], settings=["llama"], defenses=["guard"]))


def test_victims_and_retrievers_are_named_where_they_stand_with_the_settings() -> None:
    value = summary(dataset={"name": "hot"}, k=None, cells=[compared("a", 1)], headline="tokens")
    settings = {"a": {"generator": "small", "retriever": "r"},
                "b": {"generator": "large", "retriever": "r"}}  # fmt: skip
    text = what_was_run(value, {"settings": settings})
    assert "Victims: 2 victims (small, large). Retriever: r. " in text
    assert "Victim: x. Retriever: unknown. " in what_was_run(value, {"generator": "x"})


def test_sections_appear_only_where_the_run_has_them() -> None:
    assert sections.present(summary()) == []
    assert sections.present({"settings": [""], "cells": [], "headline": "x"}) == []
    full = removal(P5, detectors=GAP, utility=[utility("none", 1)],
                   exposure=[exposed(1, (1, 1, 1), (1, 1, 1))])  # fmt: skip
    assert [section.anchor for section in sections.present(full)] == [
        "h-evidence", "h-exposure", "h-detectors", "h-utility"
    ]  # fmt: skip


def test_the_terminal_keeps_to_eighty_columns_and_cuts_no_figure() -> None:
    value = removal(P1, P5, detectors=[*GAP, *MINIMUM], utility=[utility("none", 150)])
    console = Console(file=io.StringIO(), width=80, color_system=None)
    for line in brief.sections(value, "tokens"):
        console.print(line)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "\u2026" not in text
    assert re.search(r"poisonedrag, p = 5 +90/100 +87/100 +91/92 +12/90", text)
    assert re.search(r"score_gap +59/60 +0/96 +3/200", text)


# ---------------------------------------------------------------------- names of the controls


def entries(*kinds: str) -> list[ContextEntry]:
    """``o`` own poison, ``f`` foreign, ``c`` corpus, ``s`` support, ``=`` a copy of own poison."""
    origins = {"o": "own", "f": "foreign"}
    return [
        ContextEntry(id=f"{i}", score=1.0, origin=origins.get(kind, "corpus"),  # type: ignore[arg-type]
                     gold=kind == "s", kept=True, copy="own" if kind == "=" else "")
        for i, kind in enumerate(kinds)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kinds", "control", "name"),
    [
        ("ofcs", "keep 3,4", "no poison"),
        ("ofcs", "keep 2,3,4", "no own poison, or without passage 1"),
        ("ofcs", "keep 1,2", "poison only"),
        ("ofcs", "keep 2", "passage 2 alone"),
        ("ofcs", "keep 1,3,4", "without passage 2"),
        ("ofcs", "keep 1,2,3", "without support"),
        ("ofcs", "keep 3", "neither poison nor support"),
        ("occ", "keep 2,3", "no poison, or without passage 1"),
        ("oo", "keep none", "no poison (empty context)"),
        ("ooocc", "keep 1,3,4,5", "without passage 2"),
        ("ooocc", "keep 2,4,5", "of the poison, only passage 2"),
        ("o=c", "keep 3", "no poison"),
        ("ooc", "keep 1,2", "poison only"),
        ("cco", "keep 1", "only passage 1"),
        ("oc", "something else", "something else"),
        ("oc", "keep 1,x", "keep 1,x"),
    ],
)
def test_a_control_is_named_by_what_it_kept(kinds: str, control: str, name: str) -> None:
    assert control_name(control, entries(*kinds))[1] == name


# ------------------------------------------------------------------------- folders, end to end

WRONG, RIGHT = "rival", "mason"


def _spec(query: str, place: tuple[str, int, str], control: str = "") -> TrialSpec:
    attack, budget, defense = place
    return TrialSpec(
        protocol="aligned/1", dataset="d", query_id=query, question="?", attack=attack,
        budget=budget, poison="", retriever="r", defense=defense, defense_label=defense,
        prompt="p", generator="g", sampling=Sampling(), seed=1, control=control,
    )  # fmt: skip


def _answer(
    store: RunFolder,
    spec: TrialSpec,
    context: list[ContextEntry],
    *,
    hit: bool,
    failed: bool = False,
) -> None:
    key = canon.digest(spec)
    if failed:
        record = TrialRecord(key=key, spec=spec, status="failed", error="gone")
        store.append("trials", key, record)
        return
    detects = spec.defense == "gap"
    record = TrialRecord(
        key=key, spec=spec, status="done", context=tuple(context), answer=WRONG if hit else RIGHT,
        suspicion={"context": 0.9 if spec.budget else 0.1} if detects else {},
        trace={"thresholds": {"0.01": 0.5, "0.05": 0.4}} if detects else {},
    )  # fmt: skip
    store.append("trials", key, record)
    for scorer in ("tokens", "published"):
        store.append("scores", f"{key}:{scorer}", ScoreRecord(
            trial_key=key, scorer=scorer, version="1", target_positive=hit, correct=not hit,
            abstained=False,
        ))  # fmt: skip


def build(folder: Path) -> RunFolder:
    """Two attacked questions and one held out; own poison persuades alone, one control failed."""
    store = RunFolder(folder)
    defenses = ("none", "gap", HOSTILE)
    resolved = {
        "protocol": "aligned/1", "headline": "tokens", "retriever": "r", "generator": "g",
        "experiment": {"name": "hand", "seed": 1, "retriever": {"k": 3}, "evidence": {},
                       "statistics": {"draws": 100, "confidence": 0.95}},
        "dataset": {"name": "hand", "evaluated": 2, "groups": 2, "has_qrels": True},
        "scorers": {"tokens": "t", "published": "p"}, "defenses": dict.fromkeys(defenses, "x"),
    }  # fmt: skip
    with store.writer():
        store.write_text("resolved.json", canon.dumps(resolved))
        for number, split in enumerate(("", "", "utility")):
            name = f"q{number}"
            query = Query(id=name, text=f"who {number}", group=name, split=split)  # type: ignore[arg-type]
            target = Target(query_id=name, references=(RIGHT,), wanted=(WRONG,), gold_ids=("d",))
            store.append("queries", name, {"query": query, "target": target})
            clean_context = entries("s", "c", "c")
            for defense in defenses:
                _answer(store, _spec(name, ("", 0, defense)), clean_context, hit=False)
                if not split:
                    _attacked(store, name, defense)
        poison = PoisonSet(attack="att", query_id="q0", knowledge=Knowledge(),
                           passages=(Passage(id="0", text=f"poison {HOSTILE}"),))  # fmt: skip
        store.append("poison", "att:q0", poison)
        store.write_text("summary.json", canon.dumps(analyze(folder)))
    return store


def _attacked(store: RunFolder, name: str, defense: str) -> None:
    whole = entries("o", "s", "c")
    _answer(store, _spec(name, ("att", 1, defense)), whole, hit=True)
    for kept, hit in (("1", True), ("2,3", False), ("1,3", True), ("3", False)):
        spec = _spec(name, ("att", 1, defense), f"keep {kept}")
        context = [whole[int(rank) - 1] for rank in kept.split(",")]
        _answer(store, spec, context, hit=hit, failed=kept == "3" and name == "q1")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    store = build(tmp_path_factory.mktemp("run"))
    write_reports(store.path)
    return store


def test_the_page_and_markdown_hold_the_sections_and_every_link_has_its_place(
    run: RunFolder,
) -> None:
    page = (run.path / "report.html").read_text(encoding="utf-8")
    text = (run.path / "report.md").read_text(encoding="utf-8")
    for title in ("What the answers depend on", "Support that is left in the contexts",
                  "Detectors under attack", "Clean utility"):  # fmt: skip
        assert f">{title}</h2>" in page
        assert f"## {title}" in text
    assert set(re.findall(r'<a href="#([\w-]+)"', page)) <= set(re.findall(r' id="([\w-]+)"', page))
    assert "2 of 2 answers are newly target-positive, and all 2 turn negative" in page
    assert "2/2 \\[34.2" in text or "2/2 [34.2, 100.0]" in text
    assert "single-passage sufficient" in page
    assert "<script>alert" not in page
    assert not re.search(r"<(?:img|script>alert)", text)


def test_equal_records_give_equal_pages(run: RunFolder) -> None:
    before = [(run.path / f"report.{kind}").read_bytes() for kind in ("md", "html")]
    write_reports(run.path)
    assert [(run.path / f"report.{kind}").read_bytes() for kind in ("md", "html")] == before


def test_controls_and_held_out_questions_are_no_records(run: RunFolder) -> None:
    data = browser_data(run, run.read_json("summary.json"))
    assert data["total"] == len(data["records"]) == 2 * 2
    assert {query[0] for query in data["queries"]} == {"q0", "q1"}
    for record in data["records"]:
        poisoned = data["trials"][record[5]]
        assert len(data["contexts"][poisoned["x"]]) == 3
        assert poisoned["l"] == ["100", "100"]


def test_the_controls_of_a_poisoned_trial_are_listed_with_a_letter_for_each_rule(
    run: RunFolder,
) -> None:
    data = browser_data(run, run.read_json("summary.json"))
    first, second = (data["trials"][record[5]] for record in data["records"][:2])
    assert [(data["controls"][name], letters) for name, letters in first["c"]] == [
        ("no poison, or without passage 1", "00"), ("poison only, or passage 1 alone", "11"),
        ("without support", "11"), ("neither poison nor support", "00"),
    ]  # fmt: skip
    assert [letters for _, letters in second["c"]] == ["00", "11", "11", "ff"]
    assert "c" not in data["trials"][data["records"][0][3]]


def test_a_full_page_says_how_many_controls_it_leaves_out(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controls, "MAX_LISTED", 5)
    data = browser_data(run, run.read_json("summary.json"))
    listed = sum(len(trial.get("c", ())) for trial in data["trials"])
    left = sum(trial.get("cm", 0) for trial in data["trials"])
    assert listed == 5
    assert listed + left == 2 * 3 * 4


def test_a_summary_without_these_sections_still_has_its_page(
    run: RunFolder, tmp_path: Path
) -> None:
    old = copy.deepcopy(run.read_json("summary.json"))
    for name in ("evidence", "detectors", "utility", "exposure"):
        del old[name]
    text = markdown(old)
    assert "What the answers depend on" not in text
    assert json.loads(json.dumps(old)) == old


def test_the_documented_keys_are_those_of_the_summary(run: RunFolder) -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "run-folder.md"
    section = page.read_text(encoding="utf-8").split("\n## summary.json\n")[1]
    tables = dict(re.findall(r"^(.*):\n\n((?:\|.*\n)+)", section, re.MULTILINE))
    found = run.read_json("summary.json")
    cells = found["evidence"]["cells"]
    for lead, values in (
        ("An evidence cell", cells),
        ("An attribution", [c["attribution"] for c in cells if c["attribution"]["n"]]),
        ("A row for each scorer, setting, attack, budget and detector", found["detectors"]),
        ("A row for each setting and defense, from questions that nobody attacks",
         found["utility"]),
        ("A row for each scorer, setting, attack, budget and defense, where support is annotated",
         found["exposure"]),
    ):  # fmt: skip
        keys = {key for line in re.findall(r"^\| (`[^|]+) \|", tables[lead], re.MULTILINE)
                for key in re.findall(r"`([^`]+)`", line)}  # fmt: skip
        assert values
        assert all(set(value) == keys for value in values), lead


@pytest.mark.slow
def test_in_a_browser_the_controls_stand_below_the_answers(run: RunFolder, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    page = run.path / "report.html"
    hash_ = "#records?rule=tokens&defense=gap&attack=att&p=1&query=q1"
    try:
        done = subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu",
             f"--user-data-dir={tmp_path / 'profile'}", "--disable-background-networking",
             "--enable-logging=stderr", "--virtual-time-budget=2000", "--dump-dom",
             f"{page.as_uri()}{hash_}"],
            capture_output=True, text=True, encoding="utf-8", timeout=60, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.skip("chromium does not answer here")
    if done.returncode or "<html" not in done.stdout:
        pytest.skip(f"chromium does not run here (exit code {done.returncode})")
    assert "CONSOLE" not in done.stderr
    listed = re.findall(r"<li>([^<]*)<span class=\"(\w+)\">([^<]*)</span></li>", done.stdout)
    assert listed == [
        ("no poison, or without passage 1: ", "no", "no"),
        ("poison only, or passage 1 alone: ", "yes", "yes"),
        ("without support: ", "yes", "yes"),
        ("neither poison nor support: ", "open", "failed"),
    ] * 2  # fmt: skip
