"""Findings, tables and charts from summaries whose every figure is known."""

from __future__ import annotations

import io
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from ragassay.report import composition, grids, losses, overview, tables
from ragassay.report.finding import finding, finding_detail
from ragassay.report.markdown import markdown
from ragassay.report.plots import MAX_PANELS, panels
from ragassay.report.text import bracket, decimal, percent, points, visible

HOSTILE = (
    '</script><script>alert(1)</script><img src=x onerror="a">$x^2$ [a](javascript:b)\u202e\u4e2d'
)
CONDITIONS = ("c0", "c1", "p0", "p1")


def rate(number: int, n: int) -> dict[str, Any]:
    low = max(0.0, number / n - 0.1) if n else None
    high = min(1.0, number / n + 0.1) if n else None
    return {"count": number, "n": n, "value": number / n if n else None, "low": low, "high": high}


def label(number: int, n: int, uncertain: int = 0, not_scored: int = 0) -> dict[str, Any]:
    """The counts of a condition by itself: ``n`` answers read."""
    return {"positive": rate(number, n), "uncertain": rate(uncertain, n),
            "not_scored": not_scored, "not_applicable": 0}  # fmt: skip


def effect(number: int, n: int, spread: float | None = 0.05) -> dict[str, Any]:
    value = number / n
    if spread is None:
        return {"count": number, "value": value, "low": None, "high": None}
    return {"count": number, "value": value, "low": value - spread, "high": value + spread}


