"""What stood in the contexts and what the answers cost, as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragassay.report.grids import Block, Grid, name, pair_of
from ragassay.report.text import NOT_ESTIMABLE, decimal, ratio, share

_COUNTED = {
    "input_tokens": "Input tokens", "output_tokens": "Output tokens",
    "encoded_texts": "Embedded texts", "scored_texts": "Texts scored by a language model",
}  # fmt: skip


def composition(block: Block, *, has_qrels: bool) -> Grid:
    """What stood in the contexts, and what the defense let through (means per context)."""
    rows = []
    for cell in block.cells:
        clean, poisoned = pair_of(cell)
        context = cell["context"]
        rows.append(
            (
                name(cell),
                _through(context[poisoned], "own", 2),
                _through(context[poisoned], "foreign", 2),
                _through(context[poisoned], "passages", 2),
                _support(context[poisoned], has_qrels),
                _through(context[clean], "passages", 2),
                _support(context[clean], has_qrels),
                f"{context[clean]['n']}, {context[poisoned]['n']}",
            )
        )
    return Grid(
        title=block.title,
        columns=(
            "Defense", "Poisoned: own poison", "Poisoned: foreign poison", "Poisoned: passages",
            "Poisoned: contexts with support", "Clean: passages", "Clean: contexts with support",
            "Contexts: clean, poisoned",
        ),
        rows=tuple(rows),
        keys=tuple(cell["defense"] for cell in block.cells),
        notes=(_any_poison(block),),
    )  # fmt: skip


def cost(block: Block) -> Grid:
    """Calls, and what was counted of tokens and texts, per query; calls beside the undefended."""
    rows = []
    reference = block.undefended["cost"] if block.undefended else None
    # What nobody counted, such as the tokens of a system that is only asked, is no 0.
    counted = [
        what for what in _COUNTED
        if any(each.get(what) for cell in block.cells for each in cell["cost"].values())
    ]  # fmt: skip
    calls_of = "Model calls" if "input_tokens" in counted else "Calls"
    for cell in block.cells:
        clean, poisoned = pair_of(cell)
        row = [name(cell)]
        for condition, base in ((clean, "c0"), (poisoned, "p0")):
            calls = cell["cost"][condition]["model_calls"]
            times = ratio(calls, reference[base]["model_calls"] if reference else None)
            row.append(f"{decimal(calls)} ({times})" if calls is not None else NOT_ESTIMABLE)
        for what in counted:
            row.append(", ".join(decimal(cell["cost"][c].get(what)) for c in (clean, poisoned)))
        row.append(", ".join(str(cell["context"][c]["n"]) for c in (clean, poisoned)))
        rows.append(tuple(row))
    return Grid(
        title=block.title,
        columns=(
            "Defense", f"{calls_of}, clean (x undefended)",
            f"{calls_of}, poisoned (x undefended)",
            *(f"{_COUNTED[what]}: clean, poisoned" for what in counted),
            "Queries: clean, poisoned",
        ),
        rows=tuple(rows),
        keys=tuple(cell["defense"] for cell in block.cells),
    )  # fmt: skip


def merged(found: Sequence[Block], build: Callable[[Block], Grid]) -> Grid:
    """One table of many blocks that have a single row each, as without any defense."""
    tables = [(block, build(block)) for block in found]
    return Grid(
        title="All attacks",
        columns=("Attack", *tables[0][1].columns[1:]),
        rows=tuple((block.title, *row[1:]) for block, table in tables for row in table.rows),
    )


def contexts_known(block: Block) -> bool:
    """Whether any passage of a context was recorded; imported answers may have none."""
    return any(
        cell["context"][condition]["retrieved"]["passages"]
        for cell in block.cells
        for condition in pair_of(cell)
    )


def cost_known(block: Block) -> bool:
    """Whether any cost was recorded."""
    return any(
        value for cell in block.cells for condition in pair_of(cell)
        for value in cell["cost"][condition].values()
    )  # fmt: skip


def _through(context: Mapping[str, Any], what: str, digits: int) -> str:
    found, kept = context["retrieved"][what], context["kept"][what]
    return NOT_ESTIMABLE if found is None else f"{found:.{digits}f} -> {kept:.{digits}f}"


def _support(context: Mapping[str, Any], has_qrels: bool) -> str:
    n = context["n"]
    if not has_qrels:
        return "not known"
    if not n:
        return NOT_ESTIMABLE
    found, kept = (
        round(context[f"support_{stage}"]["contexts_with"] * n) for stage in ("retrieved", "kept")
    )
    return f"{found}/{n} -> {kept}/{n}"


def _any_poison(block: Block) -> str:
    if block.undefended is None:
        return ""
    rate = block.undefended["context"]["p0"]["any_poison"]
    return f"Poisoned contexts with any poison: {share(rate, interval=bool(rate['n']))}."
