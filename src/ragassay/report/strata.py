"""Exposure: target-positive answers where all, some or none of the support is left.

Source: "Prevented is not protected" (Aligned RAG Evaluation), appendix H.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report import parts
from ragassay.report.parts import Part, Row
from ragassay.report.text import count, known, listed

NAMES = {"all": "all support left", "some": "some left", "none": "none left"}
NOT_ANNOTATED = "not annotated"
NOTE = (
    "Poisoned contexts as retrieved, by how much of the annotated support they still hold: poison "
    "can win by driving the truth out of the context, or against it. Target-positive answers of "
    "the contexts of each stratum that have a label, with Wilson intervals in percent."
)


def wanted(summary: Mapping[str, Any]) -> bool:
    """Whether support is annotated and there is an attack."""
    return bool(summary.get("exposure"))


def strata(summary: Mapping[str, Any], scorer: str, charts: bool) -> list[Part]:
    """The undefended system over all places, and all systems at each."""
    found = parts.of_scorer(summary["exposure"], scorer)
    names = {
        each["stratum"]: NAMES.get(each["stratum"], NOT_ANNOTATED)
        for row in found for each in row["strata"]
    }  # fmt: skip
    first, tables = parts.system_tables(
        summary, found, [name.capitalize() for name in names.values()],
        lambda row: [_stratum(row, each) for each in names],
        title="Target-positive answers by the support that is left",
    )  # fmt: skip
    result = [Part(claim=finding(found, summary), note=NOTE, grids=(first,) if first else ())]
    return result + [
        Part(heading=f"Every system under {grid.title}", grids=(grid,), folded=True)
        for grid in tables
    ]


def finding(found: Sequence[Row], summary: Mapping[str, Any]) -> str:
    """Say how many contexts keep their support, and where the target-positive answers are."""
    top = parts.leading(found)
    if not top:
        return ""
    row = top[0]
    each = {one["stratum"]: one for one in row["strata"]}
    contexts = sum(one["contexts"] for one in row["strata"] if one["stratum"])
    sizes = [f"{each[s]['contexts']} hold {s if s != 'none' else 'none'}" for s in NAMES]
    hits = [count(each[s]["target"]) if each[s]["target"]["n"] else "none to ask" for s in NAMES]
    return (
        f"Under {parts.spot_name(parts.at_spot(row), summary)}, of {contexts} contexts with "
        f"annotated support {listed(sizes)} of it; target-positive there: {', '.join(hits)}."
    )


def _stratum(row: Row, stratum: str | None) -> str:
    for one in row["strata"]:
        if one["stratum"] == stratum:
            unlabeled = one["contexts"] - one["target"]["n"]
            text = known(one["target"], empty="no context" if not one["contexts"] else "no label")
            return text + (f", {unlabeled} without a label" if unlabeled else "")
    return "-"
