"""A RAG system whose store is a folder, loaded by tests as ``disk_system.py:DiskSystem``.

It retrieves by shared words and answers with the name that most of the passages give as the
builder. Slow writes and questions make kills land anywhere.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ragassay.plugins import Document, SystemAnswer, UsedPassage
from ragassay.plugins.systems import MARK


@dataclass(frozen=True, kw_only=True)
class DiskSystem:
    """``guard`` passes over passages that say "Sources"; ``store`` is the folder."""

    store: str
    guard: bool = False
    k: int = 4

    local = True

    def ingest(self, passages: Sequence[Document]) -> None:
        for each in passages:
            time.sleep(float(os.environ.get("DISK_WRITE_DELAY", "0")))
            body = {"text": each.text, "marked": bool(each.metadata.get(MARK))}
            path = Path(self.store) / f"{each.id}.json"
            path.with_suffix(".part").write_text(json.dumps(body), encoding="utf-8")
            path.with_suffix(".part").replace(path)

    def ask(self, question: str) -> SystemAnswer:
        time.sleep(float(os.environ.get("DISK_ASK_DELAY", "0")))
        words = set(re.findall(r"\w+", question.lower()))
        documents = [
            (name, body["text"]) for name, body in self._all()
            if not (self.guard and "Sources" in body["text"])
        ]  # fmt: skip
        scored = [(len(words & set(re.findall(r"\w+", text.lower()))), name, text)
                  for name, text in documents]  # fmt: skip
        best = sorted(scored, key=lambda each: (-each[0], each[1]))[: self.k]
        said = re.findall(r"(?:built by|that) ((?:mason|rival)\d+)", " ".join(b[2] for b in best))
        used = tuple(UsedPassage(id=n, text=t, score=float(s)) for s, n, t in best)
        return SystemAnswer(text=max(said, key=said.count) if said else "unknown", used=used)

    def remove(self, ids: Sequence[str]) -> None:
        for each in ids:
            time.sleep(float(os.environ.get("DISK_WRITE_DELAY", "0")))
            (Path(self.store) / f"{each}.json").unlink(missing_ok=True)

    def reset(self) -> None:
        self.remove(sorted(self.marked()))

    def marked(self) -> set[str]:
        return {name for name, body in self._all() if body["marked"]}

    def contents(self) -> list[tuple[str, str]]:
        return [(path.name, path.read_bytes().decode("utf-8"))
                for path in sorted(Path(self.store).glob("*.json"))]  # fmt: skip

    def _all(self) -> list[tuple[str, dict]]:
        return [(path.stem, json.loads(path.read_text(encoding="utf-8")))
                for path in sorted(Path(self.store).glob("*.json"))]  # fmt: skip
