"""How fast gradient attacks score candidates on MiniLM, and how much memory they take.

For HotFlip (a question of some tokens before a text) and GASLITE (a trigger of 20 tokens
behind it), the same candidates are scored four ways: batched and trimmed to their length, as
the attacks do; one at a time with the model as it is, as released code does ("single"); one at
a time by the attacks' own path ("alone"); and batched, padded to the model's maximum. Each way
runs in a process of its own, so that the peak of resident memory is its own ("added" is what
scoring added to the loaded model). The rounds of the ways alternate, and their medians are
compared: on a machine that is busy with other work, only the ratios mean something, and those
of processor time ("cpu") are the steadier ones; a threshold is met by either. All ways must give
equal similarities and choose the same candidate, or the run fails.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

QUESTION = "which lighthouse guides the ferries that leave for Ostrand"
TEXT = (
    "The ferries that leave for Ostrand every morning are guided by the lighthouse of Marlow, "
    "which the harbor company built in 1871 and still keeps."
)
WAYS = ("batched", "single", "alone", "padded")
LEAST = {("hotflip", "single"): 2.0, ("gaslite", "padded"): 8.0}
TOLERANCE = 2e-6  # float32: other shapes round the last bits differently


def candidates_of(attack: str, access: Any, count: int) -> list[tuple[int, ...]]:
    """What one step of an attack would score: one token changed, by first-order gain."""
    from ragassay.attacks.gaslite import readable_tokens
    from ragassay.attacks.search_tokens import Slot, TokenSearch, replaced, top_candidates

    queries = access.embed([QUESTION], kind="query")
    if attack == "hotflip":
        slot, allowed = Slot(access, after=TEXT), access.usable
        start = slot.start_of(QUESTION)
    else:
        slot, allowed = Slot(access, before=TEXT), readable_tokens(access)
        start = slot.start_of(" ".join(["!"] * 20))
    search = TokenSearch(access, slot, queries)
    [slopes] = search.slopes([start], search.direction(slice(None)))
    position = len(start) // 2
    tokens = top_candidates(access.embeddings, slopes[position], 2 * count, allowed=allowed)
    kept = search.surviving(replaced(start, position, token) for token in tokens)
    return [slot.sequence(ids) for ids in kept[:count]]


def way_of(name: str, access: Any, limit: int) -> Callable[[Any], np.ndarray]:
    """A function that scores sequences in one of the ways."""
    import torch

    if name == "batched":
        return lambda sequences: access.embed_ids(sequences)
    if name == "alone":
        return lambda sequences: np.concatenate([access.embed_ids([ids]) for ids in sequences])
    if name == "single":

        def one_at_a_time(sequences: Any) -> np.ndarray:
            rows = []
            with torch.inference_mode():
                for ids in sequences:
                    whole = (*access.opening, *ids, *access.closing)
                    rows.append(access._run([whole]).float().numpy()[0])
            return np.array(rows)

        return one_at_a_time

    def padded(sequences: Any) -> np.ndarray:
        found = []
        for start in range(0, len(sequences), access._batch_size):
            some = sequences[start : start + access._batch_size]
            ids = torch.zeros((len(some), limit), dtype=torch.long)  # the padding token is 0
            mask = torch.zeros_like(ids)
            for row, tokens in enumerate(some):
                whole = [*access.opening, *tokens, *access.closing]
                ids[row, : len(whole)] = torch.tensor(whole)
                mask[row, : len(whole)] = 1
            features = {
                "input_ids": ids,
                "attention_mask": mask,
                "token_type_ids": torch.zeros_like(ids),
            }
            with torch.inference_mode():
                found.append(access._model(features)["sentence_embedding"].float().numpy())
        return np.concatenate(found)

    return padded


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def worker(attack: str, way: str, options: argparse.Namespace) -> None:
    """Load, then answer each line on standard input with one timed round."""
    import torch

    from ragassay.retrieval.encoders import EmbeddedMiniLM
    from ragassay.retrieval.whitebox import EncoderAccess

    torch.set_num_threads(options.threads)
    access = EncoderAccess(EmbeddedMiniLM(), similarity="cosine", batch_size=options.batch)
    sequences = candidates_of(attack, access, options.candidates)
    run = way_of(way, access, options.padded_to)
    run(sequences[:2])
    query = access.embed([QUESTION], kind="query")[0]
    loaded = peak_mib()
    size = len(sequences) if way != "padded" else min(len(sequences), options.padded_candidates)
    print(json.dumps({"tokens": len(sequences[0]) + 2, "size": size}), flush=True)
    for _ in sys.stdin:
        start, cpu = time.perf_counter(), time.process_time()
        vectors = run(sequences[:size])
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        print(
            json.dumps(
                {
                    "per_second": size / seconds,
                    "per_cpu_second": size / cpu,
                    "scores": [float(v) for v in vectors @ query],
                    "peak": peak_mib(),
                    "added": peak_mib() - loaded,
                }
            ),
            flush=True,
        )


def measure(attack: str, options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Start a process for each way and let them take turns."""
    passed = [f"--{key.replace('_', '-')}={value}" for key, value in vars(options).items()
              if key not in ("worker", "attacks")]  # fmt: skip
    processes = {}
    for way in WAYS:
        processes[way] = subprocess.Popen(
            [sys.executable, __file__, *passed, "--worker", attack, way],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"},  # waiting is no processor time
        )
        line = processes[way].stdout.readline()  # one loads at a time
        if not line:
            raise SystemExit(f"{attack}, {way}: the worker failed")
        print(f"{attack}, {way}: {line.strip()}", flush=True)
    rounds: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way, process in processes.items():
            process.stdin.write("go\n")
            process.stdin.flush()
            rounds[way].append(json.loads(process.stdout.readline()))
    for process in processes.values():
        process.stdin.close()
        process.wait()
    return rounds


