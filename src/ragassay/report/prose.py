"""Sentences that every report shares: what was run, how to read the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report import grids
from ragassay.report.text import NO_WIDTH_NOTE, level, plural, visible

_MAX_NAMED = 6
DEFINITIONS = (
    ("c0, c1, p0, p1", "the four matched answers to a query: clean (c) or poisoned (p) retrieval, "
     "without (0) or with (1) the defense; everything else is equal"),
    ("target-positive", "the answer gives what the attacker wants, by the rule at hand; a string "
     "rule counts a mention, even one that is rejected"),
    ("P, prevented", "queries that are target-positive in p0 and no longer in p1"),
    ("J, introduced", "queries that are target-positive in p1 and were not in p0"),
    ("N", "net reduction under attack, P - J = r(p0) - r(p1); above 0 is good"),
    ("H", "change on clean retrieval, r(c1) - r(c0); above 0 is harm"),
    ("Gamma", "N + H; a large Gamma can come from harm on clean retrieval alone, so it is read "
     "only beside N, H and the level that remains"),
    ("own, foreign poison", "written for this query, or for another query of its injection group"),
    ("support", "a passage that the data set marks as supporting the truth"),
    ("uncertain", "the scorer read the answer and could not decide; in no figure that compares "
     "conditions, and counted beside every rate"),
    ("dropped", "a query that lacks one of its four labels; it is in no figure of that rule"),
    ("interval of width 0", "every resample gave the same figure, as with few groups or balanced "
     "P and J; it does not mean certainty"),
    ("beyond uncertainty", "the interval of N lies above 0 and the McNemar test rejects"),
)  # fmt: skip

NOTES = {
    "Context composition": (
        "Means per context, retrieved -> kept by the defense; support: contexts that hold at "
        "least one supporting passage. Without a defense everything retrieved is kept."
    ),
    "Cost": (
        "Means per query, counted whether or not a cache answered; in parentheses how many times "
        "the undefended system's."
    ),
}


def what_was_run(summary: Mapping[str, Any], resolved: Mapping[str, Any] | None = None) -> str:
    """Say in one line which data, attacks, victim and retriever the run had."""
    data = summary["dataset"]
    number, groups = data.get("evaluated"), data.get("groups")
    size = "" if number is None else f", {plural(number, 'query')}"
    size += "" if groups is None else f" in {plural(groups, 'injection group')}"
    text = f"Data set {visible(str(data.get('name', 'unknown')))}{size}. "
    if grids.several(summary):
        text += f"{_some(summary['settings'], 'setting')}. "
    text += f"{_attacks(summary)}. "
    if resolved and resolved.get("systems"):  # only asked: model and retriever are not known
        titles = [visible(str(title)) for title in resolved["systems"].values()]
        text += f"System asked: {titles[0]}"
        text += f"; with a defense: {_some(titles[1:], 'system')}. " if titles[1:] else ". "
    elif resolved:
        text += f"{_parts(resolved, 'generator', 'Victim')}. "
        text += _parts(resolved, "retriever", "Retriever")
        text += ". " if summary["k"] is None else f", top {summary['k']}. "
    elif summary["k"] is not None:
        text += f"Retrieval: top {summary['k']}. "
    return f"{text}Headline rule: {visible(summary['headline'])}."


def _parts(resolved: Mapping[str, Any], kind: str, noun: str) -> str:
    """Name the victims or retrievers, which stand at the top or with the settings."""
    about = [resolved, *(resolved.get("settings") or {}).values()]
    names = list(dict.fromkeys(str(one[kind]) for one in about if one.get(kind)))
    if len(names) < 2:
        return f"{noun}: {visible(names[0]) if names else 'unknown'}"
    return f"{noun}s: {_some(names, noun.lower())}"


def _attacks(summary: Mapping[str, Any]) -> str:
    pairs = {(cell["attack"], cell["budget"]) for cell in summary["cells"] if cell["budget"]}
    attacks = sorted({attack for attack, _ in pairs})
    if not attacks:
        return "No attack"
    if len(attacks) > _MAX_NAMED:
        budgets = ", ".join(map(str, sorted({budget for _, budget in pairs})))
        return f"{_some(attacks, 'attack')}, at p = {budgets}"
    return "Attack: " + "; ".join(
        f"{visible(a)} at p = {', '.join(str(b) for c, b in sorted(pairs) if c == a)}"
        for a in attacks
    )


def _some(names: Sequence[str], noun: str) -> str:
    """Count names, and give the first ones."""
    told = ", ".join(visible(name, limit=60) for name in names[:_MAX_NAMED])
    return f"{plural(len(names), noun)} ({told}{', ...' if len(names) > _MAX_NAMED else ''})"


def intervals_note(summary: Mapping[str, Any]) -> str:
    """Say where the intervals come from."""
    name = level(summary["confidence"])
    return (
        f"Intervals ({name}): for P, J, N, H, Gamma from resampling whole injection groups "
        f"({summary['draws']:,} draws), for rates Wilson. McNemar tests are exact and two-sided "
        "and take queries as independent. Figures in pp are percentage points of n. "
        f"{NO_WIDTH_NOTE}"
    )


def trials_line(summary: Mapping[str, Any]) -> str:
    """Say how many trials were planned, done, failed and not run."""
    trials = summary["trials"]
    return (
        f"Trials: {trials['done']:,} of {trials['planned']:,} done, {trials['failed']:,} failed, "
        f"{trials['missing']:,} not run. A failed trial has no outcome."
    )
