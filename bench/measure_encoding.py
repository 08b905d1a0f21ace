"""Peak memory of encoding a corpus that streams from disk, at two sizes."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from side_by_side import Row

DIMENSION = 384
MEMORY = Row(
    name="encoding_memory",
    what="peak memory while 1,000,000 short passages are encoded by a fast toy encoder",
    against="nothing", kind="at most", target=1.0, unit="GiB",
)  # fmt: skip
FLAT = Row(
    name="encoding_flat", what="peak memory at 1,000,000 passages less that at 250,000",
    against="250,000 passages", kind="at most", target=64, unit="MiB",
)  # fmt: skip
ROWS = (MEMORY, FLAT)


class ToyEncoder:
    """A vector of a text's bytes: fast, and every text has its own."""

    identity = "bench-toy"

    def encode(self, texts: Sequence[str], *, max_tokens: int | None = None) -> np.ndarray:
        vectors = np.zeros((len(texts), DIMENSION), np.float32)
        for row, text in enumerate(texts):
            content = np.frombuffer(text.encode("utf-8")[:DIMENSION], np.uint8)
            vectors[row, : len(content)] = content
        return vectors


def measure(*, quick: bool) -> Iterator[Row]:
    """Encode two corpora, each in a process of its own; nothing stays on disk."""
    small, large = (5_000, 20_000) if quick else (250_000, 1_000_000)
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in (small, large):
            path = Path(folder) / f"{count}.jsonl"
            _write(path, count)
            done = subprocess.run(
                [sys.executable, __file__, str(path), str(Path(folder) / f"cache-{count}")],
                check=True, capture_output=True, text=True,
            )  # fmt: skip
            runs[count] = json.loads(done.stdout)
            path.unlink()
            shutil.rmtree(Path(folder) / f"cache-{count}")
    figures = {f"{count:,} passages": run for count, run in runs.items()}
    yield replace(MEMORY, value=runs[large]["peak_gib"], figures=figures)
    peaks = {count: run["peak_bytes"] / 2**20 for count, run in runs.items()}
    yield replace(
        FLAT, value=max(0.0, peaks[large] - peaks[small]), figures=figures,
        note=" and ".join(f"{peak:,.0f} MiB at {count:,} passages" for count, peak in
                          peaks.items()) + ", resident, at their peak",
    )  # fmt: skip


def _write(path: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            words = " ".join(f"w{word}" for word in rng.integers(0, 50_000, size=12))
            file.write(json.dumps({"_id": f"d{number}", "title": "", "text": words}) + "\n")


def _worker(corpus: str, cache: str) -> None:
    from ragassay.data.assembly import corpus_fingerprint
    from ragassay.data.corpus_file import CorpusFile
    from ragassay.retrieval.dense import DenseRetriever

    start = time.perf_counter()
    passages = CorpusFile(Path(corpus), Path(cache))
    opened = time.perf_counter() - start
    retriever = DenseRetriever(encoder=f"{__file__}:ToyEncoder")
    index = retriever.index(
        passages, fingerprint=corpus_fingerprint(passages), cache_dir=Path(cache)
    )
    index.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    print(json.dumps({
        "peak_gib": round(peak / 2**30, 4),
        "peak_bytes": peak,
        "open_seconds": round(opened, 2),
        "seconds": round(time.perf_counter() - start, 2),
        "corpus_bytes": os.stat(corpus).st_size,
    }))  # fmt: skip


if __name__ == "__main__":
    _worker(*sys.argv[1:])