def check_equal(attack: str, rounds: dict[str, list[dict[str, Any]]]) -> float:
    """The largest difference between the ways; fails where they do not agree."""
    reference = np.array(rounds["batched"][0]["scores"])
    worst = 0.0
    for way in WAYS:
        for found in rounds[way]:
            scores = np.array(found["scores"])
            same = reference[: len(scores)]
            worst = max(worst, float(np.abs(scores - same).max()))
            if worst > TOLERANCE or np.argmax(scores) != np.argmax(same):
                raise SystemExit(f"{attack}: {way} differs from batched by {worst:g}")
    return worst


def report(attack: str, rounds: dict[str, list[dict[str, Any]]]) -> bool:
    """Print the figures of one attack; tell whether all thresholds are met."""
    worst = check_equal(attack, rounds)
    speed = {way: statistics.median(found["per_second"] for found in rounds[way]) for way in WAYS}
    met = True
    print(f"{attack}: similarities equal within {worst:.1e}, the same candidate chosen")
    for way in WAYS:
        last = rounds[way][-1]
        ratio, cpu_ratio = (
            statistics.median(
                fast[key] / slow[key]
                for fast, slow in zip(rounds["batched"], rounds[way], strict=True)
            )
            for key in ("per_second", "per_cpu_second")
        )
        least = LEAST.get((attack, way), 0.0)
        met &= max(ratio, cpu_ratio) >= least
        wanted = f" (wanted {least:g})" if least else ""
        print(
            f"  {way:8s} {speed[way]:8.1f} candidates/s, batched is {ratio:5.2f} times as fast, "
            f"cpu {cpu_ratio:5.2f}{wanted}; peak {last['peak']:.0f} MiB, added "
            f"{last['added']:.0f} MiB"
        )
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attacks", nargs="+", default=["hotflip", "gaslite"])
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--padded-candidates", type=int, default=32)
    parser.add_argument("--padded-to", type=int, default=512, help="the model's maximum")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--worker", nargs=2, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker, options)
        return
    met = [report(attack, measure(attack, options)) for attack in options.attacks]
    if not all(met):
        raise SystemExit("a threshold is not met")


if __name__ == "__main__":
    main()
