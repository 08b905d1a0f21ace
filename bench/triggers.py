"""What triggers gain at retrieval: attacks on MiniLM against the same texts without a trigger.

Corpus: nq-gold and wiki-filler of the shared data (8,719 passages). Questions and texts: the
first questions of PoisonArena's arena-nq.jsonl, of each the texts for its first wrong answer.
Every attack carries those texts; "plain" injects them as they are. Poison is crafted by the
same code as ``ragassay attack``, a question at a time, into files in the work folder: a run
that was stopped goes on where it was, also in the middle of indexing.

Three contexts are searched for each question (no poison of other questions is in the corpus):
``alone``, the attack's passages and the clean corpus; ``plain``, the same with all plain texts of
the question beside them; ``all``, with as many passages of every other attack beside them.
Entry is the share of questions with an own passage among the top k; F1 (PoisonArena, appendix
B.4.1) is 2h/(n+k) with h own passages of n among the top k. Intervals: Wilson for shares,
bootstrap over questions for means; all at 95%.

The searches are much shorter than those of the papers (printed with the result), and the
gradient attacks get about the same number of scored candidates a passage.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
CORPORA = ("nq-gold", "wiki-filler")
PLAIN, ALL = "plain", "all"
ATTACKS: dict[str, tuple[str, dict[str, Any]]] = {
    PLAIN: ("poisonedrag", {"order": "none"}),
    "poisonedrag": ("poisonedrag", {}),
    "poisonedrag_whitebox": ("poisonedrag_whitebox", {"iterations": 15, "candidates": 40}),
    "corpuspoison": ("corpuspoison", {"tokens": 12, "iterations": 15, "candidates": 40}),
    "gaslite": (
        "gaslite",
        {"tokens": 12, "iterations": 6, "gradient_copies": 4, "flips": 6, "candidates": 15,
         "top": 64, "init": "filler"},
    ),
    "advdecoding": ("advdecoding", {"steps": 4, "beams": 2, "top_k": 4}),
}  # fmt: skip


def prepare(shared: Path, folder: Path, questions: int) -> None:
    """Write corpus, questions and targets as one data set in the BEIR layout."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "corpus.jsonl").exists():
        lines: list[str] = []
        for name in CORPORA:
            with gzip.open(shared / "data" / name / "corpus.jsonl.gz", "rt", "utf-8") as file:
                lines += [line.rstrip("\n") for line in file]
        write(folder / "corpus.jsonl", lines)
    source = shared / "data" / "poisonarena" / "arena-nq.jsonl"
    rows = [json.loads(line) for line in source.read_text("utf-8").splitlines()[:questions]]
    asked = [
        {"_id": row["query_id"], "text": row["query"],
         "metadata": {"correct_answers": row["correct_answers"]}}
        for row in rows
    ]  # fmt: skip
    write(folder / "queries.jsonl", [json.dumps(row) for row in asked])
    write(folder / "targets.jsonl", [json.dumps(row) for row in rows])


def write(path: Path, lines: Sequence[str]) -> None:
    half = path.with_suffix(".part")
    half.write_text("\n".join(lines) + "\n", "utf-8")
    half.replace(path)


def experiment_of(name: str, folder: Path, passages: int) -> Any:
    """The experiment that ``ragassay attack`` would read from the same options."""
    from ragassay.experiments.crafting import attack_experiment

    plugin, options = ATTACKS[name]
    settings = [
        "dataset.group_size=1",
        f"budgets=[{passages}]",
        f"generator.plugin={'smollm2' if name == 'advdecoding' else 'scripted'}",
        *(f"attack.{key}={value}" for key, value in options.items()),
    ]
    experiment, _ = attack_experiment(folder, plugin, settings)
    return experiment


def monitor(name: str) -> Any:
    from ragassay.experiments.monitor import Monitor

    def progress(done: int, total: int) -> None:
        print(f"{name}: {done} of {total}", file=sys.stderr, flush=True)

    return Monitor(progress=progress)


