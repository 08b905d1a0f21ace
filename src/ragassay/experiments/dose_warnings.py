"""What a reader of a dose run must know before its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragassay.experiments.conditions import UNDEFENDED
from ragassay.stats.intervals import COARSE_GROUPS, MIN_GROUPS

_SHORT = 0.9  # of the requested dose


def warnings_of(summary: Mapping[str, Any], resolved: Mapping[str, Any]) -> list[str]:
    """Word everything that limits the figures, in the order of its weight."""
    return [
        *_missing(summary),
        *_questions(summary),
        *_noise(summary),
        *_delivery(summary),
        *_adoption(summary),
        *_matched(summary, resolved),
    ]


def _missing(summary: Mapping[str, Any]) -> list[str]:
    trials = summary["trials"]
    lost = trials["failed"] + trials["missing"]
    told = []
    if lost:
        told.append(
            f"{lost} of {trials['planned']} answers are missing ({trials['failed']} failed); they "
            "are in no figure."
        )
    for row in _leading(summary, "response"):
        if row["dropped"] and row["dropped"]["not_scored"]:
            told.append(
                f"{_where(row)}: {row['dropped']['not_scored']} tampered answers are left out, "
                "because they or their clean answers have no label."
            )
    return told


def _questions(summary: Mapping[str, Any]) -> list[str]:
    groups = summary["groups"]
    if groups < MIN_GROUPS:
        return ["All runs are of one question text: no interval can be given."]
    told = []
    if groups < COARSE_GROUPS:
        told.append(f"Only {groups} distinct question texts: the intervals are coarse.")
    for row in _leading(summary, "response"):
        if row["rule"] == "" and row["n"] and not row["tampered"]["fooled"]["n"]:
            told.append(
                f"{_where(row)}: no clean answer is correct, so nothing can be fooled: the rate is "
                "not estimable."
            )
    return told


def _noise(summary: Mapping[str, Any]) -> list[str]:
    """Changes of decoding that have a direction would pass for an effect of tampering."""
    found = []
    rows = _leading(summary, "noise")
    for row in rows:
        test = row["symmetry"]
        if test["p_value"] < 0.05:
            found.append(
                f"{_where(row)}: two generations of the clean prompt differ in one direction "
                f"({test['lost']} lost, {test['gained']} gained, p = {test['p_value']:.3g})."
            )
    if not rows:
        found.append("No zero-dose arm: decoding noise is not measured (dose 0 is left out).")
    return found


def _delivery(summary: Mapping[str, Any]) -> list[str]:
    """Rules that deliver less than asked cannot be compared at requested doses."""
    short = [
        row for row in summary["delivery"]
        if row["requested"] and row["mean"] < _SHORT * row["requested"]
    ]  # fmt: skip
    if not short:
        return []
    rules = ", ".join(dict.fromkeys(row["rule"] for row in short))
    more = (
        "passages are chosen among the editable ones, and there are too few of them"
        if summary["tampering"]["choose"] == "editable"
        else "compare rules at applied doses, or set dose.choose = 'editable'"
    )
    return [f"Applied below requested dose (mean under 90%) for: {rules}; {more}."]


def _adoption(summary: Mapping[str, Any]) -> list[str]:
    if summary["adoption_by"] is None:
        return [
            "No label rule of this run reads edits, so adoption is not measured: add 'polarity' to "
            "scoring.rules."
        ]
    if "negation" in summary["rules"]:
        return ["Adoption of a negation is a lower bound: only explicit negations are seen."]
    return []


def _matched(summary: Mapping[str, Any], resolved: Mapping[str, Any]) -> list[str]:
    told = []
    if len(set(summary["instructions"].values())) > 1:
        told.append(
            "The closed-book arm has another instruction than the others, so it is not strictly "
            "matched with them."
        )
    if any(point["dose"] == 0 for row in _leading(summary, "response") for point in row["points"]):
        told.append(
            "Applied dose 0 within the grid is selected (passages with nothing to edit): a control "
            "for adoption, no replacement for the clean arm."
        )
    generators = resolved["experiment"]["generator"]
    parts = generators if isinstance(generators, list) else [generators]
    if not any(part["temperature"] for part in parts) and _leading(summary, "noise"):
        told.append(
            "Decoding is greedy: equal prompts get equal answers by design, and the zero-dose arm "
            "measures only what the model's engine adds."
        )
    return told


def _leading(summary: Mapping[str, Any], section: str) -> list[Mapping[str, Any]]:
    """Rows of the undefended systems under the headline scorer."""
    return [
        row for row in summary[section]
        if row["scorer"] == summary["headline"] and row["defense"] == UNDEFENDED
    ]  # fmt: skip


def _where(row: Mapping[str, Any]) -> str:
    setting = f", {row['setting']}" if row["setting"] else ""
    return f"Rule {row['scorer']!r}{setting}"
