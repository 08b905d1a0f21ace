"""The tables of an arena as plain strings, the same for the terminal, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report.grids import Grid
from ragassay.report.text import (
    NO_WIDTH_NOTE,
    NOT_ESTIMABLE,
    bracket,
    decimal,
    level,
    percent,
    points,
    visible,
)

Row = Mapping[str, Any]
_ORDER_NAMES = {"together": "together", "first": "first", "second": "second"}
_HAVING = {"own": "own", "none": "no"}
_PREDICTORS = (
    ("s_asr", "best s-ASR"), ("theta", "highest theta"),
    ("difference", "theta minus s-ASR (pp)"), ("over_chance", "s-ASR minus chance (pp)"),
)  # fmt: skip


def main(result: Row) -> Grid:
    """The ranking: theta, rank, success alone and among others, win rate, F1."""
    rows = by_rank(result)
    return Grid(
        title="Ranking",
        columns=("Attacker", "Rank", "theta", "m-ASR", "Win rate", "m-F1", "s-ASR", "s-F1"),
        rows=tuple(
            (
                visible(row["attacker"]) + (" (untargeted)" if row["untargeted"] else ""),
                rank(row["rank"]),
                signed(row["theta"]),
                share(row["among"]["success"]),
                share(row["among"]["wins"]),
                exact(row, "rounds", "among", "f1"),
                share(row["alone"]["success"]),
                exact(row, "single", "alone", "f1"),
            )
            for row in rows
        ),
        notes=_notes(rows),
    )


def by_rank(result: Row) -> list[Row]:
    """The rows of attackers, the strongest first; those without a rank last, by name."""
    return sorted(
        result["attackers"],
        key=lambda row: (row["rank"]["value"] is None, row["rank"]["value"], row["attacker"]),
    )


def _notes(rows: Sequence[Row]) -> tuple[str, ...]:
    unjudged = [
        f"{visible(row['attacker'])} {row['among']['unjudged'] + row['alone']['unjudged']}"
        for row in rows
        if row["among"]["unjudged"] or row["alone"]["unjudged"]
    ]
    told = f"Plays that could not be judged: {', '.join(unjudged)}." if unjudged else ""
    flat = any(
        share["low"] is not None and share["low"] == share["high"]
        for row in rows
        for share in (row["among"]["success"], row["among"]["wins"], row["alone"]["success"])
    )
    mark = NO_WIDTH_NOTE.replace("in every injection group", "in every question") if flat else ""
    return (mark, told)


def brief(result: Row) -> Grid:
    """The ranking for the terminal."""
    full = main(result)
    keep = (0, 1, 2, 3, 6)
    return Grid(
        title="Arena",
        columns=tuple(full.columns[i] for i in keep),
        rows=tuple(tuple(row[i] for i in keep) for row in full.rows),
    )


def retrieval(result: Row) -> Grid:
    """Precision, recall and F1 of retrieval, alone and among others."""
    return Grid(
        title="Retrieval",
        columns=("Attacker", "m-precision", "m-recall", "m-F1", "m-F1 of the plays",
                 "s-precision", "s-recall", "s-F1"),
        rows=tuple(
            (
                visible(row["attacker"]),
                *(exact(row, "rounds", "among", what) for what in ("precision", "recall", "f1")),
                figure(row["among"]["f1"]),
                *(exact(row, "single", "alone", what) for what in ("precision", "recall", "f1")),
            )
            for row in by_rank(result)
        ),
        notes=("Exact means have no interval: nothing was sampled. They are over questions in "
               "which the attacker has documents.",),
    )  # fmt: skip


def certainty(result: Row) -> tuple[Grid, ...]:
    """Superiority between pairs, estimated win probability, and probabilities of ranks."""
    told = result["strengths"]
    if not told["estimable"] or told["superiority"] is None:
        return ()
    names = [visible(name) for name in told["names"]]
    n = len(names)
    return (
        Grid(
            title="Probability of superiority",
            columns=("Stronger than", *names),
            rows=tuple(
                (names[i], *("" if i == j else percent(told["superiority"][i][j])
                             for j in range(n)))
                for i in range(n)
            ),
        ),
        Grid(
            title="Estimated probability to win a decided play against",
            columns=("Attacker", *names),
            rows=tuple(
                (names[i], *("" if i == j else _probability(told["win_probabilities"][i][j])
                             for j in range(n)))
                for i in range(n)
            ),
        ),
        Grid(
            title="Probability of ranks",
            columns=("Attacker", *(f"rank {place + 1}" for place in range(n))),
            rows=tuple(
                (names[i], *(percent(p) for p in told["rank_probabilities"][i])) for i in range(n)
            ),
        ),
    )  # fmt: skip


def online(result: Row) -> Grid | None:
    """Strengths by the online rules beside the headline."""
    told = result["strengths"]
    if not told["estimable"]:
        return None
    thetas = {row["attacker"]: row["theta"] for row in result["attackers"]}
    rules = told["online"]
    rows = [
        (
            visible(name),
            signed(thetas[name]),
            *(f"{rules[rule][i]:+.4f}" for rule in ("batch", "sequential", "printed")),
        )
        for i, name in enumerate(told["names"])
    ]
    sums = (f"{sum(rules[rule]):+.4f}" for rule in ("batch", "sequential", "printed"))
    return Grid(
        title="Online strengths",
        columns=("Attacker", "headline", "correct gradient", "pair by pair", "as printed"),
        rows=(*rows, ("Sum", "0", *sums)),
    )


def trend(told: Row, names: Sequence[str]) -> Grid:
    """Win rates and online strengths of attackers at a few rounds."""
    at = told["rounds"]
    chosen = sorted({round(i * (len(at) - 1) / 5) for i in range(6)})
    return Grid(
        title="Win rate, online theta",
        columns=("Attacker", *(f"round {at[i]:,}" for i in chosen)),
        rows=tuple(
            (
                visible(name),
                *(f"{percent(told['win_rate'][row][i])}, {told['theta'][row][i]:+.2f}"
                  for i in chosen),
            )
            for row, name in ((told["names"].index(name), name) for name in names)
        ),
    )  # fmt: skip


def matrices(result: Row, names: Sequence[str]) -> tuple[Grid, ...]:
    """Success and F1 of the row's attacker against the column's."""
    cells = {(row["attacker"], row["against"]): row for row in result["pairs"]}
    shown = [visible(name) for name in names]

    def table(title: str, text: Any) -> Grid:
        return Grid(
            title=title,
            columns=("Against", *shown),
            rows=tuple(
                (shown[i], *(text(cells[a, b]) if (a, b) in cells else "" for b in names))
                for i, a in enumerate(names)
            ),
        )

    return (
        table(
            "Success",
            lambda row: (
                share({**row, "count": row["won"], "value": row["success"]})
                if row["n"]
                else NOT_ESTIMABLE
            ),
        ),
        table("F1", lambda row: decimal(pair_f1(row), 4)),
    )


def pair_f1(row: Row) -> float | None:
    """The exact F1 of a pair where it is known, else the mean of the plays."""
    value: float | None = row["f1"] if row["exact_f1"] is None else row["exact_f1"]
    return value


def sizes(result: Row, numbers: Sequence[int]) -> Grid:
    """Success by the number of attackers."""
    table = {(row["attacker"], row["size"]): row["success"] for row in result["sizes"]}
    names = [row["attacker"] for row in by_rank(result)]
    return Grid(
        title="Success",
        columns=("Attacker", *(f"{n} attackers" if n > 1 else "alone" for n in numbers)),
        rows=tuple(
            (
                visible(name),
                *(share(table[name, n]) if (name, n) in table else "" for n in numbers),
            )
            for name in names
        ),
    )


def prediction(told: Row) -> Grid:
    """Accuracy of predictors beside chance."""
    rows = [("random pick", percent(told["chance"]))]
    for key, name in _PREDICTORS:
        value = told[key]
        text = points(value) if "pp" in name else percent(value["value"])
        rows.append((name, f"{text} {bracket(value)}"))
    return Grid(title="Prediction", columns=("Predicted winner", "Accuracy"), rows=tuple(rows))


def aligned(rows: Sequence[Row]) -> Grid:
    """N, H and Gamma of defenses, for any attacker and for each."""
    return Grid(
        title="Aligned record",
        columns=("Defense", "Attacker", "plays", "p0 -> p1", "c0 -> c1", "P", "J", "N", "H",
                 "Gamma", "dropped"),
        rows=tuple(
            (
                visible(row["defense"]),
                visible(row["attacker"]) or "any",
                f"{row['n']:,}",
                *(
                    f"{percent(row['rates'][a]['value'])} -> {percent(row['rates'][b]['value'])}"
                    for a, b in (("p0", "p1"), ("c0", "c1"))
                ),
                *(f"{row['effects'][name]['count']}" for name in ("P", "J")),
                *(
                    f"{points(row['effects'][name])} {bracket(row['effects'][name])}"
                    for name in ("N", "H", "Gamma")
                ),
                str(row["dropped"]),
            )
            for row in rows
            if row["estimable"]
        ),
        notes=("Percentage points of the plays; intervals resample whole questions.",),
    )  # fmt: skip


def orders(result: Row) -> Grid:
    """Success of both attackers of a pair by who came first."""
    table = {(r["attacker"], r["against"], r["when"]): r for r in result["orders"]}
    pairs = sorted({(a, b) for a, b, _ in table})
    return Grid(
        title="Order of attack",
        columns=("Attacker", "Against", *(f"{name}" for name in _ORDER_NAMES)),
        rows=tuple(
            (
                visible(a),
                visible(b),
                *(share(table[a, b, when]["success"]) for when in _ORDER_NAMES),
            )
            for a, b in pairs
        ),
    )


def prompts(told: Row) -> Grid:
    """Prompts asked for and distinct ones."""
    return Grid(
        title="Prompts",
        columns=("Prompts", "Number"),
        rows=(
            ("asked for by the plays", f"{told['plays']:,}"),
            ("distinct among them, played once for each system", f"{told['distinct']:,}"),
            ("clean contexts beside these", f"{told['clean']:,}"),
            ("without the passages of an untargeted attacker, undefended",
             f"{told['removals']:,}"),
            *([("for triggers and contents alone, undefended", f"{told['variants']:,}")]
              if told.get("variants") else []),
            ("systems (defenses, with none)", f"{told['systems']:,}"),
            (f"calls of the released loop for {told['released_loop']['rounds']:,} rounds",
             f"{told['released_loop']['prompts']:,}"),
        ),
    )  # fmt: skip


# ----------------------------------------------------------------------------------- cells


def scene_name(scene: str) -> str:
    """A scene in words."""
    label, _, context = scene.rpartition("|")
    setting, _, budget = label.rpartition("|")
    way, _, variant = context.partition(":")
    text = f"{visible(setting)}, " if setting else ""
    text += f"{budget} documents for each attacker" if budget != "1" else "one document each"
    text += ", the best one put into the context" if way == "content" else ""
    if not variant:
        return text
    trigger, _, content = variant.partition("+")
    return f"{text}, {_HAVING[trigger]} trigger, {content} content"


def share(value: Row) -> str:
    """A share of plays with its interval."""
    if not value["n"]:
        return NOT_ESTIMABLE
    return f"{value['count']:.0f}/{value['n']} ({percent(value['value'])}) {bracket(value)}"


def figure(value: Row) -> str:
    """A mean with its interval, with four decimals."""
    if value["value"] is None:
        return NOT_ESTIMABLE
    if value["low"] is None:
        return decimal(value["value"], 4)
    return f"{value['value']:.4f} [{value['low']:.4f}, {value['high']:.4f}]"


def exact(row: Row, kind: str, plays: str, what: str) -> str:
    """An exact mean where it is known, else that of the plays with its interval."""
    known = row["exact"][kind].get(what)
    return figure(row[plays][what]) if known is None else f"{known:.4f}"


def signed(value: Row) -> str:
    """A strength with its interval."""
    if value["value"] is None:
        return NOT_ESTIMABLE
    text = f"{value['value']:+.3f}"
    return text if value["low"] is None else f"{text} [{value['low']:+.3f}, {value['high']:+.3f}]"


def rank(value: Row) -> str:
    """A rank with its interval."""
    if value["value"] is None:
        return "no rank"
    text = str(value["value"])
    return text if value["low"] is None else f"{text} [{value['low']:.0f}, {value['high']:.0f}]"


def _probability(value: Row) -> str:
    return f"{percent(value['value'])} {bracket(value)}"


__all__ = [
    "aligned", "brief", "by_rank", "certainty", "exact", "figure", "level", "main", "matrices",
    "online", "orders", "pair_f1", "prediction", "prompts", "rank", "retrieval", "scene_name",
    "share",
    "signed", "sizes", "trend",
]  # fmt: skip
