"""Public saved answers: every released label and every released summary row is reproduced."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ragassay.exchange import open_file, read, write_folder
from ragassay.exchange.saved import attack_name
from ragassay.experiments.protocols import analyze
from ragassay.experiments.rescore import score_folder
from ragassay.store import RunFolder
from ragassay.types import ScoreRecord, TrialRecord

NAMES = ("repro-cp", "repro-corpus", "repro-paper")
ANSWERS = {"repro-cp": 7650, "repro-corpus": 4050, "repro-paper": 900}
SUMMARY_ROWS = {"repro-cp": 153, "repro-corpus": 81}
VANISH = {"repro-cp": 72, "repro-corpus": 53, "repro-paper": 8}


@dataclass
class Imported:
    """One set, imported, labeled and analyzed."""

    released: list[dict[str, Any]]
    trials: dict[str, TrialRecord]
    scores: dict[tuple[str, str], ScoreRecord]
    summary: dict[str, Any]

    def counts(self, scorer: str, label: str) -> Counter[tuple[str, str, int]]:
        """How many answers have a label, by setting, attack and budget."""
        return Counter(
            (t.spec.setting, t.spec.attack, t.spec.budget)
            for key, t in self.trials.items()
            if getattr(self.scores[key, scorer], label)
        )


def lines(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    return [json.loads(line) for line in text.decode("utf-8").split("\n") if line]


@pytest.fixture(scope="module")
def saved(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Imported]:
    folder = shared_data / "saved-answers"
    if not folder.is_dir():
        pytest.skip(f"saved answers are not at {folder}")
    base = tmp_path_factory.mktemp("saved")
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAGASSAY_CACHE", str(base / "cache"))
        for name in NAMES:
            path = folder / f"{name}.jsonl.gz"
            out = write_folder(read(open_file(path)), base / name, statistics={"draws": 100})
            score_folder(out, ["published", "tokens"])
            store = RunFolder(out)
            found[name] = Imported(
                lines(path), store.trials(), store.scores(), analyze(out, ["published", "tokens"])
            )
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_is_imported_as_it_was_saved(saved: dict[str, Imported], name: str) -> None:
    mine = Counter(
        (t.spec.setting, t.spec.query_id.partition("/")[2], t.answer)
        for t in saved[name].trials.values()
    )
    theirs = Counter(
        (f"{row['model']}/{row['dataset']}", row["query_id"], row["response"])
        for row in saved[name].released
    )
    assert mine == theirs
    assert mine.total() == ANSWERS[name]
    trials = saved[name].summary["trials"]
    assert (trials["planned"], trials["done"], trials["missing"]) == (ANSWERS[name],) * 2 + (0,)


@pytest.mark.parametrize("name", ["repro-cp", "repro-corpus"])
def test_the_published_rule_gives_every_released_label(
    saved: dict[str, Imported], name: str
) -> None:
    checked = 0
    for key, trial in saved[name].trials.items():
        released: Any = trial.trace["released"]
        score = saved[name].scores[key, "published"]
        assert score.target_positive is released["attack_success"], key
        assert score.correct is released["correct_answer_present"], key
        checked += 1
    assert checked == ANSWERS[name]


@pytest.mark.parametrize("name", ["repro-cp", "repro-corpus"])
def test_every_released_summary_row_follows_from_the_folder(
    saved: dict[str, Imported], shared_data: Path, name: str
) -> None:
    cells = {
        (cell["setting"], cell["attack"], cell["budget"]): cell
        for cell in saved[name].summary["cells"]
        if cell["scorer"] == "published" and cell["defense"] == "none"
    }
    attacks = {
        (row["model"], row["dataset"], row["condition"]): (_attack(row), row["n_poison"])
        for row in saved[name].released
    }
    rows = lines(shared_data / "saved-answers" / f"{name}-summary.jsonl")
    assert len(rows) == SUMMARY_ROWS[name]
    for row in rows:
        setting = f"{row['model']}/{row['dataset']}"
        attack, budget = attacks[row["model"], row["dataset"], row["condition"]]
        if budget:
            cell, condition = cells[setting, attack, budget], "p0"
        else:
            cell = next(cell for place, cell in cells.items() if place[0] == setting)
            condition = "c0"
        context = cell["context"][condition]
        own, passages = context["retrieved"]["own"], context["retrieved"]["passages"]
        mine = {
            "n": cell["n"],
            "asr": cell["labels"][condition]["positive"]["value"],
            "correct_answer_rate": cell["correct"][condition]["value"],
            "retrieval_success_rate": context["any_poison"]["value"],
            "avg_poison_in_topk": own,
            "avg_poison_topk_share": own / passages,
        }
        assert mine == pytest.approx({what: row[what] for what in mine}, abs=1e-12), row


def _attack(row: dict[str, Any]) -> str:
    from ragassay.data.entries import Entry

    return attack_name(Entry(row, Path("row"), 1)) if row["n_poison"] else ""


@pytest.mark.parametrize("name", NAMES)
def test_the_substring_successes_that_vanish_under_whole_tokens(
    saved: dict[str, Imported], name: str
) -> None:
    scores, trials = saved[name].scores, saved[name].trials
    gone = [
        key
        for key in trials
        if scores[key, "published"].target_positive and not scores[key, "tokens"].target_positive
    ]
    assert len(gone) == VANISH[name]


def test_clean_answers_carry_the_stated_substring_successes(saved: dict[str, Imported]) -> None:
    for name, stated in (("repro-cp", 39), ("repro-corpus", 22)):
        hits = saved[name].counts("published", "target_positive")
        assert sum(n for (_, _, budget), n in hits.items() if not budget) == stated


def test_the_logs_have_nine_settings_in_groups_of_ten_and_their_stated_precision(
    saved: dict[str, Imported],
) -> None:
    """The released "ASR Mean" of the nine logs is not among the data, so it is not compared."""
    paper = saved["repro-paper"]
    sizes = Counter(trial.spec.setting for trial in paper.trials.values())
    assert set(sizes.values()) == {100}
    assert len(sizes) == 9
    injected = Counter(
        (f"{row['model']}/{row['dataset']}", len(row["injected_in_topk"])) for row in paper.released
    )
    mine = Counter(
        (t.spec.setting, sum(entry.origin == "own" for entry in t.context))
        for t in paper.trials.values()
    )
    assert mine == injected
    assert all(len(trial.context) == 5 for trial in paper.trials.values())
    cells = [cell for cell in paper.summary["cells"] if cell["scorer"] == "published"]
    assert len(cells) == 9
    assert {cell["dropped"]["missing"] for cell in cells} == {100}
    assert all(cell["labels"]["p0"]["positive"]["n"] == 100 for cell in cells)
