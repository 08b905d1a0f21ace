"""Clean utility: held-out questions that nobody attacks, under every defense and every scorer.

Source: "Prevented is not protected" (Aligned RAG Evaluation), appendices C and J.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report.grids import UNDEFENDED, Grid, name, several
from ragassay.report.parts import Part, Row
from ragassay.report.text import (
    NO_WIDTH_NOTE,
    NOT_ESTIMABLE,
    bracket,
    count,
    decimal,
    plural,
    share,
    visible,
)
from ragassay.stats.intervals import wilson

NOTE = (
    "Questions that are neither attacked nor calibrated on, clean retrieval. An uncertain answer "
    "counts as read and not as correct, so read its number beside the rate: where it is large, "
    "nothing is decided about the utility."
)
OVERLAP_NOTE = (
    "Exact match and F1 compare the whole answer with short references: a long answer scores low "
    "however right it is. They are not to be compared between systems whose median lengths differ."
)


def wanted(summary: Mapping[str, Any]) -> bool:
    """Whether held-out questions were answered."""
    return bool(summary.get("utility"))


def utility(summary: Mapping[str, Any], scorer: str, charts: bool) -> list[Part]:
    """Correctness and abstention under every scorer, and overlap with the references."""
    rows = sorted(
        summary["utility"],
        key=lambda row: (summary["settings"].index(row["setting"]), row["defense"] != UNDEFENDED),
    )
    return [
        Part(claim=finding(rows, summary), note=NOTE, grids=(correctness(rows, summary),)),
        Part(
            heading="Overlap with the references, and length of the answers",
            note=OVERLAP_NOTE,
            grids=(overlap(rows, summary),),
        ),
    ]


def finding(rows: Sequence[Row], summary: Mapping[str, Any]) -> str:
    """Say what the defenses do to correct answers, under the headline rule."""
    scorer, level = summary["headline"], summary["confidence"]
    rated = [(row, rate) for row in rows if (rate := _rate(row, scorer, "correct", level))["n"]]
    if not rated:
        return f"The rule {visible(scorer)} read none of the held-out answers."
    bare = {row["setting"]: rate for row, rate in rated if row["defense"] == UNDEFENDED}
    pairs = [
        (row, rate, bare[row["setting"]]) for row, rate in rated
        if row["defense"] != UNDEFENDED and row["setting"] in bare
    ]  # fmt: skip
    if not pairs:
        row, rate = rated[0]
        return (
            f"By the rule {visible(scorer)}, {count(rate)} held-out answers are correct with "
            f"{_system(row, summary)}{_uncertain(row, scorer)}."
        )
    row, rate, before = max(pairs, key=lambda one: one[2]["value"] - one[1]["value"])
    if rate["value"] >= before["value"]:
        return (
            f"By the rule {visible(scorer)}, no defense has fewer correct answers to held-out "
            f"questions than the undefended system ({count(before)}){_uncertain(row, scorer)}."
        )
    return (
        f"By the rule {visible(scorer)}, {_system(row, summary)} loses most on held-out "
        f"questions: {count(before)} correct answers without a defense, {count(rate)} with it"
        f"{_uncertain(row, scorer)}."
    )


def correctness(rows: Sequence[Row], summary: Mapping[str, Any]) -> Grid:
    """Correct and abstained under every scorer, with what is uncertain and not scored."""
    scorers = sorted(summary["scorers"], key=lambda one: one != summary["headline"])
    level = summary["confidence"]
    lost = sum(row["missing"] for row in rows)
    return Grid(
        title="Correct and abstained on clean held-out questions",
        columns=(
            "Defense", "Answers",
            *(f"{what}, {visible(s)}" for what in ("Correct", "Abstained") for s in scorers),
        ),
        rows=tuple(
            (
                _system(row, summary),
                f"{row['n']}",
                *(_told(row, s, what, level) for what in ("correct", "abstained") for s in scorers),
            )
            for row in rows
        ),
        keys=tuple(row["defense"] for row in rows),
        notes=(f"{plural(lost, 'answer')} missing or failed.",) if lost else (),
    )  # fmt: skip


def overlap(rows: Sequence[Row], summary: Mapping[str, Any]) -> Grid:
    """Exact match and F1 under both conventions, beside the median length."""
    return Grid(
        title="Overlap with the references",
        columns=(
            "Defense", "Median length, words", "Exact match, SQuAD", "F1, SQuAD",
            "Exact match, HotpotQA", "F1, HotpotQA",
        ),
        rows=tuple(
            (
                _system(row, summary),
                decimal(row["median_words"]),
                *(
                    text for convention in ("squad", "hotpotqa")
                    for text in (_match(row[convention]), _f1(row[convention]))
                ),
            )
            for row in rows
        ),
        keys=tuple(row["defense"] for row in rows),
        notes=("F1 in percent, a mean over the answers, its interval from resampling groups. "
               f"{NO_WIDTH_NOTE}",),
    )  # fmt: skip


def _rate(row: Row, scorer: str, what: str, confidence: float) -> dict[str, Any]:
    """A rate out of the answers that the scorer read: others have no outcome."""
    about = row["by_scorer"].get(scorer)
    if about is None:
        return {"count": 0, "n": 0, "value": None, "low": None, "high": None}
    number, n = about[what]["count"], about[what]["n"]
    read = min(n, row["n"] - about["not_scored"])
    interval = wilson(number, read, confidence=confidence)
    return {
        "count": number,
        "n": read,
        "value": number / read if read else None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
    }


def _told(row: Row, scorer: str, what: str, confidence: float) -> str:
    about = row["by_scorer"].get(scorer)
    if about is None:
        return "not run"
    rate = _rate(row, scorer, what, confidence)
    if not rate["n"]:
        return f"not scored ({about['not_scored']})" if about["not_scored"] else NOT_ESTIMABLE
    text = share(rate, interval=True)
    uncertain = about["correct_uncertain"] if what == "correct" else 0
    text += f", {uncertain} uncertain" if uncertain else ""
    return text + (f", {about['not_scored']} not scored" if about["not_scored"] else "")


def _uncertain(row: Row, scorer: str) -> str:
    number = row["by_scorer"][scorer]["correct_uncertain"]
    return f" ({number} uncertain)" if number else ""


def _match(about: Mapping[str, Any]) -> str:
    rate = about["exact_match"]
    return share(rate, interval=bool(rate["n"]))


def _f1(about: Mapping[str, Any]) -> str:
    if about["f1"] is None:
        return NOT_ESTIMABLE
    interval = about["f1_interval"] or {"low": None, "high": None}
    return f"{decimal(100 * about['f1'])} {bracket(interval)}, n = {about['n']}"


def _system(row: Row, summary: Mapping[str, Any]) -> str:
    return f"{visible(row['setting'])}: {name(row)}" if several(summary) else name(row)
