"""The cost explorer: what each filter passes, escalates and blocks, for costs that a reader sets.

A fragment of HTML that needs nothing from elsewhere. Its table stands in the page for the costs
that the data name; a small script recomputes it as sliders move. Without scripts the sliders stay
hidden and the table is what it was. The script reads numbers only, and writes texts only.

The input is a plain mapping, which a run's summary can hold as JSON:

``rho``, ``c_a``
    The costs to begin with: a miss and an adjudication, in units of a false block. ``rho`` > 0,
    ``c_a`` >= 0.
``cells``
    A list. Each cell is a filter at one rung, with ``defense`` and ``rung`` (texts); optional
    texts ``setting``, ``attack``, ``filler``; ``queries``, the number of contexts; ``bins``, a list
    of ``[p, clean, poison]``: a calibrated probability of being poison, and how many clean and
    poison candidates have it (:func:`ragassay.stats.decision.bin_probabilities`); optional
    ``unscored``, ``[clean, poison]``: candidates without a probability, which always pass; and
    optional ``saturated``, the cues of the construction profile that saturate.

Source: "Ranking is not judgment", decision layer; the rule for escalation is that of
:mod:`ragassay.stats.decision`, whose functions make the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from ragassay.canon import dumps
from ragassay.report import markup
from ragassay.report.page import PageSection
from ragassay.report.text import NOT_ESTIMABLE, visible
from ragassay.stats.decision import (
    Costs,
    Dispositions,
    actions,
    escalation_band,
    harm_per_thousand,
    tau_d,
)
from ragassay.stats.intervals import wilson

MAX_CELLS = 2_000
MAX_BINS = 1_000
_COLUMNS = ("PASS", "ESCALATE", "BLOCK", "Missed poison", "Blocked clean", "Harm per 1,000")
_NOTE = (
    "Counts are poison / clean candidates. Missed poison: passed of retrieved poison. Blocked "
    "clean: blocked of retrieved clean passages. Both with 95% Wilson intervals, which count "
    "candidates as independent. Harm: cost per thousand contexts, in units of a false block. "
    "Candidates without a probability pass."
)
_FLAG = "\u2021"
_FLAG_NOTE = f"{_FLAG} a cue of how the poison was written saturates: "


def table(data: Mapping[str, Any], costs: Costs) -> list[tuple[str, ...]]:
    """The figures of every cell at given costs, as strings, in the order of the cells.

    Parameters
    ----------
    data : mapping
        As the module says.
    costs : Costs
        Two actions where ``c_a`` is None.

    Returns
    -------
    list of tuple of str
        PASS, ESCALATE, BLOCK (poison / clean), missed poison, blocked clean, harm per thousand.

    Raises
    ------
    ValueError
        The data are not as the module says.
    """
    return [_figures(cell, costs) for cell in _checked(data)]


def thresholds_line(costs: Costs) -> str:
    """Say in one sentence from where on passages are blocked or escalated.

    Examples
    --------
    >>> thresholds_line(Costs(9))
    'Blocked from p = 0.1000.'
    >>> thresholds_line(Costs(9, 0.3))
    'Escalated from p = 0.0333, blocked from p = 0.7000.'
    """
    band = escalation_band(costs)
    if band is None:
        never = "" if costs.c_a is None else " Escalating is never cheapest."
        return f"Blocked from p = {fixed(tau_d(costs.rho), 4)}.{never}"
    return f"Escalated from p = {fixed(band[0], 4)}, blocked from p = {fixed(band[1], 4)}."


def fragment(data: Mapping[str, Any]) -> str:
    """Make the explorer with its script, to stand in any page.

    A page with a content security policy must allow :func:`script_hash`.

    Raises
    ------
    ValueError
        The data are not as the module says.
    """
    return f"{_body(data)}<script>{markup.template_text('decision.js')}</script>\n"


def section(data: Mapping[str, Any]) -> PageSection:
    """Make the explorer as a section of a protocol's page, which allows the script by its hash.

    Raises
    ------
    ValueError
        The data are not as the module says.
    """
    return PageSection(
        anchor="h-costs", short="Costs", title="What errors cost, and what a filter should do",
        parts=(), html=_body(data), script=markup.template_text("decision.js"),
    )  # fmt: skip


def script_hash() -> str:
    """The hash of the fragment's script, for ``script-src`` of a content security policy."""
    return markup.script_hash(markup.template_text("decision.js"))


def page(data: Mapping[str, Any], *, title: str = "Cost explorer") -> str:
    """Make a whole page with the explorer alone."""
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src '{script_hash()}'"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(visible(title))}</title>"
        f"<style>{markup.template_text('report.css')}</style></head>"
        f"<body><main><h1>{escape(visible(title))}</h1>\n{fragment(data)}</main></body></html>\n"
    )


def fixed(value: float, digits: int) -> str:
    """Round halves up, as the script does, so that both print the same figure.

    Examples
    --------
    >>> fixed(12.25, 1)
    '12.3'
    """
    return f"{math.floor(value * 10**digits + 0.5) / 10**digits:.{digits}f}"


# --------------------------------------------------------------------------------- internals