def craft(options: argparse.Namespace, folder: Path) -> dict[str, dict[str, list[Any]]]:
    """Craft what is missing; return the passages and details by attack and question."""
    from ragassay.experiments.crafting import craft_file

    found: dict[str, dict[str, list[Any]]] = {}
    for name in (PLAIN, *options.attacks):
        count = options.texts if name in (PLAIN, "poisonedrag") else options.passages
        out = options.work / f"{name}-{options.questions}x{count}.jsonl"
        made = craft_file(experiment_of(name, folder, count), out, monitor(name))
        sets = [line.poison for line in made.lines]
        found[name] = {each.query_id: list(each.passages) for each in sets}
        details = [note for each in sets for note in each.details]
        spent = sum(each.cost.encoder_forwards for each in sets)
        seconds = sum(each.cost.seconds for each in sets)
        count = sum(len(each.passages) for each in sets)
        print(
            f"{name}: {count} passages, {spent / count:.0f} encoder passes and "
            f"{seconds / count:.1f} s each; {ATTACKS[name][1]}"
        )
        tell_search([note for note in details if "evaluations" in note])
    return found


def tell_search(details: Sequence[Mapping[str, Any]]) -> None:
    """From the records of a gradient search: how far it came, and whether it was at its end."""
    if not details:
        return
    losses = sum(note["retokenization_losses"] for note in details)
    tried = losses + sum(note["evaluations"] for note in details)
    start, end = (np.mean([note[key] for note in details]) for key in ("start_score", "score"))
    rising = sum(note["trace"][-1:] != [] and note["trace"][-1][0] == note["iterations"]
                 for note in details)  # fmt: skip
    print(
        f"  similarity {start:.3f} at the start, {end:.3f} at the end; the last iteration still "
        f"improved {rising} of {len(details)}; {losses / tried:.0%} of the candidates did not "
        "survive tokenization"
    )


def measure(
    options: argparse.Namespace, folder: Path, found: Mapping[str, Mapping[str, list[Any]]]
) -> list[dict[str, Any]]:
    """Search every context; one row an attack, number of passages and context."""
    from dataclasses import replace

    from ragassay.experiments.clients import cache_folder, open_index
    from ragassay.experiments.setup import set_up

    setup = set_up(experiment_of(PLAIN, folder, options.texts))
    queries = setup.attacked
    sets = {
        (name, q.id): [replace(p, id=f"{name}-{i}") for i, p in enumerate(found[name][q.id])]
        for name in found
        for q in queries
    }
    few = min(options.passages, options.texts)
    rows = []
    with ExitStack() as stack:
        index = stack.enter_context(open_index(setup, setup.arms[0], cache_folder(), monitor(ALL)))
        for name in found:
            most = max(len(sets[name, q.id]) for q in queries)
            places = dict.fromkeys(
                (n, beside)
                for n in (few, most)
                for beside in ("alone", PLAIN, ALL)
                if (name, beside) != (PLAIN, PLAIN) and (n == few or beside != ALL)
            )
            for n, beside in places:
                rows.append(row_of(index, queries, sets, name, n, beside, few, options.k))
    return rows


