"""Every attack has a page, and the worked examples on the pages run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from ragassay import plugins

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "attacks").glob("*.md"))
_EXAMPLE = re.compile(r"^```pycon\n(.*?)^```$", re.M | re.S)


def titles(page: Path) -> list[str]:
    return page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").split(", ")


def test_every_registered_attack_has_one_page_and_the_page_its_name() -> None:
    described = [name for page in PAGES for name in titles(page)]
    assert sorted(described) == sorted(plugins.names("attack"))
    assert all(titles(page)[0] == page.stem for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_what_an_attack_assumes_costs_and_changes(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.M)
    assert headings == [
        "What it assumes", "What it does", "What it costs", "How it departs from its paper",
        "Worked example",
    ]  # fmt: skip
    assert "\nSource: " in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_worked_examples_of_a_page_run_as_they_stand(page: Path) -> None:
    text = "".join(_EXAMPLE.findall(page.read_text(encoding="utf-8")))
    examples = doctest.DocTestParser().get_doctest(text, {}, page.stem, page.name, 0)
    assert len([e for e in examples.examples if e.want]) >= 1
    report: list[str] = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(examples, out=report.append)
    assert failed == 0, "".join(report)
