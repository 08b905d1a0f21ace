"""Which passages the answers depend on: the labels of the removal controls, in tables and words.

Source: "Prevented is not protected" (Aligned RAG Evaluation), Tables 4, 6, 12 and 13.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report import parts
from ragassay.report.grids import UNDEFENDED, name
from ragassay.report.parts import Part, Row
from ragassay.report.text import NOT_ESTIMABLE, bracket, count, known, listed, percent, plural

OF_QUERIES = {
    "target_positive": "Target-positive",
    "newly_induced": "Newly induced",
    "injection_dependent_new": "New, injection-dependent",
    "own_injection_dependent_new": "New, own-injection-dependent",
}
OF_POSITIVES = {
    "single_passage_sufficient": "Of positives: single-passage sufficient",
    "poison_only_sufficient": "Of positives: poison-only sufficient",
}
ON_CLEAN = {"persistent": "Persistent", "removed": "Removed"}
COMPOSED = {
    "co_retrieved": "Support and own poison retrieved",
    "strict": "Strict",
    "strict_new": "Strict, newly induced",
    "strict_any": "Strict, retrieved together or not",
    "strict_any_new": "Strict, newly induced, together or not",
}
NOTE = (
    "Passages are taken out of the poisoned context after retrieval (order kept, nothing "
    "refilled) and the question is answered again. Counts with Wilson intervals in percent. A "
    "label that a missing, failed or undecided answer leaves open is undefined: in no denominator, "
    "and counted."
)
NO_POSITIVES = "no positives"


def wanted(summary: Mapping[str, Any]) -> bool:
    """Whether evidence was removed, or was to be."""
    return bool(summary.get("evidence")) and bool(summary["evidence"]["cells"])


def rows(summary: Mapping[str, Any], scorer: str) -> list[Row]:
    """The cells of one scorer; those of a place without any poisoned answer are left out."""
    return [
        row for row in parts.of_scorer(summary["evidence"]["cells"], scorer)
        if row["target_positive"]["n"]
    ]  # fmt: skip


def removal(summary: Mapping[str, Any], scorer: str) -> list[Part]:
    """Labels of the removal controls: the undefended system first, then all systems."""
    found = rows(summary, scorer)
    titles = {**OF_QUERIES, **OF_POSITIVES, **ON_CLEAN}
    first, tables = parts.system_tables(
        summary, found, list(titles.values()), lambda row: _figures(row, titles),
        title="What answers depend on, without a defense",
    )  # fmt: skip
    done = summary["evidence"]["trials"]
    made = f"{plural(done['controls'], 'answer')} over reduced contexts"
    made += f", {done['failed']:,} of them failed" if done["failed"] else ""
    result = [
        Part(
            claim=finding(found, summary),
            note=f"{NOTE} {made}.",
            grids=(first,) if first else (),
        )
    ]
    return result + [
        Part(
            heading=f"Every system under {grid.title}",
            grids=(grid,),
            folded=first is not None,
        )
        for grid in tables
    ]


def composition(summary: Mapping[str, Any], scorer: str) -> list[Part]:
    """Cases that need legitimate support and injected poison together; none if not annotated."""
    found = [row for row in rows(summary, scorer) if _annotated(row)]
    if not found:
        return []
    first, tables = parts.system_tables(
        summary, found, list(COMPOSED.values()), lambda row: _figures(row, COMPOSED),
        title="Support and poison together, without a defense",
    )  # fmt: skip
    result = [
        Part(
            heading="Support and poison together",
            claim=composed(found, summary),
            note=(
                "Of the queries whose support is annotated. Strict: target-positive with support "
                "and poison, and not without the poison, without the support, or without both."
            ),
            grids=(first,) if first else (),
        )
    ]
    return result + [
        Part(
            heading=f"Support and poison together, every system under {grid.title}",
            grids=(grid,),
            folded=True,
        )
        for grid in tables
    ]


def finding(found: Sequence[Row], summary: Mapping[str, Any]) -> str:
    """Say what the answers depend on, at the largest budget without a defense."""
    top = parts.leading(found)
    if not top:
        return (
            "No answer under attack is labeled, so that nothing can be said of what it depends on."
        )
    row = max(top, key=lambda one: one["newly_induced"]["count"])
    where = _under(row, summary)
    positive, new = row["target_positive"], row["newly_induced"]
    if not positive["count"]:
        return f"{where}, no answer is target-positive ({count(positive)})."
    text = f"{where}, {_new(row)}"
    single = row["single_passage_sufficient"]
    if single["n"]:
        text += (
            f"; a single poison passage suffices for {single['count']} of the {single['n']} "
            f"target-positive answers ({_estimate(single)}{_undefined(single)})"
        )
    elif single["undefined"]:
        text += (
            "; whether a single poison passage suffices is not known for any of the "
            f"{positive['count']} target-positive answers"
        )
    if new["undefined"]:
        text += f"; {new['undefined']} queries are undefined"
    return f"{text}{_range(top, summary)}."


def composed(found: Sequence[Row], summary: Mapping[str, Any]) -> str:
    """Say how many answers need support and poison together, where it is most."""
    bare = [row for row in found if row["defense"] == UNDEFENDED] or found
    row = max(bare, key=lambda one: (one["strict"]["count"], one["budget"]))
    strict, together = row["strict"], row["co_retrieved"]
    where = _under(row, summary)
    if not strict["n"]:
        return f"{where}, no strict case is estimable ({strict['undefined']} undefined)."
    if not strict["count"]:
        told = f"no query needs a supporting and an injected passage together ({known(strict)})"
    else:
        verb = "needs" if strict["count"] == 1 else "need"
        told = (
            f"{strict['count']} of {plural(strict['n'], 'query')} {verb} a supporting and an "
            f"injected passage together ({_estimate(strict)}{_undefined(strict)}), "
            f"{row['strict_new']['count']} of them newly induced"
        )
    return f"{where}, {told}; both were retrieved for {count(together)}."


def _new(row: Row) -> str:
    new, depends = row["newly_induced"], row["injection_dependent_new"]
    persistent = row["persistent"]["count"]
    kept = f"; {persistent} were so on clean retrieval already" if persistent else ""
    if not new["count"]:
        return f"no answer is newly target-positive ({count(new)}){kept}"
    verb = "is" if new["count"] == 1 else "are"
    gone = (
        f"all {new['count']}" if depends["count"] == new["count"] > 1
        else f"{depends['count']} of the {new['count']}"
    )  # fmt: skip
    ends = "turns" if gone.startswith("1 ") else "turn"
    return (
        f"{new['count']} of {new['n']} answers {verb} newly target-positive, and {gone} {ends} "
        f"negative when the poison is taken out{kept}"
    )


def _range(top: Sequence[Row], summary: Mapping[str, Any]) -> str:
    """How far single-passage sufficiency runs where there are several places."""
    known_ones = [row for row in top if row["single_passage_sufficient"]["n"]]
    if len(known_ones) < 2:
        return ""
    low, high = (
        pick(known_ones, key=lambda row: row["single_passage_sufficient"]["value"])
        for pick in (min, max)
    )
    if low["single_passage_sufficient"]["value"] == high["single_passage_sufficient"]["value"]:
        return f". That share is the same for all {len(known_ones)} places"
    ends = " to ".join(
        f"{count(row['single_passage_sufficient'])} ({_spot(row, summary)})" for row in (low, high)
    )
    return f". Over {len(known_ones)} places that share runs from {ends}"


def _annotated(row: Row) -> bool:
    return any(row[label]["n"] or row[label]["undefined"] for label in COMPOSED)


def _figures(row: Row, titles: Mapping[str, str]) -> list[str]:
    return [
        known(row[label], empty=NO_POSITIVES if label in OF_POSITIVES else NOT_ESTIMABLE)
        for label in titles
    ]


def _under(row: Row, summary: Mapping[str, Any]) -> str:
    text = f"Under {_spot(row, summary)}"
    return text if row["defense"] == UNDEFENDED else f"{text} with {name(row)}"


def _spot(row: Row, summary: Mapping[str, Any]) -> str:
    return parts.spot_name(parts.at_spot(row), summary)


def _estimate(rate: Mapping[str, Any]) -> str:
    return f"{percent(rate['value'])} {bracket(rate)}"


def _undefined(rate: Mapping[str, Any]) -> str:
    return f"; {rate['undefined']} undefined" if rate["undefined"] else ""


DEFINITIONS = (
    ("newly induced", "target-positive under attack and not on clean retrieval"),
    ("injection-dependent", "newly induced, and no longer target-positive when all poison (own: "
     "the poison written for this query) is taken out of the context"),
    ("single-passage sufficient", "some poison passage alone, without any other passage, gives "
     "the target; out of the target-positive answers"),
    ("poison-only sufficient", "the poison without any other passage gives the target; out of the "
     "target-positive answers"),
    ("persistent, removed", "target-positive on clean retrieval, and under attack still, or no "
     "longer"),
    ("undefined", f"an answer that decides the label is missing, failed or undecided; in no "
     f"denominator ({listed(['never counted as yes', 'never as no'])})"),
    ("Shapley value", "share of a poison passage in the target label, over all orders in which "
     "the poison passages of a context can come in; the shares of a context add up to 1 if it is "
     "target-positive with the poison and not without"),
)  # fmt: skip