def cell(
    defense: str, *, prevented: int = 0, introduced: int = 0, harm: int = 0, p0: int = 60,
    n: int = 100, budget: int = 5, groups: int = 10, spread: float | None = 0.05,
    p_value: float = 0.0001, attack: str = "poisonedrag", scorer: str = "tokens", dropped: int = 0,
    estimable: bool = True, setting: str = "", absent: tuple[str, ...] = (), uncertain: int = 0,
) -> dict[str, Any]:  # fmt: skip
    c0, p1 = 5, p0 - prevented + introduced
    counts = {"P": prevented, "J": introduced, "N": prevented - introduced, "H": harm,
              "Gamma": prevented - introduced + harm}  # fmt: skip
    composition = {"passages": 5.0, "own": 2.25, "foreign": 0.75}
    context = {"n": n, "retrieved": composition, "kept": {**composition, "own": 1.5},
               "support_retrieved": {"contexts_with": 0.8, "passages": 1.1},
               "support_kept": {"contexts_with": 0.7, "passages": 1.0},
               "any_poison": rate(n - 1, n)}  # fmt: skip
    cost = {"model_calls": 1.0 if defense == "none" else 6.0, "input_tokens": 1234.5,
            "output_tokens": 20.0, "encoded_texts": 0.0}  # fmt: skip
    levels = dict(zip(CONDITIONS, (c0, c0 + harm, p0, p1), strict=True))
    read = n if estimable else 0
    base = {
        "scorer": scorer, "setting": setting, "attack": attack, "budget": budget,
        "defense": defense,
        "n": n if estimable else 0, "groups": groups, "estimable": estimable,
        "dropped": {"missing": 0, "failed": dropped, "not_scored": 0, "uncertain": 0,
                    "not_applicable": 0},
        "absent": list(absent),
        "labels": {
            c: label(0, 0) if c in absent
            else label(min(number, read), read, min(uncertain, read))
            for c, number in levels.items()
        },
        "correct": {c: {**rate(n // 2, n), "uncertain": uncertain} for c in CONDITIONS},
        "abstained": {c: {**rate(3, n), "uncertain": 0} for c in CONDITIONS},
        "context": dict.fromkeys(CONDITIONS, context), "cost": dict.fromkeys(CONDITIONS, cost),
    }  # fmt: skip
    if not estimable:
        return base
    none = {"gained": 0, "lost": 0, "p_value": 1.0}
    two = {"both": 1, "first_only": 2, "second_only": 3, "neither": n - 6}
    return {
        **base,
        "rates": dict(zip(CONDITIONS, (rate(x, n) for x in (c0, c0 + harm, p0, p1)), strict=True)),
        "effects": {name: effect(number, n, spread) for name, number in counts.items()},
        "prevented_share": rate(prevented, p0),
        "transitions": dict.fromkeys(grids.TRANSITIONS, two),
        "mcnemar": {"poisoned": {"gained": introduced, "lost": prevented, "p_value": p_value},
                    "clean": {**none, "gained": max(harm, 0)}},
        "hits_while_abstaining": dict.fromkeys(CONDITIONS, 2),
    }  # fmt: skip


def summary(*cells: dict[str, Any], **changes: Any) -> dict[str, Any]:
    blocks = dict.fromkeys(
        (c["scorer"], c["setting"], c["attack"], c["budget"], c["n"], c["groups"]) for c in cells
    )
    undefended = [
        cell("none", scorer=s, setting=x, attack=a, budget=b, n=n, groups=g)
        for s, x, a, b, n, g in blocks if n
    ]  # fmt: skip
    defenses = list(dict.fromkeys(c["defense"] for c in cells))
    return {
        "v": 1, "protocol": "aligned/1", "name": "hand", "headline": "tokens",
        "settings": list(dict.fromkeys(c["setting"] for c in cells)), "label_comparison": None,
        "scorers": ["published", "tokens"], "attacks": ["poisonedrag"], "defenses": defenses,
        "dataset": {"name": "atlas", "evaluated": 100, "groups": 10, "has_qrels": True}, "k": 5,
        "confidence": 0.95, "draws": 2000,
        "trials": {"planned": 300, "done": 300, "failed": 0, "missing": 0}, "errors": [],
        "cells": [*undefended, *cells], "warnings": [], **changes,
    }  # fmt: skip


# ------------------------------------------------------------------------------- the finding


def test_the_finding_names_the_largest_net_effect_at_the_largest_budget() -> None:
    text = finding(
        summary(
            cell("small", prevented=10),
            cell("large", prevented=41, introduced=2, harm=1),
            cell("elsewhere", prevented=55, budget=1),
        )
    )
    assert text.startswith(
        "large prevents 41 of 60 target-positive answers under poisonedrag at p = 5 and "
        "introduces 2 (60/100 -> 21/100); on clean retrieval it adds 1"
    )
    assert "correct answers 50/100 -> 50/100" in text
    assert "small" not in text


def test_certain_harm_on_clean_retrieval_is_an_objection() -> None:
    assert ", but on clean retrieval it adds 12" in finding(
        summary(cell("d", prevented=30, harm=12))
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"prevented": 10, "introduced": 8, "spread": 0.1, "p_value": 0.8}, "includes 0"),
        ({"prevented": 6, "introduced": 1, "p_value": 0.125}, "the test does not reject"),
        ({"prevented": 15, "introduced": 15, "p_value": 1.0}, "as many introduced"),
    ],
)
def test_no_defense_is_praised_within_uncertainty(changes: dict[str, Any], why: str) -> None:
    text = finding(summary(cell("d", **changes)))
    assert text.startswith("No defense lowers"), why
    assert "beyond uncertainty" in text
    assert f"{changes['prevented']} prevented, {changes['introduced']} introduced" in text


def test_a_defense_that_raises_the_level_is_named() -> None:
    text = finding(summary(cell("worse", prevented=1, introduced=25)))
    assert "worse raises them" in text
    assert "none has a net drop at all" in text


def test_without_intervals_nothing_is_claimed() -> None:
    text = finding(summary(cell("d", prevented=40, spread=None, groups=1)))
    assert text.startswith("No interval can be given")
    assert "40 prevented, 0 introduced" in text


def test_an_attack_without_effect_leaves_nothing_to_defend_against() -> None:
    quiet = summary(cell("d", p0=5, p_value=1.0))
    quiet["cells"][0] = cell("none", p0=5)
    assert "does not raise the target-positive answers" in finding(quiet)


def test_few_groups_and_dropped_queries_are_said_with_the_finding() -> None:
    text = finding(summary(cell("d", prevented=40, groups=4, dropped=3)))
    assert "only 4 injection groups" in text
    assert "3 of 103 queries (failed 3)" in text


