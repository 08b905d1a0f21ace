"""Which module shows the results of which protocol.

A protocol other than the four conditions has a module with ``page(store, summary, resolved)``,
which makes a :class:`~ragassay.report.page.Page`, and ``tables(summary)``, which lists what the
terminal prints, tables and the finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

PAGES = {"arena": "arena_page", "dose": "dose_page", "ladder": "ladder_page"}


def paged(summary: Mapping[str, Any]) -> Any:
    """The module that shows a summary; None where it holds the four conditions."""
    name = PAGES.get(str(summary["protocol"]).partition("/")[0])
    return None if name is None else import_module(f"ragassay.report.{name}")
