"""A victim and an encoder whose process dies once, half-way, when a file tells it to."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragassay.retrieval.hashing import HashingEncoder
from ragassay.types import Generation, Request

CALLS = {"reader": 0, "encoder": 0}


def perhaps_die(who: str, order: str) -> None:
    """Die in the second call of this process, unless another one has died already."""
    CALLS[who] += 1
    if order and CALLS[who] == 2:
        try:
            Path(order).unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class MortalReader:
    """Answer with the name that most lines of the prompt give as the builder."""

    order: str = field(default="", metadata={"identity": False})

    @property
    def identity(self) -> str:
        return "mortal-reader"

    @property
    def gathers(self) -> bool:
        return True

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        perhaps_die("reader", self.order)
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Generation:
        prompt = "\n".join(message.content for message in request.messages)
        names = re.findall(r"(?:built by|that) ((?:mason|rival)\d+)", prompt)
        best = max(names, key=names.count) if names else "I don't know"
        return Generation(text=best, finish="stop", input_tokens=len(prompt.split()),
                          output_tokens=1)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MortalEncoder:
    """Hashing."""

    order: str = field(default="", metadata={"identity": False})

    @property
    def identity(self) -> str:
        return "mortal-encoder"

    def encode(self, texts: Sequence[str], *, max_tokens: int | None = None) -> NDArray[np.float32]:
        perhaps_die("encoder", self.order)
        return HashingEncoder(dimensions=4096).encode(texts, max_tokens=max_tokens)
