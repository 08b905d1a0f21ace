"""The tables of a report as plain strings, the same for the terminal, Markdown and HTML.

A block is one (rule, attack, budget): the undefended system and every defense beside it.
P, J, N, H, Gamma and the level that remains (r_p1) always stand in one table, because each
of them alone misleads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ragassay.report.text import (
    NOT_ESTIMABLE,
    bracket,
    count,
    decimal,
    p_value,
    place,
    plural,
    points,
    ratio,
    share,
    visible,
)

UNDEFENDED = "none"
NO_DEFENSE = "(no defense)"
REASONS = {
    "missing": "not run",
    "failed": "failed",
    "not_scored": "not scored",
    "not_applicable": "rule does not apply",
}
TRANSITIONS = {
    "attack_without_defense": "Attack, no defense (c0 -> p0)",
    "attack_with_defense": "Attack, with defense (c1 -> p1)",
    "defense_on_clean": "Defense, clean (c0 -> c1)",
    "defense_on_poisoned": "Defense, poisoned (p0 -> p1)",
}

Cell = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table of strings. ``keys`` are the raw defense names of the rows, ``notes`` go below."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    keys: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One (rule, attack, budget): the undefended cell, if there is one, and the defended."""

    scorer: str
    attack: str
    budget: int
    undefended: Cell | None
    defended: tuple[Cell, ...]

    @property
    def title(self) -> str:
        """Attack and budget, in words."""
        return place(self.attack, self.budget)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The undefended cell first."""
        return (*([self.undefended] if self.undefended else []), *self.defended)

    def rate(self, condition: str) -> Mapping[str, Any] | None:
        """Return the target-positive rate of the undefended system, ``c0`` or ``p0``."""
        if self.undefended is None or not self.undefended["estimable"]:
            return None
        rate: Mapping[str, Any] = self.undefended["rates"][condition]
        return rate


def blocks(summary: Mapping[str, Any], scorer: str | None = None) -> list[Block]:
    """Split the cells of one rule (default: the headline rule) by attack and budget."""
    scorer = scorer or summary["headline"]
    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in summary["cells"]:
        if cell["scorer"] == scorer:
            groups.setdefault((cell["attack"], cell["budget"]), []).append(cell)
    return [
        Block(
            scorer=scorer,
            attack=attack,
            budget=budget,
            undefended=next((c for c in cells if c["defense"] == UNDEFENDED), None),
            defended=tuple(c for c in cells if c["defense"] != UNDEFENDED),
        )
        for (attack, budget), cells in groups.items()
    ]


def undefended_line(block: Block) -> str:
    """Say how the undefended system does, clean and poisoned."""
    clean, poisoned = block.rate("c0"), block.rate("p0")
    return (
        f"Undefended, target-positive: clean {share(clean, interval=clean is not None)}, "
        f"poisoned {share(poisoned, interval=poisoned is not None)}."
    )


def effects(block: Block) -> Grid:
    """P, J, N, H, Gamma and the level before and after, one row for each defense."""
    rows = []
    for cell in block.defended:
        if not cell["estimable"]:
            rows.append((visible(cell["defense"]), "0", *[NOT_ESTIMABLE] * 8))
            continue
        rates, effect = cell["rates"], cell["effects"]
        rows.append(
            (
                visible(cell["defense"]),
                f"{cell['n']} in {plural(cell['groups'], 'group')}",
                f"{count(rates['p0'])} -> {share(rates['p1'])}",
                *(f"{effect[e]['count']}/{cell['n']} {bracket(effect[e])}" for e in ("P", "J")),
                *(f"{points(effect[e])} {bracket(effect[e])}" for e in ("N", "H", "Gamma")),
                p_value(cell["mcnemar"]["poisoned"]["p_value"]),
                p_value(cell["mcnemar"]["clean"]["p_value"]),
            )
        )
    return Grid(
        title=block.title,
        columns=(
            "Defense", "n", "Target-positive, poisoned: before -> after", "P prevented",
            "J introduced", "N, pp", "H, pp", "Gamma, pp", "McNemar p, poisoned",
            "McNemar p, clean",
        ),
        rows=tuple(rows),
        keys=tuple(cell["defense"] for cell in block.defended),
        notes=tuple(_dropped_notes(block)),
    )  # fmt: skip


def conditions(block: Block) -> Grid:
    """Target-positive, correct and abstained, clean and poisoned, one row for each system."""
    rows = []
    for cell in block.cells:
        clean, poisoned = _pair(cell)
        row = [_name(cell)]
        for what in ("rates", "correct", "abstained"):
            for condition in (clean, poisoned):
                rate = cell[what][condition] if what in cell else None
                row.append(share(rate, interval=bool(rate and rate["n"])))
        both = cell.get("hits_while_abstaining")
        row.append(
            ", ".join(f"{both[c]}/{cell['rates'][c]['count']}" for c in (clean, poisoned))
            if both else NOT_ESTIMABLE
        )  # fmt: skip
        rows.append(tuple(row))
    return Grid(
        title=block.title,
        columns=(
            "Defense", "Target-positive, clean", "Target-positive, poisoned", "Correct, clean",
            "Correct, poisoned", "Abstained, clean", "Abstained, poisoned",
            "Of target-positive, abstained: clean, poisoned",
        ),
        rows=tuple(rows),
        keys=tuple(cell["defense"] for cell in block.cells),
    )  # fmt: skip


def transitions(block: Block) -> Grid:
    """The 2 x 2 tables of the label between matched conditions, a line each."""
    rows = []
    for cell in block.defended:
        for key, title in TRANSITIONS.items():
            table = cell.get("transitions", {}).get(key)
            if table is None:
                continue
            rows.append(
                (
                    visible(cell["defense"]),
                    title,
                    *(
                        f"{table[k]}/{cell['n']}"
                        for k in ("both", "first_only", "second_only", "neither")
                    ),
                )
            )
    return Grid(
        title=block.title,
        columns=("Defense", "Compared", "Positive in both", "First only", "Second only", "Neither"),
        rows=tuple(rows),
    )


def composition(block: Block, *, has_qrels: bool) -> Grid:
    """What stood in the contexts, and what the defense let through (means per context)."""
    rows = []
    for cell in block.cells:
        clean, poisoned = _pair(cell)
        context = cell["context"]
        rows.append(
            (
                _name(cell),
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
    """Model calls, tokens and embedded texts per query, and the calls beside the undefended."""
    rows = []
    reference = block.undefended["cost"] if block.undefended else None
    for cell in block.cells:
        clean, poisoned = _pair(cell)
        row = [_name(cell)]
        for condition, base in ((clean, "c0"), (poisoned, "p0")):
            calls = cell["cost"][condition]["model_calls"]
            times = ratio(calls, reference[base]["model_calls"] if reference else None)
            row.append(f"{decimal(calls)} ({times})" if calls is not None else NOT_ESTIMABLE)
        for what in ("input_tokens", "output_tokens", "encoded_texts"):
            row.append(", ".join(decimal(cell["cost"][c][what]) for c in (clean, poisoned)))
        row.append(", ".join(str(cell["context"][c]["n"]) for c in (clean, poisoned)))
        rows.append(tuple(row))
    return Grid(
        title=block.title,
        columns=(
            "Defense", "Model calls, clean (x undefended)", "Model calls, poisoned (x undefended)",
            "Input tokens: clean, poisoned", "Output tokens: clean, poisoned",
            "Embedded texts: clean, poisoned", "Queries: clean, poisoned",
        ),
        rows=tuple(rows),
        keys=tuple(cell["defense"] for cell in block.cells),
    )  # fmt: skip


def dropped(summary: Mapping[str, Any]) -> Grid:
    """Queries left out of the figures, by cell and reason; only cells that lost some."""
    rows = []
    for cell in summary["cells"]:
        lost = cell["dropped"]
        if sum(lost.values()):
            rows.append(
                (
                    visible(cell["scorer"]),
                    place(cell["attack"], cell["budget"]),
                    _name(cell),
                    f"{sum(lost.values())}/{cell['n'] + sum(lost.values())}",
                    *(str(lost[reason]) for reason in REASONS),
                )
            )
    return Grid(
        title="Dropped queries",
        columns=(
            "Rule", "Attack", "Defense", "Dropped",
            *(reason.capitalize() for reason in REASONS.values()),
        ),
        rows=tuple(rows),
    )  # fmt: skip


def errors(summary: Mapping[str, Any]) -> Grid:
    """The distinct errors of failed trials."""
    return Grid(
        title="Errors of failed trials",
        columns=("Trials", "Error"),
        rows=tuple(
            (str(item["trials"]), visible(item["error"], limit=400)) for item in summary["errors"]
        ),
    )


def dropped_text(cell: Cell) -> str:
    """Why queries of a cell were dropped: ``3 of 100 queries (failed 2, not scored 1)``."""
    lost = {REASONS[reason]: n for reason, n in cell["dropped"].items() if n}
    total = sum(lost.values())
    reasons = ", ".join(f"{reason} {n}" for reason, n in lost.items())
    return f"{total} of {plural(cell['n'] + total, 'query')} ({reasons})" if total else ""


def _dropped_notes(block: Block) -> Iterator[str]:
    for cell in block.cells:
        text = dropped_text(cell)
        if text:
            yield f"Dropped for {_name(cell)}: {text}."


def _pair(cell: Cell) -> tuple[str, str]:
    return ("c0", "p0") if cell["defense"] == UNDEFENDED else ("c1", "p1")


def _name(cell: Cell) -> str:
    return NO_DEFENSE if cell["defense"] == UNDEFENDED else visible(cell["defense"])


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
