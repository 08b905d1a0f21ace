"""What attacks cost and need, measured on their poison: the raw side of the attack tax.

Source: PoisonArena, appendix D (dimensions 5 to 7); :mod:`ragassay.stats.tax` scores them.

Deviations: cosines are of normalized embeddings; an attack that injects one passage a question
has no similarity; a passage too short for a perplexity is left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.experiments.conditions import Condition
from ragassay.experiments.outcomes import TARGET, outcome_of
from ragassay.experiments.plan import UNDEFENDED
from ragassay.experiments.poison import Crafter, delivery
from ragassay.plugins import Index
from ragassay.stats.tax import PERFORMANCE, RawTax, attack_tax
from ragassay.store import RunFolder
from ragassay.types import Cost, Knowledge, PoisonSet, TrialRecord

FACTS = "attacks.json"
Embed = Callable[[Sequence[str]], NDArray[np.float32]]
Perplexity = Callable[[Sequence[str]], NDArray[np.float64]]


def mean_pairwise_cosine(vectors: NDArray[np.float32]) -> float | None:
    """Mean cosine over all pairs of rows, shape (n, d); None for fewer than two rows.

    A zero vector has cosine 0 with everything.

    Examples
    --------
    >>> mean_pairwise_cosine(np.array([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]]))
    0.3333333333333333
    """
    n = len(vectors)
    if n < 2:
        return None
    wide = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    unit = wide / np.where(lengths > 0, lengths, 1.0)
    cosines = unit @ unit.T
    return float(cosines[np.triu_indices(n, k=1)].mean())


def measure(
    sets: Iterable[PoisonSet],
    *,
    embed: Embed | None = None,
    perplexity: Perplexity | None = None,
) -> dict[str, Any]:
    """Measure the poison of one attack.

    Parameters
    ----------
    sets : iterable of PoisonSet
        One a question.
    embed : callable, optional
        The configured encoder: texts to vectors (n, d).
    perplexity : callable, optional
        The configured language model: texts to perplexities (n,), NaN where not defined.

    Returns
    -------
    dict
        Plain JSON: declared knowledge, total cost, and ``seconds`` per question,
        ``similarity`` and ``perplexity`` as ``{"value", "n"}``, n being questions, questions
        with two or more passages, and passages; value None where n is 0 or nothing was given to
        measure with.
    """
    sets = list(sets)
    knowledge = sets[0].knowledge if sets else Knowledge()
    total = {name: sum(getattr(each.cost, name) for each in sets) for name in asdict(Cost())}
    cosines = [] if embed is None else _cosines(sets, embed)
    surprise = [] if perplexity is None else _perplexities(sets, perplexity)
    return {
        "knowledge": asdict(knowledge),
        "questions": len(sets),
        "passages": sum(len(each.passages) for each in sets),
        "cost": total,
        "seconds": _mean([each.cost.seconds for each in sets]),
        "similarity": _mean(cosines),
        "perplexity": _mean(surprise),
    }


def tax_section(
    measured: Mapping[str, Mapping[str, Any]],
    *,
    performance: Mapping[str, Mapping[str, float | None]] | None = None,
    log: Sequence[str] = (),
) -> dict[str, Any]:
    """Score measured attacks against each other: plain JSON for ``summary["tax"]``.

    Parameters
    ----------
    measured : mapping
        Attack to what :func:`measure` found.
    performance : mapping, optional
        Attack to metrics (``s_f1, m_f1, s_asr, m_asr, theta``); unknown ones are None.
    log : sequence of str
        Which of ``cost`` and ``perplexity`` are normalized on their logarithms.

    Returns
    -------
    dict
        ``attacks`` (names, in order), ``measured`` (raw values with their n), ``performance``
        (raw metrics), and ``dimensions``: for each its name, normalization, raw values, scores
        (null where it is dropped) and the reason for dropping it.
    """
    metrics = {
        name: {metric: (performance or {}).get(name, {}).get(metric) for metric in PERFORMANCE}
        for name in measured
    }
    raws = {
        name: RawTax(
            llm=facts["knowledge"]["llm"],
            retriever=facts["knowledge"]["retriever"],
            corpus=facts["knowledge"]["corpus"],
            seconds=facts["seconds"]["value"],
            similarity=facts["similarity"]["value"],
            perplexity=facts["perplexity"]["value"],
            performance=metrics[name],
        )
        for name, facts in measured.items()
    }
    return {
        "attacks": list(measured),
        "measured": {name: dict(facts) for name, facts in measured.items()},
        "performance": metrics,
        "log": list(log),
        "dimensions": [
            {
                "name": each.name,
                "normalization": each.normalization,
                "raw": list(each.raw),
                "scores": None if each.scores is None else list(each.scores),
                "reason": each.reason,
                "metrics": list(each.metrics),
            }
            for each in attack_tax(raws, log=log)
        ],
    }


def attack_facts(
    crafter: Crafter,
    sets: Mapping[tuple[str, str], PoisonSet],
    index: Index | None = None,
    perplexity: Perplexity | None = None,
) -> dict[str, Any]:
    """What a run records of its attacks, in :data:`FACTS`: delivery, outcome, cost, tax."""
    delivered = delivery(crafter, sets)
    embed: Embed | None = getattr(index, "embed", None)
    attacked = crafter.setup.attacked
    return {
        "v": 1,
        "language_model": getattr(perplexity, "identity", None),
        "attacks": {
            attack.title: {
                "played": hasattr(attack.instance, "play"),
                "outcome": outcome_of(attack.instance),
                **delivered[attack.title],
                **measure(
                    [sets[attack.title, query.id] for query in attacked],
                    embed=embed,
                    perplexity=perplexity,
                ),
            }
            for attack in crafter.setup.attacks
        },
    }


def read_facts(folder: RunFolder) -> dict[str, Any]:
    """The recorded facts of a run's attacks, by title; empty for a run without such a record."""
    if not (folder.path / FACTS).exists():
        return {}
    facts: dict[str, Any] = folder.read_json(FACTS)["attacks"]
    return facts


