"""A victim that follows known rules, loaded by the tests as ``rule_reader.py:RuleReader``."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ragassay.errors import BackendError
from ragassay.types import Generation, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleReader:
    """Answer with the name that most lines of the prompt give as the builder.

    Ties go to the first line. ``RULE_READER_LOG`` names a file that collects every prompt,
    ``RULE_READER_DELAY`` slows each call down, ``RULE_READER_DIES_AFTER`` fails every call
    once that many prompts have been logged.
    """

    gathers: bool = False

    @property
    def identity(self) -> str:
        return "rule-reader"

    def generate(self, requests: Sequence[Request]) -> list[Generation | BackendError]:
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Generation | BackendError:
        time.sleep(float(os.environ.get("RULE_READER_DELAY", "0")))
        prompt = "\n".join(message.content for message in request.messages)
        log = os.environ.get("RULE_READER_LOG")
        if log:
            dies = int(os.environ.get("RULE_READER_DIES_AFTER", "-1"))
            seen = Path(log).read_text(encoding="utf-8").count("\x00") if Path(log).exists() else 0
            if 0 <= dies <= seen:
                return BackendError("the server has gone away")
            with Path(log).open("a", encoding="utf-8") as file:
                file.write(prompt + "\x00")
        names = re.findall(r"(?:built by|that) ((?:mason|rival)\d+)", prompt)
        best = max(names, key=names.count) if names else "I don't know"
        return Generation(text=best, finish="stop", input_tokens=len(prompt.split()),
                          output_tokens=1)  # fmt: skip
