"""What the label does to the conclusion, in tables: levels, ranks, effects, differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report.grids import NO_DEFENSE, UNDEFENDED, Grid
from ragassay.report.leaders import At, at_title, defenses, difference_text, row_of, systems
from ragassay.report.text import (
    NOT_ESTIMABLE,
    bracket,
    count,
    decimal,
    label_share,
    place,
    plural,
    points,
    visible,
)

TITLE = "What the label does to the conclusion"
PARTIAL = (
    "Where a scorer read only some of the answers, its rates are of those. Answers that were drawn "
    "for a human audit are no random sample unless they were drawn so; ragassay audit agree "
    "weights them."
)


def levels(at: At, scorers: Sequence[str], title: str) -> Grid:
    """Level under attack and rank of every system under every scorer."""
    rows = []
    for system in systems(at):
        row = [_named(system)]
        for scorer in scorers:
            found = row_of(at, scorer, system)
            if found is None:
                row.append("not run")
                continue
            rank = f"{found['rank_p1']}. " if found["rank_p1"] else ""
            row.append(rank + label_share(found["p1"]))
        rows.append(tuple(row))
    return Grid(
        title=title,
        columns=("Target-positive under attack", *map(visible, scorers)),
        rows=tuple(rows),
        keys=tuple(systems(at)),
        notes=(
            "The number before a rate is the rank among the defenses, 1 the lowest level; equal "
            "levels share a rank.",
        ),
    )


def orders(at: At) -> Grid:
    """Agreement of the orders of the defenses under each two scorers."""
    rows = []
    for order in at["orders"]:
        by_rate, by_net = order["p1"], order["N"]
        if by_rate["n"] < 2:
            continue
        rows.append(
            (
                " and ".join(map(visible, order["scorers"])),
                _tau(by_rate),
                _tau(by_net),
                _reversed(by_rate),
                _reversed(by_net),
            )
        )
    return Grid(
        title="Order of the defenses under two labels",
        columns=(
            "Labels", "Kendall tau-b by level", "Kendall tau-b by N", "Reversed by level",
            "Reversed by N",
        ),
        rows=tuple(rows),
        notes=("Kendall's tau-b is given from three defenses on; 1 is the same order.",),
    )  # fmt: skip


def effects(at: At, scorers: Sequence[str]) -> Grid:
    """P, J and N of every defense under every scorer, with what was dropped."""
    rows = []
    for system in defenses(at):
        for scorer in scorers:
            row = row_of(at, scorer, system)
            if row is None:
                continue
            net = row["N"]
            figures = (
                [NOT_ESTIMABLE] * 3
                if net is None
                else [
                    *(f"{row[e]['count']}/{row['n']} {bracket(row[e])}" for e in ("P", "J")),
                    f"{points(net)} {bracket(net)}",
                ]
            )
            rows.append(
                (
                    visible(system),
                    visible(scorer),
                    *figures,
                    str(row["rank_N"] or "-"),
                    f"{row['n']} of {row['n'] + row['dropped']}",
                    ", ".join(_uncertain(row[c]) for c in ("p0", "p1")),
                )
            )
    return Grid(
        title="P, J and N under each label",
        columns=(
            "Defense", "Label", "P prevented", "J introduced", "N, pp", "Rank by N",
            "Queries with four labels", "Uncertain, poisoned: before, after",
        ),
        rows=tuple(rows),
    )  # fmt: skip


def differences(at: At, scorers: Sequence[str]) -> Grid:
    """Paired difference of every two systems on the queries that a label decides for both."""
    pairs = list(dict.fromkeys((d["a"], d["b"]) for d in at["differences"]))
    found = {(d["a"], d["b"], d["scorer"]): d for d in at["differences"]}
    rows = []
    for a, b in pairs:
        cells = [found.get((a, b, scorer)) for scorer in scorers]
        if not any(cell and cell["n_decisive"] for cell in cells):
            continue
        name = f"{_named(a)} minus {_named(b)}"
        rows.append(
            (name, *("not run" if cell is None else difference_text(cell) for cell in cells))
        )
    return Grid(
        title="Paired differences on jointly decisive queries",
        columns=("Target-positive under attack, pp", *map(visible, scorers)),
        rows=tuple(rows),
        notes=(
            "Only queries where the label decides both answers; how many of all stands beside "
            "the interval, which is from resampling injection groups. Below 0: the first has fewer "
            "target-positive answers.",
        ),
    )


def undefended(comparison: Mapping[str, Any], *, several: bool) -> Grid:
    """The undefended level of every place under every scorer, for runs without a defense."""
    scorers = comparison["scorers"]
    return Grid(
        title="Undefended level under attack",
        columns=("Attack", *map(visible, scorers)),
        rows=tuple(
            (
                at_title(at, several=several),
                *(
                    "not run" if (row := row_of(at, scorer, UNDEFENDED)) is None
                    else label_share(row["p1"])
                    for scorer in scorers
                ),
            )
            for at in comparison["cells"]
        ),
    )  # fmt: skip


def coverage(comparison: Mapping[str, Any]) -> Grid:
    """How much each scorer read, and what it said, over all answers of the run."""
    return Grid(
        title="What each label covers",
        columns=(
            "Label", "Answers read", "Target-positive", "Not", "Uncertain", "Not scored",
            "Without a target", "Equal answers labeled differently",
        ),
        rows=tuple(
            (
                visible(one["scorer"]),
                f"{one['positive'] + one['negative'] + one['uncertain']:,} of {one['answers']:,}",
                *(
                    f"{one[key]:,}"
                    for key in (
                        "positive", "negative", "uncertain", "not_scored", "not_applicable",
                        "conflicting",
                    )
                ),
            )
            for one in comparison["coverage"]
        ),
        notes=(PARTIAL,) if any(one["not_scored"] for one in comparison["coverage"]) else (),
    )  # fmt: skip


def pairs(comparison: Mapping[str, Any]) -> Grid:
    """The labels of each two scorers on distinct answers, and Cohen's kappa."""
    rows = []
    for pair in comparison["pairs"]:
        first, second = map(visible, pair["scorers"])
        table = pair["table"]
        agreed = {"count": pair["agreed"], "n": pair["n_decisive"]}
        rows.append(
            (
                f"{first} and {second}",
                f"{pair['n']:,}",
                f"{table[0][0]:,}",
                f"{table[0][1]:,}",
                f"{table[1][0]:,}",
                f"{table[1][1]:,}",
                f"{sum(table[2]):,}, {sum(row[2] for row in table):,}",
                count(agreed),
                _kappa(pair["kappa"]),
                _kappa(pair["kappa_uncertain"]),
            )
        )
    return Grid(
        title="Agreement of labels on distinct answers",
        columns=(
            "Labels (first and second)", "Answers both read", "Both positive", "First only",
            "Second only", "Neither", "Uncertain: first, second", "Agree where both decide",
            "Cohen's kappa", "Kappa, uncertain as a third label",
        ),
        rows=tuple(rows),
        notes=(
            f"Equal answers to a question count once: {comparison['distinct']:,} of "
            f"{comparison['answers']:,} answers are distinct. Kappa is over answers that both "
            "decide; it is not estimable where both always give one and the same label.",
        ),
    )  # fmt: skip