def _body(data: Mapping[str, Any]) -> str:
    """The explorer without its script."""
    cells = _checked(data)
    costs = Costs(float(data["rho"]), float(data["c_a"]))
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Filter", *_COLUMNS))
    rows = "".join(
        f'<tr><th scope="row"><span>{_name(cell)}</span></th>'
        + "".join(f"<td>{escape(figure)}</td>" for figure in figures)
        + "</tr>"
        for cell, figures in zip(cells, table(data, costs), strict=True)
    )
    numbers = {
        "rho": costs.rho,
        "c_a": costs.c_a,
        "cells": [
            [cell["queries"], list(cell.get("unscored", (0, 0))), [list(b) for b in cell["bins"]]]
            for cell in cells
        ],
    }
    return (
        f'<section class="decision"><style>{markup.template_text("decision.css")}</style>\n'
        '<form class="costs" hidden>'
        + _slider("rho", "cost of a miss, in false blocks", -1, 3)
        + _slider("c_a", "cost of an adjudication, in false blocks", 0, 1)
        + '<label><input type="checkbox" name="three" checked> allow ESCALATE</label></form>\n'
        f'<p class="state" role="status">{escape(_state(costs))}</p>\n'
        f'<div class="table"><table><caption>{len(cells)} filters and rungs</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n"
        f'<p class="note">{_NOTE}{_flags(cells)}</p>\n'
        f'<script type="application/json" class="numbers">{dumps(numbers)}</script></section>\n'
    )


def _figures(cell: Mapping[str, Any], costs: Costs) -> tuple[str, ...]:
    clean = {"PASS": 0, "ESCALATE": 0, "BLOCK": 0}
    poison = dict(clean)
    clean["PASS"], poison["PASS"] = cell.get("unscored", (0, 0))
    for found, (_, n_clean, n_poison) in zip(
        actions([p for p, _, _ in cell["bins"]], costs).tolist(), cell["bins"], strict=True
    ):
        clean[found] += n_clean
        poison[found] += n_poison
    harm = harm_per_thousand(
        Dispositions(
            queries=cell["queries"], passed_poison=poison["PASS"], blocked_clean=clean["BLOCK"],
            escalated=poison["ESCALATE"] + clean["ESCALATE"],
        ),
        costs,
    )  # fmt: skip
    return (
        *(f"{poison[name]} / {clean[name]}" for name in clean),
        _rate(poison["PASS"], sum(poison.values())),
        _rate(clean["BLOCK"], sum(clean.values())),
        NOT_ESTIMABLE if harm is None else fixed(harm, 1),
    )


def _rate(count: int, n: int) -> str:
    bounds = wilson(count, n)
    if bounds is None:
        return NOT_ESTIMABLE
    low, high = fixed(100 * bounds.low, 1), fixed(100 * bounds.high, 1)
    return f"{count}/{n} ({fixed(100 * count / n, 1)}%) [{low}, {high}]"


def _state(costs: Costs) -> str:
    escalating = "no ESCALATE" if costs.c_a is None else f"c_A = {fixed(costs.c_a, 2)}"
    return f"\u03c1 = {fixed(costs.rho, 2)}, {escalating}. {thresholds_line(costs)}"


def _slider(name: str, told: str, low: float, high: float) -> str:
    """A slider; that of rho moves over powers of ten."""
    symbol = {"rho": "\u03c1", "c_a": "c_A"}[name]
    return (
        f"<label><span>{symbol}: {told}</span>"
        f'<input type="range" name="{name}" min="{low}" max="{high}" step="0.01"></label>'
    )


def _name(cell: Mapping[str, Any]) -> Markup:
    parts = [cell.get("setting", ""), cell["defense"], cell.get("attack", ""), cell["rung"],
             cell.get("filler", "")]  # fmt: skip
    shown = ", ".join(visible(str(part)) for part in parts if part)
    return escape(shown + (f" {_FLAG}" if cell.get("saturated") else ""))


def _flags(cells: Sequence[Mapping[str, Any]]) -> Markup:
    cues = dict.fromkeys(visible(str(cue)) for cell in cells for cue in cell.get("saturated", ()))
    return escape(f" {_FLAG_NOTE}{', '.join(cues)}." if cues else "")


def _checked(data: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    cells: Sequence[Mapping[str, Any]] = data["cells"]
    if len(cells) > MAX_CELLS:
        raise ValueError(f"{len(cells)} cells, at most {MAX_CELLS} can be shown")
    for number, cell in enumerate(cells, start=1):
        bins, unscored = cell["bins"], cell.get("unscored", (0, 0))
        counts = [cell["queries"], *unscored, *(n for _, *pair in bins for n in pair)]
        if len(bins) > MAX_BINS or len(unscored) != 2 or any(len(each) != 3 for each in bins):
            raise ValueError(f"cell {number}: need at most {MAX_BINS} bins of p, clean and poison")
        if not all(type(n) is int and n >= 0 for n in counts):
            raise ValueError(f"cell {number}: counts must be integers >= 0")
        if not all(0 <= p <= 1 for p, _, _ in bins):
            raise ValueError(f"cell {number}: probabilities must lie in [0, 1]")
    return cells
