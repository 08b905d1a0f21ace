"""What ``ragassay power`` says: from words such as ``1%`` to a number of questions."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ragassay.errors import ConfigError, GateUsage
from ragassay.gate.rules import ALIASES, METRICS, Metric, number
from ragassay.stats import power as stats
from ragassay.stats.power import Difference, Plan, Sampling, Side
from ragassay.stats.power_estimated import DRAWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study as it is asked about, values as they were typed.

    Either ``value`` is to be told from ``against`` with the chance ``power``, or the two-sided
    95 % interval of it is to be ``width`` wide, or ``n`` questions are given. ``opposite`` is the
    share of questions that change the other way. ``known`` says whether the gate is told the
    correlation, or estimates it from the run as it does by default.
    """

    metric: str
    value: str | None = None
    against: str = "0%"
    width: str | None = None
    opposite: str = "2%"
    n: int | None = None
    power: float = 0.8
    level: float = 0.05
    cluster_size: int = 1
    icc: float = 0.05
    known: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The answer in sentences, and as figures."""

    lines: tuple[str, ...]
    figures: dict[str, Any]


def plan(study: Study) -> Planned:
    """Answer what a study asks.

    Raises
    ------
    ConfigError
        A value is wrong, or two that contradict each other are given.
    """
    try:
        return _plan(study)
    except GateUsage as error:  # of a value, by the reader that rules use too
        raise ConfigError(str(error)) from error


def _plan(study: Study) -> Planned:
    metric = _metric(study.metric)
    sampling = _sampling(study)
    if study.width is not None:
        if study.n is not None:
            raise ConfigError("give either --width or --n: a number of questions has one width")
        return _width(study, metric, sampling)
    if study.n is not None:
        return _given(study, metric, sampling)
    if study.value is None:
        raise ConfigError(
            "say what is expected (--value 1%), or how many questions there are (--n)"
        )
    value, against, side = _values(study, metric)
    reached = _power(study, metric, value, against, side, sampling)
    found = stats.queries_needed(reached, study.power, sampling=sampling, exact_to=_exact(metric))
    asked = (
        f"{metric.name} ({metric.symbol}): {_shown(metric, value)} expected, to be shown {side} "
        f"{_shown(metric, against)} with a chance of {100 * study.power:g}% and an error of "
        f"{100 * study.level:g}%"
    )
    return _answer(asked, found, sampling, {"value": value, "against": against, "side": side})


def _width(study: Study, metric: Metric, sampling: Sampling) -> Planned:
    if study.value is None:
        raise ConfigError("say what is expected (--value 1%): the width depends on it")
    value, width = _value(study.value, metric), number(str(study.width), "--width")
    if not 0 < width < 1:
        raise ConfigError(f"--width {study.width}: need a width between 0% and 100%")
    reached: Callable[[int], float]
    if metric.kind == "rate":

        def reached(n: int) -> float:
            return stats.rate_width(n, value, sampling=sampling)
    else:
        expected = _difference(study, value)

        def reached(n: int) -> float:
            return stats.difference_width(n, expected, sampling=sampling)

    found = stats.queries_needed(
        reached, width, sampling=sampling, falling=True, exact_to=_exact(metric)
    )
    asked = (
        f"{metric.name} ({metric.symbol}): {_shown(metric, value)} expected, a two-sided 95% "
        f"interval of {100 * width:g} points on average"
    )
    return _answer(asked, found, sampling, {"value": value, "width": width})


def _given(study: Study, metric: Metric, sampling: Sampling) -> Planned:
    assert study.n is not None
    if study.n < 1:
        raise ConfigError(f"--n {study.n}: need at least one question")
    n = sampling.whole(study.n)
    if not sampling.exact and n == sampling.cluster_size:
        raise ConfigError(
            f"--n {study.n} is a single group of {sampling.cluster_size}: nothing can be estimated "
            "from it; plan for more groups, or say that the gate is told the correlation (--known)"
        )
    figures: dict[str, Any] = {
        "n": n, "groups": n // sampling.cluster_size, "icc": sampling.icc,
        "icc_known": sampling.known,
    }  # fmt: skip
    lines = [f"{n:,} questions{_groups(n, sampling)}."]
    if study.value is not None:
        value, against, side = _values(study, metric)
        chance = _power(study, metric, value, against, side, sampling)(n)
        figures |= {"value": value, "against": against, "side": side, "power": chance}
        lines.append(
            f"{metric.name} ({metric.symbol}): {_shown(metric, value)} is shown {side} "
            f"{_shown(metric, against)} with a chance of {100 * chance:.1f}%."
        )
    smallest = (
        stats.detectable_rate(
            n, number(study.against, "--against"), power=study.power, alpha=study.level,
            sampling=sampling,
        )
        if metric.kind == "rate"
        else stats.detectable_difference(
            n, number(study.opposite, "--opposite"), power=study.power, alpha=study.level,
            sampling=sampling,
        )
    )  # fmt: skip
    figures["detectable"] = smallest
    above = _shown(metric, number(study.against, "--against") if metric.kind == "rate" else 0.0)
    lines.append(
        f"No {metric.name} of any size can be shown above {above}."
        if smallest is None
        else f"The smallest {metric.name} that is shown above {above} with a chance of "
        f"{100 * study.power:g}%: {_shown(metric, smallest)}."
    )
    return Planned(lines=tuple(lines), figures=figures)


def _answer(asked: str, found: Plan | None, sampling: Sampling, figures: dict[str, Any]) -> Planned:
    figures = {**figures, "cluster_size": sampling.cluster_size, "icc": sampling.icc,
               "icc_known": sampling.known, "design_effect": sampling.design_effect}  # fmt: skip
    if found is None:
        return Planned(
            lines=(f"{asked}: a million questions would not do.",), figures={**figures, "n": None}
        )
    how = f"{DRAWS:,} simulated samples"
    if sampling.exact:
        how = "exact" if found.exact else "by a normal approximation"
    return Planned(
        lines=(
            f"{asked}:",
            f"{found.n:,} questions{_groups(found.n, sampling)}; it reaches "
            f"{100 * found.reached:.1f}{'' if 'width' in figures else '%'} ({how}).",
        ),
        figures={
            **figures, "n": found.n, "groups": found.groups, "reached": found.reached,
            "exact": found.exact and sampling.exact,
        },
    )  # fmt: skip


def _groups(n: int, sampling: Sampling) -> str:
    if sampling.cluster_size == 1:
        return ", independent of each other"
    return (
        f" in {n // sampling.cluster_size:,} groups of {sampling.cluster_size} with a correlation "
        f"of {sampling.icc:g} (design effect {sampling.design_effect:.2f}), which the gate "
        f"{'is told (--icc)' if sampling.known else 'estimates from the run'}"
    )


def _power(
    study: Study, metric: Metric, value: float, against: float, side: Side, sampling: Sampling
) -> Callable[[int], float]:
    if metric.kind == "rate":
        return lambda n: stats.rate_power(
            n, value, against, side, alpha=study.level, sampling=sampling
        )
    expected = _difference(study, value)
    return lambda n: stats.difference_power(
        n, expected, against, side, alpha=study.level, sampling=sampling
    )


def _metric(name: str) -> Metric:
    full = ALIASES.get(name, name)
    if full not in METRICS:
        close = difflib.get_close_matches(name, [*METRICS, *ALIASES], n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigError(f"unknown metric {name!r}{hint} Known: J, P, N, H, {', '.join(METRICS)}")
    return METRICS[full]


def _sampling(study: Study) -> Sampling:
    if study.cluster_size < 1 or not 0 <= study.icc < 1:
        raise ConfigError(
            "need --cluster-size of at least 1 and --icc from 0 to below 1, "
            f"got {study.cluster_size} and {study.icc:g}"
        )
    if not 0 < study.power < 1 or not 0 < study.level < 0.5:
        raise ConfigError(
            f"need --power in (0, 1) and --level in (0, 0.5), got {study.power:g}, {study.level:g}"
        )
    icc = study.icc if study.cluster_size > 1 else 0.0
    known = study.known or study.cluster_size == 1
    return Sampling(cluster_size=study.cluster_size, icc=icc, known=known)


def _value(text: str, metric: Metric) -> float:
    value = number(text, "--value")
    if not (-1 if metric.kind == "difference" else 0) <= value <= 1:
        raise ConfigError(f"--value {text}: {metric.name} cannot be that")
    return value


def _values(study: Study, metric: Metric) -> tuple[float, float, Side]:
    value, against = _value(str(study.value), metric), number(study.against, "--against")
    if value == against:
        raise ConfigError(
            f"--value {study.value} is the limit itself (--against {study.against}): "
            "no number of questions tells a figure from itself"
        )
    return value, against, "below" if value < against else "above"


def _difference(study: Study, value: float) -> Difference:
    other = number(study.opposite, "--opposite")
    first, second = (value + other, other) if value >= 0 else (other, other - value)
    if min(first, second) < 0 or first + second > 1:
        raise ConfigError(
            f"--opposite {study.opposite}: {100 * first:g}% one way and {100 * second:g}% the "
            "other do not fit into all questions"
        )
    return Difference(first=first, second=second)


def _exact(metric: Metric) -> int:
    return stats.MAX_QUERIES if metric.kind == "rate" else stats.MAX_EXACT


def _shown(metric: Metric, value: float) -> str:
    return f"{100 * value:.3g}%" if metric.kind == "rate" else f"{100 * value:.3g}pp"
