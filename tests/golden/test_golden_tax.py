"""The attack tax against the golden values."""

from __future__ import annotations

from typing import Any

import pytest

from ragassay.stats.tax import minmax


def test_inverted_minmax_gives_the_golden_values(golden: dict[str, list[dict[str, Any]]]) -> None:
    entries = golden["attack_tax"]
    assert {entry["id"] for entry in entries} >= {"attack_tax_minmax", "attack_tax_equal"}
    for entry in entries:
        found = minmax(entry["inputs"]["values"], invert=True)
        if entry["expected"] is None:
            assert found is None, entry["id"]
        else:
            assert found == pytest.approx(entry["expected"], abs=entry["tolerance"]), entry["id"]
