"""The cost explorer: its table, its script (in node, where there is one), hostile names."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import pytest

from ragassay.report import decision
from ragassay.report.decision import (
    fixed,
    fragment,
    page,
    script_hash,
    section,
    table,
    thresholds_line,
)
from ragassay.report.markup import embed, template_text
from ragassay.report.page import Page, page_html
from ragassay.stats.decision import Costs, bin_probabilities

NODE = shutil.which("node")


def data(**other: Any) -> dict[str, Any]:
    return {
        "rho": 9.0, "c_a": 0.3,
        "cells": [
            {"defense": "learned", "rung": "template", "queries": 40, "unscored": [3, 1],
             "bins": [[0.0, 200, 0], [0.02, 30, 4], [0.1, 20, 6], [0.5, 9, 40], [0.97, 1, 149]],
             "saturated": ["containment", "length"]},
            {"defense": "perplexity", "rung": "both", "filler": "shuffled", "queries": 0,
             "bins": []},
        ],
        **other,
    }  # fmt: skip


def test_the_table_follows_from_the_bins() -> None:
    first, empty = table(data(), Costs(9, 0.3))
    assert first[:3] == ("5 / 233", "46 / 29", "149 / 1")
    assert first[3].startswith("5/200 (2.5%) [1.1, 5.7]")
    assert first[4].startswith("1/263 (0.4%)")
    assert first[5] == fixed(1000 * (9 * 5 + 1 + 0.3 * 75) / 40, 1) == "1712.5"
    assert empty == ("0 / 0",) * 3 + ("not estimable",) * 3
    two = table(data(), Costs(9))[0]
    assert two[:3] == ("5 / 233", "0 / 0", "195 / 30")


def test_the_page_shows_the_table_without_a_script() -> None:
    html = fragment(data())
    without = re.sub(r"<script.*?</script>", "", html, flags=re.S)
    for figure in table(data(), Costs(9, 0.3))[0]:
        assert f"<td>{figure}</td>" in without
    assert '<form class="costs" hidden>' in without
    assert "\u03c1 = 9.00, c_A = 0.30. Escalated from p = 0.0333" in without
    assert "\u2021 a cue of how the poison was written saturates: containment, length." in without
    assert "src=" not in html
    assert "http" not in html


def test_names_are_harmless_and_the_script_gets_numbers_only() -> None:
    evil = '</script><img src=x onerror="alert(1)">\u202e'
    hostile = data(cells=[{**data()["cells"][0], "defense": evil, "rung": evil,
                           "saturated": [evil]}])  # fmt: skip
    html = fragment(hostile)
    assert "<img" not in html
    assert "\u202e" not in html
    numbers = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.S)
    assert numbers is not None
    assert re.fullmatch(r'[\d\[\],.:{}"a-z_-]+', numbers[1])
    assert embed(json.loads(numbers[1])) is not None
    assert html.count("<script") == 2
    assert f"script-src '{script_hash()}'" in page(data(), title=evil)
    assert "<img" not in page(data(), title=evil)


def test_a_page_of_a_protocol_allows_the_script_and_shows_the_section() -> None:
    html = page_html(Page(name="n", finding="f", sections=(section(data()),)), {}, {})
    assert f"'{script_hash()}'" in html.split("</head>")[0]
    assert html.count(template_text("decision.js")) == 1
    assert 'href="#h-costs"' in html
    assert table(data(), Costs(9, 0.3))[0][3] in html


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ({"bins": [[0.5, 1, -1]]}, "integers >= 0"),
        ({"bins": [[0.5, 1, True]]}, "integers >= 0"),
        ({"bins": [[1.5, 1, 1]]}, r"lie in \[0, 1\]"),
        ({"bins": [[float("nan"), 1, 1]]}, r"lie in \[0, 1\]"),
        ({"bins": [[0.5, 1]]}, "bins of p, clean and poison"),
        ({"bins": [[0.5, 1, 1]] * 1001}, "at most 1000 bins"),
    ],
)
def test_wrong_data_are_refused(cell: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fragment(data(cells=[{**data()["cells"][0], **cell}]))


def test_bins_of_the_statistics_fit() -> None:
    bins = bin_probabilities([0.1, 0.1, 0.9], [False, True, True])
    cell = {**data()["cells"][0], "bins": [[b.p, b.clean, b.poison] for b in bins]}
    assert table(data(cells=[cell]), Costs(9))[0][2] == "2 / 1"


def test_what_is_said_of_thresholds() -> None:
    assert thresholds_line(Costs(9, 0.95)) == (
        "Blocked from p = 0.1000. Escalating is never cheapest."
    )


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_script_computes_what_python_does() -> None:
    costs = [(rho, c_a) for rho in (0.1, 1.0, 9.0, 19.0, 137.25, 1000.0)
             for c_a in (None, 0.0, 0.03, 0.25, 0.3, 0.5, 0.9, 1.0)]  # fmt: skip
    given = data()
    given["cells"].append({
        "defense": "d", "rung": "r", "queries": 7, "unscored": [0, 0],
        "bins": [[i / 100, i * i % 7, 3 * i % 11] for i in range(101)],
    })  # fmt: skip
    cells = [[c["queries"], c.get("unscored", [0, 0]), c["bins"]] for c in given["cells"]]
    program = template_text("decision.js") + (
        f";const cells = {json.dumps(cells)}, costs = {json.dumps(costs)};"
        "console.log(JSON.stringify(costs.map(([r, a]) => [ragassayDecision.state(r, a),"
        " cells.map((c) => ragassayDecision.figures(c, r, a))])));"
    )
    assert NODE is not None
    done = subprocess.run(
        [NODE, "-"], input=program, capture_output=True, text=True, encoding="utf-8", check=True,
        timeout=60,
    )  # fmt: skip
    for (rho, c_a), (state, figures) in zip(costs, json.loads(done.stdout), strict=True):
        assert state == decision._state(Costs(rho, c_a))
        assert [tuple(row) for row in figures] == table(given, Costs(rho, c_a)), (rho, c_a)
