"""The sections of a report beyond the four conditions, each only where a run has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report import clean, detectors, evidence, gate, strata, taxes, untargeted, victims
from ragassay.report.attribution import attribution
from ragassay.report.parts import Part, Section


def _evidence(summary: Mapping[str, Any], scorer: str, charts: bool) -> Sequence[Part]:
    return [
        *evidence.removal(summary, scorer),
        *attribution(summary, scorer, charts),
        *evidence.composition(summary, scorer),
    ]


SETTINGS = Section(
    anchor="h-victims",
    short="Victims and arms",
    title="Victims and arms beside each other",
    wanted=victims.wanted,
    parts=victims.victims,
)
GATE = Section(
    anchor="h-gate",
    short="Gate",
    title="The gate: rules and verdicts",
    wanted=gate.wanted,
    parts=gate.section,
    by_rule=False,
)
SECTIONS = (
    Section(
        anchor="h-untargeted",
        short="Without a target",
        title="Attacks without a target",
        wanted=untargeted.wanted,
        parts=untargeted.untargeted,
    ),
    Section(
        anchor="h-evidence",
        short="Evidence",
        title="What the answers depend on",
        wanted=evidence.wanted,
        parts=_evidence,
    ),
    Section(
        anchor="h-exposure",
        short="Exposure",
        title="Support that is left in the contexts",
        wanted=strata.wanted,
        parts=strata.strata,
    ),
    Section(
        anchor="h-detectors",
        short="Detectors",
        title="Detectors under attack",
        wanted=detectors.wanted,
        parts=detectors.detectors,
    ),
    Section(
        anchor="h-utility",
        short="Clean utility",
        title="Clean utility",
        wanted=clean.wanted,
        parts=clean.utility,
        by_rule=False,
    ),
    Section(
        anchor="h-tax",
        short="Attack tax",
        title="What the attacks need and cost",
        wanted=taxes.wanted,
        parts=taxes.tax,
        by_rule=False,
    ),
)


def present(summary: Mapping[str, Any]) -> list[Section]:
    """The sections that a run has, in the order in which reports show them."""
    return [section for section in (GATE, SETTINGS, *SECTIONS) if section.wanted(summary)]


def definitions(summary: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The terms of these sections, where they are used."""
    return evidence.DEFINITIONS if evidence.wanted(summary) else ()
