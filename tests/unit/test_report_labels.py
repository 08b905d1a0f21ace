"""What the label does to the conclusion, as words, tables and charts."""

from __future__ import annotations

import io
import re
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ragassay.report import comparison, leaders, tables
from ragassay.report.slopes import apart, slope_chart

HOSTILE = "</script><script>alert(1)</script><img src=x>\u202e"


def rate(count: int, n: int) -> dict[str, Any]:
    value = count / n if n else None
    low = None if value is None else max(0.0, value - 0.1)
    high = None if value is None else min(1.0, value + 0.1)
    return {"count": count, "n": n, "value": value, "low": low, "high": high}


def level(count: int, n: int = 100, uncertain: int = 0, unread: int = 0) -> dict[str, Any]:
    return {"positive": rate(count, n), "uncertain": rate(uncertain, n), "not_scored": unread,
            "not_applicable": 0}  # fmt: skip


def effect(count: int, n: int = 100) -> dict[str, Any]:
    return {"count": count, "value": count / n, "low": count / n - 0.1, "high": count / n + 0.1}


Levels = dict[str, dict[str, dict[str, Any]]]  # scorer, system, level under attack


def at(levels: Levels, differences: tuple[Any, ...] = (), **where: Any) -> dict[str, Any]:
    """One place; ``differences`` are (scorer, a, b, count, low, high, n_decisive)."""
    rows = []
    for scorer, systems in levels.items():
        defenses = {s: x for s, x in systems.items() if s != "none" and x["positive"]["n"]}
        for system, one in systems.items():
            value = one["positive"]["value"]
            rank = 1 + sum(x["positive"]["value"] < value for x in defenses.values()) if (
                system in defenses) else None  # fmt: skip
            effects = dict.fromkeys(("P", "J", "N"), None if rank is None else effect(7))
            rows.append({"scorer": scorer, "defense": system, "p0": systems.get("none", one),
                         "p1": one, "n": 90, "dropped": 10, "rank_p1": rank, "rank_N": rank,
                         **effects})  # fmt: skip
    return {
        "setting": "", "attack": "att", "budget": 1, "rows": rows,
        "orders": [{"scorers": list(levels)[:2],
                    "p1": {"n": 3, "tau_b": 1 / 3, "reversed": [["trust", "agg"]]},
                    "N": {"n": 0, "tau_b": None, "reversed": []}}],
        "differences": [
            {"scorer": s, "a": a, "b": b, "n": 100, "n_decisive": n, "groups": 10,
             "positive_a": 3, "positive_b": 3 - count, "count": count,
             "value": count / n if n else None, "low": low, "high": high}
            for s, a, b, count, low, high, n in differences
        ],
        **where,
    }  # fmt: skip


CHANGED = at(
    {
        "published": {"agg": level(42), "trust": level(46), "none": level(64)},
        "judge": {"agg": level(20, uncertain=12), "trust": level(7, uncertain=10),
                  "none": level(42)},
    },
    (("published", "agg", "trust", -4, -0.16, 0.09, 100),
     ("judge", "agg", "trust", 11, 0.039, 0.243, 77)),
)  # fmt: skip


def found(*cells: dict[str, Any], **changes: Any) -> dict[str, Any]:
    scorers = list(dict.fromkeys(row["scorer"] for one in cells for row in one["rows"]))
    counts = {"answers": 400, "positive": 90, "negative": 290, "uncertain": 15, "not_scored": 5,
              "not_applicable": 0, "conflicting": 0}  # fmt: skip
    return {
        "scorers": scorers, "answers": 400, "distinct": 380, "cells": list(cells),
        "coverage": [{"scorer": name, **counts} for name in scorers],
        "pairs": [{"scorers": scorers[:2], "n": 380, "unread": 4, "table": [[40, 30, 5],
                   [2, 300, 3], [0, 0, 0]], "n_decisive": 372, "agreed": 340, "kappa": 0.683,
                   "kappa_uncertain": None}],
        "vanishing": None, **changes,
    }  # fmt: skip


# --------------------------------------------------------------------------------- the words


def test_the_claim_names_who_leads_under_which_label() -> None:
    assert leaders.claim(CHANGED) == (
        "Under published agg leads (within uncertainty); under judge trust leads"
    )
    assert leaders.changes(CHANGED)
    assert leaders.contest(CHANGED) == (
        "agg minus trust, in percentage points, on the queries that the label decides for both "
        "(how many of all stands beside): published -4.0 [-16.0, 9.0], 100/100; judge +14.3 "
        "[3.9, 24.3], 77/100."
    )


def test_a_lead_under_every_label_is_one_claim() -> None:
    same = at({s: {"a": level(5), "b": level(9), "none": level(60)} for s in ("x", "y")})
    assert leaders.claim(same).startswith("a leads under every label")
    assert not leaders.changes(same)
    assert leaders.contest(same) == ""


def test_a_tie_is_no_lead() -> None:
    tied = at({"x": {"a": level(5), "b": level(5)}, "y": {"a": level(4), "b": level(6)}})
    assert leaders.claim(tied).startswith("Under x a and b tie; under y a leads")


