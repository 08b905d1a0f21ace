"""Detectors under attack: what they intercept by budget, and what they flag on clean contexts.

Source: "Prevented is not protected" (Aligned RAG Evaluation), section 4.3 and appendix H.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ragassay.report import parts
from ragassay.report.curves import interception_chart
from ragassay.report.grids import Grid, several
from ragassay.report.parts import Chart, Part, Row
from ragassay.report.text import NOT_ESTIMABLE, count, known, level, visible

DEFAULT = 0.01  # nominal false-positive rate that leads
MAX_CHARTS = 24  # of all rules together
MAX_OPEN = 2  # settings and attacks; more of them are folded
NOTE = (
    "A context is flagged if its score is above the threshold of the clean contexts that the "
    "detector was calibrated on; one threshold serves all budgets, and the direction is fixed. A "
    "flagged context is declined. Intercepted: flagged, of the contexts whose undefended answer is "
    "target-positive."
)

Tables = dict[str, dict[int, Row]]  # detector, budget


def wanted(summary: Mapping[str, Any]) -> bool:
    """Whether the run has a detector."""
    return bool(summary.get("detectors"))


def detectors(summary: Mapping[str, Any], scorer: str, charts: bool) -> list[Part]:
    """For each setting and attack: the curves, the tables, and the other nominal rates."""
    found = by_attack(summary, scorer)
    room = max(4, MAX_CHARTS // len(summary["scorers"]))
    result = [Part(claim=finding(found, summary), note=NOTE)]
    for number, (place, tables) in enumerate(found.items()):
        rates = nominal_rates(tables)
        drawn = rates[: max(1, min(len(rates), room - number * len(rates)))]
        keep = charts and number < room
        result.append(
            Part(
                heading=_name(place, summary) if len(found) > 1 else "",
                charts=_charts(place, tables, drawn, scorer) if keep else (),
                grids=(
                    intercepted(tables, lead_rate(tables)), realized(tables), areas(tables),
                    medians(tables),
                ),
                folded=number >= MAX_OPEN,
            )
        )  # fmt: skip
        result += [
            Part(
                heading=f"All figures at a nominal rate of {level(rate)}"
                + (f", {_name(place, summary)}" if len(found) > 1 else ""),
                grids=(operating(tables, rate),),
                folded=True,
            )
            for rate in rates
        ]
    return result


def by_attack(summary: Mapping[str, Any], scorer: str) -> dict[tuple[str, str], Tables]:
    """The rows of one scorer by setting and attack, then by detector and budget."""
    found: dict[tuple[str, str], Tables] = {}
    for row in parts.of_scorer(summary["detectors"], scorer):
        tables = found.setdefault((row["setting"], row["attack"]), {})
        tables.setdefault(row["defense"], {})[row["budget"]] = row
    return found


def finding(found: Mapping[tuple[str, str], Tables], summary: Mapping[str, Any]) -> str:
    """Say what the best detector of the smallest budget intercepts there and at the largest."""
    told = [
        (place, tables, ends) for place, tables in found.items() if (ends := _ends(tables))
    ]  # fmt: skip
    if not told:
        return (
            "No target-positive answer is there to intercept, so that no interception rate is "
            "estimable."
        )
    place, tables, (first, last) = max(told, key=lambda one: _drop(*one[1:]))
    rate = lead_rate(tables)
    name = _best(tables, first, rate)
    where = f"Under {_name(place, summary)}, a" if len(found) > 1 else "A"
    text = (
        f"{where}t a nominal false-positive rate of {level(rate)}, the best detector at p = "
        f"{first}, {visible(name)}, intercepts {count(_caught(tables, name, first, rate))} "
        "target-positive answers"
    )
    if last == first:
        return f"{text}."
    then = _caught(tables, name, last, rate)
    text += f"; at p = {last} it intercepts {count(then)}"
    other = _best(tables, last, rate)
    falls = sum(_drop(some, span) > 0 for _, some, span in told)
    end = (
        f". It falls for the best detector in {falls} of {len(told)} places"
        if len(told) > 1
        else ""
    )
    if other != name and _caught(tables, other, last, rate)["count"] > then["count"]:
        more = count(_caught(tables, other, last, rate))
        return f"{text}, and the best there, {visible(other)}, {more}{end}."
    alone = ", and no detector intercepts more there" if len(tables) > 1 else ""
    return f"{text}{alone}{end}."


# ------------------------------------------------------------------------------------ tables


def intercepted(tables: Tables, rate: float) -> Grid:
    """Interception at one nominal rate, detectors in rows and budgets in columns."""
    budgets = _budgets(tables)
    return Grid(
        title=f"Intercepted target-positive answers at a nominal rate of {level(rate)}",
        columns=("Intercepted", *(f"p = {budget}" for budget in budgets)),
        rows=tuple(
            (
                visible(name),
                *(
                    known(point["intercepted"], empty="no positives")
                    if (point := _point(rows.get(budget), rate)) else "-"
                    for budget in budgets
                ),
            )
            for name, rows in tables.items()
        ),
        notes=tuple(_missing(tables, rate)),
    )  # fmt: skip


def realized(tables: Tables) -> Grid:
    """What is flagged on clean contexts beside the nominal rate."""
    rates = nominal_rates(tables)
    first = {name: next(iter(rows.values())) for name, rows in tables.items()}
    sources = sorted({row["clean_contexts"] for row in first.values()})
    return Grid(
        title="Realized false-positive rate on clean contexts",
        columns=("Flagged, clean", *(f"nominal {level(rate)}" for rate in rates)),
        rows=tuple(
            (
                visible(name),
                *(known(point["clean_fpr"]) if (point := _point(row, rate)) else "-"
                  for rate in rates),
            )
            for name, row in first.items()
        ),
        notes=(f"Clean contexts: {'; '.join(map(visible, sources))}.",),
    )  # fmt: skip


def areas(tables: Tables) -> Grid:
    """AUROC of attacked against clean contexts by budget."""
    budgets = _budgets(tables)
    return Grid(
        title="AUROC, attacked against clean contexts",
        columns=("AUROC", *(f"p = {budget}" for budget in budgets)),
        rows=tuple(
            (visible(name), *(_area(rows.get(budget)) for budget in budgets))
            for name, rows in tables.items()
        ),
        notes=("Below 0.5 attacked contexts look less suspicious than clean ones. The direction "
               "is not turned afterwards.",),
    )  # fmt: skip


def medians(tables: Tables) -> Grid:
    """Median score by budget, clean first, so that a collapse shows."""
    budgets = _budgets(tables)
    rows = []
    for name, of_budget in tables.items():
        clean = next(iter(of_budget.values()))["scores"][0]
        rows.append(
            (
                visible(name),
                _median(clean if clean["budget"] == 0 else None),
                *(_median(of_budget[b]["scores"][-1] if b in of_budget else None) for b in budgets),
            )
        )
    return Grid(
        title="Median score by budget, with quartiles",
        columns=("Median score", "clean", *(f"p = {budget}" for budget in budgets)),
        rows=tuple(rows),
        notes=("In brackets the quartiles of the scores, not an interval of the median.",),
    )


def operating(tables: Tables, rate: float) -> Grid:
    """Everything at one nominal rate, a row for each detector and budget."""
    rows = []
    for name, of_budget in tables.items():
        for budget, row in of_budget.items():
            point = _point(row, rate)
            if point is None:
                continue
            rows.append(
                (
                    f"{visible(name)}, p = {budget}",
                    *(known(point[what], empty="no positives") for what in
                      ("flagged", "intercepted", "intercepted_new")),
                    f"{count(point['target_before'])} -> {known(point['target_after'])}",
                    known(point["clean_fpr"]),
                    str(point["unscored"]),
                    str(point["unlabeled"]),
                )
            )  # fmt: skip
    return Grid(
        title=f"Nominal rate {level(rate)}",
        columns=(
            "Detector", "Flagged", "Intercepted", "Intercepted, newly induced",
            "Target-positive: before -> after", "Flagged, clean", "Contexts without a score",
            "Answers without a label",
        ),
        rows=tuple(rows),
    )  # fmt: skip


# --------------------------------------------------------------------------------- internals


def nominal_rates(tables: Tables) -> list[float]:
    """The nominal rates of all detectors, the leading one first."""
    rates = sorted(
        {p["fpr"] for rows in tables.values() for r in rows.values() for p in r["rates"]}
    )
    return sorted(rates, key=lambda rate: (rate != DEFAULT, rate))


def lead_rate(tables: Tables) -> float:
    """The nominal rate that leads: 1%, or else the smallest."""
    return nominal_rates(tables)[0]


def _budgets(tables: Tables) -> list[int]:
    return sorted({budget for rows in tables.values() for budget in rows})


def _point(row: Row | None, rate: float) -> Row | None:
    rates: Iterable[Row] = row["rates"] if row is not None else ()
    return next((point for point in rates if point["fpr"] == rate), None)


def _caught(tables: Tables, name: str, budget: int, rate: float) -> Mapping[str, Any]:
    point = _point(tables[name].get(budget), rate)
    nothing: Mapping[str, Any] = {"count": 0, "n": 0, "value": None}
    return point["intercepted"] if point is not None else nothing


def _best(tables: Tables, budget: int, rate: float) -> str:
    return max(tables, key=lambda name: _caught(tables, name, budget, rate)["value"] or 0.0)


def _ends(tables: Tables) -> tuple[int, int] | None:
    """Smallest and largest budget at which there is anything to intercept."""
    rate = lead_rate(tables)
    found = [
        budget for budget in _budgets(tables)
        if any(_caught(tables, name, budget, rate)["n"] for name in tables)
    ]  # fmt: skip
    return (found[0], found[-1]) if found else None


def _drop(tables: Tables, ends: tuple[int, int]) -> float:
    rate = lead_rate(tables)
    name = _best(tables, ends[0], rate)
    first, last = (_caught(tables, name, end, rate)["value"] or 0.0 for end in ends)
    return float(first - last)


def _area(row: Row | None) -> str:
    if row is None:
        return "-"
    about = row["auroc"]
    if about["value"] is None:
        return NOT_ESTIMABLE
    interval = about["interval"]
    ends = f"[{interval['low']:.2f}, {interval['high']:.2f}]" if interval else f"[{NOT_ESTIMABLE}]"
    return f"{about['value']:.2f} {ends}"


def _median(scores: Mapping[str, Any] | None) -> str:
    if scores is None or scores["median"] is None:
        return NOT_ESTIMABLE
    low, middle, high = (scores[q] for q in ("lower_quartile", "median", "upper_quartile"))
    return f"{middle:.3g} [{low:.3g}, {high:.3g}]"


def _missing(tables: Tables, rate: float) -> Iterable[str]:
    """Contexts that no score or label says anything of, where there are any."""
    points = [p for rows in tables.values() for r in rows.values() if (p := _point(r, rate))]
    unscored = sum(point["unscored"] for point in points)
    unlabeled = max((point["unlabeled"] for point in points), default=0)
    if unscored:
        yield f"{unscored} contexts have no score (over all rows); they are never flagged."
    if unlabeled:
        yield f"Up to {unlabeled} answers of a cell have no label; they are in no denominator."


def _name(place: tuple[str, str], summary: Mapping[str, Any]) -> str:
    setting, attack = place
    return f"{visible(setting)}: {visible(attack)}" if several(summary) else visible(attack)


def _charts(
    place: tuple[str, str], tables: Tables, rates: Sequence[float], scorer: str
) -> tuple[Chart, ...]:
    drawn = []
    for rate in rates:
        lines = {
            name: {
                budget: point["intercepted"] for budget, row in rows.items()
                if (point := _point(row, rate))
            }
            for name, rows in tables.items()
        }  # fmt: skip
        title = ", ".join(visible(text) for text in (*place, scorer) if text)
        svg = interception_chart(f"Interception at a nominal rate of {level(rate)}, {title}", lines)
        if svg:
            drawn.append(Chart(title=f"Intercepted at a nominal rate of {level(rate)}", svg=svg))
    return tuple(drawn)
