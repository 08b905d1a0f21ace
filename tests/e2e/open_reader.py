"""A victim with open internals, loaded by the tests as ``open_reader.py:OpenReader``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragassay.errors import BackendError
from ragassay.testing.toys import ToyLM
from ragassay.types import Generation, Request


class LoggedLM(ToyLM):
    """Appends a line for every text whose tokens are scored to ``SCORED_LOG``."""

    def logprob(self, prefix_ids: Any, continuation_ids: Any) -> Any:
        if log := os.environ.get("SCORED_LOG"):
            with Path(log).open("a", encoding="utf-8") as file:
                file.write(self.decode((*prefix_ids, *continuation_ids)) + "\n")
        return super().logprob(prefix_ids, continuation_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenReader:
    """Answers with the toy language model, which can be opened."""

    seed: int = 0
    gathers: bool = False

    @property
    def identity(self) -> str:
        return f"open-reader:{self.seed}"

    def generate(self, requests: Sequence[Request]) -> list[Generation | BackendError]:
        model = self.white_box()
        return [Generation(text=model.generate(r.messages, 3), finish="stop") for r in requests]

    def white_box(self) -> ToyLM:
        return LoggedLM(seed=self.seed)