def test_a_label_that_read_few_answers_has_no_say_in_a_claim() -> None:
    human = {"agg": level(0, 20, unread=80), "trust": level(9, 20, unread=80)}
    levels: Levels = {
        "published": {"agg": level(42), "trust": level(46)},
        "judge": {"agg": level(20, 98, unread=2), "trust": level(27, 98, unread=2)},
        "human": human,
    }
    text = leaders.claim(at(levels))
    assert text.startswith("agg leads under every label")
    assert "human" not in text


def test_one_defense_is_said_to_lower_or_not_label_by_label() -> None:
    one = at({"published": {"d": level(60), "none": level(60)},
              "judge": {"d": level(11), "none": level(35)}})  # fmt: skip
    assert leaders.claim(one) == (
        "d leaves it as it is under published (60/100 -> 60/100); it lowers the level under "
        "judge (35/100 -> 11/100)"
    )


def test_without_a_defense_the_widest_disagreement_is_named() -> None:
    places = [
        at({"published": {"none": level(p)}, "judge": {"none": level(j)}}, attack=name)
        for name, p, j in (("mild", 50, 48), ("wild", 90, 30))
    ]
    assert leaders.finding(found(*places)) == (
        "The level under attack depends on the label most for wild, p = 1 (without a defense): "
        "30/100 by judge, 90/100 by published."
    )
    assert leaders.finding(found(places[1])) == (
        "Without a defense the level under attack is 30/100 by judge and 90/100 by published."
    )


def test_over_several_places_the_changes_are_counted() -> None:
    same = at({s: {"agg": level(5), "trust": level(9)} for s in ("published", "judge")}, budget=5)
    text = leaders.finding(found(CHANGED, same))
    assert text.startswith(
        "Which defense leads depends on the label for 1 of 2 attacks and budgets"
    )
    assert "att, p = 1: under published agg leads" in text
    assert "the same under every label, for all 2" in leaders.finding(found(same, same))


def test_nothing_read_is_said_and_not_claimed() -> None:
    nobody = at({s: {"none": level(0, 0, unread=50)} for s in ("published", "judge")})
    assert leaders.finding(found(nobody)) == "Fewer than two labels read these answers."


# -------------------------------------------------------------------------------- the tables


def test_levels_have_rank_interval_uncertain_and_not_scored() -> None:
    human = {"agg": level(0, 0, unread=100), "none": level(3, 20, 2, 80)}
    place = at({"published": {"agg": level(42), "none": level(64)}, "human": human})
    grid = comparison.levels(place, ["published", "human", "judge"], "x")
    assert grid.rows == (
        ("agg", "1. 42/100 (42.0%) [32.0, 52.0]", "not scored (100)", "not run"),
        ("(no defense)", "64/100 (64.0%) [54.0, 74.0]",
         "3/20 (15.0%) [5.0, 25.0], 2 uncertain, 80 not scored", "not run"),
    )  # fmt: skip


def test_differences_have_their_denominator_and_orders_their_number() -> None:
    (row,) = comparison.differences(CHANGED, ["published", "judge"]).rows
    assert row == ("agg minus trust", "-4.0 [-16.0, 9.0], 100/100", "+14.3 [3.9, 24.3], 77/100")
    (order,) = comparison.orders(CHANGED).rows
    assert order == ("published and judge", "0.33, 3 defenses", "not estimable, 0 defenses",
                     "trust / agg", "not estimable")  # fmt: skip


def test_a_difference_that_nothing_decides_is_not_estimable() -> None:
    place = at({"x": {"a": level(1)}}, (("x", "a", "b", 0, None, None, 0),
                                        ("y", "a", "b", 1, None, None, 4)))  # fmt: skip
    (row,) = comparison.differences(place, ["x", "y"]).rows
    assert row[1:] == ("not estimable, 0/100", "+25.0 [not estimable], 4/100")


def test_effects_of_a_label_that_read_nothing_are_not_estimable() -> None:
    place = at({"x": {"a": level(1), "none": level(9)}, "human": {"a": level(0, 0, unread=9)}})
    rows = comparison.effects(place, ["x", "human"]).rows
    assert rows[0][:5] == ("a", "x", "7/90 [-3.0, 17.0]", "7/90 [-3.0, 17.0]", "+7.0 [-3.0, 17.0]")
    assert rows[1][2:5] == ("not estimable",) * 3
    assert rows[1][-1] == "not scored, not scored"


def test_agreement_and_coverage_stand_with_their_counts() -> None:
    (pair,) = comparison.pairs(found(CHANGED)).rows
    assert pair == ("published and judge", "380", "40", "30", "2", "300", "0, 8", "340/372",
                    "0.68", "not estimable")  # fmt: skip
    row = comparison.coverage(found(CHANGED)).rows[0]
    assert row == ("published", "395 of 400", "90", "290", "15", "5", "0", "0")


