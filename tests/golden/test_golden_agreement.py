"""Every golden value on agreement and on the audited judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ragassay.stats.agreement import Agreement, agreement, cohen_kappa
from ragassay.stats.paired import contributions

COUNTS = {"kappa": 4, "judge": 8}


def audited(agree: int, agree_na: int, n: int, uncertain: int) -> Agreement:
    """Labels with the published counts: the rest is decided, and decided differently."""
    wrong = n - agree - agree_na - uncertain
    human = ["yes"] * agree + ["not_applicable"] * agree_na + ["no"] * (uncertain + wrong)
    other = human[: agree + agree_na] + ["uncertain"] * uncertain + ["yes"] * wrong
    return agreement(human, other)


def overall(agree_yes_no: int, agree_na: int, n: int) -> list[int]:
    found = audited(agree_yes_no, agree_na, n, uncertain=n - agree_yes_no - agree_na)
    return [found.overall.count, found.overall.n]


def uncertain_count(non_na: int, decisive: int) -> int:
    found = audited(decisive, 0, non_na, uncertain=non_na - decisive)
    assert found.decisive.n == decisive
    return found.uncertain_other


def proportion(k: int, n: int) -> float | None:
    return audited(k, 0, n, uncertain=0).decisive.rate


def paired_decisive_difference(yes_a_minus_yes_b: int, n_decisive: int) -> float:
    """In percentage points: labels a and b of the same queries, both decided in each."""
    gained = np.arange(n_decisive) < -yes_a_minus_yes_b
    nobody = np.zeros(n_decisive, dtype=bool)
    net = contributions(nobody, nobody, nobody, gained)[:, 2].mean()
    return 100 * float(net)


def kappa(matrix: list[list[float]], **_: Any) -> float | None:
    return cohen_kappa(matrix)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cohen_kappa": kappa,
    "agreement": overall,
    "uncertain_count": uncertain_count,
    "proportion": proportion,
    "paired_decisive_difference_pp": paired_decisive_difference,
}


@pytest.mark.parametrize("category", COUNTS)
def test_golden_values(golden: dict[str, list[dict[str, Any]]], category: str) -> None:
    entries = golden[category]
    assert len(entries) == COUNTS[category]
    for entry in entries:
        found = FUNCTIONS[entry["function"]](**entry["inputs"])
        if entry["expected"] is None:
            assert found is None, entry["id"]
        else:
            assert found == pytest.approx(entry["expected"], abs=entry["tolerance"]), entry["id"]


def test_published_agreement_is_69_of_100_and_64_of_69() -> None:
    found = audited(64, 5, 100, uncertain=26)
    assert (found.overall.count, found.overall.n) == (69, 100)
    assert (found.decisive.count, found.decisive.n, found.both_na) == (64, 69, 5)
    assert found.uncertain_other == 26


def test_kappa_is_undefined_beside_an_agreement_of_one() -> None:
    found = agreement(["yes"] * 10, ["yes"] * 10)
    assert (found.decisive.rate, found.kappa) == (1.0, None)
