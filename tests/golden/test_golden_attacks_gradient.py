"""Golden values of the gradient attacks."""

from __future__ import annotations

from typing import Any

from ragassay.attacks.search_tokens import top_candidates


def test_golden_candidates(golden: dict[str, list[dict[str, Any]]]) -> None:
    entries = [entry for entry in golden["hotflip"] if entry["function"] == "top_candidates"]
    assert {entry["id"] for entry in entries} >= {"hotflip_candidates"}
    for entry in entries:
        assert top_candidates(**entry["inputs"]) == entry["expected"], entry["id"]
