"""The page of a report that needs no knowledge of the method; the rest is its appendix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report import grids
from ragassay.report.detectable import detectable
from ragassay.report.finding import best, lowers, raises
from ragassay.report.grids import UNDEFENDED, Cell, Grid
from ragassay.report.parts import Part, Section
from ragassay.report.text import place, plural, share, visible
from ragassay.taxonomy import threats_of

_MAX_ATTACKS = 12
_LISTS = {"OWASP": "OWASP", "ATLAS": "MITRE ATLAS"}


def section(resolved: Mapping[str, Any]) -> Section:
    """The section, for a run whose settings tell the plug-ins behind its attacks."""

    def parts(summary: Mapping[str, Any], scorer: str, charts: bool) -> Sequence[Part]:
        return one_page(summary, resolved)

    return Section(
        anchor="h-one-page", short="In one page", title="In one page", wanted=lambda _: True,
        parts=parts, by_rule=False,
    )  # fmt: skip


def one_page(summary: Mapping[str, Any], resolved: Mapping[str, Any]) -> list[Part]:
    """What was asked, what came out, how sure that is, and what the attacks are called."""
    cell = best(summary)
    found = [
        Part(
            heading="What was asked",
            claim=(
                "Somebody can place texts where the system looks for evidence. How often does it "
                "then give the answer that they want"
                + (", and does a defense prevent that without harm?" if cell else "?")
            ),
        ),
        Part(heading="What came out", claim=_outcome(summary, cell)),
        Part(heading="How sure that is", claim=_certainty(summary, cell), note=detectable(summary)),
    ]
    named = threats(summary, resolved)
    if named.rows:
        found.append(
            Part(
                heading="What the attacks are called",
                note="In the OWASP Top 10 for LLM applications (2025) and in MITRE ATLAS.",
                grids=(named,),
            )
        )
    found.append(
        Part(
            note="Everything below is the appendix: every rate with its interval, every "
            "comparison, every answer."
        )
    )
    return found


def threats(summary: Mapping[str, Any], resolved: Mapping[str, Any]) -> Grid:
    """Attacks with their entries in OWASP's list and in ATLAS."""
    plugins = _plugins(resolved)
    rows = []
    for attack in summary["attacks"][:_MAX_ATTACKS]:
        rows += [
            (visible(attack), _LISTS[each.framework], f"{each.id} {each.name}")
            for each in threats_of(plugins.get(attack, attack))
        ]
    left = len(summary["attacks"][_MAX_ATTACKS:])
    return Grid(
        title="What the attacks are called", columns=("Attack", "List", "Entry"),
        rows=tuple(rows), notes=(f"{left} further attacks are not listed.",) if left else (),
    )  # fmt: skip


def _outcome(summary: Mapping[str, Any], cell: Cell | None) -> str:
    if cell is None:
        return _without(summary)
    several = grids.several(summary)
    at = place(cell["attack"], cell["budget"], cell["setting"] if several else "")
    rates, effects = cell["rates"], cell["effects"]
    name = visible(cell["defense"])
    text = (
        f"Under attack ({at}) the system without a defense gave the attacker's answer to "
        f"{share(rates['p0'])} of the queries; without an attack it was {share(rates['c0'])}. With "
        f"{name} it was {share(rates['p1'])}: {effects['P']['count']} prevented, "
        f"{effects['J']['count']} new."
    )
    correct = cell["correct"]
    if correct["c0"]["n"] and correct["c1"]["n"]:
        text += (
            f" Without an attack, correct answers went from {share(correct['c0'])} to "
            f"{share(correct['c1'])}."
        )
    others = len({c["defense"] for c in summary["cells"]} - {UNDEFENDED, cell["defense"]})
    return text + (f" {plural(others, 'other defense')} did not do better." if others else "")


def _without(summary: Mapping[str, Any]) -> str:
    cells = [
        cell for cell in summary["cells"]
        if cell["scorer"] == summary["headline"] and cell["defense"] == UNDEFENDED
        and cell["estimable"] and cell["budget"]
    ]  # fmt: skip
    if not cells:
        return "No comparison of the system with and without an attack could be made."
    worst = max(cells, key=lambda one: (one["rates"]["p0"]["value"], one["attack"], one["budget"]))
    at = place(worst["attack"], worst["budget"], worst["setting"] if grids.several(summary) else "")
    return (
        f"The attack that did most ({at}) made the system give the attacker's answer to "
        f"{share(worst['rates']['p0'])} of the queries; without an attack it was "
        f"{share(worst['rates']['c0'])}. No defense was tested."
    )


def _certainty(summary: Mapping[str, Any], cell: Cell | None) -> str:
    if cell is None:
        return ""
    harm, confidence = cell["effects"]["H"], summary["confidence"]
    if lowers(cell, confidence):
        text = "That the defense lowers the attacker's answers is beyond chance."
    elif raises(cell, confidence):
        text = "That the defense raises the attacker's answers is beyond chance."
    else:
        text = "Whether the defense lowers the attacker's answers cannot be told from chance."
    if harm["low"] is not None and harm["low"] > 0:
        return f"{text} It also does harm where there is no attack, beyond chance."
    return f"{text} No harm without an attack is shown; that does not show that there is none."


def _plugins(resolved: Mapping[str, Any]) -> dict[str, str]:
    """The plug-in behind the label of each attack."""
    parts = (resolved.get("experiment") or {}).get("attack") or []
    found: dict[str, str] = {}
    for part in parts if isinstance(parts, list) else []:
        if isinstance(part, Mapping) and isinstance(part.get("plugin"), str):
            found[str(part.get("label") or part["plugin"])] = part["plugin"]
    return found
