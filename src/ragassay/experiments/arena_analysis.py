"""The arena: who wins when several attackers compete, how sure that is, and what defenses change.

Source: "Uncovering Competing Poisoning Attacks in Retrieval-Augmented Generation" (PoisonArena),
sections 3 and 4, appendix B.4.

Deviations: see :mod:`ragassay.arena.figures` and :mod:`ragassay.stats.ranking`. Every figure has
its denominator and an interval that resamples whole questions.

The summary is a function of the run folder alone: the same records give the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.arena.outcomes import overlapping
from ragassay.arena.released_loop import ReleasedLoop
from ragassay.experiments.aligned import choose_scorers
from ragassay.experiments.arena_aligned import aligned_rows
from ragassay.experiments.arena_exact import FILE as EXACT
from ragassay.experiments.arena_outcomes import Outcomes, primary_scene
from ragassay.experiments.arena_results import Analyst
from ragassay.experiments.arena_rounds import is_variant
from ragassay.experiments.arena_trigger import trigger_rows
from ragassay.experiments.plan import UNDEFENDED
from ragassay.experiments.poison import delivery_warnings
from ragassay.experiments.tax import read_facts, tax_section
from ragassay.stats.intervals import COARSE_GROUPS
from ragassay.store import RunFolder

_SHOWN = 5


def analyze(store: RunFolder, scorers: Sequence[str] | None = None) -> dict[str, Any]:
    """Analyze a run folder; see :func:`ragassay.experiments.protocols.analyze`."""
    resolved = store.read_json("resolved.json")
    settings = resolved["experiment"]
    outcomes = Outcomes.of(store)
    chosen = choose_scorers(resolved, {name for _, name in outcomes.scores}, scorers, store.path)
    headline = resolved["headline"] if resolved["headline"] in chosen else chosen[0]
    scenes = sorted({scene for body in outcomes.rounds for scene in body["played"]})
    primary = primary_scene(resolved)
    scenes.sort(key=lambda scene: (scene != primary, scene))
    free = sorted(
        {
            attacker
            for body in outcomes.rounds
            for dealt in body["assignments"]
            for attacker, position in dealt.items()
            if position is None
        }
    )
    defenses = [UNDEFENDED, *(name for name in resolved["defenses"] if name != UNDEFENDED)]
    exact = store.read_json(EXACT)["scenes"]
    analyst = Analyst(outcomes=outcomes, resolved=resolved, untargeted=tuple(free), exact=exact)
    results = [
        analyst.result(scorer, scene, defense)
        for scorer in chosen
        for scene in scenes
        for defense in defenses
        if defense == UNDEFENDED or not is_variant(scene)
    ]
    leading = next(
        r for r in results
        if (r["scorer"], r["scene"], r["defense"]) == (headline, primary, UNDEFENDED)
    )  # fmt: skip
    facts = read_facts(store)
    summary = {
        "v": 1,
        "protocol": resolved["protocol"],
        "name": settings["name"],
        "headline": headline,
        "scorers": chosen,
        "settings": list(resolved["settings"]),
        "attacks": sorted({a for body in outcomes.rounds for d in body["assignments"] for a in d}),
        "untargeted": free,
        "defenses": defenses[1:],
        "scenes": scenes,
        "dataset": resolved["dataset"],
        "confidence": settings["statistics"]["confidence"],
        "draws": settings["statistics"]["draws"],
        "trials": _trials(outcomes, resolved, scenes),
        "errors": _errors(outcomes),
        "design": _design(outcomes, settings["arena"]),
        "prompts": _prompts(outcomes, scenes, defenses),
        "results": results,
        "aligned": aligned_rows(
            outcomes, resolved, chosen, [scene for scene in scenes if not is_variant(scene)]
        ),
        "trigger": trigger_rows(store, outcomes, resolved, chosen),
        "tax": _tax(facts, leading),
    }
    summary["warnings"] = _warnings(store, outcomes, facts, leading)
    return summary


def _design(outcomes: Outcomes, part: Mapping[str, Any]) -> dict[str, Any]:
    rounds = [body for body in outcomes.rounds if body["kind"] == "round"]
    sizes = Counter(len(body["assignments"][0]) for body in rounds)
    return {
        "rounds": len(rounds),
        "plays": sum(len(body["assignments"]) for body in rounds),
        "singles": sum(body["kind"] == "single" for body in outcomes.rounds),
        "orders": sum(body["kind"] == "order" for body in outcomes.rounds),
        "questions": len({body["query_id"] for body in outcomes.rounds}),
        "clusters": len({body["cluster"] for body in outcomes.rounds}),
        "sizes": {str(size): sizes[size] for size in sorted(sizes)},
        "assignment": part["assignment"],
        "limit": part["rounds"],
    }


def _contexts(outcomes: Outcomes, scenes: Sequence[str]) -> list[tuple[str, str, str]]:
    """Question, setting and context of every play on every scene."""
    found = []
    for scene in scenes:
        setting = scene.rpartition("|")[0].rpartition("|")[0]
        for body in outcomes.rounds:
            found += [
                (body["query_id"], setting, play["context"])
                for play in body["played"].get(scene, ())
            ]
    return found


def _prompts(outcomes: Outcomes, scenes: Sequence[str], defenses: Sequence[str]) -> dict[str, Any]:
    """Prompts asked for by the plays of one system, and distinct ones; what a loop would ask."""
    contexts = _contexts(outcomes, [scene for scene in scenes if not is_variant(scene)])
    studied = {*_contexts(outcomes, [scene for scene in scenes if is_variant(scene)])}
    removed = [
        t for (_, _, defense, _), t in outcomes.trials.items()
        if defense == UNDEFENDED and t.spec.poison
    ]  # fmt: skip
    played = set(contexts)
    known = played | studied
    second = sum((t.spec.query_id, t.spec.setting, t.spec.poison) not in known for t in removed)
    clean = {(query, setting) for query, setting, _ in contexts}
    rounds = sum(body["kind"] == "round" for body in outcomes.rounds)
    loop = ReleasedLoop(rounds=rounds)
    return {
        "plays": len(contexts),
        "distinct": len(played),
        "clean": len(clean - {(query, setting) for query, setting, name in played if not name}),
        "removals": second,
        "variants": len(studied - played),
        "systems": len(defenses),
        "released_loop": {
            "rounds": rounds,
            "prompts": loop.prompts,
            "validations": loop.prompts - rounds,
        },
    }


def _trials(
    outcomes: Outcomes, resolved: Mapping[str, Any], scenes: Sequence[str]
) -> dict[str, int]:
    contexts = _contexts(outcomes, [scene for scene in scenes if not is_variant(scene)])
    asked = {*contexts, *((query, setting, "") for query, setting, _ in contexts)}
    planned = {
        (query, setting, defense, name)
        for query, setting, name in asked
        for defense in resolved["defenses"]
    }
    planned |= {
        (query, setting, UNDEFENDED, name)
        for query, setting, name in _contexts(outcomes, [s for s in scenes if is_variant(s)])
    }
    planned |= set(outcomes.trials)
    done = sum(trial.status == "done" for trial in outcomes.trials.values())
    failed = len(outcomes.trials) - done
    return {
        "planned": len(planned), "done": done, "failed": failed,
        "missing": len(planned) - done - failed,
    }  # fmt: skip


def _errors(outcomes: Outcomes) -> list[dict[str, Any]]:
    counts = Counter(t.error for t in outcomes.trials.values() if t.status == "failed")
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"error": error, "trials": count} for error, count in ordered[:20]]


def _tax(
    facts: Mapping[str, Mapping[str, Any]], leading: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The attack tax; seconds of crafting within the run differ and are left out."""
    if not facts:
        return None
    timeless = {
        title: each if each["played"] else {
            **each,
            "cost": {**each["cost"], "seconds": None, "gpu_seconds": None},
            "seconds": {"value": None, "n": 0},
        }
        for title, each in facts.items()
    }  # fmt: skip
    performance = {
        row["attacker"]: {
            "s_f1": row["exact"]["single"].get("f1", row["alone"]["f1"]["value"]),
            "m_f1": row["exact"]["rounds"].get("f1", row["among"]["f1"]["value"]),
            "s_asr": row["alone"]["success"]["value"],
            "m_asr": row["among"]["success"]["value"],
            "theta": row["theta"]["value"],
        }
        for row in leading["attackers"]
    }
    return tax_section(timeless, performance=performance)


