"""Making a run folder this experiment's own, and recording where it runs."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ragassay import canon
from ragassay.errors import StoreError
from ragassay.experiments.labeling import BEFORE
from ragassay.experiments.setup import Setup
from ragassay.store import RunFolder
from ragassay.types import Query, Target

_PACKAGES = (
    "ragassay", "numpy", "scipy", "torch", "transformers", "sentence-transformers", "bm25s",
    "scikit-learn", "rouge-score", "spacy", "openai",
)  # fmt: skip


def claim(folder: RunFolder, setup: Setup) -> None:
    """Make the folder this experiment's, or check that it is."""
    resolved = canon.to_plain(setup.resolved())
    path = folder.path / "resolved.json"
    if path.exists():
        if _as_run(folder) != resolved:
            raise StoreError(
                f"{folder.path} holds another experiment: {_difference(folder, resolved)}; "
                "choose another folder with --out"
            )
    else:
        folder.write_bytes("experiment.toml", setup.experiment.raw)
        folder.write_text("resolved.json", canon.dumps(resolved) + "\n")
    folder.write_text("environment.json", canon.dumps(environment()) + "\n")
    known = folder.keys("queries")
    items: list[tuple[str, dict[str, Query | Target]]] = [
        (query.id, {"query": query, "target": setup.dataset.targets[query.id]})
        for query in (*setup.evaluated, *setup.held_out)
        if query.id not in known
    ]
    if items:
        folder.append_many("queries", items)


def _as_run(folder: RunFolder) -> dict[str, Any]:
    """The settings that the folder was run with; scoring it again does not change these."""
    there = folder.read_json("resolved.json")
    before = there.pop(BEFORE, {})
    return {**there, **before}


def _difference(folder: RunFolder, resolved: dict[str, Any]) -> str:
    other = _flat(_as_run(folder))
    mine = _flat(resolved)
    for key in sorted(other.keys() | mine.keys()):
        if other.get(key) != mine.get(key):
            return f"{key} was {other.get(key)!r:.60}, now is {mine.get(key)!r:.60}"
    return "its settings differ"


def _flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(tree, dict):
        items: Iterable[tuple[Any, Any]] = tree.items()
    elif isinstance(tree, list):
        items = enumerate(tree)
    else:
        return {prefix: tree}
    flat: dict[str, Any] = {}
    for key, value in items:
        flat.update(_flat(value, f"{prefix}.{key}" if prefix else str(key)))
    return flat


def environment() -> dict[str, Any]:
    """Versions and platform of this process."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "packages": versions,
    }
