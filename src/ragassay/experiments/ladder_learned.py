"""Trains scorers on the first rung of a control ladder, and judges every rung with them.

Source: "Ranking is not judgment", the authors' own scorer: questions are split 40/20/40 into fit,
calibration and evaluation for each of five seeds; the threshold does not move with the rung.

Deviations: see :mod:`ragassay.defenses.learned_scorer`. Perplexities are features where a defense
of the experiment reads with the language model, and are left out elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from ragassay import canon, plugins
from ragassay.config.ladder import LadderPart, variant_name
from ragassay.errors import BackendUnavailable, NotEstimable
from ragassay.experiments.context import Contexts
from ragassay.experiments.session import Session
from ragassay.experiments.setup import Setting
from ragassay.matching import normalize_text
from ragassay.types import Hit, Query

Labeled = tuple[Query, Sequence[Hit], list[bool]]
Variant = tuple[str, str]
_PLUGIN = "learned_scorer"


def learn(
    session: Session,
    setting: Setting,
    part: LadderPart,
    cells: Sequence[tuple[str, int]],
    contexts: Mapping[Variant, Contexts],
) -> None:
    """Train for every attack and seed, and write what the scorers say of each rung's candidates.

    A record holds the probabilities of one attack, rung, seed and dropped feature, or why there
    are none.
    """
    known = session.folder.keys("learned")
    for attack, budget in cells:
        place = {
            "setting": setting.label, "retriever": setting.arm.retriever.identity,
            "k": setting.arm.k, "attack": attack, "budget": budget,
        }  # fmt: skip
        wanted = [
            {**place, "rung": rung, "filler": filler, "seed": seed,
             "poison": _content(session, contexts[rung, filler], attack, budget)}
            for rung, filler in part.variants for seed in part.seeds
        ]  # fmt: skip
        ends = ["", *(["*"] if part.ablation else [])]
        if all(canon.digest({**each, "end": end}) in known for each in wanted for end in ends):
            continue
        _train(session, setting, part, wanted, contexts)


def _train(
    session: Session,
    setting: Setting,
    part: LadderPart,
    wanted: Sequence[dict[str, Any]],
    contexts: Mapping[Variant, Contexts],
) -> None:
    learned: Any = plugins.find("defense", _PLUGIN).cls
    folder, known = session.folder, session.folder.keys("learned")
    attack, budget = wanted[0]["attack"], wanted[0]["budget"]

    def write(items: Sequence[tuple[dict[str, Any], str, dict[str, Any]]]) -> None:
        """Write records; the last of an attack ends it, so that a killed run repeats it whole."""
        fresh: dict[str, dict[str, Any]] = {}
        for place, end, body in items:
            key = canon.digest({**place, "end": end})
            if key not in known:
                fresh[key] = body
        folder.append_many("learned", list(fresh.items()))

    candidates = {
        variant: _candidates(session, found, attack, budget) for variant, found in contexts.items()
    }
    tools = _tools(session, setting, candidates[part.variants[0]][0][0])
    try:
        tables = {variant: learned.measure(each, tools) for variant, each in candidates.items()}
        first = tables[part.variants[0]]
        options: dict[str, Any] = {"seeds": part.seeds, "calibration": part.calibration}
        trained = (
            learned.ablation(first, **options)
            if part.ablation
            else {"": learned.train(first, **options)}
        )
    except (NotEstimable, BackendUnavailable) as error:
        ends = ["", *(["*"] if part.ablation else [])]
        write([
            (place, end, {**_shown(place), "drop": "", "reason": str(error), "candidates": []})
            for place in wanted for end in ends
        ])  # fmt: skip
        return
    items = []
    for drop, scorers in trained.items():
        for place, scorer in _places(wanted, scorers):
            variant = place["rung"], place["filler"]
            table = tables[variant]
            columns = [i for i, name in enumerate(table.names) if name != drop]
            questions = {first.questions[row] for row in scorer.evaluated}
            p = scorer.scorer.probabilities(table.values[:, columns])
            body = {
                **_shown(place), "drop": drop, "reason": "",
                "features": list(scorer.scorer.features), "skipped": list(table.skipped),
                "provenance": scorer.scorer.provenance,
                "candidates": _rows(candidates[variant], table.questions, questions, p),
            }  # fmt: skip
            items.append((place, drop, body))
    if part.ablation:
        items += [
            (place, "*", {**_shown(place), "drop": "*", "reason": "", "candidates": []})
            for place in wanted
        ]
    write(items)


def _places(wanted: Sequence[dict[str, Any]], scorers: Sequence[Any]) -> list[tuple[Any, Any]]:
    of_seed = {scorer.seed: scorer for scorer in scorers}
    return [(place, of_seed[place["seed"]]) for place in wanted]


def _shown(place: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: place[name] for name in ("setting", "attack", "budget", "rung", "filler", "seed")
    } | {"variant": variant_name(place["rung"], place["filler"])}


def _rows(
    candidates: Sequence[Labeled],
    asked: Sequence[str],
    questions: set[str],
    p: NDArray[Any],
) -> list[list[Any]]:
    """``[question id, passage id, poison, probability]`` of the evaluation part."""
    flat = [
        (query.id, hit.passage.id, label)
        for query, hits, labels in candidates
        for hit, label in zip(hits, labels, strict=True)
    ]
    return [
        [query_id, passage_id, label, round(float(value), 9)]
        for (query_id, passage_id, label), question, value in zip(flat, asked, p, strict=True)
        if question in questions
    ]


def _candidates(session: Session, contexts: Contexts, attack: str, budget: int) -> list[Labeled]:
    """The contexts of an attack, with whether each passage is poison."""
    found: list[Labeled] = []
    for query in session.setup.evaluated:
        injected = {
            text for texts in contexts.injected[attack, query.group].values() for text in texts
        }
        hits = contexts.poisoned[attack, budget, query.id]
        labels = [
            hit.passage.id in contexts.owner or normalize_text(hit.passage.text) in injected
            for hit in hits
        ]
        found.append((query, hits, labels))
    return found


def _content(session: Session, contexts: Contexts, attack: str, budget: int) -> str:
    return canon.digest(
        [contexts.poison[attack, budget, query.id] for query in session.setup.evaluated]
    )


class _NoLosses:
    """Tools without a language model; training then leaves perplexities out."""

    def __init__(self, tools: Any) -> None:
        self.encode = tools.encode


def _tools(session: Session, setting: Setting, query: Query) -> Any:
    tools = session.bench(setting).tools(query, "learned scorer")
    return tools if session.setup.language_model is not None else _NoLosses(tools)