def _warnings(
    store: RunFolder,
    outcomes: Outcomes,
    facts: Mapping[str, Any],
    leading: Mapping[str, Any],
) -> list[str]:
    warnings = []
    clusters = {body["cluster"] for body in outcomes.rounds}
    if len(clusters) < COARSE_GROUPS:
        warnings.append(f"Only {len(clusters)} questions: all intervals are coarse.")
    if not leading["strengths"]["estimable"]:
        warnings.append(f"No ranking: {leading['strengths']['why']}.")
    everywhere = len({body["query_id"] for body in outcomes.rounds})
    covered: dict[str, set[str]] = {}
    for body in outcomes.rounds:
        for dealt in body["assignments"]:
            for name in dealt:
                covered.setdefault(name, set()).add(body["query_id"])
    few = {name: len(ids) for name, ids in sorted(covered.items()) if len(ids) < everywhere / 2}
    for name, count in few.items():
        warnings.append(
            f"Attacker {name!r} took part on {count} of {everywhere} questions: its figures are "
            "about those."
        )
    ties = [
        query_id
        for query_id, targets in store.targets().items()
        if overlapping({name: target.wanted[0] for name, target in targets.items()})
    ]
    if ties:
        warnings.append(
            f"On {len(ties)} questions one wrong answer contains another, so that both may win by "
            f"wording alone: {', '.join(ties[:_SHOWN])}{' ...' if len(ties) > _SHOWN else ''}."
        )
    why = leading["exact_missing"]
    if why:
        warnings.append(
            {"uneven": "Attackers injected different numbers of documents for their answers",
             "shared": "Attackers injected equal texts"}[why]
            + ": retrieval figures are those of the plays, not exact means."
        )  # fmt: skip
    return [*warnings, *delivery_warnings(facts)]
