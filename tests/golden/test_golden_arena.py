"""Every golden value on strengths of attackers, arena rounds and poison F1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from ragassay.arena.assignment import count_assignments, full, latin
from ragassay.arena.outcomes import MatchRule, winners
from ragassay.arena.retrieval import poison_figures
from ragassay.stats.ranking import (
    GradientRule,
    round_gradient,
    round_log_likelihood,
    win_probability,
)
from ragassay.stats.ranking_online import OnlineRule, converged, online_update

COUNTS = {"bt": 17, "arena": 4, "f1": 9}
Theta = Mapping[str, float]


def places(theta: Theta, names: Sequence[str]) -> list[int]:
    return [list(theta).index(name) for name in names]


def gradient(
    theta: Theta, winners: list[str], losers: list[str], rule: GradientRule = "correct"
) -> dict[str, float]:
    found = round_gradient(
        list(theta.values()), places(theta, winners), places(theta, losers), rule=rule
    )
    return dict(zip(theta, found.tolist(), strict=True))


def printed(theta: Theta, winners: list[str], losers: list[str]) -> dict[str, float]:
    assert gradient(theta, winners, losers) != pytest.approx(
        gradient(theta, winners, losers, "printed")
    )
    return gradient(theta, winners, losers, "printed")


def update(theta: Theta, winners: list[str], losers: list[str], eta: float = 0.01) -> Any:
    def by(rule: OnlineRule) -> dict[str, float]:
        won, lost = places(theta, winners), places(theta, losers)
        found = online_update(list(theta.values()), won, lost, rate=eta, rule=rule)
        return dict(zip(theta, found.tolist(), strict=True))

    if not winners or not losers:
        assert by("batch") == by("sequential") == by("printed")
        return by("batch")
    return {"batch": by("batch"), "sequential_released": by("sequential")}


def likelihood(theta: Theta, winners: list[str], losers: list[str]) -> float:
    return round_log_likelihood(list(theta.values()), places(theta, winners), places(theta, losers))


def permutations(m: int) -> dict[str, int]:
    assert len(full(m)) == count_assignments(m, "full").assignments
    each = sum(row[0] == 0 for row in full(m))
    assert each == count_assignments(m, "full").each_pair
    assert sum(row[0] == 0 for row in latin(m)) == 1
    return {"full": len(full(m)), "each_pair": each, "latin": len(latin(m))}


def judged(response: str, targets: dict[str, str | None]) -> list[str]:
    rules: tuple[MatchRule, ...] = ("tokens", "published")
    found = {winners(response, targets, rule=rule) for rule in rules}
    assert len(found) == 1
    return list(found.pop())


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "bt_probability": lambda theta_i, theta_j: float(win_probability(theta_i, theta_j)),
    "bt_gradient": gradient,
    "bt_gradient_eq5_as_printed": printed,
    "bt_round_loglik": likelihood,
    "bt_update": update,
    "sum_theta": lambda theta: float(np.sum(theta)),
    "n_permutations": permutations,
    "winners": judged,
    "converged": lambda rank_history, r: converged(rank_history, r),
    "poison_f1": lambda hits, n_injected, k: poison_figures(hits, n_injected, k).f1,
    "sum_f1": sum,
}


@pytest.mark.parametrize("category", COUNTS)
def test_every_golden_value_of_the_arena(
    golden: dict[str, list[dict[str, Any]]], category: str
) -> None:
    entries = golden[category]
    assert len(entries) == COUNTS[category]
    for entry in entries:
        arguments = entry["inputs"]
        name = entry["function"]
        found = sum(arguments["f1"]) if name == "sum_f1" else FUNCTIONS[name](**arguments)
        if isinstance(entry["expected"], dict):
            assert set(found) == set(entry["expected"]), entry["id"]
            for key, value in entry["expected"].items():
                assert found[key] == pytest.approx(value, abs=entry["tolerance"]), entry["id"]
        elif isinstance(entry["expected"], (bool, list)):
            assert found == entry["expected"], entry["id"]
        else:
            assert found == pytest.approx(entry["expected"], abs=entry["tolerance"]), entry["id"]


def test_published_strengths_that_do_not_sum_to_zero_are_not_of_the_correct_rule(
    golden: dict[str, list[dict[str, Any]]],
) -> None:
    """The correct rule keeps the sum at 0; under the printed one a leader drags it down."""
    sums = {e["id"]: e["expected"] for e in golden["bt"] if e["function"] == "sum_theta"}
    holds = {name for name, value in sums.items() if abs(value) < 7 * 0.00005 + 1e-4}
    assert len(holds) == 5
    assert all(value < -0.6 for name, value in sums.items() if name not in holds)
    rng = np.random.default_rng(0)
    right, wrong = np.zeros(7), np.zeros(7)
    for _ in range(500):
        won, *lost = sorted(rng.permutation(7)[: rng.integers(2, 7)].tolist())
        right = online_update(right, [won], lost)
        wrong = online_update(wrong, [won], lost, rule="printed")
    assert right.sum() == pytest.approx(0, abs=1e-12)
    assert wrong.sum() < -0.6


def test_the_f1_of_disjoint_attackers_sum_to_at_most_one_where_all_is_retrieved(
    golden: dict[str, list[dict[str, Any]]],
) -> None:
    sums = [e["expected"] for e in golden["f1"] if e["function"] == "sum_f1"]
    assert len(sums) == 3
    assert max(sums) <= 1
    for mine in range(6):
        together = [poison_figures(hits, 5, 5).f1 for hits in (mine, 5 - mine)]
        assert sum(together) == pytest.approx(1)
