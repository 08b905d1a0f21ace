"""A grid of control ladders: for each corpus its data, its experiment file and its run folder.

Runs share the caches of models and encoders. Each can be resumed and looked at by itself.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragassay import canon
from ragassay.config.grid import GridCorpus, GridFile
from ragassay.data.assembly import Parts, ReleasedTarget
from ragassay.data.beir import Beir
from ragassay.data.released import read_targets
from ragassay.errors import ConfigError, StoreError
from ragassay.experiments.setup import load_experiment
from ragassay.experiments.targets import By, propose, write_targets
from ragassay.matching import normalize_question

MAX_PROPOSED = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRun:
    """One corpus: its experiment file with what is changed in it, and its run folder."""

    corpus: str
    experiment: Path
    overrides: tuple[str, ...]
    folder: Path


def grid_runs(grid: GridFile, base: Path, out: Path, *, quick: bool = False) -> list[GridRun]:
    """Name the runs of a grid, in the order of the file.

    Parameters
    ----------
    grid : GridFile
        What to run.
    base : Path
        The folder of the grid's file.
    out : Path
        Where everything is written.
    quick : bool
        Only the corpus of ``[quick]`` (the first where it names none), with its settings.
    """
    chosen = list(grid.corpus)
    if quick:
        wanted = grid.quick.corpus or chosen[0].name
        chosen = [each for each in chosen if each.name == wanted]
    return [
        GridRun(
            corpus=each.name,
            experiment=(out / "experiments" / f"{each.name}.toml").resolve(),
            overrides=(*each.set, *(grid.quick.set if quick else ())),
            folder=out / "runs" / (f"{each.name}-quick" if quick else each.name),
        )
        for each in chosen
    ]


def prepare(run: GridRun, grid: GridFile, base: Path, data: Path, out: Path) -> None:
    """Write the experiment file of a run, and the data that it names where they are put together.

    What is there already is kept where it is the same, so that a run can be resumed.

    Raises
    ------
    DataError
        A folder or a file of targets is missing or wrong.
    ConfigError
        No target can be proposed.
    """
    corpus = next(each for each in grid.corpus if each.name == run.corpus)
    tree: dict[str, Any] = {
        "protocol": "ladder",
        "name": f"{grid.name}-{corpus.name}",
        "dataset": _dataset(corpus, out),
        **_absolute(grid.experiment, base),
    }
    run.experiment.parent.mkdir(parents=True, exist_ok=True)
    _write(run.experiment, toml(tree))
    if corpus.folders:
        _write_data(corpus, data, out / "data" / corpus.name, run.experiment)


def toml(tree: Mapping[str, Any]) -> str:
    r"""Write plain values as TOML, tables inline.

    Raises
    ------
    ConfigError
        A value has no form in TOML.

    Examples
    --------
    >>> toml({"a": 1, "b": {"c": ["x", True]}})
    'a = 1\nb = { "c" = ["x", true] }\n'
    """
    return "".join(f"{key} = {_value(value)}\n" for key, value in tree.items())


# --------------------------------------------------------------------------------- internals


def _dataset(corpus: GridCorpus, out: Path) -> dict[str, Any]:
    if corpus.dataset:
        return {"plugin": corpus.dataset}
    folder = (out / "data" / corpus.name).resolve()
    return {"plugin": "beir", "path": str(folder), "name": corpus.name}


def _absolute(experiment: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Plug-ins of files lie beside the grid's file."""

    def of(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: of(each) for key, each in value.items()}
        if isinstance(value, list):
            return [of(each) for each in value]
        if isinstance(value, str) and ".py:" in value and (base / value.split(":")[0]).is_file():
            return str((base / value.split(":")[0]).resolve()) + ":" + value.split(":", 1)[1]
        return value

    return {key: of(value) for key, value in experiment.items()}


def _write_data(corpus: GridCorpus, data: Path, folder: Path, experiment: Path) -> None:
    parts = [Beir(path=str(data / name)).parts() for name in corpus.folders]
    targets = read_targets(data / corpus.targets) if corpus.targets else ()
    folder.mkdir(parents=True, exist_ok=True)
    marks = [f"{number}-" if len(parts) > 1 else "" for number in range(len(parts))]
    passages: dict[tuple[str, str], dict[str, str]] = {}
    for mark, part in zip(marks, parts, strict=True):
        for each in part.corpus:
            row = {"_id": mark + each.id, "title": each.title, "text": each.text}
            passages.setdefault((each.title, each.text), row)
    _write(folder / "corpus.jsonl", _lines(list(passages.values())))
    _write(folder / "queries.jsonl", _lines(_questions(parts, marks, targets)))
    if targets:
        _write(folder / "targets.jsonl", _lines([_target(each) for each in targets]))
    elif corpus.propose and not (folder / "targets.jsonl").exists():
        method: By = corpus.propose
        found = propose(load_experiment(experiment), method, limit=MAX_PROPOSED)
        write_targets(folder / "targets.jsonl", found)


def _questions(
    parts: list[Parts], marks: list[str], targets: tuple[ReleasedTarget, ...]
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    asked = set()
    for target in targets:
        if target.question and target.query_id not in asked:
            asked.add(target.query_id)
            rows.append({
                "_id": target.query_id, "text": target.question,
                "metadata": {"correct_answers": list(target.references)},
            })  # fmt: skip
    others = [
        {"_id": mark + each.id, "text": each.text,
         "metadata": {"correct_answers": list(each.references)}}
        for mark, part in zip(marks, parts, strict=True)
        for each in part.questions if mark + each.id not in asked
    ]  # fmt: skip
    return rows + _mixed(others)


def _mixed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Order questions by digests of their ids, those that are asked again behind all others.

    A ladder climbs with the first so many: they shall come from all folders, and be different.
    """
    order = sorted(rows, key=lambda row: canon.digest(["grid", row["_id"]]))
    seen: Counter[str] = Counter()
    times = []
    for row in order:
        key = normalize_question(row["text"])
        times.append(seen[key])
        seen[key] += 1
    return [order[i] for i in sorted(range(len(order)), key=lambda i: times[i])]


def _target(target: ReleasedTarget) -> dict[str, Any]:
    return {
        "query_id": target.query_id, "query": target.question,
        "correct_answers": list(target.references), "incorrect_answers": list(target.wanted),
        "poison_passages": list(target.texts),
    }  # fmt: skip


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(canon.dumps(row) + "\n" for row in rows)


def _write(path: Path, text: str) -> None:
    """Write a file, or leave it where it holds the same."""
    content = text.encode("utf-8", "surrogatepass")
    try:
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{json.dumps(str(k))} = {_value(v)}" for k, v in value.items())
        return f"{{ {inner} }}"
    raise ConfigError(f"[experiment] holds {value!r:.60}, which cannot be written as TOML")


__all__ = ["GridRun", "grid_runs", "prepare", "toml"]