def context_f1(
    trials: Iterable[TrialRecord | None], about: Mapping[str, Any], budget: int
) -> float | None:
    """Mean F1 of an attack's own passages in the contexts of a place; None without any answer.

    With h own passages among the k of a context and n injected for the question, F1 is
    2h / (n + k). ``about`` is what a run recorded of the attack (:func:`attack_facts`): it says
    for which questions it delivered less than was asked for.

    References
    ----------
    PoisonArena, appendix B.4.1.

    Examples
    --------
    >>> context_f1([None], {"asked": 5, "short": {}}, 5) is None
    True
    """
    done = [trial for trial in trials if trial is not None and trial.status == "done"]
    own = (sum(entry.origin == "own" for entry in trial.context) for trial in done)
    places = ((t.spec.query_id, hits, len(t.context)) for t, hits in zip(done, own, strict=True))
    return _mean_f1(places, about, budget)


def condition_f1(condition: Condition, about: Mapping[str, Any], budget: int) -> float | None:
    """:func:`context_f1` of the trials of a condition."""
    trials, rows = condition.trials, condition.done
    counts = trials.counts(kept_only=False)[rows]
    names = (trials.query.values[code] for code in trials.query.codes[rows].tolist())
    places = zip(names, counts[:, 1].tolist(), counts[:, 0].tolist(), strict=True)
    return _mean_f1(places, about, budget)


def _mean_f1(
    places: Iterable[tuple[str, int, int]], about: Mapping[str, Any], budget: int
) -> float | None:
    values = []
    short, full = about["short"], about["asked"]
    for name, hits, passages in places:
        # An evaluated paraphrase ("q#p6") is asked against the poison of its question.
        delivered = short.get(name, short.get(name.rpartition("#")[0], full)) if short else full
        size = min(budget, delivered) + passages
        values.append(2 * hits / size if size else 0.0)
    mean: float | None = _mean(values)["value"]
    return mean


def run_tax(
    facts: Mapping[str, Mapping[str, Any]],
    cells: Sequence[Mapping[str, Any]],
    headline: str,
    outcomes: Sequence[Mapping[str, Any]] = (),
    f1: Mapping[tuple[str, str, int], float | None] | None = None,
) -> dict[str, Any] | None:
    """The attack tax of a run, or None where nothing was recorded.

    Both metrics are of the undefended system, under the leading rule, in the first setting, at
    the attack's largest budget. Success (``s_asr``) is the share of target-positive answers, or
    for an attack without a target its own success (``outcomes``); ``s_f1`` is
    :func:`context_f1`, in ``f1`` by setting, attack and budget. Seconds count where poison was
    played from a file, which recorded them: those of crafting within the run would differ from
    run to run, and equal runs have equal summaries.
    """
    if not facts:
        return None
    rates: dict[str, dict[str, float | None]] = {}
    for row in sorted([*cells, *outcomes], key=lambda row: row["budget"]):
        title = row["attack"]
        leading = (
            row["scorer"] == headline
            and row["setting"] == cells[0]["setting"]
            and row["defense"] == UNDEFENDED
        )
        if not leading or title not in facts:
            continue
        own = rates.setdefault(title, {})
        if "success" in row:
            own["s_asr"] = row["success"]["value"]
            continue
        own["s_f1"] = (f1 or {}).get((row["setting"], title, row["budget"]))
        if facts[title].get("outcome", TARGET) == TARGET:
            own["s_asr"] = row["rates"]["p0"]["value"] if row["estimable"] else None
    return tax_section(
        {title: each if each["played"] else _timeless(each) for title, each in facts.items()},
        performance=rates,
    )


# --------------------------------------------------------------------------------- internals


def _timeless(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **facts,
        "cost": {**facts["cost"], "seconds": None, "gpu_seconds": None},
        "seconds": {"value": None, "n": 0},
    }


def _cosines(sets: Sequence[PoisonSet], embed: Embed) -> list[float]:
    texts = [passage.text for each in sets for passage in each.passages]
    if not texts:
        return []
    vectors = embed(texts)
    found, start = [], 0
    for each in sets:
        stop = start + len(each.passages)
        mean = mean_pairwise_cosine(vectors[start:stop])
        if mean is not None:
            found.append(mean)
        start = stop
    return found


def _perplexities(sets: Sequence[PoisonSet], perplexity: Perplexity) -> list[float]:
    texts = [passage.text for each in sets for passage in each.passages]
    if not texts:
        return []
    values = np.asarray(perplexity(texts), dtype=np.float64)
    return [float(value) for value in values[np.isfinite(values)]]


def _mean(values: Sequence[float]) -> dict[str, Any]:
    n = len(values)
    return {"value": float(np.mean(np.array(values, dtype=np.float64))) if n else None, "n": n}
