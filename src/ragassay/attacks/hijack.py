"""Instruction injection in the style of HijackRAG: set the rest aside, then output the target.

Source: HijackRAG (black-box setting: retrieval text R, hijack text H, instruction I), and the
injection string that the released code of RobustRAG and of TrustRAG share.

Deviations: the original wording was not available, so H is our own (``hijack_prompt`` loads
another from a file); I is the shared string by default (``instruction_prompt``), and a
differently worded one comes with the toolkit, because TrustRAG's own prompt quotes the shared
string as something to leave out. R is the question; R optimized on gradients is not offered
here. The passage is retrieved like any other, where the released code puts it into the
context. One passage holds the instruction once, as in TrustRAG (``repeat = 5``: RobustRAG).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import ClassVar

import numpy as np

from ragassay import prompts
from ragassay.attacks.writing import check_slots, holds, make_passages, wordings
from ragassay.errors import ConfigError
from ragassay.plugins import AttackerView
from ragassay.types import Json, Knowledge, PoisonSet, Target

_SLOTS = {"question", "answer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hijack:
    """Instruction injection: question, a text that sets the rest aside, an order to answer so.

    ``n`` passages differ in their wording: ``hijack_prompt`` and ``instruction_prompt`` are
    templates (names or files) in which every ``@@ user`` turn is one alternative, and passage i
    takes the i-th of each, in turn. ``repeat`` is how often a passage holds the instruction.
    ``instruction_prompt = "hijack_reworded"`` avoids the string that defenses know.
    """

    version: ClassVar[str] = "1"
    knowledge: ClassVar[Knowledge] = Knowledge(query="exact")

    n: int = 5
    repeat: int = 1
    separator: str = " "
    hijack_prompt: str = "hijack_disregard"
    instruction_prompt: str = "hijack_output"

    def __post_init__(self) -> None:
        for name in ("n", "repeat"):
            if getattr(self, name) < 1:
                raise ConfigError(f"need {name} >= 1, got {getattr(self, name)}")
        check_slots(self.hijack_prompt, needed=set(), optional=_SLOTS)
        check_slots(self.instruction_prompt, needed={"answer"}, optional=_SLOTS)
        values = dict.fromkeys(_SLOTS, "")
        distinct = lcm(
            *(
                len(wordings(prompt, **values))
                for prompt in (self.hijack_prompt, self.instruction_prompt)
            )
        )
        if self.n > distinct:
            raise ConfigError(
                f"need n <= {distinct}, the number of different wordings in "
                f"{self.hijack_prompt!r} and {self.instruction_prompt!r}, got {self.n}"
            )

    @property
    def max_passages(self) -> int:
        """Largest budget that this attack can fill."""
        return self.n

    def craft(self, target: Target, view: AttackerView, rng: np.random.Generator) -> PoisonSet:
        """Write ``n`` passages.

        Raises
        ------
        ConfigError
            The query has no wrong answer.
        """
        if not target.wanted:
            raise ConfigError(f"hijack needs a wrong answer for query {target.query_id!r}")
        wanted = target.wanted[0]
        values = {"question": view.question, "answer": wanted}
        hijacks = wordings(self.hijack_prompt, **values)
        orders = wordings(self.instruction_prompt, **values)
        texts, details = [], []
        for number in range(self.n):
            payload = self.separator.join(
                [
                    hijacks[number % len(hijacks)],
                    *[orders[number % len(orders)]] * self.repeat,
                ]
            )
            text = f"{view.question}{self.separator}{payload}"
            note: dict[str, Json] = {
                "words": len(text.split()),
                "repeat": self.repeat,
                "wording": self._wording(number, len(hijacks), len(orders)),
                "payload": payload,
                "payload_intact": holds(payload, wanted),
            }
            texts.append(text)
            details.append(note)
        return PoisonSet(
            attack="hijack",
            query_id=target.query_id,
            passages=make_passages("hijack", target.query_id, texts),
            knowledge=self.knowledge,
            wanted=target.wanted,
            details=tuple(details),
        )

    def _wording(self, number: int, hijacks: int, orders: int) -> str:
        """Name the templates by digest and turn: wordings change, and results with them."""
        hijack, order = prompts.load(self.hijack_prompt), prompts.load(self.instruction_prompt)
        return f"{hijack.digest}/{number % hijacks}+{order.digest}/{number % orders}"
