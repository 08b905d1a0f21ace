"""The answers of a run folder, for elsewhere: four files, joined records, and scores as CSV.

One attack, one budget and one setting stand in one export, since neither format can tell
several apart. Of a trial the question, the answer, target and references go out, and what an
import had kept beside them; contexts and traces of defenses stay in the run folder.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragassay.canon import to_plain
from ragassay.errors import ConfigError, DataError, StoreError
from ragassay.exchange.folder import PROTOCOL, check_free, move_folder
from ragassay.exchange.joined import KINDS, NO_SETTING, fingerprint
from ragassay.exchange.rows import CONDITIONS, UNDEFENDED
from ragassay.exchange.scores import escaped, score_table
from ragassay.store import RunFolder
from ragassay.types import Query, Target, TrialRecord

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
    """The chosen part of a run, by (query, budget > 0, defense)."""

    chosen: Selection
    queries: Sequence[tuple[Query, Target]]
    trials: Mapping[tuple[str, bool, str], TrialRecord]
    about: Mapping[str, Any]
    defenses: tuple[str, ...]

    def answer(self, query: Query, condition: str, defense: str) -> TrialRecord | None:
        """Find a trial that has an answer."""
        name = UNDEFENDED if condition.endswith("_undefended") else defense
        trial = self.trials.get((query.id, condition.startswith("poisoned"), name))
        return trial if trial is not None and trial.answer is not None else None


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
        texts[name] = score_table(_in_order(run), store.scores(), run.chosen.scores)
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
    trials = [t for t in store.trials().values() if t.status == "done"]
    if not trials:
        raise ConfigError(f"{store.path} holds no answers")
    setting = _only("setting", chosen.setting, {t.spec.setting for t in trials})
    trials = [t for t in trials if t.spec.setting == setting]
    poisoned = [t for t in trials if t.spec.budget]
    attack, budget = "", 0
    if poisoned:
        attack = _only("attack", chosen.attack, {t.spec.attack for t in poisoned})
        poisoned = [t for t in poisoned if t.spec.attack == attack]
        budgets = {str(t.spec.budget) for t in poisoned}
        wanted = None if chosen.budget is None else str(chosen.budget)
        budget = int(_only("budget", wanted, budgets))
    here = {
        (t.spec.query_id, t.spec.budget > 0, t.spec.defense_label): t
        for t in trials
        if not t.spec.budget or (t.spec.attack, t.spec.budget) == (attack, budget)
    }
    known = sorted({defense for _, _, defense in here} - {UNDEFENDED})
    for name in chosen.defenses:
        if name not in known:
            raise ConfigError(f"no answers of the defense {name!r}; there are: {_listed(known)}")
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
        trials=here,
        about=about,
        defenses=tuple(chosen.defenses or known),
    )  # fmt: skip


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


def _four(run: _Run) -> tuple[dict[str, str], dict[str, str], int, int]:
    parts = [(condition, "", condition) for condition in CONDITIONS[:2]]
    for number, defense in enumerate(run.defenses, start=1):
        tail = f"-{number}" if len(run.defenses) > 1 else ""
        parts += [(condition, defense, condition + tail) for condition in CONDITIONS[2:]]
    texts: dict[str, str] = {}
    names: dict[str, str] = {}
    answers = left_out = 0
    for condition, defense, stem in parts:
        rows = []
        for query, target in run.queries:
            trial = run.answer(query, condition, defense)
            if trial is None:
                left_out += 1
                continue
            rows.append(_line(_row(query, target, trial, defense)))
        file = stem.replace("_", "-") + ".jsonl"
        texts[file] = "".join(rows)
        names[f"{condition} {defense}".strip()] = file
        answers += len(rows)
    return texts, names, answers, left_out


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


def _joined(run: _Run) -> tuple[dict[str, str], dict[str, str], int, int]:
    if not run.defenses:
        raise ConfigError(
            "joined records need a defense, and this run has none; export with --format jsonl"
        )
    outputs: dict[str, Any] = {}
    records: list[dict[str, Any]] = []
    left_out = 0
    for defense in run.defenses:
        for query, target in run.queries:
            trials = {c: run.answer(query, c, defense) for c in CONDITIONS}
            if any(trial is None for trial in trials.values()):
                left_out += 1
                continue
            records.append(_record(run, query, target, trials, defense, outputs))  # type: ignore[arg-type]
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
    return {"": text}, {"records": ""}, 4 * len(records), left_out


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


def _in_order(run: _Run) -> Iterator[tuple[Query, TrialRecord]]:
    for query, _ in run.queries:
        for defense in (UNDEFENDED, *run.defenses):
            for poisoned in (False, True):
                trial = run.trials.get((query.id, poisoned, defense))
                if trial is not None:
                    yield query, trial


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
    texts: Mapping[str, str], names: Mapping[str, str], out: Path, *, folder: bool
) -> dict[str, Path]:
    """Write all files beside their place, then move them there."""
    temporary = out.parent / f".{out.name}.{os.getpid()}.exporting"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        for name, text in texts.items():
            (temporary / (name or out.name)).write_text(text, encoding="utf-8", newline="\n")
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
