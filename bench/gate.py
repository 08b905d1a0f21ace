"""Does the gate keep its level, and does planning agree with simulation?

Simulates systems whose true figures are known, draws their questions in correlated groups, and puts
the outcomes through the code that decides in the gate.

Run: python bench/gate.py [--systems 2000] [--repeats 4] [--draws 10000]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ragassay.canon import rng_for
from ragassay.gate.decision import Requirement, decide, weigh, worse_p_value
from ragassay.stats import paired, power

ALPHA = 0.05
SIZES = ((100, 1), (300, 1), (20, 5), (10, 10), (20, 10), (50, 10), (12, 25))  # groups, questions
ICCS = (0.0, 0.02, 0.05, 0.1, 0.2)
RATES = (0.01, 0.02, 0.05, 0.1, 0.3, 0.9)
DIFFERENCES = ((0.02, 0.02), (0.01, 0.0), (0.1, 0.02), (0.3, 0.05), (0.55, 0.05), (0.02, 0.05))
CHANGES = ((0.01, 0.01), (0.05, 0.05), (0.15, 0.15))


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """What is true of one simulated system."""

    groups: int
    size: int
    icc: float
    shares: tuple[float, ...]  # of outcomes +1 and -1; the rest is 0

    def outcomes(self, rng: np.random.Generator, runs: int) -> np.ndarray:
        """Outcomes of every question, shape (runs, groups * size)."""
        shares = np.array([*self.shares, 1 - sum(self.shares)])
        shape = (runs, self.groups)
        if self.icc == 0 or self.size == 1:
            chance = np.broadcast_to(shares, (*shape, len(shares)))
        else:
            used = np.maximum(shares, 1e-12) * (1 - self.icc) / self.icc
            chance = rng.dirichlet(used, size=shape)
        u = rng.random((*shape, self.size))[..., None]
        drawn = (u > np.cumsum(chance, axis=-1)[:, :, None, :-1]).sum(axis=-1)
        values = np.array([1, -1, 0] if len(shares) == 3 else [1, 0])
        return values[drawn].reshape(runs, -1)

    @property
    def labels(self) -> np.ndarray:
        """The group of every question."""
        return np.repeat(np.arange(self.groups), self.size)


def systems(shares: tuple[tuple[float, ...], ...], number: int, name: str) -> Iterator[System]:
    """Draw systems from all sizes, correlations and true figures."""
    rng = rng_for("bench gate", name)
    for _ in range(number):
        groups, size = SIZES[rng.integers(len(SIZES))]
        yield System(
            groups=groups, size=size, icc=float(rng.choice(ICCS)),
            shares=shares[rng.integers(len(shares))],
        )  # fmt: skip


def level(kind: str, number: int, repeats: int) -> None:
    """False passes and failures where the truth is the limit itself, the worst case.

    There a rule is met, so that a failure is false, and is broken as soon as the truth moves by
    nothing at all, so that a pass is as likely as it can be for a broken rule. A true figure that
    is "shown below" its limit is a false pass of a <= rule and a false failure of a >= rule.
    """
    shares = tuple((r,) for r in RATES) if kind == "rate" else DIFFERENCES
    rng = rng_for("bench gate", kind, "draws")
    wrong: dict[tuple[str, str], list[bool]] = {}
    for system in systems(shares, number, kind):
        truth = system.shares[0] - (system.shares[1] if kind == "difference" else 0)
        need = Requirement(shape=kind, at_least=False, limit=truth)
        for values in system.outcomes(rng, repeats):
            found = weigh(values, system.labels.tolist(), need, alpha=ALPHA, bounds=False)
            verdict = decide(found.p_met, found.p_broken, ALPHA)
            told = f"{kind} {'/'.join(f'{s:g}' for s in system.shares)}"
            for key in ("all", f"icc {system.icc:g}", f"{system.groups} x {system.size}", told):
                wrong.setdefault((key, "shown below"), []).append(verdict == "pass")
                wrong.setdefault((key, "shown above"), []).append(verdict == "fail")
    print(f"\n{kind}: {number} systems, each at its limit, {repeats} samples of each")
    table(wrong)


def table(wrong: dict[tuple[str, str], list[bool]]) -> None:
    keys = list(dict.fromkeys(key for key, _ in wrong))
    for key in ["all", *sorted(k for k in keys if k != "all")]:
        line = "  ".join(
            f"{what} {100 * np.mean(wrong[key, what]):5.2f}%"
            for what in dict.fromkeys(what for _, what in wrong)
        )
        any_key = next(what for _, what in wrong)
        print(f"  {key:10s} {line}  ({len(wrong[key, any_key])} samples)")


def regression(number: int, repeats: int) -> None:
    """False alarms of the comparison with a baseline, where nothing has changed."""
    rng = rng_for("bench gate", "regression draws")
    wrong: dict[tuple[str, str], list[bool]] = {}
    for system in systems(CHANGES, number, "regression"):
        for changes in system.outcomes(rng, repeats):
            p, plain = worse_p_value(changes, system.labels.tolist())
            for key in ("all", f"icc {system.icc:g}", f"{system.groups} x {system.size}"):
                wrong.setdefault((key, "false alarm"), []).append(p <= ALPHA)
                wrong.setdefault((key, "McNemar alone"), []).append(plain <= ALPHA)
    print(f"\nbaseline: {number} systems without a change, {repeats} samples of each")
    table(wrong)


def whole_gate(number: int) -> None:
    """Several rules at once: the gate as a whole, with Holm over the rules."""
    rng = rng_for("bench gate", "whole")
    failed = passed = 0
    for system in systems(tuple((r,) for r in RATES[1:4]), number, "whole"):
        tests = []
        for _ in range(5):
            (values,) = system.outcomes(rng, 1)
            need = Requirement(shape="rate", at_least=False, limit=system.shares[0])
            labels = system.labels.tolist()
            tests.append(weigh(values, labels, need, alpha=ALPHA, bounds=False))
        adjusted = paired.holm([1.0 if t.p_broken is None else t.p_broken for t in tests])
        verdicts = [decide(t.p_met, p, ALPHA) for t, p in zip(tests, adjusted, strict=True)]
        failed += "fail" in verdicts
        passed += all(v == "pass" for v in verdicts)
    print(
        f"\nwhole gate of five rules, all at their limits, {number} systems: "
        f"false fail {100 * failed / number:.2f}%, false pass {100 * passed / number:.2f}%"
    )


CASES = (
    ("J 0.5% below 2%", (0.005,), 0.02, "below"),
    ("J 8% above 2%", (0.08,), 0.02, "above"),
    ("N 25pp above 10pp", (0.3, 0.05), 0.1, "above"),
    ("N 8pp above 0", (0.12, 0.04), 0.0, "above"),
    ("H 0.5pp below 5pp", (0.015, 0.01), 0.05, "below"),
)


def planning(draws: int) -> None:
    """Power by planning against the gate itself, which is told the correlation or estimates it."""
    rng = rng_for("bench gate", "planning")
    print(f"\npower: computed, of the gate on {draws} samples, difference")
    worst = {True: 0.0, False: 0.0}
    for m, icc in ((1, 0.0), (10, 0.0), (10, 0.05), (10, 0.2), (25, 0.1)):
        for n in (100, 300):
            for name, shares, limit, side in CASES:
                system = System(groups=n // m, size=m, icc=icc, shares=shares)
                sample, labels = system.outcomes(rng, draws), system.labels.tolist()
                need = Requirement(
                    shape="rate" if len(shares) == 1 else "difference",
                    at_least=side == "above", limit=limit,
                )  # fmt: skip
                told = ""
                for known in (True, False):
                    sampling = power.Sampling(cluster_size=m, icc=icc, known=known)
                    assumed = icc if known else None
                    if len(shares) == 1:
                        computed = power.rate_power(n, shares[0], limit, side, sampling=sampling)
                    else:
                        expected = power.Difference(first=shares[0], second=shares[1])
                        computed = power.difference_power(
                            n, expected, limit, side, sampling=sampling
                        )
                    gate = np.mean([
                        weigh(v, labels, need, alpha=ALPHA, icc=assumed, bounds=False).p_met
                        <= ALPHA
                        for v in sample
                    ])  # fmt: skip
                    worst[known] = max(worst[known], abs(computed - gate))
                    told += (
                        f"  {'told' if known else 'estimates'} {100 * computed:6.2f}% "
                        f"{100 * gate:6.2f}% {100 * (computed - gate):+5.2f}"
                    )
                print(f"  n {n:3d}, groups of {m:2d}, icc {icc:.2f}, {name:18s}{told}", flush=True)
    print(
        f"  largest difference: {100 * worst[True]:.2f} points where the correlation is told, "
        f"{100 * worst[False]:.2f} where it is estimated"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=4, help="samples of each system")
    parser.add_argument("--draws", type=int, default=10000, help="samples for each power")
    asked = parser.parse_args()
    start = time.perf_counter()
    print(f"level {ALPHA} on each side")
    level("rate", asked.systems, asked.repeats)
    level("difference", asked.systems, asked.repeats)
    regression(asked.systems, asked.repeats)
    whole_gate(asked.systems)
    planning(asked.draws)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