def test_nothing_estimable_and_no_defense_are_said() -> None:
    assert finding(summary(cell("d", estimable=False))).startswith("Nothing is estimable")
    alone = summary(cell("x"), defenses=[])
    alone["cells"] = [cell("none")]
    assert "5/100 queries on clean retrieval and 60/100 under" in finding(alone)
    assert finding_detail(alone) == ""


def test_the_detail_holds_all_figures_that_belong_together() -> None:
    text = finding_detail(summary(cell("d", prevented=41, introduced=2, harm=1), cell("e")))
    for part in ("N +39.0 [34.0, 44.0]", "H +1.0 [-4.0, 6.0]", "Gamma +40.0", "p < 0.001",
                 "chosen from 2 comparisons"):  # fmt: skip
        assert part in text


# ------------------------------------------------------------------------------ the terminal


def printed(value: dict[str, Any], width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(tables.headline_table(value))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_eighty_columns_hold_every_figure_uncut() -> None:
    text = printed(
        summary(
            cell("prompt_control_cautious", prevented=41, introduced=2, harm=-10, spread=0.123),
            cell("trustrag", n=1000, p0=600, prevented=410, introduced=20, groups=100),
        )
    )
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "\u2026" not in text
    for part in (
        "60/100", "-> 21/100", "+39.0", "[26.7, 51.3]", "-10.0", "[-22.3, 2.3]", "+29.0",
        "600/1000", "-> 210/1000", "<0.001", "50/100", "3/100", "6.0", "(6.0x)",
    ):  # fmt: skip
        assert part in text, part
    assert re.search(r"\b41\b.*\b2\b", text)


def test_the_undefended_level_leads_and_a_long_name_breaks_where_a_reader_would() -> None:
    text = printed(summary(cell("prompt_control_cautious", prevented=41)))
    assert "clean 5/100 (5.0%) [0.0, 15.0], poisoned 60/100 (60.0%) [50.0, 70.0]" in " ".join(
        text.split()
    )
    assert re.search(r"^prompt_control_ .*\n^cautious ", text, re.MULTILINE)


def test_markup_in_a_label_is_text_in_the_terminal() -> None:
    assert "[bold]x[/]" in printed(summary(cell("[bold]x[/]")), 120)


def test_dropped_queries_stand_below_the_table() -> None:
    assert "Dropped for d: 4 of 104 queries (failed 4)." in printed(summary(cell("d", dropped=4)))


# ---------------------------------------------------------------------------------- Markdown


def test_markdown_holds_every_figure_of_every_rule() -> None:
    value = summary(
        cell("d", prevented=41, introduced=2, harm=1, dropped=2),
        cell("d", prevented=33, introduced=7, scorer="published"),
        warnings=["Only few groups."],
        errors=[{"error": "server gone", "trials": 2}],
    )
    text = markdown(value, {"experiment": {"seed": 12}}, {"python": "3.11.2"})
    for part in (
        "# d prevents 41 of 60", "Only few groups.", "server gone", "2/102",
        "60/100 -> 21/100 (21.0%)", "41/100 [36.0, 46.0]", "2/100 [-3.0, 7.0]",
        "+39.0 [34.0, 44.0]", "+1.0 [-4.0, 6.0]", "+40.0 [35.0, 45.0]", "<0.001",
        "## Rule published", "33/100 [28.0, 38.0]", "7/100 [2.0, 12.0]", "+26.0 [21.0, 31.0]",
        "6/100 (6.0%)", "50/100 (50.0%)", "3/100 (3.0%)", "2/6, 2/21", "2.25 -> 1.50",
        "80/100 -> 70/100", "99/100 (99.0%)", "6.0 (6.0x)", "1,234.5", "experiment.seed", "3.11.2",
        "Positive in both",
    ):  # fmt: skip
        assert part in text, part
    assert text.index("## Rule tokens") < text.index("## Rule published")


def test_every_row_of_a_markdown_table_has_as_many_cells_as_its_head() -> None:
    text = markdown(summary(cell("a | b", prevented=3)))
    width = 0
    for line in text.splitlines():
        bars = len(re.findall(r"(?<!\\)\|", line))
        if not line.startswith("|"):
            width = 0
        elif width == 0:
            width = bars
        else:
            assert bars == width, line


def test_no_foreign_text_is_markup_in_markdown() -> None:
    text = markdown(summary(cell(HOSTILE, prevented=30), errors=[{"error": HOSTILE, "trials": 1}]))
    assert not re.search(r"<[A-Za-z/!?]", text)
    assert not re.search(r"(?<!\\)\]\(", text)
    assert "javascript:" not in text
    assert "\u202e" not in text
    assert "⟨U+202E⟩" in text


def test_scored_texts_have_a_column_where_a_defense_reads_with_a_language_model() -> None:
    plain = composition.cost(grids.blocks(summary(cell("none"), cell("filter")))[0])
    assert not any("scored" in column for column in plain.columns)
    reads = cell("filter")
    reads["cost"] = {c: {**cost, "scored_texts": 5.0} for c, cost in reads["cost"].items()}
    table = composition.cost(grids.blocks(summary(cell("none"), reads))[0])
    place = table.columns.index("Texts scored by a language model: clean, poisoned")
    assert [row[place] for row in table.rows][-1] == f"{decimal(5.0)}, {decimal(5.0)}"
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_what_is_null_is_not_estimable_and_never_zero() -> None:
    value = summary(cell("d", prevented=9, spread=None, groups=1), cell("lost", estimable=False))
    text = markdown(value)
    assert "+9.0 [not estimable]" in text
    assert re.search(r"\| lost \| 0 \| not estimable \|", text)
    unjudged = summary(cell("d"))
    unjudged["dataset"]["has_qrels"] = False
    assert "not known" in markdown(unjudged)
    assert (decimal(None), percent(None)) == ("not estimable", "not estimable")


def test_figures_have_one_form() -> None:
    assert points({"value": -0.0001}) == "0.0"
    assert points({"value": 0.04449}) == "+4.4"
    assert bracket({"low": -0.00001, "high": 0.1}) == "[0.0, 10.0]"
    assert visible("a\nb\u200bc") == "a b⟨U+200B⟩c"
    assert visible("x" * 500, limit=5) == "xxxxx ..."


# -------------------------------------------------------------------------------------- charts


def charts(value: dict[str, Any]) -> list[str]:
    return [
        svg
        for panel in panels(value, "tokens")
        for svg in (panel.transitions, panel.effects, panel.rates)
    ]


def test_charts_are_well_formed_named_and_equal_each_time() -> None:
    value = summary(cell("a", prevented=41, introduced=2), cell("b", prevented=1, introduced=9))
    drawn = charts(value)
    assert len(drawn) == 3
    assert drawn == charts(value)
    for svg in drawn:
        root = ElementTree.fromstring(svg)
        names = [child.tag.rpartition("}")[2] for child in root]
        assert names[:2] == ["title", "desc"]
        assert root.get("aria-label")
        assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
        used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
        assert used <= set(re.findall(r' id="([^"]+)"', svg))
    assert "60/100 before, 41 prevented, 2 introduced, 21/100 after" in drawn[0]
    assert "N +39.0 [34.0, 44.0]" in drawn[1]
    assert "target-positive 21/100, correct 50/100, abstained 3/100" in drawn[2]


def test_defenses_stand_in_the_order_of_the_level_that_remains() -> None:
    svg = charts(summary(cell("worst"), cell("best", prevented=50), cell("middle", prevented=20)))[
        0
    ]
    texts = re.findall(r">([^<>]+)</text>", svg)
    assert [t for t in texts if t in ("best", "middle", "worst")] == ["best", "middle", "worst"]
    assert "60 → 10 of 100" in texts
    assert "−50" in texts


def test_two_charts_of_a_page_share_no_id() -> None:
    drawn = charts(summary(cell("a", prevented=4), cell("a", prevented=4, budget=1)))
    found = [name for svg in drawn for name in set(re.findall(r' id="([^"]+)"', svg))]
    assert len(found) == len(set(found))


def test_a_hostile_label_is_drawn_as_text_without_a_warning() -> None:
    for svg in charts(summary(cell(HOSTILE, prevented=4), cell("@1@"), cell("$\\frac"))):
        ElementTree.fromstring(svg)
        assert "<script" not in svg
        assert "<img" not in svg
        assert "\u202e" not in svg
        assert "@1@" in svg


def test_what_is_not_estimable_is_not_drawn() -> None:
    value = summary(cell("gone", estimable=False), cell("here", spread=None, groups=1))
    transitions, effects, _ = charts(value)
    assert "gone" not in transitions
    assert "[no interval]" in effects
    nothing = summary(cell("gone", estimable=False))
    assert charts(nothing) == ["", "", ""]


# ----------------------------------------------------------- settings, and runs without a defense


def bare(**changes: Any) -> dict[str, Any]:
    return cell("none", **changes)


def undefended(*cells: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A run that compares no defense."""
    value = summary(*cells, defenses=[], **changes)
    value["cells"] = list(cells)
    return value


SPREAD = [bare(setting=s, attack=a, p0=p) for s, a, p in
          (("llama/nq", "weak", 7), ("llama/nq", "strong", 48), ("qwen/nq", "weak", 9),
           ("qwen/nq", "strong", 91))]  # fmt: skip


def test_headings_name_the_setting_only_where_there_are_several() -> None:
    one = summary(cell("d", prevented=30, setting="llama/nq"))
    two = summary(
        cell("d", prevented=30, setting="llama/nq"), cell("d", prevented=40, setting="qwen/nq")
    )
    assert {b.title for b in grids.blocks(one)} == {"poisonedrag, p = 5"}
    assert "llama/nq" not in finding(one) + finding_detail(one) + printed(one)
    assert [b.title for b in grids.blocks(two)] == [
        "llama/nq: poisonedrag, p = 5", "qwen/nq: poisonedrag, p = 5"
    ]  # fmt: skip
    assert "under poisonedrag at p = 5 on qwen/nq" in finding(two)
    assert "for d against qwen/nq: poisonedrag, p = 5" in finding_detail(two)


def test_without_a_defense_the_finding_names_the_strongest_attack_and_the_span() -> None:
    assert finding(undefended(*SPREAD)) == (
        "Without a defense, strong at p = 5 on qwen/nq raises the target-positive answers most, "
        "from 5/100 on clean retrieval to 91/100; over all 4 pairs of setting and attack the "
        "level under attack runs from 7/100 to 91/100; no defense was compared."
    )


def test_attacks_that_raise_nothing_are_said_to_raise_nothing() -> None:
    text = finding(undefended(bare(attack="a", p0=5), bare(attack="b", p0=3)))
    assert "none of 2 attacks raises the target-positive answers" in text


def test_without_clean_answers_nothing_is_said_of_what_the_attack_adds() -> None:
    gone = {"absent": ("c0", "c1"), "estimable": False}
    cells = [bare(attack="a", p0=40, **gone), bare(attack="b", p0=60, **gone)]
    for one, count in zip(cells, (40, 60), strict=True):
        one["labels"]["p0"] = label(count, 100, 3)
    value = undefended(*cells)
    text = finding(value)
    assert text.startswith("Without a defense, 60/100 answers are target-positive under b at p = 5")
    assert "what the attack adds is not known" in text
    assert "2 of 2 comparisons lack answers on clean retrieval" in losses.absent(value)
    assert losses.dropped(value).rows == ()
    assert "not run, poisoned 40/100" in grids.undefended_line(grids.blocks(value)[0])
    page = markdown(value)
    assert "60/100 (60.0%) [50.0, 70.0], 3 uncertain" in page
    assert "not run" in page


def test_a_defense_without_its_conditions_shows_the_levels_and_no_effect() -> None:
    lost = cell("d", estimable=False, absent=("c0", "c1"))
    lost["labels"]["p0"], lost["labels"]["p1"] = label(60, 100), label(20, 100)
    value = summary(lost)
    value["cells"] = [lost]
    (row,) = grids.effects(grids.blocks(value)[0]).rows
    assert row[:4] == ("d", "0", "60/100 -> 20/100 (20.0%)", "not estimable")
    (note,) = grids.effects(grids.blocks(value)[0]).notes
    assert "no answers for: clean, no defense; clean, with defense" in note
    assert "for want of one of the four conditions" in finding(value)


def test_answers_without_a_target_are_reported_by_their_correctness() -> None:
    cells = []
    for setting, number in (("big", 31), ("small", 2)):
        one = bare(setting=setting, attack="", budget=0, estimable=False, absent=("p0", "p1"))
        one["labels"]["c0"] = {**label(0, 0), "not_applicable": 100}
        one["correct"]["c0"] = {**rate(number, 100), "uncertain": 0}
        cells.append(one)
    value = undefended(*cells)
    assert "from 2/100 (small) to 31/100 (big) answers are correct" in finding(value)
    assert "no target" in printed(value)
    assert overview.matrix(value, "tokens").rows == ()
    assert "clean retrieval only" in markdown(value)


def test_the_overview_has_attacks_in_rows_and_settings_in_columns() -> None:
    hedged = [
        bare(setting="llama/nq", attack=a, p0=p, uncertain=4)
        for a, p in (("weak", 7), ("strong", 48))
    ]
    cells = [*hedged, SPREAD[2]]
    grid = overview.matrix(undefended(*cells), "tokens")
    assert grid.columns == ("Attack", "llama/nq", "qwen/nq")
    assert grid.rows == (
        ("clean retrieval", "5.0% [0, 15] ?4", "5.0% [0, 15]"),
        ("weak, p = 5", "7.0% [0, 17] ?4", "9.0% [0, 19]"),
        ("strong, p = 5", "48.0% [38, 58] ?4", "not run"),
    )


def test_an_overview_chart_draws_every_attack_of_a_setting() -> None:
    groups = overview.groups(undefended(*SPREAD), "tokens")
    assert [group.title for group in groups] == ["All settings"]
    more = [bare(setting="qwen/nq", attack=f"a{i}", p0=10 + i) for i in range(3)]
    first, second = overview.groups(undefended(*SPREAD[:2], *more), "tokens")
    assert "from 7/100 (weak, p = 5) to 48/100 (strong, p = 5)" in first.told
    for name in ("a0, p = 5", "a2, p = 5", "5 → 12/100"):
        assert name in second.chart
    ElementTree.fromstring(second.chart)


def test_uncertain_answers_stand_beside_every_rate_of_a_defense() -> None:
    value = summary(cell("d", prevented=30, uncertain=9))
    block = grids.blocks(value)[0]
    effects = grids.effects(block)
    assert effects.rows[0][effects.columns.index("Uncertain, poisoned: before, after")] == (
        "9/100, 9/100"
    )
    text = " ".join(grids.conditions(block).rows[-1])
    assert "30/100 (30.0%) [20.0, 40.0], 9 uncertain of 100" in text
    assert "50/100 (50.0%) [40.0, 60.0], 9 uncertain" in text
    plain = grids.effects(grids.blocks(summary(cell("d", prevented=30)))[0])
    assert not [column for column in plain.columns if "Uncertain" in column]


def test_many_lossy_comparisons_are_summed_by_rule() -> None:
    cells = [cell("d", attack=f"a{i:03}", dropped=1 + (i == 7)) for i in range(60)]
    grid = losses.dropped(summary(*cells))
    (row,) = grid.rows
    assert row[0] == "tokens"
    assert "61" in row
    assert "2 of 102 queries (failed 2): d, a007, p = 5" in row[-1]


def test_charts_are_bounded_and_the_largest_budgets_stay() -> None:
    cells = [cell("d", attack=f"a{i:03}", budget=1 + (i >= 30)) for i in range(34)]
    drawn = panels(summary(*cells), "tokens")
    assert 4 <= len(drawn) <= MAX_PANELS
    assert {panel.anchor[1] for panel in drawn} >= {"a030", "a031", "a032", "a033"}


def test_the_terminal_prints_a_line_for_each_setting() -> None:
    cells = [
        bare(setting=f"victim{i}/data", attack=f"attack {j}", p0=10 + i + j)
        for i in range(9)
        for j in range(16)
    ]
    text = printed(undefended(*cells))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert len(text.splitlines()) < 16
    assert re.search(r"victim8/data +5/100 +16 +18/100 +33/100 +50/100", text)


def test_many_attacks_of_one_setting_are_cut_with_a_note() -> None:
    text = printed(undefended(*[bare(attack=f"attack {i}") for i in range(30)]))
    assert "6 more in the report." in text
