"""Golden texts of the attacks that are written, not searched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ragassay.attacks.corruptrag import build_as
from ragassay.attacks.poisonedrag import build_black_box


def _as(q: str, correct: str, target: str, sep: str) -> str:
    return build_as(q, correct, target, separator=sep)


def _black_box(**inputs: str) -> str:
    return build_black_box(inputs["q"], inputs["I"])


FUNCTIONS: dict[str, Callable[..., str]] = {"build_as": _as, "build_black_box": _black_box}


@pytest.mark.parametrize(("category", "count"), [("corruptrag", 1), ("poisonedrag", 2)])
def test_golden_texts(golden: dict[str, list[dict[str, Any]]], category: str, count: int) -> None:
    entries = golden[category]
    assert len(entries) >= count
    for entry in entries:
        found = FUNCTIONS[entry["function"]](**entry["inputs"])
        assert found == entry["expected"], entry["id"]
