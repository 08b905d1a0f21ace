"""The tables of a report as plain strings, the same for the terminal, Markdown and HTML.

A block is one (rule, setting, attack, budget): the undefended system and every defense beside
it. P, J, N, H, Gamma and the level that remains (r_p1) always stand in one table, because each
of them alone misleads. Where a comparison is not estimable, the rates of the conditions that
are there stand in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragassay.report.text import (
    NOT_ESTIMABLE,
    bracket,
    count,
    label_share,
    p_value,
    place,
    plural,
    points,
    share,
    visible,
)

UNDEFENDED = "none"
NO_DEFENSE = "(no defense)"
REASONS = {
    "missing": "not run",
    "failed": "failed",
    "not_scored": "not scored",
    "uncertain": "uncertain",
    "not_applicable": "rule does not apply",
}
TRANSITIONS = {
    "attack_without_defense": "Attack, no defense (c0 -> p0)",
    "attack_with_defense": "Attack, with defense (c1 -> p1)",
    "defense_on_clean": "Defense, clean (c0 -> c1)",
    "defense_on_poisoned": "Defense, poisoned (p0 -> p1)",
}
CONDITION_NAMES = {
    "c0": "clean, no defense",
    "c1": "clean, with defense",
    "p0": "poisoned, no defense",
    "p1": "poisoned, with defense",
}
AIMS = {
    "declined": "the system answered and now declines",
    "incorrect": "the answer was correct and no longer is",
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
    """One (rule, setting, attack, budget): the undefended cell, if there is one, and the defended.

    ``shown`` is the setting where the run has several, else empty; ``aim`` says in words what an
    attack without a target counts as success, and is empty for all others.
    """

    scorer: str
    setting: str
    shown: str
    attack: str
    budget: int
    undefended: Cell | None
    defended: tuple[Cell, ...]
    aim: str = ""

    @property
    def title(self) -> str:
        """Setting (of several), attack and budget, in words."""
        return place(self.attack, self.budget, self.shown)

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

    def label(self, condition: str) -> Mapping[str, Any] | None:
        """Return the label counts of ``c0`` or ``p0`` by itself; None where it is absent."""
        for cell in self.cells:
            if condition not in cell["absent"]:
                label: Mapping[str, Any] = cell["labels"][condition]
                return label
        return None


def several(summary: Mapping[str, Any]) -> bool:
    """Whether a run has more than one setting, so that headings name it."""
    return len(summary["settings"]) > 1


def blocks(summary: Mapping[str, Any], scorer: str | None = None) -> list[Block]:
    """Split the cells of one rule (default: the headline rule) by setting, attack and budget."""
    scorer = scorer or summary["headline"]
    groups: dict[tuple[str, str, int], list[Cell]] = {}
    for cell in summary["cells"]:
        if cell["scorer"] == scorer:
            at = (cell["setting"], cell["attack"], cell["budget"])
            groups.setdefault(at, []).append(cell)
    return [
        Block(
            scorer=scorer,
            setting=setting,
            shown=setting if several(summary) else "",
            attack=attack,
            budget=budget,
            undefended=next((c for c in cells if c["defense"] == UNDEFENDED), None),
            defended=tuple(c for c in cells if c["defense"] != UNDEFENDED),
            aim=aim_of(summary, attack) if budget else "",
        )
        for (setting, attack, budget), cells in groups.items()
    ]


def aim_of(summary: Mapping[str, Any], attack: str) -> str:
    """What an attack without a target counts as success, in words; empty for all others."""
    kinds = (summary.get("outcomes") or {"attacks": {}})["attacks"]
    return AIMS.get(kinds.get(attack, ""), "")


def targeted(found: Sequence[Block]) -> list[Block]:
    """The blocks whose target-positive rate is the success of their attack."""
    return [block for block in found if not block.aim]


def undefended_line(block: Block) -> str:
    """Say how the undefended system does, clean and poisoned, and what the attack is after."""
    if not block.aim:
        return _levels(block)
    return (
        f"This attack wants no answer of its own: it succeeds where {block.aim} (see Attacks "
        f"without a target), and target-positive answers are no success of it. {_levels(block)}"
    )


def _levels(block: Block) -> str:
    clean, poisoned = block.rate("c0"), block.rate("p0")
    if clean and poisoned:
        text = (
            f"Undefended, target-positive: clean {share(clean, interval=True)}, "
            f"poisoned {share(poisoned, interval=True)}."
        )
        undecided = [
            f"{word} {label['uncertain']['count']} of {label['uncertain']['n']} answers"
            for word, condition in (("clean", "c0"), ("poisoned", "p0"))
            if (label := block.label(condition)) and label["uncertain"]["count"]
        ]
        return text + (f" Uncertain, so left out: {', '.join(undecided)}." if undecided else "")
    told = [
        f"{word} {label_share(label) if (label := block.label(condition)) else 'not run'}"
        for word, condition in (("clean", "c0"), ("poisoned", "p0"))
    ]
    return f"Undefended, target-positive: {', '.join(told)}."


def effects(block: Block) -> Grid:
    """P, J, N, H, Gamma and the level before and after, one row for each defense."""
    undecided = _undecided(block, ("p0", "p1"))
    rows = []
    for cell in block.defended:
        uncertain = [", ".join(_uncertain(cell, c) for c in ("p0", "p1"))] if undecided else []
        if not cell["estimable"]:
            before, after = (cell["labels"][c]["positive"] for c in ("p0", "p1"))
            level = f"{count(before)} -> {share(after)}" if before["n"] or after["n"] else ""
            rows.append((name(cell), "0", level or NOT_ESTIMABLE, *uncertain, *[NOT_ESTIMABLE] * 7))
            continue
        rates, effect = cell["rates"], cell["effects"]
        rows.append(
            (
                visible(cell["defense"]),
                f"{cell['n']} in {plural(cell['groups'], 'group')}",
                f"{count(rates['p0'])} -> {share(rates['p1'])}",
                *uncertain,
                *(f"{effect[e]['count']}/{cell['n']} {bracket(effect[e])}" for e in ("P", "J")),
                *(f"{points(effect[e])} {bracket(effect[e])}" for e in ("N", "H", "Gamma")),
                p_value(cell["mcnemar"]["poisoned"]["p_value"]),
                p_value(cell["mcnemar"]["clean"]["p_value"]),
            )
        )
    return Grid(
        title=block.title,
        columns=(
            "Defense", "n", "Target-positive, poisoned: before -> after",
            *(["Uncertain, poisoned: before, after"] if undecided else []), "P prevented",
            "J introduced", "N, pp", "H, pp", "Gamma, pp", "McNemar p, poisoned",
            "McNemar p, clean",
        ),
        rows=tuple(rows),
        keys=tuple(cell["defense"] for cell in block.defended),
        notes=tuple(_notes(block)),
    )  # fmt: skip


def conditions(block: Block) -> Grid:
    """Target-positive, correct and abstained, clean and poisoned, one row for each system."""
    rows = []
    for cell in block.cells:
        pair = pair_of(cell)
        row = [name(cell), *(_target_rate(cell, condition) for condition in pair)]
        for what in ("correct", "abstained"):
            row += [rate_and_uncertain(cell[what][condition]) for condition in pair]
        both = cell.get("hits_while_abstaining")
        row.append(
            ", ".join(f"{both[c]}/{cell['rates'][c]['count']}" for c in pair)
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
        notes=tuple(note for note in (absent_text(cell) for cell in block.cells[:1]) if note),
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


def dropped_text(cell: Cell) -> str:
    """Why queries of a cell were dropped: ``3 of 100 queries (failed 2, not scored 1)``."""
    lost = {REASONS[reason]: n for reason, n in cell["dropped"].items() if n}
    total = sum(lost.values())
    reasons = ", ".join(f"{reason} {n}" for reason, n in lost.items())
    return f"{total} of {plural(cell['n'] + total, 'query')} ({reasons})" if total else ""


def absent_text(cell: Cell) -> str:
    """Say which conditions a cell lacks altogether, and what follows; empty where none."""
    if not cell["absent"]:
        return ""
    names = dict.fromkeys(
        CONDITION_NAMES[c] if cell["defense"] != UNDEFENDED else CONDITION_NAMES[c[0] + "0"]
        for c in cell["absent"]
    )
    return (
        f"The run has no answers for: {'; '.join(names)}. Effects are not estimable; the rates "
        "are those of each condition by itself."
    )


def rate_and_uncertain(rate: Mapping[str, Any]) -> str:
    """A rate with its interval, and how many of its answers are undecided."""
    text = share(rate, interval=bool(rate["n"]))
    return text + (f", {rate['uncertain']} uncertain" if rate["uncertain"] else "")


def _target_rate(cell: Cell, condition: str) -> str:
    """The rate over the complete queries, or over what the condition has by itself."""
    label = cell["labels"][condition]
    if not cell["estimable"]:
        return label_share(label)
    uncertain = label["uncertain"]["count"]
    text = share(cell["rates"][condition], interval=True)
    return text + (f", {uncertain} uncertain of {label['uncertain']['n']}" if uncertain else "")


def _undecided(block: Block, conditions: tuple[str, ...]) -> bool:
    return any(
        cell["labels"][c]["uncertain"]["count"] for cell in block.defended for c in conditions
    )


def _uncertain(cell: Cell, condition: str) -> str:
    return count(cell["labels"][condition]["uncertain"])


def _notes(block: Block) -> Iterator[str]:
    for cell in block.cells:
        absent = absent_text(cell)
        if absent:
            yield f"{name(cell)}: {absent[0].lower()}{absent[1:]}"
            continue
        text = dropped_text(cell)
        if text:
            yield f"Dropped for {name(cell)}: {text}."


def pair_of(cell: Cell) -> tuple[str, str]:
    """The clean and the poisoned condition in which a system answered."""
    return ("c0", "p0") if cell["defense"] == UNDEFENDED else ("c1", "p1")


def name(cell: Cell) -> str:
    """The system of a cell, in words."""
    return NO_DEFENSE if cell["defense"] == UNDEFENDED else visible(cell["defense"])