def row_of(
    index: Any, queries: Sequence[Any], sets: Mapping[tuple[str, str], list[Any]],
    name: str, n: int, beside: str, few: int, k: int,
) -> dict[str, Any]:  # fmt: skip
    """Entry, F1, first place and similarity of one attack's first n passages."""
    from ragassay.canon import rng_for
    from ragassay.stats.intervals import cluster_bootstrap, wilson

    hits, first, scores = [], [], []
    for query in queries:
        own = sets[name, query.id][:n]
        others = {PLAIN: [PLAIN], ALL: sorted({each for each, _ in sets} - {name})}.get(beside, [])
        size = None if beside == PLAIN else few
        passages = [*own, *(p for other in others for p in sets[other, query.id][:size])]
        found = index.poisoned([query], passages, k)[0]
        ids = {passage.id for passage in own}
        hits.append(sum(hit.passage.id in ids for hit in found))
        first.append(found[0].passage.id in ids)
        rows = index.embed([query.text, *(passage.text for passage in own)])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        scores.append(float((rows[1:] @ rows[0]).mean()))
    f1 = np.array([2 * h / (len(own) + k) for h in hits])
    similarity = np.array(scores)
    bounds = cluster_bootstrap(
        np.column_stack([f1, similarity]),
        [q.id for q in queries],
        rng=rng_for(1, "triggers", name, n, beside),
    )
    entered = sum(h > 0 for h in hits)
    return {
        "attack": name, "n": n, "k": k, "beside": beside, "questions": len(queries),
        "entered": entered, "entry": wilson(entered, len(queries)),
        "first": sum(first), "first_interval": wilson(sum(first), len(queries)),
        "f1": float(f1.mean()), "f1_interval": bounds[0], "f1_most": 2 * min(n, k) / (n + k),
        "similarity": float(similarity.mean()), "similarity_interval": bounds[1],
        "by_question": [float(value) for value in similarity],
    }  # fmt: skip


def span(interval: Any) -> str:
    return "" if interval is None else f" [{interval.low:.2f}, {interval.high:.2f}]"


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    print("| attack | n/k | beside | entry | first place | F1 (most) | similarity |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for r in rows:
        total = r["questions"]
        print(
            f"| {r['attack']} | {r['n']}/{r['k']} | {r['beside']} "
            f"| {r['entered']}/{total}{span(r['entry'])} "
            f"| {r['first']}/{total}{span(r['first_interval'])} "
            f"| {r['f1']:.3f}{span(r['f1_interval'])} ({r['f1_most']:.3f}) "
            f"| {r['similarity']:.3f}{span(r['similarity_interval'])} |"
        )


def order(rows: Sequence[Mapping[str, Any]], few: int) -> None:
    """Paired comparison of the similarities that the attacks reached."""
    from ragassay.canon import rng_for
    from ragassay.stats.intervals import cluster_bootstrap

    by = {r["attack"]: r["by_question"] for r in rows if (r["n"], r["beside"]) == (few, "alone")}
    names = [n for n in ("gaslite", "poisonedrag_whitebox", "poisonedrag", PLAIN) if n in by]
    for high, low in pairwise(names):
        gaps = np.array(by[high]) - np.array(by[low])
        [bound] = cluster_bootstrap(gaps, list(range(len(gaps))), rng=rng_for(1, high, low))
        print(
            f"similarity of {high} less that of {low}: {gaps.mean():+.3f}{span(bound)}, "
            f"higher on {(gaps > 0).sum()} of {len(gaps)} questions"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(os.environ.get("RAGASSAY_SHARED", ROOT.parent / "shared"))
    parser.add_argument("--shared", type=Path, default=default, help="folder of the shared data")
    parser.add_argument("--work", type=Path, default=Path("triggers"), help="poison files go here")
    names = [name for name in ATTACKS if name != PLAIN]
    usual = [name for name in names if name != "advdecoding"]  # it takes a language model
    parser.add_argument("--attacks", nargs="*", choices=names, default=usual)
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--texts", type=int, default=5, help="passages of plain and poisonedrag")
    parser.add_argument("--passages", type=int, default=1, help="passages of attacks that search")
    parser.add_argument("--k", type=int, default=5)
    options = parser.parse_args()
    if not (options.shared / "data" / "poisonarena").is_dir():
        raise SystemExit(f"no data in {options.shared / 'data'}; name its folder with --shared")
    folder = options.work / "data"
    prepare(options.shared, folder, options.questions)
    found = craft(options, folder)
    rows = measure(options, folder, found)
    show(rows)
    order(rows, min(options.passages, options.texts))


if __name__ == "__main__":
    main()
