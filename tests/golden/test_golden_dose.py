"""Every golden value of "In RAG We Trust?", and the figures that it prints (F-8).

The published counts are turned into labels of single runs, and our functions have to give the
published rates back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ragassay.errors import ConfigError
from ragassay.scoring.polarity import withdrawn_low_overlap
from ragassay.stats.dose import (
    DosePoint,
    Resampling,
    Runs,
    contrasts,
    decoding_noise,
    delivery,
    dose_response,
    fooled_rate,
    rate,
)
from ragassay.stats.paired import mcnemar_exact
from ragassay.tampering import NumberSwap, tamper

QUESTIONS, TEXTS, DRAWS = 49, 37, 3
RULES = ("entity", "number", "negation")
# Applied dose: runs (table II), adopting answers by rule (tables II and IV).
APPLIED = {0: 418, 1: 511, 2: 289, 3: 105}
ADOPTED_AT_THREE = {"entity": (42, 6), "number": (9, 9), "negation": (54, 1)}


def how() -> Resampling:
    return Resampling(np.random.default_rng(42), draws=200)


def texts(n: int) -> list[int]:
    """The distinct text of each run: 49 slots over 37 texts."""
    return [slot % QUESTIONS % TEXTS for slot in range(n)]


def grid() -> Runs:
    """1,323 runs with the published number of runs and of adopting answers by applied dose."""
    doses = np.repeat(list(APPLIED), list(APPLIED.values()))
    adopted = np.concatenate(
        [np.arange(n) < k for n, k in zip(APPLIED.values(), (0, 55, 68, 16), strict=True)]
    )
    both = adopted & (np.cumsum(adopted) <= 80)
    none = np.zeros(len(doses), dtype=bool)
    return Runs(np.full(len(doses), 3), doses, none, none, adopted, both, texts(len(doses)))


def first(count: int, n: int) -> Any:
    return np.arange(n) < count


def percent(k: int | list[int], n: int | list[int]) -> Any:
    if isinstance(k, int):
        assert isinstance(n, int)
        found = rate(first(k, n), texts(n), how())
        assert (found.count, found.n) == (k, n)
        return 100 * found.value if found.value is not None else None
    sizes = n if isinstance(n, list) else [n] * len(k)
    return [percent(a, b) for a, b in zip(k, sizes, strict=True)]


def design_size(
    rules: int, doses: int, queries: int, draws: int, control_arms: int, control_runs: int
) -> dict[str, int]:
    cells = [(r, d, q, w) for r in range(rules) for d in range(doses)
             for q in range(queries) for w in range(draws)]  # fmt: skip
    return {"grid": len(set(cells)), "total": len(cells) + control_arms * control_runs}


def total(**parts: Any) -> float:
    if "n" in parts:  # runs by applied dose
        runs = grid()
        assert [point.n for point in dose_response(runs, how())] == parts["n"]
        return len(runs)
    differences = paired(parts["entity_minus_number"], parts["number_minus_negation"])
    return 100 * differences["entity", "negation"]


def paired(one: float, two: float) -> dict[tuple[str, str], float]:
    """Contrasts in which 1,000 questions have fooled rates at the given distances."""
    size, base = 1000, 200
    counts = {"negation": base, "number": base + round(10 * two)}
    counts["entity"] = counts["number"] + round(10 * one)
    rules, correct, groups = [], [], []
    for rule in RULES:
        rules += [rule] * size
        correct += [not fooled for fooled in first(counts[rule], size)]
        groups += list(range(size))
    n = len(rules)
    yes, no, dose = np.ones(n, dtype=bool), np.zeros(n, dtype=bool), np.ones(n, dtype=int)
    found = contrasts(rules, Runs(dose, dose, yes, np.array(correct), no, no, groups), how())
    return {(d.first, d.second): d.value for d in found if d.value is not None}


def adoption_counts(rates: list[float], n: list[int]) -> list[int]:
    points = dose_response(grid(), how())
    assert [point.adopted.n for point in points] == n
    assert [round(100 * (p.adopted.value or 0), 1) for p in points] == rates
    return [point.adopted.count for point in points]


def integers(exact_pct: list[int], n: int, adoption_pct: list[int]) -> dict[str, list[int]]:
    cells, adopters = [], []
    for rule, exact, adoption in zip(RULES, exact_pct, adoption_pct, strict=True):
        count, adopting = ADOPTED_AT_THREE[rule]
        applied = np.where(first(count, n), 3, 1)
        none = np.zeros(n, dtype=bool)
        runs = Runs(np.full(n, 3), applied, none, none, first(adopting, n), none, texts(n))
        [delivered] = delivery(runs, how())
        assert round(100 * (delivered.exact.value or 0)) == exact
        point = dose_response(runs, how())[-1]
        assert (point.dose, round(100 * (point.adopted.value or 0))) == (3, adoption)
        cells.append(delivered.exact.count)
        adopters.append(point.adopted.count)
    return {"cells": cells, "adopters": adopters}


def old_dose(k: int, p: list[float]) -> list[int]:
    """The published fault, a floor of one passage; a dose is a count here, and zero is zero."""
    passages = tuple(f"It has {n} rooms." for n in range(30, 30 + k))
    dosed = tamper(NumberSwap(), passages, 0, question="", rng=np.random.default_rng(1))
    assert dosed.texts == passages
    with pytest.raises(ConfigError):
        tamper(NumberSwap(), passages, p[1], question="", rng=np.random.default_rng(1))  # type: ignore[arg-type]
    return [max(1, int(np.floor(k * share + 1e-12))) for share in p]


def marginal_identity(clean: int, corrupt: int, b: int, c: int) -> int:
    n = 147
    before = first(clean, n)
    after = before & ~first(b, n) | (first(clean + c, n) & ~before)
    found = mcnemar_exact(before, after)
    assert (found.lost, found.gained, int(after.sum())) == (b, c, corrupt)
    return int(before.sum() - after.sum())


def drop(a: int, na: int, b: int, nb: int) -> float:
    return float(percent(a, na) - percent(b, nb))


def golden_fooled_rate(clean_correct: list[int], corrupt_correct: list[int]) -> dict[str, float]:
    before, after = (np.array(x, dtype=bool) for x in (clean_correct, corrupt_correct))
    none, dose = np.zeros(len(before), dtype=bool), np.ones(len(before), dtype=int)
    found = fooled_rate(Runs(dose, dose, before, after, none, none, texts(len(before))), how())
    assert found.value is not None
    return {"rate": found.value, "n": found.n}


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "design_size": design_size,
    "sum": total,
    "adoption_counts": adoption_counts,
    "percent": percent,
    "integers": integers,
    "old_dose": old_dose,
    "marginal_identity": marginal_identity,
    "pp_drop": lambda a, b, n: drop(a, n, b, n),
    "pp_drop_exact": drop,
    "fooled_rate": golden_fooled_rate,
    "lowovl": lambda answer_words, doc_words: withdrawn_low_overlap(answer_words, doc_words),
}


def near(expected: Any, tolerance: float) -> Any:
    if isinstance(expected, dict):
        return {key: near(value, tolerance) for key, value in expected.items()}
    if isinstance(expected, list):
        return [near(value, tolerance) for value in expected]
    return pytest.approx(expected, abs=tolerance or 1e-9, rel=0)


def test_golden_values(golden: dict[str, list[dict[str, Any]]]) -> None:
    entries = golden["seed003"]
    assert len(entries) >= 16
    for entry in entries:
        found = FUNCTIONS[entry["function"]](**entry["inputs"])
        assert found == near(entry["expected"], entry["tolerance"]), entry["id"]


# ----------------------------------------------------------------- the published inconsistencies


def point(dose: int) -> DosePoint:
    return next(p for p in dose_response(grid(), how()) if p.dose == dose)


def test_the_old_sweep_lost_thirteen_with_a_direction() -> None:
    before = first(115, 147)
    after = (before & ~first(14, 147)) | (first(116, 147) & ~before)
    found = mcnemar_exact(before, after)
    assert (found.lost, found.gained) == (14, 1)
    assert found.p_value == pytest.approx(32 / 32768, abs=1e-15)
    assert int(before.sum()) - int(after.sum()) == 13


def test_decoding_noise_of_the_zero_dose_has_no_direction() -> None:
    correct, again = first(115, 147), first(114, 147)
    equal = first(130, 147)
    equal[114] = False
    equal[130] = True
    order = np.zeros(147, dtype=bool)
    order[:78] = True
    found = decoding_noise(equal, correct, again, order)
    assert round(100 * (found.agree.value or 0), 1) == 88.4
    assert (found.symmetry.lost, found.symmetry.gained, found.symmetry.p_value) == (1, 0, 1.0)


def test_the_published_agreement_by_order_fits_whole_runs() -> None:
    """88.4% of 147 is 130; 89.7% and 87.0% are 70 of 78 and 60 of 69, which add up to it."""
    fits = [
        (a, n) for n in range(1, 147) for a in [round(0.897 * n)]
        if round(100 * a / n, 1) == 89.7 and round(100 * (130 - a) / (147 - n), 1) == 87.0
    ]  # fmt: skip
    assert fits == [(70, 78)]


def test_the_tables_agree_on_one_hundred_thirty_nine_adopting_answers() -> None:
    counts = [p.adopted.count for p in dose_response(grid(), how())]
    assert counts == [0, 55, 68, 16]
    assert sum(counts) == 67 + 67 + 5 == 139
    assert sum(p.adopted_and_abstained for p in dose_response(grid(), how())) == 80
    assert sum(k for _, k in ADOPTED_AT_THREE.values()) == point(3).adopted.count == 16
    assert sum(n for n, _ in ADOPTED_AT_THREE.values()) == point(3).n == 105


def test_the_drop_from_dose_one_to_three_is_printed_from_whole_counts() -> None:
    """The paper prints 23.2, the difference of two rounded rates."""
    exact = drop(196, 294, 64, 147)
    assert f"{exact:.1f}" == "23.1"
    assert round(round(percent(196, 294), 1) - round(percent(64, 147), 1), 1) == 23.2
    assert f"{drop(102, 147, 64, 147):.1f}" == "25.9"


def test_paired_differences_add_up_and_marginal_ones_are_others() -> None:
    found = paired(1.1, 6.4)
    assert 100 * found["entity", "negation"] == pytest.approx(7.5)
    marginal = {"entity": 40.1, "number": 37.4, "negation": 26.6}
    differences = [
        round(marginal[a] - marginal[b], 1)
        for a, b in (("entity", "number"), ("number", "negation"), ("entity", "negation"))
    ]
    assert differences == [2.7, 10.8, 13.5]


def test_the_two_clean_arms_are_two_runs() -> None:
    assert round(percent(114, 147), 1) == 77.6
    assert round(percent(458, 588), 1) == 77.9
    assert round(percent(115, 147), 1) == 78.2


def test_the_published_fooled_rates_lack_their_denominators() -> None:
    """0.4, 35.7, 54.0 and 72.0% fit more than one count, so no count can be told from them."""
    for dose, printed in ((1, 35.7), (2, 54.0), (3, 72.0)):
        fits = [
            n for n in range(1, APPLIED[dose] + 1)
            if any(round(100 * k / n, 1) == printed
                   for k in range(int(printed * n / 100), int(printed * n / 100) + 2))
        ]  # fmt: skip
        assert len(fits) > 1, dose
