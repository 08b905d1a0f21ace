"""The tables of a dose run as plain strings, the same for the terminal, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report.grids import NO_DEFENSE, UNDEFENDED, Grid
from ragassay.report.text import (
    NO_WIDTH,
    NO_WIDTH_NOTE,
    NOT_ESTIMABLE,
    bracket,
    count,
    decimal,
    p_value,
    points,
    share,
    visible,
)

Row = Mapping[str, Any]
Summary = Mapping[str, Any]
ARMS = {
    "clean": "clean",
    "zero_dose": "zero dose (same prompt again)",
    "closed_book": "closed book",
    "irrelevant": "irrelevant context",
    "tampered": "tampered",
}
NONE_READ = "not read"
OUTCOMES = ("correct", "abstained", "wrong")


def rule_name(rule: str) -> str:
    """A rule as tables name it."""
    return visible(rule) if rule else "all rules"


def system_name(row: Row) -> str:
    """The defense of a row, or that there is none."""
    return NO_DEFENSE if row["defense"] == UNDEFENDED else visible(row["defense"])


def rows_of(
    summary: Summary, section: str, *, setting: str, defense: str = UNDEFENDED,
    scorer: str | None = None,
) -> list[Row]:  # fmt: skip
    """Rows of one system, under the headline rule unless another is named."""
    scorer = scorer or summary["headline"]
    return [
        row
        for row in summary[section]
        if row["setting"] == setting
        and row.get("defense", defense) == defense
        and row.get("scorer", scorer) == scorer
    ]


def bounds(row: Row, digits: int = 2) -> str:
    """An interval in the unit of its figure; an open end is a dash."""
    low, high = (
        "..." if end is None else decimal(end, digits) for end in (row["low"], row["high"])
    )
    return f"[{low}, {high}]"


def rate(figure: Row | None) -> str:
    """A rate with count, denominator, percent and interval."""
    return NONE_READ if figure is None else share(figure, interval=True)


def _marked(grid_rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return (NO_WIDTH_NOTE.replace("injection group", "question"),) if any(
        NO_WIDTH in cell for row in grid_rows for cell in row
    ) else ()  # fmt: skip


def grid(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Grid | None:
    """A table; None without a row."""
    if not rows:
        return None
    return Grid(
        title=title,
        columns=tuple(columns),
        rows=tuple(tuple(row) for row in rows),
        notes=_marked(rows),
    )


def response(rows: Sequence[Row], title: str = "By applied dose") -> Grid | None:
    """Outcomes by rule and applied dose."""
    lines = [
        (
            rule_name(row["rule"]),
            f"{point['dose']}{' (control)' if point['dose'] == 0 else ''}",
            str(point["n"]),
            rate(point["fooled"]),
            rate(point["adopted"]),
            rate(point["abstained"]),
            NONE_READ if point["adopted_and_abstained"] is None
            else str(point["adopted_and_abstained"]),
        )
        for row in rows
        for point in row["points"]
    ]  # fmt: skip
    columns = ("Rule", "Dose", "Runs", "Fooled, of clean-correct", "Adopted", "Abstained",
               "Adopted and abstained")  # fmt: skip
    return grid(title, columns, lines)


def model(rows: Sequence[Row]) -> Grid | None:
    """ED50 by both models, and whether outcomes rise with the dose."""
    lines = []
    for row in rows:
        halves = [half(each) for each in row["model"]["ed50"]]
        lines.append(
            (
                rule_name(row["rule"]),
                *halves,
                *(_rise(row["model"][what]) for what in ("fooled", "adopted")),
            )
        )
    columns = ("Rule", "ED50, logistic", "ED50, nondecreasing", "Fooled rises?", "Adopted rises?")
    return grid("Dose at which half of the clean-correct answers fall", columns, lines)


def half(ed50: Row) -> str:
    """An ED50 with its interval, or why there is none."""
    if ed50["value"] is None:
        text = f"{NOT_ESTIMABLE}: {ed50['reason']}"
        if ed50["estimable"]:
            text += f"; interval {bounds(ed50)}"
        return text
    return f"{decimal(ed50['value'], 2)} {bounds(ed50)}"


def _rise(shape: Row) -> str:
    """The trend, and the test for a fall anywhere."""
    found, monotone = shape["trend"], shape["monotone"]
    if monotone is None:
        return NOT_ESTIMABLE
    trend = "no trend test" if found is None else (
        f"trend z = {decimal(found['z'])}, p {_p(found['p_value'])}"
    )  # fmt: skip
    if monotone["rises"]:
        return f"{trend}; nowhere falls"
    p = monotone["p_value"]
    told = "" if p is None else f" (p {_p(p)})"
    return f"{trend}; falls somewhere{told}"


def _p(value: float) -> str:
    text = p_value(value)
    return text.replace("<", "< ") if text.startswith("<") else f"= {text}"


def delivery(rows: Sequence[Row]) -> Grid | None:
    """Requested against applied dose."""
    lines = [
        (
            rule_name(row["rule"]),
            str(row["requested"]),
            str(row["n"]),
            f"{decimal(row['mean'], 2)} {bounds(row)}",
            rate(row["exact"]),
        )
        for row in rows
    ]
    columns = ("Rule", "Requested", "Runs", "Applied, mean", "Applied exactly")
    return grid("Requested and applied", columns, lines)


def contrasts(rows: Sequence[Row]) -> Grid | None:
    """Differences of rules, paired by question."""
    lines = [
        (
            row["event"],
            "1 and more" if row["dose"] is None else str(row["dose"]),
            f"{rule_name(row['first'])} minus {rule_name(row['second'])}",
            str(row["questions"]),
            NOT_ESTIMABLE if row["value"] is None else f"{points(row)} {bracket(row)}",
        )
        for row in rows
    ]
    columns = ("Outcome", "Applied dose", "Rules", "Questions", "Difference, points")
    return grid("Rules, paired by question", columns, lines)


def arms(rows: Sequence[Row]) -> Grid | None:
    """The control arms by themselves."""
    lines = [
        (ARMS[row["arm"]], str(row["n"]), *(rate(row[each]) for each in OUTCOMES))
        for row in rows
    ]  # fmt: skip
    return grid("Control arms", ("Arm", "Answers", "Correct", "Abstained", "Wrong"), lines)


def tests(rows: Sequence[Row]) -> Grid | None:
    """McNemar tests between arms."""
    lines = []
    for row in rows:
        second = ARMS[row["second"]]
        if row["rule"]:
            second = f"{rule_name(row['rule'])}, {row['requested']} requested"
        lines.append(
            (
                f"{ARMS[row['first']]} -> {second}",
                str(row["n"]),
                f"{row['correct_first']} -> {row['correct_second']}",
                str(row["lost"]),
                str(row["gained"]),
                p_value(row["p_value"]),
            )
        )
    columns = ("Arms", "Runs", "Correct", "Lost", "Gained", "Exact McNemar p")
    return grid("Correctness between arms", columns, lines)


def noise(rows: Sequence[Row]) -> Grid | None:
    """Two generations of the clean prompt."""
    lines = []
    for row in rows:
        test = row["symmetry"]
        lines += [
            ("Equal, character by character", rate(row["agree"])),
            ("Equal where the clean arm was asked first", rate(row["agree_clean_first"])),
            ("Equal where the zero-dose arm was asked first", rate(row["agree_zero_first"])),
            ("Fooled by nothing but decoding", rate(row["fooled"])),
            (
                "Correctness lost and gained, exact p",
                f"{test['lost']} and {test['gained']}, {p_value(test['p_value'])}",
            ),
        ]
    return grid("Two generations of the clean prompt", ("Figure", "Value"), lines)


def knowledge(rows: Sequence[Row]) -> Grid | None:
    """Facts that the victim knows without passages, and facts that it does not."""
    lines = [
        (
            "known" if row["known"] else "unknown",
            str(row["questions"]),
            rate(row["tampered"]["fooled"]),
            rate(row["tampered"]["adopted"]),
            rate(row["tampered"]["abstained"]),
            half(row["ed50"]),
        )
        for row in rows
    ]
    columns = ("Fact", "Questions", "Fooled", "Adopted", "Abstained", "ED50, logistic")
    return grid("At applied dose 1 and more", columns, lines)


def defended(rows: Sequence[Row], event: str) -> Grid | None:
    """What a defense prevents and introduces, by applied dose."""
    lines = [
        (
            visible(row["defense"]),
            "1 and more" if row["dose"] is None else str(row["dose"]),
            str(row["n"]),
            " / ".join(str(row["rates"][c]) for c in ("c0", "c1", "p0", "p1")),
            *(
                f"{points(row['effects'][e])} {bracket(row['effects'][e])}"
                if e not in ("P", "J")
                else str(row["effects"][e]["count"])
                for e in ("P", "J", "N", "H", "Gamma")
            ),
        )
        for row in rows
        if row["event"] == event
    ]
    columns = ("Defense", "Applied dose", "Runs", "c0 / c1 / p0 / p1", "P", "J", "N", "H", "Gamma")
    return grid(f"Four answers, outcome: {event}", columns, lines)


def withdrawn(rows: Sequence[Row]) -> Grid | None:
    """The withdrawn measure, over answers that commit."""
    lines = [(str(row["dose"]), rate(row["low_overlap"])) for row in rows]
    return grid("Withdrawn: word overlap below 0.3", ("Applied dose", "Answers"), lines)


def short(figure: Row | None) -> str:
    """A rate as count and percent, for the terminal."""
    return NONE_READ if figure is None else share(figure) if figure["n"] else count(figure)
