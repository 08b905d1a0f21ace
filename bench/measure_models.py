"""Rows that load the embedded models: candidates of gradient attacks, tokens per second."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from side_by_side import Row

HOTFLIP = Row(
    name="hotflip", what="HotFlip candidate evaluations on MiniLM, float32",
    against="one candidate at a time", kind="at least", target=2,
)  # fmt: skip
GASLITE = Row(
    name="gaslite", what="GASLITE candidate evaluations on MiniLM, float32",
    against="batches padded to the model's maximum", kind="at least", target=8,
)  # fmt: skip
TOKENS = Row(
    name="tokens", what="tokens per second of a real run with the embedded generator",
    against="the engine's own loop on the same prompts", kind="at least", target=0.95,
)  # fmt: skip
ROWS = (HOTFLIP, GASLITE, TOKENS)


def measure_attacks(*, quick: bool) -> Iterator[Row]:
    """Both gradient attacks, each way in a process of its own."""
    import attacks

    options = argparse.Namespace(
        candidates=20 if quick else 100, padded_candidates=4 if quick else 32, padded_to=512,
        batch=32, rounds=1 if quick else 5, threads=os.cpu_count() or 1,
    )  # fmt: skip
    for row, attack, slow in ((HOTFLIP, "hotflip", "single"), (GASLITE, "gaslite", "padded")):
        rounds = attacks.measure(attack, options)
        difference = attacks.check_equal(attack, rounds)
        value = float(np.median([
            fast["per_second"] / other["per_second"]
            for fast, other in zip(rounds["batched"], rounds[slow], strict=True)
        ]))  # fmt: skip
        figures = {
            f"{way}_per_second": round(float(np.median([r["per_second"] for r in found])), 2)
            for way, found in rounds.items()
        }
        yield replace(row, value=value, figures={**figures, "largest_difference": difference})


def measure_tokens(*, quick: bool) -> Iterator[Row]:
    """Run an experiment, then give the engine the same requests at once; twice, taking turns."""
    import overhead
    import ragassay
    from ragassay.generation.hf import EmbeddedSmolLM2

    queries = 2 if quick else 24
    asked: list[Any] = []
    answered = [0]
    ratios, speeds = [], []
    iterate = EmbeddedSmolLM2.generate_iter

    def recorded(self: EmbeddedSmolLM2, requests: Any) -> Iterator[Any]:
        asked.extend(requests)
        for place, answer in iterate(self, requests):
            answered[0] += answer.output_tokens
            yield place, answer

    EmbeddedSmolLM2.generate_iter = recorded  # type: ignore[method-assign]
    before = os.environ.get("RAGASSAY_CACHE")
    try:
        for _ in range(1 if quick else 3):
            asked.clear()
            answered[0] = 0
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                os.environ["RAGASSAY_CACHE"] = str(folder / "cache")
                overhead.write_data(folder / "data", queries)
                text = overhead.experiment(queries).split("[[defense]]")[0]
                text = text.replace('plugin = "scripted"\nscript = "extract"', 'plugin = "smollm2"')
                (folder / "real.toml").write_text(text, encoding="utf-8")
                experiment = ragassay.load_experiment(folder / "real.toml")
                engine = EmbeddedSmolLM2()._engine.get(EmbeddedSmolLM2()._load)
                start = time.perf_counter()
                ragassay.run(experiment, out=folder / "run")
                whole = time.perf_counter() - start
            start = time.perf_counter()
            tokens = sum(answer.output_tokens for answer in engine.generate(list(asked)))
            bare = time.perf_counter() - start
            if tokens != answered[0]:
                yield replace(TOKENS, note=f"{answered[0]} tokens in the run, {tokens} bare")
                return
            ratios.append(bare / whole)
            speeds.append({"run_seconds": round(whole, 2), "engine_seconds": round(bare, 2)})
    finally:
        EmbeddedSmolLM2.generate_iter = iterate  # type: ignore[method-assign]
        if before is None:
            os.environ.pop("RAGASSAY_CACHE", None)
        else:
            os.environ["RAGASSAY_CACHE"] = before
    yield replace(
        TOKENS, value=float(np.median(ratios)),
        figures={"requests": len(asked), "output_tokens": answered[0], "rounds": speeds},
        note="the whole run counts: reading, loading the model, retrieval, labels, report",
    )  # fmt: skip
