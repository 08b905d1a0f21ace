"""Writes report.md and report.html from a run folder; no model and no network is needed.

The HTML page holds everything in one file: style, charts, data and a small script, whose hash
is the only one that the page's content security policy lets run. Passages and answers come
from attackers: the template escapes everything, data are JSON without any markup character,
and the script builds text nodes only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ragassay.report import grids, tables
from ragassay.report.finding import best, finding, finding_detail
from ragassay.report.grids import Grid
from ragassay.report.plots import panels
from ragassay.report.records import browser_data
from ragassay.report.text import visible
from ragassay.store import RunFolder
from ragassay.types import PoisonSet

# Markup characters, and what hides or reorders text in an editor; all below U+10000.
_ESCAPED = re.compile(
    "[<>&\u007f-\u009f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_FOLDER = "templates"


def write_reports(folder: Path) -> dict[str, Path]:
    """Write report.md and report.html into a run folder.

    Parameters
    ----------
    folder : Path
        A run folder that holds summary.json and resolved.json.

    Returns
    -------
    dict of str to Path
        The files written, by ``"md"`` and ``"html"``.

    Raises
    ------
    StoreError
        A file of the run is missing or damaged, or a report cannot be written.
    """
    store = RunFolder(Path(folder))
    summary, resolved = store.read_json("summary.json"), store.read_json("resolved.json")
    environment = _optional(store, "environment.json")
    store.write_text("report.md", tables.markdown(summary, resolved, environment))
    store.write_text("report.html", html(store, summary, resolved, environment))
    return {"md": store.path / "report.md", "html": store.path / "report.html"}


def html(
    store: RunFolder,
    summary: Mapping[str, Any],
    resolved: Mapping[str, Any],
    environment: Mapping[str, Any],
) -> str:
    """Render the page. Equal records give equal text."""
    script = _template_text("report.js")
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    names = sorted(summary["scorers"], key=lambda rule: rule != summary["headline"])
    lead = best(summary)
    data = browser_data(store, summary)
    data["lead"] = [lead["defense"], lead["attack"], lead["budget"]] if lead else ["", "", 0]
    jinja = Environment(
        loader=PackageLoader("ragassay.report", _FOLDER), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True,
    )  # fmt: skip
    jinja.filters["typeset"] = typeset
    jinja.filters["breakable"] = breakable
    jinja.filters["svg"] = Markup  # made by plots.py, which escapes what it draws
    trials = summary["trials"]
    # What is Markup here is ours (script, style, hash) or has no markup character (data).
    return jinja.get_template("report.html").render(
        script_hash=Markup("sha256-" + base64.b64encode(digest).decode()),  # noqa: S704
        css=Markup(_template_text("report.css")),  # noqa: S704
        script=Markup(script),  # noqa: S704
        data=Markup(embed(data)),  # noqa: S704
        name=visible(summary["name"]),
        finding=finding(summary),
        detail=finding_detail(summary),
        what=tables.what_was_run(summary, resolved),
        warnings=[visible(warning, limit=600) for warning in summary["warnings"]],
        trials=tables.trials_line(summary),
        compared=bool(summary["defenses"]),
        complete=trials["done"] == trials["planned"],
        dropped=grids.dropped(summary),
        errors=grids.errors(summary),
        rules=[_rule(summary, name) for name in names],
        intervals=tables.intervals_note(summary),
        notes=tables.NOTES,
        attacks=attack_costs(store.poison()),
        definitions=tables.DEFINITIONS,
        settings=_settings("Settings", resolved),
        versions=_settings("Versions", environment),
    )


def embed(value: Any) -> str:
    r"""Serialize to JSON that can stand in a script element, whatever its strings hold.

    Examples
    --------
    >>> embed("</script>")
    '"\\u003c/script\\u003e"'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def typeset(text: str) -> str:
    """Use the arrow and the minus sign that HTML can show, and keep ``p = 5`` on one line."""
    text = text.replace("->", "\u2192").replace("p = ", "p\u00a0=\u00a0")
    return re.sub(r"(?<![\w.-])-(?=\d)", "\u2212", text)


def breakable(name: str) -> Markup:
    """Let a long name break after an underscore."""
    return Markup("_<wbr>").join(name.split("_"))


def attack_costs(poison: Mapping[str, PoisonSet]) -> Grid:
    """What each attack declares to know, and what it spent per query."""
    sets: dict[str, list[PoisonSet]] = {}
    for one in poison.values():
        sets.setdefault(one.attack, []).append(one)
    rows = []
    for attack, members in sorted(sets.items()):
        knowledge = members[0].knowledge
        n = len(members)
        rows.append(
            (
                visible(attack), visible(knowledge.llm), visible(knowledge.retriever),
                visible(knowledge.corpus), visible(knowledge.query),
                "yes" if knowledge.correct_answer else "no",
                f"{sum(len(one.passages) for one in members) / n:.1f}",
                f"{sum(one.cost.model_calls for one in members) / n:.1f}",
                f"{sum(one.cost.output_tokens for one in members) / n:.1f}",
                f"{n}",
            )
        )  # fmt: skip
    return Grid(
        title="What the attacks know and spend",
        columns=(
            "Attack", "LLM", "Retriever", "Corpus", "Query", "Correct answer",
            "Passages per query", "Model calls per query", "Output tokens per query", "Queries",
        ),
        rows=tuple(rows),
    )  # fmt: skip


def _rule(summary: Mapping[str, Any], name: str) -> dict[str, Any]:
    has_qrels = bool(summary["dataset"].get("has_qrels", True))
    return {
        "name": visible(name),
        "panels": panels(summary, name),
        "blocks": [
            {
                "title": block.title,
                "undefended": grids.undefended_line(block),
                "effects": grids.effects(block),
                "transitions": grids.transitions(block),
                "conditions": grids.conditions(block),
                "composition": grids.composition(block, has_qrels=has_qrels),
                "cost": grids.cost(block),
                "link": _link(name, block.attack, block.budget),
            }
            for block in grids.blocks(summary, name)
        ],
    }


def _link(rule: str, attack: str, budget: int) -> Callable[[str, str], str]:
    """Make the filter that leads from a count to its records."""

    def link(defense: str, letter: str) -> str:
        place = {"rule": rule, "defense": defense, "attack": attack, "p": budget, "class": letter}
        return urlencode(place, errors="replace")

    return link


def _settings(title: str, tree: Mapping[str, Any]) -> Grid:
    rows = tuple((visible(k, limit=200), visible(v, limit=2000)) for k, v in tables.flat(tree))
    return Grid(title=title, columns=("Key", "Value"), rows=rows)


def _template_text(name: str) -> str:
    text = (files("ragassay.report") / _FOLDER / name).read_text(encoding="utf-8")
    return text.replace("\r\n", "\n")


def _optional(store: RunFolder, name: str) -> dict[str, Any]:
    return store.read_json(name) if (store.path / name).exists() else {}
