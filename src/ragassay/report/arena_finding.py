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


def pairs_claim(lead: Result) -> str:
    """Say which attacker most often succeeds against which, and which never does."""
    met = [row for row in lead["pairs"] if row["n"]]
    if not met:
        return ""
    best = max(met, key=lambda row: (row["success"], row["n"], row["attacker"]))
    if not best["won"]:
        return "No attacker succeeds against any other."
    text = (
        f"The largest success is that of {visible(best['attacker'])} against "
        f"{visible(best['against'])}: {best['won']}/{best['n']} ({percent(best['success'])})."
    )
    never = sorted({row["attacker"] for row in met} - {r["attacker"] for r in met if r["won"]})
    if never:
        text += f" Never against anybody: {listed([visible(name) for name in never])}."
    return text


def sizes_claim(lead: Result) -> str:
    """Say who is first alone and who among most, and whose success falls most between them."""
    sizes = sorted({row["size"] for row in lead["sizes"]})
    ends = [
        {r["attacker"]: r["success"] for r in lead["sizes"] if r["size"] == size}
        for size in (sizes[0], sizes[-1])
    ]
    ends = [{name: s for name, s in each.items() if s["value"] is not None} for each in ends]
    both = sorted(set(ends[0]) & set(ends[1]))
    if not both:
        return ""
    alone, among = ends
    last = "alone" if sizes[0] == 1 else f"among {sizes[0]}"
    falls = max(both, key=lambda name: (alone[name]["value"] - among[name]["value"], name))
    text = f"Highest success {last}: {_firsts(alone)}; among {sizes[-1]}: {_firsts(among)}. "
    if alone[falls]["value"] <= among[falls]["value"]:
        return text + "Nobody's success falls."
    return text + (
        f"{visible(falls)} loses most, from {_share(alone[falls])} to {_share(among[falls])}."
    )


def _firsts(shares: Mapping[str, Mapping[str, Any]]) -> str:
    top = max(each["value"] for each in shares.values())
    names = sorted(name for name, each in shares.items() if each["value"] == top)
    return f"{listed([visible(name) for name in names])} ({percent(top)})"


def _share(share: Mapping[str, Any]) -> str:
    return f"{percent(share['value'])} {bracket(share)}"


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
