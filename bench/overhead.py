"""How much time the toolkit itself takes: everything but the model and the encoder.

With a scripted generator that answers at once and a hashing encoder, 100 queries x 2 budgets
x 7 defenses (and none) run from nothing, then again with everything done. Prints seconds.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

DEFENSES = (
    "prompt_control_cautious", "prompt_control_released", "keywordagg", "trustrag_filter",
    "trustrag_conflict", "trustrag", "score_gap",
)  # fmt: skip


def experiment(queries: int) -> str:
    defenses = "\n".join(f'[[defense]]\nplugin = "{name}"' for name in DEFENSES)
    return f"""
name = "overhead"
budgets = [1, 5]
[dataset]
plugin = "beir"
path = "data"
limit = {queries}
[retriever]
plugin = "dense"
encoder = "hashing"
[generator]
plugin = "scripted"
script = "extract"
{defenses}
"""


def write_data(folder: Path, queries: int, per_query: int = 20) -> None:
    """A synthetic BEIR folder: every question has its own passages and five poison texts."""
    import json

    folder.mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for q in range(queries):
            for i in range(per_query):
                words = " ".join(f"fact{q}x{i}w{w}" for w in range(30))
                text = f"The harbor of town{q} was built in year{q} by builder{q}. {words}."
                row = {"_id": f"d{q}-{i}", "title": f"town{q}", "text": text}
                file.write(json.dumps(row) + "\n")
    with (folder / "queries.jsonl").open("w", encoding="utf-8") as file:
        for q in range(queries):
            meta = {"correct_answers": [f"builder{q}"]}
            row = {"_id": f"q{q}", "text": f"Who built the harbor of town{q}?", "metadata": meta}
            file.write(json.dumps(row) + "\n")
    with (folder / "targets.jsonl").open("w", encoding="utf-8") as file:
        for q in range(queries):
            row = {
                "query_id": f"q{q}",
                "query": f"Who built the harbor of town{q}?",
                "correct_answers": [f"builder{q}"],
                "incorrect_answers": [f"rival{q}"],
                "poison_passages": [
                    f"Records number {i} agree that rival{q} built the harbor of town{q}."
                    for i in range(5)
                ],
            }
            file.write(json.dumps(row) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=100)
    queries = parser.parse_args().queries
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["RAGASSAY_CACHE"] = str(folder / "cache")
        import ragassay

        write_data(folder / "data", queries)
        (folder / "overhead.toml").write_text(experiment(queries), encoding="utf-8")
        loaded = ragassay.load_experiment(folder / "overhead.toml")
        for label in ("first run", "second run"):
            start = time.perf_counter()
            result = ragassay.run(loaded, out=folder / "run")
            seconds = time.perf_counter() - start
            own = seconds - result.model_seconds - result.encoder_seconds
            print(
                f"{label}: {seconds:6.2f} s, {own:6.2f} s outside model and encoder; "
                f"{result.trials_run} trials run, {result.trials_reused} reused, "
                f"{result.model_calls} model calls, {result.encoded_texts} texts encoded"
            )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
