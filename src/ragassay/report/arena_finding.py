"""The finding of an arena in one sentence: who wins, and how sure the rank is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragassay.report import arena_tables as tables_of
from ragassay.report.grids import UNDEFENDED
from ragassay.report.text import bracket, listed, percent, plural, visible

Result = Mapping[str, Any]


def leading(summary: Mapping[str, Any], defense: str = UNDEFENDED) -> Result:
    """The result that leads: the headline rule on the first scene, without a defense."""
    return next(
        result
        for result in summary["results"]
        if result["scorer"] == summary["headline"]
        and result["scene"] == summary["scenes"][0]
        and result["defense"] == defense
    )


def finding(summary: Mapping[str, Any]) -> str:
    """Say who wins, and how sure the rank is."""
    lead = leading(summary)
    told = lead["strengths"]
    if not told["estimable"]:
        return "No ranking: " + visible(told["why"], limit=300) + "."
    order = sorted(
        (row for row in lead["attackers"] if row["rank"]["value"] is not None),
        key=lambda row: row["rank"]["value"],
    )
    first = order[0]
    among = len(order)
    name = visible(first["attacker"])
    if told["rank_probabilities"] is None:
        return f"{name} has the highest strength of {among} attackers; how sure is not estimable."
    share = told["rank_probabilities"][told["names"].index(first["attacker"])][0]
    rivals = [
        row["attacker"]
        for row in order[1:]
        if row["rank"]["low"] is not None and row["rank"]["low"] <= 1
    ]
    if rivals:
        return (
            f"{name} ranks first of {among} attackers in {percent(share)} of the resamples, so "
            f"that {listed([visible(r) for r in rivals])} may be as strong."
        )
    return f"{name} is the strongest of {among} attackers: first in {percent(share)} of resamples."


def detail(summary: Mapping[str, Any]) -> str:
    """The figures behind the finding."""
    lead = leading(summary)
    told, stopping = lead["strengths"], lead["stopping"]
    if not told["estimable"]:
        return ""
    order = sorted(
        (row for row in lead["attackers"] if row["rank"]["value"] is not None),
        key=lambda row: row["rank"]["value"],
    )
    first = order[0]
    success = first["among"]["success"]
    text = (
        f"{visible(first['attacker'])}: theta {tables_of.signed(first['theta'])}, m-ASR "
        f"{success['count']:.0f}/{success['n']} {bracket(success)}, by the rule "
        f"{visible(lead['scorer'])}. {told['decided']:,} of {lead['outcomes']['plays']:,} plays "
        f"are decided. "
    )
    if told["same_order"] is not None:
        text += f"The complete order is the same in {percent(told['same_order'])} of resamples. "
    undecided = stopping["undecided"]
    if undecided:
        pairs = listed([f"{visible(a)} over {visible(b)}" for a, b in undecided])
        return text + f"Neighbors that are not decided: {pairs}."
    return text + "Each pair of neighbors is decided in 95% of resamples or more."


def what(summary: Mapping[str, Any], resolved: Mapping[str, Any]) -> str:
    """Say in one line which data, rounds and victims the run had."""
    design, data = summary["design"], summary["dataset"]
    sizes = ", ".join(f"{size}: {count}" for size, count in design["sizes"].items())
    victims = sorted({each["generator"] for each in resolved["settings"].values()})
    return (
        f"Data set {visible(str(data['name']))}, {plural(design['questions'], 'question')}; "
        f"{plural(len(summary['attacks']), 'attacker')}; {plural(design['rounds'], 'round')} "
        f"(attackers: rounds {sizes}), {design['plays']:,} plays by "
        f"{visible(design['assignment'])} assignment of answers; "
        f"{design['singles']:,} plays alone. "
        f"Victim: {listed([visible(v) for v in victims])}. "
        f"Headline rule: {visible(summary['headline'])}."
    )
