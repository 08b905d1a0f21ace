"""Every golden value on statistics, string labels and passage templates.

Identities between published figures are checked through our functions, on labels that are
built to have the published counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ragassay.attacks.corruptrag import build_as
from ragassay.attacks.poisonedrag import build_black_box
from ragassay.matching import clean_str
from ragassay.scoring.match import PublishedMatch, trustrag_attack_success
from ragassay.stats.detection import (
    auroc,
    calibrate_threshold,
    fnr_at_fpr,
    graph_statistics,
    score_statistics,
    threshold_index,
)
from ragassay.stats.intervals import (
    Interval,
    cluster_bootstrap,
    enumerate_cluster_bootstrap,
    wilson,
)
from ragassay.stats.paired import FourConditions, contributions, four_conditions, mcnemar_exact
from ragassay.types import Query, Target

Labels = NDArray[np.bool_]
COUNTS = {
    "wilson": 17, "mcnemar": 13, "bootstrap": 4, "four_condition": 6, "identity": 30,
    "detector": 10, "matching": 4, "poisonedrag": 2, "corruptrag": 1,
}  # fmt: skip


# ----------------------------------------------------------------- labels with given counts


def first(count: int, n: int) -> Labels:
    """Labels of n queries, the first ``count`` of them true."""
    return np.arange(n) < count


def moved(before: int, gained: int, lost: int, n: int) -> tuple[Labels, Labels]:
    """Two conditions: ``before`` true in the first, of which ``lost`` go and ``gained`` come."""
    after = first(before, n) & ~first(lost, n)
    return first(before, n), after | (first(before + gained, n) & ~first(before, n))


def with_effects(net: int, harm: int, n: int = 100) -> FourConditions:
    """Four conditions of n queries with a given net effect and clean effect, in counts."""
    return four_conditions(first(50, n), first(50 + harm, n), first(50, n), first(50 - net, n))


def flat(groups: dict[str, list[int]]) -> tuple[NDArray[np.float64], list[str]]:
    values = np.array([value for members in groups.values() for value in members], dtype=float)
    return values, [name for name, members in groups.items() for _ in members]


def mean(values: list[float]) -> float:
    """The only resample of a single group is its mean."""
    [found] = enumerate_cluster_bootstrap(np.array(values), ["all"] * len(values))
    return float(found)


# ---------------------------------------------------------------------- one function per entry


def wilson_interval(k: int, n: int, confidence: float) -> list[float] | None:
    found = wilson(k, n, confidence=confidence)
    return None if found is None else [found.low, found.high]


def exact_mcnemar(b: int, c: int) -> float:
    found = mcnemar_exact(*moved(c, gained=b, lost=c, n=b + c + 10))
    assert (found.gained, found.lost) == (b, c)
    swapped = mcnemar_exact(*moved(b, gained=c, lost=b, n=b + c + 10))
    assert swapped.p_value == found.p_value
    return found.p_value


def four_condition_contrast(
    p0: int, p1: int, c0: int, c1: int, n: int, unit: str
) -> dict[str, float]:
    assert unit == "percent"
    four = four_conditions(*(first(count, n) for count in (c0, c1, p0, p1)))
    return {"N": 100 * four.N, "H": 100 * four.H, "Gamma": 100 * four.Gamma}


def prevented_rate(P: int, p0: int) -> float | None:
    before, after = moved(p0, gained=0, lost=P, n=100)
    return four_conditions(before, before, before, after).prevented_share


def cluster_bootstrap_of(groups: dict[str, list[int]]) -> dict[str, Any]:
    values, labels = flat(groups)
    [interval] = cluster_bootstrap(values, labels, rng=np.random.default_rng(0))
    return {"mean": mean(list(values)), "ci": interval}


def cluster_bootstrap_enumerated(groups: dict[str, list[int]]) -> dict[str, float]:
    exact = enumerate_cluster_bootstrap(*flat(groups))
    low, median, high = np.quantile(exact, [0.25, 0.5, 0.75])
    [drawn] = cluster_bootstrap(*flat(groups), confidence=0.5, rng=np.random.default_rng(0))
    assert drawn is not None
    # The golden quartiles interpolate between the two neighboring resample means.
    assert {0.4, 0.5} >= {drawn.low}
    assert {0.714285714, 0.857142857} >= {round(drawn.high, 9)}
    return {
        "n_resamples": len(exact), "min": exact.min(), "max": exact.max(), "mean": exact.mean(),
        "q25": low, "median": median, "q75": high,
    }  # fmt: skip


def paired_difference(before: list[int], after: list[int], groups: list[str]) -> dict[str, float]:
    p0, p1 = np.array(before, dtype=bool), np.array(after, dtype=bool)
    table = contributions(p0, p0, p0, p1)
    intervals = cluster_bootstrap(table, groups, rng=np.random.default_rng(0))
    assert intervals[2] == Interval(0.0, 0.0)  # N, while P and J are not certain
    assert intervals[0] == intervals[1] == Interval(0.0, 0.5)
    four = four_conditions(p0, p0, p0, p1)
    return {"N": four.N, "P": four.P, "J": four.J}


def gamma_from_n_h(N: int, H: int) -> float:
    four = with_effects(N, H)
    assert (four.p0 - four.p1, four.c1 - four.c0) == (N, H)
    assert (four.N, four.H) == (N / 100, H / 100)
    return round(100 * four.Gamma, 9)


def defended_count(undefended: int, prevented: int, introduced: int) -> int:
    before, after = moved(undefended, gained=introduced, lost=prevented, n=150)
    four = four_conditions(before, before, before, after)
    assert (four.p0, four.prevented, four.introduced) == (undefended, prevented, introduced)
    return four.p1


def persistent_positives(poisoned_positives: int, newly_induced: int) -> int:
    both = poisoned_positives - newly_induced
    clean, poisoned = moved(17, gained=newly_induced, lost=17 - both, n=150)
    four = four_conditions(clean, clean, poisoned, poisoned)
    table = four.transitions["attack_without_defense"]
    assert (four.p0, table.second_only) == (poisoned_positives, newly_induced)
    assert table.both <= four.c0
    return table.both


def strata_sums(contexts: list[int], targets: list[int]) -> list[int]:
    labels = np.concatenate([first(t, c) for t, c in zip(targets, contexts, strict=True)])
    four = four_conditions(labels, labels, labels, labels)
    return [four.n, four.p0]


def integer_count(rate: float, n: int) -> int:
    """The count whose rate is the printed one."""
    [count] = [k for k in range(n + 1) if round(mean(list(first(k, n).astype(float))), 3) == rate]
    return count


def fraction(mean_poison: float, k: int) -> float:
    contexts = 100
    labels = first(round(mean_poison * contexts), k * contexts)
    four = four_conditions(labels, labels, labels, ~labels)
    return four.p0 / four.n


def calibrated(scores: str, fpr: float, rule: str) -> dict[str, float]:
    assert (scores, rule) == ("99 x 1.0 + 1 x 2.0", "flag if score > t")
    clean = [1.0] * 99 + [2.0]
    threshold = calibrate_threshold(clean, fpr)
    return {"t": threshold, "flagged": sum(score > threshold for score in clean)}


def calibrated_index(n: int, fpr: float) -> dict[str, int]:
    threshold = calibrate_threshold(np.arange(n, dtype=float), fpr)
    return {"zero_based_index": threshold_index(n, fpr), "max_flagged": int(n - 1 - threshold)}


def retrieval_score_statistics(scores: list[float]) -> dict[str, float]:
    found = score_statistics(scores)
    return {"neg_min": found.negative_min, "gap": found.gap, "pstd": found.dispersion}


def graph(W: list[list[float]]) -> dict[str, float]:
    found = graph_statistics(np.array(W))
    return {
        "lambda2": found.lambda2, "conductance": found.conductance,
        "modularity": found.modularity,
    }  # fmt: skip


def operating_point(pos: list[float], neg: str, fpr: float) -> dict[str, float]:
    assert neg == "i/20 for i=0..19"
    found = fnr_at_fpr(pos, [i / 20 for i in range(20)], fpr)
    assert found is not None
    return {"threshold": found.threshold, "fnr": found.fnr}


def target_positive(answer: str, target: str) -> bool | None:
    return PublishedMatch().score(
        trial_key="k",
        query=Query(id="q", text="?", group="g"),
        target=Target(query_id="q", wanted=(target,)),
        answer=answer,
        declined=False,
    ).target_positive  # fmt: skip


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "wilson_interval": wilson_interval,
    "exact_mcnemar": exact_mcnemar,
    "four_condition_contrast": four_condition_contrast,
    "prevented_rate": prevented_rate,
    "cluster_mean": lambda groups: mean(list(flat(groups)[0])),
    "cluster_bootstrap": cluster_bootstrap_of,
    "cluster_bootstrap_enumerated": cluster_bootstrap_enumerated,
    "paired_difference": paired_difference,
    "gamma_from_n_h": gamma_from_n_h,
    "defended_count": defended_count,
    "persistent_positives": persistent_positives,
    "strata_sums": strata_sums,
    "integer_count": integer_count,
    "fraction": fraction,
    "mean": mean,
    "calibrate_threshold": calibrated,
    "calibrate_threshold_index": calibrated_index,
    "retrieval_score_statistics": retrieval_score_statistics,
    "graph_statistics": graph,
    "auroc": lambda pos, neg: auroc(pos, neg),
    "fnr_at_fpr": operating_point,
    "clean_str": lambda s: clean_str(s),
    "target_positive": target_positive,
    "trustrag_attack_success": trustrag_attack_success,
    "build_as": lambda q, correct, target, sep: build_as(q, correct, target, separator=sep),
    "build_black_box": lambda q, I: build_black_box(q, I),  # noqa: E741
}


def near(expected: Any, tolerance: float) -> Any:
    if isinstance(expected, bool) or expected is None or isinstance(expected, str):
        return expected
    if isinstance(expected, dict):
        return {key: near(value, tolerance) for key, value in expected.items()}
    if isinstance(expected, list):
        return [near(value, tolerance) for value in expected]
    return pytest.approx(expected, abs=tolerance, rel=0)


@pytest.mark.parametrize("category", COUNTS)
def test_golden_values(golden: dict[str, list[dict[str, Any]]], category: str) -> None:
    entries = golden[category]
    assert len(entries) >= COUNTS[category]
    for entry in entries:
        found = FUNCTIONS[entry["function"]](**entry["inputs"])
        if entry["id"] == "substring_empty_target":
            # Neither right nor wrong: not applicable, as the entry's note recommends.
            assert entry["expected"] is False
            assert found is None
            continue
        assert found == near(entry["expected"], entry["tolerance"]), entry["id"]


def test_golden_ids_are_distinct(golden: dict[str, list[dict[str, Any]]]) -> None:
    ids = [entry["id"] for category in COUNTS for entry in golden[category]]
    assert len(ids) == len(set(ids)) >= sum(COUNTS.values())


def test_the_printed_p_values_determine_the_unprinted_transitions() -> None:
    """Table 2 of "Prevented is not protected": N and the rounded p leave one (P, J)."""
    for net, printed, pair in ((-12, 0.029, (7, 19)), (-6, 0.263, (7, 13)), (18, 0.002, (25, 7))):
        found = [
            (prevented, prevented - net)
            for prevented in range(max(0, net), 50)
            if round(exact_mcnemar(prevented - net, prevented), 3) == printed
        ]
        assert found == [pair]
