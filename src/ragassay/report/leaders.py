"""What the label does to the conclusion, in words: who leads under which label.

A scorer that read few of the answers has no say here: its rates are of those answers only, and
an audit draws them for disagreement rather than at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report.grids import UNDEFENDED
from ragassay.report.text import (
    NOT_ESTIMABLE,
    bracket,
    count,
    listed,
    place,
    points,
    visible,
)

READ_ENOUGH = 0.9  # share of the answers below which a scorer has no say in a title

Row = Mapping[str, Any]
At = Mapping[str, Any]  # an entry of label_comparison["cells"]


def at_title(at: At, *, several: bool) -> str:
    """Name the setting (of several), attack and budget."""
    return place(at["attack"], at["budget"], at["setting"] if several else "")


def finding(comparison: Mapping[str, Any]) -> str:
    """Say in one sentence whether the conclusion depends on the label, over all places."""
    cells = comparison["cells"]
    named = len({at["setting"] for at in cells}) > 1
    ranked = [at for at in cells if len(defenses(at)) > 1 and len(_voices(at)) > 1]
    if len(ranked or cells) == 1:
        return claim((ranked or cells)[0]) + "."
    if ranked:
        return _over_places(ranked, named)
    spans = [(span, at) for at in cells if (span := _span(at, _system(at)))]
    if not spans:
        return "No two labels can be compared under attack."
    (low, high, first, last), at = max(
        spans, key=lambda one: one[0][1]["value"] - one[0][0]["value"]
    )
    who = "without a defense" if _system(at) == UNDEFENDED else f"with {visible(_system(at))}"
    return (
        f"The level under attack depends on the label most for {at_title(at, several=named)} "
        f"({who}): {count(low)} by {visible(first)}, {count(high)} by {visible(last)}."
    )


def _over_places(ranked: Sequence[At], named: bool) -> str:
    """Under how many attacks the leader changes with the label, and one of them."""
    changed = [at for at in ranked if changes(at)]
    what = "settings, attacks and budgets" if named else "attacks and budgets"
    if not changed:
        return f"The leading defense is the same under every label, for all {len(ranked)} {what}."
    told = claim(changed[0])
    return (
        f"Which defense leads depends on the label for {len(changed)} of {len(ranked)} {what}; "
        f"{at_title(changed[0], several=named)}: {told[0].lower()}{told[1:]}."
    )


def claim(at: At) -> str:
    """The finding at one place: who leads under which label, or how far the level moves."""
    compared, leads = defenses(at), _leads(at)
    if len(compared) > 1 and len(_voices(at)) > 1 and leads:
        return _leaders(at, leads)
    if len(compared) == 1:
        return _one_defense(at, compared[0])
    span = _span(at, UNDEFENDED)
    if span is None:
        return "Fewer than two labels read these answers"
    low, high, first, last = span
    return (
        f"Without a defense the level under attack is {count(low)} by {visible(first)} and "
        f"{count(high)} by {visible(last)}"
    )


def changes(at: At) -> bool:
    """Whether the leading defense depends on the label here."""
    return len(_leads(at)) > 1


def contest(at: At) -> str:
    """Figures behind a change of leader: the leaders' paired difference under each label."""
    leads = [names for names in _leads(at) if len(names) == 1]
    if len(leads) < 2:
        return ""
    a, b = sorted((leads[0][0], leads[1][0]))
    found = [d for d in at["differences"] if {d["a"], d["b"]} == {a, b} and d["n_decisive"]]
    if not found:
        return ""
    told = "; ".join(f"{visible(d['scorer'])} {difference_text(d)}" for d in found)
    first = found[0]
    return (
        f"{visible(first['a'])} minus {visible(first['b'])}, in percentage points, on the queries "
        f"that the label decides for both (how many of all stands beside): {told}."
    )


def systems(at: At) -> list[str]:
    """Defenses in order, the undefended system last."""
    names = dict.fromkeys(row["defense"] for row in at["rows"])
    return sorted(names, key=lambda name: name == UNDEFENDED)


def defenses(at: At) -> list[str]:
    """Defenses in the order of the run."""
    return [name for name in systems(at) if name != UNDEFENDED]


def row_of(at: At, scorer: str, system: str) -> Row | None:
    """The figures of a system under a scorer at a place."""
    return next(
        (r for r in at["rows"] if r["scorer"] == scorer and r["defense"] == system), None
    )  # fmt: skip


