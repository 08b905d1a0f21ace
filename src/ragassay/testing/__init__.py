"""For authors of plug-ins: scripted tools, a strict attacker view, and the contract suites.

A plug-in package tests its defense in a few lines and without any model::

    from ragassay.testing import check_defense

    def test_my_defense_keeps_the_contract():
        check_defense(MyDefense(), replies={"Answer:": "Paris"})

The checks are plain functions that raise ``AssertionError`` with one line that says what is
wrong; they need no test framework.
"""

from __future__ import annotations

from ragassay.testing.contracts import check_attack, check_defense
from ragassay.testing.scripted import (
    Call,
    Replies,
    ScriptedTools,
    hashing_vectors,
    make_hits,
    make_query,
)
from ragassay.testing.strict import StrictView

__all__ = [
    "Call",
    "Replies",
    "ScriptedTools",
    "StrictView",
    "check_attack",
    "check_defense",
    "hashing_vectors",
    "make_hits",
    "make_query",
]