def vanishing_text(comparison: Mapping[str, Any]) -> str:
    """Say how many substring successes are none by whole tokens; empty without both rules."""
    found = comparison["vanishing"]
    if found is None:
        return ""
    if not found["of"]:
        return f"The rule {found['from']} finds no success, so that none can vanish."
    if not found["count"]:
        return f"None of {found['of']:,} successes by {found['from']} vanishes under {found['to']}."
    return (
        f"{found['count']:,} of {found['of']:,} successes by {found['from']} vanish under "
        f"{found['to']}: the attacker's answer occurs there only as part of other words, or in "
        f"another form. They are {plural(found['distinct'], 'distinct answer')}."
    )


def vanishing(comparison: Mapping[str, Any], *, several: bool) -> Grid:
    """List the substring successes that vanish under whole tokens, as plain strings."""
    found = comparison["vanishing"]
    if found is None:
        return Grid(title="", columns=(), rows=())
    left = found["distinct"] - len(found["records"])
    return Grid(
        title="Substring successes that vanish under whole tokens",
        columns=("Question", "Attacker wants", "Answer", "Where", "Trial", "Times"),
        rows=tuple(
            (
                visible(one["question"], limit=200),
                visible(" | ".join(one["wanted"])),
                excerpt(one),
                _where(one, several),
                one["trial"][:12],
                str(one["times"]),
            )
            for one in found["records"]
        ),
        notes=(f"{left:,} further distinct answers are not listed.",) if left else (),
    )


def excerpt(record: Mapping[str, Any]) -> str:
    """An answer, or the part around its match, with marks where it is cut."""
    before, after = record["cut"]
    text = visible(record["answer"], limit=len(record["answer"]))
    return f"{'... ' if before else ''}{text}{' ...' if after else ''}"


def _reversed(order: Mapping[str, Any]) -> str:
    if order["n"] < 2:
        return NOT_ESTIMABLE
    return "; ".join(f"{visible(a)} / {visible(b)}" for a, b in order["reversed"]) or "none"


def _tau(order: Mapping[str, Any]) -> str:
    value = NOT_ESTIMABLE if order["tau_b"] is None else decimal(order["tau_b"], 2)
    return f"{value}, {plural(order['n'], 'defense')}"


def _kappa(value: float | None) -> str:
    return NOT_ESTIMABLE if value is None else decimal(value, 2)


def _uncertain(label: Mapping[str, Any]) -> str:
    return count(label["uncertain"]) if label["uncertain"]["n"] else "not scored"


def _named(system: str) -> str:
    return NO_DEFENSE if system == UNDEFENDED else visible(system)


def _where(record: Mapping[str, Any], several: bool) -> str:
    setting = f"{visible(record['setting'])}: " if several else ""
    attack = place(record["attack"], record["budget"]) if record["budget"] else "clean"
    defense = "" if record["defense"] == UNDEFENDED else f", {visible(record['defense'])}"
    return f"{setting}{attack}{defense}"
