"""What an attack is called in the OWASP Top 10 for LLM applications and in MITRE ATLAS.

Source: OWASP Top 10 for LLM Applications 2025, https://genai.owasp.org/llm-top-10/; MITRE ATLAS
5.6.0 (May 2026), https://atlas.mitre.org/, names as in its published data.

An attack class of somebody else declares its own with ``threats = ("LLM01:2025", ...)``; one that
declares nothing is poisoned evidence like all others (:data:`POISONED`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Framework = Literal["OWASP", "ATLAS"]
FRAMEWORKS: dict[Framework, tuple[str, str, str]] = {
    "OWASP": (
        "OWASP Top 10 for LLM Applications", "2025", "https://genai.owasp.org/llm-top-10/",
    ),
    "ATLAS": ("MITRE ATLAS", "5.6.0", "https://atlas.mitre.org/"),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Threat:
    """An entry of a framework: its id, its name there, and its page."""

    id: str
    name: str
    framework: Framework
    url: str


def _owasp(id: str, name: str, page: str) -> Threat:
    url = f"https://genai.owasp.org/llmrisk/{page}/"
    return Threat(id=id, name=name, framework="OWASP", url=url)


def _atlas(id: str, name: str) -> Threat:
    url = f"https://atlas.mitre.org/techniques/{id}"
    return Threat(id=id, name=name, framework="ATLAS", url=url)


THREATS: dict[str, Threat] = {
    threat.id: threat
    for threat in (
        _owasp("LLM01:2025", "Prompt Injection", "llm01-prompt-injection"),
        _owasp("LLM04:2025", "Data and Model Poisoning", "llm042025-data-and-model-poisoning"),
        _owasp(
            "LLM08:2025", "Vector and Embedding Weaknesses",
            "llm082025-vector-and-embedding-weaknesses",
        ),
        _owasp("LLM09:2025", "Misinformation", "llm092025-misinformation"),
        _atlas("AML.T0031", "Erode AI Model Integrity"),
        _atlas("AML.T0043", "Craft Adversarial Data"),
        _atlas("AML.T0043.000", "Craft Adversarial Data: White-Box Optimization"),
        _atlas("AML.T0043.001", "Craft Adversarial Data: Black-Box Optimization"),
        _atlas("AML.T0043.003", "Craft Adversarial Data: Manual Modification"),
        _atlas("AML.T0051.001", "LLM Prompt Injection: Indirect"),
        _atlas("AML.T0066", "Retrieval Content Crafting"),
        _atlas("AML.T0070", "RAG Poisoning"),
    )
}  # fmt: skip

POISONED = ("LLM04:2025", "LLM08:2025", "AML.T0070")
_FALSE = (*POISONED, "LLM09:2025", "AML.T0066")  # a text that argues for a false answer
_WHITE_BOX = (*_FALSE, "AML.T0043.000")
_BLACK_BOX = (*_FALSE, "AML.T0043.001")
_INJECTED = (*POISONED, "LLM01:2025", "AML.T0051.001", "AML.T0066")
_REFUSED = "AML.T0031"  # the system no longer answers

BY_ATTACK: dict[str, tuple[str, ...]] = {
    "poisonedrag": _FALSE,
    "poisonedrag_whitebox": _WHITE_BOX,
    "poisonedrag_whitebox_stop": _WHITE_BOX,
    "corpuspoison": _WHITE_BOX,
    "corpuspoison_paraphrases": _WHITE_BOX,
    "corpuspoison_ranked": _WHITE_BOX,
    "gaslite": _WHITE_BOX,
    "gaslite_paraphrases": _WHITE_BOX,
    "advdecoding": _WHITE_BOX,
    "advdecoding_paraphrases": _WHITE_BOX,
    "contentpoison": _WHITE_BOX,
    "corruptrag_as": (*_FALSE, "AML.T0043.003"),
    "corruptrag_ak": _FALSE,
    "garag": (*POISONED, "AML.T0043.001", _REFUSED),
    "hijack": _INJECTED,
    "jamming": (*_INJECTED, _REFUSED),
    "jamming_search": (*POISONED, "AML.T0043.001", _REFUSED),
    "query_attacker": _BLACK_BOX,
    "released": _FALSE,
    "file": POISONED,
}


def threats_of(attack: str, declared: tuple[str, ...] = ()) -> tuple[Threat, ...]:
    """What an attack stands for, by its registered name or by what its class declares.

    Parameters
    ----------
    attack : str
        The name of the plug-in, not its label in an experiment.
    declared : tuple of str
        Ids that the class declares; those that are not in :data:`THREATS` keep their id as name.

    Returns
    -------
    tuple of Threat
        OWASP first, each by id.

    Examples
    --------
    >>> [threat.id for threat in threats_of("hijack")][:2]
    ['LLM01:2025', 'LLM04:2025']
    """
    ids = declared or BY_ATTACK.get(attack, POISONED)
    found = {THREATS.get(each) or _unlisted(each) for each in ids}
    return tuple(sorted(found, key=lambda threat: (threat.framework != "OWASP", threat.id)))


def _unlisted(id: str) -> Threat:
    if id.startswith("AML."):
        return _atlas(id, id)
    framework_page = FRAMEWORKS["OWASP"][2]
    return Threat(id=id, name=id, framework="OWASP", url=framework_page)
