"""A page of any protocol: the finding, sections of parts, and a browser of records.

A protocol fills a :class:`Page`; the same page becomes HTML and Markdown. The HTML holds
everything in one file and works without a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from ragassay.report import markup
from ragassay.report.grids import Grid
from ragassay.report.markdown import escape, flat, part_lines, tabled
from ragassay.report.parts import Part
from ragassay.report.text import visible

MAX_ENTRIES = 2000
MAX_QUOTE = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A text of a record, with spans of it marked.

    ``marks`` are (start, stop, kind): ``target``, ``correct``, ``removed``, ``added`` or
    ``other``. Spans may not overlap.
    """

    label: str
    text: str
    marks: tuple[tuple[int, int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One record of the browser. ``tags`` can be filtered by, ``lines`` are facts about it."""

    title: str
    tags: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[tuple[str, str], ...] = ()
    quotes: tuple[Quote, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """A section of a page.

    ``html`` follows the parts and must be made by our own code, every foreign text in it
    escaped; ``script`` runs on it, and is allowed by its hash.
    """

    anchor: str
    short: str
    title: str
    parts: tuple[Part, ...]
    html: str = ""
    script: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a protocol has to show.

    ``finding`` is the title, ``detail`` the figures behind it, ``what`` says what was run,
    ``trials`` how many trials there are. Of ``total`` records, ``entries`` are listed, at most
    ``MAX_ENTRIES``. ``definitions`` are terms with what they mean.
    """

    name: str
    finding: str
    detail: str = ""
    what: str = ""
    warnings: tuple[str, ...] = ()
    trials: str = ""
    sections: tuple[PageSection, ...] = ()
    entries: tuple[Entry, ...] = ()
    total: int = 0
    definitions: tuple[tuple[str, str], ...] = ()


def page_html(page: Page, resolved: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    """Render a page as one file. Equal pages give equal text."""
    script = markup.template_text("page.js")
    scripts = [script, *(one.script for one in page.sections if one.script)]
    listed = page.entries[:MAX_ENTRIES]
    # What is Markup here is ours (script, style, hash) or has no markup character (data).
    return markup.environment().get_template("page.html").render(
        hashes=Markup(" ".join(f"'{markup.script_hash(one)}'" for one in scripts)),  # noqa: S704
        css=Markup(markup.template_text("report.css")),  # noqa: S704
        script=Markup(script),  # noqa: S704
        data=Markup(markup.embed([_entry(one) for one in listed])),  # noqa: S704
        name=visible(page.name),
        finding=page.finding,
        detail=page.detail,
        what=page.what,
        warnings=[visible(warning, limit=600) for warning in page.warnings],
        trials=page.trials,
        sections=[
            {"anchor": one.anchor, "short": one.short, "title": one.title, "parts": one.parts,
             "html": Markup(one.html), "script": Markup(one.script)}  # noqa: S704
            for one in page.sections
        ],
        listed=len(listed),
        total=max(page.total, len(page.entries)),
        definitions=page.definitions,
        settings=markup.key_values("Settings", resolved),
        versions=markup.key_values("Versions", environment),
    )  # fmt: skip


def page_markdown(page: Page, resolved: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    """Render a page as Markdown, without charts and records."""
    lines = [f"# {escape(page.finding)}", escape(page.detail), escape(page.what)]
    lines.append("## Warnings")
    lines.append(
        "\n".join(f"- {escape(visible(warning, limit=400))}" for warning in page.warnings)
        or "No warnings."
    )
    lines.append(escape(page.trials))
    for one in page.sections:
        lines.append(f"## {escape(one.title)}")
        for part in one.parts:
            lines += part_lines(part)
    if page.definitions:
        lines.append("## How to read the figures")
        lines.append(
            "\n".join(f"- **{escape(term)}**: {escape(text)}." for term, text in page.definitions)
        )
    for title, tree in (("Settings", resolved), ("Versions", environment)):
        if tree:
            rows = tuple((visible(k, limit=200), visible(v, limit=400)) for k, v in flat(tree))
            lines += [
                f"## {title}",
                tabled(Grid(title="", columns=("Key", "Value"), rows=rows)),
            ]
    return "\n\n".join(line for line in lines if line) + "\n"


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "title": visible(entry.title, limit=600),
        "tags": {visible(key): visible(value) for key, value in entry.tags.items()},
        "lines": [[visible(key), visible(value, limit=600)] for key, value in entry.lines],
        "quotes": [
            {
                "label": visible(quote.label),
                "text": quote.text[:MAX_QUOTE],
                "cut": len(quote.text) > MAX_QUOTE,
                "marks": [
                    [start, min(stop, MAX_QUOTE), kind]
                    for start, stop, kind in sorted(quote.marks)
                    if start < MAX_QUOTE
                ],
            }
            for quote in entry.quotes
        ],
    }
