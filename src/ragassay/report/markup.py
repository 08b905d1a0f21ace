"""What every page is made with: the template environment, and text that may stand in HTML.

Passages and answers come from attackers: templates escape everything, data are JSON without
any markup character, and scripts build text nodes only. A page's content security policy lets
only its own scripts run, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ragassay.report.grids import Grid
from ragassay.report.markdown import flat
from ragassay.report.text import visible

# Markup characters, and what hides or reorders text in an editor; all below U+10000.
_ESCAPED = re.compile(
    "[<>&\u007f-\u009f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_FOLDER = "templates"


def environment() -> Environment:
    """Templates of this package, everything escaped."""
    jinja = Environment(
        loader=PackageLoader("ragassay.report", _FOLDER), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True,
    )  # fmt: skip
    jinja.filters["typeset"] = typeset
    jinja.filters["breakable"] = breakable
    jinja.filters["svg"] = Markup  # made by our own charts, which escape what they draw
    return jinja


def script_hash(script: str) -> str:
    """How a content security policy names a script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode()


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
    """Let a long name break after an underscore or slash, and not inside ``p = 5``."""
    name = name.replace("p = ", "p\u00a0=\u00a0")
    parts = [Markup("_<wbr>").join(part.split("_")) for part in name.split("/")]
    return Markup("/<wbr>").join(parts)


def key_values(title: str, tree: Mapping[str, Any]) -> Grid:
    """Nested settings as a table of dotted keys and values."""
    rows = tuple((visible(k, limit=200), visible(v, limit=2000)) for k, v in flat(tree))
    return Grid(title=title, columns=("Key", "Value"), rows=rows)


def template_text(name: str) -> str:
    """A file of the templates folder, with Unix line ends."""
    text = (files("ragassay.report") / _FOLDER / name).read_text(encoding="utf-8")
    return text.replace("\r\n", "\n")
