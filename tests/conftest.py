"""Fixtures shared by all tests, and the rule that no test touches the user's cache."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# The same examples in every run: a failure that a change did not cause should not stop it.
# RAGASSAY_HYPOTHESIS=default searches new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile(os.environ.get("RAGASSAY_HYPOTHESIS", "repeatable"))

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("RAGASSAY_SHARED", ROOT.parent / "shared"))


@pytest.fixture(autouse=True)
def _private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGASSAY_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets; the test is skipped where it is absent."""
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip(f"real data sets are not at {folder} (set RAGASSAY_SHARED)")
    return folder


@pytest.fixture(scope="session")
def golden() -> dict[str, list[dict[str, Any]]]:
    """Golden entries by category; the test is skipped where the file is absent."""
    path = SHARED / "golden.json"
    if not path.is_file():
        pytest.skip(f"golden values are not at {path} (set RAGASSAY_SHARED)")
    entries: dict[str, list[dict[str, Any]]] = {}
    for entry in json.loads(path.read_text(encoding="utf-8"))["entries"]:
        entries.setdefault(entry["category"], []).append(entry)
    return entries
