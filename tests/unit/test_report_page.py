"""The page that protocols other than the four conditions fill."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest

from ragassay.report.grids import Grid
from ragassay.report.page import (
    MAX_ENTRIES,
    Entry,
    Page,
    PageSection,
    Quote,
    page_html,
    page_markdown,
)
from ragassay.report.parts import Part

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e"


def made(**changes: object) -> Page:
    table = Grid(title="Figures", columns=("Rule", "Share"), rows=((HOSTILE, "3/4 [0.3, 0.9]"),))
    values: dict[str, object] = {
        "name": "toy",
        "finding": f"A finding about {HOSTILE}",
        "sections": (
            PageSection(
                anchor="h-one", short="One", title="Section one",
                parts=(Part(heading="Part", claim="Three of four.", grids=(table,)),),
                html="<p>own</p>", script="document.title = document.title;",
            ),
        ),
        "entries": (
            Entry(
                title=HOSTILE, tags={"rule": HOSTILE, "dose": "1"}, lines=(("key", HOSTILE),),
                quotes=(Quote(label="Passage", text=HOSTILE, marks=((0, 9, "removed"),)),),
            ),
        ),
        "definitions": (("share", "a part of a whole"),),
        **changes,
    }  # fmt: skip
    return Page(**values)  # type: ignore[arg-type]


def test_foreign_text_never_becomes_markup() -> None:
    text = page_html(made(), {"name": HOSTILE}, {})
    assert "<img" not in text
    assert "alert(1)</script>" not in text
    assert "\u202e" not in text.split('id="data">')[1].split("</script>")[0]


def test_only_the_scripts_of_the_page_are_allowed_to_run() -> None:
    text = page_html(made(), {}, {})
    policy = re.search(r"script-src ([^;]*);", text)
    scripts = re.findall(r"<script>(.*?)</script>", text, flags=re.S)
    assert policy is not None
    assert len(scripts) == 2
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy[1]


def test_records_beyond_the_limit_are_counted_and_not_listed() -> None:
    entry = made().entries[0]
    text = page_html(made(entries=(entry,) * (MAX_ENTRIES + 1), total=5000), {}, {})
    assert f"{MAX_ENTRIES:,} of 5,000 records are listed" in text
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert len(data) == MAX_ENTRIES
    assert data[0]["quotes"][0]["marks"] == [[0, 9, "removed"]]


def test_markdown_has_the_finding_the_tables_and_the_terms() -> None:
    text = page_markdown(made(), {"seed": 12}, {"python": "3.11"})
    assert text.startswith("# A finding about ")
    assert "<script>" not in text
    for expected in ("## Section one", "#### Part", "3/4", "**share**", "| seed | 12 |"):
        assert expected in text


@pytest.mark.parametrize("page", [made(entries=()), made(sections=(), definitions=())])
def test_a_page_without_records_or_sections_is_whole(page: Page) -> None:
    text = page_html(page, {}, {})
    assert text.rstrip().endswith("</html>")
    assert ('id="browser"' in text) == bool(page.entries)
