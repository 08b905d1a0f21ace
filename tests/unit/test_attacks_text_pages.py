"""The worked examples of the attacks' pages run, and the pages say what the code says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import pytest

from ragassay.attacks.corruptrag import CorruptRAGAK, CorruptRAGAS
from ragassay.attacks.hijack import Hijack
from ragassay.attacks.jamming import Jamming
from ragassay.attacks.jamming_search import JammingSearch
from ragassay.attacks.poisonedrag import PoisonedRAG
from ragassay.attacks.query_attacker import QueryAttacker

PAGES = Path(__file__).resolve().parents[2] / "docs" / "attacks"
ATTACKS: dict[str, Any] = {
    "poisonedrag": PoisonedRAG, "corruptrag_as": CorruptRAGAS, "corruptrag_ak": CorruptRAGAK,
    "hijack": Hijack, "jamming": Jamming, "jamming_search": JammingSearch,
    "query_attacker": QueryAttacker,
}  # fmt: skip
_EXAMPLE = re.compile(r"^```pycon\n(.*?)^```$", re.M | re.S)


def read(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ATTACKS)
def test_the_worked_example_runs_as_it_stands(name: str) -> None:
    [text] = _EXAMPLE.findall(read(name))
    examples = doctest.DocTestParser().get_doctest(text, {}, name, f"{name}.md", 0)
    assert len([e for e in examples.examples if e.want]) >= 2
    report: list[str] = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(examples, out=report.append)
    assert failed == 0, "".join(report)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_page_says_what_it_assumes_costs_and_changes(name: str) -> None:
    page = read(name)
    assert page.startswith(f"# {name}\n")
    for heading in ("assumes", "does", "costs"):
        assert f"\n## What it {heading}\n" in page
    assert "\n## How it departs from its paper\n" in page
    assert "\nSource: " in page


@pytest.mark.parametrize("name", ATTACKS)
def test_the_knowledge_on_the_page_is_the_declared_one(name: str) -> None:
    [line] = re.findall(r"\((`\w+=\w+`(?:, `\w+=\w+`)*)\)", read(name))
    stated = dict(part.strip("`").split("=") for part in line.split(", "))
    declared = ATTACKS[name].knowledge
    defaults = {"llm": "none", "retriever": "none", "corpus": "none", "correct_answer": "false"}
    for field, default in {**defaults, "query": ""}.items():
        value = getattr(declared, field)
        plain = str(value).lower() if isinstance(value, bool) else value
        assert stated.get(field, default) == plain, field
