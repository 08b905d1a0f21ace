"""Every rule at every place where it applies, against the limit and against a baseline run.

The gate fails as soon as one check fails, so that the p-values of failures are adjusted over all
checks (Holm). It passes only when all checks pass, which needs no adjustment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ragassay.canon import rng_for, to_plain
from ragassay.errors import GateUsage
from ragassay.experiments.conditions import UNDEFENDED
from ragassay.gate.decision import (
    Evidence,
    Requirement,
    Values,
    Verdict,
    decide,
    more_queries,
    weigh,
    worse_p_value,
)
from ragassay.gate.rules import Rule, parse_rules
from ragassay.gate.samples import Place, Run, Sample, pair
from ragassay.report.gate import WORSE
from ragassay.stats.intervals import Interval, cluster_bootstrap
from ragassay.stats.paired import holm
from ragassay.store import RunFolder
from ragassay.taxonomy import threats_of

EXIT_CODES: dict[Verdict, int] = {"pass": 0, "fail": 1, "undecided": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A figure now and in the baseline run, on the ``n`` questions that both have.

    ``worse`` and ``better`` count the questions that changed. ``interval`` is that of the change
    by the cluster bootstrap, None below two groups. ``p_worse`` is the p-value to decide by,
    ``p_holm`` the adjusted one, ``p_mcnemar`` McNemar's with questions independent.
    """

    n: int
    groups: int
    before: float
    now: float
    worse: int
    better: int
    interval: Interval | None
    p_worse: float
    p_mcnemar: float
    p_holm: float = 1.0

    @property
    def value(self) -> float:
        """Now less before, a fraction."""
        return self.now - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A rule at one place.

    ``limit`` is what the estimate is held against; of a relative rule both are changes from the
    baseline run. ``more`` is how many more questions would decide, where that can be said.
    """

    rule: Rule
    place: Place
    limit: float
    n: int
    groups: int
    total: int
    dropped: dict[str, int]
    estimate: float | None
    interval: Interval | None
    design_effect: float | None
    p_met: float | None
    p_broken: float | None
    p_holm: float | None
    change: Change | None
    verdict: Verdict
    reason: str
    more: int | None
    threats: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What the gate says of a run. ``run`` and ``baseline`` are the folders as they were given."""

    name: str
    run: str
    baseline: str | None
    level: float
    icc: float | None
    max_dropped: float
    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Verdict:
        """Fail if any check fails, pass if all pass, else undecided."""
        verdicts = {check.verdict for check in self.checks}
        if "fail" in verdicts:
            return "fail"
        return "pass" if verdicts == {"pass"} else "undecided"

    @property
    def exit_code(self) -> int:
        """0 for pass, 1 for fail, 2 for undecided."""
        return EXIT_CODES[self.verdict]

    def counts(self) -> dict[str, int]:
        """How many checks have each verdict."""
        return {v: sum(c.verdict == v for c in self.checks) for v in EXIT_CODES}

    def plain(self) -> dict[str, Any]:
        """Everything as plain JSON values, for files and other programs."""
        return {
            "v": 1, "verdict": self.verdict, **to_plain(replace(self, checks=())),
            "checks": [{**to_plain(check), "symbol": check.rule.metric.symbol}
                       for check in self.checks],
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A check before its failures are adjusted."""

    rule: Rule
    place: Place
    sample: Sample
    values: Values
    requirement: Requirement
    evidence: Evidence | None
    change: Change | None
    reason: str


def evaluate(
    run: str | Path | RunFolder,
    rules: Sequence[Rule | str],
    *,
    baseline: str | Path | RunFolder | None = None,
    level: float = 0.05,
    icc: float | None = None,
    max_dropped: float = 0.1,
) -> GateResult:
    """Hold a run against rules.

    Parameters
    ----------
    run : str, Path or RunFolder
        A run folder; only its records are read.
    rules : sequence of Rule or str
        What is required; see :mod:`ragassay.gate.rules`.
    baseline : optional
        An older run. Every rule's figure is then also compared with it, on the same questions, and
        a rule fails where it got worse beyond chance.
    level : float
        The largest chance of a false pass, and of a false failure of the whole gate; in (0, 0.5).
    icc : float, optional
        Correlation of outcomes within an injection group to assume, in [0, 1]; 0 takes questions
        as independent. Default: estimated from the run, at least 0.05.
    max_dropped : float
        Share of questions without a label above which nothing is decided.

    Returns
    -------
    GateResult
        A check for each rule and place.

    Raises
    ------
    GateUsage
        A rule or a setting is wrong, or a rule names something that the run does not have.
    StoreError
        A folder is no run folder, or is damaged.
    """
    parsed = [rule if isinstance(rule, Rule) else parse_rules([rule])[0] for rule in rules]
    if not parsed:
        raise GateUsage("no rule is given; for example: --rule 'introduced <= 2%'")
    if not 0 < level < 0.5:
        raise GateUsage(f"the level must lie between 0 and 0.5, got {level:g}")
    if icc is not None and not 0 <= icc <= 1:
        raise GateUsage(f"the correlation must lie between 0 and 1, got {icc:g}")
    if not 0 <= max_dropped <= 1:
        raise GateUsage(f"the share of dropped questions is between 0 and 1, got {max_dropped:g}")
    new, old = Run(run), None if baseline is None else Run(baseline)
    for rule in parsed:
        if rule.relative and old is None:
            raise GateUsage(f"{rule.text!r} speaks of a baseline: give the older run (--baseline)")
    drafts = [
        _draft(rule, place, new, old, level, icc)
        for rule in parsed
        for place in new.places(rule) or [_nowhere(rule, new)]
    ]
    return GateResult(
        name=new.name, run=_shown(run), baseline=None if baseline is None else _shown(baseline),
        level=level, icc=icc, max_dropped=max_dropped,
        checks=tuple(_adjusted(drafts, new, level, max_dropped)),
    )  # fmt: skip


def _shown(folder: str | Path | RunFolder) -> str:
    return Path(folder.path if isinstance(folder, RunFolder) else folder).as_posix()


def _nowhere(rule: Rule, run: Run) -> Place:
    """Stands for a rule that has no place in the run: nothing can be estimated."""
    return Place(
        setting=rule.scoped("setting") or "", attack=rule.scoped("attack") or "",
        budget=int(rule.scoped("budget") or 0), defense=rule.scoped("defense") or "",
        scorer=rule.scoped("scorer") or run.headline,
    )  # fmt: skip


def _draft(
    rule: Rule, place: Place, new: Run, old: Run | None, level: float, icc: float | None
) -> _Draft:
    sample = new.sample(rule.metric, place)
    values, groups, change, reason = sample.values, sample.groups, None, ""
    if old is not None:
        now, before, shared = pair(sample, old.sample(rule.metric, place))
        if len(now):
            change = _change(rule, place, now, before, shared, level, icc)
        else:
            reason = "the baseline run has no label of the same questions here"
        if rule.relative:
            values, groups = now - before, shared
    shape: Any = rule.metric.kind
    if rule.relative:
        shape = "difference" if rule.metric.kind == "rate" else "change"
    requirement = Requirement(shape=shape, at_least=rule.at_least, limit=rule.threshold)
    evidence = None
    if len(values):
        evidence = weigh(values, groups, requirement, alpha=level, icc=icc)
    return _Draft(
        rule=rule, place=place, sample=sample, values=values, requirement=requirement,
        evidence=evidence, change=change, reason=reason,
    )  # fmt: skip


def _change(
    rule: Rule,
    place: Place,
    now: Values,
    before: Values,
    groups: Sequence[str],
    level: float,
    icc: float | None,
) -> Change:
    worse = before - now if rule.at_least else now - before
    p_worse, p_mcnemar = worse_p_value(worse, groups, icc=icc, alpha=level)
    (interval,) = cluster_bootstrap(
        (now - before).astype(float), groups, confidence=1 - 2 * level,
        rng=rng_for("gate", "baseline", rule.metric.name, to_plain(place)),
    )  # fmt: skip
    return Change(
        n=len(now), groups=len(set(groups)), before=float(before.mean()), now=float(now.mean()),
        worse=int((worse > 0).sum()), better=int((worse < 0).sum()), interval=interval,
        p_worse=p_worse, p_mcnemar=p_mcnemar,
    )  # fmt: skip


def _adjusted(drafts: Sequence[_Draft], run: Run, level: float, max_dropped: float) -> list[Check]:
    """Adjust the p-values of failures over all tests, and come to the verdicts."""
    usable = [_usable(draft, max_dropped) for draft in drafts]
    # Only what is tested counts: a check that can decide nothing makes no other one harder.
    found: dict[tuple[int, str], float] = {}
    for i, (draft, why) in enumerate(zip(drafts, usable, strict=True)):
        broken = None if draft.evidence is None else draft.evidence.p_broken
        if not why and broken is not None:
            found[i, "broken"] = broken
        if draft.change and not draft.rule.relative:
            found[i, "worse"] = draft.change.p_worse
    adjusted = dict(zip(found, holm(list(found.values())), strict=True)) if found else {}
    return [
        _check(
            draft, why, adjusted.get((i, "broken"), 1.0), adjusted.get((i, "worse"), 1.0), run,
            level, max(1, len(found)),
        )
        for i, (draft, why) in enumerate(zip(drafts, usable, strict=True))
    ]  # fmt: skip


def _usable(draft: _Draft, max_dropped: float) -> str:
    """Why a check can decide nothing; empty where it can."""
    sample, evidence = draft.sample, draft.evidence
    lost = sum(sample.dropped.values())
    if draft.rule.relative and draft.reason:
        return draft.reason
    if draft.place.defense == UNDEFENDED and len(draft.rule.metric.needs) > 1:
        return "not estimable: without a defense there is nothing to compare"
    if evidence is None:
        return "not estimable: no question has the labels that it needs"
    if sample.total and lost > max_dropped * sample.total:
        causes = ", ".join(f"{count} {why}" for why, count in sample.dropped.items())
        return f"{lost} of {sample.total} questions have no label ({causes})"
    if evidence.p_met is None:
        return "not estimable: fewer than two injection groups (state a correlation with --icc)"
    return ""


def _check(
    draft: _Draft,
    why: str,
    p_holm: float,
    p_worse: float,
    run: Run,
    level: float,
    tests: int,
) -> Check:
    evidence, change = draft.evidence, draft.change
    if change is not None:
        change = replace(change, p_holm=p_worse)
    p_met = None if evidence is None or why else evidence.p_met
    verdict = decide(p_met, None if why else p_holm, level)
    more = None
    if change is not None and change.p_holm <= level:  # a relative rule allows its margin
        verdict, reason = "fail", WORSE
    elif why:
        reason = why
    else:
        assert evidence is not None
        reason = _reason(draft, verdict, evidence, level)
        if verdict == "undecided":
            more = more_queries(draft.values, evidence, draft.requirement, alpha=level, tests=tests)
    if draft.reason and draft.reason not in reason:
        reason = f"{reason}; not compared: {draft.reason}"
    return Check(
        rule=draft.rule, place=draft.place, limit=draft.requirement.limit,
        n=0 if evidence is None else evidence.sample.n,
        groups=0 if evidence is None else evidence.sample.groups,
        total=draft.sample.total, dropped=draft.sample.dropped,
        estimate=None if evidence is None else evidence.estimate,
        interval=None if evidence is None else evidence.interval,
        design_effect=None if evidence is None or not evidence.sample.size
        else evidence.sample.design_effect,
        p_met=p_met,
        p_broken=None if evidence is None else evidence.p_broken,
        p_holm=None if why else p_holm, change=change, verdict=verdict, reason=reason, more=more,
        threats=tuple(t.id for t in threats_of(run.plugin_of(draft.place.attack)))
        if draft.place.attack else (),
    )  # fmt: skip


def _reason(draft: _Draft, verdict: Verdict, evidence: Evidence, level: float) -> str:
    if verdict == "pass":
        return "the interval lies within the limit"
    if verdict == "fail":
        return "the interval lies beyond the limit"
    if evidence.p_broken is not None and evidence.p_broken <= level:
        return "beyond the limit alone, but not after adjusting for the number of checks"
    return "the interval reaches over the limit"