def vanishing(records: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    return {"from": "published", "to": "tokens", "count": 72, "of": 6070, "distinct": 45,
            "records": records, **changes}  # fmt: skip


RECORD = {
    "trial": "ab" * 32, "times": 2, "query_id": "q", "setting": "llama/nq", "attack": "att",
    "budget": 5, "defense": "none", "question": HOSTILE, "wanted": ["male"],
    "answer": f"females {HOSTILE}", "cut": [3, 9], "match": [2, 6],
}  # fmt: skip


def test_vanishing_successes_are_counted_and_listed() -> None:
    value = found(CHANGED, vanishing=vanishing([RECORD]))
    assert comparison.vanishing_text(value).startswith(
        "72 of 6,070 successes by published vanish under tokens"
    )
    grid = comparison.vanishing(value, several=True)
    (row,) = grid.rows
    assert row[2].startswith("... females ")
    assert row[2].endswith(" ...")
    assert row[3] == "llama/nq: att, p = 5"
    assert grid.notes == ("44 further distinct answers are not listed.",)
    assert "\u202e" not in "".join(row)


def test_no_success_and_no_second_rule_are_said_or_left_out() -> None:
    none = found(CHANGED, vanishing=vanishing([], count=0, of=0, distinct=0))
    assert "finds no success" in comparison.vanishing_text(none)
    kept = found(CHANGED, vanishing=vanishing([], count=0, of=9, distinct=0))
    assert comparison.vanishing_text(kept) == (
        "None of 9 successes by published vanishes under tokens."
    )
    assert comparison.vanishing_text(found(CHANGED)) == ""
    assert comparison.vanishing(found(CHANGED), several=False).rows == ()


def test_the_terminal_prints_the_claim_and_one_place() -> None:
    value = {"label_comparison": found(CHANGED), "settings": [""], "defenses": ["agg", "trust"]}
    table = tables.label_table(value)
    assert table is not None
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Under published agg leads (within uncertainty); under judge trust leads." in text
    assert re.search(r"trust +2\. 46/100 +1\. 7/100", text)
    assert "?10" in text
    assert tables.label_table({"label_comparison": None}) is None


# --------------------------------------------------------------------------------- the chart


def test_the_slope_chart_is_well_formed_named_and_equal_each_time() -> None:
    svg = slope_chart("title <x>", ["published", "judge"], CHANGED["rows"])
    assert svg == slope_chart("title <x>", ["published", "judge"], CHANGED["rows"])
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == "title <x>"
    texts = re.findall(r">([^<>]+)</text>", svg)
    for text in ("published", "judge", "agg 20/100", "trust 7/100", "(no defense) 42/100"):
        assert text in texts
    assert "agg: published 42/100 (42.0%) [32.0, 52.0], judge 20/100" in svg
    assert "12 uncertain" in svg


def test_a_system_that_a_label_did_not_read_has_no_point_and_is_never_zero() -> None:
    human = {"agg": level(3, 20, unread=80), "lone": level(0, 0, unread=100)}
    rows = at({"published": {"agg": level(42), "lone": level(9)}, "human": human})["rows"]
    svg = slope_chart("x", ["published", "human"], rows)
    texts = re.findall(r">([^<>]+)</text>", svg)
    assert "lone" in texts
    assert "agg 3/20" in texts
    assert "read 0 to 20 of 100" in texts
    assert "lone: published 9/100 (9.0%) [0.0, 19.0]</desc>" in svg
    nothing = at({"human": {"none": level(0, 0, unread=5)}})["rows"]
    assert slope_chart("x", ["human"], nothing) == ""


def test_a_hostile_defense_is_drawn_as_text() -> None:
    rows = at({"x": {HOSTILE: level(4)}, "y": {HOSTILE: level(5)}})["rows"]
    svg = slope_chart(HOSTILE, ["x", "y"], rows)
    ElementTree.fromstring(svg)
    assert "<script" not in svg
    assert "<img" not in svg


def test_ten_defenses_have_ten_labels_apart_from_each_other() -> None:
    rows = at({s: {f"defense {i}": level(40) for i in range(10)} for s in ("x", "y")})["rows"]
    svg = slope_chart("x", ["x", "y"], rows)
    heights = {
        float(y) for y in re.findall(r'translate\([\d.]+ ([\d.]+)\)">defense', svg)
    } or {float(y) for y in re.findall(r'y="([\d.]+)"[^>]*>defense', svg)}  # fmt: skip
    assert len(heights) == 10
    ordered = sorted(heights)
    assert min(b - a for a, b in pairwise(ordered)) > 12


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8))
def test_labels_move_apart_keep_their_order_and_stay_inside(heights: list[float]) -> None:
    placed = apart(heights, 10, 0, 100)
    order = sorted(range(len(heights)), key=lambda i: (heights[i], i))
    moved = [placed[i] for i in order]
    assert all(b - a >= 10 - 1e-6 for a, b in pairwise(moved))
    assert min(moved) >= -1e-6
    assert max(moved) <= 100 + 1e-6


@pytest.mark.parametrize("heights", [[10.0, 60.0], [50.0]])
def test_labels_that_are_apart_do_not_move(heights: list[float]) -> None:
    assert apart(heights, 10, 0, 100) == heights