def difference_text(difference: Mapping[str, Any]) -> str:
    """A paired difference in percentage points, and of how many queries it is."""
    n = f"{difference['n_decisive']}/{difference['n']}"
    if difference["value"] is None:
        return f"{NOT_ESTIMABLE}, {n}"
    return f"{points(difference)} {bracket(difference)}, {n}"


def _system(at: At) -> str:
    return systems(at)[0]


def _voices(at: At) -> list[str]:
    """The scorers that read nearly all answers of every system here."""
    names = dict.fromkeys(row["scorer"] for row in at["rows"])
    return [
        name for name in names
        if all(_read(row["p1"]) for row in at["rows"] if row["scorer"] == name)
    ]  # fmt: skip


def _read(label: Mapping[str, Any]) -> bool:
    read = label["positive"]["n"]
    return bool(read) and read >= READ_ENOUGH * (read + label["not_scored"])


def _leads(at: At) -> dict[tuple[str, ...], list[str]]:
    """Leading defenses (several where they tie) with the scorers under which they lead."""
    found: dict[tuple[str, ...], list[str]] = {}
    for scorer in _voices(at):
        first = tuple(
            row["defense"] for row in at["rows"]
            if row["scorer"] == scorer and row["rank_p1"] == 1
        )  # fmt: skip
        if first:
            found.setdefault(first, []).append(scorer)
    return found


def _leaders(at: At, leads: Mapping[tuple[str, ...], list[str]]) -> str:
    scorers = {name: visible(name) for names in leads.values() for name in names}
    if len(leads) == 1:
        ((names, _),) = leads.items()
        turned = {
            tuple(pair) for order in at["orders"]
            if set(order["scorers"]) <= set(scorers) for pair in order["p1"]["reversed"]
        }  # fmt: skip
        more = "; the order of the others changes" if turned else ""
        return f"{_lead(names)} under every label{_hedge(at, names, list(scorers))}{more}"
    told = []
    for names, by in leads.items():
        told.append(
            f"under {listed([scorers[s] for s in by])} {_lead(names)}{_hedge(at, names, by)}"
        )
    text = "; ".join(told)
    return text[0].upper() + text[1:]


def _lead(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{visible(names[0])} leads"
    return f"{listed([visible(name) for name in names])} tie"


def _hedge(at: At, names: Sequence[str], scorers: Sequence[str]) -> str:
    """Say where the lead over some other defense is within uncertainty, under all these labels."""
    if len(names) > 1:
        return ""
    sure = [
        scorer for scorer in scorers
        if all(
            _beats(d, names[0]) for d in at["differences"]
            if d["scorer"] == scorer and names[0] in (d["a"], d["b"])
            and UNDEFENDED not in (d["a"], d["b"])
        )
    ]  # fmt: skip
    return "" if sure else " (within uncertainty)"


def _beats(difference: Mapping[str, Any], name: str) -> bool:
    if difference["low"] is None:
        return False
    below: bool = difference["high"] < 0 if difference["a"] == name else difference["low"] > 0
    return below


def _one_defense(at: At, defense: str) -> str:
    """Whether a single defense lowers the level, label by label."""
    told: dict[str, list[str]] = {}
    for scorer in _voices(at):
        after, before = row_of(at, scorer, defense), row_of(at, scorer, UNDEFENDED)
        if after is None or before is None:
            continue
        change = after["p1"]["positive"]["value"] - before["p1"]["positive"]["value"]
        word = "lowers" if change < 0 else "raises" if change > 0 else "leaves"
        levels = f"{count(before['p1']['positive'])} -> {count(after['p1']['positive'])}"
        told.setdefault(word, []).append(f"{visible(scorer)} ({levels})")
    if not told:
        span = _span(at, defense)
        if span is None:
            return "Fewer than two labels read these answers"
        low, high, first, last = span
        return (
            f"With {visible(defense)} the level under attack is {count(low)} by {visible(first)} "
            f"and {count(high)} by {visible(last)}"
        )
    parts = [
        f"{word} the level under {listed(by)}" if word != "leaves"
        else f"leaves it as it is under {listed(by)}"
        for word, by in told.items()
    ]  # fmt: skip
    return f"{visible(defense)} {'; it '.join(parts)}"


def _span(at: At, system: str) -> tuple[Any, Any, str, str] | None:
    """Lowest and highest level of a system over the labels, and which labels these are."""
    found = [
        (row["p1"]["positive"], row["scorer"])
        for row in at["rows"]
        if row["defense"] == system and row["scorer"] in _voices(at)
    ]
    if len(found) < 2:
        return None
    low, high = (pick(found, key=lambda one: one[0]["value"]) for pick in (min, max))
    return low[0], high[0], low[1], high[1]
