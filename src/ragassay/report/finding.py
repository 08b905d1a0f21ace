"""The finding of a run in one sentence, worded so that it never says more than the figures.

A defense is named only where its net effect is beyond uncertainty by two accounts: the
bootstrap interval of N lies above 0 and the exact McNemar test rejects. Both must agree
because either can be fooled: the interval by few groups, the test by queries that are not
independent. What the defense introduces and what it does on clean retrieval is always said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report import grids, untargeted
from ragassay.report.grids import Block, Cell
from ragassay.report.text import bracket, count, level, p_equals, place, plural, points, visible
from ragassay.stats.intervals import COARSE_GROUPS, MIN_GROUPS


def finding(summary: Mapping[str, Any]) -> str:
    """State the main finding in one sentence, under the headline rule.

    At the largest budget it names the defense with the largest N among those whose net
    effect is beyond uncertainty (interval above 0, McNemar test rejects); where there is
    none it says so.

    Parameters
    ----------
    summary : mapping
        What ``ragassay.experiments.aligned.analyze`` returns.
    """
    cells, lead = _compared(summary), best(summary)
    if lead is None:
        return without_defense(summary)
    if lowers(lead, summary["confidence"]):
        return _named(lead, grids.several(summary)) + "."
    return _no_defense(summary, cells, lead) + "."


def finding_detail(summary: Mapping[str, Any]) -> str:
    """Give the figures behind :func:`finding`, all that belong together, in one line."""
    cells = _compared(summary)
    cell = best(summary)
    if cell is None:
        return ""
    effect, test = cell["effects"], cell["mcnemar"]["poisoned"]["p_value"]
    figures = ", ".join(
        f"{name} {points(effect[name])} {bracket(effect[name])}" for name in ("N", "H", "Gamma")
    )
    chosen = (
        f" It was chosen from {plural(len(cells), 'comparison')} for its N; the interval and the "
        "test are not adjusted for that choice." if len(cells) > 1 else ""
    )  # fmt: skip
    return (
        f"In percentage points with {level(summary['confidence'])} intervals, for "
        f"{visible(cell['defense'])} against {_where(cell, grids.several(summary))} by the rule "
        f"{visible(cell['scorer'])}: {figures}; McNemar {p_equals(test)}; "
        f"{plural(cell['n'], 'query')} in {plural(cell['groups'], 'injection group')}. "
        f"Under attack, answers that abstain {_change(cell['abstained'])}, correct ones "
        f"{_change(cell['correct'])}.{chosen}"
    )


def best(summary: Mapping[str, Any]) -> Cell | None:
    """Return the cell that the finding is about; ``None`` where no defense is estimable."""
    cells = _compared(summary)
    sure = [cell for cell in cells if lowers(cell, summary["confidence"])]
    return max(sure or cells, key=_order, default=None)


def _compared(summary: Mapping[str, Any]) -> list[Cell]:
    top = _largest_budget(grids.targeted(grids.blocks(summary)))
    return [cell for block in top for cell in block.defended if cell["estimable"]]


def lowers(cell: Cell, confidence: float) -> bool:
    """Whether a defense lowers the target-positive answers beyond uncertainty."""
    low = cell["effects"]["N"]["low"]
    significant = cell["mcnemar"]["poisoned"]["p_value"] < 1 - confidence
    return low is not None and low > 0 and significant


def raises(cell: Cell, confidence: float) -> bool:
    """Whether a defense raises the target-positive answers beyond uncertainty."""
    high = cell["effects"]["N"]["high"]
    significant = cell["mcnemar"]["poisoned"]["p_value"] < 1 - confidence
    return high is not None and high < 0 and significant


def _largest_budget(found: Sequence[Block]) -> list[Block]:
    largest = max((block.budget for block in found), default=0)
    return [block for block in found if block.budget == largest]


def _order(cell: Cell) -> tuple[float, float, str]:
    """N first, then the fewer introduced; the name breaks ties."""
    effects = cell["effects"]
    return effects["N"]["value"], -effects["J"]["value"], cell["defense"]


def _named(cell: Cell, several: bool) -> str:
    rates, effect = cell["rates"], cell["effects"]
    correct = cell["correct"]
    harm = effect["H"]["low"] is not None and effect["H"]["low"] > 0
    text = (
        f"{visible(cell['defense'])} prevents {effect['P']['count']} of {rates['p0']['count']} "
        f"target-positive answers under {_attack(cell, several)} and introduces "
        f"{effect['J']['count']} ({count(rates['p0'])} -> {count(rates['p1'])})"
    )
    text += f"{', but' if harm else ';'} on clean retrieval it {_clean_change(cell)}"
    if correct["c0"]["n"] and correct["c1"]["n"]:
        text += f", correct answers {count(correct['c0'])} -> {count(correct['c1'])}"
    return text + _reservations(cell)


def _no_defense(summary: Mapping[str, Any], cells: Sequence[Cell], lead: Cell) -> str:
    top = _largest_budget(grids.targeted(grids.blocks(summary)))
    several = grids.several(summary)
    rates, attack = lead["rates"], _attack(lead, several)
    if len(top) > 1:
        attack = f"any attack at p = {lead['budget']}{' in any setting' if several else ''}"
    if all(_idle(block) for block in top):
        return (
            f"Without a defense, {attack} does not raise the target-positive answers here "
            f"({count(rates['c0'])} clean, {count(rates['p0'])} poisoned), so that there is no "
            f"attack to defend against{_reservations(lead)}"
        )
    if all(cell["effects"]["N"]["low"] is None for cell in cells):
        return (
            "No interval can be given for fewer than two injection groups, so that no defense "
            f"can be said to lower the target-positive answers under {attack}; "
            f"{_drop_seen(lead, bounds=False)}{_reservations(lead)}"
        )
    worse = sorted({visible(c["defense"]) for c in cells if raises(c, summary["confidence"])})
    verb = "raises" if len(worse) == 1 else "raise"
    more = f", and {' and '.join(worse)} {verb} them" if worse else ""
    return (
        f"No defense lowers the target-positive answers under {attack} beyond uncertainty{more}; "
        f"{_drop_seen(lead, bounds=True)}{_reservations(lead)}"
    )


def _drop_seen(lead: Cell, *, bounds: bool) -> str:
    effect, rates = lead["effects"], lead["rates"]
    name, net = visible(lead["defense"]), effect["N"]
    pair = f"{effect['P']['count']} prevented, {effect['J']['count']} introduced"
    if net["count"] <= 0:
        return f"none has a net drop at all (the best, {name}: {pair} of {lead['n']})"
    test = p_equals(lead["mcnemar"]["poisoned"]["p_value"])
    text = f", N {points(net)} pp {bracket(net)}, McNemar {test}" if bounds else ""
    return (
        f"the largest net drop seen is that of {name}: {pair} "
        f"({count(rates['p0'])} -> {count(rates['p1'])}{text})"
    )


def _idle(block: Block) -> bool:
    """Whether poison does not raise the undefended level at all."""
    clean, poisoned = block.rate("c0"), block.rate("p0")
    return bool(clean and poisoned and poisoned["count"] <= clean["count"])


def without_defense(summary: Mapping[str, Any]) -> str:
    """State what can be said where no comparison with a defense is estimable."""
    found = grids.targeted(grids.blocks(summary))
    if not found:
        return untargeted.finding(summary, summary["headline"])
    trials = summary["trials"]
    nothing = f"Nothing is estimable under the rule {visible(summary['headline'])}: "
    lost = (
        f"({trials['failed']:,} of {trials['planned']:,} trials failed, "
        f"{trials['missing']:,} not run)"
    )
    if any(not cell["absent"] for block in found for cell in block.defended):
        return f"{nothing}no query has all four answers labeled {lost}."
    ending = (
        "no defense was compared" if not summary["defenses"]
        else "no defense can be compared, for want of one of the four conditions"
    )  # fmt: skip
    levels = [(block, _rate(block, "c0"), _rate(block, "p0")) for block in found]
    both = [(block, c, p) for block, c, p in levels if c is not None and p is not None]
    if both:
        return f"{_raised(both)}; {ending}."
    attacked = [(block, poisoned) for block, _, poisoned in levels if poisoned is not None]
    if attacked:
        return f"{_only_poisoned(attacked)}; {ending}."
    clean = [rate for _, rate, _ in levels if rate is not None]
    if clean:
        return (
            f"No answer was given under attack; on clean retrieval from {_span(clean)} of the "
            f"answers are target-positive; {ending}."
        )
    return _correct_only(found) or f"{nothing}no answer has a target-positive label {lost}."


def _correct_only(found: Sequence[Block]) -> str:
    """What can be said of answers that no attacker wants anything of."""
    rates = [
        (rate, block) for block in found if (rate := block.cells[0]["correct"]["c0"])["n"]
    ]  # fmt: skip
    labels = [block.label("c0") for _, block in rates]
    if not rates or not all(label and label["not_applicable"] for label in labels):
        return ""
    low, high = (pick(rates, key=lambda one: one[0]["value"]) for pick in (min, max))
    text = "The questions have no attacker's target, so that only correctness is labeled: "
    if len(rates) == 1:
        return f"{text}{count(high[0])} answers on clean retrieval are correct."
    shown = [f" ({visible(block.shown)})" if block.shown else "" for _, block in (low, high)]
    return (
        f"{text}on clean retrieval from {count(low[0])}{shown[0]} to {count(high[0])}{shown[1]} "
        "answers are correct."
    )


def _rate(block: Block, condition: str) -> Mapping[str, Any] | None:
    label = block.label(condition)
    if label is None or not label["positive"]["n"]:
        return None
    rate: Mapping[str, Any] = label["positive"]
    return rate


def _raised(
    levels: Sequence[tuple[Block, Mapping[str, Any], Mapping[str, Any]]],
) -> str:
    """The attack that raises the level most, and the span of all levels under attack."""
    block, clean, poisoned = max(levels, key=lambda one: one[2]["value"] - one[1]["value"])
    if len(levels) == 1:
        return (
            f"Without a defense, the answers are target-positive for {count(clean)} queries on "
            f"clean retrieval and {count(poisoned)} under {_attack(block.cells[0], False)}"
        )
    where = _attack(block.cells[0], bool(block.shown))
    every = [one[2] for one in levels]
    if poisoned["value"] <= clean["value"]:
        return (
            f"Without a defense, none of {plural(len(levels), 'attack')} raises the "
            f"target-positive answers (most under {where}: {count(clean)} on clean retrieval, "
            f"{count(poisoned)} under attack)"
        )
    return (
        f"Without a defense, {where} raises the target-positive answers most, from {count(clean)} "
        f"on clean retrieval to {count(poisoned)}; over all {_number(levels)} the level "
        f"under attack runs from {_span(every)}"
    )


def _only_poisoned(levels: Sequence[tuple[Block, Mapping[str, Any]]]) -> str:
    block, most = max(levels, key=lambda one: one[1]["value"])
    text = (
        f"Without a defense, {count(most)} answers are target-positive under "
        f"{_attack(block.cells[0], bool(block.shown))}"
    )
    if len(levels) > 1:
        text += f", the most of {_number(levels)} (from {_span([one[1] for one in levels])})"
    return (
        f"{text}; there are no answers on clean retrieval, so that what the attack adds is not "
        "known"
    )


def _number(levels: Sequence[tuple[Any, ...]]) -> str:
    shown = {block.shown for block, *_ in levels}
    if len(shown) > 1:
        return f"{len(levels)} pairs of setting and attack"
    return plural(len(levels), "attack")


def _span(rates: Sequence[Mapping[str, Any]]) -> str:
    low, high = (pick(rates, key=lambda rate: rate["value"]) for pick in (min, max))
    return f"{count(low)} to {count(high)}"


def _clean_change(cell: Cell) -> str:
    test = cell["mcnemar"]["clean"]
    if not test["gained"] and not test["lost"]:
        return "changes none"
    return f"adds {test['gained']} and removes {test['lost']}"


def _change(rates: Mapping[str, Any]) -> str:
    return f"{count(rates['p0'])} -> {count(rates['p1'])}"


def _attack(cell: Cell, several: bool) -> str:
    where = f" on {visible(cell['setting'])}" if several else ""
    return f"{visible(cell['attack'])} at p = {cell['budget']}{where}"


def _where(cell: Cell, several: bool) -> str:
    return place(cell["attack"], cell["budget"], cell["setting"] if several else "")


def _reservations(cell: Cell) -> str:
    notes = []
    if MIN_GROUPS <= cell["groups"] < COARSE_GROUPS:
        notes.append(f"only {cell['groups']} injection groups, so intervals are coarse")
    text = grids.dropped_text(cell)
    if text:
        notes.append(f"dropped: {text}")
    return f" [{'; '.join(notes)}]" if notes else ""
