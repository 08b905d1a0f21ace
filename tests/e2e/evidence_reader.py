"""A victim whose answers follow known rules about which passages stand together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ragassay.errors import BackendError
from ragassay.types import Generation, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceReader:
    """Answer by the marks in the passages of the town that is asked about.

    Each poison passage carries a mark ``[kind:number]``. ``alone`` convinces by itself;
    ``pair`` needs both its passages; ``echo`` is already believed clean; ``loud`` convinces
    only while no clean passage stands beside it; ``join`` needs the supporting passage too;
    ``never`` does not convince. Otherwise the truth is answered where a supporting passage is
    there, else nothing is known.
    """

    gathers: bool = False
    name: str = "evidence-reader"

    @property
    def identity(self) -> str:
        return self.name

    def generate(self, requests: Sequence[Request]) -> list[Generation | BackendError]:
        return [self._one(request.messages[-1].content) for request in requests]

    def _one(self, prompt: str) -> Generation:
        [town] = re.findall(r"Who built the harbor of (town\d+)\?", prompt)[-1:]
        number = town.removeprefix("town")
        marks = re.findall(rf"\[(\w+):(\d)\] of {town}\b", prompt)
        kinds = {kind for kind, _ in marks}
        support = f"mason{number}" in prompt
        clean = "market" in prompt or support
        if (
            "alone" in kinds
            or len({n for kind, n in marks if kind == "pair"}) >= 2
            or ("loud" in kinds and not clean)
            or ("join" in kinds and support)
            or f"{town} echoes" in prompt
        ):
            return Generation(text=f"rival{number}", finish="stop")
        return Generation(text=f"mason{number}" if support else "I don't know", finish="stop")
