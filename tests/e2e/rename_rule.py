"""A tampering rule whose effect is known, loaded by the tests as ``rename_rule.py:Rename``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragassay.tampering import Edit, Scene, Tampered, apply_edits


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    """Every mason becomes the rival of the same number."""

    name: ClassVar[str] = "rename"
    version: ClassVar[str] = "1"
    shared: ClassVar[bool] = False

    def apply(
        self, passage_text: str, question: str, rng: np.random.Generator, *, scene: Scene
    ) -> Tampered:
        edits = tuple(
            Edit(m.start(), m.end(), m[0], m[0].replace("mason", "rival"), "entity:person")
            for m in re.finditer(r"mason\d+", passage_text)
        )
        text = apply_edits(passage_text, edits)
        return Tampered(text, edits, bool(edits), "" if edits else "no mason")
