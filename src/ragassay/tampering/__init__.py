"""Tampering: rules that edit retrieved passages, and the dose in which they are applied.

A rule (:class:`~ragassay.tampering.edits.Rule`) edits one passage and says which edits it
made; :func:`~ragassay.tampering.dose.tamper` applies it to a count of passages. spaCy's
English model is loaded on first use by the rules that read names or verbs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ragassay.tampering.coordinated import Coordinated
from ragassay.tampering.dose import Choice, Dosed, choose, tamper
from ragassay.tampering.edits import Ask, Edit, Rule, Scene, Tampered, apply_edits
from ragassay.tampering.entity_swap import EntitySwap
from ragassay.tampering.llm_rewrite import LLMRewrite
from ragassay.tampering.negation import Negation
from ragassay.tampering.number_swap import NumberSwap

RULES: Mapping[str, type[Rule]] = MappingProxyType(
    {rule.name: rule for rule in (EntitySwap, NumberSwap, Negation, LLMRewrite, Coordinated)}
)
"""The rules by name."""

__all__ = [
    "RULES",
    "Ask",
    "Choice",
    "Coordinated",
    "Dosed",
    "Edit",
    "EntitySwap",
    "LLMRewrite",
    "Negation",
    "NumberSwap",
    "Rule",
    "Scene",
    "Tampered",
    "apply_edits",
    "choose",
    "tamper",
]
