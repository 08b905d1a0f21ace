"""The answers of a run folder, for elsewhere: four files, joined records, and scores as CSV.

One attack, one budget and one setting stand in one export, since neither format can tell
several apart. Answers to contexts with passages removed stay behind. Of a trial the question, the
answer, target and references go out, and what an import had kept beside them; contexts and traces
of defenses stay in the run folder. Records are read a batch at a time; the joined records, one
JSON document, are put together in memory.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.canon import to_plain
from ragassay.errors import ConfigError, DataError, StoreError
from ragassay.exchange.folder import PROTOCOL, check_free, move_folder
from ragassay.exchange.joined import KINDS, NO_SETTING, fingerprint
from ragassay.exchange.rows import CONDITIONS, UNDEFENDED
from ragassay.exchange.scores import escaped, score_table
from ragassay.store import RunFolder
from ragassay.store.columns import Coded, Trials
from ragassay.types import Query, ScoreRecord, Target, TrialRecord

FORMATS = ("jsonl", "joined")
VERSION = "aligned-rag-eval-jsonl-v1"
_SCORES = "scores.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which part of a run: one setting, attack and budget; some defenses (none named: all).

    What is None must be the only one there is. ``scores`` names scorers whose labels are
    written beside the answers.
    """

    setting: str | None = None
    attack: str | None = None
    budget: int | None = None
    defenses: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written.

    ``files`` maps ``"clean_undefended"``, ``"clean_defended TrustRAG"``, ``"records"`` or
    ``"scores"`` to a file; ``left_out`` counts answers or records that have no answer to write.
    """

    files: Mapping[str, Path]
    answers: int
    left_out: int
    setting: str
    attack: str
    budget: int


@dataclass(frozen=True, slots=True)
class _Run:
    """The chosen part of a run: rows of its trials by a number for query, budget > 0, defense."""

    chosen: Selection
    queries: Sequence[tuple[Query, Target]]
    trials: Trials
    numbers: NDArray[np.int64]  # sorted, of ``rows``
    rows: NDArray[np.int64]
    about: Mapping[str, Any]
    defenses: tuple[str, ...]

    def found(self, poisoned: bool, defense: str) -> NDArray[np.int64]:
        """The rows of all queries, -1 where there is no trial; shape (queries,)."""
        queries = self.trials.query.numbered(query.id for query, _ in self.queries)
        number = self.trials.defense.number(defense)
        asked = _number(self.trials, queries.astype(np.int64), poisoned, number)
        if not len(self.rows):
            return np.full(len(queries), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.numbers, asked), len(self.rows) - 1)
        hit = (self.numbers[at] == asked) & (queries >= 0) & (number >= 0)
        return np.where(hit, self.rows[at], -1)

    def answered(self, condition: str, defense: str) -> NDArray[np.int64]:
        """The rows of all queries that have an answer, else -1; shape (queries,)."""
        name = UNDEFENDED if condition.endswith("_undefended") else defense
        rows = self.found(condition.startswith("poisoned"), name)
        return np.where((rows >= 0) & self.trials.answers[rows].any(axis=1), rows, -1)


def _number(trials: Trials, query: Any, poisoned: Any, defense: Any) -> Any:
    return (query * 2 + poisoned) * len(trials.defense.values) + defense


def export(
    folder: Path, out: Path, *, format: str = "jsonl", selection: Selection | None = None
) -> Exported:
    """Write the answers of a run in a format of the Aligned RAG Evaluation harness.

    Parameters
    ----------
    folder : Path
        A run folder, imported or run.
    out : Path
        For ``"jsonl"`` a new folder, for ``"joined"`` a new file.
    format : str
        ``"jsonl"``: four files, with several defenses one pair for each; ``"joined"``: one
        JSON file of records with answers by content hash.
    selection : Selection, optional
        Which part of the run.

    Raises
    ------
    ConfigError
        The format is not known, or the selection is ambiguous or empty.
    DataError
        A text has no hash in the joined format (lone surrogates).
    StoreError
        The run cannot be read, or the place is taken.
    """
    if format not in FORMATS:
        raise ConfigError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")
    store, out = RunFolder(Path(folder)), Path(out)
    run = _select(store, selection or Selection())
    if format == "joined" and out.exists():
        raise StoreError(f"{out} is there already; choose another file (--out)")
    if format == "jsonl":
        check_free(out)
    texts, names, answers, left_out = (_four if format == "jsonl" else _joined)(run)
    if run.chosen.scores:
        name = _SCORES if format == "jsonl" else f"{out.stem}.{_SCORES}"
        texts[name] = score_table(_in_order(run), run.trials.scores, run.chosen.scores)
        names["scores"] = name
    files = _write(texts, names, out, folder=format == "jsonl")
    return Exported(
        files=files,
        answers=answers,
        left_out=left_out,
        setting=run.chosen.setting or "",
        attack=run.chosen.attack or "",
        budget=run.chosen.budget or 0,
    )


# --------------------------------------------------------------------------------- selection


def _select(store: RunFolder, chosen: Selection) -> _Run:
    resolved = store.read_json("resolved.json")
    trials = store.columns()
    rows = np.flatnonzero(trials.done & trials.control.equal(""))
    if not len(rows):
        raise ConfigError(f"{store.path} holds no answers")
    setting = _only("setting", chosen.setting, _named(trials.setting, rows))
    rows = rows[trials.setting.equal(setting)[rows]]
    poisoned = rows[trials.budget[rows] > 0]
    attack, budget = "", 0
    if len(poisoned):
        attack = _only("attack", chosen.attack, _named(trials.attack, poisoned))
        poisoned = poisoned[trials.attack.equal(attack)[poisoned]]
        budgets = {str(each) for each in np.unique(trials.budget[poisoned]).tolist()}
        wanted = None if chosen.budget is None else str(chosen.budget)
        budget = int(_only("budget", wanted, budgets))
    here = (trials.budget == 0) | (trials.attack.equal(attack) & (trials.budget == budget))
    rows = rows[here[rows]]
    known = sorted(_named(trials.defense, rows) - {UNDEFENDED})
    for name in chosen.defenses:
        if name not in known:
            raise ConfigError(f"no answers of the defense {name!r}; there are: {_listed(known)}")
    numbers = _number(
        trials, trials.query.codes[rows].astype(np.int64), trials.budget[rows] > 0,
        trials.defense.codes[rows],
    )  # fmt: skip
    numbers, newest = np.unique(numbers[::-1], return_index=True)  # of two, the later one counts
    about = (resolved.get("settings") or {}).get(setting, {})
    dataset = about.get("dataset")
    return _Run(
        chosen=Selection(
            setting=setting, attack=attack, budget=budget, defenses=chosen.defenses,
            scores=chosen.scores,
        ),
        queries=[
            (query, target)
            for query, target in store.queries().values()
            if not dataset or query.dataset == dataset
        ],
        trials=trials,
        numbers=numbers,
        rows=rows[::-1][newest],
        about=about,
        defenses=tuple(chosen.defenses or known),
    )  # fmt: skip


def _named(column: Coded, rows: NDArray[np.int64]) -> set[str]:
    return {column.values[code] for code in np.unique(column.codes[rows]).tolist()}


def _only(what: str, wanted: str | None, found: set[str]) -> str:
    if wanted is None and len(found) == 1:
        return next(iter(found))
    if wanted is None:
        raise ConfigError(f"the run has several {what}s, choose one (--{what}): {_listed(found)}")
    if wanted not in found:
        raise ConfigError(f"no answers with --{what} {wanted!r}; there are: {_listed(found)}")
    return wanted


def _listed(names: Any) -> str:
    shown = [repr(name)[:60] for name in sorted(names)[:12]]
    return ", ".join(shown) + (", ..." if len(names) > 12 else "") or "none"


# ----------------------------------------------------------------------------------- formats


def _four(run: _Run) -> tuple[dict[str, Iterable[str]], dict[str, str], int, int]:
    parts = [(condition, "", condition) for condition in CONDITIONS[:2]]
    for number, defense in enumerate(run.defenses, start=1):
        tail = f"-{number}" if len(run.defenses) > 1 else ""
        parts += [(condition, defense, condition + tail) for condition in CONDITIONS[2:]]
    texts: dict[str, Iterable[str]] = {}
    names: dict[str, str] = {}
    answers = left_out = 0
    for condition, defense, stem in parts:
        rows = run.answered(condition, defense)
        file = stem.replace("_", "-") + ".jsonl"
        texts[file] = _rows(run, rows, defense)
        names[f"{condition} {defense}".strip()] = file
        answers += int((rows >= 0).sum())
        left_out += int((rows < 0).sum())
    return texts, names, answers, left_out


def _rows(run: _Run, rows: NDArray[np.int64], defense: str) -> Iterator[str]:
    there = np.flatnonzero(rows >= 0)
    for i, trial in zip(there.tolist(), run.trials.records(rows[there]), strict=True):
        yield _line(_row(*run.queries[i], trial, defense))


def _row(query: Query, target: Target, trial: TrialRecord, defense: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "query_id": query.id,
        "group_id": query.group,
        "question": query.text,
        "target": _target(target),
        "references": list(target.references),
        "answer": trial.answer,
    }
    source, metadata = _kept(trial)
    if source:
        row["reference_source"] = source
    if defense:
        row["method"] = defense
    if metadata:
        row["metadata"] = metadata
    return row


def _joined(run: _Run) -> tuple[dict[str, Iterable[str]], dict[str, str], int, int]:
    if not run.defenses:
        raise ConfigError(
            "joined records need a defense, and this run has none; export with --format jsonl"
        )
    outputs: dict[str, Any] = {}
    records: list[dict[str, Any]] = []
    left_out = 0
    for defense in run.defenses:
        rows = np.column_stack([run.answered(condition, defense) for condition in CONDITIONS])
        whole = np.flatnonzero((rows >= 0).all(axis=1))
        left_out += len(rows) - len(whole)
        found = run.trials.records(rows[whole].ravel())
        for i in whole.tolist():
            trials = {condition: next(found) for condition in CONDITIONS}
            records.append(_record(run, *run.queries[i], trials, defense, outputs))
    document: dict[str, Any] = {
        "kind": KINDS[0],
        "version": VERSION,
        "setting_id": run.chosen.setting or NO_SETTING,
        "axes": {"victim": run.about.get("generator", ""), "dataset": run.about.get("dataset", "")},
        "outputs": outputs,
        "records": records,
    }
    if len(run.defenses) == 1:
        document["method"] = run.defenses[0]
    document["sha256"] = _hash(document, "the settings")
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return {"": [text]}, {"records": ""}, 4 * len(records), left_out


def _record(
    run: _Run,
    query: Query,
    target: Target,
    trials: Mapping[str, TrialRecord],
    defense: str,
    outputs: dict[str, Any],
) -> dict[str, Any]:
    conditions: dict[str, str] = {}
    metadata: dict[str, Any] = {}
    for condition, trial in trials.items():
        source, metadata[condition] = _kept(trial)
        item = {
            "question": query.text,
            "target": _target(target),
            "references": list(target.references),
            "reference_source": source,
            "answer": trial.answer,
        }
        key = _hash(item, f"query {query.id!r:.60}, {condition}")
        outputs[key] = item
        conditions[condition] = key
    return {
        "id": query.id,
        "query": query.text,
        "group_id": query.group,
        "method": defense,
        "cell": f"{run.chosen.attack}_p{run.chosen.budget}",
        "conditions": conditions,
        "metadata": metadata,
    }


def _in_order(run: _Run) -> Iterator[tuple[Query, TrialRecord, tuple[ScoreRecord | None, ...]]]:
    rows = np.column_stack(
        [
            run.found(poisoned, defense)
            for defense in (UNDEFENDED, *run.defenses)
            for poisoned in (False, True)
        ]
    )
    asked, _ = np.nonzero(rows >= 0)
    there = rows[rows >= 0]
    scores = [run.trials.records_of(scorer, there) for scorer in run.chosen.scores]
    for i, trial, *said in zip(asked.tolist(), run.trials.records(there), *scores, strict=True):
        yield run.queries[i][0], trial, tuple(said)


def _target(target: Target) -> str | list[str] | None:
    if len(target.wanted) == 1:
        return target.wanted[0]
    return list(target.wanted) or None


def _kept(trial: TrialRecord) -> tuple[str, dict[str, Any]]:
    """What an import had kept beside an answer: source of the references, metadata."""
    if trial.spec.protocol != PROTOCOL:
        return "", {"declined": True} if trial.declined else {}
    trace = to_plain(trial.trace)
    return trace.get("reference_source", ""), trace.get("metadata", {})


def _hash(value: Any, what: str) -> str:
    try:
        return fingerprint(value)
    except UnicodeEncodeError as error:
        raise DataError(
            f"{what}: a text holds a lone surrogate, which has no hash in the joined format; "
            "export with --format jsonl"
        ) from error


# ------------------------------------------------------------------------------------- files


def _line(row: Mapping[str, Any]) -> str:
    return escaped(json.dumps(row, ensure_ascii=False, sort_keys=True, allow_nan=False)) + "\n"


def _write(
    texts: Mapping[str, Iterable[str]], names: Mapping[str, str], out: Path, *, folder: bool
) -> dict[str, Path]:
    """Write all files beside their place, then move them there."""
    temporary = out.parent / f".{out.name}.{os.getpid()}.exporting"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        for name, pieces in texts.items():
            path = temporary / (name or out.name)
            with path.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(pieces)
        if folder:
            move_folder(temporary, out)
        else:
            for name in texts:
                (temporary / (name or out.name)).replace(out.parent / (name or out.name))
    except OSError as error:
        raise StoreError(f"{out} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    base = out if folder else out.parent
    return {what: base / (name or out.name) for what, name in names.items()}
