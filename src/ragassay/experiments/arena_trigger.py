"""Trigger or content: which of the two decides who wins.

Source: PoisonArena, appendix C.6.

Deviations: trigger and content are crossed and replaced for all attackers of a play at once, so
that the same plays are compared four times. An effect is the mean difference that having one's own
makes, over both levels of the other; it is a difference among rivals, so that it may be below 0
where those of the rivals are stronger. Which of the two is larger is told only where the interval
says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.arena.variants import VARIANTS
from ragassay.canon import rng_for
from ragassay.experiments.arena_outcomes import ROUNDS, Outcomes
from ragassay.experiments.arena_variants import FILE, WAYS, context_of
from ragassay.experiments.conditions import UNDEFENDED, bounds
from ragassay.stats.intervals import cluster_bootstrap
from ragassay.store import RunFolder

EFFECTS = ("trigger", "content", "both")
Row = dict[str, Any]


def trigger_rows(
    store: RunFolder, outcomes: Outcomes, resolved: Mapping[str, Any], scorers: Sequence[str]
) -> Row | None:
    """What the study of triggers and contents found; None where it was not played.

    Returns
    -------
    dict
        ``documents``: for each attacker how many could be taken apart. ``rows``: for each rule,
        setting, way into the context (``retrieved``, or ``content``: one guaranteed document
        each) and targeted attacker its ``rates`` of success in the four variants over the same
        plays, its ``effects``, and ``decides``: ``trigger``, ``content``, or empty.
    """
    part = resolved["experiment"]["arena"]
    if "trigger" not in part["studies"]:
        return None
    documents = store.read_json(FILE)["attackers"]
    budget = max(resolved["experiment"]["budgets"])
    rows = []
    for scorer in scorers:
        for setting in resolved["settings"]:
            for way in WAYS:
                scenes = [
                    f"{setting}|{budget}|{context_of(way, variant, bool(part['released']))}"
                    for variant in VARIANTS
                ]
                labels = _labels(outcomes, scenes, scorer)
                for attacker in sorted(labels):
                    place = {"scorer": scorer, "setting": setting, "budget": budget, "way": way,
                             "scenes": scenes, "attacker": attacker}  # fmt: skip
                    rows.append({**place, **_row(labels[attacker], documents[attacker], resolved,
                                                 scorer, setting, way, attacker)})  # fmt: skip
    return {"documents": documents, "rows": rows}


Labels = list[tuple[tuple[bool | None, ...], str]]


def _labels(outcomes: Outcomes, scenes: Sequence[str], scorer: str) -> dict[str, Labels]:
    """Success in the four variants and the question, for each play of each targeted attacker."""
    found: dict[str, Labels] = {}
    for four in zip(*(outcomes.asked(ROUNDS, scene) for scene in scenes), strict=True):
        judged = [outcomes.judgment(each, UNDEFENDED, scorer) for each in four]
        for attacker, position in four[0].assignment.items():
            if position is None:
                continue
            success = tuple(
                None if attacker in one.unjudged else attacker in one.winners for one in judged
            )
            found.setdefault(attacker, []).append((success, four[0].body["cluster"]))
    return found


def _row(
    labels: Labels, documents: Mapping[str, int], resolved: Mapping[str, Any], *seed: str
) -> Row:
    kept = [(success, group) for success, group in labels if None not in success]
    row: Row = {
        "n": len(kept), "queries": len({group for _, group in kept}),
        "dropped": len(labels) - len(kept), "estimable": False, "decides": "",
    }  # fmt: skip
    if not kept or not documents["apart"]:
        why = "no play is judged in all four variants" if documents["apart"] else (
            "none of its documents can be taken apart")  # fmt: skip
        return {**row, "why": why}
    table = np.array([success for success, _ in kept], dtype=np.float64)
    statistics = resolved["experiment"]["statistics"]
    intervals = cluster_bootstrap(
        np.concatenate([table, _contrasts(table)], axis=1), [group for _, group in kept],
        draws=statistics["draws"], confidence=statistics["confidence"],
        rng=rng_for("arena-trigger", resolved["experiment"]["seed"], *seed),
    )  # fmt: skip
    means = _contrasts(table).mean(axis=0)
    ends = [bounds(interval) for interval in intervals]
    told = [
        {"value": float(mean), **end} for mean, end in zip(means, ends[4:], strict=True)
    ]  # fmt: skip
    return {
        **row,
        "estimable": True,
        "why": "",
        "rates": {
            f"{trigger}+{content}": {
                "count": int(table[:, i].sum()), "n": len(kept), "queries": row["queries"],
                "value": float(table[:, i].mean()), **ends[i],
            }
            for i, (trigger, content) in enumerate(VARIANTS)
        },
        "effects": dict(zip(EFFECTS, told[:3], strict=True)),
        "decides": _decides(told[3], told[4]),
    }  # fmt: skip


def _contrasts(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each play: trigger, content, both against neither, trigger minus and plus content."""
    own, bare, common, neither = table.T
    trigger = (own - bare + common - neither) / 2
    content = (own - common + bare - neither) / 2
    return np.stack([trigger, content, own - neither, trigger - content, trigger + content], axis=1)


def _decides(less: Mapping[str, Any], more: Mapping[str, Any]) -> str:
    """Whether one effect is larger in size: |t| > |c| where (t - c) (t + c) > 0."""
    signs = []
    for each in (less, more):
        if each["low"] is None or each["low"] <= 0 <= each["high"]:
            return ""
        signs.append(each["low"] > 0)
    return "trigger" if signs[0] == signs[1] else "content"
